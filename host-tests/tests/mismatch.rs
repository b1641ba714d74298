//! One key, two requests: what makes them the same, and what a refusal gives away (nothing).

use host_tests::{
    check::{discloses_none, refused, replayed},
    client::{Pool, Request},
    envoy::Envoy,
    filter::{self, key},
    upstream::Upstream,
};
use serde_json::{Value, json};

/// In every recorded answer.
const ANSWER: &str = "MARKANSWER";
/// In the first request, where it has a place for it.
const FIRST: &str = "MARKFIRST";
/// In the second.
const SECOND: &str = "MARKSECOND";

fn config() -> Value {
    filter::with_route(json!({
        "match": {
            "methods": ["POST", "PUT"],
            "path": {"template": "/v1/orders/{id}/charges"},
        },
    }))
}

fn order(method: &str, target: &str) -> Request {
    Request::new(method, target)
}

/// The answer has a marker in its body and in a header.
fn marked(request: Request) -> Request {
    request
        .wants_body(format!(r#"{{"secret":"{ANSWER}"}}"#))
        .wants_header("x-answer", format!("{ANSWER}-header"))
}

async fn start() -> (Upstream, Envoy, Pool) {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, config()).start().await;
    let pool = envoy.pool();
    (upstream, envoy, pool)
}

const ORDER: &str = "/v1/orders/7/charges";

fn json_body(body: &str) -> Request {
    order("POST", ORDER).json(body)
}

fn content(media_type: &str, body: &str) -> Request {
    order("POST", ORDER).content(media_type, body)
}

fn multipart(boundary: &str, first: &str) -> Request {
    let body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{first}\r\n\
         --{boundary}\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x.bin\"\r\n\
         Content-Type: application/octet-stream\r\n\r\nfile\r\n--{boundary}--\r\n"
    );
    content(&format!("multipart/form-data; boundary={boundary}"), &body)
}

/// Pairs that are different requests.
fn different() -> Vec<(&'static str, Request, Request)> {
    let body = |m: &str| format!(r#"{{"amount":1,"note":"{m}"}}"#);
    let plain = || json_body(&body(FIRST));
    let at = |target: &str| order("POST", target).json(body(FIRST));
    vec![
        ("body", plain(), json_body(&body(SECOND))),
        ("no body", plain(), order("POST", ORDER)),
        (
            "raw body",
            content("text/plain", FIRST),
            content("text/plain", SECOND),
        ),
        (
            "query value",
            at(&format!("{ORDER}?q={FIRST}")),
            at(&format!("{ORDER}?q={SECOND}")),
        ),
        ("query added", plain(), at(&format!("{ORDER}?q={SECOND}"))),
        (
            "query multiplicity",
            at(&format!("{ORDER}?q=1")),
            at(&format!("{ORDER}?q=1&q=1")),
        ),
        (
            "instance of the template",
            at(&format!("/v1/orders/{FIRST}/charges")),
            at(&format!("/v1/orders/{SECOND}/charges")),
        ),
        ("media type", plain(), content("text/plain", &body(FIRST))),
        ("no media type", plain(), {
            let mut bare = order("POST", ORDER);
            bare.body = body(FIRST).into();
            bare
        }),
        ("method", plain(), order("PUT", ORDER).json(body(FIRST))),
        (
            "content encoding",
            plain(),
            plain().header("content-encoding", "x-other"),
        ),
        (
            "number against string",
            json_body(r#"{"amount":1}"#),
            json_body(r#"{"amount":"1"}"#),
        ),
        (
            "null against missing",
            json_body(r#"{"amount":1,"note":null}"#),
            json_body(r#"{"amount":1}"#),
        ),
        (
            "array order",
            json_body(r#"{"a":[1,2]}"#),
            json_body(r#"{"a":[2,1]}"#),
        ),
        (
            "array length",
            json_body(r#"{"a":[1]}"#),
            json_body(r#"{"a":[1,1]}"#),
        ),
        (
            "a small amount",
            json_body(r#"{"a":1.01}"#),
            json_body(r#"{"a":1.010001}"#),
        ),
        (
            "form value",
            content(
                "application/x-www-form-urlencoded",
                &format!("a=1&b={FIRST}"),
            ),
            content(
                "application/x-www-form-urlencoded",
                &format!("a=1&b={SECOND}"),
            ),
        ),
        (
            "multipart value",
            multipart("x", FIRST),
            multipart("x", SECOND),
        ),
    ]
}

/// Pairs that are one request written twice.
fn same() -> Vec<(&'static str, Request, Request)> {
    let form = "application/x-www-form-urlencoded";
    let at = |target: &str| order("POST", target).json("{}");
    vec![
        (
            "JSON member order and white space",
            json_body(r#"{"amount":1,"deep":{"a":[1,2],"b":"x"}}"#),
            json_body("{ \"deep\": {\"b\":\"x\",\n\"a\":[1, 2]}, \"amount\": 1 }"),
        ),
        (
            "JSON escapes and number forms",
            json_body(r#"{"a":"\u0041\/","n":10}"#),
            json_body(r#"{"a":"A/","n":1.0e1}"#),
        ),
        (
            "media type parameters and case",
            content("application/json", "{}"),
            content("Application/JSON; charset=utf-8", "{}"),
        ),
        (
            "multipart boundary",
            multipart("one", "v"),
            multipart("another-one", "v"),
        ),
        (
            "form order",
            content(form, "a=1&b=2"),
            content(form, "b=2&a=1"),
        ),
        (
            "query order",
            at(&format!("{ORDER}?a=1&b=2")),
            at(&format!("{ORDER}?b=2&a=1")),
        ),
    ]
}

#[tokio::test]
async fn another_request_under_the_same_key_is_refused_and_told_nothing() {
    let (upstream, envoy, pool) = start().await;
    for (what, first, second) in different() {
        eprintln!("{what}");
        let key = key();
        let (first, second) = (marked(first.key(&key)), marked(second.key(&key)));
        let before = upstream.effects();
        let answer = pool.send(&first).await.unwrap();
        assert_eq!(answer.status, 201, "{what}: {answer:?}");
        let refusal = pool.send(&second).await.unwrap();
        refused(&refusal, 422, "payload_mismatch");
        discloses_none(&refusal, &[ANSWER, FIRST, SECOND, &key]);
        assert_eq!(upstream.effects(), before + 1, "{what}");
        // The refusal did the recorded answer no harm.
        replayed(&answer, &pool.send(&first).await.unwrap());
        assert_eq!(upstream.effects(), before + 1, "{what}");
    }
    let refusals = different().len() as u64;
    let stats = envoy.stats().await;
    assert_eq!(stats.idempo("idempo_conflict_total", &[]), refusals);
    for line in envoy.access_log() {
        let text = line["audit"].to_string() + &line["outcome"].to_string();
        for marker in [ANSWER, FIRST, SECOND] {
            assert!(!text.contains(marker), "{line}");
        }
    }
    let log = envoy.log();
    for marker in [ANSWER, FIRST, SECOND] {
        assert!(!log.contains(marker), "{marker} is in Envoy's log");
    }
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn one_request_written_twice_is_replayed() {
    let (upstream, envoy, pool) = start().await;
    for (what, first, second) in same() {
        eprintln!("{what}");
        let key = key();
        let before = upstream.effects();
        let answer = pool.send(&first.key(&key)).await.unwrap();
        assert_eq!(answer.status, 201, "{what}: {answer:?}");
        replayed(&answer, &pool.send(&second.key(&key)).await.unwrap());
        assert_eq!(upstream.effects(), before + 1, "{what}");
    }
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn a_quoted_key_is_the_bare_key() {
    let (upstream, _envoy, pool) = start().await;
    for (one, other) in [("{}", "\"{}\""), ("\"{}\"", "{}"), ("\"{}\"", "\"{}\";a=1")] {
        let key = key();
        let before = upstream.effects();
        let send = |form: &str| pool_request(form, &key);
        let answer = pool.send(&send(one)).await.unwrap();
        assert_eq!(answer.status, 201, "{one}: {answer:?}");
        replayed(&answer, &pool.send(&send(other)).await.unwrap());
        assert_eq!(upstream.effects(), before + 1, "{one} {other}");
    }
}

fn pool_request(form: &str, key: &str) -> Request {
    json_body("{}").key(form.replace("{}", key))
}

/// The order of checks: another request is a mismatch even while the first one runs.
#[tokio::test]
async fn a_mismatch_is_one_while_the_first_attempt_runs() {
    let (upstream, _envoy, pool) = start().await;
    let key = key();
    let first = marked(json_body(&format!(r#"{{"n":"{FIRST}"}}"#)))
        .key(&key)
        .header("x-demo-gate", "go");
    let running = tokio::spawn({
        let pool = pool.clone();
        async move { pool.send(&first).await.unwrap() }
    });
    upstream.wait_for_requests(1).await;
    let second = json_body(&format!(r#"{{"n":"{SECOND}"}}"#)).key(&key);
    let refusal = pool.send(&second).await.unwrap();
    refused(&refusal, 422, "payload_mismatch");
    discloses_none(&refusal, &[ANSWER, FIRST, SECOND, &key]);
    upstream.open("go");
    assert_eq!(running.await.unwrap().status, 201);
    assert_eq!(upstream.effects(), 1);
}

/// 422, 409 and 400 are all in use.
#[tokio::test]
async fn the_status_of_a_mismatch_is_the_routes_choice() {
    let upstream = Upstream::start().await;
    let config = filter::with_route(json!({"statuses": {"payload_mismatch": 409}}));
    let envoy = Envoy::with_filter(&upstream, config).start().await;
    let charge = |body: &str| Request::post("/v1/charges").key(KEY).json(body);
    assert_eq!(envoy.pool().send(&charge("{}")).await.unwrap().status, 201);
    let refusal = envoy.pool().send(&charge("[]")).await.unwrap();
    refused(&refusal, 409, "payload_mismatch");
}

const KEY: &str = "0b9c7e3e-5f0c-4a51-8a7e-2f8f3d1f6c55";
