//! Claims per second of a tenant, in one worker: a token bucket each, which holds a second's worth.

use crate::ids::TenantDigest;
use std::collections::HashMap;

/// Tenants that are told apart at once; beyond that those which have been quiet are forgotten.
const MOST: usize = 4_096;

/// Parts of a claim that are counted.
const WHOLE: u64 = 1_000;

/// The buckets of one worker.
#[derive(Debug)]
pub struct Rates {
    per_second: u64,
    /// What is left, in thousandths of a claim, and when that was.
    buckets: HashMap<TenantDigest, (u64, u64)>,
}

impl Rates {
    /// At most so many claims per second and tenant.
    #[must_use]
    pub fn new(per_second: u32) -> Self {
        Self {
            per_second: per_second.into(),
            buckets: HashMap::new(),
        }
    }

    /// Whether a claim may be made at `now`, milliseconds of a clock that does not go back by much.
    pub fn admits(&mut self, tenant: TenantDigest, now: u64) -> bool {
        let full = self.per_second.saturating_mul(WHOLE);
        if self.buckets.len() >= MOST && !self.buckets.contains_key(&tenant) {
            // A bucket that has had a second is full again, which is what a new one is.
            self.buckets
                .retain(|_, (_, at)| now.saturating_sub(*at) < 1_000);
            if self.buckets.len() >= MOST {
                return true;
            }
        }
        let (left, at) = self.buckets.entry(tenant).or_insert((full, now));
        // A thousandth of a claim per millisecond for each claim per second.
        let gained = now.saturating_sub(*at).saturating_mul(self.per_second);
        *left = left.saturating_add(gained).min(full);
        *at = now.max(*at);
        let admitted = *left >= WHOLE;
        if admitted {
            *left -= WHOLE;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const TENANT: TenantDigest = TenantDigest([1; 8]);

    fn admitted(rates: &mut Rates, tenant: TenantDigest, now: u64, asked: u32) -> u32 {
        (0..asked)
            .filter(|_| rates.admits(tenant, now))
            .count()
            .try_into()
            .unwrap()
    }

    #[test]
    fn a_second_has_its_claims_and_a_burst_no_more() {
        let mut rates = Rates::new(10);
        assert_eq!(admitted(&mut rates, TENANT, 0, 30), 10);
        assert_eq!(admitted(&mut rates, TENANT, 99, 30), 0);
        assert_eq!(admitted(&mut rates, TENANT, 100, 30), 1);
        assert_eq!(admitted(&mut rates, TENANT, 600, 30), 5);
        assert_eq!(admitted(&mut rates, TENANT, 60_000, 30), 10);
        assert_eq!(admitted(&mut rates, TenantDigest([2; 8]), 60_000, 30), 10);
        assert_eq!(
            admitted(&mut rates, TENANT, 59_000, 30),
            0,
            "a clock set back"
        );
    }

    #[test]
    fn tenants_without_end_take_bounded_memory() {
        let mut rates = Rates::new(1);
        for n in 0..100_000_u64 {
            assert!(rates.admits(TenantDigest(n.to_be_bytes()), n));
            assert!(rates.buckets.len() <= MOST);
        }
    }
}
