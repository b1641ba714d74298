//! How an envelope lies in a store.
//!
//! ```text
//! octet 0        format version, 1
//! octets 1..17   XXH3-128 over everything that follows, seeded with the version, 16 octets
//! then           varint length, protobuf head {status, header lines}
//! then           the body, to the end
//! ```
//!
//! The body is outside of the protobuf message so that neither side copies a megabyte to wrap or
//! unwrap it. New members of the head are additive: an older filter skips them. The checksum finds
//! halves and bit rot, and every replay computes it, so it is a fast one; the record keeps the
//! BLAKE3 digest of the result. Neither is proof against somebody who can write to the store.

use super::Envelope;
use crate::http::Line;
use prost::Message;
use xxhash_rust::xxh3::xxh3_128_with_seed;

const VERSION: u8 = 1;
const CHECKSUM: usize = 16;

#[derive(Clone, PartialEq, Message)]
struct Head {
    #[prost(uint32, tag = "1")]
    status: u32,
    #[prost(message, repeated, tag = "2")]
    headers: Vec<WireLine>,
    #[prost(uint32, repeated, tag = "3")]
    segments: Vec<u32>,
    /// The last piece was the end of the stream: half a stream is never a result.
    #[prost(bool, tag = "4")]
    whole: bool,
}

#[derive(Clone, PartialEq, Message)]
struct WireLine {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// Why a stored envelope cannot be served. Never the same as absent (design rule 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// Shorter than version and checksum.
    #[error("cut off")]
    Short,
    /// Written by a filter whose format this one does not know.
    #[error("format version {0} is not known")]
    Version(u8),
    /// Some octet is not the one that was written, or some are missing.
    #[error("checksum differs")]
    Checksum,
    /// The checksum holds but the content makes no sense.
    #[error("content makes no sense")]
    Content,
}

/// The stored form.
#[must_use]
pub fn encode(envelope: &Envelope) -> Vec<u8> {
    let head = Head {
        status: u32::from(envelope.status),
        headers: envelope
            .headers
            .iter()
            .map(|(name, value)| WireLine {
                name: name.clone(),
                value: value.clone(),
            })
            .collect(),
        segments: envelope.segments.clone(),
        whole: true,
    }
    .encode_length_delimited_to_vec();

    let mut out = Vec::with_capacity(1 + CHECKSUM + head.len() + envelope.body.len());
    out.push(VERSION);
    out.extend_from_slice(&[0; CHECKSUM]);
    out.extend_from_slice(&head);
    out.extend_from_slice(&envelope.body);
    let sum = checksum(VERSION, out.get(1 + CHECKSUM..).unwrap_or_default());
    if let Some(place) = out.get_mut(1..=CHECKSUM) {
        place.copy_from_slice(&sum);
    }
    out
}

/// Reads the stored form.
///
/// # Errors
/// [`Corrupt`] for anything but what [`encode`] wrote. No allocation is larger than a small
/// multiple of `stored`, whatever lengths it claims.
pub fn decode(stored: &[u8]) -> Result<Envelope, Corrupt> {
    let (version, rest) = stored.split_first().ok_or(Corrupt::Short)?;
    if *version != VERSION {
        return Err(Corrupt::Version(*version));
    }
    let (sum, mut rest) = rest.split_at_checked(CHECKSUM).ok_or(Corrupt::Short)?;
    if checksum(*version, rest) != sum {
        return Err(Corrupt::Checksum);
    }
    let head = Head::decode_length_delimited(&mut rest).map_err(|_| Corrupt::Content)?;
    let status = u16::try_from(head.status)
        .ok()
        .filter(|s| (100..=999).contains(s))
        .ok_or(Corrupt::Content)?;
    let headers: Vec<Line> = head
        .headers
        .into_iter()
        .map(|line| (line.name, line.value))
        .collect();
    let octets: u64 = head.segments.iter().map(|s| u64::from(*s)).sum();
    let in_pieces = !head.segments.is_empty();
    if in_pieces && !(head.whole && octets == rest.len() as u64) {
        return Err(Corrupt::Content);
    }
    Ok(Envelope {
        status,
        headers,
        body: rest.to_vec(),
        segments: head.segments,
    })
}

/// The digest of the recorded result: the same on every replay, another one if status, any
/// recorded line, their order or the body differs.
///
/// BLAKE3 in key derivation mode over length-framed parts; independent of [`encode`], so that a
/// later storage format does not change it.
#[must_use]
pub fn result_digest(envelope: &Envelope) -> [u8; 32] {
    let mut hash = blake3::Hasher::new_derive_key("idempo 2026 result digest v1");
    hash.update(&envelope.status.to_be_bytes());
    hash.update(&(envelope.headers.len() as u64).to_be_bytes());
    let mut framed = |part: &[u8]| {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part);
    };
    for (name, value) in &envelope.headers {
        framed(name);
        framed(value);
    }
    framed(&envelope.body);
    *hash.finalize().as_bytes()
}

fn checksum(version: u8, rest: &[u8]) -> [u8; CHECKSUM] {
    xxh3_128_with_seed(rest, u64::from(version)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn sample() -> Envelope {
        Envelope {
            status: 201,
            headers: vec![
                (b"link".to_vec(), b"<a>".to_vec()),
                (b"link".to_vec(), b"\xff\x00 not utf-8".to_vec()),
                (b"x-empty".to_vec(), Vec::new()),
            ],
            body: b"\0\x01{\"id\":1}".to_vec(),
            segments: vec![2, 8],
        }
    }

    #[test]
    fn comes_back_octet_for_octet() {
        assert_eq!(decode(&encode(&sample())), Ok(sample()));
        let bare = Envelope {
            status: 204,
            ..Envelope::default()
        };
        assert_eq!(decode(&encode(&bare)), Ok(bare));
    }

    #[test]
    fn pieces_are_no_part_of_the_result_and_must_add_up() {
        let one_piece = Envelope {
            segments: vec![10],
            ..sample()
        };
        assert_eq!(result_digest(&one_piece), result_digest(&sample()));
        let half = Envelope {
            segments: vec![2, 9],
            ..sample()
        };
        assert_eq!(decode(&encode(&half)), Err(Corrupt::Content));
    }

    #[test]
    fn every_cut_is_noticed() {
        let whole = encode(&sample());
        for end in 0..whole.len() {
            assert!(decode(&whole[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let whole = encode(&sample());
        for bit in 0..whole.len() * 8 {
            let mut bad = whole.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).is_err(), "bit {bit}");
        }
    }

    /// A well-formed checksum around nonsense, as a filter of another make might write it.
    fn sealed(content: &[u8]) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&checksum(VERSION, content));
        out.extend_from_slice(content);
        out
    }

    #[test]
    fn nonsense_under_a_good_checksum_is_refused() {
        for content in [
            &b""[..],
            // A head that claims to be 2^63 octets long.
            b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
            // A header line that claims 2^32 octets.
            b"\x07\x12\xff\xff\xff\xff\x0f\x00",
            // Status 0 (empty head), status 99, status 65 536 + 200.
            b"\x00",
            b"\x02\x08\x63",
            b"\x04\x08\xc8\x81\x04",
        ] {
            assert_eq!(
                decode(&sealed(content)),
                Err(Corrupt::Content),
                "{content:?}"
            );
        }
    }

    #[test]
    fn members_of_a_newer_head_are_skipped() {
        // status 200, then an unknown field 9.
        let read = decode(&sealed(b"\x05\x08\xc8\x01\x48\x07body")).unwrap();
        assert_eq!((read.status, read.body), (200, b"body".to_vec()));
    }

    #[test]
    fn another_format_is_named_not_guessed() {
        let mut other = encode(&sample());
        other[0] = 2;
        assert_eq!(decode(&other), Err(Corrupt::Version(2)));
    }

    #[test]
    fn the_result_digest_sees_every_part() {
        let base = result_digest(&sample());
        assert_eq!(base, result_digest(&decode(&encode(&sample())).unwrap()));
        let mut other = sample();
        other.status = 200;
        assert_ne!(base, result_digest(&other));
        let mut other = sample();
        other.headers.swap(0, 1);
        assert_ne!(base, result_digest(&other));
        let mut other = sample();
        other.body.push(b' ');
        assert_ne!(base, result_digest(&other));
        // Moving octets between name and value is not the same answer.
        let (mut a, mut b) = (sample(), sample());
        a.headers = vec![(b"ab".to_vec(), b"c".to_vec())];
        b.headers = vec![(b"a".to_vec(), b"bc".to_vec())];
        assert_ne!(result_digest(&a), result_digest(&b));
    }

    /// Clients compare this value across releases, so it is pinned.
    #[test]
    fn the_result_digest_is_stable() {
        assert_eq!(
            hex::encode(result_digest(&sample())),
            "6b5b6295cbd66b55916fbbad0fb7c02ed6cae731e1a69d4e5204cbda2f104cd7"
        );
    }
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_octets_never_panic(octets in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = decode(&octets);
        }

        #[test]
        fn arbitrary_content_under_a_good_checksum_never_panics(
            octets in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            let mut sealed = vec![VERSION];
            sealed.extend_from_slice(&checksum(VERSION, &octets));
            sealed.extend_from_slice(&octets);
            if let Ok(read) = decode(&sealed) {
                prop_assert!(read.body.len() <= octets.len());
            }
        }

        #[test]
        fn round_trips(
            status in 100_u16..=999,
            headers in proptest::collection::vec((any::<Vec<u8>>(), any::<Vec<u8>>()), 0..8),
            body: Vec<u8>,
        ) {
            let octets = u32::try_from(body.len()).expect("a small body");
            let segments = vec![octets / 3, octets - octets / 3];
            let envelope = Envelope { status, headers, body, segments };
            prop_assert_eq!(decode(&encode(&envelope)), Ok(envelope));
        }
    }
}
