//! Bodies that are too large to be held: claimed by their beginning, hashed while they pass.

use super::*;
use crate::fingerprint::Form;
use crate::record::Replayable;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const CLAIM_AFTER: usize = 64 << 10;

fn octets(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8).collect()
}

impl World {
    /// Headers of an upload, declared or chunked.
    fn upload(&mut self, declared: Option<usize>) -> Client {
        let length = declared.unwrap_or_default().to_string();
        let mut lines = vec![
            (":method", "POST"),
            (":path", "/v1/charges/upload"),
            (":authority", "api.test"),
            ("content-type", "application/octet-stream"),
            ("x-request-id", "req-1"),
            ("idempotency-key", KEY),
        ];
        if declared.is_some() {
            lines.push(("content-length", &length));
        }
        self.headers(&lines, false)
    }

    /// A whole upload in pieces of that size.
    fn uploaded(&mut self, body: &[u8], piece: usize, declared: bool) -> Client {
        let mut client = self.upload(declared.then_some(body.len()));
        for piece in body.chunks(piece) {
            if client.reply.is_some() {
                return client;
            }
            self.body(&mut client, piece, false);
        }
        if client.reply.is_none() {
            self.body(&mut client, b"", true);
        }
        client
    }
}

#[test]
fn nothing_is_claimed_before_enough_has_come_and_then_it_streams() {
    let mut world = World::new(plan());
    let body = octets(300_000);
    let mut client = world.upload(None);
    world.body(&mut client, &body[..CLAIM_AFTER], false);
    assert!(client.exchange.holds_request() && world.records.is_empty());
    world.body(&mut client, &body[CLAIM_AFTER..CLAIM_AFTER + 1], false);
    assert!(client.forwarded() && client.set("x-idempo-operation").is_some());
    assert_eq!(client.exchange.body(), Body::Stream);
    let fingerprint = &world.only().fingerprint;
    assert_eq!(fingerprint.form, Form::Head);
    assert_eq!(fingerprint.head.map(|h| h.octets), Some(CLAIM_AFTER as u64));
    world.body(&mut client, &body[CLAIM_AFTER + 1..], true);
    assert_eq!(client.exchange.body(), Body::Pass);
    world.answer(&mut client, "201", &[], "done");
    let fingerprint = &world.only().fingerprint;
    assert_eq!((fingerprint.form, fingerprint.length), (Form::Raw, 300_000));
    assert_eq!(fingerprint.head, None);
}

#[test]
fn the_fingerprint_does_not_depend_on_the_pieces() {
    let body = octets(200_000);
    let mut seen = vec![];
    for (piece, declared) in [
        (1, true),
        (1000, false),
        (CLAIM_AFTER, true),
        (70_000, false),
        (200_000, true),
    ] {
        let mut world = World::new(plan());
        let mut client = world.uploaded(&body, piece, declared);
        let head = world.only().fingerprint.digest;
        world.answer(&mut client, "201", &[], "done");
        seen.push((head, world.only().fingerprint.clone()));
    }
    assert!(seen.iter().all(|s| *s == seen[0]));
    // And it is the one that a request held whole would have.
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].claim_after = 1 << 20);
    let mut client = world.uploaded(&body, 1000, false);
    assert_eq!(world.only().fingerprint, seen[0].1);
    world.answer(&mut client, "201", &[], "done");
}

#[test]
fn a_duplicate_is_read_whole_compared_and_replayed() {
    let mut world = World::new(plan());
    let body = octets(1_000_000);
    let mut first = world.uploaded(&body, 10_000, true);
    world.answer(&mut first, "201", &[], "done");
    for declared in [true, false] {
        let mut again = world.upload(declared.then_some(body.len()));
        world.body(&mut again, &body[..100_000], false);
        assert_eq!(again.exchange.body(), Body::Drop);
        assert!(again.exchange.holds_request());
        world.body(&mut again, &body[100_000..999_999], false);
        assert!(again.reply.is_none());
        world.body(&mut again, &body[999_999..], true);
        assert_eq!(again.header("idempotent-replayed").as_deref(), Some("true"));
        assert_eq!(again.reply.as_ref().unwrap().body, b"done");
    }
    let mut other = body.clone();
    *other.last_mut().unwrap() ^= 1;
    let refused = world.uploaded(&other, 10_000, true);
    assert_eq!(refused.code(), "payload_mismatch");
    // One octet more or less is another body, and that is known at once where it is declared.
    let longer = world.uploaded(&octets(1_000_001), 100_000, true);
    assert_eq!(longer.code(), "payload_mismatch");
    let shorter = world.uploaded(&octets(999_999), 10_000, false);
    assert_eq!(shorter.code(), "payload_mismatch");
    let small = world.uploaded(&octets(1000), 1000, true);
    assert_eq!(small.code(), "payload_mismatch");
    assert_eq!(
        world
            .counted
            .iter()
            .filter(|c| matches!(c, Counter::Executed(..)))
            .count(),
        1
    );
}

#[test]
fn a_running_upload_is_known_by_its_beginning() {
    let mut world = World::new(plan());
    let body = octets(500_000);
    let mut first = world.upload(Some(body.len()));
    world.body(&mut first, &body[..200_000], false);
    let again = world.uploaded(&body, 50_000, true);
    assert_eq!(again.code(), "in_flight");
    // However it is framed.
    assert_eq!(world.uploaded(&body, 50_000, false).code(), "in_flight");
    let mut other = body.clone();
    other[10] ^= 1;
    assert_eq!(
        world.uploaded(&other, 50_000, true).code(),
        "payload_mismatch"
    );
    assert_eq!(
        world.uploaded(&octets(500_001), 50_000, true).code(),
        "payload_mismatch"
    );
    assert_eq!(
        world.uploaded(&octets(60_000), 50_000, true).code(),
        "payload_mismatch"
    );
    // The upload goes on for longer than a lease, and is nobody's unknown.
    for _ in 0..10 {
        world.now += 11_000;
        world.event(&mut first, |e, now, out| e.on_tick(now, out));
        assert_eq!(world.uploaded(&body, 50_000, true).code(), "in_flight");
    }
    world.body(&mut first, &body[200_000..], true);
    world.answer(&mut first, "201", &[], "done");
    assert_eq!(
        world
            .uploaded(&body, 50_000, true)
            .header("idempotent-replayed")
            .as_deref(),
        Some("true")
    );
}

#[test]
fn an_upload_that_is_cut_off_is_unknown_only_if_it_was_claimed() {
    let body = octets(500_000);
    for (sent, claimed) in [(CLAIM_AFTER, false), (CLAIM_AFTER + 1, true)] {
        let mut world = World::new(plan());
        let mut first = world.upload(Some(body.len()));
        world.body(&mut first, &body[..sent], false);
        world.event(&mut first, |e, now, out| {
            e.on_end("downstream_remote_disconnect", now, out);
        });
        assert_eq!(world.records.len(), usize::from(claimed), "{sent}");
        let again = world.uploaded(&body, 10_000, true);
        if claimed {
            assert_eq!(again.code(), "outcome_unknown");
            assert_eq!(
                again.problem()["evidence"]["details"],
                "downstream_remote_disconnect"
            );
        } else {
            assert!(again.forwarded());
        }
    }
}

#[test]
fn an_answer_before_the_end_of_the_request_is_never_replayed() {
    let mut world = World::new(plan());
    let body = octets(500_000);
    let mut first = world.upload(Some(body.len()));
    world.body(&mut first, &body[..200_000], false);
    world.answer(&mut first, "413", &[], "too much");
    assert!(matches!(
        &world.only().state,
        State::Completed { outcome, .. } if outcome.replay == Replayable::PartialRequest
    ));
    let again = world.uploaded(&body, 50_000, true);
    assert_eq!(again.code(), "replay_unavailable");
    assert_eq!(again.problem()["reason"], "request_incomplete");
    assert_eq!(again.problem()["upstream_status"], 413);
}

#[test]
fn a_body_that_was_read_to_be_compared_cannot_be_forwarded() {
    let mut world = World::new(plan());
    let body = octets(500_000);
    let mut first = world.uploaded(&body, 50_000, true);
    world.answer(&mut first, "201", &[], "done");
    let mut again = world.upload(Some(body.len()));
    world.body(&mut again, &body[..200_000], false);
    // The record goes while the body is read.
    world.records.clear();
    world.body(&mut again, &body[200_000..], true);
    assert_eq!(again.code(), "in_flight");
    assert!(world.records.is_empty());
    assert!(world.uploaded(&body, 50_000, true).forwarded());
}

#[test]
fn a_body_that_stalls_while_it_is_compared_is_answered() {
    let mut world = World::new(plan());
    let body = octets(500_000);
    let mut first = world.uploaded(&body, 50_000, true);
    world.answer(&mut first, "201", &[], "done");
    let mut again = world.upload(Some(body.len()));
    world.body(&mut again, &body[..200_000], false);
    for _ in 0..3 {
        world.now += 4_900;
        world.event(&mut again, |e, now, out| e.on_tick(now, out));
        assert!(again.reply.is_none());
        world.body(&mut again, b"", false);
    }
    world.now += 5_000;
    world.event(&mut again, |e, now, out| e.on_tick(now, out));
    assert_eq!(again.code(), "store_unavailable");
    assert_eq!(again.problem()["reason"], "upload_stalled");
    assert!(again.header("retry-after").is_some());
}

#[test]
fn a_waiting_upload_runs_where_the_operation_was_released() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].in_flight.action = InFlightAction::Wait);
    let body = octets(300_000);
    let mut first = world.uploaded(&body, 50_000, true);
    let mut waiter = world.upload(Some(body.len()));
    world.body(&mut waiter, &body[..100_000], false);
    assert_eq!(waiter.exchange.body(), Body::Hold);
    world.body(&mut waiter, &body[100_000..200_000], false);
    world.answer(&mut first, "429", &[], "later");
    world.event(&mut waiter, |e, _, out| e.on_wake(out));
    assert!(waiter.forwarded());
    world.body(&mut waiter, &body[200_000..], true);
    world.answer(&mut waiter, "201", &[], "done");
    assert_eq!(world.only().fingerprint.length, 300_000);
}

#[test]
fn another_claim_after_is_bridged_where_the_beginning_is_known() {
    let body = octets(300_000);
    for (then, now, code) in [
        (16 << 10, 64 << 10, "in_flight"),
        (64 << 10, 16 << 10, "fingerprint_incomparable"),
    ] {
        let mut world = World::new(plan());
        world.reconfigure(|p| p.routes[0].claim_after = then);
        let mut first = world.upload(None);
        world.body(&mut first, &body[..100_000], false);
        world.reconfigure(|p| {
            p.routes[0].claim_after = now;
            p.routes[0].fingerprint.digest = DigestAlgorithm::Sha256;
        });
        assert_eq!(
            world.uploaded(&body, 50_000, true).code(),
            code,
            "{then} {now}"
        );
    }
}

#[test]
fn what_outgrows_the_rule_is_cut_short_and_unknown() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].fingerprint.max_body = Some(200_000));
    let body = octets(300_000);
    let mut client = world.upload(None);
    world.body(&mut client, &body[..150_000], false);
    assert!(client.forwarded());
    world.body(&mut client, &body[150_000..], true);
    assert_eq!(client.code(), "payload_too_large");
    let again = world.uploaded(&body, 300_000, false);
    assert_eq!(again.code(), "payload_too_large");
    assert!(matches!(
        &world.only().state,
        State::Unknown { evidence, .. } if evidence.details == "payload_too_large"
    ));
}

#[test]
fn canonical_bodies_are_held_whole_up_to_a_mebibyte_and_raw_beyond() {
    let text = |n: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(n));
    let json = [("idempotency-key", KEY)];
    let mut world = World::new(plan());
    let mut first = world.post(&json, &text(500_000));
    assert_eq!(world.only().fingerprint.form, Form::Json);
    world.answer(&mut first, "201", &[], "done");
    let spaced = text(500_000).replace(':', ": ");
    let again = world.post(&json, &spaced);
    assert_eq!(again.header("idempotent-replayed").as_deref(), Some("true"));
    let mut world = World::new(plan());
    let lines = [
        (":method", "POST"),
        (":path", "/v1/charges"),
        ("content-type", "application/json"),
        json[0],
    ];
    let mut first = world.headers(&lines, false);
    let body = text(1 << 20);
    world.body(&mut first, &body.as_bytes()[..1 << 20], false);
    assert!(first.exchange.holds_request());
    world.body(&mut first, &body.as_bytes()[1 << 20..], false);
    assert!(first.forwarded());
    assert_eq!(world.only().fingerprint.form, Form::Head);
    world.answer(&mut first, "201", &[], "done");
    let outcome = world.only().state.outcome().map(|o| o.replay);
    assert_eq!(outcome, Some(Replayable::PartialRequest));
}

#[test]
fn what_was_not_seen_of_a_body_is_never_made_up() {
    let mut world = World::new(plan());
    let body = octets(300_000);
    let mut first = world.upload(None);
    world.body(&mut first, &body[..100_000], false);
    let headers: Headers = [(":status", "201")].into_iter().collect();
    let origin = Origin {
        details: "via_upstream",
        attempts: &|| Some(1),
        can_hold: true,
    };
    world.event(&mut first, |e, now, out| {
        e.on_response_headers(&headers, false, &origin, now, out);
    });
    world.event(&mut first, |e, now, out| e.on_body_lost(now, out));
    world.body(&mut first, &body[200_000..], true);
    world.event(&mut first, |e, now, out| {
        e.on_response_body(b"done", true, now, out);
    });
    let outcome = world.only().state.outcome().map(|o| o.replay);
    assert_eq!(outcome, Some(Replayable::PartialRequest));
    assert_eq!(world.only().fingerprint.form, Form::Head);
    // More than was declared: the same.
    let mut world = World::new(plan());
    let mut first = world.upload(Some(200_000));
    world.body(&mut first, &body[..100_000], false);
    world.body(&mut first, &body[100_000..250_000], false);
    world.body(&mut first, &body[250_000..], true);
    world.answer(&mut first, "201", &[], "done");
    let outcome = world.only().state.outcome().map(|o| o.replay);
    assert_eq!(outcome, Some(Replayable::PartialRequest));
}

#[test]
fn a_worker_without_room_refuses_what_is_not_claimed() {
    let mut world = World::new(plan());
    let mut first = world.upload(None);
    world.body(&mut first, &octets(1000), false);
    assert_eq!(first.exchange.gathered(), Some(1000));
    world.event(&mut first, |e, now, out| e.on_holding_short(now, out));
    assert_eq!(first.code(), "store_unavailable");
    assert_eq!(first.problem()["reason"], "worker_memory");
    assert!(world.records.is_empty());
}

#[test]
fn an_early_commit_holds_nothing_and_says_so() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].commit = Commit::Async);
    let mut client = world.keyed("{}");
    world.answer(&mut client, "201", &[("content-length", "4")], "done");
    assert_eq!(
        client.mark("idempotency-status").as_deref(),
        Some("pending")
    );
    let again = world.keyed("{}");
    assert_eq!(
        again.header("idempotency-status").as_deref(),
        Some("completed")
    );
}
