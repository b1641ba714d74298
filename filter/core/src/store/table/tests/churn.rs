//! Many short-lived operations through a small table.

use super::super::fake::Fake;
use super::support::*;
use crate::store::*;

#[test]
fn none_runs_twice_within_its_windows_and_memory_stays_bounded() {
    churn(15_000);
}

/// Natively only: as wasm in Node it takes minutes and shows nothing more.
#[cfg(not(target_arch = "wasm32"))]
#[test]
fn a_million() {
    churn(1_000_000);
}

fn churn(operations: u32) {
    let sd = &mut Fake::new();
    let store = budgets(12 << 20, 8 << 20, 2 << 20);
    let mut table = opened(sd, &store);
    let (mut next_bucket, mut refused, mut gone) = (0, 0_u32, 0_u32);
    for n in 0..operations {
        // 1 000 operations a second; 1 s of replay and 1 s of tombstone.
        let now = u64::from(n);
        let mut first = claim(n.into());
        first.windows.replay_ms = 1_000;
        first.windows.tombstone_ms = 1_000;
        match table.apply(sd, &op(n, Action::Claim(first.clone())), now) {
            Reply::Claimed(_) => {}
            other => panic!("{n}: {other:?}"),
        }
        let mut end = complete(n.into(), now, n.into(), 300);
        if let Action::Transition(Transition {
            fence: Fence::Owner { claim, .. },
            ..
        }) = &mut end
        {
            **claim = first;
        }
        let Reply::Applied(_) = table.apply(sd, &op(n, end), now) else {
            panic!()
        };
        // A duplicate of an earlier one, at any age around its windows.
        let age = n.wrapping_mul(2_654_435_761) % 2_400;
        if let Some(earlier) = n.checked_sub(age) {
            let passed = now - u64::from(earlier);
            let again = if passed < 2_000 {
                Action::Claim(claim(1))
            } else {
                Action::Read
            };
            let reply = table.apply(sd, &op(earlier, again), now);
            match (passed, &reply) {
                (0..1_000, Reply::Current(_)) | (1_000..2_000, Reply::Expired { .. }) => {
                    refused += 1
                }
                (2_000.., Reply::Absent) => gone += 1,
                _ => panic!("{earlier} after {passed} ms: {reply:?}"),
            }
        }
        if n % 16 == 0 {
            next_bucket = table.sweep(sd, now, next_bucket, 1).next_bucket;
        }
        if n % 4_096 == 0 {
            assert!(sd.bytes() <= (12 << 20) + (8 << 20) + (2 << 20) + 56);
        }
    }
    assert!(refused > operations / 2 && gone > operations / 50);
    assert!(sd.keys() <= 384 + 512 + 1, "{}", sd.keys());
}
