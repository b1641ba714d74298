//! What the two passes of a detached attempt tell each other.
//!
//! The outer pass sends the request through a listener of the same Envoy with `x-idempo-detached`
//! among the signed headers; the inner pass recognises it by that, and says in `x-idempo-inner` what
//! only its stream knows of the answer: where it came from, and how often the router tried. Both
//! headers live between the two passes only. An answer without the report is not from an inner
//! pass: Envoy made it on the way there, and the request may have been sent or not.

use super::visible;
use percent_encoding::percent_decode;

/// The request header of the outer pass, in lower case. Worth something only where it is signed.
pub const DETACHED_HEADER: &str = "x-idempo-detached";

/// The value of [`DETACHED_HEADER`] that asks the inner pass to answer by itself.
pub const PROBE: &str = "probe";

/// Where probes go. No upstream sees them if the listener is set up as it should be.
pub const PROBE_PATH: &str = "/_idempo/loopback";

/// The response header of the inner pass, in lower case.
pub const INNER_HEADER: &str = "x-idempo-inner";

/// Envoy's details are short; anything much longer is not ours.
const MAX_REPORT: usize = 4096;

/// What the inner pass knows of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inner {
    /// `response.code_details`.
    pub details: String,
    /// `upstream.request_attempt_count`; `None` where the host could not tell.
    pub attempts: Option<u64>,
}

impl Inner {
    /// The header's value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = b"details=".to_vec();
        // The separator is no part of Envoy's details so far; a later version may be less kind.
        for octet in visible(self.details.as_bytes()) {
            match octet {
                b';' => out.extend_from_slice(b"%3B"),
                other => out.push(other),
            }
        }
        if let Some(attempts) = self.attempts {
            out.extend_from_slice(format!("; attempts={attempts}").as_bytes());
        }
        out
    }

    /// Reads the header's value; `None` where it is not one.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        if value.len() > MAX_REPORT {
            return None;
        }
        let mut parts = value.split(|b| *b == b';').map(<[u8]>::trim_ascii);
        let details = parts.next()?.strip_prefix(b"details=")?;
        let attempts = match parts.next() {
            None => None,
            Some(part) => {
                let number = part.strip_prefix(b"attempts=")?;
                Some(std::str::from_utf8(number).ok()?.parse().ok()?)
            }
        };
        parts.next().is_none().then(|| Self {
            details: percent_decode(details).decode_utf8_lossy().into_owned(),
            attempts,
        })
    }
}

/// Whether the value of `x-idempo-route` is that route's id.
#[must_use]
pub fn names_route(value: &[u8], id: &str) -> bool {
    value == visible(id.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn reports_round_trip() {
        for details in [
            "via_upstream",
            "upstream_reset_before_response_started{connection_termination|TLS error: %; attempts=0}",
            "",
        ] {
            for attempts in [None, Some(0), Some(u64::MAX)] {
                let inner = Inner {
                    details: details.to_owned(),
                    attempts,
                };
                let value = inner.encode();
                assert!(value.iter().all(|b| (b' '..0x7f).contains(b)));
                assert_eq!(Inner::decode(&value), Some(inner));
            }
        }
        let report = Inner {
            details: "via_upstream".into(),
            attempts: Some(1),
        };
        assert_eq!(report.encode(), b"details=via_upstream; attempts=1");
    }

    #[test]
    fn anything_else_is_no_report() {
        for value in [
            &b""[..],
            b"via_upstream",
            b"attempts=1",
            b"details=a; attempts=",
            b"details=a; attempts=-1",
            b"details=a; attempts=1; attempts=1",
            b"details=a; tries=1",
            b"details=a;",
            b"details=a; attempts=\xff",
        ] {
            assert_eq!(Inner::decode(value), None, "{value:?}");
        }
        let long = [&b"details="[..], &[b'a'; MAX_REPORT]].concat();
        assert_eq!(Inner::decode(&long), None);
    }

    #[test]
    fn a_route_is_named_as_the_header_spells_it() {
        assert!(names_route(b"charges", "charges"));
        assert!(names_route(b"a%20b", "a b"));
        assert!(!names_route(b"charges", "charge"));
        assert!(!names_route(b"", "charge"));
    }
}
