//! Which idempotency key did the client send, and is it fit to carry money?
//!
//! A key comes in a header (a bare token, as the market sends it, or an RFC 9651 String, as
//! `draft-ietf-httpapi-idempotency-key-header` has it) or in a member of a JSON body. All ways of
//! writing one key end in one [`Key`]: white space around a header value and the quotes are
//! dropped, UUIDs and ULIDs are put into lower case, everything else follows the route's case rule.
//!
//! | module | what it does |
//! |---|---|
//! | `syntax` | header line or body member to plain text |
//! | `judge` | which form the text has, and whether it could be guessed |
//! | `age` | the time that a key or a deadline header states |
//! | [`reason`] | stable names for what is wrong, each with a sentence |
//!
//! Decisions that are not obvious:
//!
//! - Repeated header lines are compared *after* normalisation: a proxy that duplicated the line, or
//!   that duplicated and quoted it, did not make a second key.
//! - A line that merges two values (`a, b`) is refused, whatever the formats: a bare value may hold
//!   no comma and no double quote. An `opaque` key that needs them can be sent quoted.
//! - A JSON `null` is no key. Any other value that is not a string is refused; a number such as
//!   `1e2` has no one spelling. A body string is the key itself: nothing is trimmed or unquoted.
//! - `base64url` with `=` padding is refused rather than stripped, since the padded and the unpadded
//!   spelling would be two keys elsewhere. Keys are compared as text: two spellings of the same
//!   octets (free trailing bits) are two keys.

mod age;
mod judge;
pub mod reason;
mod syntax;

pub use age::{FUTURE_TOLERANCE_MS, KeyAge, Timeliness, embedded_time_ms};

use crate::http::Headers;
use crate::plan::{KeyFormat, KeyRule};
use crate::reply::Code;
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::fmt;

/// A key as it is compared and hashed: visible ASCII, normalised. Never shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Vec<u8>);

impl Key {
    /// The normalised octets: part of the operation's identity.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// SHA-256 in 64 hex digits: what the upstream is told of the key.
    #[must_use]
    pub fn hash(&self) -> String {
        hex::encode(Sha256::digest(&self.0))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} characters)", self.0.len())
    }
}

/// Why there is no usable key. The text is one of the names in [`reason`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The route requires a key and neither place had one.
    #[error("no idempotency key")]
    Missing,
    /// The key cannot be read or has none of the route's forms.
    #[error("invalid idempotency key: {}", reason::sentence(.0))]
    Invalid(&'static str),
    /// The key has the form, but another client could come up with it.
    #[error("weak idempotency key: {}", reason::sentence(.0))]
    Weak(&'static str),
}

impl KeyError {
    /// The code on the wire.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Missing => Code::KeyMissing,
            Self::Invalid(_) => Code::KeyInvalid,
            Self::Weak(_) => Code::KeyWeak,
        }
    }

    /// The stable name of the reason; `None` for a missing key.
    #[must_use]
    pub const fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Missing => None,
            Self::Invalid(reason) | Self::Weak(reason) => Some(reason),
        }
    }
}

/// How a header value was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// As a bare token.
    Bare,
    /// As an RFC 9651 String.
    Quoted,
}

/// How one value was read, step by step: for `idempo explain`. It holds no part of the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Bare or quoted; `None` for a body member.
    pub written: Option<Written>,
    /// The form, where it has one.
    pub format: Option<KeyFormat>,
    /// Characters after unquoting, where it could be unquoted; else octets as sent.
    pub length: usize,
    /// The key, or why it was refused.
    pub outcome: Result<Key, KeyError>,
}

/// Reads and judges one header value.
#[must_use]
pub fn read_header_value(rule: &KeyRule, value: &[u8]) -> Reading {
    let written = match syntax::trim_ows(value).first() {
        Some(b'"') => Written::Quoted,
        _ => Written::Bare,
    };
    read(
        rule,
        Some(written),
        value.len(),
        syntax::header_text(value, rule.syntax),
    )
}

/// Reads and judges the text of a body member.
#[must_use]
pub fn read_body_text(rule: &KeyRule, text: &str) -> Reading {
    read(
        rule,
        None,
        text.len(),
        syntax::body_text(text).map(Cow::Borrowed),
    )
}

fn read(
    rule: &KeyRule,
    written: Option<Written>,
    sent: usize,
    text: Result<Cow<'_, str>, &'static str>,
) -> Reading {
    let (length, verdict) = match text {
        Ok(text) => (text.len(), judge::judge(rule, &text)),
        Err(reason) => (sent, judge::Verdict::invalid(reason)),
    };
    Reading {
        written,
        format: verdict.format,
        length,
        outcome: verdict.outcome,
    }
}

/// The key in the request headers; `None` where no line has the rule's name.
///
/// # Errors
/// [`KeyError::Invalid`] and [`KeyError::Weak`] where any line is refused, or where lines differ.
pub fn from_headers(rule: &KeyRule, headers: &Headers) -> Result<Option<Key>, KeyError> {
    let mut key: Option<Key> = None;
    for value in headers.all(&rule.header) {
        let next = read_header_value(rule, value).outcome?;
        match &key {
            Some(first) if *first != next => return Err(KeyError::Invalid(reason::LINES_DIFFER)),
            _ => key = Some(next),
        }
    }
    Ok(key)
}

/// The key in a JSON body; `None` where the rule names no member, or the body has none or `null`.
///
/// # Errors
/// [`KeyError::Invalid`] where the member is not a string, and as for a header value.
pub fn from_body(rule: &KeyRule, body: &serde_json::Value) -> Result<Option<Key>, KeyError> {
    let member = rule.body_field.as_deref().and_then(|p| body.pointer(p));
    match member {
        None | Some(serde_json::Value::Null) => Ok(None),
        Some(serde_json::Value::String(text)) => read_body_text(rule, text).outcome.map(Some),
        Some(_) => Err(KeyError::Invalid(reason::NOT_A_STRING)),
    }
}

/// The key of the request, from both places.
///
/// # Errors
/// [`KeyError::Invalid`] where both are present and differ; [`KeyError::Missing`] where the route
/// requires a key and there is none.
pub fn settle(
    rule: &KeyRule,
    header: Option<Key>,
    body: Option<Key>,
) -> Result<Option<Key>, KeyError> {
    match (header, body) {
        (Some(h), Some(b)) if h != b => Err(KeyError::Invalid(reason::PLACES_DIFFER)),
        (Some(key), _) | (None, Some(key)) => Ok(Some(key)),
        (None, None) if rule.required => Err(KeyError::Missing),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests;
#[cfg(all(test, not(target_arch = "wasm32")))]
mod vectors;
