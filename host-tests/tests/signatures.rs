//! Who says what: the signature that upstreams and a second idempo can verify, and forged ones.

use hmac::{Hmac, KeyInit as _, Mac as _};
use host_tests::{
    check::{replayed, until},
    client::{Answer, Raw, Request},
    envoy::{Envoy, SIGNING_SECRET, config::LOOPBACK},
    filter::{self, key},
    upstream::{Received, Upstream, octets},
};
use serde_json::json;
use sha2::Sha256;

fn charge() -> Request {
    Request::post("/v1/charges")
        .key(key())
        .json(r#"{"amount":1200,"currency":"eur"}"#)
}

const ACTIVE: &str = "an active secret of some length";
const PREVIOUS: &str = "the one before, still accepted";

/// The signed string as documented: each field as its length, a colon, its octets, a line feed.
fn signature(got: &Received, at: &str, secret: &str) -> String {
    let mut lines: Vec<(&str, &[u8])> = got
        .headers
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_slice()))
        .filter(|(n, _)| n.starts_with("x-idempo-") && *n != "x-idempo-signature")
        .collect();
    lines.sort_unstable();
    let mut fields: Vec<&[u8]> = vec![
        b"idempo-signature-v1",
        at.as_bytes(),
        b"host-tests",
        got.method.as_bytes(),
        got.target.as_bytes(),
    ];
    for (name, value) in &lines {
        fields.extend([name.as_bytes(), value]);
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    for field in fields {
        mac.update(format!("{}:", field.len()).as_bytes());
        mac.update(field);
        mac.update(b"\n");
    }
    format!("t={at},v1={}", hex::encode(mac.finalize().into_bytes()))
}

async fn signing(upstream: &Upstream) -> Envoy {
    let mut config = filter::minimal();
    config["signing"] = json!({
        "active": {"env": "IDEMPO_TEST_ACTIVE"},
        "previous": {"env": "IDEMPO_TEST_PREVIOUS"},
    });
    Envoy::with_filter(upstream, config)
        .env("IDEMPO_TEST_ACTIVE", ACTIVE)
        .env("IDEMPO_TEST_PREVIOUS", PREVIOUS)
        .start()
        .await
}

/// The request as the next hop would send it on, derived headers included.
fn forwarded(got: &Received) -> Request {
    got.headers
        .iter()
        .filter(|(n, _)| n.starts_with("x-idempo-") || n == "idempotency-key")
        .fold(
            Request::post(&got.target).content("text/plain", "x"),
            |r, (n, v)| r.header(n, v),
        )
}

fn with(mut request: Request, name: &str, value: &str) -> Request {
    request.headers.retain(|(n, _)| n != name);
    request.header(name, value)
}

#[tokio::test]
async fn the_upstream_can_verify_who_says_what() {
    let upstream = Upstream::start().await;
    let envoy = signing(&upstream).await;
    let addr = envoy.addr();
    let forged = charge()
        .header("x-idempo-tenant", "somebody-else")
        .header("x-idempo-signature", "t=1,v1=00");
    let mut request = forged.clone();
    request.target = "/v1/charges?b=2&a=1".into();
    let answer = Raw::exchange(addr, &request).await.unwrap();
    assert_eq!(answer.status, 201, "{answer:?}");
    let got = upstream.only_request();
    let shown = got.one("x-idempo-signature").unwrap();
    let at = shown.strip_prefix("t=").unwrap().split(',').next().unwrap();
    assert_eq!(shown, signature(&got, at, ACTIVE));
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    assert!(at.parse::<u64>().unwrap().abs_diff(now) < 60, "{at}");
    assert_ne!(got.one("x-idempo-tenant"), Some("somebody-else"));
    for name in [
        "operation",
        "attempt",
        "generation",
        "route",
        "key-hash",
        "claimed-at",
        "proxy",
    ] {
        let name = format!("x-idempo-{name}");
        assert!(
            got.one(&name).is_some_and(|v| !v.is_empty()),
            "{name}: {got:?}"
        );
    }
    assert_eq!(
        got.one("x-idempo-operation"),
        answer.one("idempotency-operation")
    );
    assert_eq!(got.one("x-idempo-attempt"), got.one("x-request-id"));
    assert_eq!(got.one("x-idempo-proxy"), Some("host-tests"));

    // A second idempo of the namespace in the path: claimed already, so it passes as it is.
    upstream.reset();
    let passed = Raw::exchange(addr, &forwarded(&got)).await.unwrap();
    assert_eq!(passed.status, 201, "{passed:?}");
    assert_eq!(passed.one("idempotent-replayed"), None);
    let second = upstream.only_request();
    for name in got.derived() {
        assert_eq!(second.all(name), got.all(name), "{name}");
    }
    // Signed with the previous secret, while it is rotated out.
    let by_previous = with(
        forwarded(&got),
        "x-idempo-signature",
        &signature(&got, at, PREVIOUS),
    );
    let passed = Raw::exchange(addr, &by_previous).await.unwrap();
    assert_eq!(passed.one("idempotent-replayed"), None, "{passed:?}");
    let stats = envoy.stats().await;
    assert_eq!(
        stats.idempo("idempo_bypass_total", &[("reason", "signed")]),
        2
    );

    // Anything else is a client's own words: removed, and the request is judged like any other.
    let stale = (now - 3600).to_string();
    let own = |r: Request| with(r, "idempotency-key", &key());
    let mut elsewhere = own(forwarded(&got));
    elsewhere.target = "/v1/refunds".into();
    for forged in [
        own(with(forwarded(&got), "x-idempo-tenant", "somebody-else")),
        own(with(forwarded(&got), "x-idempo-generation", "99")),
        own(forwarded(&got).header("x-idempo-extra", "1")),
        own(with(
            forwarded(&got),
            "x-idempo-signature",
            &signature(&got, at, "another secret"),
        )),
        own(with(
            forwarded(&got),
            "x-idempo-signature",
            &signature(&got, &stale, ACTIVE),
        )),
        elsewhere,
    ] {
        upstream.reset();
        let answer: Answer = Raw::exchange(addr, &forged).await.unwrap();
        assert_eq!(
            answer.one("idempotent-replayed"),
            Some("false"),
            "{answer:?}"
        );
        let got = upstream.only_request();
        assert_eq!(
            got.one("x-idempo-operation"),
            answer.one("idempotency-operation")
        );
        let shown = got.one("x-idempo-signature").unwrap();
        let at = shown.strip_prefix("t=").unwrap().split(',').next().unwrap();
        assert_eq!(shown, signature(&got, at, ACTIVE));
        assert_eq!(got.one("x-idempo-extra"), None);
        assert_ne!(got.one("x-idempo-tenant"), Some("somebody-else"));
    }
    // Where no rule stands they are removed as well.
    upstream.reset();
    let unmatched = Request::post("/elsewhere").header("x-idempo-tenant", "somebody-else");
    Raw::exchange(addr, &unmatched).await.unwrap();
    assert_eq!(upstream.only_request().derived().len(), 0);
    assert_eq!(envoy.vm_traps(), 0);
}

/// A claimed request that is sent on through the same Envoy meets the filter a second time, with the
/// signature of the first: it is let through as it is, and what it is answered is recorded once.
#[tokio::test]
async fn what_comes_back_through_the_loopback_is_not_claimed_again() {
    let upstream = Upstream::start().await;
    let mut config = filter::minimal();
    config["signing"] = json!({"active": {"env": SIGNING_SECRET}});
    let away = json!({
        "match": {"prefix": "/", "headers": [
            {"name": "x-second-time", "present_match": true, "invert_match": true},
        ]},
        "route": {"cluster": LOOPBACK},
        "request_headers_to_add": [{"header": {"key": "x-second-time", "value": "1"}}],
    });
    let envoy = Envoy::with_filter(&upstream, config)
        .options(|o| o.routes_before = vec![away])
        .loopback()
        .start()
        .await;
    let body = octets(1, 1 << 20);
    let request = Request::post("/v1/charges?b=2&a=1")
        .key(key())
        .content("application/octet-stream", &body);
    let wanted = request.clone().header("x-demo-size", "1000000");
    let first = Raw::exchange(envoy.addr(), &wanted).await.unwrap();
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(first.body, octets(0, 1_000_000));
    let got = upstream.only_request();
    assert!(got.brought(&body), "{got:?}");
    assert_eq!(got.operation(), first.one("idempotency-operation"));
    assert_eq!(got.one("x-idempo-attempt"), got.one("x-request-id"));
    replayed(
        &first,
        &Raw::exchange(envoy.addr(), &request).await.unwrap(),
    );
    let unknown = charge().header("x-demo-fault", "act-reset");
    let failed = Raw::exchange(envoy.addr(), &unknown).await.unwrap();
    assert_eq!(failed.one("idempotency-status"), Some("unknown"));
    assert_eq!(upstream.effects(), 2);
    let stats = envoy.stats().await;
    let count = |metric, dimensions: &[_]| stats.idempo(metric, dimensions);
    assert_eq!(count("idempo_claim_total", &[("result", "claimed")]), 2);
    assert_eq!(count("idempo_bypass_total", &[("reason", "signed")]), 2);
    let inner = until("the loopback's access log", || async {
        let lines = envoy.loopback_access_log();
        (lines.len() == 2).then_some(lines)
    })
    .await;
    assert!(inner.iter().all(|l| l["outcome"] == "signed"), "{inner:#?}");
    assert_eq!(envoy.vm_traps(), 0);
}
