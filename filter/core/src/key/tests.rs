//! What the contract says of keys, and what hostile clients send.

use super::*;
use crate::plan::{KeyCase, KeySyntax};
use serde_json::json;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const UUID: &str = "550e8400-e29b-41d4-a716-446655440000";
const B64: &str = "V1StGXR8_Z5jdHi6B-myTq";

fn lines<V: AsRef<[u8]>>(rule: &KeyRule, values: &[V]) -> Result<Option<Key>, KeyError> {
    let headers = values
        .iter()
        .map(|v| ("Idempotency-Key", v.as_ref()))
        .collect();
    from_headers(rule, &headers)
}

fn one(value: impl AsRef<[u8]>) -> Result<Option<Key>, KeyError> {
    lines(&KeyRule::default(), &[value])
}

fn key(text: &str) -> Result<Option<Key>, KeyError> {
    Ok(Some(Key(text.into())))
}

fn invalid(reason: &'static str) -> Result<Option<Key>, KeyError> {
    Err(KeyError::Invalid(reason))
}

fn weak(reason: &'static str) -> Result<Option<Key>, KeyError> {
    Err(KeyError::Weak(reason))
}

fn opaque(min: usize) -> KeyRule {
    KeyRule {
        formats: vec![KeyFormat::Opaque],
        min_entropy_bytes: min,
        max_length: 255,
        ..KeyRule::default()
    }
}

#[test]
fn no_line_is_no_key() {
    let none: [&str; 0] = [];
    assert_eq!(lines(&KeyRule::default(), &none), Ok(None));
}

#[test]
fn quoted_and_bare_are_one_key() {
    for value in [
        UUID.to_owned(),
        UUID.to_uppercase(),
        format!(" \t{UUID} \t"),
        format!("\"{UUID}\""),
        format!("\t\"{}\" ", UUID.to_uppercase()),
        format!("\"{UUID}\";v=1;w=\"a,b\";x"),
        format!("\"{UUID}\"; v=?1"),
    ] {
        assert_eq!(one(&value), key(UUID), "{value}");
    }
}

#[test]
fn repeated_lines_must_agree_after_normalisation() {
    let rule = KeyRule::default();
    let quoted = format!("\"{}\"", UUID.to_uppercase());
    assert_eq!(lines(&rule, &[UUID, UUID]), key(UUID));
    assert_eq!(lines(&rule, &[UUID, &quoted]), key(UUID));
    assert_eq!(lines(&rule, &[UUID, B64]), invalid(reason::LINES_DIFFER));
    assert_eq!(
        lines(&rule, &[UUID, UUID, B64]),
        invalid(reason::LINES_DIFFER)
    );
    assert_eq!(lines(&rule, &[UUID, ""]), invalid(reason::EMPTY));
    assert_eq!(
        lines(&rule, &[B64, &B64.to_lowercase()]),
        invalid(reason::LINES_DIFFER)
    );
}

#[test]
fn merged_lines_are_refused() {
    assert_eq!(one(format!("{UUID}, {UUID}")), invalid(reason::LIST));
    assert_eq!(one(format!("{UUID},{UUID}")), invalid(reason::LIST));
    assert_eq!(
        one(format!("\"{UUID}\", \"{UUID}\"")),
        invalid(reason::LIST)
    );
    assert_eq!(lines(&opaque(1), &["a,b"]), invalid(reason::LIST));
    assert_eq!(lines(&opaque(1), &["\"a,b\""]), key("a,b"));
}

#[test]
fn every_malformed_value_has_its_own_reason() {
    let cases: [(&[u8], &str); 18] = [
        (b"", reason::EMPTY),
        (b"\"\"", reason::EMPTY),
        (b"  \t ", reason::BLANK),
        (b"\"   \"", reason::BLANK),
        (b"a b", reason::SPACE),
        (b"\"a b\"", reason::SPACE),
        (b"a\0b", reason::CONTROL),
        (b"a\tb", reason::CONTROL),
        (b"a\x7f", reason::CONTROL),
        (b"\"a\nb\"", reason::CONTROL),
        (b"\xff\xfe", reason::NOT_UTF8),
        ("🔑".as_bytes(), reason::NOT_ASCII),
        ("\"ключ\"".as_bytes(), reason::NOT_ASCII),
        (b"\"550e8400-e29b-41d4-a716-446655440000", reason::QUOTING),
        (b"550e8400-e29b-41d4-a716-446655440000\"", reason::QUOTING),
        (b"\"V1StGXR8_Z5jdHi6B-myTq\"x", reason::QUOTING),
        (b"\"V1StGXR8_Z5jdHi6B-myTq\";V=", reason::QUOTING),
        (b"\"V1StGXR8\\_Z5jdHi6B-myTq\"", reason::QUOTING),
    ];
    for (value, why) in cases {
        assert_eq!(one(value), invalid(why), "{}", value.escape_ascii());
    }
}

#[test]
fn escapes_are_undone_once() {
    assert_eq!(lines(&opaque(1), &[r#""a\"b\\c""#]), key(r#"a"b\c"#));
    assert_eq!(
        lines(&opaque(1), &[r#""\"abc\"""#]),
        invalid(reason::QUOTING)
    );
    assert_eq!(lines(&opaque(1), &[r"a\c"]), key(r"a\c"));
}

#[test]
fn strict_takes_only_the_quoted_form() {
    let rule = KeyRule {
        syntax: KeySyntax::Strict,
        ..KeyRule::default()
    };
    assert_eq!(lines(&rule, &[UUID]), invalid(reason::UNQUOTED));
    assert_eq!(lines(&rule, &[format!("\"{UUID}\"")]), key(UUID));
    assert_eq!(lines(&rule, &["1234"]), invalid(reason::UNQUOTED));
    assert_eq!(lines(&rule, &[""]), invalid(reason::EMPTY));
}

#[test]
fn length_counts_characters_after_unquoting() {
    let text = |n: usize| {
        B64.chars()
            .cycle()
            .take(n - 1)
            .chain(['~'])
            .collect::<String>()
    };
    let rule = KeyRule {
        max_length: 128,
        ..opaque(16)
    };
    assert_eq!(lines(&rule, &[text(128)]), key(&text(128)));
    assert_eq!(
        lines(&rule, &[format!("\"{}\"", text(128))]),
        key(&text(128))
    );
    assert_eq!(lines(&rule, &[text(129)]), invalid(reason::TOO_LONG));
    assert_eq!(
        lines(&rule, &[format!("\"{}\"", text(129))]),
        invalid(reason::TOO_LONG)
    );
    let generous = KeyRule {
        max_length: usize::MAX,
        ..opaque(16)
    };
    assert_eq!(lines(&generous, &[text(255)]), key(&text(255)));
    assert_eq!(lines(&generous, &[text(256)]), invalid(reason::TOO_LONG));
    let escaped = format!("\"{}\"", r#"\""#.repeat(127));
    assert_eq!(
        lines(&opaque(1), &[format!("\"a{}", &escaped[1..])]).map(|k| k.map(|k| k.0.len())),
        Ok(Some(128))
    );
    assert_eq!(one(vec![b'"'; 1 << 20]), invalid(reason::TOO_LONG));
}

#[test]
fn default_format_wants_sixteen_octets() {
    assert_eq!(one(&B64[..21]), weak(reason::SHORT));
    assert_eq!(one(B64), key(B64));
    assert_eq!(one("1234"), weak(reason::SHORT));
    assert_eq!(one("order/12345678901234567890"), invalid(reason::FORMAT));
    assert_eq!(
        one("urn:uuid:550e8400-e29b-41d4-a716-446655440000"),
        invalid(reason::FORMAT)
    );
    assert_eq!(
        one("{550e8400-e29b-41d4-a716-446655440000}"),
        invalid(reason::FORMAT)
    );
}

#[test]
fn padding_is_named_and_trailing_bits_tell_keys_apart() {
    assert_eq!(one("V1StGXR8_Z5jdHi6B-myTg=="), invalid(reason::PADDED));
    assert_eq!(one("===="), invalid(reason::PADDED));
    // `g` and `h` end the same sixteen octets.
    assert_ne!(one("V1StGXR8_Z5jdHi6B-myTg"), one("V1StGXR8_Z5jdHi6B-myTh"));
}

#[test]
fn what_nobody_would_generate_is_weak() {
    assert_eq!(
        one("00000000-0000-0000-0000-000000000000"),
        weak(reason::UUID_NIL)
    );
    assert_eq!(
        one("FFFFFFFF-ffff-ffff-ffff-ffffffffffff"),
        weak(reason::UUID_MAX)
    );
    assert_eq!(one("a".repeat(22)), weak(reason::REPETITIVE));
    assert_eq!(one("ab".repeat(20)), weak(reason::REPETITIVE));
    assert_eq!(one("abcdefghijklmnopqrstuvwxyz"), weak(reason::REPETITIVE));
    let nil = "00000000-0000-0000-0000-000000000000";
    assert_eq!(lines(&opaque(1), &[nil]), weak(reason::UUID_NIL));
    let ulid = KeyRule {
        formats: vec![KeyFormat::Ulid],
        ..KeyRule::default()
    };
    assert_eq!(lines(&ulid, &["0".repeat(26)]), weak(reason::ULID_BOUND));
    assert_eq!(
        lines(&ulid, &[format!("7{}", "z".repeat(25))]),
        weak(reason::ULID_BOUND)
    );
    assert_eq!(lines(&ulid, &[UUID]), invalid(reason::FORMAT));
}

#[test]
fn case_rule_spares_uuid_and_ulid() {
    let rule = |case, format| KeyRule {
        case,
        formats: vec![format],
        ..KeyRule::default()
    };
    let upper = UUID.to_uppercase();
    for format in [KeyFormat::Uuid, KeyFormat::Base64url, KeyFormat::Opaque] {
        assert_eq!(
            lines(&rule(KeyCase::Sensitive, format), &[&upper]),
            key(UUID),
            "{format:?}"
        );
    }
    let ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let lower = ulid.to_lowercase();
    assert_eq!(
        lines(&rule(KeyCase::Sensitive, KeyFormat::Ulid), &[ulid]),
        key(&lower)
    );
    let insensitive = rule(KeyCase::Insensitive, KeyFormat::Base64url);
    assert_eq!(lines(&insensitive, &[B64]), key(&B64.to_lowercase()));
    assert_eq!(one(B64), key(B64));
}

#[test]
fn the_order_of_formats_is_no_matter() {
    let rule = |formats: &[KeyFormat]| KeyRule {
        formats: formats.to_vec(),
        ..KeyRule::default()
    };
    let there = rule(&[
        KeyFormat::Uuid,
        KeyFormat::Ulid,
        KeyFormat::Base64url,
        KeyFormat::Opaque,
    ]);
    let back = rule(&[
        KeyFormat::Opaque,
        KeyFormat::Base64url,
        KeyFormat::Ulid,
        KeyFormat::Uuid,
    ]);
    for value in [
        &UUID.to_uppercase(),
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        B64,
        "a:b",
        &"a".repeat(22),
    ] {
        assert_eq!(lines(&there, &[value]), lines(&back, &[value]), "{value}");
    }
    // Weak as base64url, long enough for a route that also takes anything visible.
    assert_eq!(lines(&there, &[&B64[..21]]), key(&B64[..21]));
}

#[test]
fn opaque_has_a_minimum_of_its_own() {
    assert_eq!(lines(&opaque(8), &["order-7"]), weak(reason::SHORT));
    assert_eq!(lines(&opaque(8), &["order:17"]), key("order:17"));
}

#[test]
fn body_member_is_judged_alike() {
    let rule = KeyRule::default();
    let body = |v: serde_json::Value| from_body(&rule, &json!({ "idempotency_key": v }));
    assert_eq!(body(json!(UUID.to_uppercase())), key(UUID));
    assert_eq!(body(json!(null)), Ok(None));
    assert_eq!(body(json!(42)), invalid(reason::NOT_A_STRING));
    assert_eq!(body(json!(["a"])), invalid(reason::NOT_A_STRING));
    assert_eq!(body(json!("")), invalid(reason::EMPTY));
    assert_eq!(body(json!(format!(" {UUID}"))), invalid(reason::SPACE));
    assert_eq!(body(json!(format!("\"{UUID}\""))), invalid(reason::QUOTING));
    assert_eq!(body(json!("a\u{0}b")), invalid(reason::CONTROL));
    assert_eq!(body(json!("🔑")), invalid(reason::NOT_ASCII));
    assert_eq!(body(json!("a".repeat(1 << 20))), invalid(reason::TOO_LONG));
    for root in [json!([]), json!("text"), json!({ "other": 1 }), json!(null)] {
        assert_eq!(from_body(&rule, &root), Ok(None));
    }
    let header_only = KeyRule {
        body_field: None,
        ..KeyRule::default()
    };
    assert_eq!(
        from_body(&header_only, &json!({ "idempotency_key": UUID })),
        Ok(None)
    );
    let nested = KeyRule {
        body_field: Some("/meta/a~1b/0".into()),
        ..KeyRule::default()
    };
    assert_eq!(
        from_body(&nested, &json!({ "meta": { "a/b": [UUID] } })),
        key(UUID)
    );
}

#[test]
fn header_and_body_must_be_equal() {
    let rule = KeyRule::default();
    let header = || one(format!("\"{UUID}\"")).unwrap();
    let body = |text: &str| from_body(&rule, &json!({ "idempotency_key": text })).unwrap();
    assert_eq!(
        settle(&rule, header(), body(&UUID.to_uppercase())),
        key(UUID)
    );
    assert_eq!(
        settle(&rule, header(), body(B64)),
        invalid(reason::PLACES_DIFFER)
    );
    assert_eq!(settle(&rule, header(), None), key(UUID));
    assert_eq!(settle(&rule, None, body(B64)), key(B64));
    assert_eq!(settle(&rule, None, None), Err(KeyError::Missing));
    let optional = KeyRule {
        required: false,
        ..KeyRule::default()
    };
    assert_eq!(settle(&optional, None, None), Ok(None));
}

#[test]
fn reading_explains_without_telling() {
    let rule = KeyRule::default();
    let reading = read_header_value(&rule, format!("\"{UUID}\"").as_bytes());
    assert_eq!(reading.written, Some(Written::Quoted));
    assert_eq!(reading.format, Some(KeyFormat::Uuid));
    assert_eq!(reading.length, 36);
    assert!(!format!("{reading:?}").contains("550e8400"));
    let reading = read_header_value(&rule, b"hello");
    assert_eq!(
        (reading.written, reading.format),
        (Some(Written::Bare), Some(KeyFormat::Base64url))
    );
    assert_eq!(reading.outcome, Err(KeyError::Weak(reason::SHORT)));
    assert_eq!(read_body_text(&rule, UUID).written, None);
}

#[test]
fn errors_name_code_reason_and_sentence() {
    assert_eq!(KeyError::Missing.code(), Code::KeyMissing);
    assert_eq!(KeyError::Invalid(reason::LIST).code(), Code::KeyInvalid);
    assert_eq!(KeyError::Weak(reason::SHORT).code(), Code::KeyWeak);
    assert_eq!(KeyError::Weak(reason::SHORT).reason(), Some("short"));
    assert!(
        KeyError::Weak(reason::SHORT)
            .to_string()
            .contains("too short")
    );
}

#[test]
fn hash_is_sha256_of_the_normalised_key() {
    let hash = Key(b"abc".to_vec()).hash();
    assert_eq!(
        hash,
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[cfg(not(target_arch = "wasm32"))]
mod native {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_octets_are_read_without_panic(value: Vec<u8>) {
            for rule in [KeyRule::default(), opaque(1)] {
                let reading = read_header_value(&rule, &value);
                if let Ok(key) = reading.outcome {
                    prop_assert!(key.as_bytes().iter().all(u8::is_ascii_graphic));
                    prop_assert!((1..=255).contains(&key.as_bytes().len()));
                }
            }
        }

        #[test]
        fn quoting_changes_no_key(text in "[!#-+\\--~]{1,255}") {
            let rule = opaque(1);
            let quoted = format!("\"{}\"", text.replace('\\', "\\\\"));
            let bare = lines(&rule, &[&text]);
            prop_assert!(bare.is_ok());
            prop_assert_eq!(&bare, &lines(&rule, &[&quoted]));
            prop_assert_eq!(&bare, &read_body_text(&rule, &text).outcome.map(Some));
        }

        #[test]
        fn sixteen_random_octets_always_pass(octets: [u8; 16]) {
            use base64::Engine as _;
            // proptest shrinks and favours edges only inside a value's own strategy; `[u8; 16]` is
            // uniform, so a failure here is a key that a client could really draw.
            let text = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(octets);
            prop_assert_eq!(one(&text), key(&text));
            let text = hex::encode(octets);
            prop_assert_eq!(one(&text), key(&text));
        }

        #[test]
        fn normalising_twice_is_normalising_once(
            text in prop_oneof![
                "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
                "[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}",
                "[A-Za-z0-9_-]{22,40}",
                "[ \t]{0,2}[!-~]{1,60}[ \t]{0,2}",
                "\"([ !#-~]|\\\\[\"\\\\]){1,40}\"(;a=1)?",
            ],
            insensitive: bool,
        ) {
            let case = if insensitive { KeyCase::Insensitive } else { KeyCase::Sensitive };
            let all = [KeyFormat::Uuid, KeyFormat::Ulid, KeyFormat::Base64url, KeyFormat::Opaque];
            for rule in [
                KeyRule { case, ..KeyRule::default() },
                KeyRule { case, ..opaque(1) },
                KeyRule { case, formats: all.to_vec(), ..opaque(1) },
            ] {
                if let Ok(Some(first)) = lines(&rule, &[&text]) {
                    let bare = lines(&rule, &[first.as_bytes()]);
                    // A key may hold what only quotes can carry: then it goes through those.
                    let quoted = |key: &Key| {
                        let text = String::from_utf8_lossy(key.as_bytes()).into_owned();
                        format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
                    };
                    prop_assert_eq!(lines(&rule, &[quoted(&first)]), Ok(Some(first.clone())));
                    prop_assert!(bare.is_err() || bare == Ok(Some(first)));
                }
            }
        }
    }
}
