//! A store that keeps its contract: the shipped step function over one record, with what the engines
//! behind a network add to it, and with whatever fence is to be missing.
//!
//! The additions are those of the Redis engine (`store::redis`): a cancellation leaves a mark under its
//! token whatever it finds, a claim under a marked token comes too late, and a renewal under one
//! restores nothing; an epoch, and a sequence that rises with every write.

use crate::digest::Marked;
use crate::fence::Fence;
use crate::monitor;
use idempo_core::ids::OwnerToken;
use idempo_core::record::{Evidence, Record, State, Status, View, WriteId};
use idempo_core::store::contract::{self, Change};
use idempo_core::store::redis::CANCELLED_MS;
use idempo_core::store::{Action, Fence as Held, Op, Reply, Target, Transition};
use std::sync::Arc;

/// One operation's part of a store.
#[derive(Clone, Default, Hash)]
pub(crate) struct Store {
    record: Option<Arc<Marked<Record>>>,
    /// Recorded answers, by incarnation.
    answers: Vec<(u64, Arc<Vec<u8>>)>,
    /// Cancelled tokens, and until when they are remembered.
    marks: Vec<(OwnerToken, u64)>,
    /// Drawn when the store's data began.
    pub(crate) epoch: u8,
    /// Raised by every write.
    pub(crate) seq: u16,
    damaged: bool,
    /// Writes that were made, for the monitor alone.
    made: Vec<WriteId>,
    /// What a replica has.
    replica: Option<Arc<Store>>,
}

impl Store {
    pub(crate) fn record(&self) -> Option<&Record> {
        self.record.as_ref().map(|r| &r.value)
    }

    pub(crate) fn view(&self, now: u64) -> Option<View> {
        self.record().map(|r| r.view(now))
    }

    pub(crate) const fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// Something scribbles over the record.
    pub(crate) fn damage(&mut self) {
        self.damaged = true;
    }

    /// A replica catches up.
    pub(crate) fn replicate(&mut self) {
        self.replica = None;
        self.replica = Some(Arc::new(self.clone()));
    }

    /// A replica takes over with what it has, which may be nothing.
    pub(crate) fn lose(&mut self, new_epoch: bool) {
        let epoch = self.epoch + u8::from(new_epoch);
        *self = self
            .replica
            .take()
            .map_or_else(Self::default, |r| (*r).clone());
        self.epoch = epoch;
    }

    fn is_marked(&self, owner: OwnerToken, now: u64) -> bool {
        let mut marks = self.marks.iter();
        marks.any(|(token, until)| *token == owner && now < *until)
    }

    fn mark(&mut self, owner: OwnerToken, now: u64) {
        self.marks.retain(|(token, _)| *token != owner);
        self.marks.push((owner, now + CANCELLED_MS));
        self.marks.sort_unstable_by_key(|(token, _)| token.0);
        self.seq += 1;
    }

    /// Takes one step. Also says which rule it broke, if it did.
    pub(crate) fn take(
        &mut self,
        op: &Op,
        now: u64,
        removed: Option<Fence>,
    ) -> (Reply, Option<&'static str>) {
        if self.damaged {
            if removed != Some(Fence::DamagedIsThere) {
                return (Reply::Corrupt, None);
            }
            self.record = None;
            self.damaged = false;
        }
        if let Action::Body { incarnation } = op.action {
            return (self.body(incarnation, now), None);
        }
        let before = self.record.clone();
        let before = before.as_ref().map(|r| &r.value);
        let (seen, action) = without(removed, before, &op.action, self.seq);
        let (change, reply) = contract::apply(seen.as_ref(), &action, now);
        let (change, reply) = self.refuse_marked(before, &op.action, now, change, reply);
        if let Action::Cancel { owner } = action
            && removed != Some(Fence::CancelMark)
        {
            self.mark(owner, now);
        }
        self.write(&action, change, &reply);
        let mut broken = monitor::judge(before, &op.action, self.record(), &reply, now);
        if let Action::Transition(transition) = &op.action {
            let known = matches!(reply, Reply::Already(_) | Reply::Expired { .. });
            if self.made.contains(&transition.write) && before.is_some() && !known {
                broken = Some(monitor::REPEAT);
            }
            let renews = matches!(transition.to, Target::Renewed { .. });
            if matches!(reply, Reply::Applied(_)) && !renews {
                self.made.push(transition.write);
                self.made.sort_unstable_by_key(|w| w.0);
            }
        }
        (reply, broken)
    }

    fn refuse_marked(
        &self,
        before: Option<&Record>,
        action: &Action,
        now: u64,
        change: Change,
        reply: Reply,
    ) -> (Change, Reply) {
        let written = matches!(change, Change::Put(_));
        match action {
            Action::Claim(claim) | Action::TakeOver { claim, .. }
                if written
                    && matches!(reply, Reply::Claimed(_))
                    && self.is_marked(claim.owner, now) =>
            {
                (Change::Keep, Reply::TooLate)
            }
            Action::Transition(Transition {
                fence: Held::Owner { claim, .. },
                to: Target::Renewed { .. },
                ..
            }) if written && before.is_none() && self.is_marked(claim.owner, now) => {
                (Change::Keep, Reply::Absent)
            }
            _ => (change, reply),
        }
    }

    fn write(&mut self, action: &Action, change: Change, reply: &Reply) {
        match change {
            Change::Keep => {}
            Change::Delete => {
                self.record = None;
                self.seq += 1;
            }
            Change::Put(record) => {
                if matches!(reply, Reply::Applied(_))
                    && let Action::Transition(t) = action
                    && let Target::Completed { blob: Some(b), .. }
                    | Target::Accepted { blob: Some(b), .. } = &t.to
                {
                    let incarnation = record.version.incarnation;
                    self.answers.retain(|(i, _)| *i != incarnation);
                    self.answers.push((incarnation, Arc::new(b.clone())));
                    self.answers.sort_unstable();
                }
                self.record = Some(Arc::new(Marked::new(*record)));
                self.seq += 1;
            }
        }
    }

    fn body(&self, incarnation: u64, now: u64) -> Reply {
        match contract::apply(self.record(), &Action::Read, now).1 {
            Reply::Current(record) if record.version.incarnation == incarnation => {
                let mut answers = self.answers.iter();
                let found = answers.find(|(i, _)| *i == incarnation);
                Reply::Body(found.map(|(_, octets)| octets.to_vec()))
            }
            other => other,
        }
    }
}

/// What the step function is shown where a fence is missing: its check finds nothing to object to.
fn without(
    removed: Option<Fence>,
    current: Option<&Record>,
    action: &Action,
    seq: u16,
) -> (Option<Record>, Action) {
    let (mut seen, mut action) = (current.cloned(), action.clone());
    let (Some(fence), Some(record)) = (removed, current) else {
        if removed == Some(Fence::NotAfter) {
            unlimited(&mut action);
        }
        return (seen, action);
    };
    match (fence, &mut action) {
        (Fence::AtomicClaim, Action::Claim(claim)) if record.owner() != Some(claim.owner) => {
            seen = None;
        }
        (Fence::TakeOverVersion, Action::TakeOver { expect, .. }) => *expect = record.version,
        (Fence::CancelOwn, Action::Cancel { owner }) => {
            *owner = record.owner().unwrap_or(*owner);
        }
        (Fence::NotAfter, _) => unlimited(&mut action),
        (Fence::UnreplayableStays, Action::Transition(transition)) => {
            if let (Held::Owner { claim, .. }, Target::Completed { blob: None, .. }) =
                (&transition.fence, &transition.to)
            {
                let owner = claim.owner;
                action = Action::Cancel { owner };
            }
        }
        (_, Action::Transition(transition)) => {
            seen = Some(unfenced(fence, record, transition, seq));
        }
        _ => {}
    }
    (seen, action)
}

fn unlimited(action: &mut Action) {
    if let Action::Claim(claim) | Action::TakeOver { claim, .. } = action {
        claim.not_after = u64::MAX;
    }
}

fn unfenced(fence: Fence, record: &Record, transition: &mut Transition, seq: u16) -> Record {
    let mut seen = record.clone();
    let terminal = matches!(record.state, State::Completed { .. } | State::Closed { .. });
    let by_owner = matches!(transition.fence, Held::Owner { .. });
    match fence {
        Fence::WriteId => {
            transition.write = WriteId(transition.write.0 ^ (u64::from(seq) << 48));
        }
        Fence::OwnerToken => {
            if let (Held::Owner { claim, .. }, Some(owner)) =
                (&mut transition.fence, record.owner())
            {
                claim.owner = owner;
            }
        }
        Fence::ExpectedVersion => {
            if let Held::Version { version, from } = &mut transition.fence {
                *version = record.version;
                *from = vec![Status::Pending, Status::Accepted, Status::Unknown];
            }
        }
        Fence::TerminalStays if terminal && !by_owner => {
            seen.state = reopened(None);
            if let Held::Version { version, from } = &mut transition.fence {
                *version = record.version;
                *from = vec![Status::Unknown];
            }
        }
        Fence::SettlingDisowns if terminal => {
            if let Held::Owner { claim, .. } = &transition.fence {
                seen.state = reopened(Some(claim.owner));
            }
        }
        _ => {}
    }
    seen
}

fn reopened(owner: Option<OwnerToken>) -> State {
    State::Unknown {
        owner,
        evidence: Evidence::default(),
        at: 0,
    }
}
