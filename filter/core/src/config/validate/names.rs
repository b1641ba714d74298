//! Names and other texts with a syntax of their own: header fields, pointers, ids, hosts, methods.

use super::Wrong;
use crate::config::error::quote;

fn wrong<T>(problem: impl Into<String>, remedy: impl Into<String>) -> Result<T, Wrong> {
    Err((problem.into(), remedy.into()))
}

/// Headers that the filter itself sets, strips or reads.
const OWN: [&str; 8] = [
    "idempotent-replayed",
    "idempotency-status",
    "idempotency-operation",
    "idempotency-result",
    "idempotency-expires",
    "idempotency-first-response",
    "idempotency-policy",
    "x-idempo-",
];

/// RFC 9110 §5.6.2 `tchar`.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// A header that an operator may name, whatever for.
pub(super) fn header(name: &str) -> Result<(), Wrong> {
    let lower = name.to_ascii_lowercase();
    if name.starts_with(':') {
        return wrong(
            format!("{} is a pseudo header", quote(name)),
            "name an ordinary header",
        );
    }
    if !is_token(name) || name.len() > 256 {
        return wrong(
            format!("{} is not a header name", quote(name)),
            "write letters, digits and hyphens, such as \"x-tenant-id\"",
        );
    }
    if lower == "host" {
        return wrong(
            "\"host\" never reaches a filter: Envoy carries it as :authority",
            "name another header",
        );
    }
    if OWN
        .iter()
        .any(|own| lower == *own || (own.ends_with('-') && lower.starts_with(own)))
    {
        return wrong(
            format!("{} belongs to the filter itself", quote(name)),
            "name another header",
        );
    }
    Ok(())
}

/// RFC 6901: empty for the whole document, else `/`-separated with `~0` and `~1` as only escapes.
pub(super) fn pointer(text: &str) -> Result<(), Wrong> {
    if !text.is_empty() && !text.starts_with('/') {
        return wrong(
            format!("{} is not a JSON Pointer", quote(text)),
            format!(
                "write {}",
                quote(&format!(
                    "/{}",
                    text.trim_start_matches("$.").replace('.', "/")
                ))
            ),
        );
    }
    let mut after_tilde = text.split('~').skip(1);
    if !after_tilde.all(|rest| rest.starts_with(['0', '1'])) {
        return wrong(
            format!("{} has a ~ that is no escape", quote(text)),
            "write ~0 for ~ and ~1 for / (RFC 6901)",
        );
    }
    if text.len() > 512 {
        return wrong("is longer than 512 octets", "point less deep");
    }
    Ok(())
}

/// A pointer to a member, not to the whole document.
pub(super) fn member_pointer(text: &str) -> Result<(), Wrong> {
    if text.is_empty() {
        return wrong(
            "points to the whole body",
            "point to a member, such as \"/idempotency_key\"",
        );
    }
    pointer(text)
}

/// `[a-z0-9][a-z0-9_.-]{0,63}`.
pub(super) fn route_id(id: &str) -> Result<(), Wrong> {
    let first = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let fits = id.len() <= 64
        && id.bytes().next().is_some_and(first)
        && id
            .bytes()
            .all(|b| first(b) || matches!(b, b'_' | b'.' | b'-'));
    if fits {
        return Ok(());
    }
    wrong(
        format!("{} is not a route id", quote(id)),
        "write 1 to 64 small letters, digits, _, . or -, with a letter or digit first",
    )
}

/// Visible ASCII, for what is part of identities and of signed texts.
pub(super) fn visible(text: &str, max: usize) -> Result<(), Wrong> {
    if !text.is_empty() && text.len() <= max && text.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(());
    }
    let problem = if text.is_empty() {
        "is empty".to_owned()
    } else {
        format!(
            "{} is not visible ASCII of {max} characters at most",
            quote(text)
        )
    };
    wrong(
        problem,
        format!("write 1 to {max} visible ASCII characters without spaces"),
    )
}

/// What may stand for a host, with or without port (RFC 9110 §4.2.3: nobody's name in front).
pub(super) fn authority(text: &str) -> Result<(), Wrong> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~:[]".contains(&b);
    if (1..=255).contains(&text.len()) && text.bytes().all(plain) {
        return Ok(());
    }
    // The text is not shown: there may be a password in it.
    wrong(
        "is not a host, with or without port",
        "write a name such as redis-webdis or redis.internal:7379, without scheme, user or path",
    )
}

/// What the keys of a store begin with. A brace would move the hash tag.
pub(super) fn prefix(text: &str) -> Result<(), Wrong> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if (1..=32).contains(&text.len()) && text.bytes().all(plain) {
        return Ok(());
    }
    wrong(
        format!("{} cannot begin a key", quote(text)),
        "write 1 to 32 letters, digits, - and _",
    )
}

/// A user of the store. The text is never shown: a password may stand beside it.
pub(super) fn user(name: &str) -> Result<(), Wrong> {
    visible(name, 128).map_err(|_| {
        (
            "is not the name of a user".into(),
            "write 1 to 128 visible ASCII characters without spaces, and the password into an environment variable".into(),
        )
    })
}

/// The name of an environment variable. The text is never shown: it might be the secret itself.
pub(super) fn env_name(name: &str) -> Result<(), Wrong> {
    let starts = name
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    let fits = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if starts && fits && name.len() <= 128 {
        return Ok(());
    }
    wrong(
        "is not the name of an environment variable",
        "write a name such as IDEMPO_SECRET, and put the secret into that variable",
    )
}

/// A method of requests that write.
pub(super) fn method(method: &str) -> Result<(), Wrong> {
    let upper = method.to_ascii_uppercase();
    if !is_token(method) || method.len() > 32 {
        return wrong(
            format!("{} is not a method", quote(method)),
            "write one such as POST",
        );
    }
    match upper.as_str() {
        "GET" | "HEAD" | "OPTIONS" | "TRACE" => wrong(
            format!("{upper} is a safe method and always passes"),
            "name methods that write, such as POST or PATCH",
        ),
        "CONNECT" => wrong(
            "CONNECT opens a tunnel and always passes",
            "name methods that write, such as POST or PATCH",
        ),
        _ if upper != method => wrong(
            format!(
                "{} is not in capitals, and methods are compared exactly",
                quote(method)
            ),
            format!("write {}", quote(&upper)),
        ),
        _ => Ok(()),
    }
}

/// A host without port, in lower case; `*.` may lead.
pub(super) fn host(host: &str) -> Result<(), Wrong> {
    let lower = host.to_ascii_lowercase();
    if lower != host {
        return wrong(
            format!("{} is not in lower case", quote(host)),
            format!("write {}", quote(&lower)),
        );
    }
    if let Some((_, rest)) = host.split_once("://") {
        return wrong(
            format!("{} has a scheme", quote(host)),
            format!("write {}", quote(rest)),
        );
    }
    let is_ip6 = host
        .strip_prefix('[')
        .and_then(|h| h.strip_suffix(']'))
        .is_some_and(|h| h.parse::<std::net::Ipv6Addr>().is_ok());
    if is_ip6 {
        return Ok(());
    }
    if let Some((name, _)) = host.rsplit_once(':') {
        return wrong(
            format!("{} has a port", quote(host)),
            format!("write {}; the port is not compared", quote(name)),
        );
    }
    let labels = host.strip_prefix("*.").unwrap_or(host);
    let fits = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    if host.len() <= 253 && labels.split('.').all(fits) {
        return Ok(());
    }
    wrong(
        format!("{} is not a host", quote(host)),
        "write one such as \"api.example.com\" or \"*.example.com\"",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn headers() {
        for name in [
            "idempotency-key",
            "X-Tenant-Id",
            "x_idempo",
            "idempotency-status-x",
        ] {
            assert!(header(name).is_ok(), "{name}");
        }
        for name in [
            "",
            ":path",
            "Host",
            "a b",
            "a:b",
            "é",
            "x-idempo-operation",
            "X-Idempo-Foo",
            "Idempotent-Replayed",
        ] {
            assert!(header(name).is_err(), "{name}");
        }
    }

    #[test]
    fn pointers() {
        for text in ["", "/", "/a", "/a~0b~1c", "/a/0", "/é"] {
            assert!(pointer(text).is_ok(), "{text}");
        }
        for text in ["a", "/a~", "/a~2", "/~"] {
            assert!(pointer(text).is_err(), "{text}");
        }
        assert_eq!(pointer("$.a.b").unwrap_err().1, "write \"/a/b\"");
        assert!(member_pointer("").is_err());
    }

    #[test]
    fn ids() {
        for id in ["a", "0", "v1.charges_x-y", &"a".repeat(64)] {
            assert!(route_id(id).is_ok(), "{id}");
        }
        for id in ["", "A", "-a", ".a", "a b", "a/b", "é", &"a".repeat(65)] {
            assert!(route_id(id).is_err(), "{id}");
        }
    }

    #[test]
    fn hosts() {
        for name in ["a", "api.example.com", "*.example.com", "[::1]", "10.0.0.1"] {
            assert!(host(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "*",
            "*.",
            "a.*.b",
            "A.example",
            "a:80",
            "http://a",
            "a.",
            ".a",
            "a b",
            "[x]",
        ] {
            assert!(host(name).is_err(), "{name}");
        }
        assert!(host("a:80").unwrap_err().1.contains("\"a\""));
    }

    #[test]
    fn methods() {
        assert!(method("POST").is_ok());
        assert!(method("PURGE").is_ok());
        assert_eq!(method("post").unwrap_err().1, "write \"POST\"");
        for name in [
            "GET", "get", "HEAD", "OPTIONS", "TRACE", "CONNECT", "", "P OST",
        ] {
            assert!(method(name).is_err(), "{name}");
        }
    }
}
