//! What an exchange asks of its host.

use crate::ids::OperationId;
use crate::metrics::{Counter, Histogram};
use crate::reply::LocalReply;
use crate::store::Op;

/// One thing to do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask the store; its reply goes to [`super::Exchange::on_store`].
    Store(Op),
    /// Do this when there is time, and again until it is done: nobody waits for the reply.
    Defer(Op),
    /// The store call that has just failed goes, unchanged, to what is retried.
    Retry,
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
    /// Count.
    Count(Counter),
    /// Record a duration, microseconds.
    Time(Histogram, u64),
    /// Show in the access log.
    Show(Field, String),
    /// Write a log line.
    Log(Level, String),
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
