//! The store contract: operations in, outcomes out.
//!
//! An [`Op`] is one step on one operation; a store answers it with one [`Reply`]. What a step
//! means is written once, in [`contract::apply`]: a pure function from the record that is there to
//! the change and the reply. The shared-data [`table`] runs that function under compare-and-swap;
//! [`remote`] engines restate it in their own language and are held to it by tests.

pub mod backlog;
pub mod contract;
pub mod queue;
pub mod rate;
pub mod redis;
pub mod remote;
pub mod table;

use crate::fingerprint::Fingerprint;
use crate::ids::{OperationId, OwnerToken, TenantDigest};
use crate::record::{Evidence, Outcome, Record, Source, Status, Version, Windows, WriteId};

/// One step on one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// Which operation.
    pub operation: OperationId,
    /// What to do.
    pub action: Action,
}

impl Op {
    /// Whether it is the renewal of a lease: nothing else that an owner asks for waits beside another step.
    #[must_use]
    pub const fn renews(&self) -> bool {
        matches!(
            &self.action,
            Action::Transition(Transition {
                to: Target::Renewed { .. },
                ..
            })
        )
    }
}

/// What a store can be asked to do, in one round trip each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Look.
    Read,
    /// Create the record if there is none.
    Claim(Claim),
    /// Take an unknown operation over, where the route's policy says so.
    TakeOver {
        /// The new claim.
        claim: Claim,
        /// The version that was seen.
        expect: Version,
    },
    /// Change the record, fenced.
    Transition(Transition),
    /// Delete the record if it is pending under that token (rule 5). Also the release of rule 3.
    Cancel {
        /// Whose claim.
        owner: OwnerToken,
    },
    /// The recorded answer of that incarnation.
    Body {
        /// Which claim's answer.
        incarnation: u64,
    },
}

/// The atomic acquisition of an operation by one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The attempt's token, the same on every repeat of this claim.
    pub owner: OwnerToken,
    /// How long the owner may be silent, milliseconds.
    pub lease_ms: u64,
    /// Store clock after which the claim is refused: nobody waits for it any more.
    pub not_after: u64,
    /// What was asked.
    pub fingerprint: Fingerprint,
    /// The route's schema version.
    pub schema_version: String,
    /// Whose operation.
    pub tenant: TenantDigest,
    /// How many live records that tenant may hold.
    pub tenant_quota: Option<u64>,
    /// The route id.
    pub route: String,
    /// The attempt id.
    pub attempt: String,
    /// The attempt's trace.
    pub traceparent: Option<String>,
    /// Retention.
    pub windows: Windows,
    /// The key is older than what this store remembers: an absent operation may have run before the
    /// restart, so its record begins as unknown, and nobody runs it.
    pub forgotten: bool,
}

/// A fenced change (rule 2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Names the write: a repeat is answered [`Reply::Already`].
    pub write: WriteId,
    /// What must hold.
    pub fence: Fence,
    /// What the record becomes.
    pub to: Target,
    /// Who.
    pub source: Source,
    /// The person, for [`Source::Operator`].
    pub operator: String,
}

/// What must hold for a transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fence {
    /// The owner of that claim: its token still stands. Its own writes, a renewal or a reader's
    /// note that the lease is over may have raised the counter meanwhile.
    Owner {
        /// The claim, from which the record is made again where the store has lost it (rule 4, 6).
        claim: Box<Claim>,
        /// When the claim was made, store clock.
        claimed_at: u64,
        /// The generation that the claim was given.
        generation: u64,
    },
    /// Anybody else: exactly that version, in one of these states.
    Version {
        /// The version that was seen.
        version: Version,
        /// The states it may be in.
        from: Vec<Status>,
    },
}

/// What a record becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Still pending, with a new lease, milliseconds from now.
    Renewed {
        /// The lease.
        lease_ms: u64,
    },
    /// Taken on, not done.
    Accepted {
        /// The acceptance.
        outcome: Outcome,
        /// Milliseconds from now after which nobody knows.
        deadline_ms: u64,
        /// Headers and body, encoded.
        blob: Option<Vec<u8>>,
    },
    /// Done.
    Completed {
        /// The answer.
        outcome: Outcome,
        /// Headers and body, encoded.
        blob: Option<Vec<u8>>,
    },
    /// Ended by a person.
    Closed {
        /// A stable reason code.
        reason: String,
    },
    /// Not known.
    Unknown {
        /// What was seen.
        evidence: Evidence,
    },
}

impl Target {
    /// The state it leads to.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            Self::Renewed { .. } => Status::Pending,
            Self::Accepted { .. } => Status::Accepted,
            Self::Completed { .. } => Status::Completed,
            Self::Closed { .. } => Status::Closed,
            Self::Unknown { .. } => Status::Unknown,
        }
    }
}

/// What a store answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The claim or take-over is yours: the record as written. Also for a repeat of it.
    Claimed(Box<Record>),
    /// There is a record, and it is not yours to change.
    Current(Box<Record>),
    /// Only a tombstone remains.
    Expired {
        /// The operation was never settled.
        unresolved: bool,
    },
    /// There is none.
    Absent,
    /// The change is made.
    Applied(Box<Record>),
    /// It was made before, by this same write.
    Already(Box<Record>),
    /// Fenced off: the record as it is. A late answer was kept in its history.
    Stale(Box<Record>),
    /// The claim is gone.
    Cancelled,
    /// The recorded answer; `None` where it is not there.
    Body(Option<Vec<u8>>),
    /// `not_after` had passed.
    TooLate,
    /// No room.
    Full(Full),
    /// There is something that is not a record (rule 9).
    Corrupt,
    /// No understood answer: ambiguous, never an absence.
    Failed(String),
    /// It never left this proxy: the store is known to be down, or there was no room to wait. Nothing
    /// is to be taken back.
    Unsent(String),
    /// The store has lost writes, and there is no record: it may be one of those that were lost. For
    /// so many milliseconds nothing new is claimed.
    Recovering(u64),
}

/// Where there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The store's budget.
    Store,
    /// The tenant's quota.
    Tenant,
    /// The tenant's claims per second.
    TenantRate,
}

impl Reply {
    /// A name for logs: records and answers never appear there.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Claimed(_) => "claimed",
            Self::Current(_) => "current",
            Self::Expired { .. } => "expired",
            Self::Absent => "absent",
            Self::Applied(_) => "applied",
            Self::Already(_) => "already",
            Self::Stale(_) => "stale",
            Self::Cancelled => "cancelled",
            Self::Body(_) => "body",
            Self::TooLate => "too_late",
            Self::Full(_) => "full",
            Self::Corrupt => "corrupt",
            Self::Failed(_) => "failed",
            Self::Unsent(_) => "unsent",
            Self::Recovering(_) => "recovering",
        }
    }
}
