//! The `shared_data` store: a bounded table in the host's shared data.
//!
//! A fixed set of keys, because the host never frees one, and a compare-and-swap on each, because
//! a `get` followed by a plain `set` lets two workers win:
//!
//! | key | value |
//! |---|---|
//! | `idempo/1/meta` | shape, seed and start of the table (`meta`) |
//! | `idempo/1/r/<n>` | the records and packed tombstones that hash there (`bucket`) |
//! | `idempo/1/b/<n>` | chunks of recorded answers (`bodies`, `pile`) |
//! | `idempo/1/t/<n>` | tenants' counters, where a quota is configured (`quota`) |
//! | `idempo/1/c/<n>` | the replay cache in front of a remote store ([`cache`]) |
//!
//! **A step is one `get` and at most one compare-and-swap of one bucket.** Everything that decides
//! about an operation is in that one value: its record, or its tombstone, and which answer is its
//! own. So a step happens whole or not at all, whatever crashes, and two workers never both win.
//! What lies elsewhere is written before (an answer, a tenant's count) and is worth nothing until the
//! bucket names it.
//!
//! **Budgets hold at every moment.** Each key has a cap (`geometry`); an open operation is charged
//! the largest record there is from its claim on, so that what runs can always be recorded. Nothing is
//! evicted: what does not fit is refused (a claim) or remembered without its answer (rule 7). Besides
//! the budgets there are the counters (at most 1 MiB), `meta` (56 octets), and what the host itself
//! spends per key.
//!
//! **How much fits.** A settled operation takes some 350 octets of the records' budget and its
//! answer's of the other; one that runs is charged 2.1 KiB. Operations spread over buckets by chance,
//! so a few meet a full bucket before the table is full: one claim in a million at half full, one in a
//! thousand at 60 % (Poisson, 400 octets per record). Alert on [`SweepReport::used_ratio`] from 0.5 on.
//!
//! **No cost grows with the number of stored operations**: a step reads one bucket, a sweep walks at
//! the pace it is told.
//!
//! `now` is the store's clock, in milliseconds. Workers may be a little apart: nothing here assumes
//! that it never falls.

mod apply;
mod bodies;
mod bucket;
pub mod cache;
pub mod fake;
mod geometry;
mod memory;
mod meta;
mod octets;
mod pile;
mod quota;
mod replay;
mod sweep;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use tests::support as testing;

pub use cache::Cache;
pub use geometry::Geometry;
pub use memory::{HostError, SharedData};
pub use meta::{OpenError, Opened};
pub use sweep::SweepReport;

use super::{Op, Reply};
use crate::plan::SharedDataStore;
use bodies::Bodies;
use meta::Meta;

/// One worker's hand on the table. All of its state is in shared data; what is here are hints.
#[derive(Debug)]
pub struct Table {
    wanted: Geometry,
    shape: Option<Shape>,
    /// The last answer that a record named: a replay asks for it in the next step.
    memo: Option<replay::Memo>,
    /// Whether a counted record was ever met, so that recounts are worth their calls.
    quotas: bool,
    recount: Option<(u32, quota::Recount)>,
}

/// What all workers agree on.
#[derive(Clone, Copy, Debug)]
struct Shape {
    geometry: Geometry,
    seed: [u8; 16],
    bodies: Bodies,
}

impl Shape {
    fn bucket_key(index: u32) -> String {
        format!("idempo/1/r/{index}")
    }
}

impl Table {
    /// A table within these budgets. Nothing is touched before [`Self::open`].
    #[must_use]
    pub fn new(store: &SharedDataStore) -> Self {
        Self {
            wanted: Geometry::of(store),
            shape: None,
            memo: None,
            quotas: false,
            recount: None,
        }
    }

    /// Finds the process's table, or makes it. `wall_ms` (Unix milliseconds) and `seed` (as hard to
    /// guess as the host allows) count only where this is the first worker of the process.
    ///
    /// A table that is there keeps its shape, whatever this configuration asks for: shared data
    /// outlives a reload, and an operation hashed anew would be absent.
    ///
    /// # Errors
    /// [`OpenError`]: the store cannot be used, and no step may be tried.
    pub fn open(
        &mut self,
        sd: &mut impl SharedData,
        wall_ms: u64,
        seed: [u8; 16],
    ) -> Result<Opened, OpenError> {
        let ours = Meta {
            geometry: self.wanted,
            seed,
            since_wall_ms: wall_ms,
        };
        let (meta, first) = ours.agree(sd)?;
        self.shape = Some(Shape {
            geometry: meta.geometry,
            seed: meta.seed,
            bodies: Bodies::new(&meta.geometry, meta.seed),
        });
        Ok(Opened {
            since_wall_ms: meta.since_wall_ms,
            first,
            geometry: meta.geometry,
            wanted: Some(self.wanted).filter(|w| *w != meta.geometry),
        })
    }

    /// One step: [`super::contract::apply`] under compare-and-swap, within the budgets.
    ///
    /// [`super::Action::Body`] is answered [`Reply::Body`] where the operation's record is of that
    /// claim and may be replayed (`None`: its answer is missing or damaged, which is corruption);
    /// otherwise like a read, so that the caller judges anew.
    pub fn apply(&mut self, sd: &mut impl SharedData, op: &Op, now: u64) -> Reply {
        let Some(shape) = self.shape else {
            return Reply::Failed("the table is not open".into());
        };
        self.step(&shape, sd, op, now)
    }
}
