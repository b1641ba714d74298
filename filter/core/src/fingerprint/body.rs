//! The body: which reading applies, and its canonical octets.

use super::{
    CANONICAL_MAX, FingerprintError, Form, Request, content_digest, form, json, multipart, pointer,
};
use crate::plan::{BodyMode, FingerprintRule};
use std::borrow::Cow;

/// A body as it is hashed.
pub(super) struct Body<'a> {
    pub(super) form: Form,
    pub(super) octets: Cow<'a, [u8]>,
    /// For [`Form::ContentDigest`]: whose digest the octets are.
    pub(super) trusted: Option<&'static str>,
}

impl<'a> Body<'a> {
    fn new(form: Form, octets: impl Into<Cow<'a, [u8]>>) -> Self {
        Self {
            form,
            octets: octets.into(),
            trusted: None,
        }
    }
}

/// Reads the body as the rule says. What cannot be canonicalised without loss is raw.
pub(super) fn read<'a>(
    rule: &FingerprintRule,
    request: &Request<'a>,
    media_type: &[u8],
    encoded: bool,
) -> Result<Body<'a>, FingerprintError> {
    let body = request.body;
    match rule.body {
        BodyMode::None => return Ok(Body::new(Form::Unread, &[][..])),
        BodyMode::ContentDigest => {
            let (name, digest) = content_digest::read(request.headers)?;
            return Ok(Body {
                trusted: Some(name),
                ..Body::new(Form::ContentDigest, digest)
            });
        }
        _ => {}
    }
    let octets = body.len() as u64;
    if let Some(limit) = rule.max_body.filter(|limit| octets > *limit) {
        return Err(FingerprintError::TooLarge { limit });
    }
    if body.is_empty() {
        return Ok(Body::new(Form::Empty, &[][..]));
    }
    let canonical = match reading(rule.body, media_type) {
        // What is compressed or encrypted is not decoded here.
        _ if encoded || octets > CANONICAL_MAX => None,
        Form::Json => {
            let include = super::sorted(&rule.include);
            let exclude = super::sorted(&rule.exclude);
            json::parse(body)
                .map(|node| pointer::bound(node, &include, &exclude))
                .map(|octets| Body::new(Form::Json, octets))
        }
        Form::FormUrlencoded => {
            form::canonical(body).map(|octets| Body::new(Form::FormUrlencoded, octets))
        }
        Form::Multipart => only(request, "content-type")
            .and_then(|content_type| multipart::canonical(content_type, body))
            .map(|octets| Body::new(Form::Multipart, octets)),
        _ => None,
    };
    Ok(canonical.unwrap_or_else(|| Body::new(Form::Raw, body)))
}

/// Whether a complete body of such a request may be read in a canonical form, and so is worth waiting
/// for up to [`CANONICAL_MAX`].
pub(super) fn may_be_canonical(rule: &FingerprintRule, media_type: &[u8], encoded: bool) -> bool {
    !encoded && reading(rule.body, media_type) != Form::Raw
}

/// The form that a mode asks for.
fn reading(mode: BodyMode, media_type: &[u8]) -> Form {
    match mode {
        BodyMode::Json => Form::Json,
        BodyMode::Form => Form::FormUrlencoded,
        BodyMode::Multipart => Form::Multipart,
        BodyMode::Auto => match media_type {
            b"application/json" => Form::Json,
            b"application/x-www-form-urlencoded" => Form::FormUrlencoded,
            b"multipart/form-data" => Form::Multipart,
            other if other.ends_with(b"+json") => Form::Json,
            _ => Form::Raw,
        },
        BodyMode::Raw | BodyMode::ContentDigest | BodyMode::None => Form::Raw,
    }
}

/// The value of a header that stands once.
fn only<'a>(request: &Request<'a>, name: &'a str) -> Option<&'a [u8]> {
    let mut lines = request.headers.all(name);
    let first = lines.next();
    lines.next().is_none().then_some(first).flatten()
}
