//! Names that a client may not use.
//!
//! Many upstreams (CGI, WSGI, Rack, PHP) turn `-` and `_` into the same variable, and Envoy lets
//! names with underscores pass by default, so `x_idempo_tenant` would be read as our header there.
//! All comparisons here therefore take `_` for `-` and ignore case.

use super::markers::is_marker;

/// Whether the filter removes this header from a client's request on a claimed route: derived
/// headers, answer markers, and the router's knobs. On a matched but unclaimed route only
/// [`is_derived`] applies.
#[must_use]
pub fn is_reserved_request_header(name: &[u8]) -> bool {
    is_derived(name) || is_marker(name) || is_router_control(name)
}

/// Whether this is one of the `x-idempo-*` headers that upstreams trust.
#[must_use]
pub fn is_derived(name: &[u8]) -> bool {
    starts(name, b"x-idempo-")
}

/// Whether this request header could make Envoy's router send twice, or run on another clock than
/// the filter.
#[must_use]
pub fn is_router_control(name: &[u8]) -> bool {
    is_router_retry_control(name) || is_router_timeout_control(name)
}

/// Router headers that cause, steer or multiply retries: `x-envoy-retry-on`,
/// `x-envoy-retry-grpc-on`, `x-envoy-max-retries`, `x-envoy-retriable-status-codes`,
/// `x-envoy-retriable-header-names`, `x-envoy-hedge-on-per-try-timeout` (two in flight at once),
/// `x-envoy-upstream-rq-per-try-timeout-ms`. Whole families by prefix, so that a later sibling is
/// caught as well.
#[must_use]
pub fn is_router_retry_control(name: &[u8]) -> bool {
    starts(name, b"x-envoy-retry-")
        || starts(name, b"x-envoy-max-retries")
        || starts(name, b"x-envoy-retriable-")
        || starts(name, b"x-envoy-hedge-")
        || starts(name, b"x-envoy-upstream-rq-per-try-")
}

/// Router headers about time. `x-envoy-upstream-rq-timeout-ms` and, where the router respects it,
/// `x-envoy-expected-rq-timeout-ms` would replace the time-out that the lease is built on;
/// `x-envoy-upstream-stream-duration-ms` would cut the exchange off with 408;
/// `x-envoy-upstream-rq-timeout-alt-response` turns a time-out into 204, which reads as success.
///
/// Not taken away, since they neither send again nor change what the filter sees:
/// `x-envoy-upstream-alt-stat-name`, `x-envoy-decorator-operation`, `x-envoy-force-trace`.
#[must_use]
pub fn is_router_timeout_control(name: &[u8]) -> bool {
    starts(name, b"x-envoy-upstream-rq-timeout-")
        || starts(name, b"x-envoy-expected-rq-timeout-")
        || starts(name, b"x-envoy-upstream-stream-duration-")
}

fn fold(octet: u8) -> u8 {
    match octet {
        b'_' => b'-',
        other => other.to_ascii_lowercase(),
    }
}

fn starts(name: &[u8], prefix: &[u8]) -> bool {
    name.len() >= prefix.len() && name.iter().zip(prefix).all(|(n, p)| fold(*n) == *p)
}

/// Whether `name` is `expected` (lower case, with `-`), by the rule of this module.
pub(super) fn is(name: &[u8], expected: &str) -> bool {
    name.len() == expected.len() && starts(name, expected.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn what_a_client_may_not_say() {
        for name in [
            "x-idempo-operation",
            "X-Idempo-Anything",
            "x_idempo_tenant",
            "x-idempo_tenant",
            "x-idempo-",
            "idempotent-replayed",
            "Idempotency-Status",
            "idempotency_result",
            "idempotency-policy",
            "x-envoy-retry-on",
            "x-envoy-retry-grpc-on",
            "x-envoy-max-retries",
            "x-envoy-retriable-status-codes",
            "x-envoy-retriable-header-names",
            "x-envoy-hedge-on-per-try-timeout",
            "x-envoy-upstream-rq-per-try-timeout-ms",
            "x-envoy-upstream-rq-timeout-ms",
            "x-envoy-upstream-rq-timeout-alt-response",
            "x-envoy-expected-rq-timeout-ms",
            "x-envoy-upstream-stream-duration-ms",
            "X-ENVOY-MAX-RETRIES",
        ] {
            assert!(is_reserved_request_header(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn what_a_client_may_say() {
        for name in [
            "idempotency-key",
            "x-request-id",
            "x-idempo",
            "x-idempotency-key",
            "xx-idempo-operation",
            "x-envoy-upstream-alt-stat-name",
            "x-envoy-decorator-operation",
            "x-envoy-internal",
            "x-envoy-original-path",
            "retry-after",
            ":path",
            "",
        ] {
            assert!(!is_reserved_request_header(name.as_bytes()), "{name}");
        }
        assert!(!is_reserved_request_header(b"\xff\xfe"));
    }

    #[test]
    fn retries_and_clocks_are_told_apart() {
        assert!(is_router_retry_control(
            b"x-envoy-upstream-rq-per-try-timeout-ms"
        ));
        assert!(!is_router_timeout_control(
            b"x-envoy-upstream-rq-per-try-timeout-ms"
        ));
        assert!(is_router_timeout_control(b"x-envoy-upstream-rq-timeout-ms"));
        assert!(!is_router_retry_control(b"x-envoy-upstream-rq-timeout-ms"));
    }
}
