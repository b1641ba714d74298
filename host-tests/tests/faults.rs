//! Things that break before the upstream: workers' VMs, listeners that are drained, clients that leave,
//! and an Envoy that is set up wrongly.

use host_tests::{
    check::{refused, replayed, settled, unknown, until},
    client::{H2, Pool, Raw, Request, send_all},
    envoy::{Envoy, SIGNING_SECRET, config::LOOPBACK, crash_module},
    filter::{self, key},
    upstream::Upstream,
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

fn charge() -> Request {
    Request::post("/v1/charges").key(key()).json("{}")
}

/// The least lease that there is, and a store that is swept within a second.
fn short_lease() -> Value {
    let mut config = filter::with_route(json!({"lease": "1s"}));
    config["store"]["shared_data"]["records"] = json!("1MiB");
    config
}

#[tokio::test]
async fn a_vm_that_traps_loses_no_record_and_runs_nothing_twice() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, short_lease())
        .options(|o| o.wasm = crash_module())
        .concurrency(1)
        .start()
        .await;
    let addr = envoy.addr();
    let before = charge();
    let first = Raw::exchange(addr, &before).await.unwrap();
    assert_eq!(first.status, 201, "{first:?}");

    // In the request's headers: nothing was claimed, nothing is sent.
    let request = charge();
    let trapped = Raw::exchange(addr, &request.clone().header("x-test-crash", "request")).await;
    assert!(trapped.is_err() || trapped.is_ok_and(|a| a.status >= 500));
    assert_eq!(envoy.vm_traps(), 1);
    assert_eq!(upstream.effects(), 1);
    // The next VM knows what the last one did, and takes new work.
    let again = until("another VM", || async {
        let answer = Raw::exchange(addr, &before).await.ok()?;
        (answer.status != 503).then_some(answer)
    })
    .await;
    replayed(&first, &again);
    let executed = Raw::exchange(addr, &request).await.unwrap();
    assert_eq!(executed.status, 201, "{executed:?}");
    assert_eq!(upstream.effects(), 2);

    // In the answer's headers: the effect has happened. Another exchange of the same VM waits for
    // its upstream meanwhile.
    let beside = charge().header("x-demo-gate", "beside");
    let waiting = tokio::spawn({
        let beside = beside.clone();
        async move { Raw::exchange(addr, &beside).await }
    });
    upstream.wait_for_requests(3).await;
    let died = charge().wants_header("x-test-crash", "response");
    let trapped = Raw::exchange(addr, &died).await;
    assert!(trapped.is_err() || trapped.is_ok_and(|a| a.status >= 500));
    assert_eq!(envoy.vm_traps(), 2);
    assert_eq!(upstream.effects(), 4);
    upstream.open("beside");
    // Whatever its client got, it was not told that nothing happened.
    let beside_got = waiting.await.unwrap();
    assert!(
        beside_got.as_ref().is_err()
            || beside_got
                .as_ref()
                .is_ok_and(|a| a.status == 201 || a.status >= 500),
        "{beside_got:?}"
    );
    until("another VM", || async {
        let answer = Raw::exchange(addr, &before).await.ok()?;
        (answer.one("idempotent-replayed") == Some("true")).then_some(())
    })
    .await;
    let retry = |r: &Request| {
        let mut r = r.clone();
        r.headers.retain(|(n, _)| !n.starts_with("x-demo-"));
        r
    };
    for lost in [&died, &beside] {
        let answer = settled(addr, &retry(lost)).await;
        unknown(&answer, "lease_over", Value::Null);
        assert_eq!(settled(addr, &retry(lost)).await.status, 409);
    }
    assert_eq!(upstream.effects(), 4, "{:#?}", upstream.requests());
    let alive = Raw::exchange(addr, &charge()).await.unwrap();
    assert_eq!(alive.status, 201, "{alive:?}");
    assert_eq!(envoy.vm_traps(), 2);
    let stats = until("the sweep's report", || async {
        let stats = envoy.stats().await;
        (stats.idempo("idempo_unknown_open", &[]) == 2).then_some(stats)
    })
    .await;
    let over = [("route", "charges"), ("cause", "lease_over")];
    assert_eq!(stats.idempo("idempo_unknown_total", &over), 2);
}

/// Streams that wait in a VM that traps can no longer be answered by it: Envoy's idle time-out ends them.
#[tokio::test]
async fn who_waits_in_a_vm_that_traps_is_answered_by_the_idle_time_out() {
    let upstream = Upstream::start().await;
    let mut config = short_lease();
    config["routes"][0]["in_flight"] = json!({"action": "wait", "timeout": "20s"});
    let envoy = Envoy::with_filter(&upstream, config)
        .options(|o| {
            o.wasm = crash_module();
            o.manager.insert("stream_idle_timeout".into(), json!("3s"));
        })
        .concurrency(1)
        .start()
        .await;
    let addr = envoy.addr();
    let request = charge();
    let gated = request.clone().header("x-demo-gate", "never-in-time");
    let owner = tokio::spawn(async move { Raw::exchange(addr, &gated).await });
    upstream.wait_for_requests(1).await;
    let waiter = tokio::spawn({
        let request = request.clone();
        async move { Raw::exchange(addr, &request).await }
    });
    // It waits, and so does the request behind it that brings the VM down.
    until("the waiter", || async {
        let active = envoy.stats().await.get("http.data.downstream_rq_active");
        (active == 2).then_some(())
    })
    .await;
    let _ = Raw::exchange(addr, &charge().header("x-test-crash", "request")).await;
    assert_eq!(envoy.vm_traps(), 1);
    let waited = waiter.await.unwrap().unwrap();
    // The time-out's own answer meets what is left of the VM on its way out.
    assert_eq!(waited.status, 503, "{waited:?}");
    assert!(waited.body.is_empty());
    let _ = owner.await.unwrap();
    let lines = envoy.access_log_lines(3).await;
    let ended = lines.iter().filter(|l| l["flags"] == "SI");
    assert_eq!(ended.count(), 2, "{lines:#?}");
    let again = settled(addr, &request).await;
    unknown(&again, "lease_over", Value::Null);
    assert_eq!(upstream.effects(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_under_load_lose_no_record_and_run_nothing_twice() {
    const OPERATIONS: usize = 300;
    let upstream = Upstream::start().await;
    let mut envoy = Envoy::with_filter(&upstream, filter::minimal())
        .lds()
        .start()
        .await;
    let addr = envoy.addr();
    // Three attempts of each operation, near each other.
    let operations: Vec<Request> = (0..OPERATIONS)
        .map(|_| charge().header("x-demo-delay-ms", "40"))
        .collect();
    let attempts: Vec<Request> = operations
        .chunks(10)
        .flat_map(|some| [some, some, some].concat())
        .collect();
    let load = tokio::spawn({
        let pool = Pool::new(addr);
        async move { send_all(&pool, attempts, 24).await }
    });
    let mut reloads = 0;
    while !load.is_finished() {
        let wait = json!({"action": "wait", "timeout": "5s"});
        let config = if reloads % 2 == 0 {
            filter::with_route(json!({"in_flight": wait}))
        } else {
            filter::minimal()
        };
        envoy.reload(config).await.unwrap();
        reloads += 1;
    }
    assert!(reloads >= 3, "{reloads}");
    let answers = load.await.unwrap();
    for answer in &answers {
        assert!(matches!(answer.status, 201 | 409), "{answer:?}");
        if answer.status == 409 {
            refused(answer, 409, "in_flight");
        }
    }
    assert_eq!(upstream.effects(), OPERATIONS as u64);
    for request in &operations {
        let again = Raw::exchange(addr, request).await.unwrap();
        assert_eq!(again.status, 201, "{again:?}");
        assert_eq!(again.one("idempotent-replayed"), Some("true"));
    }
    let effects = upstream.effects_by();
    assert_eq!(effects.by_operation.len(), OPERATIONS);
    assert!(effects.by_operation.values().all(|n| *n == 1));
    let stats = envoy.stats().await;
    assert_eq!(stats.idempo("idempo_write_backlog", &[]), 0);
    assert_eq!(envoy.vm_traps(), 0);
}

/// Drained and removed under load, then there again: what was begun is recorded, inline and detached,
/// and what never came in runs later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_is_taken_away_under_load_loses_nothing() {
    const OPERATIONS: usize = 160;
    for detached in [false, true] {
        let upstream = Upstream::start().await;
        let mut config = filter::minimal();
        let mut builder = Envoy::with_filter(&upstream, Value::Null);
        if detached {
            config["loopback_cluster"] = json!(LOOPBACK);
            config["signing"] = json!({"active": {"env": SIGNING_SECRET}});
            builder = builder.loopback();
        }
        let mut envoy = builder
            .options(|o| o.filter = Some(config))
            .lds()
            .drain_time_s(2)
            .start()
            .await;
        let addr = envoy.addr();
        if detached {
            until("an open loopback", || async {
                Raw::exchange(addr, &Request::post("/elsewhere"))
                    .await
                    .ok()?;
                let stats = envoy.stats().await;
                (stats.idempo("idempo_loopback_ready", &[]) > 0).then_some(())
            })
            .await;
            upstream.reset();
        }
        let operations: Vec<Request> = (0..OPERATIONS)
            .map(|_| charge().header("x-demo-delay-ms", "30"))
            .collect();
        // Two attempts of each, near each other; most meet no listener any more.
        let load = tokio::spawn({
            let operations = operations.clone();
            async move {
                for some in operations.chunks(8) {
                    let mut tasks = tokio::task::JoinSet::new();
                    for request in some.iter().chain(some) {
                        let request = request.clone();
                        tasks.spawn(async move {
                            let stream = tokio::net::TcpStream::connect(addr).await.ok()?;
                            drop(stream);
                            Raw::exchange(addr, &request).await.ok()
                        });
                    }
                    while tasks.join_next().await.is_some() {}
                }
            }
        });
        upstream.wait_for_requests(24).await;
        envoy.options_mut().withdrawn = true;
        envoy.reload_listener().await.unwrap();
        load.await.unwrap();
        envoy.options_mut().withdrawn = false;
        envoy.reload_listener().await.unwrap();
        let again = envoy.admin().listener("data").await.expect("a listener");
        for request in &operations {
            let answer = until("an answer", || async {
                let answer = Raw::exchange(again, request).await.ok()?;
                (answer.status == 201).then_some(answer)
            })
            .await;
            let replay = Raw::exchange(again, request).await.unwrap();
            assert_eq!(replay.one("idempotent-replayed"), Some("true"));
            assert_eq!(replay.body, answer.body);
        }
        let effects = upstream.effects_by();
        assert_eq!(
            effects.by_operation.len(),
            OPERATIONS,
            "detached: {detached}"
        );
        assert!(effects.by_operation.values().all(|n| *n == 1));
        let stats = until("quiet", || async {
            let stats = envoy.stats().await;
            (stats.idempo("idempo_detached_calls", &[]) == 0).then_some(stats)
        })
        .await;
        assert_eq!(stats.idempo("idempo_write_backlog", &[]), 0);
        assert_eq!(stats.idempo("idempo_unknown_total", &[]), 0);
        assert_eq!(envoy.vm_traps(), 0);
    }
}

#[tokio::test]
async fn a_client_that_leaves_makes_its_operation_unknown_and_nothing_runs_again() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    for (n, abrupt) in [true, false].into_iter().enumerate() {
        let request = charge();
        let mut client = Raw::connect(envoy.addr()).await;
        let gated = request.clone().header("x-demo-gate", "never-in-time");
        client.write(&Raw::encode(&gated)).await;
        upstream.wait_for_requests(n as u64 + 1).await;
        let meanwhile = Raw::exchange(envoy.addr(), &request).await.unwrap();
        refused(&meanwhile, 409, "in_flight");
        assert!(meanwhile.one("retry-after").is_some(), "{meanwhile:?}");
        if abrupt {
            client.reset();
        } else {
            client.leave().await;
        }
        let again = settled(envoy.addr(), &request).await;
        unknown(&again, "downstream_remote_disconnect", Value::Null);
        assert_eq!(upstream.effects(), n as u64 + 1);
    }
    upstream.open("never-in-time");
    let stats = envoy.stats().await;
    let gone = stats.idempo("idempo_unknown_total", &[("cause", "client_gone")]);
    assert_eq!(gone, 2);
    // The access log says it too, under the same operation.
    until("two access log lines", || async {
        let lines = envoy.access_log();
        let left = lines.iter().filter(|l| l["outcome"] == "unknown");
        (left.count() == 2).then_some(())
    })
    .await;
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn a_stream_that_is_reset_within_its_connection_is_a_client_that_left() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    let h2 = H2::connect(envoy.addr()).await.unwrap();
    let request = charge();
    let gated = request.clone().header("x-demo-gate", "never-in-time");
    let sent = tokio::spawn({
        let h2 = h2.clone();
        async move { h2.send(&gated).await }
    });
    upstream.wait_for_requests(1).await;
    sent.abort();
    let again = settled(envoy.addr(), &request).await;
    unknown(&again, "http2.remote_reset", Value::Null);
    // The connection serves others.
    assert_eq!(h2.send(&charge()).await.unwrap().status, 201);
    assert_eq!(upstream.effects(), 2);
    let stats = envoy.stats().await;
    let gone = stats.idempo("idempo_unknown_total", &[("cause", "client_gone")]);
    assert_eq!(gone, 1);
    assert_eq!(envoy.vm_traps(), 0);
}

/// What was never complete has claimed nothing, and so nothing stands in the retry's way.
#[tokio::test]
async fn an_upload_that_is_cut_off_leaves_nothing_behind() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    let addr = envoy.addr();
    for n in 1..=3 {
        let request = Request::post("/v1/charges")
            .key(key())
            .content("text/plain", vec![b'x'; 60_000]);
        let octets = Raw::encode(&request);
        let mut client = Raw::connect(addr).await;
        client.write(&octets[..octets.len() - n]).await;
        client.reset();
        let first = Raw::exchange(addr, &request).await.unwrap();
        assert_eq!(first.status, 201, "{first:?}");
        replayed(&first, &Raw::exchange(addr, &request).await.unwrap());
        assert_eq!(upstream.effects(), n as u64);
    }
    let stats = envoy.stats().await;
    assert_eq!(stats.idempo("idempo_unknown_total", &[]), 0);
    assert_eq!(envoy.vm_traps(), 0);
}

/// The end of a drain cuts what still runs. Its effect may have happened.
#[tokio::test]
async fn a_stream_that_a_reload_cuts_off_is_unknown_and_its_duplicates_wait_no_longer() {
    let upstream = Upstream::start().await;
    let waiting = |timeout: &str| {
        filter::with_route(json!({"in_flight": {"action": "wait", "timeout": timeout}}))
    };
    let mut envoy = Envoy::with_filter(&upstream, waiting("10s"))
        .lds()
        .drain_time_s(1)
        .start()
        .await;
    let addr = envoy.addr();
    let request = charge();
    let gated = request.clone().header("x-demo-gate", "never-in-time");
    let cut = tokio::spawn(async move { Raw::exchange(addr, &gated).await });
    upstream.wait_for_requests(1).await;
    envoy.reload(waiting("11s")).await.unwrap();
    // Under the new configuration; woken when the old one's stream ends.
    let since = Instant::now();
    let waiter = Raw::exchange(addr, &request).await.unwrap();
    unknown(&waiter, "filter_chain_is_being_removed", Value::Null);
    assert!(
        since.elapsed() < Duration::from_secs(8),
        "{:?}",
        since.elapsed()
    );
    let cut = cut.await.unwrap();
    assert!(cut.is_err() || cut.is_ok_and(|a| a.status >= 500));
    assert_eq!(upstream.effects(), 1);
    let alive = Raw::exchange(addr, &charge()).await.unwrap();
    assert_eq!(alive.status, 201, "{alive:?}");
    let stats = envoy.stats().await;
    let drained = stats.idempo("idempo_unknown_total", &[("cause", "drained")]);
    assert_eq!(drained, 1);
    assert_eq!(envoy.vm_traps(), 0);
}

/// Observing changes nothing, also where it cannot work: the wait is short, and made once in a while.
#[tokio::test]
async fn observing_a_host_that_withholds_bodies_delays_hardly_anybody() {
    let upstream = Upstream::start().await;
    let mut config = filter::minimal();
    config["mode"] = json!("observe");
    let envoy = Envoy::with_filter(&upstream, config)
        .options(|o| o.stop_iteration = false)
        .concurrency(1)
        .start()
        .await;
    let mut quickest = Duration::MAX;
    for n in 1..=5 {
        let request = charge();
        let since = Instant::now();
        let answer = Raw::exchange(envoy.addr(), &request).await.unwrap();
        let took = since.elapsed();
        assert_eq!(answer.status, 201, "{answer:?}");
        assert!(took < Duration::from_secs(5), "request {n}: {took:?}");
        quickest = quickest.min(took);
        let got = upstream.requests().pop().unwrap();
        assert_eq!(got.body, request.body);
    }
    // Whoever waits, waits a second.
    assert!(quickest < Duration::from_millis(900), "{quickest:?}");
    assert_eq!(upstream.effects(), 5);
    let named = envoy.log();
    let named = named
        .lines()
        .filter(|l| l.contains("allow_on_headers_stop_iteration"));
    assert_eq!(named.count(), 1);
    let stats = envoy.stats().await;
    let would = stats.idempo("idempo_would_total", &[("code", "misconfigured")]);
    assert_eq!(would, 5);
    assert_eq!(envoy.vm_traps(), 0);
}

/// Without `allow_on_headers_stop_iteration` Envoy shows no body while headers are held. That must
/// be said soon, and only requests with a body are affected.
#[tokio::test]
async fn a_host_that_withholds_bodies_is_told_what_to_set() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .options(|o| o.stop_iteration = false)
        .concurrency(1)
        .start()
        .await;
    let pool = envoy.pool();
    // Bodies that pass without being held prove nothing about those that are.
    let elsewhere = Request::post("/elsewhere").json("{}");
    assert_eq!(pool.send(&elsewhere).await.unwrap().status, 201);
    let bodyless = Request::post("/v1/charges").key(key());
    let first = pool.send(&bodyless).await.unwrap();
    assert_eq!(first.status, 201, "{first:?}");
    replayed(&first, &pool.send(&bodyless).await.unwrap());
    assert_eq!(upstream.effects(), 2);

    let since = Instant::now();
    let answer = pool.send(&charge()).await.unwrap();
    let took = since.elapsed();
    let problem = refused(&answer, 500, "misconfigured");
    assert_eq!(problem["reason"], "body_withheld");
    assert!(
        took > Duration::from_secs(9) && took < Duration::from_secs(15),
        "{took:?}"
    );
    assert_eq!(upstream.effects(), 2);
    let log = envoy.log();
    let line = log
        .lines()
        .find(|l| l.contains("allow_on_headers_stop_iteration"))
        .expect("a line that names the setting");
    assert!(line.contains("[error]"), "{line}");
    // What needs no body goes on working.
    let bodyless = Request::post("/v1/charges").key(key());
    let first = pool.send(&bodyless).await.unwrap();
    replayed(&first, &pool.send(&bodyless).await.unwrap());
    assert_eq!(envoy.vm_traps(), 0);
}
