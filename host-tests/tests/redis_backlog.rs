//! Writes that cannot be made for a while, under load and across configurations: the client has its
//! answer at once, and the record comes when the store takes it.

use host_tests::{
    check::{replayed, until},
    client::{Pool, Raw},
    filter::key,
    store::{
        front::Front,
        gate::{Deed, Gate, Kind},
        redis::{Server, Way},
        site::{builder, charge, code, config, gauge, insist_on_new, is_replay, sound, start},
    },
    upstream::Upstream,
};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{task::JoinSet, time::Instant};

const CLIENTS: usize = 8;
const RUNNING: usize = 200;
const PENDING: u64 = 30;

/// The store takes claims and answers, and loses every record that ends an operation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completions_that_fail_for_ten_seconds_under_load() {
    const FAILING: Duration = Duration::from_secs(10);
    let redis = Server::start(&[]);
    let front = Front::start(&redis, Way::Webdis);
    let gate = Gate::start(front.addr()).await;
    let upstream = Upstream::start().await;
    let route = json!({"lease": "20s", "upstream": {"timeout": "5s"}});
    let one = start(
        builder(&upstream, &front, gate.addr(), &json!({}), route.clone()).options(|o| {
            // One operation in each call: claims do not share the completions' fate.
            let filter = o.filter.as_mut().expect("a filter");
            filter["limits"] = json!({"store_batch": 1});
        }),
    )
    .await;
    let two = start(builder(&upstream, &front, front.addr(), &json!({}), route)).await;
    let over = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (over, addr) = (Arc::clone(&over), one.addr());
        clients.spawn(async move {
            let mut stories = Vec::new();
            while !over.load(Ordering::Acquire) {
                stories.push(insist_on_new(&[addr]).await);
            }
            stories
        });
    }
    upstream.wait_for_requests(40).await;
    // These run already when it begins.
    let mut running = JoinSet::new();
    for _ in 0..RUNNING {
        let (addr, key) = (one.addr(), key());
        running.spawn(async move {
            let request = charge(&key).header("x-demo-gate", "open");
            (key, Pool::new(addr).send(&request).await.unwrap())
        });
    }
    until("them to run", || async {
        let active = one.stats().await.get("cluster.upstream.upstream_rq_active");
        (active >= RUNNING as u64).then_some(())
    })
    .await;
    let fails = gate.trap(Kind::Settling, u64::MAX, Deed::LoseCall);
    upstream.open("open");
    let (begin, mut most) = (Instant::now(), 0);
    while begin.elapsed() < FAILING {
        let stats = one.stats().await;
        most = most.max(stats.idempo("idempo_write_backlog", &[]));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let stats = one.stats().await;
    let compensated = stats.idempo("idempo_compensation_total", &[]);
    eprintln!(
        "at most {most} writes waited, {compensated} compensation lines, {} calls lost",
        fails.count()
    );
    assert!(most >= RUNNING as u64 && compensated >= most);
    drop(fails);
    let at_end = upstream.effects();
    until("new effects", || async {
        (upstream.effects() > at_end + 40).then_some(())
    })
    .await;
    over.store(true, Ordering::Release);
    let stories: Vec<_> = clients.join_all().await.into_iter().flatten().collect();
    gauge(&one, "idempo_write_backlog", 0).await;
    let mut before = std::collections::BTreeMap::<&str, u64>::new();
    for said in stories.iter().flat_map(|story| &story.before) {
        *before.entry(said).or_default() += 1;
    }
    eprintln!(
        "{} operations, refused meanwhile: {before:?}",
        stories.len()
    );
    assert!(before.keys().all(|said| *said == "503 store_unavailable"));
    let mut done = running.join_all().await;
    for story in stories {
        let answer = story.answer.unwrap_or_else(|| panic!("{:?}", story.before));
        done.push((story.key, answer));
    }
    let effects = upstream.effects_by().by_key;
    for (key, first) in &done {
        assert_eq!(first.status, 201, "{first:?}");
        assert_eq!(effects.get(key), Some(&1), "{key}");
        let again = Raw::exchange(two.addr(), &charge(key)).await.unwrap();
        assert!(is_replay(&again), "{key}: {again:?}");
        assert_eq!(again.body, first.body);
    }
    for envoy in [&one, &two] {
        gauge(envoy, "idempo_unknown_open", 0).await;
    }
    sound(&[&one, &two], &upstream);
}

/// What waits for the store belongs to the process and not to the configuration under which it began.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_outlives_the_configuration_that_made_it() {
    let mut redis = Server::durable();
    let front = Front::start(&redis, Way::Webdis);
    let upstream = Upstream::start().await;
    let route = json!({"lease": "20s", "upstream": {"timeout": "5s"}});
    let build = || builder(&upstream, &front, front.addr(), &json!({}), route.clone());
    let mut one = start(build().lds().drain_time_s(1)).await;
    let two = start(build()).await;
    let keys: Vec<String> = (0..PENDING).map(|_| key()).collect();
    let mut sent = JoinSet::new();
    for key in &keys {
        let (addr, key) = (one.addr(), key.clone());
        sent.spawn(async move {
            let request = charge(&key).header("x-demo-gate", "open");
            (key, Raw::exchange(addr, &request).await)
        });
    }
    upstream.wait_for_requests(PENDING).await;
    redis.kill();
    upstream.open("open");
    let mut firsts = Vec::new();
    while let Some(done) = sent.join_next().await {
        let (key, answer) = done.unwrap();
        let answer = answer.unwrap();
        assert_eq!(answer.status, 201, "{answer:?}");
        firsts.push((key, answer));
    }
    gauge(&one, "idempo_write_backlog", PENDING).await;
    // Twice, so that whoever takes it over hands it on; each time the old one is wholly gone.
    for wait in ["0.2s", "0.3s"] {
        let mut route = route.clone();
        route["in_flight"] = json!({"action": "wait", "timeout": wait});
        one.reload(config(&front, &json!({}), route)).await.unwrap();
        until("the old configuration to be gone", || async {
            let stats = one.stats().await;
            let left = stats.get("listener_manager.total_listeners_draining")
                + stats.get("listener_manager.total_filter_chains_draining");
            (left == 0).then_some(())
        })
        .await;
    }
    let waits = Raw::exchange(one.addr(), &charge(&keys[0])).await.unwrap();
    assert_eq!(code(&waits), "store_unavailable", "{waits:?}");
    redis.revive();
    gauge(&one, "idempo_store_ready", 1).await;
    gauge(&one, "idempo_write_backlog", 0).await;
    for (key, first) in &firsts {
        let again = until("the store to be reached again", || async {
            let again = Raw::exchange(two.addr(), &charge(key)).await.ok()?;
            (code(&again) != "store_unavailable").then_some(again)
        })
        .await;
        replayed(first, &again);
    }
    assert_eq!(upstream.effects(), PENDING);
    let forgot = one.stats().await.idempo("idempo_store_forgot_total", &[]);
    assert_eq!(forgot, 0);
    sound(&[&one, &two], &upstream);
}
