//! Runs without faults: the engine is one that the module works in.

use crate::compiled;
use crate::run;
use crate::scenarios::{ALL, KEY, LONG_MS, Scenario};
use idempo_engine_tests::faults::Faults;
use idempo_engine_tests::host::{Got, Host, How};
use idempo_engine_tests::shared::CasRule;

fn named(name: &str) -> Scenario {
    let mut all = ALL.into_iter();
    all.find(|s| s.name == name).expect("a scenario")
}

/// Runs a scenario to its end.
fn play(name: &str) -> (Host, Vec<Got>) {
    let scenario = named(name);
    let setup = scenario.setup(CasRule::Envoy, Faults::default());
    let mut host = Host::start(compiled(), setup);
    assert!(
        host.workers.iter().all(|w| w.configured),
        "{:?}",
        host.shared().log
    );
    let clients = (scenario.run)(&mut host);
    assert!(host.until(LONG_MS, |h| h.waiting() == 0), "{name}: hangs");
    assert_eq!(host.wrongs(), Vec::<String>::new(), "{name}");
    let got = clients
        .iter()
        .map(|c| host.got(*c).cloned().expect("an end"));
    let got = got.collect();
    (host, got)
}

fn replayed(got: &Got) -> bool {
    got.how == How::Filter && got.header("idempotent-replayed").as_deref() == Some("true")
}

#[test]
fn a_first_attempt_runs_and_a_second_is_replayed() {
    let (host, got) = play("first attempt, replay");
    assert_eq!(host.world().effects(KEY), 1);
    assert_eq!((got[0].how, got[0].status), (How::Upstream, 201));
    assert!(replayed(&got[1]), "{:?}", got[1]);
    assert_eq!(got[0].body, got[1].body);
    assert_eq!(got[0].outcome().as_deref(), Some("executed"));
    assert_eq!(got[1].outcome().as_deref(), Some("replayed"));
    assert_eq!(host.shared().sum("idempo_executed_total"), 1);
    assert_eq!(host.shared().sum("idempo_replay_total"), 1);
}

#[test]
fn another_request_under_the_same_key_is_refused() {
    let (host, got) = play("conflict");
    assert_eq!(host.world().effects(KEY), 1);
    assert_eq!(got[1].status, 422);
    assert_eq!(got[1].code().as_deref(), Some("payload_mismatch"));
}

#[test]
fn whoever_waits_in_another_worker_is_woken() {
    let (host, got) = play("wait and wake across workers");
    assert_eq!(host.world().effects(KEY), 1);
    assert_eq!(got[0].how, How::Upstream);
    for waiter in &got[1..] {
        assert!(replayed(waiter), "{waiter:?}");
        // The look that needs no waking comes after a second.
        assert!(
            waiter.took_ms < 500,
            "woken, not by looking: {}",
            waiter.took_ms
        );
    }
}

#[test]
fn a_detached_attempt_goes_through_the_loopback() {
    let (host, got) = play("detached");
    assert_eq!(host.world().effects(KEY), 1);
    assert_eq!(
        (got[0].how, got[0].status),
        (How::Filter, 201),
        "{:?}",
        host.shared().log
    );
    assert!(replayed(&got[1]));
    let world = host.world();
    // The first is the probe.
    assert!(world.called.len() >= 2, "{:?}", world.called);
    assert!(world.acted.iter().all(|seen| seen.cluster.is_empty()));
}

#[test]
fn a_client_that_leaves_loses_nothing_where_its_attempt_is_detached() {
    let (host, got) = play("detached, the client leaves");
    assert_eq!(host.world().effects(KEY), 1);
    assert_eq!(got[0].how, How::Left);
    assert!(replayed(&got[1]), "{:?}", got[1]);
}

#[test]
fn what_is_observed_runs_each_time() {
    let (host, got) = play("observe");
    assert_eq!(host.world().effects(KEY), 2);
    assert!(
        got.iter()
            .all(|g| g.how == How::Upstream && g.status == 201)
    );
    assert_eq!(host.shared().sum("idempo_would_total"), 1);
}

#[test]
fn a_large_body_streams_and_is_replayed() {
    let (mut host, got) = play("large body");
    assert_eq!((got[0].how, got[0].status), (How::Upstream, 201));
    assert_eq!(host.world().acted[0].body.len(), 200_000);
    let again = host.ask(0, (named("large body").retry)());
    assert!(replayed(&again), "{again:?}");
    assert_eq!(host.world().effects(KEY), 1);
}

#[test]
fn a_client_that_leaves_inline_makes_it_unknown() {
    let (host, got) = play("client leaves, inline");
    assert_eq!(host.world().effects(KEY), 1);
    assert_eq!(got[0].how, How::Left);
    assert_eq!(got[1].code().as_deref(), Some("outcome_unknown"));
}

#[test]
fn the_router_does_not_try_again_by_itself() {
    let (mut host, got) = play("upstream breaks, the router would try again");
    assert_eq!(host.world().effects(KEY), 1);
    assert_eq!((got[0].how, got[0].status), (How::Proxy, 503));
    let again = host.ask(0, (named("first attempt, replay").retry)());
    assert_eq!(again.code().as_deref(), Some("outcome_unknown"));
}

#[test]
fn what_was_refused_may_run_again() {
    let (mut host, got) = play("refused upstream, released");
    assert_eq!(got[0].status, 429);
    let again = host.ask(0, (named("first attempt, replay").retry)());
    assert_eq!((again.how, again.status), (How::Upstream, 201));
    assert_eq!(
        host.world().effects(KEY),
        2,
        "the first one said that nothing was done"
    );
}

#[test]
fn ticks_renew_leases_and_one_worker_sweeps() {
    let (host, got) = play("ticks");
    assert_eq!(got[0].status, 201);
    let ticks = host.shared().faults.trace.len();
    assert!(ticks > 500, "{ticks} calls");
    assert!(host.shared().data.contains_key("idempo/1/sweeper"));
}

#[test]
fn the_other_scenarios_end_as_documented() {
    const DONE: &str = "the answer, `completed`";
    const AGAIN: &str = "a replay";
    const UNKNOWN: &str = "409 `outcome_unknown`";
    for (name, clients, again) in [
        (
            "released while another waits",
            &["the answer, `released`", DONE][..],
            AGAIN,
        ),
        ("detached, the loopback breaks", &[UNKNOWN], UNKNOWN),
        ("trailers", &[DONE], AGAIN),
        ("bodies are withheld", &["500 `misconfigured`"], DONE),
        (
            "bodies are withheld, observe",
            &["the answer, unmarked"],
            "the answer, unmarked",
        ),
        (
            "tenants, quota, principal, forged headers",
            &[DONE, "403 `principal_mismatch`"],
            AGAIN,
        ),
        ("large answer", &["the answer, `pending`", AGAIN], AGAIN),
        (
            "a new configuration while a detached attempt runs",
            &["the answer, detached", AGAIN],
            AGAIN,
        ),
    ] {
        let outcome = run::run(&named(name), CasRule::Envoy, Faults::default());
        assert_eq!(outcome.clients, clients, "{name}");
        assert_eq!(outcome.again, again, "{name}");
        assert_eq!(outcome.wrongs, Vec::<String>::new(), "{name}");
    }
}

/// Header maps are gone once they were let go of, as in Envoy.
#[test]
fn forged_headers_never_reach_the_upstream() {
    let (host, _) = play("tenants, quota, principal, forged headers");
    let world = host.world();
    let seen = &world.acted[0].headers;
    let of = |name: &str| seen.iter().filter(|(n, _)| n == name.as_bytes()).count();
    assert_eq!(of("x-idempo-operation"), 1);
    assert!(seen.iter().all(|(_, value)| value != b"forged"));
    assert_eq!(of("x-envoy-max-retries"), 1);
}
