//! Time that no step of the host's clock can move (rule 10).
//!
//! The host offers only its wall clock. For the shared-data store that clock decides when windows
//! end, and an NTP step of an hour must not make a tombstone vanish. So the store's clock is kept
//! as a pair, shared by all workers: what the store's clock said, and what the host's clock said
//! at that moment. Every tick moves the pair on by what the host's clock moved, but never
//! backwards and never by more than [`MAX_STEP_MS`]: a step in either direction, or a process that
//! was stopped for an hour, costs the store's clock at most that much.

use xxhash_rust::xxh3::xxh3_64;

/// The most that one reading may move the store's clock, milliseconds. Ticks come several times a
/// second, so an honest clock never gets near it.
pub const MAX_STEP_MS: u64 = 2_000;

/// The pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPoint {
    /// Store clock, milliseconds.
    pub store_ms: u64,
    /// Host clock at that moment, Unix milliseconds.
    pub host_ms: u64,
}

impl ClockPoint {
    /// The first pair of a process: both clocks agree.
    #[must_use]
    pub const fn start(host_ms: u64) -> Self {
        Self {
            store_ms: host_ms,
            host_ms,
        }
    }

    /// The store's clock, given the host's.
    #[must_use]
    pub fn now(&self, host_ms: u64) -> u64 {
        let moved = host_ms.saturating_sub(self.host_ms).min(MAX_STEP_MS);
        self.store_ms.saturating_add(moved)
    }

    /// The pair moved on to the host's time.
    #[must_use]
    pub fn advanced(&self, host_ms: u64) -> Self {
        Self {
            store_ms: self.now(host_ms),
            host_ms,
        }
    }

    /// 24 octets: both, big endian, and a checksum. Every window ends by this clock, so octets that
    /// something else wrote must never be taken for a time.
    #[must_use]
    pub fn encode(&self) -> [u8; 24] {
        let mut out = [0; 24];
        let both = u128::from(self.store_ms) << 64 | u128::from(self.host_ms);
        let (time, sum) = out.split_at_mut(16);
        time.copy_from_slice(&both.to_be_bytes());
        sum.copy_from_slice(&xxh3_64(time).to_be_bytes());
        out
    }

    /// Reads what [`Self::encode`] has written; `None` for anything else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (time, sum) = bytes.split_first_chunk::<16>()?;
        if sum != xxh3_64(time).to_be_bytes() {
            return None;
        }
        let both = u128::from_be_bytes(*time);
        Some(Self {
            store_ms: u64::try_from(both >> 64).ok()?,
            host_ms: u64::try_from(both & u128::from(u64::MAX)).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const HOUR: u64 = 3_600_000;

    #[test]
    fn an_honest_clock_is_followed() {
        let mut point = ClockPoint::start(1_000_000);
        for tick in 1..100 {
            point = point.advanced(1_000_000 + tick * 500);
        }
        assert_eq!(point.store_ms, 1_000_000 + 99 * 500);
    }

    #[test]
    fn a_step_forward_costs_one_bounded_step() {
        let point = ClockPoint::start(10 * HOUR).advanced(11 * HOUR);
        assert_eq!(point.store_ms, 10 * HOUR + MAX_STEP_MS);
        assert_eq!(
            point.advanced(11 * HOUR + 500).store_ms,
            10 * HOUR + MAX_STEP_MS + 500
        );
    }

    #[test]
    fn a_step_back_stops_the_clock_for_one_reading_only() {
        let point = ClockPoint::start(10 * HOUR).advanced(9 * HOUR);
        assert_eq!(point.store_ms, 10 * HOUR);
        assert_eq!(point.advanced(9 * HOUR + 500).store_ms, 10 * HOUR + 500);
    }

    #[test]
    fn encoding_round_trips() {
        let point = ClockPoint {
            store_ms: u64::MAX,
            host_ms: 7,
        };
        assert_eq!(ClockPoint::decode(&point.encode()), Some(point));
    }

    #[test]
    fn what_something_else_wrote_is_no_time() {
        let good = ClockPoint::start(1_000_000).encode();
        for octets in [&[][..], &[0; 16], &[0; 24], &[0xff; 24], &good[..23]] {
            assert_eq!(ClockPoint::decode(octets), None, "{octets:?}");
        }
        for place in 0..good.len() {
            let mut damaged = good;
            damaged[place] ^= 1;
            assert_eq!(ClockPoint::decode(&damaged), None, "octet {place}");
        }
    }
}
