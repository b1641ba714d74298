//! `observe`, `off`, partial roll-out, and what the Envoy route says in its metadata.

use host_tests::{
    check::{refused, replayed},
    client::{Answer, Raw, Request},
    envoy::{Envoy, Stats},
    filter::{self, key},
    upstream::{Received, Upstream},
};
use serde_json::{Value, json};
use std::net::SocketAddr;

fn with_mode(mode: &str) -> Value {
    let mut config = filter::minimal();
    config["mode"] = json!(mode);
    config
}

fn charge(key: &str) -> Request {
    Request::post("/v1/charges")
        .key(key)
        .json(r#"{"amount":1}"#)
}

/// Sends `request` in chunks of `size` octets, without a length.
async fn chunked(addr: SocketAddr, request: &Request, size: usize) -> Answer {
    let mut raw = Raw::connect(addr).await;
    raw.write(&Raw::encode_chunked(request, size)).await;
    raw.answer(&request.method).await.unwrap()
}

/// What differs between any two exchanges.
fn masked(name: &str, value: &[u8]) -> (String, String) {
    let differs = [
        "date",
        "x-request-id",
        "x-envoy-upstream-service-time",
        "x-envoy-expected-rq-timeout-ms",
    ];
    let kept = if differs.contains(&name) {
        "…".into()
    } else {
        value.escape_ascii().to_string()
    };
    (name.to_owned(), kept)
}

fn seen_by_client(answer: &Answer) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let lines = answer.headers.iter().map(|(n, v)| masked(n, v)).collect();
    (answer.status, lines, answer.body.to_vec())
}

fn seen_by_upstream(got: &Received) -> (String, Vec<(String, String)>, Vec<u8>) {
    let lines = got.headers.iter().map(|(n, v)| masked(n, v)).collect();
    (
        format!("{} {}", got.method, got.target),
        lines,
        got.body.to_vec(),
    )
}

/// First, duplicate, mismatch, no key, a large body without a length; then answers that an enforcing
/// filter would hold, mark, strip or refuse to pass.
async fn traffic(addr: SocketAddr, keys: &[String]) -> Vec<Answer> {
    let mut answers = Vec::new();
    let requests = [
        charge(&keys[0]),
        charge(&keys[0]),
        Request::post("/v1/charges")
            .key(&keys[0])
            .json(r#"{"amount":2}"#),
        Request::post("/v1/charges").json("{}"),
        charge("short"),
        charge(&keys[1])
            .wants_header("idempotency-policy", "no-store")
            .wants_header("idempotency-status", "the upstream's own")
            .header("x-demo-chunks", "3"),
        charge(&keys[2])
            .wants_status(503)
            .header("accept-encoding", "gzip"),
        charge(&keys[2]).wants_status(503),
        charge(&keys[3]).header("x-http-method-override", "DELETE"),
        charge(&keys[4]).wants_status(204),
        charge(&keys[5]).header("x-demo-trailer", "x-t=1"),
        Request::new("DELETE", "/elsewhere"),
        Request::new("GET", "/v1/charges").key(&keys[0]),
    ];
    for request in &requests {
        answers.push(Raw::exchange(addr, request).await.unwrap());
    }
    let large = Request::post("/v1/charges")
        .key(&keys[6])
        .json(format!("{{{}}}", " ".repeat(600_000)));
    answers.push(chunked(addr, &large, 60_000).await);
    let beyond = Request::post("/v1/charges")
        .key(&keys[7])
        .content("application/octet-stream", vec![7; 1_400_000]);
    answers.push(Raw::exchange(addr, &beyond).await.unwrap());
    answers.push(chunked(addr, &charge(&keys[8]), 1).await);
    answers
}

#[tokio::test]
async fn observing_changes_nothing_for_client_and_upstream_and_counts_what_it_would_do() {
    let keys: Vec<String> = (0..9).map(|_| key()).collect();
    let (plain_upstream, upstream) = (Upstream::start().await, Upstream::start().await);
    let plain = Envoy::plain(&plain_upstream).start().await;
    let envoy = Envoy::with_filter(&upstream, with_mode("observe"))
        .start()
        .await;
    let expected = traffic(plain.addr(), &keys).await;
    let got = traffic(envoy.addr(), &keys).await;
    for (n, (expected, got)) in expected.iter().zip(&got).enumerate() {
        assert_eq!(seen_by_client(expected), seen_by_client(got), "answer {n}");
    }
    let expected = plain_upstream.requests();
    let got = upstream.requests();
    assert_eq!(expected.len(), got.len());
    for (n, (expected, got)) in expected.iter().zip(&got).enumerate() {
        assert_eq!(
            seen_by_upstream(expected),
            seen_by_upstream(got),
            "request {n}"
        );
    }
    let stats = envoy.stats().await;
    let would = |code| {
        stats.idempo(
            "idempo_would_total",
            &[("route", "charges"), ("code", code)],
        )
    };
    assert_eq!(would("replayed"), 1);
    assert_eq!(would("payload_mismatch"), 1);
    assert_eq!(would("key_missing"), 1);
    assert_eq!(would("key_weak") + would("key_invalid"), 1);
    assert_eq!(would("outcome_unknown"), 1);
    assert_eq!(would("method_override"), 1);
    // The large JSON, which enforcing would hold further; the larger octets are observed as they pass.
    assert_eq!(would("payload_too_large"), 0, "{stats:#?}");
    let unobserved = stats.idempo("idempo_bypass_total", &[("reason", "unobserved")]);
    assert_eq!(unobserved, 1, "{stats:#?}");
    assert_eq!(stats.idempo("idempo_replay_total", &[]), 0);
    assert_eq!(stats.idempo("idempo_rejected_total", &[]), 0);
    let lines = envoy.access_log_lines(16).await;
    let outcomes: Vec<_> = lines.iter().map(|l| l["outcome"].clone()).collect();
    assert_eq!(
        outcomes[..4],
        [
            "observed",
            "would_replay",
            "would_payload_mismatch",
            "would_key_missing"
        ]
    );
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn what_was_observed_is_remembered_but_never_replayed_when_enforcement_begins() {
    let upstream = Upstream::start().await;
    let mut envoy = Envoy::with_filter(&upstream, with_mode("observe"))
        .lds()
        .start()
        .await;
    let request = charge(&key());
    Raw::exchange(envoy.addr(), &request).await.unwrap();
    envoy.reload(with_mode("enforce")).await.unwrap();
    let again = Raw::exchange(envoy.addr(), &request).await.unwrap();
    let problem = refused(&again, 409, "replay_unavailable");
    assert_eq!(problem["reason"], "observed_only");
    assert_eq!(problem["upstream_status"], 201);
    assert_eq!(upstream.effects(), 1);
}

/// The kill switch: not even what a client forged is touched.
#[tokio::test]
async fn off_does_nothing_at_all() {
    let (plain_upstream, upstream) = (Upstream::start().await, Upstream::start().await);
    let plain = Envoy::plain(&plain_upstream).start().await;
    let envoy = Envoy::with_filter(&upstream, with_mode("off"))
        .start()
        .await;
    let k = key();
    for request in [
        charge(&k),
        charge(&k).header("x-idempo-operation", "the client's own"),
        Request::post("/v1/charges").json("{}"),
    ] {
        let expected = Raw::exchange(plain.addr(), &request).await.unwrap();
        let got = Raw::exchange(envoy.addr(), &request).await.unwrap();
        assert_eq!(seen_by_client(&expected), seen_by_client(&got));
    }
    for (expected, got) in plain_upstream.requests().iter().zip(upstream.requests()) {
        assert_eq!(seen_by_upstream(expected), seen_by_upstream(&got));
    }
    assert_eq!(upstream.effects(), 3);
    let counted = envoy.stats().await;
    let counted = counted
        .0
        .iter()
        .find(|(name, n)| name.contains("idempo_") && name.contains("_total") && **n > 0);
    assert_eq!(counted, None);
}

#[tokio::test]
async fn half_of_the_operations_are_enforced_and_each_is_treated_alike_every_time() {
    let upstream = Upstream::start().await;
    let mut config = filter::minimal();
    config["enforce_fraction"] = json!(0.5);
    let envoy = Envoy::with_filter(&upstream, config).start().await;
    let pool = envoy.pool();
    let keys: Vec<String> = (0..64).map(|_| key()).collect();
    let mut enforced = Vec::new();
    for k in &keys {
        let first = pool.send(&charge(k)).await.unwrap();
        assert_eq!(first.status, 201);
        enforced.push(first.one("idempotent-replayed").is_some());
    }
    let count = enforced.iter().filter(|e| **e).count();
    // Within five standard deviations of 32.
    assert!((12..=52).contains(&count), "{count} of 64");
    assert_eq!(upstream.effects(), 64);
    for round in 1..=2 {
        for (k, enforced) in keys.iter().zip(&enforced) {
            let again = pool.send(&charge(k)).await.unwrap();
            assert_eq!(again.status, 201);
            let expected = enforced.then_some("true");
            assert_eq!(again.one("idempotent-replayed"), expected, "round {round}");
        }
        let observed = (keys.len() - count) * round;
        assert_eq!(upstream.effects(), (64 + observed) as u64);
    }
    let stats = envoy.stats().await;
    let would = stats.idempo("idempo_would_total", &[("code", "replayed")]);
    assert_eq!(would, 2 * (64 - count) as u64);
    assert_eq!(stats.idempo("idempo_replay_total", &[]), 2 * count as u64);
}

/// A route entry for that prefix, with metadata for the filter.
fn entry(prefix: &str, metadata: Value) -> Value {
    json!({
        "name": prefix,
        "match": {"prefix": prefix},
        "route": {"cluster": "upstream"},
        "metadata": {"filter_metadata": {"idempo": metadata}},
    })
}

async fn executed(stats: &Stats, route: &str) -> u64 {
    stats.idempo("idempo_executed_total", &[("route", route)])
}

#[tokio::test]
async fn route_metadata_switches_modes_and_selects_rules() {
    let upstream = Upstream::start().await;
    let config = json!({
        "store": {"shared_data": {}},
        "routes": [
            {"id": "by-path", "match": {"methods": ["POST"], "path": {"prefix": "/v1"}}},
            {"id": "by-name", "match": {"metadata_only": true}, "key": {"required": false}},
        ],
    });
    let envoy = Envoy::with_filter(&upstream, config)
        .options(|o| {
            o.routes_before = vec![
                entry("/v1/observe", json!({"mode": "observe"})),
                entry("/v1/off", json!({"mode": "off"})),
                entry("/v1/opt-out", json!({"requires_idempotency": false})),
                entry("/v1/named", json!({"route": "by-name"})),
                entry(
                    "/other/named",
                    json!({"route": "by-name", "requires_idempotency": true}),
                ),
                entry("/other/unknown", json!({"route": "by-nmae"})),
                entry("/other/no-rule", json!({"requires_idempotency": true})),
                entry("/other/odd-mode", json!({"mode": "sometimes"})),
                entry("/other/odd-flag", json!({"requires_idempotency": "yes"})),
            ];
        })
        .start()
        .await;
    let pool = envoy.pool();
    let post = |path: &str, k: &str| Request::post(path).key(k).json("{}");

    // Modes.
    for (path, times) in [
        ("/v1/plain", 1),
        ("/v1/observe", 2),
        ("/v1/off", 2),
        ("/v1/opt-out", 2),
    ] {
        upstream.reset();
        let request = post(path, &key());
        let first = pool.send(&request).await.unwrap();
        let again = pool.send(&request).await.unwrap();
        assert_eq!((first.status, again.status), (201, 201), "{path}");
        assert_eq!(upstream.effects(), times, "{path}");
        let marked = again.one("idempotent-replayed");
        assert_eq!(marked, (times == 1).then_some("true"), "{path}");
    }

    // Rules: metadata wins over the path, and the rule is part of identity.
    upstream.reset();
    let k = key();
    let by_name = pool.send(&post("/other/named", &k)).await.unwrap();
    let got = upstream.only_request();
    assert_eq!(got.one("x-idempo-route"), Some("by-name"));
    replayed(
        &by_name,
        &pool.send(&post("/other/named", &k)).await.unwrap(),
    );
    let named = pool.send(&post("/v1/named", &key())).await.unwrap();
    assert_eq!(named.status, 201);
    let last = upstream.requests().pop().unwrap();
    assert_eq!(last.one("x-idempo-route"), Some("by-name"));
    // The rule asks for no key; the route's metadata may.
    let keyless = |path: &str| Request::post(path).json("{}");
    assert_eq!(pool.send(&keyless("/v1/named")).await.unwrap().status, 201);
    let missing = pool.send(&keyless("/other/named")).await.unwrap();
    refused(&missing, 400, "key_missing");

    // What cannot be followed is refused, never passed.
    upstream.reset();
    for path in ["/other/named", "/other/no-rule", "/other/unknown"] {
        let hidden = Request::new("GET", path).header("x-http-method-override", "POST");
        refused(&pool.send(&hidden).await.unwrap(), 400, "method_override");
    }
    for (path, reason) in [
        ("/other/unknown", "unknown_rule"),
        ("/other/no-rule", "no_rule"),
        ("/other/odd-mode", "mode"),
        ("/other/odd-flag", "requires_idempotency"),
    ] {
        for request in [post(path, &key()), keyless(path)] {
            let answer = pool.send(&request).await.unwrap();
            let problem = refused(&answer, 500, "misconfigured");
            assert_eq!(problem["reason"], reason, "{path}");
        }
    }
    assert_eq!(upstream.requests().len(), 0);
    // Reading stays possible where only writes are misdirected.
    for path in ["/other/unknown", "/other/no-rule"] {
        let answer = pool.send(&Request::new("GET", path)).await.unwrap();
        assert_eq!(answer.status, 200, "{path}");
    }
    let stats = envoy.stats().await;
    assert_eq!(executed(&stats, "by-name").await, 2);
    let rejected = stats.idempo("idempo_rejected_total", &[("code", "misconfigured")]);
    assert_eq!(rejected, 8);
    let bypass = |reason| stats.idempo("idempo_bypass_total", &[("reason", reason)]);
    assert_eq!(bypass("route_opt_out"), 2);
    assert_eq!(bypass("no_key"), 1);
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn a_route_can_be_enforced_while_all_else_is_off() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, with_mode("off"))
        .options(|o| o.routes_before = vec![entry("/v1/on", json!({"mode": "enforce"}))])
        .start()
        .await;
    for (path, times) in [("/v1/on", 1), ("/v1/charges", 2)] {
        upstream.reset();
        let request = Request::post(path).key(key()).json("{}");
        for _ in 0..2 {
            envoy.pool().send(&request).await.unwrap();
        }
        assert_eq!(upstream.effects(), times, "{path}");
    }
}

/// A roll-out by rule: what would get around an enforced rule is refused even though all else is only
/// observed, and what concerns an observed rule is not even though all else is enforced.
#[tokio::test]
async fn evasions_follow_the_mode_of_the_rule_that_they_evade() {
    let rule = |id: &str, mode: Option<&str>| {
        let mut rule = json!({
            "id": id,
            "match": {"methods": ["POST"], "path": {"prefix": format!("/{id}")}},
        });
        if let Some(mode) = mode {
            rule["mode"] = json!(mode);
        }
        rule
    };
    for (top, modes) in [
        ("observe", [Some("enforce"), None, Some("off")]),
        ("off", [Some("enforce"), Some("observe"), None]),
        ("enforce", [None, Some("observe"), Some("off")]),
    ] {
        let config = json!({
            "mode": top,
            "store": {"shared_data": {}},
            "routes": [
                rule("strict", modes[0]),
                rule("lax", modes[1]),
                rule("none", modes[2]),
            ],
        });
        let upstream = Upstream::start().await;
        let envoy = Envoy::with_filter(&upstream, config).start().await;
        let hide = |method: &str, path: &str| {
            Request::new(method, path).header("x-http-method-override", "DELETE")
        };
        for method in ["GET", "POST"] {
            let answer = Raw::exchange(envoy.addr(), &hide(method, "/strict/a")).await;
            refused(&answer.unwrap(), 400, "method_override");
            for path in ["/lax/a", "/none/a", "/elsewhere"] {
                let answer = Raw::exchange(envoy.addr(), &hide(method, path)).await;
                let answer = answer.unwrap();
                assert!(answer.status < 300, "{top}: {method} {path}: {answer:?}");
            }
        }
        let ambiguous = Request::post("/strict;v=1/a").key(key()).json("{}");
        let answer = Raw::exchange(envoy.addr(), &ambiguous).await.unwrap();
        refused(&answer, 400, "path_ambiguous");
        assert_eq!(upstream.requests().len(), 6, "{top}");
    }
}

#[tokio::test]
async fn an_envoy_route_that_only_observes_is_never_answered_by_the_filter() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .options(|o| {
            o.routes_before = vec![
                entry("/v1/a", json!({"mode": "observe"})),
                entry("/v1/b", json!({"mode": "observe", "route": "no-such-rule"})),
                entry(
                    "/other",
                    json!({"mode": "observe", "requires_idempotency": true}),
                ),
            ];
        })
        .start()
        .await;
    for path in ["/v1/a", "/v1/b", "/other"] {
        for request in [
            Request::post(path).json("{}"),
            Request::post(path).key(key()).json("{}"),
            Request::post(path).header("x-http-method-override", "PUT"),
            Request::new("GET", path).header("x-http-method-override", "PUT"),
        ] {
            let answer = Raw::exchange(envoy.addr(), &request).await.unwrap();
            assert!(answer.status < 300, "{path}: {answer:?}");
        }
    }
    assert_eq!(upstream.requests().len(), 12);
    let stats = envoy.stats().await;
    let would = |code| stats.idempo("idempo_would_total", &[("code", code)]);
    assert_eq!(would("misconfigured"), 4);
    assert_eq!(would("method_override"), 6);
    assert_eq!(would("key_missing"), 1);
}
