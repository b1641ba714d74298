//! `Accept-Language` lines.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let lines: Vec<&[u8]> = data.split(|b| *b == b'\n').collect();
    let first = idempo_core::reply::negotiate(&lines);
    assert_eq!(idempo_core::reply::negotiate(&lines), first);
});
