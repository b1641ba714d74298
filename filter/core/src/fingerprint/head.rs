//! The parts that are not the body, each under its own name.
//!
//! | part | octets |
//! |---|---|
//! | `method` | as it stands |
//! | `path` | the canonical path that the route was matched with |
//! | `query` | see [`super::query`] |
//! | `media-type` | type and subtype of each `Content-Type` line, lower case; no parameters |
//! | `content-type` | the whole lines, only where a multipart body is not canonicalised |
//! | `content-encoding` | codings in order, lower case, across lines; `identity` is none |
//! | `principal` | where there is one |
//! | `header:<name>` | the values of each line, in order |
//!
//! `a, b` on one header line and `a` and `b` on two are different: for a field that is no list they
//! mean different things, and the filter cannot know which field is one.

use super::hash::frame;
use super::{Form, Request, query};
use crate::http::Headers;
use crate::order;
use crate::plan::FingerprintRule;
use std::borrow::Cow;

/// A named part.
pub(super) type Part<'a> = (Cow<'static, str>, Cow<'a, [u8]>);

/// Every head part of a request whose body was read as `form`, in a fixed order.
pub(super) fn parts<'a>(
    rule: &FingerprintRule,
    request: &Request<'a>,
    form: Form,
) -> Vec<Part<'a>> {
    let headers = request.headers;
    let mut parts: Vec<Part<'a>> = vec![
        ("method".into(), headers.method().into()),
        ("path".into(), request.canonical_path.into()),
        (
            "query".into(),
            query::canonical(headers.split_path().1.unwrap_or_default()).into(),
        ),
        ("media-type".into(), media_types(headers).into()),
        ("content-encoding".into(), encodings(headers).into()),
    ];
    if matches!(form, Form::Raw | Form::ContentDigest)
        && headers
            .all("content-type")
            .any(|line| essence(line).starts_with(b"multipart/"))
    {
        // The same octets under another boundary are other parts.
        parts.push(("content-type".into(), lines(headers, "content-type").into()));
    }
    if let Some(principal) = request.principal {
        parts.push(("principal".into(), principal.into()));
    }
    for name in header_names(rule) {
        let value = lines(headers, &name);
        parts.push((format!("header:{name}").into(), value.into()));
    }
    parts
}

/// The rule's extra headers, each once: the order in the configuration does not count.
pub(super) fn header_names(rule: &FingerprintRule) -> Vec<String> {
    let mut names: Vec<_> = rule
        .headers
        .iter()
        .map(|n| n.to_ascii_lowercase())
        .collect();
    order::sort_by(&mut names, Ord::cmp);
    names.dedup();
    names
}

/// The media type that decides the reading: empty where there is none, or more than one line.
/// In octets, since text would merge what is not UTF-8.
pub(super) fn media_type(headers: &Headers) -> Vec<u8> {
    let mut all = headers.all("content-type");
    match (all.next(), all.next()) {
        (Some(line), None) => essence(line),
        _ => Vec::new(),
    }
}

/// Whether any content coding applies.
pub(super) fn is_encoded(headers: &Headers) -> bool {
    !encodings(headers).is_empty()
}

fn media_types(headers: &Headers) -> Vec<u8> {
    let mut out = Vec::new();
    for line in headers.all("content-type") {
        let essence = essence(line);
        // An empty field says as much as none.
        if !essence.is_empty() {
            frame(&mut out, &essence);
        }
    }
    out
}

fn essence(line: &[u8]) -> Vec<u8> {
    let essence = line.split(|b| *b == b';').next().unwrap_or_default();
    essence.trim_ascii().to_ascii_lowercase()
}

fn encodings(headers: &Headers) -> Vec<u8> {
    let mut out = Vec::new();
    for line in headers.all("content-encoding") {
        for coding in line.split(|b| *b == b',') {
            let coding = coding.trim_ascii().to_ascii_lowercase();
            if !coding.is_empty() && coding != b"identity" {
                frame(&mut out, &coding);
            }
        }
    }
    out
}

fn lines(headers: &Headers, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for (_, value) in headers.lines().iter().filter(|(n, _)| n == name.as_bytes()) {
        frame(&mut out, value.trim_ascii());
    }
    out
}
