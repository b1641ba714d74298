//! One small choice of hash, and the framing that keeps parts apart.

use crate::plan::DigestAlgorithm;
use sha2::{Digest as _, Sha256};

/// BLAKE3 or SHA-256 behind one face. BLAKE3's state is some 2 KiB, so it lives on the heap.
#[derive(Clone, Debug)]
pub(super) enum Hasher {
    Blake3(Box<blake3::Hasher>),
    Sha256(Sha256),
}

impl Hasher {
    pub(super) fn new(algorithm: DigestAlgorithm) -> Self {
        match algorithm {
            DigestAlgorithm::Blake3 => Self::Blake3(Box::default()),
            DigestAlgorithm::Sha256 => Self::Sha256(Sha256::new()),
        }
    }

    /// Takes octets without framing: for the last part only.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        match self {
            Self::Blake3(h) => {
                h.update(bytes);
            }
            Self::Sha256(h) => h.update(bytes),
        }
    }

    /// Takes a part with its length (64 bits, big endian) before it.
    pub(super) fn framed(&mut self, part: &[u8]) {
        self.raw(&(part.len() as u64).to_be_bytes());
        self.raw(part);
    }

    pub(super) fn finish(self) -> [u8; 32] {
        match self {
            Self::Blake3(h) => h.finalize().into(),
            Self::Sha256(h) => h.finalize().into(),
        }
    }
}

/// Eight octets of SHA-256 over framed parts. Always SHA-256, so that they compare across
/// fingerprints of different algorithms.
pub(super) fn short(parts: &[&[u8]]) -> [u8; 8] {
    let mut hash = Hasher::new(DigestAlgorithm::Sha256);
    for part in parts {
        hash.framed(part);
    }
    *hash.finish().first_chunk::<8>().unwrap_or(&[0; 8])
}

/// Appends a part with its length before it, as [`Hasher::framed`] hashes it.
pub(super) fn frame(out: &mut Vec<u8>, part: &[u8]) {
    out.extend_from_slice(&(part.len() as u64).to_be_bytes());
    out.extend_from_slice(part);
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn digest(algorithm: DigestAlgorithm, parts: &[&[u8]]) -> [u8; 32] {
        let mut hash = Hasher::new(algorithm);
        for part in parts {
            hash.framed(part);
        }
        hash.finish()
    }

    #[test]
    fn both_hashes_are_the_published_ones() {
        for (algorithm, empty) in [
            (
                DigestAlgorithm::Blake3,
                "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
            ),
            (
                DigestAlgorithm::Sha256,
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
        ] {
            assert_eq!(hex::encode(Hasher::new(algorithm).finish()), empty);
        }
    }

    #[test]
    fn framing_keeps_splits_apart() {
        for algorithm in [DigestAlgorithm::Blake3, DigestAlgorithm::Sha256] {
            let all = [
                digest(algorithm, &[b"ab", b"c"]),
                digest(algorithm, &[b"a", b"bc"]),
                digest(algorithm, &[b"abc"]),
                digest(algorithm, &[b"abc", b""]),
                digest(algorithm, &[b"", b"abc"]),
            ];
            for (i, a) in all.iter().enumerate() {
                assert!(all.iter().skip(i + 1).all(|b| a != b));
            }
        }
    }

    #[test]
    fn buffered_framing_equals_hashed_framing() {
        let mut buffer = Vec::new();
        frame(&mut buffer, b"one");
        frame(&mut buffer, b"");
        let mut hash = Hasher::new(DigestAlgorithm::Blake3);
        hash.raw(&buffer);
        assert_eq!(
            hash.finish(),
            digest(DigestAlgorithm::Blake3, &[b"one", b""])
        );
    }
}
