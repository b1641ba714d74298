//! A model checker over the shipped core.
//!
//! A small world is built of the real parts, [`idempo_core::exchange::Exchange`] as the proxy's
//! attempt and [`idempo_core::store::contract::apply`] as the store, with a host, a network and an
//! upstream around them that do whatever they may. The checker (`stateright`) goes through every
//! order of events within the bounds of a [`Setup`] and asks each state for the properties of
//! design §2. `docs/proof.md` says what is in the world and what is not.
//!
//! | module | its part |
//! |---|---|
//! | `setup`, [`scenarios`], [`missing`] | who takes part, under which policy, what may go wrong |
//! | [`fence`] | the fences, each of which can be taken away |
//! | `world`, `clock`, `store` | one moment: proxies, network, time, the store over the shipped step function |
//! | `host` | effects of an exchange carried out, as `filter/wasm` does |
//! | `rules`, `step` | what can happen, and what it does |
//! | `network`, `upstream`, `settle` | store calls on their way; what is behind the filter; who else settles |
//! | `rest`, `monitor`, `model` | the properties |
//! | `tell`, [`report`] | counterexamples in words |

mod clock;
mod digest;
pub mod fence;
mod host;
pub mod missing;
mod model;
mod monitor;
mod network;
pub mod report;
mod rest;
mod rules;
pub mod scenarios;
mod settle;
mod setup;
mod step;
mod store;
mod tell;
mod upstream;
mod world;

pub use fence::Fence;
pub use model::{ANSWERED, KEPT, NEVER_SENT, NO_STALE, ONE_EFFECT, SETTLES, State, TERMINAL};
pub use setup::{Settler, Setup};
pub use world::{Act, World};
