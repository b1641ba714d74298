//! What the table's workers agree on: written once per process, by whoever opens it first.

use super::geometry::Geometry;
use super::memory::{HostError, SharedData};
use super::octets::{checksum, take, take_u32, take_u64};

pub(super) const KEY: &str = "idempo/1/meta";
const MAGIC: [u8; 4] = [0xd7, 0xb3, 1, 0];

/// The table as found or made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Unix milliseconds at which this process's table began: what was before is forgotten, and an
    /// operation whose key shows an older time may have run.
    pub since_wall_ms: u64,
    /// This worker made it: the process has just started.
    pub first: bool,
    /// The shape in force.
    pub geometry: Geometry,
    /// The configured budgets would make another shape. They take effect when the process
    /// restarts; until then the first ones hold. To be logged as a warning.
    pub wanted: Option<Geometry>,
}

/// The table cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The host refused.
    #[error("shared data cannot be used: {0}")]
    Host(#[from] HostError),
    /// Something else wrote to the table's key.
    #[error(
        "shared data holds something else under `{KEY}`: give the plugin a vm_id of its own, and \
         restart the proxy"
    )]
    Damaged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) geometry: Geometry,
    pub(super) seed: [u8; 16],
    pub(super) since_wall_ms: u64,
}

impl Meta {
    /// Finds the table's, or makes it: `true` with ours.
    pub(super) fn agree(self, sd: &mut impl SharedData) -> Result<(Self, bool), OpenError> {
        if let Some((value, _)) = sd.get(KEY)? {
            return Self::read(&value)
                .ok_or(OpenError::Damaged)
                .map(|m| (m, false));
        }
        if sd.create(KEY, &self.write())? {
            return Ok((self, true));
        }
        let (value, _) = sd.get(KEY)?.ok_or(OpenError::Damaged)?;
        Self::read(&value)
            .ok_or(OpenError::Damaged)
            .map(|m| (m, false))
    }

    fn write(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(64);
        let g = &self.geometry;
        for n in [
            g.buckets,
            g.records_cap,
            g.tombstones_cap,
            g.piles,
            g.pile_cap,
        ] {
            body.extend_from_slice(&n.to_le_bytes());
        }
        body.extend_from_slice(&self.seed);
        body.extend_from_slice(&self.since_wall_ms.to_le_bytes());
        let sum = checksum(0, &body).to_le_bytes();
        [MAGIC.as_slice(), &sum, &body].concat()
    }

    fn read(value: &[u8]) -> Option<Self> {
        let rest = &mut &*value;
        let magic: [u8; 4] = take(rest)?;
        let sum = take_u64(rest)?;
        if magic != MAGIC || sum != checksum(0, rest) {
            return None;
        }
        let meta = Self {
            geometry: Geometry {
                buckets: take_u32(rest)?,
                records_cap: take_u32(rest)?,
                tombstones_cap: take_u32(rest)?,
                piles: take_u32(rest)?,
                pile_cap: take_u32(rest)?,
            },
            seed: take(rest)?,
            since_wall_ms: take_u64(rest)?,
        };
        let possible = meta.geometry.buckets > 0 && meta.geometry.piles > 0;
        (rest.is_empty() && possible).then_some(meta)
    }
}
