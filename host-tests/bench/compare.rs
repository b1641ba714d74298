//! The comparisons: pairs of variants, in turns, ratio by ratio.
//!
//! The figures of one machine on one day are worth little; a ratio of two slices that ran one right
//! after the other is worth more, and the median of several such ratios more still. The order within
//! a pair alternates (AB, BA, AB …), so that a drift of the machine favours neither.

use crate::{
    large::{Uploads, Waits},
    load::Until,
    machine::Machine,
    rig::{Rig, Slice},
    variant::Variant,
};
use std::{fmt::Write as _, time::Duration};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    pub(crate) subject: Variant,
    pub(crate) yardstick: Variant,
    /// The least ratio that is aimed at.
    pub(crate) goal: Option<f64>,
}

const fn row(subject: Variant, yardstick: Variant, goal: Option<f64>) -> Comparison {
    Comparison {
        subject,
        yardstick,
        goal,
    }
}

const ROWS: [Comparison; 9] = [
    row(Variant::Replay, Variant::NoopDirect, Some(0.85)),
    row(Variant::First, Variant::Plain, Some(0.75)),
    row(Variant::FirstDetached, Variant::Plain, Some(0.33)),
    row(Variant::ReplayFull, Variant::NoopDirect, Some(0.85)),
    row(Variant::FirstFull, Variant::Plain, Some(0.75)),
    row(Variant::ReplayBody, Variant::NoopDirect, None),
    row(Variant::FirstLogged, Variant::Plain, None),
    row(Variant::NoopDirect, Variant::Direct, None),
    row(Variant::NoopProxy, Variant::Plain, None),
];

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Pairs of each row that has a goal.
    pub(crate) rounds: usize,
    /// Pairs of each other row.
    pub(crate) context_rounds: usize,
    /// Of each slice.
    pub(crate) slice: Duration,
    /// Connections.
    pub(crate) connections: usize,
    /// Operations in the table that is to be 40 % full.
    pub(crate) filling: usize,
}

/// A row's pairs: subject and yardstick.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) comparison: Comparison,
    pub(crate) pairs: Vec<(Slice, Slice)>,
}

impl Row {
    /// Ratios of throughput, sorted.
    pub(crate) fn ratios(&self) -> Vec<f64> {
        sorted(self.pairs.iter().map(|(s, y)| s.per_second / y.per_second))
    }

    /// The yardstick's CPU time per request over the subject's: what the ratio would be if nothing
    /// but Envoy's own work counted.
    fn cpu_ratio(&self) -> f64 {
        median(&sorted(self.pairs.iter().map(|(s, y)| y.cpu_us / s.cpu_us)))
    }

    fn middle(&self, of: impl Fn(&(Slice, Slice)) -> f64) -> f64 {
        median(&sorted(self.pairs.iter().map(of)))
    }

    pub(crate) fn verdict(&self) -> &'static str {
        match self.comparison.goal {
            None => "",
            Some(goal) if median(&self.ratios()) >= goal => "pass",
            Some(_) => "miss",
        }
    }
}

/// Smallest first.
pub(crate) fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all
}

/// Of sorted values.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (None, _) => f64::NAN,
        (Some(m), 1) => *m,
        (Some(m), _) => f64::midpoint(*m, sorted[middle - 1]),
    }
}

/// Runs all rows. With them comes the share of a core that Envoy takes without any load.
pub(crate) async fn run(rig: &Rig, effort: &Effort) -> Result<(Vec<Row>, f64), String> {
    println!("recording {} answers, and what is replayed", effort.filling);
    rig.prepare(effort.filling).await?;
    let idle = rig.idle(Duration::from_secs(2)).await;
    println!("warming up");
    for variant in Variant::ALL {
        rig.slice(
            variant,
            Until::Elapsed(effort.slice.min(Duration::from_secs(1))),
        )
        .await?;
    }
    let mut rows: Vec<Row> = ROWS
        .iter()
        .map(|comparison| Row {
            comparison: *comparison,
            pairs: Vec::new(),
        })
        .collect();
    for round in 0..effort.rounds.max(effort.context_rounds) {
        for row in &mut rows {
            let Comparison {
                subject,
                yardstick,
                goal,
            } = row.comparison;
            let wanted = if goal.is_some() {
                effort.rounds
            } else {
                effort.context_rounds
            };
            if round >= wanted {
                continue;
            }
            let until = Until::Elapsed(effort.slice);
            let pair = if round % 2 == 0 {
                let first = rig.slice(subject, until).await?;
                (first, rig.slice(yardstick, until).await?)
            } else {
                let first = rig.slice(yardstick, until).await?;
                (rig.slice(subject, until).await?, first)
            };
            println!(
                "round {}: {} {:.0}/s, {} {:.0}/s, ratio {:.3}",
                round + 1,
                subject.title(),
                pair.0.per_second,
                yardstick.title(),
                pair.1.per_second,
                pair.0.per_second / pair.1.per_second
            );
            row.pairs.push(pair);
        }
    }
    Ok((rows, idle))
}

/// The goal for the module's size, octets.
const MODULE_GOAL: u64 = 700 << 10;

/// The report.
pub(crate) fn report(
    rows: &[Row],
    uploads: &Uploads,
    waits: &[Waits],
    idle: f64,
    machine: &Machine,
    effort: &Effort,
) -> String {
    let mut text = String::from(
        "# Throughput, compared\n\n\
         Written by `make bench`. Each ratio is requests per second of the first variant over those of the\n\
         second, in slices that follow each other; the table shows the median of the pairs, with the\n\
         least and the greatest in brackets. More is better. A figure is no test: other machines, other\n\
         figures.\n\n\
         | | against | ratio | goal | | by Envoy's CPU time | requests/s | Envoy busy |\n\
         |---|---|---:|---:|---|---:|---:|---:|\n",
    );
    for row in rows {
        let ratios = row.ratios();
        let (Some(least), Some(most)) = (ratios.first(), ratios.last()) else {
            continue;
        };
        let goal = row
            .comparison
            .goal
            .map_or_else(String::new, |g| format!("≥ {g:.2}"));
        let _ = writeln!(
            text,
            "| {} | {} | **{:.2}** ({least:.2}–{most:.2}) | {goal} | {} | {:.2} | {:.0} / {:.0} | {:.0} % / {:.0} % |",
            row.comparison.subject.title(),
            row.comparison.yardstick.title(),
            median(&ratios),
            row.verdict(),
            row.cpu_ratio(),
            row.middle(|(s, _)| s.per_second),
            row.middle(|(_, y)| y.per_second),
            100.0 * row.middle(|(s, _)| s.busy),
            100.0 * row.middle(|(_, y)| y.busy),
        );
    }
    text.push_str(&uploads.report());
    for waits in waits {
        text.push_str(&waits.report());
    }
    let size = machine.module_bytes;
    let kib = size.div_ceil(1 << 10);
    let _ = writeln!(
        text,
        "\n| | octets | goal | |\n|---|---:|---:|---|\n| module as shipped | {size} ({kib} KiB) | ≤ 700 KiB | {} |",
        if size <= MODULE_GOAL { "pass" } else { "miss" }
    );
    let pinned = if machine.cores > 1 {
        "Envoy pinned to core 0, load generator and upstream (one thread) to core 1"
    } else {
        "nothing pinned: there is one core"
    };
    let Machine {
        date,
        cpu,
        cores,
        load,
        envoy,
        git,
        ..
    } = machine;
    let Effort {
        rounds,
        context_rounds,
        slice,
        connections,
        filling,
    } = effort;
    let _ = write!(
        text,
        r"
## Made with

| | |
|---|---|
| date | {date} |
| machine | {cpu}, {cores} cores, load {load} at the start |
| Envoy | {envoy}, one process, `--concurrency 1`, all variants as listeners of it |
| idempo | {git} |
| effort | {rounds} pairs of {seconds} s where there is a goal, {context_rounds} elsewhere; {connections} connections, closed loop |
| cores | {pinned} |
| without load | Envoy takes {idle:.1} % of a core: ticks and sweeps of five tables, in every slice of every variant |

## What the rows mean

Both sides of a row get the same request over HTTP/1.1 keep-alive: a POST with an `idempotency-key`,
of {body} octets of JSON where it is proxied, without a body where it is answered directly or replayed
(Envoy closes the connection when it answers before it has the body). Every answer is checked (status,
`idempotent-replayed`, length), and the upstream's effects are counted: one for each proxied request,
none for replays and direct responses. The first wrong answer ends the run.

- **first attempts**: every key is new (a random UUID); idempo claims, signs nothing, forwards inline,
  records. Budgets are the defaults; operations are replayed for 2 s and remembered for 2 s more, so that
  the table holds what some seconds bring.
- **first attempts, detached**: the same, sent by the filter's root through an internal listener of the same Envoy
  (signed, two passes of the filter), so that a client that leaves costs nothing. The goal is what such a call
  reached without a filter.
- **replay**: recorded answers of 1 KiB, {keys} keys in turns.
- **requests with a body**: the same with {body} octets of JSON to be fingerprinted; the yardstick has none.
- **table 40 % full**: the same beside {filling} operations of 1 KiB that last for 48 h (by default so
  many that they take 40 % of the budget for records). A step copies one bucket in, and out where it
  writes, so the fill of buckets is what costs.
- **access log**: with the shipped log format, filter state included, written to `/dev/null`; the
  yardstick has no log.
- **no-op filter**: made with the SDK and the same settings, entered for the same callbacks, does nothing.
- **uploads**: {uploads_at_once} at a time, octets that are claimed by their beginning, hashed while they pass and never kept.
- **latency**: closed loop on a busy Envoy, medians over all rounds. The `shared_data` store answers at once, so
  `commit: async` has nothing to save here; with a remote store it saves one round trip.
- **plain proxying** and **direct response**: no module.
- **by Envoy's CPU time**: the same ratio from the nanoseconds that Envoy's threads ran per request.
  Other load on the machine moves it less.
- **Envoy busy**: the share of the time that Envoy ran. Well below 100 %, something else was the limit
  (other programs, or the load generator), and the ratio flatters.
",
        idle = 100.0 * idle,
        seconds = slice.as_secs_f64(),
        body = crate::load::BODY.len(),
        keys = crate::variant::REPLAYED_KEYS,
        uploads_at_once = crate::large::UPLOADS_AT_ONCE,
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert!(median(&[]).is_nan());
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[1.0, 2.0]), 1.5);
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
    }

    #[test]
    fn a_row_passes_by_its_median() {
        let slice = |per_second| Slice {
            per_second,
            cpu_us: 1.0,
            busy: 1.0,
        };
        let mut row = Row {
            comparison: ROWS[0],
            pairs: [0.2, 0.86, 0.9]
                .map(|r| (slice(r * 100.0), slice(100.0)))
                .into(),
        };
        assert_eq!(row.verdict(), "pass");
        row.pairs[1].0.per_second = 84.0;
        assert_eq!(row.verdict(), "miss");
    }
}
