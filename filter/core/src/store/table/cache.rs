//! The replay cache: terminal records with their answers, in front of a remote store.
//!
//! Bounded like the table, but a cache: full piles evict what ends soonest, and whatever is damaged,
//! over or not understood is a miss. Never asked whether an operation may run: a hit is a terminal
//! state, which never changes, and a miss says nothing.

use super::geometry::spread;
use super::memory::SharedData;
use super::pile::{self, Name, Policy};
use crate::ids::OperationId;
use crate::record::{Record, View, decode, encode};

const PER_PILE: u64 = 32 << 10;
const MAX_PILES: u64 = 1 << 20;

/// A bounded cache in shared data. Workers with other budgets or seeds only miss each other's.
#[derive(Clone, Copy, Debug)]
pub struct Cache {
    seed: [u8; 16],
    piles: u32,
    cap: u32,
}

impl Cache {
    /// A cache of at most that many octets. Workers of one process share entries where they pass
    /// the same seed.
    #[must_use]
    pub fn new(budget_bytes: u64, seed: [u8; 16]) -> Self {
        let piles = (budget_bytes / PER_PILE).clamp(1, MAX_PILES);
        Self {
            seed,
            piles: u32::try_from(piles).unwrap_or(1),
            cap: u32::try_from((budget_bytes / piles).min(2 * PER_PILE)).unwrap_or(0),
        }
    }

    /// Keeps a terminal record and its answer, if it fits, evicting what ends soonest. `true`: kept.
    pub fn remember(
        &self,
        sd: &mut impl SharedData,
        operation: &OperationId,
        record: &Record,
        answer: &[u8],
        now: u64,
    ) -> bool {
        if !is_terminal(record, now) {
            return false;
        }
        let octets = encode(record);
        let Ok(length) = u16::try_from(octets.len()) else {
            return false;
        };
        let parcel = [length.to_le_bytes().as_slice(), &octets, answer].concat();
        let (name, key) = self.place(operation);
        let parcel = (name, parcel.as_slice(), record.expires_at());
        pile::add(sd, &key, self.cap, parcel, now, Policy::Evict).unwrap_or(false)
    }

    /// The record and its answer, inside its window.
    #[must_use]
    pub fn recall(
        &self,
        sd: &mut impl SharedData,
        operation: &OperationId,
        now: u64,
    ) -> Option<(Record, Vec<u8>)> {
        let (name, key) = self.place(operation);
        let parcel = pile::find(sd, &key, name, now).ok()??;
        let (length, rest) = parcel.split_first_chunk::<2>()?;
        let (octets, answer) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
        let record = decode(octets).ok()?;
        is_terminal(&record, now).then(|| (record, answer.to_vec()))
    }

    fn place(&self, operation: &OperationId) -> (Name, String) {
        let mut hash = blake3::Hasher::new();
        hash.update(&self.seed)
            .update(b"cache")
            .update(&operation.0);
        let digest = hash.finalize();
        let (name, rest) = digest
            .as_bytes()
            .split_first_chunk::<16>()
            .unwrap_or((&[0; 16], &[]));
        let hash = u64::from_le_bytes(*rest.first_chunk().unwrap_or(&[0; 8]));
        (*name, format!("idempo/1/c/{}", spread(hash, self.piles)))
    }
}

fn is_terminal(record: &Record, now: u64) -> bool {
    matches!(record.view(now), View::Completed(_) | View::Closed { .. })
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::super::tests::support::{completed, id};
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn terminal_records_come_back_until_their_window_is_over() {
        let sd = &mut Fake::new();
        let cache = Cache::new(1 << 20, [1; 16]);
        let record = completed(1_000, 10_000);
        assert!(cache.remember(sd, &id(1), &record, b"answer", 1_000));
        let hit = cache.recall(sd, &id(1), 10_999).unwrap();
        assert_eq!(hit, (record.clone(), b"answer".to_vec()));
        assert!(cache.recall(sd, &id(1), 11_000).is_none());
        assert!(cache.recall(sd, &id(2), 1_000).is_none());
        assert!(!cache.remember(sd, &id(3), &record, b"", 11_000), "over");
    }

    #[test]
    fn a_full_cache_evicts_and_stays_within_its_budget() {
        let sd = &mut Fake::new();
        let cache = Cache::new(100_000, [1; 16]);
        for n in 0..2_000_u32 {
            let record = completed(u64::from(n), 1_000_000);
            assert!(cache.remember(sd, &id(n), &record, &[0; 500], u64::from(n)));
            assert!(cache.recall(sd, &id(n), u64::from(n)).is_some());
            assert!(sd.bytes() <= 100_000);
        }
        assert!(cache.recall(sd, &id(0), 2_000).is_none());
        assert_eq!(sd.keys(), 3);
        assert!(
            !cache.remember(sd, &id(1), &completed(0, 9), &[0; 40_000], 0),
            "never fits"
        );
    }

    #[test]
    fn damage_is_a_miss_and_is_written_over() {
        let sd = &mut Fake::new();
        let cache = Cache::new(1 << 20, [1; 16]);
        let record = completed(1_000, 10_000);
        assert!(cache.remember(sd, &id(1), &record, b"answer", 1_000));
        let key = sd.iter().next().unwrap().0.to_owned();
        sd.overwrite(&key, b"rubbish");
        assert!(cache.recall(sd, &id(1), 1_000).is_none());
        assert!(cache.remember(sd, &id(1), &record, b"answer", 1_000));
        assert!(cache.recall(sd, &id(1), 1_000).is_some());
    }
}
