//! `observe`, `off`, roll-outs and route metadata.

use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn observe_never_answers_and_counts() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.mode = Mode::Observe);
    let mut first = world.keyed("{}");
    assert!(first.forwarded() && first.request.is_empty());
    world.answer(&mut first, "201", &[], "done");
    assert!(first.response.is_empty());
    let again = world.keyed("{}");
    let other = world.keyed(r#"{"x":1}"#);
    let bad = world.post(&[("idempotency-key", "short")], "{}");
    for client in [&again, &other, &bad] {
        assert!(client.forwarded() && client.request.is_empty());
    }
    let would: Vec<_> = world
        .counted
        .iter()
        .filter(|c| matches!(c, Counter::Would(..)))
        .copied()
        .collect();
    assert_eq!(
        would,
        [
            Counter::Would(0, None),
            Counter::Would(0, Some(crate::reply::Code::PayloadMismatch)),
            Counter::Would(0, Some(crate::reply::Code::KeyWeak)),
        ]
    );
}

/// Holding back more could make the host answer 413; and what is not looked at is not called refused.
#[test]
fn a_fraction_enforces_by_operation_and_always_the_same_ones() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.enforce_fraction = 0.5);
    let mut enforced = 0;
    for n in 0..200 {
        let key = format!("5f3c1a52-8e0b-4d0e-9f57-{n:012}");
        let first = world.post(&[("idempotency-key", &key)], "{}");
        let again = world.post(&[("idempotency-key", &key)], "{}");
        assert_eq!(
            first.set("x-idempo-operation").is_some(),
            again.reply.is_some()
        );
        enforced += usize::from(again.reply.is_some());
    }
    assert!((70..130).contains(&enforced), "{enforced}");
    let refused = (0..200)
        .filter(|n| {
            let id = format!("req-{n}");
            world.post(&[("x-request-id", &id)], "{}").reply.is_some()
        })
        .count();
    assert!((70..130).contains(&refused), "{refused}");
}

#[test]
fn off_touches_nothing() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.mode = Mode::Off);
    let client = world.post(
        &[("idempotency-key", KEY), ("x-idempo-tenant", "forged")],
        "{}",
    );
    assert!(client.forwarded() && client.request.is_empty() && world.records.is_empty());
}

#[test]
fn route_metadata_selects_and_misconfiguration_is_refused() {
    let mut world = World::new(plan());
    let base = "xds.route_metadata.filter_metadata.idempo";
    world.facts.0.insert(base.into(), vec![1]);
    world
        .facts
        .0
        .insert(format!("{base}.route"), b"charges".to_vec());
    let elsewhere = [(":path", "/anything"), ("idempotency-key", KEY)];
    assert!(world.post(&elsewhere, "{}").set("x-idempo-route").is_some());
    world
        .facts
        .0
        .insert(format!("{base}.mode"), b"off".to_vec());
    assert!(world.post(&elsewhere, "{}").request.is_empty());
    world.facts.0.remove(&format!("{base}.mode"));
    world
        .facts
        .0
        .insert(format!("{base}.route"), b"no_such_rule".to_vec());
    let refused = world.post(&elsewhere, "{}");
    assert_eq!(
        (
            refused.code().as_str(),
            refused.problem()["reason"].as_str()
        ),
        ("misconfigured", Some("unknown_rule"))
    );
    world.facts.0.remove(&format!("{base}.route"));
    world
        .facts
        .0
        .insert(format!("{base}.requires_idempotency"), vec![1]);
    assert_eq!(world.post(&elsewhere, "{}").problem()["reason"], "no_rule");
}
