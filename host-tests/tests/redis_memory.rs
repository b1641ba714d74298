//! What a record takes in Redis: the figures of `docs/stores.md`.

use host_tests::{
    check::until,
    client::{Request, send_all},
    envoy::{Envoy, workspace},
    filter::{self, key},
    store::{
        front::Front,
        redis::{Server, Way},
        wire::Said,
    },
    upstream::Upstream,
};
use serde_json::json;

const OPERATIONS: usize = 1_000;
const BODY: usize = 1_000;

/// The figure on the line of the document that begins so.
fn documented(what: &str) -> i64 {
    let text = std::fs::read_to_string(workspace().join("docs/stores.md")).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with(what))
        .expect(what);
    let figure = line.split('|').nth(2).expect("a second column");
    let digits: String = figure.chars().filter(char::is_ascii_digit).collect();
    digits.parse().expect("a figure")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_takes_what_the_document_says() {
    let redis = Server::start(&[]);
    let front = Front::start(&redis, Way::Webdis);
    let upstream = Upstream::start().await;
    let mut filter = filter::minimal();
    filter["store"] = front.store(&json!({}));
    let builder = Envoy::with_filter(&upstream, filter);
    let envoy = front.reached(builder, front.addr()).start().await;
    until("the store to be ready", || async {
        (envoy.stats().await.idempo("idempo_store_ready", &[]) == 1).then_some(())
    })
    .await;
    let charge = || {
        Request::post("/v1/charges")
            .key(key())
            .wants_octets(1, BODY, "length")
            .json(r#"{"amount":1200,"currency":"eur"}"#)
    };
    let requests = (0..OPERATIONS).map(|_| charge()).collect();
    for answer in send_all(&envoy.pool(), requests, 16).await {
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    let mut admin = redis.admin();
    let Said::Array(keys) = admin.command(&["KEYS", "*"]) else {
        panic!("keys");
    };
    let (mut records, mut bodies) = (Vec::new(), Vec::new());
    for name in keys {
        let name = name.text();
        let taken = admin.command(&["MEMORY", "USAGE", &name]).number();
        match name.split(':').nth(3) {
            Some("r") => records.push(taken),
            Some("b") => bodies.push(taken),
            _ => {}
        }
    }
    assert_eq!((records.len(), bodies.len()), (OPERATIONS, OPERATIONS));
    let mean = |of: &[i64]| of.iter().sum::<i64>() / i64::try_from(of.len()).unwrap();
    let (record, body) = (mean(&records), mean(&bodies));
    eprintln!("a record {record}, the answer of {BODY} octets {body}");
    for (seen, what) in [
        (record, "| record |"),
        (body, "| recorded answer of 1,000 octets |"),
    ] {
        let said = documented(what);
        assert!(
            (said * 9 / 10..=said * 11 / 10).contains(&seen),
            "{what} {said}, seen {seen}"
        );
    }
}
