//! Envoys in front of a Redis, as tests of several files need them, and clients that repeat themselves.

use super::front::{CLUSTER, Front};
use crate::{
    check::until,
    client::{Answer, Pool, Request},
    envoy::{Builder, Envoy},
    filter::{self, key},
    upstream::Upstream,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, net::SocketAddr, time::Duration};
use tokio::time::{Instant, sleep};

/// How long [`insist`] waits between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// How long it goes on.
const PATIENCE: Duration = Duration::from_secs(40);

/// An operation under that key.
#[must_use]
pub fn charge(key: &str) -> Request {
    Request::post("/v1/charges")
        .key(key)
        .json(r#"{"amount":1200,"currency":"eur"}"#)
}

/// An Envoy that reaches the store at that address, with members of `store.redis` and of the rule. Every
/// answer comes from the store itself.
#[must_use]
pub fn builder(
    upstream: &Upstream,
    front: &Front,
    addr: SocketAddr,
    store: &Value,
    route: Value,
) -> Builder {
    let builder = Envoy::with_filter(upstream, config(front, store, route));
    front.reached(builder, addr)
}

/// The filter's part of [`builder`].
#[must_use]
pub fn config(front: &Front, store: &Value, route: Value) -> Value {
    let mut config = filter::with_route(route);
    config["store"] = front.store(store);
    config["replay_cache"] = json!({"bytes": 0});
    config
}

/// Starts it, and waits until it reaches its store.
pub async fn start(builder: Builder) -> Envoy {
    let envoy = builder.start().await;
    gauge(&envoy, "idempo_store_ready", 1).await;
    envoy
}

/// Waits until one of idempo's gauges has that value.
pub async fn gauge(envoy: &Envoy, name: &str, value: u64) {
    until(&format!("{name} {value}"), || async {
        (envoy.stats().await.idempo(name, &[]) == value).then_some(())
    })
    .await;
}

/// Waits until the Envoy has looked at every shard once more: what it has seen can be missed.
pub async fn swept(envoy: &Envoy) {
    let answered = format!("cluster.{CLUSTER}.upstream_rq_200");
    let seen = envoy.stats().await.get(&answered);
    until("a sweep of every shard", || async {
        (envoy.stats().await.get(&answered) > seen + 16).then_some(())
    })
    .await;
}

/// Whether it is a recorded answer.
#[must_use]
pub fn is_replay(answer: &Answer) -> bool {
    answer.one("idempotent-replayed") == Some("true")
}

/// The `code` of a refusal; of other answers nothing.
#[must_use]
pub fn code(answer: &Answer) -> String {
    let problem = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
    problem["code"].as_str().unwrap_or_default().to_owned()
}

/// What a client got that repeats itself until it has an answer of the upstream's.
#[derive(Debug)]
pub struct Story {
    /// The operation's key.
    pub key: String,
    /// The answer, unless its patience ended before.
    pub answer: Option<Answer>,
    /// Before that: status and code of every refusal, or why the connection failed.
    pub before: Vec<String>,
}

/// Sends one operation to those addresses in turn, each time on a connection of its own, until it has an
/// answer of the upstream's, fresh or replayed.
pub async fn insist(addrs: &[SocketAddr], request: &Request) -> Story {
    let key = request.headers.iter().find(|(n, _)| n == "idempotency-key");
    let key = key.map_or_else(String::new, |(_, k)| {
        String::from_utf8_lossy(k).into_owned()
    });
    let mut story = Story {
        key,
        answer: None,
        before: Vec::new(),
    };
    let end = Instant::now() + PATIENCE;
    for addr in addrs.iter().cycle() {
        match Pool::new(*addr).send(request).await {
            Ok(answer) if answer.status == 201 => {
                story.answer = Some(answer);
                return story;
            }
            Ok(answer) => {
                let said = format!("{} {}", answer.status, code(&answer));
                story.before.push(said);
            }
            Err(why) => story.before.push(why),
        }
        if Instant::now() > end {
            break;
        }
        sleep(PAUSE).await;
    }
    story
}

/// One new operation, and what became of it.
pub async fn insist_on_new(addrs: &[SocketAddr]) -> Story {
    insist(addrs, &charge(&key()).header("x-demo-delay-ms", "10")).await
}

/// Sends until the answer is about the operation: neither a missing store nor a recovery nor an attempt
/// that runs holds it back.
///
/// # Panics
/// After 40 s.
pub async fn once_known(envoy: &Envoy, request: &Request) -> Answer {
    const WAITS: [&str; 3] = ["store_recovering", "store_unavailable", "in_flight"];
    let pool = envoy.pool();
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = pool.send(request).await.expect("an answer");
        if !WAITS.contains(&code(&answer).as_str()) {
            return answer;
        }
        assert!(Instant::now() < end, "{answer:?}\n{}", envoy.log());
        sleep(PAUSE).await;
    }
}

/// Whatever else, these hold at the end of each test: no VM has trapped, and no operation ran twice.
///
/// # Panics
/// Where they do not.
#[track_caller]
pub fn sound(envoys: &[&Envoy], upstream: &Upstream) {
    for envoy in envoys {
        assert_eq!(envoy.vm_traps(), 0);
    }
    let effects = upstream.effects_by().by_key;
    let twice: BTreeMap<_, _> = effects.into_iter().filter(|(_, n)| *n > 1).collect();
    assert!(twice.is_empty(), "ran twice: {twice:#?}");
}
