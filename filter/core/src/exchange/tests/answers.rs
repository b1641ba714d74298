//! What came back from the upstream, or did not, and what is made of it.

use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn a_stream_keeps_the_lengths_of_its_pieces() {
    let mut world = World::new(plan());
    let mut client = world.keyed("{}");
    let headers: Headers = [(":status", "200"), ("content-type", "text/event-stream")]
        .into_iter()
        .collect();
    let origin = Origin {
        details: "via_upstream",
        attempts: &|| Some(1),
        can_hold: true,
    };
    world.event(&mut client, |e, now, out| {
        e.on_response_headers(&headers, false, &origin, now, out);
    });
    assert!(!client.exchange.holds_response());
    for n in 0..1500 {
        let piece = vec![b'x'; 1 + n % 3];
        world.event(&mut client, |e, now, out| {
            e.on_response_body(&piece, false, now, out);
        });
    }
    world.event(&mut client, |e, now, out| {
        e.on_response_body(b"", true, now, out);
    });
    let blob = world.bodies.values().next().expect("a recorded answer");
    let envelope = crate::envelope::decode(blob).expect("whole");
    assert_eq!(envelope.segments.len(), crate::envelope::MAX_SEGMENTS);
    assert_eq!(envelope.segments[..4], [1, 2, 3, 1]);
    let sum: u32 = envelope.segments.iter().sum();
    assert_eq!(sum as usize, envelope.body.len());
}

#[test]
fn sent_or_not_sent_decides() {
    let refused = "upstream_reset_before_response_started{remote_connection_failure}";
    for (details, attempts, state) in [
        (refused, Some(1), None),
        (refused, Some(2), Some("unknown")),
        (refused, None, Some("unknown")),
        ("no_healthy_upstream", Some(1), None),
        ("response_timeout", Some(1), Some("unknown")),
        (
            "upstream_reset_before_response_started{connection_termination}",
            Some(1),
            Some("unknown"),
        ),
    ] {
        let mut world = World::new(plan());
        let mut first = world.keyed("{}");
        world.answer_from(&mut first, "503", &[], "envoy says", details, attempts);
        let found = world
            .records
            .values()
            .next()
            .map(|r| r.state.status().as_str());
        assert_eq!(found, state, "{details} {attempts:?}");
        let next = world.keyed("{}");
        if state.is_none() {
            assert!(next.forwarded(), "{details}");
        } else {
            assert_eq!(next.code(), "outcome_unknown");
            let evidence = &next.problem()["evidence"];
            assert_eq!(evidence["details"], details);
            assert_eq!(
                evidence.get("upstream_status"),
                None,
                "Envoy's, not the upstream's"
            );
        }
    }
}

#[test]
fn classes_of_the_upstreams_own_answers() {
    for (status, state) in [
        ("201", "completed"),
        ("400", "completed"),
        ("202", "accepted"),
        ("500", "unknown"),
    ] {
        let mut world = World::new(plan());
        let mut first = world.keyed("{}");
        world.answer(&mut first, status, &[("content-length", "4")], "body");
        assert_eq!(world.only().state.status().as_str(), state);
        assert_eq!(first.mark("idempotency-status").as_deref(), Some(state));
    }
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    world.answer_from(&mut first, "429", &[], "x", "via_upstream", Some(2));
    assert_eq!(
        world.only().state.status().as_str(),
        "unknown",
        "the router had tried before"
    );
}

#[test]
fn the_upstream_can_steer() {
    for (policy, status, state) in [
        ("no-store", "201", Some("completed")),
        ("store", "500", Some("completed")),
        ("not-started", "503", None),
        ("not-started", "201", Some("completed")),
    ] {
        let mut world = World::new(plan());
        let mut first = world.keyed("{}");
        world.answer(
            &mut first,
            status,
            &[("idempotency-policy", policy)],
            "body",
        );
        let found = world
            .records
            .values()
            .next()
            .map(|r| r.state.status().as_str());
        assert_eq!(found, state, "{policy}");
        assert!(
            first
                .response
                .contains(&Edit::Remove(b"idempotency-policy".to_vec()))
        );
        let next = world.keyed("{}");
        match policy {
            "no-store" => {
                assert_eq!(next.code(), "replay_unavailable");
                assert_eq!(next.problem()["reason"], "upstream_no_store");
                assert_eq!(next.problem()["upstream_status"], 201);
            }
            "store" => assert_eq!(next.reply.expect("a replay").status, 500),
            "not-started" if status == "201" => {
                assert_eq!(next.reply.expect("a replay").status, 201)
            }
            _ => assert!(next.forwarded()),
        }
    }
}

#[test]
fn a_client_that_leaves_makes_it_unknown_and_a_cut_answer_is_remembered() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    world.event(&mut first, |e, now, out| {
        e.on_end("downstream_remote_disconnect", now, out)
    });
    assert_eq!(world.keyed("{}").code(), "outcome_unknown");

    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    let headers: Headers = [(":status", "200")].into_iter().collect();
    let origin = Origin {
        details: "via_upstream",
        attempts: &|| Some(1),
        can_hold: true,
    };
    world.event(&mut first, |e, now, out| {
        e.on_response_headers(&headers, false, &origin, now, out)
    });
    world.event(&mut first, |e, now, out| {
        e.on_response_body(b"half", false, now, out)
    });
    world.event(&mut first, |e, now, out| {
        e.on_end("upstream_reset_after_response_started", now, out)
    });
    let next = world.keyed("{}");
    assert_eq!(
        (next.code().as_str(), next.problem()["reason"].as_str()),
        ("replay_unavailable", Some("answer_cut"))
    );
}

#[test]
fn a_client_that_leaves_after_the_end_changes_nothing() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    world.answer(&mut first, "201", &[("content-length", "4")], "done");
    world.event(&mut first, |e, now, out| {
        e.on_end("downstream_remote_disconnect", now, out)
    });
    assert_eq!(world.keyed("{}").reply.expect("a replay").body, b"done");
}

#[test]
fn the_chunk_that_completes_the_declared_length_is_the_end() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    let headers: Headers = [(":status", "200"), ("content-length", "100000")]
        .into_iter()
        .collect();
    let origin = Origin {
        details: "via_upstream",
        attempts: &|| Some(1),
        can_hold: true,
    };
    world.event(&mut first, |e, now, out| {
        e.on_response_headers(&headers, false, &origin, now, out)
    });
    assert!(
        !first.exchange.holds_response(),
        "too large to hold from its headers"
    );
    world.event(&mut first, |e, now, out| {
        e.on_response_body(&[b'x'; 60_000], false, now, out)
    });
    world.event(&mut first, |e, now, out| {
        e.on_response_body(&[b'x'; 40_000], false, now, out)
    });
    assert_eq!(
        world.keyed("{}").reply.expect("a replay").body.len(),
        100_000
    );
}

#[test]
fn answers_beyond_the_limit_and_with_trailers_are_not_replayable() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].replay.max_inline_body = 10);
    let mut first = world.keyed("{}");
    world.answer(&mut first, "200", &[], "more than ten octets");
    assert_eq!(world.keyed("{}").problem()["reason"], "answer_too_large");

    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    let headers: Headers = [(":status", "200")].into_iter().collect();
    let origin = Origin {
        details: "via_upstream",
        attempts: &|| Some(1),
        can_hold: false,
    };
    world.event(&mut first, |e, now, out| {
        e.on_response_headers(&headers, false, &origin, now, out)
    });
    world.event(&mut first, |e, now, out| {
        e.on_response_body(b"body", false, now, out)
    });
    world.event(&mut first, |e, now, out| e.on_response_trailers(now, out));
    assert_eq!(world.keyed("{}").problem()["reason"], "answer_had_trailers");
}

#[test]
fn an_owner_that_was_superseded_changes_nothing_and_leaves_evidence() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].unknown = UnknownPolicy::Forward);
    let mut first = world.keyed("{}");
    world.now += 30_001;
    let mut second = world.keyed("{}");
    assert!(second.forwarded(), "taken over");
    let generation = |c: &Client| {
        c.set("x-idempo-generation")
            .expect("set")
            .parse::<u64>()
            .expect("a number")
    };
    assert!(generation(&second) > generation(&first));
    world.answer(&mut first, "201", &[], "late");
    assert!(
        world
            .counted
            .iter()
            .any(|c| matches!(c, Counter::LateWrite(0)))
    );
    assert!(matches!(world.only().state, State::Pending { .. }));
    assert_eq!(
        world
            .only()
            .history
            .events()
            .last()
            .and_then(|e| e.evidence.as_ref())
            .and_then(|e| e.status),
        Some(201)
    );
    world.answer(&mut second, "201", &[], "right");
    assert_eq!(world.keyed("{}").reply.expect("a replay").body, b"right");
}

#[test]
fn an_answer_whose_record_cannot_be_written_still_reaches_the_client() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    world.broken = true;
    world.answer(&mut first, "201", &[], "real");
    assert!(
        world
            .counted
            .iter()
            .any(|c| matches!(c, Counter::Compensation(0)))
    );
    assert!(first.exchange.is_over());
}

#[test]
fn windows_end_and_schema_versions_rise() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    world.answer(&mut first, "201", &[], "done");
    world.reconfigure(|p| p.routes[0].schema_version = "2".into());
    assert_eq!(world.keyed("{}").problem()["reason"], "schema_changed");
    world.now += 172_800_000;
    assert_eq!(world.keyed("{}").code(), "key_expired");
    world.now += 604_800_000;
    assert!(world.keyed("{}").forwarded(), "all windows are over");
}

#[test]
fn a_release_after_a_take_over_leaves_the_operation_unknown() {
    let mut world = World::new(plan());
    let mut first = world.keyed(r#"{"amount":1}"#);
    world.answer(&mut first, "500", &[], "boom");
    world.reconfigure(|p| p.routes[0].unknown = UnknownPolicy::Forward);
    let mut second = world.keyed(r#"{"amount":1}"#);
    assert!(second.forwarded());
    world.answer(&mut second, "429", &[("content-length", "4")], "slow");
    assert_eq!(
        second.mark("idempotency-status").as_deref(),
        Some("unknown")
    );
    world.reconfigure(|p| p.routes[0].unknown = UnknownPolicy::Refuse);
    let third = world.keyed(r#"{"amount":1}"#);
    assert_eq!(third.code(), "outcome_unknown");
    assert_eq!(third.problem()["evidence"]["upstream_status"], 500);
    assert_eq!(world.keyed(r#"{"amount":2}"#).code(), "payload_mismatch");
}

#[test]
fn markers_say_what_is_recorded_not_what_was_hoped() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    world.broken = true;
    world.answer(&mut first, "201", &[("content-length", "4")], "real");
    assert_eq!(first.mark("idempotency-status").as_deref(), Some("pending"));
    assert_eq!(first.mark("idempotency-expires"), None);

    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    world.answer(&mut first, "202", &[("content-length", "4")], "soon");
    let promised = first.mark("idempotency-expires");
    assert!(promised.is_some());
    assert_eq!(world.keyed("{}").header("idempotency-expires"), promised);
}

#[test]
fn what_follows_an_answer_does_not_lose_its_last_write() {
    // The store takes its time: the rest of the answer comes before its reply does.
    for trailers in [false, true] {
        let mut world = World::new(plan());
        let mut first = world.keyed("{}");
        let (moment, mut out) = (world.moment(), vec![]);
        let origin = Origin {
            details: "via_upstream",
            attempts: &|| Some(1),
            can_hold: true,
        };
        let headers: Headers = [(":status", "429")].into_iter().collect();
        let exchange = &mut first.exchange;
        exchange.on_response_headers(&headers, false, &origin, moment, &mut out);
        assert!(out.iter().any(|e| matches!(e, Effect::Store(_))));
        assert!(exchange.holds_response());
        if trailers {
            exchange.on_response_trailers(moment, &mut out);
        } else {
            exchange.on_response_body(b"slow down", true, moment, &mut out);
        }
        assert!(exchange.holds_response(), "the release is not known yet");
        out.clear();
        exchange.on_store(Reply::Failed("timeout".into()), moment, &mut out);
        assert!(out.contains(&Effect::Retry), "it is made again");
        assert!(exchange.is_over());
    }
}
