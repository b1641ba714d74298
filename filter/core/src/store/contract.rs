//! What each step means: from the record that is there to the change and the reply.
//!
//! Pure, so that one text serves the shared-data table, the model checker and every fake; remote
//! engines are compared with it. design.md §2 has the rules.

use super::{Action, Claim, Fence, Full, Reply, Target, Transition};
use crate::ids::OwnerToken;
use crate::record::{
    Event, Evidence, History, Record, Source, State, Status, Version, View, WriteId,
};

/// What to do with the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    Keep,
    /// Write this.
    Put(Box<Record>),
    /// Remove it.
    Delete,
}

/// An unknown operation's `last_seen` is written at most this often, milliseconds: every write to a
/// store costs, and windows are hours.
pub(super) const SEEN_EVERY_MS: u64 = 60_000;

/// One step. `current` is the record that is there, `now` the store's clock.
///
/// [`Action::Body`] is not a step on the record: it is answered by whoever keeps the bodies, and
/// here like a read.
#[must_use]
pub fn apply(current: Option<&Record>, action: &Action, now: u64) -> (Change, Reply) {
    let current = current.filter(|r| r.view(now) != View::Gone);
    // Past its window a record is its tombstone, whether a sweep has packed it by now or not: what
    // a caller sees must not depend on that.
    if let Some(View::Expired { unresolved }) = current.map(|r| r.view(now)) {
        return (Change::Keep, Reply::Expired { unresolved });
    }
    match action {
        Action::Read | Action::Body { .. } => (Change::Keep, look(current)),
        Action::Claim(claim) => match current {
            None => create(claim, now, 0),
            Some(record) => meet(record, claim, now),
        },
        Action::TakeOver { claim, expect } => take_over(current, claim, *expect, now),
        Action::Cancel { owner } => cancel(current, *owner, now),
        Action::Transition(transition) => match current {
            Some(record) => change(record, transition, now),
            None => restore(transition, now),
        },
    }
}

/// What a sweep writes: the unknown state that every reader computes already, so that it is in
/// the history and counted. `None` where there is nothing to write.
#[must_use]
pub fn sweep(record: &Record, now: u64) -> Option<Box<Record>> {
    if !matches!(record.view(now), View::Unknown { .. })
        || matches!(record.state, State::Unknown { .. })
    {
        return None;
    }
    let mut next = record.clone();
    materialise_unknown(&mut next, Source::Sweep, note_write(record), now);
    next.bump();
    Some(Box::new(next))
}

/// One write id per incarnation and counter: the same note by two readers is one event.
fn note_write(record: &Record) -> WriteId {
    WriteId(record.version.incarnation ^ u64::from(record.version.counter))
}

/// The write id of a claim: one per owner token, so that a repeat is recognised.
#[must_use]
pub fn claim_write(owner: OwnerToken) -> WriteId {
    let [.., a, b, c, d, e, f, g, h] = owner.0;
    WriteId(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}

fn look(current: Option<&Record>) -> Reply {
    current.map_or(Reply::Absent, |r| Reply::Current(Box::new(r.clone())))
}

fn create(claim: &Claim, now: u64, generation_before: u64) -> (Change, Reply) {
    if now > claim.not_after {
        return (Change::Keep, Reply::TooLate);
    }
    if claim.tenant_quota == Some(0) {
        return (Change::Keep, Reply::Full(Full::Tenant));
    }
    let mut record = Box::new(claimed(claim, now, generation_before));
    if claim.forgotten {
        forget(&mut record, now);
        return (Change::Put(record.clone()), Reply::Current(record));
    }
    (Change::Put(record.clone()), Reply::Claimed(record))
}

/// The operation may have run before the store's memory began: it is unknown, and nobody's.
fn forget(record: &mut Record, now: u64) {
    let evidence = Evidence::named("restart");
    record.state = State::Unknown {
        owner: None,
        evidence: evidence.clone(),
        at: now,
    };
    let write = record
        .history
        .events()
        .first()
        .map_or(WriteId(0), |e| e.write);
    record.history = History::default();
    record.log(
        now,
        Status::Absent,
        Source::Restart,
        write,
        "",
        Some(evidence),
    );
}

/// The record that a claim makes. The generation is the store's time, so that it rises even across
/// a release, which leaves nothing behind, and never repeats what a record remembers.
pub(super) fn claimed(claim: &Claim, now: u64, generation_before: u64) -> Record {
    let mut history = History::default();
    history.push(Event {
        at: now,
        from: Status::Absent,
        to: Status::Pending,
        source: Source::Owner,
        write: claim_write(claim.owner),
        operator: String::new(),
        evidence: None,
    });
    Record {
        version: Version {
            incarnation: claim.owner.incarnation(),
            counter: 1,
        },
        generation: now.max(generation_before.saturating_add(1)),
        state: State::Pending {
            owner: claim.owner,
            lease_until: now.saturating_add(claim.lease_ms),
        },
        fingerprint: claim.fingerprint.clone(),
        schema_version: claim.schema_version.clone(),
        tenant: claim.tenant,
        route: claim.route.clone(),
        attempt: claim.attempt.clone(),
        traceparent: claim.traceparent.clone(),
        claimed_at: now,
        last_seen: now,
        windows: claim.windows,
        history,
    }
}

/// A claim that finds a record.
fn meet(record: &Record, claim: &Claim, now: u64) -> (Change, Reply) {
    match record.view(now) {
        View::Pending { .. } if record.owner() == Some(claim.owner) => {
            (Change::Keep, Reply::Claimed(Box::new(record.clone())))
        }
        View::Unknown { .. } => note_unknown(record, claim_write(claim.owner), now),
        _ => (Change::Keep, Reply::Current(Box::new(record.clone()))),
    }
}

/// Writes what a reader computed, and that an attempt was seen: both move the unknown window. The
/// write is the claim's, so that its attempt, and no other, knows that it was the first to see it.
fn note_unknown(record: &Record, write: WriteId, now: u64) -> (Change, Reply) {
    let written = matches!(record.state, State::Unknown { .. });
    if written && now.saturating_sub(record.last_seen) < SEEN_EVERY_MS {
        return (Change::Keep, Reply::Current(Box::new(record.clone())));
    }
    let mut next = record.clone();
    if !written {
        materialise_unknown(&mut next, Source::Reader, write, now);
    }
    next.last_seen = now;
    next.bump();
    let next = Box::new(next);
    (Change::Put(next.clone()), Reply::Current(next))
}

/// Turns a lease or deadline that is over into the written state.
fn materialise_unknown(record: &mut Record, source: Source, write: WriteId, now: u64) {
    if let View::Unknown { owner, evidence } = record.view(now)
        && !matches!(record.state, State::Unknown { .. })
    {
        let from = record.state.status();
        record.state = State::Unknown {
            owner,
            evidence: evidence.clone(),
            at: now,
        };
        record.log(now, from, source, write, "", Some(evidence));
    }
}

fn take_over(
    current: Option<&Record>,
    claim: &Claim,
    expect: Version,
    now: u64,
) -> (Change, Reply) {
    let Some(record) = current else {
        return create(claim, now, 0);
    };
    // A repeat, as in a plain claim: only while the lease stands, since afterwards somebody else may
    // take the operation over at any moment.
    if matches!(record.view(now), View::Pending { .. })
        && record.owner() == Some(claim.owner)
        && record.version.incarnation != expect.incarnation
    {
        return (Change::Keep, Reply::Claimed(Box::new(record.clone())));
    }
    let unknown = matches!(record.view(now), View::Unknown { .. });
    // A token starts one incarnation: its holder cannot take over from itself, which would begin
    // the same versions again.
    let itself = claim.owner.incarnation() == record.version.incarnation;
    if !unknown || itself || record.version != expect {
        return (Change::Keep, look(Some(record)));
    }
    if now > claim.not_after {
        return (Change::Keep, Reply::TooLate);
    }
    let mut next = claimed(claim, now, record.generation);
    let mut history = record.history.clone();
    history.push(Event {
        at: now,
        from: Status::Unknown,
        to: Status::Pending,
        source: Source::Owner,
        write: claim_write(claim.owner),
        operator: String::new(),
        evidence: None,
    });
    next.history = history;
    let next = Box::new(next);
    (Change::Put(next.clone()), Reply::Claimed(next))
}

fn cancel(current: Option<&Record>, owner: OwnerToken, now: u64) -> (Change, Reply) {
    match current {
        None => (Change::Keep, Reply::Cancelled),
        Some(record) => match &record.state {
            // Also once the lease is over: the token says that nothing was sent, whatever the time.
            State::Pending { owner: holder, .. } if *holder == owner => {
                give_back(record, owner, now)
            }
            State::Unknown {
                owner: Some(holder),
                ..
            } if *holder == owner && !owner_said_unknown(record) => give_back(record, owner, now),
            _ => (Change::Keep, Reply::Stale(Box::new(record.clone()))),
        },
    }
}

/// The owner says that it sent nothing. Where its claim began the operation, there never was one. Where
/// it took the operation over, that says nothing of the attempts before: it is unknown again.
fn give_back(record: &Record, owner: OwnerToken, now: u64) -> (Change, Reply) {
    let write = claim_write(owner);
    let events = record.history.events();
    let took_over = match events
        .iter()
        .find(|e| e.write == write && e.to == Status::Pending)
    {
        Some(claim) => claim.from == Status::Unknown,
        // A history keeps its first event: so that claim was none.
        None => true,
    };
    if !took_over {
        return (Change::Delete, Reply::Cancelled);
    }
    let evidence = events
        .iter()
        .rev()
        .filter(|e| e.to == Status::Unknown && !is_late(e))
        .find_map(|e| e.evidence.clone())
        .unwrap_or_else(released);
    let mut next = record.clone();
    let from = next.state.status();
    next.state = State::Unknown {
        owner: None,
        evidence: evidence.clone(),
        at: now,
    };
    next.log(
        now,
        from,
        Source::Owner,
        WriteId(write.0.wrapping_sub(1)),
        "",
        Some(evidence),
    );
    next.last_seen = next.last_seen.max(now);
    next.bump();
    let next = Box::new(next);
    (Change::Put(next.clone()), Reply::Applied(next))
}

/// What is known after a give-back, where the history no longer says more.
pub(super) fn released() -> Evidence {
    Evidence::named("released_after_take_over")
}

/// Whether it was the owner that wrote `unknown`: then something was sent, and a cancellation that
/// arrives afterwards (a backlog may reorder) proves nothing. A lease that merely ended, noted by a
/// reader or a sweep, takes nothing away from the owner's word.
fn owner_said_unknown(record: &Record) -> bool {
    let mut events = record.history.events().iter().rev();
    events
        .find(|e| e.to == Status::Unknown && !is_late(e))
        .is_none_or(|e| !matches!(e.source, Source::Reader | Source::Sweep))
}

/// A late answer in the history, as [`stale`] puts it there: it changed nothing, and its evidence
/// is an answer's.
fn is_late(event: &Event) -> bool {
    event.from == event.to && event.evidence.as_ref().is_some_and(is_answer)
}

/// Evidence that is an answer's.
pub(super) fn is_answer(evidence: &Evidence) -> bool {
    let answers = [Status::Accepted.as_str(), Status::Completed.as_str()];
    evidence.result.is_some() && answers.contains(&evidence.details.as_str())
}

fn change(record: &Record, transition: &Transition, now: u64) -> (Change, Reply) {
    let mut events = record.history.events().iter();
    if let Some(event) = events.find(|e| e.write == transition.write) {
        let record = Box::new(record.clone());
        // The repeat of a write that lost has lost too: "already" would say that it had won.
        if is_late(event) && transition.to.answer().is_some() {
            return (Change::Keep, Reply::Stale(record));
        }
        return (Change::Keep, Reply::Already(record));
    }
    if !holds(record, &transition.fence, now) {
        return stale(record, transition, now);
    }
    let mut next = record.clone();
    if let Target::Renewed { lease_ms } = transition.to {
        // A renewal is not a transition: it leaves no event. It revives a lease that has just
        // ended, as long as nobody has acted on that: the owner is evidently there.
        let State::Pending { lease_until, .. } = &mut next.state else {
            return stale(record, transition, now);
        };
        // Never shortened: a repeat that was under way for long must not take back what a later
        // renewal gave, nor may a worker whose clock is a little behind.
        *lease_until = now.saturating_add(lease_ms).max(*lease_until);
        next.bump();
        let next = Box::new(next);
        return (Change::Put(next.clone()), Reply::Applied(next));
    }
    next.state = settled(&transition.to, &record.state, transition.source, now);
    let evidence = match &transition.to {
        Target::Unknown { evidence } => Some(evidence.clone()),
        to => to.answer(),
    };
    next.log(
        now,
        record.view(now).status(),
        transition.source,
        transition.write,
        &transition.operator,
        evidence,
    );
    // The owner has seen the whole body since it claimed by its beginning.
    if let Fence::Owner { claim, .. } = &transition.fence
        && next.fingerprint.head.is_some()
    {
        next.fingerprint = claim.fingerprint.clone();
    }
    next.last_seen = next.last_seen.max(now);
    next.bump();
    let next = Box::new(next);
    (Change::Put(next.clone()), Reply::Applied(next))
}

/// The state that a transition leads to. Settling by anybody but the owner removes the token
/// (rule 2); the owner's own `unknown` keeps it, so that a late answer of the same attempt counts.
fn settled(to: &Target, from: &State, source: Source, now: u64) -> State {
    match to {
        Target::Renewed { .. } => from.clone(),
        Target::Accepted {
            outcome,
            deadline_ms,
            ..
        } => State::Accepted {
            outcome: outcome.clone(),
            at: now,
            deadline: now.saturating_add(*deadline_ms),
        },
        Target::Completed { outcome, .. } => State::Completed {
            outcome: outcome.clone(),
            at: now,
        },
        Target::Closed { reason } => State::Closed {
            reason: reason.clone(),
            at: now,
        },
        Target::Unknown { evidence } => State::Unknown {
            owner: match (source, from) {
                (
                    Source::Owner | Source::Reader | Source::Sweep,
                    State::Pending { owner, .. }
                    | State::Unknown {
                        owner: Some(owner), ..
                    },
                ) => Some(*owner),
                _ => None,
            },
            evidence: evidence.clone(),
            at: now,
        },
    }
}

fn holds(record: &Record, fence: &Fence, now: u64) -> bool {
    match fence {
        Fence::Owner { claim, .. } => {
            record.owner() == Some(claim.owner)
                && matches!(record.view(now).status(), Status::Pending | Status::Unknown)
        }
        Fence::Version { version, from } => {
            record.version == *version
                && from.contains(&record.view(now).status())
                && !matches!(record.state, State::Completed { .. } | State::Closed { .. })
        }
    }
}

/// A write that lost. An answer it carried may contradict a person, so it is kept as evidence.
fn stale(record: &Record, transition: &Transition, now: u64) -> (Change, Reply) {
    let Some(evidence) = transition.to.answer() else {
        return (Change::Keep, Reply::Stale(Box::new(record.clone())));
    };
    let mut next = record.clone();
    next.log(
        now,
        record.state.status(),
        transition.source,
        transition.write,
        &transition.operator,
        Some(evidence),
    );
    next.bump();
    let next = Box::new(next);
    (Change::Put(next.clone()), Reply::Stale(next))
}

/// A transition that finds nothing: the store has lost the record. The owner knows what happened,
/// so it writes that (rule 6); anybody else is told that there is nothing.
fn restore(transition: &Transition, now: u64) -> (Change, Reply) {
    let Fence::Owner {
        claim,
        claimed_at,
        generation,
    } = &transition.fence
    else {
        return (Change::Keep, Reply::Absent);
    };
    let mut record = claimed(claim, now, generation.saturating_sub(1));
    record.generation = *generation;
    record.claimed_at = *claimed_at;
    if let Target::Renewed { lease_ms } = transition.to {
        record.state = State::Pending {
            owner: claim.owner,
            lease_until: now.saturating_add(lease_ms),
        };
        let record = Box::new(record);
        return (Change::Put(record.clone()), Reply::Applied(record));
    }
    change(&record, transition, now)
}

impl Record {
    /// The token that may still act, where there is one.
    #[must_use]
    pub const fn owner(&self) -> Option<OwnerToken> {
        match &self.state {
            State::Pending { owner, .. } => Some(*owner),
            State::Unknown { owner, .. } => *owner,
            _ => None,
        }
    }

    fn bump(&mut self) {
        self.version.counter = self.version.counter.saturating_add(1);
    }

    fn log(
        &mut self,
        at: u64,
        from: Status,
        source: Source,
        write: WriteId,
        operator: &str,
        evidence: Option<Evidence>,
    ) {
        let to = self.state.status();
        self.history.push(Event {
            at,
            from,
            to,
            source,
            write,
            operator: operator.to_owned(),
            evidence,
        });
    }
}

impl Target {
    /// The answer that a target carries, as evidence.
    pub(super) fn answer(&self) -> Option<Evidence> {
        match self {
            Self::Accepted { outcome, .. } | Self::Completed { outcome, .. } => Some(Evidence {
                status: Some(outcome.status),
                details: self.status().as_str().to_owned(),
                result: Some(outcome.result),
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "contract_tests.rs"]
mod tests;
