//! `Content-Digest` (RFC 9530 §2) in place of the body.
//!
//! For hosts and routes that cannot hold a body: the client's word is taken for it. Nothing here
//! compares the digest with the body, so a client that sends one digest with two bodies gets the
//! first one's answer. Only where clients are trusted to that extent, or something behind or before
//! the filter verifies the field, does this mode belong.
//!
//! `sha-256` is taken where it stands, else `sha-512`; others, and parameters, are passed over. A
//! name that stands twice, or a value of another type or length, makes the field malformed: RFC 9651
//! would keep the last one, and not every verifier does.

use super::FingerprintError;
use crate::http::Headers;
use sfv::visitor::{
    DictionaryVisitor, EntryVisitor, Ignored, InnerListVisitor, ItemVisitor, ParameterVisitor,
};
use sfv::{BareItemFromInput, KeyRef, Parser};

/// The name and octets of the digest that counts.
pub(super) fn read(headers: &Headers) -> Result<(&'static str, Vec<u8>), FingerprintError> {
    let lines: Vec<&[u8]> = headers.all("content-digest").collect();
    let found = Parser::new(&lines.join(&b", "[..]))
        .parse_dictionary_with_visitor(Found::default())
        .map_err(|_| FingerprintError::MalformedContentDigest)?;
    match (found.sha256, found.sha512) {
        (Some(digest), _) => Ok(("sha-256", digest)),
        (None, Some(digest)) => Ok(("sha-512", digest)),
        (None, None) => Err(FingerprintError::MissingContentDigest),
    }
}

#[derive(Default)]
struct Found {
    sha256: Option<Vec<u8>>,
    sha512: Option<Vec<u8>>,
}

/// Where one member's value goes; `None` for algorithms that don't count.
struct Slot<'f>(Option<(&'f mut Option<Vec<u8>>, usize)>);

impl<'de> DictionaryVisitor<'de> for Found {
    type Out = Self;
    type Error = FingerprintError;

    fn entry(&mut self, key: &'de KeyRef) -> Result<impl EntryVisitor<'de>, Self::Error> {
        let slot = match key.as_str() {
            "sha-256" => Some((&mut self.sha256, 32)),
            "sha-512" => Some((&mut self.sha512, 64)),
            _ => None,
        };
        match slot {
            Some((Some(_), _)) => Err(FingerprintError::MalformedContentDigest),
            slot => Ok(Slot(slot)),
        }
    }

    fn finish(self) -> Result<Self, Self::Error> {
        Ok(self)
    }
}

impl<'de> EntryVisitor<'de> for Slot<'_> {
    type Error = FingerprintError;

    fn item(self) -> Result<impl ItemVisitor<'de>, Self::Error> {
        Ok(self)
    }

    fn inner_list(self) -> Result<impl InnerListVisitor<'de>, Self::Error> {
        match self.0 {
            Some(_) => Err(FingerprintError::MalformedContentDigest),
            None => Ok(Ignored),
        }
    }
}

impl<'de> ItemVisitor<'de> for Slot<'_> {
    type Out = ();
    type Error = FingerprintError;

    fn bare_item(
        self,
        item: BareItemFromInput<'de>,
    ) -> Result<impl ParameterVisitor<'de, Out = ()>, Self::Error> {
        if let Some((slot, length)) = self.0 {
            match item {
                BareItemFromInput::ByteSequence(digest) if digest.len() == length => {
                    *slot = Some(digest);
                }
                _ => return Err(FingerprintError::MalformedContentDigest),
            }
        }
        Ok(Ignored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    // SHA-256 and SHA-512 of `{"hello": "world"}` and a line feed, as RFC 9530 shows them.
    const SHA256: &str = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";
    const SHA512: &str = "sha-512=:YMAam51Jz/jOATT6/zvHrLVgOYTGFy1d6GJiOHTohq4yP+pgk4vf2aCsyRZOtw8MjkM7iw7yZ/WkppmM44T3qg==:";

    fn of(lines: &[&str]) -> Result<(&'static str, Vec<u8>), FingerprintError> {
        read(&lines.iter().map(|l| ("content-digest", *l)).collect())
    }

    #[test]
    fn one_digest_is_found_wherever_it_stands() {
        let base = of(&[SHA256]).unwrap();
        assert_eq!((base.0, base.1.len()), ("sha-256", 32));
        assert_eq!(base.1.first(), Some(&0x44));
        assert_eq!(of(&[SHA512]).unwrap().0, "sha-512");
        for lines in [
            &[SHA512, SHA256][..],
            &[SHA256, SHA512],
            &[&format!("{SHA512} , {SHA256}")],
            &[&format!("md5=:AAAA:, {SHA256};q=1")],
            &[&format!("other=(1 2), x, {SHA256}")],
        ] {
            assert_eq!(of(lines).unwrap(), base, "{lines:?}");
        }
    }

    #[test]
    fn none_that_counts_is_missing() {
        for lines in [
            &[][..],
            &[""],
            &["md5=:AAAA:"],
            &["unixsum=:AAAA:, SHA=?1"][..0],
        ] {
            assert_eq!(
                of(lines),
                Err(FingerprintError::MissingContentDigest),
                "{lines:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_trusted_to_mean_one_thing_is_malformed() {
        for lines in [
            &["sha-256"][..],
            &["sha-256=abc"],
            &["sha-256=\"RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=\""],
            &["sha-256=:AAAA:"],
            &["sha-256=::"],
            &["sha-256=(:AAAA:)"],
            &["sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg="],
            &["sha-256=RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg="],
            &["SHA-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"],
            &[SHA256, SHA256],
            &[SHA256, "sha-512=1"],
            &[SHA256, ","],
            &["\u{e9}"],
        ] {
            assert_eq!(
                of(lines),
                Err(FingerprintError::MalformedContentDigest),
                "{lines:?}"
            );
        }
    }
}
