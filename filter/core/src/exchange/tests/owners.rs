//! Claims, leases, waiters, take-overs and releases.

use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn a_running_operation_refuses_its_duplicates() {
    let mut world = World::new(plan());
    let _first = world.keyed("{}");
    let second = world.keyed("{}");
    assert_eq!(second.code(), "in_flight");
    assert!(second.header("retry-after").is_some());
    // The fingerprint comes before the state: even while pending.
    assert_eq!(world.keyed(r#"{"x":1}"#).code(), "payload_mismatch");
}

#[test]
fn a_waiter_gets_the_answer_once_there_is_one() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].in_flight.action = InFlightAction::Wait);
    let mut first = world.keyed("{}");
    let mut second = world.keyed("{}");
    assert!(second.waits && second.exchange.holds_request());
    world.answer(&mut first, "201", &[], "done");
    assert_eq!(world.woken.len(), 1);
    world.event(&mut second, |e, _, out| e.on_wake(out));
    assert_eq!(second.reply.expect("a replay").body, b"done");
}

#[test]
fn a_waiter_claims_after_a_release_and_gives_up_in_time() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].in_flight.action = InFlightAction::Wait);
    let mut first = world.keyed("{}");
    let mut second = world.keyed("{}");
    let mut third = world.keyed("{}");
    world.answer(&mut first, "429", &[], "slow down");
    assert_eq!(
        first.mark("idempotency-status").as_deref(),
        Some("released")
    );
    world.event(&mut second, |e, _, out| e.on_wake(out));
    assert!(second.forwarded(), "the waiter runs now");
    world.event(&mut third, |e, _, out| e.on_wake(out));
    assert!(third.exchange.waits().is_some());
    world.now += 10_001;
    world.event(&mut third, |e, now, out| e.on_tick(now, out));
    assert_eq!(third.code(), "in_flight");
    assert_eq!(
        world.only().generation,
        1_700_000_100_000,
        "the third touched nothing"
    );
}

#[test]
fn a_lease_is_renewed_while_the_exchange_lives() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    for _ in 0..10 {
        world.now += 10_000;
        world.event(&mut first, |e, now, out| e.on_tick(now, out));
    }
    assert_eq!(world.keyed("{}").code(), "in_flight");
    world.now += 30_000;
    assert_eq!(
        world.keyed("{}").code(),
        "outcome_unknown",
        "its owner is silent"
    );
    // The late owner's token still stands.
    world.answer(&mut first, "201", &[], "late");
    assert_eq!(world.keyed("{}").reply.expect("a replay").body, b"late");
}

#[test]
fn a_store_that_fails_follows_the_routes_policy() {
    let mut world = World::new(plan());
    world.broken = true;
    let first = world.keyed("{}");
    assert_eq!(
        (first.code().as_str(), first.header("retry-after").is_some()),
        ("store_unavailable", true)
    );
    assert!(
        matches!(world.deferred[0].action, Action::Cancel { .. }),
        "nothing is left behind"
    );
    world.reconfigure(|p| p.routes[0].store_failure = StoreFailure::Open);
    let mut second = world.keyed("{}");
    assert!(second.forwarded());
    assert!(
        second.set("x-idempo-operation").is_none(),
        "nobody vouches for it"
    );
    world.answer(&mut second, "201", &[], "x");
    assert_eq!(
        second.mark("idempotency-status").as_deref(),
        Some("bypassed")
    );
}

#[test]
fn a_lease_that_a_retry_finds_over_is_counted_once() {
    let mut world = World::new(plan());
    let _gone = world.keyed("{}");
    world.now += 30_000;
    for _ in 0..3 {
        // Also within one tick of the store's clock.
        assert_eq!(world.keyed("{}").code(), "outcome_unknown");
        assert_eq!(world.keyed("{}").code(), "outcome_unknown");
        world.now += 60_000;
    }
    let lapsed = Counter::Unknown(0, Cause::LeaseOver);
    assert_eq!(world.counted.iter().filter(|c| **c == lapsed).count(), 1);
}

#[test]
fn a_new_key_for_what_is_still_unknown_is_recognised() {
    let mut world = World::new(plan());
    let mut first = world.keyed(r#"{"amount":1}"#);
    world.answer(&mut first, "500", &[], "boom");
    let [(_, likeness)] = world.noted[..] else {
        panic!("one note: {:?}", world.noted)
    };
    let key = ("idempotency-key", "9f3c1a52-8e0b-4d0e-9f57-3f1f5d2a9c11");
    world.post(&[key], r#"{"amount":1}"#);
    assert_eq!(world.suspected.last(), Some(&likeness));
    let key = ("idempotency-key", "8f3c1a52-8e0b-4d0e-9f57-3f1f5d2a9c11");
    world.post(&[key], r#"{"amount":2}"#);
    assert_ne!(world.suspected.last(), Some(&likeness));
}

#[test]
fn what_a_restart_made_unknown_is_not_taken_over_by_the_attempt_that_found_it() {
    for policy in [
        UnknownPolicy::Forward,
        UnknownPolicy::Retry { reason: "x".into() },
    ] {
        let mut world = World::new(plan());
        world.reconfigure(|p| {
            p.routes[0].key_time = Some(KeyTime::UuidV7);
            p.routes[0].unknown = policy.clone();
        });
        let before = "018bcfe5-67ff-7000-8000-0123456789ab";
        let old = world.post(&[("idempotency-key", before)], "{}");
        assert_eq!(old.code(), "outcome_unknown");
        // The next attempt follows the policy.
        let next = world.post(&[("idempotency-key", before)], "{}");
        assert!(next.forwarded());
    }
}

#[test]
fn open_runs_nothing_of_which_there_is_a_record() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].store_failure = StoreFailure::Open);
    let mut first = world.keyed("{}");
    world.answer(&mut first, "201", &[], "done");
    // The claim finds the record, and then its answer cannot be fetched.
    world.bodies.clear();
    assert_eq!(world.keyed("{}").code(), "replay_unavailable");
    let headers: Headers = [
        (":method", "POST"),
        (":path", "/v1/charges"),
        ("idempotency-key", KEY),
        ("content-type", "application/json"),
    ]
    .into_iter()
    .collect();
    let mut client = world.client();
    let mut out = vec![];
    let moment = world.moment();
    client
        .exchange
        .on_request_headers(headers, false, &world.facts, moment, &mut out);
    out.clear();
    client
        .exchange
        .on_request_chunk(b"{}".to_vec(), true, moment, &mut out);
    let claim = out.iter().find_map(|e| match e {
        Effect::Store(op) => Some(op.clone()),
        _ => None,
    });
    let found = world.store(&claim.expect("a claim"));
    out.clear();
    client.exchange.on_store(found, moment, &mut out);
    out.clear();
    client
        .exchange
        .on_store(Reply::Failed("down".into()), moment, &mut out);
    world.carry_out(&mut client, out);
    assert_eq!(client.code(), "store_unavailable");
}

#[test]
fn a_release_after_a_renewal_is_a_release() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    world.now += 12_000;
    world.event(&mut first, |e, now, out| e.on_tick(now, out));
    world.broken = true;
    world.answer(&mut first, "429", &[], "slow down");
    let ran = |c: &Counter| matches!(c, Counter::Compensation(_));
    assert!(!world.counted.iter().any(ran), "nothing ran");
}

#[test]
fn an_answer_is_recorded_although_a_renewal_is_under_way() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    world.under_way = Some(Default::default());
    world.now += 12_000;
    world.event(&mut first, |e, now, out| e.on_tick(now, out));
    let headers: Headers = [(":status", "201")].into_iter().collect();
    let origin = Origin {
        details: "via_upstream",
        attempts: &|| Some(1),
        can_hold: true,
    };
    world.event(&mut first, |e, now, out| {
        e.on_response_headers(&headers, true, &origin, now, out);
    });
    world.catch_up(&mut first);
    assert!(first.exchange.holds_response(), "only the lease is renewed");
    assert_eq!(first.mark("idempotency-status"), None);
    world.catch_up(&mut first);
    assert!(!first.exchange.holds_response());
    let status = first.mark("idempotency-status");
    assert_eq!(status.as_deref(), Some("completed"));
}

#[test]
fn what_never_left_is_not_taken_back() {
    for reply in [Reply::Unsent("down".into()), Reply::Recovering(20_000)] {
        let mut world = World::new(plan());
        world.under_way = Some(Default::default());
        let mut first = world.keyed("{}");
        let recovers = matches!(reply, Reply::Recovering(_));
        world.event(&mut first, |e, now, out| {
            e.set_store_failures(4);
            e.on_store(reply, now, out);
        });
        assert!(world.deferred.is_empty());
        let after: u32 = first.header("retry-after").unwrap().parse().unwrap();
        if recovers {
            assert_eq!(first.code(), "store_recovering");
            assert!((10..=20).contains(&after), "{after}");
        } else {
            assert_eq!(first.code(), "store_unavailable");
            assert!((4..=8).contains(&after), "{after}: the fourth failure");
        }
    }
}

#[test]
fn a_wake_that_comes_while_a_waiter_looks_is_not_lost() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].in_flight.action = InFlightAction::Wait);
    let mut first = world.keyed("{}");
    let mut second = world.keyed("{}");
    assert!(second.waits);
    world.under_way = Some(Default::default());
    world.event(&mut second, |e, _, out| e.on_wake(out));
    let seen = world.under_way.as_mut().unwrap().pop_front().unwrap();
    let old = world.store(&seen);
    world.under_way = None;
    world.answer(&mut first, "201", &[], "done");
    world.event(&mut second, |e, _, out| e.on_wake(out));
    world.event(&mut second, |e, now, out| e.on_store(old, now, out));
    assert_eq!(second.reply.expect("a replay").body, b"done");
}

#[test]
fn a_write_that_meets_anothers_claim_is_made_again() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    // The store forgets, and lets another one claim before that is noticed.
    world.records.clear();
    let second = world.keyed("{}");
    assert!(second.forwarded());
    world.answer(&mut first, "201", &[], "done");
    assert!(world.counted.contains(&Counter::LateWrite(0)));
    assert_eq!(world.retried, 1);
}
