//! Upstreams that break, and what their answers say about the effect: what was never sent is released,
//! what may have happened is unknown.

use host_tests::{
    check::{refused, replayed, settled, unknown},
    client::{Raw, Request},
    envoy::{Envoy, RefusedPort, config::cluster},
    filter::{self, key},
    upstream::Upstream,
};
use serde_json::{Value, json};

fn charge() -> Request {
    Request::post("/v1/charges").key(key()).json("{}")
}

/// An Envoy whose requests go where `x-to` says. The header is no part of the fingerprint, so a
/// retry may go elsewhere.
async fn with_destinations(upstream: &Upstream, refused: &RefusedPort) -> Envoy {
    let rule = |id: &str, members: Value| {
        let mut rule = json!({
            "id": id,
            "match": {"methods": ["POST"], "path": {"prefix": format!("/{id}")}},
        });
        for (name, value) in members.as_object().unwrap() {
            rule[name] = value.clone();
        }
        rule
    };
    let mut config = filter::minimal();
    for (id, members) in [
        ("brief", json!({"upstream": {"timeout": "0.3s"}})),
        ("record-all", json!({"record": {"classes": "record-all"}})),
        (
            "retry-failed",
            json!({"record": {"classes": "retry-failed"}}),
        ),
        (
            "retrying",
            json!({"upstream": {"router_retries": {"allow": {"reason": "a test of what that costs"}}}}),
        ),
        (
            "deduping",
            json!({"unknown": {"forward": {"upstream_dedupes": true}}}),
        ),
    ] {
        config["routes"]
            .as_array_mut()
            .unwrap()
            .push(rule(id, members));
    }
    let retries = json!({"retry_on": "reset,connect-failure", "num_retries": 1});
    let to = |name: &str, action: Value| {
        json!({
            "match": {"prefix": "/", "headers": [{"name": "x-to", "string_match": {"exact": name}}]},
            "route": action,
        })
    };
    let hosts = [upstream.addr(), refused.addr()];
    let mut full = cluster("full", &hosts[..1]);
    full["circuit_breakers"] = json!({"thresholds": [{"max_requests": 0}]});
    Envoy::with_filter(upstream, config)
        .options(|o| {
            o.clusters = vec![
                cluster("refused", &hosts[1..]),
                cluster("empty", &[]),
                cluster("both", &hosts),
                full,
            ];
            o.routes_before = vec![
                to("refused", json!({"cluster": "refused"})),
                to("empty", json!({"cluster": "empty"})),
                to("full", json!({"cluster": "full"})),
                to("nowhere", json!({"cluster_header": "x-no-such-header"})),
                to("both", json!({"cluster": "both", "retry_policy": retries})),
            ];
        })
        .concurrency(1)
        .start()
        .await
}

#[tokio::test]
async fn upstream_faults_release_only_what_was_never_sent() {
    let upstream = Upstream::start().await;
    let refused_port = RefusedPort::take();
    let envoy = with_destinations(&upstream, &refused_port).await;
    let addr = envoy.addr();

    // Never sent: the retry executes, as a later generation.
    for to in ["refused", "empty", "full", "nowhere"] {
        upstream.reset();
        let request = charge();
        let failed = Raw::exchange(addr, &request.clone().header("x-to", to))
            .await
            .unwrap();
        assert!(
            failed.status == 503 || failed.status == 500,
            "{to}: {failed:?}"
        );
        assert_eq!(failed.one("idempotency-status"), Some("released"), "{to}");
        assert_eq!(upstream.effects(), 0, "{to}");
        let executed = Raw::exchange(addr, &request).await.unwrap();
        assert_eq!(executed.status, 201, "{to}: {executed:?}");
        replayed(&executed, &Raw::exchange(addr, &request).await.unwrap());
        assert_eq!(upstream.effects(), 1, "{to}");
    }

    // Sent, and no answer: unknown, with Envoy's word for it as evidence and no status that the
    // upstream never gave.
    for (path, fault, status, details) in [
        (
            "/v1/a",
            ("x-demo-fault", "act-reset"),
            503,
            "connection_termination",
        ),
        (
            "/v1/a",
            ("x-demo-fault", "act-close"),
            503,
            "connection_termination",
        ),
        (
            "/brief",
            ("x-demo-delay-ms", "3000"),
            504,
            "response_timeout",
        ),
    ] {
        upstream.reset();
        let request = Request::post(path).key(key()).json("{}");
        let faulty = request.clone().header(fault.0, fault.1);
        let failed = Raw::exchange(addr, &faulty).await.unwrap();
        assert_eq!(failed.status, status, "{fault:?}: {failed:?}");
        assert_eq!(failed.one("idempotency-status"), Some("unknown"));
        for _ in 0..2 {
            let again = Raw::exchange(addr, &request).await.unwrap();
            unknown(&again, details, Value::Null);
        }
        assert_eq!(upstream.effects(), 1, "{fault:?}");
    }

    // Cut off within its answer: the status is known, the answer is not. Never replayed, never run again.
    for fault in ["partial", "partial-reset"] {
        upstream.reset();
        let request = charge();
        let faulty = request.clone().header("x-demo-fault", fault);
        let cut = Raw::exchange(addr, &faulty).await;
        assert!(
            cut.is_err() || cut.is_ok_and(|a| a.status >= 500),
            "{fault}"
        );
        let again = settled(addr, &request).await;
        let problem = refused(&again, 409, "replay_unavailable");
        assert_eq!(problem["reason"], "answer_cut", "{problem}");
        assert_eq!(problem["upstream_status"], 201, "{problem}");
        assert_eq!(upstream.effects(), 1, "{fault}");
    }
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn statuses_and_the_upstreams_own_word_decide_as_documented() {
    let upstream = Upstream::start().await;
    let refused_port = RefusedPort::take();
    let envoy = with_destinations(&upstream, &refused_port).await;
    let addr = envoy.addr();
    let with_policy = |r: Request, p: &str| r.wants_header("idempotency-policy", p);
    enum Then {
        Executes,
        Replays,
        Unknown,
        Unavailable(&'static str),
    }
    for (path, status, policy, then) in [
        ("/v1/a", 429, "", Then::Executes),
        ("/v1/a", 401, "", Then::Executes),
        ("/v1/a", 403, "", Then::Executes),
        ("/v1/a", 409, "", Then::Executes),
        ("/v1/a", 422, "", Then::Replays),
        ("/v1/a", 303, "", Then::Replays),
        ("/v1/a", 202, "", Then::Replays),
        ("/v1/a", 408, "", Then::Unknown),
        ("/v1/a", 500, "", Then::Unknown),
        ("/v1/a", 503, "", Then::Unknown),
        ("/record-all", 500, "", Then::Replays),
        ("/record-all", 429, "", Then::Executes),
        ("/retry-failed", 503, "", Then::Executes),
        ("/retry-failed", 402, "", Then::Replays),
        (
            "/v1/a",
            201,
            "no-store",
            Then::Unavailable("upstream_no_store"),
        ),
        ("/v1/a", 500, "no-store", Then::Unknown),
        ("/v1/a", 503, "store", Then::Replays),
        ("/v1/a", 429, "store", Then::Replays),
        ("/v1/a", 500, "not-started", Then::Executes),
        ("/v1/a", 500, "Not-Started", Then::Executes),
        ("/v1/a", 500, "not-started, store", Then::Unknown),
        ("/v1/a", 500, "nonsense", Then::Unknown),
        ("/deduping", 500, "", Then::Executes),
    ] {
        let what = format!("{path} {status} {policy:?}");
        upstream.reset();
        let plain = Request::post(path).key(key()).json("{}");
        let mut request = plain.clone().wants_status(status);
        if !policy.is_empty() {
            request = with_policy(request, policy);
        }
        let first = Raw::exchange(addr, &request).await.unwrap();
        assert_eq!(first.status, status, "{what}: {first:?}");
        assert_eq!(first.one("idempotency-policy"), None, "{what}");
        let again = Raw::exchange(addr, &plain).await.unwrap();
        eprintln!("{what}: {again:?}");
        match then {
            Then::Executes => {
                assert_eq!(again.status, 201, "{what}");
                assert_eq!(again.one("idempotent-replayed"), Some("false"));
                assert_eq!(upstream.effects(), 2, "{what}");
                replayed(&again, &Raw::exchange(addr, &plain).await.unwrap());
            }
            Then::Replays => replayed(&first, &again),
            Then::Unknown => unknown(&again, "upstream_status", status.into()),
            Then::Unavailable(reason) => {
                let problem = refused(&again, 409, "replay_unavailable");
                assert_eq!(problem["reason"], reason);
                assert_eq!(problem["upstream_status"], status);
            }
        }
        if !matches!(then, Then::Executes) {
            assert_eq!(upstream.effects(), 1, "{what}");
        }
    }
    // A receiver can fence the earlier execution.
    let generations: Vec<_> = upstream
        .requests()
        .iter()
        .map(|r| {
            r.one("x-idempo-generation")
                .unwrap()
                .parse::<u64>()
                .unwrap()
        })
        .collect();
    assert!(generations[0] < generations[1], "{generations:?}");
    let stats = envoy.stats().await;
    assert_eq!(stats.idempo("idempo_upstream_policy_odd_total", &[]), 2);
    assert_eq!(envoy.vm_traps(), 0);
}

/// The last failure says nothing about the first try: with retries in the router an operation that
/// one host acted on, and the next host refused, must not be taken for never sent.
#[tokio::test]
async fn a_host_that_acts_and_resets_before_another_one_refuses_is_not_released() {
    let upstream = Upstream::start().await;
    let refused_port = RefusedPort::take();
    let envoy = with_destinations(&upstream, &refused_port).await;
    let addr = envoy.addr();
    // The one worker takes the hosts in turn. A request that is tried twice leaves the turn where it
    // was, one that is tried once moves it on: so some of each begin with the host that acts.
    let requests: Vec<_> = ["/retrying", "/v1/contained"]
        .repeat(4)
        .into_iter()
        .map(|path| Request::post(path).key(key()).json("{}"))
        .collect();
    for request in &requests {
        let faulty = request
            .clone()
            .header("x-to", "both")
            .header("x-demo-fault", "act-reset");
        let failed = Raw::exchange(addr, &faulty).await.unwrap();
        assert_eq!(failed.status, 503, "{failed:?}");
    }
    let lines = envoy.access_log_lines(requests.len()).await;
    let masked = lines.iter().filter(|l| {
        let details = l["details"].as_str().unwrap_or_default();
        l["attempts"] == 2 && details.contains("remote_connection_failure")
    });
    assert_eq!(masked.count(), 2, "{lines:#?}");
    // Contained, the router tried once whatever the Envoy route says.
    let mut contained = lines.iter().filter(|l| l["path"] == "/v1/contained");
    assert!(contained.all(|l| l["attempts"] == 1), "{lines:#?}");
    let acted = upstream.effects_by().by_key;
    for request in &requests {
        let k = String::from_utf8(request.headers[0].1.clone()).unwrap();
        let effects = acted.get(&k).copied().unwrap_or(0);
        let again = Raw::exchange(addr, request).await.unwrap();
        if effects == 0 {
            // Refused at once, and not tried elsewhere: never sent.
            assert_eq!(request.target, "/v1/contained", "{again:?}");
            assert_eq!(again.status, 201, "{again:?}");
        } else {
            assert_eq!(effects, 1);
            refused(&again, 409, "outcome_unknown");
        }
    }
    assert!(upstream.effects_by().by_key.values().all(|n| *n == 1));
    assert_eq!(envoy.vm_traps(), 0);
}
