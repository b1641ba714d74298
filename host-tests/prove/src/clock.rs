//! Time: what truly passed, what the host's clock says of it, and what the store makes of that.

use idempo_core::clock::ClockPoint;
use idempo_core::exchange::Moment;

/// When every run begins, Unix milliseconds.
const START_MS: u64 = 1_700_000_000_000;

/// How often the shipped host moves the shared clock on, at least, milliseconds.
const TICK_MS: u64 = 1_000;

#[derive(Clone, Debug, Hash)]
pub(crate) struct Clock {
    /// Milliseconds that truly passed.
    passed: u64,
    /// By how much the host's clock is off.
    off: i64,
    /// The shipped clamp: as (store, host).
    point: (u64, u64),
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            passed: 0,
            off: 0,
            point: (START_MS, START_MS),
        }
    }
}

impl Clock {
    fn host_ms(&self) -> u64 {
        START_MS
            .saturating_add(self.passed)
            .saturating_add_signed(self.off)
    }

    /// Time passes, tick by tick.
    pub(crate) fn pass(&mut self, ms: u64) {
        let end = self.passed + ms;
        while self.passed < end {
            self.passed = end.min(self.passed + TICK_MS);
            let (store_ms, host_ms) = self.point;
            let next = ClockPoint { store_ms, host_ms }.advanced(self.host_ms());
            self.point = (next.store_ms, next.host_ms);
        }
    }

    /// Somebody sets the host's clock.
    pub(crate) fn step(&mut self, by: i64) {
        self.off += by;
    }

    /// The store's clock. `raw`: the host's, as it is.
    pub(crate) fn store_ms(&self, raw: bool) -> u64 {
        if raw { self.host_ms() } else { self.point.0 }
    }

    /// What an exchange is told, whose proxy's notion of the store's clock is off by `skew`.
    pub(crate) fn moment(&self, raw: bool, skew: i64) -> Moment {
        Moment {
            wall_us: self.host_ms() * 1000,
            store_ms: self.store_ms(raw).saturating_add_signed(skew),
        }
    }
}
