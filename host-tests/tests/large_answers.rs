//! Answers that are too large to be kept, and many large ones at once: each client gets its own, and
//! what cannot be replayed is remembered with the reason. Nothing of it ever runs twice.

use host_tests::{
    check::{replayed, settled, unavailable, until},
    client::{H2, Raw, Request},
    envoy::Envoy,
    filter::{self, key},
    upstream::{Upstream, octets},
};
use serde_json::json;

const MIB: usize = 1 << 20;

fn charge() -> Request {
    Request::post("/v1/charges").key(key()).json("{}")
}

/// Nothing is left that an exchange could still hold.
async fn idle(envoy: &Envoy) {
    until("the proxy to be idle", || async {
        let active = envoy.stats().await.get("http.data.downstream_rq_active");
        (active == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_answer_beyond_the_limit_passes_and_is_only_remembered() {
    const LIMIT: usize = 100_000;
    let config = filter::with_route(json!({"replay": {"max_inline_body": LIMIT}}));
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, config).start().await;
    let addr = envoy.addr();
    let h2 = H2::connect(addr).await.unwrap();
    for framing in ["length", "chunked", "close"] {
        for size in [LIMIT, LIMIT + 1, 10 * MIB] {
            upstream.reset();
            let request = charge();
            let first = Raw::exchange(addr, &request.wants_octets(1, size, framing)).await;
            let first = first.unwrap();
            assert_eq!(first.status, 201);
            assert!(first.body == octets(1, size), "{framing} {size}");
            for again in [
                Raw::exchange(addr, &request).await.unwrap(),
                h2.send(&request).await.unwrap(),
            ] {
                if size <= LIMIT {
                    replayed(&first, &again);
                } else {
                    unavailable(&again, "answer_too_large", 201);
                }
            }
            assert_eq!(upstream.effects(), 1, "{framing} {size}");
        }
    }
    assert_eq!(envoy.vm_traps(), 0);
}

/// Memory for recording is bounded for each worker; answers pass all the same, and are told from
/// those that can be replayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_large_answers_at_once_take_no_more_memory_than_allowed() {
    const ANSWERS: usize = 100;
    const ALLOWED: usize = 8;
    const WORKERS: usize = 2;
    let mut config = filter::with_route(json!({"upstream": {"timeout": "60s"}}));
    config["limits"] = json!({"recording_bytes": format!("{ALLOWED}MiB")});
    // So that the store is no narrower.
    config["store"]["shared_data"]["bodies"] = json!("1GiB");
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, config)
        .concurrency(u32::try_from(WORKERS).unwrap())
        .start()
        .await;
    let requests: Vec<Request> = (0..ANSWERS).map(|_| charge()).collect();
    let gated = |(n, r): (usize, &Request)| {
        let framing = if n % 2 == 0 { "length" } else { "chunked" };
        r.wants_octets(n as u64, MIB, framing)
            .header("x-demo-body-gate", "rest")
    };
    let running = tokio::spawn({
        let pool = envoy.pool();
        let requests = requests.iter().enumerate().map(gated).collect();
        async move { pool.send_all(requests).await }
    });
    // Half of each, so that they are all being recorded at the same time.
    upstream.wait_for_requests(ANSWERS as u64).await;
    until("half of each answer", || async {
        let stats = envoy.stats().await;
        let received = stats.get("cluster.upstream.upstream_cx_rx_bytes_total");
        (received >= (ANSWERS * MIB / 2) as u64).then_some(())
    })
    .await;
    upstream.open("rest");
    let firsts = running.await.unwrap();
    for (n, first) in firsts.iter().enumerate() {
        assert_eq!(first.status, 201, "{first:?}");
        assert!(first.body == octets(n as u64, MIB), "answer {n}");
    }
    let retry = async || {
        let mut replays = 0;
        for (request, first) in requests.iter().zip(&firsts) {
            let again = Raw::exchange(envoy.addr(), request).await.unwrap();
            if again.status == 201 {
                replayed(first, &again);
                replays += 1;
            } else {
                unavailable(&again, "recording_memory", 201);
            }
        }
        replays
    };
    let replays = retry().await;
    // Half of each was in the allowance at first.
    let most = 2 * ALLOWED * WORKERS;
    assert!((1..=most).contains(&replays), "{replays} are replayed");
    assert_eq!(retry().await, replays);
    let effects = upstream.effects_by();
    assert_eq!(effects.total, ANSWERS as u64);
    assert_eq!(effects.by_operation.len(), ANSWERS);
    assert!(effects.by_operation.values().all(|n| *n == 1));
    assert!(envoy.busy_workers().await >= WORKERS);
    // The memory is given back: as much can be recorded again, one after the other.
    idle(&envoy).await;
    for n in 0..2 * ALLOWED * WORKERS {
        let request = charge();
        let wanted = request.wants_octets(n as u64, MIB, "chunked");
        let first = Raw::exchange(envoy.addr(), &wanted).await.unwrap();
        replayed(
            &first,
            &Raw::exchange(envoy.addr(), &request).await.unwrap(),
        );
    }
    assert_eq!(envoy.vm_traps(), 0);
}

/// Recording memory of answers that broke off is given back too.
#[tokio::test]
async fn answers_that_break_off_give_their_memory_back() {
    let mut config = filter::minimal();
    config["limits"] = json!({"recording_bytes": "1MiB"});
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, config)
        .concurrency(1)
        .start()
        .await;
    let addr = envoy.addr();
    let half = |request: &Request| request.wants_octets(1, 2 * 600_000, "chunked");
    for n in 0..6 {
        let request = charge();
        if n % 2 == 0 {
            let breaking = half(&request).header("x-demo-fault", "partial-reset");
            assert!(Raw::exchange(addr, &breaking).await.is_err());
        } else {
            let mut answer = Raw::opened(addr, &half(&request).header("x-demo-body-gate", "never"))
                .await
                .unwrap();
            answer.exactly(600_000).await.unwrap();
            answer.reset();
        }
        unavailable(&settled(addr, &request).await, "answer_cut", 201);
    }
    let request = charge();
    let first = Raw::exchange(addr, &request.wants_octets(1, MIB, "chunked")).await;
    replayed(
        &first.unwrap(),
        &Raw::exchange(addr, &request).await.unwrap(),
    );
    assert_eq!(envoy.vm_traps(), 0);
}
