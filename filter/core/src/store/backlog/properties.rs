//! Any number of holders over one host that crash, reload, stop for a while and come back: what was said
//! to be durable is handed out until it is done, and afterwards by nobody who was not paused.

use super::directory;
use super::*;
use crate::record::{Source, WriteId};
use crate::store::Transition;
use crate::store::table::fake::Fake;
use crate::store::table::testing::{answer, id, outcome, owner_fence};
use crate::store::table::{HostError, SharedData};
use proptest::prelude::*;
use std::collections::BTreeSet;

const HOLDERS: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Call {
    Defer(u32),
    /// The oldest that is due is made.
    Make,
    /// Is tried in vain.
    Fail,
    Tick,
    Close,
}

#[derive(Clone, Debug)]
enum Step {
    Call(usize, Call),
    /// The VM crashes after so many host calls, the last of which was made or not.
    Crash(usize, Call, u32, bool),
    Pause(usize),
    Resume(usize),
    /// Everybody who is not paused ticks.
    Wait(u64),
    Hurry(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let call = prop_oneof![
        6 => (0..5_u32).prop_map(Call::Defer),
        4 => Just(Call::Make),
        2 => Just(Call::Fail),
        1 => Just(Call::Tick),
        1 => Just(Call::Close),
    ];
    let who = 0..HOLDERS;
    prop_oneof![
        10 => (who.clone(), call.clone()).prop_map(|(n, call)| Step::Call(n, call)),
        2 => (who.clone(), call, 0..10_u32, any::<bool>())
            .prop_map(|(n, call, calls, made)| Step::Crash(n, call, calls, made)),
        1 => who.clone().prop_map(Step::Pause),
        1 => who.clone().prop_map(Step::Resume),
        5 => (1..1_200_u64).prop_map(Step::Wait),
        1 => who.prop_map(Step::Hurry),
    ]
}

/// A host that a crashed VM cannot reach any more.
struct Dying<'a> {
    fake: &'a mut Fake,
    left: u32,
    made: bool,
}

impl Dying<'_> {
    fn call<T>(
        &mut self,
        f: impl FnOnce(&mut Fake) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        if self.left == 0 {
            if std::mem::take(&mut self.made) {
                let _ = f(self.fake);
            }
            return Err(HostError("gone".into()));
        }
        self.left -= 1;
        f(self.fake)
    }
}

impl SharedData for Dying<'_> {
    fn get(&mut self, key: &str) -> Result<Option<(Vec<u8>, u32)>, HostError> {
        self.call(|h| h.get(key))
    }
    fn create(&mut self, key: &str, value: &[u8]) -> Result<bool, HostError> {
        self.call(|h| h.create(key, value))
    }
    fn replace(&mut self, key: &str, value: &[u8], cas: u32) -> Result<bool, HostError> {
        self.call(|h| h.replace(key, value, cas))
    }
}

struct Holder {
    backlog: Backlog,
    paused: bool,
}

fn write_of(op: &Op) -> u64 {
    match &op.action {
        Action::Transition(transition) => transition.write.0,
        _ => panic!(),
    }
}

struct World {
    sd: Fake,
    now: u64,
    holders: Vec<Holder>,
    names: u64,
    writes: u64,
    /// Said to be durable and not done.
    owed: BTreeSet<u64>,
    done: BTreeSet<u64>,
    /// These were with somebody who was paused, or crashed while it made them: a repeat is allowed.
    paused: BTreeSet<u64>,
    /// What lies where, at most: journals in use, writes of one holder.
    journals: usize,
    most: usize,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            sd: Fake::new(),
            now: 1_000_000,
            holders: Vec::new(),
            names: 0,
            writes: 0,
            owed: BTreeSet::new(),
            done: BTreeSet::new(),
            paused: BTreeSet::new(),
            journals: 0,
            most: 0,
        };
        for _ in 0..HOLDERS {
            let fresh = world.fresh();
            world.holders.push(fresh);
        }
        world
    }

    fn fresh(&mut self) -> Holder {
        self.names += 1;
        Holder {
            backlog: Backlog::new("store", self.names),
            paused: false,
        }
    }

    fn due(&mut self, n: usize, most: usize) -> Vec<(u64, Op)> {
        let due = self.holders[n].backlog.due(self.now, most);
        for (_, op) in &due {
            let write = write_of(op);
            assert!(
                !self.done.contains(&write) || self.paused.contains(&write),
                "{write} is handed out after it was done"
            );
        }
        due
    }

    /// `dies`: within the call.
    fn call(&mut self, n: usize, call: Call, dies: Option<(u32, bool)>) {
        let due = match call {
            Call::Make | Call::Fail => self.due(n, 1),
            _ => Vec::new(),
        };
        let World {
            sd, holders, now, ..
        } = self;
        let host = &mut Dying {
            fake: sd,
            left: dies.map_or(u32::MAX, |(left, _)| left),
            made: dies.is_some_and(|(_, made)| made),
        };
        let backlog = &mut holders[n].backlog;
        match call {
            Call::Defer(operation) => {
                self.writes += 1;
                let write = self.writes;
                let to = Target::Completed {
                    outcome: outcome(write),
                    blob: Some(answer(write, 30)),
                };
                let action = Action::Transition(Transition {
                    write: WriteId(write),
                    fence: owner_fence(write, 0),
                    to,
                    source: Source::Owner,
                    operator: String::new(),
                });
                let operation = id(operation);
                let kept = backlog.defer(host, Op { operation, action }, true, *now);
                if dies.is_none() {
                    assert_eq!(kept, Kept::Durable);
                    self.owed.insert(write);
                }
            }
            Call::Make => {
                for (id, op) in due {
                    backlog.done(host, id);
                    let write = write_of(&op);
                    self.owed.remove(&write);
                    self.done.insert(write);
                    if dies.is_some() {
                        self.paused.insert(write);
                    }
                }
            }
            Call::Fail => {
                for (id, _) in due {
                    backlog.again(id, *now);
                }
            }
            Call::Tick => {
                backlog.tick(host, *now);
            }
            Call::Close => {
                backlog.close(host);
                assert!(backlog.is_empty() || dies.is_some());
                if dies.is_none() {
                    let fresh = self.fresh();
                    self.holders[n] = fresh;
                }
            }
        }
        if dies.is_some() {
            let fresh = self.fresh();
            self.holders[n] = fresh;
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Call(n, Call::Tick) if self.holders[n].paused => {}
            Step::Call(n, call) => self.call(n, call, None),
            Step::Crash(n, call, left, made) => self.call(n, call, Some((left, made))),
            Step::Pause(n) => self.holders[n].paused = true,
            Step::Resume(n) => self.holders[n].paused = false,
            Step::Hurry(n) => self.holders[n].backlog.hurry(self.now),
            Step::Wait(ms) => {
                self.now += ms;
                self.tick();
            }
        }
        self.look();
    }

    fn tick(&mut self) {
        for holder in self.holders.iter_mut().filter(|h| !h.paused) {
            holder.backlog.tick(&mut self.sd, self.now);
        }
    }

    fn look(&mut self) {
        for holder in &self.holders {
            let own = holder.backlog.entries.iter().map(|e| write_of(&e.op));
            if holder.paused {
                self.paused.extend(own);
            }
            self.most = self.most.max(holder.backlog.len());
            assert_eq!(holder.backlog.damaged(), 0);
        }
        let key = &self.holders[0].backlog.key;
        let list = self.sd.get(key).unwrap();
        let list = list.map_or_else(Vec::new, |(value, _)| directory::decode(&value).unwrap());
        self.journals = self
            .journals
            .max(list.iter().filter(|j| !j.is_free()).count());
        assert!(list.len() <= self.journals, "a free journal was not used");
    }

    /// Everybody that is alive goes on, and fails at each write: what is handed out.
    fn handed_out(&mut self) -> BTreeSet<u64> {
        let mut seen = BTreeSet::new();
        let mut under_way: Vec<(usize, u64)> = Vec::new();
        for n in 0..self.holders.len() {
            // Nothing is under way for ever.
            let entries = &self.holders[n].backlog.entries;
            under_way.extend(entries.iter().map(|e| (n, e.id)));
        }
        for _ in 0..60 {
            for (n, id) in under_way.drain(..) {
                self.holders[n].backlog.done(&mut self.sd, id);
            }
            self.now += 1_000;
            self.tick();
            for n in 0..self.holders.len() {
                for (id, op) in self.due(n, 3) {
                    seen.insert(write_of(&op));
                    under_way.push((n, id));
                }
            }
        }
        seen
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn nothing_durable_is_lost(
        steps in prop::collection::vec(step(), 1..120),
        survivors in 0..HOLDERS,
    ) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        // Some crash, one starts: whatever they had is with those who go on.
        for n in survivors..HOLDERS {
            let fresh = world.fresh();
            world.holders[n] = fresh;
        }
        for holder in &mut world.holders {
            holder.paused = false;
        }
        let own: BTreeSet<u64> = world
            .holders
            .iter()
            .flat_map(|h| h.backlog.entries.iter().map(|e| write_of(&e.op)))
            .collect();
        let mut found = world.handed_out();
        found.extend(own);
        let lost: Vec<_> = world.owed.difference(&found).collect();
        prop_assert!(lost.is_empty(), "{:?}", lost);
        let bound = 1 + world.journals * (world.most + 1);
        prop_assert!(world.sd.keys() <= bound, "{} keys, {}", world.sd.keys(), bound);
    }
}
