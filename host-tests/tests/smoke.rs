//! The harness itself, without the filter: what the other tests stand on must be true first.

use host_tests::{
    client::{H2, Raw, Request},
    envoy::{Envoy, Options, RefusedPort, eager_retries},
    upstream::Upstream,
};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn envoy_proxies_and_the_upstream_counts() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::plain(&upstream).start().await;
    let pool = envoy.pool();
    let request = Request::post("/v1/charges?a=1")
        .key("k")
        .json(r#"{"amount":1}"#);
    let first = pool.send(&request).await.unwrap();
    let second = pool.send(&request).await.unwrap();
    assert_eq!((first.status, second.status), (201, 201));
    assert_eq!(first.json()["effect"], 1);
    assert_eq!(second.json()["effect"], 2);
    assert_eq!(first.one("location"), Some("/v1/charges/ch_00000001"));
    assert_eq!(upstream.effects(), 2);
    assert_eq!(upstream.effects_by().by_key["k"], 2);
    let got = &upstream.requests()[0];
    assert_eq!(
        (got.method.as_str(), got.target.as_str()),
        ("POST", "/v1/charges?a=1")
    );
    assert_eq!(&got.body[..], br#"{"amount":1}"#);
    assert_eq!(
        pool.send(&Request::new("GET", "/x")).await.unwrap().status,
        200
    );
    assert_eq!(upstream.effects(), 2, "reading has no effect");
}

#[tokio::test]
async fn answers_are_as_instructed_byte_for_byte() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::plain(&upstream).start().await;
    let pool = envoy.pool();
    let octets: Vec<u8> = (0..=255).collect();
    let request = Request::post("/")
        .wants_status(402)
        .wants_body(&octets)
        .wants_header("x-a", "1, 2")
        .wants_header("x-a", "3")
        .header("x-demo-no-content-type", "1");
    let plain = pool.send(&request).await.unwrap();
    assert_eq!(plain.status, 402);
    assert_eq!(plain.body, octets);
    assert_eq!(plain.all("x-a"), [&b"1, 2"[..], b"3"]);
    assert_eq!(plain.one("content-type"), None);
    let chunked = request
        .header("x-demo-chunks", "7")
        .header("x-demo-trailer", "x-t=1");
    assert_eq!(pool.send(&chunked).await.unwrap().body, octets);
    let raw = Raw::exchange(envoy.addr(), &chunked).await.unwrap();
    assert_eq!(raw.body, octets);
    assert_eq!(upstream.effects(), 3);
    let typo = Request::post("/").header("x-demo-sttaus", "1");
    assert_eq!(pool.send(&typo).await.unwrap().status, 599);
    assert_eq!(upstream.effects(), 3);
}

#[tokio::test]
async fn repeated_and_odd_header_lines_arrive_as_bytes() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::plain(&upstream).start().await;
    let request = Request::post("/")
        .key("one")
        .key(b"tw\xff\x80o")
        .key("")
        .json("{}");
    assert_eq!(
        Raw::exchange(envoy.addr(), &request).await.unwrap().status,
        201
    );
    assert_eq!(
        upstream.only_request().all("idempotency-key"),
        [&b"one"[..], b"tw\xff\x80o", b""]
    );
}

#[tokio::test]
async fn envoy_itself_refuses_control_bytes_in_values() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::plain(&upstream).start().await;
    for octet in [0x00, 0x01, 0x1f, 0x7f] {
        let request = Request::post("/").key([b'a', octet, b'b']);
        let answer = Raw::exchange(envoy.addr(), &request).await.unwrap();
        assert_eq!(answer.status, 400, "octet {octet:#x}: {answer:?}");
    }
    assert_eq!(upstream.requests().len(), 0);
}

#[tokio::test]
async fn many_streams_share_one_http2_connection() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::plain(&upstream).start().await;
    let before = envoy.stats().await;
    let h2 = H2::connect(envoy.addr()).await.unwrap();
    let answers = h2.send_all(vec![Request::post("/").json("{}"); 200]).await;
    assert!(answers.iter().all(|a| a.status == 201));
    assert_eq!(upstream.effects(), 200);
    let after = envoy.stats().await;
    let connections = "http.data.downstream_cx_total";
    assert_eq!(after.get(connections) - before.get(connections), 1);
    assert_eq!(after.get("http.data.downstream_rq_http2_total"), 200);
}

#[tokio::test]
async fn both_workers_get_connections() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::plain(&upstream).concurrency(2).start().await;
    let gated = Request::post("/").header("x-demo-gate", "go").json("{}");
    let pool = envoy.pool();
    let all = tokio::spawn(async move { pool.send_all(vec![gated; 40]).await });
    upstream.wait_for_requests(40).await;
    upstream.open("go");
    assert_eq!(all.await.unwrap().len(), 40);
    assert_eq!(envoy.busy_workers().await, 2);
}

#[tokio::test]
async fn faults_show_as_faults() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::plain(&upstream).start().await;
    let pool = envoy.pool();
    let fault = |name: &str| Request::post("/").header("x-demo-fault", name).json("{}");
    for (name, effects) in [("close", 0), ("act-close", 1), ("act-reset", 2)] {
        assert_eq!(pool.send(&fault(name)).await.unwrap().status, 503, "{name}");
        assert_eq!(upstream.effects(), effects, "{name}");
    }
    for name in ["partial", "partial-reset"] {
        assert!(pool.send(&fault(name)).await.is_err(), "{name}");
    }
    assert_eq!(upstream.effects(), 4);
    let lines = envoy.access_log_lines(5).await;
    assert_eq!(
        lines[1]["details"],
        "upstream_reset_before_response_started{connection_termination}"
    );
    assert_eq!(lines[4]["status"], 201, "{}", lines[4]);
}

#[tokio::test]
async fn a_client_that_leaves_shows_in_the_log() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::plain(&upstream).start().await;
    let request = Request::post("/").header("x-demo-gate", "never").json("{}");
    for (n, reset) in [(1, false), (2, true)] {
        let mut client = Raw::connect(envoy.addr()).await;
        client.write(&Raw::encode(&request)).await;
        upstream.wait_for_requests(n).await;
        if reset {
            client.reset();
        } else {
            client.leave().await;
        }
        let lines = envoy.access_log_lines(n as usize).await;
        assert_eq!(lines.last().unwrap()["flags"], "DC", "{lines:?}");
    }
    // The upstream had acted before the client left: that is the whole problem.
    assert_eq!(upstream.effects(), 2);
}

#[tokio::test]
async fn a_router_retry_after_a_reset_acts_twice() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::plain(&upstream)
        .options(|o| {
            o.route_action
                .insert("retry_policy".into(), eager_retries());
        })
        .start()
        .await;
    let request = Request::post("/")
        .header("x-demo-fault", "act-reset")
        .json("{}");
    assert_eq!(envoy.pool().send(&request).await.unwrap().status, 503);
    assert_eq!(upstream.effects(), 4, "one attempt and three retries");
}

/// With no retry policy on the route at all.
#[tokio::test]
async fn a_trusted_caller_can_have_the_router_act_four_times() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::plain(&upstream)
        .options(Options::trust_the_caller)
        .start()
        .await;
    let request = Request::post("/").wants_router_retries().wants_status(503);
    assert_eq!(envoy.pool().send(&request).await.unwrap().status, 503);
    assert_eq!(upstream.effects(), 4);
}

#[tokio::test]
async fn a_refused_port_refuses() {
    let upstream = Upstream::start().await;
    let refused = RefusedPort::take();
    let envoy = Envoy::plain(&upstream)
        .options(|o| o.hosts = vec![refused.addr()])
        .start()
        .await;
    assert_eq!(
        envoy.pool().send(&Request::post("/")).await.unwrap().status,
        503
    );
    let lines = envoy.access_log_lines(1).await;
    let details = lines[0]["details"].as_str().unwrap();
    assert!(
        details.starts_with("upstream_reset_before_response_started{remote_connection_failure"),
        "{details}"
    );
}

#[tokio::test]
async fn a_listener_can_be_reloaded_live_or_is_rejected() {
    let upstream = Upstream::start().await;
    let mut envoy = Envoy::plain(&upstream).lds().start().await;
    let addr = envoy.addr();
    let pool = envoy.pool();
    assert_eq!(pool.send(&Request::post("/")).await.unwrap().status, 201);
    envoy.options_mut().routes_before = vec![json!({
        "match": {"prefix": "/"},
        "direct_response": {"status": 418},
    })];
    envoy.reload_listener().await.unwrap();
    // New connections belong to the new listener; old ones drain.
    let fresh = envoy.pool();
    assert_eq!(fresh.send(&Request::post("/")).await.unwrap().status, 418);
    assert_eq!(envoy.admin().get("/ready").await.unwrap().status, 200);
    assert_eq!(addr, envoy.addr());
    envoy.options_mut().routes_before = vec![json!({"match": {"prefix": "/"}, "nonsense": 1})];
    let why = envoy.reload_listener().await.unwrap_err();
    assert!(why.contains("nonsense"), "{why}");
    assert_eq!(fresh.send(&Request::post("/")).await.unwrap().status, 418);
}

#[tokio::test]
async fn validate_tells_right_from_wrong() {
    let upstream = Upstream::start().await;
    assert!(Envoy::plain(&upstream).validate().await.ok);
    let wrong = Envoy::plain(&upstream)
        .options(|o| {
            o.manager.insert("merge_slashes".into(), json!("maybe"));
        })
        .validate()
        .await;
    assert!(!wrong.ok);
    assert!(wrong.output.contains("merge_slashes"), "{}", wrong.output);
}

#[tokio::test]
async fn envoy_ends_as_told() {
    let upstream = Upstream::start().await;
    let mut killed = Envoy::plain(&upstream).start().await;
    killed.kill().await;
    assert!(killed.pool().send(&Request::new("GET", "/")).await.is_err());
    let mut told = Envoy::plain(&upstream).start().await;
    assert!(told.terminate().await.success());
    let dropped = Envoy::plain(&upstream).start().await;
    let pool = dropped.pool();
    drop(dropped);
    let gone = tokio::time::timeout(Duration::from_secs(5), async {
        while pool.send(&Request::new("GET", "/")).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    gone.await.expect("a dropped Envoy is killed");
}

#[tokio::test]
async fn drain_is_graceful() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::plain(&upstream).start().await;
    let pool = envoy.pool();
    let request = Request::post("/").header("x-demo-gate", "go").json("{}");
    let running = tokio::spawn(async move { pool.send(&request).await });
    upstream.wait_for_requests(1).await;
    envoy.drain().await;
    upstream.open("go");
    assert_eq!(running.await.unwrap().unwrap().status, 201);
}
