//! The body and headers of a refusal (RFC 9457).

use super::negotiate::negotiate;
use super::{Code, LocalReply};
use crate::http::Line;
use crate::ids::OperationId;
use crate::trusted::bounded_attempt;
use serde_json::{Map, Value};

/// What a refusal says. Nothing here may carry a key, or any part of a payload or of a recorded
/// answer.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    /// Why.
    pub code: Code,
    /// The route's status for that code.
    pub status: u16,
    /// The operation, where it is known by then.
    pub operation: Option<&'a OperationId>,
    /// The attempt's trace id. Clients can influence it, so it is cut and escaped here.
    pub attempt: &'a str,
    /// A stable word that tells cases of one code apart, such as `schema_changed`.
    pub reason: Option<&'a str>,
    /// `Retry-After`, seconds.
    pub retry_after_s: Option<u32>,
    /// Extension members, such as evidence or a fingerprint report. They cannot replace the
    /// members of this page.
    pub members: Vec<(&'static str, Value)>,
    /// Further response lines, such as the markers.
    pub headers: Vec<Line>,
}

/// The `type` of a code: `urn:idempo:problem:<code>`.
///
/// An identifier that is compared, not fetched (RFC 9457 §3.1.1 allows any URI). A URL would break
/// the contract with the domain or the repository that it names; the URN is as stable as the code.
#[must_use]
pub fn type_uri(code: Code) -> String {
    format!("urn:idempo:problem:{code}")
}

/// The reply, in the language that all `Accept-Language` values together ask for.
///
/// There is no `Vary`: with `no-store` no cache keeps this answer for it to guard.
#[must_use]
pub fn render(problem: &Problem<'_>, accept_language: &[&[u8]]) -> LocalReply {
    let language = negotiate(accept_language);
    let text = language.text(problem.code);
    // A status that cannot be an answer would be worse than one that is not the operator's.
    let status = if (200..=599).contains(&problem.status) {
        problem.status
    } else {
        problem.code.default_status()
    };

    let mut body = Map::new();
    for (name, value) in &problem.members {
        body.insert((*name).to_owned(), value.clone());
    }
    // After the extensions, so that these win.
    let own = [
        ("type", Some(type_uri(problem.code).into())),
        ("title", Some(text.title.into())),
        ("status", Some(status.into())),
        ("detail", Some(text.detail.into())),
        ("code", Some(problem.code.as_str().into())),
        ("operation", problem.operation.map(|id| id.hex().into())),
        ("attempt", Some(bounded_attempt(problem.attempt).into())),
        ("reason", problem.reason.map(Value::from)),
    ];
    for (name, value) in own {
        match value {
            Some(value) => body.insert(name.to_owned(), value),
            None => body.remove(name),
        };
    }

    let mut headers: Vec<Line> = vec![
        line("content-type", "application/problem+json"),
        line("content-language", language.tag()),
        line("cache-control", "no-store"),
    ];
    if let Some(seconds) = problem.retry_after_s {
        headers.push(line("retry-after", &seconds.to_string()));
    }
    headers.extend(problem.headers.iter().cloned());

    LocalReply {
        status,
        headers,
        // Cannot fail: every name is a string, and nothing is written to. `Display` would bring the
        // indented form into the module, too.
        body: serde_json::to_vec(&body).unwrap_or_default(),
    }
}

fn line(name: &str, value: &str) -> Line {
    (name.into(), value.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Headers;
    use crate::reply::Language;
    use crate::trusted::ATTEMPT_MAX;
    use serde_json::json;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn problem(code: Code) -> Problem<'static> {
        Problem {
            code,
            status: code.default_status(),
            operation: None,
            attempt: "a-1",
            reason: None,
            retry_after_s: None,
            members: Vec::new(),
            headers: Vec::new(),
        }
    }

    fn body(reply: &LocalReply) -> Value {
        serde_json::from_slice(&reply.body).unwrap()
    }

    #[test]
    fn a_whole_reply() {
        let id = OperationId::new("n", b"t", "r", b"k");
        let reply = render(
            &Problem {
                operation: Some(&id),
                reason: Some("lease_running"),
                retry_after_s: Some(7),
                members: vec![("upstream_status", json!(502))],
                headers: vec![line("idempotency-status", "pending")],
                ..problem(Code::InFlight)
            },
            &[b"ja"],
        );
        let text = Language::Ja.text(Code::InFlight);
        assert_eq!(reply.status, 409);
        assert_eq!(
            body(&reply),
            json!({
                "type": "urn:idempo:problem:in_flight",
                "title": text.title,
                "status": 409,
                "detail": text.detail,
                "code": "in_flight",
                "operation": id.hex(),
                "attempt": "a-1",
                "reason": "lease_running",
                "upstream_status": 502,
            })
        );
        assert_eq!(
            reply.headers,
            [
                line("content-type", "application/problem+json"),
                line("content-language", "ja"),
                line("cache-control", "no-store"),
                line("retry-after", "7"),
                line("idempotency-status", "pending"),
            ]
        );
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let reply = render(&problem(Code::KeyMissing), &[]);
        let body = body(&reply);
        assert!(body.get("operation").is_none() && body.get("reason").is_none());
        assert!(!Headers::new(reply.headers).has("retry-after"));
    }

    #[test]
    fn a_hostile_attempt_is_cut_and_escaped() {
        let attempt = format!("\"}}\r\n\u{0}<b>{}", "é".repeat(100_000));
        let reply = render(
            &Problem {
                attempt: &attempt,
                ..problem(Code::KeyWeak)
            },
            &[],
        );
        let body = body(&reply);
        let echoed = body["attempt"].as_str().unwrap();
        assert!(attempt.starts_with(echoed) && echoed.len() <= ATTEMPT_MAX);
        assert!(reply.body.len() < 2000);
        assert!(reply.body.iter().all(|b| !b.is_ascii_control()));
    }

    #[test]
    fn extension_members_replace_nothing() {
        let names = [
            "type",
            "title",
            "status",
            "detail",
            "code",
            "operation",
            "attempt",
            "reason",
        ];
        let forged = Problem {
            members: names.iter().map(|n| (*n, json!("forged"))).collect(),
            ..problem(Code::StoreFull)
        };
        assert_eq!(render(&forged, &[]), render(&problem(Code::StoreFull), &[]));
    }

    #[test]
    fn impossible_statuses_fall_back() {
        for status in [0, 99, 101, 600, u16::MAX] {
            let reply = render(
                &Problem {
                    status,
                    ..problem(Code::PayloadMismatch)
                },
                &[],
            );
            assert_eq!((reply.status, &body(&reply)["status"]), (422, &json!(422)));
        }
    }

    #[test]
    fn every_code_in_every_language_is_valid_json_with_its_own_type() {
        let mut types = std::collections::BTreeSet::new();
        for language in Language::ALL {
            for code in Code::ALL {
                let reply = render(&problem(code), &[language.tag().as_bytes()]);
                let body = body(&reply);
                assert_eq!(body["title"], language.text(code).title);
                assert_eq!(
                    Headers::new(reply.headers).first_str("content-language"),
                    Some(language.tag())
                );
                types.insert(body["type"].as_str().unwrap().to_owned());
            }
        }
        assert_eq!(types.len(), Code::ALL.len());
    }
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_attempt_and_any_wish_give_a_small_valid_body(
            attempt: String,
            wishes: Vec<Vec<u8>>,
            code in 0..Code::ALL.len(),
        ) {
            let wishes: Vec<&[u8]> = wishes.iter().map(Vec::as_slice).collect();
            let code = Code::ALL[code];
            let reply = render(
                &Problem {
                    code,
                    status: code.default_status(),
                    operation: None,
                    attempt: &attempt,
                    reason: None,
                    retry_after_s: None,
                    members: Vec::new(),
                    headers: Vec::new(),
                },
                &wishes,
            );
            let body: Value = serde_json::from_slice(&reply.body).unwrap();
            prop_assert!(attempt.starts_with(body["attempt"].as_str().unwrap()));
            prop_assert!(reply.body.len() < 4096);
            for (_, value) in &reply.headers {
                prop_assert!(value.is_ascii());
            }
        }
    }
}
