//! Exchanges against a store that is a map with the contract, and an upstream that counts.

use super::*;
use crate::exchange::effects::Effect;
use crate::metrics::{Bypass, Cause, Counter};
use crate::plan::*;
use crate::record::{Record, State};
use crate::reply::LocalReply;
use crate::store::contract::{self, Change};
use crate::store::{Action, Reply, Target};
use crate::tenant::Facts;
use std::collections::HashMap;

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const KEY: &str = "5f3c1a52-8e0b-4d0e-9f57-3f1f5d2a9c11";

fn plan() -> Plan {
    Plan {
        namespace: "default".into(),
        mode: Mode::Enforce,
        enforce_fraction: 1.0,
        store: Store::SharedData(SharedDataStore::default()),
        tenant: Tenant {
            required: false,
            sources: vec![Source::Header("x-tenant-id".into())],
            default: "public".into(),
        },
        principal: None,
        limits: Limits::default(),
        signing: None,
        loopback_cluster: None,
        routes: vec![route("charges")],
    }
}

fn route(id: &str) -> Route {
    Route {
        id: id.into(),
        previous: vec![],
        mode: None,
        matcher: Matcher {
            methods: vec!["POST".into()],
            path: Some(PathMatch::Prefix("/v1/charges".into())),
            ..Matcher::default()
        },
        key: KeyRule::default(),
        fingerprint: FingerprintRule::default(),
        upstream: Upstream {
            timeout_ms: 15_000,
            execution: Execution::Inline,
            router_retries_reason: None,
            identity_encoding: true,
        },
        lease_ms: 30_000,
        record: RecordRule {
            classes: vec![
                ClassRule {
                    from: 202,
                    to: 202,
                    class: Class::Accepted,
                },
                ClassRule {
                    from: 429,
                    to: 429,
                    class: Class::Release,
                },
                ClassRule {
                    from: 200,
                    to: 499,
                    class: Class::Record,
                },
            ],
            allow_headers: vec![],
            deny_headers: vec![],
        },
        replay: Replay {
            ttl_ms: 172_800_000,
            tombstone_ttl_ms: 604_800_000,
            max_inline_body: 1 << 20,
        },
        in_flight: InFlight {
            action: InFlightAction::Reject,
            timeout_ms: 10_000,
            max_waiters: 32,
        },
        unknown: UnknownPolicy::Refuse,
        store_failure: StoreFailure::Closed,
        statuses: std::collections::BTreeMap::new(),
        schema_version: "1".into(),
        key_time: None,
        accepted_deadline_ms: 86_400_000,
    }
}

/// Facts by joined path.
#[derive(Default)]
struct Known(HashMap<String, Vec<u8>>);

impl Facts for Known {
    fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        self.0.get(&path.join(".")).cloned()
    }
}

/// A store that keeps its contract, one policy, one clock.
struct World {
    policy: Arc<Policy>,
    records: HashMap<OperationId, Record>,
    bodies: HashMap<(OperationId, u64), Vec<u8>>,
    now: u64,
    counter: u64,
    broken: bool,
    facts: Known,
    counted: Vec<Counter>,
    deferred: Vec<Op>,
    woken: Vec<OperationId>,
    noted: Vec<(OperationId, u64)>,
    suspected: Vec<u64>,
}

/// One stream and what the host was told.
struct Client {
    exchange: Exchange,
    request: Vec<Edit>,
    response: Vec<Edit>,
    reply: Option<LocalReply>,
    waits: bool,
}

impl Client {
    fn forwarded(&self) -> bool {
        self.reply.is_none() && !self.exchange.holds_request()
    }

    fn set(&self, name: &str) -> Option<String> {
        set_in(&self.request, name)
    }

    fn mark(&self, name: &str) -> Option<String> {
        set_in(&self.response, name)
    }

    fn code(&self) -> String {
        let reply = self.reply.as_ref().expect("a local reply");
        let body: serde_json::Value = serde_json::from_slice(&reply.body).expect("problem+json");
        body["code"].as_str().unwrap_or_default().to_owned()
    }

    fn problem(&self) -> serde_json::Value {
        serde_json::from_slice(&self.reply.as_ref().expect("a local reply").body).expect("json")
    }

    fn header(&self, name: &str) -> Option<String> {
        let lines = &self.reply.as_ref()?.headers;
        let value = &lines.iter().find(|(n, _)| n == name.as_bytes())?.1;
        Some(String::from_utf8_lossy(value).into_owned())
    }
}

fn set_in(edits: &[Edit], name: &str) -> Option<String> {
    edits.iter().rev().find_map(|edit| match edit {
        Edit::Set(n, value) if n == name.as_bytes() => {
            Some(String::from_utf8_lossy(value).into_owned())
        }
        _ => None,
    })
}

impl World {
    fn new(plan: Plan) -> Self {
        Self {
            policy: Arc::new(Policy {
                plan,
                signer: None,
                proxy: "edge-1".into(),
                remembers_since: Some(1_700_000_000_000),
            }),
            records: HashMap::new(),
            bodies: HashMap::new(),
            now: 1_700_000_100_000,
            counter: 0,
            broken: false,
            facts: Known::default(),
            counted: vec![],
            deferred: vec![],
            woken: vec![],
            noted: vec![],
            suspected: vec![],
        }
    }

    fn reconfigure(&mut self, change: impl FnOnce(&mut Plan)) {
        let mut policy = (*self.policy).clone();
        change(&mut policy.plan);
        self.policy = Arc::new(policy);
    }

    fn moment(&self) -> Moment {
        Moment {
            wall_us: self.now * 1000,
            store_ms: self.now,
        }
    }

    fn store(&mut self, op: &Op) -> Reply {
        if self.broken {
            return Reply::Failed("down".into());
        }
        if let Action::Body { incarnation } = op.action {
            // As the table does: judged by the record, where there is one.
            return match contract::apply(self.records.get(&op.operation), &Action::Read, self.now).1
            {
                Reply::Current(record) if record.version.incarnation == incarnation => {
                    Reply::Body(self.bodies.get(&(op.operation, incarnation)).cloned())
                }
                other => other,
            };
        }
        let current = self.records.get(&op.operation);
        let (change, reply) = contract::apply(current, &op.action, self.now);
        match change {
            Change::Keep => {}
            Change::Delete => drop(self.records.remove(&op.operation)),
            Change::Put(record) => {
                if let Action::Transition(t) = &op.action
                    && let Target::Completed {
                        blob: Some(blob), ..
                    }
                    | Target::Accepted {
                        blob: Some(blob), ..
                    } = &t.to
                {
                    self.bodies
                        .insert((op.operation, record.version.incarnation), blob.clone());
                }
                self.records.insert(op.operation, *record);
            }
        }
        reply
    }

    fn client(&mut self) -> Client {
        self.counter += 1;
        let seed = Seed {
            vm: [7; 16],
            counter: self.counter,
        };
        Client {
            exchange: Exchange::new(self.policy.clone(), seed),
            request: vec![],
            response: vec![],
            reply: None,
            waits: false,
        }
    }

    fn carry_out(&mut self, client: &mut Client, effects: Vec<Effect>) {
        let mut queue = std::collections::VecDeque::from(effects);
        while let Some(effect) = queue.pop_front() {
            let mut more = vec![];
            match effect {
                Effect::Store(op) => {
                    let reply = self.store(&op);
                    client.exchange.on_store(reply, self.moment(), &mut more);
                }
                Effect::Wait(_) => {
                    client.waits = true;
                    client
                        .exchange
                        .on_registered(true, self.moment(), &mut more);
                }
                Effect::Reply(reply) => {
                    assert!(client.reply.is_none(), "two local replies on one stream");
                    client.reply = Some(reply);
                }
                Effect::Request(edits) => client.request.extend(edits),
                Effect::Response(edits) => client.response.extend(edits),
                Effect::Count(counter) => self.counted.push(counter),
                Effect::Defer(op) => self.deferred.push(op),
                Effect::Wake(operation) => self.woken.push(operation),
                Effect::NoteUnknown(operation, likeness) => self.noted.push((operation, likeness)),
                Effect::Suspect(_, likeness) => self.suspected.push(likeness),
                Effect::Retry | Effect::Time(..) | Effect::Show(..) | Effect::Log(..) => {}
            }
            queue.extend(more);
        }
    }

    fn event(
        &mut self,
        client: &mut Client,
        event: impl FnOnce(&mut Exchange, Moment, &mut Vec<Effect>),
    ) {
        let mut out = vec![];
        event(&mut client.exchange, self.moment(), &mut out);
        self.carry_out(client, out);
    }

    fn headers(&mut self, lines: &[(&str, &str)], end: bool) -> Client {
        let mut client = self.client();
        let headers: Headers = lines.iter().copied().collect();
        let mut out = vec![];
        let moment = self.moment();
        client
            .exchange
            .on_request_headers(headers, end, &self.facts, moment, &mut out);
        self.carry_out(&mut client, out);
        client
    }

    fn post(&mut self, extra: &[(&str, &str)], body: &str) -> Client {
        let mut lines = vec![
            (":method", "POST"),
            (":path", "/v1/charges"),
            (":authority", "api.test"),
            ("content-type", "application/json"),
            ("x-request-id", "req-1"),
        ];
        lines.retain(|(n, _)| !extra.iter().any(|(e, _)| e == n));
        lines.extend(extra);
        let mut client = self.headers(&lines, body.is_empty());
        if client.exchange.gathers() {
            let body = body.as_bytes().to_vec();
            self.event(&mut client, |e, now, out| e.on_request_body(body, now, out));
        }
        client
    }

    fn keyed(&mut self, body: &str) -> Client {
        self.post(&[("idempotency-key", KEY)], body)
    }

    fn answer(&mut self, client: &mut Client, status: &str, extra: &[(&str, &str)], body: &str) {
        self.answer_from(client, status, extra, body, "via_upstream", Some(1));
    }

    fn answer_from(
        &mut self,
        client: &mut Client,
        status: &str,
        extra: &[(&str, &str)],
        body: &str,
        details: &str,
        attempts: Option<u64>,
    ) {
        let headers: Headers = [(":status", status)]
            .into_iter()
            .chain(extra.iter().copied())
            .collect();
        let origin = Origin {
            details,
            attempts: &|| attempts,
            can_hold: true,
        };
        let end = body.is_empty();
        self.event(client, |e, now, out| {
            e.on_response_headers(&headers, end, &origin, now, out)
        });
        if !end {
            self.event(client, |e, now, out| {
                e.on_response_body(body.as_bytes(), true, now, out)
            });
        }
        assert!(!client.exchange.holds_response());
    }

    fn only(&self) -> &Record {
        assert_eq!(self.records.len(), 1);
        self.records.values().next().expect("one record")
    }
}

#[test]
fn the_main_job() {
    let mut world = World::new(plan());
    let mut first = world.keyed(r#"{"amount":1}"#);
    assert!(first.forwarded());
    assert_eq!(first.set("x-envoy-max-retries").as_deref(), Some("0"));
    assert_eq!(
        first.set("x-envoy-upstream-rq-timeout-ms").as_deref(),
        Some("15000")
    );
    assert_eq!(first.set("x-idempo-route").as_deref(), Some("charges"));
    let answer = [("location", "/v1/charges/ch_1"), ("content-length", "13")];
    world.answer(&mut first, "201", &answer, r#"{"id":"ch_1"}"#);
    assert_eq!(first.mark("idempotent-replayed").as_deref(), Some("false"));
    assert_eq!(
        first.mark("idempotency-status").as_deref(),
        Some("completed")
    );
    let result = first
        .mark("idempotency-result")
        .expect("held answers name their result");

    let again = world.keyed(r#"{ "amount": 1.0 }"#);
    let reply = again.reply.as_ref().expect("a replay");
    assert_eq!(
        (reply.status, reply.body.as_slice()),
        (201, &br#"{"id":"ch_1"}"#[..])
    );
    assert_eq!(
        again.header("location").as_deref(),
        Some("/v1/charges/ch_1")
    );
    assert_eq!(again.header("idempotent-replayed").as_deref(), Some("true"));
    assert_eq!(again.header("idempotency-result"), Some(result));
    assert!(
        again
            .header("idempotency-store")
            .is_some_and(|v| v.contains("since=1700000000"))
    );

    let other = world.keyed(r#"{"amount":2}"#);
    assert_eq!(
        (
            other.code().as_str(),
            other.reply.as_ref().map(|r| r.status)
        ),
        ("payload_mismatch", Some(422))
    );
}

#[test]
fn a_running_operation_refuses_its_duplicates() {
    let mut world = World::new(plan());
    let _first = world.keyed("{}");
    let second = world.keyed("{}");
    assert_eq!(second.code(), "in_flight");
    assert!(second.header("retry-after").is_some());
    // The fingerprint comes before the state: even while pending.
    assert_eq!(world.keyed(r#"{"x":1}"#).code(), "payload_mismatch");
}

#[test]
fn a_waiter_gets_the_answer_once_there_is_one() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].in_flight.action = InFlightAction::Wait);
    let mut first = world.keyed("{}");
    let mut second = world.keyed("{}");
    assert!(second.waits && second.exchange.holds_request());
    world.answer(&mut first, "201", &[], "done");
    assert_eq!(world.woken.len(), 1);
    world.event(&mut second, |e, _, out| e.on_wake(out));
    assert_eq!(second.reply.expect("a replay").body, b"done");
}

#[test]
fn a_waiter_claims_after_a_release_and_gives_up_in_time() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].in_flight.action = InFlightAction::Wait);
    let mut first = world.keyed("{}");
    let mut second = world.keyed("{}");
    let mut third = world.keyed("{}");
    world.answer(&mut first, "429", &[], "slow down");
    assert_eq!(
        first.mark("idempotency-status").as_deref(),
        Some("released")
    );
    world.event(&mut second, |e, _, out| e.on_wake(out));
    assert!(second.forwarded(), "the waiter runs now");
    world.event(&mut third, |e, _, out| e.on_wake(out));
    assert!(third.exchange.waits().is_some());
    world.now += 10_001;
    world.event(&mut third, |e, now, out| e.on_tick(now, out));
    assert_eq!(third.code(), "in_flight");
    assert_eq!(
        world.only().generation,
        1_700_000_100_000,
        "the third touched nothing"
    );
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
fn a_lease_is_renewed_while_the_exchange_lives() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    for _ in 0..10 {
        world.now += 10_000;
        world.event(&mut first, |e, now, out| e.on_tick(now, out));
    }
    assert_eq!(world.keyed("{}").code(), "in_flight");
    world.now += 30_000;
    assert_eq!(
        world.keyed("{}").code(),
        "outcome_unknown",
        "its owner is silent"
    );
    // The late owner's token still stands.
    world.answer(&mut first, "201", &[], "late");
    assert_eq!(world.keyed("{}").reply.expect("a replay").body, b"late");
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
fn a_store_that_fails_follows_the_routes_policy() {
    let mut world = World::new(plan());
    world.broken = true;
    let first = world.keyed("{}");
    assert_eq!(
        (first.code().as_str(), first.header("retry-after").is_some()),
        ("store_unavailable", true)
    );
    assert!(
        matches!(world.deferred[0].action, Action::Cancel { .. }),
        "nothing is left behind"
    );
    world.reconfigure(|p| p.routes[0].store_failure = StoreFailure::Open);
    let mut second = world.keyed("{}");
    assert!(second.forwarded());
    assert!(
        second.set("x-idempo-operation").is_none(),
        "nobody vouches for it"
    );
    world.answer(&mut second, "201", &[], "x");
    assert_eq!(
        second.mark("idempotency-status").as_deref(),
        Some("bypassed")
    );
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
fn observe_never_answers_and_counts() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.mode = Mode::Observe);
    let mut first = world.keyed("{}");
    assert!(first.forwarded() && first.request.is_empty());
    world.answer(&mut first, "201", &[], "done");
    assert!(first.response.is_empty());
    let again = world.keyed("{}");
    let other = world.keyed(r#"{"x":1}"#);
    let bad = world.post(&[("idempotency-key", "short")], "{}");
    for client in [&again, &other, &bad] {
        assert!(client.forwarded() && client.request.is_empty());
    }
    let would: Vec<_> = world
        .counted
        .iter()
        .filter(|c| matches!(c, Counter::Would(..)))
        .copied()
        .collect();
    assert_eq!(
        would,
        [
            Counter::Would(0, None),
            Counter::Would(0, Some(crate::reply::Code::PayloadMismatch)),
            Counter::Would(0, Some(crate::reply::Code::KeyWeak)),
        ]
    );
}

/// Holding back more could make the host answer 413; and what is not looked at is not called refused.
#[test]
fn observing_holds_little_and_says_what_it_did_not_look_at() {
    let lines = [
        (":method", "POST"),
        (":path", "/v1/charges"),
        ("content-type", "text/plain"),
        ("idempotency-key", KEY),
    ];
    let (large, beyond) = ((256 << 10) + 1, (1 << 20) + 1);
    let unobserved = Counter::Bypass(Bypass::Unobserved);
    let refused = Counter::Would(0, Some(crate::reply::Code::PayloadTooLarge));
    for (declared, seen, expected) in [
        (Some(large), 0, unobserved),
        (Some(beyond), 0, refused),
        (None, large, unobserved),
    ] {
        let mut world = World::new(plan());
        world.reconfigure(|p| p.mode = Mode::Observe);
        let length = declared.unwrap_or_default().to_string();
        let mut lines = lines.to_vec();
        if declared.is_some() {
            lines.push(("content-length", &length));
        }
        let mut client = world.headers(&lines, false);
        assert_eq!(client.exchange.gathers_to_observe(), declared.is_none());
        world.event(&mut client, |e, now, out| {
            e.on_request_progress(seen, now, out)
        });
        assert!(client.forwarded() && client.request.is_empty());
        assert_eq!(world.counted, [expected]);
    }
    // A rule that looks into the body holds as little, unless some rule enforces.
    for (enforces, held) in [(None, false), (Some(Mode::Enforce), true)] {
        let mut world = World::new(plan());
        world.reconfigure(|p| {
            p.mode = Mode::Observe;
            p.routes[0].matcher.body = Some(BodyMatch {
                pointer: "/method".into(),
                exact: "call".into(),
            });
            p.routes[0].mode = enforces;
        });
        let mut client = world.headers(&lines, false);
        world.event(&mut client, |e, now, out| {
            e.on_request_progress(large, now, out)
        });
        assert_eq!(client.exchange.holds_request(), held);
    }
}

/// The alert counts every operation that becomes unknown, whoever is the first to see it.
#[test]
fn a_lease_that_a_retry_finds_over_is_counted_once() {
    let mut world = World::new(plan());
    let _gone = world.keyed("{}");
    world.now += 30_000;
    for _ in 0..3 {
        // Also within one tick of the store's clock.
        assert_eq!(world.keyed("{}").code(), "outcome_unknown");
        assert_eq!(world.keyed("{}").code(), "outcome_unknown");
        world.now += 60_000;
    }
    let lapsed = Counter::Unknown(0, Cause::LeaseOver);
    assert_eq!(world.counted.iter().filter(|c| **c == lapsed).count(), 1);
}

#[test]
fn a_fraction_enforces_by_operation_and_always_the_same_ones() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.enforce_fraction = 0.5);
    let mut enforced = 0;
    for n in 0..200 {
        let key = format!("5f3c1a52-8e0b-4d0e-9f57-{n:012}");
        let first = world.post(&[("idempotency-key", &key)], "{}");
        let again = world.post(&[("idempotency-key", &key)], "{}");
        assert_eq!(
            first.set("x-idempo-operation").is_some(),
            again.reply.is_some()
        );
        enforced += usize::from(again.reply.is_some());
    }
    assert!((70..130).contains(&enforced), "{enforced}");
    let refused = (0..200)
        .filter(|n| {
            let id = format!("req-{n}");
            world.post(&[("x-request-id", &id)], "{}").reply.is_some()
        })
        .count();
    assert!((70..130).contains(&refused), "{refused}");
}

#[test]
fn off_touches_nothing() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.mode = Mode::Off);
    let client = world.post(
        &[("idempotency-key", KEY), ("x-idempo-tenant", "forged")],
        "{}",
    );
    assert!(client.forwarded() && client.request.is_empty() && world.records.is_empty());
}

#[test]
fn forged_headers_are_stripped_from_every_request() {
    let mut world = World::new(plan());
    let get = world.headers(
        &[
            (":method", "GET"),
            (":path", "/other"),
            ("x-idempo-tenant", "forged"),
        ],
        true,
    );
    assert!(get.forwarded());
    assert_eq!(get.request, [Edit::Remove(b"x-idempo-tenant".to_vec())]);
    let first = world.post(
        &[
            ("idempotency-key", KEY),
            ("x-envoy-retry-on", "5xx"),
            ("x-idempo-operation", "0"),
        ],
        "{}",
    );
    assert!(
        first
            .request
            .contains(&Edit::Remove(b"x-envoy-retry-on".to_vec()))
    );
    assert_eq!(first.set("x-idempo-operation").map(|v| v.len()), Some(64));
}

#[test]
fn route_metadata_selects_and_misconfiguration_is_refused() {
    let mut world = World::new(plan());
    let base = "xds.route_metadata.filter_metadata.idempo";
    world.facts.0.insert(base.into(), vec![1]);
    world
        .facts
        .0
        .insert(format!("{base}.route"), b"charges".to_vec());
    let elsewhere = [(":path", "/anything"), ("idempotency-key", KEY)];
    assert!(world.post(&elsewhere, "{}").set("x-idempo-route").is_some());
    world
        .facts
        .0
        .insert(format!("{base}.mode"), b"off".to_vec());
    assert!(world.post(&elsewhere, "{}").request.is_empty());
    world.facts.0.remove(&format!("{base}.mode"));
    world
        .facts
        .0
        .insert(format!("{base}.route"), b"no_such_rule".to_vec());
    let refused = world.post(&elsewhere, "{}");
    assert_eq!(
        (
            refused.code().as_str(),
            refused.problem()["reason"].as_str()
        ),
        ("misconfigured", Some("unknown_rule"))
    );
    world.facts.0.remove(&format!("{base}.route"));
    world
        .facts
        .0
        .insert(format!("{base}.requires_idempotency"), vec![1]);
    assert_eq!(world.post(&elsewhere, "{}").problem()["reason"], "no_rule");
}

#[test]
fn keys_from_the_body_and_from_both_places() {
    let mut world = World::new(plan());
    let body = format!(r#"{{"idempotency_key":"{KEY}"}}"#);
    assert!(world.post(&[], &body).forwarded());
    assert_eq!(world.post(&[], "{}").code(), "key_missing");
    let other = format!(r#"{{"idempotency_key":"{}"}}"#, KEY.replace('5', "6"));
    assert_eq!(world.keyed(&other).code(), "key_invalid");
    // Escapes hide the member's name from a search, not from the reading.
    let hidden = format!(r#"{{"idempotency\u005fkey":"{}"}}"#, KEY.replace('5', "6"));
    assert_eq!(world.keyed(&hidden).code(), "key_invalid");
    assert_eq!(
        world
            .headers(&[(":method", "POST"), (":path", "/v1/charges")], true)
            .code(),
        "key_missing"
    );
}

#[test]
fn rules_that_look_into_the_body_cannot_be_led_past() {
    let mut world = World::new(plan());
    world.reconfigure(|p| {
        let mut tools = route("tools");
        tools.matcher.path = Some(PathMatch::Exact("/rpc".into()));
        tools.matcher.body = Some(BodyMatch {
            pointer: "/method".into(),
            exact: "tools/call".into(),
        });
        p.routes.push(tools);
    });
    let rpc = |world: &mut World, body: &str, media: &str| {
        world.post(
            &[
                (":path", "/rpc"),
                ("content-type", media),
                ("idempotency-key", KEY),
            ],
            body,
        )
    };
    assert!(
        rpc(&mut world, r#"{"method":"tools/list"}"#, "application/json")
            .request
            .is_empty()
    );
    for media in ["application/json", "text/plain"] {
        let call = rpc(&mut world, r#"{"method":"tools/call"}"#, media);
        assert!(
            call.set("x-idempo-route").is_some() || call.reply.is_some(),
            "{media}"
        );
    }
    let hidden = r#"{"method":"tools/call","method":"tools/list"}"#;
    for media in ["application/json", "text/plain", ""] {
        let refused = rpc(&mut world, hidden, media);
        assert_eq!(refused.problem()["reason"], "body_unreadable", "{media}");
    }
    assert!(
        rpc(&mut world, "plain words", "text/plain")
            .request
            .is_empty()
    );
}

#[test]
fn an_optional_key_may_be_absent() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].key.required = false);
    assert!(world.post(&[], "{}").forwarded());
    assert_eq!(
        world.counted,
        [Counter::Bypass(crate::metrics::Bypass::NoKey)]
    );
}

#[test]
fn a_route_that_was_renamed_finds_its_earlier_records() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    world.answer(&mut first, "201", &[], "done");
    world.reconfigure(|p| {
        p.routes[0] = route("payments");
        p.routes[0].previous = vec![PreviousIdentity {
            id: "charges".into(),
            tenant_default: None,
        }];
    });
    assert_eq!(world.keyed("{}").reply.expect("a replay").body, b"done");
    assert!(
        world
            .post(
                &[("idempotency-key", "9f3c1a52-8e0b-4d0e-9f57-3f1f5d2a9c11")],
                "{}"
            )
            .forwarded()
    );
}

#[test]
fn a_key_from_before_the_restart_is_unknown_and_never_runs() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].key_time = Some(KeyTime::UuidV7));
    // UUIDv7 of 1 699 999 999 999 and 1 700 000 000 000 ms: one before and one at the start.
    let (before, since) = (
        "018bcfe5-67ff-7000-8000-0123456789ab",
        "018bcfe5-6800-7000-8000-0123456789ab",
    );
    for _ in 0..2 {
        let old = world.post(&[("idempotency-key", before)], "{}");
        assert_eq!(old.code(), "outcome_unknown");
        assert_eq!(old.problem()["evidence"]["details"], "restart");
    }
    assert!(world.post(&[("idempotency-key", since)], "{}").forwarded());
    assert_eq!(
        world.post(&[("idempotency-key", KEY)], "{}").code(),
        "key_invalid"
    );
}

#[test]
fn a_new_key_for_what_is_still_unknown_is_recognised() {
    let mut world = World::new(plan());
    let mut first = world.keyed(r#"{"amount":1}"#);
    world.answer(&mut first, "500", &[], "boom");
    let [(_, likeness)] = world.noted[..] else {
        panic!("one note: {:?}", world.noted)
    };
    let key = ("idempotency-key", "9f3c1a52-8e0b-4d0e-9f57-3f1f5d2a9c11");
    world.post(&[key], r#"{"amount":1}"#);
    assert_eq!(world.suspected.last(), Some(&likeness));
    let key = ("idempotency-key", "8f3c1a52-8e0b-4d0e-9f57-3f1f5d2a9c11");
    world.post(&[key], r#"{"amount":2}"#);
    assert_ne!(world.suspected.last(), Some(&likeness));
}

#[test]
fn what_a_restart_made_unknown_is_not_taken_over_by_the_attempt_that_found_it() {
    for policy in [
        UnknownPolicy::Forward,
        UnknownPolicy::Retry { reason: "x".into() },
    ] {
        let mut world = World::new(plan());
        world.reconfigure(|p| {
            p.routes[0].key_time = Some(KeyTime::UuidV7);
            p.routes[0].unknown = policy.clone();
        });
        let before = "018bcfe5-67ff-7000-8000-0123456789ab";
        let old = world.post(&[("idempotency-key", before)], "{}");
        assert_eq!(old.code(), "outcome_unknown");
        // The next attempt follows the policy.
        let next = world.post(&[("idempotency-key", before)], "{}");
        assert!(next.forwarded());
    }
}

#[test]
fn a_duplicate_waits_under_the_identity_where_the_first_attempt_runs() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    world.reconfigure(|p| {
        p.routes[0] = route("payments");
        p.routes[0].in_flight.action = InFlightAction::Wait;
        p.routes[0].previous = vec![PreviousIdentity {
            id: "charges".into(),
            tenant_default: None,
        }];
    });
    let mut second = world.keyed("{}");
    assert!(
        second.exchange.waits().is_some(),
        "not claimed under the new identity"
    );
    assert_eq!(world.records.len(), 1);
    world.answer(&mut first, "201", &[], "done");
    world.event(&mut second, |e, _, out| e.on_wake(out));
    assert_eq!(second.reply.expect("a replay").body, b"done");
}

#[test]
fn a_tenant_default_that_was_renamed_finds_its_earlier_records() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    world.answer(&mut first, "201", &[], "done");
    world.reconfigure(|p| {
        p.tenant.default = "everybody".into();
        p.routes[0].previous = vec![PreviousIdentity {
            id: "charges".into(),
            tenant_default: Some("public".into()),
        }];
        p.routes[0].unknown = UnknownPolicy::Forward;
    });
    assert_eq!(world.keyed("{}").reply.expect("a replay").body, b"done");
    // And what is unknown under the earlier identity is not run under the new one.
    let key = ("idempotency-key", "9f3c1a52-8e0b-4d0e-9f57-3f1f5d2a9c11");
    let plan_now = world.policy.plan.clone();
    world.reconfigure(|p| *p = plan());
    let mut lost = world.post(&[key], "{}");
    world.answer(&mut lost, "500", &[], "boom");
    world.reconfigure(|p| *p = plan_now);
    assert_eq!(world.post(&[key], "{}").code(), "outcome_unknown");
}

#[test]
fn open_runs_nothing_of_which_there_is_a_record() {
    let mut world = World::new(plan());
    world.reconfigure(|p| p.routes[0].store_failure = StoreFailure::Open);
    let mut first = world.keyed("{}");
    world.answer(&mut first, "201", &[], "done");
    // The claim finds the record, and then its answer cannot be fetched.
    world.bodies.clear();
    assert_eq!(world.keyed("{}").code(), "replay_unavailable");
    let headers: Headers = [
        (":method", "POST"),
        (":path", "/v1/charges"),
        ("idempotency-key", KEY),
        ("content-type", "application/json"),
    ]
    .into_iter()
    .collect();
    let mut client = world.client();
    let mut out = vec![];
    let moment = world.moment();
    client
        .exchange
        .on_request_headers(headers, false, &world.facts, moment, &mut out);
    out.clear();
    client
        .exchange
        .on_request_body(b"{}".to_vec(), moment, &mut out);
    let claim = out.iter().find_map(|e| match e {
        Effect::Store(op) => Some(op.clone()),
        _ => None,
    });
    let found = world.store(&claim.expect("a claim"));
    out.clear();
    client.exchange.on_store(found, moment, &mut out);
    out.clear();
    client
        .exchange
        .on_store(Reply::Failed("down".into()), moment, &mut out);
    world.carry_out(&mut client, out);
    assert_eq!(client.code(), "store_unavailable");
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
fn a_release_after_a_renewal_is_a_release() {
    let mut world = World::new(plan());
    let mut first = world.keyed("{}");
    world.now += 12_000;
    world.event(&mut first, |e, now, out| e.on_tick(now, out));
    world.broken = true;
    world.answer(&mut first, "429", &[], "slow down");
    let ran = |c: &Counter| matches!(c, Counter::Compensation(_));
    assert!(!world.counted.iter().any(ran), "nothing ran");
}

#[test]
fn tenants_are_apart_and_principals_too() {
    let mut world = World::new(plan());
    assert!(
        world
            .post(&[("idempotency-key", KEY), ("x-tenant-id", "a")], "{}")
            .forwarded()
    );
    assert!(
        world
            .post(&[("idempotency-key", KEY), ("x-tenant-id", "b")], "{}")
            .forwarded()
    );
    world.reconfigure(|p| p.principal = Some(Source::Header("x-user".into())));
    let key = ("idempotency-key", "1f3c1a52-8e0b-4d0e-9f57-3f1f5d2a9c11");
    assert!(world.post(&[key, ("x-user", "ann")], "{}").forwarded());
    let other = world.post(&[key, ("x-user", "bob")], "{}");
    assert_eq!(
        (other.code().as_str(), other.header("idempotency-status")),
        ("principal_mismatch", None)
    );
}

#[test]
fn a_body_beyond_the_limit_is_refused_early() {
    let mut world = World::new(plan());
    let declared = world.headers(
        &[
            (":method", "POST"),
            (":path", "/v1/charges"),
            ("idempotency-key", KEY),
            ("content-length", "9999999"),
        ],
        false,
    );
    assert_eq!(declared.code(), "payload_too_large");
    let mut chunked = world.headers(
        &[
            (":method", "POST"),
            (":path", "/v1/charges"),
            ("idempotency-key", KEY),
        ],
        false,
    );
    world.event(&mut chunked, |e, now, out| {
        e.on_request_progress(1 << 20, now, out)
    });
    assert!(chunked.exchange.gathers());
    world.event(&mut chunked, |e, now, out| {
        e.on_request_progress((1 << 20) + 1, now, out)
    });
    assert_eq!(chunked.code(), "payload_too_large");
}

#[test]
fn a_signed_request_passes_unclaimed() {
    let mut world = World::new(plan());
    let secret =
        crate::trusted::Secret::new(*b"0123456789abcdef0123456789abcdef").expect("long enough");
    let mut policy = (*world.policy).clone();
    policy.signer = Some(crate::trusted::Signer {
        active: secret,
        previous: None,
        namespace: "default".into(),
    });
    world.policy = Arc::new(policy);
    let first = world.keyed("{}");
    let mut inner = vec![
        (":method".to_owned(), "POST".to_owned()),
        (":path".to_owned(), "/v1/charges".to_owned()),
        ("idempotency-key".to_owned(), KEY.to_owned()),
    ];
    for edit in &first.request {
        if let Edit::Set(name, value) = edit
            && name.starts_with(b"x-idempo-")
        {
            inner.push((
                String::from_utf8_lossy(name).into(),
                String::from_utf8_lossy(value).into(),
            ));
        }
    }
    let lines: Vec<(&str, &str)> = inner
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_str()))
        .collect();
    let passed = world.headers(&lines, true);
    assert!(passed.forwarded() && passed.request.is_empty());
    let mut forged = lines.clone();
    for line in &mut forged {
        if line.0 == "x-idempo-tenant" {
            line.1 = "other";
        }
    }
    assert_eq!(world.headers(&forged, true).code(), "payload_mismatch");
}
