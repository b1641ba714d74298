//! Group commit: how one worker talks to a remote store.
//!
//! While a call is under way, operations collect; when it is answered, one call carries them all. At
//! low load an operation leaves at once. The queue is sans-IO like the codecs: [`Queue::push`] takes an
//! operation in, [`Queue::next`] gives the next call out, [`Queue::on_answer`] turns its answer into one
//! [`Event::Reply`] for each operation, exactly one, whatever happens.
//!
//! | rule | here |
//! |---|---|
//! | operations of one id keep their order | one that is under way, or waits to be repeated, keeps later ones of its id back |
//! | a call that is not understood is ambiguous (design.md rule 5) | its operations are repeated, in halves, until they are answered or their patience ends |
//! | a claim that was given up can't come true later | `not_after` is written when a call leaves, from the store's clock and the patience that is left |
//! | what never left need not be taken back | [`Reply::Unsent`] is told from [`Reply::Failed`] |
//! | a dead store is not hammered | [`breaker`] |
//! | in a cluster, a dead master takes only its own shards with it | [`lanes`] |
//! | a store that forgets is noticed (design.md §6) | [`memory`]; nothing is claimed for a hold, and what this worker knows is asserted again |
//!
//! Times are milliseconds of a clock of the caller's that never goes back by much; the store's own
//! clock is known from its answers ([`Queue::store_now`]).

mod answers;
mod breaker;
mod lanes;
mod leaving;
mod memory;
#[cfg(all(test, not(target_arch = "wasm32")))]
mod properties;
mod recent;
#[cfg(test)]
mod tests;

pub use memory::Memory;

use super::redis::{Redis, Script};
use super::remote::{Batch, HttpRequest, Limits, Nonce, SHARDS, Swept, Weight, shard_of};
use super::{Action, Op, Reply, Target};
use crate::ids::{OperationId, OwnerToken};
use crate::record::Replayable;
use lanes::Lanes;
use recent::Recent;
use std::collections::VecDeque;

/// How often an operation travels alone in vain before it is given up.
const TRIES_ALONE: u8 = 2;

/// By how much the store's clock may be ahead of what is known of it, milliseconds.
const CLOCK_SLACK_MS: u64 = 250;

/// A shard of a cluster may have so small a part of what may wait: one master of three has up to six.
const SHARE_OF_WAITING: usize = 8;

/// How a worker may use its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A call must stay within one shard (a cluster).
    pub per_shard: bool,
    /// How long the host waits for an answer, milliseconds.
    pub timeout_ms: u64,
    /// Calls under way at once; in a cluster, to each shard.
    pub calls: usize,
    /// Bounds of one call.
    pub limits: Limits,
    /// Operations that may wait.
    pub waiting: usize,
    /// How long nothing is claimed after the store was found to have forgotten, milliseconds.
    pub hold_ms: u64,
}

/// A call to be sent.
#[derive(Debug)]
pub struct Outgoing {
    /// Its name for [`Queue::on_answer`] and [`Queue::on_refused`].
    pub call: u32,
    /// What to send.
    pub request: HttpRequest,
    /// How long to wait, milliseconds.
    pub timeout_ms: u64,
}

/// What the queue has to tell.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// An operation has its reply. It comes back with it, for whoever must do it again.
    Reply {
        /// Who asked.
        waiter: u64,
        /// What was asked.
        op: Op,
        /// The answer.
        reply: Reply,
    },
    /// A claim that is not used (granted by a store that has forgotten, or sent twice and not granted)
    /// must be taken back, before anything later of its operation.
    TakeBack(Op),
    /// An acknowledged write that the store may have lost: to be made again.
    Assert(Op),
    /// The store has lost writes of this shard. What runs should assert its claim again.
    Forgot {
        /// Which shard.
        shard: u8,
        /// How that was seen, for the log.
        how: &'static str,
    },
    /// The server of this shard is another one than before, and may lack the last writes: it claims
    /// nothing for a while. What runs should assert its claim again.
    Doubted {
        /// Which shard.
        shard: u8,
        /// None was in doubt before.
        first: bool,
    },
    /// A server does not say which one it is, so that nothing tells when another takes its place; once.
    Anonymous,
    /// A sweep was answered.
    Swept(Swept),
    /// Whether the store answers has changed: it does, or why it does not.
    Ready(Result<(), String>),
}

/// An operation that waits.
#[derive(Debug)]
struct Item {
    op: Op,
    ticket: Ticket,
}

/// What is known of an operation beside what it is.
#[derive(Debug)]
struct Ticket {
    waiters: Vec<u64>,
    /// When it is given up.
    deadline: u64,
    /// How often it has left without an understood answer.
    tries: u8,
    /// The claim in whose place a look travels, because the store has forgotten.
    claim: Option<Op>,
}

/// Operations that must travel together, and before others of their ids.
#[derive(Debug)]
struct Group {
    items: Vec<Item>,
    script: Script,
}

#[derive(Debug)]
enum Load {
    Batch(Batch, Vec<Ticket>),
    Sweep(Nonce, u8),
}

#[derive(Debug)]
struct UnderWay {
    call: u32,
    /// Where it goes; in a call across shards, the first of them.
    shard: u8,
    load: Load,
    script: Script,
    /// What was known of the store when the call left: an answer may be overtaken by another.
    known: Memory,
}

/// One worker's way to one store.
#[derive(Debug)]
pub struct Queue {
    engine: Redis,
    settings: Settings,
    waiting: VecDeque<Item>,
    again: VecDeque<Group>,
    under_way: Vec<UnderWay>,
    calls: u32,
    sweeps: VecDeque<(u8, u32, Script)>,
    /// Store clock minus the caller's, from the latest answer.
    offset: Option<i64>,
    lanes: Lanes,
    memory: Memory,
    recovering_until: u64,
    /// Until when the store is known to claim nothing in some shard.
    doubted_until: u64,
    /// A server was met that does not say which one it is.
    anonymous: bool,
    recent: Recent,
}

impl Queue {
    /// A queue that has not spoken to its store yet.
    #[must_use]
    pub fn new(engine: Redis, settings: Settings) -> Self {
        Self {
            engine,
            waiting: VecDeque::new(),
            again: VecDeque::new(),
            under_way: Vec::new(),
            calls: 0,
            sweeps: VecDeque::new(),
            offset: None,
            lanes: Lanes::new(settings.per_shard, settings.limits.operations),
            memory: Memory::default(),
            recovering_until: 0,
            doubted_until: 0,
            anonymous: false,
            recent: Recent::default(),
            settings,
        }
    }

    /// The store's clock, once it has spoken.
    #[must_use]
    pub fn store_now(&self, now: u64) -> Option<u64> {
        Some(now.saturating_add_signed(self.offset?))
    }

    /// Whether nothing waits and nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.again.is_empty() && self.under_way.is_empty()
    }

    /// Calls that failed in a row; in a cluster, to the shard that is worst off.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.lanes.failures()
    }

    /// How long nothing is claimed yet because the store has forgotten, milliseconds; 0: it has not.
    #[must_use]
    pub const fn recovering_ms(&self, now: u64) -> u64 {
        self.recovering_until.saturating_sub(now)
    }

    /// Whether nothing new is claimed in some shard at least.
    #[must_use]
    pub const fn is_holding(&self, now: u64) -> bool {
        self.recovering_until > now || self.doubted_until > now
    }

    /// What is known of the store, for workers that start later.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Takes over what another worker knows, where this one knows nothing yet. `true`: the other has
    /// heard of a loss, or of a doubt, that this one has to look for.
    pub fn learn(&mut self, memory: &Memory, recovering_until: u64) -> bool {
        let news = self.memory.learn(memory) || recovering_until > self.recovering_until;
        self.recovering_until = self.recovering_until.max(recovering_until);
        news
    }

    /// Until when nothing is claimed, by the caller's clock.
    #[must_use]
    pub const fn recovering_until(&self) -> u64 {
        self.recovering_until
    }

    /// How long an operation that somebody waits for may take, milliseconds.
    #[must_use]
    pub const fn patience_ms(&self) -> u64 {
        self.settings.timeout_ms.saturating_mul(2)
    }

    /// Takes an operation in for somebody who waits.
    pub fn push(&mut self, op: Op, waiter: u64, now: u64, out: &mut Vec<Event>) {
        let op = self.fitting(op);
        let deadline = now.saturating_add(self.patience_ms());
        let left = self.recovering_ms(now);
        if left > 0 && matches!(op.action, Action::TakeOver { .. }) {
            // What is known of it may be older than its end.
            return answer(op, vec![waiter], Reply::Recovering(left), out);
        }
        if let Some(why) = self.lanes.refuses(shard_of(&op.operation), now, deadline) {
            return answer(op, vec![waiter], Reply::Unsent(why), out);
        }
        if self.waiting.len() >= self.settings.waiting {
            let why = format!("{} operations wait already", self.waiting.len());
            return answer(op, vec![waiter], Reply::Unsent(why), out);
        }
        if self.is_crowded(&op) {
            let why = "too many operations of its shard wait already".to_owned();
            return answer(op, vec![waiter], Reply::Unsent(why), out);
        }
        if matches!(op.action, Action::Read | Action::Body { .. }) {
            // One look serves everybody who asks for the same before it leaves; unless something that
            // changes it waits behind.
            let same = |item: &&mut Item| item.op.operation == op.operation;
            if let Some(item) = self.waiting.iter_mut().rev().find(same)
                && item.op == op
            {
                return item.ticket.waiters.push(waiter);
            }
        }
        self.enqueue(op, vec![waiter], deadline);
    }

    /// In a cluster, what waits for a dead shard may not take the others' room.
    fn is_crowded(&self, op: &Op) -> bool {
        let share = self.settings.waiting.div_ceil(SHARE_OF_WAITING);
        if !self.settings.per_shard || self.waiting.len() < share {
            return false;
        }
        let shard = shard_of(&op.operation);
        let same = |item: &&Item| shard_of(&item.op.operation) == shard;
        self.waiting.iter().filter(same).count() >= share
    }

    /// Takes an operation in that nobody's patience limits: from the backlog.
    pub fn push_patient(&mut self, op: Op, waiter: u64) {
        let op = self.fitting(op);
        self.enqueue(op, vec![waiter], u64::MAX);
    }

    fn enqueue(&mut self, op: Op, waiters: Vec<u64>, deadline: u64) {
        let ticket = Ticket {
            waiters,
            deadline,
            tries: 0,
            claim: None,
        };
        self.waiting.push_back(Item { op, ticket });
    }

    /// An answer that fits no call is left out, and remembered to have been (rule 7).
    fn fitting(&self, mut op: Op) -> Op {
        if Weight::new(self.settings.limits).carries(&op) {
            return op;
        }
        if let Action::Transition(transition) = &mut op.action
            && let Target::Completed { outcome, blob } | Target::Accepted { outcome, blob, .. } =
                &mut transition.to
        {
            *blob = None;
            outcome.replay = Replayable::TooLarge;
        }
        op
    }

    /// Takes a claim out that has not left yet, and says whose it was: there is nothing to cancel.
    pub fn withdraw(&mut self, operation: &OperationId, owner: OwnerToken) -> Option<u64> {
        let claims = |item: &Item| {
            let (Action::Claim(claim) | Action::TakeOver { claim, .. }) = &item.op.action else {
                return false;
            };
            item.op.operation == *operation && claim.owner == owner
        };
        let at = self.waiting.iter().position(claims)?;
        let item = self.waiting.remove(at)?;
        item.ticket.waiters.first().copied()
    }

    /// Asks for a sweep of one shard, at most so many operations of it, and no more than any call
    /// carries: 0 only asks how the store is. `false`: another one has not left yet.
    pub fn sweep(&mut self, shard: u8, limit: u32) -> bool {
        let most = u32::try_from(self.settings.limits.operations).unwrap_or(u32::MAX);
        let limit = limit.min(most);
        let free = self.sweeps.is_empty();
        if free {
            self.sweeps
                .push_back((shard % SHARDS, limit, Script::Known));
        }
        free
    }

    /// Gives up what has waited too long.
    pub fn on_tick(&mut self, now: u64, out: &mut Vec<Event>) {
        let over = |item: &Item| now >= item.ticket.deadline;
        let groups = self.again.iter_mut().map(|group| &mut group.items);
        let mut given_up: Vec<Item> = Vec::new();
        for items in groups {
            given_up.extend(items.extract_if(.., |item| over(item)));
        }
        if self.waiting.iter().any(over) {
            let (late, kept) = self.waiting.drain(..).partition(over);
            self.waiting = kept;
            given_up.extend::<VecDeque<Item>>(late);
        }
        for Item { op, ticket } in given_up {
            let why = self.lanes.why(shard_of(&op.operation));
            let why = why.unwrap_or("the store is busy").to_owned();
            let reply = if ticket.tries == 0 {
                Reply::Unsent(why)
            } else {
                Reply::Failed(why)
            };
            answer(op, ticket.waiters, reply, out);
        }
        self.again.retain(|group| !group.items.is_empty());
        self.recent.forget(now);
    }
}

impl Ticket {
    /// The operation again, as it was pushed.
    fn item(mut self, op: Op) -> Item {
        let op = self.claim.take().unwrap_or(op);
        Item { op, ticket: self }
    }
}

fn items(batch: Batch, tickets: Vec<Ticket>) -> Vec<Item> {
    let ops = batch.into_ops().into_iter();
    ops.zip(tickets).map(|(op, t)| t.item(op)).collect()
}

/// One reply for everybody who asked.
fn answer(op: Op, waiters: Vec<u64>, reply: Reply, out: &mut Vec<Event>) {
    let mut waiters = waiters.into_iter();
    let last = waiters.next_back();
    for waiter in waiters {
        out.push(Event::Reply {
            waiter,
            op: op.clone(),
            reply: reply.clone(),
        });
    }
    if let Some(waiter) = last {
        out.push(Event::Reply { waiter, op, reply });
    }
}
