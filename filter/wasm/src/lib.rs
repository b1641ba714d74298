//! The proxy-wasm adapter: host callbacks become core events, core effects become host calls.
//!
//! | module | what it is |
//! |---|---|
//! | [`abi`] | the host functions, the only `unsafe` code |
//! | [`exports`] | what the host calls |
//! | [`host`] | the same in the core's terms |
//! | [`plugin`] | one configured plugin in one worker: configuration, ticks, wake-ups |
//! | [`stream`] | one HTTP stream |
//! | [`vm`] | what a worker's plugins and streams share: table, clock, waiters, backlog |
//! | [`owed`] | what the host refused to do for a stream, and is asked for again |
//! | [`detached`] | attempts that outlive their client: calls through the loopback, probes |
//! | [`suspects`] | clients that change keys too early |
//! | [`wake`] | waking waiters across workers |
//! | [`metrics`] | metric ids |

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unreachable
)]
#![cfg(target_arch = "wasm32")]

mod abi;
mod deferred;
mod detached;
mod exports;
#[cfg(feature = "test-faults")]
mod faults;
mod host;
mod metrics;
mod owed;
mod plugin;
mod remote;
mod stream;
mod suspects;
mod vm;
mod wake;
