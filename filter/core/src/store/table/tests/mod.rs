#[cfg(not(target_arch = "wasm32"))]
mod churn;
mod damage;
#[cfg(not(target_arch = "wasm32"))]
mod interleaved;
mod limits;
#[cfg(not(target_arch = "wasm32"))]
#[cfg(not(target_arch = "wasm32"))]
mod model;
mod steps;
pub(crate) mod support;
