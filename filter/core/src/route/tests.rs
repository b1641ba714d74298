//! Selection as a whole: order, ways around a rule, bodies.

use super::*;
use crate::plan::*;
use serde_json::json;
use std::collections::BTreeMap;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn rule(id: &str, matcher: Matcher) -> Route {
    Route {
        id: id.into(),
        previous: Vec::new(),
        mode: None,
        matcher,
        key: KeyRule::default(),
        fingerprint: FingerprintRule::default(),
        upstream: Upstream {
            timeout_ms: 15_000,
            execution: Execution::Inline,
            router_retries_reason: None,
            identity_encoding: true,
        },
        lease_ms: 30_000,
        record: RecordRule {
            classes: Vec::new(),
            allow_headers: Vec::new(),
            deny_headers: Vec::new(),
        },
        replay: Replay {
            ttl_ms: 172_800_000,
            tombstone_ttl_ms: 604_800_000,
            max_inline_body: 1 << 20,
        },
        in_flight: InFlight {
            action: InFlightAction::Reject,
            timeout_ms: 10_000,
            max_waiters: 32,
        },
        unknown: UnknownPolicy::Refuse,
        store_failure: StoreFailure::Closed,
        statuses: BTreeMap::new(),
        schema_version: "1".into(),
        key_time: None,
        accepted_deadline_ms: 86_400_000,
        claim_after: 64 << 10,
        commit: Commit::BeforeEnd,
    }
}

fn plan(matchers: Vec<Matcher>) -> Plan {
    Plan {
        namespace: "default".into(),
        mode: Mode::Enforce,
        enforce_fraction: 1.0,
        store: Store::SharedData(SharedDataStore::default()),
        replay_cache_bytes: 0,
        tenant: Tenant {
            required: false,
            sources: Vec::new(),
            default: "default".into(),
        },
        principal: None,
        limits: Limits::default(),
        signing: None,
        loopback_cluster: None,
        routes: matchers
            .into_iter()
            .enumerate()
            .map(|(n, matcher)| rule(&format!("r{n}"), matcher))
            .collect(),
    }
}

fn exact(path: &str) -> Matcher {
    on(PathMatch::Exact(path.into()))
}

fn prefix(path: &str) -> Matcher {
    on(PathMatch::Prefix(path.into()))
}

fn on(path: PathMatch) -> Matcher {
    Matcher {
        path: Some(path),
        ..Matcher::default()
    }
}

fn order_charges() -> Matcher {
    on(PathMatch::Template(vec![
        Segment::Literal("v1".into()),
        Segment::Literal("orders".into()),
        Segment::Variable("id".into()),
        Segment::Literal("charges".into()),
    ]))
}

fn request(method: &str, path: &str) -> Headers {
    [
        (":method", method),
        (":path", path),
        (":authority", "api.example.com:443"),
    ]
    .into_iter()
    .collect()
}

fn ask(plan: &Plan, headers: &Headers, body: Option<&Value>) -> Selection {
    select(
        plan,
        &RouteQuery {
            headers,
            envoy_route_name: Some("pay"),
            body,
        },
    )
}

fn post(plan: &Plan, path: &str) -> Selection {
    ask(plan, &request("POST", path), None)
}

fn refused(selection: Selection) -> bool {
    matches!(selection, Selection::Unnormalisable(_))
}

#[test]
fn every_spelling_of_a_path_selects_its_rule() {
    for plan in [
        plan(vec![exact("/v1/charges")]),
        plan(vec![prefix("/v1/charges")]),
    ] {
        for path in [
            "/v1/charges",
            "/v1/charges/",
            "/v1/charges?x=%2F",
            "/v1/%63harges",
            "//v1/charges",
            "/v1//charges",
            "/v1/./charges",
            "/v1/x/../charges",
            "/v1/x/%2e%2e/charges",
        ] {
            assert_eq!(post(&plan, path), Selection::Route(0), "{path}");
        }
    }
}

#[test]
fn readings_of_some_server_are_refused_where_they_meet_a_rule() {
    let plan = plan(vec![
        exact("/v1/charges"),
        exact("/v1/charges:capture"),
        order_charges(),
    ]);
    for path in [
        "/v1%2Fcharges",
        "/v1%2fcharges?a=b",
        "/v1%252Fcharges",
        "/v1\\charges",
        "/v1/%5Ccharges",
        "/v1/charges%00",
        "/v1/charges%00.png",
        "/v1/charges%0a",
        "/v1/charges#x",
        "/v1/%2563harges",
        "/v1/charges;jsessionid=1",
        "/v1;a=b/charges;c",
        "/v1/x/..;/charges",
        "/v1/x/..%2Fcharges",
        "/v1/charges%3Acapture",
        "/v1/charges%253Acapture",
        "/v1/x//../charges",
        "/v1/charges//..",
        "/v1/orders/a%2Fb/charges",
        "/v1/orders/%zz/charges",
        "v1/charges",
        "http://other/v1/charges",
    ] {
        assert!(
            refused(post(&plan, path)),
            "{path}: {:?}",
            post(&plan, path)
        );
        assert_eq!(
            ask(&plan, &request("GET", path), None),
            Selection::None,
            "{path}"
        );
    }
    assert_eq!(
        post(&plan, "/v1%2Fcharges"),
        Selection::Unnormalisable(PathError::EscapedSlash)
    );
    assert_eq!(
        post(&plan, "/v1/charges%3Acapture"),
        Selection::Unnormalisable(PathError::Ambiguous)
    );
}

#[test]
fn traffic_that_no_reading_takes_to_a_rule_passes() {
    let plan = plan(vec![exact("/v1/charges"), order_charges()]);
    for path in [
        "",
        "*",
        "/",
        "/files/a%2Fb",
        "/files/%zz",
        "/files\\x",
        "/files/a%20b;v=1",
        "/v1/charges2",
        "/v1/charges/x",
        "/v1/orders/5",
        "/V1/charges",
        "/é",
        "/%00",
    ] {
        assert_eq!(post(&plan, path), Selection::None, "{path}");
    }
}

#[test]
fn escapes_and_parameters_inside_a_rule_are_no_harm() {
    let plan = plan(vec![order_charges(), prefix("/v1")]);
    for path in [
        "/v1/orders/%231001/charges",
        "/v1/orders/a%20b/charges",
        "/v1/orders/5;v=1/charges",
        "/v1/orders/a%3Fb/charges",
    ] {
        assert_eq!(post(&plan, path), Selection::Route(0), "{path}");
    }
    assert_eq!(post(&plan, "/v1/files/a%20b"), Selection::Route(1));
    // The second rule takes it as written, a server that decodes takes it to the first.
    assert!(refused(post(&plan, "/v1/orders/5/%63harges%3Bx")));
}

#[test]
fn patterns_with_escapes_are_read_alike() {
    let plan = plan(vec![exact("/v1/a%20b")]);
    assert_eq!(post(&plan, "/v1/%61%20b"), Selection::Route(0));
    assert!(refused(post(&plan, "/v1/a%2520b")));
}

#[test]
fn a_rule_for_any_path_is_met_by_any_path() {
    let by_name = Matcher {
        route_name: Some("pay".into()),
        ..Matcher::default()
    };
    for plan in [plan(vec![by_name.clone()]), plan(vec![prefix("/")])] {
        for path in ["/projects/a%2Fb", "*", "/%zz", "/x\\y"] {
            assert_eq!(post(&plan, path), Selection::Route(0), "{path}");
        }
    }
    // Not so where an earlier rule may be meant.
    let plan = plan(vec![exact("/v1/charges"), by_name]);
    assert!(refused(post(&plan, "/v1%2Fcharges")));
    assert_eq!(post(&plan, "/projects/a%2Fb"), Selection::Route(1));
}

#[test]
fn the_first_match_wins_and_every_part_must_hold() {
    let plan = plan(vec![
        Matcher {
            methods: vec!["PUT".into()],
            ..prefix("/v1")
        },
        Matcher {
            host: Some("other.example.com".into()),
            ..prefix("/v1")
        },
        Matcher {
            route_name: Some("else".into()),
            ..prefix("/v1")
        },
        Matcher {
            metadata_only: true,
            ..prefix("/v1")
        },
        Matcher {
            host: Some("*.example.com".into()),
            ..prefix("/v1")
        },
        prefix("/v1/charges"),
    ]);
    assert_eq!(post(&plan, "/v1/charges"), Selection::Route(4));
    assert_eq!(
        ask(&plan, &request("PUT", "/v1"), None),
        Selection::Route(0)
    );
    assert_eq!(post(&plan, "/v2"), Selection::None);
    assert_eq!(by_metadata(&plan, "r3"), Some(3));
    assert_eq!(by_metadata(&plan, "nope"), None);
}

#[test]
fn an_unknown_envoy_route_name_matches_no_named_rule() {
    let plan = plan(vec![Matcher {
        route_name: Some("pay".into()),
        ..Matcher::default()
    }]);
    let headers = request("POST", "/x");
    let query = RouteQuery {
        headers: &headers,
        envoy_route_name: None,
        body: None,
    };
    assert_eq!(select(&plan, &query), Selection::None);
}

#[test]
fn reads_pass_whatever_the_path() {
    let plan = plan(vec![prefix("/")]);
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"] {
        assert_eq!(ask(&plan, &request(method, "/v1"), None), Selection::None);
    }
}

#[test]
fn a_body_is_asked_for_only_where_it_decides() {
    let call = Matcher {
        body: Some(BodyMatch {
            pointer: "/method".into(),
            exact: "tools/call".into(),
        }),
        ..exact("/rpc")
    };
    let plan = plan(vec![exact("/a"), call, prefix("/")]);
    let rpc = request("POST", "/rpc");
    assert_eq!(post(&plan, "/a"), Selection::Route(0));
    assert_eq!(post(&plan, "/b"), Selection::Route(2));
    assert_eq!(ask(&plan, &rpc, None), Selection::NeedsBody);
    let hit = json!({ "method": "tools/call" });
    let miss = json!({ "method": "ping" });
    assert_eq!(ask(&plan, &rpc, Some(&hit)), Selection::Route(1));
    assert_eq!(
        ask(&plan, &rpc, Some(&json!([miss, hit]))),
        Selection::Route(1)
    );
    assert_eq!(ask(&plan, &rpc, Some(&miss)), Selection::Route(2));
    assert_eq!(ask(&plan, &rpc, Some(&Value::Null)), Selection::Route(2));
    // An odd spelling is judged once the body tells whether the rule is met at all.
    let odd = request("POST", "/%72pc;x");
    assert_eq!(ask(&plan, &odd, None), Selection::NeedsBody);
    assert!(refused(ask(&plan, &odd, Some(&hit))));
    assert_eq!(ask(&plan, &odd, Some(&miss)), Selection::Route(2));
}

#[test]
fn a_hidden_write_is_found_on_covered_paths_only() {
    let plan = plan(vec![
        Matcher {
            methods: vec!["DELETE".into()],
            ..exact("/v1/charges")
        },
        Matcher {
            body: Some(BodyMatch {
                pointer: "/m".into(),
                exact: "x".into(),
            }),
            ..exact("/rpc")
        },
    ]);
    let hidden = |method: &str, path: &str, overrides: bool| {
        let mut headers = request(method, path);
        if overrides {
            headers.push("x-http-method-override", "DELETE");
        }
        hidden_write(
            &plan,
            &RouteQuery {
                headers: &headers,
                envoy_route_name: None,
                body: None,
            },
        )
    };
    assert_eq!(hidden("GET", "/v1/charges", true), Some(0));
    assert_eq!(hidden("POST", "/v1/%63harges", true), Some(0));
    assert_eq!(hidden("GET", "/v1%2Fcharges", true), Some(0));
    assert_eq!(hidden("GET", "/rpc", true), Some(1));
    assert_eq!(hidden("POST", "/v1/charges?_method=DELETE", false), Some(0));
    assert_eq!(hidden("GET", "/v1/charges", false), None);
    assert_eq!(hidden("GET", "/v1/other", true), None);
}

#[cfg(not(target_arch = "wasm32"))]
mod native {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_request_is_judged_without_panic(method: Vec<u8>, path: Vec<u8>, host: Vec<u8>) {
            let plan = plan(vec![order_charges(), exact("/v1/charges"), prefix("/v1")]);
            let mut headers = Headers::default();
            headers.push(":method", method);
            headers.push(":path", [b"/v1/".as_slice(), &path].concat());
            headers.push(":authority", host);
            headers.push("x-http-method", "PUT");
            let query = RouteQuery { headers: &headers, envoy_route_name: None, body: None };
            let _ = select(&plan, &query);
            let _ = hidden_write(&plan, &query);
        }

        /// However each octet of a covered path is escaped, the write never passes as unmatched.
        #[test]
        fn no_escaping_is_a_way_around(plain: [bool; 11], upper: bool, twice: bool) {
            let plan = plan(vec![exact("/v1/charges")]);
            let mut path = String::from("/");
            for (b, plain) in "v1/charges".bytes().zip(plain) {
                let escape = if twice { "%25" } else { "%" };
                match (plain, upper) {
                    (true, _) => path.push(char::from(b)),
                    (_, true) => path.push_str(&format!("{escape}{b:02X}")),
                    (_, false) => path.push_str(&format!("{escape}{b:02x}")),
                }
            }
            prop_assert_ne!(post(&plan, &path), Selection::None, "{}", path);
        }
    }
}
