//! One of two Envoys is drained and ended, as a rollout does it, while duplicates pour in on both.

use host_tests::{
    check::until,
    envoy::{Builder, Envoy, SIGNING_SECRET, config::LOOPBACK},
    filter::key,
    store::{
        front::Front,
        redis::{Server, Way},
        site::{Story, builder, charge, gauge, insist, is_replay, sound, start},
    },
    upstream::Upstream,
};
use serde_json::json;
use std::{collections::BTreeMap, net::SocketAddr};
use tokio::task::JoinSet;

/// Operations that are begun before the drain, during it, and after the end.
const BEFORE: u64 = 60;
const AFTER: u64 = 60;

/// Operations at once.
const AT_ONCE: usize = 6;

/// Duplicates of each, half of them to either Envoy.
const DUPLICATES: usize = 4;

#[derive(Default)]
struct Load {
    running: JoinSet<Vec<Story>>,
    done: Vec<Vec<Story>>,
}

impl Load {
    /// Begins one operation, once there is room. Who finds his Envoy gone goes to the other.
    async fn begin(&mut self, addrs: [SocketAddr; 2]) {
        if self.running.len() >= AT_ONCE {
            let done = self.running.join_next().await.expect("some run");
            self.done.push(done.expect("no panic"));
        }
        self.running.spawn(async move {
            let request = charge(&key()).header("x-demo-delay-ms", "30");
            let mut duplicates = JoinSet::new();
            for n in 0..DUPLICATES {
                let request = request.clone();
                let addrs = if n % 2 == 0 {
                    addrs
                } else {
                    [addrs[1], addrs[0]]
                };
                duplicates.spawn(async move { insist(&addrs, &request).await });
            }
            duplicates.join_all().await
        });
    }

    async fn end(mut self) -> Vec<Vec<Story>> {
        self.done.extend(self.running.join_all().await);
        self.done
    }
}

async fn drained(detached: bool) {
    let redis = Server::start(&[]);
    let front = Front::start(&redis, Way::Webdis);
    let upstream = Upstream::start().await;
    let build = || -> Builder {
        let route = json!({"in_flight": {"action": "wait", "timeout": "5s"}});
        let builder = builder(&upstream, &front, front.addr(), &json!({}), route).drain_time_s(1);
        if !detached {
            return builder;
        }
        builder.loopback().options(|o| {
            let filter = o.filter.as_mut().expect("a filter");
            filter["signing"] = json!({"active": {"env": SIGNING_SECRET}});
            filter["loopback_cluster"] = json!(LOOPBACK);
        })
    };
    let (mut one, two) = tokio::join!(start(build()), start(build()));
    if detached {
        for envoy in [&one, &two] {
            gauge(envoy, "idempo_loopback_ready", 1).await;
        }
    }
    let addrs = [one.addr(), two.addr()];
    let mut load = Load::default();
    for _ in 0..BEFORE {
        load.begin(addrs).await;
    }
    one.drain().await;
    while tokio::net::TcpStream::connect(one.addr()).await.is_ok() {
        load.begin(addrs).await;
    }
    // What a rollout waits for.
    until("nothing to be left in it", || async {
        let left = left_in(&one).await;
        (left == 0).then_some(())
    })
    .await;
    assert_eq!(one.vm_traps(), 0);
    let shared = one.stats().await.idempo("idempo_executed_total", &[]);
    assert!(shared > 0, "it took no part");
    one.terminate().await;
    for _ in 0..AFTER {
        load.begin(addrs).await;
    }
    let stories = load.end().await;
    let (operations, effects) = (stories.len() as u64, upstream.effects_by());
    let mut refused = BTreeMap::<&str, u64>::new();
    for said in stories.iter().flatten().flat_map(|story| &story.before) {
        let said = if said.contains("no answer") {
            "no connection"
        } else {
            said
        };
        *refused.entry(said).or_default() += 1;
    }
    eprintln!(
        "{operations} operations, detached {detached}, {shared} run by the one that went; {refused:?}"
    );
    assert_eq!(effects.total, operations);
    for duplicates in &stories {
        let answers: Vec<_> = duplicates
            .iter()
            .map(|s| s.answer.as_ref().unwrap_or_else(|| panic!("{s:#?}")))
            .collect();
        let fresh = answers.iter().filter(|a| !is_replay(a)).count();
        assert_eq!(fresh, 1, "{duplicates:#?}");
        assert!(answers.iter().all(|a| a.body == answers[0].body));
        assert_eq!(effects.by_key.get(&duplicates[0].key), Some(&1));
    }
    gauge(&two, "idempo_unknown_open", 0).await;
    gauge(&two, "idempo_write_backlog", 0).await;
    sound(&[&two], &upstream);
}

/// Requests, detached calls and writes that would be lost with it.
async fn left_in(envoy: &Envoy) -> u64 {
    let stats = envoy.stats().await;
    stats.get("http.data.downstream_rq_active")
        + stats.idempo("idempo_detached_calls", &[])
        + stats.idempo("idempo_write_backlog", &[])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_is_drained_inline() {
    drained(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_is_drained_detached() {
    drained(true).await;
}
