//! What happens for want of room.

use super::super::fake::Fake;
use super::super::*;
use super::support::*;
use crate::ids::TenantDigest;
use crate::record::*;
use crate::store::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn a_full_table_refuses_claims_keeps_all_and_still_records_what_runs() {
    let sd = &mut Fake::new();
    let store = budgets(32 << 10, 1 << 20, 8 << 10);
    let mut table = opened(sd, &store);
    let mut claimed = Vec::new();
    for n in 0..40 {
        match table.apply(sd, &op(n, Action::Claim(claim(n.into()))), 0) {
            Reply::Claimed(_) => claimed.push(n),
            Reply::Full(Full::Store) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        claimed.len(),
        14,
        "15 at their largest, and one place for what was lost"
    );
    let lost = table.apply(sd, &op(99, complete(99, 0, 990, 10)), 1);
    assert!(matches!(lost, Reply::Applied(_)), "{lost:?}");
    // Each grows to the largest record that there is, and all fit.
    let text = "x".repeat(300);
    for n in &claimed {
        for write in 0..12 {
            let evidence = Evidence {
                status: Some(599),
                details: text.clone(),
                result: Some([255; 32]),
            };
            let owner = u64::from(*n);
            let unknown = Target::Unknown { evidence };
            let write = 100 * owner + write;
            let unknown = transition(write, owner_fence(owner, 0), unknown, Source::Owner);
            let reply = table.apply(sd, &op(*n, unknown), 1);
            assert!(matches!(reply, Reply::Applied(_)), "{reply:?}");
        }
    }
    assert!(sd.bytes() <= 40 << 10);
    for n in claimed {
        let reply = table.apply(
            sd,
            &op(n, complete(n.into(), 0, 90_000 + u64::from(n), 50)),
            2,
        );
        assert!(matches!(reply, Reply::Applied(_)), "{reply:?}");
    }
    let again = table.apply(sd, &op(39, Action::Claim(claim(39))), 3);
    assert!(
        matches!(again, Reply::Claimed(_)),
        "settled records take less: {again:?}"
    );
}

#[test]
fn tombstones_beyond_their_budget_take_the_records_room_and_none_is_dropped() {
    let sd = &mut Fake::new();
    let mut table = opened(sd, &budgets(6 << 10, 64 << 10, 48));
    let mut done = 0;
    for n in 0..400 {
        let now = u64::from(n) * 10;
        let mut first = claim(n.into());
        first.windows.replay_ms = 20;
        first.windows.tombstone_ms = 1_000_000;
        match table.apply(sd, &op(n, Action::Claim(first.clone())), now) {
            Reply::Claimed(_) => {
                let mut end = complete(n.into(), now, n.into(), 10);
                if let Action::Transition(Transition {
                    fence: Fence::Owner { claim, .. },
                    ..
                }) = &mut end
                {
                    **claim = first;
                }
                let reply = table.apply(sd, &op(n, end), now);
                assert!(matches!(reply, Reply::Applied(_)));
                done = n;
            }
            Reply::Full(Full::Store) => break,
            other => panic!("{other:?}"),
        }
        assert!(sd.bytes() <= (6 << 10) + 48 + (64 << 10) + 56);
    }
    assert!(done > 50 && done < 300, "{done}");
    for n in 0..=done {
        let reply = table.apply(sd, &op(n, Action::Claim(claim(1_000))), 10_000);
        assert_eq!(reply, Reply::Expired { unresolved: false }, "{n}");
    }
}

#[test]
fn an_answer_without_room_is_remembered_without_it() {
    let sd = &mut Fake::new();
    let mut table = opened(sd, &budgets(64 << 10, 8 << 10, 8 << 10));
    table.apply(sd, &op(1, Action::Claim(claim(1))), 0);
    let reply = table.apply(sd, &op(1, complete(1, 0, 5, 9_000)), 1);
    let Reply::Applied(record) = reply else {
        panic!("{reply:?}")
    };
    let State::Completed { outcome, .. } = &record.state else {
        panic!()
    };
    assert_eq!(outcome.replay, Replayable::StoreFull);
    let read = table.apply(sd, &op(1, Action::Read), 2);
    assert_eq!(read, Reply::Current(record.clone()));
    let body = Action::Body {
        incarnation: record.version.incarnation,
    };
    assert_eq!(table.apply(sd, &op(1, body), 2), Reply::Current(record));
    assert!(
        table.sweep(sd, 2, 0, u32::MAX).bodies_bytes <= 16,
        "nothing of it remains"
    );
}

#[test]
fn a_settled_record_without_room_for_evidence_stays_as_it_is() {
    let sd = &mut Fake::new();
    let mut table = opened(sd, &budgets(5 << 10, 8 << 10, 0));
    let mut n = 0;
    // Fill up with settled records.
    loop {
        n += 1;
        let reply = table.apply(sd, &op(n, Action::Claim(claim(n.into()))), 0);
        if reply == Reply::Full(Full::Store) {
            break;
        }
        table.apply(sd, &op(n, complete(n.into(), 0, n.into(), 8)), 0);
    }
    let mut full = false;
    for write in 1_000..1_040 {
        let before = table.apply(sd, &op(1, Action::Read), 1);
        let reply = table.apply(sd, &op(1, complete(1, 0, write, 8)), 1);
        let Reply::Stale(record) = reply else {
            panic!("{reply:?}")
        };
        let after = table.apply(sd, &op(1, Action::Read), 1);
        full |= before == after;
        assert_eq!(after, Reply::Current(record));
        assert!(table.sweep(sd, 1, 0, 9).charged_bytes <= 5 << 10);
    }
    assert!(
        !full,
        "room for one operation is kept free, and eight events fit in it"
    );
    // Restored records use that room up; then evidence finds none.
    let mut restored = 0;
    while matches!(
        table.apply(sd, &op(500 + restored, complete(500, 0, 9_000, 8)), 1),
        Reply::Applied(_)
    ) {
        restored += 1;
    }
    let before = table.apply(sd, &op(2, Action::Read), 1);
    for write in 2_000..2_008 {
        let reply = table.apply(sd, &op(2, complete(2, 0, write, 8)), 1);
        assert!(matches!(reply, Reply::Stale(_)), "{reply:?}");
        assert!(table.sweep(sd, 1, 0, 9).charged_bytes <= 5 << 10);
    }
    assert!(restored > 0 && matches!(before, Reply::Current(_)));
}

fn claim_of(tenant: u8, owner: u64, quota: u64) -> Action {
    Action::Claim(Claim {
        tenant: TenantDigest([tenant; 8]),
        tenant_quota: Some(quota),
        ..claim(owner)
    })
}

#[test]
fn a_tenant_stops_at_its_quota_and_windows_give_it_back() {
    let sd = &mut Fake::new();
    let mut table = opened(sd, &budgets(256 << 10, 1 << 20, 64 << 10));
    for n in 0..5 {
        let reply = table.apply(sd, &op(n, claim_of(1, n.into(), 5)), 0);
        assert!(matches!(reply, Reply::Claimed(_)));
        // A repeat and a duplicate are not counted.
        table.apply(sd, &op(n, claim_of(1, n.into(), 5)), 0);
        table.apply(sd, &op(n, claim_of(1, 99, 5)), 0);
    }
    let full = Reply::Full(Full::Tenant);
    assert_eq!(table.apply(sd, &op(9, claim_of(1, 9, 5)), 0), full);
    assert!(matches!(
        table.apply(sd, &op(8, claim_of(2, 8, 5)), 0),
        Reply::Claimed(_)
    ));
    let cancel = Action::Cancel { owner: token(0) };
    assert_eq!(table.apply(sd, &op(0, cancel), 0), Reply::Cancelled);
    assert!(matches!(
        table.apply(sd, &op(9, claim_of(1, 9, 5)), 0),
        Reply::Claimed(_)
    ));
    assert_eq!(table.apply(sd, &op(10, claim_of(1, 10, 5)), 0), full);
    table.apply(sd, &op(9, complete(9, 0, 1, 10)), 0);
    table.sweep(sd, 10_000, 0, u32::MAX);
    let reply = table.apply(sd, &op(10, claim_of(1, 10, 5)), 10_000);
    assert!(
        matches!(reply, Reply::Claimed(_)),
        "a tombstone is not a live record: {reply:?}"
    );
}

#[test]
fn a_recount_gives_back_what_a_crash_has_leaked() {
    let sd = &mut Fake::new();
    let mut table = opened(sd, &budgets(256 << 10, 1 << 20, 64 << 10));
    table.apply(sd, &op(1, claim_of(1, 1, 3)), 0);
    // A crash between the counter and the record, twice.
    for _ in 0..2 {
        assert!(quota::raise(sd, TenantDigest([1; 8]), 3).unwrap());
    }
    assert_eq!(
        table.apply(sd, &op(2, claim_of(1, 2, 3)), 0),
        Reply::Full(Full::Tenant)
    );
    let mut next = 0;
    loop {
        next = table.sweep(sd, 1, next, 3).next_bucket;
        if next == 0 {
            break;
        }
    }
    for n in 2..4 {
        let reply = table.apply(sd, &op(n, claim_of(1, n.into(), 3)), 2);
        assert!(matches!(reply, Reply::Claimed(_)), "{reply:?}");
    }
    assert_eq!(
        table.apply(sd, &op(4, claim_of(1, 4, 3)), 2),
        Reply::Full(Full::Tenant)
    );
}
