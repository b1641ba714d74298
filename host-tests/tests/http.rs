//! HTTP as it comes: browsers, methods that must pass and ones that must not, framings, trailers,
//! large bodies, languages.

use host_tests::{
    check::{refused, replayed},
    client::{Answer, BodyFraming, H2, H2Upload, Raw, Request, Upload},
    envoy::Envoy,
    filter::{self, key},
    running::Running,
    upstream::Upstream,
};
use serde_json::json;
use std::net::SocketAddr;

fn charge() -> Request {
    Request::post("/v1/charges")
        .key(key())
        .json(r#"{"amount":1200,"currency":"eur"}"#)
}

const ORIGIN: &str = "http://localhost:3000";

#[tokio::test]
async fn browsers_ask_first_and_see_every_marker() {
    let upstream = Upstream::start().await;
    let envoy = Running::start(&upstream).await;
    let preflight = Request::new("OPTIONS", "/v1/charges")
        .header("origin", ORIGIN)
        .header("access-control-request-method", "POST")
        .header(
            "access-control-request-headers",
            "idempotency-key,content-type",
        );
    let allowed = Raw::exchange(envoy.addr(), &preflight).await.unwrap();
    assert_eq!(allowed.status, 200, "{allowed:?}");
    let allow = |name: &str| allowed.one(name).unwrap_or_default().to_ascii_lowercase();
    assert_eq!(allow("access-control-allow-origin"), ORIGIN);
    assert!(allow("access-control-allow-methods").contains("post"));
    assert!(allow("access-control-allow-headers").contains("idempotency-key"));
    assert_eq!(allowed.one("idempotent-replayed"), None);
    assert_eq!(upstream.requests().len(), 0, "the proxy answers it");

    let request = charge().header("origin", ORIGIN);
    let mut mismatch = request.clone();
    mismatch.body = "{}".into();
    let missing = Request::post("/v1/charges")
        .json("{}")
        .header("origin", ORIGIN);
    let first = Raw::exchange(envoy.addr(), &request).await.unwrap();
    let again = Raw::exchange(envoy.addr(), &request).await.unwrap();
    assert_eq!(again.one("idempotent-replayed"), Some("true"));
    let refusals = [
        Raw::exchange(envoy.addr(), &mismatch).await.unwrap(),
        Raw::exchange(envoy.addr(), &missing).await.unwrap(),
    ];
    refused(&refusals[0], 422, "payload_mismatch");
    refused(&refusals[1], 400, "key_missing");
    for answer in [&first, &again, &refusals[0], &refusals[1]] {
        // `one`: neither twice nor missing, replays and refusals included.
        assert_eq!(answer.one("access-control-allow-origin"), Some(ORIGIN));
        let exposed = answer.one("access-control-expose-headers").unwrap();
        let exposed: Vec<_> = exposed
            .split(',')
            .map(|n| n.trim().to_ascii_lowercase())
            .collect();
        for (name, _) in &answer.headers {
            if name.starts_with("idempoten") || name == "retry-after" {
                assert!(exposed.contains(name), "{name}: {exposed:?}");
            }
        }
    }
    // Another page's script gets the answer of the proxy, not the permission to read it.
    let elsewhere = Raw::exchange(
        envoy.addr(),
        &charge().header("origin", "https://evil.example"),
    )
    .await
    .unwrap();
    assert_eq!(elsewhere.one("access-control-allow-origin"), None);
    assert_eq!(upstream.effects(), 2);
}

#[tokio::test]
async fn what_is_no_write_passes_untouched_and_what_hides_one_does_not() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    let addr = envoy.addr();
    let k = key();
    for method in ["GET", "HEAD", "OPTIONS"] {
        for _ in 0..2 {
            upstream.reset();
            let request = Request::new(method, "/v1/charges?a=1").key(&k);
            let answer = Raw::exchange(addr, &request).await.unwrap();
            assert_eq!(answer.status, 200, "{method}: {answer:?}");
            assert_eq!(answer.one("idempotent-replayed"), None, "{method}");
            let got = upstream.only_request();
            assert_eq!(
                (got.method.as_str(), got.target.as_str()),
                (method, "/v1/charges?a=1")
            );
            assert_eq!(got.one("idempotency-key"), Some(k.as_str()));
            assert_eq!(got.derived().len(), 0, "{got:?}");
        }
    }
    // A body on a GET is odd, and none of the filter's business.
    upstream.reset();
    let odd = Request::new("GET", "/v1/charges").json("{}");
    assert_eq!(Raw::exchange(addr, &odd).await.unwrap().status, 200);
    assert_eq!(&upstream.only_request().body[..], b"{}");

    upstream.reset();
    for hidden in [
        Request::new("GET", "/v1/charges").header("x-http-method-override", "POST"),
        Request::new("GET", "/v1/charges").header("X-HTTP-Method", "DELETE"),
        Request::new("GET", "/v1/charges")
            .header("x-method-override", "PUT")
            .key(&k),
        Request::new("GET", "/v1/charges?_method=POST"),
        Request::new("GET", "/v1/charges?a=1&%5fmethod=POST"),
        Request::new("OPTIONS", "/v1/charges").header("x-http-method-override", "POST"),
    ] {
        let answer = Raw::exchange(addr, &hidden).await.unwrap();
        refused(&answer, 400, "method_override");
    }
    let head = Request::new("HEAD", "/v1/charges").header("x-http-method-override", "POST");
    let answer = Raw::exchange(addr, &head).await.unwrap();
    assert_eq!((answer.status, answer.body.len()), (400, 0));
    assert_eq!(upstream.requests().len(), 0);
    // Where no rule stands nothing is hidden.
    let elsewhere = Request::new("GET", "/free").header("x-http-method-override", "POST");
    assert_eq!(Raw::exchange(addr, &elsewhere).await.unwrap().status, 200);

    // gRPC passes, counted: a local reply would be none that its clients understand.
    for media in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc-web",
    ] {
        upstream.reset();
        let request = Request::post("/v1/charges").content(media, "\0\0\0\0\0");
        assert_eq!(Raw::exchange(addr, &request).await.unwrap().status, 201);
        assert_eq!(upstream.only_request().derived().len(), 0);
    }
    let stats = envoy.stats().await;
    assert_eq!(
        stats.idempo("idempo_bypass_total", &[("reason", "protocol")]),
        3
    );
    assert_eq!(stats.idempo("idempo_claim_total", &[]), 0);
    assert_eq!(envoy.vm_traps(), 0);
}

/// Sends the headers with `Expect: 100-continue`, and the body once told to go on.
async fn expecting(addr: SocketAddr, request: &Request) -> Result<Answer, String> {
    let request = request.clone().expecting();
    let mut upload = Upload::begin(addr, &request, BodyFraming::Length).await;
    // Envoy says so before any filter is asked; a refusal may follow it closely.
    upload.continued().await?;
    // Refused, the peer may be gone before all of it is out.
    let _ = upload.end(usize::MAX, &[]).await;
    upload.answer().await
}

#[tokio::test]
async fn every_framing_of_one_body_is_one_request() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    let addr = envoy.addr();
    let request = charge();
    let first = Raw::exchange(addr, &request).await.unwrap();
    assert_eq!(first.status, 201);
    // Octet by octet, each in a chunk and in a segment of its own.
    for size in [1, 7] {
        let mut raw = Raw::connect(addr).await;
        let octets = Raw::encode_chunked(&request, size);
        for octet in octets.chunks(3) {
            raw.write(octet).await;
        }
        replayed(&first, &raw.answer("POST").await.unwrap());
    }
    let h2 = H2::connect(addr).await.unwrap();
    replayed(&first, &h2.send(&request).await.unwrap());
    replayed(&first, &expecting(addr, &request).await.unwrap());
    assert_eq!(upstream.effects(), 1);
    assert_eq!(upstream.only_request().body, request.body);

    // First attempts in these framings reach the upstream as they are.
    upstream.reset();
    let request = charge();
    assert_eq!(expecting(addr, &request).await.unwrap().status, 201);
    assert_eq!(upstream.only_request().body, request.body);
    upstream.reset();
    let request = charge();
    let mut raw = Raw::connect(addr).await;
    raw.write(&Raw::encode_chunked(&request, 1)).await;
    let first = raw.answer("POST").await.unwrap();
    assert_eq!(upstream.only_request().body, request.body);
    replayed(&first, &Raw::exchange(addr, &request).await.unwrap());
    // A refusal needs no body.
    let keyless = Request::post("/v1/charges").content("text/plain", "x");
    let answer = expecting(addr, &keyless).await.unwrap();
    refused(&answer, 400, "key_missing");
    assert_eq!(upstream.requests().len(), 1);
    // An empty body is no body.
    upstream.reset();
    let bare = Request::post("/v1/charges").key(key());
    let first = Raw::exchange(addr, &bare).await.unwrap();
    let mut raw = Raw::connect(addr).await;
    raw.write(&Raw::encode_chunked(&bare, 1)).await;
    replayed(&first, &raw.answer("POST").await.unwrap());
    assert_eq!(upstream.effects(), 1);
    assert_eq!(envoy.vm_traps(), 0);
}

/// Sends the request over HTTP/2 with trailers after its body.
async fn with_trailers(addr: SocketAddr, request: &Request) -> Answer {
    let h2 = H2::connect(addr).await.unwrap();
    let mut upload = H2Upload::begin(&h2, request).await.unwrap();
    upload
        .end(usize::MAX, &[("x-checksum", "1")])
        .await
        .unwrap();
    upload.arriving().await.unwrap().rest().await.unwrap()
}

#[tokio::test]
async fn trailers_after_a_body_end_it() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    let addr = envoy.addr();
    let large = Request::post("/v1/charges")
        .key(key())
        .content("application/octet-stream", vec![5; 300_000]);
    let bare = Request::post("/v1/charges").key(key());
    for request in [charge(), large, bare] {
        upstream.reset();
        let first = with_trailers(addr, &request).await;
        assert_eq!(first.status, 201, "{first:?}");
        assert_eq!(first.one("idempotent-replayed"), Some("false"));
        assert_eq!(upstream.only_request().body, request.body);
        // Trailers are no part of what was asked: the same without them is the same.
        replayed(&first, &Raw::exchange(addr, &request).await.unwrap());
        replayed(&first, &with_trailers(addr, &request).await);
        assert_eq!(upstream.effects(), 1);
    }
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_with_the_limit() {
    let upstream = Upstream::start().await;
    let sized = |n: usize| {
        Request::post("/v1/charges")
            .key(key())
            .content("application/octet-stream", vec![1; n])
    };
    let small = filter::with_route(json!({"fingerprint": {"max_body": "64KiB"}}));
    let envoy = Envoy::with_filter(&upstream, small).start().await;
    for limit in [64 << 10] {
        let addr = envoy.addr();
        let declared = Raw::exchange(addr, &sized(limit + 1)).await.unwrap();
        let mut raw = Raw::connect(addr).await;
        // Not declared, and not all of it: the answer need not wait for the end.
        let octets = Raw::encode_chunked(&sized(limit + 40_000), 8_000);
        raw.write(&octets[..octets.len() - 5]).await;
        let streamed = raw.answer("POST").await.unwrap();
        for answer in [&declared, &streamed] {
            let problem = refused(answer, 413, "payload_too_large");
            assert_eq!(problem["limit"], limit, "{problem}");
        }
        assert_eq!(upstream.requests().len(), 0);
        let request = sized(limit);
        let first = Raw::exchange(addr, &request).await.unwrap();
        assert_eq!(first.status, 201, "{first:?}");
        assert_eq!(upstream.only_request().body.len(), limit);
        replayed(&first, &Raw::exchange(addr, &request).await.unwrap());
    }
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn refusals_speak_the_clients_language_and_keep_their_codes() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    for (asked, tag, part) in [
        ("zh-TW", "zh-TW", "冪等金鑰"),
        ("zh-Hant-HK, en;q=0.5", "zh-TW", "冪等金鑰"),
        ("zh-CN", "zh-CN", "幂等"),
        ("ja", "ja", "冪等キー"),
        ("ko-KR", "ko", "멱등"),
        ("fr, ja;q=0.4, en;q=0.2", "ja", "冪等キー"),
        ("fr", "en", "dempotency"),
        ("", "en", "dempotency"),
        ("\"'<>;q=x,,,", "en", "dempotency"),
    ] {
        let request = Request::post("/v1/charges")
            .json("{}")
            .header("accept-language", asked);
        let answer = Raw::exchange(envoy.addr(), &request).await.unwrap();
        let problem = refused(&answer, 400, "key_missing");
        assert_eq!(answer.one("content-language"), Some(tag), "{asked}");
        let text = format!("{} {}", problem["title"], problem["detail"]);
        assert!(text.contains(part), "{asked}: {text}");
        assert_eq!(problem["type"], "urn:idempo:problem:key_missing");
        assert_eq!(answer.one("cache-control"), Some("no-store"));
    }
    assert_eq!(envoy.vm_traps(), 0);
}
