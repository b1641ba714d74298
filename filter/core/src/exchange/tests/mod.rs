//! Exchanges against a store that is a map with the contract, and an upstream that counts.

mod answers;
mod detached;
mod failing_hosts;
mod identity;
mod modes;
mod owners;
mod requests;
mod uploads;

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

const KEY: &str = "5f3c1a52-8e0b-4d0e-9f57-3f1f5d2a9c11";

fn plan() -> Plan {
    Plan {
        namespace: "default".into(),
        mode: Mode::Enforce,
        enforce_fraction: 1.0,
        store: Store::SharedData(SharedDataStore::default()),
        replay_cache_bytes: 0,
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
        claim_after: 64 << 10,
        commit: Commit::BeforeEnd,
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
    /// Steps are kept here, where there is a place, until [`World::catch_up`].
    under_way: Option<std::collections::VecDeque<Op>>,
    loopback: bool,
    facts: Known,
    counted: Vec<Counter>,
    deferred: Vec<Op>,
    /// Writes that were to be made again.
    retried: u32,
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
    call: Option<Call>,
    shown: Vec<(Field, String)>,
    logged: Vec<String>,
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
            under_way: None,
            loopback: false,
            facts: Known::default(),
            counted: vec![],
            deferred: vec![],
            retried: 0,
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
                if matches!(reply, Reply::Applied(_))
                    && let Action::Transition(t) = &op.action
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

    /// The oldest step that is under way arrives, and is answered.
    fn catch_up(&mut self, client: &mut Client) {
        let op = self.under_way.as_mut().unwrap().pop_front();
        let op = op.expect("a step is under way");
        let reply = self.store(&op);
        self.event(client, |e, now, out| {
            if op.renews() {
                e.on_renewal();
            } else {
                e.on_store(reply, now, out);
            }
        });
    }

    fn client(&mut self) -> Client {
        self.counter += 1;
        let seed = Seed {
            vm: [7; 16],
            counter: self.counter,
        };
        let mut exchange = Exchange::new(self.policy.clone(), seed);
        exchange.set_loopback(self.loopback);
        Client {
            exchange,
            request: vec![],
            response: vec![],
            reply: None,
            waits: false,
            call: None,
            shown: vec![],
            logged: vec![],
        }
    }

    fn carry_out(&mut self, client: &mut Client, effects: Vec<Effect>) {
        let mut queue = std::collections::VecDeque::from(effects);
        while let Some(effect) = queue.pop_front() {
            let mut more = vec![];
            match effect {
                Effect::Store(op) if self.under_way.is_some() => {
                    self.under_way.as_mut().unwrap().push_back(op);
                }
                Effect::Store(op) => {
                    let reply = self.store(&op);
                    if op.renews() {
                        client.exchange.on_renewal();
                    } else {
                        client.exchange.on_store(reply, self.moment(), &mut more);
                    }
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
                Effect::Send(call) => {
                    assert!(client.call.is_none(), "two calls of one attempt");
                    client.call = Some(*call);
                }
                Effect::Show(field, value) => client.shown.push((field, value)),
                Effect::Log(_, line) => client.logged.push(line),
                Effect::Retry => self.retried += 1,
                Effect::Time(..) => {}
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
        if !body.is_empty() {
            self.body(&mut client, body.as_bytes(), true);
        }
        client
    }

    /// As the host does with a piece of a body: holds it, shows it, passes it or drops it.
    fn body(&mut self, client: &mut Client, piece: &[u8], end: bool) {
        match client.exchange.body() {
            Body::Pass => {}
            Body::Hold | Body::Stream | Body::Drop => {
                self.event(client, |e, now, out| {
                    e.on_request_chunk(piece.to_vec(), end, now, out);
                });
            }
        }
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
