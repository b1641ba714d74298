//! What ratios of throughput do not say: the CPU time of a mebibyte, and how long one client waits.

use crate::{
    compare::{Effort, median},
    load::Until,
    rig::Rig,
    variant::Variant,
};
use std::fmt::Write as _;

/// At most so much CPU time for the fingerprint of a mebibyte, microseconds.
const FINGERPRINT_GOAL_US: f64 = 1_500.0;

/// A mebibyte is proxied by few at a time.
pub(crate) const UPLOADS_AT_ONCE: usize = 2;

const UPLOADS: [Variant; 3] = [Variant::UploadPlain, Variant::UploadUnread, Variant::Upload];
const WAITS: [Variant; 4] = [
    Variant::Plain,
    Variant::First,
    Variant::FirstAsync,
    Variant::FirstDetached,
];

/// Envoy's CPU time per upload, microseconds, of each variant of [`UPLOADS`].
#[derive(Clone, Debug)]
pub(crate) struct Uploads(Vec<f64>);

/// Median and 99th percentile, microseconds, of each variant of [`WAITS`].
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    connections: usize,
    rows: Vec<(f64, f64)>,
}

pub(crate) async fn uploads(rig: &Rig, effort: &Effort) -> Result<Uploads, String> {
    let mut all = vec![Vec::new(); UPLOADS.len()];
    for _ in 0..effort.rounds {
        for (variant, own) in UPLOADS.iter().zip(&mut all) {
            let until = Until::Elapsed(effort.slice);
            let (slice, _) = rig.timed(*variant, until, UPLOADS_AT_ONCE).await?;
            own.push(slice.cpu_us);
        }
    }
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        median(&values)
    };
    Ok(Uploads(all.into_iter().map(middle).collect()))
}

pub(crate) async fn waits(rig: &Rig, effort: &Effort, connections: usize) -> Result<Waits, String> {
    let mut all = vec![Vec::new(); WAITS.len()];
    for _ in 0..effort.context_rounds {
        for (variant, own) in WAITS.iter().zip(&mut all) {
            let until = Until::Elapsed(effort.slice);
            let (_, latencies) = rig.timed(*variant, until, connections).await?;
            own.extend(latencies);
        }
    }
    let rows = all.into_iter().map(|mut latencies| {
        latencies.sort_unstable();
        let at = |share: usize| {
            let place = latencies.len() * share / 100;
            latencies.get(place).map_or(f64::NAN, |us| f64::from(*us))
        };
        (at(50), at(99))
    });
    Ok(Waits {
        connections,
        rows: rows.collect(),
    })
}

impl Uploads {
    pub(crate) fn report(&self) -> String {
        let mut text = String::from(
            "\n| uploads of 1 MiB | Envoy's CPU time each, µs | goal | |\n|---|---:|---:|---|\n",
        );
        for (variant, us) in UPLOADS.iter().zip(&self.0) {
            let _ = writeln!(text, "| {} | {us:.0} | | |", variant.title());
        }
        if let [_, unread, raw] = self.0.as_slice() {
            let cost = raw - unread;
            let verdict = if cost <= FINGERPRINT_GOAL_US {
                "pass"
            } else {
                "miss"
            };
            let _ = writeln!(
                text,
                "| what the fingerprint adds | **{cost:.0}** | ≤ {FINGERPRINT_GOAL_US:.0} | {verdict} |"
            );
        }
        text
    }
}

impl Waits {
    pub(crate) fn report(&self) -> String {
        let mut text = format!(
            "\n| latency, {} at a time | median, µs | 99 %, µs |\n|---|---:|---:|\n",
            self.connections
        );
        for (variant, (median, most)) in WAITS.iter().zip(&self.rows) {
            let _ = writeln!(text, "| {} | {median:.0} | {most:.0} |", variant.title());
        }
        text
    }
}
