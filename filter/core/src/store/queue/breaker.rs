//! A store that does not answer is left alone for a while, and taken up again little by little.

/// Calls in a row that must fail before the store is left alone.
const TRIP: u32 = 3;

/// The first pause, and the longest, milliseconds.
const FIRST_PAUSE_MS: u64 = 100;
const LONGEST_PAUSE_MS: u64 = 5_000;

/// How much may be under way now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) calls: usize,
    pub(super) operations: usize,
}

/// The circuit breaker of one worker's store.
#[derive(Debug)]
pub(super) struct Breaker {
    failures: u32,
    why: Option<String>,
    state: State,
    /// Operations of a call at full admission.
    full: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    /// Nothing leaves until then.
    Open(u64),
    /// One call at a time, of so many operations: doubled by each that succeeds.
    Trying(usize),
}

impl Breaker {
    pub(super) const fn new(full: usize) -> Self {
        Self {
            failures: 0,
            why: None,
            state: State::Closed,
            full,
        }
    }

    pub(super) const fn failures(&self) -> u32 {
        self.failures
    }

    pub(super) fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Why an operation would wait in vain, where it would.
    pub(super) fn refuses(&self, now: u64, deadline: u64) -> Option<String> {
        let State::Open(until) = self.state else {
            return None;
        };
        (until > now && until >= deadline).then(|| {
            let why = self.why().unwrap_or_default();
            format!("the store does not answer ({why})")
        })
    }

    pub(super) fn room(&mut self, now: u64, calls: usize) -> Room {
        if let State::Open(until) = self.state {
            if now < until {
                return Room {
                    calls: 0,
                    operations: 0,
                };
            }
            self.state = State::Trying(1);
        }
        match self.state {
            State::Trying(operations) => Room {
                calls: 1,
                operations,
            },
            _ => Room {
                calls,
                operations: usize::MAX,
            },
        }
    }

    /// `true`: it had been given up, and answers again.
    pub(super) fn on_success(&mut self) -> bool {
        self.failures = 0;
        self.state = match self.state {
            State::Closed => State::Closed,
            State::Open(_) => State::Trying(1),
            State::Trying(operations) if operations.saturating_mul(2) >= self.full => State::Closed,
            State::Trying(operations) => State::Trying(operations.saturating_mul(2)),
        };
        self.why.take().is_some()
    }

    /// `true`: it is given up by this failure.
    pub(super) fn on_failure(&mut self, why: &str, now: u64) -> bool {
        self.failures = self.failures.saturating_add(1);
        let trying = matches!(self.state, State::Trying(_));
        if self.failures < TRIP && !trying {
            return false;
        }
        // A call that left before the store was given up says nothing new.
        if !matches!(self.state, State::Open(until) if now < until) {
            let beyond = self.failures.saturating_sub(TRIP).min(8);
            let pause = (FIRST_PAUSE_MS << beyond).min(LONGEST_PAUSE_MS);
            self.state = State::Open(now.saturating_add(pause));
        }
        self.why.replace(why.to_owned()).is_none()
    }
}
