//! One bucket: the records and tombstones that hash to it, as one value.
//!
//! ```text
//! head      magic 2, format 1, 0, entries 4, tombstones 4, 0 4, checksum 8
//! directory entries × 80: id, times, tenant, answer, length, state (see Head)
//!           tombstones × 24: first 16 octets of the id, time, flag in its top bit
//! records   one after the other, in the directory's order
//! ```
//!
//! The checksum covers head and directory: a flipped bit there could make an operation look absent,
//! and run again. Records carry their own checksum and are only read when they are asked for, so a
//! damaged one harms nobody else. Times stand in the directory so that looking through a bucket
//! reads no record.

use super::octets::{checksum, take, take_u32, take_u64};
use crate::ids::{OperationId, TenantDigest};
use crate::record::{MAX_ENCODED, Record, State, Status};
use std::borrow::Cow;

const MAGIC: [u8; 3] = [0xd7, 0xb5, 1];
/// Octets before the directory.
pub(super) const HEADER: usize = 24;
/// Octets of one directory entry.
pub(super) const ENTRY: usize = 80;
/// Octets of one packed tombstone.
pub(super) const TOMBSTONE: usize = 24;
/// What one open operation takes: its record may grow up to the largest there is.
pub(super) const OPEN: usize = ENTRY + MAX_ENCODED;

const UNRESOLVED: u64 = 1 << 63;
const COUNTED: u8 = 1;
const ANSWERED: u8 = 2;

/// The value is not a bucket: damaged, or written by something else (rule 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged;

/// One entry of the directory: all that is needed to look through a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) id: OperationId,
    /// When the state becomes unknown by itself: end of the lease, or deadline.
    pub(super) due_at: u64,
    pub(super) expires_at: u64,
    pub(super) gone_at: u64,
    pub(super) tenant: TenantDigest,
    pub(super) answer: Option<Answer>,
    pub(super) status: Status,
    /// Whether the tenant's counter was raised for it.
    pub(super) counted: bool,
}

/// Which recorded answer belongs to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The write that brought it.
    pub(super) write: u64,
    /// Its octets.
    pub(super) length: u32,
}

impl Head {
    pub(super) fn of(
        id: OperationId,
        record: &Record,
        answer: Option<Answer>,
        counted: bool,
    ) -> Self {
        Self {
            id,
            due_at: match &record.state {
                State::Pending { lease_until, .. } => *lease_until,
                State::Accepted { deadline, .. } => *deadline,
                _ => u64::MAX,
            },
            expires_at: record.expires_at(),
            gone_at: record.gone_at(),
            tenant: record.tenant,
            answer,
            status: record.state.status(),
            counted,
        }
    }

    /// Not settled: its record may still grow.
    pub(super) const fn is_open(&self) -> bool {
        !matches!(self.status, Status::Completed | Status::Closed)
    }

    /// A lease or deadline is over and nobody has written that yet.
    pub(super) const fn is_due(&self, now: u64) -> bool {
        now >= self.due_at && now < self.expires_at
    }

    fn write(&self, record_length: usize, out: &mut Vec<u8>) {
        let answer = self.answer.unwrap_or(Answer {
            write: 0,
            length: 0,
        });
        let flags = if self.counted { COUNTED } else { 0 }
            | if self.answer.is_some() { ANSWERED } else { 0 };
        out.extend_from_slice(&self.id.0);
        out.extend_from_slice(&self.due_at.to_le_bytes());
        out.extend_from_slice(&self.expires_at.to_le_bytes());
        out.extend_from_slice(&self.gone_at.to_le_bytes());
        out.extend_from_slice(&self.tenant.0);
        out.extend_from_slice(&answer.write.to_le_bytes());
        out.extend_from_slice(&answer.length.to_le_bytes());
        let length = u16::try_from(record_length).unwrap_or(u16::MAX);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&[status_number(self.status), flags]);
    }

    /// The entry and the length of its record.
    fn read(octets: &[u8; ENTRY]) -> Option<(Self, usize)> {
        let rest = &mut octets.as_slice();
        let id = OperationId(take(rest)?);
        let due_at = take_u64(rest)?;
        let expires_at = take_u64(rest)?;
        let gone_at = take_u64(rest)?;
        let tenant = TenantDigest(take(rest)?);
        let answer = Answer {
            write: take_u64(rest)?,
            length: take_u32(rest)?,
        };
        let length = u16::from_le_bytes(take(rest)?);
        let [status, flags] = take(rest)?;
        let head = Self {
            id,
            due_at,
            expires_at,
            gone_at,
            tenant,
            answer: (flags & ANSWERED != 0).then_some(answer),
            status: status_of(status)?,
            counted: flags & COUNTED != 0,
        };
        Some((head, usize::from(length)))
    }
}

const fn status_number(status: Status) -> u8 {
    match status {
        Status::Absent | Status::Expired => 0,
        Status::Pending => 2,
        Status::Accepted => 3,
        Status::Completed => 4,
        Status::Closed => 5,
        Status::Unknown => 6,
    }
}

const fn status_of(number: u8) -> Option<Status> {
    Some(match number {
        2 => Status::Pending,
        3 => Status::Accepted,
        4 => Status::Completed,
        5 => Status::Closed,
        6 => Status::Unknown,
        _ => return None,
    })
}

/// What remains of an operation past its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tombstone {
    /// Enough of the operation id that no two operations ever share it.
    pub(super) prefix: [u8; 16],
    pub(super) gone_at: u64,
    pub(super) unresolved: bool,
}

impl Tombstone {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        let flag = if self.unresolved { UNRESOLVED } else { 0 };
        // Half the range is 292 million years.
        out.extend_from_slice(&(self.gone_at.min(UNRESOLVED - 1) | flag).to_le_bytes());
    }

    fn read(octets: &[u8; TOMBSTONE]) -> Option<Self> {
        let rest = &mut octets.as_slice();
        let prefix = take(rest)?;
        let time = take_u64(rest)?;
        Some(Self {
            prefix,
            gone_at: time & !UNRESOLVED,
            unresolved: time & UNRESOLVED != 0,
        })
    }
}

pub(super) fn prefix(id: &OperationId) -> [u8; 16] {
    *id.0.first_chunk().unwrap_or(&[0; 16])
}

/// What a bucket has of one operation.
#[derive(Debug)]
pub(super) enum Found<'a> {
    Nothing,
    Entry(Head, &'a [u8]),
    Tombstone { unresolved: bool },
}

/// A bucket, read in place.
#[derive(Debug, Default)]
pub(super) struct Bucket<'a> {
    heads: &'a [[u8; ENTRY]],
    tombstones: &'a [[u8; TOMBSTONE]],
    records: &'a [u8],
}

impl<'a> Bucket<'a> {
    /// Checks head, directory and lengths; an empty value is an empty bucket.
    pub(super) fn read(value: &'a [u8]) -> Result<Self, Damaged> {
        if value.is_empty() {
            return Ok(Self::default());
        }
        let (header, rest) = value.split_first_chunk::<HEADER>().ok_or(Damaged)?;
        let fields = &mut header.as_slice();
        let [m0, m1, m2, 0] = take(fields).ok_or(Damaged)? else {
            return Err(Damaged);
        };
        let entries = take_u32(fields).ok_or(Damaged)?;
        let tombstones = take_u32(fields).ok_or(Damaged)?;
        let 0 = take_u32(fields).ok_or(Damaged)? else {
            return Err(Damaged);
        };
        let sum = take_u64(fields).ok_or(Damaged)?;
        // usize is 32 bits in the module: counts are checked before they become lengths.
        let size = |count: u32, each: usize| (count as usize).checked_mul(each).ok_or(Damaged);
        let heads_length = size(entries, ENTRY)?;
        let length = heads_length
            .checked_add(size(tombstones, TOMBSTONE)?)
            .ok_or(Damaged)?;
        let (directory, records) = rest.split_at_checked(length).ok_or(Damaged)?;
        if [m0, m1, m2] != MAGIC || sum != directory_sum(header, directory) {
            return Err(Damaged);
        }
        let (heads, packed) = directory.split_at_checked(heads_length).ok_or(Damaged)?;
        let bucket = Self {
            heads: heads.as_chunks().0,
            tombstones: packed.as_chunks().0,
            records,
        };
        bucket.whole().then_some(bucket).ok_or(Damaged)
    }

    /// Whether every entry reads and the records fill the rest exactly.
    fn whole(&self) -> bool {
        let mut total = 0_usize;
        for octets in self.heads {
            let Some((_, length)) = Head::read(octets) else {
                return false;
            };
            total = total.saturating_add(length);
        }
        total == self.records.len()
    }

    /// What there is of one operation. A tombstone whose time is over is nothing.
    pub(super) fn find(&self, id: &OperationId, now: u64) -> Found<'a> {
        let mut rest = self.records;
        for octets in self.heads {
            let [.., l0, l1, _, _] = *octets;
            let length = usize::from(u16::from_le_bytes([l0, l1]));
            let (record, after) = rest.split_at_checked(length).unwrap_or_default();
            rest = after;
            if octets.starts_with(&id.0)
                && let Some((head, _)) = Head::read(octets)
            {
                return Found::Entry(head, record);
            }
        }
        let prefix = prefix(id);
        self.tombstones()
            .find(|t| t.prefix == prefix && now < t.gone_at)
            .map_or(Found::Nothing, |t| Found::Tombstone {
                unresolved: t.unresolved,
            })
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (Head, &'a [u8])> + use<'a> {
        let mut rest = self.records;
        self.heads.iter().filter_map(move |octets| {
            let (head, length) = Head::read(octets)?;
            let (record, after) = rest.split_at_checked(length)?;
            rest = after;
            Some((head, record))
        })
    }

    pub(super) fn tombstones(&self) -> impl Iterator<Item = Tombstone> + use<'a> {
        self.tombstones.iter().filter_map(Tombstone::read)
    }

    /// A copy to change. What is past its window becomes a tombstone on the way, and tombstones
    /// whose time is over are left out: every write does this, so that an operation's windows need
    /// nothing else to run.
    pub(super) fn draft(&self, now: u64) -> Draft<'a> {
        let mut draft = Draft::default();
        draft
            .tombstones
            .extend(self.tombstones().filter(|t| now < t.gone_at));
        draft.entries.reserve(self.heads.len() + 1);
        for (head, record) in self.entries() {
            if now < head.expires_at {
                draft.entries.push((head, Cow::Borrowed(record)));
                continue;
            }
            if now < head.gone_at {
                draft.tombstones.push(Tombstone {
                    prefix: prefix(&head.id),
                    gone_at: head.gone_at,
                    unresolved: head.is_open(),
                });
            }
            if head.counted {
                draft.uncounted.push(head.tenant);
            }
        }
        draft
    }
}

fn directory_sum(header: &[u8; HEADER], directory: &[u8]) -> u64 {
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *header;
    let counts = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let more = u64::from(u32::from_le_bytes([i, j, k, l]));
    checksum(counts ^ more.rotate_left(40), directory)
}

/// A bucket about to be written.
#[derive(Debug, Default)]
pub(super) struct Draft<'a> {
    pub(super) entries: Vec<(Head, Cow<'a, [u8]>)>,
    pub(super) tombstones: Vec<Tombstone>,
    /// Tenants of counted records that are no longer live.
    pub(super) uncounted: Vec<TenantDigest>,
}

impl Draft<'_> {
    pub(super) fn remove(&mut self, id: &OperationId) {
        if let Some(at) = self.entries.iter().position(|(h, _)| h.id == *id) {
            let (head, _) = self.entries.swap_remove(at);
            if head.counted {
                self.uncounted.push(head.tenant);
            }
        }
    }

    /// Puts the entry in the place of its older self, or adds it.
    pub(super) fn put(&mut self, head: Head, record: Vec<u8>) {
        let record = Cow::Owned(record);
        match self.entries.iter_mut().find(|(h, _)| h.id == head.id) {
            Some(place) => *place = (head, record),
            None => self.entries.push((head, record)),
        }
    }

    /// Octets charged to the records' cap: open operations at their largest, and tombstones beyond
    /// their own cap. A tombstone always takes less than the entry that it replaces, so packing
    /// never needs room, and none has to be dropped early for want of it (rule 1).
    pub(super) fn charged(&self, tombstones_cap: u32) -> usize {
        let entries = self.entries.iter().map(|(head, record)| {
            ENTRY
                + if head.is_open() {
                    MAX_ENCODED.max(record.len())
                } else {
                    record.len()
                }
        });
        let packed = self.tombstones.len() * TOMBSTONE;
        HEADER + entries.sum::<usize>() + packed.saturating_sub(tombstones_cap as usize)
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let records: usize = self.entries.iter().map(|(_, r)| r.len()).sum();
        let directory = self.entries.len() * ENTRY + self.tombstones.len() * TOMBSTONE;
        let mut out = Vec::with_capacity(HEADER + directory + records);
        out.extend_from_slice(&MAGIC);
        out.push(0);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
        out.extend_from_slice(&count(self.entries.len()));
        out.extend_from_slice(&count(self.tombstones.len()));
        out.extend_from_slice(&[0; 12]);
        for (head, record) in &self.entries {
            head.write(record.len(), &mut out);
        }
        for tombstone in &self.tombstones {
            tombstone.write(&mut out);
        }
        if let Some((header, directory)) = out.split_first_chunk_mut::<HEADER>() {
            let sum = directory_sum(header, directory);
            if let Some(place) = header.last_chunk_mut::<8>() {
                *place = sum.to_le_bytes();
            }
        }
        for (_, record) in &self.entries {
            out.extend_from_slice(record);
        }
        out
    }
}
