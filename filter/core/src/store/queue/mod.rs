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

mod breaker;
mod lanes;
mod memory;
#[cfg(all(test, not(target_arch = "wasm32")))]
mod properties;
mod recent;
#[cfg(test)]
mod tests;

pub use memory::Memory;

use super::redis::{Redis, Script};
use super::remote::{
    Added, Answered, Batch, HttpAnswer, HttpRequest, Limits, Nonce, SHARDS, ShardState, Swept,
    Understood, Weight, shard_of,
};
use super::{Action, Op, Reply, Target};
use crate::ids::{OperationId, OwnerToken};
use crate::record::Replayable;
use lanes::{Lanes, Rooms};
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

    /// The next call, where there is one to be made. `nonce` names it, and is used once.
    pub fn next(&mut self, nonce: Nonce, now: u64) -> Option<Outgoing> {
        let under_way = self.under_way.iter().map(|call| call.shard);
        let rooms = self.lanes.rooms(now, self.settings.calls, under_way);
        if rooms.is_none() {
            return None;
        }
        let Some(store_now) = self.store_now(now) else {
            return self.probe(nonce, &rooms);
        };
        if let Some((items, script)) = self.take(&rooms) {
            return Some(self.depart(items, script, nonce, now, store_now));
        }
        let (shard, limit, script) = self.sweeps.pop_front()?;
        if rooms.of(shard) == 0 {
            // The next one is another shard's.
            return None;
        }
        Some(self.depart_sweep(nonce, shard, limit, script))
    }

    /// Before anything else its clock must be known.
    fn probe(&mut self, nonce: Nonce, rooms: &Rooms) -> Option<Outgoing> {
        if !self.under_way.is_empty() {
            return None;
        }
        let asked = self.sweeps.pop_front();
        let again = self.again.iter().flat_map(|group| &group.items);
        let waiting = self.waiting.iter().chain(again);
        let mut shards = waiting
            .map(|item| shard_of(&item.op.operation))
            .chain(asked.map(|(shard, ..)| shard));
        let script = asked.map_or(Script::Known, |(.., script)| script);
        let shard = shards.find(|shard| rooms.of(*shard) > 0)?;
        Some(self.depart_sweep(nonce, shard, 0, script))
    }

    /// The operations of the next call.
    fn take(&mut self, rooms: &Rooms) -> Option<(Vec<Item>, Script)> {
        let mut blocked: Vec<OperationId> = Vec::new();
        for call in &self.under_way {
            if let Load::Batch(batch, _) = &call.load {
                blocked.extend(batch.ops().iter().map(|op| op.operation));
            }
        }
        // What has to be repeated comes first, and as it is.
        let mut free = None;
        for (at, group) in self.again.iter().enumerate() {
            let operations = || group.items.iter().map(|item| item.op.operation);
            let shut = |operation| rooms.of(shard_of(&operation)) == 0;
            if !operations().any(|operation| shut(operation) || blocked.contains(&operation)) {
                free = Some(at);
                break;
            }
            blocked.extend(operations());
        }
        if let Some(group) = free.and_then(|at| self.again.remove(at)) {
            return Some((group.items, group.script));
        }
        self.collect(rooms, blocked)
    }

    /// Collects operations that have not left yet, in their order, into one batch.
    fn collect(&mut self, rooms: &Rooms, blocked: Vec<OperationId>) -> Option<(Vec<Item>, Script)> {
        let limits = self.settings.limits;
        let (mut weight, mut shard) = (None, None);
        let (mut taken, mut at) = (Vec::new(), 0);
        while let Some(Item { op, .. }) = self.waiting.get(at) {
            let own = shard_of(&op.operation);
            let elsewhere = self.settings.per_shard && shard.is_some_and(|s| s != own);
            let most = rooms.of(own);
            if elsewhere || most == 0 || blocked.contains(&op.operation) {
                at += 1;
                continue;
            }
            let weight = weight.get_or_insert_with(|| {
                Weight::new(Limits {
                    operations: limits.operations.min(most),
                    ..limits
                })
            });
            if !weight.add(op) {
                break;
            }
            shard = Some(own);
            taken.extend(self.waiting.remove(at));
        }
        (!taken.is_empty()).then_some((taken, Script::Known))
    }

    fn depart(
        &mut self,
        items: Vec<Item>,
        script: Script,
        nonce: Nonce,
        now: u64,
        store_now: u64,
    ) -> Outgoing {
        let recovering = self.recovering_ms(now) > 0;
        // Later the host has given the call up, and whoever asked has been told.
        let not_after = store_now
            .saturating_add(self.settings.timeout_ms)
            .saturating_add(CLOCK_SLACK_MS);
        let mut batch = Batch::new(nonce, self.settings.limits);
        let (mut tickets, mut rest) = (Vec::with_capacity(items.len()), Vec::new());
        for Item { mut op, mut ticket } in items {
            if let Action::Claim(claim) | Action::TakeOver { claim, .. } = &mut op.action {
                claim.not_after = not_after;
            }
            if recovering && matches!(op.action, Action::Claim(_)) {
                let look = Op {
                    operation: op.operation,
                    action: Action::Read,
                };
                ticket.claim = Some(std::mem::replace(&mut op, look));
            }
            match batch.push(op) {
                Added::Yes => tickets.push(ticket),
                Added::Later(op) | Added::TooLarge(op) => rest.push(ticket.item(op)),
            }
        }
        if !rest.is_empty() {
            let items = rest;
            self.again.push_front(Group { items, script });
        }
        let request = self.engine.request(&batch, script);
        let shard = batch.ops().first().map_or(0, |op| shard_of(&op.operation));
        self.leave(shard, Load::Batch(batch, tickets), script, request)
    }

    fn depart_sweep(&mut self, nonce: Nonce, shard: u8, limit: u32, script: Script) -> Outgoing {
        let request = self.engine.sweep_request(&nonce, shard, limit, script);
        self.leave(shard, Load::Sweep(nonce, shard), script, request)
    }

    fn leave(&mut self, shard: u8, load: Load, script: Script, request: HttpRequest) -> Outgoing {
        self.calls = self.calls.wrapping_add(1);
        let call = self.calls;
        self.under_way.push(UnderWay {
            call,
            shard,
            load,
            script,
            known: self.memory.clone(),
        });
        Outgoing {
            call,
            request,
            timeout_ms: self.settings.timeout_ms,
        }
    }

    /// The host did not take the call: nothing left.
    pub fn on_refused(&mut self, call: u32, why: &str, now: u64, out: &mut Vec<Event>) {
        let Some(under_way) = self.end(call) else {
            return;
        };
        if let Load::Batch(batch, tickets) = under_way.load {
            let items = items(batch, tickets);
            self.again.push_front(Group {
                items,
                script: under_way.script,
            });
        }
        self.failed(under_way.shard, why, now, out);
    }

    fn end(&mut self, call: u32) -> Option<UnderWay> {
        let at = self.under_way.iter().position(|u| u.call == call)?;
        Some(self.under_way.swap_remove(at))
    }

    /// A call was answered, or not (`None`).
    pub fn on_answer(
        &mut self,
        call: u32,
        answer: Option<HttpAnswer<'_>>,
        now: u64,
        out: &mut Vec<Event>,
    ) {
        let Some(under_way) = self.end(call) else {
            return;
        };
        let lost = || Understood::Ambiguous("no answer in time".to_owned());
        match &under_way.load {
            Load::Batch(batch, _) => {
                let understood = answer.map_or_else(lost, |a| self.engine.understand(batch, a));
                self.on_batch(under_way, understood, now, out);
            }
            Load::Sweep(nonce, shard) => {
                let swept = answer.map_or_else(
                    || Err(lost()),
                    |a| self.engine.understand_sweep(nonce, *shard, a),
                );
                self.on_sweep(*shard, &under_way, swept, now, out);
            }
        }
    }

    fn on_batch(
        &mut self,
        under_way: UnderWay,
        understood: Understood,
        now: u64,
        out: &mut Vec<Event>,
    ) {
        let Load::Batch(batch, tickets) = under_way.load else {
            return;
        };
        let (items, shard) = (items(batch, tickets), under_way.shard);
        match understood {
            Understood::Answered(answered) => {
                self.answered(answered, shard, items, &under_way.known, now, out);
            }
            Understood::Unprepared if under_way.script == Script::Known => {
                // It has done nothing: the same again, with the script.
                self.again.push_front(Group {
                    items,
                    script: Script::Whole,
                });
            }
            other => {
                let why = why(other);
                self.repeat(items, &why, now, out);
                self.failed(shard, &why, now, out);
            }
        }
    }

    fn on_sweep(
        &mut self,
        shard: u8,
        under_way: &UnderWay,
        swept: Result<Swept, Understood>,
        now: u64,
        out: &mut Vec<Event>,
    ) {
        match swept {
            Ok(swept) => {
                let lost = self.heard(swept.now, shard, &[swept.state], &under_way.known, now, out);
                out.push(Event::Swept(swept));
                self.assert(&lost, now, out);
            }
            Err(Understood::Unprepared) if under_way.script == Script::Known => {
                self.sweeps.push_front((shard, 0, Script::Whole));
            }
            Err(other) => self.failed(shard, &why(other), now, out),
        }
    }

    fn answered(
        &mut self,
        answered: Answered,
        shard: u8,
        items: Vec<Item>,
        known: &Memory,
        now: u64,
        out: &mut Vec<Event>,
    ) {
        let lost = self.heard(answered.now, shard, &answered.shards, known, now, out);
        let left = self.recovering_ms(now);
        for (Item { op, mut ticket }, reply) in items.into_iter().zip(answered.replies) {
            let reply = match (reply, &op.action) {
                (Reply::Absent, Action::Claim(_)) => Reply::Recovering(left.max(1)),
                // By a store that has forgotten: there may be a record, among those that it lost.
                (Reply::Claimed(_), Action::Claim(claim) | Action::TakeOver { claim, .. })
                    if left > 0 =>
                {
                    if ticket.tries == 0 {
                        out.push(Event::TakeBack(Op {
                            operation: op.operation,
                            action: Action::Cancel { owner: claim.owner },
                        }));
                    }
                    Reply::Recovering(left)
                }
                // This step alone failed, as none should: again, by itself.
                (Reply::Failed(_), _) if ticket.tries < TRIES_ALONE && now < ticket.deadline => {
                    ticket.tries = ticket.tries.saturating_add(1);
                    self.again.push_back(Group {
                        items: vec![ticket.item(op)],
                        script: Script::Known,
                    });
                    continue;
                }
                (reply, _) => reply,
            };
            if let Action::Claim(claim) | Action::TakeOver { claim, .. } = &op.action
                && ticket.tries > 0
                && !matches!(reply, Reply::Claimed(_) | Reply::Failed(_) | Reply::TooLate)
            {
                // It was sent before, and may still arrive; its attempt does not run.
                let action = Action::Cancel { owner: claim.owner };
                let operation = op.operation;
                out.push(Event::TakeBack(Op { operation, action }));
            }
            if let Reply::Applied(_) | Reply::Already(_) | Reply::Cancelled = reply {
                self.recent.note(&op, now);
            }
            answer(op, ticket.waiters, reply, out);
        }
        self.assert(&lost, now, out);
    }

    /// What was written to these shards a moment ago is to be written again.
    fn assert(&mut self, lost: &[u8], now: u64, out: &mut Vec<Event>) {
        for shard in lost {
            let writes = self.recent.of_shard(*shard, now);
            out.extend(writes.into_iter().map(Event::Assert));
        }
    }

    /// The store has spoken: says which shards have lost writes.
    fn heard(
        &mut self,
        store_now: u64,
        shard: u8,
        shards: &[ShardState],
        known: &Memory,
        now: u64,
        out: &mut Vec<Event>,
    ) -> Vec<u8> {
        let first = self.offset.is_none();
        self.offset = Some(store_now.cast_signed().wrapping_sub(now.cast_signed()));
        if self.lanes.on_success(shard) || (first && self.lanes.all_answer()) {
            out.push(Event::Ready(Ok(())));
        }
        let mut lost = Vec::new();
        for state in shards {
            let how = self.memory.note(state, known);
            if self.memory.doubts(state) {
                let first = self.doubted_until <= now;
                let left = state.doubt_until.saturating_sub(store_now);
                self.doubted_until = self.doubted_until.max(now.saturating_add(left));
                let shard = state.shard;
                out.push(Event::Doubted { shard, first });
                if how.is_none() {
                    lost.push(shard);
                }
            }
            let Some(how) = how else {
                continue;
            };
            self.recovering_until = now.saturating_add(self.settings.hold_ms);
            out.push(Event::Forgot {
                shard: state.shard,
                how,
            });
            lost.push(state.shard);
        }
        lost
    }

    fn failed(&mut self, shard: u8, why: &str, now: u64, out: &mut Vec<Event>) {
        if let Some(why) = self.lanes.on_failure(shard, why, now) {
            out.push(Event::Ready(Err(why)));
        }
    }

    /// A call was not understood: each of its operations may have been done or not.
    fn repeat(&mut self, mut items: Vec<Item>, why: &str, now: u64, out: &mut Vec<Event>) {
        let alone = items.len() == 1;
        for item in &mut items {
            item.ticket.tries = item.ticket.tries.saturating_add(1);
        }
        let (over, mut left): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| {
            // Somebody else's poison must not count against an operation; time does.
            now >= item.ticket.deadline || (alone && item.ticket.tries >= TRIES_ALONE)
        });
        for Item { op, ticket } in over {
            answer(op, ticket.waiters, Reply::Failed(why.to_owned()), out);
        }
        if left.is_empty() {
            return;
        }
        let second = left.split_off(left.len().div_ceil(2));
        for items in [second, left] {
            if !items.is_empty() {
                self.again.push_front(Group {
                    items,
                    script: Script::Known,
                });
            }
        }
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

fn why(understood: Understood) -> String {
    match understood {
        Understood::Ambiguous(why) => why,
        _ => "the store lacks the engine's script".to_owned(),
    }
}
