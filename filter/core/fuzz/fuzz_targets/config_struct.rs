//! Configurations as the wire form of `google.protobuf.Struct`: whatever follows, its first octet is
//! that of the first field.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let octets = [&[0x0a], data].concat();
    match idempo_core::config::parse(&octets) {
        Ok(plan) => assert!(!plan.routes.is_empty()),
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
});
