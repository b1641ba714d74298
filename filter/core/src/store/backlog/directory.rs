//! The directory: which journals there are, and whose.
//!
//! One value, changed by compare-and-swap and nothing else, so that of two who want a journal one gets
//! it. A journal's number is its place in the list; none ever leaves it, because its keys don't either.
//!
//! ```text
//! mark 2 (d7 b7), format 1, 0, journals 4, checksum 8, journals × 24:
//! holder 8 (0: nobody), lease until 8, slots 4, something is left 1, 0 3
//! ```

use super::super::table::{HostError, SharedData};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const MAGIC: [u8; 4] = [0xd7, 0xb7, 1, 0];
const JOURNAL: usize = 24;
/// More journals there never are: as many VMs and roots would have to hold writes at once.
const MAX_JOURNALS: usize = 1024;
/// How often a change is tried when others change the directory, too. Each failed try means that
/// somebody else got through.
const TRIES: u32 = 64;

/// One journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Journal {
    /// Whose it is; 0: nobody's.
    pub(super) holder: u64,
    /// Until when the holder may be silent.
    pub(super) lease_until: u64,
    /// Slots from here on were never used.
    pub(super) slots: u32,
    /// Nobody's, and something may be in it.
    pub(super) left: bool,
}

impl Journal {
    /// Nobody's, with nothing in it.
    pub(super) const fn is_free(&self) -> bool {
        self.holder == 0 && !self.left
    }

    /// Whoever had it has gone, and may have left something in it.
    pub(super) const fn is_left_behind(&self, now: u64) -> bool {
        match self.holder {
            0 => self.left,
            _ => self.lease_until <= now,
        }
    }
}

/// Why the directory could not be read or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    Host(HostError),
    /// There is something else, or a directory of another version. It stays as it is.
    Unreadable,
    /// No room for another journal.
    Full,
    /// Others kept changing it.
    Contended,
}

impl From<HostError> for Trouble {
    fn from(e: HostError) -> Self {
        Self::Host(e)
    }
}

impl Trouble {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Host(e) => e.0.clone(),
            Self::Unreadable => "the directory of journals cannot be read".into(),
            Self::Full => "there is no free journal".into(),
            Self::Contended => "others kept changing the directory of journals".into(),
        }
    }
}

fn checksum(list: &[u8]) -> u64 {
    xxh3_64_with_seed(list, (list.len() / JOURNAL) as u64)
}

pub(super) fn decode(value: &[u8]) -> Option<Vec<Journal>> {
    let (magic, rest) = value.split_first_chunk::<4>()?;
    let (count, rest) = rest.split_first_chunk::<4>()?;
    let (sum, list) = rest.split_first_chunk::<8>()?;
    let (entries, odd) = list.as_chunks::<JOURNAL>();
    let whole = *magic == MAGIC
        && odd.is_empty()
        && entries.len() == u32::from_le_bytes(*count) as usize
        && entries.len() <= MAX_JOURNALS
        && u64::from_le_bytes(*sum) == checksum(list);
    whole.then(|| entries.iter().map(journal).collect())
}

fn journal(octets: &[u8; JOURNAL]) -> Journal {
    let [h0, h1, h2, h3, h4, h5, h6, h7, rest @ ..] = *octets;
    let [l0, l1, l2, l3, l4, l5, l6, l7, s0, s1, s2, s3, left, ..] = rest;
    Journal {
        holder: u64::from_le_bytes([h0, h1, h2, h3, h4, h5, h6, h7]),
        lease_until: u64::from_le_bytes([l0, l1, l2, l3, l4, l5, l6, l7]),
        slots: u32::from_le_bytes([s0, s1, s2, s3]),
        left: left != 0,
    }
}

pub(super) fn encode(journals: &[Journal]) -> Vec<u8> {
    let mut list = Vec::with_capacity(journals.len() * JOURNAL);
    for journal in journals {
        list.extend_from_slice(&journal.holder.to_le_bytes());
        list.extend_from_slice(&journal.lease_until.to_le_bytes());
        list.extend_from_slice(&journal.slots.to_le_bytes());
        list.extend_from_slice(&[journal.left.into(), 0, 0, 0]);
    }
    let count = u32::try_from(journals.len()).unwrap_or(u32::MAX);
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&checksum(&list).to_le_bytes());
    out.extend_from_slice(&list);
    out
}

fn fetch(sd: &mut dyn SharedData, key: &str) -> Result<(Vec<Journal>, Option<u32>), Trouble> {
    match sd.get(key)? {
        None => Ok((Vec::new(), None)),
        Some((value, cas)) => {
            let journals = decode(&value).ok_or(Trouble::Unreadable)?;
            Ok((journals, Some(cas)))
        }
    }
}

/// Changes the directory. `with` says whether it changed anything; it runs again, on what is there by
/// then, whenever somebody else was faster.
pub(super) fn change(
    sd: &mut dyn SharedData,
    key: &str,
    with: &mut dyn FnMut(&mut Vec<Journal>) -> bool,
) -> Result<(), Trouble> {
    for _ in 0..TRIES {
        let (mut journals, seen) = fetch(sd, key)?;
        if !with(&mut journals) {
            return Ok(());
        }
        if journals.len() > MAX_JOURNALS {
            return Err(Trouble::Full);
        }
        let value = encode(&journals);
        let written = match seen {
            None => sd.create(key, &value)?,
            Some(cas) => sd.replace(key, &value, cas)?,
        };
        if written {
            return Ok(());
        }
    }
    Err(Trouble::Contended)
}

/// Whose that journal is; 0: nobody's.
pub(super) fn holder(sd: &mut dyn SharedData, key: &str, number: u32) -> Result<u64, Trouble> {
    let (journals, _) = fetch(sd, key)?;
    Ok(journals.get(number as usize).map_or(0, |j| j.holder))
}
