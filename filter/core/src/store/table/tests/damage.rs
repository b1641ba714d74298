//! Values that somebody or something has damaged (rule 9), and a host that fails.

use super::super::bucket::{Bucket, Damaged, Found};
use super::super::fake::Fake;
use super::super::*;
use super::support::*;
use crate::record::{Replayable, State};
use crate::store::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const STORE: SharedDataStore = SharedDataStore {
    records_bytes: 32 << 10,
    bodies_bytes: 16 << 10,
    tombstones_bytes: 4 << 10,
};

#[test]
fn no_damaged_octet_makes_an_operation_absent() {
    let sd = &mut Fake::new();
    let mut table = opened(sd, &STORE);
    // One that is over, one that runs, one that is done.
    table.apply(sd, &op(1, Action::Claim(claim(1))), 0);
    table.apply(sd, &op(1, complete(1, 0, 1, 50)), 0);
    table.sweep(sd, 10_000, 0, 1);
    table.apply(sd, &op(2, Action::Claim(claim(2))), 10_000);
    table.apply(sd, &op(3, Action::Claim(claim(3))), 10_000);
    table.apply(sd, &op(3, complete(3, 0, 3, 50)), 10_000);
    let good = sd.get("idempo/1/r/0").unwrap().unwrap().0;
    let right: Vec<_> = (1..4)
        .map(|n| table.apply(sd, &op(n, Action::Claim(claim(9))), 10_001))
        .collect();
    assert!(!right.iter().any(|r| matches!(r, Reply::Claimed(_))));
    let mut cases: Vec<Vec<u8>> = (1..good.len()).map(|at| good[..at].to_vec()).collect();
    for at in 0..good.len() {
        for bit in [1, 0x80] {
            let mut bad = good.clone();
            bad[at] ^= bit;
            cases.push(bad);
        }
    }
    cases.push([good.as_slice(), b"more"].concat());
    cases.push(vec![0; 2_000]);
    for bad in cases {
        sd.overwrite("idempo/1/r/0", &bad);
        for n in 1..4 {
            let reply = table.apply(sd, &op(n, Action::Claim(claim(9))), 10_001);
            let same = reply == right[n as usize - 1];
            assert!(same || reply == Reply::Corrupt, "{n} {reply:?}");
        }
        table.sweep(sd, 10_001, 0, 1);
        assert_eq!(
            sd.get("idempo/1/r/0").unwrap().unwrap().0,
            bad,
            "never overwritten"
        );
    }
}

#[test]
fn a_damaged_record_harms_nobody_else_and_is_reported() {
    let sd = &mut Fake::new();
    let mut table = opened(sd, &STORE);
    for n in 1..4 {
        table.apply(sd, &op(n, Action::Claim(claim(n.into()))), 0);
    }
    let mut value = sd.get("idempo/1/r/0").unwrap().unwrap().0;
    let last = value.len() - 1;
    value[last] ^= 1;
    sd.overwrite("idempo/1/r/0", &value);
    assert_eq!(table.apply(sd, &op(3, Action::Read), 1), Reply::Corrupt);
    assert_eq!(
        table.apply(sd, &op(3, complete(3, 0, 1, 10)), 1),
        Reply::Corrupt
    );
    let done = table.apply(sd, &op(2, complete(2, 0, 2, 10)), 1);
    assert!(matches!(done, Reply::Applied(_)), "{done:?}");
    let report = table.sweep(sd, 1_000, 0, 1);
    assert_eq!((report.damaged, report.transitions.len()), (1, 1));
    assert_eq!(
        table.apply(sd, &op(3, Action::Claim(claim(9))), 1_000),
        Reply::Corrupt
    );
    // Its head still says when it is over.
    let reply = table.apply(sd, &op(4, Action::Claim(claim(4))), 40_000);
    assert!(matches!(reply, Reply::Claimed(_)));
    let reply = table.apply(sd, &op(3, Action::Claim(claim(9))), 40_000);
    assert_eq!(reply, Reply::Expired { unresolved: true });
}

#[test]
fn a_missing_or_damaged_answer_is_no_answer() {
    for damage in [b"rubbish".as_slice(), b""] {
        let sd = &mut Fake::new();
        let mut table = opened(sd, &STORE);
        table.apply(sd, &op(1, Action::Claim(claim(1))), 0);
        table.apply(sd, &op(1, complete(1, 0, 1, 50)), 0);
        sd.overwrite("idempo/1/b/0", damage);
        let body = Action::Body {
            incarnation: token(1).incarnation(),
        };
        assert_eq!(table.apply(sd, &op(1, body), 1), Reply::Body(None));
        // And its pile takes no more: what is remembered is remembered without its answer.
        table.apply(sd, &op(2, Action::Claim(claim(2))), 0);
        let done = table.apply(sd, &op(2, complete(2, 0, 2, 50)), 1);
        let Reply::Applied(record) = done else {
            panic!("{done:?}")
        };
        let State::Completed { outcome, .. } = record.state else {
            panic!()
        };
        assert_eq!(outcome.replay, Replayable::StoreFull);
    }
}

/// Fails at one call, having done it or not.
struct Failing<'a> {
    host: &'a mut Fake,
    left: u32,
    done: bool,
}

impl Failing<'_> {
    fn call<R>(
        &mut self,
        f: impl FnOnce(&mut Fake) -> Result<R, HostError>,
    ) -> Result<R, HostError> {
        if self.left == 0 {
            if self.done {
                let _ = f(self.host);
            }
            return Err(HostError("the host said no".into()));
        }
        self.left -= 1;
        f(self.host)
    }
}

impl SharedData for Failing<'_> {
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

#[test]
fn a_step_that_failed_anywhere_can_be_repeated() {
    for left in 0..4 {
        for done in [false, true] {
            let host = &mut Fake::new();
            let mut table = opened(host, &STORE);
            table.apply(host, &op(1, Action::Claim(claim(1))), 0);
            let end = op(1, complete(1, 0, 1, 50));
            let failed = table.apply(&mut Failing { host, left, done }, &end, 1);
            assert!(matches!(failed, Reply::Failed(_)), "{failed:?}");
            let again = table.apply(host, &end, 2);
            assert!(
                matches!(again, Reply::Applied(_) | Reply::Already(_)),
                "{again:?}"
            );
            let body = Action::Body {
                incarnation: token(1).incarnation(),
            };
            let mut other = opened(host, &STORE);
            assert_eq!(
                other.apply(host, &op(1, body), 3),
                Reply::Body(Some(answer(1, 50)))
            );
        }
    }
}

#[test]
fn hostile_counts_are_refused_without_room_for_them() {
    let mut value = vec![0xd7, 0xb5, 1, 0];
    value.extend_from_slice(&u32::MAX.to_le_bytes());
    value.extend_from_slice(&u32::MAX.to_le_bytes());
    value.resize(200, 0);
    assert_eq!(Bucket::read(&value).unwrap_err(), Damaged);
    assert!(matches!(
        Bucket::read(&[]).unwrap().find(&id(1), 0),
        Found::Nothing
    ));
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use super::super::super::bucket::{Bucket, Head, Tombstone};
    use super::*;
    use crate::record::encode;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_octets_never_panic(
            head in any::<bool>(),
            mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            if head {
                bytes.splice(0..0, [0xd7, 0xb5, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
            }
            if let Ok(bucket) = Bucket::read(&bytes) {
                let _ = bucket.find(&id(1), 0);
                let _ = bucket.draft(7).write();
            }
        }

        #[test]
        fn buckets_come_back_as_written(
            ids in prop::collection::btree_set(0_u32..1_000, 0..20),
            tombs in prop::collection::vec((any::<[u8; 16]>(), 1_u64..1 << 62, any::<bool>()), 0..9),
            counted in any::<bool>(),
        ) {
            let mut draft = Bucket::default().draft(0);
            let record = completed(50, 1_000);
            for n in &ids {
                draft.put(Head::of(id(*n), &record, None, counted), encode(&record));
            }
            draft.tombstones.extend(tombs.iter().map(|(prefix, gone_at, unresolved)| Tombstone {
                prefix: *prefix,
                gone_at: *gone_at,
                unresolved: *unresolved,
            }));
            let value = draft.write();
            let bucket = Bucket::read(&value).unwrap();
            prop_assert_eq!(bucket.draft(0).write(), value.clone());
            prop_assert_eq!(bucket.entries().count(), ids.len());
            prop_assert_eq!(bucket.tombstones().collect::<Vec<_>>(), draft.tombstones);
        }
    }
}
