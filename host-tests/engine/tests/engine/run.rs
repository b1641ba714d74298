//! One run of a scenario with a plan of faults, and what came of it.

use crate::compiled;
use crate::scenarios::{KEY, LONG_MS, Scenario};
use idempo_engine_tests::faults::Faults;
use idempo_engine_tests::host::{Got, Host, How};
use idempo_engine_tests::shared::CasRule;

pub(crate) const HANGS: &str = "nothing";

/// What came of one run.
pub(crate) struct Outcome {
    /// Rules that were broken; hanging is told by what clients got.
    pub(crate) wrongs: Vec<String>,
    /// What its clients got.
    pub(crate) clients: Vec<String>,
    /// What a client got that tried again afterwards, when the host worked again.
    pub(crate) again: String,
    /// The calls that were made until then.
    pub(crate) trace: Vec<&'static str>,
}

/// Runs a scenario until its streams are over, mends the host, and tries again.
pub(crate) fn run(scenario: &Scenario, rule: CasRule, faults: Faults) -> Outcome {
    let setup = scenario.setup(rule, faults);
    let mut host = Host::start(compiled(), setup);
    let clients = (scenario.run)(&mut host);
    host.until(LONG_MS, |h| h.waiting() == 0);
    let trace = host.shared().faults.trace.clone();
    host.shared_mut().faults.lift();
    host.pass(1_000);
    let clients = clients.iter().map(|c| told(host.got(*c))).collect();
    let again = host.send(0, (scenario.retry)());
    host.until(LONG_MS, |h| h.got(again).is_some());
    let again = told(host.got(again));
    let mut wrongs = host.wrongs();
    let effects = host.world().effects(KEY);
    if effects > scenario.may_act && !scenario.observes {
        wrongs.push(format!("ran {effects} times"));
    }
    Outcome {
        wrongs,
        clients,
        again,
        trace,
    }
}

/// What a client got, in the words of the documentation.
pub(crate) fn told(got: Option<&Got>) -> String {
    let Some(got) = got else {
        return HANGS.to_owned();
    };
    match got.how {
        How::Left => "(left)".to_owned(),
        How::Broken => "an answer that breaks off".to_owned(),
        How::Upstream => match got.header("idempotency-status") {
            Some(status) => format!("the answer, `{status}`"),
            None => "the answer, unmarked".to_owned(),
        },
        How::Proxy => format!("{} of Envoy's", got.status),
        How::Filter if got.header("idempotent-replayed").as_deref() == Some("true") => {
            "a replay".to_owned()
        }
        How::Filter => match got.code() {
            Some(code) => format!("{} `{code}`", got.status),
            None if got.status == 201 => "the answer, detached".to_owned(),
            None => format!("{} without a body", got.status),
        },
    }
}
