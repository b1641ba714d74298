use super::directory::{self, Journal};
use super::*;
use crate::store::table::fake::Fake;
use crate::store::table::testing::{complete, id, op, token};
use crate::store::table::{HostError, SharedData};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const STORE: &str = "redis payments";

fn holder(n: u64) -> Backlog {
    Backlog::new(STORE, n)
}

/// A completion of that operation, told by its answer.
fn write(n: u32) -> Op {
    op(n, complete(n.into(), 0, n.into(), 20))
}

fn cancel(n: u32) -> Op {
    op(
        n,
        Action::Cancel {
            owner: token(n.into()),
        },
    )
}

fn ops(due: Vec<(u64, Op)>) -> Vec<Op> {
    due.into_iter().map(|(_, op)| op).collect()
}

/// Ticks until nothing more is adopted; how many were.
fn adopt(backlog: &mut Backlog, sd: &mut dyn SharedData, now: u64) -> usize {
    (0..40).map(|_| backlog.tick(sd, now)).sum()
}

fn journals(sd: &mut Fake) -> Vec<Journal> {
    let key = holder(1).key;
    let value = sd.get(&key).unwrap();
    value.map_or_else(Vec::new, |(value, _)| directory::decode(&value).unwrap())
}

/// A host that does something else before one of its calls, or refuses from there on.
struct Host<'a, F: FnMut(&mut Fake)> {
    fake: &'a mut Fake,
    calls_before: u32,
    what: F,
    refuses: bool,
}

impl<F: FnMut(&mut Fake)> Host<'_, F> {
    fn call(&mut self) -> Result<&mut Fake, HostError> {
        if self.calls_before == 0 && self.refuses {
            return Err(HostError("refused".into()));
        }
        if self.calls_before == 0 {
            (self.what)(self.fake);
            self.calls_before = u32::MAX;
        }
        self.calls_before -= 1;
        Ok(self.fake)
    }
}

impl<F: FnMut(&mut Fake)> SharedData for Host<'_, F> {
    fn get(&mut self, key: &str) -> Result<Option<(Vec<u8>, u32)>, HostError> {
        self.call()?.get(key)
    }
    fn create(&mut self, key: &str, value: &[u8]) -> Result<bool, HostError> {
        self.call()?.create(key, value)
    }
    fn replace(&mut self, key: &str, value: &[u8], cas: u32) -> Result<bool, HostError> {
        self.call()?.replace(key, value, cas)
    }
}

fn refusing(fake: &mut Fake, calls_before: u32) -> Host<'_, fn(&mut Fake)> {
    Host {
        fake,
        calls_before,
        what: |_| {},
        refuses: true,
    }
}

#[test]
fn what_waits_to_be_asserted_is_not_kept_again() {
    let mut sd = Fake::new();
    let mut backlog = holder(1);
    backlog.assert(&mut sd, write(1), 1_000);
    backlog.assert(&mut sd, cancel(1), 1_000);
    assert_eq!(backlog.len(), 2);
    let due = backlog.due(1_000, 1);
    assert_eq!(ops(due), [write(1)]);
    // As at each notice of a loss, until the store takes it.
    for at in 1_001..1_020 {
        backlog.assert(&mut sd, write(1), at);
        backlog.assert(&mut sd, cancel(1), at);
    }
    assert_eq!(backlog.len(), 2);
    // What was never acknowledged is kept beyond this VM, and need not be asserted beside.
    assert_eq!(backlog.defer(&mut sd, write(2), true, 2_000), Kept::Durable);
    backlog.assert(&mut sd, write(2), 2_000);
    assert_eq!(backlog.len(), 3);
}

#[test]
fn a_vm_that_keeps_nothing_leaves_nothing() {
    let sd = &mut Fake::new();
    let mut backlog = holder(1);
    assert_eq!(backlog.tick(sd, 0), 0);
    let read = op(1, Action::Read);
    assert!(matches!(
        backlog.defer(sd, read, true, 1),
        Kept::InMemory(_)
    ));
    assert!(matches!(
        backlog.defer(sd, write(2), false, 1),
        Kept::InMemory(_)
    ));
    assert_eq!(backlog.due(1, 9).len(), 2);
    backlog.tick(sd, 2_000);
    backlog.close(sd);
    assert_eq!(sd.keys(), 0);
}

#[test]
fn what_a_crashed_vm_kept_is_adopted_when_its_lease_is_over() {
    let sd = &mut Fake::new();
    let mut first = holder(1);
    let kept = [write(1), cancel(2), write(3)];
    for op in &kept {
        assert_eq!(first.defer(sd, op.clone(), true, 100), Kept::Durable);
    }
    first.tick(sd, 1_200);
    drop(first);
    let mut second = holder(2);
    assert_eq!(adopt(&mut second, sd, 4_199), 0, "the lease stands");
    assert_eq!(adopt(&mut second, sd, 4_200), 3);
    assert_eq!(ops(second.due(4_200, 9)), kept);
    assert!(second.due(4_200, 9).is_empty(), "each once");
}

#[test]
fn what_a_root_gave_away_is_adopted_at_once() {
    let sd = &mut Fake::new();
    let (mut first, mut second) = (holder(1), holder(2));
    first.defer(sd, write(1), true, 0);
    let under_way = first.due(0, 1)[0].0;
    first.close(sd);
    assert!(first.is_empty() && first.due(9_999, 9).is_empty());
    assert_eq!(second.tick(sd, 1), 1);
    // An answer that comes to the old root changes nothing for the new one.
    first.done(sd, under_way);
    first.again(under_way, 2);
    assert_eq!(ops(second.due(1, 9)), [write(1)]);
}

#[test]
fn what_is_done_is_never_adopted_and_its_keys_serve_again() {
    let sd = &mut Fake::new();
    for n in 1..=2_000 {
        let mut backlog = holder(n);
        adopt(&mut backlog, sd, n * 10_000);
        assert!(backlog.is_empty());
        for write in [write(1), write(2), cancel(3)] {
            assert_eq!(backlog.defer(sd, write, true, n * 10_000), Kept::Durable);
        }
        for (id, _) in backlog.due(n * 10_000, 9) {
            backlog.done(sd, id);
        }
        if n % 2 == 0 {
            backlog.close(sd);
        }
    }
    assert!(sd.keys() <= 1 + 2 * 3, "{}", sd.keys());
    assert!(sd.bytes() < 200, "{}", sd.bytes());
}

#[test]
fn stores_are_kept_apart() {
    let sd = &mut Fake::new();
    Backlog::new("one", 1).defer(sd, write(1), true, 0);
    assert_eq!(adopt(&mut Backlog::new("another", 2), sd, 9_000), 0);
    assert_eq!(adopt(&mut Backlog::new("one", 3), sd, 9_000), 1);
}

#[test]
fn waits_double_up_to_half_a_minute_and_differ() {
    let sd = &mut Fake::new();
    let mut backlog = holder(1);
    let mut firsts = std::collections::BTreeSet::new();
    for n in 0..50 {
        backlog.defer(sd, write(n), false, 0);
        let (id, _) = backlog.due(0, 1)[0];
        let mut now = 0;
        for longest in [
            200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000,
        ] {
            backlog.again(id, now);
            assert!(backlog.due(now + longest / 2 - 1, 1).is_empty());
            let due = (longest / 2..=longest).find(|wait| !backlog.due(now + wait, 1).is_empty());
            now += due.unwrap();
            if longest == 200 {
                firsts.insert(now);
            }
        }
        backlog.done(sd, id);
    }
    assert!(firsts.len() > 20, "{firsts:?}");
}

#[test]
fn writes_of_one_operation_keep_their_order() {
    let sd = &mut Fake::new();
    let mut backlog = holder(1);
    backlog.defer(sd, cancel(1), true, 0);
    backlog.defer(sd, write(1), true, 0);
    backlog.defer(sd, write(2), true, 0);
    let due = backlog.due(0, 9);
    let first = due[0].0;
    assert_eq!(ops(due), [cancel(1), write(2)]);
    backlog.again(first, 0);
    assert!(backlog.due(99, 9).is_empty());
    assert_eq!(ops(backlog.due(200, 9)), [cancel(1)]);
    backlog.done(sd, first);
    assert_eq!(ops(backlog.due(200, 9)), [write(1)]);
}

#[test]
fn a_store_that_is_back_gets_everything_within_a_second() {
    let sd = &mut Fake::new();
    let mut backlog = holder(1);
    for n in 0..50 {
        backlog.defer(sd, write(n), false, 0);
    }
    for _ in 0..12 {
        for (id, _) in backlog.due(u64::MAX, 99) {
            backlog.again(id, 100_000);
        }
    }
    assert!(backlog.due(110_000, 99).is_empty());
    backlog.hurry(110_000);
    let soon = backlog.due(110_300, 99).len();
    assert!((3..35).contains(&soon), "spread: {soon}");
    let rest = backlog.due(111_000, 99);
    assert_eq!(soon + rest.len(), 50);
    backlog.again(rest[0].0, 111_000);
    assert_eq!(backlog.due(111_200, 99).len(), 1, "waits begin anew");
}

#[test]
fn a_full_backlog_drops_cancellations_first() {
    let sd = &mut Fake::new();
    let mut backlog = holder(1);
    backlog.defer(sd, write(9_000), true, 0);
    backlog.defer(sd, cancel(9_001), true, 0);
    for n in 2..MAX_WRITES as u32 {
        assert!(matches!(
            backlog.defer(sd, write(n), false, 0),
            Kept::InMemory(_)
        ));
        let fill = backlog.fill_permille();
        assert_eq!(fill >= 750, n as usize + 1 >= MAX_WRITES * 3 / 4, "{n}");
    }
    assert_eq!(backlog.fill_permille(), 1000);
    let dropped = |op| Kept::Dropped(op);
    assert_eq!(
        backlog.defer(sd, write(9_002), true, 1),
        dropped(cancel(9_001))
    );
    assert_eq!(
        backlog.defer(sd, cancel(9_003), true, 1),
        dropped(cancel(9_003))
    );
    assert_eq!(
        backlog.defer(sd, write(9_004), true, 1),
        dropped(write(9_000))
    );
    assert_eq!(backlog.len(), MAX_WRITES);
    assert_eq!(backlog.fill_permille(), 1000);
    // What was dropped is nobody's any more, what it made room for is.
    backlog.close(sd);
    let mut next = holder(2);
    assert_eq!(adopt(&mut next, sd, 2), 2);
    assert_eq!(ops(next.due(2, 9)), [write(9_002), write(9_004)]);
}

#[test]
fn answers_beyond_the_bound_are_left_out_and_their_writes_kept() {
    let sd = &mut Fake::new();
    let mut backlog = holder(1);
    let large = |n: u32| op(n, complete(1, 0, n.into(), 30 << 20));
    for n in 0..3 {
        assert_eq!(backlog.defer(sd, large(n), true, 0), Kept::Durable);
    }
    assert_eq!(backlog.fill_permille(), 937);
    let due = ops(backlog.due(0, 9));
    assert_eq!(due[..2], [large(0), large(1)]);
    let mut expected = large(2);
    leave_answer_out(&mut expected);
    assert_eq!(octets_of(&expected), 0);
    assert_eq!(due[2], expected);
    // An adopter with room for one of them waits for more rather than lose one.
    let mut next = holder(2);
    next.defer(sd, op(7, complete(1, 0, 7, 20 << 20)), false, 0);
    assert_eq!(adopt(&mut next, sd, 3_000), 1);
    let own = next.due(3_000, 9);
    assert_eq!(own.len(), 1, "nothing of a journal that is not read whole");
    next.done(sd, own[0].0);
    assert_eq!(adopt(&mut next, sd, 3_000), 2);
    assert_eq!(ops(next.due(3_000, 9)), due);
}

#[test]
fn a_host_that_refuses_makes_it_wait_in_memory_and_is_asked_again() {
    for calls in 0..6 {
        let sd = &mut Fake::new();
        let mut backlog = holder(1);
        let kept = backlog.defer(&mut refusing(sd, calls), write(1), true, 0);
        let Kept::InMemory(why) = kept else {
            assert_eq!((kept, calls), (Kept::Durable, 5));
            continue;
        };
        assert!(calls < 5);
        assert_eq!(why, "refused");
        assert_eq!(backlog.len(), 1);
        backlog.tick(sd, 100);
        drop(backlog);
        let mut next = holder(2);
        assert_eq!(adopt(&mut next, sd, 9_000), 1, "refused after {calls}");
        assert_eq!(ops(next.due(9_000, 9)), [write(1)]);
    }
}

#[test]
fn a_slot_that_could_not_be_freed_is_freed_later() {
    for calls in 0..2 {
        let sd = &mut Fake::new();
        let mut backlog = holder(1);
        backlog.defer(sd, write(1), true, 0);
        let (id, _) = backlog.due(0, 1)[0];
        backlog.done(&mut refusing(sd, calls), id);
        assert!(backlog.is_empty());
        backlog.tick(sd, 100);
        drop(backlog);
        assert_eq!(adopt(&mut holder(2), sd, 9_000), 0);
    }
}

#[test]
fn a_paused_holder_leaves_what_another_has_adopted_alone() {
    let sd = &mut Fake::new();
    let (mut paused, mut other) = (holder(1), holder(2));
    paused.defer(sd, write(1), true, 0);
    assert_eq!(adopt(&mut other, sd, 3_000), 1);
    let (id, _) = other.due(3_000, 1)[0];
    other.done(sd, id);
    other.defer(sd, write(2), true, 3_000);
    // It wakes, and has not noticed: the slot is another's.
    let (id, _) = paused.due(3_001, 1)[0];
    paused.done(sd, id);
    assert_eq!(paused.defer(sd, write(3), true, 3_001), Kept::Durable);
    let list = journals(sd);
    assert_eq!((list[0].holder, list[1].holder), (2, 1));
    drop((paused, other));
    let mut last = holder(3);
    assert_eq!(adopt(&mut last, sd, 9_000), 2);
    assert_eq!(ops(last.due(9_000, 9)), [write(2), write(3)]);
}

#[test]
fn a_paused_holder_goes_on_with_what_it_has_in_memory() {
    let sd = &mut Fake::new();
    let (mut paused, mut other) = (holder(1), holder(2));
    paused.defer(sd, write(1), true, 0);
    assert_eq!(adopt(&mut other, sd, 3_000), 1);
    assert_eq!(paused.tick(sd, 3_001), 0);
    assert_eq!(ops(paused.due(3_001, 9)), [write(1)]);
    paused.close(sd);
    assert!(paused.is_empty(), "another has it");
    // Who lost it may get it back, and then has it once.
    let mut paused = holder(4);
    paused.defer(sd, write(5), true, 3_001);
    adopt(&mut other, sd, 7_000);
    drop(other);
    paused.tick(sd, 7_001);
    assert_eq!(adopt(&mut paused, sd, 10_001), 1);
    assert_eq!(ops(paused.due(10_001, 9)), [write(1), write(5)]);
}

#[test]
fn of_two_adopters_one_gets_a_journal() {
    for calls_before in 0..4 {
        let sd = &mut Fake::new();
        holder(1).defer(sd, write(1), true, 0);
        let (mut a, mut b) = (holder(2), holder(3));
        let mut adopted = 0;
        let host = &mut Host {
            fake: sd,
            calls_before,
            what: |fake| adopted += b.tick(fake, 3_000),
            refuses: false,
        };
        let own = a.tick(host, 3_000);
        assert_eq!(own + adopted, 1, "before call {calls_before}");
    }
}

/// A lease runs out while its holder is in the middle of a call: whatever the other does in between,
/// what was said to be durable is found, and what was done is not.
#[test]
fn adoption_in_the_middle_of_a_call_loses_nothing() {
    for calls_before in 0..9 {
        let sd = &mut Fake::new();
        let (mut a, mut b) = (holder(1), holder(2));
        let mut happened = false;
        a.defer(sd, write(1), true, 0);
        let host = &mut Host {
            fake: sd,
            calls_before,
            what: |fake| {
                adopt(&mut b, fake, 3_000);
                b.defer(fake, write(2), true, 3_000);
                happened = true;
            },
            refuses: false,
        };
        assert_eq!(a.defer(host, write(3), true, 3_000), Kept::Durable);
        let (id, _) = a.due(3_000, 1)[0];
        a.done(host, id);
        drop(a);
        adopt(&mut b, sd, 6_500);
        let mut found = ops(b.due(6_500, 9));
        // The other may have adopted the first before it was done.
        found.retain(|op| *op != write(1));
        // Two of the seven renew the lease, which is overdue.
        assert_eq!(happened, calls_before < 7, "before call {calls_before}");
        let bs_own = happened.then(|| write(2));
        let expected: Vec<Op> = bs_own.into_iter().chain([write(3)]).collect();
        found.sort_by_key(|op| expected.iter().position(|e| e == op));
        assert_eq!(found, expected, "before call {calls_before}");
    }
}

#[test]
fn what_cannot_be_read_is_counted_and_stays() {
    let sd = &mut Fake::new();
    let mut first = holder(1);
    for n in 0..4 {
        first.defer(sd, write(n), true, 0);
    }
    first.close(sd);
    let slot = |n: u32| format!("{}/0/{n}", holder(1).key);
    let mut future = sd.get(&slot(2)).unwrap().unwrap().0;
    future[2] = 2;
    sd.overwrite(&slot(0), b"rubbish");
    sd.overwrite(&slot(2), &future);
    let mut now = 1;
    for n in 2..5 {
        let mut next = holder(n);
        let adopted = adopt(&mut next, sd, now);
        assert_eq!(next.damaged(), 2);
        let due = next.due(now, 9);
        assert_eq!(due.len(), adopted);
        assert_eq!(adopted, if n == 2 { 2 } else { 1 });
        for (id, _) in due {
            next.done(sd, id);
        }
        next.defer(sd, write(20), true, now);
        assert_eq!(sd.get(&slot(0)).unwrap().unwrap().0, b"rubbish");
        assert_eq!(sd.get(&slot(2)).unwrap().unwrap().0, future);
        if n == 3 {
            next.close(sd);
        }
        now += 3_000;
    }
    assert_eq!((journals(sd).len(), sd.keys()), (1, 5));
}

#[test]
fn a_directory_that_cannot_be_read_stays_and_is_counted_once() {
    let sd = &mut Fake::new();
    let key = holder(1).key;
    for rubbish in [&b"x"[..], &[0xd7, 0xb7, 2, 0, 0, 0, 0, 0], &[0xff; 40]] {
        sd.overwrite(&key, rubbish);
        let mut backlog = holder(1);
        let kept = backlog.defer(sd, write(1), true, 0);
        assert!(matches!(kept, Kept::InMemory(_)), "{kept:?}");
        backlog.tick(sd, 0);
        backlog.tick(sd, 2_000);
        assert_eq!(backlog.damaged(), 1);
        assert_eq!(backlog.due(2_000, 9).len(), 1);
        backlog.close(sd);
        assert_eq!(sd.get(&key).unwrap().unwrap().0, rubbish);
    }
}

#[test]
fn a_long_journal_is_adopted_over_several_ticks_and_in_order() {
    let sd = &mut Fake::new();
    let mut first = holder(1);
    let count = 1_500_u32;
    for n in 0..count {
        first.defer(sd, write(n), true, n.into());
    }
    // Free slots in the middle are used again: the order is not that of the slots.
    for (id, _) in first.due(0, 2_000).into_iter().take(500) {
        first.done(sd, id);
    }
    for n in count..count + 400 {
        first.defer(sd, write(n), true, n.into());
    }
    let (keys, left) = (sd.keys(), first.len());
    drop(first);
    let mut next = holder(2);
    let mut ticks = 0;
    while next.len() < left {
        let adopted = next.tick(sd, 9_000);
        assert!(adopted <= 512);
        assert!(next.due(9_000, 1).is_empty() || next.len() == left);
        ticks += 1;
    }
    assert!(ticks >= 3, "{ticks}");
    adopt(&mut next, sd, 9_000);
    let due: Vec<u64> = next.due(9_000, 5_000).iter().map(|(id, _)| *id).collect();
    assert!(due.len() >= left - 1 && due.is_sorted());
    assert_eq!(sd.keys(), keys);
}

#[test]
fn the_directory_round_trips_and_notices_damage() {
    let list = vec![
        Journal {
            holder: u64::MAX,
            lease_until: 7,
            slots: 64,
            left: false,
        },
        Journal {
            holder: 0,
            lease_until: 0,
            slots: u32::MAX,
            left: true,
        },
    ];
    let octets = directory::encode(&list);
    assert_eq!(directory::decode(&octets), Some(list));
    for at in 0..octets.len() {
        let mut bad = octets.clone();
        bad[at] ^= 4;
        assert_eq!(directory::decode(&bad), None, "octet {at}");
        assert_eq!(directory::decode(&octets[..at]), None, "cut at {at}");
    }
}

#[test]
fn ids_nobody_knows_are_nothing() {
    let sd = &mut Fake::new();
    let mut backlog = holder(0);
    backlog.done(sd, 5);
    backlog.again(5, u64::MAX);
    assert_eq!(backlog.defer(sd, write(1), true, u64::MAX), Kept::Durable);
    assert_eq!(backlog.due(u64::MAX, 9).len(), 1);
    assert_eq!(id(1), write(1).operation);
}

#[test]
fn who_keeps_a_write_is_not_silent() {
    let mut sd = Fake::new();
    let (mut late, mut other) = (holder(1), holder(2));
    assert_eq!(late.defer(&mut sd, write(1), true, 1_000), Kept::Durable);
    // It is held up, and its next tick is still to come.
    assert_eq!(late.defer(&mut sd, write(2), true, 3_900), Kept::Durable);
    assert_eq!(adopt(&mut other, &mut sd, 4_000), 0);
    assert_eq!(adopt(&mut other, &mut sd, 6_899), 0);
    assert_eq!(adopt(&mut other, &mut sd, 6_900), 2);
}
