//! A Redis that comes back without its last writes, and a retry that comes at once to an Envoy that has never
//! seen them: it cannot know that anything is missing, and must not run anything either.

use host_tests::{
    client::Raw,
    filter::key,
    store::{
        front::Front,
        gate::{Deed, Gate, Kind},
        loss::{Loss, Lossy},
        redis::Way,
        site::{builder, charge, is_replay, once_known, sound, start, swept},
    },
    upstream::Upstream,
};
use serde_json::json;

const LOST: u64 = 40;

/// A retry may come to a proxy that has never seen what was lost, before the one that wrote it has heard
/// of the loss.
async fn a_stranger_to_the_loss_is_asked_first(loss: Loss) {
    let mut redis = Lossy::start(loss);
    let mut front = Front::start(redis.server(), Way::Webdis);
    let gate = Gate::start(front.addr()).await;
    let upstream = Upstream::start().await;
    let store = json!({"hold": "6s"});
    let envoy = |addr| {
        let route = json!({"lease": "5s"});
        start(builder(&upstream, &front, addr, &store, route).concurrency(1))
    };
    let (one, two) = tokio::join!(envoy(front.addr()), envoy(gate.addr()));
    for envoy in [&one, &two] {
        swept(envoy).await;
    }
    // Of what comes now it learns nothing by itself.
    let looks = gate.trap(Kind::Sweep, u64::MAX, Deed::LoseCall);
    redis.keep();
    let mut done = Vec::new();
    for _ in 0..LOST {
        let request = charge(&key());
        let first = Raw::exchange(one.addr(), &request).await.unwrap();
        assert_eq!(first.status, 201, "{first:?}");
        done.push((request, first));
    }
    if loss == Loss::Failover {
        front.kill();
    }
    redis.lose();
    if loss == Loss::Failover {
        front.revive(redis.server());
    }
    let retries: Vec<_> = done.iter().map(|(request, _)| request.clone()).collect();
    let answers = two.pool().send_all(retries).await;
    let fresh = answers.iter().filter(|a| a.status == 201 && !is_replay(a));
    eprintln!("{loss:?}: {} of {LOST} ran again", fresh.count());
    assert_eq!(upstream.effects(), LOST, "{}", two.log());
    drop(looks);
    for (request, first) in &done {
        for envoy in [&one, &two] {
            let again = once_known(envoy, request).await;
            assert!(is_replay(&again), "{again:?}\n{}\n{}", one.log(), two.log());
            assert_eq!(again.body, first.body);
        }
    }
    assert_eq!(upstream.effects(), LOST);
    sound(&[&one, &two], &upstream);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_to_an_earlier_copy() {
    a_stranger_to_the_loss_is_asked_first(Loss::EarlierCopy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_to_a_failover() {
    a_stranger_to_the_loss_is_asked_first(Loss::Failover).await;
}
