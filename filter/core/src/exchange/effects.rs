//! What an exchange asks of its host.

use super::detached::Call;
use crate::fingerprint::Fingerprint;
use crate::ids::{OperationId, TenantDigest};
use crate::metrics::{Counter, Histogram};
use crate::reply::LocalReply;
use crate::store::Op;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// One thing to do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask the store; its reply goes to [`super::Exchange::on_store`].
    Store(Op),
    /// Do this when there is time, and again until it is done: nobody waits for the reply.
    Defer(Op),
    /// The store call that has just failed goes, unchanged, to what is retried.
    Retry,
    /// Send this from outside of the stream, so that it outlives its client: the answer goes to
    /// [`super::Exchange::on_detached_answer`], what there is instead to
    /// [`super::Exchange::on_detached_failure`].
    Send(Box<Call>),
    /// Change the request's header lines before it goes on.
    Request(Vec<Edit>),
    /// Change the response's header lines before they go on.
    Response(Vec<Edit>),
    /// Answer the client now. At most one per stream.
    Reply(LocalReply),
    /// Register this stream as a waiter for the operation, then call
    /// [`super::Exchange::on_registered`].
    Wait(OperationId),
    /// The operation ended: wake whoever waits for it, in every worker.
    Wake(OperationId),
    /// An operation of this [`likeness`] became unknown: note it.
    NoteUnknown(OperationId, u64),
    /// A new operation of this [`likeness`] begins: report it where one that is still unknown was
    /// noted.
    Suspect(OperationId, u64),
    /// Count.
    Count(Counter),
    /// Record a duration, microseconds.
    Time(Histogram, u64),
    /// Show in the access log.
    Show(Field, String),
    /// Write a log line.
    Log(Level, String),
}

/// What two operations have in common that ask for the same: tenant, route and fingerprint.
#[must_use]
pub fn likeness(tenant: &TenantDigest, route: &str, fingerprint: &Fingerprint) -> u64 {
    // All three are digests or short: a fast hash keeps what they tell apart.
    let seed = xxh3_64_with_seed(route.as_bytes(), u64::from_be_bytes(tenant.0));
    xxh3_64_with_seed(&fingerprint.digest, seed)
}

/// A change to one header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Remove every line of that name.
    Remove(Vec<u8>),
    /// Replace every line of that name by one.
    Set(Vec<u8>, Vec<u8>),
}

/// Filter state for the access log (`%FILTER_STATE(wasm.idempo.…)%`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// What was done with the attempt.
    Outcome,
    /// The operation id.
    Operation,
    /// The rule.
    Route,
    /// The stream's transitions as one JSON value.
    Audit,
}

impl Field {
    /// The property path's last part.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Outcome => "idempo.outcome",
            Self::Operation => "idempo.operation",
            Self::Route => "idempo.route",
            Self::Audit => "idempo.audit",
        }
    }
}

/// Log levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Transitions, starts.
    Info,
    /// Something an operator should look at.
    Warn,
    /// A promise is at stake.
    Error,
}
