//! The idempotency core of idempo.
//!
//! Pure Rust: no proxy-wasm, no I/O, no clock, no randomness. What the host knows comes in as
//! arguments, what the host should do goes out as values. The same code runs in Envoy, in unit
//! tests, in Node and under a model checker.
//!
//! | module | what it answers |
//! |---|---|
//! | [`config`] | what did the operator write, and is it possible? |
//! | [`plan`] | the compiled policy that everything else reads |
//! | [`http`], [`pairs`], [`ids`] | byte-exact headers, and how hosts pass them; digests, tokens, operation ids |
//! | [`route`], [`key`], [`tenant`] | which rule, which key, whose? |
//! | [`fingerprint`] | is it the same request? |
//! | [`record`] | states, versions, history: what is remembered of an operation |
//! | [`store`] | the store contract, the fixed table in the host's shared data, codecs for stores elsewhere |
//! | [`envelope`], [`trusted`] | what of an answer is kept; what the upstream is told |
//! | [`reply`] | problem+json in nine languages |
//! | [`exchange`] | one attempt as a state machine |
//! | [`clock`], [`metrics`], [`audit`] | time that no step can move; what operators see |

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::string_slice,
        clippy::unreachable
    )
)]

pub mod audit;
pub mod clock;
pub mod config;
pub mod envelope;
pub mod exchange;
pub mod fingerprint;
pub mod http;
pub mod ids;
pub mod key;
pub mod metrics;
mod order;
pub mod pairs;
pub mod plan;
pub mod record;
pub mod reply;
pub mod route;
pub mod store;
pub mod tenant;
pub mod trusted;
