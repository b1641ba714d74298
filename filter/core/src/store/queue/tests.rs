//! The queue against a store that keeps the contract, on a network that a test scripts.

use super::*;
use crate::record::Record;
use crate::store::contract::{self, Change};
use crate::store::redis::{Layout, Transport};
use crate::store::remote::{Answered, ShardState, Understood};
use crate::store::table::testing::{claim, complete, id, op, token};
use std::collections::{BTreeMap, HashMap};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// A store with the contract, epochs, and a memory that can be set back.
#[derive(Clone)]
pub(super) struct Store {
    pub(super) records: HashMap<OperationId, Record>,
    marks: Vec<OwnerToken>,
    shards: BTreeMap<u8, (u8, u64)>,
    pub(super) ahead: u64,
    doubt_until: Option<u64>,
    /// The shards' states can be neither read nor written.
    pub(super) unreadable: bool,
}

impl Store {
    pub(super) fn new() -> Self {
        Self {
            records: HashMap::new(),
            marks: Vec::new(),
            shards: BTreeMap::new(),
            ahead: 5_000,
            doubt_until: Some(0),
            unreadable: false,
        }
    }

    /// Everything is gone.
    pub(super) fn forget(&mut self, epoch: u8) {
        self.records.clear();
        self.marks.clear();
        self.shards = (0..SHARDS).map(|s| (s, (epoch, 0))).collect();
    }

    fn state(&mut self, shard: u8) -> ShardState {
        let (epoch, seq) = *self.shards.entry(shard).or_insert((1, 0));
        ShardState {
            shard,
            epoch: (!self.unreadable).then_some([epoch; 16]),
            seq,
            doubt_until: self.doubt_until,
        }
    }

    fn step(&mut self, op: &Op, now: u64) -> Reply {
        let marked = |owner| self.marks.contains(owner);
        match &op.action {
            Action::Claim(c) | Action::TakeOver { claim: c, .. } if marked(&c.owner) => {
                return Reply::TooLate;
            }
            Action::Cancel { owner } => self.marks.push(*owner),
            _ => {}
        }
        let current = self.records.get(&op.operation);
        let (change, reply) = contract::apply(current, &op.action, now);
        match change {
            Change::Keep => {}
            Change::Delete => drop(self.records.remove(&op.operation)),
            Change::Put(record) => drop(self.records.insert(op.operation, *record)),
        }
        reply
    }

    pub(super) fn call(&mut self, ops: &[Op], now: u64) -> Answered {
        let now = now + self.ahead;
        let replies: Vec<_> = ops.iter().map(|op| self.step(op, now)).collect();
        let mut shards = Vec::new();
        for op in ops {
            let shard = shard_of(&op.operation);
            self.shards.entry(shard).or_insert((1, 0)).1 += 1;
            if !shards.contains(&shard) {
                shards.push(shard);
            }
        }
        Answered {
            now,
            shards: shards.into_iter().map(|s| self.state(s)).collect(),
            replies,
        }
    }
}

/// The number of the so many-th operation of a shard.
fn nth_of(shard: u8, nth: usize) -> u32 {
    let mut numbers = (0..).filter(|n| shard_of(&id(*n)) == shard);
    numbers.nth(nth).expect("hashes spread")
}

/// A queue, its store and what came out.
pub(super) struct Line {
    pub(super) queue: Queue,
    pub(super) store: Store,
    pub(super) now: u64,
    pub(super) out: Vec<Event>,
    nonces: u8,
}

pub(super) fn settings() -> Settings {
    Settings {
        per_shard: false,
        timeout_ms: 500,
        calls: 2,
        limits: Limits {
            operations: 8,
            ..Limits::default()
        },
        waiting: 16,
        hold_ms: 30_000,
    }
}

impl Line {
    pub(super) fn new(settings: Settings) -> Self {
        let transport = Transport::Webdis {
            authorization: None,
        };
        Self {
            queue: Queue::new(Redis::new(transport, Layout::default()), settings),
            store: Store::new(),
            now: 1_000_000,
            out: Vec::new(),
            nonces: 0,
        }
    }

    /// One that has spoken to its store.
    fn ready() -> Self {
        let mut line = Self::new(settings());
        line.sweep(0);
        line.out.clear();
        line
    }

    pub(super) fn send(&mut self) -> Option<u32> {
        self.nonces = self.nonces.wrapping_add(1);
        let nonce = Nonce([self.nonces; 16]);
        Some(self.queue.next(nonce, self.now)?.call)
    }

    /// What a call carries; none where it is a sweep.
    pub(super) fn carried(&self, call: u32) -> Vec<Op> {
        let mut calls = self.queue.under_way.iter();
        match calls.find(|u| u.call == call).map(|u| &u.load) {
            Some(Load::Batch(batch, _)) => batch.ops().to_vec(),
            _ => Vec::new(),
        }
    }

    /// The store does what the call asks for.
    pub(super) fn apply(&mut self, call: u32) -> Understood {
        let ops = self.carried(call);
        Understood::Answered(self.store.call(&ops, self.now))
    }

    /// Its answer, or what there is instead, arrives.
    pub(super) fn arrive(&mut self, call: u32, understood: Understood) {
        let under_way = self.queue.end(call).expect("the call is under way");
        let (now, out) = (self.now, &mut self.out);
        if let Load::Sweep(_, shard) = under_way.load {
            let swept = match understood {
                Understood::Answered(answered) => Ok(Swept {
                    now: answered.now,
                    state: self.store.state(shard),
                    noted: Vec::new(),
                    open: 0,
                    unknown: 0,
                    expired: 0,
                }),
                other => Err(other),
            };
            return self.queue.on_sweep(shard, &under_way, swept, now, out);
        }
        self.queue.on_batch(under_way, understood, now, out);
    }

    fn sweep(&mut self, shard: u8) {
        self.queue.sweep(shard, 0);
        let call = self.send().expect("a sweep leaves");
        self.complete(call);
    }

    fn complete(&mut self, call: u32) {
        let understood = self.apply(call);
        self.arrive(call, understood);
    }

    fn lose(&mut self, call: u32) {
        self.arrive(call, Understood::Ambiguous("cut".into()));
    }

    fn push(&mut self, op: Op, waiter: u64) {
        self.queue.push(op, waiter, self.now, &mut self.out);
    }

    /// Replies in the order in which they came, by waiter.
    fn replies(&mut self) -> Vec<(u64, &'static str)> {
        let events = std::mem::take(&mut self.out).into_iter();
        let reply = |event| match event {
            Event::Reply { waiter, reply, .. } => Some((waiter, reply.name())),
            _ => None,
        };
        events.filter_map(reply).collect()
    }

    fn claim(&mut self, n: u32, waiter: u64) {
        self.push(
            op(n, Action::Claim(claim(u64::from(n) * 100 + waiter))),
            waiter,
        );
    }

    fn tick(&mut self) {
        self.queue.on_tick(self.now, &mut self.out);
    }
}

#[test]
fn at_low_load_an_operation_leaves_at_once_and_under_load_many_share_a_call() {
    let mut line = Line::ready();
    line.claim(1, 1);
    let first = line.send().expect("it leaves at once");
    let second = {
        line.claim(2, 2);
        line.send().expect("two calls may be under way")
    };
    for n in 3..14 {
        line.claim(n, u64::from(n));
    }
    assert_eq!(line.send(), None, "the rest collects");
    line.complete(first);
    let third = line.send().expect("one call");
    assert_eq!(line.carried(third).len(), 8, "carries as many as it may");
    line.complete(second);
    let fourth = line.send().expect("another");
    assert_eq!(line.carried(fourth).len(), 3);
    line.complete(third);
    line.complete(fourth);
    let replies = line.replies();
    assert_eq!(replies.len(), 13);
    assert!(replies.iter().all(|(_, reply)| *reply == "claimed"));
    assert!(line.queue.is_idle());
}

#[test]
fn nothing_but_a_probe_leaves_before_the_stores_clock_is_known() {
    let mut line = Line::new(settings());
    assert_eq!(line.send(), None);
    line.claim(1, 1);
    let probe = line.send().expect("a probe");
    assert_eq!(line.carried(probe), []);
    assert_eq!(line.send(), None);
    line.complete(probe);
    assert!(line.out.contains(&Event::Ready(Ok(()))));
    let call = line.send().expect("the claim");
    let ops = line.carried(call);
    let Action::Claim(claim) = &ops[0].action else {
        panic!("a claim");
    };
    assert_eq!(claim.not_after, line.now + 5_000 + 500 + CLOCK_SLACK_MS);
}

#[test]
fn operations_of_one_id_keep_their_order() {
    let mut line = Line::ready();
    line.push(op(1, Action::Claim(claim(1))), 1);
    let first = line.send().expect("the claim");
    line.push(op(1, Action::Read), 2);
    line.claim(2, 3);
    let second = line.send().expect("another operation overtakes");
    assert_eq!(line.carried(second).len(), 1);
    assert_eq!(line.send(), None, "the look waits for the claim");
    line.lose(first);
    line.complete(second);
    let again = line.send().expect("the claim again");
    assert!(matches!(line.carried(again)[0].action, Action::Claim(_)));
    assert_eq!(line.send(), None);
    line.complete(again);
    let look = line.send().expect("now the look");
    line.complete(look);
    assert_eq!(
        line.replies(),
        [(3, "claimed"), (1, "claimed"), (2, "current")]
    );
}

#[test]
fn a_call_that_is_not_understood_is_repeated_in_halves() {
    let mut line = Line::ready();
    for n in 1..5 {
        line.claim(n, u64::from(n));
    }
    // Number 3 is poison: whatever carries it fails.
    let mut sizes = Vec::new();
    while let Some(call) = line.send() {
        let ops = line.carried(call);
        sizes.push(ops.len());
        if ops.iter().any(|op| op.operation == id(3)) {
            line.lose(call);
            line.now += 1;
            // The breaker must not hide what is shown here.
            line.queue.lanes = Lanes::new(false, 8);
        } else {
            line.complete(call);
        }
    }
    assert_eq!(sizes, [4, 2, 2, 1, 1]);
    let mut replies = line.replies();
    replies.sort_unstable();
    assert_eq!(
        replies,
        [
            (1, "claimed"),
            (2, "claimed"),
            (3, "failed"),
            (4, "claimed")
        ]
    );
}

#[test]
fn a_call_that_was_applied_and_not_answered_is_repeated_and_is_yours() {
    let mut line = Line::ready();
    line.claim(1, 1);
    let call = line.send().expect("the claim");
    let _lost = line.apply(call);
    line.lose(call);
    let again = line.send().expect("again");
    line.complete(again);
    assert_eq!(line.replies(), [(1, "claimed")]);
}

#[test]
fn patience_ends_and_what_never_left_is_told_from_what_did() {
    let mut line = Line::ready();
    line.claim(1, 1);
    let call = line.send().expect("the claim");
    line.push(op(1, Action::Read), 2);
    line.now += 500;
    line.lose(call);
    let again = line.send().expect("again");
    line.now += 500;
    line.lose(again);
    line.tick();
    assert_eq!(line.replies(), [(1, "failed"), (2, "unsent")]);
    assert!(line.queue.is_idle());
}

#[test]
fn a_full_queue_refuses() {
    let mut line = Line::new(settings());
    for n in 0..17 {
        line.claim(n, u64::from(n) + 1);
    }
    assert_eq!(line.replies(), [(17, "unsent")]);
}

#[test]
fn a_dead_store_is_left_alone_and_taken_up_again_little_by_little() {
    let mut line = Line::ready();
    let mut calls = 0;
    for round in 0..400_u64 {
        line.claim(u32::try_from(round).unwrap(), round + 1);
        while let Some(call) = line.send() {
            calls += 1;
            line.lose(call);
        }
        line.now += 10;
        line.tick();
    }
    assert!(calls < 30, "{calls} calls in 4 s");
    let replies = line.replies();
    assert_eq!(
        replies.len(),
        400 - line.queue.waiting.len() - line.queue.again.len()
    );
    let unsent = replies
        .iter()
        .filter(|(_, reply)| *reply == "unsent")
        .count();
    assert!(unsent > 300, "most never left: {unsent}");
    // It is back.
    line.now += 10_000;
    line.tick();
    line.out.clear();
    for n in 1_000..1_016 {
        line.claim(n, u64::from(n));
    }
    let mut sizes = Vec::new();
    while let Some(call) = line.send() {
        sizes.push(line.carried(call).len());
        line.complete(call);
    }
    assert_eq!(sizes, [1, 2, 4, 8, 1]);
    assert!(line.out.contains(&Event::Ready(Ok(()))));
    assert_eq!(line.queue.failures(), 0);
}

#[test]
fn one_look_serves_everybody_who_asked_before_it_left() {
    let mut line = Line::ready();
    for waiter in 1..4 {
        line.push(op(1, Action::Read), waiter);
    }
    let call = line.send().expect("one look");
    assert_eq!(line.carried(call).len(), 1);
    line.push(op(1, Action::Read), 4);
    line.complete(call);
    assert_eq!(
        line.replies(),
        [(1, "absent"), (2, "absent"), (3, "absent")]
    );
    let call = line.send().expect("what asked later looks for itself");
    line.complete(call);
    assert_eq!(line.replies(), [(4, "absent")]);
    // Nor does a look serve who asks behind a change.
    line.push(op(1, Action::Read), 5);
    line.claim(1, 6);
    line.push(op(1, Action::Read), 7);
    let call = line.send().expect("all three");
    assert_eq!(line.carried(call).len(), 3);
}

#[test]
fn a_claim_that_has_not_left_can_be_withdrawn() {
    let mut line = Line::ready();
    line.push(op(1, Action::Claim(claim(1))), 1);
    line.push(op(1, Action::Claim(claim(2))), 2);
    assert_eq!(line.queue.withdraw(&id(1), token(1)), Some(1));
    assert_eq!(line.queue.withdraw(&id(1), token(1)), None);
    let call = line.send().expect("the other one");
    assert_eq!(line.carried(call).len(), 1);
    assert_eq!(line.queue.withdraw(&id(1), token(2)), None, "it has left");
}

#[test]
fn a_store_without_the_script_gets_it_and_has_done_nothing() {
    let mut line = Line::ready();
    line.claim(1, 1);
    let call = line.send().expect("by its digest");
    line.arrive(call, Understood::Unprepared);
    line.queue.next(Nonce([9; 16]), line.now).expect("whole");
    assert_eq!(line.queue.under_way[0].script, Script::Whole);
    let call = line.queue.calls;
    line.complete(call);
    assert_eq!(line.replies(), [(1, "claimed")]);
    assert_eq!(line.queue.failures(), 0, "no failure of the store's");
}

#[test]
fn a_store_that_has_forgotten_grants_nothing_for_a_hold() {
    let mut line = Line::ready();
    line.push(op(1, Action::Claim(claim(1))), 1);
    let call = line.send().expect("the claim");
    line.complete(call);
    line.push(op(1, complete(1, line.now + 5_000, 7, 10)), 2);
    let call = line.send().expect("the answer");
    line.complete(call);
    assert_eq!(line.replies(), [(1, "claimed"), (2, "applied")]);

    line.store.forget(9);
    line.push(op(1, Action::Claim(claim(3))), 3);
    let call = line.send().expect("another attempt");
    line.complete(call);
    let forgot = Event::Forgot {
        shard: shard_of(&id(1)),
        how: "another epoch",
    };
    assert!(line.out.contains(&forgot));
    let (mut again, mut back) = (Vec::new(), 0);
    for event in &line.out {
        match event {
            Event::TakeBack(op) => {
                back += 1;
                again.push(op.clone());
            }
            Event::Assert(op) => again.push(op.clone()),
            _ => {}
        }
    }
    assert_eq!((back, again.len()), (1, 2), "the grant is not used");
    assert_eq!(again[0], op(1, Action::Cancel { owner: token(3) }));
    assert_eq!(line.replies(), [(3, "recovering")]);
    // What this worker knows is written again, and then it is there.
    for again in again {
        line.queue.push_patient(again, 9);
    }
    let call = line.send().expect("the answer, again");
    line.complete(call);
    assert_eq!(line.replies(), [(9, "cancelled"), (9, "applied")]);
    line.push(op(1, Action::Claim(claim(4))), 4);
    line.push(op(2, Action::Claim(claim(5))), 5);
    line.push(
        op(
            3,
            Action::TakeOver {
                claim: claim(6),
                expect: crate::record::Version {
                    incarnation: 1,
                    counter: 1,
                },
            },
        ),
        6,
    );
    let call = line.send().expect("looks");
    assert!(
        line.carried(call)
            .iter()
            .all(|op| op.action == Action::Read)
    );
    line.complete(call);
    let mut replies = line.replies();
    replies.sort_unstable();
    assert_eq!(
        replies,
        [(4, "current"), (5, "recovering"), (6, "recovering")]
    );
    line.now += 30_001;
    line.push(op(2, Action::Claim(claim(7))), 7);
    while let Some(call) = line.send() {
        line.complete(call);
    }
    assert_eq!(line.replies(), [(7, "claimed")]);
}

#[test]
fn answers_that_overtake_each_other_are_no_loss() {
    let mut line = Line::ready();
    line.claim(nth_of(3, 0), 1);
    let slow = line.send().expect("one");
    line.claim(nth_of(3, 1), 2);
    let fast = line.send().expect("another, of the same shard");
    let first = line.apply(slow);
    let second = line.apply(fast);
    line.arrive(fast, second);
    line.arrive(slow, first);
    assert_eq!(line.replies(), [(2, "claimed"), (1, "claimed")]);
    assert_eq!(line.queue.recovering_ms(line.now), 0);
}

#[test]
fn a_lost_tail_is_noticed_once() {
    let mut line = Line::ready();
    line.claim(nth_of(3, 0), 1);
    let call = line.send().expect("one");
    line.complete(call);
    let backup = line.store.clone();
    for nth in 1..4 {
        line.claim(nth_of(3, nth), 2);
        let call = line.send().expect("one more");
        line.complete(call);
    }
    line.out.clear();
    line.store = backup;
    // Two looks leave before anything is noticed.
    let look = |line: &mut Line, n, waiter| {
        line.push(op(n, Action::Read), waiter);
        line.send().expect("a look")
    };
    let (one, two) = (
        look(&mut line, nth_of(3, 0), 3),
        look(&mut line, nth_of(3, 1), 4),
    );
    line.complete(one);
    line.complete(two);
    let noticed = |event: &&Event| {
        matches!(
            event,
            Event::Forgot {
                how: "a lower seq",
                ..
            }
        )
    };
    assert_eq!(line.out.iter().filter(noticed).count(), 1);
    assert_eq!(line.queue.recovering_ms(line.now), 30_000);
}

#[test]
fn what_was_written_lately_is_written_again_to_another_server_once() {
    let mut line = Line::ready();
    line.push(op(1, Action::Claim(claim(1))), 1);
    let call = line.send().expect("the claim");
    line.complete(call);
    line.push(op(1, complete(1, line.now + 5_000, 7, 10)), 2);
    let call = line.send().expect("the answer");
    line.complete(call);
    assert_eq!(line.replies(), [(1, "claimed"), (2, "applied")]);
    let shard = shard_of(&id(1));
    let told = |line: &mut Line| {
        let out = std::mem::take(&mut line.out);
        let doubts = out.iter().filter(|e| matches!(e, Event::Doubted { .. }));
        let asserts = out.iter().filter(|e| matches!(e, Event::Assert(_)));
        let lost = out.iter().any(|e| matches!(e, Event::Forgot { .. }));
        (doubts.count(), asserts.count(), lost)
    };
    let until = line.now + line.store.ahead + 12_000;
    line.store.doubt_until = Some(until);
    line.sweep(shard);
    assert_eq!(told(&mut line), (1, 1, false));
    assert!(line.queue.is_holding(line.now + 11_999));
    assert!(!line.queue.is_holding(line.now + 12_000));
    assert_eq!(line.queue.recovering_ms(line.now), 0, "the store decides");
    line.sweep(shard);
    assert_eq!(told(&mut line), (0, 0, false), "once");
    // The next one's clock is behind.
    line.store.doubt_until = Some(until - 5_000);
    line.sweep(shard);
    assert_eq!(told(&mut line), (1, 1, false));
    line.store.doubt_until = Some(0);
    line.sweep(shard);
    assert_eq!(told(&mut line), (0, 0, false));
}

#[test]
fn a_state_that_cannot_be_read_is_no_loss_and_nothing_new_begins_on_its_word() {
    let mut line = Line::ready();
    line.push(op(1, Action::Claim(claim(1))), 1);
    let call = line.send().expect("the claim");
    line.complete(call);
    line.push(op(1, complete(1, line.now + 5_000, 7, 10)), 2);
    let call = line.send().expect("the answer");
    line.complete(call);
    assert_eq!(line.replies(), [(1, "claimed"), (2, "applied")]);

    line.store.unreadable = true;
    line.sweep(shard_of(&id(1)));
    line.push(op(2, Action::Claim(claim(2))), 3);
    line.push(op(3, Action::Read), 4);
    line.push(op(1, Action::Claim(claim(3))), 5);
    while let Some(call) = line.send() {
        line.complete(call);
    }
    let news = |e: &&Event| !matches!(e, Event::Reply { .. } | Event::Swept(_));
    assert_eq!(line.out.iter().find(news), None);
    assert!(!line.queue.is_holding(line.now));
    let mut replies = line.replies();
    replies.sort_unstable();
    // That there is a record is certain, that there is none is not.
    assert_eq!(replies, [(3, "failed"), (4, "failed"), (5, "current")]);

    // What was known is known still.
    line.store.unreadable = false;
    line.sweep(shard_of(&id(1)));
    assert!(!line.queue.is_holding(line.now));
    line.store.forget(9);
    line.sweep(shard_of(&id(1)));
    assert!(line.queue.is_holding(line.now));
}

#[test]
fn what_is_written_again_after_each_of_two_losses_is_written_once_each_time() {
    let mut line = Line::ready();
    line.push(op(1, Action::Claim(claim(1))), 1);
    let call = line.send().expect("the claim");
    line.complete(call);
    line.push(op(1, complete(1, line.now + 5_000, 7, 10)), 2);
    let call = line.send().expect("the answer");
    line.complete(call);
    for epoch in 9..12 {
        line.out.clear();
        line.store.forget(epoch);
        line.sweep(shard_of(&id(1)));
        let asserts = line.out.iter().filter_map(|event| match event {
            Event::Assert(op) => Some(op.clone()),
            _ => None,
        });
        let asserts: Vec<_> = asserts.collect();
        assert_eq!(asserts.len(), 1);
        for op in asserts {
            line.queue.push_patient(op, 9);
        }
        let call = line.send().expect("the answer, again");
        line.complete(call);
    }
}

#[test]
fn a_server_that_does_not_say_which_one_it_is_is_told_of_once() {
    let mut line = Line::ready();
    line.store.doubt_until = None;
    line.sweep(3);
    line.sweep(4);
    let told = line.out.iter().filter(|e| matches!(e, Event::Anonymous));
    assert_eq!(told.count(), 1);
    assert!(!line.queue.is_holding(line.now));
}

#[test]
fn a_doubt_that_another_worker_has_heard_of_is_looked_for() {
    let (mut one, mut two) = (Line::ready(), Line::ready());
    let tell = |one: &Line, two: &mut Line| {
        let memory = Memory::decode(&one.queue.memory().encode());
        two.queue.learn(&memory, 0)
    };
    assert!(!tell(&one, &mut two));
    one.store.doubt_until = Some(one.now + 12_000);
    one.sweep(0);
    assert!(tell(&one, &mut two), "news");
    two.store.doubt_until = one.store.doubt_until;
    two.sweep(0);
    let told = |event: &Event| {
        matches!(
            event,
            Event::Doubted {
                shard: 0,
                first: true
            }
        )
    };
    assert!(two.out.iter().any(told), "it finds out by itself");
    assert!(!tell(&one, &mut two));
}

#[test]
fn a_cluster_gets_one_call_for_each_shard() {
    let mut line = Line::new(Settings {
        per_shard: true,
        waiting: 32,
        ..settings()
    });
    line.sweep(0);
    line.out.clear();
    let [a, b, c] = [0, 1, 2].map(|nth| nth_of(5, nth));
    let [d, e] = [0, 1].map(|nth| nth_of(6, nth));
    for n in [a, d, b, e, c] {
        line.claim(n, u64::from(n) + 1);
    }
    let (zero, one) = (line.send().unwrap(), line.send().unwrap());
    let operations = |line: &Line, call| -> Vec<_> {
        line.carried(call).iter().map(|op| op.operation).collect()
    };
    assert_eq!(operations(&line, zero), [id(a), id(b), id(c)]);
    assert_eq!(operations(&line, one), [id(d), id(e)]);
}

#[test]
fn in_a_cluster_a_dead_shard_fails_alone() {
    let mut line = Line::new(Settings {
        per_shard: true,
        waiting: 32,
        ..settings()
    });
    line.sweep(0);
    line.out.clear();
    let (dead, alive) = (5, 6);
    let of = |shard| (0..).filter(move |n| shard_of(&id(*n)) == shard);
    let mut calls = 0;
    for (to_dead, to_alive) in of(dead).zip(of(alive)).take(100) {
        line.claim(to_dead, u64::from(to_dead) + 1);
        line.claim(to_alive, u64::from(to_alive) + 1);
        let mut lost = Vec::new();
        while let Some(call) = line.send() {
            let shard = shard_of(&line.carried(call)[0].operation);
            if shard == dead {
                calls += 1;
                lost.push(call);
            } else {
                line.complete(call);
            }
        }
        let live = (u64::from(to_alive) + 1, "claimed");
        assert!(line.replies().contains(&live));
        lost.into_iter().for_each(|call| line.lose(call));
        line.now += 40;
        line.tick();
    }
    assert!(calls < 30, "{calls} calls to the dead shard in 4 s");
    assert!(line.queue.failures() > 0);
    // It is back, by nothing but a sweep.
    line.now += 10_000;
    line.tick();
    line.out.clear();
    line.sweep(alive);
    assert!(
        line.queue.failures() > 0,
        "another shard's answer says nothing of it"
    );
    assert!(!line.out.contains(&Event::Ready(Ok(()))));
    line.sweep(dead);
    assert!(line.out.contains(&Event::Ready(Ok(()))));
    assert_eq!(line.queue.failures(), 0);
}

#[test]
fn in_a_cluster_a_dead_shard_does_not_keep_the_clock_from_being_known() {
    let mut line = Line::new(Settings {
        per_shard: true,
        waiting: 32,
        ..settings()
    });
    let (dead, alive) = (nth_of(5, 0), nth_of(6, 0));
    line.claim(dead, 1);
    for _ in 0..3 {
        let probe = line.send().expect("a probe of the shard that is asked for");
        assert_eq!(line.send(), None);
        line.lose(probe);
    }
    assert_eq!(line.send(), None, "it is given up");
    line.claim(alive, 2);
    let probe = line.send().expect("a probe of the other");
    line.complete(probe);
    let call = line.send().expect("the claim");
    line.complete(call);
    assert_eq!(line.replies(), [(2, "claimed")]);
}

#[test]
fn in_a_cluster_calls_to_one_shard_take_no_room_from_others() {
    let mut line = Line::new(Settings {
        per_shard: true,
        waiting: 32,
        ..settings()
    });
    line.sweep(0);
    for nth in 0..3 {
        line.claim(nth_of(5, nth), 1);
        let left = line.send();
        assert_eq!(left.is_some(), nth < 2, "two calls at once");
    }
    line.claim(nth_of(6, 0), 2);
    assert!(line.send().is_some(), "the other shard has its own two");
    assert_eq!(line.send(), None);
}

#[test]
fn an_answer_that_fits_no_call_is_left_out_and_remembered_to_have_been() {
    let mut line = Line::ready();
    line.push(op(1, complete(1, 1, 7, 3 << 20)), 1);
    let call = line.send().expect("without it");
    let ops = line.carried(call);
    let Action::Transition(transition) = &ops[0].action else {
        panic!("a transition");
    };
    let Target::Completed { outcome, blob } = &transition.to else {
        panic!("an answer");
    };
    assert_eq!((blob, outcome.replay), (&None, Replayable::TooLarge));
}

#[test]
fn what_a_host_does_not_take_never_left() {
    let mut line = Line::ready();
    line.claim(1, 1);
    while let Some(call) = line.send() {
        line.queue
            .on_refused(call, "no such cluster", line.now, &mut line.out);
    }
    let down = |event: &Event| matches!(event, Event::Ready(Err(why)) if why == "no such cluster");
    assert!(line.out.iter().any(down));
    line.now += 1_000;
    line.tick();
    assert_eq!(line.replies(), [(1, "unsent")]);
}

#[test]
fn memory_travels_to_later_workers() {
    let mut line = Line::ready();
    let octets = line.queue.memory().encode();
    let memory = Memory::decode(&octets);
    let mut later = Line::new(settings());
    later.queue.learn(&memory, 0);
    later.store.forget(9);
    later.sweep(0);
    let forgot = |event: &Event| matches!(event, Event::Forgot { shard: 0, .. });
    assert!(later.out.iter().any(forgot));
    assert_eq!(Memory::decode(b"rubbish"), Memory::default());
    line.sweep(0);
    assert!(!line.out.iter().any(forgot));
}
