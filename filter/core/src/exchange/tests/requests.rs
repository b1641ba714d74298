//! The main job, keys, bodies, paths and headers of requests.

use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn the_main_job() {
    let mut world = World::new(plan());
    let mut first = world.keyed(r#"{"amount":1}"#);
    assert!(first.forwarded());
    assert_eq!(first.set("x-envoy-max-retries").as_deref(), Some("0"));
    assert_eq!(
        first.set("x-envoy-upstream-rq-timeout-ms").as_deref(),
        Some("15000")
    );
    assert_eq!(first.set("x-idempo-route").as_deref(), Some("charges"));
    let answer = [("location", "/v1/charges/ch_1"), ("content-length", "13")];
    world.answer(&mut first, "201", &answer, r#"{"id":"ch_1"}"#);
    assert_eq!(first.mark("idempotent-replayed").as_deref(), Some("false"));
    assert_eq!(
        first.mark("idempotency-status").as_deref(),
        Some("completed")
    );
    let result = first
        .mark("idempotency-result")
        .expect("held answers name their result");

    let again = world.keyed(r#"{ "amount": 1.0 }"#);
    let reply = again.reply.as_ref().expect("a replay");
    assert_eq!(
        (reply.status, reply.body.as_slice()),
        (201, &br#"{"id":"ch_1"}"#[..])
    );
    assert_eq!(
        again.header("location").as_deref(),
        Some("/v1/charges/ch_1")
    );
    assert_eq!(again.header("idempotent-replayed").as_deref(), Some("true"));
    assert_eq!(again.header("idempotency-result"), Some(result));
    assert!(
        again
            .header("idempotency-store")
            .is_some_and(|v| v.contains("since=1700000000"))
    );

    let other = world.keyed(r#"{"amount":2}"#);
    assert_eq!(
        (
            other.code().as_str(),
            other.reply.as_ref().map(|r| r.status)
        ),
        ("payload_mismatch", Some(422))
    );
}

#[test]
fn observing_holds_little_and_says_what_it_did_not_look_at() {
    let lines = [
        (":method", "POST"),
        (":path", "/v1/charges"),
        ("content-type", "text/plain"),
        ("idempotency-key", KEY),
    ];
    let json = |declared: usize| {
        let mut lines = lines.to_vec();
        lines[2].1 = "application/json";
        (lines, declared)
    };
    let (large, beyond) = ((256 << 10) + 1, (1 << 20) + 1);
    // Enforcing would read it whole, observing holds less.
    let mut world = World::new(plan());
    world.reconfigure(|p| p.mode = Mode::Observe);
    let (json, size) = json(large);
    let mut client = world.headers(&json, false);
    assert!(client.exchange.gathers_to_observe());
    world.body(&mut client, &vec![b'1'; size], false);
    assert!(client.forwarded() && client.request.is_empty());
    assert_eq!(world.counted, [Counter::Bypass(Bypass::Unobserved)]);
    // What is read raw is observed while it passes, however large.
    let mut world = World::new(plan());
    world.reconfigure(|p| p.mode = Mode::Observe);
    let mut client = world.headers(&lines, false);
    world.body(&mut client, &vec![b'1'; beyond], false);
    assert!(client.forwarded() && client.request.is_empty());
    world.body(&mut client, b"2", true);
    world.answer(&mut client, "201", &[], "done");
    assert_eq!(world.only().fingerprint.length, beyond as u64 + 1);
    // Its duplicate would have to be held to be compared.
    let mut again = world.headers(&lines, false);
    world.body(&mut again, &vec![b'1'; beyond], false);
    assert!(again.forwarded());
    assert!(world.counted.contains(&Counter::Bypass(Bypass::Unobserved)));
    // Beyond what the rule takes.
    let mut world = World::new(plan());
    world.reconfigure(|p| {
        p.mode = Mode::Observe;
        p.routes[0].fingerprint.max_body = Some(1 << 20);
    });
    let length = beyond.to_string();
    let mut declared = lines.to_vec();
    declared.push(("content-length", &length));
    let client = world.headers(&declared, false);
    assert!(client.forwarded() && client.request.is_empty());
    let refused = Counter::Would(0, Some(crate::reply::Code::PayloadTooLarge));
    assert_eq!(world.counted, [refused]);
    // A rule that looks into the body holds as little, unless some rule enforces.
    for (enforces, held) in [(None, false), (Some(Mode::Enforce), true)] {
        let mut world = World::new(plan());
        world.reconfigure(|p| {
            p.mode = Mode::Observe;
            p.routes[0].matcher.body = Some(BodyMatch {
                pointer: "/method".into(),
                exact: "call".into(),
            });
            p.routes[0].mode = enforces;
        });
        let mut client = world.headers(&lines, false);
        world.body(&mut client, &vec![b'1'; large], false);
        assert_eq!(client.exchange.holds_request(), held);
    }
}

/// The alert counts every operation that becomes unknown, whoever is the first to see it.
#[test]
fn forged_headers_are_stripped_from_every_request() {
    let mut world = World::new(plan());
    let get = world.headers(
        &[
            (":method", "GET"),
            (":path", "/other"),
            ("x-idempo-tenant", "forged"),
        ],
        true,
    );
    assert!(get.forwarded());
    assert_eq!(get.request, [Edit::Remove(b"x-idempo-tenant".to_vec())]);
    let first = world.post(
        &[
            ("idempotency-key", KEY),
            ("x-envoy-retry-on", "5xx"),
            ("x-idempo-operation", "0"),
        ],
        "{}",
    );
    assert!(
        first
            .request
            .contains(&Edit::Remove(b"x-envoy-retry-on".to_vec()))
    );
    assert_eq!(first.set("x-idempo-operation").map(|v| v.len()), Some(64));
}

#[test]
fn keys_from_the_body_and_from_both_places() {
    let mut world = World::new(plan());
    let body = format!(r#"{{"idempotency_key":"{KEY}"}}"#);
    assert!(world.post(&[], &body).forwarded());
    assert_eq!(world.post(&[], "{}").code(), "key_missing");
    let other = format!(r#"{{"idempotency_key":"{}"}}"#, KEY.replace('5', "6"));
    assert_eq!(world.keyed(&other).code(), "key_invalid");
    // Escapes hide the member's name from a search, not from the reading.
    let hidden = format!(r#"{{"idempotency\u005fkey":"{}"}}"#, KEY.replace('5', "6"));
    assert_eq!(world.keyed(&hidden).code(), "key_invalid");
    assert_eq!(
        world
            .headers(&[(":method", "POST"), (":path", "/v1/charges")], true)
            .code(),
        "key_missing"
    );
}

#[test]
fn rules_that_look_into_the_body_cannot_be_led_past() {
    let mut world = World::new(plan());
    world.reconfigure(|p| {
        let mut tools = route("tools");
        tools.matcher.path = Some(PathMatch::Exact("/rpc".into()));
        tools.matcher.body = Some(BodyMatch {
            pointer: "/method".into(),
            exact: "tools/call".into(),
        });
        p.routes.push(tools);
    });
    let rpc = |world: &mut World, body: &str, media: &str| {
        world.post(
            &[
                (":path", "/rpc"),
                ("content-type", media),
                ("idempotency-key", KEY),
            ],
            body,
        )
    };
    assert!(
        rpc(&mut world, r#"{"method":"tools/list"}"#, "application/json")
            .request
            .is_empty()
    );
    for media in ["application/json", "text/plain"] {
        let call = rpc(&mut world, r#"{"method":"tools/call"}"#, media);
        assert!(
            call.set("x-idempo-route").is_some() || call.reply.is_some(),
            "{media}"
        );
    }
    let hidden = r#"{"method":"tools/call","method":"tools/list"}"#;
    for media in ["application/json", "text/plain", ""] {
        let refused = rpc(&mut world, hidden, media);
        assert_eq!(refused.problem()["reason"], "body_unreadable", "{media}");
    }
    assert!(
        rpc(&mut world, "plain words", "text/plain")
            .request
            .is_empty()
    );
}

#[test]
fn an_optional_key_may_be_absent() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].key.required = false);
    assert!(world.post(&[], "{}").forwarded());
    assert_eq!(
        world.counted,
        [Counter::Bypass(crate::metrics::Bypass::NoKey)]
    );
}

#[test]
fn a_body_beyond_the_limit_is_refused_early() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].fingerprint.max_body = Some(1 << 20));
    let lines = [
        (":method", "POST"),
        (":path", "/v1/charges"),
        ("idempotency-key", KEY),
    ];
    let mut declared = lines.to_vec();
    declared.push(("content-length", "1048577"));
    let declared = world.headers(&declared, false);
    assert_eq!(declared.code(), "payload_too_large");
    assert_eq!(declared.problem()["limit"], 1 << 20);
    assert!(world.records.is_empty());
    // A key or a rule that is looked for in a body must be in what can be held of it.
    let mut world = World::new(plan());
    let mut lines = lines.to_vec();
    lines[2] = ("content-type", "application/json");
    lines.push(("content-length", "1048577"));
    assert_eq!(world.headers(&lines, false).code(), "payload_too_large");
    lines.pop();
    let mut chunked = world.headers(&lines, false);
    world.body(&mut chunked, &vec![b' '; 1 << 20], false);
    assert!(chunked.exchange.holds_request());
    world.body(&mut chunked, b"{}", false);
    assert_eq!(chunked.code(), "payload_too_large");
}

#[test]
fn a_signed_request_passes_unclaimed() {
    let mut world = World::new(plan());
    let secret =
        crate::trusted::Secret::new(*b"0123456789abcdef0123456789abcdef").expect("long enough");
    let mut policy = (*world.policy).clone();
    policy.signer = Some(crate::trusted::Signer {
        active: secret,
        previous: None,
        namespace: "default".into(),
    });
    world.policy = Arc::new(policy);
    let first = world.keyed("{}");
    let mut inner = vec![
        (":method".to_owned(), "POST".to_owned()),
        (":path".to_owned(), "/v1/charges".to_owned()),
        ("idempotency-key".to_owned(), KEY.to_owned()),
    ];
    for edit in &first.request {
        if let Edit::Set(name, value) = edit
            && name.starts_with(b"x-idempo-")
        {
            inner.push((
                String::from_utf8_lossy(name).into(),
                String::from_utf8_lossy(value).into(),
            ));
        }
    }
    let lines: Vec<(&str, &str)> = inner
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_str()))
        .collect();
    let passed = world.headers(&lines, true);
    assert!(passed.forwarded() && passed.request.is_empty());
    let mut forged = lines.clone();
    for line in &mut forged {
        if line.0 == "x-idempo-tenant" {
            line.1 = "other";
        }
    }
    assert_eq!(world.headers(&forged, true).code(), "payload_mismatch");
}
