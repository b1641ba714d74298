//! The headers that tell a client what its answer is.
//!
//! Copies that come from an upstream or a client are removed by name ([`is_marker`]) before the
//! filter writes its own, so a marker always means what this page says.

use super::reserved::is;
use super::visible;
use crate::envelope::POLICY_HEADER;
use crate::http::Line;
use crate::ids::{OperationId, hex_of};
use std::time::{Duration, UNIX_EPOCH};

const REPLAYED: &str = "idempotent-replayed";
const STATUS: &str = "idempotency-status";
const OPERATION: &str = "idempotency-operation";
const RESULT: &str = "idempotency-result";
const EXPIRES: &str = "idempotency-expires";
const FIRST_RESPONSE: &str = "idempotency-first-response";

/// Since when a store that forgets remembers.
pub const STORE: &str = "idempotency-store";

/// Every marker, in lower case.
pub const MARKERS: [&str; 7] = [
    REPLAYED,
    STATUS,
    OPERATION,
    RESULT,
    EXPIRES,
    FIRST_RESPONSE,
    STORE,
];

/// Whether only the filter may say this: a marker, or `idempotency-policy`, which is between
/// upstream and filter. Ignores case and takes `_` for `-`.
#[must_use]
pub fn is_marker(name: &[u8]) -> bool {
    is(name, POLICY_HEADER) || MARKERS.iter().any(|marker| is(name, marker))
}

/// What is known about an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Markers<'a> {
    /// Whether the answer comes from the record.
    pub replayed: bool,
    /// The operation's state, or what else happened to the attempt (`bypassed`).
    pub status: &'a str,
    /// The operation, where there is one.
    pub operation: Option<&'a OperationId>,
    /// [`crate::envelope::result_digest`] of what is recorded.
    pub result: Option<&'a [u8; 32]>,
    /// End of the replay window, Unix ms.
    pub expires_unix_ms: Option<u64>,
    /// When the recorded answer first came, Unix ms; said on replays only.
    pub first_response_unix_ms: Option<u64>,
}

/// The marker lines. Every value is visible ASCII and spaces.
#[must_use]
pub fn markers(facts: &Markers<'_>) -> Vec<Line> {
    let replayed: &[u8] = if facts.replayed { b"true" } else { b"false" };
    let first_response = facts.first_response_unix_ms.filter(|_| facts.replayed);
    [
        (REPLAYED, Some(replayed.to_vec())),
        (
            STATUS,
            Some(visible(facts.status.as_bytes())).filter(|v| !v.is_empty()),
        ),
        (OPERATION, facts.operation.map(|id| id.hex().into_bytes())),
        (RESULT, facts.result.map(|d| hex_of(d).into_bytes())),
        (EXPIRES, facts.expires_unix_ms.map(http_date)),
        (FIRST_RESPONSE, first_response.map(http_date)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.as_bytes().to_vec(), value?)))
    .collect()
}

/// RFC 9110 §5.6.7. `httpdate` panics beyond the year 9999, which a misconfigured window reaches.
fn http_date(unix_ms: u64) -> Vec<u8> {
    const LAST_SECOND_OF_9999: u64 = 253_402_300_799;
    let seconds = (unix_ms / 1000).min(LAST_SECOND_OF_9999);
    let time = UNIX_EPOCH
        .checked_add(Duration::from_secs(seconds))
        .unwrap_or(UNIX_EPOCH);
    httpdate::fmt_http_date(time).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn shown(facts: &Markers<'_>) -> Vec<String> {
        markers(facts)
            .into_iter()
            .map(|(n, v)| {
                format!(
                    "{}: {}",
                    String::from_utf8(n).unwrap(),
                    String::from_utf8(v).unwrap()
                )
            })
            .collect()
    }

    #[test]
    fn a_replay_says_everything() {
        let id = OperationId::new("n", b"t", "r", b"k");
        let lines = shown(&Markers {
            replayed: true,
            status: "completed",
            operation: Some(&id),
            result: Some(&[0xab; 32]),
            expires_unix_ms: Some(784_111_777_999),
            first_response_unix_ms: Some(0),
        });
        assert_eq!(
            lines,
            [
                "idempotent-replayed: true".to_owned(),
                "idempotency-status: completed".to_owned(),
                format!("idempotency-operation: {}", id.hex()),
                format!("idempotency-result: {}", "ab".repeat(32)),
                "idempotency-expires: Sun, 06 Nov 1994 08:49:37 GMT".to_owned(),
                "idempotency-first-response: Thu, 01 Jan 1970 00:00:00 GMT".to_owned(),
            ]
        );
    }

    #[test]
    fn a_first_answer_names_no_first_response() {
        let lines = shown(&Markers {
            status: "bypassed",
            first_response_unix_ms: Some(5),
            ..Markers::default()
        });
        assert_eq!(
            lines,
            ["idempotent-replayed: false", "idempotency-status: bypassed"]
        );
    }

    #[test]
    fn no_time_panics() {
        for ms in [0, 253_402_300_799_999, 253_402_300_800_000, u64::MAX] {
            assert!(http_date(ms).is_ascii());
        }
        assert_eq!(
            http_date(u64::MAX),
            b"Fri, 31 Dec 9999 23:59:59 GMT".to_vec()
        );
    }

    #[test]
    fn written_names_are_the_stripped_names() {
        let id = OperationId([0; 32]);
        let written = markers(&Markers {
            replayed: true,
            status: "completed",
            operation: Some(&id),
            result: Some(&[0; 32]),
            expires_unix_ms: Some(0),
            first_response_unix_ms: Some(0),
        });
        // All but the one about the store, which is written where the store is known.
        assert_eq!(written.len() + 1, MARKERS.len());
        for (name, _) in written {
            assert!(is_marker(&name));
        }
        assert!(!is_marker(b"idempotency-key"));
    }
}
