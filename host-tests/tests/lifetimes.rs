//! How long things are remembered, what changes of meaning do to them, and what happens when there
//! is no room.

use host_tests::{
    check::{refused, replayed, until},
    client::{Answer, Raw, Request},
    envoy::Envoy,
    filter::{self, key},
    upstream::Upstream,
};
use serde_json::{Value, json};
use std::net::SocketAddr;

fn charge() -> Request {
    Request::post("/v1/charges").key(key()).json("{}")
}

async fn send(addr: SocketAddr, request: &Request) -> Answer {
    // A connection of its own, so that it meets the newest configuration.
    Raw::exchange(addr, request).await.unwrap()
}

#[tokio::test]
async fn a_raised_schema_version_replays_nothing_old_and_runs_nothing_again() {
    let upstream = Upstream::start().await;
    let versioned = |v: &str| filter::with_route(json!({"schema_version": v}));
    let mut envoy = Envoy::with_filter(&upstream, versioned("1"))
        .lds()
        .start()
        .await;
    let addr = envoy.addr();
    let (request, other) = (charge(), charge());
    let first = send(addr, &request).await;
    replayed(&first, &send(addr, &request).await);

    envoy.reload(versioned("2")).await.unwrap();
    for _ in 0..2 {
        let refusal = send(addr, &request).await;
        let problem = refused(&refusal, 409, "replay_unavailable");
        assert_eq!(problem["reason"], "schema_changed");
        assert_eq!(refusal.one("idempotency-status"), Some("completed"));
        let known = first.one("idempotency-operation");
        assert_eq!(refusal.one("idempotency-operation"), known);
    }
    // The fingerprint is judged first: another payload is a mismatch, whatever the version.
    let mut mismatch = request.clone();
    mismatch.body = "[]".into();
    refused(&send(addr, &mismatch).await, 422, "payload_mismatch");
    assert_eq!(upstream.effects(), 1);
    let newer = send(addr, &other).await;
    replayed(&newer, &send(addr, &other).await);

    // Rolled back, each is what it was for the version that wrote it.
    envoy.reload(versioned("1")).await.unwrap();
    replayed(&first, &send(addr, &request).await);
    refused(&send(addr, &other).await, 409, "replay_unavailable");
    assert_eq!(upstream.effects(), 2);
    assert_eq!(envoy.vm_traps(), 0);
}

/// A route whose windows are seconds.
fn brief(id: &str, tombstone: &str) -> Value {
    json!({
        "id": id,
        "match": {"methods": ["POST"], "path": {"prefix": format!("/{id}")}},
        "lease": "1s",
        "accepted_deadline": "1s",
        "replay": {"ttl": "3s", "tombstone_ttl": tombstone},
    })
}

/// Sends until the answer is no replay any more.
async fn after_replays(addr: SocketAddr, request: &Request, first: &Answer) -> Answer {
    until("the replay window's end", || async {
        let answer = send(addr, request).await;
        if answer.one("idempotent-replayed") == Some("true") {
            replayed(first, &answer);
            return None;
        }
        Some(answer)
    })
    .await
}

#[tokio::test]
async fn a_key_is_replayed_then_refused_then_new_again() {
    let upstream = Upstream::start().await;
    let config = json!({
        "store": {"shared_data": {"records": "1MiB"}},
        "routes": [brief("remembers", "3s"), brief("forgets", "0s")],
    });
    let envoy = Envoy::with_filter(&upstream, config).start().await;
    let addr = envoy.addr();
    let request = Request::post("/remembers").key(key()).json("{}");
    let first = send(addr, &request).await;
    let again = send(addr, &request).await;
    replayed(&first, &again);
    assert_eq!(
        again.one("idempotency-expires"),
        first.one("idempotency-expires")
    );
    assert!(first.one("idempotency-expires").is_some());

    let gone = after_replays(addr, &request, &first).await;
    let problem = refused(&gone, 410, "key_expired");
    assert_eq!(problem["reason"], "window_over");
    assert_eq!(gone.one("idempotency-status"), Some("expired"));
    // The tombstone comes first: it is refused as expired, not as a mismatch.
    let mut other = request.clone();
    other.body = "[]".into();
    refused(&send(addr, &other).await, 410, "key_expired");
    assert_eq!(upstream.effects(), 1);

    let anew = until("the tombstone's end", || async {
        let answer = send(addr, &request).await;
        (answer.status != 410).then_some(answer)
    })
    .await;
    assert_eq!(anew.status, 201, "{anew:?}");
    assert_eq!(anew.one("idempotent-replayed"), Some("false"));
    assert_eq!(upstream.effects(), 2);
    replayed(&anew, &send(addr, &request).await);

    // Without tombstones an expired key is a new operation at once.
    let request = Request::post("/forgets").key(key()).json("{}");
    let first = send(addr, &request).await;
    let anew = after_replays(addr, &request, &first).await;
    assert_eq!(anew.status, 201, "{anew:?}");
    assert_eq!(upstream.effects(), 4);
    let stats = envoy.stats().await;
    let expired = stats.idempo("idempo_expired_total", &[("route", "remembers")]);
    assert!(expired >= 2, "{expired}");
    assert_eq!(
        stats.idempo("idempo_expired_total", &[("route", "forgets")]),
        0
    );
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn a_full_store_refuses_new_operations_keeps_what_it_has_and_takes_new_ones_later() {
    let upstream = Upstream::start().await;
    let mut brief = brief("brief", "0s");
    brief["replay"]["ttl"] = json!("5s");
    let config = json!({
        "store": {"shared_data": {"records": "64KiB", "tombstones": "64KiB", "bodies": "16MiB"}},
        "routes": [
            {"id": "charges", "match": {"methods": ["POST"], "path": {"prefix": "/v1"}}},
            brief,
        ],
    });
    let envoy = Envoy::with_filter(&upstream, config).start().await;
    let pool = envoy.pool();
    // What will be over soon, so that there is room again.
    for _ in 0..40 {
        let request = Request::post("/brief").key(key()).json("{}");
        assert_eq!(pool.send(&request).await.unwrap().status, 201);
    }
    let mut kept = Vec::new();
    let refusal = loop {
        assert!(kept.len() < 1000, "64 KiB hold no thousand records");
        let request = charge();
        let answer = pool.send(&request).await.unwrap();
        if answer.status != 201 {
            break answer;
        }
        kept.push((request, answer));
    };
    assert!(kept.len() > 40, "{}", kept.len());
    let problem = refused(&refusal, 503, "store_full");
    assert_eq!(problem["reason"], "store");
    let seconds: u32 = refusal.one("retry-after").unwrap().parse().unwrap();
    assert!((1..=32).contains(&seconds), "{seconds}");
    assert_eq!(upstream.effects(), 40 + kept.len() as u64);
    for (request, first) in &kept {
        replayed(first, &pool.send(request).await.unwrap());
    }
    let stats = until("the gauge", || async {
        let stats = envoy.stats().await;
        (stats.idempo("idempo_store_used_ratio", &[]) > 300).then_some(stats)
    })
    .await;
    assert!(stats.idempo("idempo_store_used_ratio", &[]) <= 1000);
    let failed = stats.idempo("idempo_claim_total", &[("result", "failed")]);
    assert_eq!(failed, 1);
    // Room comes back with the windows that end; nothing has to be restarted for it.
    let effects = upstream.effects();
    let fresh = until("room", || async {
        let answer = pool.send(&charge()).await.unwrap();
        if answer.status == 201 {
            return Some(answer);
        }
        refused(&answer, 503, "store_full");
        None
    })
    .await;
    assert_eq!(fresh.one("idempotent-replayed"), Some("false"));
    assert_eq!(upstream.effects(), effects + 1);
    for (request, first) in &kept {
        replayed(first, &pool.send(request).await.unwrap());
    }
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn one_tenant_cannot_fill_the_store_for_another_and_the_store_says_since_when_it_remembers() {
    let upstream = Upstream::start().await;
    let mut config = filter::minimal();
    config["tenant"] = json!({"sources": [{"header": "x-tenant"}]});
    config["limits"] = json!({"tenant_records": 5});
    let envoy = Envoy::with_filter(&upstream, config).start().await;
    let pool = envoy.pool();
    let mut kept = Vec::new();
    for _ in 0..5 {
        let request = charge().header("x-tenant", "acme");
        let answer = pool.send(&request).await.unwrap();
        assert_eq!(answer.status, 201, "{answer:?}");
        kept.push((request, answer));
    }
    for _ in 0..3 {
        let refusal = pool
            .send(&charge().header("x-tenant", "acme"))
            .await
            .unwrap();
        let problem = refused(&refusal, 503, "store_full");
        assert_eq!(problem["reason"], "tenant_quota");
        assert!(refusal.one("retry-after").is_some());
    }
    for (request, first) in &kept {
        replayed(first, &pool.send(request).await.unwrap());
    }
    for _ in 0..5 {
        let answer = pool
            .send(&charge().header("x-tenant", "globex"))
            .await
            .unwrap();
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    // What is released counts no more.
    let before = upstream.effects();
    for _ in 0..7 {
        let request = charge().header("x-tenant", "initech").wants_status(429);
        let answer = pool.send(&request).await.unwrap();
        assert_eq!(answer.status, 429, "{answer:?}");
    }
    assert_eq!(upstream.effects(), before + 7);

    // `shared_data` forgets on restart, and says so on every answer of an operation.
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let (request, first) = &kept[0];
    let again = pool.send(request).await.unwrap();
    let mut mismatch = request.clone();
    mismatch.body = "[]".into();
    let refusal = pool.send(&mismatch).await.unwrap();
    for answer in [first, &again, &refusal] {
        let store = answer.one("idempotency-store").unwrap_or_default();
        let since = store.strip_prefix("shared_data; since=");
        let since: u64 = since
            .unwrap_or_else(|| panic!("{answer:?}"))
            .parse()
            .unwrap();
        assert!((now - 120..=now).contains(&since), "{since} and {now}");
    }
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn one_tenant_cannot_begin_more_than_its_share_in_a_second() {
    let upstream = Upstream::start().await;
    let mut config = filter::minimal();
    config["tenant"] = json!({"sources": [{"header": "x-tenant"}]});
    config["limits"] = json!({"tenant_claims_per_second": 3});
    let envoy = Envoy::with_filter(&upstream, config)
        .concurrency(1)
        .start()
        .await;
    let pool = envoy.pool();
    let mut refusals = 0;
    // More than any clock lets through while they are sent.
    for _ in 0..40 {
        let request = charge().header("x-tenant", "acme");
        let answer = pool.send(&request).await.unwrap();
        if answer.status == 201 {
            continue;
        }
        refusals += 1;
        let problem = refused(&answer, 503, "store_full");
        assert_eq!(problem["reason"], "tenant_rate");
        assert!(answer.one("retry-after").is_some());
    }
    assert!(refusals > 0);
    assert_eq!(upstream.effects(), 40 - refusals);
    let other = charge().header("x-tenant", "globex");
    assert_eq!(pool.send(&other).await.unwrap().status, 201);
}
