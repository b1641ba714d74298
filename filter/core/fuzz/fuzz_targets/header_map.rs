//! Header maps as a host passes them.
#![no_main]

use idempo_core::http::Headers;
use idempo_core::pairs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(headers) = pairs::read(data) {
        let again = pairs::read(&pairs::write(headers.lines()));
        assert_eq!(again.map(Headers::into_lines), Some(headers.into_lines()));
    }
});
