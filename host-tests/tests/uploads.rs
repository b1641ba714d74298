//! Request bodies that are too large to be held: claimed by their beginning, streamed, hashed while
//! they pass; read, compared and dropped where they are duplicates.

use host_tests::{
    check::{refused, replayed, settled, unknown, until},
    client::{BodyFraming, H2, H2Upload, Raw, Request, Upload},
    envoy::{Builder, Envoy, crash_module},
    filter::{self, key},
    upstream::Upstream,
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

const MIB: usize = 1 << 20;

fn octets(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 % 251) as u8).collect()
}

fn upload(body: &[u8]) -> Request {
    Request::post("/v1/files")
        .key(key())
        .content("application/octet-stream", body)
}

fn slow(builder: Builder) -> Builder {
    builder.options(|o| o.wasm = crash_module())
}

/// Sends it whole in pieces, however it is framed.
async fn sent(
    envoy: &Envoy,
    request: &Request,
    framing: BodyFraming,
    piece: usize,
) -> host_tests::client::Answer {
    let mut upload = Upload::begin(envoy.addr(), request, framing).await;
    // Refused before its end, it may find the connection closed.
    let _ = upload.end(piece, &[]).await;
    upload.answer().await.unwrap()
}

/// With Envoy's default buffers. The store is slow: the client is slowed down, not refused.
#[tokio::test]
async fn ten_mebibytes_arrive_whole_although_the_claim_takes_its_time() {
    let upstream = Upstream::start().await;
    let envoy = slow(Envoy::with_filter(&upstream, filter::minimal()))
        .start()
        .await;
    // Once before, so that what Envoy grows by at first is not counted.
    Raw::exchange(envoy.addr(), &upload(&octets(10 * MIB)))
        .await
        .unwrap();
    for framing in [BodyFraming::Length, BodyFraming::Chunked] {
        upstream.reset();
        let before = envoy.resident();
        envoy.forget_peak();
        let body = octets(10 * MIB);
        let request = upload(&body);
        let delayed = request.clone().header("x-test-slow-claim", "300");
        let since = Instant::now();
        let first = sent(&envoy, &delayed, framing, 65_536).await;
        assert_eq!(first.status, 201, "{first:?}");
        assert!(since.elapsed() >= Duration::from_millis(300));
        let got = upstream.only_request();
        assert!(got.brought(&body), "{} octets arrived", got.length);
        replayed(&first, &sent(&envoy, &request, framing, 65_536).await);
        assert_eq!(upstream.effects(), 1);
        // What is held of it at any time is bounded by the buffers of both sides, not by its size.
        let grown = envoy.peak_resident().saturating_sub(before);
        eprintln!("peak {} KiB above what it was", grown >> 10);
        assert!(grown < 8 * MIB as u64, "{grown}");
    }
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn a_slow_claim_holds_the_client_back_and_then_lets_it_go() {
    let upstream = Upstream::start().await;
    let envoy = slow(Envoy::with_filter(&upstream, filter::minimal()))
        .options(|o| {
            o.listener
                .insert("per_connection_buffer_limit_bytes".into(), json!(256 << 10));
        })
        .start()
        .await;
    let body = octets(8 * MIB);
    let request = upload(&body).header("x-test-slow-claim", "1500");
    let raw = Raw::connect_with_buffers(envoy.addr(), 64 << 10).await;
    let mut first = Upload::begin_on(raw, &request, BodyFraming::Length).await;
    let taken = first.send_until_held_back().await.unwrap();
    assert!(
        taken < 4 * MIB,
        "{taken} octets were taken while nothing was claimed"
    );
    assert_eq!(upstream.requests().len(), 0);
    first.end(65_536, &[]).await.unwrap();
    let answer = first.answer().await.unwrap();
    assert_eq!(answer.status, 201, "{answer:?}");
    assert!(upstream.only_request().brought(&body));
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn an_upload_streams_before_it_is_complete() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    let body = octets(2 * MIB);
    let mut first = Upload::begin(envoy.addr(), &upload(&body), BodyFraming::Length).await;
    first.send(MIB, 10_000).await.unwrap();
    upstream.wait_for_upload(1, |u| u.octets > 512 << 10).await;
    first.end(10_000, &[]).await.unwrap();
    assert_eq!(first.answer().await.unwrap().status, 201);
    assert!(upstream.only_request().brought(&body));
}

/// One body, cut in all ways: the first attempt in one piece, its duplicates in others.
#[tokio::test]
async fn the_pieces_make_no_difference() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    for (size, pieces) in [(300_000, &[1, 1000][..]), (10 * MIB, &[1000, 1 << 20][..])] {
        upstream.reset();
        let body = octets(size);
        let request = upload(&body);
        let first = Raw::exchange(envoy.addr(), &request).await.unwrap();
        assert_eq!(first.status, 201, "{first:?}");
        for piece in pieces {
            for framing in [BodyFraming::Chunked, BodyFraming::Length] {
                if *piece == 1 && framing == BodyFraming::Length {
                    continue;
                }
                replayed(&first, &sent(&envoy, &request, framing, *piece).await);
            }
        }
        let h2 = H2::connect(envoy.addr()).await.unwrap();
        replayed(&first, &h2.send(&request).await.unwrap());
        let mut other = request.clone();
        let mut changed = body.clone();
        *changed.last_mut().unwrap() ^= 1;
        other.body = changed.into();
        for framing in [BodyFraming::Length, BodyFraming::Chunked] {
            let answer = sent(&envoy, &other, framing, 100_000).await;
            let problem = refused(&answer, 422, "payload_mismatch");
            assert_eq!(problem["fingerprint"]["recorded"]["length"], size);
        }
        refused(&h2.send(&other).await.unwrap(), 422, "payload_mismatch");
        assert_eq!(upstream.effects(), 1);
    }
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn an_upload_that_is_cut_off_is_unknown_only_beyond_claim_after() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    let body = octets(400_000);
    for framing in [BodyFraming::Length, BodyFraming::Chunked] {
        for (octets, claimed) in [(65_536, false), (65_537, true)] {
            for abrupt in [true, false] {
                upstream.reset();
                let request = upload(&body);
                let mut first = Upload::begin(envoy.addr(), &request, framing).await;
                first.send(octets, 1000).await.unwrap();
                if claimed {
                    upstream.wait_for_upload(1, |u| u.octets > 0).await;
                }
                if abrupt {
                    first.reset();
                } else {
                    first.leave().await;
                }
                let again = if claimed {
                    settled(envoy.addr(), &request).await
                } else {
                    Raw::exchange(envoy.addr(), &request).await.unwrap()
                };
                if claimed {
                    unknown(&again, "downstream_remote_disconnect", Value::Null);
                } else {
                    assert_eq!(again.status, 201, "{again:?}");
                    assert_eq!(upstream.effects(), 1);
                }
            }
        }
    }
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn a_running_upload_outlasts_its_lease_and_is_unknown_to_nobody() {
    let upstream = Upstream::start().await;
    let leased = filter::with_route(json!({"lease": "1s"}));
    let envoy = Envoy::with_filter(&upstream, leased).start().await;
    let body = octets(MIB);
    let request = upload(&body);
    let mut first = Upload::begin(envoy.addr(), &request, BodyFraming::Length).await;
    first.send(200_000, 10_000).await.unwrap();
    upstream.wait_for_upload(1, |u| u.octets > 0).await;
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(3) {
        first.send(20_000, 10_000).await.unwrap();
        let again = Raw::exchange(envoy.addr(), &request).await;
        // Refused before its body is read, a client that still writes may see a reset.
        if let Ok(again) = again {
            refused(&again, 409, "in_flight");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    first.end(100_000, &[]).await.unwrap();
    let answer = first.answer().await.unwrap();
    assert_eq!(answer.status, 201, "{answer:?}");
    replayed(
        &answer,
        &Raw::exchange(envoy.addr(), &request).await.unwrap(),
    );
    assert_eq!(upstream.effects(), 1);
    let stats = envoy.stats().await;
    assert_eq!(stats.idempo("idempo_unknown_total", &[]), 0);
    assert_eq!(stats.idempo("idempo_late_write_total", &[]), 0);
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn expect_continue_trailers_and_http_2_make_no_difference() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    let body = octets(700_000);
    let request = upload(&body);
    let mut first = Upload::begin(
        envoy.addr(),
        &request.clone().expecting(),
        BodyFraming::Length,
    )
    .await;
    first.continued().await.unwrap();
    first.end(50_000, &[]).await.unwrap();
    let first = first.answer().await.unwrap();
    assert_eq!(first.status, 201, "{first:?}");
    let mut with_trailers = Upload::begin(envoy.addr(), &request, BodyFraming::Chunked).await;
    with_trailers.end(9_999, &[("x-sum", "1")]).await.unwrap();
    replayed(&first, &with_trailers.answer().await.unwrap());
    let h2 = H2::connect(envoy.addr()).await.unwrap();
    let mut streamed = H2Upload::begin(&h2, &request).await.unwrap();
    streamed.end(12_345, &[("x-sum", "1")]).await.unwrap();
    let again = streamed.arriving().await.unwrap().rest().await.unwrap();
    replayed(&first, &again);
    // The other way round: the first attempt over HTTP/2, with trailers.
    let request = upload(&body);
    let mut streamed = H2Upload::begin(&h2, &request).await.unwrap();
    streamed.end(12_345, &[("x-sum", "1")]).await.unwrap();
    let first = streamed.arriving().await.unwrap().rest().await.unwrap();
    assert_eq!(first.status, 201);
    replayed(
        &first,
        &Raw::exchange(envoy.addr(), &request).await.unwrap(),
    );
    // A stream that is reset in the middle, on a connection that lives on.
    let request = upload(&body);
    let mut streamed = H2Upload::begin(&h2, &request).await.unwrap();
    streamed.send(300_000, 10_000).await.unwrap();
    upstream.wait_for_upload(3, |u| u.octets > 0).await;
    streamed.reset();
    let again = settled(envoy.addr(), &request).await;
    unknown(&again, "http2.remote_reset", Value::Null);
    assert_eq!(upstream.effects(), 2);
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn an_answer_before_the_upload_ends_is_passed_on_and_never_replayed() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;
    let body = octets(2 * MIB);
    let request = upload(&body);
    let early = request
        .clone()
        .header("x-demo-early", "ignore")
        .header("x-demo-early-after", "100000")
        .wants_status(422);
    let mut first = Upload::begin(envoy.addr(), &early, BodyFraming::Length).await;
    first.send(200_000, 10_000).await.unwrap();
    let answer = first.answer().await.unwrap();
    assert_eq!(answer.status, 422, "{answer:?}");
    let again = settled(envoy.addr(), &request).await;
    let problem = refused(&again, 409, "replay_unavailable");
    assert_eq!(problem["reason"], "request_incomplete", "{problem}");
    assert_eq!(problem["upstream_status"], 422);
    assert_eq!(upstream.effects(), 1);
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn a_client_that_leaves_while_its_claim_is_on_the_way_leaves_nothing_behind() {
    let upstream = Upstream::start().await;
    let envoy = slow(Envoy::with_filter(&upstream, filter::minimal()))
        .start()
        .await;
    for body in [octets(100), octets(MIB)] {
        let request = upload(&body);
        let delayed = request.clone().header("x-test-slow-claim", "600");
        let mut first = Upload::begin(envoy.addr(), &delayed, BodyFraming::Length).await;
        first.send(500_000, 65_536).await.unwrap();
        first.leave().await;
        envoy.access_log_lines(1).await;
        let again = until("the cancelled claim", || async {
            let answer = Raw::exchange(envoy.addr(), &request).await.ok()?;
            (answer.status == 201).then_some(answer)
        })
        .await;
        replayed(
            &again,
            &Raw::exchange(envoy.addr(), &request).await.unwrap(),
        );
    }
    assert_eq!(upstream.effects(), 2);
    assert_eq!(envoy.vm_traps(), 0);
}

/// The end of an answer waits for the record, whatever its length and framing, and a buffer that it
/// does not fit into makes no difference.
#[tokio::test]
async fn the_end_of_an_answer_waits_for_a_slow_record() {
    let upstream = Upstream::start().await;
    let envoy = slow(Envoy::with_filter(&upstream, filter::minimal()))
        .start()
        .await;
    for (size, framing) in [
        ("100", "length"),
        ("100", "chunked"),
        ("60000", "length"),
        ("700000", "length"),
        ("700000", "chunked"),
        ("0", "length"),
    ] {
        let request = Request::post("/v1/a").key(key()).json("{}");
        let delayed = request
            .clone()
            .header("x-demo-size", size)
            .header("x-demo-framing", framing)
            .header("x-test-slow-write", "400");
        let since = Instant::now();
        let first = Raw::exchange(envoy.addr(), &delayed).await.unwrap();
        assert_eq!(first.status, 201, "{size} {framing}");
        assert!(
            since.elapsed() >= Duration::from_millis(400),
            "{size} {framing}"
        );
        assert_eq!(first.body.len().to_string(), size);
        replayed(
            &first,
            &Raw::exchange(envoy.addr(), &request).await.unwrap(),
        );
    }
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn an_early_commit_does_not_wait() {
    let upstream = Upstream::start().await;
    let early = filter::with_route(json!({"commit": "async"}));
    let envoy = slow(Envoy::with_filter(&upstream, early)).start().await;
    let request = Request::post("/v1/a").key(key()).json("{}");
    let delayed = request.clone().header("x-test-slow-write", "5000");
    let first = Raw::exchange(envoy.addr(), &delayed).await.unwrap();
    assert_eq!(first.status, 201);
    assert_eq!(first.one("idempotency-status"), Some("pending"));
    let meanwhile = Raw::exchange(envoy.addr(), &request).await.unwrap();
    refused(&meanwhile, 409, "in_flight");
    let again = settled(envoy.addr(), &request).await;
    assert_eq!(again.one("idempotent-replayed"), Some("true"), "{again:?}");
    assert_eq!(upstream.effects(), 1);
    assert_eq!(envoy.vm_traps(), 0);
}

/// The host has stopped reading before the record was known, and cannot be told to drop what it holds.
#[tokio::test]
async fn a_large_duplicate_behind_a_slow_store_gets_an_answer() {
    let upstream = Upstream::start().await;
    let envoy = slow(Envoy::with_filter(&upstream, filter::minimal()))
        .start()
        .await;
    let body = octets(10 * MIB);
    let request = upload(&body);
    let first = Raw::exchange(envoy.addr(), &request).await.unwrap();
    assert_eq!(first.status, 201);
    let delayed = request.clone().header("x-test-slow-claim", "500");
    let mut again = Upload::begin(envoy.addr(), &delayed, BodyFraming::Length).await;
    let _ = again.send_until_held_back().await;
    let answer = again.answer().await.unwrap();
    if answer.status != 201 {
        let problem = refused(&answer, 503, "store_unavailable");
        assert_eq!(problem["reason"], "upload_stalled");
    }
    replayed(
        &first,
        &Raw::exchange(envoy.addr(), &request).await.unwrap(),
    );
    assert_eq!(upstream.effects(), 1);
    assert_eq!(envoy.vm_traps(), 0);
}

/// A buffer that is smaller than what is held of a body stops the body for good: that must be said, and a
/// body that fits, or need not be held, is none the worse for it.
#[tokio::test]
async fn a_buffer_that_is_too_small_is_told_from_a_slow_client() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .buffer_limit(48 << 10)
        .concurrency(1)
        .start()
        .await;
    let json = |n: usize| {
        Request::post("/v1/files")
            .key(key())
            .json(format!("\"{}\"", "x".repeat(n)))
    };
    let small = json(20_000);
    let first = Raw::exchange(envoy.addr(), &small).await.unwrap();
    replayed(&first, &Raw::exchange(envoy.addr(), &small).await.unwrap());
    let large = json(400_000);
    let mut stuck = Upload::begin(envoy.addr(), &large, BodyFraming::Length).await;
    let taken = stuck.send_until_held_back().await;
    let answer = stuck.answer().await.unwrap();
    let problem = refused(&answer, 500, "misconfigured");
    assert_eq!(problem["reason"], "body_stalled", "{taken:?}");
    let log = envoy.log();
    let told = log
        .lines()
        .find(|l| l.contains("per_connection_buffer_limit_bytes"));
    assert!(told.is_some_and(|l| l.contains("[error]")), "{log}");
    assert_eq!(upstream.effects(), 1);
    replayed(&first, &Raw::exchange(envoy.addr(), &small).await.unwrap());
    assert_eq!(envoy.vm_traps(), 0);
}
