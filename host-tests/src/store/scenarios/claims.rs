//! Who gets an operation, and for how long.

use super::*;

pub(super) fn claim_creates(desk: &mut Desk<'_>) {
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

pub(super) fn repeat_is_yours(desk: &mut Desk<'_>) {
    let record = desk.claims(1);
    assert_eq!(desk.claims(1), record);
    let other = desk.claim(2);
    assert_eq!(desk.step(Action::Claim(other)), Reply::Current(record));
}

pub(super) fn absent(desk: &mut Desk<'_>) {
    assert_eq!(desk.step(Action::Read), Reply::Absent);
    let body = Action::Body { incarnation: 1 };
    assert_eq!(desk.step(body), Reply::Absent);
    let version = desk.claims(1).version;
    let close = desk.by_operator(version, &[Status::Pending], 5, closed());
    assert_eq!(desk.call(&[(2, close)]), [Reply::Absent]);
}

pub(super) fn not_after(desk: &mut Desk<'_>) {
    let mut claim = desk.claim(1);
    desk.wait(2);
    claim.not_after = desk.now();
    desk.wait(2);
    assert_eq!(desk.step(Action::Claim(claim.clone())), Reply::TooLate);
    assert_eq!(desk.step(Action::Read), Reply::Absent);
    claim.not_after = desk.now() + LONG;
    assert!(matches!(desk.step(Action::Claim(claim)), Reply::Claimed(_)));
}

pub(super) fn quota_of_nothing(desk: &mut Desk<'_>) {
    let mut claim = desk.claim(1);
    claim.tenant_quota = Some(0);
    let reply = desk.step(Action::Claim(claim));
    assert_eq!(reply, Reply::Full(Full::Tenant));
    assert_eq!(desk.step(Action::Read), Reply::Absent);
}

pub(super) fn forgotten(desk: &mut Desk<'_>) {
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

pub(super) fn lease_over(desk: &mut Desk<'_>) {
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

pub(super) fn late_owner_settles(desk: &mut Desk<'_>) {
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

pub(super) fn renewal(desk: &mut Desk<'_>) {
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

pub(super) fn expires_between(desk: &mut Desk<'_>) {
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

pub(super) fn expires_unresolved(desk: &mut Desk<'_>) {
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

pub(super) fn claimed_anew(desk: &mut Desk<'_>) {
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

pub(super) fn beginning(desk: &mut Desk<'_>) {
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
