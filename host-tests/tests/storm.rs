//! Everything at once: uploads of all sizes, clients that leave at any moment, upstreams that fail,
//! duplicates beside them, a configuration that is replaced meanwhile. Afterwards every operation is
//! settled, none ran twice, and nothing is left over.

use host_tests::{
    check::until,
    client::{BodyFraming, H2, H2Upload, Raw, Request, Upload},
    envoy::{Envoy, SIGNING_SECRET, config::LOOPBACK},
    filter::{self, key},
    upstream::Upstream,
};
use serde_json::json;
use std::{net::SocketAddr, time::Duration};
use tokio::task::JoinSet;

const OPERATIONS: usize = 240;
const AT_ONCE: usize = 24;

/// Sizes around what is held, and beyond.
const SIZES: [usize; 7] = [0, 40, 30_000, 65_536, 65_537, 300_000, 2_000_000];

fn operation(rng: &mut fastrand::Rng) -> Request {
    let body = vec![b'a' + rng.u8(..26); SIZES[rng.usize(..SIZES.len())]];
    let request = Request::post("/v1/files").key(key());
    if body.len() < 50 {
        request.json(if body.is_empty() {
            "{}"
        } else {
            r#"{"amount":1}"#
        })
    } else {
        request.content("application/octet-stream", body)
    }
}

/// What the upstream does with one attempt.
fn fate(request: Request, rng: &mut fastrand::Rng) -> Request {
    match rng.u8(..10) {
        0 => request.header("x-demo-fault", "act-reset"),
        1 => request.header("x-demo-fault", "partial"),
        2 => request.wants_status(503),
        3 => request.wants_status(429).header("x-demo-no-effect", "1"),
        4 => request.header("x-demo-size", "400000"),
        5 => request
            .header("x-demo-chunks", "3")
            .header("x-demo-chunk-delay-ms", "10"),
        _ => request.header("x-demo-delay-ms", rng.u16(..60).to_string()),
    }
}

/// One attempt, which its client may abandon at any moment.
async fn attempt(addr: SocketAddr, request: Request, mut rng: fastrand::Rng) {
    let patience = Duration::from_millis(rng.u64(1..250));
    let leaves = rng.u8(..3) == 0;
    let length = request.body.len();
    let stop = if leaves { rng.usize(..=length) } else { length };
    let exchange = async {
        if rng.bool() {
            let framing = if rng.bool() {
                BodyFraming::Length
            } else {
                BodyFraming::Chunked
            };
            let mut upload = Upload::begin(addr, &request, framing).await;
            let _ = upload.send(stop, 16_000).await;
            if stop < length {
                if rng.bool() {
                    upload.reset();
                } else {
                    upload.leave().await;
                }
                return;
            }
            let _ = upload.end(16_000, &[]).await;
            let _ = upload.answer().await;
        } else if let Ok(h2) = H2::connect(addr).await
            && let Ok(mut upload) = H2Upload::begin(&h2, &request).await
        {
            let _ = upload.send(stop, 16_000).await;
            if stop < length {
                return upload.reset();
            }
            let _ = upload.end(16_000, &[]).await;
            if let Ok(answer) = upload.arriving().await {
                let _ = answer.rest().await;
            }
        }
    };
    if leaves {
        let _ = tokio::time::timeout(patience, exchange).await;
    } else {
        exchange.await;
    }
}

/// What became of the operation: answers `201`, or a refusal that says that nobody knows or that it cannot
/// be served again.
async fn settled(addr: SocketAddr, request: &Request) -> String {
    until("the operation to be settled", || async {
        let answer = Raw::exchange(addr, request).await.ok()?;
        if answer.status == 201 {
            return Some("done".to_owned());
        }
        let code = answer.json()["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        (code != "in_flight").then_some(code)
    })
    .await
}

async fn storm(detached: bool) {
    let upstream = Upstream::start().await;
    let configured = |wait: &str| {
        let mut config = filter::with_route(json!({
            "lease": "1s",
            "in_flight": {"action": "wait", "timeout": wait},
        }));
        config["store"]["shared_data"]["records"] = json!("4MiB");
        if detached {
            config["loopback_cluster"] = json!(LOOPBACK);
            config["signing"] = json!({"active": {"env": SIGNING_SECRET}});
        }
        config
    };
    let mut builder = Envoy::with_filter(&upstream, configured("0.3s"))
        .lds()
        .drain_time_s(1);
    if detached {
        builder = builder.loopback();
    }
    let mut envoy = builder.start().await;
    let addr = envoy.addr();
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}, detached {detached}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let operations: Vec<Request> = (0..OPERATIONS).map(|_| operation(&mut rng)).collect();
    let mut attempts: Vec<Request> = Vec::new();
    for some in operations.chunks(AT_ONCE / 2) {
        for _ in 0..3 {
            attempts.extend(some.iter().cloned().map(|r| fate(r, &mut rng)));
        }
    }
    let load = tokio::spawn(async move {
        let mut running = JoinSet::new();
        for request in attempts {
            if running.len() >= AT_ONCE {
                running
                    .join_next()
                    .await
                    .expect("some run")
                    .expect("no panic");
            }
            running.spawn(attempt(addr, request, rng.fork()));
        }
        while let Some(done) = running.join_next().await {
            done.expect("no panic");
        }
    });
    // Replaced once while it runs: what was begun goes on under the old one.
    upstream.wait_for_requests(60).await;
    envoy.reload(configured("0.31s")).await.unwrap();
    load.await.expect("no panic");

    let mut codes = std::collections::BTreeMap::<String, usize>::new();
    for request in &operations {
        *codes.entry(settled(addr, request).await).or_default() += 1;
    }
    eprintln!("{codes:?}");
    let known = ["done", "outcome_unknown", "replay_unavailable"];
    assert!(
        codes.keys().all(|c| known.contains(&c.as_str())),
        "{codes:?}"
    );
    assert!(codes["done"] > OPERATIONS / 3, "{codes:?}");
    let effects = upstream.effects_by();
    let twice: Vec<_> = effects
        .by_operation
        .iter()
        .filter(|(_, n)| **n > 1)
        .collect();
    assert!(twice.is_empty(), "{twice:?}");
    // Whatever is recorded stays as it is.
    let before = upstream.effects();
    for request in &operations {
        settled(addr, request).await;
    }
    assert_eq!(upstream.effects(), before);
    until("nothing left over", || async {
        let stats = envoy.stats().await;
        let left = stats.idempo("idempo_detached_calls", &[])
            + stats.idempo("idempo_write_backlog", &[])
            + stats.get("http.data.downstream_rq_active");
        (left == 0).then_some(())
    })
    .await;
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_twice_in_a_storm_inline() {
    storm(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_twice_in_a_storm_detached() {
    storm(true).await;
}
