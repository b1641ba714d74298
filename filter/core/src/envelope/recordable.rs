//! Which header lines of an answer are kept.
//!
//! Two kinds are left out. What belongs to one message on one connection can never be kept:
//! pseudo headers, hop-by-hop fields and whatever `Connection` names (RFC 9110 §7.6.1),
//! `Content-Length`, and the filter's own fields, which it writes anew on each answer. What
//! belongs to one moment or one client is left out unless the route asks for it by name: `Date`,
//! `Server`, `x-envoy-*`, credentials, challenges and cookies.

use crate::http::{Headers, Line};
use crate::order;
use crate::plan::RecordRule;
use crate::trusted;

/// Fields about this hop only. RFC 9110 §7.6.1 and RFC 9113 §8.2.2, with the historical ones.
const HOP_BY_HOP: [&[u8]; 9] = [
    b"connection",
    b"http2-settings",
    b"keep-alive",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"trailers",
    b"transfer-encoding",
    b"upgrade",
];

/// Left out unless allowed by name.
const PERSONAL: [&[u8]; 7] = [
    b"authentication-info",
    b"authorization",
    b"date",
    b"server",
    b"set-cookie",
    b"set-cookie2",
    b"www-authenticate",
];

/// The lines of `headers` that may be recorded under `rule`, in order, octet for octet.
///
/// `deny_headers` wins over `allow_headers`; `allow_headers` may bring back a personal field such
/// as `set-cookie`, never a field of the message or of the filter itself.
#[must_use]
pub fn recordable(rule: &RecordRule, headers: &Headers) -> Vec<Line> {
    let named_in_connection = named_in_connection(headers);
    let listed = |list: &[String], name: &[u8]| list.iter().any(|n| n.as_bytes() == name);

    headers
        .lines()
        .iter()
        .filter(|(name, _)| {
            !is_of_the_message(name)
                && named_in_connection.binary_search(name).is_err()
                && !listed(&rule.deny_headers, name)
                && (!is_personal(name) || listed(&rule.allow_headers, name))
        })
        .cloned()
        .collect()
}

/// The lines of `headers` that a proxy passes on to the next hop, in order, octet for octet: all but
/// what speaks of this message on this connection, and what only the filter may say.
#[must_use]
pub fn forwardable(headers: &Headers) -> Vec<Line> {
    let named_in_connection = named_in_connection(headers);
    let stays = |name: &Vec<u8>| {
        name.is_empty()
            || name.starts_with(b":")
            || name == b"content-length"
            || HOP_BY_HOP.contains(&name.as_slice())
            || named_in_connection.binary_search(name).is_ok()
            || trusted::is_marker(name)
            || trusted::is_derived(name)
    };
    let passes = headers.lines().iter().filter(|(name, _)| !stays(name));
    passes.cloned().collect()
}

/// Sorted, since an answer may name hundreds of fields and carry as many.
fn named_in_connection(headers: &Headers) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = headers
        .all("connection")
        .flat_map(|line| line.split(|b| *b == b','))
        .map(|token| token.trim_ascii().to_ascii_lowercase())
        .collect();
    order::sort_by(&mut names, Ord::cmp);
    names
}

/// `idempotency-` also covers `idempotency-key`: an upstream that echoes the key must not bring it
/// into the store.
fn is_of_the_message(name: &[u8]) -> bool {
    name.is_empty()
        || name.starts_with(b":")
        || HOP_BY_HOP.contains(&name)
        || name == b"content-length"
        || name == b"idempotent-replayed"
        || name.starts_with(b"idempotency-")
        || name.starts_with(b"x-idempo-")
}

fn is_personal(name: &[u8]) -> bool {
    PERSONAL.contains(&name) || name.starts_with(b"proxy-") || name.starts_with(b"x-envoy-")
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn rule(allow: &[&str], deny: &[&str]) -> RecordRule {
        RecordRule {
            classes: Vec::new(),
            allow_headers: allow.iter().map(ToString::to_string).collect(),
            deny_headers: deny.iter().map(ToString::to_string).collect(),
        }
    }

    fn kept(rule: &RecordRule, lines: &[(&str, &str)]) -> Vec<String> {
        recordable(rule, &lines.iter().copied().collect())
            .into_iter()
            .map(|(n, v)| {
                format!(
                    "{}={}",
                    String::from_utf8(n).unwrap(),
                    String::from_utf8(v).unwrap()
                )
            })
            .collect()
    }

    const ANSWER: [(&str, &str); 23] = [
        (":status", "201"),
        ("Connection", "close, X-Hop"),
        ("x-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("trailer", "x-sum"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("proxy-connection", "close"),
        ("content-length", "12"),
        ("date", "now"),
        ("server", "envoy"),
        ("x-envoy-upstream-service-time", "3"),
        ("set-cookie", "sid=1"),
        ("www-authenticate", "Basic"),
        ("authorization", "Bearer x"),
        ("proxy-authenticate", "Basic"),
        ("idempotent-replayed", "true"),
        ("idempotency-key", "echoed"),
        ("idempotency-policy", "store"),
        ("x-idempo-operation", "00"),
        ("Link", "<a>"),
        ("link", "<b>"),
    ];

    #[test]
    fn a_proxy_passes_on_what_is_about_the_answer() {
        let passed = forwardable(&ANSWER.iter().copied().collect());
        let names: Vec<_> = passed
            .iter()
            .map(|(n, _)| std::str::from_utf8(n).unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "date",
                "server",
                "x-envoy-upstream-service-time",
                "set-cookie",
                "www-authenticate",
                "authorization",
                "proxy-authenticate",
                "idempotency-key",
                "link",
                "link",
            ]
        );
    }

    #[test]
    fn only_what_outlives_message_and_client_is_kept() {
        assert_eq!(kept(&rule(&[], &[]), &ANSWER), ["link=<a>", "link=<b>"]);
    }

    #[test]
    fn allow_brings_back_the_personal_only() {
        let everything: Vec<String> = ANSWER.iter().map(|(n, _)| n.to_lowercase()).collect();
        let everything: Vec<&str> = everything.iter().map(String::as_str).collect();
        assert_eq!(
            kept(&rule(&everything, &[]), &ANSWER),
            [
                "date=now",
                "server=envoy",
                "x-envoy-upstream-service-time=3",
                "set-cookie=sid=1",
                "www-authenticate=Basic",
                "authorization=Bearer x",
                "proxy-authenticate=Basic",
                "link=<a>",
                "link=<b>",
            ]
        );
    }

    #[test]
    fn deny_wins_over_allow() {
        let answer = [("set-cookie", "a"), ("link", "b"), ("etag", "c")];
        assert_eq!(
            kept(&rule(&["set-cookie"], &["set-cookie", "link"]), &answer),
            ["etag=c"]
        );
    }

    #[test]
    fn several_connection_lines_count() {
        let answer = [
            ("connection", ",,A"),
            ("connection", " b "),
            ("a", "1"),
            ("B", "2"),
            ("c", "3"),
        ];
        assert_eq!(kept(&rule(&[], &[]), &answer), ["c=3"]);
    }

    #[test]
    fn values_are_opaque_octets() {
        let headers: Headers = [("x-raw", &b"\xff\x80"[..])].into_iter().collect();
        assert_eq!(
            recordable(&rule(&[], &[]), &headers),
            [(b"x-raw".to_vec(), b"\xff\x80".to_vec())]
        );
    }
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod properties {
    use super::*;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = String> {
        prop_oneof![
            proptest::sample::select(vec![
                "connection",
                "set-cookie",
                "content-length",
                ":status",
                "date",
                "etag",
                "x-a",
                "x-envoy-a",
                "proxy-a",
                "idempotency-a",
                "x-idempo-a",
                "te",
                "upgrade",
                "",
            ])
            .prop_map(str::to_owned),
            "[A-Za-z:-]{0,6}",
        ]
    }

    proptest! {
        #[test]
        fn the_kept_are_a_subsequence_without_anything_forbidden(
            lines in proptest::collection::vec((name(), "[a-z,:-]{0,12}"), 0..20),
            allow in proptest::collection::vec(name(), 0..6),
            deny in proptest::collection::vec(name(), 0..6),
        ) {
            let rule = RecordRule { classes: Vec::new(), allow_headers: allow, deny_headers: deny };
            let headers: Headers = lines.into_iter().collect();
            let kept = recordable(&rule, &headers);
            let mut rest = headers.lines().iter();
            for line in &kept {
                prop_assert!(rest.any(|l| l == line), "not in order or not from the answer");
                let name = String::from_utf8(line.0.clone()).unwrap();
                prop_assert!(!name.starts_with(':') && !name.is_empty());
                prop_assert!(!["connection", "content-length", "te", "upgrade"].contains(&name.as_str()));
                prop_assert!(!name.starts_with("idempotency-") && !name.starts_with("x-idempo-"));
                prop_assert!(!rule.deny_headers.contains(&name));
                prop_assert!(name != "set-cookie" || rule.allow_headers.contains(&name));
            }
            // What is kept once would be kept again.
            let again = recordable(&rule, &Headers::new(kept.clone()));
            prop_assert_eq!(again, kept);
        }
    }
}
