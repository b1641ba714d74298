//! Every host call of every scenario fails in turn.
//!
//! After each run the rules are checked that no failure of the host may break:
//!
//! - no trap, nothing that Envoy would end a stream for;
//! - no stream hangs: all are over within bounded virtual time;
//! - nothing runs twice: once the host works again a client tries again, and the upstream has acted at
//!   most once for the operation (unless its answer said that nothing was done);
//! - what the clients and that last try get is in `docs/host-failures.md`.
//!
//! By default each call fails in a few of the ways there are, others for the next call. With
//! `IDEMPO_SWEEP=full` each call fails in all of them, which takes minutes, and the page must say no more
//! than what happened; `IDEMPO_SWEEP=write` writes it.

use crate::page::{self, Seen};
use crate::run::{HANGS, Outcome, run};
use crate::scenarios::{ALL, Scenario};
use idempo_engine_tests::faults::{Fault, Faults, Which, status};
use idempo_engine_tests::shared::CasRule;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls that hand octets over.
const GETTERS: [&str; 5] = [
    "proxy_get_buffer_bytes",
    "proxy_get_header_map_pairs",
    "proxy_get_property",
    "proxy_get_shared_data",
    "proxy_dequeue_shared_queue",
];

/// Calls that hand a number over. `proxy_http_call` is not among them: a host that says it has sent what it
/// has not sent never calls back.
const NUMBERS: [&str; 3] = [
    "proxy_get_current_time_nanoseconds",
    "proxy_register_shared_queue",
    "proxy_define_metric",
];

const STATUSES: [u32; 5] = [
    status::NOT_FOUND,
    status::BAD_ARGUMENT,
    status::EMPTY,
    status::CAS_MISMATCH,
    status::INTERNAL_FAILURE,
];

fn is_full() -> bool {
    matches!(
        std::env::var("IDEMPO_SWEEP").as_deref(),
        Ok("full" | "write")
    )
}

/// All ways in which that call is made to fail. "Done, and said otherwise" stands for all but one: a host
/// that sends a callout and says that it did not has broken its word, and no order of calls mends
/// that.
fn ways(call: &str) -> Vec<Fault> {
    let mut all: Vec<Fault> = STATUSES.map(Fault::Refused).into();
    if call != "proxy_http_call" {
        all.push(Fault::DoneBut(status::INTERNAL_FAILURE));
    }
    if GETTERS.contains(&call) {
        all.extend(Fault::OCTETS);
    }
    if NUMBERS.contains(&call) {
        all.extend([Fault::Nothing, Fault::Silent, Fault::Garbage]);
    }
    all
}

/// Those of the n-th call in this run of the tests.
fn some_ways(call: &str, n: usize) -> Vec<Fault> {
    let all = ways(call);
    if is_full() {
        return all;
    }
    // Steps that have no divisor in common with the numbers of ways: all ways come about.
    let picked: BTreeSet<usize> = [n, 5 * n + 2].map(|k| k % all.len()).into();
    picked.into_iter().map(|place| all[place]).collect()
}

/// Which calls fail: all of them; of a long run's, those of the start and a few of the rest.
fn chosen(calls: usize) -> Vec<usize> {
    const MANY: usize = 250;
    let rest = if is_full() { 61 } else { 211 };
    (0..calls.min(MANY))
        .chain((MANY..calls).step_by(rest))
        .collect()
}

/// One job for each scenario, on as many threads as there are processors.
fn for_each(scenarios: &[Scenario], job: impl Fn(&Scenario) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
                    job(scenario);
                }
            });
        }
    });
}

/// Runs that broke a rule, each kind once.
#[derive(Default)]
struct Broken(Mutex<BTreeSet<String>>);

impl Broken {
    fn note(
        &self,
        scenario: &Scenario,
        call: &str,
        fault: Fault,
        outcome: &Outcome,
        may_hang: bool,
    ) {
        let hung = outcome.clients.iter().any(|c| c == HANGS) && !may_hang;
        let again = (outcome.again == HANGS).then(|| "the next try hangs".to_owned());
        let hangs = hung.then(|| "a stream hangs".to_owned());
        let mut all = self.0.lock().expect("no panic");
        for wrong in outcome.wrongs.iter().cloned().chain(hangs).chain(again) {
            // It was resumed, said that it was not, and is resumed again: Envoy does nothing then.
            if fault == Fault::DoneBut(status::INTERNAL_FAILURE) && wrong.contains("was not held") {
                continue;
            }
            all.insert(format!("{}: {call} {fault:?}: {wrong}", scenario.name));
        }
    }

    fn check(self) {
        let all = self.0.into_inner().expect("no panic");
        let lines: Vec<_> = all.into_iter().collect();
        assert!(
            lines.is_empty(),
            "{} kinds:\n{}",
            lines.len(),
            lines.join("\n")
        );
    }
}

fn clean(scenario: &Scenario, rule: CasRule) -> Outcome {
    let clean = run(scenario, rule, Faults::default());
    assert_eq!(clean.wrongs, Vec::<String>::new(), "{}", scenario.name);
    assert!(
        clean.clients.iter().all(|c| c != HANGS),
        "{}",
        scenario.name
    );
    clean
}

#[test]
fn every_call_fails_in_turn() {
    let (broken, seen) = (Broken::default(), Mutex::new(Seen::default()));
    for_each(&ALL, |scenario| {
        let clean = clean(scenario, CasRule::Envoy);
        for n in chosen(clean.trace.len()) {
            let call = clean.trace[n];
            for fault in some_ways(call, n) {
                let plan = Faults::plan(Which::Nth(n), fault);
                let outcome = run(scenario, CasRule::Envoy, plan);
                assert_eq!(
                    outcome.trace.get(n),
                    Some(&call),
                    "the same calls up to there"
                );
                broken.note(scenario, call, fault, &outcome, false);
                let mut seen = seen.lock().expect("no panic");
                seen.add(call, scenario, &clean, &outcome);
            }
        }
    });
    broken.check();
    let seen = seen.into_inner().expect("no panic");
    match std::env::var("IDEMPO_SWEEP").as_deref() {
        Ok("write") => page::write(&seen),
        Ok("full") => page::check(&seen, true),
        _ => page::check(&seen, false),
    }
}

/// A host that never does one of its calls. Where that is the one by which clients are answered, or there is
/// no time that could pass, they cannot be; nothing else may make them wait for ever.
#[test]
fn a_call_that_always_fails() {
    const NEEDED: [&str; 4] = [
        "proxy_get_current_time_nanoseconds",
        "proxy_send_local_response",
        "proxy_continue_stream",
        "proxy_set_effective_context",
    ];
    let broken = Broken::default();
    for_each(&ALL, |scenario| {
        let clean = clean(scenario, CasRule::Envoy);
        for call in BTreeSet::from_iter(clean.trace) {
            for fault in ways(call) {
                let plan = Faults::plan(Which::Every(call), fault);
                let outcome = run(scenario, CasRule::Envoy, plan);
                broken.note(scenario, call, fault, &outcome, NEEDED.contains(&call));
            }
        }
    });
    broken.check();
}

/// From some call on the host does nothing any more, and later it works again.
#[test]
fn everything_fails_from_some_call_on() {
    let broken = Broken::default();
    for_each(&ALL, |scenario| {
        let clean = clean(scenario, CasRule::Envoy);
        for n in chosen(clean.trace.len()) {
            let fault = Fault::Refused(STATUSES[n % STATUSES.len()]);
            let plan = Faults::plan(Which::From(n), fault);
            let outcome = run(scenario, CasRule::Envoy, plan);
            broken.note(scenario, &format!("all from {n} on"), fault, &outcome, true);
        }
    });
    broken.check();
}

/// The same under the rule of `ngx_wasm_module`: the module finds out which one is in force, and a host
/// that fails meanwhile does not make it believe the wrong one.
#[test]
fn the_inverse_rule() {
    let broken = Broken::default();
    for_each(&ALL, |scenario| {
        let (clean, envoy) = (
            clean(scenario, CasRule::Inverse),
            clean(scenario, CasRule::Envoy),
        );
        assert_eq!(clean.clients, envoy.clients, "{}", scenario.name);
        assert_eq!(clean.again, envoy.again, "{}", scenario.name);
        let of_shared_data = |n: &usize| clean.trace[*n].ends_with("shared_data");
        for n in chosen(clean.trace.len()).into_iter().filter(of_shared_data) {
            for fault in some_ways(clean.trace[n], n) {
                let plan = Faults::plan(Which::Nth(n), fault);
                let outcome = run(scenario, CasRule::Inverse, plan);
                broken.note(scenario, clean.trace[n], fault, &outcome, false);
            }
        }
    });
    broken.check();
}
