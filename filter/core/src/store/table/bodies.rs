//! Recorded answers: cut into chunks, and each chunk a parcel in the pile that its name hashes to.
//!
//! One mechanism for an answer of two hundred octets and for one of a mebibyte: any mix of sizes can
//! use the whole budget, no directory of free places is kept, and a chunk's name says whose it is.
//!
//! An answer is written *before* the record that names it, and its name holds the write that brings
//! it. So a crash or a lost race between the two leaves chunks that no record names: they count
//! against the budget until their time is over, and are never served.

use super::memory::{HostError, SharedData};
use super::pile::{self, Name, Policy};
use super::{Geometry, geometry::spread};
use crate::ids::OperationId;

/// Octets of one chunk, at most.
const CHUNK: usize = 4096;
/// Piles that are tried for a chunk, in this order, until one has room. With several, the piles
/// fill evenly to a high level before a chunk finds none.
const CANDIDATES: usize = 4;

/// Which answer: the claim that was answered, and the write that brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) operation: OperationId,
    pub(super) incarnation: u64,
    pub(super) write: u64,
}

/// The piles of answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bodies {
    seed: [u8; 16],
    piles: u32,
    cap: u32,
    chunk: usize,
}

impl Bodies {
    pub(super) fn new(geometry: &Geometry, seed: [u8; 16]) -> Self {
        let room = (geometry.pile_cap as usize).saturating_sub(pile::HEADER);
        Self {
            seed,
            piles: geometry.piles,
            cap: geometry.pile_cap,
            chunk: (room / 3).saturating_sub(pile::PARCEL).clamp(64, CHUNK),
        }
    }

    pub(super) fn key(pile: u32) -> String {
        format!("idempo/1/b/{pile}")
    }

    /// Writes an answer; `false`: no room, and nothing of it remains.
    ///
    /// The same write by two workers at once (a repeat beside its original) writes the same octets.
    /// Should one of them find no room where the other has, the record may end up without its answer:
    /// a missing answer, never another one.
    pub(super) fn put(
        &self,
        sd: &mut impl SharedData,
        address: &Address,
        answer: &[u8],
        until: u64,
        now: u64,
    ) -> Result<bool, HostError> {
        for (index, octets) in answer.chunks(self.chunk).enumerate() {
            if !self.put_chunk(sd, address, index, octets, until, now)? {
                // What did not come so far cannot be there: only the chunks before it.
                self.remove(sd, address, index.saturating_mul(self.chunk))?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn put_chunk(
        &self,
        sd: &mut impl SharedData,
        address: &Address,
        index: usize,
        octets: &[u8],
        until: u64,
        now: u64,
    ) -> Result<bool, HostError> {
        let (name, piles) = self.place(address, index);
        for pile in piles {
            let parcel = (name, octets, until);
            if pile::add(sd, &Self::key(pile), self.cap, parcel, now, Policy::Keep)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads an answer of `length` octets; `None` where any part is missing or damaged.
    pub(super) fn get(
        &self,
        sd: &mut impl SharedData,
        address: &Address,
        length: usize,
        now: u64,
    ) -> Result<Option<Vec<u8>>, HostError> {
        // Not reserved up front: the length is what a record says, the chunks are what there is.
        let mut answer = Vec::new();
        for index in 0..length.div_ceil(self.chunk) {
            let (name, piles) = self.place(address, index);
            let mut found = None;
            for pile in piles {
                found = pile::find(sd, &Self::key(pile), name, now)?;
                if found.is_some() {
                    break;
                }
            }
            match found {
                Some(octets) if answer.is_empty() => answer = octets,
                Some(octets) => answer.extend_from_slice(&octets),
                None => return Ok(None),
            }
        }
        Ok((answer.len() == length).then_some(answer))
    }

    /// Gives an answer's memory back before its time.
    pub(super) fn remove(
        &self,
        sd: &mut impl SharedData,
        address: &Address,
        length: usize,
    ) -> Result<(), HostError> {
        for index in 0..length.div_ceil(self.chunk) {
            let (name, piles) = self.place(address, index);
            for pile in piles {
                if pile::remove(sd, &Self::key(pile), name)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// A chunk's name and the piles it may be in, from one digest under the table's seed.
    fn place(&self, address: &Address, index: usize) -> (Name, [u32; CANDIDATES]) {
        let mut hash = blake3::Hasher::new();
        hash.update(&self.seed);
        hash.update(&address.operation.0);
        hash.update(&address.incarnation.to_le_bytes());
        // 64 octets so far: with the last two fields, two blocks.
        hash.update(&address.write.to_le_bytes());
        hash.update(&(index as u64).to_le_bytes());
        let digest = hash.finalize();
        let (name, rest) = digest
            .as_bytes()
            .split_first_chunk::<16>()
            .unwrap_or((&[0; 16], &[]));
        let mut piles = [0; CANDIDATES];
        for (pile, octets) in piles.iter_mut().zip(rest.as_chunks::<4>().0) {
            *pile = spread(u64::from(u32::from_le_bytes(*octets)) << 32, self.piles);
        }
        (*name, piles)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn bodies(piles: u32) -> Bodies {
        let geometry = Geometry {
            buckets: 1,
            records_cap: 1,
            tombstones_cap: 1,
            piles,
            pile_cap: 16 << 10,
        };
        Bodies::new(&geometry, [1; 16])
    }

    fn address(n: u8) -> Address {
        Address {
            operation: OperationId([n; 32]),
            incarnation: 1,
            write: u64::from(n),
        }
    }

    fn answer(length: usize) -> Vec<u8> {
        (0..length).map(|n| (n % 251) as u8).collect()
    }

    #[test]
    fn any_size_comes_back_octet_by_octet() {
        let sd = &mut Fake::new();
        let bodies = bodies(256);
        for (n, length) in [(1, 0), (2, 1), (3, 4096), (4, 4097), (5, 1 << 20)] {
            assert!(bodies.put(sd, &address(n), &answer(length), 9, 0).unwrap());
            let back = bodies.get(sd, &address(n), length, 0).unwrap().unwrap();
            assert!(back == answer(length), "{length}");
        }
        // Another write, claim or length is another answer.
        let other = Address {
            incarnation: 2,
            ..address(3)
        };
        assert_eq!(bodies.get(sd, &other, 4096, 0).unwrap(), None);
        let other = Address {
            write: 9,
            ..address(3)
        };
        assert_eq!(bodies.get(sd, &other, 4096, 0).unwrap(), None);
        assert_eq!(bodies.get(sd, &address(3), 4095, 0).unwrap(), None);
        assert_eq!(bodies.get(sd, &address(3), 4096, 9).unwrap(), None);
    }

    #[test]
    fn an_answer_that_does_not_fit_leaves_nothing() {
        let sd = &mut Fake::new();
        let bodies = bodies(4);
        assert!(bodies.put(sd, &address(1), &answer(20_000), 9, 0).unwrap());
        let before = sd.bytes();
        assert!(!bodies.put(sd, &address(2), &answer(60_000), 9, 0).unwrap());
        // Piles that were empty may now be piles without parcels.
        assert!(sd.bytes() <= before + 4 * 16);
        assert!(bodies.get(sd, &address(1), 20_000, 0).unwrap().is_some());
        bodies.remove(sd, &address(1), 20_000).unwrap();
        assert!(sd.bytes() <= 4 * 16);
    }
}
