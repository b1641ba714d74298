//! How long clients wait, one alone and many at once, and how long one store call takes.

use super::{lane::Lane, rig::Rig, run::Effort};
use crate::load::Connection;
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

/// Who is watched while one client waits, and while many do.
const ONE_WAITS: [Lane; 4] = [Lane::Plain, Lane::Webdis, Lane::Async, Lane::Nginx];
const MANY_WAIT: [Lane; 12] = [
    Lane::Plain,
    Lane::Webdis,
    Lane::Async,
    Lane::Calls1,
    Lane::Calls2,
    Lane::Calls4,
    Lane::Calls8,
    Lane::TwoCallouts,
    Lane::Rest,
    Lane::Resp,
    Lane::Detached,
    Lane::Nginx,
];

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

/// One client, many, and the store calls that the filter made for the one.
pub(crate) async fn run(rig: &Rig, effort: &Effort) -> Result<(Waits, Waits, StoreCall), String> {
    let before = told(rig).await?;
    let one = waits(rig, effort, &ONE_WAITS, 1).await?;
    let after = told(rig).await?;
    let many = waits(rig, effort, &MANY_WAIT, effort.connections).await?;
    let webdis = rig.fronts.webdis.addr();
    let call = StoreCall {
        filter: median_between(&before, &after),
        script: direct(webdis, effort.slice, read).await?,
        ping: direct(webdis, effort.slice, ping).await?,
    };
    Ok((one, many, call))
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
    fn a_direct_call_is_what_the_filter_writes() {
        let text = String::from_utf8(read(7).unwrap()).unwrap();
        assert!(text.starts_with("POST / HTTP/1.1\r\n"), "{text}");
        assert!(text.contains("EVALSHA"), "{text}");
    }
}
