//! A second engine for the built module: a small proxy-wasm host on wasmtime in which time is virtual,
//! every host call can be made to fail, and several workers share one process.
//!
//! Real Envoy shows what the module does when all goes well, and some of what goes wrong outside. It
//! cannot be told to refuse its 57th host call. This host can, and it keeps the rules of Envoy's that
//! the module leans on: compare-and-swap numbers, header maps that are gone once a callback let them
//! go, bodies that are held or dropped, replies and resumptions that take effect after the callback.
//!
//! | module | what it is |
//! |---|---|
//! | [`host`] | one process: workers, clock, what is due, clients |
//! | [`engine`] | the module, compiled once |
//! | [`worker`] | one VM with its root and streams |
//! | [`stream`] | one HTTP stream's two directions, as Envoy's filter chain moves them |
//! | [`calls`] | the host functions |
//! | [`shared`] | what workers share: shared data under either rule, queues, metrics |
//! | [`faults`] | which call fails, and how |
//! | [`script`] | what upstreams and callouts answer |
//! | [`redis`] | a Redis in virtual time, with the shipped script |
//! | [`pairs`] | serialized header maps |
//!
//! Nothing is global: everything a test touches belongs to its [`host::Host`]. Only compiled code
//! ([`engine::Compiled`]) is worth sharing.

pub mod calls;
pub mod engine;
pub mod faults;
pub mod host;
pub mod pairs;
pub mod redis;
pub mod script;
pub mod shared;
pub mod stream;
pub mod worker;
