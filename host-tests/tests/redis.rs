//! Several Envoys, one Redis: duplicates that come to all of them, at the same time.

use host_tests::{
    check::{refused, replayed, until},
    client::{Answer, Request, send_all},
    envoy::{Envoy, crash_module},
    filter::{self, key},
    store::{
        front::Front,
        redis::{PASSWORD, Server, Way},
    },
    upstream::Upstream,
};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::{sync::Semaphore, task::JoinSet};

const DUPLICATES: usize = 20;
const OPERATIONS: usize = 200;

/// So many at a time, 20 duplicates each: more would measure the machine.
const OPERATIONS_AT_ONCE: usize = 16;

fn server(way: Way) -> Server {
    match way {
        Way::RespWithLogin => Server::start(&["--requirepass", PASSWORD]),
        _ => Server::start(&[]),
    }
}

fn charge(key: &str) -> Request {
    Request::post("/v1/charges")
        .key(key)
        .json(r#"{"amount":1200,"currency":"eur"}"#)
}

fn over(front: &Front, route: Value) -> Value {
    let mut filter = filter::with_route(route);
    filter["store"] = front.store(&json!({}));
    filter
}

async fn start(upstream: &Upstream, front: &Front, filter: &Value) -> Envoy {
    let builder = Envoy::with_filter(upstream, filter.clone());
    let envoy = front.reached(builder, front.addr()).start().await;
    until("the store to be ready", || async {
        (envoy.stats().await.idempo("idempo_store_ready", &[]) == 1).then_some(())
    })
    .await;
    envoy
}

async fn first_and_replay(way: Way) {
    let redis = server(way);
    let front = Front::start(&redis, way);
    let upstream = Upstream::start().await;
    let filter = over(&front, json!({}));
    let (one, two) = (
        start(&upstream, &front, &filter).await,
        start(&upstream, &front, &filter).await,
    );
    let request = charge(&key());
    let first = one.pool().send(&request).await.unwrap();
    assert_eq!(first.status, 201, "{first:?}\n{}", one.log());
    assert_eq!(first.one("idempotency-status"), Some("completed"));
    for envoy in [&one, &two, &two] {
        let again = envoy.pool().send(&request).await.unwrap();
        replayed(&first, &again);
    }
    assert_eq!(upstream.effects(), 1);
}

#[tokio::test]
async fn a_replay_comes_from_another_envoy_webdis() {
    first_and_replay(Way::Webdis).await;
}

#[tokio::test]
async fn a_replay_comes_from_another_envoy_rest() {
    first_and_replay(Way::Rest).await;
}

#[tokio::test]
async fn a_replay_comes_from_another_envoy_resp() {
    first_and_replay(Way::Resp).await;
}

#[tokio::test]
async fn a_replay_comes_from_another_envoy_resp_with_login() {
    first_and_replay(Way::RespWithLogin).await;
}

/// 20 duplicates of each of 200 operations, spread over two Envoys of two workers each.
async fn parallel(way: Way) {
    let redis = server(way);
    let front = Front::start(&redis, way);
    let upstream = Upstream::start().await;
    let route = json!({"in_flight": {"action": "wait", "timeout": "20s"}});
    let filter = over(&front, route);
    let envoys = [
        start(&upstream, &front, &filter).await,
        start(&upstream, &front, &filter).await,
    ];
    let mut all = JoinSet::new();
    let at_once = Arc::new(Semaphore::new(OPERATIONS_AT_ONCE));
    for _ in 0..OPERATIONS {
        let place = Arc::clone(&at_once).acquire_owned().await;
        let request = charge(&key()).header("x-demo-delay-ms", "20");
        let pools = [envoys[0].pool(), envoys[1].pool()];
        all.spawn(async move {
            let _place = place;
            let halves = pools.map(|pool| {
                let requests = vec![request.clone(); DUPLICATES / 2];
                async move { send_all(&pool, requests, DUPLICATES / 2).await }
            });
            let [a, b] = halves;
            let (a, b) = tokio::join!(a, b);
            a.into_iter().chain(b).collect::<Vec<Answer>>()
        });
    }
    while let Some(answers) = all.join_next().await {
        let answers = answers.unwrap();
        let first: Vec<_> = answers
            .iter()
            .filter(|a| a.one("idempotent-replayed") != Some("true"))
            .collect();
        assert_eq!(first.len(), 1, "{answers:#?}");
        assert_eq!(first[0].status, 201, "{:?}", first[0]);
    }
    assert_eq!(upstream.effects(), OPERATIONS as u64);
    for envoy in &envoys {
        assert_eq!(envoy.vm_traps(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_over_two_envoys_have_one_effect_webdis() {
    parallel(Way::Webdis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_over_two_envoys_have_one_effect_rest() {
    parallel(Way::Rest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_over_two_envoys_have_one_effect_resp() {
    parallel(Way::Resp).await;
}

/// Redis drops what of a large answer it has not written when the call's end reaches it: so no such
/// answer is ever asked for.
#[tokio::test]
async fn over_raw_resp_a_large_answer_is_remembered_and_not_replayed() {
    let redis = server(Way::Resp);
    let front = Front::start(&redis, Way::Resp);
    let upstream = Upstream::start().await;
    // Nothing but the store can answer.
    let mut filter = over(&front, json!({"replay": {"max_inline_body": "1MiB"}}));
    filter["replay_cache"] = json!({"bytes": 0});
    let (one, two) = (
        start(&upstream, &front, &filter).await,
        start(&upstream, &front, &filter).await,
    );
    for (size, whole) in [(8 << 10, true), (100 << 10, false)] {
        let request = charge(&key()).header("x-demo-size", size.to_string());
        let first = one.pool().send(&request).await.unwrap();
        assert_eq!(first.status, 201, "{first:?}");
        assert!(first.body.len() >= size, "{}", first.body.len());
        for envoy in [&one, &two] {
            let again = envoy.pool().send(&request).await.unwrap();
            if whole {
                replayed(&first, &again);
            } else {
                refused(&again, 409, "replay_unavailable");
            }
        }
    }
    assert_eq!(upstream.effects(), 2);
    assert_eq!(one.stats().await.idempo("idempo_store_ready", &[]), 1);
}

/// Many at once: their records fill no answer.
#[tokio::test]
async fn over_raw_resp_many_looks_travel_together() {
    let redis = server(Way::Resp);
    let front = Front::start(&redis, Way::Resp);
    let upstream = Upstream::start().await;
    let mut filter = over(&front, json!({}));
    filter["replay_cache"] = json!({"bytes": 0});
    let envoy = start(&upstream, &front, &filter).await;
    let requests: Vec<_> = (0..200)
        .map(|_| charge(&key()).header("x-demo-size", "6000"))
        .collect();
    let pool = envoy.pool();
    let firsts = send_all(&pool, requests.clone(), 64).await;
    let again = send_all(&pool, requests, 64).await;
    for (first, again) in firsts.iter().zip(&again) {
        replayed(first, again);
    }
    assert_eq!(upstream.effects(), 200);
}

/// Two versions of the filter, neighbours by their record format, share a store while one replaces the
/// other: the newer reads what the older writes, the older refuses what it cannot read, and neither
/// runs or damages what is the other's.
#[tokio::test]
async fn two_record_formats_share_a_store() {
    let redis = Server::start(&[]);
    let front = Front::start(&redis, Way::Webdis);
    let upstream = Upstream::start().await;
    let filter = over(&front, json!({}));
    let old = start(&upstream, &front, &filter).await;
    let builder = Envoy::with_filter(&upstream, filter)
        .env("IDEMPO_TEST_FORMAT", "next")
        .options(|o| o.wasm = crash_module());
    let new = front.reached(builder, front.addr()).start().await;

    let by_old = charge(&key());
    let first = old.pool().send(&by_old).await.unwrap();
    assert_eq!(first.status, 201, "{first:?}");
    replayed(&first, &new.pool().send(&by_old).await.unwrap());

    let by_new = charge(&key());
    let first = new.pool().send(&by_new).await.unwrap();
    assert_eq!(first.status, 201, "{first:?}");
    let problem = refused(
        &old.pool().send(&by_new).await.unwrap(),
        409,
        "outcome_unknown",
    );
    assert_eq!(problem["reason"], "record_corrupt");
    replayed(&first, &new.pool().send(&by_new).await.unwrap());
    assert_eq!(upstream.effects(), 2);
}
