//! The built module in the second engine.

mod page;
mod run;
mod scenarios;
mod sweep;
mod whole;

use idempo_engine_tests::engine::Compiled;
use std::sync::OnceLock;

/// Compiled code, which takes seconds to make and never changes.
fn compiled() -> &'static Compiled {
    static COMPILED: OnceLock<Compiled> = OnceLock::new();
    COMPILED.get_or_init(Compiled::shipped)
}
