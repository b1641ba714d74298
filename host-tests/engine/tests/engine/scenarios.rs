//! What happens in a run: used as it is, and with every host call failing in turn.
//!
//! A scenario asserts nothing while it runs, since with a fault anything documented may happen.

use idempo_engine_tests::faults::Faults;
use idempo_engine_tests::host::{Host, Request, Setup};
use idempo_engine_tests::redis::Redis;
use idempo_engine_tests::script::{Answer, Fate, Script, Seen, World};
use idempo_engine_tests::shared::CasRule;
use serde_json::{Value, json};

pub(crate) const KEY: &str = "6f1c9bd2-0a7e-4c86-b1f5-3f4f9f0f8e11";
pub(crate) const BODY: &str = r#"{"amount":1000}"#;

/// Longer than any scenario takes: leases, time-outs and waits are over by then.
pub(crate) const LONG_MS: u64 = 90_000;

/// What is run.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) configuration: fn() -> Value,
    pub(crate) workers: usize,
    pub(crate) world: fn() -> World,
    /// Returns its clients.
    pub(crate) run: fn(&mut Host) -> Vec<usize>,
    /// What a client does that has no answer it can use.
    pub(crate) retry: fn() -> Request,
    /// How often the upstream may act: once, unless its answer says that nothing was done.
    pub(crate) may_act: usize,
    /// Duplicates are by design: nothing is enforced.
    pub(crate) observes: bool,
}

impl Scenario {
    pub(crate) fn setup(&self, rule: CasRule, faults: Faults) -> Setup {
        Setup {
            configuration: (self.configuration)().to_string(),
            workers: self.workers,
            rule,
            environment: vec![
                ("PATH".into(), "/usr/bin".into()),
                ("SECRET".into(), "0123456789abcdef0123456789abcdef".into()),
            ],
            faults,
            world: (self.world)(),
        }
    }
}

pub(crate) const ALL: [Scenario; 25] = [
    Scenario {
        name: "first attempt, replay",
        configuration: plain,
        workers: 1,
        world: World::default,
        run: |host| {
            let first = host.send(0, charge());
            host.until(LONG_MS, |h| h.got(first).is_some());
            vec![first, host.send(0, charge())]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "conflict",
        configuration: plain,
        workers: 1,
        world: World::default,
        run: |host| {
            let first = host.send(0, charge());
            host.until(LONG_MS, |h| h.got(first).is_some());
            vec![
                first,
                host.send(0, Request::post("/v1/charges", KEY, r#"{"amount":2}"#)),
            ]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "wait and wake across workers",
        configuration: waiting,
        workers: 2,
        world: || slow(350),
        run: |host| {
            let first = host.send(0, charge());
            host.pass(50);
            vec![first, host.send(1, charge()), host.send(0, charge())]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "detached",
        configuration: detached,
        workers: 1,
        world: || looped(slow(40)),
        run: |host| {
            host.pass(250);
            let first = host.send(0, charge());
            host.until(LONG_MS, |h| h.got(first).is_some());
            vec![first, host.send(0, charge())]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "detached, the client leaves",
        configuration: detached,
        workers: 1,
        world: || looped(slow(400)),
        run: |host| {
            host.pass(250);
            let first = host.send(0, charge());
            host.pass(30);
            host.leave(first);
            host.pass(600);
            vec![first, host.send(0, charge())]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "observe",
        configuration: || with(json!({"mode": "observe"})),
        workers: 1,
        world: World::default,
        run: |host| {
            let first = host.send(0, charge());
            host.until(LONG_MS, |h| h.got(first).is_some());
            vec![first, host.send(0, charge())]
        },
        retry: charge,
        may_act: 1,
        observes: true,
    },
    Scenario {
        name: "large body",
        configuration: || with(json!({"fingerprint": {"body": "raw"}})),
        workers: 1,
        world: World::default,
        run: |host| vec![host.send(0, upload())],
        retry: upload,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "client leaves, inline",
        configuration: plain,
        workers: 1,
        world: || slow(400),
        run: |host| {
            let first = host.send(0, charge());
            host.pass(30);
            host.leave(first);
            host.pass(100);
            vec![first, host.send(0, charge())]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "upstream breaks, the router would try again",
        configuration: plain,
        workers: 1,
        world: || World {
            upstream: Box::new(|_, n| match n {
                0 => Fate::Reset(5),
                _ => Fate::Answer(Answer::new(201, "{}")),
            }),
            router_retries: 2,
            ..World::default()
        },
        run: |host| vec![host.send(0, charge())],
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "refused upstream, released",
        configuration: plain,
        workers: 1,
        world: || World {
            upstream: Box::new(|_, n| {
                Fate::Answer(match n {
                    0 => Answer::new(429, "{}"),
                    _ => Answer::new(201, "{}"),
                })
            }),
            ..World::default()
        },
        run: |host| vec![host.send(0, charge())],
        retry: charge,
        may_act: 2,
        observes: false,
    },
    Scenario {
        name: "released while another waits",
        configuration: waiting,
        workers: 2,
        world: || World {
            upstream: Box::new(|_, n| {
                Fate::Answer(match n {
                    0 => Answer::new(429, "{}").after(300),
                    _ => Answer::new(201, "{}"),
                })
            }),
            ..World::default()
        },
        run: |host| {
            let first = host.send(0, charge());
            host.pass(50);
            vec![first, host.send(1, charge())]
        },
        retry: charge,
        may_act: 2,
        observes: false,
    },
    Scenario {
        name: "detached, the loopback breaks",
        configuration: detached,
        workers: 1,
        world: || World {
            clusters: [("loopback".to_owned(), once_looped())].into(),
            ..World::default()
        },
        run: |host| {
            host.pass(250);
            vec![host.send(0, charge())]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "trailers",
        configuration: plain,
        workers: 1,
        world: World::default,
        run: |host| {
            let first = host.send(0, charge().unfinished());
            host.trailers(first);
            vec![first]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "bodies are withheld",
        configuration: plain,
        workers: 1,
        world: World::default,
        run: |host| {
            host.workers[0].bodies_while_held = false;
            let first = host.send(0, charge());
            host.until(LONG_MS, |h| h.got(first).is_some());
            host.workers[0].bodies_while_held = true;
            vec![first]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "bodies are withheld, observe",
        configuration: || with(json!({"mode": "observe"})),
        workers: 1,
        world: World::default,
        run: |host| {
            host.workers[0].bodies_while_held = false;
            vec![host.send(0, charge())]
        },
        retry: charge,
        may_act: 1,
        observes: true,
    },
    Scenario {
        name: "tenants, quota, principal, forged headers",
        configuration: tenants,
        workers: 1,
        world: World::default,
        run: |host| {
            let first = host.send(0, forged());
            host.until(LONG_MS, |h| h.got(first).is_some());
            vec![first, host.send(0, forged().with("x-user", "mallory"))]
        },
        retry: forged,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "large answer",
        configuration: plain,
        workers: 1,
        world: || World {
            upstream: Box::new(|_, _| {
                let mut answer = Answer::new(201, &"y".repeat(150_000));
                let whole = answer.chunks.concat();
                answer.chunks = whole.chunks(32_000).map(<[u8]>::to_vec).collect();
                Fate::Answer(answer)
            }),
            ..World::default()
        },
        run: |host| {
            let first = host.send(0, charge());
            host.until(LONG_MS, |h| h.got(first).is_some());
            vec![first, host.send(0, charge())]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "a new configuration while a detached attempt runs",
        configuration: detached,
        workers: 1,
        world: || looped(slow(700)),
        run: |host| {
            host.pass(250);
            let first = host.send(0, charge());
            host.pass(50);
            let configuration = detached().to_string();
            host.reconfigure(0, &configuration);
            host.pass(1_000);
            vec![first, host.send(0, charge())]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "ticks",
        configuration: plain,
        workers: 2,
        world: || slow(10_600),
        run: |host| {
            host.pass(500);
            let first = host.send(1, charge());
            host.pass(10_000);
            vec![first]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "Redis: first attempt, replay by another worker",
        configuration: || over_redis(json!({})),
        workers: 2,
        world: || {
            with_redis(World::default(), |redis, seen, _| {
                Fate::Answer(redis.answer(seen))
            })
        },
        run: |host| {
            host.pass(100);
            let first = host.send(0, charge());
            host.until(LONG_MS, |h| h.got(first).is_some());
            vec![first, host.send(1, charge()), host.send(1, charge())]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "Redis: wait for another worker",
        configuration: || over_redis(json!({"in_flight": {"action": "wait", "timeout": "5s"}})),
        workers: 2,
        world: || with_redis(slow(350), |redis, seen, _| Fate::Answer(redis.answer(seen))),
        run: |host| {
            host.pass(100);
            let first = host.send(0, charge());
            host.pass(50);
            vec![first, host.send(1, charge()), host.send(0, charge())]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "Redis: every third answer is lost on its way",
        configuration: || over_redis(json!({})),
        workers: 1,
        world: || {
            with_redis(World::default(), |redis, seen, n| {
                let answer = redis.answer(seen);
                match n % 3 {
                    2 => Fate::Silence,
                    _ => Fate::Answer(answer),
                }
            })
        },
        run: |host| {
            host.pass(100);
            let first = host.send(0, charge());
            host.until(LONG_MS, |h| h.got(first).is_some());
            host.pass(3_000);
            vec![first, host.send(0, charge())]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "Redis: away while an answer waits to be recorded",
        configuration: || over_redis(json!({})),
        workers: 1,
        world: || {
            with_redis(slow(400), |redis, seen, _| match seen.at_ms % 100_000 {
                300..2_500 => Fate::Reset(1),
                _ => Fate::Answer(redis.answer(seen)),
            })
        },
        run: |host| {
            host.pass(100);
            let first = host.send(0, charge());
            host.pass(6_000);
            vec![first, host.send(0, charge())]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "Redis: loses everything while an attempt runs",
        configuration: || over_redis(json!({})),
        workers: 2,
        world: || {
            let mut lost = false;
            with_redis(slow(900), move |redis, seen, _| {
                if seen.at_ms % 100_000 >= 500 && !std::mem::replace(&mut lost, true) {
                    redis.forget();
                }
                Fate::Answer(redis.answer(seen))
            })
        },
        run: |host| {
            host.pass(100);
            let first = host.send(0, charge());
            host.pass(1_500);
            vec![first, host.send(1, charge())]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
    Scenario {
        name: "Redis: a client leaves, the lease ends, the sweep writes it",
        configuration: || over_redis(json!({"lease": "3s"})),
        workers: 2,
        world: || with_redis(slow(400), |redis, seen, _| Fate::Answer(redis.answer(seen))),
        run: |host| {
            host.pass(100);
            let first = host.send(0, charge());
            host.pass(60);
            host.leave(first);
            host.pass(5_000);
            vec![first, host.send(1, charge())]
        },
        retry: charge,
        may_act: 1,
        observes: false,
    },
];

fn charge() -> Request {
    Request::post("/v1/charges", KEY, BODY)
}

/// A client that claims to be idempo.
fn forged() -> Request {
    charge()
        .with("x-tenant", "acme")
        .with("x-user", "alice")
        .with("x-idempo-operation", "forged")
        .with("x-idempo-generation", "7")
}

fn upload() -> Request {
    let body = "x".repeat(200_000);
    let request = Request::post("/v1/charges", KEY, &body).in_pieces(16_000);
    request.with("content-type", "application/octet-stream")
}

fn plain() -> Value {
    with(json!({}))
}

fn waiting() -> Value {
    with(json!({"in_flight": {"action": "wait", "timeout": "5s"}}))
}

/// A small table, so that a tick's share of the sweep is small, too.
pub(crate) fn with(members: Value) -> Value {
    let mut route = json!({
        "id": "charges",
        "match": {"methods": ["POST"], "path": {"prefix": "/v1"}},
    });
    for (name, value) in members.as_object().expect("members") {
        route[name] = value.clone();
    }
    json!({
        "namespace": "engine",
        "store": {"shared_data": {"records": "1MiB", "bodies": "1MiB", "tombstones": "64KiB"}},
        "routes": [route],
    })
}

/// The same over Redis.
fn over_redis(members: Value) -> Value {
    let mut all = with(members);
    all["store"] = json!({"redis": {"cluster": "redis", "transport": "rest"}});
    all
}

/// With a Redis whose calls that script has in its hands.
fn with_redis(
    mut world: World,
    mut script: impl FnMut(&Redis, &Seen, usize) -> Fate + 'static,
) -> World {
    let redis = Redis::default();
    let calls: Script = Box::new(move |seen, n| script(&redis, seen, n));
    world.clusters.insert("redis".into(), calls);
    world
}

fn detached() -> Value {
    let mut all = plain();
    all["signing"] = json!({"active": {"env": "SECRET"}});
    all["loopback_cluster"] = json!("loopback");
    all
}

fn tenants() -> Value {
    let mut all = plain();
    all["tenant"] = json!({"sources": [{"header": "x-tenant"}]});
    all["principal"] = json!({"header": "x-user"});
    all["limits"] = json!({"tenant_records": 5});
    all
}

/// Probes come back, attempts don't.
fn once_looped() -> idempo_engine_tests::script::Script {
    Box::new(
        |seen, _| match seen.headers.iter().any(|(_, v)| v == b"probe") {
            true => Fate::Loopback,
            false => Fate::Reset(20),
        },
    )
}

fn slow(ms: u64) -> World {
    World {
        upstream: Box::new(move |_, n| {
            Fate::Answer(Answer::new(201, &format!("{{\"charge\":{n}}}")).after(ms))
        }),
        ..World::default()
    }
}

fn looped(mut world: World) -> World {
    let back: idempo_engine_tests::script::Script = Box::new(|_, _| Fate::Loopback);
    world.clusters.insert("loopback".into(), back);
    world
}
