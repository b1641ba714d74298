//! The canonical query.
//!
//! Nobody here knows how the upstream reads its query, so only what every reader agrees on is made
//! equal (RFC 3986 §6.2.2): escapes of unreserved characters are decoded, hex digits are put into
//! upper case, and octets that no URI may carry bare are escaped. An escaped reserved character
//! stays apart from a bare one: `%2C` against `,`, or `%2B` against `+` (which some read as a
//! space and some do not), can be data against a separator.
//!
//! Members are split at `&` and sorted by name; equal names keep their order and number. Names of
//! the `items[][price]` kind are sorted by what stands before the first `[]`, because frameworks
//! that know this notation build the list from the order in which such members stand. `a` and `a=`
//! differ; empty members (`a&&b`, a lone `?`) are nothing.

use super::hash::frame;
use crate::order;

/// Length-framed members in canonical order.
pub(super) fn canonical(query: &[u8]) -> Vec<u8> {
    let members = query
        .split(|b| *b == b'&')
        .filter(|member| !member.is_empty())
        .map(|member| {
            let mut halves = member.splitn(2, |b| *b == b'=');
            Member {
                name: normal(halves.next().unwrap_or_default()),
                value: halves.next().map(normal),
            }
        })
        .collect();
    sorted(members)
}

/// A name, and a value where there was a `=`.
pub(super) struct Member {
    pub(super) name: Vec<u8>,
    pub(super) value: Option<Vec<u8>>,
}

/// Sorts members by name and frames them.
pub(super) fn sorted(members: Vec<Member>) -> Vec<u8> {
    let mut members: Vec<_> = members.iter().map(|m| (root(&m.name), m)).collect();
    // A stable sort: what has the same root keeps its order.
    order::sort_by(&mut members, |a, b| a.0.cmp(b.0));
    let mut out = Vec::new();
    for (_, member) in members {
        frame(&mut out, &member.name);
        match &member.value {
            None => out.push(0),
            Some(value) => {
                out.push(1);
                frame(&mut out, value);
            }
        }
    }
    out
}

/// The part of a name that decides its place: all before the first `[]`, bare or escaped.
fn root(name: &[u8]) -> &[u8] {
    let list = (0..name.len()).find_map(|at| {
        let (root, rest) = name.split_at_checked(at)?;
        (rest.starts_with(b"[]") || rest.starts_with(b"%5B%5D")).then_some(root)
    });
    list.unwrap_or(name)
}

/// One name or value. The result spells each input class in one way only: unreserved and bare
/// reserved octets as themselves, all else as `%XX`, and a `%` that starts no escape as `%%`.
fn normal(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            match escape(after) {
                Some((decoded, after)) => {
                    rest = after;
                    if unreserved(decoded) {
                        out.push(decoded);
                    } else {
                        push_escape(&mut out, decoded);
                    }
                }
                None => out.extend_from_slice(b"%%"),
            }
        } else if unreserved(byte) || reserved(byte) {
            out.push(byte);
        } else {
            push_escape(&mut out, byte);
        }
    }
    out
}

/// Two hex digits (what follows a `%`), and the rest.
pub(super) fn escape(after: &[u8]) -> Option<(u8, &[u8])> {
    let (pair, rest) = after.split_first_chunk::<2>()?;
    let mut decoded = [0; 1];
    hex::decode_to_slice(pair, &mut decoded).ok()?;
    let [byte] = decoded;
    Some((byte, rest))
}

fn push_escape(out: &mut Vec<u8>, byte: u8) {
    let mut digits = [0; 2];
    // Two octets always hold one: the error cannot be.
    let _ = hex::encode_to_slice([byte], &mut digits);
    out.push(b'%');
    out.extend_from_slice(&digits.map(|d| d.to_ascii_uppercase()));
}

fn unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn reserved(byte: u8) -> bool {
    b":/?#[]@!$&'()*+,;=".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn same() {
        for (a, b) in [
            ("a=1&b=2", "b=2&a=1"),
            ("a=%41", "a=A"),
            ("%61=1", "a=1"),
            ("a=%2f", "a=%2F"),
            ("a=\u{e9}", "a=%c3%a9"),
            ("a=\"", "a=%22"),
            ("a=1&", "a=1"),
            ("&&a=1", "a=1"),
            ("", "&"),
            ("b=1&a=1&b=2", "a=1&b=1&b=2"),
            ("z=1&i[][n]=x&i[][q]=1", "i[][n]=x&i[][q]=1&z=1"),
        ] {
            assert_eq!(canonical(a.as_bytes()), canonical(b.as_bytes()), "{a} {b}");
        }
    }

    #[test]
    fn different() {
        for (a, b) in [
            ("a=1", "a=2"),
            ("a=1", "A=1"),
            ("a=1", "a=1&a=1"),
            ("a=1&a=2", "a=2&a=1"),
            ("a", "a="),
            ("a", ""),
            ("a=%FF", "a=%FE"),
            ("a=%FF", "a=%EF%BF%BD"),
            ("a=+", "a=%20"),
            ("a=+", "a=%2B"),
            ("a=%2B", "a=%20"),
            ("ids=1,2", "ids=1%2C2"),
            ("a=1;b=2", "a=1%3Bb=2"),
            ("a=1&b=2", "a=1%26b=2"),
            ("a=b=c", "a%3Db=c"),
            ("a=%", "a=%25"),
            ("a=%zz", "a=%25zz"),
            ("a=%4%31", "a=A"),
            ("a=%2%46", "a=%2F"),
            ("a=%%46", "a=%25F"),
            ("a=%00", "a="),
            ("ab=c", "a=bc"),
            (
                "i[][n]=x&i[][q]=1&i[][n]=y&i[][q]=2",
                "i[][n]=x&i[][n]=y&i[][q]=1&i[][q]=2",
            ),
            ("i%5b%5d[n]=x&i%5B%5D[q]=1", "i%5B%5D[q]=1&i%5B%5D[n]=x"),
        ] {
            assert_ne!(canonical(a.as_bytes()), canonical(b.as_bytes()), "{a} {b}");
        }
    }

    #[test]
    fn a_canonical_spelling_stays_as_it_is() {
        for text in ["a-._~Z9", "%2F", "+", "%2B", "%FF", ":/?#[]@!$&'()*,;="] {
            assert_eq!(normal(text.as_bytes()), text.as_bytes());
        }
    }
}
