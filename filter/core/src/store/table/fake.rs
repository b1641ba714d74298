//! A host in memory, faithful to Envoy's rules, for tests of this crate and of others.

use super::memory::{HostError, SharedData};
use std::collections::BTreeMap;

/// What Envoy does: one process-wide map, compare-and-swap numbers that start at 1 and change with
/// every write, keys that are never freed.
#[derive(Clone, Debug, Default)]
pub struct Fake {
    values: BTreeMap<String, (Vec<u8>, u32)>,
    last_cas: u32,
    /// What the calls so far have cost.
    pub cost: Cost,
}

/// Host calls and the octets they copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// `get` calls.
    pub gets: u64,
    /// `create` and `replace` calls.
    pub sets: u64,
    /// Octets copied into the module.
    pub bytes_in: u64,
    /// Octets copied out of it.
    pub bytes_out: u64,
}

impl Fake {
    /// An empty host.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Octets of all values.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.values.values().map(|(v, _)| v.len() as u64).sum()
    }

    /// How many keys were ever written.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.values.len()
    }

    /// Every key with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.values
            .iter()
            .map(|(k, (v, _))| (k.as_str(), v.as_slice()))
    }

    /// Writes without any condition, as only a foreign program would: to damage things in tests.
    pub fn overwrite(&mut self, key: &str, value: &[u8]) {
        let cas = self.next_cas();
        self.values.insert(key.to_owned(), (value.to_vec(), cas));
    }

    fn next_cas(&mut self) -> u32 {
        // Envoy skips 0 when the number wraps: 0 means "no condition" there.
        self.last_cas = self.last_cas.checked_add(1).unwrap_or(1);
        self.last_cas
    }
}

impl SharedData for Fake {
    fn get(&mut self, key: &str) -> Result<Option<(Vec<u8>, u32)>, HostError> {
        self.cost.gets += 1;
        let found = self.values.get(key).filter(|(v, _)| !v.is_empty()).cloned();
        if let Some((value, _)) = &found {
            self.cost.bytes_in += value.len() as u64;
        }
        Ok(found)
    }

    fn create(&mut self, key: &str, value: &[u8]) -> Result<bool, HostError> {
        self.cost.sets += 1;
        self.cost.bytes_out += value.len() as u64;
        if self.values.contains_key(key) {
            return Ok(false);
        }
        self.overwrite(key, value);
        Ok(true)
    }

    fn replace(&mut self, key: &str, value: &[u8], cas: u32) -> Result<bool, HostError> {
        self.cost.sets += 1;
        self.cost.bytes_out += value.len() as u64;
        if cas == 0 {
            return Err(HostError("0 means no condition to the host".into()));
        }
        match self.values.get(key) {
            Some((_, current)) if *current != cas => return Ok(false),
            // As on Envoy: a condition on a key that is not there is no condition.
            _ => self.overwrite(key, value),
        }
        Ok(true)
    }
}
