//! `Retry-After` (RFC 9110 §10.2.3) in seconds, spread so that clients refused together do not come
//! back together.
//!
//! The delay is drawn between half of the ceiling and the ceiling ("equal jitter"): never so early
//! that the retry is wasted, never all at once. There is no randomness in the core; the seed comes
//! from the attempt.

/// The longest delay that the filter chooses by itself, seconds.
pub const CAP_S: u32 = 32;

/// What the client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The running attempt: what remains of its lease, ms. Most attempts end long before.
    Lease(u64),
    /// The store: how many calls in a row have failed. 1 s, then doubled each time.
    Failures(u32),
}

/// Seconds, at least 1. `store_s` is what the store itself asked for: it wins where it is longer,
/// also beyond [`CAP_S`].
#[must_use]
pub fn seconds(wait: Wait, store_s: Option<u32>, seed: u64) -> u32 {
    let ceiling = match wait {
        Wait::Lease(ms) => u32::try_from(ms.div_ceil(1000)).unwrap_or(CAP_S),
        // The first failure is number 1; 0 (none seen here yet) counts as the first.
        Wait::Failures(count) => 1_u32.checked_shl(count.saturating_sub(1)).unwrap_or(CAP_S),
    }
    .clamp(1, CAP_S);
    let floor = ceiling.div_ceil(2);
    let choices = u64::from(ceiling - floor) + 1;
    let own = floor.saturating_add(u32::try_from(mix(seed) % choices).unwrap_or(0));
    own.max(store_s.unwrap_or(0))
}

/// Spreads seeds that differ in few bits: the finaliser of SplitMix64, which is three lines and
/// needs no generator crate.
const fn mix(seed: u64) -> u64 {
    let a = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let b = (a ^ (a >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let c = (b ^ (b >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    c ^ (c >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn drawn(wait: Wait) -> (u32, u32, usize) {
        let all: BTreeSet<u32> = (0..2000).map(|seed| seconds(wait, None, seed)).collect();
        (*all.first().unwrap(), *all.last().unwrap(), all.len())
    }

    #[test]
    fn lease_delays_fill_the_upper_half() {
        assert_eq!(drawn(Wait::Lease(30_000)), (15, 30, 16));
        assert_eq!(drawn(Wait::Lease(29_001)), (15, 30, 16));
        assert_eq!(drawn(Wait::Lease(3_000)), (2, 3, 2));
        assert_eq!(drawn(Wait::Lease(0)), (1, 1, 1));
        assert_eq!(drawn(Wait::Lease(1)), (1, 1, 1));
        assert_eq!(drawn(Wait::Lease(u64::MAX)), (16, 32, 17));
    }

    #[test]
    fn failures_double_up_to_the_cap() {
        let ceilings: Vec<u32> = (0..8).map(|n| drawn(Wait::Failures(n)).1).collect();
        assert_eq!(ceilings, [1, 1, 2, 4, 8, 16, 32, 32]);
        assert_eq!(drawn(Wait::Failures(33)), (16, 32, 17));
        assert_eq!(drawn(Wait::Failures(u32::MAX)), (16, 32, 17));
    }

    #[test]
    fn a_longer_wish_of_the_store_wins() {
        assert_eq!(seconds(Wait::Failures(1), Some(120), 7), 120);
        assert_eq!(
            seconds(Wait::Failures(9), Some(1), 7),
            seconds(Wait::Failures(9), None, 7)
        );
    }

    #[test]
    fn the_same_attempt_gets_the_same_delay() {
        let once = seconds(Wait::Lease(30_000), None, 42);
        assert_eq!(once, seconds(Wait::Lease(30_000), None, 42));
    }
}
