//! One attempt as a state machine: events of an HTTP stream in, effects for the host out.
//!
//! An [`Exchange`] knows no host. The adapter tells it what happened (headers, body, a store's
//! reply, an end, a tick) and carries out the [`Effect`]s it is handed, in order. Whether the
//! stream is held is not an effect but a question that the adapter asks after each event
//! ([`Exchange::holds_request`], [`Exchange::holds_response`]): the answer can't be lost.
//!
//! ```text
//! New ─ headers ─> Gather ─ body ─> Ask(previous…, claim) ─ claimed ─> Run ─ answer ─> Record ─> Settle ─> Done
//!                                     │ existing record                  │ never sent          │
//!                                     ├─> Ask(body) ─> Replied           └─> Settle(cancel)    └ (hold ends)
//!                                     ├─> Wait ─ woken ─> Ask(reread)
//!                                     ├─> Drain ─ body ─> Ask(reread)
//!                                     └─ claimed, detached ─> Away ─ answer ─> Record ─> Settle ─> reply
//! ```
//!
//! A body that is too large to be held is claimed by its beginning; from then on its octets come to
//! [`Exchange::on_request_chunk`] as they pass ([`upload`]).
//!
//! | module | its part |
//! |---|---|
//! | [`effects`] | what the host is asked to do |
//! | [`metadata`] | what the Envoy route says |
//! | [`request`] | what the headers alone decide |
//! | [`understand`] | key, tenant, operation id and fingerprint of a complete request |
//! | [`refusal`] | why not, and what the client is told |
//! | [`claim`] | what the store's reply to the claim means |
//! | [`answer`] | answering from a record |
//! | [`response`] | the upstream's answer: class, hold, last write |
//! | [`recording`] | what is kept of it |
//! | [`failure`] | answers that are not the upstream's: sent or not sent |
//! | [`detached`] | attempts that outlive their client |
//! | [`inner`] | their inner pass |
//! | [`ending`] | streams that end early; the last write |
//! | [`upload`] | request bodies that are too large to be held |

mod answer;
mod claim;
pub mod detached;
pub mod effects;
mod ending;
pub mod failure;
mod inner;
mod metadata;
mod recording;
mod refusal;
mod request;
mod response;
#[cfg(test)]
mod tests;
mod understand;
mod upload;

pub use detached::{Call, CallFailure};
pub use effects::{Edit, Effect, Field, Level, likeness};
pub use ending::lapse;
pub use response::Origin;
pub use upload::Body;

use crate::fingerprint::Fingerprint;
use crate::http::{Headers, Line};
use crate::ids::{OperationId, OwnerToken, TenantDigest};
use crate::key::Key;
use crate::metrics::RouteIndex;
use crate::plan::{Mode, Plan, Route};
use crate::record::{Outcome, Record, Replayable};
use crate::store::{Claim, Op};
use crate::tenant::TenantValue;
use crate::trusted::Signer;
use std::sync::Arc;
use upload::Upload;

/// What all exchanges of one configuration share.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The compiled configuration.
    pub plan: Plan,
    /// Signs derived headers, where secrets are configured.
    pub signer: Option<Signer>,
    /// This proxy's name (`node.id`).
    pub proxy: String,
    /// Since when the store remembers, Unix milliseconds; `None` for stores that survive a restart.
    pub remembers_since: Option<u64>,
}

/// The time of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Host clock, Unix microseconds: for durations and for people.
    pub wall_us: u64,
    /// Store clock, milliseconds: for windows.
    pub store_ms: u64,
}

impl Moment {
    /// Unix milliseconds.
    #[must_use]
    pub const fn wall_ms(&self) -> u64 {
        self.wall_us / 1000
    }

    /// A moment of the store's clock as Unix milliseconds.
    #[must_use]
    pub const fn to_wall_ms(&self, store_ms: u64) -> u64 {
        self.wall_ms()
            .saturating_add(store_ms)
            .saturating_sub(self.store_ms)
    }
}

/// What makes an attempt's owner token unique.
#[derive(Clone, Copy, Debug)]
pub struct Seed {
    /// Unique to the worker's VM.
    pub vm: [u8; 16],
    /// Raised for every exchange of that VM.
    pub counter: u64,
}

/// One attempt.
#[derive(Clone, Debug)]
pub struct Exchange {
    policy: Arc<Policy>,
    seed: Seed,
    phase: Phase,
    /// The attempt's trace id (`x-request-id`), bounded.
    attempt_id: String,
    /// The mode that the Envoy route asks for.
    route_mode: Option<Mode>,
    /// `Accept-Language` lines.
    languages: Vec<Vec<u8>>,
    /// Passed on unclaimed because the store failed and the route says `open`.
    bypassed: bool,
    /// The response's headers are still here and want markers, which come with the reply to the
    /// last write: so they say what is recorded, not what was hoped. Holds the names of the upstream's
    /// own copies, to be removed.
    unmarked: Option<Vec<Vec<u8>>>,
    /// Whether the attempt may run detached, as far as the route does not say.
    fitness: detached::Fitness,
    /// This is the inner pass of a detached attempt: its answer carries a report.
    inner: bool,
    /// Calls to the store that failed in a row.
    store_failures: u32,
}

#[derive(Clone, Debug, Default)]
enum Phase {
    /// Nothing seen yet.
    #[default]
    New,
    /// Not ours, or no longer.
    Pass,
    /// Held in its headers until the body is complete.
    Gather(Box<Gather>),
    /// A store reply is awaited.
    Ask(Box<Attempt>, Step),
    /// A duplicate that waits for the operation's end.
    Wait(Box<Attempt>),
    /// A duplicate whose large body must be known whole before it can be answered. Nothing of it is kept.
    Drain(Box<Attempt>),
    /// Forwarded under a claim; nothing has come back.
    Run(Box<Run>),
    /// Sent outside of the stream under a claim; nothing has come back.
    Away(Box<Run>),
    /// The upstream's answer is passing and being recorded.
    Record(Box<Run>, Box<Recording>),
    /// The last write is awaited.
    Settle(Box<Run>, Held),
    /// Answered by the filter.
    Replied,
    /// Nothing is left to do.
    Done,
}

/// Which store reply is awaited.
#[derive(Clone, Debug)]
enum Step {
    /// The identity that the route had before, by its place in `previous`.
    Previous(usize),
    /// The claim.
    Claim,
    /// The take-over of an unknown operation.
    TakeOver,
    /// A waiter's look.
    Reread,
    /// The recorded answer.
    Body(Box<Record>, Outcome),
}

/// Whether the response is held while the last write is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// In its headers or at its end.
    Response,
    /// Nobody waits.
    Nothing,
}

/// What the headers said, while the body is awaited.
#[derive(Clone, Debug)]
struct Gather {
    headers: Headers,
    /// Decided, unless a rule looks into the body.
    route: Option<Chosen>,
    envoy_route: Option<String>,
    requires_key: bool,
    /// The body is JSON, and the rule looks for a key in it.
    may_hold_key: bool,
    /// And there is none in the header.
    key_in_body: bool,
    /// What came of the body.
    body: Vec<u8>,
    facts: CallerFacts,
}

/// Caller facts that were read with the headers, because the host has them only then.
#[derive(Clone, Debug, Default)]
struct CallerFacts {
    tenant: Option<Result<TenantValue, crate::tenant::TenantError>>,
    principal: Option<Result<Option<Vec<u8>>, crate::tenant::TenantError>>,
}

#[derive(Clone, Copy, Debug)]
struct Chosen {
    index: usize,
    mode: Mode,
}

/// A request that is complete and understood.
#[derive(Clone, Debug)]
struct Attempt {
    route: usize,
    mode: Mode,
    operation: OperationId,
    /// Under which identity the record was found: `operation`, or an earlier one of the route.
    found_at: OperationId,
    tenant: TenantValue,
    tenant_bucket: u8,
    key: Key,
    headers: Headers,
    /// The body, or with `upload` its beginning.
    body: Vec<u8>,
    /// The body that is too large to be held.
    upload: Option<Box<Upload>>,
    principal: Option<Vec<u8>>,
    fingerprint: Fingerprint,
    owner: OwnerToken,
    tenant_digest: TenantDigest,
    /// The key was made before this store's memory began.
    forgotten: bool,
    started_us: u64,
    /// Store clock until which a duplicate waits.
    wait_until: Option<u64>,
    /// Store clock at which a waiter looks again by itself.
    reread_at: u64,
    /// It was woken while it looked: what it saw may be older.
    woken: bool,
    /// How often a record was met without waiting: a store that keeps answering otherwise than the
    /// contract has it must not keep an attempt for ever.
    met: u8,
}

/// A claimed attempt that was sent on.
#[derive(Clone, Debug)]
struct Run {
    attempt: Box<Attempt>,
    claim: Box<Claim>,
    generation: u64,
    claimed_at: u64,
    sent_us: u64,
    /// Store clock of the latest lease.
    renewed_at: u64,
    renewing: bool,
    writes: u32,
    /// What the write that is under way is for; `None`: a release.
    aim: Option<ending::Aim>,
    transitions: Vec<crate::audit::Transition>,
    /// Where it was sent outside of the stream.
    trip: Option<Box<detached::Trip>>,
}

/// An answer being recorded.
#[derive(Clone, Debug)]
struct Recording {
    status: u16,
    kept: Vec<Line>,
    body: Vec<u8>,
    /// See [`crate::envelope::Envelope::segments`].
    segments: Vec<u32>,
    seen: u64,
    declared: Option<u64>,
    replay: Replayable,
    accepted: bool,
    hold: bool,
    /// Digest over what passed, where it is not kept. Boxed: a hasher is two kilobytes.
    digest: Option<Box<blake3::Hasher>>,
}

impl Exchange {
    /// A new attempt under that policy.
    #[must_use]
    pub fn new(policy: Arc<Policy>, seed: Seed) -> Self {
        Self {
            policy,
            seed,
            phase: Phase::New,
            attempt_id: String::new(),
            route_mode: None,
            languages: Vec::new(),
            bypassed: false,
            unmarked: None,
            fitness: detached::Fitness::default(),
            inner: false,
            store_failures: 0,
        }
    }

    /// Whether the request must be held where it is.
    #[must_use]
    pub fn holds_request(&self) -> bool {
        matches!(
            self.phase,
            Phase::Gather(_) | Phase::Ask(..) | Phase::Wait(_) | Phase::Drain(_)
        ) || self.waits_at_home()
    }

    /// Whether the response must be held where it is.
    #[must_use]
    pub fn holds_response(&self) -> bool {
        match &self.phase {
            Phase::Record(_, recording) => recording.hold,
            Phase::Settle(_, held) => *held == Held::Response,
            _ => false,
        }
    }

    /// Whether the answer's body is of interest.
    #[must_use]
    pub fn records(&self) -> bool {
        matches!(self.phase, Phase::Record(..))
    }

    /// Whether the response's headers are of interest.
    #[must_use]
    pub fn wants_response(&self) -> bool {
        matches!(self.phase, Phase::Run(_))
            || self.inner
            || (self.bypassed && matches!(self.phase, Phase::Pass))
    }

    /// How many attempts of this one's operation may wait in one worker.
    #[must_use]
    pub fn max_waiters(&self) -> u32 {
        match &self.phase {
            Phase::Wait(attempt) => self
                .route(attempt.route)
                .map_or(0, |r| r.in_flight.max_waiters),
            _ => 0,
        }
    }

    /// Whether this attempt waits for another one's end.
    #[must_use]
    pub fn waits(&self) -> Option<OperationId> {
        match &self.phase {
            Phase::Wait(attempt) => Some(attempt.found_at),
            _ => None,
        }
    }

    /// Whether later events of the stream can matter.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Pass | Phase::Replied | Phase::Done)
    }

    fn route(&self, index: usize) -> Option<&Route> {
        self.policy.plan.routes.get(index)
    }
}

impl Attempt {
    fn route_index(&self) -> RouteIndex {
        RouteIndex::try_from(self.route).unwrap_or(RouteIndex::MAX)
    }

    /// Spreads retries: from the token, which nobody chooses.
    fn jitter(&self) -> u64 {
        self.owner.incarnation()
    }

    fn op(&self, action: crate::store::Action) -> Effect {
        Effect::Store(Op {
            operation: self.operation,
            action,
        })
    }
}
