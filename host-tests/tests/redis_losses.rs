//! A Redis that comes back without its last writes: a copy of its disk, a file that was cut, a replica that
//! lagged. Both Envoys have seen what is lost, one has written it.

use host_tests::{
    check::{refused, replayed, until},
    client::Raw,
    filter::key,
    store::{
        front::Front,
        loss::{Loss, Lossy},
        redis::{Server, Way},
        site::{builder, charge, gauge, is_replay, once_known, sound, start, swept},
    },
    upstream::Upstream,
};
use serde_json::json;

const BEFORE: u64 = 20;
const LOST: u64 = 40;

async fn last_writes_are_lost(loss: Loss) {
    let mut redis = Lossy::start(loss);
    let mut front = Front::start(redis.server(), Way::Webdis);
    let upstream = Upstream::start().await;
    let store = json!({"hold": "6s"});
    let envoy = || {
        let route = json!({"lease": "5s"});
        start(builder(&upstream, &front, front.addr(), &store, route).concurrency(1))
    };
    let (one, two) = tokio::join!(envoy(), envoy());
    let both = [&one, &two];
    let mut done = Vec::new();
    for n in 0..BEFORE + LOST {
        if n == BEFORE {
            // Every shard has begun by then.
            for envoy in both {
                swept(envoy).await;
            }
            redis.keep();
        }
        let request = charge(&key());
        let first = Raw::exchange(one.addr(), &request).await.unwrap();
        assert_eq!(first.status, 201, "{first:?}");
        done.push((request, first));
    }
    let running = charge(&key());
    let sent = tokio::spawn({
        let (addr, request) = (one.addr(), running.clone().header("x-demo-gate", "open"));
        async move { Raw::exchange(addr, &request).await }
    });
    upstream.wait_for_requests(BEFORE + LOST + 1).await;
    for envoy in both {
        swept(envoy).await;
    }
    if loss == Loss::Failover {
        front.kill();
    }
    redis.lose();
    if loss == Loss::Failover {
        front.revive(redis.server());
    }

    for envoy in both {
        gauge(envoy, "idempo_store_recovering", 1).await;
        // That the server is another one shows at once, that writes are lost with the shard that lost them.
        until("the loss to be noticed", || async {
            let told = envoy.log();
            let noticed = told.contains("has lost writes of shard") && told.contains("a lower seq");
            let forgot = envoy.stats().await.idempo("idempo_store_forgot_total", &[]);
            (forgot >= 1 && noticed).then_some(())
        })
        .await;
    }
    let fresh = charge(&key());
    let answer = Raw::exchange(two.addr(), &fresh).await.unwrap();
    refused(&answer, 503, "store_recovering");
    assert!(answer.one("retry-after").is_some(), "{answer:?}");
    upstream.open("open");
    let ran = sent.await.unwrap().unwrap();
    assert_eq!(ran.status, 201, "{ran:?}");
    done.push((running, ran));

    // Through whichever Envoy the retry comes, and from now on: what was lost is refused until it has
    // been written again, and then replayed.
    for (request, first) in &done {
        for envoy in both {
            let again = once_known(envoy, request).await;
            assert!(is_replay(&again), "{again:?}\n{}\n{}", one.log(), two.log());
            replayed(first, &again);
        }
    }
    for envoy in both {
        gauge(envoy, "idempo_store_recovering", 0).await;
        gauge(envoy, "idempo_write_backlog", 0).await;
        gauge(envoy, "idempo_unknown_open", 0).await;
    }
    let late = Raw::exchange(two.addr(), &fresh).await.unwrap();
    assert_eq!(late.status, 201, "{late:?}");
    assert_eq!(upstream.effects(), BEFORE + LOST + 2);
    sound(&both, &upstream);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_copy_of_the_disk() {
    last_writes_are_lost(Loss::EarlierCopy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_ends_too_soon() {
    last_writes_are_lost(Loss::CutFile).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_lagged_takes_over() {
    last_writes_are_lost(Loss::Failover).await;
}

/// Redis does not say which server it is (a hosted one, a user without `INFO`): then nothing can tell that
/// another has taken its place, and whoever runs it has to know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_does_not_say_which_server_it_is_is_warned_of() {
    let redis = Server::start(&[]);
    redis
        .admin()
        .command(&["ACL", "SETUSER", "default", "-info"]);
    let front = Front::start(&redis, Way::Webdis);
    let upstream = Upstream::start().await;
    let envoy = start(builder(
        &upstream,
        &front,
        front.addr(),
        &json!({}),
        json!({}),
    ))
    .await;
    until("the warning", || async {
        let said = "does not say which server it is";
        envoy.log().contains(said).then_some(())
    })
    .await;
    let request = charge(&key());
    let first = Raw::exchange(envoy.addr(), &request).await.unwrap();
    assert_eq!(first.status, 201, "{first:?}");
    let again = Raw::exchange(envoy.addr(), &request).await.unwrap();
    replayed(&first, &again);
}
