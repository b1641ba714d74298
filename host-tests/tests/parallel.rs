//! Duplicates at the same time: one effect, whatever the interleaving, worker or protocol.

use host_tests::{
    check::{self, refused, replayed, until},
    client::{Answer, Client, H2, Pool, Raw, Request, send_all},
    envoy::Envoy,
    filter::{self, key},
    upstream::Upstream,
};
use serde_json::json;
use std::collections::HashMap;
use tokio::task::JoinSet;

const DUPLICATES: usize = 20;
const OPERATIONS: usize = 500;

fn charge(key: &str) -> Request {
    Request::post("/v1/charges")
        .key(key)
        .json(r#"{"amount":1200,"currency":"eur"}"#)
}

fn waiting() -> serde_json::Value {
    filter::with_route(json!({"in_flight": {"action": "wait", "timeout": "10s"}}))
}

/// 409 `in_flight`, with a `Retry-After` that a client can obey.
#[track_caller]
fn in_flight(answer: &Answer) {
    refused(answer, 409, "in_flight");
    let seconds: u64 = answer
        .one("retry-after")
        .expect("Retry-After")
        .parse()
        .expect("whole seconds");
    assert!((1..=32).contains(&seconds), "{answer:?}");
}

/// Either the recorded answer or `in_flight`; gives whether it was the former.
#[track_caller]
fn recorded_or_in_flight(answer: &Answer) -> bool {
    if answer.status == 201 {
        return true;
    }
    in_flight(answer);
    false
}

/// While the first attempt is held at the upstream, all others are refused; afterwards all replay.
async fn the_others_are_refused_while_one_runs(upstream: &Upstream, client: impl Client) {
    let request = charge(&key()).header("x-demo-gate", "go");
    let mut attempts = JoinSet::new();
    for _ in 0..DUPLICATES {
        let (client, request) = (client.clone(), request.clone());
        attempts.spawn(async move { client.send(request).await.unwrap() });
    }
    for _ in 1..DUPLICATES {
        in_flight(&attempts.join_next().await.unwrap().unwrap());
    }
    assert_eq!(upstream.requests().len(), 1);
    upstream.open("go");
    let first = attempts.join_next().await.unwrap().unwrap();
    assert_eq!(first.status, 201);
    for again in send_all(&client, vec![request; DUPLICATES], DUPLICATES).await {
        replayed(&first, &again);
    }
    assert_eq!(upstream.effects(), 1);
}

/// All attempts get the one answer; exactly one of them is the first.
async fn all_wait_and_get_the_answer(envoy: &Envoy, upstream: &Upstream, client: impl Client) {
    let request = charge(&key()).header("x-demo-gate", "go");
    let running = tokio::spawn({
        let client = client.clone();
        async move { send_all(&client, vec![request; DUPLICATES], DUPLICATES).await }
    });
    until("all attempts to be in the proxy", || async {
        let active = envoy.stats().await.get("http.data.downstream_rq_active");
        (active == DUPLICATES as u64).then_some(())
    })
    .await;
    upstream.wait_for_requests(1).await;
    upstream.open("go");
    let answers = running.await.unwrap();
    let (firsts, replays): (Vec<_>, Vec<_>) = answers
        .iter()
        .partition(|a| a.one("idempotent-replayed") != Some("true"));
    assert_eq!(firsts.len(), 1, "{firsts:#?}");
    assert_eq!(firsts[0].status, 201);
    for again in replays {
        replayed(firsts[0], again);
    }
    assert_eq!(upstream.effects(), 1);
    assert_eq!(upstream.requests().len(), 1);
}

/// Every operation 2 to 8 times, in an order that is shuffled the same way each time.
fn interleaved() -> (Vec<String>, Vec<Request>) {
    let keys: Vec<String> = (0..OPERATIONS).map(|_| key()).collect();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        // xorshift64*: any order will do, as long as it is the same order.
        seed ^= seed >> 12;
        seed ^= seed << 25;
        seed ^= seed >> 27;
        usize::try_from(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % below
    };
    let mut requests: Vec<Request> = keys
        .iter()
        .flat_map(|k| std::iter::repeat_n(charge(k), 2 + next(7)))
        .collect();
    for i in (1..requests.len()).rev() {
        requests.swap(i, next(i + 1));
    }
    (keys, requests)
}

/// Effects equal operations, and every answer to one operation is the same answer.
async fn effects_equal_operations(upstream: &Upstream, client: impl Client, waits: bool) {
    let (keys, requests) = interleaved();
    assert!(requests.len() > 2 * OPERATIONS);
    let answers = send_all(&client, requests.clone(), 64).await;
    let mut recorded: HashMap<Vec<u8>, Answer> = HashMap::new();
    for (request, answer) in requests.iter().zip(&answers) {
        if recorded_or_in_flight(answer) {
            let key = request.headers[0].1.clone();
            let known = recorded.entry(key).or_insert_with(|| answer.clone());
            assert_eq!(known.body, answer.body);
            assert_eq!(known.business_headers(), answer.business_headers());
        } else {
            assert!(!waits, "a duplicate that waits is answered: {answer:?}");
        }
    }
    assert_eq!(recorded.len(), OPERATIONS, "each operation was answered");
    let firsts = answers
        .iter()
        .filter(|a| a.status == 201 && a.one("idempotent-replayed") != Some("true"));
    assert_eq!(firsts.count(), OPERATIONS, "each had one first answer");
    let effects = upstream.effects_by();
    assert_eq!(effects.total, OPERATIONS as u64);
    assert_eq!(effects.by_operation.len(), OPERATIONS);
    assert!(effects.by_operation.values().all(|n| *n == 1));
    for key in &keys {
        let again = client.send(charge(key)).await.unwrap();
        assert_eq!(again.one("idempotent-replayed"), Some("true"), "{again:?}");
        assert_eq!(again.body, recorded[key.as_bytes()].body);
    }
    assert_eq!(upstream.effects(), OPERATIONS as u64);
}

async fn with(filter: serde_json::Value) -> (Upstream, Envoy, Pool) {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter)
        .concurrency(2)
        .start()
        .await;
    let pool = envoy.pool();
    (upstream, envoy, pool)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_duplicates_over_two_workers_have_one_effect() {
    let (upstream, envoy, pool) = with(filter::minimal()).await;
    the_others_are_refused_while_one_runs(&upstream, pool).await;
    assert!(envoy.busy_workers().await >= 2, "both workers took part");
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_duplicates_over_one_http2_connection_have_one_effect() {
    let (upstream, envoy, _) = with(filter::minimal()).await;
    let h2 = H2::connect(envoy.addr()).await.unwrap();
    the_others_are_refused_while_one_runs(&upstream, h2).await;
    assert_eq!(envoy.stats().await.get("http.data.downstream_cx_total"), 1);
    assert_eq!(envoy.vm_traps(), 0);
}

/// Nothing is held at the upstream here, so duplicates meet every phase of the first attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_duplicates_without_pause_have_one_effect() {
    let (upstream, envoy, pool) = with(filter::minimal()).await;
    for round in 1..=25 {
        let answers = pool.send_all(vec![charge(&key()); DUPLICATES]).await;
        let recorded: Vec<_> = answers
            .iter()
            .filter(|a| recorded_or_in_flight(a))
            .collect();
        assert!(recorded.iter().all(|a| a.body == recorded[0].body));
        assert_eq!(upstream.effects(), round);
    }
    assert_eq!(envoy.vm_traps(), 0);
}

/// The narrowest window there is. Many open connections get a request each before the workers have
/// dealt with the first few, duplicates next to each other. Both workers then go through the same
/// operations side by side, microseconds apart. A claim that reads and then writes, without
/// compare-and-swap, lets some of them through twice, even where the two are adjacent host calls.
#[tokio::test]
async fn two_workers_side_by_side_make_one_claim_each() {
    const ROUNDS: u64 = 60;
    const KEYS: u64 = 32;
    const EACH: u64 = 8;
    let (upstream, envoy, _) = with(filter::minimal()).await;
    let mut connections = Vec::new();
    for _ in 0..KEYS * EACH {
        connections.push(Raw::connect(envoy.addr()).await);
    }
    for round in 1..=ROUNDS {
        let requests: Vec<Vec<u8>> = (0..KEYS)
            // Without a body, so that a refusal leaves the connection open.
            .map(|_| Raw::encode(&Request::post("/v1/charges").key(key())))
            .flat_map(|octets| std::iter::repeat_n(octets, EACH as usize))
            .collect();
        for (connection, octets) in connections.iter_mut().zip(&requests) {
            connection.write(octets).await;
        }
        for connection in &mut connections {
            recorded_or_in_flight(&connection.answer("POST").await.unwrap());
        }
        assert_eq!(upstream.effects(), round * KEYS, "after round {round}");
    }
    assert!(envoy.busy_workers().await >= 2, "both workers took part");
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_wait_all_twenty_get_the_answer() {
    let (upstream, envoy, pool) = with(waiting()).await;
    all_wait_and_get_the_answer(&envoy, &upstream, pool).await;
    assert!(envoy.busy_workers().await >= 2, "both workers took part");
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_wait_all_twenty_get_the_answer_over_one_http2_connection() {
    let (upstream, envoy, _) = with(waiting()).await;
    let h2 = H2::connect(envoy.addr()).await.unwrap();
    all_wait_and_get_the_answer(&envoy, &upstream, h2).await;
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_interleaved_operations() {
    let (upstream, envoy, pool) = with(filter::minimal()).await;
    effects_equal_operations(&upstream, pool, false).await;
    let stats = envoy.stats().await;
    let claimed = stats.idempo("idempo_claim_total", &[("result", "claimed")]);
    assert_eq!(claimed, OPERATIONS as u64);
    assert_eq!(
        stats.idempo("idempo_executed_total", &[]),
        OPERATIONS as u64
    );
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_interleaved_operations_that_wait() {
    let (upstream, envoy, pool) = with(waiting()).await;
    effects_equal_operations(&upstream, pool, true).await;
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_interleaved_operations_over_one_http2_connection() {
    for (filter, waits) in [(filter::minimal(), false), (waiting(), true)] {
        let (upstream, envoy, _) = with(filter).await;
        let h2 = H2::connect(envoy.addr()).await.unwrap();
        effects_equal_operations(&upstream, h2, waits).await;
        assert_eq!(envoy.stats().await.get("http.data.downstream_cx_total"), 1);
        assert_eq!(envoy.vm_traps(), 0);
    }
}

/// The key alone does not make an operation: routes and namespaces keep keys apart.
#[tokio::test]
async fn one_key_on_two_routes_is_two_operations() {
    let filter = json!({
        "store": {"shared_data": {}},
        "routes": [
            {"id": "charges", "match": {"methods": ["POST"], "path": {"exact": "/v1/charges"}}},
            {"id": "refunds", "match": {"methods": ["POST"], "path": {"exact": "/v1/refunds"}}},
        ],
    });
    let (upstream, _envoy, pool) = with(filter).await;
    let key = key();
    let first = pool.send(&charge(&key)).await.unwrap();
    let refund = Request::post("/v1/refunds").key(&key).json("{}");
    let other = pool.send(&refund).await.unwrap();
    assert_eq!((first.status, other.status), (201, 201));
    assert_ne!(
        first.one("idempotency-operation"),
        other.one("idempotency-operation")
    );
    assert_eq!(upstream.effects(), 2);
    check::replayed(&first, &pool.send(&charge(&key)).await.unwrap());
}
