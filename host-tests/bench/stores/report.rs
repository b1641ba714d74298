//! The text of `docs/bench/stores.md`.

use super::{
    lane::Lane,
    rig::{Busy, Slice},
    run::{Effort, Results, Row, Step, middle},
    stock::KEPT_ANSWER,
    waits::Waits,
};
use crate::{
    compare::{median, sorted},
    machine::Machine,
};
use std::fmt::Write as _;

/// At most so many store calls above plain proxying.
const CALLS_GOAL: f64 = 1.3;

/// The least share of throughput beside few operations that is to be left beside many.
const FLAT_GOAL: f64 = 0.9;

/// What the figures were made with.
#[derive(Debug)]
pub(crate) struct About<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) effort: &'a Effort,
    pub(crate) redis: Option<&'a str>,
    pub(crate) nginx: Option<String>,
    pub(crate) store_errors: u64,
}

pub(crate) fn text(results: &Results, about: &About<'_>) -> String {
    let mut text = String::from(
        "# Stores, compared\n\n\
         Written by `make bench-stores`. Each ratio is requests per second of the first variant over those of\n\
         the second, in slices that follow each other; the table shows the median of the pairs, with the\n\
         least and the greatest in brackets. More is better. A figure is no test: other machines, other\n\
         figures.\n\n",
    );
    text.push_str(&ratios(&results.rows));
    if about.nginx.is_none() {
        text.push_str(
            "\nnginx with Lua was not installed where this was written: its rows are left out. Debian:\n\
             `apt-get install nginx-light libnginx-mod-http-lua lua-nginx-redis`.\n",
        );
    }
    text.push_str(&limits(&results.rows));
    text.push_str(&waits(&results.one));
    text.push_str(&above(results));
    text.push_str(&waits(&results.many));
    text.push_str(&steps(&results.steps));
    text.push_str(&made_with(results, about));
    text.push_str(&meaning());
    text
}

fn ratios(rows: &[Row]) -> String {
    let mut text = String::from(
        "| | against | ratio | goal | | by the proxy's CPU time | requests/s | store calls per request |\n\
         |---|---|---:|---:|---|---:|---:|---:|\n",
    );
    for row in rows {
        let ratios = row.ratios();
        let (Some(least), Some(most)) = (ratios.first(), ratios.last()) else {
            continue;
        };
        let goal = row.comparison.goal;
        let goal = goal.map_or_else(String::new, |g| format!("≥ {g:.2}"));
        let _ = writeln!(
            text,
            "| {} | {} | **{:.2}** ({least:.2}–{most:.2}) | {goal} | {} | {:.2} | {:.0} / {:.0} | {:.2} / {:.2} |",
            row.comparison.subject.title(),
            row.comparison.yardstick.title(),
            median(&ratios),
            row.verdict(),
            middle(&row.pairs, |(s, y)| y.proxy_us / s.proxy_us),
            middle(&row.pairs, |(s, _)| s.per_second),
            middle(&row.pairs, |(_, y)| y.per_second),
            middle(&row.pairs, |(s, _)| s.calls),
            middle(&row.pairs, |(_, y)| y.calls),
        );
    }
    text
}

/// Each lane once, from all rows that it is in: what was busy, and what a request took of it.
fn limits(rows: &[Row]) -> String {
    let mut text = String::from(
        "\n| what was busy | proxy (core 0) | Redis | Webdis | generator, upstream, bridge | µs per request: proxy | Redis | scripts, by the clock |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for lane in Lane::ALL {
        let of = |row: &Row| {
            let (subject, yardstick) = (row.comparison.subject, row.comparison.yardstick);
            let mut own: Vec<Slice> = Vec::new();
            for (s, y) in &row.pairs {
                own.extend((subject == lane).then_some(*s));
                own.extend((yardstick == lane).then_some(*y));
            }
            own
        };
        let slices: Vec<Slice> = rows.iter().flat_map(of).collect();
        if slices.is_empty() {
            continue;
        }
        let mid = |of: fn(&Slice) -> f64| median(&sorted(slices.iter().map(of)));
        let _ = writeln!(
            text,
            "| {} | {:.0} % | {:.0} % | {:.0} % | {:.0} % | {:.0} | {:.0} | {:.0} |",
            lane.title(),
            100.0 * mid(|s| s.busy.proxy),
            100.0 * mid(|s| s.busy.redis),
            100.0 * mid(|s| s.busy.webdis),
            100.0 * mid(|s| s.busy.bench),
            mid(|s| s.proxy_us),
            mid(|s| s.redis_us),
            mid(|s| s.script_us),
        );
    }
    text
}

fn waits(waits: &Waits) -> String {
    let mut text = format!(
        "\n| latency, {} at a time | median, µs | 99 %, µs |\n|---|---:|---:|\n",
        waits.connections
    );
    for (lane, half, most) in &waits.rows {
        let _ = writeln!(text, "| {} | {half:.0} | {most:.0} |", lane.title());
    }
    text
}

/// What one client waits beyond plain proxying, in store calls.
fn above(results: &Results) -> String {
    let call = results.call;
    let of = |lane: Lane| {
        let found = results.one.rows.iter().find(|(l, ..)| *l == lane);
        found.map_or(f64::NAN, |(_, half, _)| *half)
    };
    let mut text = format!(
        "\n| one store call | median, µs |\n|---|---:|\n\
         | as the filter sees its own (`idempo_store_rtt_us`) | {:.0} |\n\
         | load generator to Webdis, a script that reads one operation | {:.0} |\n\
         | load generator to Webdis, `PING` | {:.0} |\n\
         \n| 1 at a time, above plain proxying | store calls | goal | |\n|---|---:|---:|---|\n",
        call.filter, call.script, call.ping
    );
    for (lane, goal) in [(Lane::Webdis, true), (Lane::Async, false)] {
        let calls = (of(lane) - of(Lane::Plain)) / call.filter;
        let verdict = match goal {
            true if calls <= CALLS_GOAL => "pass",
            true => "miss",
            false => "",
        };
        let goal = if goal {
            format!("≤ {CALLS_GOAL}")
        } else {
            String::new()
        };
        let _ = writeln!(
            text,
            "| {} | **{calls:.2}** | {goal} | {verdict} |",
            lane.title()
        );
    }
    text
}

#[allow(clippy::cast_precision_loss)] // Octets for a human.
fn steps(steps: &[Step]) -> String {
    let mut text = String::from(
        "\n| stored operations | keys | Redis, MiB | first attempts/s | of plain | against the first line | goal | | µs of Redis per request | scripts, by the clock | Redis busy |\n\
         |---:|---:|---:|---:|---:|---:|---|---|---:|---:|---:|\n",
    );
    let ratio = |step: &Step| middle(&step.pairs, |(s, y)| s.per_second / y.per_second);
    let first = steps.first().map_or(f64::NAN, ratio);
    for (index, step) in steps.iter().enumerate() {
        let flat = ratio(step) / first;
        let (goal, verdict) = match index {
            0 => (String::new(), ""),
            _ if flat >= FLAT_GOAL => (format!("≥ {FLAT_GOAL:.2}"), "pass"),
            _ => (format!("≥ {FLAT_GOAL:.2}"), "miss"),
        };
        let of = |of: fn(&Slice) -> f64| middle(&step.pairs, |(s, _)| of(s));
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} | {:.0} | {:.2} | **{flat:.2}** | {goal} | {verdict} | {:.1} | {:.1} | {:.0} % |",
            step.stored,
            step.keys,
            step.memory as f64 / f64::from(1 << 20),
            of(|s| s.per_second),
            ratio(step),
            of(|s| s.redis_us),
            of(|s| s.script_us),
            100.0 * of(|s| s.busy.redis),
        );
    }
    text
}

fn made_with(results: &Results, about: &About<'_>) -> String {
    let Machine {
        date,
        cpu,
        cores,
        load,
        envoy,
        git,
        ..
    } = about.machine;
    let Effort {
        rounds,
        context_rounds,
        slice,
        connections,
        ..
    } = about.effort;
    let pinned = if *cores > 1 {
        "Envoy and nginx pinned to core 0; load generator, upstream and REST bridge (one process), Redis and Webdis to core 1"
    } else {
        "nothing pinned: there is one core"
    };
    let Busy {
        proxy,
        redis,
        webdis,
        ..
    } = results.idle;
    let nginx = about.nginx.as_deref().map_or_else(
        || "not installed".to_owned(),
        |version| format!("{version}, lua-nginx-module, lua-resty-redis; one worker; Redis over its Unix socket, upstream over TCP, both kept open"),
    );
    format!(
        r"
## Made with

| | |
|---|---|
| date | {date} |
| machine | {cpu}, {cores} cores, load {load} at the start |
| Envoy | {envoy}, one process, `--concurrency 1`, all its variants as listeners of it |
| Redis | {redis_version}, nothing written to disk; Webdis with one thread and two connections to it |
| nginx | {nginx} |
| idempo | {git} |
| effort | {rounds} pairs of {seconds} s where there is a goal, {context_rounds} elsewhere; {connections} connections, closed loop |
| cores | {pinned} |
| without load | Envoy takes {idle_proxy:.1} % of a core, Redis {idle_redis:.1} %, Webdis {idle_webdis:.1} %: ticks and sweeps of all filters, in every slice of every variant, nginx's too |
| store errors | {errors} over the whole run, those before a filter has found its store included |
",
        redis_version = about.redis.unwrap_or("unknown"),
        seconds = slice.as_secs_f64(),
        idle_proxy = 100.0 * proxy,
        idle_redis = 100.0 * redis,
        idle_webdis = 100.0 * webdis,
        errors = about.store_errors,
    )
}

fn meaning() -> String {
    format!(
        r"
## What the rows mean

Both sides of a row get the same request over HTTP/1.1 keep-alive: a POST with an `idempotency-key` and
{body} octets of JSON. Every answer is checked (status, `idempotent-replayed`, length of what is
replayed), and the upstream's effects are counted: one for each first attempt, none for replays. The first
wrong answer ends the run.

- **first attempts**: every key is new (a random UUID); idempo claims, forwards inline, records, and gives
  the answer once it is recorded. Operations are replayed for 4 s and remembered for 2 s more, so that Redis
  holds what some seconds bring.
- **over Webdis**: transport `webdis`, everything by default; **over REST**: the
  tests' bridge, a thread for each connection, in the load generator's process and on its core: an idea of
  the transport, not of a product that speaks it; **over RESP**: transport `resp`, a tunnel through the same Envoy and
  a new connection to Redis for each call.
- **a callout for each operation**: idempo with `store_batch: 1, store_calls: 64`, which is what a filter without group
  commit does: one callout before the upstream, one after it.
- **store_calls**: calls under way at once in a worker; whatever comes in between travels with the next.
- **detached**: sent by the filter's root through an internal listener of the same Envoy.
- **nginx**: a claim is `SET key pending NX EX`, the upstream is asked in a subrequest, `SET key answer EX` records it, a
  taken key is answered from `GET`. No fingerprint, no fence, no lease: it does less. `SET NX, GET` is that design;
  `GET` is one that looks first, which makes replays cheaper and first attempts dearer.
- **replay**: recorded answers of 1 KiB, {keys} keys in turns, each replayed once beforehand. idempo replays from
  its cache in the host's shared data, so that its store calls per request are next to none.
- **by the proxy's CPU time**: the same ratio from the nanoseconds that Envoy's or nginx's threads ran per request:
  what it would be if nothing but the proxy counted.
- **what was busy**: where the proxy is well below 100 %, the limit was core 1, on which generator, upstream,
  Redis and Webdis take turns; that the proxy waits for a store is then in the ratio, and so is that the store is
  on the same core as the load. Medians over all slices.
- **store calls per request**: `EVALSHA` as Redis counts it, or nginx's `SET` and `GET`. Below 2, operations
  travelled together.
- **latency, 1 at a time**: nothing to share a call with, so a first attempt waits for two calls one after the other,
  `commit: async` for one. A store call takes what it takes in the filter: the way to Webdis over a connection that is
  kept, Redis, and back.
- **stored operations**: completed ones with answers of {answer} octets, put into Redis by the filter's own codec (64 in
  a call) under other keys than the load's. `of plain` is the ratio of pairs as above, `against the first line` that
  ratio over that of the first line.
- **µs of Redis**: CPU time of its process. **Scripts, by the clock**: what `INFO commandstats` says of them; that clock
  runs on while another process has the core, so it can be more.
",
        body = crate::load::BODY.len(),
        keys = crate::variant::REPLAYED_KEYS,
        answer = KEPT_ANSWER,
    )
}

#[cfg(test)]
mod tests {
    use super::super::{run::Comparison, waits::StoreCall};
    use super::*;

    fn results(plain: f64, webdis: f64, call: f64) -> Results {
        let waits = |connections| Waits {
            connections,
            rows: vec![
                (Lane::Plain, plain, plain),
                (Lane::Webdis, webdis, webdis),
                (Lane::Async, webdis, webdis),
            ],
        };
        Results {
            idle: Busy::default(),
            rows: Vec::new(),
            one: waits(1),
            many: waits(64),
            call: StoreCall {
                filter: call,
                script: 1.0,
                ping: 1.0,
            },
            steps: Vec::new(),
        }
    }

    #[test]
    fn waiting_is_told_in_store_calls() {
        let text = above(&results(100.0, 225.0, 100.0));
        assert!(text.contains("| **1.25** | ≤ 1.3 | pass |"), "{text}");
        let text = above(&results(100.0, 300.0, 100.0));
        assert!(text.contains("| **2.00** | ≤ 1.3 | miss |"), "{text}");
        assert!(text.contains("async | **2.00** |  |  |"), "{text}");
    }

    #[test]
    fn a_lane_is_found_on_either_side_of_a_row() {
        let slice = |proxy_us| Slice {
            proxy_us,
            ..Slice::default()
        };
        let row = Row {
            comparison: Comparison {
                subject: Lane::Webdis,
                yardstick: Lane::Plain,
                goal: None,
            },
            pairs: vec![(slice(77.0), slice(33.0))],
        };
        let text = limits(&[row]);
        assert_eq!(
            text.lines().filter(|l| l.contains('%')).count(),
            2,
            "{text}"
        );
        assert!(
            text.contains("plain proxying | 0 % | 0 % | 0 % | 0 % | 33 |"),
            "{text}"
        );
        assert!(!text.contains("nginx"), "{text}");
    }

    #[test]
    fn many_stored_operations_are_held_against_few() {
        let step = |stored, per_second| Step {
            stored,
            keys: 1,
            memory: 1 << 20,
            pairs: vec![(
                Slice {
                    per_second,
                    ..Slice::default()
                },
                Slice {
                    per_second: 100.0,
                    ..Slice::default()
                },
            )],
        };
        let text = steps(&[step(10, 60.0), step(100, 57.0), step(1000, 30.0)]);
        assert!(text.contains("| **0.95** | ≥ 0.90 | pass |"), "{text}");
        assert!(text.contains("| **0.50** | ≥ 0.90 | miss |"), "{text}");
    }
}
