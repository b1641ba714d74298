//! Fixed-width little-endian fields, and the checksum over a value's directory.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Takes the next `N` octets.
pub(super) fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*head)
}

pub(super) fn take_u64(from: &mut &[u8]) -> Option<u64> {
    take(from).map(u64::from_le_bytes)
}

pub(super) fn take_u32(from: &mut &[u8]) -> Option<u32> {
    take(from).map(u32::from_le_bytes)
}

/// XXH3 with a seed: against damage, not against an attacker (who cannot write here). Chosen over
/// the BLAKE3 that records use because it runs over the directory of a whole bucket at each step.
pub(super) fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}
