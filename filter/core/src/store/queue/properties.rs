//! Any traffic over any network: each operation gets exactly one reply, in order, and one attempt at most
//! is granted an operation.

use super::tests::{Line, settings};
use super::*;
use crate::store::Claim;
use crate::store::remote::Understood;
use crate::store::table::testing::{claim, id, op, token};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Step {
    /// An attempt at that operation.
    Claim(u32),
    /// Somebody looks.
    Look(u32),
    /// Whatever may leave leaves.
    Send,
    /// A call arrives and is answered.
    Complete(usize),
    /// A call arrives, its answer does not.
    LoseAnswer(usize),
    /// A call does not arrive, now.
    Delay(usize),
    /// A delayed one does after all.
    Late(usize),
    /// The store does not know the script.
    Unprepared(usize),
    Wait(u64),
    /// The latest attempt that waits leaves.
    Withdraw,
}

fn step() -> impl Strategy<Value = Step> {
    let call = 0..4_usize;
    prop_oneof![
        4 => (0..4_u32).prop_map(Step::Claim),
        2 => (0..4_u32).prop_map(Step::Look),
        6 => Just(Step::Send),
        4 => call.clone().prop_map(Step::Complete),
        2 => call.clone().prop_map(Step::LoseAnswer),
        2 => call.clone().prop_map(Step::Delay),
        2 => call.clone().prop_map(Step::Late),
        1 => call.prop_map(Step::Unprepared),
        3 => (1..400_u64).prop_map(Step::Wait),
        1 => Just(Step::Withdraw),
    ]
}

struct World {
    line: Line,
    under_way: Vec<u32>,
    delayed: Vec<Vec<Op>>,
    waiters: u64,
    awaited: BTreeMap<u64, Op>,
    /// Attempts that were granted an operation.
    granted: BTreeMap<OperationId, BTreeSet<u64>>,
    /// Cancellations until they are acknowledged.
    backlog: BTreeMap<u64, Op>,
}

impl World {
    fn ask(&mut self, op: Op) {
        self.waiters += 1;
        self.awaited.insert(self.waiters, op.clone());
        let Line {
            queue, now, out, ..
        } = &mut self.line;
        queue.push(op, self.waiters, *now, out);
    }

    fn owe(&mut self, op: Op) {
        self.waiters += 1;
        self.backlog.insert(self.waiters, op.clone());
        self.line.queue.push_patient(op, self.waiters);
    }

    fn call(&mut self, nth: usize) -> Option<u32> {
        (nth < self.under_way.len()).then(|| self.under_way.remove(nth))
    }

    fn send(&mut self) {
        while let Some(call) = self.line.send() {
            self.under_way.push(call);
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Claim(n) => {
                // Leases outlast the test: what time does to them is the contract's business.
                let claim = Claim {
                    lease_ms: 3_600_000,
                    ..claim(self.waiters + 1)
                };
                self.ask(op(*n, Action::Claim(claim)));
            }
            Step::Look(n) => self.ask(op(*n, Action::Read)),
            Step::Send => self.send(),
            Step::Complete(nth) => {
                if let Some(call) = self.call(*nth) {
                    let understood = self.line.apply(call);
                    self.line.arrive(call, understood);
                }
            }
            Step::LoseAnswer(nth) => {
                if let Some(call) = self.call(*nth) {
                    let _unseen = self.line.apply(call);
                    self.lose(call);
                }
            }
            Step::Delay(nth) => {
                if let Some(call) = self.call(*nth) {
                    self.delayed.push(self.line.carried(call));
                    self.lose(call);
                }
            }
            Step::Late(nth) => {
                if *nth < self.delayed.len() {
                    let ops = self.delayed.remove(*nth);
                    let _unseen = self.line.store.call(&ops, self.line.now);
                }
            }
            Step::Unprepared(nth) => {
                if let Some(call) = self.call(*nth) {
                    self.line.arrive(call, Understood::Unprepared);
                }
            }
            Step::Wait(ms) => {
                self.line.now += ms;
                let Line {
                    queue, now, out, ..
                } = &mut self.line;
                queue.on_tick(*now, out);
            }
            Step::Withdraw => {
                let latest = self.awaited.iter().next_back();
                if let Some((waiter, asked)) = latest
                    && matches!(asked.action, Action::Claim(_))
                {
                    let (waiter, asked) = (*waiter, asked.clone());
                    let withdrawn = self.line.queue.withdraw(&asked.operation, token(waiter));
                    if withdrawn.is_some() {
                        self.awaited.remove(&waiter);
                    }
                }
            }
        }
        self.settle();
    }

    fn lose(&mut self, call: u32) {
        self.line.arrive(call, Understood::Ambiguous("lost".into()));
    }

    fn settle(&mut self) {
        for event in std::mem::take(&mut self.line.out) {
            let (waiter, op, reply) = match event {
                Event::Reply { waiter, op, reply } => (waiter, op, reply),
                Event::TakeBack(op) => {
                    self.owe(op);
                    continue;
                }
                _ => continue,
            };
            if let Some(owed) = self.backlog.remove(&waiter) {
                if matches!(reply, Reply::Failed(_)) {
                    self.owe(owed);
                }
                continue;
            }
            let asked = self.awaited.remove(&waiter).expect("one reply for each");
            assert_eq!(asked.operation, op.operation);
            match (&op.action, &reply) {
                (Action::Claim(_), Reply::Claimed(record)) => {
                    assert_eq!(record.version.incarnation, token(waiter).incarnation());
                    self.granted.entry(op.operation).or_default().insert(waiter);
                }
                (Action::Claim(claim), Reply::Failed(_) | Reply::TooLate) => {
                    let action = Action::Cancel { owner: claim.owner };
                    self.owe(Op {
                        operation: op.operation,
                        action,
                    });
                }
                _ => {}
            }
        }
    }

    /// The network heals, and everything ends.
    fn heal(&mut self) {
        for ops in std::mem::take(&mut self.delayed) {
            let _unseen = self.line.store.call(&ops, self.line.now);
        }
        for _ in 0..200 {
            self.send();
            while let Some(call) = self.call(0) {
                let understood = self.line.apply(call);
                self.line.arrive(call, understood);
                self.settle();
            }
            self.take(&Step::Wait(100));
            if self.line.queue.is_idle() {
                return;
            }
        }
        panic!("something waits for ever");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn one_reply_for_each_and_one_grant_at_most(
        steps in prop::collection::vec(step(), 1..120),
        per_shard: bool,
    ) {
        let settings = Settings { per_shard, ..settings() };
        let mut world = World {
            line: Line::new(settings),
            under_way: Vec::new(),
            delayed: Vec::new(),
            waiters: 0,
            awaited: BTreeMap::new(),
            granted: BTreeMap::new(),
            backlog: BTreeMap::new(),
        };
        for step in &steps {
            world.take(step);
        }
        world.heal();
        prop_assert_eq!(&world.awaited, &BTreeMap::new());
        prop_assert_eq!(&world.backlog, &BTreeMap::new());
        for (operation, attempts) in &world.granted {
            prop_assert!(attempts.len() <= 1, "{operation}: {attempts:?}");
        }
        // What nobody was granted is nobody's: no claim that was given up is left behind.
        for n in 0..4 {
            let held = world.line.store.records.contains_key(&id(n));
            prop_assert_eq!(held, world.granted.contains_key(&id(n)));
        }
    }
}
