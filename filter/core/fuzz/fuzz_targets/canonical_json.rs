//! JSON bodies: what is read as JSON says the same however it is written.
#![no_main]

use idempo_core::fingerprint::{self, Form, Request};
use idempo_core::http::Headers;
use idempo_core::plan::FingerprintRule;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let headers: Headers = [
        (":method", "POST"),
        (":path", "/"),
        ("content-type", "application/json"),
    ]
    .into_iter()
    .collect();
    let rule = FingerprintRule::default();
    let of = |body: &[u8]| {
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
    let first = of(data);
    if first.form != Form::Json {
        return;
    }
    let value: Value = serde_json::from_slice(data).expect("what is read as JSON is JSON");
    for text in [
        serde_json::to_vec(&value).expect("text"),
        serde_json::to_vec_pretty(&value).expect("text"),
    ] {
        let again = of(&text);
        assert_eq!((again.form, again.digest), (Form::Json, first.digest));
    }
});
