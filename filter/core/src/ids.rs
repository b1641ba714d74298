//! Digests and identities. Only digests leave the core; raw keys and tenants never do.

use sha2::{Digest as _, Sha256};
use std::fmt;

/// Lower-case hex. The iterator-based form of the `hex` crate is several times slower, and this runs
/// many times per request.
#[must_use]
pub fn hex_of(bytes: &[u8]) -> String {
    let mut out = vec![0; bytes.len() * 2];
    // Twice the length always suffices, and what it writes is ASCII.
    let _ = hex::encode_to_slice(bytes, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// The operation id: SHA-256 over the length-framed (namespace, tenant, route id, key).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(pub [u8; 32]);

impl OperationId {
    /// Hashes the four parts, each framed by its length, so that no two splits collide.
    #[must_use]
    pub fn new(namespace: &str, tenant: &[u8], route: &str, key: &[u8]) -> Self {
        let mut hash = Sha256::new();
        for part in [namespace.as_bytes(), tenant, route.as_bytes(), key] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// 64 hex digits.
    #[must_use]
    pub fn hex(&self) -> String {
        hex_of(&self.0)
    }

    /// Reads 64 hex digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut out = [0; 32];
        hex::decode_to_slice(text, &mut out).ok()?;
        Some(Self(out))
    }

    /// The first eight octets as a number: for buckets, shards and fractions.
    #[must_use]
    pub fn prefix(&self) -> u64 {
        let mut head = [0; 8];
        head.copy_from_slice(self.0.first_chunk::<8>().unwrap_or(&[0; 8]));
        u64::from_be_bytes(head)
    }
}

impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

/// A tenant as it may be stored or logged: the first eight octets of SHA-256 over its value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TenantDigest(pub [u8; 8]);

impl TenantDigest {
    /// Digests a tenant value.
    #[must_use]
    pub fn new(tenant: &[u8]) -> Self {
        let full: [u8; 32] = Sha256::digest(tenant).into();
        Self(*full.first_chunk::<8>().unwrap_or(&[0; 8]))
    }

    /// 16 hex digits.
    #[must_use]
    pub fn hex(&self) -> String {
        hex_of(&self.0)
    }

    /// The metric bucket, `b00` to `b31`: bounded whatever the number of tenants.
    #[must_use]
    pub fn bucket(&self) -> u8 {
        self.0.first().copied().unwrap_or(0) % 32
    }
}

/// One attempt's right to act on an operation: 16 octets, one per attempt, the same on every
/// repeat of its claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct OwnerToken(pub [u8; 16]);

impl OwnerToken {
    /// Derives a token from material that is unique to the attempt: the host has no entropy
    /// source on this target, so the adapter passes the VM's number, a counter and the time. A token
    /// has to be unique, not secret: none ever leaves proxy and store.
    #[must_use]
    pub fn derive(material: &[&[u8]]) -> Self {
        let mut hash = blake3::Hasher::new_derive_key("idempo 2026 owner token");
        for part in material {
            hash.update(&(part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hash = hash.finalize();
        Self(*hash.as_bytes().first_chunk().unwrap_or(&[0; 16]))
    }

    /// The incarnation that a claim under this token starts: its first eight octets.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        u64::from_be_bytes(*self.0.first_chunk::<8>().unwrap_or(&[0; 8]))
    }
}

impl fmt::Debug for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0.first_chunk::<4>().unwrap_or(&[0; 4])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_keeps_parts_apart() {
        assert_ne!(
            OperationId::new("a", b"bc", "r", b"k"),
            OperationId::new("ab", b"c", "r", b"k")
        );
    }

    #[test]
    fn hex_round_trips() {
        let id = OperationId::new("n", b"t", "r", b"k");
        assert_eq!(OperationId::from_hex(&id.hex()), Some(id));
        assert_eq!(OperationId::from_hex("zz"), None);
    }

    #[test]
    fn tokens_differ_by_any_part() {
        assert_ne!(
            OwnerToken::derive(&[b"a", b"b"]),
            OwnerToken::derive(&[b"ab", b""])
        );
    }
}
