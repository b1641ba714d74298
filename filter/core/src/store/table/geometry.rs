//! How the budgets are cut into keys, and where an operation belongs.
//!
//! The caps are strict: each key's value has one, and they add up to no more than the budgets, so
//! that no counter of used bytes is needed, and no crash can make one wrong.

use crate::ids::OperationId;
use crate::plan::SharedDataStore;

/// Octets of records per bucket. A step copies a bucket in and out, which asks for small ones; a
/// bucket must hold many operations for chance to fill them evenly, which asks for large ones. Of new
/// claims, buckets of 32 KiB refuse one in a thousand at 60 % and one in a million at 50 % of the
/// budget (Poisson, 400 octets per record).
const RECORDS_PER_BUCKET: u64 = 32 << 10;
/// Octets of answers per pile, see [`super::pile`].
const BODIES_PER_PILE: u64 = 16 << 10;
/// No budget, however large, makes more keys than this per kind.
const MAX_KEYS: u64 = 1 << 20;
/// No value is larger, whatever the budgets.
const MAX_VALUE: u64 = 16 << 20;

/// The table's shape. Fixed when the first worker of the process opens the table: shared data
/// outlives a configuration reload, and records are not hashed anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Keys that hold records and tombstones.
    pub buckets: u32,
    /// Octets of records in each.
    pub records_cap: u32,
    /// Octets of packed tombstones in each. Those beyond are charged to the records.
    pub tombstones_cap: u32,
    /// Keys that hold recorded answers.
    pub piles: u32,
    /// Octets in each.
    pub pile_cap: u32,
}

impl Geometry {
    /// Cuts the budgets.
    #[must_use]
    pub fn of(store: &SharedDataStore) -> Self {
        let (buckets, records_cap) = cut(store.records_bytes, RECORDS_PER_BUCKET);
        let tombstones_cap = narrow(
            store
                .tombstones_bytes
                .checked_div(u64::from(buckets))
                .unwrap_or(0)
                .min(MAX_VALUE),
        );
        let (piles, pile_cap) = cut(store.bodies_bytes, BODIES_PER_PILE);
        Self {
            buckets,
            records_cap,
            tombstones_cap,
            piles,
            pile_cap,
        }
    }

    /// Octets that records and tombstones may take.
    #[must_use]
    pub fn records_bytes(&self) -> u64 {
        let each = u64::from(self.records_cap) + u64::from(self.tombstones_cap);
        u64::from(self.buckets).saturating_mul(each)
    }

    /// Octets that answers may take.
    #[must_use]
    pub fn bodies_bytes(&self) -> u64 {
        u64::from(self.piles).saturating_mul(u64::from(self.pile_cap))
    }

    /// The bucket of an operation. The hash is keyed with the table's secret seed: keys come from
    /// clients, who could otherwise aim many of them at one bucket and fill it for everybody.
    pub(super) fn bucket(&self, seed: &[u8; 16], operation: &OperationId) -> u32 {
        let [a, b, c, d, e, f, g, h, ..] = *seed;
        let seed = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        spread(super::octets::checksum(seed, &operation.0), self.buckets)
    }
}

/// Maps a hash evenly onto `0..count`, which needs no power of two.
pub(super) fn spread(hash: u64, count: u32) -> u32 {
    let wide = (u128::from(hash) * u128::from(count)) >> 64;
    u32::try_from(wide).unwrap_or(0)
}

fn cut(budget: u64, per_key: u64) -> (u32, u32) {
    let keys = (budget / per_key).clamp(1, MAX_KEYS);
    (narrow(keys), narrow((budget / keys).min(MAX_VALUE)))
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn caps_never_add_up_to_more_than_the_budgets() {
        for bytes in [0, 1, 4_000, 40_000, 1 << 20, (64 << 20) + 12_345, u64::MAX] {
            let geometry = Geometry::of(&SharedDataStore {
                records_bytes: bytes,
                bodies_bytes: bytes,
                tombstones_bytes: bytes / 4,
            });
            assert!(geometry.records_bytes() <= bytes.saturating_add(bytes / 4));
            assert!(geometry.bodies_bytes() <= bytes);
            assert!(geometry.buckets >= 1 && geometry.piles >= 1);
        }
    }

    #[test]
    fn the_defaults_make_small_buckets_and_waste_nothing() {
        let geometry = Geometry::of(&SharedDataStore::default());
        assert_eq!(geometry.buckets, 2048);
        assert_eq!(geometry.records_cap, 32 << 10);
        assert_eq!(geometry.tombstones_cap, 8 << 10);
        assert_eq!(geometry.piles, 8192);
        assert_eq!(geometry.bodies_bytes(), 128 << 20);
    }

    #[test]
    fn operations_spread_evenly_and_by_the_seed() {
        let geometry = Geometry {
            buckets: 10,
            records_cap: 1,
            tombstones_cap: 1,
            piles: 1,
            pile_cap: 1,
        };
        let mut counts = [0_u32; 10];
        let mut moved = 0;
        for n in 0..10_000_u32 {
            let id = OperationId::new("n", b"", "r", &n.to_be_bytes());
            let bucket = geometry.bucket(&[1; 16], &id);
            counts[bucket as usize] += 1;
            moved += u32::from(bucket != geometry.bucket(&[2; 16], &id));
        }
        assert!(counts.iter().all(|c| (850..1150).contains(c)), "{counts:?}");
        assert!(moved > 8_500);
    }
}
