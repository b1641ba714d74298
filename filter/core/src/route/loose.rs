//! Every way in which some server might read a path.
//!
//! Servers decode reserved characters (`%3A`), decode twice, take backslashes as slashes, cut
//! `;parameters` before routing, drop control characters, or resolve dots before they merge slashes.
//! A write that a rule covers must not become another resource by such a spelling, so a path that
//! holds any of it is also matched in these readings. They only ever lead to a refusal, never to a
//! claim, and never touch a path that is plain.

use super::path::{SlashOrder, decode, normalise_escapes, resolve};
use crate::plan::{PathMatch, Segment};

/// Segments of one reading, decoded.
pub(super) type Reading = Vec<Vec<u8>>;

/// How often a path may have been escaped on its way.
const DECODINGS: usize = 3;

/// Whether a path in normal form could still be read in another way.
pub(super) fn may_differ(normal: &[u8]) -> bool {
    normal.iter().any(|b| matches!(b, b'%' | b';'))
}

/// All readings of a raw path.
pub(super) fn readings(raw: &[u8]) -> Vec<Reading> {
    let path = absolute(raw);
    let (as_sent, _) = normalise_escapes(&path);
    let decoded = loosen(
        path.split(|b| matches!(b, b'#' | b'?'))
            .next()
            .unwrap_or_default(),
    );
    let mut out: Vec<Reading> = Vec::with_capacity(4);
    for whole in [&as_sent, &decoded] {
        for order in [SlashOrder::MergeFirst, SlashOrder::DotsFirst] {
            let reading = resolve(whole, order).into_iter().map(loosen).collect();
            if !out.contains(&reading) {
                out.push(reading);
            }
        }
    }
    out
}

/// The path of an absolute-form target, with a slash in front whatever was sent.
fn absolute(raw: &[u8]) -> Vec<u8> {
    if raw.first() == Some(&b'/') {
        return raw.to_vec();
    }
    let after_scheme = raw
        .windows(3)
        .position(|w| w == b"://")
        .and_then(|at| raw.get(at + 3..));
    let path = match after_scheme {
        Some(rest) => {
            let authority = rest.iter().take_while(|b| **b != b'/').count();
            rest.get(authority..).unwrap_or_default()
        }
        None => raw,
    };
    [b"/", path].concat()
}

/// Decodes as often as it helps, then drops what servers drop.
fn loosen(part: &[u8]) -> Vec<u8> {
    let mut text = part.to_vec();
    for _ in 0..DECODINGS {
        if !text.contains(&b'%') {
            break;
        }
        text = decode(&text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut in_parameters = false;
    for b in text {
        let b = if b == b'\\' { b'/' } else { b };
        match b {
            0 => break,
            b'/' => in_parameters = false,
            b';' => in_parameters = true,
            _ => {}
        }
        if !in_parameters && !b.is_ascii_control() {
            out.push(b);
        }
    }
    out
}

/// Whether a path form matches one reading.
pub(super) fn matches(form: &PathMatch, reading: &[Vec<u8>]) -> bool {
    match form {
        PathMatch::Exact(path) => parts(path).eq(reading.iter().cloned()),
        PathMatch::Prefix(path) => {
            let mut rest = reading.iter();
            parts(path).all(|part| rest.next() == Some(&part))
        }
        PathMatch::Template(segments) => {
            segments.len() == reading.len()
                && segments
                    .iter()
                    .zip(reading)
                    .all(|(segment, part)| match segment {
                        Segment::Literal(text) => loosen(text.as_bytes()) == *part,
                        Segment::Variable(_) => true,
                    })
        }
    }
}

fn parts(path: &str) -> impl Iterator<Item = Vec<u8>> {
    path.split('/')
        .filter(|part| !part.is_empty())
        .map(|part| loosen(part.as_bytes()))
}
