//! Every host call of every scenario fails in turn, in every way.
//!
//! After each run the rules are checked that no failure of the host may break:
//!
//! - no trap, nothing that Envoy would end a stream for;
//! - no stream hangs: all are over within bounded virtual time;
//! - nothing runs twice: once the host works again a client tries again, and the upstream has acted at most
//!   once for the operation (unless its answer said that nothing was done);
//! - that last try is answered as documented.

use crate::compiled;
use crate::scenarios::{ALL, KEY, LONG_MS, Scenario};
use idempo_engine_tests::faults::{Fault, Faults, Which, status};
use idempo_engine_tests::host::{Got, Host, How};
use idempo_engine_tests::shared::CasRule;
use std::collections::{BTreeMap, BTreeSet};

/// Calls that hand octets over.
const GETTERS: [&str; 5] = [
    "proxy_get_buffer_bytes",
    "proxy_get_header_map_pairs",
    "proxy_get_property",
    "proxy_get_shared_data",
    "proxy_dequeue_shared_queue",
];

/// Calls that hand a number over.
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

/// The ways in which that call is made to fail. "Done, and said otherwise" stands for all calls but one: a
/// host that sends a callout and says that it did not has broken its word, and no order of calls
/// mends that.
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

/// What came of one run.
struct Outcome {
    wrongs: Vec<String>,
    /// What its clients got.
    clients: Vec<String>,
    /// What a client got that tried again afterwards.
    again: String,
}

fn told(got: Option<&Got>) -> String {
    let Some(got) = got else {
        return "hangs".to_owned();
    };
    let marker = |name| got.header(name);
    match got.how {
        How::Left => "left".to_owned(),
        How::Broken => "broken".to_owned(),
        How::Upstream => match marker("idempotency-status") {
            Some(status) => format!("the upstream's answer, `{status}`"),
            None => "the upstream's answer, no marker".to_owned(),
        },
        How::Proxy => format!("{}, Envoy's", got.status),
        How::Filter if marker("idempotent-replayed").as_deref() == Some("true") => {
            "replayed".to_owned()
        }
        How::Filter => match got.code() {
            Some(code) => format!("{} `{code}`", got.status),
            None if got.status == 201 => "the upstream's answer, through the loopback".to_owned(),
            None => format!("{} without a body", got.status),
        },
    }
}

fn run(scenario: &Scenario, faults: Faults) -> (Outcome, Vec<&'static str>) {
    let setup = scenario.setup(CasRule::Envoy, faults);
    let mut host = Host::start(compiled(), setup);
    let clients = (scenario.run)(&mut host);
    host.until(LONG_MS, |h| h.waiting() == 0);
    let trace = host.shared().faults.trace.clone();
    host.shared_mut().faults.lift();
    host.pass(1_000);
    let mut wrongs = host.wrongs();
    let all: Vec<_> = clients.iter().map(|c| told(host.got(*c))).collect();
    if all.iter().any(|c| c == "hangs") {
        wrongs.push("a stream hangs".to_owned());
    }
    let again = host.send(0, (scenario.retry)());
    host.until(LONG_MS, |h| h.got(again).is_some());
    let again = told(host.got(again));
    if again == "hangs" {
        wrongs.push("the next try hangs".to_owned());
    }
    let allowed = if scenario.observes {
        usize::MAX
    } else {
        scenario.may_act
    };
    let effects = host.world().effects(KEY);
    if effects > allowed {
        wrongs.push(format!("ran {effects} times"));
    }
    wrongs.extend(host.wrongs());
    let outcome = Outcome {
        wrongs,
        clients: all,
        again,
    };
    (outcome, trace)
}

/// Which calls fail: all of them; of a long run's, those of the start and a few of the rest.
fn chosen(calls: usize) -> Vec<usize> {
    const MANY: usize = 500;
    (0..calls.min(MANY))
        .chain((MANY..calls).step_by(97))
        .collect()
}

#[test]
fn explore() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut bad: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut seen: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut runs = 0;
    for scenario in ALL.iter().filter(|s| s.name.contains(&only)) {
        let begun = std::time::Instant::now();
        let (clean, trace) = run(scenario, Faults::default());
        println!(
            "{}: {} calls; {:?} then {}",
            scenario.name,
            trace.len(),
            clean.clients,
            clean.again
        );
        assert!(clean.wrongs.is_empty(), "{:?}", clean.wrongs);
        for n in chosen(trace.len()) {
            let call = trace[n];
            for fault in ways(call) {
                let (outcome, _) = run(scenario, Faults::plan(Which::Nth(n), fault));
                runs += 1;
                for client in &outcome.clients {
                    seen.entry(call)
                        .or_default()
                        .insert(format!("{client} → {}", outcome.again));
                }
                for wrong in outcome.wrongs {
                    let what = wrong.lines().next().unwrap_or_default().to_owned();
                    let entry =
                        bad.entry(format!("{} / {call} / {fault:?}: {what}", scenario.name));
                    let entry = entry.or_insert_with(|| (0, format!("#{n} {wrong}")));
                    entry.0 += 1;
                }
            }
        }
        println!("   {runs} runs so far, {:?}", begun.elapsed());
    }
    for (what, (times, example)) in &bad {
        println!(
            "{times} × {what}\n      {}",
            example.lines().take(3).collect::<Vec<_>>().join(" | ")
        );
    }
    for (call, outcomes) in &seen {
        println!("{call}");
        for outcome in outcomes {
            println!("    {outcome}");
        }
    }
    assert!(bad.is_empty(), "{} kinds of failure", bad.len());
}
