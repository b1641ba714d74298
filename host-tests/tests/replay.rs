//! What a replay gives: the recorded answer to the byte, and nothing that a client forged.

use host_tests::{
    check::{refused, replayed},
    client::{H2, Raw, Request},
    envoy::{Envoy, Options, eager_retries},
    filter::{self, key},
    upstream::Upstream,
};

fn charge() -> Request {
    Request::post("/v1/charges")
        .key(key())
        .json(r#"{"amount":1200}"#)
}

/// Answers in all the shapes that upstreams give them.
fn shapes() -> Vec<(&'static str, Request)> {
    let octets: Vec<u8> = (0..=255).cycle().take(3000).collect();
    let long: Vec<u8> = (0..=255).cycle().take(40_000).collect();
    vec![
        ("JSON, 201 and Location", charge()),
        (
            "every octet",
            charge()
                .wants_status(200)
                .wants_body(&octets)
                .wants_header("content-type", "application/octet-stream"),
        ),
        (
            "several lines of one name, and values with commas",
            charge()
                .wants_header("x-multi", "one")
                .wants_header("x-multi", "two, with a comma")
                .wants_header("x-multi", "one")
                .wants_header("link", "</a>; rel=\"next\", </b>; rel=\"last\"")
                .wants_header("vary", "accept, origin"),
        ),
        (
            "values that are not UTF-8, empty, or have inner space",
            charge()
                .wants_header("x-latin", b"caf\xe9")
                .wants_header("x-empty", "")
                .wants_header("x-space", "a  b\tc"),
        ),
        ("204", charge().wants_status(204)),
        (
            "200 with an empty body",
            charge().wants_status(200).wants_body(""),
        ),
        (
            "a body without content-type",
            charge()
                .wants_body("plain")
                .header("x-demo-no-content-type", "1"),
        ),
        (
            "an empty body without content-type",
            charge()
                .wants_body("")
                .header("x-demo-no-content-type", "1"),
        ),
        (
            "a chunked body",
            charge().wants_body(&octets).header("x-demo-chunks", "7"),
        ),
        ("40 kB", charge().wants_body(&long)),
        (
            "40 kB, chunked",
            charge().wants_body(&long).header("x-demo-chunks", "40"),
        ),
        ("a terminal refusal", charge().wants_status(402)),
        ("404", charge().wants_status(404)),
        ("no request body", Request::post("/v1/charges").key(key())),
    ]
}

#[tokio::test]
async fn every_shape_of_answer_is_replayed_byte_for_byte() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    let pool = envoy.pool();
    let h2 = H2::connect(envoy.addr()).await.unwrap();
    for (shape, request) in shapes() {
        let before = upstream.effects();
        let first = pool.send(&request).await.unwrap();
        assert_eq!(upstream.effects(), before + 1, "{shape}");
        // Three clients, so that an answer that suits only one parser is noticed.
        for again in [
            pool.send(&request).await.unwrap(),
            Raw::exchange(envoy.addr(), &request).await.unwrap(),
            h2.send(&request).await.unwrap(),
        ] {
            eprintln!("{shape}: {again:?}");
            replayed(&first, &again);
            assert!(
                again.one("idempotency-first-response").is_some(),
                "{again:?}"
            );
        }
        assert_eq!(upstream.effects(), before + 1, "{shape}");
    }
    assert_eq!(envoy.vm_traps(), 0);
}

/// The shapes above are compared with the first answer through the proxy; this one is compared
/// with what the upstream was told to say, so that first and replay cannot be wrong alike.
#[tokio::test]
async fn first_and_replay_are_what_the_upstream_said() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    let request = charge()
        .wants_status(201)
        .wants_body(b"\x00\xff\r\n\r\nHTTP/1.1")
        .wants_header("content-type", "application/vnd.demo; v=\"1\"")
        .wants_header("x-multi", "b")
        .wants_header("x-multi", "a, a")
        .wants_header("location", "/there");
    for replay in [false, true] {
        let answer = envoy.pool().send(&request).await.unwrap();
        assert_eq!(answer.status, 201);
        assert_eq!(&answer.body[..], b"\x00\xff\r\n\r\nHTTP/1.1");
        assert_eq!(
            answer.one("content-type"),
            Some("application/vnd.demo; v=\"1\"")
        );
        assert_eq!(answer.all("x-multi"), [&b"b"[..], b"a, a"]);
        assert_eq!(answer.one("location"), Some("/there"));
        assert_eq!(answer.one("content-length"), Some("14"));
        let marked = answer.one("idempotent-replayed") == Some("true");
        assert_eq!(marked, replay, "{answer:?}");
    }
}

#[tokio::test]
async fn what_belongs_to_one_exchange_is_not_replayed() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    let request = charge()
        .wants_header("set-cookie", "session=first-client")
        .wants_header("www-authenticate", "Basic")
        .wants_header("proxy-authenticate", "Basic")
        .wants_header("authorization", "echoed")
        .wants_header("connection", "x-hop")
        .wants_header("x-hop", "1")
        .wants_header("x-kept", "1");
    let first = envoy.pool().send(&request).await.unwrap();
    assert_eq!(first.one("set-cookie"), Some("session=first-client"));
    let again = envoy.pool().send(&request).await.unwrap();
    assert_eq!(again.one("idempotent-replayed"), Some("true"), "{again:?}");
    assert_eq!(again.one("x-kept"), Some("1"));
    for gone in [
        "set-cookie",
        "www-authenticate",
        "proxy-authenticate",
        "authorization",
        "x-hop",
        "x-envoy-upstream-service-time",
    ] {
        assert_eq!(again.all(gone).len(), 0, "{gone}: {again:?}");
    }
    assert_eq!(again.all("date").len(), 1);
    assert_eq!(again.all("server").len(), 1);
}

/// All that a hostile client could hope to steer the filter or the router with.
fn forged(request: Request) -> Request {
    [
        "x-idempo-operation",
        "x-idempo-attempt",
        "x-idempo-generation",
        "x-idempo-tenant",
        "x-idempo-route",
        "x-idempo-key-hash",
        "x-idempo-claimed-at",
        "x-idempo-proxy",
        "x-idempo-something-new",
        "X-IDEMPO-OPERATION",
        "idempotent-replayed",
        "idempotency-status",
        "idempotency-operation",
        "idempotency-result",
        "idempotency-expires",
        "idempotency-first-response",
    ]
    .into_iter()
    .fold(request, |r, name| r.header(name, "forged"))
    .header("x-idempo-signature", "t=1,v1=forged")
}

#[tokio::test]
async fn forged_headers_do_not_reach_the_upstream() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .options(Options::trust_the_caller)
        .start()
        .await;
    let request = charge();
    let answer = Raw::exchange(envoy.addr(), &forged(request.clone()))
        .await
        .unwrap();
    assert_eq!(answer.status, 201, "{answer:?}");
    let got = upstream.only_request();
    for (name, value) in &got.headers {
        assert!(
            !value.windows(6).any(|w| w == b"forged"),
            "{name} in {got:?}"
        );
    }
    let operation = got.operation().expect("x-idempo-operation");
    assert_eq!(operation.len(), 64);
    assert!(operation.bytes().all(|b| b.is_ascii_hexdigit()));
    assert_eq!(answer.one("idempotency-operation"), Some(operation));
    assert_eq!(got.one("x-idempo-route"), Some("charges"));
    // And they are no part of the identity: without them it is the same operation.
    replayed(&answer, &envoy.pool().send(&request).await.unwrap());
}

#[tokio::test]
async fn the_upstream_cannot_forge_markers_either() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    let request = charge()
        .wants_header("idempotent-replayed", "true")
        .wants_header("idempotency-operation", "forged")
        .wants_header("idempotency-status", "forged")
        .wants_header("idempotency-result", "forged")
        .wants_header("idempotency-policy", "store");
    let first = envoy.pool().send(&request).await.unwrap();
    let again = envoy.pool().send(&request).await.unwrap();
    assert_eq!(again.one("idempotent-replayed"), Some("true"));
    for answer in [&first, &again] {
        for (name, value) in &answer.headers {
            assert_ne!(value, b"forged", "{name}: {answer:?}");
        }
        assert_eq!(answer.one("idempotency-policy"), None, "{answer:?}");
    }
    assert_ne!(first.one("idempotent-replayed"), Some("true"));
}

#[tokio::test]
async fn a_caller_cannot_have_the_router_send_a_claimed_request_twice() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .options(Options::trust_the_caller)
        .start()
        .await;
    let pool = envoy.pool();
    // Unclaimed, the caller gets what it asks for: otherwise this would prove nothing.
    let plain = Request::post("/elsewhere")
        .wants_router_retries()
        .wants_status(503);
    assert_eq!(pool.send(&plain).await.unwrap().status, 503);
    assert_eq!(upstream.effects(), 4);
    upstream.reset();
    for (n, fault) in [
        charge().wants_status(503),
        charge().header("x-demo-fault", "act-reset"),
        charge().header("x-demo-delay-ms", "100"),
    ]
    .into_iter()
    .enumerate()
    {
        pool.send(&fault.wants_router_retries()).await.unwrap();
        assert_eq!(
            upstream.effects(),
            n as u64 + 1,
            "{:#?}",
            upstream.requests()
        );
    }
}

#[tokio::test]
async fn a_retry_policy_of_the_route_does_not_send_a_claimed_request_twice() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .options(|o| {
            o.route_action
                .insert("retry_policy".into(), eager_retries());
        })
        .start()
        .await;
    let request = charge().header("x-demo-fault", "act-reset");
    envoy.pool().send(&request).await.unwrap();
    assert_eq!(upstream.effects(), 1);
    // Sent, then reset: nobody knows, and the next attempt is told so.
    let again = envoy.pool().send(&request).await.unwrap();
    refused(&again, 409, "outcome_unknown");
    assert_eq!(upstream.effects(), 1);
}

#[tokio::test]
async fn a_caller_cannot_shorten_the_time_out() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .options(Options::trust_the_caller)
        .start()
        .await;
    let request = charge()
        .header("x-envoy-upstream-rq-timeout-ms", "10")
        .header("x-demo-delay-ms", "150");
    let answer = envoy.pool().send(&request).await.unwrap();
    assert_eq!(answer.status, 201, "{answer:?}");
}
