//! What the workers of a process share: shared data, queues, metrics, the clock, the plan of faults.

use crate::faults::{Faults, status};
use std::collections::{BTreeMap, VecDeque};

/// How a host understands the number that a write of shared data names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CasRule {
    /// Envoy's: a key that is not there is written whatever the number. Of one that is, 0 means
    /// "whatever is there", any other number must be the key's own. Numbers are the process's, from 1.
    #[default]
    Envoy,
    /// `ngx_wasm_module`'s: the number must be the key's own, and 0 where there is no key. Numbers are
    /// the key's, from 1.
    Inverse,
}

/// One metric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metric {
    /// Its name as defined.
    pub name: String,
    /// 0 counter, 1 gauge, 2 histogram.
    pub kind: u32,
    /// The sum, the value, or the number of samples.
    pub value: i64,
}

/// One shared queue.
#[derive(Clone, Debug)]
pub struct Queue {
    name: String,
    /// Who registered it last: worker and root.
    pub owner: (usize, u32),
    messages: VecDeque<Vec<u8>>,
}

/// The process.
#[derive(Debug, Default)]
pub struct Shared {
    /// How numbers are understood.
    pub rule: CasRule,
    /// Shared data.
    pub data: BTreeMap<String, (Vec<u8>, u32)>,
    pub(crate) last_cas: u32,
    /// Queues by token less 1.
    pub queues: Vec<Queue>,
    /// Queues that have news for their owners.
    pub rung: VecDeque<u32>,
    /// Metrics by id less 1.
    pub metrics: Vec<Metric>,
    /// Unix nanoseconds.
    pub now_ns: u64,
    /// Environment variables of the plugin.
    pub environment: Vec<(String, String)>,
    /// The plan of faults.
    pub faults: Faults,
    /// Log lines: worker, level, text.
    pub log: Vec<(usize, u32, String)>,
    /// Things that Envoy asserts never happen, or ends a stream for.
    pub misuse: Vec<String>,
}

impl Shared {
    /// Writes shared data.
    pub fn set(&mut self, key: &str, value: &[u8], cas: u32) -> u32 {
        let current = self.data.get(key).map(|(_, cas)| *cas);
        let taken = match (self.rule, current) {
            (CasRule::Envoy, None) => true,
            (CasRule::Envoy, Some(own)) => cas == 0 || cas == own,
            (CasRule::Inverse, own) => cas == own.unwrap_or(0),
        };
        if !taken {
            return status::CAS_MISMATCH;
        }
        let next = match self.rule {
            CasRule::Envoy => {
                self.last_cas = self.last_cas.checked_add(1).unwrap_or(1);
                self.last_cas
            }
            CasRule::Inverse => current.unwrap_or(0) + 1,
        };
        self.data.insert(key.to_owned(), (value.to_vec(), next));
        status::OK
    }

    /// The token of a queue of that name, which now tells this root.
    pub fn register(&mut self, name: &str, owner: (usize, u32)) -> u32 {
        let place = self.queues.iter().position(|q| q.name == name);
        let place = place.unwrap_or_else(|| {
            self.queues.push(Queue {
                name: name.to_owned(),
                owner,
                messages: VecDeque::new(),
            });
            self.queues.len() - 1
        });
        self.queues[place].owner = owner;
        u32::try_from(place + 1).expect("few queues")
    }

    fn queue(&mut self, token: u32) -> Option<&mut Queue> {
        self.queues.get_mut((token as usize).checked_sub(1)?)
    }

    /// Adds a message, and rings.
    pub fn enqueue(&mut self, token: u32, message: Vec<u8>) -> u32 {
        let Some(queue) = self.queue(token) else {
            return status::NOT_FOUND;
        };
        queue.messages.push_back(message);
        self.rung.push_back(token);
        status::OK
    }

    /// Takes a message.
    ///
    /// # Errors
    /// The status.
    pub fn dequeue(&mut self, token: u32) -> Result<Vec<u8>, u32> {
        let queue = self.queue(token).ok_or(status::NOT_FOUND)?;
        queue.messages.pop_front().ok_or(status::EMPTY)
    }

    /// The id of a metric of that name and kind.
    pub fn metric(&mut self, kind: u32, name: &str) -> u32 {
        let place = self.metrics.iter().position(|m| m.name == name);
        let place = place.unwrap_or_else(|| {
            self.metrics.push(Metric {
                name: name.to_owned(),
                kind,
                value: 0,
            });
            self.metrics.len() - 1
        });
        u32::try_from(place + 1).expect("few metrics")
    }

    /// Changes a metric.
    pub fn change(&mut self, id: u32, change: impl FnOnce(&mut Metric) -> u32) -> u32 {
        let place = (id as usize).checked_sub(1);
        match place.and_then(|place| self.metrics.get_mut(place)) {
            Some(metric) => change(metric),
            None => status::NOT_FOUND,
        }
    }

    /// The sum of all metrics whose name contains this.
    #[must_use]
    pub fn sum(&self, part: &str) -> i64 {
        let of = self.metrics.iter().filter(|m| m.name.contains(part));
        of.map(|m| m.value).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envoy_creates_whatever_the_number_and_takes_0_for_anything() {
        let mut shared = Shared::default();
        assert_eq!(shared.set("k", b"a", u32::MAX), status::OK);
        assert_eq!(shared.set("k", b"b", u32::MAX), status::CAS_MISMATCH);
        let cas = shared.data["k"].1;
        assert_eq!(shared.set("k", b"b", cas), status::OK);
        assert_eq!(shared.set("k", b"c", cas), status::CAS_MISMATCH);
        assert_eq!(shared.set("k", b"c", 0), status::OK);
    }

    #[test]
    fn the_inverse_rule_creates_with_0_only() {
        let mut shared = Shared {
            rule: CasRule::Inverse,
            ..Shared::default()
        };
        assert_eq!(shared.set("k", b"a", u32::MAX), status::CAS_MISMATCH);
        assert_eq!(shared.set("k", b"a", 0), status::OK);
        assert_eq!(shared.set("k", b"b", 0), status::CAS_MISMATCH);
        assert_eq!(shared.set("k", b"b", 1), status::OK);
        assert_eq!(shared.set("k", b"c", 1), status::CAS_MISMATCH);
    }
}
