//! One step of one operation.

use super::bodies::Address;
use super::bucket::{Answer, Bucket, Damaged, Found, Head, OPEN};
use super::memory::{HostError, SharedData, TRIES, contended, fetch, put};
use super::replay::{Memo, ends};
use super::{Shape, Table, quota};
use crate::record::{Outcome, Record, Replayable, State, decode, encode};
use crate::store::contract::{self, Change};
use crate::store::{Action, Full, Op, Reply, Target, Transition};

/// An answer's chunks stay a little longer than its window, so that a worker whose clock is behind
/// does not find a record that may be replayed and no answer. The record alone decides what is
/// served.
const GRACE_MS: u64 = 5_000;

/// Why a step has no reply of the contract.
pub(super) enum Fault {
    Host(HostError),
    Damaged,
}

impl From<HostError> for Fault {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

impl From<Damaged> for Fault {
    fn from(_: Damaged) -> Self {
        Self::Damaged
    }
}

impl From<Fault> for Reply {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Host(HostError(text)) => Self::Failed(text),
            Fault::Damaged => Self::Corrupt,
        }
    }
}

impl Table {
    pub(super) fn step(
        &mut self,
        shape: &Shape,
        sd: &mut impl SharedData,
        op: &Op,
        now: u64,
    ) -> Reply {
        if let Action::Body { incarnation } = op.action {
            return self.body(shape, sd, &op.operation, incarnation, now);
        }
        let mut step = Step {
            shape,
            op,
            now,
            stored: None,
            counted: false,
            memo: None,
        };
        let reply = step.run(sd).unwrap_or_else(Into::into);
        self.memo = step.memo.or(self.memo);
        self.quotas |= step.counted;
        reply
    }
}

/// A step under way: what it has done besides the bucket, over all of its tries.
struct Step<'a> {
    shape: &'a Shape,
    op: &'a Op,
    now: u64,
    /// The answer that was written, or that it did not fit.
    stored: Option<(Address, Option<Answer>)>,
    /// Whether the tenant's counter was raised.
    counted: bool,
    memo: Option<Memo>,
}

/// What a try came to, before the compare-and-swap.
struct Next {
    reply: Reply,
    record: Box<Record>,
    answer: Option<Answer>,
}

impl<'a> Step<'a> {
    fn run(&mut self, sd: &mut impl SharedData) -> Result<Reply, Fault> {
        let Shape { geometry, seed, .. } = self.shape;
        let id = self.op.operation;
        let key = Shape::bucket_key(geometry.bucket(seed, &id));
        for _ in 0..TRIES {
            let (value, seen) = fetch(sd, &key)?;
            let bucket = Bucket::read(&value)?;
            let (head, current) = match bucket.find(&id, self.now) {
                Found::Tombstone { unresolved } => {
                    return Ok(self.without_write(sd, Reply::Expired { unresolved }, None));
                }
                Found::Entry(head, octets) if self.now < head.gone_at => {
                    let record = decode(octets).map_err(|_| Fault::Damaged)?;
                    (Some(head), Some(record))
                }
                Found::Entry(..) | Found::Nothing => (None, None),
            };
            let (change, reply) = contract::apply(current.as_ref(), &self.op.action, self.now);
            let old = head.zip(current.as_ref());
            let (draft, reply, answer) = match change {
                Change::Keep => return Ok(self.without_write(sd, reply, old)),
                Change::Delete => {
                    let mut draft = bucket.draft(self.now);
                    draft.remove(&id);
                    (draft, reply, None)
                }
                Change::Put(record) => {
                    let next = self.with_answer(sd, reply, record, old)?;
                    let counted =
                        head.map_or(self.counted || self.quota().is_some(), |h| h.counted);
                    let entry = Head::of(id, &next.record, next.answer, counted);
                    let mut draft = bucket.draft(self.now);
                    draft.put(entry, encode(&next.record));
                    if draft.charged(geometry.tombstones_cap) > self.limit(old.is_none()) {
                        let reply = no_room(old);
                        return Ok(self.without_write(sd, reply, old));
                    }
                    if old.is_none() && !self.count(sd)? {
                        return Ok(self.without_write(sd, Reply::Full(Full::Tenant), old));
                    }
                    self.remember(&next.record, &entry);
                    (draft, next.reply, next.answer)
                }
            };
            if put(sd, &key, &draft.write(), seen)? {
                self.settle(sd, old, answer, &draft.uncounted);
                return Ok(reply);
            }
        }
        // Nothing was written, but nothing is undone either: the caller repeats the step, and then
        // finds its answer there. Otherwise time and the recount put it right.
        Err(contended().into())
    }

    /// Octets that may be charged to the bucket. New claims stop one operation short of the cap, so
    /// that one whose record was lost can be written again (rule 6).
    fn limit(&self, fresh: bool) -> usize {
        let cap = self.shape.geometry.records_cap as usize;
        let claims = matches!(self.op.action, Action::Claim(_) | Action::TakeOver { .. });
        if fresh && claims {
            cap.saturating_sub(OPEN)
        } else {
            cap
        }
    }

    fn quota(&self) -> Option<u64> {
        match &self.op.action {
            Action::Claim(claim) | Action::TakeOver { claim, .. } => claim.tenant_quota,
            _ => None,
        }
    }

    /// Raises the tenant's counter, once for all tries; `false`: the quota is used up.
    fn count(&mut self, sd: &mut impl SharedData) -> Result<bool, HostError> {
        if let Some(quota) = self.quota()
            && let Action::Claim(claim) | Action::TakeOver { claim, .. } = &self.op.action
            && !self.counted
        {
            self.counted = quota::raise(sd, claim.tenant, quota)?;
            return Ok(self.counted);
        }
        Ok(true)
    }

    /// Writes the answer that the step brings, and finds out which one the record has afterwards.
    fn with_answer(
        &mut self,
        sd: &mut impl SharedData,
        reply: Reply,
        mut record: Box<Record>,
        old: Option<(Head, &Record)>,
    ) -> Result<Next, HostError> {
        if let (Some((write, blob)), Reply::Applied(_)) = (self.brought(), &reply)
            && outcome(&record).is_some_and(|o| o.replay == Replayable::Yes)
        {
            let address = Address {
                operation: self.op.operation,
                incarnation: record.version.incarnation,
                write,
            };
            let answer = self.store(sd, address, blob, &record)?;
            if answer.is_none()
                && let State::Completed { outcome, .. } | State::Accepted { outcome, .. } =
                    &mut record.state
            {
                outcome.replay = Replayable::StoreFull;
            }
            let reply = Reply::Applied(record.clone());
            return Ok(Next {
                reply,
                record,
                answer,
            });
        }
        // A note in the history leaves the outcome, and with it the answer, as it is.
        let same =
            |old: &(Head, &Record)| outcome(old.1).is_some() && outcome(old.1) == outcome(&record);
        let answer = old.filter(same).and_then(|(head, _)| head.answer);
        Ok(Next {
            reply,
            record,
            answer,
        })
    }

    /// The answer that the step brings, and the write that names it.
    fn brought(&self) -> Option<(u64, &'a [u8])> {
        let Action::Transition(Transition { write, to, .. }) = &self.op.action else {
            return None;
        };
        match to {
            Target::Accepted { blob, .. } | Target::Completed { blob, .. } => {
                blob.as_deref().map(|blob| (write.0, blob))
            }
            _ => None,
        }
    }

    /// Once for all tries, since the address is the same in each.
    fn store(
        &mut self,
        sd: &mut impl SharedData,
        address: Address,
        blob: &[u8],
        record: &Record,
    ) -> Result<Option<Answer>, HostError> {
        if let Some((at, answer)) = self.stored
            && at == address
        {
            return Ok(answer);
        }
        let until = ends(record).saturating_add(GRACE_MS);
        let bodies = &self.shape.bodies;
        let length = u32::try_from(blob.len()).unwrap_or(u32::MAX);
        let fits = bodies.put(sd, &address, blob, until, self.now)?;
        let answer = fits.then_some(Answer {
            write: address.write,
            length,
        });
        self.stored = Some((address, answer));
        Ok(answer)
    }

    /// Ends a step that changes nothing: what it had put aside is given back.
    fn without_write(
        &mut self,
        sd: &mut impl SharedData,
        reply: Reply,
        old: Option<(Head, &Record)>,
    ) -> Reply {
        if let Some((head, record)) = old {
            self.remember(record, &head);
        }
        self.give_back(sd, old.and_then(|(head, _)| head.answer), false);
        reply
    }

    /// After the write: frees what the bucket no longer names. A failure here costs room, for a
    /// while, and nothing else.
    fn settle(
        &mut self,
        sd: &mut impl SharedData,
        old: Option<(Head, &Record)>,
        answer: Option<Answer>,
        uncounted: &[crate::ids::TenantDigest],
    ) {
        if let Some((head, record)) = old
            && let Some(before) = head.answer
            && answer.is_none_or(|a| a.write != before.write)
        {
            let address = Address {
                operation: self.op.operation,
                incarnation: record.version.incarnation,
                write: before.write,
            };
            let _ = self
                .shape
                .bodies
                .remove(sd, &address, before.length as usize);
        }
        for tenant in uncounted {
            let _ = quota::lower(sd, *tenant);
        }
        self.give_back(sd, answer, old.is_none());
    }

    fn give_back(&mut self, sd: &mut impl SharedData, answer: Option<Answer>, created: bool) {
        if let Some((address, Some(stored))) = self.stored
            && answer.is_none_or(|a| a.write != stored.write)
        {
            let _ = self
                .shape
                .bodies
                .remove(sd, &address, stored.length as usize);
        }
        if self.counted
            && !created
            && let Action::Claim(claim) | Action::TakeOver { claim, .. } = &self.op.action
        {
            let _ = quota::lower(sd, claim.tenant);
        }
    }

    fn remember(&mut self, record: &Record, head: &Head) {
        self.memo = head.answer.map(|answer| Memo {
            address: Address {
                operation: self.op.operation,
                incarnation: record.version.incarnation,
                write: answer.write,
            },
            length: answer.length,
            until: ends(record),
        });
    }
}

/// An open operation was charged its largest record when it was claimed, so only two things find no
/// room: a new one, and the evidence of a late answer, which is then in the caller's hands alone.
fn no_room(old: Option<(Head, &Record)>) -> Reply {
    match old {
        Some((head, record)) if !head.is_open() => Reply::Stale(Box::new(record.clone())),
        _ => Reply::Full(Full::Store),
    }
}

fn outcome(record: &Record) -> Option<&Outcome> {
    match &record.state {
        State::Completed { outcome, .. } | State::Accepted { outcome, .. } => Some(outcome),
        _ => None,
    }
}
