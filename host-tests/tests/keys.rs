//! Keys as clients really send them, and as hostile ones do: a documented answer to each, and no VM
//! lost to any.

use host_tests::{
    check::{discloses_none, refused, replayed},
    client::{Raw, Request},
    envoy::Envoy,
    filter::{self, key},
    upstream::Upstream,
};
use serde_json::json;

const UUID: &str = "5f0b8a52-9d3c-4e1b-8c65-0e4b7a9d2f31";
const B64: &str = "V1StGXR8_Z5jdHi6B-myTg";

/// Unrepetitive visible base64url of that many characters.
fn text(length: usize) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut seed = 12_345_u32;
    (0..length)
        .map(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(ALPHABET[(seed >> 26) as usize])
        })
        .collect()
}

/// A name, the key lines, and what they get: `None` is an answer of the upstream's, else the code of
/// a 400.
type Case = (&'static str, Vec<Vec<u8>>, Option<&'static str>);

fn cases() -> Vec<Case> {
    let one = |value: &[u8]| vec![value.to_vec()];
    // 128 characters make whole groups of four, so that they decode.
    let (longest, too_long) = (text(128), text(129));
    vec![
        ("no line", vec![], Some("key_missing")),
        ("empty", one(b""), Some("key_invalid")),
        ("blank", one(b"   "), Some("key_invalid")),
        ("a tab only", one(b"\t"), Some("key_invalid")),
        ("two quotes", one(b"\"\""), Some("key_invalid")),
        ("blank in quotes", one(b"\"   \""), Some("key_invalid")),
        (
            "an open quote",
            one(format!("\"{UUID}").as_bytes()),
            Some("key_invalid"),
        ),
        (
            "a tab inside",
            one(b"5f0b8a52-9d3c\t4e1b-8c65-0e4b7a9d2f31"),
            Some("key_invalid"),
        ),
        (
            "not UTF-8",
            one(b"\xff\xfe\x80abcdefghijklmnopqrstuvw"),
            Some("key_invalid"),
        ),
        (
            "half of a character",
            one(b"V1StGXR8_Z5jdHi6B-my\xf0\x9f"),
            Some("key_invalid"),
        ),
        (
            "Latin-1",
            one(b"caf\xe9-V1StGXR8_Z5jdHi6B-myTg"),
            Some("key_invalid"),
        ),
        (
            "emoji",
            one("🔑🔑🔑🔑🔑🔑🔑🔑".as_bytes()),
            Some("key_invalid"),
        ),
        (
            "full-width digits",
            one("１２３４５６７８９０１２３４５６７８９０１２".as_bytes()),
            Some("key_invalid"),
        ),
        (
            "two that differ",
            vec![UUID.into(), B64.into()],
            Some("key_invalid"),
        ),
        (
            "one and an empty one",
            vec![UUID.into(), Vec::new()],
            Some("key_invalid"),
        ),
        (
            "one and an odd one",
            vec![UUID.into(), vec![0xff]],
            Some("key_invalid"),
        ),
        (
            "a list",
            one(format!("{UUID}, {UUID}").as_bytes()),
            Some("key_invalid"),
        ),
        (
            "21 characters",
            one(&B64.as_bytes()[..21]),
            Some("key_weak"),
        ),
        ("a counter", one(b"1234"), Some("key_weak")),
        (
            "nil",
            one(b"00000000-0000-0000-0000-000000000000"),
            Some("key_weak"),
        ),
        (
            "max",
            one(b"ffffffff-ffff-ffff-ffff-ffffffffffff"),
            Some("key_weak"),
        ),
        ("aaaa…", one("a".repeat(22).as_bytes()), Some("key_weak")),
        (
            "aaaa… long",
            one("a".repeat(128).as_bytes()),
            Some("key_weak"),
        ),
        ("abab…", one("ab".repeat(20).as_bytes()), Some("key_weak")),
        (
            "129 characters",
            one(too_long.as_bytes()),
            Some("key_invalid"),
        ),
        ("8 kB", one(text(8000).as_bytes()), Some("key_invalid")),
        (
            "8 kB of quotes",
            one("\"".repeat(8000).as_bytes()),
            Some("key_invalid"),
        ),
        (
            "8 kB of backslashes",
            one("\\".repeat(8000).as_bytes()),
            Some("key_invalid"),
        ),
        ("22 characters", one(B64.as_bytes()), None),
        ("128 characters", one(longest.as_bytes()), None),
        ("UUID", one(key().as_bytes()), None),
        (
            "UUID in quotes",
            one(format!("\"{}\"", key()).as_bytes()),
            None,
        ),
        (
            "white space around",
            one(format!("  {}\t", key()).as_bytes()),
            None,
        ),
        ("the same line twice", vec![UUID.into(), UUID.into()], None),
    ]
}

#[tokio::test]
async fn every_key_has_its_documented_answer() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    let mut refusals = 0;
    let mut effects = 0;
    for (what, lines, expected) in cases() {
        let request = lines
            .iter()
            .fold(Request::post("/v1/charges").json("{}"), |r, line| {
                r.key(line)
            });
        let answer = Raw::exchange(envoy.addr(), &request)
            .await
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        eprintln!("{what}: {answer:?}");
        match expected {
            Some(code) => {
                refused(&answer, 400, code);
                refusals += 1;
                // A key may be a guess at somebody else's: it is not repeated.
                let told: Vec<&str> = lines
                    .iter()
                    .filter_map(|l| std::str::from_utf8(l).ok())
                    .filter(|l| l.len() >= 8 && l.trim() == *l)
                    .collect();
                discloses_none(&answer, &told);
            }
            None => {
                assert_eq!(answer.status, 201, "{what}: {answer:?}");
                effects += 1;
            }
        }
        assert_eq!(upstream.effects(), effects, "{what}");
    }
    assert!(refusals > 20 && effects > 5);
    let stats = envoy.stats().await;
    assert_eq!(stats.idempo("idempo_rejected_total", &[]), refusals);
    assert_eq!(envoy.vm_traps(), 0, "no VM was lost");
    assert_eq!(stats.get("wasm.idempo.vm_reload_success"), 0);
}

/// Envoy refuses these itself (RFC 9110 §5.5), before any filter.
#[tokio::test]
async fn control_octets_are_refused_before_the_filter() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    for octet in (0..32)
        .filter(|o| ![b'\t', b'\n', b'\r'].contains(o))
        .chain([127])
    {
        let value = [UUID.as_bytes(), &[octet]].concat();
        let request = Request::post("/v1/charges").key(value).json("{}");
        let answer = Raw::exchange(envoy.addr(), &request).await.unwrap();
        assert_eq!(answer.status, 400, "octet {octet}: {answer:?}");
    }
    assert_eq!(upstream.requests().len(), 0);
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn a_uuid_is_one_key_in_any_case() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    let charge = |key: &str| Request::post("/v1/charges").key(key).json("{}");
    let first = envoy.pool().send(&charge(UUID)).await.unwrap();
    assert_eq!(first.status, 201);
    let again = envoy
        .pool()
        .send(&charge(&UUID.to_uppercase()))
        .await
        .unwrap();
    replayed(&first, &again);
    // Base64url is not: another case is another key.
    assert_eq!(envoy.pool().send(&charge(B64)).await.unwrap().status, 201);
    let swapped: String = B64
        .chars()
        .map(|c| {
            if c.is_ascii_lowercase() {
                c.to_ascii_uppercase()
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect();
    let other = envoy.pool().send(&charge(&swapped)).await.unwrap();
    assert_eq!(other.status, 201);
    assert_ne!(other.one("idempotent-replayed"), Some("true"));
    assert_eq!(upstream.effects(), 3);
}

#[tokio::test]
async fn the_key_may_be_in_the_body_and_must_agree_with_the_header() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    let pool = envoy.pool();
    let body = format!(r#"{{"amount":1,"idempotency_key":"{UUID}"}}"#);
    let in_body = Request::post("/v1/charges").json(&body);
    let first = pool.send(&in_body).await.unwrap();
    assert_eq!(first.status, 201, "{first:?}");
    replayed(&first, &pool.send(&in_body).await.unwrap());
    let agrees = in_body.clone().key(UUID.to_uppercase());
    replayed(&first, &pool.send(&agrees).await.unwrap());
    refused(
        &pool.send(&in_body.key(B64)).await.unwrap(),
        400,
        "key_invalid",
    );
    for odd in ["42", "[]", "\"\"", "\"🔑\"", r#""\u0000""#] {
        let request = Request::post("/v1/charges").json(format!(r#"{{"idempotency_key":{odd}}}"#));
        refused(&pool.send(&request).await.unwrap(), 400, "key_invalid");
    }
    assert_eq!(upstream.effects(), 1);
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn reading_needs_no_key_and_an_optional_key_may_be_left_out() {
    let upstream = Upstream::start().await;
    let filter = filter::with_route(json!({"key": {"required": false}}));
    let envoy = Envoy::with_filter(&upstream, filter).start().await;
    let pool = envoy.pool();
    for method in ["GET", "HEAD", "OPTIONS"] {
        let answer = pool
            .send(&Request::new(method, "/v1/charges"))
            .await
            .unwrap();
        assert_eq!(answer.status, 200, "{method}");
    }
    let keyless = Request::post("/v1/charges").json("{}");
    for _ in 0..2 {
        let answer = pool.send(&keyless).await.unwrap();
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_ne!(answer.one("idempotent-replayed"), Some("true"));
    }
    assert_eq!(upstream.effects(), 2);
    let passed = envoy.stats().await.idempo("idempo_bypass_total", &[]);
    assert_eq!(passed, 2, "writes that passed without a key are counted");
    refused(
        &pool.send(&keyless.key("weak")).await.unwrap(),
        400,
        "key_weak",
    );
}
