//! Whether one rule is for a request: method, host, path, Envoy route name, body.

use super::guard;
use crate::plan::{BodyMatch, PathMatch, Segment};
use serde_json::Value;

/// Methods in the rule, or every method that writes. Case is ignored: servers that fold it must not
/// open a way around the rule.
pub(super) fn method(methods: &[String], method: &[u8]) -> bool {
    if methods.is_empty() {
        return !guard::is_safe_method(method) && method != b"CONNECT";
    }
    methods
        .iter()
        .any(|m| m.as_bytes().eq_ignore_ascii_case(method))
}

/// The host of an authority: without user information, port, brackets and one trailing dot.
pub(super) fn host_of(authority: &[u8]) -> &[u8] {
    let host = authority.rsplit(|b| *b == b'@').next().unwrap_or_default();
    let host = match host {
        [b'[', rest @ ..] => rest.split(|b| *b == b']').next().unwrap_or_default(),
        // More than one colon without brackets is an IPv6 address without a port.
        _ if host.iter().filter(|b| **b == b':').count() == 1 => {
            host.split(|b| *b == b':').next().unwrap_or_default()
        }
        _ => host,
    };
    host.strip_suffix(b".").unwrap_or(host)
}

/// Compares a host with a rule's: equal, or below a `*.` suffix by one or more labels.
pub(super) fn host(pattern: &str, host: &[u8]) -> bool {
    match pattern.strip_prefix('*') {
        Some(suffix) if suffix.starts_with('.') => host
            .len()
            .checked_sub(suffix.len())
            .filter(|labels| *labels > 0)
            .and_then(|labels| host.get(labels..))
            .is_some_and(|end| end.eq_ignore_ascii_case(suffix.as_bytes())),
        _ => host_of(pattern.as_bytes()).eq_ignore_ascii_case(host),
    }
}

/// Compares a normalised path with a rule's form. One trailing slash is no difference: most servers
/// give both spellings to one handler, and a rule that missed one would be a way around it.
pub(super) fn path(form: &PathMatch, path: &[u8]) -> bool {
    let path = without_slash(path);
    match form {
        PathMatch::Exact(exact) => path == without_slash(exact.as_bytes()),
        PathMatch::Prefix(prefix) => path
            .strip_prefix(without_slash(prefix.as_bytes()))
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'/'))),
        PathMatch::Template(segments) => {
            // `/` alone has no segment; any other path starts with its first slash.
            let mut parts = path.split(|b| *b == b'/').skip(1);
            segments
                .iter()
                .all(|segment| match (segment, parts.next()) {
                    (Segment::Literal(text), Some(part)) => text.as_bytes() == part,
                    (Segment::Variable(_), Some(part)) => !part.is_empty(),
                    (_, None) => false,
                })
                && parts.next().is_none()
        }
    }
}

fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// Whether the form takes every path.
pub(super) fn takes_any_path(form: Option<&PathMatch>) -> bool {
    match form {
        None => true,
        Some(PathMatch::Prefix(prefix)) => without_slash(prefix.as_bytes()).is_empty(),
        Some(_) => false,
    }
}

/// Looks into a JSON body. A JSON-RPC batch is an array: one element that matches is enough, so that
/// a batch of one is no way around the rule. Batches do not nest.
pub(super) fn body(rule: &BodyMatch, body: &Value) -> bool {
    let hit = |value: &Value| {
        value.pointer(&rule.pointer).and_then(Value::as_str) == Some(rule.exact.as_str())
    };
    hit(body) || body.as_array().is_some_and(|batch| batch.iter().any(hit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn hosts_lose_port_user_brackets_and_dot() {
        for (authority, want) in [
            ("example.com", "example.com"),
            ("example.com:8443", "example.com"),
            ("example.com.", "example.com"),
            ("example.com.:80", "example.com"),
            ("u:p@example.com:80", "example.com"),
            ("[::1]:8080", "::1"),
            ("[::1]", "::1"),
            ("::1", "::1"),
            ("[::1", "::1"),
            (":80", ""),
            ("", ""),
        ] {
            assert_eq!(
                host_of(authority.as_bytes()),
                want.as_bytes(),
                "{authority}"
            );
        }
    }

    #[test]
    fn hosts_match_whole_or_by_labels() {
        assert!(host("api.example.com", b"API.example.com"));
        assert!(host("[::1]", b"::1") && host("::1", b"::1"));
        assert!(host("*.example.com", b"a.example.com"));
        assert!(host("*.example.com", b"a.b.EXAMPLE.com"));
        for not in [
            "example.com",
            ".example.com",
            "badexample.com",
            "a.example.com.evil",
            "",
        ] {
            assert!(!host("*.example.com", not.as_bytes()), "{not}");
        }
    }

    #[test]
    fn paths_match_whole_segments() {
        let prefix = |p: &str| PathMatch::Prefix(p.into());
        assert!(path(&prefix("/v1/charges"), b"/v1/charges"));
        assert!(path(&prefix("/v1/charges/"), b"/v1/charges"));
        assert!(path(&prefix("/v1/charges"), b"/v1/charges/x"));
        assert!(path(&prefix("/"), b"/") && path(&prefix("/"), b"/x"));
        assert!(!path(&prefix("/v1/charges"), b"/v1/chargesx"));
        assert!(!path(&prefix("/v1/charges"), b"/v1/Charges"));
        assert!(!path(&prefix("/v1/charges"), b"/v1"));
        let exact = PathMatch::Exact("/v1/charges".into());
        assert!(path(&exact, b"/v1/charges") && path(&exact, b"/v1/charges/"));
        assert!(!path(&exact, b"/v1/charges/x"));
        assert!(path(&PathMatch::Exact("/".into()), b"/"));
    }

    #[test]
    fn templates_bind_one_segment_each() {
        let form = PathMatch::Template(vec![
            Segment::Literal("orders".into()),
            Segment::Variable("id".into()),
            Segment::Literal("charges".into()),
        ]);
        assert!(path(&form, b"/orders/5/charges") && path(&form, b"/orders/5;a=1/charges/"));
        for not in [
            "/orders/5",
            "/orders//charges",
            "/orders/5/charges/x",
            "/orders/5/6/charges",
            "/",
            "",
        ] {
            assert!(!path(&form, not.as_bytes()), "{not}");
        }
    }

    #[test]
    fn a_batch_is_no_way_around_a_body_match() {
        let rule = BodyMatch {
            pointer: "/method".into(),
            exact: "tools/call".into(),
        };
        let call = json!({ "method": "tools/call" });
        let ping = json!({ "method": "ping" });
        assert!(body(&rule, &call));
        assert!(body(&rule, &json!([call])) && body(&rule, &json!([ping, call])));
        for not in [
            ping.clone(),
            json!([ping]),
            json!([[call]]),
            json!([]),
            json!(null),
            json!({ "method": ["tools/call"] }),
        ] {
            assert!(!body(&rule, &not), "{not}");
        }
    }

    #[test]
    fn methods_default_to_writes() {
        let of = |list: &[&str]| list.iter().map(|m| (*m).to_owned()).collect::<Vec<_>>();
        for write in ["POST", "PUT", "PATCH", "DELETE", "PURGE", "post", "get", ""] {
            assert!(method(&[], write.as_bytes()), "{write}");
        }
        for safe in ["GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"] {
            assert!(!method(&[], safe.as_bytes()), "{safe}");
        }
        assert!(method(&of(&["POST"]), b"post") && !method(&of(&["POST"]), b"PUT"));
    }
}
