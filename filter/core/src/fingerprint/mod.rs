//! Is it the same request? The digest of what was asked.
//!
//! A fingerprint is evidence of sameness, never identity: the operation id says which operation
//! an attempt belongs to, the fingerprint says whether it asks for the same thing. To call two
//! different requests the same would hand one the other's answer; so wherever a canonical form could
//! lose something, the octets themselves are hashed ([`Form::Raw`]), and [`Fingerprint::form`] says so.
//! That a mere re-serialisation counts as the same is the lesser duty.
//!
//! What "the same" means beyond notation is the contract's business: `100` against `"100"`, or 1 EUR
//! against 100 cent, are different here.
//!
//! | module | what it canonicalises |
//! |---|---|
//! | `head` | method, path, media type, content codings, principal, extra headers |
//! | `query` | the query: RFC 3986 §6.2.2, sorted |
//! | `body` | chooses the reading of the body |
//! | `json`, `number`, `pointer` | RFC 8785 where it is lossless; include and exclude |
//! | `form` | urlencoded forms as octets |
//! | `multipart` | form data without its boundary |
//! | `content_digest` | RFC 9530, trusted |
//! | `hash` | BLAKE3 or SHA-256, framing |
//!
//! Layout of version 1, every part behind its length (64 bits, big endian):
//!
//! ```text
//! body   = H("idempo fingerprint body 1", form, octets)          octets without a length: the last part
//! digest = H("idempo fingerprint 1", name, part, …, "body", form, body, length of the octets)
//! ```
//!
//! so that a body can be hashed while it streams ([`Streamed`]), whatever its length turns out to be.
//! Of a body that is not complete yet there is a fingerprint of its beginning ([`head_of`]):
//!
//! ```text
//! digest = H("idempo fingerprint head 1", name, part, …, first octets of the body)
//! ```

mod body;
mod content_digest;
mod form;
mod hash;
mod head;
mod json;
mod multipart;
mod number;
mod pointer;
mod query;
mod streamed;

use crate::http::Headers;
use crate::order;
use crate::plan::{BodyMode, DigestAlgorithm, FingerprintRule};
use hash::Hasher;

/// The layout above.
pub const VERSION: u8 = 1;

/// The longest media type that a fingerprint keeps for reports, octets.
pub const MAX_MEDIA_TYPE: usize = 64;

/// The largest body that is read as JSON, a form or multipart, octets; a larger one is raw.
pub const CANONICAL_MAX: u64 = 1 << 20;

pub use streamed::{Streamed, head_like, head_of};

/// What was asked, as a digest, and how the digest came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Over all bound parts.
    pub digest: [u8; 32],
    /// The hash.
    pub algorithm: DigestAlgorithm,
    /// What was really done with the body.
    pub form: Form,
    /// The layout, [`VERSION`] when computed here.
    pub version: u8,
    /// Digest of the settings that decide what is bound; not of the algorithm.
    pub settings: [u8; 8],
    /// Octets of the body as it came; 0 where it was not read. For reports: not compared.
    pub length: u64,
    /// Media type in printable ASCII, cut at [`MAX_MEDIA_TYPE`]. For reports: not compared.
    pub media_type: String,
    /// Digest of the principal, so that another principal is told from another payload.
    pub principal: Option<[u8; 8]>,
    /// The digest is of the body's beginning only ([`Form::Head`]).
    pub head: Option<Head>,
}

/// How much of a body a [`Form::Head`] fingerprint knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// How many octets of the body it is of. The body is longer.
    pub octets: u64,
    /// `Content-Length`, where there was one.
    pub declared: Option<u64>,
}

/// What was really done with a body. The names are part of stored records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// There was none; whatever the mode.
    Empty,
    /// Its octets.
    Raw,
    /// RFC 8785, or the included parts of it.
    Json,
    /// Members sorted by name.
    FormUrlencoded,
    /// Parts without the boundary.
    Multipart,
    /// The client's `Content-Digest` was trusted.
    ContentDigest,
    /// Not looked at, as the rule says.
    Unread,
    /// The first octets of a body that was still on its way.
    Head,
}

impl Form {
    /// Every form.
    pub const ALL: [Self; 8] = [
        Self::Empty,
        Self::Raw,
        Self::Json,
        Self::FormUrlencoded,
        Self::Multipart,
        Self::ContentDigest,
        Self::Unread,
        Self::Head,
    ];

    /// The name in records and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Raw => "raw",
            Self::Json => "json",
            Self::FormUrlencoded => "form",
            Self::Multipart => "multipart",
            Self::ContentDigest => "content_digest",
            Self::Unread => "unread",
            Self::Head => "head",
        }
    }

    /// The form of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.as_str() == name)
    }
}

/// What two fingerprints say about their requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The same request.
    Same,
    /// Another principal, or one where there was none: nobody else's answer, whatever the payload.
    OtherPrincipal,
    /// Another request.
    Different,
    /// Computed in ways that cannot be compared: neither the same nor a mismatch.
    Incomparable,
    /// The attempt's body is not complete, and the stored one was: the rest must be read.
    NeedsBody,
}

impl Fingerprint {
    /// Compares a stored fingerprint (`self`) with that of an attempt.
    #[must_use]
    pub fn compare(&self, fresh: &Self) -> Comparison {
        if self.principal != fresh.principal {
            Comparison::OtherPrincipal
        } else if (self.version, self.algorithm, self.settings)
            != (fresh.version, fresh.algorithm, fresh.settings)
        {
            Comparison::Incomparable
        } else {
            self.compare_bodies(fresh)
        }
    }

    fn compare_bodies(&self, fresh: &Self) -> Comparison {
        match (self.head, fresh.head) {
            (None, Some(head)) => {
                // What is longer than a beginning is raw, and as long as it says.
                let may_be = self.form == Form::Raw
                    && self.length > head.octets
                    && head.declared.is_none_or(|length| length == self.length);
                if may_be {
                    return Comparison::NeedsBody;
                }
                return Comparison::Different;
            }
            // A whole body, no longer than what the stored one only begins with.
            (Some(head), None) if fresh.length <= head.octets => return Comparison::Different,
            (Some(_), None) => return Comparison::Incomparable,
            (Some(stored), Some(fresh)) => {
                if let (Some(a), Some(b)) = (stored.declared, fresh.declared)
                    && a != b
                {
                    return Comparison::Different;
                }
                if stored.octets != fresh.octets {
                    return Comparison::Incomparable;
                }
            }
            (None, None) => {}
        }
        if self.digest == fresh.digest {
            Comparison::Same
        } else {
            Comparison::Different
        }
    }
}

/// A complete request.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Its header lines, pseudo-headers included.
    pub headers: &'a Headers,
    /// The path without query, as the route matcher normalised it.
    pub canonical_path: &'a [u8],
    /// Who asks, where the plan has a source for it and the source gave something.
    pub principal: Option<&'a [u8]>,
    /// The whole body; empty where there is none.
    pub body: &'a [u8],
}

/// Why a request has no fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FingerprintError {
    /// The body is larger than the route can fingerprint.
    #[error("the body is larger than {limit} octets")]
    TooLarge {
        /// The rule's `max_body`, octets.
        limit: u64,
    },
    /// The rule trusts `Content-Digest`, and there is no `sha-256` or `sha-512` in it.
    #[error("no Content-Digest with sha-256 or sha-512")]
    MissingContentDigest,
    /// The rule trusts `Content-Digest`, and it cannot be read.
    #[error("malformed Content-Digest")]
    MalformedContentDigest,
}

/// One bound part, for `idempo explain`: what it is called and its digest, never its octets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// `method`, `query`, `header:x-currency`, `body`, …
    pub name: String,
    /// How the body was read; `None` for the other parts.
    pub form: Option<Form>,
    /// Canonical octets.
    pub length: u64,
    /// Of the canonical octets.
    pub digest: [u8; 32],
}

/// The fingerprint of a request under a rule.
///
/// # Errors
///
/// See [`FingerprintError`].
pub fn compute(
    rule: &FingerprintRule,
    request: &Request<'_>,
) -> Result<Fingerprint, FingerprintError> {
    compute_with(rule, request, rule.digest)
}

/// The fingerprint of a request as the stored one was computed, where only the algorithm has
/// changed since. `None` where more has, so that the two cannot be compared, or where the request
/// has no fingerprint.
#[must_use]
pub fn compute_like(
    stored: &Fingerprint,
    rule: &FingerprintRule,
    request: &Request<'_>,
) -> Option<Fingerprint> {
    let fresh = compute_with(rule, request, stored.algorithm).ok()?;
    (stored.version == fresh.version && stored.settings == fresh.settings).then_some(fresh)
}

/// The names and digests of every bound part, the body last.
///
/// # Errors
///
/// See [`FingerprintError`].
pub fn parts(rule: &FingerprintRule, request: &Request<'_>) -> Result<Vec<Part>, FingerprintError> {
    let body = read_body(rule, request)?;
    let mut parts: Vec<Part> = head::parts(rule, request, body.form)
        .into_iter()
        .map(|(name, octets)| {
            let mut hash = Hasher::new(rule.digest);
            hash.framed(b"idempo fingerprint part 1");
            hash.framed(name.as_bytes());
            hash.raw(&octets);
            Part {
                length: octets.len() as u64,
                digest: hash.finish(),
                form: None,
                name: name.into_owned(),
            }
        })
        .collect();
    parts.push(Part {
        name: "body".into(),
        form: Some(body.form),
        length: body.octets.len() as u64,
        digest: body_digest(&body, rule.digest),
    });
    Ok(parts)
}

fn compute_with(
    rule: &FingerprintRule,
    request: &Request<'_>,
    algorithm: DigestAlgorithm,
) -> Result<Fingerprint, FingerprintError> {
    let body = read_body(rule, request)?;
    let mut hash = Hasher::new(algorithm);
    hash.framed(b"idempo fingerprint 1");
    for (name, octets) in head::parts(rule, request, body.form) {
        hash.framed(name.as_bytes());
        hash.framed(&octets);
    }
    hash.framed(b"body");
    hash.framed(body.form.as_str().as_bytes());
    hash.framed(&body_digest(&body, algorithm));
    hash.framed(&(body.octets.len() as u64).to_be_bytes());
    let read = !matches!(body.form, Form::Unread | Form::ContentDigest);
    Ok(Fingerprint {
        digest: hash.finish(),
        form: body.form,
        settings: settings(rule, body.trusted),
        length: if read { request.body.len() as u64 } else { 0 },
        ..blank(request, algorithm)
    })
}

/// What a fingerprint says of a request beside its digest and form.
fn blank(request: &Request<'_>, algorithm: DigestAlgorithm) -> Fingerprint {
    Fingerprint {
        digest: [0; 32],
        algorithm,
        form: Form::Unread,
        version: VERSION,
        settings: [0; 8],
        length: 0,
        media_type: printable(&head::media_type(request.headers)),
        principal: request
            .principal
            .map(|p| hash::short(&[b"idempo fingerprint principal 1", p])),
        head: None,
    }
}

/// Whether the body of a request with these headers may be read as JSON, a form or multipart, so that it
/// is wanted whole up to [`CANONICAL_MAX`]; else it is raw, or not read at all.
#[must_use]
pub fn may_be_canonical(rule: &FingerprintRule, headers: &Headers) -> bool {
    body::may_be_canonical(rule, &head::media_type(headers), head::is_encoded(headers))
}

fn read_body<'a>(
    rule: &FingerprintRule,
    request: &Request<'a>,
) -> Result<body::Body<'a>, FingerprintError> {
    body::read(
        rule,
        request,
        &head::media_type(request.headers),
        head::is_encoded(request.headers),
    )
}

fn body_digest(body: &body::Body<'_>, algorithm: DigestAlgorithm) -> [u8; 32] {
    let mut hash = Hasher::new(algorithm);
    hash.framed(b"idempo fingerprint body 1");
    hash.framed(body.form.as_str().as_bytes());
    hash.raw(&body.octets);
    hash.finish()
}

/// Digests what decides which octets are bound. The order of lists does not; neither does the
/// limit on the body's size, nor the principal, which is compared before this is. A trusted digest's
/// own algorithm is among it: `sha-256` against `sha-512` of one body are not another body.
fn settings(rule: &FingerprintRule, trusted: Option<&str>) -> [u8; 8] {
    let mode = match rule.body {
        BodyMode::Auto => "auto",
        BodyMode::Raw => "raw",
        BodyMode::Json => "json",
        BodyMode::Form => "form",
        BodyMode::Multipart => "multipart",
        BodyMode::ContentDigest => "content_digest",
        BodyMode::None => "none",
    };
    let list = |items: &[&str]| {
        let mut out = Vec::new();
        for item in items {
            hash::frame(&mut out, item.as_bytes());
        }
        out
    };
    let headers = head::header_names(rule);
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    hash::short(&[
        b"idempo fingerprint settings",
        &[VERSION],
        mode.as_bytes(),
        &list(&sorted(&rule.include)),
        &list(&sorted(&rule.exclude)),
        &list(&headers),
        trusted.unwrap_or_default().as_bytes(),
    ])
}

/// Each item once, in octet order.
fn sorted(items: &[String]) -> Vec<&str> {
    let mut sorted: Vec<&str> = items.iter().map(String::as_str).collect();
    order::sort_by(&mut sorted, Ord::cmp);
    sorted.dedup();
    sorted
}

fn printable(media_type: &[u8]) -> String {
    let shown = |b: &u8| {
        if b.is_ascii_graphic() {
            char::from(*b)
        } else {
            '?'
        }
    };
    media_type.iter().take(MAX_MEDIA_TYPE).map(shown).collect()
}

#[cfg(test)]
mod tests;
