//! Configurations as JSON text.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match idempo_core::config::parse(data) {
        Ok(plan) => assert!(!plan.routes.is_empty()),
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
});
