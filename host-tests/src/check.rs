//! Waiting for conditions, and assertions on answers that several tests make.

use crate::client::{Answer, Raw, Request};
use serde_json::Value;
use std::{net::SocketAddr, time::Duration};

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
pub fn refused(answer: &Answer, status: u16, code: &str) -> Value {
    assert_eq!(answer.status, status, "{answer:?}");
    let kind = answer.one("content-type").unwrap_or_default();
    assert!(kind.starts_with("application/problem+json"), "{answer:?}");
    let problem: Value = serde_json::from_slice(&answer.body)
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

/// Sends until the operation is pending no more; gives the answer.
///
/// # Panics
/// After 15 s.
pub async fn settled(addr: SocketAddr, request: &Request) -> Answer {
    until("the operation to be settled", || async {
        let answer = Raw::exchange(addr, request).await.ok()?;
        let pending = answer.status == 409 && answer.json()["code"] == "in_flight";
        (!pending).then_some(answer)
    })
    .await
}

/// Asserts that nobody knows, and on what evidence.
///
/// # Panics
/// Where the answer says anything else.
#[track_caller]
pub fn unknown(answer: &Answer, details: &str, upstream_status: Value) {
    let problem = refused(answer, 409, "outcome_unknown");
    let evidence = &problem["evidence"];
    let seen = evidence["details"].as_str().unwrap_or_default();
    assert!(seen.contains(details), "{details}: {problem}");
    assert_eq!(evidence["upstream_status"], upstream_status, "{problem}");
    assert_eq!(answer.one("idempotency-status"), Some("unknown"));
}

/// Asserts that it happened and that its answer cannot be served again, and why not.
///
/// # Panics
/// Where the answer says anything else.
#[track_caller]
pub fn unavailable(answer: &Answer, reason: &str, upstream_status: u16) {
    let problem = refused(answer, 409, "replay_unavailable");
    assert_eq!(problem["reason"], reason, "{problem}");
    assert_eq!(problem["upstream_status"], upstream_status, "{problem}");
    assert_eq!(answer.one("idempotency-status"), Some("completed"));
}

/// Asserts that `again` is the recorded form of `first`: status, body, and every header of the
/// upstream's, byte for byte and line for line.
///
/// # Panics
/// Where anything differs, or the replay is not marked.
#[track_caller]
pub fn replayed(first: &Answer, again: &Answer) {
    let replayed = again.one("idempotent-replayed");
    assert_eq!(replayed, Some("true"), "{again:?} after {first:?}");
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
