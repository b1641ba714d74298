//! One worker against the plainest store there is: a map without bounds, under the same contract.

use super::super::fake::Fake;
use super::super::*;
use super::support::*;
use crate::ids::OperationId;
use crate::record::*;
use crate::store::contract::{self, Change};
use crate::store::*;
use proptest::prelude::*;
use std::collections::HashMap;

/// What the generated scripts do. Also used by the interleaved tests.
#[derive(Clone, Debug)]
pub(super) enum Cmd {
    Read,
    Claim,
    TakeOver,
    Renew,
    Complete(usize),
    Accept(usize),
    Unknown,
    Cancel,
    Close,
    Settle(usize),
    Body,
    Repeat,
    Tick(u64),
    Sweep,
}

/// One line of a script: which operation, under which owner, what.
pub(super) type Line = (u32, u64, Cmd);

pub(super) fn line(operations: u32, owners: u64) -> impl Strategy<Value = Line> {
    let length = prop_oneof![Just(8_usize), 8_usize..600, Just(5_000)];
    let cmd = prop_oneof![
        1 => Just(Cmd::Read),
        6 => Just(Cmd::Claim),
        2 => Just(Cmd::TakeOver),
        1 => Just(Cmd::Renew),
        5 => length.clone().prop_map(Cmd::Complete),
        2 => length.clone().prop_map(Cmd::Accept),
        1 => Just(Cmd::Unknown),
        2 => Just(Cmd::Cancel),
        1 => Just(Cmd::Close),
        2 => length.prop_map(Cmd::Settle),
        3 => Just(Cmd::Body),
        1 => Just(Cmd::Repeat),
        3 => prop_oneof![0_u64..50, 900_u64..1_200, 9_000_u64..12_000, Just(40_000)]
            .prop_map(Cmd::Tick),
        1 => Just(Cmd::Sweep),
    ];
    (0..operations, 0..owners, cmd)
}

/// The step of a line, given the version that its author saw last.
pub(super) fn action(cmd: &Cmd, owner: u64, seen: Version, write: u64, now: u64) -> Option<Action> {
    let by_version = |from: Vec<Status>, to, source| {
        transition(
            write,
            Fence::Version {
                version: seen,
                from,
            },
            to,
            source,
        )
    };
    let blob = |length: &usize| Some(answer(write, *length));
    Some(match cmd {
        Cmd::Read => Action::Read,
        Cmd::Claim => Action::Claim(claim(owner)),
        Cmd::TakeOver => Action::TakeOver {
            claim: claim(owner),
            expect: seen,
        },
        Cmd::Renew => transition(
            write,
            owner_fence(owner, now),
            Target::Renewed { lease_ms: 1_000 },
            Source::Owner,
        ),
        Cmd::Complete(length) => complete(owner, now, write, *length),
        Cmd::Accept(length) => {
            let to = Target::Accepted {
                outcome: outcome(write),
                deadline_ms: 2_000,
                blob: blob(length),
            };
            transition(write, owner_fence(owner, now), to, Source::Owner)
        }
        Cmd::Unknown => {
            let evidence = Evidence {
                status: Some(504),
                ..Evidence::named("response_timeout")
            };
            let to = Target::Unknown { evidence };
            transition(write, owner_fence(owner, now), to, Source::Owner)
        }
        Cmd::Cancel => Action::Cancel {
            owner: token(owner),
        },
        Cmd::Close => by_version(
            vec![Status::Unknown, Status::Pending],
            Target::Closed {
                reason: "refunded".into(),
            },
            Source::Operator,
        ),
        Cmd::Settle(length) => by_version(
            vec![Status::Unknown, Status::Accepted],
            Target::Completed {
                outcome: outcome(write),
                blob: blob(length),
            },
            Source::Event,
        ),
        Cmd::Body => Action::Body {
            incarnation: seen.incarnation,
        },
        Cmd::Repeat | Cmd::Tick(_) | Cmd::Sweep => return None,
    })
}

pub(super) const NONE: Version = Version {
    incarnation: 0,
    counter: 0,
};

#[derive(Default)]
struct Model {
    records: HashMap<OperationId, Record>,
    answers: HashMap<(OperationId, u64), Vec<u8>>,
}

impl Model {
    fn version(&self, id: &OperationId) -> Version {
        self.records.get(id).map_or(NONE, |r| r.version)
    }

    /// Compares one reply with what the contract says, and follows it.
    fn follow(
        &mut self,
        op: &Op,
        reply: &Reply,
        now: u64,
        bounded: bool,
    ) -> Result<(), TestCaseError> {
        let current = self.records.get(&op.operation);
        let (change, mut right) = contract::apply(current, &op.action, now);
        let mut next = match change {
            Change::Keep => current.cloned(),
            Change::Put(record) => Some(*record),
            Change::Delete => None,
        };
        if let (Action::Body { incarnation }, Reply::Body(found)) = (&op.action, reply) {
            let record = current.expect("an answer without a record");
            prop_assert_eq!(record.version.incarnation, *incarnation);
            let (State::Completed { outcome, .. } | State::Accepted { outcome, .. }) =
                &record.state
            else {
                panic!("an answer in {:?}", record.state)
            };
            let write = u64::from_be_bytes(*outcome.result.first_chunk().unwrap());
            prop_assert_eq!(found.as_ref(), self.answers.get(&(op.operation, write)));
            prop_assert!(found.is_some());
            return Ok(());
        }
        let no_room = *reply == Reply::Full(Full::Store);
        if no_room && bounded && current.is_none_or(|r| r.view(now) == View::Gone) && next.is_some()
        {
            return Ok(());
        }
        if let (Reply::Stale(record), true, Reply::Stale(_)) = (reply, bounded, &right)
            && Some(&**record) == current
        {
            return Ok(());
        }
        if let (Reply::Applied(table), Reply::Applied(model), Some(next)) =
            (reply, &mut right, &mut next)
            && let (
                State::Completed {
                    outcome: theirs, ..
                }
                | State::Accepted {
                    outcome: theirs, ..
                },
                State::Completed { outcome: ours, .. } | State::Accepted { outcome: ours, .. },
            ) = (&table.state, &mut model.state)
            && bounded
            && theirs.replay == Replayable::StoreFull
        {
            ours.replay = Replayable::StoreFull;
            *next = (**model).clone();
        }
        prop_assert_eq!(reply, &right, "{:?} at {}", op, now);
        if let Action::Transition(Transition {
            write,
            to:
                Target::Completed {
                    blob: Some(blob), ..
                }
                | Target::Accepted {
                    blob: Some(blob), ..
                },
            ..
        }) = &op.action
        {
            self.answers.insert((op.operation, write.0), blob.clone());
        }
        match next {
            Some(record) => self.records.insert(op.operation, record),
            None => self.records.remove(&op.operation),
        };
        Ok(())
    }

    fn sweep(&mut self, now: u64) -> usize {
        let mut noted = 0;
        for record in self.records.values_mut() {
            if let Some(next) = contract::sweep(record, now) {
                *record = *next;
                noted += 1;
            }
        }
        noted
    }
}

fn run(script: &[Line], store: &SharedDataStore, bounded: bool) -> Result<(), TestCaseError> {
    let sd = &mut Fake::new();
    let mut table = opened(sd, store);
    let mut model = Model::default();
    let mut now = 1_000;
    let mut last = None;
    let budget = store.records_bytes + store.bodies_bytes + store.tombstones_bytes + 64;
    for (write, (n, owner, cmd)) in (1_u64..).zip(script) {
        match cmd {
            Cmd::Tick(ms) => now += ms,
            Cmd::Sweep => {
                let report = table.sweep(sd, now, 0, u32::MAX);
                prop_assert_eq!(report.transitions.len(), model.sweep(now));
                prop_assert_eq!((report.damaged, report.skipped), (0, 0));
                let live = model
                    .records
                    .values()
                    .filter(|r| now < r.expires_at())
                    .count();
                prop_assert_eq!(report.live, live as u64);
                let expired = model.records.values();
                let expired = expired.filter(|r| matches!(r.view(now), View::Expired { .. }));
                prop_assert_eq!(report.tombstones, expired.count() as u64);
            }
            cmd => {
                let seen = model.version(&id(*n));
                let step = match action(cmd, *owner, seen, write, now) {
                    Some(action) => op(*n, action),
                    None => match last.take() {
                        Some(step) => step,
                        None => continue,
                    },
                };
                let reply = table.apply(sd, &step, now);
                model.follow(&step, &reply, now, bounded)?;
                last = Some(step);
            }
        }
        prop_assert!(sd.bytes() <= budget);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn with_room_it_is_the_contract_to_the_letter(script in prop::collection::vec(line(4, 4), 1..80)) {
        run(&script, &budgets(256 << 10, 1 << 20, 64 << 10), false)?;
    }

    #[test]
    fn without_room_it_only_refuses_and_forgets_answers(script in prop::collection::vec(line(12, 4), 1..120)) {
        run(&script, &budgets(7 << 10, 6 << 10, 24), true)?;
    }
}
