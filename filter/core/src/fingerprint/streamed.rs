//! Bodies too large to be held: a fingerprint of their beginning, and the whole one while they stream.
//!
//! Such a body is raw, whatever its media type, so it is hashed as it passes and never kept. A whole
//! fingerprint made here equals the one that [`super::compute`] makes of the same octets.

use super::hash::Hasher;
use super::{Fingerprint, Form, Head, Request, blank, head, settings};
use crate::plan::{DigestAlgorithm, FingerprintRule};

/// The fingerprint of a request of whose body only the beginning (`request.body`) is known, and of
/// which more follows. `declared` is its `Content-Length`.
#[must_use]
pub fn head_of(
    rule: &FingerprintRule,
    request: &Request<'_>,
    declared: Option<u64>,
) -> Fingerprint {
    beginning(rule, request, declared, rule.digest)
}

/// The same as a stored one was computed: with its hash, over as many octets. `None` where the
/// beginning that is known is shorter, or is not longer although it is all there is.
#[must_use]
pub fn head_like(
    stored: &Fingerprint,
    rule: &FingerprintRule,
    request: &Request<'_>,
    declared: Option<u64>,
) -> Option<Fingerprint> {
    let octets = usize::try_from(stored.head?.octets).ok()?;
    let request = Request {
        body: request.body.get(..octets)?,
        ..*request
    };
    Some(beginning(rule, &request, declared, stored.algorithm))
}

fn beginning(
    rule: &FingerprintRule,
    request: &Request<'_>,
    declared: Option<u64>,
    algorithm: DigestAlgorithm,
) -> Fingerprint {
    let mut hash = Hasher::new(algorithm);
    hash.framed(b"idempo fingerprint head 1");
    for (name, octets) in head::parts(rule, request, Form::Raw) {
        hash.framed(name.as_bytes());
        hash.framed(&octets);
    }
    hash.raw(request.body);
    Fingerprint {
        digest: hash.finish(),
        form: Form::Head,
        settings: settings(rule, None),
        length: declared.unwrap_or(0),
        head: Some(Head {
            octets: request.body.len() as u64,
            declared,
        }),
        ..blank(request, algorithm)
    }
}

/// A body on its way.
#[derive(Clone, Debug)]
pub struct Streamed {
    /// Everything but the body.
    whole: Hasher,
    body: Hasher,
    blank: Fingerprint,
}

impl Streamed {
    /// The body of that request, of which `request.body` is not counted: give every octet to
    /// [`Self::update`].
    #[must_use]
    pub fn new(rule: &FingerprintRule, request: &Request<'_>) -> Self {
        let form = Form::Raw;
        let mut whole = Hasher::new(rule.digest);
        whole.framed(b"idempo fingerprint 1");
        for (name, octets) in head::parts(rule, request, form) {
            whole.framed(name.as_bytes());
            whole.framed(&octets);
        }
        let mut body = Hasher::new(rule.digest);
        body.framed(b"idempo fingerprint body 1");
        body.framed(form.as_str().as_bytes());
        let blank = Fingerprint {
            form,
            settings: settings(rule, None),
            ..blank(request, rule.digest)
        };
        Self { whole, body, blank }
    }

    /// The next octets.
    pub fn update(&mut self, octets: &[u8]) {
        self.body.raw(octets);
        self.blank.length = self.blank.length.saturating_add(octets.len() as u64);
    }

    /// How many octets came so far.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.blank.length
    }

    /// That was all.
    #[must_use]
    pub fn finish(mut self) -> Fingerprint {
        self.whole.framed(b"body");
        self.whole.framed(self.blank.form.as_str().as_bytes());
        self.whole.framed(&self.body.finish());
        self.whole.framed(&self.blank.length.to_be_bytes());
        self.blank.digest = self.whole.finish();
        self.blank
    }
}
