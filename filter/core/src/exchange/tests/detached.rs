//! Attempts that outlive their client, and their inner pass.

use super::*;
use crate::audit;
use crate::record::Status;
use crate::trusted::{Inner, Secret, Signer, Verification};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const VIA: &str = "details=via_upstream; attempts=1";

fn detaching() -> World {
    let mut plan = plan();
    plan.loopback_cluster = Some("self".into());
    plan.routes[0].upstream.execution = Execution::Detached;
    let mut world = World::new(plan);
    let mut policy = (*world.policy).clone();
    policy.signer = Some(Signer {
        active: Secret::new("0123456789abcdef0123456789abcdef").unwrap(),
        previous: None,
        namespace: "default".into(),
    });
    world.policy = Arc::new(policy);
    world.loopback = true;
    world
}

fn sent(call: &Call) -> Headers {
    Headers::new(call.headers.clone())
}

impl World {
    fn come_back(&mut self, client: &mut Client, status: &str, extra: &[(&str, &str)], body: &str) {
        let headers = answer(status, extra);
        let body = body.as_bytes().to_vec();
        self.event(client, |e, now, out| {
            e.on_detached_answer(&headers, body, false, false, now, out);
        });
    }

    fn fail(&mut self, client: &mut Client, why: CallFailure) {
        self.event(client, |e, now, out| e.on_detached_failure(why, now, out));
    }

    fn leave(&mut self, client: &mut Client) {
        self.event(client, |e, now, out| {
            e.on_end("downstream_remote_disconnect", now, out);
        });
    }

    fn status(&self) -> Status {
        self.only().view(self.now).status()
    }
}

fn answer(status: &str, extra: &[(&str, &str)]) -> Headers {
    let mut lines = vec![(":status", status), ("x-idempo-inner", VIA)];
    lines.retain(|(n, _)| !extra.iter().any(|(e, _)| e == n));
    lines.extend(extra);
    lines.into_iter().collect()
}

fn outcome(client: &Client) -> Option<&str> {
    let mut shown = client.shown.iter().rev();
    shown
        .find(|(field, _)| *field == Field::Outcome)
        .map(|(_, value)| value.as_str())
}

#[test]
fn the_client_gets_the_answer_that_was_recorded() {
    let mut world = detaching();
    let mut first = world.keyed(r#"{"a":1}"#);
    assert!(first.exchange.holds_request() && first.exchange.is_away());
    assert!(
        !first.exchange.wants_response(),
        "nothing is in this stream"
    );
    let call = first.call.clone().expect("a call");
    assert_eq!(call.body, br#"{"a":1}"#);
    assert_eq!(call.timeout_ms, 16_000);
    let lines = [
        ("content-type", "text/plain"),
        ("link", "<a>"),
        ("link", "<b>"),
        ("set-cookie", "sid=1"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("content-length", "4"),
        ("idempotency-policy", "store"),
        ("idempotency-status", "forged"),
        ("x-idempo-forged", "1"),
    ];
    world.come_back(&mut first, "201", &lines, "done");
    assert!(!first.exchange.holds_request() && !first.exchange.holds_response());
    assert!(first.response.is_empty() && first.request.is_empty());
    assert_eq!(outcome(&first), Some("executed"));
    let reply = first.reply.clone().expect("a reply");
    assert_eq!((reply.status, reply.body.as_slice()), (201, &b"done"[..]));
    let names: Vec<_> = reply
        .headers
        .iter()
        .map(|(n, _)| std::str::from_utf8(n).unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "content-type",
            "link",
            "link",
            "set-cookie",
            "idempotent-replayed",
            "idempotency-status",
            "idempotency-operation",
            "idempotency-result",
            "idempotency-expires",
            "idempotency-store",
        ]
    );
    assert_eq!(
        first.header("idempotency-status").as_deref(),
        Some("completed")
    );
    let again = world.keyed(r#"{"a":1}"#);
    assert_eq!(again.reply.expect("a replay").body, b"done");
    assert_eq!(world.woken.len(), 1);
}

#[test]
fn the_call_is_the_request_and_proves_who_sends_it() {
    let mut world = detaching();
    let extra = [
        ("idempotency-key", KEY),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
        ("x-idempo-detached", "1"),
        ("x-idempo-tenant", "forged"),
        ("x_idempo_route", "forged"),
        ("idempotent-replayed", "true"),
        ("x-envoy-retry-on", "5xx"),
        ("x-envoy-upstream-rq-timeout-ms", "1"),
        ("content-length", "2"),
        ("transfer-encoding", "chunked"),
        ("accept-encoding", "gzip"),
    ];
    let first = world.post(&extra, "{}");
    let lines = sent(first.call.as_ref().expect("a call"));
    for (name, value) in [
        (":method", "POST"),
        (":path", "/v1/charges"),
        (":authority", "api.test"),
        ("idempotency-key", KEY),
        ("x-request-id", "req-1"),
        ("accept-encoding", "identity"),
        ("x-idempo-detached", "1"),
        ("x-idempo-route", "charges"),
        ("x-idempo-tenant", "public"),
    ] {
        assert_eq!(
            lines.all(name).collect::<Vec<_>>(),
            [value.as_bytes()],
            "{name}"
        );
    }
    assert_eq!(lines.all("cookie").count(), 2);
    // The host's own client would act on these.
    for (name, _) in lines.lines() {
        assert!(!name.starts_with(b"x-envoy-") && !name.contains(&b'_'));
        assert!(name != b"content-length" && name != b"transfer-encoding");
    }
    let signer = world.policy.signer.clone().unwrap();
    let now = world.now / 1000;
    let verify = |lines: &Headers| signer.verify(lines, b"POST", b"/v1/charges", now);
    assert_eq!(verify(&lines), Verification::Valid);
    let stripped: Headers = lines
        .lines()
        .iter()
        .filter(|(n, _)| n != b"x-idempo-detached")
        .cloned()
        .collect();
    assert_eq!(verify(&stripped), Verification::Invalid, "it is signed");
}

#[test]
fn a_client_that_leaves_changes_nothing_for_its_operation() {
    let mut world = detaching();
    let mut first = world.keyed("{}");
    world.leave(&mut first);
    assert_eq!(outcome(&first), Some("detached"));
    assert!(first.exchange.is_away() && !first.exchange.holds_request());
    assert_eq!(world.status(), Status::Pending);
    assert_eq!(world.keyed("{}").code(), "in_flight");
    let shown = first.shown.len();
    world.come_back(&mut first, "201", &[], "done");
    assert!(first.reply.is_none());
    // Its access log line is written: the transitions are a log line.
    assert_eq!(first.shown.len(), shown);
    let line = first.logged.last().expect("a log line");
    let audit = line.strip_prefix("audit: ").expect("an audit line");
    let audit: serde_json::Value = serde_json::from_str(audit).expect("JSON");
    assert_eq!(audit["v"], audit::SCHEMA);
    assert_eq!(audit["transitions"][1]["to"], "completed");
    assert_eq!(world.keyed("{}").reply.expect("a replay").body, b"done");
}

#[test]
fn a_client_that_leaves_after_the_answer_changes_nothing_either() {
    let mut world = detaching();
    let mut first = world.keyed("{}");
    world.come_back(&mut first, "201", &[], "done");
    assert!(first.exchange.is_over());
    world.leave(&mut first);
    assert_eq!(outcome(&first), Some("executed"));
    assert_eq!(world.keyed("{}").reply.expect("a replay").body, b"done");
}

#[test]
fn what_was_never_sent_goes_inline_under_the_same_claim() {
    let mut world = detaching();
    let mut first = world.keyed("{}");
    world.fail(&mut first, CallFailure::NeverSent);
    assert!(first.forwarded() && !first.exchange.is_away());
    assert_eq!(first.set("x-envoy-max-retries").as_deref(), Some("0"));
    assert!(first.set("x-idempo-detached").is_none());
    let operation = first.set("x-idempo-operation").expect("an operation");
    let record = world.records.keys().next().expect("a record").hex();
    assert_eq!(operation, record);
    world.answer(&mut first, "201", &[("content-length", "6")], "inline");
    assert_eq!(
        first.mark("idempotency-status").as_deref(),
        Some("completed")
    );
    assert_eq!(world.keyed("{}").reply.expect("a replay").body, b"inline");
    // A late word on the call is no word on the attempt.
    world.fail(&mut first, CallFailure::Lost);
    assert_eq!(world.status(), Status::Completed);
}

#[test]
fn what_was_never_sent_is_released_where_nobody_waits() {
    let mut world = detaching();
    let mut first = world.keyed("{}");
    world.leave(&mut first);
    world.fail(&mut first, CallFailure::NeverSent);
    assert!(world.records.is_empty() && first.reply.is_none());
    assert!(world.keyed("{}").call.is_some(), "the retry runs");
}

#[test]
fn an_answer_that_no_inner_pass_has_seen_proves_nothing() {
    for gone in [false, true] {
        for report in [None, Some("via_upstream"), Some("")] {
            let mut world = detaching();
            let mut first = world.keyed("{}");
            if gone {
                world.leave(&mut first);
            }
            let lines: Headers = [(":status", "503"), ("x-envoy-overloaded", "true")]
                .into_iter()
                .chain(report.map(|r| ("x-idempo-inner", r)))
                .collect();
            world.event(&mut first, |e, now, out| {
                e.on_detached_answer(
                    &lines,
                    b"no healthy upstream".to_vec(),
                    false,
                    false,
                    now,
                    out,
                );
            });
            assert_eq!(world.status(), Status::Unknown);
            assert_eq!(first.reply.is_none(), gone);
            if !gone {
                assert_eq!(first.code(), "outcome_unknown");
                assert_eq!(first.problem()["evidence"]["details"], "loopback_failed");
                assert_eq!(
                    first.header("idempotency-status").as_deref(),
                    Some("unknown")
                );
                assert_eq!(outcome(&first), Some("unknown"));
            }
            let retry = world.keyed("{}");
            assert_eq!(retry.code(), "outcome_unknown");
            assert_eq!(retry.problem()["evidence"]["details"], "loopback_failed");
        }
    }
}

#[test]
fn a_call_that_broke_off_is_unknown() {
    let mut world = detaching();
    let mut first = world.keyed("{}");
    world.fail(&mut first, CallFailure::Lost);
    assert_eq!(first.code(), "outcome_unknown");
    assert_eq!(world.status(), Status::Unknown);
    assert_eq!(world.noted.len(), 1);
}

#[test]
fn answers_are_judged_as_inline_ones_are() {
    let refused =
        "details=upstream_reset_before_response_started{remote_connection_failure}; attempts=1";
    let twice =
        "details=upstream_reset_before_response_started{remote_connection_failure}; attempts=2";
    let reset =
        "details=upstream_reset_before_response_started{connection_termination}; attempts=1";
    for (status, report, policy, expected, marker) in [
        ("503", refused, "", None, "released"),
        ("503", twice, "", Some(Status::Unknown), "unknown"),
        ("503", reset, "", Some(Status::Unknown), "unknown"),
        (
            "504",
            "details=response_timeout; attempts=1",
            "",
            Some(Status::Unknown),
            "unknown",
        ),
        ("429", VIA, "", None, "released"),
        (
            "429",
            "details=via_upstream",
            "",
            Some(Status::Unknown),
            "unknown",
        ),
        ("500", VIA, "", Some(Status::Unknown), "unknown"),
        ("500", VIA, "store", Some(Status::Completed), "completed"),
        ("422", VIA, "", Some(Status::Completed), "completed"),
        ("409", VIA, "not-started", None, "released"),
        ("202", VIA, "", Some(Status::Accepted), "accepted"),
        ("204", VIA, "", Some(Status::Completed), "completed"),
    ] {
        for body in ["", "some"] {
            let mut world = detaching();
            let mut first = world.keyed("{}");
            let mut lines = vec![("x-idempo-inner", report)];
            if !policy.is_empty() {
                lines.push(("idempotency-policy", policy));
            }
            world.come_back(&mut first, status, &lines, body);
            // Whatever it means, the client gets what came.
            let reply = first
                .reply
                .clone()
                .unwrap_or_else(|| panic!("no answer: {status} {report} {body:?}"));
            assert_eq!(reply.status.to_string(), status);
            assert_eq!(reply.body, body.as_bytes());
            assert_eq!(
                first.header("idempotency-status").as_deref(),
                Some(marker),
                "{report}"
            );
            assert_eq!(world.records.is_empty(), expected.is_none());
            if let Some(expected) = expected {
                assert_eq!(world.status(), expected);
            }
        }
    }
}

#[test]
fn what_cannot_be_replayed_is_remembered_anyway() {
    for (trailers, body) in [(true, "some"), (true, ""), (false, "more than four")] {
        let mut world = detaching();
        world.reconfigure(|p| p.routes[0].replay.max_inline_body = 4);
        let mut first = world.keyed("{}");
        let headers = answer("201", &[]);
        world.event(&mut first, |e, now, out| {
            e.on_detached_answer(&headers, body.into(), trailers, false, now, out);
        });
        assert_eq!(
            first.reply.clone().expect("the answer").body,
            body.as_bytes()
        );
        assert_eq!(world.status(), Status::Completed);
        let retry = world.keyed("{}");
        assert_eq!(retry.code(), "replay_unavailable");
        let reason = if trailers {
            "answer_had_trailers"
        } else {
            "answer_too_large"
        };
        assert_eq!(retry.problem()["reason"], reason);
    }
}

#[test]
fn a_lease_is_renewed_whether_or_not_the_client_is_there() {
    let mut world = detaching();
    let mut first = world.keyed("{}");
    for round in 0..10 {
        if round == 3 {
            world.leave(&mut first);
        }
        world.now += 10_000;
        world.event(&mut first, |e, now, out| e.on_tick(now, out));
    }
    assert_eq!(world.keyed("{}").code(), "in_flight");
    world.come_back(&mut first, "201", &[], "late");
    assert_eq!(world.keyed("{}").reply.expect("a replay").body, b"late");
}

#[test]
fn a_late_owner_settles_what_is_unknown_and_contradicts_nobody() {
    // Its lease is over, its token stands.
    let mut world = detaching();
    let mut first = world.keyed("{}");
    world.now += 30_001;
    assert_eq!(world.keyed("{}").code(), "outcome_unknown");
    world.come_back(&mut first, "201", &[], "late");
    assert_eq!(world.keyed("{}").reply.expect("a replay").body, b"late");

    // Taken over meanwhile: its answer is evidence, its client gets it all the same.
    let mut world = detaching();
    world.reconfigure(|p| p.routes[0].unknown = UnknownPolicy::Forward);
    let mut first = world.keyed("{}");
    world.now += 30_001;
    let mut second = world.keyed("{}");
    let call = sent(
        second
            .call
            .as_ref()
            .expect("the take-over is detached, too"),
    );
    let generation = |lines: &Headers| {
        let value = lines.first_str("x-idempo-generation").unwrap();
        value.parse::<u64>().unwrap()
    };
    assert!(generation(&call) > generation(&sent(first.call.as_ref().unwrap())));
    world.come_back(&mut second, "201", &[], "second");
    world.come_back(&mut first, "201", &[], "first");
    assert!(world.counted.contains(&Counter::LateWrite(0)));
    assert_eq!(first.reply.clone().expect("its answer").body, b"first");
    assert_eq!(world.keyed("{}").reply.expect("a replay").body, b"second");
}

#[test]
fn a_record_that_cannot_be_written_costs_the_client_nothing() {
    let mut world = detaching();
    let mut first = world.keyed("{}");
    world.broken = true;
    world.come_back(&mut first, "201", &[], "done");
    assert_eq!(first.reply.clone().expect("the answer").body, b"done");
    assert_eq!(
        first.header("idempotency-status").as_deref(),
        Some("pending")
    );
    assert!(world.counted.contains(&Counter::Compensation(0)));
}

#[test]
fn commit_async_sends_nothing_into_a_stream_that_has_no_answer() {
    let mut world = detaching();
    world.reconfigure(|p| p.routes[0].commit = Commit::Async);
    let mut first = world.keyed("{}");
    world.come_back(&mut first, "201", &[], "done");
    assert!(first.response.is_empty());
    assert_eq!(
        first.header("idempotency-status").as_deref(),
        Some("completed")
    );
}

#[test]
fn what_a_call_cannot_carry_runs_inline() {
    let inline = |world: &mut World, extra: &[(&str, &str)], body: &str| {
        let mut lines = vec![("idempotency-key", KEY)];
        lines.extend(extra);
        let client = world.post(&lines, body);
        assert!(client.call.is_none() && client.forwarded());
        assert!(client.set("x-idempo-operation").is_some());
    };
    inline(
        &mut detaching(),
        &[("accept", "text/html, text/event-stream;q=0.9")],
        "{}",
    );
    inline(&mut detaching(), &[("trailer", "x-sum")], "{}");
    inline(&mut detaching(), &[("upgrade", "h2c")], "{}");
    let big = format!("\"{}\"", "x".repeat(64 << 10));
    inline(&mut detaching(), &[], &big);
    let many: Vec<_> = (0..80).map(|_| ("x-many", "1")).collect();
    inline(&mut detaching(), &many, "{}");
    let long = "x".repeat(49 << 10);
    inline(&mut detaching(), &[("x-long", &long)], "{}");

    let mut world = detaching();
    world.loopback = false;
    inline(&mut world, &[], "{}");
    let mut world = detaching();
    world.reconfigure(|p| p.routes[0].upstream.execution = Execution::Inline);
    inline(&mut world, &[], "{}");
    // A body that is not looked at is not there to be sent.
    let mut world = detaching();
    world.reconfigure(|p| {
        p.routes[0].fingerprint.body = BodyMode::None;
        p.routes[0].key.body_field = None;
    });
    inline(&mut world, &[], "{}");

    // Trailers come after the body, and before the end.
    let mut world = detaching();
    let lines = [
        (":method", "POST"),
        (":path", "/v1/charges"),
        (":authority", "api.test"),
        ("idempotency-key", KEY),
    ];
    let mut client = world.headers(&lines, false);
    client.exchange.note_trailers();
    world.body(&mut client, b"{}", true);
    assert!(client.call.is_none() && client.forwarded());
    // Without a body there is nothing to wait for.
    let client = detaching().headers(&lines, true);
    assert!(client.call.is_some_and(|c| c.body.is_empty()));
}

#[test]
fn observing_stays_inline() {
    let mut world = detaching();
    world.reconfigure(|p| p.mode = Mode::Observe);
    let mut first = world.keyed("{}");
    assert!(first.call.is_none() && first.forwarded() && first.request.is_empty());
    world.answer(&mut first, "201", &[], "x");
    assert!(first.response.is_empty());
}

#[test]
fn a_waiter_gets_a_detached_answer_and_runs_detached_after_a_release() {
    let mut world = detaching();
    world.reconfigure(|p| p.routes[0].in_flight.action = InFlightAction::Wait);
    let mut first = world.keyed("{}");
    let mut second = world.keyed("{}");
    let mut third = world.keyed("{}");
    world.come_back(&mut first, "429", &[], "slow down");
    world.event(&mut second, |e, _, out| e.on_wake(out));
    assert!(second.call.is_some());
    world.event(&mut third, |e, _, out| e.on_wake(out));
    world.come_back(&mut second, "201", &[], "done");
    world.event(&mut third, |e, _, out| e.on_wake(out));
    assert_eq!(third.reply.expect("a replay").body, b"done");
}

/// The inner pass of that call.
fn inner(world: &mut World, call: &Call, strip: &[&str]) -> Client {
    let mut inner = world.client();
    let mut headers = sent(call);
    headers = headers
        .into_lines()
        .into_iter()
        .filter(|(n, _)| !strip.iter().any(|s| n == s.as_bytes()))
        .collect();
    // As the host's own client does.
    headers.push("x-envoy-expected-rq-timeout-ms", "16000");
    let facts = Known::default();
    let (moment, mut out) = (world.moment(), vec![]);
    let end = call.body.is_empty();
    inner
        .exchange
        .on_request_headers(headers, end, &facts, moment, &mut out);
    world.carry_out(&mut inner, out);
    inner
}

#[test]
fn the_inner_pass_shows_the_upstream_what_inline_shows_it() {
    let mut world = detaching();
    let first = world.keyed("{}");
    let call = first.call.clone().expect("a call");
    let mut inner = inner(&mut world, &call, &["x-envoy-max-retries"]);
    assert!(inner.forwarded() && inner.exchange.body() == Body::Pass);
    assert_eq!(outcome(&inner), Some("inner"));
    assert!(
        world
            .counted
            .iter()
            .all(|c| !matches!(c, Counter::Bypass(_)))
    );
    let removed = |name: &str| inner.request.contains(&Edit::Remove(name.into()));
    assert!(removed("x-idempo-detached") && removed("x-envoy-expected-rq-timeout-ms"));
    assert_eq!(inner.set("x-envoy-max-retries").as_deref(), Some("0"));
    assert_eq!(
        inner.set("x-envoy-upstream-rq-timeout-ms").as_deref(),
        Some("15000")
    );
    // Signed anew, without what only the two passes know of.
    let mut lines = sent(&call).into_lines();
    lines.retain(|(n, _)| n != b"x-idempo-detached" && n != b"x-idempo-signature");
    lines.push((
        b"x-idempo-signature".to_vec(),
        inner.set("x-idempo-signature").unwrap().into_bytes(),
    ));
    let signer = world.policy.signer.clone().unwrap();
    let verified = signer.verify(
        &Headers::new(lines),
        b"POST",
        b"/v1/charges",
        world.now / 1000,
    );
    assert_eq!(verified, Verification::Valid);

    assert!(inner.exchange.wants_response() && !inner.exchange.records());
    let details = "upstream_reset_before_response_started{connection_termination}";
    world.answer_from(
        &mut inner,
        "503",
        &[("x-idempo-inner", VIA), ("x-idempo-other", "1")],
        "x",
        details,
        Some(3),
    );
    let report = inner.mark("x-idempo-inner").expect("a report");
    let expected = Inner {
        details: details.into(),
        attempts: Some(3),
    };
    assert_eq!(Inner::decode(report.as_bytes()), Some(expected));
    for forged in ["x-idempo-inner", "x-idempo-other"] {
        assert!(
            inner.response.contains(&Edit::Remove(forged.into())),
            "{forged}"
        );
    }
}

#[test]
fn only_a_signed_word_makes_an_inner_pass() {
    // Forged, or signed by somebody else: an ordinary request, which meets its own claim here.
    let mut world = detaching();
    let first = world.keyed("{}");
    let mut call = first.call.clone().expect("a call");
    for (name, value) in &mut call.headers {
        if name == b"x-idempo-signature" {
            let last = value.last_mut().unwrap();
            *last = if *last == b'0' { b'1' } else { b'0' };
        }
    }
    let forged = inner(&mut world, &call, &[]);
    assert!(
        forged
            .request
            .contains(&Edit::Remove("x-idempo-detached".into()))
    );
    assert!(!forged.exchange.wants_response());

    // A second idempo further up gets no such word, and passes as ever.
    let mut world = detaching();
    let mut first = world.keyed("{}");
    world.fail(&mut first, CallFailure::NeverSent);
    let mut lines = vec![
        (b":method".to_vec(), b"POST".to_vec()),
        (b":path".to_vec(), b"/v1/charges".to_vec()),
    ];
    for edit in &first.request {
        if let Edit::Set(name, value) = edit {
            lines.push((name.clone(), value.clone()));
        }
    }
    let mut second = world.client();
    let (moment, mut out) = (world.moment(), vec![]);
    let facts = Known::default();
    second
        .exchange
        .on_request_headers(Headers::new(lines), true, &facts, moment, &mut out);
    world.carry_out(&mut second, out);
    assert_eq!(outcome(&second), Some("signed"));
    assert!(second.request.is_empty() && !second.exchange.wants_response());
    assert!(world.counted.contains(&Counter::Bypass(Bypass::Signed)));
}

#[test]
fn a_probe_is_answered_where_it_is_signed() {
    let mut world = detaching();
    let signer = world.policy.signer.clone().unwrap();
    let own = vec![(b"x-idempo-detached".to_vec(), b"probe".to_vec())];
    let signature = signer.sign(&own, b"GET", b"/_idempo/loopback", world.now / 1000);
    let mut lines = vec![
        (":method", "GET"),
        (":path", "/_idempo/loopback"),
        ("x-idempo-detached", "probe"),
        ("x-idempo-signature", signature.as_str()),
    ];
    let probed = world.headers(&lines, true);
    let reply = probed.reply.clone().expect("an answer");
    assert_eq!(reply.status, 204);
    assert!(probed.header("x-idempo-inner").is_some());
    assert_eq!(outcome(&probed), Some("inner"));
    lines.pop();
    let forged = world.headers(&lines, true);
    assert!(forged.reply.is_none() && forged.forwarded());
}

#[test]
fn a_call_shows_neither_headers_nor_body() {
    let mut world = detaching();
    let first = world.post(
        &[("idempotency-key", KEY), ("authorization", "Bearer s3cret")],
        "{}",
    );
    let shown = format!("{:?}", first.call.expect("a call"));
    assert!(!shown.contains("s3cret") && !shown.contains(KEY), "{shown}");
}

/// A last write that a full queue refuses at once is answered before the renewal that waits there.
#[test]
fn the_last_writes_reply_may_overtake_a_renewals() {
    for (status, body) in [("201", "done"), ("429", "busy")] {
        let mut world = detaching();
        let mut first = world.keyed("{}");
        world.under_way = Some(Default::default());
        world.now += 11_000;
        world.event(&mut first, |e, now, out| e.on_tick(now, out));
        world.come_back(&mut first, status, &[], body);
        let steps: Vec<Op> = world.under_way.take().unwrap().into();
        assert_eq!(
            steps.iter().map(Op::renews).collect::<Vec<_>>(),
            [true, false]
        );
        let (now, mut out) = (world.moment(), vec![]);
        let full = Reply::Unsent("16 operations wait already".into());
        first.exchange.on_store(full, now, &mut out);
        assert!(out.contains(&Effect::Retry), "{status}: {out:?}");
        let reply = |e: &Effect| matches!(e, Effect::Reply(_));
        assert_eq!(out.iter().filter(|e| reply(e)).count(), 1);
        out.clear();
        first.exchange.on_renewal();
        assert_eq!(out, []);
    }
}

#[test]
fn trailers_after_a_declared_length_are_not_replayed_without() {
    let mut world = detaching();
    let mut first = world.keyed("{}");
    let headers = answer("200", &[("content-length", "4")]);
    world.event(&mut first, |e, now, out| {
        e.on_detached_answer(&headers, b"done".to_vec(), true, false, now, out);
    });
    assert_eq!(world.keyed("{}").code(), "replay_unavailable");
}

#[test]
fn an_answer_that_waits_for_its_record_is_counted_and_given_at_once_where_there_is_no_room() {
    let mut world = detaching();
    let mut first = world.keyed("{}");
    world.under_way = Some(Default::default());
    world.come_back(&mut first, "200", &[], &"x".repeat(1 << 20));
    assert!(first.reply.is_none(), "it waits");
    assert!(first.exchange.recorded_octets() >= 1 << 20);

    let mut world = detaching();
    let mut first = world.keyed("{}");
    world.under_way = Some(Default::default());
    let headers = answer("200", &[]);
    world.event(&mut first, |e, now, out| {
        e.on_detached_answer(&headers, b"large".to_vec(), false, true, now, out);
    });
    let reply = first.reply.take().expect("at once");
    assert_eq!((reply.status, reply.body.as_slice()), (200, &b"large"[..]));
    assert_eq!(first.exchange.recorded_octets(), 0);
    world.catch_up(&mut first);
    assert_eq!(world.only().state.status(), Status::Completed);
    world.under_way = None;
    assert_eq!(world.keyed("{}").code(), "replay_unavailable");
}

/// The HTTP/2 listener behind the loopback refuses such a host, and the connection with it.
#[test]
fn a_host_that_http2_refuses_runs_inline() {
    for host in ["a@b", ""] {
        let mut world = detaching();
        let client = world.post(&[("idempotency-key", KEY), (":authority", host)], "{}");
        assert!(client.call.is_none(), "{host:?}");
        assert!(client.forwarded());
    }
}
