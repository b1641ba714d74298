//! Transitions, their fences, recorded answers, and calls of many steps.

use super::*;

pub(super) fn stale_owner(desk: &mut Desk<'_>) {
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

pub(super) fn repeat_is_already(desk: &mut Desk<'_>) {
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

pub(super) fn late_answer(desk: &mut Desk<'_>) {
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

pub(super) fn old_version(desk: &mut Desk<'_>) {
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

pub(super) fn version_fence(desk: &mut Desk<'_>) {
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

pub(super) fn lost_race(desk: &mut Desk<'_>) {
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

pub(super) fn acceptance(desk: &mut Desk<'_>) {
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

pub(super) fn deadline_over(desk: &mut Desk<'_>) {
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

pub(super) fn answer_kept(desk: &mut Desk<'_>) {
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

pub(super) fn answer_missing(desk: &mut Desk<'_>) {
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

pub(super) fn not_replayable(desk: &mut Desk<'_>) {
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

pub(super) fn mixed(desk: &mut Desk<'_>) {
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

pub(super) fn ordered(desk: &mut Desk<'_>) {
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

pub(super) fn bounded_history(desk: &mut Desk<'_>) {
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

pub(super) fn texts(desk: &mut Desk<'_>) {
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
