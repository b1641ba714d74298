//! Which form a key has, and whether somebody else could come up with it.
//!
//! The forms are tried from the narrowest to the widest (UUID, ULID, base64url, opaque), whatever
//! their order in the configuration, so that reordering a list never changes an identity. The first
//! form of the route that takes the key decides; if none does, the first that found it weak is
//! reported.
//!
//! UUIDs (RFC 9562 §4, hyphenated) are recognised on every route: they are put into lower case even
//! where the route takes them as `base64url` or `opaque`, and nil and max are weak everywhere, since
//! they are what an unset variable looks like.

use super::{Key, KeyError, reason};
use crate::plan::{KeyCase, KeyFormat, KeyRule};
use ulid::Ulid;
use uuid::Uuid;

/// A judgement: the form, if it has one, and the key or why not.
pub(super) struct Verdict {
    pub(super) format: Option<KeyFormat>,
    pub(super) outcome: Result<Key, KeyError>,
}

impl Verdict {
    pub(super) fn invalid(reason: &'static str) -> Self {
        Self {
            format: None,
            outcome: Err(KeyError::Invalid(reason)),
        }
    }

    fn weak(format: KeyFormat, reason: &'static str) -> Self {
        Self {
            format: Some(format),
            outcome: Err(KeyError::Weak(reason)),
        }
    }

    fn key(format: KeyFormat, text: impl Into<Vec<u8>>) -> Self {
        Self {
            format: Some(format),
            outcome: Ok(Key(text.into())),
        }
    }
}

/// Judges text that is non-empty visible ASCII.
pub(super) fn judge(rule: &KeyRule, text: &str) -> Verdict {
    if text.len() > rule.max_length.min(255) {
        return Verdict::invalid(reason::TOO_LONG);
    }
    let takes = |format| rule.formats.contains(&format);
    let uuid = uuid(text);
    match uuid {
        Some(id) if id.is_nil() => return Verdict::weak(KeyFormat::Uuid, reason::UUID_NIL),
        Some(id) if id.is_max() => return Verdict::weak(KeyFormat::Uuid, reason::UUID_MAX),
        Some(_) if takes(KeyFormat::Uuid) => {
            return Verdict::key(KeyFormat::Uuid, text.to_ascii_lowercase());
        }
        _ => {}
    }
    let folded = match rule.case {
        KeyCase::Insensitive => text.to_ascii_lowercase(),
        KeyCase::Sensitive if uuid.is_some() => text.to_ascii_lowercase(),
        KeyCase::Sensitive => text.to_owned(),
    };
    let mut weak = None;
    if takes(KeyFormat::Ulid) {
        match ulid(text) {
            Some(id) if id.0 == 0 || id.0 == u128::MAX => {
                weak = Some(Verdict::weak(KeyFormat::Ulid, reason::ULID_BOUND));
            }
            Some(_) => return Verdict::key(KeyFormat::Ulid, text.to_ascii_lowercase()),
            None => {}
        }
    }
    if takes(KeyFormat::Base64url)
        && let Some(octets) = base64url_octets(text)
    {
        let flaw = if octets < rule.min_entropy_bytes {
            Some(reason::SHORT)
        } else if is_trivial(text.as_bytes()) {
            Some(reason::REPETITIVE)
        } else {
            None
        };
        match flaw {
            None => return Verdict::key(KeyFormat::Base64url, folded),
            Some(flaw) => {
                weak = weak.or_else(|| Some(Verdict::weak(KeyFormat::Base64url, flaw)));
            }
        }
    }
    if takes(KeyFormat::Opaque) {
        if text.len() >= rule.min_entropy_bytes {
            return Verdict::key(KeyFormat::Opaque, folded);
        }
        weak = weak.or_else(|| Some(Verdict::weak(KeyFormat::Opaque, reason::SHORT)));
    }
    weak.unwrap_or_else(|| {
        let unpadded = text.trim_end_matches('=');
        let padded = unpadded.len() < text.len()
            && takes(KeyFormat::Base64url)
            && base64url_octets(unpadded).is_some();
        Verdict::invalid(if padded {
            reason::PADDED
        } else {
            reason::FORMAT
        })
    })
}

/// The UUID in hyphenated form; the crate also reads braces, URNs and bare hex, which differ in
/// length.
pub(super) fn uuid(text: &str) -> Option<Uuid> {
    (text.len() == 36).then(|| Uuid::try_parse(text).ok())?
}

/// The ULID, where it does not overflow 128 bits (the crate drops the excess).
pub(super) fn ulid(text: &str) -> Option<Ulid> {
    let first = text.bytes().next()?;
    (text.len() == 26 && matches!(first, b'0'..=b'7')).then(|| Ulid::from_string(text).ok())?
}

/// How many whole octets the text carries as unpadded base64url (RFC 4648 §5), if it is that.
///
/// Only the count is wanted, and a decoder would refuse what random text of that alphabet often
/// has: free trailing bits, or one character over a group of four (as the 21 and 25 characters of
/// some id generators). The latter carries no octet and is not counted.
fn base64url_octets(text: &str) -> Option<usize> {
    let in_alphabet = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    text.bytes().all(in_alphabet).then(|| text.len() * 3 / 4)
}

/// Whether text is trivially repetitive. Any of:
///
/// 1. fewer than five different characters;
/// 2. a shorter block, at most half its length, repeated to the end;
/// 3. at least nine in ten steps from one character to the next are 0, +1 or -1 in ASCII.
///
/// For 16 random octets as 22 characters of base64url the chance of each is below 1e-20, 1e-17 and
/// 1e-20; for 32 random hex digits below 1e-15, 1e-18 and 1e-17. A key that is refused by chance is
/// a key nobody will ever see.
fn is_trivial(text: &[u8]) -> bool {
    let mut seen = [false; 128];
    let mut distinct = 0;
    for b in text {
        if let Some(slot) = seen.get_mut(usize::from(*b))
            && !std::mem::replace(slot, true)
        {
            distinct += 1;
        }
    }
    if distinct < 5 {
        return true;
    }
    // At most 255 characters, so at most 127 short comparisons.
    let periodic = (1..=text.len() / 2).any(|period| {
        text.iter()
            .zip(text.iter().skip(period))
            .all(|(a, b)| a == b)
    });
    let steps = text.len().saturating_sub(1);
    let lazy = text
        .iter()
        .zip(text.iter().skip(1))
        .filter(|(a, b)| a.abs_diff(**b) <= 1)
        .count();
    periodic || lazy * 10 >= steps * 9
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn trivial_text_is_seen() {
        for text in [
            "aaaaaaaaaaaaaaaaaaaaaa",
            "abababababababababababab",
            "0123456789012345678901",
            "abcdeabcdeabcdeabcdeabcd",
            "0123456789abcdefghijkl",
            "ZYXWVUTSRQPONMLKJIHGFE",
            "aabbccddeeffgghhiijjkk",
            "0001000100010002000100",
            "aQzaaQazQQaaQzaQaaazQQQaQa",
        ] {
            assert!(is_trivial(text.as_bytes()), "{text}");
        }
        for text in [
            "V1StGXR8_Z5jdHi6B-myTq",
            "9f86d081884c7d659a2feaa0c55ad015",
            "20261130212345-000482-ab",
        ] {
            assert!(!is_trivial(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn ulid_takes_neither_aliases_nor_overflow() {
        assert!(ulid("01ARZ3NDEKTSV4RRFFQ69G5FAV").is_some());
        assert!(ulid("81ARZ3NDEKTSV4RRFFQ69G5FAV").is_none());
        for alias in ['I', 'L', 'O', 'U', 'i', 'l', 'o', 'u'] {
            let text: String = format!("01ARZ3NDEKTSV4RRFFQ69G5FA{alias}");
            assert!(ulid(&text).is_none(), "{alias}");
        }
    }

    #[test]
    fn base64url_counts_whole_octets() {
        for (length, octets) in [
            (20, Some(15)),
            (21, Some(15)),
            (22, Some(16)),
            (23, Some(17)),
            (25, Some(18)),
        ] {
            assert_eq!(base64url_octets(&"x".repeat(length)), octets, "{length}");
        }
        assert_eq!(base64url_octets("a+b/"), None);
    }
}
