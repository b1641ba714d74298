//! RFC 9651 Strings and Items as a suite: cases of our own that cover what the working group's cover, and
//! those themselves where they are at hand.

use super::*;
use crate::plan::KeySyntax;

fn strict(value: &[u8]) -> Result<Option<Key>, KeyError> {
    let rule = KeyRule {
        syntax: KeySyntax::Strict,
        formats: vec![KeyFormat::Opaque],
        min_entropy_bytes: 1,
        max_length: 255,
        ..KeyRule::default()
    };
    from_headers(&rule, &[("Idempotency-Key", value)].into_iter().collect())
}

#[test]
fn every_character_of_a_string() {
    for code in 0..=255_u8 {
        let raw = [b"\" ", [code].as_slice(), b" \""].concat();
        let expected = (b' '..=b'~').contains(&code) && code != b'"' && code != b'\\';
        let got = std::str::from_utf8(&raw).ok().map(syntax::unquote);
        let got = got.and_then(Result::ok);
        assert_eq!(got.is_some(), expected, "{code:02x}");
        if let Some(text) = got {
            assert_eq!(text.as_bytes(), [b' ', code, b' ']);
        }
        // After a backslash there are two only.
        let escaped = [b"\"\\", [code].as_slice(), b"\""].concat();
        let got = std::str::from_utf8(&escaped).ok().map(syntax::unquote);
        let got = got.and_then(Result::ok);
        let expected = matches!(code, b'"' | b'\\');
        assert_eq!(got.is_some(), expected, "escaped {code:02x}");
    }
}

#[test]
fn strings_and_what_stands_around_them() {
    for (raw, expected) in [
        (r#""""#, Some("")),
        (r#""a b""#, Some("a b")),
        (
            r#"  "leading and trailing"  "#,
            Some("leading and trailing"),
        ),
        (r#""\"\"""#, Some("\"\"")),
        (r#""\\\\""#, Some("\\\\")),
        (r#""b \\\" c""#, Some("b \\\" c")),
        (r#""a";p"#, Some("a")),
        (r#""a";p=1;q="x";*r=?0"#, Some("a")),
        (r#""a"; p=:YQ==:"#, Some("a")),
        // Not ended, not begun, ended too soon.
        (r#"""#, None),
        (r#""a"#, None),
        (r#""a\""#, None),
        (r#""a\"#, None),
        (r#"a""#, None),
        (r#""a"b"#, None),
        (r#""a" "b""#, None),
        (r#""a", "b""#, None),
        (r#"'a'"#, None),
        // Parameters must be some.
        (r#""a";"#, None),
        (r#""a";P=1"#, None),
        (r#""a" ;p"#, None),
        (r#""a";p="#, None),
        // Items of every other type.
        ("a", None),
        ("*a/b:c", None),
        ("1", None),
        ("-1.5", None),
        ("?1", None),
        (":YQ==:", None),
        ("@1659578233", None),
        (r#"%"a""#, None),
        (r#"("a")"#, None),
        ("", None),
        ("   ", None),
    ] {
        assert_eq!(syntax::unquote(raw).ok().as_deref(), expected, "{raw}");
        let key = strict(raw.as_bytes());
        let fits = expected
            .is_some_and(|text| !text.is_empty() && !text.contains(' ') && !text.starts_with('"'));
        assert_eq!(key.is_ok_and(|k| k.is_some()), fits, "{raw}");
    }
    // White space of a header is not an Item's: tabs around it are the header's.
    for raw in ["\t\"a\"", "\"a\"\t"] {
        assert!(syntax::unquote(raw).is_err());
        assert!(strict(raw.as_bytes()).is_ok());
    }
    for raw in [
        &b"\"f\xc3\xbc\xc3\xbc\""[..],
        b"\"\xff\"",
        b"\"a\0\"",
        b"\"a\x7f\"",
    ] {
        assert!(matches!(strict(raw), Err(KeyError::Invalid(_))), "{raw:?}");
    }
}

/// The working group's own, where they are at hand: they are not ours to copy.
#[test]
fn published_cases() {
    let root = std::env::var_os("IDEMPO_VECTORS").map_or_else(
        || std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors"),
        Into::into,
    );
    let mut seen = 0;
    for file in ["string", "string-generated", "item", "token"] {
        let path = root.join("structured-fields").join(format!("{file}.json"));
        let Ok(text) = std::fs::read_to_string(&path) else {
            println!("no published RFC 9651 cases of {file} here: own ones only");
            continue;
        };
        let cases: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert!(!cases.is_empty());
        for case in cases.iter().filter(|c| c["header_type"] == "item") {
            let raw = case["raw"].as_array().unwrap();
            let raw: Vec<&str> = raw.iter().map(|r| r.as_str().unwrap()).collect();
            let raw = raw.join(", ");
            let got = syntax::unquote(&raw).ok();
            // A String unquotes to its value; all else is no key.
            let want = case["expected"][0].as_str();
            assert_eq!(got.as_deref(), want, "{file}: {}", case["name"]);
            if want.is_none() {
                assert!(
                    matches!(strict(raw.as_bytes()), Err(KeyError::Invalid(_))),
                    "{raw}"
                );
            }
            seen += 1;
        }
    }
    println!("{seen} published cases");
}
