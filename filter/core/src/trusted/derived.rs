//! `x-idempo-*`: what the upstream is told about an attempt.
//!
//! Every value is visible ASCII. Octets that are not, and `%`, are percent-encoded (RFC 3986
//! §2.1), so that two different values never look the same; the usual tenant or route id comes
//! through unchanged.
//!
//! `x-idempo-tenant` carries the tenant itself, not a digest: the upstream has to act on it, it
//! learned it from the request anyway, and a digest that it must look up is a reason to trust the
//! client's header instead. Whoever logs these headers at the upstream logs tenants; the filter's
//! own logs have the digest. `x-idempo-claimed-at` is Unix milliseconds of the store's clock, the
//! unit of every other time here, so that receivers compare numbers and parse no dates.

use super::signature::{SIGNATURE_HEADER, Signer};
use super::visible;
use crate::http::Line;
use crate::ids::{OperationId, hex_of};
use sha2::{Digest as _, Sha256};

/// The longest attempt id that is passed on, octets. Trace ids are 16 to 64 characters.
pub const ATTEMPT_MAX: usize = 128;

/// What the filter knows about an attempt.
#[derive(Clone, Copy)]
pub struct Derived<'a> {
    /// The operation.
    pub operation: &'a OperationId,
    /// The attempt's trace id as the client influenced it; cut at [`ATTEMPT_MAX`].
    pub attempt: &'a str,
    /// Rises with every re-execution: receivers can fence by it.
    pub generation: u64,
    /// The tenant's value, never cut: two tenants must not become one. Left out where empty.
    pub tenant: &'a [u8],
    /// The rule's id.
    pub route: &'a str,
    /// [`key_hash`] of the key.
    pub key_hash: &'a [u8; 32],
    /// When the claim was made, Unix ms of the store's clock.
    pub claimed_at_unix_ms: u64,
    /// This proxy's name, such as Envoy's node id. Left out where empty.
    pub proxy: &'a str,
}

/// SHA-256 of the canonical key: an upstream that knows a key can recognise it, nobody can read it
/// back.
#[must_use]
pub fn key_hash(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// An attempt id of at most [`ATTEMPT_MAX`] octets, cut between characters.
#[must_use]
pub fn bounded_attempt(attempt: &str) -> &str {
    let end = attempt.floor_char_boundary(ATTEMPT_MAX);
    attempt.get(..end).unwrap_or_default()
}

/// The header lines for the upstream; the last is the signature where there is a signer.
///
/// `method` and `path` (with its query) are those of the request as it leaves the filter.
#[must_use]
pub fn lines(
    derived: &Derived<'_>,
    signer: Option<&Signer>,
    method: &[u8],
    path: &[u8],
    now_unix_s: u64,
) -> Vec<Line> {
    let mut lines: Vec<Line> = [
        ("operation", derived.operation.hex().into_bytes()),
        (
            "attempt",
            visible(bounded_attempt(derived.attempt).as_bytes()),
        ),
        ("generation", derived.generation.to_string().into_bytes()),
        ("tenant", visible(derived.tenant)),
        ("route", visible(derived.route.as_bytes())),
        ("key-hash", hex_of(derived.key_hash).into_bytes()),
        (
            "claimed-at",
            derived.claimed_at_unix_ms.to_string().into_bytes(),
        ),
        ("proxy", visible(derived.proxy.as_bytes())),
    ]
    .into_iter()
    // Some proxies drop lines without a value, and the signature would fail for it.
    .filter(|(_, value)| !value.is_empty())
    .map(|(name, value)| (format!("x-idempo-{name}").into_bytes(), value))
    .collect();
    if let Some(signer) = signer {
        let signature = signer.sign(&lines, method, path, now_unix_s);
        lines.push((SIGNATURE_HEADER.into(), signature.into_bytes()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::is_derived;
    use super::*;
    use crate::http::Headers;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn every_value_is_visible_ascii_whatever_came_in() {
        let attempt = "é\r\nx-evil: 1".repeat(40);
        let written = lines(
            &Derived {
                operation: &OperationId([1; 32]),
                attempt: &attempt,
                generation: u64::MAX,
                tenant: b"acme\xff\0 50%",
                route: "charges\n",
                key_hash: &key_hash(b"k"),
                claimed_at_unix_ms: u64::MAX,
                proxy: "envoy 1",
            },
            None,
            b"POST",
            b"/",
            0,
        );
        assert_eq!(written.len(), 8);
        for (name, value) in &written {
            assert!(is_derived(name));
            assert!(value.iter().all(u8::is_ascii_graphic), "{value:?}");
            assert!(value.len() <= 3 * ATTEMPT_MAX);
        }
        let written = Headers::new(written);
        assert_eq!(
            written.first_str("x-idempo-tenant"),
            Some("acme%FF%00%2050%25")
        );
        assert_eq!(written.first_str("x-idempo-route"), Some("charges%0A"));
        assert_eq!(
            written.first_str("x-idempo-generation"),
            Some("18446744073709551615")
        );
    }

    #[test]
    fn the_usual_values_stay_as_they_are_and_the_empty_are_left_out() {
        let written = Headers::new(lines(
            &Derived {
                operation: &OperationId([0; 32]),
                attempt: "7b0e3c1a-4a52-4c55-9f0e-0d8a2f6f9d11",
                generation: 1,
                tenant: b"",
                route: "charges/v1:post",
                key_hash: &key_hash(b""),
                claimed_at_unix_ms: 1_700_000_000_123,
                proxy: "",
            },
            None,
            b"POST",
            b"/",
            0,
        ));
        assert_eq!(written.first_str("x-idempo-route"), Some("charges/v1:post"));
        assert_eq!(
            written.first_str("x-idempo-attempt"),
            Some("7b0e3c1a-4a52-4c55-9f0e-0d8a2f6f9d11")
        );
        assert_eq!(
            written.first_str("x-idempo-claimed-at"),
            Some("1700000000123")
        );
        assert_eq!(
            written.first_str("x-idempo-key-hash"),
            Some("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
        );
        assert!(!written.has("x-idempo-tenant") && !written.has("x-idempo-proxy"));
        assert!(!written.has(SIGNATURE_HEADER));
    }

    #[test]
    fn long_attempts_are_cut_between_characters() {
        let attempt = format!("{}é", "a".repeat(ATTEMPT_MAX - 1));
        assert_eq!(bounded_attempt(&attempt), "a".repeat(ATTEMPT_MAX - 1));
        assert_eq!(bounded_attempt("short"), "short");
    }
}
