//! The harness behind the end-to-end tests: the built module in real Envoy, between real clients
//! and an upstream that counts its effects.
//!
//! | module | what it is |
//! |---|---|
//! | [`upstream`] | an HTTP/1.1 server that acts, counts, remembers, streams and misbehaves on request |
//! | [`envoy`] | one Envoy process: configuration, loopback, readiness, statistics, memory, logs, reload, death |
//! | [`client`] | pooled, raw, HTTP/2, stepwise and aborting clients with one answer type |
//! | [`shipped`] | renders `envoy/envoy.yaml` for other ports |
//! | [`running`] | that configuration as an Envoy process |
//! | [`filter`] | filter configurations that several tests share |
//! | [`store`] | store engines under one contract, over real servers |
//! | [`check`] | waiting for conditions, assertions on answers |
//!
//! Each test starts its own upstream and its own Envoy on ports that the kernel chose; nothing is
//! global, so tests run in parallel. Two or three at a time suit a machine of two cores.
//!
//! ```no_run
//! # async fn example() {
//! use host_tests::{client::{Pool, Request}, envoy::Envoy, filter, upstream::Upstream};
//! let upstream = Upstream::start().await;
//! let envoy = Envoy::with_filter(&upstream, filter::minimal()).start().await;
//! let pool = Pool::new(envoy.addr());
//! let request = Request::post("/v1/charges").key("6f1c9bd2-0a7e-4c86-b1f5-3f4f9f0f8e11").json("{}");
//! assert_eq!(pool.send(&request).await.unwrap().status, 201);
//! assert_eq!(upstream.effects(), 1);
//! # }
//! ```

pub mod check;
pub mod client;
pub mod envoy;
pub mod filter;
pub mod running;
pub mod shipped;
pub mod store;
pub mod upstream;
