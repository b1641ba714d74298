//! Single steps, windows, the sweep, opening.

use super::super::fake::Fake;
use super::super::*;
use super::support::*;
use crate::ids::OwnerToken;
use crate::record::*;
use crate::store::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn small() -> (Fake, Table) {
    let mut sd = Fake::new();
    let table = opened(&mut sd, &budgets(256 << 10, 256 << 10, 64 << 10));
    (sd, table)
}

fn version(reply: &Reply) -> Version {
    match reply {
        Reply::Claimed(r) | Reply::Applied(r) | Reply::Current(r) => r.version,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_operation_is_claimed_completed_and_replayed_across_workers() {
    let (mut sd, mut one) = small();
    let mut two = opened(&mut sd, &budgets(256 << 10, 256 << 10, 64 << 10));
    let sd = &mut sd;
    let claimed = one.apply(sd, &op(1, Action::Claim(claim(1))), 100);
    assert!(matches!(claimed, Reply::Claimed(_)), "{claimed:?}");
    let second = two.apply(sd, &op(1, Action::Claim(claim(2))), 101);
    let Reply::Current(record) = second else {
        panic!("{second:?}")
    };
    assert_eq!(record.owner(), Some(token(1)));
    let done = one.apply(sd, &op(1, complete(1, 100, 5, 700)), 200);
    assert!(matches!(done, Reply::Applied(_)), "{done:?}");
    let repeat = one.apply(sd, &op(1, complete(1, 100, 5, 700)), 201);
    assert!(matches!(repeat, Reply::Already(_)), "{repeat:?}");
    let incarnation = version(&two.apply(sd, &op(1, Action::Claim(claim(3))), 300)).incarnation;
    let body = two.apply(sd, &op(1, Action::Body { incarnation }), 300);
    assert_eq!(body, Reply::Body(Some(answer(5, 700))));
    // A worker that has just started finds it by the record alone.
    let mut three = opened(sd, &budgets(256 << 10, 256 << 10, 64 << 10));
    let body = three.apply(sd, &op(1, Action::Body { incarnation }), 300);
    assert_eq!(body, Reply::Body(Some(answer(5, 700))));
    let other = three.apply(sd, &op(1, Action::Body { incarnation: 9 }), 300);
    assert!(matches!(other, Reply::Current(_)), "{other:?}");
}

#[test]
fn a_replay_right_after_its_claim_costs_two_gets() {
    let (mut sd, mut table) = small();
    table.apply(&mut sd, &op(1, Action::Claim(claim(1))), 100);
    table.apply(&mut sd, &op(1, complete(1, 100, 5, 700)), 200);
    let mut fresh = opened(&mut sd, &budgets(256 << 10, 256 << 10, 64 << 10));
    sd.cost = Default::default();
    let incarnation =
        version(&fresh.apply(&mut sd, &op(1, Action::Claim(claim(2))), 300)).incarnation;
    let body = fresh.apply(&mut sd, &op(1, Action::Body { incarnation }), 300);
    assert!(matches!(body, Reply::Body(Some(_))));
    assert_eq!((sd.cost.gets, sd.cost.sets), (2, 0));
    // The hint ends with the window.
    let body = fresh.apply(&mut sd, &op(1, Action::Body { incarnation }), 10_200);
    assert_eq!(body, Reply::Expired { unresolved: false });
}

#[test]
fn windows_end_in_tombstones_and_then_in_nothing() {
    let (mut sd, mut table) = small();
    let sd = &mut sd;
    table.apply(sd, &op(1, Action::Claim(claim(1))), 0);
    table.apply(sd, &op(1, complete(1, 0, 5, 700)), 0);
    table.apply(sd, &op(2, Action::Claim(claim(2))), 0);
    // Computed first, packed by the sweep: the replies are the same.
    for swept in [false, true] {
        if swept {
            let report = table.sweep(sd, 10_000, 0, u32::MAX);
            assert_eq!((report.live, report.tombstones), (1, 1));
        }
        for action in [Action::Read, Action::Claim(claim(3)), complete(1, 0, 5, 9)] {
            let reply = table.apply(sd, &op(1, action), 10_000);
            assert_eq!(reply, Reply::Expired { unresolved: false }, "{swept}");
        }
    }
    // 1 000 of lease, both windows of 30 000; the sweep at 10 000 has noted it at that time.
    let report = table.sweep(sd, 40_000, 0, u32::MAX);
    assert_eq!((report.live, report.tombstones), (0, 1));
    let reply = table.apply(sd, &op(2, Action::Claim(claim(4))), 40_000);
    assert_eq!(reply, Reply::Expired { unresolved: true });
    let cancel = Action::Cancel { owner: token(2) };
    let reply = table.apply(sd, &op(2, cancel), 40_000);
    assert_eq!(reply, Reply::Expired { unresolved: true });
    let reply = table.apply(sd, &op(1, Action::Claim(claim(5))), 40_000);
    assert!(matches!(reply, Reply::Claimed(_)));
    let reply = table.apply(sd, &op(2, Action::Claim(claim(6))), 60_000);
    assert!(matches!(reply, Reply::Claimed(_)), "{reply:?}");
}

#[test]
fn no_tombstone_is_made_where_its_window_is_nothing() {
    let (mut sd, mut table) = small();
    let mut first = claim(1);
    first.windows.tombstone_ms = 0;
    table.apply(&mut sd, &op(1, Action::Claim(first.clone())), 0);
    let mut done = complete(1, 0, 5, 10);
    if let Action::Transition(Transition {
        fence: Fence::Owner { claim, .. },
        ..
    }) = &mut done
    {
        **claim = first;
    }
    table.apply(&mut sd, &op(1, done), 0);
    assert_eq!(table.sweep(&mut sd, 10_000, 0, u32::MAX).tombstones, 0);
    let reply = table.apply(&mut sd, &op(1, Action::Claim(claim(2))), 10_000);
    assert!(matches!(reply, Reply::Claimed(_)));
}

#[test]
fn the_sweep_notes_what_has_become_unknown_once_and_idle_buckets_cost_no_write() {
    let (mut sd, mut table) = small();
    for n in 0..5 {
        table.apply(&mut sd, &op(n, Action::Claim(claim(n.into()))), 0);
    }
    table.apply(&mut sd, &op(0, complete(0, 0, 7, 10)), 0);
    let report = table.sweep(&mut sd, 999, 0, u32::MAX);
    assert_eq!((report.open, report.open_unknown, report.live), (4, 0, 5));
    let report = table.sweep(&mut sd, 1_000, 0, u32::MAX);
    assert_eq!((report.open_unknown, report.transitions.len()), (4, 4));
    for (_, record) in &report.transitions {
        assert!(matches!(
            record.state,
            State::Unknown { owner: Some(_), .. }
        ));
        assert_eq!(
            record.history.events().last().unwrap().source,
            Source::Sweep
        );
    }
    sd.cost = Default::default();
    let report = table.sweep(&mut sd, 1_001, 0, u32::MAX);
    assert_eq!((report.open_unknown, report.transitions.len()), (4, 0));
    assert_eq!(sd.cost.sets, 0);
    assert_eq!(sd.cost.gets, 8 + 16, "buckets and piles");
    assert_eq!(report.next_bucket, 0);
    assert!(report.used_ratio(&Geometry::of(&budgets(256 << 10, 256 << 10, 64 << 10))) > 0.0);
    // Part by part.
    let mut sum = table.sweep(&mut sd, 1_001, 0, 3);
    assert_eq!(sum.next_bucket, 3);
    while sum.next_bucket != 0 {
        let next = table.sweep(&mut sd, 1_001, sum.next_bucket, 3);
        sum.add(next);
    }
    assert_eq!(sum, report);
}

#[test]
fn a_final_answer_frees_the_acceptance_and_a_closing_frees_both() {
    let (mut sd, mut table) = small();
    let sd = &mut sd;
    table.apply(sd, &op(1, Action::Claim(claim(1))), 0);
    let accept = Target::Accepted {
        outcome: outcome(1),
        deadline_ms: 5_000,
        blob: Some(answer(1, 9_000)),
    };
    let accept = transition(1, owner_fence(1, 0), accept, Source::Owner);
    let accepted = version(&table.apply(sd, &op(1, accept), 1));
    let body = Action::Body {
        incarnation: accepted.incarnation,
    };
    assert_eq!(
        table.apply(sd, &op(1, body.clone()), 2),
        Reply::Body(Some(answer(1, 9_000)))
    );
    let before = table.sweep(sd, 2, 0, u32::MAX).bodies_bytes;
    assert!(before > 9_000);
    let done = Target::Completed {
        outcome: outcome(2),
        blob: Some(answer(2, 100)),
    };
    let fence = Fence::Version {
        version: accepted,
        from: vec![Status::Accepted],
    };
    let reply = table.apply(sd, &op(1, transition(2, fence, done, Source::Event)), 3);
    assert!(matches!(reply, Reply::Applied(_)), "{reply:?}");
    assert_eq!(
        table.apply(sd, &op(1, body), 4),
        Reply::Body(Some(answer(2, 100)))
    );
    assert!(table.sweep(sd, 4, 0, u32::MAX).bodies_bytes < 400);
}

#[test]
fn a_late_answer_is_kept_as_evidence_and_its_octets_are_not() {
    let (mut sd, mut table) = small();
    let sd = &mut sd;
    let claimed = version(&table.apply(sd, &op(1, Action::Claim(claim(1))), 0));
    let close = Target::Closed {
        reason: "refunded".into(),
    };
    let fence = Fence::Version {
        version: claimed,
        from: vec![Status::Pending],
    };
    table.apply(sd, &op(1, transition(1, fence, close, Source::Operator)), 5);
    let late = table.apply(sd, &op(1, complete(1, 0, 2, 500)), 6);
    let Reply::Stale(record) = late else {
        panic!("{late:?}")
    };
    assert_eq!(
        record
            .history
            .events()
            .last()
            .unwrap()
            .evidence
            .as_ref()
            .unwrap()
            .status,
        Some(201)
    );
    assert!(matches!(
        table.apply(sd, &op(1, complete(1, 0, 2, 500)), 7),
        Reply::Stale(_)
    ));
    assert_eq!(table.sweep(sd, 7, 0, u32::MAX).bodies_bytes, 0);
}

#[test]
fn a_store_that_lost_a_record_gets_it_back_from_its_owner() {
    let (mut sd, mut table) = small();
    let reply = table.apply(&mut sd, &op(1, complete(1, 50, 5, 700)), 60);
    let Reply::Applied(record) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!((record.claimed_at, record.generation), (50, 50));
    let body = Action::Body {
        incarnation: OwnerToken::incarnation(&token(1)),
    };
    assert_eq!(
        table.apply(&mut sd, &op(1, body), 61),
        Reply::Body(Some(answer(5, 700)))
    );
}

#[test]
fn the_first_worker_makes_the_table_and_a_reload_keeps_its_shape() {
    let mut sd = Fake::new();
    let mut table = Table::new(&budgets(256 << 10, 1 << 20, 64 << 10));
    assert!(matches!(
        table.apply(&mut sd, &op(1, Action::Read), 0),
        Reply::Failed(_)
    ));
    let first = table.open(&mut sd, 123, [7; 16]).unwrap();
    assert!(first.first && first.wanted.is_none() && first.since_wall_ms == 123);
    table.apply(&mut sd, &op(1, Action::Claim(claim(1))), 0);
    let mut other = Table::new(&budgets(1 << 20, 1 << 20, 64 << 10));
    let second = other.open(&mut sd, 456, [8; 16]).unwrap();
    assert!(!second.first);
    assert_eq!(second.since_wall_ms, 123);
    assert_eq!(second.geometry, first.geometry);
    assert_eq!(second.wanted.unwrap().buckets, 32);
    let reply = other.apply(&mut sd, &op(1, Action::Claim(claim(2))), 0);
    assert!(matches!(reply, Reply::Current(_)), "{reply:?}");
    sd.overwrite("idempo/1/meta", b"somebody else's");
    assert_eq!(other.open(&mut sd, 456, [8; 16]), Err(OpenError::Damaged));
}

/// A host in which something happens just before one call.
struct Meanwhile<'a, F> {
    host: &'a mut Fake,
    calls_before: u32,
    what: Option<F>,
}

impl<F: FnOnce(&mut Fake)> Meanwhile<'_, F> {
    fn host(&mut self) -> &mut Fake {
        match self.calls_before.checked_sub(1) {
            Some(left) => self.calls_before = left,
            None => {
                if let Some(what) = self.what.take() {
                    what(self.host);
                }
            }
        }
        self.host
    }
}

impl<F: FnOnce(&mut Fake)> SharedData for Meanwhile<'_, F> {
    fn get(&mut self, key: &str) -> Result<Option<(Vec<u8>, u32)>, HostError> {
        self.host().get(key)
    }
    fn create(&mut self, key: &str, value: &[u8]) -> Result<bool, HostError> {
        self.host().create(key, value)
    }
    fn replace(&mut self, key: &str, value: &[u8], cas: u32) -> Result<bool, HostError> {
        self.host().replace(key, value, cas)
    }
}

fn accepted(sd: &mut Fake, table: &mut Table) -> Version {
    table.apply(sd, &op(1, Action::Claim(claim(1))), 0);
    let accept = Target::Accepted {
        outcome: outcome(1),
        deadline_ms: 5_000,
        blob: Some(answer(1, 100)),
    };
    let accept = transition(1, owner_fence(1, 0), accept, Source::Owner);
    version(&table.apply(sd, &op(1, accept), 1))
}

fn settle(expect: Version, write: u64) -> Action {
    let to = Target::Completed {
        outcome: outcome(write),
        blob: Some(answer(write, 100)),
    };
    let fence = Fence::Version {
        version: expect,
        from: vec![Status::Accepted],
    };
    transition(write, fence, to, Source::Event)
}

#[test]
fn a_reader_overtaken_by_the_final_answer_gets_that() {
    let (mut sd, mut table) = small();
    let seen = accepted(&mut sd, &mut table);
    let mut reader = opened(&mut sd, &budgets(256 << 10, 256 << 10, 64 << 10));
    let host = &mut Meanwhile {
        host: &mut sd,
        calls_before: 1,
        what: Some(|host: &mut Fake| {
            let reply = table.apply(host, &op(1, settle(seen, 2)), 2);
            assert!(matches!(reply, Reply::Applied(_)), "{reply:?}");
        }),
    };
    let incarnation = seen.incarnation;
    let body = reader.apply(host, &op(1, Action::Body { incarnation }), 2);
    assert_eq!(body, Reply::Body(Some(answer(2, 100))));
}

#[test]
fn the_answer_of_a_writer_that_lost_is_removed_and_the_winners_stays() {
    for calls_before in 0..4 {
        let (mut sd, mut table) = small();
        let seen = accepted(&mut sd, &mut table);
        let mut winner = opened(&mut sd, &budgets(256 << 10, 256 << 10, 64 << 10));
        let host = &mut Meanwhile {
            host: &mut sd,
            calls_before,
            what: Some(|host: &mut Fake| {
                let reply = winner.apply(host, &op(1, settle(seen, 2)), 2);
                assert!(matches!(reply, Reply::Applied(_)), "{reply:?}");
            }),
        };
        let lost = table.apply(host, &op(1, settle(seen, 3)), 2);
        assert!(matches!(lost, Reply::Stale(_)), "{calls_before}: {lost:?}");
        let incarnation = seen.incarnation;
        let body = table.apply(&mut sd, &op(1, Action::Body { incarnation }), 3);
        assert_eq!(body, Reply::Body(Some(answer(2, 100))));
        // One answer of 100 octets, and up to three piles with nothing in them.
        let report = table.sweep(&mut sd, 3, 0, u32::MAX);
        assert!(report.bodies_bytes <= 3 * 16 + 40 + 100, "{report:?}");
    }
}

#[test]
fn a_worker_whose_clock_is_behind_still_finds_the_answer() {
    let mut sd = Fake::new();
    let store = budgets(256 << 10, 16 << 10, 64 << 10);
    let mut table = opened(&mut sd, &store);
    let sd = &mut sd;
    let geometry = Geometry::of(&store);
    let bucket = |n: u32| geometry.bucket(&[7; 16], &id(n));
    let other = (2..).find(|n| bucket(*n) != bucket(1)).unwrap();
    table.apply(sd, &op(1, Action::Claim(claim(1))), 0);
    table.apply(sd, &op(1, complete(1, 0, 5, 100)), 0);
    // Ahead by a little, another worker writes to the same pile.
    table.apply(sd, &op(other, Action::Claim(claim(2))), 10_001);
    let reply = table.apply(sd, &op(other, complete(2, 10_001, 6, 100)), 10_001);
    assert!(matches!(reply, Reply::Applied(_)));
    let body = Action::Body {
        incarnation: token(1).incarnation(),
    };
    let reply = table.apply(sd, &op(1, body), 9_999);
    assert_eq!(reply, Reply::Body(Some(answer(5, 100))));
}
