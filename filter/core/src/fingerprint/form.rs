//! `application/x-www-form-urlencoded` bodies (WHATWG URL Standard §5.1), at the level of octets.
//!
//! The media type says how to read this one, unlike a query: `+` is a space, escapes are decoded.
//! Names and values stay octets: making them text would merge `%FF` with `%FE`. Order and number
//! of equal names count, `a` and `a=` differ, empty members are nothing (see [`super::query`]).
//!
//! Two spellings are read differently by different servers, so that the body is then compared as
//! it stands: a `%` that starts no escape, and a bare `;`, which some take for a separator.

use super::query::{Member, escape, sorted};

/// Length-framed members in canonical order; `None` where readers would disagree.
pub(super) fn canonical(body: &[u8]) -> Option<Vec<u8>> {
    if body.contains(&b';') {
        return None;
    }
    let members = body
        .split(|b| *b == b'&')
        .filter(|member| !member.is_empty())
        .map(|member| {
            let mut halves = member.splitn(2, |b| *b == b'=');
            let name = decode(halves.next().unwrap_or_default())?;
            let value = match halves.next() {
                Some(value) => Some(decode(value)?),
                None => None,
            };
            Some(Member { name, value })
        })
        .collect::<Option<Vec<_>>>()?;
    Some(sorted(members))
}

fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let (decoded, after) = escape(after)?;
                out.push(decoded);
                rest = after;
            }
            _ => out.push(byte),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn of(body: &str) -> Vec<u8> {
        canonical(body.as_bytes()).unwrap()
    }

    #[test]
    fn same() {
        for (a, b) in [
            ("a=1&b=2", "b=2&a=1"),
            ("a=x+y", "a=x%20y"),
            ("a=%2c", "a=,"),
            ("%61=1", "a=1"),
            ("a=\u{e9}", "a=%C3%A9"),
            ("a=1&&b=2&", "a=1&b=2"),
            ("b=1&a=1&b=2", "a=1&b=1&b=2"),
        ] {
            assert_eq!(of(a), of(b), "{a} {b}");
        }
    }

    #[test]
    fn different() {
        for (a, b) in [
            ("a=1", "a=2"),
            ("a=%FF", "a=%FE"),
            ("a=%FF", "a=%EF%BF%BD"),
            ("a=+", "a=%2B"),
            ("a=1&a=2", "a=2&a=1"),
            ("a=1", "a=1&a=1"),
            ("a", "a="),
            ("a=1%26b=2", "a=1&b=2"),
            ("a%3D1=2", "a=1=2"),
            ("ab=c", "a=bc"),
            ("i[][n]=x&i[][n]=y&i[][q]=1", "i[][n]=x&i[][q]=1&i[][n]=y"),
        ] {
            assert_ne!(of(a), of(b), "{a} {b}");
        }
    }

    #[test]
    fn what_readers_disagree_on_is_left_alone() {
        for body in ["a=%", "a=%4", "a=%zz", "%=1", "a=1;b=2"] {
            assert_eq!(canonical(body.as_bytes()), None, "{body}");
        }
    }
}
