//! Redis Cluster behind Envoy's own Redis proxy: filter, Webdis, `redis_proxy`, three masters.

use host_tests::{
    check::{refused, replayed, until},
    client::{Answer, Request, send_all},
    envoy::{Envoy, config},
    filter::{self, key},
    store::{cluster::Cluster, redis::Webdis, wire::Said},
    upstream::Upstream,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::{sync::Semaphore, task::JoinSet};

const DUPLICATES: usize = 20;
const OPERATIONS: usize = 200;
const OPERATIONS_AT_ONCE: usize = 16;

fn charge(key: &str) -> Request {
    Request::post("/v1/charges")
        .key(key)
        .json(r#"{"amount":1200,"currency":"eur"}"#)
}

/// An Envoy with a Redis proxy and a Webdis of its own.
struct Proxy {
    envoy: Envoy,
    _webdis: Webdis,
    _dir: TempDir,
}

impl Proxy {
    async fn start(upstream: &Upstream, cluster: &Cluster, members: Value) -> Self {
        let dir = TempDir::with_prefix("idempo-proxy-").unwrap();
        let socket = dir.path().join("socket");
        let webdis = Webdis::before(&socket, dir.path());
        let mut filter = filter::with_route(members);
        filter["store"] = json!({"redis": {
            "cluster": "webdis", "transport": "webdis", "topology": "cluster", "timeout": "0.5s",
        }});
        // Every answer is the store's.
        filter["replay_cache"] = json!({"bytes": 0});
        let envoy = Envoy::with_filter(upstream, filter)
            .options(|o| {
                cluster.add(o, &socket);
                o.clusters.push(config::cluster("webdis", &[webdis.addr()]));
            })
            .start()
            .await;
        let proxy = Self {
            envoy,
            _webdis: webdis,
            _dir: dir,
        };
        proxy.is_ready(1).await;
        proxy
    }

    async fn is_ready(&self, ready: u64) {
        until("the store's state", || async {
            let stats = self.envoy.stats().await;
            (stats.idempo("idempo_store_ready", &[]) == ready).then_some(())
        })
        .await;
    }

    async fn send(&self, request: &Request) -> Answer {
        self.envoy.pool().send(request).await.unwrap()
    }
}

/// 20 duplicates of each of 200 operations, spread over two Envoys of two workers each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_over_two_envoys_have_one_effect() {
    let cluster = Cluster::start();
    let upstream = Upstream::start().await;
    let route = json!({"in_flight": {"action": "wait", "timeout": "20s"}});
    let proxies = [
        Proxy::start(&upstream, &cluster, route.clone()).await,
        Proxy::start(&upstream, &cluster, route).await,
    ];
    let mut all = JoinSet::new();
    let at_once = Arc::new(Semaphore::new(OPERATIONS_AT_ONCE));
    for _ in 0..OPERATIONS {
        let place = Arc::clone(&at_once).acquire_owned().await;
        let request = charge(&key()).header("x-demo-delay-ms", "20");
        let pools = [proxies[0].envoy.pool(), proxies[1].envoy.pool()];
        all.spawn(async move {
            let _place = place;
            let [a, b] = pools.map(|pool| {
                let requests = vec![request.clone(); DUPLICATES / 2];
                async move { send_all(&pool, requests, DUPLICATES / 2).await }
            });
            let (a, b) = tokio::join!(a, b);
            a.into_iter().chain(b).collect::<Vec<Answer>>()
        });
    }
    while let Some(answers) = all.join_next().await {
        let answers = answers.unwrap();
        let is_first = |a: &&Answer| a.one("idempotent-replayed") != Some("true");
        let first: Vec<_> = answers.iter().filter(is_first).collect();
        assert_eq!(first.len(), 1, "{answers:#?}");
        assert_eq!(first[0].status, 201, "{:?}", first[0]);
    }
    assert_eq!(upstream.effects(), OPERATIONS as u64);
    for proxy in &proxies {
        assert_eq!(proxy.envoy.vm_traps(), 0);
    }
    // Every master has had its share.
    for mut admin in cluster.admins() {
        let Said::Number(keys) = admin.command(&["DBSIZE"]) else {
            panic!("a number");
        };
        assert!(keys > 40, "{keys} keys");
    }
}

/// Keys whose operations a master has, or the others have. An operation's id is only known from its
/// answer: so these have been sent once.
async fn spread(proxy: &Proxy, cluster: &Cluster, of: usize) -> (Vec<Request>, Vec<Request>) {
    let (mut its, mut others) = (Vec::new(), Vec::new());
    while its.len() < 4 || others.len() < 8 {
        let request = charge(&key());
        let answer = proxy.send(&request).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let operation = answer.one("idempotency-operation").unwrap();
        if cluster.master_of(operation) == of {
            its.push(request);
        } else {
            others.push(request);
        }
    }
    (its, others)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_master_that_hangs_fails_its_own_operations_alone() {
    let cluster = Cluster::start();
    let upstream = Upstream::start().await;
    let proxy = Proxy::start(&upstream, &cluster, json!({})).await;
    let (its, others) = spread(&proxy, &cluster, 1).await;
    let effects = upstream.effects();

    cluster.stop(1);
    // Its own operations are refused, and soon without waiting for it.
    for _ in 0..4 {
        for request in &its {
            let problem = refused(&proxy.send(request).await, 503, "store_unavailable");
            assert!(problem["detail"].is_string(), "{problem}");
        }
    }
    proxy.is_ready(0).await;
    // The others' go on meanwhile, all of them, whatever comes for the dead one.
    let hammered = {
        let (pool, its) = (proxy.envoy.pool(), its.clone());
        tokio::spawn(async move {
            let requests: Vec<_> = (0..40).flat_map(|_| its.clone()).collect();
            send_all(&pool, requests, 4).await
        })
    };
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        for request in &others {
            let began = Instant::now();
            let answer = proxy.send(request).await;
            assert_eq!(answer.status, 201, "{answer:?}");
            assert_eq!(answer.one("idempotent-replayed"), Some("true"));
            slowest = slowest.max(began.elapsed());
        }
    }
    for answer in hammered.await.unwrap() {
        refused(&answer, 503, "store_unavailable");
    }
    assert!(slowest < Duration::from_millis(900), "{slowest:?}");
    eprintln!("slowest answer of a living shard: {slowest:?}");
    assert_eq!(upstream.effects(), effects, "nothing ran unclaimed");

    cluster.go_on(1);
    for request in &its {
        until("a replay", || async {
            let answer = proxy.send(request).await;
            (answer.one("idempotent-replayed") == Some("true")).then_some(())
        })
        .await;
    }
    proxy.is_ready(1).await;
    assert_eq!(upstream.effects(), effects);
    // The gauge is that of whichever worker spoke last; another may still be taking the shard up again.
    let fresh = charge(&key());
    let first = until("a first attempt", || async {
        let answer = proxy.send(&fresh).await;
        if answer.status == 503 {
            refused(&answer, 503, "store_unavailable");
            return None;
        }
        Some(answer)
    })
    .await;
    assert_eq!(first.status, 201, "{first:?}");
    replayed(&first, &proxy.send(&fresh).await);
    assert_eq!(upstream.effects(), effects + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_started_again_from_its_file_has_forgotten_nothing() {
    let mut cluster = Cluster::start();
    let upstream = Upstream::start().await;
    let proxy = Proxy::start(&upstream, &cluster, json!({})).await;
    let (its, others) = spread(&proxy, &cluster, 2).await;
    let effects = upstream.effects();
    // What was answered is with the kernel by then: a process that dies loses none of it.
    cluster.restart(2);
    for request in its.iter().chain(&others) {
        until("a replay", || async {
            let answer = proxy.send(request).await;
            (answer.one("idempotent-replayed") == Some("true")).then_some(())
        })
        .await;
    }
    assert_eq!(upstream.effects(), effects);
    assert!(!proxy.envoy.log().contains("has lost writes"));
}
