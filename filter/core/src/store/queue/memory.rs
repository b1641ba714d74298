//! What a store was last seen to remember: how one that forgets is noticed (design.md §6).

use crate::store::remote::{SHARDS, ShardState};

/// Epoch and seq of each shard, as far as they were seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    shards: [Option<Seen>; SHARDS as usize],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    epoch: [u8; 16],
    seq: u64,
    /// How many losses were noticed so far.
    losses: u32,
    /// The latest doubt that was heard of.
    doubt_until: u64,
}

impl Seen {
    /// Whether a state can follow this one in a store that forgets nothing.
    fn precedes(&self, epoch: [u8; 16], seq: u64) -> bool {
        self.epoch == epoch && self.seq <= seq
    }
}

/// Octets of one shard's state as text for other workers.
const ENCODED: usize = 32;

impl Memory {
    /// Takes a shard's state in. `known` is what was known when the call left, because a later answer
    /// may overtake an earlier one. `Some`: the store has lost writes, and how that was seen; once for
    /// each loss. A state that could not be read says nothing: what is known stays, to be compared with
    /// the next one. (An epoch that is gone is no such state: the call that misses it writes another.)
    pub(super) fn note(&mut self, state: &ShardState, known: &Self) -> Option<&'static str> {
        let epoch = state.epoch?;
        let at = usize::from(state.shard);
        let before = known.shards.get(at).copied().flatten();
        let slot = self.shards.get_mut(at)?;
        let Some(seen) = slot else {
            *slot = Some(Seen {
                epoch,
                seq: state.seq,
                losses: 0,
                doubt_until: 0,
            });
            return None;
        };
        // Known since the call left, if at all: nothing can be said of their order.
        let before = before.unwrap_or(Seen { seq: 0, ..*seen });
        if before.precedes(epoch, state.seq) {
            // After a loss the answer may be an old one that was overtaken.
            if before.losses == seen.losses {
                seen.seq = seen.seq.max(state.seq);
            }
            return None;
        }
        let noticed = before.losses != seen.losses && seen.epoch == epoch;
        let same_epoch = seen.epoch == epoch;
        seen.epoch = epoch;
        if noticed {
            // By an answer to a call that left before, too.
            seen.seq = seen.seq.min(state.seq);
            return None;
        }
        seen.seq = state.seq;
        seen.losses = seen.losses.saturating_add(1);
        Some(if same_epoch {
            "a lower seq"
        } else {
            "another epoch"
        })
    }

    /// Whether the shard's state tells of a doubt for the first time. After [`Memory::note`].
    pub(super) fn doubts(&mut self, state: &ShardState) -> bool {
        let slot = self.shards.get_mut(usize::from(state.shard));
        let Some(seen) = slot.and_then(Option::as_mut) else {
            return false;
        };
        // Another server has another clock: later is not greater.
        let until = state.doubt_until.unwrap_or(0);
        let new = until != 0 && until != seen.doubt_until;
        if new {
            seen.doubt_until = until;
        }
        new
    }

    /// Takes over what another worker knows of shards of which this one knows nothing. `true`: the other
    /// has heard of a doubt that this one has not.
    pub(super) fn learn(&mut self, other: &Self) -> bool {
        let mut news = false;
        for (own, theirs) in self.shards.iter_mut().zip(other.shards) {
            if let (Some(own), Some(theirs)) = (&own, &theirs) {
                news |= theirs.doubt_until > own.doubt_until;
            }
            *own = own.or(theirs);
        }
        news
    }

    /// For other workers.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut octets = Vec::with_capacity(ENCODED * usize::from(SHARDS));
        for seen in self.shards {
            let seen = seen.unwrap_or_default();
            octets.extend_from_slice(&seen.epoch);
            octets.extend_from_slice(&seen.seq.to_le_bytes());
            octets.extend_from_slice(&seen.doubt_until.to_le_bytes());
        }
        octets
    }

    /// What another worker wrote; whatever else is there says nothing.
    #[must_use]
    pub fn decode(octets: &[u8]) -> Self {
        let mut memory = Self::default();
        if octets.len() != ENCODED * usize::from(SHARDS) {
            return memory;
        }
        for (slot, part) in memory.shards.iter_mut().zip(octets.chunks_exact(ENCODED)) {
            let Some((epoch, seq)) = part.split_first_chunk::<16>() else {
                continue;
            };
            let Some((seq, doubt)) = seq.split_first_chunk::<8>() else {
                continue;
            };
            *slot = (*epoch != [0; 16]).then_some(Seen {
                epoch: *epoch,
                seq: u64::from_le_bytes(*seq),
                losses: 0,
                doubt_until: doubt.try_into().map_or(0, u64::from_le_bytes),
            });
        }
        memory
    }
}
