//! What is let through unread, and what is refused because it hides a write.

use crate::http::Headers;

/// Headers by which frameworks let a request name another method, and the query parameter that some
/// take for the same.
const OVERRIDES: [&str; 3] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
];
const OVERRIDE_PARAMETER: &str = "_method";

/// GET, HEAD, OPTIONS and TRACE (RFC 9110 §9.2.1), in upper case as methods are.
#[must_use]
pub fn is_safe_method(method: &[u8]) -> bool {
    matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE")
}

/// What makes the request's method another than it says: the header's or parameter's name. An
/// underscore in a header name counts as a hyphen, since CGI-style servers cannot tell them apart.
#[must_use]
pub fn method_override(headers: &Headers) -> Option<&'static str> {
    let by_header = headers
        .lines()
        .iter()
        // Most names do not start so; the rest of the work is for those that do.
        .filter(|(name, _)| name.first() == Some(&b'x'))
        .find_map(|(name, _)| OVERRIDES.into_iter().find(|o| same_name(o, name)));
    by_header.or_else(|| {
        let query = headers.split_path().1?;
        query
            .split(|b| matches!(b, b'&' | b';'))
            .filter_map(|pair| pair.split(|b| *b == b'=').next())
            .any(|name| super::path::decode(name) == OVERRIDE_PARAMETER.as_bytes())
            .then_some(OVERRIDE_PARAMETER)
    })
}

fn same_name(known: &str, name: &[u8]) -> bool {
    let dashed = name.iter().map(|b| if *b == b'_' { b'-' } else { *b });
    known.len() == name.len() && known.bytes().eq(dashed)
}

/// Whether the request is none that the filter can claim: CONNECT, a protocol upgrade, gRPC (and
/// gRPC-Web, Connect's gRPC form among them).
///
/// An upgrade is a GET with `Upgrade` and a `Connection` that names it (RFC 9110 §7.8), or an
/// extended CONNECT, which Envoy also shows as such a GET. A POST that carries `Upgrade`, as some
/// clients send to offer HTTP/2, is a write like any other and does not pass by it.
///
/// A content type is the client's word: on a route that a rule covers, count what passes here.
#[must_use]
pub fn passes_untouched(headers: &Headers) -> bool {
    let method = headers.method();
    method == b"CONNECT"
        || headers.has(":protocol")
        || (method == b"GET" && is_upgrade(headers))
        || headers.first("content-type").is_some_and(is_grpc)
}

fn is_upgrade(headers: &Headers) -> bool {
    headers.has("upgrade")
        && headers
            .all("connection")
            .flat_map(|line| line.split(|b| *b == b','))
            .any(|token| token.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
}

fn is_grpc(content_type: &[u8]) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    content_type
        .trim_ascii()
        .split_at_checked(GRPC.len())
        .is_some_and(|(start, rest)| {
            start.eq_ignore_ascii_case(GRPC)
                && matches!(rest.first(), None | Some(b'+' | b'-' | b';' | b' ' | b'\t'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn headers(lines: &[(&str, &str)]) -> Headers {
        lines.iter().copied().collect()
    }

    #[test]
    fn overrides_are_found_however_they_are_spelt() {
        for name in [
            "X-HTTP-Method-Override",
            "x-http-method",
            "X-Method-Override",
            "x_http_method_override",
        ] {
            let found = method_override(&headers(&[("accept", "*/*"), (name, "DELETE")]));
            assert!(found.is_some(), "{name}");
        }
        for path in ["/a?_method=DELETE", "/a?b=1&%5Fmethod=PUT", "/a?_method"] {
            assert_eq!(
                method_override(&headers(&[(":path", path)])),
                Some("_method"),
                "{path}"
            );
        }
        for path in ["/a", "/_method=x", "/a?x_method=1&method=2"] {
            assert_eq!(
                method_override(&headers(&[(":path", path), ("x-http-methods", "a")])),
                None
            );
        }
    }

    #[test]
    fn tunnels_upgrades_and_grpc_pass() {
        for lines in [
            &[(":method", "CONNECT")][..],
            &[(":method", "CONNECT"), (":protocol", "websocket")],
            &[
                (":method", "GET"),
                ("upgrade", "websocket"),
                ("connection", "keep-alive, Upgrade"),
            ],
            &[(":method", "POST"), ("content-type", "application/grpc")],
            &[
                (":method", "POST"),
                ("content-type", "Application/gRPC+proto; a=b"),
            ],
            &[
                (":method", "POST"),
                ("content-type", "application/grpc-web-text"),
            ],
        ] {
            assert!(passes_untouched(&headers(lines)), "{lines:?}");
        }
        for lines in [
            &[(":method", "POST"), ("content-type", "application/json")][..],
            &[(":method", "POST"), ("content-type", "application/grpcx")],
            &[
                (":method", "POST"),
                ("upgrade", "h2c"),
                ("connection", "upgrade"),
            ],
            &[(":method", "GET"), ("upgrade", "websocket")],
            &[(":method", "GET"), ("connection", "upgrade")],
        ] {
            assert!(!passes_untouched(&headers(lines)), "{lines:?}");
        }
    }

    #[test]
    fn safe_methods_are_four() {
        assert!(is_safe_method(b"GET") && is_safe_method(b"TRACE"));
        for not in ["POST", "CONNECT", "get", ""] {
            assert!(!is_safe_method(not.as_bytes()), "{not}");
        }
    }
}
