//! The contract as a list that every engine must pass: design.md §2 and §6, one rule each.
//!
//! Time passes in reality where a real server keeps it, so leases are either over soon or not in
//! this test's life, and nothing depends on being fast.

use super::desk::{
    Desk, LONG, SHORT, accepted, blob, closed, done, outcome, renewed, transition, unknown,
};
use idempo_core::fingerprint::{Form, Head};
use idempo_core::record::{Evidence, Outcome, Replayable, Source, State, Status, View, Windows};
use idempo_core::store::contract::claim_write;
use idempo_core::store::{Action, Claim, Fence, Full, Reply, Target};

/// Name and steps. A scenario panics where the engine breaks the rule.
pub type Scenario = (&'static str, fn(&mut Desk<'_>));

/// All of them.
pub const ALL: &[Scenario] = &[
    ("a claim creates, and says all of itself", claim_creates),
    ("a repeated claim is yours, another is not", repeat_is_yours),
    ("nothing is absent until it is claimed", absent),
    ("a claim past its not_after is refused", not_after),
    ("a quota of nothing refuses", quota_of_nothing),
    ("a forgotten key begins as unknown", forgotten),
    (
        "a lease that is over is written by the next claim",
        lease_over,
    ),
    (
        "an owner whose lease is over still settles",
        late_owner_settles,
    ),
    ("a renewal moves the lease and leaves no event", renewal),
    (
        "a stale owner changes nothing by any transition",
        stale_owner,
    ),
    (
        "a repeat with the same write id is already done",
        repeat_is_already,
    ),
    ("a late answer is evidence, and stays late", late_answer),
    (
        "another incarnation is fenced from an old version",
        old_version,
    ),
    ("a version fence asks for version and state", version_fence),
    ("two that race: one wins", lost_race),
    ("an acceptance is completed by an event", acceptance),
    (
        "an acceptance whose deadline is over is unknown",
        deadline_over,
    ),
    ("a release leaves nothing", release),
    (
        "a cancellation spares what the owner called unknown",
        cancel_spares,
    ),
    ("a cancellation overtakes its claim", cancel_overtakes),
    ("an unknown operation is taken over once", take_over),
    ("a take-over given back is unknown again", give_back),
    ("a give-back is one however much came after", late_give_back),
    ("a generation rises whatever the clock does", generation),
    ("an owner makes its lost record again", lost_record),
    ("an answer is kept octet for octet", answer_kept),
    ("an answer that was not kept is missing", answer_missing),
    (
        "an answer that cannot be replayed is not given",
        not_replayable,
    ),
    ("a record expires between two steps", expires_between),
    ("an unsettled record expires unresolved", expires_unresolved),
    ("when nothing remains, it is claimed anew", claimed_anew),
    ("mixed outcomes in one call", mixed),
    ("many steps on one operation keep their order", ordered),
    ("the history stays bounded", bounded_history),
    ("texts of any kind come back", texts),
    ("a claim by a body's beginning is completed", beginning),
];

fn claim_creates(desk: &mut Desk<'_>) {
    let record = desk.claims(1);
    let (now, claim) = (desk.now(), desk.claim(1));
    assert_eq!(record.version.counter, 1);
    assert_eq!(record.version.incarnation, claim.owner.incarnation());
    assert_eq!(record.generation, now.max(1));
    let lease_until = now + LONG;
    let owner = claim.owner;
    assert_eq!(record.state, State::Pending { owner, lease_until });
    assert_eq!((record.claimed_at, record.last_seen), (now, now));
    assert_eq!(record.fingerprint, claim.fingerprint);
    assert_eq!(record.tenant, claim.tenant);
    assert_eq!(record.windows, claim.windows);
    let [event] = record.history.events() else {
        panic!("one event")
    };
    assert_eq!(event.write, claim_write(owner));
    assert_eq!((event.from, event.to), (Status::Absent, Status::Pending));
    assert_eq!(desk.reads(), record);
}

fn repeat_is_yours(desk: &mut Desk<'_>) {
    let record = desk.claims(1);
    assert_eq!(desk.claims(1), record);
    let other = desk.claim(2);
    assert_eq!(desk.step(Action::Claim(other)), Reply::Current(record));
}

fn absent(desk: &mut Desk<'_>) {
    assert_eq!(desk.step(Action::Read), Reply::Absent);
    let body = Action::Body { incarnation: 1 };
    assert_eq!(desk.step(body), Reply::Absent);
    let version = desk.claims(1).version;
    let close = desk.by_operator(version, &[Status::Pending], 5, closed());
    assert_eq!(desk.call(&[(2, close)]), [Reply::Absent]);
}

fn not_after(desk: &mut Desk<'_>) {
    let mut claim = desk.claim(1);
    desk.wait(2);
    claim.not_after = desk.now();
    desk.wait(2);
    assert_eq!(desk.step(Action::Claim(claim.clone())), Reply::TooLate);
    assert_eq!(desk.step(Action::Read), Reply::Absent);
    claim.not_after = desk.now() + LONG;
    assert!(matches!(desk.step(Action::Claim(claim)), Reply::Claimed(_)));
}

fn quota_of_nothing(desk: &mut Desk<'_>) {
    let mut claim = desk.claim(1);
    claim.tenant_quota = Some(0);
    let reply = desk.step(Action::Claim(claim));
    assert_eq!(reply, Reply::Full(Full::Tenant));
    assert_eq!(desk.step(Action::Read), Reply::Absent);
}

fn forgotten(desk: &mut Desk<'_>) {
    let mut claim = desk.claim(1);
    claim.forgotten = true;
    let Reply::Current(record) = desk.step(Action::Claim(claim)) else {
        panic!("nobody's")
    };
    let State::Unknown {
        owner, evidence, ..
    } = &record.state
    else {
        panic!("unknown")
    };
    assert_eq!((*owner, evidence), (None, &Evidence::named("restart")));
    let [event] = record.history.events() else {
        panic!("one event")
    };
    assert_eq!((event.source, event.to), (Source::Restart, Status::Unknown));
    let settle = desk.by_owner(1, 5, done(5));
    assert!(matches!(desk.step(settle), Reply::Stale(_)));
}

fn lease_over(desk: &mut Desk<'_>) {
    desk.lease = SHORT;
    let first = desk.claims(1);
    desk.wait(SHORT);
    // Every reader computes it; the claim writes it, once.
    let read = desk.reads();
    assert_eq!(read, first);
    assert_eq!(read.view(desk.now()).status(), Status::Unknown);
    let other = Action::Claim(desk.claim(2));
    let Reply::Current(record) = desk.step(other) else {
        panic!("not yours")
    };
    assert!(
        matches!(record.state, State::Unknown { owner: Some(o), .. } if o == desk.token(1)),
        "{record:?}"
    );
    let last = record.history.events().last().unwrap();
    assert_eq!(last.source, Source::Reader);
    assert_eq!(last.write, claim_write(desk.token(2)));
    assert_eq!(last.evidence, Some(Evidence::named("lease_over")));
    let third = Action::Claim(desk.claim(3));
    assert_eq!(desk.step(third), Reply::Current(record.clone()));
    // Not even its owner's repeat is a claim then.
    let own = Action::Claim(desk.claim(1));
    assert_eq!(desk.step(own), Reply::Current(record));
}

fn late_owner_settles(desk: &mut Desk<'_>) {
    desk.lease = SHORT;
    desk.claims(1);
    desk.wait(SHORT);
    let other = Action::Claim(desk.claim(2));
    desk.step(other);
    let settle = desk.by_owner(1, 5, done(5));
    let Reply::Applied(record) = desk.step(settle) else {
        panic!("its token stands")
    };
    let last = record.history.events().last().unwrap();
    assert_eq!((last.from, last.to), (Status::Unknown, Status::Completed));
    assert_eq!(record.owner(), None);
}

fn renewal(desk: &mut Desk<'_>) {
    desk.lease = SHORT;
    let first = desk.claims(1);
    let renew = desk.by_owner(1, 5, renewed(LONG));
    let Reply::Applied(record) = desk.step(renew) else {
        panic!("renewed")
    };
    assert_eq!(record.version.counter, 2);
    assert_eq!(record.history, first.history);
    // Never shortened.
    let shorter = desk.by_owner(1, 6, renewed(SHORT));
    desk.step(shorter);
    desk.wait(SHORT);
    assert_eq!(desk.reads().view(desk.now()).status(), Status::Pending);
    // It revives a lease that nobody has acted on.
    let mut claim = desk.claim(3);
    claim.lease_ms = SHORT;
    desk.call(&[(2, Action::Claim(claim))]);
    desk.wait(SHORT);
    let renew = desk.by_owner(3, 7, renewed(SHORT));
    let replies = desk.call(&[(2, renew)]);
    assert!(matches!(&replies[..], [Reply::Applied(_)]), "{replies:?}");
    // And no other.
    desk.wait(SHORT);
    let other = Action::Claim(desk.claim(4));
    let renew = desk.by_owner(3, 8, renewed(SHORT));
    let replies = desk.call(&[(2, other), (2, renew)]);
    assert!(matches!(replies[1], Reply::Stale(_)), "{replies:?}");
}

fn stale_owner(desk: &mut Desk<'_>) {
    for (n, to) in [
        (1, renewed(9)),
        (2, unknown()),
        (3, accepted(9, 9)),
        (4, done(9)),
    ] {
        let steps = [
            (n, Action::Claim(desk.claim(1))),
            (n, desk.by_owner(2, 9, to.clone())),
            (n, Action::Read),
        ];
        let replies = desk.call(&steps);
        let [Reply::Claimed(first), Reply::Stale(_), Reply::Current(last)] = &replies[..] else {
            panic!("{replies:?}")
        };
        assert_eq!(first.state, last.state, "{to:?}");
        // Nor the first owner, once a person has removed its token.
        let close = desk.by_operator(last.version, &[Status::Pending], 8, closed());
        let late = desk.by_owner(1, 10, to);
        let replies = desk.call(&[(n, close), (n, late), (n, Action::Read)]);
        let [Reply::Applied(_), Reply::Stale(_), Reply::Current(last)] = &replies[..] else {
            panic!("{replies:?}")
        };
        assert_eq!(last.state.status(), Status::Closed);
    }
}

fn repeat_is_already(desk: &mut Desk<'_>) {
    desk.claims(1);
    let settle = desk.by_owner(1, 5, done(5));
    let Reply::Applied(record) = desk.step(settle.clone()) else {
        panic!("settled")
    };
    assert_eq!(desk.step(settle), Reply::Already(record.clone()));
    assert_eq!(desk.reads(), record);
    // The same for one's own unknown.
    let claim = Action::Claim(desk.claim(3));
    let give_up = desk.by_owner(3, 6, unknown());
    let replies = desk.call(&[(2, claim), (2, give_up.clone()), (2, give_up)]);
    let [_, Reply::Applied(one), Reply::Already(two)] = &replies[..] else {
        panic!("{replies:?}")
    };
    assert_eq!(one, two);
}

fn late_answer(desk: &mut Desk<'_>) {
    let seen = desk.claims(1).version;
    let close = desk.by_operator(seen, &[Status::Pending], 8, closed());
    assert!(matches!(desk.step(close), Reply::Applied(_)));
    let late = desk.by_owner(1, 5, done(5));
    let Reply::Stale(record) = desk.step(late.clone()) else {
        panic!("late")
    };
    let last = record.history.events().last().unwrap();
    assert_eq!((last.from, last.to), (Status::Closed, Status::Closed));
    let evidence = last.evidence.as_ref().unwrap();
    assert_eq!(evidence.result, Some(outcome(5).result));
    assert_eq!(desk.step(late), Reply::Stale(record.clone()), "once");
    assert_eq!(desk.reads(), record);
    // It never replaces the answer that is there.
    let claim = Action::Claim(desk.claim(3));
    let own = desk.by_owner(3, 6, done(6));
    let other = desk.by_owner(4, 7, done(7));
    let incarnation = desk.token(3).incarnation();
    let body = Action::Body { incarnation };
    let replies = desk.call(&[(2, claim), (2, own), (2, other), (2, body)]);
    assert_eq!(replies[3], Reply::Body(Some(blob(6))));
}

fn old_version(desk: &mut Desk<'_>) {
    let seen = desk.claims(1).version;
    assert_eq!(desk.step(desk.cancel(1)), Reply::Cancelled);
    let second = desk.claims(2);
    assert_eq!(second.version.counter, seen.counter);
    let close = desk.by_operator(seen, &[Status::Pending], 8, closed());
    assert_eq!(desk.step(close), Reply::Stale(second.clone()));
    let fence = Fence::Owner {
        claim: Box::new(desk.claim(1)),
        claimed_at: 1,
        generation: 1,
    };
    let give_up = transition(9, fence, unknown(), Source::Owner);
    assert_eq!(desk.step(give_up), Reply::Stale(second));
}

fn version_fence(desk: &mut Desk<'_>) {
    desk.lease = SHORT;
    let seen = desk.claims(1).version;
    let wrong_state = desk.by_operator(seen, &[Status::Unknown], 8, closed());
    let fine = desk.by_operator(seen, &[Status::Completed, Status::Unknown], 8, done(8));
    assert!(matches!(desk.step(wrong_state), Reply::Stale(_)));
    desk.wait(SHORT);
    // A computed unknown is one, before anybody has written it.
    let Reply::Applied(record) = desk.step(fine) else {
        panic!("unknown by now")
    };
    let last = record.history.events().last().unwrap();
    assert_eq!((last.from, last.to), (Status::Unknown, Status::Completed));
    assert!(last.operator.starts_with("mallory, not ,:-"));
    // Terminal states change by nothing but their windows.
    let states = [Status::Completed, Status::Unknown, Status::Closed];
    let again = desk.by_operator(record.version, &states, 9, closed());
    assert!(matches!(desk.step(again), Reply::Stale(_)));
    assert_eq!(desk.reads().state, record.state);
}

fn lost_race(desk: &mut Desk<'_>) {
    desk.claims(1);
    let give_up = desk.by_owner(1, 5, unknown());
    let Reply::Applied(record) = desk.step(give_up) else {
        panic!("unknown")
    };
    let from = [Status::Unknown];
    let one = desk.by_operator(record.version, &from, 6, done(6));
    let two = desk.by_operator(record.version, &from, 7, closed());
    let replies = desk.call(&[(1, one), (1, two)]);
    let [Reply::Applied(won), Reply::Stale(seen)] = &replies[..] else {
        panic!("{replies:?}")
    };
    assert_eq!(won, seen);
}

fn acceptance(desk: &mut Desk<'_>) {
    let incarnation = desk.claims(1).version.incarnation;
    let accept = desk.by_owner(1, 5, accepted(5, LONG));
    let Reply::Applied(record) = desk.step(accept) else {
        panic!("accepted")
    };
    assert_eq!(record.owner(), None);
    let body = Action::Body { incarnation };
    assert_eq!(desk.step(body.clone()), Reply::Body(Some(blob(5))));
    let event = desk.by_operator(record.version, &[Status::Accepted], 6, done(6));
    assert!(matches!(desk.step(event), Reply::Applied(_)));
    assert_eq!(desk.step(body), Reply::Body(Some(blob(6))));
    assert_eq!(desk.reads().state.status(), Status::Completed);
}

fn deadline_over(desk: &mut Desk<'_>) {
    let incarnation = desk.claims(1).version.incarnation;
    let accept = desk.by_owner(1, 5, accepted(5, SHORT));
    desk.step(accept);
    desk.wait(SHORT);
    let body = Action::Body { incarnation };
    assert!(matches!(desk.step(body.clone()), Reply::Current(_)));
    let other = Action::Claim(desk.claim(2));
    let Reply::Current(record) = desk.step(other) else {
        panic!("there")
    };
    let State::Unknown {
        owner: None,
        evidence,
        ..
    } = &record.state
    else {
        panic!("{record:?}")
    };
    assert_eq!(evidence.status, Some(202));
    assert_eq!(evidence.details, "accepted_deadline_over");
    assert!(matches!(desk.step(body), Reply::Current(_)));
}

fn release(desk: &mut Desk<'_>) {
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

fn cancel_spares(desk: &mut Desk<'_>) {
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

fn cancel_overtakes(desk: &mut Desk<'_>) {
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

fn take_over(desk: &mut Desk<'_>) {
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

fn give_back(desk: &mut Desk<'_>) {
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

fn late_give_back(desk: &mut Desk<'_>) {
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

fn generation(desk: &mut Desk<'_>) {
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

fn lost_record(desk: &mut Desk<'_>) {
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

fn answer_kept(desk: &mut Desk<'_>) {
    let incarnation = desk.claims(1).version.incarnation;
    let body = Action::Body { incarnation };
    assert!(matches!(desk.step(body.clone()), Reply::Current(_)));
    let settle = desk.by_owner(1, 5, done(5));
    desk.step(settle);
    assert_eq!(desk.step(body), Reply::Body(Some(blob(5))));
    let other = Action::Body { incarnation: 1 };
    assert!(matches!(desk.step(other), Reply::Current(_)));
    // Nothing is an answer too.
    let claim = Action::Claim(desk.claim(2));
    let to = Target::Completed {
        outcome: outcome(6),
        blob: Some(Vec::new()),
    };
    let settle = desk.by_owner(2, 6, to);
    let body = Action::Body {
        incarnation: desk.token(2).incarnation(),
    };
    let replies = desk.call(&[(2, claim), (2, settle), (2, body)]);
    assert_eq!(replies[2], Reply::Body(Some(Vec::new())));
}

fn answer_missing(desk: &mut Desk<'_>) {
    let incarnation = desk.claims(1).version.incarnation;
    let to = Target::Completed {
        outcome: outcome(5),
        blob: None,
    };
    let settle = desk.by_owner(1, 5, to);
    let body = Action::Body { incarnation };
    let replies = desk.call(&[(1, settle), (1, body)]);
    assert_eq!(replies[1], Reply::Body(None));
}

fn not_replayable(desk: &mut Desk<'_>) {
    let incarnation = desk.claims(1).version.incarnation;
    let to = Target::Completed {
        outcome: Outcome {
            replay: Replayable::Trailers,
            ..outcome(5)
        },
        blob: Some(blob(5)),
    };
    let settle = desk.by_owner(1, 5, to);
    let body = Action::Body { incarnation };
    let replies = desk.call(&[(1, settle), (1, body)]);
    let [Reply::Applied(record), Reply::Current(read)] = &replies[..] else {
        panic!("{replies:?}")
    };
    assert_eq!(record, read);
}

fn expires_between(desk: &mut Desk<'_>) {
    desk.windows.replay_ms = SHORT;
    let incarnation = desk.claims(1).version.incarnation;
    let settle = desk.by_owner(1, 5, done(5));
    let Reply::Applied(record) = desk.step(settle.clone()) else {
        panic!("settled")
    };
    desk.wait(SHORT);
    let steps = [
        (1, Action::Read),
        (1, Action::Body { incarnation }),
        (1, Action::Claim(desk.claim(1))),
        (1, Action::Claim(desk.claim(2))),
        (1, settle),
        (
            1,
            desk.by_operator(record.version, &[Status::Completed], 9, closed()),
        ),
        (1, desk.cancel(1)),
        (
            1,
            Action::TakeOver {
                claim: desk.claim(3),
                expect: record.version,
            },
        ),
    ];
    let expired = Reply::Expired { unresolved: false };
    assert_eq!(desk.call(&steps), vec![expired; steps.len()]);
}

fn expires_unresolved(desk: &mut Desk<'_>) {
    desk.windows = Windows {
        replay_ms: SHORT,
        tombstone_ms: SHORT,
    };
    desk.lease = 1;
    desk.claims(1);
    // Both windows after the lease; and one more.
    desk.wait(1 + 2 * SHORT);
    let replies = desk.call(&[(1, Action::Read)]);
    let expired = Reply::Expired { unresolved: true };
    // On a slow machine even the tombstone may be gone.
    assert!(replies == [expired] || replies == [Reply::Absent]);
    desk.wait(SHORT);
    assert_eq!(desk.step(Action::Read), Reply::Absent);
}

fn claimed_anew(desk: &mut Desk<'_>) {
    desk.windows = Windows {
        replay_ms: SHORT,
        tombstone_ms: SHORT,
    };
    let first = desk.claims(1);
    let settle = desk.by_owner(1, 5, done(5));
    desk.step(settle);
    desk.wait(2 * SHORT);
    assert_eq!(desk.step(Action::Read), Reply::Absent);
    let second = desk.claims(2);
    assert!(second.generation > first.generation);
    assert_eq!(second.history.events().len(), 1);
    assert_eq!(second.version.incarnation, desk.token(2).incarnation());
    let body = Action::Body {
        incarnation: second.version.incarnation,
    };
    assert!(matches!(desk.step(body), Reply::Current(_)));
}

fn mixed(desk: &mut Desk<'_>) {
    let mut late = desk.claim(4);
    late.not_after = 0;
    let mut none = desk.claim(5);
    none.tenant_quota = Some(0);
    desk.wait(1);
    let steps = [
        (1, Action::Claim(desk.claim(1))),
        (2, Action::Read),
        (1, Action::Claim(desk.claim(2))),
        (3, Action::Claim(late)),
        (4, Action::Claim(none)),
        (1, desk.by_owner(1, 5, done(5))),
        (5, desk.cancel(9)),
        (1, desk.by_owner(1, 5, done(5))),
    ];
    let names: Vec<_> = desk.call(&steps).iter().map(Reply::name).collect();
    let right = [
        "claimed",
        "absent",
        "current",
        "too_late",
        "full",
        "applied",
        "cancelled",
        "already",
    ];
    assert_eq!(names, right);
}

fn ordered(desk: &mut Desk<'_>) {
    let mut steps = vec![(1, Action::Claim(desk.claim(1)))];
    for write in 10..40 {
        steps.push((1, desk.by_owner(1, write, renewed(LONG + write))));
    }
    let replies = desk.call(&steps);
    for (reply, counter) in replies.iter().zip(1..) {
        let (Reply::Claimed(record) | Reply::Applied(record)) = reply else {
            panic!("{reply:?}")
        };
        assert_eq!(record.version.counter, counter);
        assert!(matches!(record.view(desk.now()), View::Pending { .. }));
    }
}

fn bounded_history(desk: &mut Desk<'_>) {
    desk.claims(1);
    let settle = desk.by_owner(1, 5, done(5));
    desk.step(settle);
    for write in 100..120 {
        let late = desk.by_owner(2, write, done(write));
        assert!(matches!(desk.step(late), Reply::Stale(_)));
    }
    let record = desk.reads();
    assert_eq!(
        record.history.events().len(),
        idempo_core::record::MAX_EVENTS
    );
    assert_eq!(record.history.dropped(), 14);
    let first = record.history.events().first().unwrap();
    assert_eq!(first.write, claim_write(desk.token(1)));
    let State::Completed { outcome: kept, .. } = record.state else {
        panic!("settled")
    };
    assert_eq!(kept, outcome(5));
}

fn texts(desk: &mut Desk<'_>) {
    let mut claim = desk.claim(1);
    claim.schema_version = "a/b?c.d,e:f+g%h \"ü\"".into();
    claim.traceparent = None;
    let Reply::Claimed(record) = desk.step(Action::Claim(claim.clone())) else {
        panic!("claimed")
    };
    assert_eq!(record.schema_version, claim.schema_version);
    assert_eq!(record.traceparent, None);
    let to = Target::Closed {
        reason: "\u{1}\n☃,:-".into(),
    };
    let close = desk.by_operator(record.version, &[Status::Pending], 8, to);
    let Reply::Applied(record) = desk.step(close) else {
        panic!("closed")
    };
    let State::Closed { reason, .. } = &record.state else {
        panic!("{record:?}")
    };
    assert_eq!(reason, "\u{1}\n☃,:-");
    assert_eq!(desk.reads(), record);
    // A name that looks like a write id where names are kept in base64 is none.
    let claim = Action::Claim(desk.claim(2));
    let Reply::Claimed(seen) = desk.call(&[(2, claim)]).remove(0) else {
        panic!("claimed")
    };
    let Action::Transition(mut close) =
        desk.by_operator(seen.version, &[Status::Pending], 8, closed())
    else {
        unreachable!()
    };
    close.operator = "kG4kG4kG4kG4".into();
    let late = desk.by_owner(2, 0xa0c0_a0c0_a0c0_a0c0, done(9));
    let replies = desk.call(&[(2, Action::Transition(close)), (2, late)]);
    let [Reply::Applied(_), Reply::Stale(_)] = &replies[..] else {
        panic!("{replies:?}")
    };
}

fn beginning(desk: &mut Desk<'_>) {
    let whole = desk.claim(1);
    let mut head = whole.clone();
    head.fingerprint.form = Form::Head;
    head.fingerprint.digest = [9; 32];
    head.fingerprint.head = Some(Head {
        octets: 65_536,
        declared: Some(1 << 20),
    });
    let Reply::Claimed(record) = desk.step(Action::Claim(head.clone())) else {
        panic!("claimed")
    };
    assert_eq!(record.fingerprint, head.fingerprint);
    let by = |claim: &Claim, write, to| {
        let fence = Fence::Owner {
            claim: Box::new(claim.clone()),
            claimed_at: record.claimed_at,
            generation: record.generation,
        };
        transition(write, fence, to, Source::Owner)
    };
    let steps = [
        (1, by(&whole, 4, renewed(LONG))),
        (1, by(&whole, 5, unknown())),
        (1, by(&head, 6, done(6))),
    ];
    let replies = desk.call(&steps);
    let [
        Reply::Applied(renewed),
        Reply::Applied(seen),
        Reply::Applied(done),
    ] = &replies[..]
    else {
        panic!("{replies:?}")
    };
    assert_eq!(renewed.fingerprint, head.fingerprint, "no transition");
    assert_eq!(seen.fingerprint, whole.fingerprint);
    assert_eq!(done.fingerprint, whole.fingerprint, "never taken back");
    assert_eq!(desk.reads().fingerprint, whole.fingerprint);
}
