//! JSON bodies under RFC 8785 (JCS), as long as nothing is lost on the way.
//!
//! JCS is defined for I-JSON (RFC 7493). Outside of it a canonical form can make two documents
//! one: duplicate names (most parsers keep the last, some the first), numbers that no double holds,
//! lone surrogates. Such a document, and any that `serde_json` refuses (a byte order mark, text that
//! is not UTF-8, more than 127 levels), has no canonical form here, and the caller hashes its octets.
//! White space around the document is no part of it (RFC 8259 §2).
//!
//! The tree is our own rather than `serde_json::Value`: a map of that type takes some 600 octets
//! for an empty name and a zero, so that a hostile body of 1 MiB would take 90 MiB of a worker's
//! memory, and it keeps the last of two equal names without a word.

use super::number::{Literals, survives};
use crate::order::sort_by;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::mem;

/// A JSON value. Names in an object are unique and in the order of JCS.
/// Text without escapes is borrowed from the body.
#[derive(Debug, PartialEq)]
pub(super) enum Node<'t> {
    Null,
    Bool(bool),
    Number(f64),
    String(Cow<'t, str>),
    Array(Box<[Node<'t>]>),
    Object(Box<[(Cow<'t, str>, Node<'t>)]>),
}

/// A name as it is borrowed where it can be.
#[derive(Deserialize)]
struct Name<'t>(#[serde(borrow)] Cow<'t, str>);

/// Reads a document; `None` where its JCS form could be another document's too.
pub(super) fn parse(body: &[u8]) -> Option<Node<'_>> {
    read(body).filter(|(_, exact)| *exact).map(|(node, _)| node)
}

/// Reads a document, and says whether every number survives JCS.
fn read(body: &[u8]) -> Option<(Node<'_>, bool)> {
    let text = std::str::from_utf8(body).ok()?;
    let mut reader = Reader {
        literals: Literals::new(text),
        exact: true,
    };
    let mut json = serde_json::Deserializer::from_str(text);
    let node = reader.deserialize(&mut json).ok()?;
    json.end().ok()?;
    Some((node, reader.exact))
}

/// Appends the JCS text. Only finite numbers have one; others are not in a [`Node`] that was read.
///
/// Written by hand because the time counts on every write: `serde_json_canonicalizer` parses each name
/// once more and copies each member once per level, which doubled the time of a whole fingerprint. The
/// tests compare the two.
pub(super) fn write(node: &Node<'_>, out: &mut Vec<u8>) {
    match node {
        Node::Null => out.extend_from_slice(b"null"),
        Node::Bool(true) => out.extend_from_slice(b"true"),
        Node::Bool(false) => out.extend_from_slice(b"false"),
        Node::Number(value) => {
            // `format` rather than `format_finite`: a name, not nonsense, for what can't be here.
            out.extend_from_slice(ryu_js::Buffer::new().format(*value).as_bytes());
        }
        Node::String(text) => write_string(text, out),
        Node::Array(items) => {
            let mut open = b'[';
            for item in items {
                out.push(mem::replace(&mut open, b','));
                write(item, out);
            }
            out.extend_from_slice(if open == b'[' { b"[]" } else { b"]" });
        }
        Node::Object(members) => {
            let mut open = b'{';
            for (name, value) in members {
                out.push(mem::replace(&mut open, b','));
                write_string(name, out);
                out.push(b':');
                write(value, out);
            }
            out.extend_from_slice(if open == b'{' { b"{}" } else { b"}" });
        }
    }
}

/// RFC 8785 §3.2.2.2: two characters, and controls, are escaped; all else stands as UTF-8.
fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    let special = |b: &u8| *b < 0x20 || matches!(b, b'"' | b'\\');
    while let Some(at) = rest.iter().position(special) {
        let Some((plain, [byte, after @ ..])) = rest.split_at_checked(at) else {
            break;
        };
        out.extend_from_slice(plain);
        let short = match byte {
            0x08 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0x0c => b'f',
            b'\r' => b'r',
            b'"' | b'\\' => *byte,
            _ => {
                let mut digits = [0; 2];
                // Two octets always hold one: the error cannot be.
                let _ = hex::encode_to_slice([*byte], &mut digits);
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&digits);
                rest = after;
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
        rest = after;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// RFC 8785 §3.2.3: by UTF-16 units, which differs from octets beyond the basic plane.
fn order(a: &str, b: &str) -> Ordering {
    if a.is_ascii() && b.is_ascii() {
        a.cmp(b)
    } else {
        a.encode_utf16().cmp(b.encode_utf16())
    }
}

/// Builds nodes while it walks the number literals in step with the parser.
struct Reader<'t> {
    literals: Literals<'t>,
    exact: bool,
}

impl Reader<'_> {
    fn number<'t>(&mut self, value: f64, surely_exact: bool) -> Node<'t> {
        let literal = self.literals.next();
        self.exact &= surely_exact || literal.is_some_and(|l| survives(l, value));
        Node::Number(value)
    }
}

/// Up to here every integer is a double, and JCS writes all its digits.
const EXACT: u64 = 1 << 53;

impl<'de> DeserializeSeed<'de> for &mut Reader<'_> {
    type Value = Node<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Reader<'_> {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node<'de>, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node<'de>, E> {
        Ok(Node::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node<'de>, E> {
        Ok(self.number(value as f64, value <= EXACT))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node<'de>, E> {
        Ok(self.number(value as f64, value.unsigned_abs() <= EXACT))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node<'de>, E> {
        Ok(self.number(value, false))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Node<'de>, E> {
        Ok(Node::String(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node<'de>, E> {
        Ok(Node::String(value.to_owned().into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Node<'de>, E> {
        Ok(Node::String(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node<'de>, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = items.next_element_seed(&mut *self)? {
            nodes.push(node);
        }
        Ok(Node::Array(nodes.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node<'de>, A::Error> {
        let mut nodes: Vec<(Cow<'de, str>, Node<'de>)> = Vec::new();
        while let Some(Name(name)) = members.next_key()? {
            nodes.push((name, members.next_value_seed(&mut *self)?));
        }
        sort_by(&mut nodes, |a, b| order(&a.0, &b.0));
        let twice = nodes
            .iter()
            .zip(nodes.iter().skip(1))
            .any(|(a, b)| a.0 == b.0);
        if twice {
            return Err(A::Error::custom("duplicate name"));
        }
        Ok(Node::Object(nodes.into()))
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
#[cfg(all(test, not(target_arch = "wasm32")))]
#[path = "json_vectors.rs"]
mod vectors;
