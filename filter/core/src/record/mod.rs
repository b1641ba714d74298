//! What is remembered of an operation: its state, version, owner, fingerprint, outcome and a
//! bounded history.
//!
//! A [`Record`] is what a store keeps. What an attempt sees is a [`View`]: the record at a moment
//! of the store's clock. A lease that has ended, a deadline or a window that has passed are
//! *computed* there by every reader, so nothing needs to run for them to be true.
//!
//! All times are milliseconds of the store's clock, except those whose name starts with `wall_`,
//! which are Unix milliseconds and are only ever shown to people.

mod history;
pub mod parts;
mod proto;
mod view;
mod wire;

pub use history::{Event, History, MAX_EVENTS};
pub use view::View;
#[cfg(feature = "test-faults")]
pub use wire::NEXT_FORMAT;
pub use wire::{Corrupt, FORMAT, MAX_ENCODED, decode, encode};

use crate::fingerprint::Fingerprint;
use crate::ids::{OwnerToken, TenantDigest};

/// A record's version: an incarnation that is new with every claim, and a counter that every
/// write raises. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// New with every claim.
    pub incarnation: u64,
    /// Raised by every write to this incarnation.
    pub counter: u32,
}

/// Names one write, so that a repeat of it is recognised and answered "already".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WriteId(pub u64);

/// One operation as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Fences every write.
    pub version: Version,
    /// Rises with every execution of the operation, across releases: receivers can fence with it.
    pub generation: u64,
    /// Where the operation stands.
    pub state: State,
    /// What was asked.
    pub fingerprint: Fingerprint,
    /// The route's `schema_version` at the claim.
    pub schema_version: String,
    /// The tenant, as a digest: for quotas and audits.
    pub tenant: TenantDigest,
    /// The route id: for audits and lists.
    pub route: String,
    /// The attempt that holds or held the claim.
    pub attempt: String,
    /// Its `traceparent`, so that a replay can name it.
    pub traceparent: Option<String>,
    /// When the claim was made.
    pub claimed_at: u64,
    /// When an attempt was last seen.
    pub last_seen: u64,
    /// How long things are kept.
    pub windows: Windows,
    /// What happened, oldest first.
    pub history: History,
}

/// Retention, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// From the terminal transition: answers are replayed.
    pub replay_ms: u64,
    /// After that: late duplicates are refused.
    pub tombstone_ms: u64,
}

impl Windows {
    /// Both windows together.
    #[must_use]
    pub fn both(&self) -> u64 {
        self.replay_ms.saturating_add(self.tombstone_ms)
    }
}

/// The stored states of design.md §2. `expired` and the end of a lease are never stored: see
/// [`View`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// An attempt holds the claim.
    Pending {
        /// Its right to act.
        owner: OwnerToken,
        /// Until when it may be silent.
        lease_until: u64,
    },
    /// Taken on by the upstream, not done.
    Accepted {
        /// The acceptance, replayed meanwhile.
        outcome: Outcome,
        /// When it was accepted.
        at: u64,
        /// After which nobody knows.
        deadline: u64,
    },
    /// Done; the answer is known.
    Completed {
        /// The answer.
        outcome: Outcome,
        /// When.
        at: u64,
    },
    /// Ended by a person without an answer.
    Closed {
        /// A stable reason code.
        reason: String,
        /// When.
        at: u64,
    },
    /// Whether the effect happened is not known.
    Unknown {
        /// The late owner, while nobody else has settled it.
        owner: Option<OwnerToken>,
        /// What was last seen of the upstream.
        evidence: Evidence,
        /// Since when.
        at: u64,
    },
}

/// State names, as shown to clients, operators and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// Nothing is known of the operation.
    Absent,
    /// See [`State::Pending`].
    Pending,
    /// See [`State::Accepted`].
    Accepted,
    /// See [`State::Completed`].
    Completed,
    /// See [`State::Closed`].
    Closed,
    /// See [`State::Unknown`].
    Unknown,
    /// Its replay window is over; a tombstone remains.
    Expired,
}

impl Status {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Pending => "pending",
            Self::Accepted => "accepted",
            Self::Completed => "completed",
            Self::Closed => "closed",
            Self::Unknown => "unknown",
            Self::Expired => "expired",
        }
    }
}

impl State {
    /// The answer, where there is one.
    #[must_use]
    pub const fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::Accepted { outcome, .. } | Self::Completed { outcome, .. } => Some(outcome),
            Self::Pending { .. } | Self::Closed { .. } | Self::Unknown { .. } => None,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            Self::Pending { .. } => Status::Pending,
            Self::Accepted { .. } => Status::Accepted,
            Self::Completed { .. } => Status::Completed,
            Self::Closed { .. } => Status::Closed,
            Self::Unknown { .. } => Status::Unknown,
        }
    }
}

/// What came back from the upstream, without headers and body: those live in the body store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// HTTP status.
    pub status: u16,
    /// Digest of the recorded result: the same on every replay.
    pub result: [u8; 32],
    /// Octets of the answer's body.
    pub body_length: u64,
    /// Unix milliseconds of the first response.
    pub wall_first_response: u64,
    /// Whether the answer can be served again.
    pub replay: Replayable,
}

/// Whether a recorded answer can be served again, and if not, why (rule 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replayable {
    /// Headers and body are stored.
    Yes,
    /// Larger than the route records.
    TooLarge,
    /// The answer was cut off before its end.
    Cut,
    /// It had trailers.
    Trailers,
    /// The upstream said `Idempotency-Policy: no-store`.
    NoStore,
    /// No room for the body.
    StoreFull,
    /// The worker's recording memory was used up.
    RecordingMemory,
    /// Recorded in `observe` mode: digests only.
    Observed,
    /// It came before the request was complete, so nobody knows all that was asked.
    PartialRequest,
}

impl Replayable {
    /// A stable reason id.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "replayable",
            Self::TooLarge => "answer_too_large",
            Self::Cut => "answer_cut",
            Self::Trailers => "answer_had_trailers",
            Self::NoStore => "upstream_no_store",
            Self::StoreFull => "store_full",
            Self::RecordingMemory => "recording_memory",
            Self::Observed => "observed_only",
            Self::PartialRequest => "request_incomplete",
        }
    }
}

/// What is known where the outcome is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The last upstream status.
    pub status: Option<u16>,
    /// A stable id of what was seen: Envoy's response code details, `lease_over`, `restart`.
    pub details: String,
    /// Digest of a late or partial answer.
    pub result: Option<[u8; 32]>,
}

impl Evidence {
    /// Evidence that is only a name.
    #[must_use]
    pub fn named(details: &str) -> Self {
        Self {
            status: None,
            details: bounded(details, 96),
            result: None,
        }
    }
}

/// Who caused a transition (rule 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The attempt that holds the claim.
    Owner,
    /// Another attempt that found a lease ended.
    Reader,
    /// The sweep.
    Sweep,
    /// A status probe.
    Probe,
    /// A completion event.
    Event,
    /// A person.
    Operator,
    /// A store that forgot.
    Restart,
}

impl Source {
    /// The name in audits.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Reader => "reader",
            Self::Sweep => "sweep",
            Self::Probe => "probe",
            Self::Event => "event",
            Self::Operator => "operator",
            Self::Restart => "restart",
        }
    }
}

/// Cuts text at a character boundary, so that a record stays small whatever a client sends.
#[must_use]
pub fn bounded(text: &str, max: usize) -> String {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}
