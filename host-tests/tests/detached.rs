//! Attempts that outlive their client: sent through a loopback listener of the same Envoy, recorded
//! whether or not anybody waits, and otherwise as if they had gone the direct way.

use host_tests::{
    check::{refused, replayed, until},
    client::{Answer, H2, Raw, Request, send_all},
    envoy::{Builder, Envoy, RefusedPort, SIGNING_SECRET, config::LOOPBACK, config::cluster},
    filter::{self, key},
    upstream::{Received, Upstream},
};
use serde_json::{Value, json};
use std::net::SocketAddr;

fn charge() -> Request {
    Request::post("/v1/charges")
        .key(key())
        .json(r#"{"amount":1200}"#)
}

fn with_loopback(mut config: Value) -> Value {
    config["signing"] = json!({"active": {"env": SIGNING_SECRET}});
    config["loopback_cluster"] = json!(LOOPBACK);
    config
}

/// An Envoy with one worker, whose loopback is open.
async fn started(builder: Builder, upstream: &Upstream) -> Envoy {
    let envoy = builder.loopback().concurrency(1).start().await;
    open(&envoy, upstream).await;
    envoy
}

/// Waits until attempts go through the loopback.
async fn open(envoy: &Envoy, upstream: &Upstream) {
    until("the loopback", || async {
        let answer = Raw::exchange(envoy.addr(), &charge()).await.unwrap();
        assert_eq!(answer.status, 201, "{answer:?}");
        let log = envoy.loopback_access_log();
        log.iter()
            .any(|line| line["method"] == "POST")
            .then_some(())
    })
    .await;
    assert_eq!(envoy.stats().await.idempo("idempo_loopback_ready", &[]), 1);
    upstream.reset();
}

async fn detached(upstream: &Upstream, members: Value) -> Envoy {
    let config = with_loopback(filter::with_route(members));
    started(Envoy::with_filter(upstream, config), upstream).await
}

/// Waits for the recorded answer.
async fn settled(addr: SocketAddr, request: &Request) -> Answer {
    until("the record", || async {
        let answer = Raw::exchange(addr, request).await.ok()?;
        let pending = answer.status == 409 && answer.json()["code"] == "in_flight";
        (!pending).then_some(answer)
    })
    .await
}

/// Lines of that operation in the access log of the data listener.
async fn logged(envoy: &Envoy, operation: &str) -> Vec<Value> {
    until("an access log line", || async {
        let mut lines = envoy.access_log();
        lines.retain(|line| line["operation"] == operation);
        (!lines.is_empty()).then_some(lines)
    })
    .await
}

#[tokio::test]
async fn a_client_that_leaves_loses_nothing() {
    let upstream = Upstream::start().await;
    let envoy = detached(&upstream, json!({})).await;
    for (n, abrupt) in [(1, true), (2, false)] {
        let gate = format!("gate-{n}");
        let request = charge()
            .header("x-demo-gate", &gate)
            .wants_header("link", "<a>")
            .wants_header("link", "<b>")
            .wants_body(b"\x00\xff bytes");
        let mut raw = Raw::connect(envoy.addr()).await;
        raw.write(&Raw::encode(&request)).await;
        upstream.wait_for_requests(n).await;
        if abrupt {
            raw.reset();
        } else {
            raw.leave().await;
        }
        let received = upstream.requests().pop().unwrap();
        let operation = received.operation().unwrap().to_owned();
        // It has left, and its line says what becomes of its operation.
        let lines = logged(&envoy, &operation).await;
        assert_eq!(lines[0]["outcome"], "detached", "{lines:?}");
        let during = Raw::exchange(envoy.addr(), &request).await.unwrap();
        refused(&during, 409, "in_flight");
        upstream.open(&gate);
        let again = settled(envoy.addr(), &request).await;
        assert_eq!(again.status, 201, "{again:?}");
        assert_eq!(again.one("idempotent-replayed"), Some("true"));
        assert_eq!(again.body, &b"\x00\xff bytes"[..]);
        assert_eq!(again.all("link"), [&b"<a>"[..], b"<b>"]);
        assert_eq!(upstream.effects(), n);
        // The transitions have no stream any more: they are a log line.
        let audit = envoy.log();
        let audit = audit
            .lines()
            .find(|l| l.contains("audit: {") && l.contains(&operation))
            .unwrap_or_else(|| panic!("no audit line of {operation}"));
        assert!(audit.contains(r#""to":"completed""#), "{audit}");
    }
    assert_eq!(envoy.stats().await.idempo("idempo_unknown_total", &[]), 0);
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn a_stream_that_is_reset_loses_nothing() {
    let upstream = Upstream::start().await;
    let envoy = detached(&upstream, json!({})).await;
    let h2 = H2::connect(envoy.addr()).await.unwrap();
    let request = charge().header("x-demo-gate", "gate");
    tokio::select! {
        answer = h2.send(&request) => panic!("{answer:?}"),
        _ = upstream.wait_for_requests(1) => {}
    }
    // Dropped, and so reset; the connection lives on.
    let operation = upstream.only_request().operation().unwrap().to_owned();
    let lines = logged(&envoy, &operation).await;
    assert_eq!(lines[0]["outcome"], "detached", "{lines:?}");
    upstream.open("gate");
    let again = until("the record", || async {
        let answer = h2.send(&request).await.unwrap();
        (answer.status != 409).then_some(answer)
    })
    .await;
    assert_eq!(again.status, 201, "{again:?}");
    assert_eq!(again.one("idempotent-replayed"), Some("true"));
    assert_eq!(upstream.effects(), 1);
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn an_attempt_outlives_its_clients_and_renews_its_lease() {
    let upstream = Upstream::start().await;
    let envoy = detached(&upstream, json!({"lease": "1s"})).await;
    let request = charge().header("x-demo-gate", "gate");
    let mut raw = Raw::connect(envoy.addr()).await;
    raw.write(&Raw::encode(&request)).await;
    upstream.wait_for_requests(1).await;
    raw.reset();
    let since = tokio::time::Instant::now();
    // Three leases long it is pending, and never unknown.
    while since.elapsed().as_millis() < 3_500 {
        let during = Raw::exchange(envoy.addr(), &request).await.unwrap();
        refused(&during, 409, "in_flight");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    upstream.open("gate");
    let again = settled(envoy.addr(), &request).await;
    assert_eq!(again.one("idempotent-replayed"), Some("true"), "{again:?}");
    assert_eq!(upstream.effects(), 1);
}

/// Header lines, sorted, without the values that differ between any two attempts.
fn comparable(got: &Received) -> Vec<(String, String)> {
    const VARIES: [&str; 7] = [
        // An edge makes them anew.
        "x-request-id",
        "x-idempo-attempt",
        "x-idempo-generation",
        "x-idempo-claimed-at",
        "x-idempo-signature",
        "x-idempo-operation",
        "host",
    ];
    let mut lines: Vec<_> = got
        .headers
        .iter()
        .map(|(name, value)| {
            let name = name.to_ascii_lowercase();
            let value = if VARIES.contains(&name.as_str()) {
                String::new()
            } else {
                value.escape_ascii().to_string()
            };
            (name, value)
        })
        .collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn the_upstream_sees_what_it_sees_inline() {
    let upstream = Upstream::start().await;
    for edge in [false, true] {
        let build = |execution: &str| {
            let upstream_part = json!({"upstream": {"execution": execution}});
            let config = with_loopback(filter::with_route(upstream_part));
            Envoy::with_filter(&upstream, config).options(move |o| {
                if edge {
                    o.manager.insert("use_remote_address".into(), json!(true));
                }
            })
        };
        let inline = build("inline").loopback().concurrency(1).start().await;
        let detached = started(build("detached"), &upstream).await;
        let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let request = Request::post("/v1/charges/a%20b?x=1&y=%2F&x=2")
            .key(key())
            .json(r#"{"a":"ü"}"#)
            .header("traceparent", traceparent)
            .header("x-request-id", "3f2b9c52-1111-4222-8333-444455556666")
            .header("cookie", "a=1; b=2")
            .header("x-forwarded-for", "203.0.113.7")
            .header("x-forwarded-proto", "https")
            .header("x-many", "1")
            .header("x-many", "2")
            .header("x-octets", b"\xff\xfe")
            .header("accept", "application/json")
            .header("accept-encoding", "gzip")
            .header("x-idempo-detached", "1")
            .header("x-idempo-tenant", "forged")
            .wants_router_retries();
        let mut seen = Vec::new();
        for (addr, encoded) in [
            (inline.addr(), Raw::encode(&request)),
            (detached.addr(), Raw::encode(&request)),
        ] {
            upstream.reset();
            let mut raw = Raw::connect(addr).await;
            raw.write(&encoded).await;
            let answer = raw.answer("POST").await.unwrap();
            assert_eq!(answer.status, 201, "{answer:?}");
            seen.push(upstream.only_request());
        }
        let log = detached.loopback_access_log();
        let line = log.iter().rfind(|l| l["method"] == "POST").unwrap();
        assert_eq!(line["outcome"], "inner");
        assert_eq!(line["details"], "via_upstream");
        let [direct, through] = &seen[..] else {
            panic!("two requests")
        };
        assert_eq!(through.target, direct.target);
        assert_eq!(through.body, direct.body);
        assert_eq!(comparable(through), comparable(direct), "edge: {edge}");
        for got in [through, direct] {
            assert_eq!(got.one("x-idempo-attempt"), got.one("x-request-id"));
        }
        assert_eq!(through.one("host"), direct.one("host"));
        assert_eq!(through.one("traceparent"), Some(traceparent));
        assert_eq!(through.one("x-idempo-detached"), None);
        // And a second idempo in the path can verify it: it passes unclaimed there.
        let forwarded = through
            .headers
            .iter()
            .filter(|(n, _)| n.starts_with("x-idempo-") || n == "idempotency-key")
            .fold(
                Request::post(&through.target).json(&through.body),
                |r, (n, v)| r.header(n, v),
            );
        let again = Raw::exchange(detached.addr(), &forwarded).await.unwrap();
        assert_eq!(again.status, 201);
        assert_eq!(again.one("idempotent-replayed"), None, "{again:?}");
    }
}

#[tokio::test]
async fn the_client_gets_what_it_gets_inline() {
    let upstream = Upstream::start().await;
    let inline = Envoy::with_filter(&upstream, filter::minimal())
        .concurrency(1)
        .start()
        .await;
    let detached = detached(&upstream, json!({})).await;
    let sized = |size: &str| {
        charge()
            .header("x-demo-size", size)
            .header("x-demo-seed", "7")
    };
    for request in [
        charge()
            .wants_header("link", "<a>")
            .wants_header("set-cookie", "a=1")
            .wants_header("link", "<b>")
            .wants_header("set-cookie", "b=2")
            .wants_header("x-octets", b"\xff\x80")
            .wants_header("etag", "\"1\"")
            .wants_header("x-idempo-inner", "details=forged; attempts=1")
            .wants_header("idempotency-status", "forged")
            .wants_body(b"\x00\x01\xff\xfe"),
        charge().wants_status(204),
        charge().wants_status(200).wants_body(b""),
        charge().wants_status(402).wants_body(b"declined"),
        charge()
            .wants_status(422)
            .wants_body("no type")
            .header("x-demo-no-content-type", "1"),
        charge()
            .wants_body("in three pieces")
            .header("x-demo-chunks", "3"),
        sized("1048576"),
        Request::post("/v1/empty").key(key()).wants_body("{}"),
    ] {
        // The upstream names effects by their number.
        upstream.reset();
        let direct = Raw::exchange(inline.addr(), &request).await.unwrap();
        upstream.reset();
        let through = Raw::exchange(detached.addr(), &request).await.unwrap();
        assert_eq!(through.status, direct.status, "{through:?}");
        assert_eq!(through.body, direct.body, "{through:?}");
        let names = |answer: &Answer| {
            let mut names: Vec<_> = answer.headers.iter().map(|(n, _)| n.clone()).collect();
            // An inline answer in pieces leaves before its record is written.
            names.retain(|n| !n.starts_with("idempotency-"));
            names.retain(|n| n != "transfer-encoding" && n != "content-length");
            names.sort();
            names
        };
        assert_eq!(names(&through), names(&direct));
        assert_eq!(through.business_headers(), direct.business_headers());
        assert_eq!(through.one("idempotency-status"), Some("completed"));
        assert_eq!(through.one("x-idempo-inner"), None);
        let again = Raw::exchange(detached.addr(), &request).await.unwrap();
        let mut first = through.clone();
        // Cookies are for the first client alone.
        first.headers.retain(|(n, _)| n != "set-cookie");
        replayed(&first, &again);
    }
    let stats = detached.stats().await;
    assert_eq!(
        stats.idempo("idempo_bypass_total", &[]),
        0,
        "inner passes are none"
    );
    let executed = stats.idempo("idempo_executed_total", &[]);
    assert!(executed >= 8, "{executed}");
    assert_eq!(detached.vm_traps(), 0);
}

#[track_caller]
fn unknown(answer: &Answer, details: &str) {
    let problem = refused(answer, 409, "outcome_unknown");
    let seen = problem["evidence"]["details"].as_str().unwrap_or_default();
    assert!(seen.contains(details), "{details}: {problem}");
}

#[tokio::test]
async fn failures_are_judged_by_what_envoy_knows_of_them() {
    let upstream = Upstream::start().await;
    let port = RefusedPort::take();
    let config = with_loopback(filter::with_route(json!({"upstream": {"timeout": "0.4s"}})));
    let to = |name: &str, cluster: &str| {
        json!({
            "name": name,
            "match": {"prefix": "/", "headers": [
                {"name": "x-to", "string_match": {"exact": name}},
            ]},
            "route": {"cluster": cluster},
        })
    };
    let builder = Envoy::with_filter(&upstream, config).options(|o| {
        o.clusters.push(cluster("refused", &[port.addr()]));
        o.clusters.push(cluster("empty", &[]));
        o.routes_before = vec![to("refused", "refused"), to("empty", "empty")];
    });
    let envoy = started(builder, &upstream).await;
    let addr = envoy.addr();

    // Proved never sent: released, and the retry runs.
    for (destination, details) in [
        ("refused", "remote_connection_failure"),
        ("empty", "no_healthy_upstream"),
    ] {
        let request = charge();
        let failed = Raw::exchange(addr, &request.clone().header("x-to", destination)).await;
        let failed = failed.unwrap();
        assert_eq!(failed.status, 503, "{failed:?}");
        assert_eq!(
            failed.one("idempotency-status"),
            Some("released"),
            "{failed:?}"
        );
        until("Envoy's word on it", || async {
            let log = envoy.loopback_access_log();
            let told = |l: &Value| l["details"].as_str().is_some_and(|d| d.contains(details));
            log.iter().any(told).then_some(())
        })
        .await;
        let before = upstream.effects();
        let retry = Raw::exchange(addr, &request).await.unwrap();
        assert_eq!(retry.status, 201, "{retry:?}");
        assert_eq!(upstream.effects(), before + 1);
    }

    // Sent, and nobody knows: with Envoy's own word on it.
    for (request, status, details) in [
        (
            charge().header("x-demo-fault", "act-reset"),
            503,
            "upstream_reset_before_response_started",
        ),
        (
            charge().header("x-demo-gate", "never"),
            504,
            "response_timeout",
        ),
    ] {
        let before = upstream.effects();
        let failed = Raw::exchange(addr, &request).await.unwrap();
        assert_eq!(failed.status, status, "{failed:?}");
        assert_eq!(failed.one("idempotency-status"), Some("unknown"));
        unknown(&Raw::exchange(addr, &request).await.unwrap(), details);
        assert_eq!(upstream.effects(), before + 1);
    }

    // An answer that breaks off: the call has none.
    let cut = charge().header("x-demo-fault", "partial");
    let failed = Raw::exchange(addr, &cut).await.unwrap();
    unknown(&failed, "loopback_failed");
    unknown(&Raw::exchange(addr, &cut).await.unwrap(), "loopback_failed");

    // The upstream's own word that nothing was done.
    let busy = charge();
    let before = upstream.effects();
    let failed = Raw::exchange(addr, &busy.clone().wants_status(429))
        .await
        .unwrap();
    assert_eq!(failed.status, 429);
    assert_eq!(failed.one("idempotency-status"), Some("released"));
    assert_eq!(Raw::exchange(addr, &busy).await.unwrap().status, 201);
    assert_eq!(upstream.effects(), before + 2);
    // None of that says anything against the loopback.
    let stats = envoy.stats().await;
    assert_eq!(stats.idempo("idempo_loopback_ready", &[]), 1);
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn a_client_that_is_believed_causes_no_second_effect() {
    let upstream = Upstream::start().await;
    let config = with_loopback(filter::minimal());
    let builder = Envoy::with_filter(&upstream, config).options(|o| {
        o.trust_the_caller();
        o.route_action
            .insert("retry_policy".into(), host_tests::envoy::eager_retries());
    });
    let envoy = started(builder, &upstream).await;
    let request = charge().wants_status(503).wants_router_retries();
    let answer = Raw::exchange(envoy.addr(), &request).await.unwrap();
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.one("idempotency-status"), Some("unknown"));
    assert_eq!(upstream.effects(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_duplicates_of_fifty_operations_have_fifty_effects() {
    const OPERATIONS: usize = 50;
    let upstream = Upstream::start().await;
    let wait = json!({"in_flight": {"action": "wait", "timeout": "10s"}});
    let config = with_loopback(filter::with_route(wait));
    let envoy = Envoy::with_filter(&upstream, config)
        .loopback()
        .concurrency(2)
        .start()
        .await;
    open(&envoy, &upstream).await;
    let operations: Vec<_> = (0..OPERATIONS).map(|_| charge()).collect();
    let attempts: Vec<_> = (0..20).flat_map(|_| operations.clone()).collect();
    let answers = send_all(&envoy.pool(), attempts, 64).await;
    for answer in &answers {
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    assert_eq!(upstream.effects(), OPERATIONS as u64);
    let first = |a: &&Answer| a.one("idempotent-replayed") == Some("false");
    assert_eq!(answers.iter().filter(first).count(), OPERATIONS);
    // Nothing is left under way.
    until("the gauge", || async {
        let stats = envoy.stats().await;
        (stats.idempo("idempo_detached_calls", &[]) == 0).then_some(())
    })
    .await;
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn a_reload_loses_no_call() {
    let upstream = Upstream::start().await;
    // Two plugins, so that replacing the one leaves the other where it is.
    let config = |version: &str| {
        with_loopback(filter::with_route(json!({
            "accepted_deadline": version,
        })))
    };
    let mut envoy = Envoy::with_filter(&upstream, config("100s"))
        .options(|o| o.loopback_filter = Some(config("1000s")))
        .loopback()
        .concurrency(1)
        .lds()
        .drain_time_s(1)
        .start()
        .await;
    open(&envoy, &upstream).await;
    let request = charge().header("x-demo-gate", "gate");
    let waiting = tokio::spawn({
        let (addr, request) = (envoy.addr(), request.clone());
        async move { Raw::exchange(addr, &request).await }
    });
    upstream.wait_for_requests(1).await;
    envoy.reload(config("200s")).await.unwrap();
    // The drain cuts its client off; the replaced plugin stays for the call.
    let cut = waiting.await.unwrap();
    assert!(cut.is_err(), "{cut:?}");
    let during = Raw::exchange(envoy.addr(), &request).await.unwrap();
    refused(&during, 409, "in_flight");
    upstream.open("gate");
    let again = settled(envoy.addr(), &request).await;
    assert_eq!(again.status, 201, "{again:?}");
    assert_eq!(again.one("idempotent-replayed"), Some("true"));
    assert_eq!(upstream.effects(), 1);
    // The new configuration goes the same way.
    let inner = envoy.loopback_access_log().len();
    until("a detached attempt", || async {
        let answer = Raw::exchange(envoy.addr(), &charge()).await.unwrap();
        assert_eq!(answer.status, 201, "{answer:?}");
        let log = envoy.loopback_access_log();
        let since = log.get(inner..).unwrap_or_default();
        since
            .iter()
            .any(|line| line["method"] == "POST")
            .then_some(())
    })
    .await;
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn without_a_listener_everything_runs_inline_and_the_log_says_why() {
    let upstream = Upstream::start().await;
    let config = with_loopback(filter::minimal());
    let secret = [key(), key()].concat();
    // No such cluster, and one that leads to somebody else.
    for named in [false, true] {
        upstream.reset();
        let addr = upstream.addr();
        let envoy = Envoy::with_filter(&upstream, config.clone())
            .options(|o| {
                if named {
                    o.clusters.push(cluster(LOOPBACK, &[addr]));
                }
            })
            .env(SIGNING_SECRET, &secret)
            .concurrency(1)
            .start()
            .await;
        let request = charge();
        let first = Raw::exchange(envoy.addr(), &request).await.unwrap();
        assert_eq!(first.status, 201, "{first:?}");
        until("the log line", || async {
            let log = envoy.log();
            let told = log
                .matches("nothing of this filter answers at the loopback")
                .count();
            assert!(told <= 1, "once is enough");
            (told == 1).then_some(())
        })
        .await;
        let again = Raw::exchange(envoy.addr(), &request).await.unwrap();
        replayed(&first, &again);
        assert_eq!(
            Raw::exchange(envoy.addr(), &charge()).await.unwrap().status,
            201
        );
        assert_eq!(upstream.effects(), 2);
        let stats = envoy.stats().await;
        let gauge = stats.get("wasmcustom.idempo_loopback_ready");
        assert_eq!(gauge, 0);
        assert_eq!(stats.idempo("idempo_unknown_total", &[]), 0);
        assert_eq!(envoy.vm_traps(), 0);
    }
}

#[tokio::test]
async fn event_streams_and_large_bodies_stay_in_their_stream() {
    let upstream = Upstream::start().await;
    let envoy = detached(&upstream, json!({})).await;
    let streaming = charge().header("accept", "text/event-stream");
    let large = Request::post("/v1/charges")
        .key(key())
        .content("application/octet-stream", vec![7; 100_000]);
    for request in [streaming, large] {
        let first = Raw::exchange(envoy.addr(), &request).await.unwrap();
        assert_eq!(first.status, 201, "{first:?}");
        let again = Raw::exchange(envoy.addr(), &request).await.unwrap();
        assert_eq!(again.one("idempotent-replayed"), Some("true"), "{again:?}");
        // Answered by the upstream in the client's own stream, not by the filter.
        let operation = first.one("idempotency-operation").unwrap().to_owned();
        let lines = logged(&envoy, &operation).await;
        let executed = lines.iter().find(|l| l["outcome"] == "executed").unwrap();
        assert_eq!(executed["details"], "via_upstream", "{executed}");
        assert!(executed["upstream"].is_string(), "{executed}");
    }
    assert_eq!(upstream.effects(), 2);
}

/// The HTTP/2 listener behind the loopback refuses an authority with `@` in it, which the data listener
/// takes: such a request must not end the calls of others.
#[tokio::test]
async fn a_strange_host_harms_nobody_else() {
    let upstream = Upstream::start().await;
    let envoy = detached(&upstream, json!({})).await;
    let gated: Vec<_> = (0..4)
        .map(|_| {
            let (pool, request) = (envoy.pool(), charge().header("x-demo-gate", "go"));
            tokio::spawn(async move { pool.send(&request).await.unwrap() })
        })
        .collect();
    until("all to be at the upstream", || async {
        (upstream.requests().len() == 4).then_some(())
    })
    .await;
    for host in ["a@b", ""] {
        let head = format!(
            "POST /v1/charges HTTP/1.1\r\nhost: {host}\r\nidempotency-key: {}\r\ncontent-length: 2\r\n\
             content-type: application/json\r\n\r\n{{}}",
            key()
        );
        let mut raw = Raw::connect(envoy.addr()).await;
        raw.write(head.as_bytes()).await;
        let answer = raw.answer("POST").await.unwrap();
        assert!(
            answer.status == 201 || answer.status == 400,
            "{host:?}: {answer:?}"
        );
    }
    upstream.open("go");
    for answer in gated {
        let answer = answer.await.unwrap();
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!(answer.one("idempotency-status"), Some("completed"));
    }
}
