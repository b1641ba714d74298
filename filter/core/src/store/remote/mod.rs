//! What all engines behind a network share: a [`Batch`] of operations becomes one [`HttpRequest`],
//! one [`HttpAnswer`] becomes one [`Reply`] for each of them, or [`Understood::Ambiguous`].
//!
//! Engines are codecs: no socket, no clock, no randomness. **An answer counts only if it is
//! evidently the store's answer to this very call**: it echoes the call's [`Nonce`] and has exactly
//! the expected parts. All else (an error page, Envoy's own 503 or 504, a cut body, the answer to
//! another call) says nothing about any operation: each may have been done or not (rule 5), and none
//! of them is absent.

mod batch;

pub use batch::{Added, Batch, Limits, Weight};

use super::Reply;
use crate::ids::{OperationId, hex_of};
use crate::record::Record;
use std::fmt;

/// Shards of every store, forever: where an operation lies must not depend on tuning.
pub const SHARDS: u8 = 16;

/// The shard of an operation.
#[must_use]
pub fn shard_of(operation: &OperationId) -> u8 {
    operation.0.first().copied().unwrap_or(0) % SHARDS
}

/// Names one call. Unique, and not to be guessed from outside, because a store without an epoch
/// takes it for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce(pub [u8; 16]);

impl Nonce {
    /// 32 hex digits.
    #[must_use]
    pub fn hex(&self) -> String {
        hex_of(&self.0)
    }
}

/// A secret for a store, as it goes into a header or command. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(String);

impl Credential {
    /// Takes it as it is.
    #[must_use]
    pub const fn new(secret: String) -> Self {
        Self(secret)
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(…)")
    }
}

/// One call to a store. The caller adds the authority.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// The method.
    pub method: &'static str,
    /// The path.
    pub path: String,
    /// Further headers, names in lower case.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl fmt::Debug for HttpRequest {
    // Headers may hold a credential, the body holds records.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} ({} octets)",
            self.method,
            self.path,
            self.body.len()
        )
    }
}

/// What came back.
#[derive(Clone, Copy, Debug)]
pub struct HttpAnswer<'a> {
    /// The status.
    pub status: u16,
    /// The body, whole.
    pub body: &'a [u8],
}

/// What an answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Understood {
    /// The store's answer to this call.
    Answered(Answered),
    /// The store lacks the engine's program and has done nothing: send it along.
    Unprepared,
    /// Not evidently the store's answer: every operation of the call may have been done or not.
    Ambiguous(String),
}

impl Understood {
    /// One reply for each of the call's operations.
    #[must_use]
    pub fn replies(self, operations: usize) -> Vec<Reply> {
        let why = match self {
            Self::Answered(answered) => return answered.replies,
            Self::Unprepared => "the store lacks the engine's script".to_owned(),
            Self::Ambiguous(why) => why,
        };
        vec![Reply::Failed(why); operations]
    }
}

/// A store's answer to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The store's clock during the call, milliseconds.
    pub now: u64,
    /// The shards that the call touched.
    pub shards: Vec<ShardState>,
    /// One for each operation, in their order.
    pub replies: Vec<Reply>,
}

/// How a store that forgets is noticed (design.md §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardState {
    /// Which shard.
    pub shard: u8,
    /// Drawn when the shard's data began. `None`: the state could not be read, or not written where it
    /// had to be, and the rest says nothing (Redis: a write that is refused, a key of another type).
    pub epoch: Option<[u8; 16]>,
    /// Raised by every call that writes to the shard: lower than seen before, writes were lost.
    pub seq: u64,
    /// Until when the shard may lack writes that were acknowledged, because its server has become
    /// another one; by the store's clock, milliseconds. 0: there is no such doubt. `None`: the server
    /// does not say which one it is, so that there is no telling.
    pub doubt_until: Option<u64>,
}

/// What a sweep of one shard found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    /// The store's clock during the call, milliseconds.
    pub now: u64,
    /// The shard.
    pub state: ShardState,
    /// Operations that became unknown by this sweep; `None` in place of a corrupt record.
    pub noted: Vec<(OperationId, Option<Box<Record>>)>,
    /// Pending and accepted operations.
    pub open: u64,
    /// Unknown operations.
    pub unknown: u64,
    /// Operations that expired unresolved, counted once.
    pub expired: u64,
}
