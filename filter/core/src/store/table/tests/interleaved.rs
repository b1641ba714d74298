//! Several workers, where every host call is a scheduling point.
//!
//! Each worker is a thread that does one host call when it is its turn; a generated schedule says
//! whose turn is next, so a run is repeatable and every order of calls can come up. Workers crash at
//! generated calls: the call may or may not have been done, and none of that step follows. Each
//! write to a bucket is judged at the moment it happens.

use super::super::bucket::{Bucket, Found};
use super::super::fake::Fake;
use super::super::*;
use super::model::{Cmd, Line, NONE, action, line};
use super::support::*;
use crate::ids::OperationId;
use crate::record::*;
use crate::store::*;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex};

const WORKERS: usize = 3;
const QUOTA: u64 = 3;

struct Stage {
    host: Fake,
    clock: u64,
    schedule: Vec<u8>,
    at: usize,
    turn: usize,
    done: [bool; WORKERS],
    acting: [Option<Op>; WORKERS],
    budget: u64,
    mismatches: u32,
    /// Answers that a record has named, by operation and claim.
    named: HashSet<(OperationId, u64, u64)>,
    wrong: Vec<String>,
}

impl Stage {
    fn advance(&mut self) {
        for _ in 0..self.schedule.len() + WORKERS {
            let pick = self.schedule[self.at % self.schedule.len()] as usize;
            // Beyond the schedule, in turn: so that everybody gets on.
            let shift = self.at / self.schedule.len();
            self.at += 1;
            self.turn = (pick + shift) % WORKERS;
            if !self.done[self.turn] {
                return;
            }
        }
        self.turn = self.done.iter().position(|d| !d).unwrap_or(0);
    }

    fn wrote(&mut self, me: usize, key: &str, before: &[u8], after: &[u8]) {
        if self.host.bytes() > self.budget {
            self.wrong.push(format!("{} octets", self.host.bytes()));
        }
        if key.starts_with("idempo/1/r/")
            && let Err(what) = self.judge(me, before, after)
        {
            self.wrong.push(what);
        }
    }

    /// What one write may do to a bucket.
    fn judge(&mut self, me: usize, before: &[u8], after: &[u8]) -> Result<(), String> {
        let before = Bucket::read(before).map_err(|_| "damaged before")?;
        let after = Bucket::read(after).map_err(|_| "damaged after")?;
        let now = self.clock;
        let act = self.acting[me].as_ref();
        for stone in before.tombstones().filter(|t| now < t.gone_at) {
            if !after.tombstones().any(|t| t == stone) {
                return Err(format!("{stone:?} dropped at {now} by {act:?}"));
            }
        }
        for (head, octets) in before.entries() {
            let old = decode(octets).map_err(|e| e.to_string())?;
            let own = act
                .filter(|op| op.operation == head.id)
                .map(|op| &op.action);
            match after.find(&head.id, now) {
                Found::Nothing if old.view(now) == View::Gone => {}
                Found::Nothing => match own {
                    Some(Action::Cancel { owner }) if old.owner() == Some(*owner) => {}
                    _ => return Err(format!("{old:?} vanished at {now} by {act:?}")),
                },
                Found::Tombstone { unresolved } => {
                    if old.view(now) != (View::Expired { unresolved }) {
                        return Err(format!("{old:?} packed too early, at {now}"));
                    }
                }
                Found::Entry(_, octets) => {
                    let new = decode(octets).map_err(|e| e.to_string())?;
                    self.step(&old, &new, own, now)?;
                }
            }
        }
        for (head, octets) in after.entries() {
            let new = decode(octets).map_err(|e| e.to_string())?;
            if let (Some(answer), State::Completed { .. } | State::Accepted { .. }) =
                (head.answer, &new.state)
            {
                self.named
                    .insert((head.id, new.version.incarnation, answer.write));
            }
        }
        Ok(())
    }

    fn step(
        &self,
        old: &Record,
        new: &Record,
        own: Option<&Action>,
        now: u64,
    ) -> Result<(), String> {
        // What is gone may begin anew.
        if old == new || old.view(now) == View::Gone {
            return Ok(());
        }
        let fail = |what: &str| Err(format!("{what}: {old:?} -> {new:?} at {now} by {own:?}"));
        // Clocks are read when a step begins, so a step may see a window that is over by now.
        if old.version.incarnation != new.version.incarnation {
            let taken = matches!(own, Some(Action::TakeOver { .. }))
                && matches!(old.view(now), View::Unknown { .. } | View::Expired { .. });
            return if taken { Ok(()) } else { fail("two owners") };
        }
        let terminal = matches!(old.state, State::Completed { .. } | State::Closed { .. });
        if terminal && old.state != new.state {
            return fail("a terminal state changed");
        }
        if new.version.counter != old.version.counter + 1 {
            return fail("a version was reused");
        }
        Ok(())
    }
}

type Shared = Arc<(Mutex<Stage>, Condvar)>;

/// One worker's host.
struct Hand {
    shared: Shared,
    me: usize,
    /// Calls left in this step before the crash, and whether that last one is done.
    crash: Option<(u32, bool)>,
    crashed: bool,
}

impl Hand {
    fn turn<R>(&mut self, f: impl FnOnce(&mut Stage) -> R) -> R {
        let (lock, wake) = &*self.shared;
        let me = self.me;
        let stage = lock.lock().unwrap();
        let mut stage = wake.wait_while(stage, |s| s.turn != me).unwrap();
        let result = f(&mut stage);
        stage.advance();
        wake.notify_all();
        result
    }

    fn call<R>(
        &mut self,
        f: impl FnOnce(&mut Stage) -> Result<R, HostError>,
    ) -> Result<R, HostError> {
        let dead = || HostError("crashed".into());
        if self.crashed {
            return Err(dead());
        }
        if let Some((left, done)) = &mut self.crash {
            if *left == 0 {
                self.crashed = true;
                if *done {
                    let _ = self.turn(f);
                }
                return Err(dead());
            }
            *left -= 1;
        }
        self.turn(f)
    }

    fn set(
        &mut self,
        key: &str,
        value: &[u8],
        f: impl FnOnce(&mut Fake) -> Result<bool, HostError>,
    ) -> Result<bool, HostError> {
        let me = self.me;
        self.call(|stage| {
            let before = stage.host.get(key)?.map(|(v, _)| v).unwrap_or_default();
            let written = f(&mut stage.host)?;
            if written {
                stage.wrote(me, key, &before, value);
            } else {
                stage.mismatches += 1;
            }
            Ok(written)
        })
    }
}

impl SharedData for Hand {
    fn get(&mut self, key: &str) -> Result<Option<(Vec<u8>, u32)>, HostError> {
        self.call(|stage| stage.host.get(key))
    }
    fn create(&mut self, key: &str, value: &[u8]) -> Result<bool, HostError> {
        self.set(key, value, |host| host.create(key, value))
    }
    fn replace(&mut self, key: &str, value: &[u8], cas: u32) -> Result<bool, HostError> {
        self.set(key, value, |host| host.replace(key, value, cas))
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        let (lock, wake) = &*self.shared;
        if let Ok(mut stage) = lock.lock() {
            stage.done[self.me] = true;
            stage.acting[self.me] = None;
            if stage.turn == self.me {
                stage.advance();
            }
        }
        wake.notify_all();
    }
}

/// A line, and at which host call of it the worker crashes, if at all.
type Act = (Line, Option<(u32, bool)>);

fn work(mut hand: Hand, script: Vec<Act>, store: SharedDataStore, quota: bool) {
    let me = hand.me as u64;
    let mut table = opened(&mut hand, &store);
    let mut seen: HashMap<u32, Version> = HashMap::new();
    let mut last: Option<Op> = None;
    for (write, ((n, owner, cmd), crash)) in (1_u64..).zip(script) {
        // No two attempts share an owner token or a write id.
        let (owner, write) = (owner * 10 + me, write * 10 + me);
        let now = hand.turn(|stage| {
            if let Cmd::Tick(ms) = cmd {
                stage.clock += ms;
            }
            stage.clock
        });
        hand.crash = crash;
        if matches!(cmd, Cmd::Sweep) {
            table.sweep(&mut hand, now, 0, u32::MAX);
        }
        let version = seen.get(&n).copied().unwrap_or(NONE);
        let mut step = match (&cmd, action(&cmd, owner, version, write, now)) {
            (_, Some(action)) => Some(op(n, action)),
            (Cmd::Repeat, None) => last.take(),
            _ => None,
        };
        if let Some(Op {
            action: Action::Claim(claim),
            ..
        }) = &mut step
        {
            claim.tenant_quota = quota.then_some(QUOTA);
        }
        if let Some(step) = step {
            let me = hand.me;
            hand.turn(|stage| stage.acting[me] = Some(step.clone()));
            let reply = table.apply(&mut hand, &step, now);
            match &reply {
                Reply::Claimed(r) | Reply::Current(r) | Reply::Applied(r) | Reply::Stale(r) => {
                    seen.insert(n, r.version);
                }
                // A step that took longer than the grace may find the answer gone: its window, or the
                // acceptance's, is over by then, and the step began before.
                Reply::Body(None) if hand.turn(|s| s.clock) > now + 5_000 => {}
                Reply::Body(found) => check_body(&mut hand, &step, found.as_deref()),
                Reply::Corrupt => hand.turn(|s| s.wrong.push(format!("corrupt: {step:?}"))),
                Reply::Failed(_) if hand.crashed => {}
                Reply::Failed(e) => hand.turn(|s| s.wrong.push(format!("{e}: {step:?}"))),
                _ => {}
            }
            hand.turn(|stage| stage.acting[me] = None);
            last = Some(step);
        }
        hand.crash = None;
        if std::mem::take(&mut hand.crashed) {
            // Another VM, which knows nothing.
            table = opened(&mut hand, &store);
        }
    }
}

fn check_body(hand: &mut Hand, step: &Op, found: Option<&[u8]>) {
    let Action::Body { incarnation } = step.action else {
        panic!()
    };
    hand.turn(|stage| {
        let whole = found.is_some_and(|octets| {
            let write = u64::from_be_bytes(*octets.first_chunk().unwrap());
            octets == answer(write, octets.len())
                && stage.named.contains(&(step.operation, incarnation, write))
        });
        if !whole {
            stage.wrong.push(format!("{step:?} got {found:?}"));
        }
    });
}

struct Run {
    sd: Fake,
    now: u64,
    mismatches: u32,
}

fn run(
    scripts: Vec<Vec<Act>>,
    schedule: Vec<u8>,
    store: &SharedDataStore,
    quota: bool,
) -> Result<Run, TestCaseError> {
    let shared: Shared = Arc::new((
        Mutex::new(Stage {
            host: Fake::new(),
            clock: 1_000,
            schedule,
            at: 0,
            turn: 0,
            done: [false; WORKERS],
            acting: Default::default(),
            budget: store.records_bytes
                + store.bodies_bytes
                + store.tombstones_bytes
                + 64
                + if quota { 64 } else { 0 },
            mismatches: 0,
            named: HashSet::new(),
            wrong: Vec::new(),
        }),
        Condvar::new(),
    ));
    let threads: Vec<_> = scripts
        .into_iter()
        .enumerate()
        .map(|(me, script)| {
            let hand = Hand {
                shared: shared.clone(),
                me,
                crash: None,
                crashed: false,
            };
            let store = store.clone();
            std::thread::spawn(move || work(hand, script, store, quota))
        })
        .collect();
    for thread in threads {
        thread
            .join()
            .map_err(|_| TestCaseError::fail("a worker panicked"))?;
    }
    let stage = shared.0.lock().unwrap();
    prop_assert!(stage.wrong.is_empty(), "{:#?}", stage.wrong);
    Ok(Run {
        sd: stage.host.clone(),
        now: stage.clock,
        mismatches: stage.mismatches,
    })
}

fn scripts(operations: u32, crashes: u32) -> impl Strategy<Value = Vec<Vec<Act>>> {
    let crash = prop_oneof![
        20 => Just(None),
        crashes => (0_u32..6, any::<bool>()).prop_map(Some),
    ];
    let script = prop::collection::vec((line(operations, 3), crash), 1..40);
    prop::collection::vec(script, WORKERS..=WORKERS)
}

fn schedule() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0..WORKERS as u8, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn every_write_is_a_step_of_the_contract(scripts in scripts(3, 1), schedule in schedule()) {
        run(scripts, schedule, &budgets(20 << 10, 24 << 10, 4 << 10), false)?;
    }

    #[test]
    fn so_it_is_without_room(scripts in scripts(9, 2), schedule in schedule()) {
        run(scripts, schedule, &budgets(7 << 10, 6 << 10, 24), false)?;
    }

    #[test]
    fn a_quota_holds_and_a_recount_finds_the_truth(scripts in scripts(9, 1), schedule in schedule()) {
        let store = budgets(60 << 10, 24 << 10, 4 << 10);
        let Run { mut sd, now, .. } = run(scripts, schedule, &store, true)?;
        let mut table = opened(&mut sd, &store);
        let live = |sd: &mut Fake| {
            let value = sd.get("idempo/1/r/0").unwrap().map(|(v, _)| v).unwrap_or_default();
            let bucket = Bucket::read(&value).unwrap();
            bucket.entries().filter(|(h, _)| h.counted && now < h.expires_at).count() as u64
        };
        // A recount beside claims under way may allow one more for each of the other workers.
        prop_assert!(live(&mut sd) < QUOTA + WORKERS as u64);
        // Two passes: the first meets the counted records, the second recounts them.
        table.sweep(&mut sd, now, 0, u32::MAX);
        table.quotas = true;
        table.sweep(&mut sd, now, 0, u32::MAX);
        let before = live(&mut sd);
        let mut held = before;
        for n in 100..110 {
            let mut more = claim(n.into());
            more.tenant_quota = Some(QUOTA);
            match table.apply(&mut sd, &op(n, Action::Claim(more)), now) {
                Reply::Claimed(_) => held += 1,
                Reply::Full(Full::Tenant) => break,
                other => prop_assert!(false, "{other:?}"),
            }
        }
        prop_assert_eq!(held, QUOTA.max(before));
    }
}

#[test]
fn workers_do_collide() {
    let claims = |n: u64| {
        (0..30)
            .map(|k| ((k, n, Cmd::Claim), None))
            .collect::<Vec<Act>>()
    };
    let all = (0..WORKERS as u64).map(claims).collect();
    let store = budgets(256 << 10, 24 << 10, 4 << 10);
    let run = run(all, vec![0, 1, 2], &store, false).unwrap();
    assert!(run.mismatches > 20, "{}", run.mismatches);
}
