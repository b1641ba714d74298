//! Answers that stream and answers that break off: what passes as it comes, what is replayed, and
//! what is only remembered. Nothing of it ever runs twice.

use host_tests::{
    check::{replayed, settled, unavailable, until},
    client::{Answer, Arriving, BodyFraming, H2, Raw, Request, Upload},
    envoy::Envoy,
    filter::{self, key},
    upstream::{Progress, Upstream, event, octets},
};
use serde_json::{Value, json};

const MIB: usize = 1 << 20;

fn charge() -> Request {
    Request::post("/v1/charges").key(key()).json("{}")
}

/// Lets the events from..=to go, one after the other: each is seen before the next may leave.
async fn see(upstream: &Upstream, answer: &mut Arriving, events: std::ops::RangeInclusive<usize>) {
    for n in events {
        upstream.open(&format!("event-{n}"));
        assert_eq!(answer.exactly(event(n).len()).await.unwrap(), event(n));
    }
}

async fn with(config: Value) -> (Upstream, Envoy) {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, config).start().await;
    (upstream, envoy)
}

#[tokio::test]
async fn a_stream_of_events_passes_as_it_comes_and_is_replayed_whole() {
    let (upstream, envoy) = with(filter::minimal()).await;
    let addr = envoy.addr();
    let h2 = H2::connect(addr).await.unwrap();
    for over_h2 in [false, true] {
        upstream.reset();
        let request = charge();
        let streaming = request.wants_events(5);
        let mut answer = if over_h2 {
            h2.arriving(&streaming).await.unwrap()
        } else {
            Raw::opened(addr, &streaming).await.unwrap()
        };
        let first = &answer.answer;
        assert_eq!(first.one("content-type"), Some("text/event-stream"));
        assert_eq!(first.one("idempotency-status"), Some("pending"));
        see(&upstream, &mut answer, 1..=5).await;
        // All events are seen, and it is still not over.
        let meanwhile = Raw::exchange(addr, &request).await.unwrap();
        assert_eq!(meanwhile.json()["code"], "in_flight", "{meanwhile:?}");
        upstream.open("end");
        let first = answer.rest().await.unwrap();
        assert_eq!(first.text(), (1..=5).map(event).collect::<String>());
        for again in [
            Raw::exchange(addr, &request).await.unwrap(),
            h2.send(&request).await.unwrap(),
        ] {
            replayed(&first, &again);
        }
        assert_eq!(upstream.effects(), 1);
    }
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn a_stream_that_the_upstream_breaks_off_is_never_replayed() {
    let (upstream, envoy) = with(filter::minimal()).await;
    let addr = envoy.addr();
    for fault in ["partial", "partial-reset"] {
        for seen in [0, 2] {
            upstream.reset();
            let request = charge();
            let breaking = request
                .wants_events(4)
                .header("x-demo-fault", fault)
                .header("x-demo-cut-after", seen.to_string());
            let mut answer = Raw::opened(addr, &breaking).await.unwrap();
            see(&upstream, &mut answer, 1..=seen).await;
            upstream.open(&format!("event-{}", seen + 1));
            let broken = answer.piece().await;
            assert!(broken.is_err(), "{fault} after {seen}: {broken:?}");
            let again = settled(addr, &request).await;
            unavailable(&again, "answer_cut", 201);
            assert_eq!(upstream.effects(), 1);
        }
    }
    // The same of a known length: all but its last piece has come.
    upstream.reset();
    let request = charge();
    let breaking = request
        .wants_octets(1, 200_000, "length")
        .header("x-demo-chunks", "4")
        .header("x-demo-fault", "partial")
        .header("x-demo-cut-after", "3");
    let mut answer = Raw::opened(addr, &breaking).await.unwrap();
    assert!(answer.finish().await.is_err());
    unavailable(&settled(addr, &request).await, "answer_cut", 201);
    assert_eq!(upstream.effects(), 1);
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn a_stream_whose_client_leaves_is_never_replayed() {
    let (upstream, envoy) = with(filter::minimal()).await;
    let addr = envoy.addr();
    let h2 = H2::connect(addr).await.unwrap();
    // After two of three events, and after all of them, but before the end.
    for seen in [2, 3] {
        for how in ["reset", "leave", "h2"] {
            upstream.reset();
            let request = charge();
            let streaming = request.wants_events(3);
            let mut answer = if how == "h2" {
                h2.arriving(&streaming).await.unwrap()
            } else {
                Raw::opened(addr, &streaming).await.unwrap()
            };
            see(&upstream, &mut answer, 1..=seen).await;
            match how {
                "leave" => answer.leave().await,
                _ => answer.reset(),
            }
            let again = settled(addr, &request).await;
            unavailable(&again, "answer_cut", 201);
            assert_eq!(upstream.effects(), 1, "{how} after {seen}");
        }
    }
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn a_client_that_leaves_after_the_whole_answer_has_not_gone() {
    let (upstream, envoy) = with(filter::minimal()).await;
    let addr = envoy.addr();
    let h2 = H2::connect(addr).await.unwrap();
    for size in [100, 200_000, MIB] {
        for framing in ["length", "chunked", "close"] {
            for how in ["reset", "leave", "h2"] {
                upstream.reset();
                let request = charge();
                let wanted = request.wants_octets(1, size, framing);
                let mut answer = if how == "h2" {
                    h2.arriving(&wanted).await.unwrap()
                } else {
                    Raw::opened(addr, &wanted).await.unwrap()
                };
                answer.finish().await.unwrap();
                let first = answer.answer.clone();
                assert_eq!(first.body, octets(1, size));
                match how {
                    "leave" => answer.leave().await,
                    _ => answer.reset(),
                }
                replayed(&first, &settled(addr, &request).await);
                assert_eq!(upstream.effects(), 1, "{size} {framing} {how}");
            }
        }
    }
    assert_eq!(envoy.vm_traps(), 0);
}

/// The upstream is done, and the rest of its answer waits in the proxy for a client that does not
/// read: that client's leaving is no news about the effect.
#[tokio::test]
async fn a_client_that_leaves_before_it_has_read_what_the_upstream_ended_has_not_gone() {
    const SIZE: usize = 900_000;
    let (upstream, envoy) = with(filter::minimal()).await;
    let addr = envoy.addr();
    for (n, framing) in [(1, "length"), (2, "chunked")] {
        let request = charge();
        let mut raw = Raw::connect_with_buffers(addr, 8 << 10).await;
        let wanted = request.wants_octets(1, SIZE, framing);
        raw.write(&Raw::encode(&wanted)).await;
        let mut answer = raw.arriving("POST").await.unwrap();
        answer.exactly(1_000).await.unwrap();
        until("the upstream's answer to have come in whole", || async {
            let stats = envoy.stats().await;
            (stats.get("cluster.upstream.upstream_rq_completed") == n
                && stats.get("cluster.upstream.upstream_rq_active") == 0)
                .then_some(())
        })
        .await;
        answer.reset();
        let again = settled(addr, &request).await;
        assert_eq!(again.status, 201, "{framing}: {again:?}");
        assert_eq!(again.one("idempotent-replayed"), Some("true"));
        assert_eq!(again.body, octets(1, SIZE));
        assert_eq!(upstream.effects(), n);
    }
    assert_eq!(envoy.vm_traps(), 0);
}

/// Envoy drops the trailers of HTTP/1.1 unless it is told to keep them; those that it keeps are seen.
#[tokio::test]
async fn trailers_pass_and_are_only_remembered() {
    let upstream = Upstream::start().await;
    for kept in [false, true] {
        let envoy = Envoy::with_filter(&upstream, filter::minimal())
            .options(|o| {
                let http1 = json!({"enable_trailers": kept});
                o.manager
                    .insert("http_protocol_options".into(), http1.clone());
                o.cluster.insert(
                    "typed_extension_protocol_options".into(),
                    json!({"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                        "explicit_http_config": {"http_protocol_options": http1},
                    }}),
                );
            })
            .start()
            .await;
        let h2 = H2::connect(envoy.addr()).await.unwrap();
        for (size, over_h2) in [(10, false), (10, true), (300_000, false), (300_000, true)] {
            upstream.reset();
            let request = charge();
            let wanted = request
                .wants_octets(1, size, "chunked")
                .header("x-demo-trailer", "x-checksum=9");
            let mut answer = if over_h2 {
                h2.arriving(&wanted).await.unwrap()
            } else {
                Raw::opened(envoy.addr(), &wanted).await.unwrap()
            };
            answer.finish().await.unwrap();
            assert_eq!(answer.answer.body, octets(1, size));
            let again = Raw::exchange(envoy.addr(), &request).await.unwrap();
            if kept {
                assert_eq!(answer.trailers, [("x-checksum".into(), b"9".to_vec())]);
                unavailable(&again, "answer_had_trailers", 201);
            } else {
                assert!(answer.trailers.is_empty());
                replayed(&answer.answer, &again);
            }
            assert_eq!(upstream.effects(), 1);
        }
        assert_eq!(envoy.vm_traps(), 0);
    }
}

/// Whatever the upstream reads of the request, its answer is its answer.
#[tokio::test]
async fn an_answer_before_the_upload_was_read_is_recorded() {
    let (upstream, envoy) = with(filter::minimal()).await;
    let addr = envoy.addr();
    let body = octets(9, MIB);
    // The last one leaves a connection behind on which nothing is read any more.
    for early in ["read", "close", "ignore"] {
        upstream.reset();
        let request = Request::post("/v1/charges")
            .key(key())
            .content("application/octet-stream", &body);
        let wanted = request
            .clone()
            .header("x-demo-early", early)
            .header("x-demo-early-after", "1000");
        let first: Result<Answer, _> = Raw::exchange(addr, &wanted).await;
        let again = settled(addr, &request).await;
        match first {
            Ok(first) if first.status == 201 => replayed(&first, &again),
            // A connection that is closed with octets unread is reset, and may take its answer along.
            _ => {
                assert_eq!(early, "close", "{first:?}");
                assert_eq!(again.json()["code"], "outcome_unknown", "{again:?}");
            }
        }
        assert_eq!(upstream.effects(), 1, "{early}");
    }
    assert_eq!(envoy.vm_traps(), 0);
}

/// Where no rule stands the filter is not in the way of anything that streams.
#[tokio::test]
async fn what_is_not_claimed_streams_both_ways() {
    let (upstream, envoy) = with(filter::minimal()).await;
    let body = octets(9, 10 * MIB);
    let request = Request::post("/elsewhere").content("application/octet-stream", &body);
    let early = request
        .header("x-demo-early", "read")
        .header("x-demo-early-after", "2000")
        .header("x-demo-size", "5");
    for framing in [BodyFraming::Length, BodyFraming::Chunked] {
        upstream.reset();
        let mut upload = Upload::begin(envoy.addr(), &early, framing).await;
        upload.send(1_000, 100).await.unwrap();
        let seen = upstream.wait_for_upload(1, |u| u.octets == 1_000).await;
        assert_eq!(seen.progress, Progress::Coming);
        upload.send(1_000, 100).await.unwrap();
        let answer = upload.answer().await.unwrap();
        assert_eq!((answer.status, answer.body), (201, octets(0, 5)));
    }
    assert_eq!(envoy.vm_traps(), 0);
}

#[tokio::test]
async fn interim_answers_are_not_the_answer() {
    let (upstream, envoy) = with(filter::minimal()).await;
    for interim in ["100", "103"] {
        upstream.reset();
        let request = charge();
        let wanted = request.clone().header("x-demo-interim", interim);
        let first = Raw::exchange(envoy.addr(), &wanted).await.unwrap();
        assert_eq!(first.status, 201, "{first:?}");
        assert_eq!(first.one("link"), None);
        let again = Raw::exchange(envoy.addr(), &request).await.unwrap();
        replayed(&first, &again);
        assert_eq!(upstream.effects(), 1);
    }
    assert_eq!(envoy.vm_traps(), 0);
}
