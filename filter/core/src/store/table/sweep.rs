//! The sweep: writes what every reader computes already, and gives room back.
//!
//! Nothing depends on it for being right; without it, leases that nobody asks about would never be
//! audited, and buckets that nobody writes to would keep what is over.

use super::bodies::Bodies;
use super::bucket::{Bucket, Damaged, Draft, Head};
use super::memory::{HostError, SharedData, fetch, put};
use super::quota::{self, Recount};
use super::{Geometry, Shape, Table, pile};
use crate::ids::OperationId;
use crate::record::{Record, Status, decode, encode};
use crate::store::contract;
use std::borrow::Cow;

/// Tries per bucket; what stays contended is done by the next pass.
const TRIES: u32 = 4;

/// What a sweep saw and did. Sums: see [`Self::add`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Where to go on; 0 where the pass is complete.
    pub next_bucket: u32,
    /// Operations that were written as unknown just now, to be audited and counted.
    pub transitions: Vec<(OperationId, Record)>,
    /// Records inside their windows.
    pub live: u64,
    /// Of them: pending, accepted or unknown.
    pub open: u64,
    /// Of them: unknown.
    pub open_unknown: u64,
    /// Packed tombstones.
    pub tombstones: u64,
    /// Octets of records and tombstones in shared data.
    pub records_bytes: u64,
    /// The same as charged to the budget: open operations at their largest.
    pub charged_bytes: u64,
    /// Octets of recorded answers in shared data.
    pub bodies_bytes: u64,
    /// Values and records that are damaged. Operations there are refused until the process
    /// restarts: to be alerted.
    pub damaged: u64,
    /// Buckets that could not be swept: the host refused, or others kept writing.
    pub skipped: u64,
}

impl SweepReport {
    /// Adds the next part of the same pass.
    pub fn add(&mut self, next: Self) {
        self.next_bucket = next.next_bucket;
        self.transitions.extend(next.transitions);
        self.live += next.live;
        self.open += next.open;
        self.open_unknown += next.open_unknown;
        self.tombstones += next.tombstones;
        self.records_bytes += next.records_bytes;
        self.charged_bytes += next.charged_bytes;
        self.bodies_bytes += next.bodies_bytes;
        self.damaged += next.damaged;
        self.skipped += next.skipped;
    }

    /// How full the fuller of the two budgets is, after a whole pass: 0.0 to 1.0.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // A gauge.
    pub fn used_ratio(&self, geometry: &Geometry) -> f64 {
        let part = |used: u64, of: u64| used as f64 / of.max(1) as f64;
        let records = u64::from(geometry.buckets) * u64::from(geometry.records_cap);
        part(self.charged_bytes, records).max(part(self.bodies_bytes, geometry.bodies_bytes()))
    }
}

impl Table {
    /// Sweeps `count` buckets from `from_bucket` on, and the answers' piles in proportion. Any
    /// worker may do so at any time; a whole pass by one worker, part after part, also corrects the
    /// tenants' counters. A bucket in which nothing is due costs one `get` and no write.
    pub fn sweep(
        &mut self,
        sd: &mut impl SharedData,
        now: u64,
        from_bucket: u32,
        count: u32,
    ) -> SweepReport {
        let Some(shape) = self.shape else {
            return SweepReport::default();
        };
        let mut report = SweepReport::default();
        let buckets = shape.geometry.buckets;
        let from = if from_bucket < buckets {
            from_bucket
        } else {
            0
        };
        let to = from.saturating_add(count).min(buckets);
        let mut recount = self.take_recount(sd, from);
        for index in from..to {
            let bucket = sweep_bucket(&shape, sd, index, now, &mut report, |head| {
                self.quotas = true;
                if let Some(recount) = &mut recount {
                    recount.count(head.tenant);
                }
            });
            if bucket.is_err() {
                report.skipped += 1;
                // A count that has missed a bucket is worth nothing.
                recount = None;
            }
        }
        let pile = |bucket: u32| {
            let at = u64::from(bucket) * u64::from(shape.geometry.piles) / u64::from(buckets);
            u32::try_from(at).unwrap_or(shape.geometry.piles)
        };
        for index in pile(from)..pile(to) {
            match pile::sweep(sd, &Bodies::key(index), now) {
                Ok(Ok(octets)) => report.bodies_bytes += octets as u64,
                Ok(Err(pile::Damaged)) => report.damaged += 1,
                Err(_) => report.skipped += 1,
            }
        }
        report.next_bucket = if to < buckets { to } else { 0 };
        match recount {
            Some(recount) if to >= buckets => {
                // Left as it was where the host refuses: the next pass counts again.
                let _ = recount.finish(sd);
            }
            recount => self.recount = recount.map(|r| (to, r)),
        }
        report
    }

    /// The recount that goes on at this bucket, or a new one at the first.
    fn take_recount(&mut self, sd: &mut impl SharedData, from: u32) -> Option<Recount> {
        let going = self.recount.take();
        if from == 0 {
            return self.quotas.then(|| Recount::begin(sd).ok()).flatten();
        }
        going.filter(|(next, _)| *next == from).map(|(_, r)| r)
    }
}

fn sweep_bucket(
    shape: &Shape,
    sd: &mut impl SharedData,
    index: u32,
    now: u64,
    report: &mut SweepReport,
    mut counted: impl FnMut(&Head),
) -> Result<(), HostError> {
    let key = Shape::bucket_key(index);
    for _ in 0..TRIES {
        let (value, seen) = fetch(sd, &key)?;
        if value.is_empty() {
            return Ok(());
        }
        let Ok(bucket) = Bucket::read(&value) else {
            report.damaged += 1;
            return Ok(());
        };
        let mut draft = bucket.draft(now);
        let mut noted = Vec::new();
        let mut damaged = 0;
        for (head, octets) in &mut draft.entries {
            match note(head, octets, now) {
                Ok(None) => {}
                Ok(Some(record)) => {
                    *head = Head::of(head.id, &record, None, head.counted);
                    *octets = Cow::Owned(encode(&record));
                    noted.push((head.id, *record));
                }
                Err(Damaged) => damaged += 1,
            }
        }
        let idle = noted.is_empty()
            && draft.entries.len() == bucket.entries().count()
            && draft.tombstones.len() == bucket.tombstones().count();
        let next = if idle { value.clone() } else { draft.write() };
        if !idle && !put(sd, &key, &next, seen)? {
            continue;
        }
        for tenant in &draft.uncounted {
            // Too high until the recount, where this fails.
            let _ = quota::lower(sd, *tenant);
        }
        tally(&draft, &shape.geometry, next.len(), report);
        draft
            .entries
            .iter()
            .filter(|(h, _)| h.counted)
            .for_each(|(h, _)| counted(h));
        report.damaged += damaged;
        report.transitions.extend(noted);
        return Ok(());
    }
    Err(super::memory::contended())
}

/// The record to write where a lease or deadline is over.
fn note(head: &Head, octets: &[u8], now: u64) -> Result<Option<Box<Record>>, Damaged> {
    if !head.is_due(now) {
        return Ok(None);
    }
    let record = decode(octets).map_err(|_| Damaged)?;
    Ok(contract::sweep(&record, now))
}

fn tally(draft: &Draft<'_>, geometry: &Geometry, octets: usize, report: &mut SweepReport) {
    let open = draft.entries.iter().filter(|(h, _)| h.is_open()).count();
    let unknown = draft
        .entries
        .iter()
        .filter(|(h, _)| h.status == Status::Unknown)
        .count();
    report.live += draft.entries.len() as u64;
    report.open += open as u64;
    report.open_unknown += unknown as u64;
    report.tombstones += draft.tombstones.len() as u64;
    report.records_bytes += octets as u64;
    report.charged_bytes += draft.charged(geometry.tombstones_cap) as u64;
}
