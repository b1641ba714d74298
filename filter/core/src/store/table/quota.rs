//! How many live records each tenant holds, in a fixed set of counters.
//!
//! A counter is raised *before* the record is written and lowered after it has gone: the count is
//! never below the truth, so a tenant never gets past its quota. A crash between the two leaves it
//! too high; a [`Recount`], made along a full pass of the sweep, puts that right. It allows for
//! every change that other workers made meanwhile, and so errs on the tenant's cost by at most their
//! number. One change per worker may be under way when it begins: by that many, and no more, a
//! tenant may exceed its quota.
//!
//! Only touched where a quota is configured, and by records that were counted.

use super::geometry::spread;
use super::memory::{HostError, SharedData, TRIES, contended, fetch, put};
use super::octets::{checksum, take, take_u32, take_u64};
use crate::ids::TenantDigest;
use std::collections::HashMap;

/// Keys that hold counters.
pub(super) const COUNTERS: u32 = 64;
/// Tenants in one of them: 16 KiB. A tenant that finds no place is refused.
const TENANTS: usize = 1024;
const MAGIC: [u8; 4] = [0xd7, 0xb7, 1, 0];
const ENTRY: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    tenant: TenantDigest,
    live: u32,
    /// Raised by every change: tells a recount how much it may have missed.
    changes: u32,
}

/// One key's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counter {
    counts: Vec<Count>,
    /// Raised when a tenant without records lost its place: its changes begin again from 0.
    dropped: u32,
}

impl Counter {
    /// A damaged counter is an empty one: it guards room, not effects, and a recount fills it again.
    fn read(value: &[u8]) -> Self {
        Self::parse(value).unwrap_or_default()
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let rest = &mut &*value;
        let magic: [u8; 4] = take(rest)?;
        let dropped = take_u32(rest)?;
        let sum = take_u64(rest)?;
        if magic != MAGIC || sum != checksum(u64::from(dropped), rest) {
            return None;
        }
        let mut counts = Vec::with_capacity(rest.len() / ENTRY + 1);
        while !rest.is_empty() {
            counts.push(Count {
                tenant: TenantDigest(take(rest)?),
                live: take_u32(rest)?,
                changes: take_u32(rest)?,
            });
        }
        Some(Self { counts, dropped })
    }

    fn write(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.counts.len() * ENTRY);
        for count in &self.counts {
            body.extend_from_slice(&count.tenant.0);
            body.extend_from_slice(&count.live.to_le_bytes());
            body.extend_from_slice(&count.changes.to_le_bytes());
        }
        let sum = checksum(u64::from(self.dropped), &body).to_le_bytes();
        [MAGIC.as_slice(), &self.dropped.to_le_bytes(), &sum, &body].concat()
    }

    fn get(&self, tenant: TenantDigest) -> Count {
        let found = self.counts.iter().find(|c| c.tenant == tenant);
        found.copied().unwrap_or(Count {
            tenant,
            live: 0,
            changes: 0,
        })
    }

    /// `false`: no place for one more tenant.
    fn set(&mut self, count: Count) -> bool {
        if let Some(place) = self.counts.iter_mut().find(|c| c.tenant == count.tenant) {
            *place = count;
            return true;
        }
        if self.counts.len() >= TENANTS {
            self.counts.retain(|c| c.live > 0);
            self.dropped = self.dropped.wrapping_add(1);
        }
        let room = self.counts.len() < TENANTS;
        if room {
            self.counts.push(count);
        }
        room
    }
}

fn key(index: u32) -> String {
    format!("idempo/1/t/{index}")
}

fn place(tenant: TenantDigest) -> u32 {
    spread(u64::from_be_bytes(tenant.0), COUNTERS)
}

/// Counts one more record; `false`: the quota is used up.
pub(super) fn raise(
    sd: &mut impl SharedData,
    tenant: TenantDigest,
    quota: u64,
) -> Result<bool, HostError> {
    let mut room = true;
    let written = update(sd, tenant, |count| {
        room = u64::from(count.live) < quota;
        room.then(|| count.live.saturating_add(1))
    })?;
    Ok(room && written)
}

/// Counts one record less.
pub(super) fn lower(sd: &mut impl SharedData, tenant: TenantDigest) -> Result<(), HostError> {
    update(sd, tenant, |count| count.live.checked_sub(1)).map(|_| ())
}

fn update(
    sd: &mut impl SharedData,
    tenant: TenantDigest,
    mut change: impl FnMut(Count) -> Option<u32>,
) -> Result<bool, HostError> {
    let key = key(place(tenant));
    for _ in 0..TRIES {
        let (value, seen) = fetch(sd, &key)?;
        let mut counter = Counter::read(&value);
        let count = counter.get(tenant);
        let Some(live) = change(count) else {
            return Ok(false);
        };
        let changes = count.changes.wrapping_add(1);
        if !counter.set(Count {
            live,
            changes,
            ..count
        }) {
            return Ok(false);
        }
        if put(sd, &key, &counter.write(), seen)? {
            return Ok(true);
        }
    }
    Err(contended())
}

/// A count of what is really there, made along one pass of the sweep.
#[derive(Clone, Debug)]
pub(super) struct Recount {
    before: Vec<Counter>,
    seen: HashMap<TenantDigest, u32>,
}

impl Recount {
    pub(super) fn begin(sd: &mut impl SharedData) -> Result<Self, HostError> {
        let before = (0..COUNTERS).map(|n| Ok(Counter::read(&fetch(sd, &key(n))?.0)));
        Ok(Self {
            before: before.collect::<Result<_, HostError>>()?,
            seen: HashMap::new(),
        })
    }

    pub(super) fn count(&mut self, tenant: TenantDigest) {
        let seen = self.seen.entry(tenant).or_default();
        *seen = seen.saturating_add(1);
    }

    /// Corrects the counters by what was seen. A counter that another worker writes at this moment
    /// is left for the next pass.
    pub(super) fn finish(self, sd: &mut impl SharedData) -> Result<(), HostError> {
        for (index, before) in (0..).zip(&self.before) {
            let key = key(index);
            let (value, cas) = fetch(sd, &key)?;
            let mut now = Counter::read(&value);
            if now.dropped != before.dropped {
                continue;
            }
            let missing = self.seen.keys().filter(|t| place(**t) == index);
            let tenants: Vec<_> = now.counts.iter().map(|c| c.tenant).collect();
            let mut changed = false;
            for tenant in tenants
                .iter()
                .chain(missing.filter(|t| !tenants.contains(t)))
            {
                let count = now.get(*tenant);
                let slack = count.changes.wrapping_sub(before.get(*tenant).changes);
                let seen = self.seen.get(tenant).copied().unwrap_or(0);
                let live = count
                    .live
                    .clamp(seen.saturating_sub(slack), seen.saturating_add(slack));
                if live != count.live {
                    changed |= now.set(Count { live, ..count });
                }
            }
            if changed {
                put(sd, &key, &now.write(), cas)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const A: TenantDigest = TenantDigest([1; 8]);
    const B: TenantDigest = TenantDigest([2; 8]);

    fn live(sd: &mut Fake, tenant: TenantDigest) -> u32 {
        Counter::read(&fetch(sd, &key(place(tenant))).unwrap().0)
            .get(tenant)
            .live
    }

    #[test]
    fn a_quota_is_used_up_and_given_back() {
        let sd = &mut Fake::new();
        assert!(raise(sd, A, 2).unwrap() && raise(sd, A, 2).unwrap());
        assert!(!raise(sd, A, 2).unwrap());
        assert!(raise(sd, B, 1).unwrap(), "another tenant");
        lower(sd, A).unwrap();
        assert!(raise(sd, A, 2).unwrap());
        for _ in 0..5 {
            lower(sd, A).unwrap();
        }
        assert_eq!(live(sd, A), 0, "never below nothing");
    }

    #[test]
    fn a_recount_corrects_leaks_but_not_what_changed_meanwhile() {
        let sd = &mut Fake::new();
        for _ in 0..5 {
            raise(sd, A, 9).unwrap();
            raise(sd, B, 9).unwrap();
        }
        let mut recount = Recount::begin(sd).unwrap();
        recount.count(A);
        recount.count(B);
        raise(sd, B, 9).unwrap();
        recount.finish(sd).unwrap();
        assert_eq!(live(sd, A), 1);
        assert_eq!(
            live(sd, B),
            2,
            "one seen, and one change that may have been missed"
        );
    }

    #[test]
    fn a_damaged_counter_is_filled_again() {
        let sd = &mut Fake::new();
        sd.overwrite(&key(place(A)), b"rubbish");
        assert_eq!(live(sd, A), 0);
        let mut recount = Recount::begin(sd).unwrap();
        (0..3).for_each(|_| recount.count(A));
        recount.finish(sd).unwrap();
        assert_eq!(live(sd, A), 3);
    }

    #[test]
    fn places_are_bounded_and_reused() {
        let sd = &mut Fake::new();
        let tenant = |n: u64| {
            let [.., a, b, c] = n.to_be_bytes();
            TenantDigest([0, 0, 0, 0, 0, a, b, c])
        };
        for n in 0..TENANTS as u64 {
            assert!(raise(sd, tenant(n), 1).unwrap());
        }
        assert!(!raise(sd, tenant(5_000), 1).unwrap(), "no place");
        lower(sd, tenant(3)).unwrap();
        assert!(raise(sd, tenant(5_000), 1).unwrap());
    }
}
