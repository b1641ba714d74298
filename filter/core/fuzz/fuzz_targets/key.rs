//! Keys from header lines: what is accepted is canonical, and reading it again changes nothing.
#![no_main]

use idempo_core::http::Headers;
use idempo_core::key;
use idempo_core::plan::{KeyCase, KeyFormat, KeyRule, KeySyntax};
use libfuzzer_sys::fuzz_target;

const FORMATS: [KeyFormat; 4] = [
    KeyFormat::Uuid,
    KeyFormat::Ulid,
    KeyFormat::Base64url,
    KeyFormat::Opaque,
];

fuzz_target!(|data: &[u8]| {
    let Some((choice, text)) = data.split_first() else {
        return;
    };
    let rule = KeyRule {
        formats: FORMATS
            .into_iter()
            .enumerate()
            .filter_map(|(n, f)| (choice >> n & 1 == 1).then_some(f))
            .collect(),
        case: if choice & 16 == 0 {
            KeyCase::Sensitive
        } else {
            KeyCase::Insensitive
        },
        syntax: if choice & 32 == 0 {
            KeySyntax::Lenient
        } else {
            KeySyntax::Strict
        },
        ..KeyRule::default()
    };
    let lines: Headers = text
        .split(|b| *b == b'\n')
        .map(|line| (b"idempotency-key".to_vec(), line.to_vec()))
        .collect();
    let Ok(Some(accepted)) = key::from_headers(&rule, &lines) else {
        return;
    };
    let canonical = accepted.as_bytes();
    assert!(canonical.len() <= rule.max_length && canonical.iter().all(u8::is_ascii_graphic));
    let text = std::str::from_utf8(canonical).expect("visible ASCII");
    assert_eq!(
        key::read_body_text(&rule, text).outcome.as_ref(),
        Ok(&accepted)
    );
});
