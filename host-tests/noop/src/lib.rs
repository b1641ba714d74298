//! A filter that does nothing but exist: the yardstick of the benchmarks.
//!
//! It is made with the same SDK and the same compiler settings as idempo, so the host enters the VM
//! for the same callbacks. What idempo takes beyond this is idempo's own.

#![cfg(target_arch = "wasm32")]

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

struct Root;

struct Stream;

impl Context for Root {}

impl RootContext for Root {
    fn create_http_context(&self, _id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

impl Context for Stream {}

impl HttpContext for Stream {}

mod entry {
    proxy_wasm::main! {{
        proxy_wasm::set_root_context(|_| Box::new(super::Root));
    }}
}
