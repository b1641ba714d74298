//! The bounded history: time, source and operator of every transition (rule 8).

use super::{Evidence, Source, Status, WriteId};

/// Events kept in one record. The first (the claim) always stays; of the others the latest.
pub const MAX_EVENTS: usize = 8;

/// One thing that happened to an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Store clock, milliseconds.
    pub at: u64,
    /// The state before.
    pub from: Status,
    /// The state after. Equal to `from` where a late answer lost and is kept as evidence.
    pub to: Status,
    /// Who.
    pub source: Source,
    /// Which write.
    pub write: WriteId,
    /// The person, for [`Source::Operator`].
    pub operator: String,
    /// What was seen.
    pub evidence: Option<Evidence>,
}

/// A record's events, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    events: Vec<Event>,
    dropped: u32,
}

impl History {
    /// Puts decoded parts together; too many events are cut as [`Self::push`] would.
    #[must_use]
    pub fn from_parts(events: Vec<Event>, dropped: u32) -> Self {
        let mut history = Self {
            events: Vec::new(),
            dropped,
        };
        for event in events {
            history.push(event);
        }
        history
    }

    /// Oldest first.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// How many were dropped to stay bounded.
    #[must_use]
    pub const fn dropped(&self) -> u32 {
        self.dropped
    }

    /// Adds an event; beyond [`MAX_EVENTS`] the second oldest goes.
    pub fn push(&mut self, event: Event) {
        if self.events.len() >= MAX_EVENTS {
            self.events.remove(1);
            self.dropped = self.dropped.saturating_add(1);
        }
        self.events.push(event);
    }

    /// Whether that write is among the events.
    #[must_use]
    pub fn has(&self, write: WriteId) -> bool {
        self.events.iter().any(|e| e.write == write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn event(n: u64) -> Event {
        Event {
            at: n,
            from: Status::Absent,
            to: Status::Pending,
            source: Source::Owner,
            write: WriteId(n),
            operator: String::new(),
            evidence: None,
        }
    }

    #[test]
    fn the_claim_and_the_latest_stay() {
        let mut history = History::default();
        for n in 0..20 {
            history.push(event(n));
        }
        let kept: Vec<u64> = history.events().iter().map(|e| e.at).collect();
        assert_eq!(kept, [0, 13, 14, 15, 16, 17, 18, 19]);
        assert_eq!(history.dropped(), 12);
        assert!(history.has(WriteId(0)) && !history.has(WriteId(5)));
    }
}
