//! Whose operation it is, under which identity it is found.

use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn a_route_that_was_renamed_finds_its_earlier_records() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    world.answer(&mut first, "201", &[], "done");
    world.reconfigure(|p| {
        p.routes[0] = route("payments");
        p.routes[0].previous = vec![PreviousIdentity {
            id: "charges".into(),
            tenant_default: None,
        }];
    });
    assert_eq!(world.keyed("{}").reply.expect("a replay").body, b"done");
    assert!(
        world
            .post(
                &[("idempotency-key", "9f3c1a52-8e0b-4d0e-9f57-3f1f5d2a9c11")],
                "{}"
            )
            .forwarded()
    );
}

#[test]
fn a_key_from_before_the_restart_is_unknown_and_never_runs() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].key_time = Some(KeyTime::UuidV7));
    // UUIDv7 of 1 699 999 999 999 and 1 700 000 000 000 ms: one before and one at the start.
    let (before, since) = (
        "018bcfe5-67ff-7000-8000-0123456789ab",
        "018bcfe5-6800-7000-8000-0123456789ab",
    );
    for _ in 0..2 {
        let old = world.post(&[("idempotency-key", before)], "{}");
        assert_eq!(old.code(), "outcome_unknown");
        assert_eq!(old.problem()["evidence"]["details"], "restart");
    }
    assert!(world.post(&[("idempotency-key", since)], "{}").forwarded());
    assert_eq!(
        world.post(&[("idempotency-key", KEY)], "{}").code(),
        "key_invalid"
    );
}

#[test]
fn a_duplicate_waits_under_the_identity_where_the_first_attempt_runs() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    world.reconfigure(|p| {
        p.routes[0] = route("payments");
        p.routes[0].in_flight.action = InFlightAction::Wait;
        p.routes[0].previous = vec![PreviousIdentity {
            id: "charges".into(),
            tenant_default: None,
        }];
    });
    let mut second = world.keyed("{}");
    assert!(
        second.exchange.waits().is_some(),
        "not claimed under the new identity"
    );
    assert_eq!(world.records.len(), 1);
    world.answer(&mut first, "201", &[], "done");
    world.event(&mut second, |e, _, out| e.on_wake(out));
    assert_eq!(second.reply.expect("a replay").body, b"done");
}

#[test]
fn a_tenant_default_that_was_renamed_finds_its_earlier_records() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    world.answer(&mut first, "201", &[], "done");
    world.reconfigure(|p| {
        p.tenant.default = "everybody".into();
        p.routes[0].previous = vec![PreviousIdentity {
            id: "charges".into(),
            tenant_default: Some("public".into()),
        }];
        p.routes[0].unknown = UnknownPolicy::Forward;
    });
    assert_eq!(world.keyed("{}").reply.expect("a replay").body, b"done");
    // And what is unknown under the earlier identity is not run under the new one.
    let key = ("idempotency-key", "9f3c1a52-8e0b-4d0e-9f57-3f1f5d2a9c11");
    let plan_now = world.policy.plan.clone();
    world.reconfigure(|p| *p = plan());
    let mut lost = world.post(&[key], "{}");
    world.answer(&mut lost, "500", &[], "boom");
    world.reconfigure(|p| *p = plan_now);
    assert_eq!(world.post(&[key], "{}").code(), "outcome_unknown");
}

#[test]
fn tenants_are_apart_and_principals_too() {
    let mut world = World::new(plan());
    assert!(
        world
            .post(&[("idempotency-key", KEY), ("x-tenant-id", "a")], "{}")
            .forwarded()
    );
    assert!(
        world
            .post(&[("idempotency-key", KEY), ("x-tenant-id", "b")], "{}")
            .forwarded()
    );
    world.reconfigure(|p| p.principal = Some(Source::Header("x-user".into())));
    let key = ("idempotency-key", "1f3c1a52-8e0b-4d0e-9f57-3f1f5d2a9c11");
    assert!(world.post(&[key, ("x-user", "ann")], "{}").forwarded());
    let other = world.post(&[key, ("x-user", "bob")], "{}");
    assert_eq!(
        (other.code().as_str(), other.header("idempotency-status")),
        ("principal_mismatch", None)
    );
}
