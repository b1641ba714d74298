//! Writes that were acknowledged a moment ago, to be made again by whoever finds that the store has lost
//! them. Every write names itself, so that one which is still there is only acknowledged again.

use crate::store::remote::shard_of;
use crate::store::{Action, Fence, Op, Target};
use std::collections::VecDeque;

/// How long an acknowledged write is kept, milliseconds: longer than a store's disk or replica lags.
const KEPT_MS: u64 = 30_000;

/// Octets of answers and claims that are kept, roughly.
const MAX_OCTETS: usize = 16 << 20;

/// Octets that a write takes beside its answer, roughly.
const OVERHEAD: usize = 1024;

/// The last writes, oldest first.
#[derive(Debug, Default)]
pub(super) struct Recent {
    writes: VecDeque<(u64, Op)>,
    octets: usize,
}

impl Recent {
    /// Keeps a write that the store has acknowledged.
    pub(super) fn note(&mut self, op: &Op, now: u64) {
        let worth = match &op.action {
            Action::Transition(t) => {
                // Who runs renews its lease again anyway.
                matches!(t.fence, Fence::Owner { .. }) && !matches!(t.to, Target::Renewed { .. })
            }
            Action::Cancel { .. } => true,
            _ => false,
        };
        if !worth {
            return;
        }
        self.octets = self.octets.saturating_add(octets(op));
        self.writes.push_back((now, op.clone()));
        while self.octets > MAX_OCTETS && self.drop_oldest() {}
    }

    fn drop_oldest(&mut self) -> bool {
        let Some((_, op)) = self.writes.pop_front() else {
            return false;
        };
        self.octets = self.octets.saturating_sub(octets(&op));
        true
    }

    /// Forgets what is old.
    pub(super) fn forget(&mut self, now: u64) {
        while let Some((at, _)) = self.writes.front()
            && at.saturating_add(KEPT_MS) < now
        {
            self.drop_oldest();
        }
    }

    /// The writes of one shard, oldest first. One that was made again has been noted again.
    pub(super) fn of_shard(&mut self, shard: u8, now: u64) -> Vec<Op> {
        self.forget(now);
        let mut writes: Vec<Op> = Vec::new();
        for (_, op) in &self.writes {
            if shard_of(&op.operation) == shard && !writes.contains(op) {
                writes.push(op.clone());
            }
        }
        writes
    }
}

fn octets(op: &Op) -> usize {
    let Action::Transition(transition) = &op.action else {
        return OVERHEAD;
    };
    match &transition.to {
        Target::Accepted { blob, .. } | Target::Completed { blob, .. } => {
            blob.as_ref().map_or(0, Vec::len).saturating_add(OVERHEAD)
        }
        _ => OVERHEAD,
    }
}
