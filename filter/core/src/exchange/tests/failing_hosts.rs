//! What the host did not do, or did not show.

use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn a_request_that_could_not_be_changed_does_not_go_on_and_its_key_is_free() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    assert!(first.forwarded());
    world.event(&mut first, Exchange::on_request_unfit);
    assert_eq!(first.code(), "misconfigured");
    assert_eq!(first.problem()["reason"], "headers_refused");
    let again = world.keyed("{}");
    assert!(again.forwarded(), "nothing was sent, nothing is remembered");
}

#[test]
fn what_is_not_claimed_could_still_pass_for_what_it_is_not() {
    let mut world = World::new(plan());
    // No rule takes it; a forged header could not be removed.
    let mut other = world.post(&[(":path", "/elsewhere")], "");
    assert!(other.forwarded());
    world.event(&mut other, Exchange::on_request_unfit);
    assert_eq!(other.code(), "misconfigured");
}

#[test]
fn observing_lets_an_unchanged_request_pass() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.mode = Mode::Observe);
    let mut first = world.keyed("{}");
    world.event(&mut first, Exchange::on_request_unfit);
    assert!(first.forwarded());
    world.answer(&mut first, "201", &[], "done");
}

/// It would be awaited for ever: the host does not show it again.
#[test]
fn a_body_that_is_not_shown_is_refused_before_it_is_claimed() {
    let mut world = World::new(plan());
    let headers = [
        (":method", "POST"),
        (":path", "/v1/charges"),
        (":authority", "api.test"),
        ("content-type", "application/json"),
        ("idempotency-key", KEY),
    ];
    let mut first = world.headers(&headers, false);
    assert!(first.exchange.holds_request());
    world.event(&mut first, Exchange::on_body_lost);
    assert_eq!(first.code(), "misconfigured");
    assert_eq!(first.problem()["reason"], "body_withheld");
    assert!(world.records.is_empty());

    world.reconfigure(|p| p.mode = Mode::Observe);
    let mut observed = world.headers(&headers, false);
    world.event(&mut observed, Exchange::on_body_lost);
    assert!(observed.forwarded());
}
