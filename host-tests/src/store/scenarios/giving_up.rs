//! Cancellations, releases, take-overs, and records that were lost.

use super::*;

pub(super) fn release(desk: &mut Desk<'_>) {
    let first = desk.claims(1);
    let stranger = desk.cancel(2);
    assert_eq!(desk.step(stranger), Reply::Stale(first.clone()));
    assert_eq!(desk.step(desk.cancel(1)), Reply::Cancelled);
    assert_eq!(desk.step(Action::Read), Reply::Absent);
    assert_eq!(desk.step(desk.cancel(1)), Reply::Cancelled, "a repeat");
    desk.wait(2);
    assert!(desk.claims(3).generation > first.generation);
    // Also once the lease is over, and noted: the owner says that it sent nothing.
    let mut claim = desk.claim(4);
    claim.lease_ms = SHORT;
    desk.call(&[(2, Action::Claim(claim))]);
    desk.wait(SHORT);
    let other = Action::Claim(desk.claim(5));
    let replies = desk.call(&[(2, other), (2, desk.cancel(4)), (2, Action::Read)]);
    assert_eq!(replies[1..], [Reply::Cancelled, Reply::Absent]);
}

pub(super) fn cancel_spares(desk: &mut Desk<'_>) {
    desk.claims(1);
    let give_up = desk.by_owner(1, 5, unknown());
    desk.step(give_up);
    let record = desk.reads();
    assert_eq!(desk.step(desk.cancel(1)), Reply::Stale(record));
    let settle = desk.by_owner(1, 6, done(6));
    desk.step(settle);
    let record = desk.reads();
    assert_eq!(record.state.status(), Status::Completed);
    assert_eq!(desk.step(desk.cancel(1)), Reply::Stale(record));
}

pub(super) fn cancel_overtakes(desk: &mut Desk<'_>) {
    if !desk.remembers_cancellations() {
        return;
    }
    let claim = desk.claim(1);
    assert_eq!(desk.step(desk.cancel(1)), Reply::Cancelled);
    assert_eq!(desk.step(Action::Claim(claim)), Reply::TooLate);
    assert_eq!(desk.step(Action::Read), Reply::Absent);
    // Others claim as ever, and a second copy of a cancelled claim finds nothing to take either.
    desk.claims(2);
    assert_eq!(desk.step(desk.cancel(2)), Reply::Cancelled);
    let copy = Action::Claim(desk.claim(2));
    assert_eq!(desk.step(copy), Reply::TooLate);
    // A renewal that was under way makes no record; an outcome does.
    let renew = desk.by_owner(2, 5, renewed(LONG));
    assert_eq!(desk.step(renew), Reply::Absent);
    let settle = desk.by_owner(2, 6, done(6));
    assert!(matches!(desk.step(settle), Reply::Applied(_)));
    // The same where the cancellation met somebody else's record.
    let steps = [
        (2, Action::Claim(desk.claim(3))),
        (2, desk.cancel(4)),
        (2, desk.cancel(3)),
        (2, Action::Claim(desk.claim(4))),
    ];
    let replies = desk.call(&steps);
    assert!(matches!(replies[1], Reply::Stale(_)), "{replies:?}");
    assert_eq!(replies[3], Reply::TooLate);
    // And for a take-over.
    let steps = [
        (3, Action::Claim(desk.claim(5))),
        (3, desk.by_owner(5, 7, unknown())),
    ];
    let replies = desk.call(&steps);
    let [_, Reply::Applied(seen)] = &replies[..] else {
        panic!("{replies:?}")
    };
    let take = Action::TakeOver {
        claim: desk.claim(6),
        expect: seen.version,
    };
    let replies = desk.call(&[(3, desk.cancel(6)), (3, take)]);
    assert!(matches!(replies[0], Reply::Stale(_)), "{replies:?}");
    assert_eq!(replies[1], Reply::TooLate);
}

pub(super) fn take_over(desk: &mut Desk<'_>) {
    desk.lease = SHORT;
    let first = desk.claims(1);
    desk.lease = LONG;
    let take = |desk: &Desk<'_>, owner| Action::TakeOver {
        claim: desk.claim(owner),
        expect: first.version,
    };
    desk.wait(SHORT);
    let itself = take(desk, 1);
    assert!(matches!(desk.step(itself), Reply::Current(_)));
    let mut late = desk.claim(2);
    late.not_after = desk.now() - 1;
    let late = Action::TakeOver {
        claim: late,
        expect: first.version,
    };
    assert_eq!(desk.step(late), Reply::TooLate);
    let steps = [
        (1, take(desk, 2)),
        (1, take(desk, 3)),
        (1, take(desk, 2)),
        (1, desk.by_owner(1, 9, done(9))),
    ];
    let replies = desk.call(&steps);
    let [
        Reply::Claimed(record),
        Reply::Current(_),
        Reply::Claimed(again),
        Reply::Stale(late),
    ] = &replies[..]
    else {
        panic!("{replies:?}")
    };
    assert_eq!(record, again, "a repeat");
    assert!(record.generation > first.generation);
    assert_eq!(record.version.incarnation, desk.token(2).incarnation());
    assert_eq!(record.history.events().len(), 2);
    assert_eq!(late.history.events().len(), 3);
    assert_eq!(late.state, record.state);
    // Of nothing it is a claim.
    let replies = desk.call(&[(2, take(desk, 5))]);
    assert!(matches!(&replies[..], [Reply::Claimed(_)]), "{replies:?}");
}

pub(super) fn give_back(desk: &mut Desk<'_>) {
    desk.claims(1);
    let give_up = desk.by_owner(1, 5, unknown());
    let Reply::Applied(seen) = desk.step(give_up) else {
        panic!("unknown")
    };
    let take = Action::TakeOver {
        claim: desk.claim(2),
        expect: seen.version,
    };
    assert!(matches!(desk.step(take), Reply::Claimed(_)));
    let Reply::Applied(record) = desk.step(desk.cancel(2)) else {
        panic!("given back")
    };
    let State::Unknown {
        owner, evidence, ..
    } = &record.state
    else {
        panic!("{record:?}")
    };
    // What was known before is known again.
    assert_eq!((*owner, evidence.status), (None, Some(504)));
    assert_eq!(evidence.details, "response_timeout");
    assert_eq!(desk.reads(), record);
}

pub(super) fn late_give_back(desk: &mut Desk<'_>) {
    desk.claims(1);
    let give_up = desk.by_owner(1, 5, unknown());
    let Reply::Applied(seen) = desk.step(give_up) else {
        panic!("unknown")
    };
    let take = Action::TakeOver {
        claim: desk.claim(2),
        expect: seen.version,
    };
    assert!(matches!(desk.step(take), Reply::Claimed(_)));
    // So many late answers that the history no longer has the take-over.
    for write in 10..30 {
        let late = desk.by_owner(1, write, done(write));
        assert!(matches!(desk.step(late), Reply::Stale(_)));
    }
    let Reply::Applied(record) = desk.step(desk.cancel(2)) else {
        panic!("given back, not deleted")
    };
    let State::Unknown { evidence, .. } = &record.state else {
        panic!("{record:?}")
    };
    assert_eq!(evidence, &Evidence::named("released_after_take_over"));
    assert_eq!(desk.reads(), record);
}

pub(super) fn generation(desk: &mut Desk<'_>) {
    // Made by an owner that had it from a clock far ahead.
    let ahead = 1 << 45;
    let fence = Fence::Owner {
        claim: Box::new(desk.claim(1)),
        claimed_at: desk.now(),
        generation: ahead,
    };
    let give_up = transition(5, fence, unknown(), Source::Owner);
    let Reply::Applied(record) = desk.step(give_up) else {
        panic!("made again")
    };
    assert_eq!(record.generation, ahead);
    let take = Action::TakeOver {
        claim: desk.claim(2),
        expect: record.version,
    };
    let Reply::Claimed(record) = desk.step(take) else {
        panic!("taken over")
    };
    assert_eq!(record.generation, ahead + 1);
}

pub(super) fn lost_record(desk: &mut Desk<'_>) {
    for (n, to, status) in [
        (1, done(5), Status::Completed),
        (2, accepted(5, LONG), Status::Accepted),
        (3, unknown(), Status::Unknown),
        (4, renewed(LONG), Status::Pending),
    ] {
        let fence = Fence::Owner {
            claim: Box::new(desk.claim(1)),
            claimed_at: 17,
            generation: 23,
        };
        let replies = desk.call(&[
            (n, transition(5, fence, to, Source::Owner)),
            (n, Action::Read),
        ]);
        let [Reply::Applied(made), Reply::Current(read)] = &replies[..] else {
            panic!("{replies:?}")
        };
        assert_eq!(made, read);
        assert_eq!(made.state.status(), status);
        assert_eq!((made.claimed_at, made.generation), (17, 23));
        assert_eq!(made.version.incarnation, desk.token(1).incarnation());
    }
}
