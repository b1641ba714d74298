//! The measurements: rows of pairs, waits of one client and of many, and a store that fills.

use super::{
    lane::Lane,
    rig::{Rig, Slice},
    stock::{Filler, number, steps},
};
use crate::{
    compare::{median, sorted},
    load::Connection,
};
use idempo_core::{
    ids::OperationId,
    store::{
        Action, Op,
        redis::{Layout, Redis, Script, Transport},
        remote::{Added, Batch, HttpRequest, Limits, Nonce},
    },
};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

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

/// The transport `resp` is one more lane against [`Lane::Plain`], once there is a front for it.
const ROWS: [Comparison; 12] = [
    row(Lane::Webdis, Lane::Plain, Some(0.65)),
    row(Lane::Webdis, Lane::TwoCallouts, Some(2.0)),
    row(Lane::Webdis, Lane::Nginx, Some(1.0)),
    row(Lane::Replay, Lane::NginxReplay, Some(1.2)),
    row(Lane::Replay, Lane::NginxLooks, None),
    row(Lane::Rest, Lane::Plain, None),
    row(Lane::Detached, Lane::Plain, None),
    row(Lane::Async, Lane::Plain, None),
    row(Lane::Calls1, Lane::Plain, None),
    row(Lane::Calls2, Lane::Plain, None),
    row(Lane::Calls4, Lane::Plain, None),
    row(Lane::Calls8, Lane::Plain, None),
];

/// Who is watched while one client waits, and while many do.
const ONE_WAITS: [Lane; 4] = [Lane::Plain, Lane::Webdis, Lane::Async, Lane::Nginx];
const MANY_WAIT: [Lane; 11] = [
    Lane::Plain,
    Lane::Webdis,
    Lane::Async,
    Lane::Calls1,
    Lane::Calls2,
    Lane::Calls4,
    Lane::Calls8,
    Lane::TwoCallouts,
    Lane::Rest,
    Lane::Detached,
    Lane::Nginx,
];

/// Pairs of subject and yardstick.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) comparison: Comparison,
    pub(crate) pairs: Vec<(Slice, Slice)>,
}

/// Median and 99th percentile of each lane, microseconds.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    pub(crate) connections: usize,
    pub(crate) rows: Vec<(Lane, f64, f64)>,
}

/// How long one store call takes, microseconds; medians.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreCall {
    /// As the filter saw its own.
    pub(crate) filter: f64,
    /// From the load generator to Webdis: a script that reads one operation, and `PING`.
    pub(crate) script: f64,
    pub(crate) ping: f64,
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
    let before = told(rig).await?;
    let one = waits(rig, effort, &ONE_WAITS, 1).await?;
    let after = told(rig).await?;
    let many = waits(rig, effort, &MANY_WAIT, effort.connections).await?;
    let call = StoreCall {
        filter: median_between(&before, &after),
        script: direct(rig.fronts.webdis.addr(), effort.slice, read).await?,
        ping: direct(rig.fronts.webdis.addr(), effort.slice, ping).await?,
    };
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

async fn waits(
    rig: &Rig,
    effort: &Effort,
    lanes: &[Lane],
    connections: usize,
) -> Result<Waits, String> {
    println!("waiting, {connections} at a time");
    let lanes: Vec<Lane> = lanes
        .iter()
        .copied()
        .filter(|lane| rig.has(*lane))
        .collect();
    let mut all = vec![Vec::new(); lanes.len()];
    for _ in 0..effort.context_rounds {
        for (lane, own) in lanes.iter().zip(&mut all) {
            let (_, latencies) = rig.slice(*lane, effort.slice, connections).await?;
            own.extend(latencies);
        }
    }
    let rows = lanes.into_iter().zip(all).map(|(lane, mut latencies)| {
        latencies.sort_unstable();
        (lane, at(&latencies, 50), at(&latencies, 99))
    });
    Ok(Waits {
        connections,
        rows: rows.collect(),
    })
}

/// A percentile of sorted times.
fn at(sorted: &[u32], share: usize) -> f64 {
    let place = sorted.len() * share / 100;
    sorted.get(place).map_or(f64::NAN, |us| f64::from(*us))
}

/// The histogram once Envoy has put its threads' parts together, which it does every five seconds.
async fn told(rig: &Rig) -> Result<Vec<(f64, u64)>, String> {
    tokio::time::sleep(Duration::from_secs(6)).await;
    rig.store_times().await
}

/// The median of what came between two states of one histogram.
fn median_between(before: &[(f64, u64)], after: &[(f64, u64)]) -> f64 {
    let earlier = |value: f64| {
        let found = before.iter().find(|(v, _)| v.total_cmp(&value).is_eq());
        found.map_or(0, |(_, n)| *n)
    };
    let new: Vec<(f64, u64)> = after
        .iter()
        .map(|(value, n)| (*value, n.saturating_sub(earlier(*value))))
        .collect();
    let half = new.iter().map(|(_, n)| n).sum::<u64>().div_ceil(2);
    let mut so_far = 0;
    let found = new.iter().find(|(_, n)| {
        so_far += n;
        so_far >= half && *n > 0
    });
    found.map_or(f64::NAN, |(value, _)| *value)
}

/// Asks Webdis itself, one request after the other.
async fn direct(
    addr: SocketAddr,
    span: Duration,
    request: fn(u128) -> Result<Vec<u8>, String>,
) -> Result<f64, String> {
    let mut connection = Connection::open(addr).await?;
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < span {
        let octets = request(times.len() as u128 + 1)?;
        let since = Instant::now();
        let answer = connection.exchange(&octets).await?;
        if answer.status != 200 || answer.body.windows(7).any(|w| w == b"NOSCRIP") {
            let said = answer.body.escape_ascii();
            return Err(format!("Webdis: {} {said}", answer.status));
        }
        times.push(u32::try_from(since.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    times.sort_unstable();
    Ok(at(&times, 50))
}

/// A call that reads one operation which is not there, as the filter writes it.
fn read(number: u128) -> Result<Vec<u8>, String> {
    let transport = Transport::Webdis {
        authorization: None,
    };
    let mut batch = Batch::new(Nonce(number.to_be_bytes()), Limits::default());
    let op = Op {
        operation: OperationId::new("bench", b"t", "direct", &number.to_be_bytes()),
        action: Action::Read,
    };
    match batch.push(op) {
        Added::Yes => {}
        other => return Err(format!("{other:?}")),
    }
    let request = Redis::new(transport, Layout::default()).request(&batch, Script::Known);
    Ok(written(&request))
}

fn ping(_: u128) -> Result<Vec<u8>, String> {
    Ok(written(&HttpRequest {
        method: "POST",
        path: "/".into(),
        headers: Vec::new(),
        body: b"PING".to_vec(),
    }))
}

fn written(request: &HttpRequest) -> Vec<u8> {
    let mut head = format!(
        "{} {} HTTP/1.1\r\nhost: store\r\ncontent-length: {}\r\n",
        request.method,
        request.path,
        request.body.len()
    );
    for (name, value) in &request.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    [head.as_bytes(), &request.body].concat()
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
    fn a_histogram_s_median_is_that_of_what_came_in_between() {
        let before = [(10.0, 100), (20.0, 5)];
        let after = [(10.0, 101), (20.0, 7), (30.0, 4)];
        assert_eq!(median_between(&before, &after), 30.0);
        assert_eq!(median_between(&[], &[(10.0, 2), (20.0, 1)]), 10.0);
        assert!(median_between(&after, &after).is_nan());
        assert!(median_between(&[], &[]).is_nan());
    }

    #[test]
    fn percentiles() {
        let times: Vec<u32> = (0..200).collect();
        assert_eq!((at(&times, 50), at(&times, 99)), (100.0, 198.0));
        assert!(at(&[], 50).is_nan());
    }

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

    #[test]
    fn a_direct_call_is_what_the_filter_writes() {
        let text = String::from_utf8(read(7).unwrap()).unwrap();
        assert!(text.starts_with("POST / HTTP/1.1\r\n"), "{text}");
        assert!(text.contains("EVALSHA"), "{text}");
    }
}
