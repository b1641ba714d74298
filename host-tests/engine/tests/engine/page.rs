//! `docs/host-failures.md`: what happens when a host call fails. The prose is here, the outcomes are what
//! the sweep saw.

use crate::run::Outcome;
use crate::scenarios::Scenario;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Each call, and why it ends as it does.
const CALLS: [(&str, &str); 22] = [
    (
        "environ_get",
        "Without the signing secret the configuration is refused",
    ),
    ("environ_sizes_get", "The same"),
    (
        "proxy_continue_stream",
        "Asked again at every tick, for five seconds",
    ),
    ("proxy_define_metric", "That metric is missing"),
    (
        "proxy_dequeue_shared_queue",
        "A wake-up is lost: whoever waits looks again after a second",
    ),
    ("proxy_enqueue_shared_queue", "The same"),
    (
        "proxy_get_buffer_bytes",
        "A configuration that cannot be read is refused. A request body that is not shown cannot be compared: \
         refused before it runs, observed ones pass. An answer that is not shown passes and is never replayed",
    ),
    (
        "proxy_get_current_time_nanoseconds",
        "The store's clock moves by two seconds at most, in no direction that shortens a window",
    ),
    (
        "proxy_get_header_map_pairs",
        "A request that cannot be read is refused. An answer whose headers cannot be read passes, and the \
         operation is `unknown`",
    ),
    (
        "proxy_get_property",
        "What is not known is not assumed: an answer of unknown origin makes the operation `unknown`",
    ),
    (
        "proxy_get_shared_data",
        "The claim cannot be made, and nothing runs. After the answer: the write waits in the backlog",
    ),
    (
        "proxy_http_call",
        "Nothing was sent. To the loopback: the attempt runs inline, where a client that leaves makes it \
         `unknown`. To Redis: the claim cannot be made, and nothing runs; after the answer the write waits in \
         the backlog",
    ),
    ("proxy_increment_metric", "A count is missing"),
    ("proxy_log", "A line is missing"),
    ("proxy_record_metric", "A value is missing"),
    (
        "proxy_register_shared_queue",
        "Whoever waits in that worker looks again by itself",
    ),
    (
        "proxy_remove_header_map_value",
        "A request that cannot be changed does not go on, and its claim is released",
    ),
    (
        "proxy_replace_header_map_value",
        "The same; an answer goes on without its markers, and one of an inner pass without its report is \
         `unknown`",
    ),
    (
        "proxy_send_local_response",
        "Asked again at every tick, for five seconds",
    ),
    (
        "proxy_set_effective_context",
        "What the stream is to do waits, and is tried at every tick, for five seconds",
    ),
    ("proxy_set_property", "The access log lacks a field"),
    (
        "proxy_set_shared_data",
        "The claim cannot be made, and is taken back when it was made all the same. After the answer: the \
         write waits in the backlog",
    ),
];

/// A host that gives no ticks is told apart from all others.
const TICKS: (&str, &str) = (
    "proxy_set_tick_period_milliseconds",
    "Without ticks nothing that waits would end: the configuration is refused",
);

/// What was seen, by call: what clients got, and what the next try got.
#[derive(Debug, Default)]
pub(crate) struct Seen(BTreeMap<String, [BTreeSet<String>; 2]>);

impl Seen {
    /// Only what is otherwise than without the fault.
    pub(crate) fn add(&mut self, call: &str, _: &Scenario, clean: &Outcome, outcome: &Outcome) {
        let [clients, again] = self.0.entry(call.to_owned()).or_default();
        let pairs = clean.clients.iter().zip(&outcome.clients);
        clients.extend(pairs.filter(|(a, b)| a != b).map(|(_, b)| b.clone()));
        if clean.again != outcome.again {
            again.insert(outcome.again.clone());
        }
    }
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/host-failures.md")
}

const HEAD: &str = "# When the host fails

Any call that the filter makes of its host can fail: refused with any status, done and said otherwise, answered
with nothing, with half of it, or with octets that mean nothing. None of that traps the worker's VM, none makes
an operation run twice, and none leaves a client without an answer. What it does instead is below, as seen
where one call of a run failed, each call in turn; `host-tests/engine` repeats those runs, and fails where this page does
not say what happened.

\"Gets\" names what is otherwise than without the failure; a dash, that nothing is. \"503 of Envoy's\" stands
for a worker whose configuration was refused: at start, Envoy does not come up then. \"Next try\" is the same request
again once the host works.

| call | what happens | the client gets | the next try gets |
|---|---|---|---|
";

const TAIL: &str = "
A host that goes on failing: as long as shared data fails nothing is claimed (503 `store_unavailable`), as long as clients
cannot be answered (`proxy_send_local_response`, `proxy_continue_stream`, `proxy_set_effective_context`) they are not, and
without a clock those that wait are not either, until the connection's own time-outs. Operations are settled in any case, and nothing runs twice when the host
is well again.

Two lies no filter can mend: a callout that was sent although `proxy_http_call` says that it was not, and one that was
not sent although it says so.

Shared data may compare numbers by Envoy's rule or by that of `ngx_wasm_module`; the filter finds out at
configuration, and takes the second only where it has seen all that sets it apart.
";

fn render(seen: &Seen) -> String {
    let mut out = HEAD.to_owned();
    let list = |all: &BTreeSet<String>| match all.is_empty() {
        true => "–".to_owned(),
        false => all.iter().cloned().collect::<Vec<_>>().join("; "),
    };
    let nothing = Default::default();
    for (call, what) in CALLS.iter().chain([&TICKS]) {
        let [clients, again] = seen.0.get(*call).unwrap_or(&nothing);
        let (clients, again) = (list(clients), list(again));
        writeln!(out, "| `{call}` | {what} | {clients} | {again} |").expect("a string");
    }
    out + TAIL
}

pub(crate) fn write(seen: &Seen) {
    std::fs::write(path(), render(seen)).expect("the page");
}

/// Nothing happened that the page does not say; with `all`, it says nothing else.
pub(crate) fn check(seen: &Seen, all: bool) {
    let page = std::fs::read_to_string(path()).expect("the page");
    if all {
        assert_eq!(page, render(seen), "IDEMPO_SWEEP=write writes it");
        return;
    }
    for (call, [clients, again]) in &seen.0 {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{call}` |")));
        let row = row.unwrap_or_else(|| panic!("{call} is not in the page"));
        let columns: Vec<_> = row.split('|').map(str::trim).collect();
        for (outcomes, column) in [(clients, columns[3]), (again, columns[4])] {
            let said: BTreeSet<_> = column.split("; ").collect();
            let unsaid: Vec<_> = outcomes
                .iter()
                .filter(|o| !said.contains(o.as_str()))
                .collect();
            assert!(
                unsaid.is_empty(),
                "{call}: the page does not say {unsaid:?}"
            );
        }
    }
}
