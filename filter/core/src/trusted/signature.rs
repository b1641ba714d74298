//! `x-idempo-signature: t=<unix seconds>,v1=<hex HMAC-SHA-256>`.
//!
//! The signed string is a row of fields, each written as its length in octets (decimal), a colon,
//! the octets, and a line feed; no choice of values can be read as another row:
//!
//! ```text
//! 19:idempo-signature-v1
//! <t>
//! <namespace>
//! <method>
//! <path with query, as it left the filter>
//! <name> <value> of every x-idempo-* line but the signature, by name in ascending octets
//! ```
//!
//! For `t=1700000000`, namespace `default`, `POST /v1/charges` and one line it is
//!
//! ```text
//! 19:idempo-signature-v1
//! 10:1700000000
//! 7:default
//! 4:POST
//! 11:/v1/charges
//! 18:x-idempo-operation
//! 2:ab
//! ```
//!
//! An added, removed, repeated or changed `x-idempo-*` line fails. The authority is not signed,
//! since routes rewrite it as a matter of course. A route that rewrites the path needs a receiver
//! that verifies the path from before the rewrite. The body is not signed: whoever can read signed
//! requests on the wire may send them again, to the same path, for the tolerance; use mTLS there.
//!
//! Rotation: bring the new secret to every verifier as `previous`, make it `active` on the
//! signers, then drop the old one.

use super::reserved::is_derived;
use crate::http::{Headers, Line};
use crate::order;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::fmt;

/// The header's name, in lower case.
pub const SIGNATURE_HEADER: &str = "x-idempo-signature";

/// How far the signer's clock may be from the verifier's, either way, seconds.
pub const TOLERANCE_S: u64 = 300;

/// Names the string's layout inside the string itself.
const LAYOUT: &[u8] = b"idempo-signature-v1";
const MIN_SECRET: usize = 16;
/// A signature with eight digests is 570 octets: anything longer is not ours.
const MAX_HEADER: usize = 1024;
const MAX_DIGESTS: usize = 8;
/// The filter writes eight lines; room for siblings of a later version.
const MAX_LINES: usize = 32;

/// An HMAC secret. It has no `Display`, and `Debug` shows nothing of it.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

/// Why a secret is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Fewer than 16 octets.
    #[error("a signing secret needs at least {MIN_SECRET} octets")]
    TooShort,
    /// A secret file was read with its last line end, most likely. The other side may have trimmed
    /// it, and then nothing verifies.
    #[error("a signing secret begins or ends with white space, such as a line end")]
    WhiteSpace,
}

impl Secret {
    /// Takes a secret as it stands in the environment.
    ///
    /// # Errors
    /// [`SecretError`], without the value.
    pub fn new(octets: impl Into<Vec<u8>>) -> Result<Self, SecretError> {
        let octets = octets.into();
        if octets.trim_ascii().len() != octets.len() {
            return Err(SecretError::WhiteSpace);
        }
        if octets.len() < MIN_SECRET {
            return Err(SecretError::TooShort);
        }
        Ok(Self(octets))
    }

    /// `None` cannot happen: HMAC takes keys of any length. It is passed on rather than unwrapped.
    fn mac(&self, text: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(text);
        Some(mac)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// Signs with one secret, verifies with two.
#[derive(Clone, Debug)]
pub struct Signer {
    /// Signs, and verifies.
    pub active: Secret,
    /// Verifies only, during a rotation.
    pub previous: Option<Secret>,
    /// The plan's namespace: a signature of one is worth nothing in another.
    pub namespace: String,
}

/// What a request's signature is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Made by this namespace's secret, for this method, path and these lines, within the tolerance.
    Valid,
    /// Something else; treat every `x-idempo-*` line as forged.
    Invalid,
    /// There is no signature.
    Absent,
}

impl Signer {
    /// The header value for these `x-idempo-*` lines.
    #[must_use]
    pub fn sign(&self, derived: &[Line], method: &[u8], path: &[u8], now_unix_s: u64) -> String {
        let mut lines: Vec<(&[u8], &[u8])> = derived
            .iter()
            .map(|(n, v)| (n.as_slice(), v.as_slice()))
            .collect();
        order::sort_by(&mut lines, Ord::cmp);
        let text = self.text(&lines, method, path, now_unix_s);
        let digest = self
            .active
            .mac(&text)
            .map(|mac| hex::encode(mac.finalize().into_bytes()))
            .unwrap_or_default();
        format!("t={now_unix_s},v1={digest}")
    }

    /// Checks a request that carries a signature. Digests are compared in constant time.
    #[must_use]
    pub fn verify(
        &self,
        headers: &Headers,
        method: &[u8],
        path: &[u8],
        now_unix_s: u64,
    ) -> Verification {
        let mut signatures = headers.all(SIGNATURE_HEADER);
        let Some(signature) = signatures.next() else {
            return Verification::Absent;
        };
        let valid = signatures.next().is_none()
            && self
                .check(signature, headers, method, path, now_unix_s)
                .is_some();
        if valid {
            Verification::Valid
        } else {
            Verification::Invalid
        }
    }

    fn check(
        &self,
        signature: &[u8],
        headers: &Headers,
        method: &[u8],
        path: &[u8],
        now_unix_s: u64,
    ) -> Option<()> {
        let (time, digests) = parse(signature)?;
        if time.abs_diff(now_unix_s) > TOLERANCE_S {
            return None;
        }
        let lines = signed_lines(headers)?;
        let text = self.text(&lines, method, path, time);
        let secrets = || std::iter::once(&self.active).chain(&self.previous);
        digests
            .iter()
            .any(|digest| {
                secrets().any(|secret| {
                    secret
                        .mac(&text)
                        .is_some_and(|mac| mac.verify_slice(digest).is_ok())
                })
            })
            .then_some(())
    }

    fn text(&self, lines: &[(&[u8], &[u8])], method: &[u8], path: &[u8], time: u64) -> Vec<u8> {
        let time = time.to_string();
        let head = [
            LAYOUT,
            time.as_bytes(),
            self.namespace.as_bytes(),
            method,
            path,
        ];
        let mut text = Vec::with_capacity(1024);
        for field in head
            .into_iter()
            .chain(lines.iter().flat_map(|(name, value)| [*name, *value]))
        {
            text.extend_from_slice(field.len().to_string().as_bytes());
            text.push(b':');
            text.extend_from_slice(field);
            text.push(b'\n');
        }
        text
    }
}

/// Every `x-idempo-*` line but the signature, by name. `None` where one is repeated or there are
/// absurdly many. A name spelt with underscores counts as one of them and, since nobody signs such
/// a name, fails.
fn signed_lines(headers: &Headers) -> Option<Vec<(&[u8], &[u8])>> {
    let mut lines = Vec::new();
    for (name, value) in headers.lines() {
        if !is_derived(name) || name == SIGNATURE_HEADER.as_bytes() {
            continue;
        }
        if lines.len() >= MAX_LINES {
            return None;
        }
        lines.push((name.as_slice(), value.as_slice()));
    }
    order::sort_by(&mut lines, Ord::cmp);
    let repeated = lines.windows(2).any(|pair| match pair {
        [(a, _), (b, _)] => a == b,
        _ => false,
    });
    (!repeated).then_some(lines)
}

/// `t=…,v1=…[,v1=…]`: exactly one time, written as a number is written; one to eight digests in
/// lower-case hex. Members of later versions (`v2=`) are skipped. There is one way to write a
/// signature, so no white space and no upper case.
fn parse(signature: &[u8]) -> Option<(u64, Vec<[u8; 32]>)> {
    if signature.len() > MAX_HEADER {
        return None;
    }
    let (mut time, mut digests) = (None, Vec::new());
    for member in std::str::from_utf8(signature).ok()?.split(',') {
        let (name, value) = member.split_once('=')?;
        match name {
            "t" => {
                let number: u64 = value.parse().ok()?;
                if time.replace(number).is_some() || number.to_string() != value {
                    return None;
                }
            }
            "v1" => {
                let mut digest = [0; 32];
                hex::decode_to_slice(value, &mut digest).ok()?;
                if digests.len() >= MAX_DIGESTS || value.bytes().any(|b| b.is_ascii_uppercase()) {
                    return None;
                }
                digests.push(digest);
            }
            _ => {}
        }
    }
    Some((time?, digests)).filter(|(_, digests)| !digests.is_empty())
}

#[cfg(test)]
mod tests;
