//! The measurements: rows of pairs, and a store that fills.

use super::{
    lane::Lane,
    rig::{Rig, Slice},
    stock::{Filler, number, steps},
    waits::{self, StoreCall, Waits},
};
use crate::compare::{median, sorted};
use std::time::Duration;

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Pairs of each row that has a goal.
    pub(crate) rounds: usize,
    /// Pairs of each other row.
    pub(crate) context_rounds: usize,
    /// Of each slice.
    pub(crate) slice: Duration,
    /// Connections where there are many.
    pub(crate) connections: usize,
    /// Operations that the store is filled with in the end.
    pub(crate) stored: usize,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    pub(crate) subject: Lane,
    pub(crate) yardstick: Lane,
    /// The least ratio that is aimed at.
    pub(crate) goal: Option<f64>,
}

const fn row(subject: Lane, yardstick: Lane, goal: Option<f64>) -> Comparison {
    Comparison {
        subject,
        yardstick,
        goal,
    }
}

const ROWS: [Comparison; 13] = [
    row(Lane::Webdis, Lane::Plain, Some(0.65)),
    row(Lane::Webdis, Lane::TwoCallouts, Some(2.0)),
    row(Lane::Webdis, Lane::Nginx, Some(1.0)),
    row(Lane::Replay, Lane::NginxReplay, Some(1.2)),
    row(Lane::Replay, Lane::NginxLooks, None),
    row(Lane::Rest, Lane::Plain, None),
    row(Lane::Resp, Lane::Plain, None),
    row(Lane::Detached, Lane::Plain, None),
    row(Lane::Async, Lane::Plain, None),
    row(Lane::Calls1, Lane::Plain, None),
    row(Lane::Calls2, Lane::Plain, None),
    row(Lane::Calls4, Lane::Plain, None),
    row(Lane::Calls8, Lane::Plain, None),
];

/// Pairs of subject and yardstick.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) comparison: Comparison,
    pub(crate) pairs: Vec<(Slice, Slice)>,
}

/// What it is like beside so many stored operations.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) stored: usize,
    pub(crate) keys: u64,
    pub(crate) memory: u64,
    /// First attempts over Webdis, and plain proxying.
    pub(crate) pairs: Vec<(Slice, Slice)>,
}

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) idle: super::rig::Busy,
    pub(crate) rows: Vec<Row>,
    pub(crate) one: Waits,
    pub(crate) many: Waits,
    pub(crate) call: StoreCall,
    pub(crate) steps: Vec<Step>,
}

impl Row {
    /// Ratios of throughput, sorted.
    pub(crate) fn ratios(&self) -> Vec<f64> {
        sorted(self.pairs.iter().map(|(s, y)| s.per_second / y.per_second))
    }

    pub(crate) fn verdict(&self) -> &'static str {
        match self.comparison.goal {
            None => "",
            Some(goal) if median(&self.ratios()) >= goal => "pass",
            Some(_) => "miss",
        }
    }
}

/// The median of something over pairs.
pub(crate) fn middle(pairs: &[(Slice, Slice)], of: impl Fn(&(Slice, Slice)) -> f64) -> f64 {
    median(&sorted(pairs.iter().map(of)))
}

pub(crate) async fn run(rig: &Rig, effort: &Effort) -> Result<Results, String> {
    println!("recording what is replayed");
    rig.prepare().await?;
    println!("warming up");
    for lane in Lane::ALL.into_iter().filter(|lane| rig.has(*lane)) {
        let span = effort.slice.min(Duration::from_secs(1));
        rig.slice(lane, span, effort.connections).await?;
    }
    rig.settle(3_000).await;
    let idle = rig.idle(Duration::from_secs(2)).await;
    let rows = rows(rig, effort).await?;
    let (one, many, call) = waits::run(rig, effort).await?;
    Ok(Results {
        idle,
        rows,
        one,
        many,
        call,
        steps: filling(rig, effort).await?,
    })
}

async fn pair(
    rig: &Rig,
    effort: &Effort,
    (subject, yardstick): (Lane, Lane),
    round: usize,
) -> Result<(Slice, Slice), String> {
    let (span, connections) = (effort.slice, effort.connections);
    let pair = if round.is_multiple_of(2) {
        let (first, _) = rig.slice(subject, span, connections).await?;
        (first, rig.slice(yardstick, span, connections).await?.0)
    } else {
        let (first, _) = rig.slice(yardstick, span, connections).await?;
        (rig.slice(subject, span, connections).await?.0, first)
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
    Ok(pair)
}

async fn rows(rig: &Rig, effort: &Effort) -> Result<Vec<Row>, String> {
    let here = |c: &&Comparison| rig.has(c.subject) && rig.has(c.yardstick);
    let mut rows: Vec<Row> = ROWS
        .iter()
        .filter(here)
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
            let wanted = match goal {
                Some(_) => effort.rounds,
                None => effort.context_rounds,
            };
            if round < wanted {
                let both = (subject, yardstick);
                row.pairs.push(pair(rig, effort, both, round).await?);
            }
        }
    }
    Ok(rows)
}

/// First attempts beside ever more stored operations. Last, because what is stored stays.
async fn filling(rig: &Rig, effort: &Effort) -> Result<Vec<Step>, String> {
    let mut filler = Filler::new(&rig.redis);
    let mut done = Vec::new();
    for stored in steps(effort.stored) {
        println!("storing {stored} operations");
        filler.up_to(stored)?;
        // A record and its answer each, and what there is besides.
        rig.settle(2 * stored as u64 + 3_000).await;
        let (keys, memory) = (rig.records(), number(&rig.info("memory"), "used_memory"));
        let mut pairs = Vec::new();
        for round in 0..effort.rounds {
            let both = (Lane::Webdis, Lane::Plain);
            pairs.push(pair(rig, effort, both, round).await?);
        }
        done.push(Step {
            stored,
            keys,
            memory,
            pairs,
        });
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_passes_by_its_median() {
        let slice = |per_second| Slice {
            per_second,
            ..Slice::default()
        };
        let pairs = [0.2, 0.66, 0.9].map(|r| (slice(r * 100.0), slice(100.0)));
        let mut row = Row {
            comparison: ROWS[0],
            pairs: pairs.into(),
        };
        assert_eq!(row.verdict(), "pass");
        row.pairs[1].0.per_second = 64.0;
        assert_eq!(row.verdict(), "miss");
    }
}
