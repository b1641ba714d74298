//! A pile: small parcels of octets under one key, as one value.
//!
//! ```text
//! head      magic 2, format 1, 0, parcels 4, checksum 8
//! directory parcels × 40: name 16, until 8, checksum 8, length 4, 0 4
//! parcels   one after the other
//! ```
//!
//! A parcel's name is a cryptographic digest of what it belongs to, so a pile never serves one
//! operation's octets to another, and a parcel's own checksum keeps a damaged one from being served
//! at all. A parcel leaves when its time is over, at the next write to its pile or sweep.

use super::memory::{HostError, SharedData, TRIES, contended, fetch, put};
use super::octets::{checksum, take, take_u32, take_u64};

const MAGIC: [u8; 4] = [0xd7, 0xb0, 1, 0];
/// Octets before the directory.
pub(super) const HEADER: usize = 16;
/// Octets that one parcel takes besides its own.
pub(super) const PARCEL: usize = 40;

/// A parcel's name.
pub(super) type Name = [u8; 16];

#[derive(Clone, Copy, Debug)]
struct Parcel<'a> {
    name: Name,
    until: u64,
    sum: u64,
    octets: &'a [u8],
}

/// The value is not a pile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged;

/// What to do for want of room, and with a value that is not a pile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// Nothing is evicted, and nothing that cannot be read is overwritten.
    Keep,
    /// A cache: the parcel that ends soonest goes, and rubbish is overwritten.
    Evict,
}

fn read(value: &[u8]) -> Result<Vec<Parcel<'_>>, Damaged> {
    if value.is_empty() {
        return Ok(Vec::new());
    }
    let (header, rest) = value.split_first_chunk::<HEADER>().ok_or(Damaged)?;
    let fields = &mut header.as_slice();
    let magic: [u8; 4] = take(fields).ok_or(Damaged)?;
    let count = take_u32(fields).ok_or(Damaged)?;
    let sum = take_u64(fields).ok_or(Damaged)?;
    let length = (count as usize).checked_mul(PARCEL).ok_or(Damaged)?;
    let (directory, mut octets) = rest.split_at_checked(length).ok_or(Damaged)?;
    if magic != MAGIC || sum != checksum(u64::from(count), directory) {
        return Err(Damaged);
    }
    let mut parcels = Vec::with_capacity(count as usize + 1);
    for entry in directory.as_chunks::<PARCEL>().0 {
        let fields = &mut entry.as_slice();
        let (Some(name), Some(until), Some(sum), Some(length)) = (
            take(fields),
            take_u64(fields),
            take_u64(fields),
            take_u32(fields),
        ) else {
            return Err(Damaged);
        };
        let (own, rest) = octets.split_at_checked(length as usize).ok_or(Damaged)?;
        octets = rest;
        parcels.push(Parcel {
            name,
            until,
            sum,
            octets: own,
        });
    }
    octets.is_empty().then_some(parcels).ok_or(Damaged)
}

fn size(parcels: &[Parcel<'_>]) -> usize {
    let octets: usize = parcels.iter().map(|p| PARCEL + p.octets.len()).sum();
    HEADER + octets
}

fn write(parcels: &[Parcel<'_>]) -> Vec<u8> {
    let mut directory = Vec::with_capacity(parcels.len() * PARCEL);
    for parcel in parcels {
        directory.extend_from_slice(&parcel.name);
        directory.extend_from_slice(&parcel.until.to_le_bytes());
        directory.extend_from_slice(&parcel.sum.to_le_bytes());
        let length = u32::try_from(parcel.octets.len()).unwrap_or(u32::MAX);
        directory.extend_from_slice(&length.to_le_bytes());
        directory.extend_from_slice(&[0; 4]);
    }
    let count = u32::try_from(parcels.len()).unwrap_or(u32::MAX);
    let mut out = Vec::with_capacity(size(parcels));
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&checksum(u64::from(count), &directory).to_le_bytes());
    out.extend_from_slice(&directory);
    for parcel in parcels {
        out.extend_from_slice(parcel.octets);
    }
    out
}

/// Puts a parcel in; `false`: no room there. Doing it twice is doing it once.
pub(super) fn add(
    sd: &mut impl SharedData,
    key: &str,
    cap: u32,
    (name, octets, until): (Name, &[u8], u64),
    now: u64,
    policy: Policy,
) -> Result<bool, HostError> {
    let cap = cap as usize;
    let own = Parcel {
        name,
        until,
        sum: checksum(until, octets),
        octets,
    };
    if size(&[own]) > cap {
        return Ok(false);
    }
    for _ in 0..TRIES {
        let (value, seen) = fetch(sd, key)?;
        let mut parcels = match (read(&value), policy) {
            (Ok(parcels), _) => parcels,
            (Err(Damaged), Policy::Evict) => Vec::new(),
            (Err(Damaged), Policy::Keep) => return Ok(false),
        };
        parcels.retain(|p| now < p.until && p.name != name);
        parcels.push(own);
        while size(&parcels) > cap {
            let others = parcels.iter().enumerate().filter(|(_, p)| p.name != name);
            match others.min_by_key(|(_, p)| p.until).map(|(at, _)| at) {
                Some(at) if policy == Policy::Evict => {
                    parcels.remove(at);
                }
                _ => return Ok(false),
            }
        }
        if put(sd, key, &write(&parcels), seen)? {
            return Ok(true);
        }
    }
    // Others keep writing here: as good as full, and a record is worth more than its answer.
    Ok(false)
}

/// The parcel of that name, if it is there and whole.
pub(super) fn find(
    sd: &mut impl SharedData,
    key: &str,
    name: Name,
    now: u64,
) -> Result<Option<Vec<u8>>, HostError> {
    let (value, _) = fetch(sd, key)?;
    let parcels = read(&value).unwrap_or_default();
    let found = parcels.iter().find(|p| p.name == name && now < p.until);
    Ok(found
        .filter(|p| p.sum == checksum(p.until, p.octets))
        .map(|p| p.octets.to_vec()))
}

/// Takes a parcel out; `false`: it was not there.
pub(super) fn remove(sd: &mut impl SharedData, key: &str, name: Name) -> Result<bool, HostError> {
    for _ in 0..TRIES {
        let (value, seen) = fetch(sd, key)?;
        let Ok(mut parcels) = read(&value) else {
            return Ok(false);
        };
        let before = parcels.len();
        parcels.retain(|p| p.name != name);
        if parcels.len() == before {
            return Ok(false);
        }
        if put(sd, key, &write(&parcels), seen)? {
            return Ok(true);
        }
    }
    Err(contended())
}

/// Drops what is over. Returns the octets of the value afterwards, or that it is no pile. A pile
/// without anything to drop costs one `get` and no write.
pub(super) fn sweep(
    sd: &mut impl SharedData,
    key: &str,
    now: u64,
) -> Result<Result<usize, Damaged>, HostError> {
    let (value, seen) = fetch(sd, key)?;
    let Ok(mut parcels) = read(&value) else {
        return Ok(Err(Damaged));
    };
    let before = parcels.len();
    parcels.retain(|p| now < p.until);
    if parcels.len() == before {
        return Ok(Ok(value.len()));
    }
    let next = write(&parcels);
    // Lost to another writer: the next pass comes by.
    let written = put(sd, key, &next, seen)?;
    Ok(Ok(if written { next.len() } else { value.len() }))
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const A: Name = [1; 16];
    const B: Name = [2; 16];

    fn keep(sd: &mut Fake, name: Name, octets: &[u8], until: u64) -> bool {
        add(sd, "k", 300, (name, octets, until), 0, Policy::Keep).unwrap()
    }

    #[test]
    fn parcels_come_back_until_their_time_is_over() {
        let sd = &mut Fake::new();
        assert!(keep(sd, A, b"first", 10));
        assert!(keep(sd, B, b"", 20));
        assert!(keep(sd, A, b"again", 11));
        assert_eq!(find(sd, "k", A, 10).unwrap().unwrap(), b"again");
        assert_eq!(find(sd, "k", B, 19).unwrap().unwrap(), b"");
        assert_eq!(find(sd, "k", A, 11).unwrap(), None);
        assert!(remove(sd, "k", A).unwrap());
        assert!(!remove(sd, "k", A).unwrap());
        assert_eq!(find(sd, "k", A, 0).unwrap(), None);
    }

    #[test]
    fn a_full_pile_refuses_and_a_cache_evicts_the_soonest() {
        let sd = &mut Fake::new();
        assert!(keep(sd, A, &[0; 100], 10));
        assert!(!keep(sd, B, &[0; 200], 20), "no room");
        assert!(!keep(sd, B, &[0; 300], 20), "never fits");
        let cache = |sd: &mut Fake, name, until| {
            add(sd, "k", 300, (name, &[7; 100], until), 0, Policy::Evict).unwrap()
        };
        assert!(cache(sd, B, 20));
        assert!(cache(sd, [3; 16], 15));
        assert_eq!(find(sd, "k", A, 0).unwrap(), None);
        assert!(find(sd, "k", B, 0).unwrap().is_some());
        // What is over makes room by itself.
        assert!(add(sd, "k", 300, (A, &[1; 200], 99), 30, Policy::Keep).unwrap());
    }

    #[test]
    fn damage_is_never_served_nor_overwritten_except_in_a_cache() {
        let sd = &mut Fake::new();
        assert!(keep(sd, A, b"octets", 10));
        let good = sd.get("k").unwrap().unwrap().0;
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            sd.overwrite("k", &bad);
            let found = find(sd, "k", A, 0).unwrap();
            let reserved = (HEADER + 36..HEADER + PARCEL).contains(&at);
            assert!(found.is_none() || reserved, "octet {at}");
        }
        sd.overwrite("k", b"rubbish");
        assert!(!keep(sd, A, b"x", 10));
        assert_eq!(sweep(sd, "k", 0), Ok(Err(Damaged)));
        assert!(add(sd, "k", 300, (A, b"x", 10), 0, Policy::Evict).unwrap());
        assert_eq!(sweep(sd, "k", 0), Ok(Ok(HEADER + PARCEL + 1)));
        assert_eq!(sweep(sd, "k", 10), Ok(Ok(HEADER)));
    }
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_octets_never_panic(
            head in prop::bool::ANY,
            mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            if head {
                bytes.splice(0..0, MAGIC);
            }
            let _ = read(&bytes);
        }
    }
}
