//! RFC 9651 Strings: a key says the same bare, quoted, and quoted with parameters.
#![no_main]

use idempo_core::key;
use idempo_core::plan::{KeyFormat, KeyRule};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let rule = KeyRule {
        formats: vec![KeyFormat::Opaque],
        ..KeyRule::default()
    };
    let read = |value: &[u8]| key::read_header_value(&rule, value).outcome;
    let as_sent = read(data);
    if as_sent.is_err() || data.contains(&b'"') || data.contains(&b'\\') {
        return;
    }
    let token = data.trim_ascii();
    let quoted = [b"\"", token, b"\""].concat();
    assert_eq!(read(&quoted), as_sent);
    let with_parameters = [quoted.as_slice(), b";a=1;b"].concat();
    assert_eq!(read(&with_parameters), as_sent);
});
