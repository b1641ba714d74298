//! JSON Pointers (RFC 6901) for what of a document counts.
//!
//! `exclude` takes members away. An index that points into an array empties its place (as `null`)
//! rather than closing it up: the content does not count, its being there does, and later indexes
//! keep their meaning. `include` keeps what it names; a member that is absent is told apart from one
//! that is `null`. `exclude` goes first.
//!
//! Mistakes bind more, never less: a malformed `exclude` pointer, or one to the whole document, is
//! without effect; with a malformed `include` pointer, or when not one of them finds anything, the
//! whole document counts.

use super::hash::frame;
use super::json::{Node, write};
use std::mem;

/// The canonical octets of what counts of a document.
pub(super) fn bound(mut node: Node<'_>, include: &[&str], exclude: &[&str]) -> Vec<u8> {
    for tokens in exclude.iter().filter_map(|p| tokens(p)) {
        remove(&mut node, &tokens);
    }
    let include: Option<Vec<_>> = include.iter().map(|p| Some((*p, tokens(p)?))).collect();
    let found: Vec<_> = include
        .unwrap_or_default()
        .into_iter()
        .map(|(pointer, tokens)| (pointer, get(&node, &tokens)))
        .collect();
    let mut out = Vec::new();
    if found.iter().all(|(_, value)| value.is_none()) {
        write(&node, &mut out);
        return out;
    }
    // A JSON text never starts with the zero octet of a length, so this is never taken for one.
    for (pointer, value) in found {
        frame(&mut out, pointer.as_bytes());
        match value {
            None => out.push(0),
            Some(value) => {
                let mut text = Vec::new();
                write(value, &mut text);
                out.push(1);
                frame(&mut out, &text);
            }
        }
    }
    out
}

/// The reference tokens, unescaped; `None` where the pointer is malformed.
fn tokens(pointer: &str) -> Option<Vec<String>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    pointer
        .strip_prefix('/')?
        .split('/')
        .map(unescape)
        .collect()
}

fn unescape(token: &str) -> Option<String> {
    let mut pieces = token.split('~');
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let rest = if let Some(rest) = piece.strip_prefix('0') {
            out.push('~');
            rest
        } else {
            let rest = piece.strip_prefix('1')?;
            out.push('/');
            rest
        };
        out.push_str(rest);
    }
    Some(out)
}

/// An array index: digits without leading zeros. `-` (the place after the last) is none.
fn index(token: &str) -> Option<usize> {
    let plain = token == "0" || !token.starts_with('0');
    (plain && token.bytes().all(|b| b.is_ascii_digit()))
        .then(|| token.parse().ok())
        .flatten()
}

fn get<'n, 't>(mut node: &'n Node<'t>, tokens: &[String]) -> Option<&'n Node<'t>> {
    for token in tokens {
        node = match node {
            Node::Object(members) => {
                let (_, value) = members.iter().find(|(name, _)| name == token)?;
                value
            }
            Node::Array(items) => items.get(index(token)?)?,
            _ => return None,
        };
    }
    Some(node)
}

fn remove(mut node: &mut Node<'_>, tokens: &[String]) {
    let Some((last, parents)) = tokens.split_last() else {
        return;
    };
    for token in parents {
        let child = match node {
            Node::Object(members) => members
                .iter_mut()
                .find(|(name, _)| name == token)
                .map(|(_, value)| value),
            Node::Array(items) => index(token).and_then(|i| items.get_mut(i)),
            _ => None,
        };
        match child {
            Some(child) => node = child,
            None => return,
        }
    }
    match node {
        Node::Object(members) => {
            let mut kept = mem::take(members).into_vec();
            kept.retain(|(name, _)| name != last);
            *members = kept.into();
        }
        Node::Array(items) => {
            if let Some(item) = index(last).and_then(|i| items.get_mut(i)) {
                *item = Node::Null;
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::json::parse;
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn of(text: &str, include: &[&str], exclude: &[&str]) -> Vec<u8> {
        bound(parse(text.as_bytes()).unwrap(), include, exclude)
    }

    #[test]
    fn excluded_members_do_not_count() {
        for (text, exclude, expected) in [
            (r#"{"a":1,"b":2}"#, "/b", r#"{"a":1}"#),
            (r#"{"a":{"b":2,"c":3}}"#, "/a/b", r#"{"a":{"c":3}}"#),
            (r#"{"a":[{"b":2,"c":3}]}"#, "/a/0/b", r#"{"a":[{"c":3}]}"#),
            (r#"{"a/b":1,"c~d":2}"#, "/a~1b", r#"{"c~d":2}"#),
            (r#"{"a/b":1,"c~d":2}"#, "/c~0d", r#"{"a/b":1}"#),
            (r#"{"~1":1,"/":2}"#, "/~01", r#"{"/":2}"#),
            (r#"{"":1}"#, "/", "{}"),
            ("[1,2,3]", "/1", "[1,null,3]"),
            ("[1,2,3]", "/01", "[1,2,3]"),
            ("[1,2,3]", "/-", "[1,2,3]"),
            ("[1,2,3]", "/+1", "[1,2,3]"),
            ("[1,2,3]", "/3", "[1,2,3]"),
            ("[1,2,3]", "/99999999999999999999999", "[1,2,3]"),
            (r#"{"a":1}"#, "/a/b", r#"{"a":1}"#),
            // Mistakes take nothing away.
            (r#"{"a":1}"#, "", r#"{"a":1}"#),
            (r#"{"a":1}"#, "a", r#"{"a":1}"#),
            (r#"{"a~":1}"#, "/a~", r#"{"a~":1}"#),
        ] {
            let found = of(text, &[], &[exclude]);
            assert_eq!(
                String::from_utf8_lossy(&found),
                expected,
                "{text} {exclude}"
            );
        }
    }

    #[test]
    fn only_included_members_count() {
        let include = ["/amount", "/to/iban"];
        let base = of(r#"{"amount":1,"to":{"iban":"X"}}"#, &include, &[]);
        let same = r#"{"note":"n","to":{"bic":"B","iban":"X"},"amount":1.0}"#;
        assert_eq!(of(same, &include, &[]), base);
        for other in [
            r#"{"amount":2,"to":{"iban":"X"}}"#,
            r#"{"amount":"1","to":{"iban":"X"}}"#,
            r#"{"amount":1,"to":{"iban":"Y"}}"#,
            r#"{"amount":1,"to":{}}"#,
            r#"{"amount":1}"#,
            r#"{"to":{"iban":"X"}}"#,
        ] {
            assert_ne!(of(other, &include, &[]), base, "{other}");
        }
    }

    #[test]
    fn absent_is_not_null() {
        let include = ["/a", "/b"];
        assert_ne!(
            of(r#"{"a":1}"#, &include, &[]),
            of(r#"{"a":1,"b":null}"#, &include, &[])
        );
    }

    #[test]
    fn a_list_that_finds_nothing_binds_the_whole() {
        for include in [&["/x"][..], &["x"], &["/amount", "x"], &["/~"]] {
            assert_ne!(
                of(r#"{"amount":1,"a":1}"#, include, &[]),
                of(r#"{"amount":1,"a":2}"#, include, &[]),
                "{include:?}"
            );
        }
    }

    #[test]
    fn exclude_works_inside_include() {
        let of = |text| of(text, &["/a"], &["/a/t"]);
        assert_eq!(of(r#"{"a":{"t":1,"v":2}}"#), of(r#"{"a":{"t":9,"v":2}}"#));
        assert_ne!(of(r#"{"a":{"t":1,"v":2}}"#), of(r#"{"a":{"t":1,"v":3}}"#));
    }
}
