//! The harness itself: clients and the upstream against each other, and the loopback of an Envoy
//! without the filter. What the other tests conclude rests on these.

use host_tests::{
    check::until,
    client::{BodyFraming, H2, H2Upload, Raw, Request, Upload},
    envoy::{Envoy, config::LOOPBACK},
    upstream::{Progress, Upstream, event, octets},
};
use serde_json::json;

fn upload(body: impl AsRef<[u8]>) -> Request {
    Request::post("/up").content("application/octet-stream", body)
}

#[tokio::test]
async fn uploads_in_pieces_arrive_whole_and_are_seen_before() {
    let upstream = Upstream::start().await;
    for (framing, piece, size) in [
        (BodyFraming::Length, 1, 3_000),
        (BodyFraming::Chunked, 1, 3_000),
        (BodyFraming::Length, 1000, 300_000),
        (BodyFraming::Chunked, 1000, 300_000),
        (BodyFraming::Chunked, 65_536, 10 << 20),
    ] {
        upstream.reset();
        let body = octets(1, size);
        let mut client = Upload::begin(upstream.addr(), &upload(&body), framing).await;
        client.send(size / 2, piece).await.unwrap();
        let half = client.sent() as u64;
        let seen = upstream.wait_for_upload(1, |u| u.octets == half).await;
        assert_eq!(seen.progress, Progress::Coming);
        assert_eq!(upstream.requests().len(), 0, "not before it is whole");
        client.end(piece, &[]).await.unwrap();
        assert_eq!(client.answer().await.unwrap().status, 201);
        let got = upstream.only_request();
        assert!(got.brought(&body), "{framing:?} {piece}: {got:?}");
        assert!(!got.brought(&body[1..]));
    }
}

#[tokio::test]
async fn uploads_that_break_off_are_broken_and_act_not() {
    let upstream = Upstream::start().await;
    for (n, abrupt) in [(1, true), (2, false)] {
        let request = upload(octets(1, 5_000));
        let mut client = Upload::begin(upstream.addr(), &request, BodyFraming::Chunked).await;
        client.send(3_000, 1_000).await.unwrap();
        upstream.wait_for_upload(n, |u| u.octets == 3_000).await;
        if abrupt {
            client.reset();
        } else {
            client.leave().await;
        }
        upstream
            .wait_for_upload(n, |u| u.progress == Progress::Broken)
            .await;
    }
    assert_eq!((upstream.effects(), upstream.requests().len()), (0, 0));
}

#[tokio::test]
async fn each_piece_of_an_answer_waits_for_its_gate() {
    let upstream = Upstream::start().await;
    let request = Request::post("/events")
        .header("x-demo-events", "3")
        .header("x-demo-chunk-gate", "event-")
        .header("x-demo-end-gate", "end");
    let mut raw = Raw::connect(upstream.addr()).await;
    raw.write(&Raw::encode(&request)).await;
    let mut answer = raw.arriving("POST").await.unwrap();
    let kind = answer.answer.one("content-type").map(str::to_owned);
    assert_eq!(kind.as_deref(), Some("text/event-stream"));
    assert_eq!(answer.answer.one("content-length"), None);
    for n in 1..=3 {
        upstream.open(&format!("event-{n}"));
        assert_eq!(answer.exactly(event(n).len()).await.unwrap(), event(n));
    }
    upstream.open("end");
    let whole = answer.rest().await.unwrap();
    assert_eq!(whole.text(), [event(1), event(2), event(3)].concat());
}

#[tokio::test]
async fn answers_end_and_break_off_as_instructed() {
    let upstream = Upstream::start().await;
    let sized = |framing: &str| {
        Request::post("/sized")
            .header("x-demo-size", "100000")
            .header("x-demo-seed", "7")
            .header("x-demo-framing", framing)
    };
    for framing in ["length", "chunked", "close"] {
        let answer = Raw::exchange(upstream.addr(), &sized(framing)).await;
        let answer = answer.unwrap();
        assert_eq!(answer.body, octets(7, 100_000), "{framing}");
        let length = answer.one("content-length");
        assert_eq!(length, (framing == "length").then_some("100000"));
        for fault in ["partial", "partial-reset"] {
            let request = sized(framing)
                .header("x-demo-fault", fault)
                .header("x-demo-chunks", "5")
                .header("x-demo-cut-after", "2");
            let mut raw = Raw::connect(upstream.addr()).await;
            raw.write(&Raw::encode(&request)).await;
            let mut cut = raw.arriving("POST").await.unwrap();
            let part = cut.exactly(40_000).await.unwrap();
            assert_eq!(part, octets(7, 40_000));
            let end = cut.piece().await;
            if (framing, fault) == ("close", "partial") {
                assert_eq!(end, Ok(None), "what no client can tell from the end");
            } else {
                assert!(end.is_err(), "{framing} {fault}: {end:?}");
            }
        }
    }
    let request = Request::post("/")
        .header("x-demo-interim", "103")
        .header("x-demo-trailer", "x-checksum=9");
    let mut raw = Raw::connect(upstream.addr()).await;
    raw.write(&Raw::encode(&request)).await;
    let mut answer = raw.arriving("POST").await.unwrap();
    assert_eq!(answer.interim[0].status, 103);
    assert_eq!(answer.finish().await.unwrap().status, 201);
    assert_eq!(answer.trailers, [("x-checksum".into(), b"9".to_vec())]);
}

#[tokio::test]
async fn early_answers_come_before_the_upload_ends() {
    let upstream = Upstream::start().await;
    let body = octets(3, 50_000);
    for early in ["read", "ignore", "close"] {
        upstream.reset();
        let request = upload(&body)
            .header("x-demo-early", early)
            .header("x-demo-early-after", "1000");
        let mut client = Upload::begin(upstream.addr(), &request, BodyFraming::Length).await;
        client.send(1_000, 1_000).await.unwrap();
        if early == "read" {
            upstream.wait_for_upload(1, |u| u.octets == 1_000).await;
            until("the effect", || async {
                (upstream.effects() == 1).then_some(())
            })
            .await;
            assert_eq!(upstream.requests().len(), 0);
            client.end(1_000, &[]).await.unwrap();
            assert_eq!(client.answer().await.unwrap().status, 201);
            upstream.wait_for_requests(1).await;
            assert!(upstream.only_request().brought(&body));
        } else {
            assert_eq!(client.answer().await.unwrap().status, 201);
            let got = upstream.only_request();
            assert_eq!((got.whole, got.length), (false, 1_000));
            assert_eq!(upstream.uploads()[0].progress, Progress::Left);
        }
    }
}

#[tokio::test]
async fn an_upload_that_is_not_read_is_held_back() {
    let upstream = Upstream::with_receive_buffer(32 << 10).await;
    let body = octets(4, 16 << 20);
    let request = upload(&body)
        .header("x-demo-read-gate", "read")
        .header("x-demo-read-gate-after", "10000");
    let raw = Raw::connect_with_buffers(upstream.addr(), 32 << 10).await;
    let mut client = Upload::begin_on(raw, &request, BodyFraming::Length).await;
    let sent = client.send_until_held_back().await.unwrap();
    assert!(sent < 1 << 20, "{sent} octets went ahead");
    upstream.open("read");
    client.end(usize::MAX, &[]).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 201);
    assert!(upstream.only_request().brought(&body));
}

#[tokio::test]
async fn continuing_waits_for_the_reader() {
    let upstream = Upstream::start().await;
    let request = upload("abc").expecting().header("x-demo-read-gate", "read");
    let mut client = Upload::begin(upstream.addr(), &request, BodyFraming::Length).await;
    upstream.wait_for_upload(1, |_| true).await;
    upstream.open("read");
    client.continued().await.unwrap();
    client.end(1, &[]).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 201);
    assert!(upstream.only_request().brought(b"abc"));
}

#[tokio::test]
async fn uploads_over_http2_go_in_steps_too() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::plain(&upstream).start().await;
    let h2 = H2::connect(envoy.addr()).await.unwrap();
    let body = octets(5, 3 << 20);
    let mut client = H2Upload::begin(&h2, &upload(&body)).await.unwrap();
    client.send(100_000, 1_000).await.unwrap();
    upstream.wait_for_upload(1, |u| u.octets == 100_000).await;
    client.end(30_000, &[("x-checksum", "9")]).await.unwrap();
    let answer = client.arriving().await.unwrap().rest().await.unwrap();
    assert_eq!(answer.status, 201);
    assert!(upstream.only_request().brought(&body));

    upstream.reset();
    let mut client = H2Upload::begin(&h2, &upload(&body)).await.unwrap();
    client.send(1_000, 1).await.unwrap();
    upstream.wait_for_upload(1, |u| u.octets == 1_000).await;
    client.reset();
    upstream
        .wait_for_upload(1, |u| u.progress == Progress::Broken)
        .await;

    // And answers are read by the piece.
    let request = Request::post("/events")
        .header("x-demo-events", "2")
        .header("x-demo-chunk-gate", "event-")
        .header("x-demo-trailer", "x-checksum=9");
    let mut answer = {
        let (h2, request) = (h2.clone(), request.clone());
        tokio::spawn(async move { h2.arriving(&request).await })
            .await
            .unwrap()
            .unwrap()
    };
    for n in 1..=2 {
        upstream.open(&format!("event-{n}"));
        assert_eq!(answer.exactly(event(n).len()).await.unwrap(), event(n));
    }
    answer.finish().await.unwrap();
}

#[tokio::test]
async fn the_loopback_brings_a_request_back_as_it_was() {
    let upstream = Upstream::start().await;
    // First through the loopback, then, seen again, to the upstream.
    let away = json!({
        "match": {"prefix": "/", "headers": [
            {"name": "x-second-time", "present_match": true, "invert_match": true},
        ]},
        "route": {"cluster": LOOPBACK},
        "request_headers_to_add": [{"header": {"key": "x-second-time", "value": "1"}}],
    });
    let mut envoy = Envoy::plain(&upstream)
        .options(|o| o.routes_before = vec![away])
        .loopback()
        .lds()
        .start()
        .await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let body = octets(6, 3 << 20);
    let request = Request::post("/v1/a%20b/charges?x=%2F&y=1")
        .header("traceparent", parent)
        .header("x-request-id", "7f0f1a52-8e0b-4d0e-9f57-3f1f5d2a9c11")
        .content("application/octet-stream", &body)
        .header("x-demo-size", "2000000");
    for round in 1..=2 {
        upstream.reset();
        let answer = Raw::exchange(envoy.addr(), &request).await.unwrap();
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!(answer.body, octets(0, 2_000_000));
        let got = upstream.only_request();
        assert!(got.brought(&body), "{got:?}");
        assert_eq!(got.one("x-second-time"), Some("1"));
        assert_eq!(got.target, request.target);
        assert_eq!(got.one("host"), Some("test"));
        assert_eq!(got.one("traceparent"), Some(parent));
        // The data listener believes no id from outside, and says what it gave instead; the loopback
        // believes that.
        let lines = envoy.access_log_lines(round).await;
        assert_eq!(lines[round - 1]["status"], 201);
        let id = lines[round - 1]["request_id"].as_str();
        assert_eq!(got.one("x-request-id"), id);
        until("the loopback's access log", || async {
            (envoy.loopback_access_log().len() == round).then_some(())
        })
        .await;
        let inner = &envoy.loopback_access_log()[round - 1];
        assert_eq!(inner["protocol"], "HTTP/2", "{inner}");
        assert_eq!(inner["request_id"].as_str(), id);
        let stats = envoy.stats().await;
        let through = format!("http.{LOOPBACK}.downstream_rq_total");
        assert_eq!(stats.get(&through), round as u64);
        // Both listeners come anew with a reload.
        envoy.reload_listener().await.unwrap();
    }
}

#[tokio::test]
async fn small_buffers_hold_back_who_sends_too_fast() {
    let upstream = Upstream::with_receive_buffer(256 << 10).await;
    let envoy = Envoy::plain(&upstream)
        .buffer_limit(64 << 10)
        .concurrency(1)
        .start()
        .await;
    let body = octets(4, 24 << 20);
    let request = upload(&body).header("x-demo-read-gate", "read");
    let raw = Raw::connect_with_buffers(envoy.addr(), 256 << 10).await;
    let mut client = Upload::begin_on(raw, &request, BodyFraming::Length).await;
    envoy.forget_peak();
    let before = (envoy.allocated().await, envoy.peak_resident());
    let sent = client.send_until_held_back().await.unwrap();
    // Most of it in the kernel's buffers of Envoy's own sockets.
    assert!(sent < 16 << 20, "{sent} octets went ahead");
    upstream.open("read");
    client.end(usize::MAX, &[]).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 201);
    assert!(upstream.only_request().brought(&body));
    let after = (envoy.allocated().await, envoy.peak_resident());
    assert!(before.0 > 0 && after.0 < before.0 + (8 << 20));
    assert!(after.1 < before.1 + (16 << 20), "{before:?}: {after:?}");
    assert!(envoy.resident() <= after.1.max(envoy.peak_resident()));
}
