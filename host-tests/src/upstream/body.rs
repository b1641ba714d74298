//! Bodies: octets that are the same wherever they are made, and what is kept of those that come.

use bytes::{Bytes, BytesMut};

/// Larger bodies are kept as length and digest only, octets.
pub const KEPT_BODY: usize = 2 << 20;

/// A BLAKE3 digest.
pub type Digest = blake3::Hash;

/// The digest of these octets, as the upstream computes it of a body.
#[must_use]
pub fn digest(octets: &[u8]) -> Digest {
    blake3::hash(octets)
}

/// `n` octets without a pattern that a lost, doubled or exchanged piece could hide in: the answer to
/// `x-demo-size: n` with `x-demo-seed: seed`. The beginning is the same for every `n`.
#[must_use]
pub fn octets(seed: u64, n: usize) -> Bytes {
    let mut out = vec![0; n];
    blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut out);
    out.into()
}

/// A body as it comes in.
#[derive(Default)]
pub(super) struct Collected {
    kept: BytesMut,
    length: u64,
    hasher: blake3::Hasher,
}

impl Collected {
    pub(super) fn take(&mut self, piece: &[u8]) {
        self.hasher.update(piece);
        self.length += piece.len() as u64;
        if self.length <= KEPT_BODY as u64 {
            self.kept.extend_from_slice(piece);
        } else {
            self.kept = BytesMut::new();
        }
    }

    /// The octets (empty where there were too many), how many there were, and their digest.
    pub(super) fn finish(self) -> (Bytes, u64, Digest) {
        (self.kept.freeze(), self.length, self.hasher.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_beyond_the_limit_is_known_by_its_digest() {
        for size in [0, 1, KEPT_BODY, KEPT_BODY + 1, 3 * KEPT_BODY] {
            let body = octets(7, size);
            let mut collected = Collected::default();
            for piece in body.chunks(100_003) {
                collected.take(piece);
            }
            let (kept, length, found) = collected.finish();
            assert_eq!((length, found), (size as u64, digest(&body)));
            assert_eq!(kept.len(), if size <= KEPT_BODY { size } else { 0 });
        }
    }

    #[test]
    fn octets_differ_by_seed_and_begin_alike() {
        assert_ne!(octets(1, 64), octets(2, 64));
        assert_eq!(octets(1, 64), octets(1, 1000)[..64]);
    }
}
