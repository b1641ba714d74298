//! One test per rule of the contract.

use super::*;
use crate::record::{Outcome, Replayable};
use crate::store::table::testing::{claim, complete, outcome, owner_fence, token, transition};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// A store of one operation.
#[derive(Default)]
struct One(Option<Record>);

impl One {
    fn at(&mut self, now: u64, action: &Action) -> Reply {
        let (change, reply) = apply(self.0.as_ref(), action, now);
        match change {
            Change::Keep => {}
            Change::Put(record) => self.0 = Some(*record),
            Change::Delete => self.0 = None,
        }
        reply
    }

    fn claimed() -> Self {
        let mut one = Self::default();
        assert!(matches!(one.at(100, &claims(1)), Reply::Claimed(_)));
        one
    }

    /// Claimed by owner 1 at 100, settled at 200.
    fn completed() -> Self {
        let mut one = Self::claimed();
        let reply = one.at(200, &complete(1, 100, 5, 10));
        assert!(matches!(reply, Reply::Applied(_)), "{reply:?}");
        one
    }

    fn record(&self) -> &Record {
        self.0.as_ref().unwrap()
    }

    fn by_version(&self, write: u64, from: Status, to: Target) -> Action {
        let fence = Fence::Version {
            version: self.record().version,
            from: vec![from],
        };
        transition(write, fence, to, Source::Operator)
    }

    /// The step changes nothing.
    fn unmoved(&mut self, now: u64, action: &Action) -> Reply {
        let before = self.0.clone();
        let reply = self.at(now, action);
        assert_eq!(self.0, before, "{action:?}");
        reply
    }
}

fn claims(owner: u64) -> Action {
    Action::Claim(claim(owner))
}

fn renew(owner: u64, write: u64) -> Action {
    let to = Target::Renewed { lease_ms: 1_000 };
    transition(write, owner_fence(owner, 100), to, Source::Owner)
}

fn unknown(owner: u64, write: u64) -> Action {
    let to = Target::Unknown {
        evidence: Evidence::named("response_timeout"),
    };
    transition(write, owner_fence(owner, 100), to, Source::Owner)
}

fn accept(owner: u64, write: u64) -> Action {
    let to = Target::Accepted {
        outcome: outcome(write),
        deadline_ms: 5_000,
        blob: None,
    };
    transition(write, owner_fence(owner, 100), to, Source::Owner)
}

fn closed() -> Target {
    Target::Closed {
        reason: "refunded".into(),
    }
}

fn done(write: u64) -> Target {
    Target::Completed {
        outcome: outcome(write),
        blob: None,
    }
}

fn last(record: &Record) -> &Event {
    record.history.events().last().unwrap()
}

#[test]
fn a_claim_creates_and_says_all_of_itself() {
    let one = One::claimed();
    let record = one.record();
    assert_eq!(record.version.counter, 1);
    assert_eq!(record.version.incarnation, token(1).incarnation());
    assert_eq!(record.generation, 100);
    assert_eq!(record.owner(), Some(token(1)));
    assert_eq!(record.view(1_099), View::Pending { lease_left: 1 });
    assert_eq!(last(record).write, claim_write(token(1)));
    assert_eq!(
        (last(record).from, last(record).to),
        (Status::Absent, Status::Pending)
    );
}

#[test]
fn a_repeat_of_a_claim_is_yours_and_another_is_not() {
    let mut one = One::claimed();
    assert!(matches!(one.unmoved(150, &claims(1)), Reply::Claimed(_)));
    let Reply::Current(record) = one.unmoved(150, &claims(2)) else {
        panic!()
    };
    assert_eq!(record.owner(), Some(token(1)));
}

#[test]
fn a_claim_nobody_waits_for_is_refused() {
    let mut late = claim(1);
    late.not_after = 99;
    assert_eq!(
        One::default().unmoved(100, &Action::Claim(late.clone())),
        Reply::TooLate
    );
    late.not_after = 100;
    let reply = One::default().at(100, &Action::Claim(late));
    assert!(matches!(reply, Reply::Claimed(_)));
}

#[test]
fn a_quota_of_nothing_refuses() {
    let mut none = claim(1);
    none.tenant_quota = Some(0);
    let reply = One::default().unmoved(100, &Action::Claim(none));
    assert_eq!(reply, Reply::Full(Full::Tenant));
}

#[test]
fn a_claim_that_finds_a_lease_over_notes_it_once_and_is_not_made() {
    let mut one = One::claimed();
    let Reply::Current(record) = one.at(1_100, &claims(2)) else {
        panic!()
    };
    assert!(matches!(record.state, State::Unknown { owner: Some(o), .. } if o == token(1)));
    assert_eq!(
        (last(&record).source, record.version.counter),
        (Source::Reader, 2)
    );
    // Not even the owner's own repeat is a claim then.
    assert!(matches!(one.unmoved(1_200, &claims(1)), Reply::Current(_)));
}

#[test]
fn that_it_was_seen_is_written_once_a_minute() {
    let mut one = One::default();
    let mut lasting = claim(1);
    lasting.windows.replay_ms = 10 * SEEN_EVERY_MS;
    one.at(100, &Action::Claim(lasting));
    one.at(1_100, &claims(2));
    // So that a storm of retries costs reads alone.
    let just_before = 1_100 + SEEN_EVERY_MS - 1;
    for soon in [1_200, just_before] {
        assert!(matches!(one.unmoved(soon, &claims(3)), Reply::Current(_)));
    }
    let reply = one.at(just_before + 1, &claims(3));
    assert!(
        matches!(&reply, Reply::Current(r) if r.last_seen == just_before + 1),
        "{reply:?}"
    );
    assert_eq!(one.record().version.counter, 3);
    assert_eq!(
        last(one.record()).source,
        Source::Reader,
        "no event of its own"
    );
}

#[test]
fn the_sweep_writes_what_readers_compute() {
    let one = One::claimed();
    assert_eq!(sweep(one.record(), 1_099), None);
    let next = sweep(one.record(), 1_100).unwrap();
    // The Redis engine's script computes the same: `note_write` there.
    let incarnation = one.record().version.incarnation;
    assert_eq!(last(&next).write, WriteId(incarnation ^ 1));
    let mut written_often = one.record().clone();
    written_often.version.counter = u32::MAX;
    assert_eq!(
        last(&sweep(&written_often, 1_100).unwrap()).write,
        WriteId(incarnation ^ u64::from(u32::MAX))
    );
    assert_eq!(next.view(1_100).status(), one.record().view(1_100).status());
    assert_eq!(
        (last(&next).source, next.version.counter),
        (Source::Sweep, 2)
    );
    assert_eq!(sweep(&next, 1_200), None, "once");
    assert_eq!(sweep(One::completed().record(), 9_000), None);
}

#[test]
fn an_owner_whose_lease_is_over_still_settles_while_its_token_stands() {
    for noted in [false, true] {
        let mut one = One::claimed();
        if noted {
            one.at(1_500, &claims(2));
        }
        let Reply::Applied(record) = one.at(2_000, &complete(1, 100, 5, 10)) else {
            panic!()
        };
        assert_eq!(
            (last(&record).from, last(&record).to),
            (Status::Unknown, Status::Completed)
        );
    }
}

#[test]
fn a_renewal_moves_the_lease_forward_only_and_leaves_no_event() {
    let mut one = One::claimed();
    assert!(matches!(one.at(600, &renew(1, 9)), Reply::Applied(_)));
    assert_eq!(one.record().view(1_599), View::Pending { lease_left: 1 });
    assert_eq!(
        (
            one.record().version.counter,
            one.record().history.events().len()
        ),
        (2, 1)
    );
    // A delayed one takes nothing back.
    one.at(300, &renew(1, 10));
    assert_eq!(one.record().view(1_599), View::Pending { lease_left: 1 });
    // One that comes after the end revives the lease, unless somebody has acted on the end.
    assert!(matches!(one.at(1_700, &renew(1, 11)), Reply::Applied(_)));
    assert_eq!(one.record().view(1_700).status(), Status::Pending);
    one.at(2_700, &claims(2));
    assert!(matches!(one.unmoved(2_701, &renew(1, 12)), Reply::Stale(_)));
    assert!(matches!(one.unmoved(2_701, &renew(2, 13)), Reply::Stale(_)));
}

#[test]
fn a_stale_owner_changes_nothing_by_any_transition() {
    for action in [
        renew(2, 9),
        unknown(2, 9),
        accept(2, 9),
        complete(2, 100, 9, 10),
    ] {
        let mut one = One::claimed();
        let before = one.record().state.clone();
        assert!(
            matches!(one.at(150, &action), Reply::Stale(_)),
            "{action:?}"
        );
        assert_eq!(one.record().state, before);
    }
    // Nor does the first owner once its token has been removed.
    for action in [
        renew(1, 9),
        unknown(1, 9),
        accept(1, 9),
        complete(1, 100, 9, 10),
    ] {
        let mut one = One::claimed();
        let close = one.by_version(8, Status::Pending, closed());
        assert!(matches!(one.at(150, &close), Reply::Applied(_)));
        assert!(
            matches!(one.at(160, &action), Reply::Stale(_)),
            "{action:?}"
        );
        assert_eq!(one.record().state.status(), Status::Closed);
    }
}

#[test]
fn a_repeat_with_the_same_write_id_is_already_done() {
    let mut one = One::completed();
    assert!(matches!(
        one.unmoved(250, &complete(1, 100, 5, 10)),
        Reply::Already(_)
    ));
    // Also after somebody else's late answer, and for one's own unknown.
    one.at(260, &complete(2, 100, 6, 10));
    assert!(matches!(
        one.unmoved(270, &complete(1, 100, 5, 10)),
        Reply::Already(_)
    ));
    let mut one = One::claimed();
    one.at(1_500, &unknown(1, 7));
    assert!(matches!(
        one.unmoved(1_600, &unknown(1, 7)),
        Reply::Already(_)
    ));
}

#[test]
fn a_late_answer_is_kept_as_evidence_once_and_stays_late() {
    let mut one = One::claimed();
    let close = one.by_version(8, Status::Pending, closed());
    one.at(150, &close);
    let Reply::Stale(record) = one.at(200, &complete(1, 100, 5, 10)) else {
        panic!()
    };
    assert_eq!(record.as_ref(), one.record());
    let event = last(&record);
    assert_eq!((event.from, event.to), (Status::Closed, Status::Closed));
    assert_eq!(
        event.evidence.as_ref().unwrap().result,
        Some(outcome(5).result)
    );
    assert!(matches!(
        one.unmoved(210, &complete(1, 100, 5, 10)),
        Reply::Stale(_)
    ));
    // The same where the state has the name of the answer.
    let mut one = One::completed();
    one.at(300, &complete(2, 100, 6, 10));
    assert!(matches!(
        one.unmoved(310, &complete(2, 100, 6, 10)),
        Reply::Stale(_)
    ));
}

#[test]
fn a_persons_name_stands_at_what_they_did_and_tried() {
    let by = |action| {
        let Action::Transition(mut transition) = action else {
            panic!()
        };
        transition.operator = "ops".into();
        Action::Transition(transition)
    };
    let mut one = One::claimed();
    let settle = by(one.by_version(8, Status::Pending, done(8)));
    assert!(matches!(one.at(150, &settle), Reply::Applied(_)));
    assert_eq!(last(one.record()).operator, "ops");
    let again = by(one.by_version(9, Status::Completed, done(9)));
    assert!(matches!(one.at(160, &again), Reply::Stale(_)));
    let late = last(one.record());
    assert_eq!((late.write, late.operator.as_str()), (WriteId(9), "ops"));
    assert_eq!((late.from, late.to), (Status::Completed, Status::Completed));
}

#[test]
fn terminal_states_never_change() {
    let to = |to| transition(9, owner_fence(1, 100), to, Source::Owner);
    let mut closed_one = One::claimed();
    let close = closed_one.by_version(8, Status::Pending, closed());
    closed_one.at(150, &close);
    for one in [One::completed(), closed_one] {
        let state = one.record().state.clone();
        let statuses = [
            Status::Completed,
            Status::Closed,
            Status::Pending,
            Status::Unknown,
        ];
        let any = |target| {
            let fence = Fence::Version {
                version: one.record().version,
                from: statuses.to_vec(),
            };
            transition(10, fence, target, Source::Operator)
        };
        for action in [
            to(done(9)),
            to(closed()),
            unknown(1, 9),
            accept(1, 9),
            renew(1, 9),
            any(done(10)),
            any(closed()),
            claims(1),
            claims(2),
            Action::Cancel { owner: token(1) },
            Action::TakeOver {
                claim: claim(2),
                expect: one.record().version,
            },
        ] {
            let mut one = One(one.0.clone());
            one.at(300, &action);
            assert_eq!(one.record().state, state, "{action:?}");
        }
    }
}

#[test]
fn a_version_fence_asks_for_the_version_and_the_state() {
    let mut one = One::claimed();
    let wrong_state = one.by_version(8, Status::Unknown, closed());
    assert!(matches!(one.unmoved(150, &wrong_state), Reply::Stale(_)));
    let seen = one.by_version(8, Status::Pending, closed());
    one.at(160, &renew(1, 9));
    assert!(
        matches!(one.unmoved(170, &seen), Reply::Stale(_)),
        "lost the race"
    );
    // A computed unknown is one, before anybody has written it.
    let computed = one.by_version(8, Status::Unknown, done(8));
    let Reply::Applied(record) = one.at(5_000, &computed) else {
        panic!()
    };
    assert_eq!(
        (last(&record).from, record.owner()),
        (Status::Unknown, None)
    );
}

#[test]
fn an_acceptance_gives_the_claim_up_and_is_completed_by_an_event() {
    let mut one = One::claimed();
    assert!(matches!(one.at(200, &accept(1, 5)), Reply::Applied(_)));
    assert_eq!(one.record().owner(), None);
    assert_eq!(one.record().view(5_199).status(), Status::Accepted);
    assert_eq!(one.record().view(5_200).status(), Status::Unknown);
    let event = one.by_version(6, Status::Accepted, done(6));
    assert!(matches!(one.at(300, &event), Reply::Applied(_)));
    assert_eq!(one.record().state.status(), Status::Completed);
}

#[test]
fn a_cancellation_removes_what_is_pending_under_its_token_and_nothing_else() {
    let cancel = |owner| Action::Cancel {
        owner: token(owner),
    };
    let mut one = One::claimed();
    assert!(matches!(one.unmoved(150, &cancel(2)), Reply::Stale(_)));
    assert_eq!(one.at(150, &cancel(1)), Reply::Cancelled);
    assert_eq!(one.0, None);
    assert_eq!(one.unmoved(151, &cancel(1)), Reply::Cancelled, "a repeat");
    // Also once the lease is over, noted or not: nothing was sent.
    for noted in [false, true] {
        let mut one = One::claimed();
        if noted {
            one.at(1_500, &claims(2));
        }
        assert_eq!(one.at(1_600, &cancel(1)), Reply::Cancelled);
    }
    // But not what the owner itself has called unknown: something was sent.
    let mut one = One::claimed();
    one.at(150, &unknown(1, 5));
    assert!(matches!(one.unmoved(160, &cancel(1)), Reply::Stale(_)));
    assert!(matches!(
        One::completed().unmoved(300, &cancel(1)),
        Reply::Stale(_)
    ));
}

/// Evidence may look like an answer's; what is late is told by the event.
#[test]
fn an_owner_that_calls_unknown_what_a_reader_has_called_so_has_sent_something() {
    let with_result = Evidence {
        result: Some([1; 32]),
        ..Evidence::named("upstream_reset")
    };
    for evidence in [
        Evidence::named("response_timeout"),
        Evidence::named(Status::Completed.as_str()),
        with_result,
    ] {
        let mut one = One::claimed();
        one.at(1_400, &claims(2));
        let to = Target::Unknown { evidence };
        let says = transition(5, owner_fence(1, 100), to, Source::Owner);
        let reply = one.at(1_500, &says);
        assert!(matches!(reply, Reply::Applied(_)), "{reply:?}");
        let cancel = Action::Cancel { owner: token(1) };
        let reply = one.unmoved(1_600, &cancel);
        assert!(matches!(reply, Reply::Stale(_)), "{reply:?}");
    }
}

#[test]
fn an_unknown_operation_is_taken_over_by_one_of_those_who_saw_it() {
    let mut one = One::claimed();
    let generation = one.record().generation;
    let take = |owner, expect| Action::TakeOver {
        claim: claim(owner),
        expect,
    };
    let seen = one.record().version;
    assert!(
        matches!(one.unmoved(500, &take(2, seen)), Reply::Current(_)),
        "still pending"
    );
    let itself = one.unmoved(1_100, &take(1, seen));
    assert!(
        matches!(itself, Reply::Current(_)),
        "its versions would begin again"
    );
    let Reply::Claimed(record) = one.at(1_100, &take(2, seen)) else {
        panic!()
    };
    assert!(record.generation > generation);
    assert_eq!(record.version.incarnation, token(2).incarnation());
    let events = record.history.events();
    assert_eq!(events.len(), 2, "the first claim is remembered");
    assert!(
        matches!(one.unmoved(1_200, &take(3, seen)), Reply::Current(_)),
        "lost the race"
    );
    assert!(
        matches!(one.unmoved(1_200, &take(2, seen)), Reply::Claimed(_)),
        "a repeat"
    );
    let late = one.unmoved(2_100, &take(2, seen));
    assert!(
        matches!(late, Reply::Current(_)),
        "a repeat whose lease is over"
    );
    // The first owner has lost, and its answer is evidence.
    assert!(matches!(
        one.at(2_200, &complete(1, 100, 5, 10)),
        Reply::Stale(_)
    ));
    assert_eq!(
        last(one.record()).evidence.as_ref().unwrap().status,
        Some(201)
    );
}

#[test]
fn a_take_over_that_nobody_waits_for_is_refused_and_of_nothing_is_a_claim() {
    let mut one = One::claimed();
    let mut late = claim(2);
    late.not_after = 1_000;
    let expect = one.record().version;
    let late = Action::TakeOver {
        claim: late,
        expect,
    };
    assert_eq!(one.unmoved(1_100, &late), Reply::TooLate);
    let mut just = claim(2);
    just.not_after = 1_100;
    let action = Action::TakeOver {
        claim: just,
        expect,
    };
    for mut one in [one, One::default()] {
        assert!(matches!(one.at(1_100, &action), Reply::Claimed(_)));
    }
}

/// Owner 1 said unknown at 200, and owner 2 took over at 300.
fn taken_over() -> One {
    let mut one = One::claimed();
    one.at(200, &unknown(1, 5));
    let expect = one.record().version;
    let take = Action::TakeOver {
        claim: claim(2),
        expect,
    };
    assert!(matches!(one.at(300, &take), Reply::Claimed(_)));
    one
}

fn given_back(one: &mut One, now: u64) -> Evidence {
    let reply = one.at(now, &Action::Cancel { owner: token(2) });
    let Reply::Applied(record) = reply else {
        panic!("it is unknown again, and not absent: {reply:?}");
    };
    match record.state {
        State::Unknown {
            owner: None,
            evidence,
            ..
        } => evidence,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_take_over_that_is_given_back_leaves_the_operation_unknown() {
    let before = given_back(&mut taken_over(), 400);
    assert_eq!(before.status, None);
    // Its lease is over and noted, and a late answer of the first owner is there: beside that, and nobody's
    // word on the state.
    let mut one = taken_over();
    assert!(matches!(one.at(1_400, &claims(3)), Reply::Current(_)));
    let noted = last(one.record()).evidence.clone();
    let late = one.at(1_450, &complete(1, 100, 6, 10));
    assert!(matches!(late, Reply::Stale(_)));
    assert_eq!(Some(given_back(&mut one, 1_500)), noted);
}

#[test]
fn a_take_over_is_given_back_although_the_history_has_forgotten_it() {
    let mut one = taken_over();
    for write in 10..30 {
        one.at(400, &complete(1, 100, write, 10));
    }
    let events = one.record().history.events();
    assert!(events.iter().all(|e| e.write != claim_write(token(2))));
    assert_eq!(given_back(&mut one, 500), released());
}

#[test]
fn an_owner_whose_record_was_lost_writes_it_again_and_others_do_not() {
    for (action, status) in [
        (complete(1, 100, 5, 10), Status::Completed),
        (accept(1, 5), Status::Accepted),
        (unknown(1, 5), Status::Unknown),
        (renew(1, 5), Status::Pending),
    ] {
        let mut one = One::default();
        assert!(
            matches!(one.at(400, &action), Reply::Applied(_)),
            "{action:?}"
        );
        let record = one.record();
        assert_eq!(record.state.status(), status);
        assert_eq!((record.claimed_at, record.generation), (100, 100));
        assert_eq!(record.version.incarnation, token(1).incarnation());
    }
    let event = One::claimed().by_version(5, Status::Pending, done(5));
    assert_eq!(One::default().unmoved(400, &event), Reply::Absent);
}

#[test]
fn past_its_window_a_record_is_a_tombstone_to_every_step() {
    let mut done_one = One::completed();
    let mut never = One::claimed();
    for (one, end, unresolved) in [(&mut done_one, 10_200, false), (&mut never, 31_100, true)] {
        let version = one.record().version;
        for action in [
            Action::Read,
            claims(1),
            claims(2),
            complete(1, 100, 5, 10),
            renew(1, 9),
            Action::Cancel { owner: token(1) },
            Action::TakeOver {
                claim: claim(2),
                expect: version,
            },
        ] {
            assert_eq!(
                one.unmoved(end, &action),
                Reply::Expired { unresolved },
                "{action:?}"
            );
        }
        assert_eq!(one.unmoved(end + 20_000, &Action::Read), Reply::Absent);
        let generation = one.record().generation;
        assert!(matches!(
            one.at(end + 20_000, &claims(3)),
            Reply::Claimed(_)
        ));
        assert!(one.record().generation > generation);
        assert_eq!(one.record().history.events().len(), 1);
    }
}

#[test]
fn the_history_stays_bounded_whatever_comes() {
    let mut one = One::completed();
    for write in 10..200 {
        one.at(300, &complete(2, 100, write, 10));
    }
    let record = one.record();
    assert_eq!(record.history.events().len(), crate::record::MAX_EVENTS);
    assert!(crate::record::encode(record).len() <= crate::record::MAX_ENCODED);
    let State::Completed {
        outcome: Outcome { replay, .. },
        ..
    } = &record.state
    else {
        panic!()
    };
    assert_eq!(*replay, Replayable::Yes);
}
