//! Form data: another boundary makes no difference where the parts can be read.
#![no_main]

use idempo_core::fingerprint::{self, Form, Request};
use idempo_core::http::Headers;
use idempo_core::plan::FingerprintRule;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let rule = FingerprintRule::default();
    let of = |boundary: &str, body: &[u8]| {
        let kind = format!("multipart/form-data; boundary={boundary}");
        let headers: Headers = [
            (":method", "POST"),
            (":path", "/"),
            ("content-type", kind.as_str()),
        ]
        .into_iter()
        .collect();
        fingerprint::compute(
            &rule,
            &Request {
                headers: &headers,
                canonical_path: b"/",
                principal: None,
                body,
            },
        )
        .expect("any body has a fingerprint")
    };
    let first = of("BB", data);
    assert_eq!(of("BB", data), first);
    // A delimiter of the other boundary in the parts themselves would be one.
    let holds = |hay: &[u8], needle: &[u8]| hay.windows(needle.len()).any(|w| w == needle);
    if first.form != Form::Multipart || holds(data, b"--QqQ") {
        return;
    }
    let mut other = Vec::with_capacity(data.len() + 64);
    let mut rest = data;
    let mut at_line_start = true;
    while let Some((&octet, tail)) = rest.split_first() {
        if at_line_start && rest.starts_with(b"--BB") {
            other.extend_from_slice(b"--QqQ");
            rest = &rest[4..];
            at_line_start = false;
            continue;
        }
        at_line_start = octet == b'\n';
        other.push(octet);
        rest = tail;
    }
    let again = of("QqQ", &other);
    if again.form == Form::Multipart {
        assert_eq!(again.digest, first.digest);
    }
});
