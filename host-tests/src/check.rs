//! Waiting for conditions, and assertions on answers that several tests make.

use crate::client::Answer;
use std::time::Duration;

/// Asks `probe` every few milliseconds until it gives something.
///
/// # Panics
/// After 15 s, naming `what` was waited for.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, probe: impl Fn() -> F) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(15);
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited 15 s in vain for {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Asserts a refusal: the status, `application/problem+json` with that `code`, and the marker that
/// nothing was replayed. Gives the problem document.
///
/// # Panics
/// Where the answer is anything else.
#[track_caller]
pub fn refused(answer: &Answer, status: u16, code: &str) -> serde_json::Value {
    assert_eq!(answer.status, status, "{answer:?}");
    let kind = answer.one("content-type").unwrap_or_default();
    assert!(kind.starts_with("application/problem+json"), "{answer:?}");
    let problem: serde_json::Value = serde_json::from_slice(&answer.body)
        .unwrap_or_else(|e| panic!("a problem document is JSON: {e}: {answer:?}"));
    assert_eq!(problem["code"], code, "{problem}");
    // RFC 9457 §3.1.2: may be left out, must not contradict.
    if let Some(stated) = problem.get("status") {
        assert_eq!(stated, status, "{problem}");
    }
    assert_ne!(
        answer.one("idempotent-replayed"),
        Some("true"),
        "{answer:?}"
    );
    problem
}

/// Asserts that `again` is the recorded form of `first`: status, body, and every header of the
/// upstream's, byte for byte and line for line.
///
/// # Panics
/// Where anything differs, or the replay is not marked.
#[track_caller]
pub fn replayed(first: &Answer, again: &Answer) {
    assert_eq!(again.one("idempotent-replayed"), Some("true"), "{again:?}");
    assert_ne!(first.one("idempotent-replayed"), Some("true"), "{first:?}");
    assert_eq!(again.status, first.status, "{again:?}");
    assert_eq!(again.body, first.body, "{again:?}");
    assert_eq!(again.business_headers(), first.business_headers());
    let operation = again.one("idempotency-operation");
    assert!(operation.is_some(), "{again:?}");
    assert_eq!(operation, first.one("idempotency-operation"), "{first:?}");
    let result = again.one("idempotency-result");
    assert!(result.is_some(), "{again:?}");
    // An answer that streams is on its way before its digest is known.
    if let Some(known) = first.one("idempotency-result") {
        assert_eq!(result, Some(known));
    }
}

/// Asserts that none of `markers` occurs anywhere in the answer, headers included.
///
/// # Panics
/// Where one does.
#[track_caller]
pub fn discloses_none(answer: &Answer, markers: &[&str]) {
    let mut whole = answer.body.to_vec();
    for (name, value) in &answer.headers {
        whole.extend_from_slice(name.as_bytes());
        whole.push(b'\n');
        whole.extend_from_slice(value);
        whole.push(b'\n');
    }
    for marker in markers {
        assert!(!marker.is_empty(), "an empty marker is everywhere");
        let found = whole
            .windows(marker.len())
            .any(|w| w.eq_ignore_ascii_case(marker.as_bytes()));
        assert!(!found, "{marker} is disclosed by {answer:?}");
    }
}
