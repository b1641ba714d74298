//! One spelling per path (RFC 3986 §6.2.2, with slashes merged), so that rules compare text.
//!
//! Unreserved characters are decoded, all other escapes are put into upper case, octets that may
//! not stand in a path are escaped, repeated slashes are merged and dot segments resolved. Case and
//! `;parameters` are kept. What servers are known to read in different ways is an error.

use std::borrow::Cow;

/// Why a path has no single normal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not start with a slash.
    #[error("the path does not start with a slash")]
    NotAbsolute,
    /// A percent sign without two hex digits.
    #[error("the path holds a percent sign that starts no escape")]
    InvalidEscape,
    /// `%2F` or `%5C`: some servers decode them before they split the path.
    #[error("the path holds an escaped slash or backslash")]
    EscapedSlash,
    /// A backslash: some servers take it as a slash.
    #[error("the path holds a backslash")]
    Backslash,
    /// A control character or white space, plain or escaped; NUL among them.
    #[error("the path holds a control character or a space")]
    Control,
    /// `#` or `?` inside the path.
    #[error("the path holds a query or fragment mark")]
    Delimiter,
    /// Empty segments before `..`: merging slashes before or after resolving dots gives two paths.
    #[error("the path mixes empty segments and dot segments")]
    EmptySegments,
    /// Normal in itself, but a server that decodes more than RFC 3986 allows would take it to an
    /// earlier rule's resource.
    #[error("the path can be read as another one")]
    Ambiguous,
}

/// The normal form of a path without its query. Allocates only where something must change or be
/// decoded.
///
/// # Errors
/// See [`PathError`]; never `Ambiguous`, which depends on the rules.
pub fn normalise_path(raw: &[u8]) -> Result<Cow<'_, [u8]>, PathError> {
    if is_plainly_normal(raw) {
        return Ok(Cow::Borrowed(raw));
    }
    if raw.first() != Some(&b'/') {
        return Err(PathError::NotAbsolute);
    }
    let (escaped, flaw) = normalise_escapes(raw);
    if let Some(flaw) = flaw {
        return Err(flaw);
    }
    let merged = resolve(&escaped, SlashOrder::MergeFirst);
    if merged != resolve(&escaped, SlashOrder::DotsFirst) {
        return Err(PathError::EmptySegments);
    }
    let ends_open = [&b"/"[..], b"/.", b"/.."]
        .iter()
        .any(|end| escaped.ends_with(end));
    let mut out = Vec::with_capacity(escaped.len());
    for segment in &merged {
        out.push(b'/');
        out.extend_from_slice(segment);
    }
    if ends_open || out.is_empty() {
        out.push(b'/');
    }
    Ok(Cow::Owned(out))
}

/// Whether nothing could need changing: one pass, no allocation. False for any escape.
fn is_plainly_normal(path: &[u8]) -> bool {
    let mut before = None;
    for b in path {
        let fits = match (before, b) {
            (None, b'/') => true,
            // After a slash: no empty segment, and none that starts with a dot.
            (Some(b'/'), b'/' | b'.') => false,
            (Some(_), b'/') => true,
            (Some(_), b) => is_path_octet(*b),
            (None, _) => false,
        };
        if !fits {
            return false;
        }
        before = Some(*b);
    }
    before.is_some()
}

const fn is_unreserved(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~')
}

/// `pchar` of RFC 3986 §3.3 without escapes.
const fn is_path_octet(b: u8) -> bool {
    is_unreserved(b)
        || matches!(
            b,
            b'!' | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b','
                | b';'
                | b'='
                | b':'
                | b'@'
        )
}

/// Reads one octet, escaped or not: its value, whether it was escaped, and the rest.
fn next_octet(path: &[u8]) -> Option<(u8, bool, &[u8])> {
    match path {
        [b'%', high, low, rest @ ..] => match (hex_digit(*high), hex_digit(*low)) {
            (Some(h), Some(l)) => Some((h << 4 | l, true, rest)),
            _ => path.split_first().map(|(b, rest)| (*b, false, rest)),
        },
        _ => path.split_first().map(|(b, rest)| (*b, false, rest)),
    }
}

fn hex_digit(b: u8) -> Option<u8> {
    (b as char).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

fn push_escape(out: &mut Vec<u8>, b: u8) {
    const DIGITS: [u8; 16] = *b"0123456789ABCDEF";
    let digit = |n: u8| DIGITS.get(usize::from(n)).copied().unwrap_or(b'0');
    out.extend([b'%', digit(b >> 4), digit(b & 15)]);
}

/// Normal escapes, and the first thing that has no normal form; the octets are complete either way.
pub(super) fn normalise_escapes(path: &[u8]) -> (Vec<u8>, Option<PathError>) {
    let mut out = Vec::with_capacity(path.len());
    let mut flaw = None;
    let mut rest = path;
    while let Some((b, escaped, next)) = next_octet(rest) {
        rest = next;
        let found = match (b, escaped) {
            (b'/' | b'\\', true) => Some(PathError::EscapedSlash),
            (b'\\', false) => Some(PathError::Backslash),
            (b' ', false) => Some(PathError::Control),
            (b, _) if b.is_ascii_control() => Some(PathError::Control),
            (b'%', false) => Some(PathError::InvalidEscape),
            (b'?' | b'#', false) => Some(PathError::Delimiter),
            _ => None,
        };
        flaw = flaw.or(found);
        let plain = if escaped {
            is_unreserved(b)
        } else {
            is_path_octet(b) || b == b'/'
        };
        if plain {
            out.push(b);
        } else {
            push_escape(&mut out, b);
        }
    }
    (out, flaw)
}

/// Decodes every escape once; what is no escape stays.
pub(super) fn decode(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((b, _, next)) = next_octet(rest) {
        rest = next;
        out.push(b);
    }
    out
}

/// In which order slashes are merged and dots resolved: servers do either.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SlashOrder {
    MergeFirst,
    DotsFirst,
}

/// The segments that remain, none of them empty or a dot segment.
pub(super) fn resolve(path: &[u8], order: SlashOrder) -> Vec<&[u8]> {
    let mut out: Vec<&[u8]> = Vec::new();
    // What precedes the first slash is empty, and not a segment.
    for segment in path.split(|b| *b == b'/').skip(1) {
        match segment {
            b"" if order == SlashOrder::MergeFirst => {}
            b"." => {}
            b".." => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out.retain(|s| !s.is_empty());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn normal(raw: &str) -> String {
        String::from_utf8(normalise_path(raw.as_bytes()).unwrap().into_owned()).unwrap()
    }

    #[test]
    fn one_spelling_per_path() {
        for (raw, want) in [
            ("/", "/"),
            ("//", "/"),
            ("/v1/charges", "/v1/charges"),
            ("/v1/%63harges", "/v1/charges"),
            ("//v1///charges", "/v1/charges"),
            ("/v1/./charges", "/v1/charges"),
            ("/v1/x/../charges", "/v1/charges"),
            ("/v1/x/%2e%2E/charges", "/v1/charges"),
            ("/../../v1/charges", "/v1/charges"),
            ("/v1/charges/", "/v1/charges/"),
            ("/v1/charges//", "/v1/charges/"),
            ("/v1/charges/.", "/v1/charges/"),
            ("/v1/charges/x/..", "/v1/charges/"),
            ("/v1/..", "/"),
            ("/a%3ab", "/a%3Ab"),
            ("/a%c3%a9", "/a%C3%A9"),
            ("/aé", "/a%C3%A9"),
            ("/a\"<>^`{|}", "/a%22%3C%3E%5E%60%7B%7C%7D"),
            ("/a;v=1/.b/..c/...", "/a;v=1/.b/..c/..."),
            ("/A%20B", "/A%20B"),
            ("/%2563", "/%2563"),
        ] {
            assert_eq!(normal(raw), want, "{raw}");
        }
    }

    #[test]
    fn what_has_no_single_form_is_an_error() {
        for (raw, want) in [
            ("", PathError::NotAbsolute),
            ("*", PathError::NotAbsolute),
            ("v1/charges", PathError::NotAbsolute),
            ("http://h/v1", PathError::NotAbsolute),
            ("/v1%2fcharges", PathError::EscapedSlash),
            ("/v1%5Ccharges", PathError::EscapedSlash),
            ("/v1\\charges", PathError::Backslash),
            ("/v1/%zz", PathError::InvalidEscape),
            ("/v1/%", PathError::InvalidEscape),
            ("/v1/%6", PathError::InvalidEscape),
            ("/v1/charges%00", PathError::Control),
            ("/v1/charges%0a", PathError::Control),
            ("/v1/charges\0", PathError::Control),
            ("/v1/char ges", PathError::Control),
            ("/v1/charges#x", PathError::Delimiter),
            ("/v1/charges?x", PathError::Delimiter),
            ("/v1/x//../charges", PathError::EmptySegments),
        ] {
            assert_eq!(normalise_path(raw.as_bytes()), Err(want), "{raw}");
        }
    }

    #[test]
    fn empty_and_dot_segments_pass_where_the_order_is_no_matter() {
        assert_eq!(normal("//v1/x/../charges"), "/v1/charges");
        assert_eq!(normal("/v1/x/..//charges"), "/v1/charges");
    }

    #[test]
    fn a_normal_path_is_not_copied() {
        for path in ["/", "/v1/charges", "/v1/orders/a.b;c=1/x/"] {
            assert!(
                matches!(normalise_path(path.as_bytes()), Ok(Cow::Borrowed(_))),
                "{path}"
            );
        }
    }

    #[cfg(not(target_arch = "wasm32"))]
    mod native {
        use super::*;
        use proptest::prelude::*;

        fn check(raw: &[u8]) -> Result<(), TestCaseError> {
            let Ok(once) = normalise_path(raw) else {
                return Ok(());
            };
            prop_assert_eq!(normalise_path(&once), Ok(once.clone()));
            let text = std::str::from_utf8(&once).unwrap();
            prop_assert!(text.starts_with('/'));
            for banned in ["//", "/./", "/../"] {
                prop_assert!(!text.contains(banned), "{}", text);
            }
            prop_assert!(!text.ends_with("/.") && !text.ends_with("/.."));
            for (at, _) in text.match_indices('%') {
                let digits = &text[at + 1..at + 3];
                prop_assert_eq!(digits, digits.to_uppercase());
                prop_assert!(!is_unreserved(u8::from_str_radix(digits, 16).unwrap()));
            }
            Ok(())
        }

        proptest! {
            #[test]
            fn normal_forms_are_normal(raw in "(/|//|\\.|\\.\\.|%2[eEfF5]|%6[1-4]|%[cC]3|%zz|[a-c;:{ é])*") {
                check(raw.as_bytes())?;
                check(format!("/{raw}").as_bytes())?;
            }

            #[test]
            fn any_octets_are_normalised_without_panic(raw: Vec<u8>) {
                check(&raw)?;
            }
        }
    }
}
