//! Store engines under one contract: the pure model, the shared-data table, and Redis behind each
//! of its transports, real servers all.
//!
//! | module | what it is |
//! |---|---|
//! | [`scenarios`] | the list that every engine must pass |
//! | [`desk`] | operations of one scenario, in plain words |
//! | [`local`] | the model and the table |
//! | [`redis`] | a `redis-server`, and the engine over it |
//! | [`wire`] | RESP and HTTP, plainly, for the tests |
//! | [`bridge`] | Redis over REST, in front of that server |
//! | [`front`] | what speaks HTTP for it, as an Envoy reaches it |
//! | [`gate`] | between the two: holds, loses and spoils calls and answers |
//! | [`resp`] | an Envoy that hands raw RESP on by itself |
//! | [`cluster`] | three masters, and Envoy's own Redis proxy before them |
//! | [`site`] | Envoys before such a store, and clients that repeat themselves |
//! | [`loss`] | ways in which a Redis comes back with less than it had |

pub mod bridge;
pub mod cluster;
pub mod desk;
pub mod front;
pub mod gate;
pub mod local;
pub mod loss;
pub mod redis;
pub mod resp;
pub mod scenarios;
pub mod site;
pub mod wire;

use idempo_core::store::{Op, Reply};

/// Something that keeps the store contract.
pub trait Engine {
    /// One call: its moment by the store's clock, milliseconds, and one reply for each operation.
    fn call(&mut self, ops: &[Op]) -> (u64, Vec<Reply>);

    /// Lets that much time pass on the store's clock.
    fn advance(&mut self, ms: u64);

    /// Whether calls may overtake each other, so that a cancelled token has to be remembered.
    fn remembers_cancellations(&self) -> bool;
}
