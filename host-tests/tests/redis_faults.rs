//! A store that answers wrongly, late, or not at all; that dies, comes back, and has forgotten; that is
//! full. Whatever it does: no second effect, no trap, nobody who waits for ever.

use host_tests::{
    check::{refused, replayed, until},
    client::{Answer, Raw, Request},
    envoy::Envoy,
    filter::{self, key},
    store::{
        Engine as _,
        front::{CLUSTER, Front},
        gate::{Deed, Gate, Kind},
        redis::{Remote, Server, Way},
        wire::Http,
    },
    upstream::Upstream,
};
use idempo_core::{
    ids::OperationId,
    record::Status,
    store::{Action, Op, Reply},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

fn charge(key: &str) -> Request {
    Request::post("/v1/charges")
        .key(key)
        .json(r#"{"amount":1200,"currency":"eur"}"#)
}

async fn send(envoy: &Envoy, request: &Request) -> Answer {
    let answer = Raw::exchange(envoy.addr(), request).await;
    answer.unwrap_or_else(|e| panic!("{e}\n{}", envoy.log()))
}

fn is_replay(answer: &Answer) -> bool {
    answer.one("idempotent-replayed") == Some("true")
}

fn code(answer: &Answer) -> String {
    let problem = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
    problem["code"].as_str().unwrap_or_default().to_owned()
}

/// Whatever else, these hold at the end of each test.
fn sound(envoys: &[&Envoy], upstream: &Upstream) {
    for envoy in envoys {
        assert_eq!(envoy.vm_traps(), 0);
    }
    let twice: BTreeMap<_, _> = upstream
        .effects_by()
        .by_key
        .into_iter()
        .filter(|(_, effects)| *effects > 1)
        .collect();
    assert!(twice.is_empty(), "{twice:#?}");
}

/// An Envoy of one worker that reaches the store at that address.
async fn start(
    upstream: &Upstream,
    front: &Front,
    addr: SocketAddr,
    store: Value,
    route: Value,
) -> Envoy {
    let mut config = filter::with_route(route);
    config["store"] = front.store(&store);
    // The store itself is asked.
    config["replay_cache"] = json!({"bytes": 0});
    let builder = Envoy::with_filter(upstream, config).concurrency(1);
    let envoy = front.reached(builder, addr).start().await;
    gauge(&envoy, "idempo_store_ready", 1).await;
    envoy
}

async fn gauge(envoy: &Envoy, name: &str, value: u64) {
    until(&format!("{name} {value}"), || async {
        (envoy.stats().await.idempo(name, &[]) == value).then_some(())
    })
    .await;
}

/// Sends until the store is not missed any more. The gauge says that some worker reaches it; another may
/// still leave it alone for a while.
async fn once_back(envoy: &Envoy, request: &Request) -> Answer {
    until("the store to be reached again", || async {
        let answer = send(envoy, request).await;
        (code(&answer) != "store_unavailable").then_some(answer)
    })
    .await
}

/// Waits until the Envoy has looked at every shard once more: what it has seen can be missed.
async fn swept(envoy: &Envoy) {
    let answered = format!("cluster.{CLUSTER}.upstream_rq_200");
    let seen = envoy.stats().await.get(&answered);
    until("a sweep of every shard", || async {
        (envoy.stats().await.get(&answered) > seen + 16).then_some(())
    })
    .await;
}

/// The record's status, without the filter.
fn status(store: &mut Remote, key: &str) -> Status {
    let operation = OperationId::new("host-tests", b"default", "charges", key.as_bytes());
    let action = Action::Read;
    match store.call(&[Op { operation, action }]).1.pop() {
        Some(Reply::Absent) => Status::Absent,
        Some(Reply::Current(record)) => record.state.status(),
        other => panic!("{other:?}"),
    }
}

/// Every way to spoil one call or its answer, at each step, once and as often as it is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spoilt_calls_and_answers_are_no_answers() {
    let redis = Server::start(&[]);
    let front = Front::start(&redis, Way::Webdis);
    let gate = Gate::start(front.addr()).await;
    let upstream = Upstream::start().await;
    let one = start(&upstream, &front, gate.addr(), json!({}), json!({})).await;
    let two = start(&upstream, &front, front.addr(), json!({}), json!({})).await;
    let mut store = Remote::new(&redis, Way::Resp);
    let deeds = [
        Deed::CutAnswer,
        Deed::LoseCall,
        Deed::LoseAnswer,
        Deed::PageForCall(502),
        Deed::PageForCall(200),
        Deed::PageForAnswer(503),
        Deed::PageForAnswer(200),
    ];
    for deed in deeds {
        // Once: the repeat says what is so.
        for kind in [Kind::Claim, Kind::Settling] {
            let request = charge(&key());
            let trap = gate.trap(kind, 1, deed);
            let first = send(&one, &request).await;
            assert_eq!(first.status, 201, "{kind:?} {deed:?}: {first:?}");
            assert_eq!(trap.count(), 1, "{kind:?} {deed:?}");
            replayed(&first, &send(&two, &request).await);
        }
        let request = charge(&key());
        let first = send(&one, &request).await;
        let trap = gate.trap(Kind::Body, 1, deed);
        replayed(&first, &send(&one, &request).await);
        // An answer may come with the record, without a question of its own.
        let _asked = trap.count();
        drop(trap);

        // Twice at the claim: it is not made, and what there may be of it is taken back.
        let lost = key();
        let request = charge(&lost);
        let before = upstream.effects();
        let trap = gate.trap(Kind::Claim, 2, deed);
        refused(&send(&one, &request).await, 503, "store_unavailable");
        assert_eq!((trap.count(), upstream.effects()), (2, before), "{deed:?}");
        until("the claim to be taken back", || async {
            let stats = one.stats().await;
            (stats.idempo("idempo_write_backlog", &[]) == 0).then_some(())
        })
        .await;
        for _ in 0..1_000 {
            if status(&mut store, &lost) == Status::Absent {
                break;
            }
            sleep(Duration::from_millis(5)).await;
        }
        let retry = send(&two, &request).await;
        assert_eq!(retry.status, 201, "{deed:?}: {retry:?}");

        // Twice at the record: the client has its answer, and the record comes later.
        let request = charge(&key());
        let compensated = one.stats().await.idempo("idempo_compensation_total", &[]);
        let trap = gate.trap(Kind::Settling, 2, deed);
        let first = send(&one, &request).await;
        assert_eq!(first.status, 201, "{deed:?}: {first:?}");
        assert_eq!(trap.count(), 2, "{deed:?}");
        let stats = one.stats().await;
        let now = stats.idempo("idempo_compensation_total", &[]);
        assert_eq!(now, compensated + 1, "{deed:?}");
        let again = until("the record", || async {
            let again = send(&two, &request).await;
            (code(&again) != "in_flight").then_some(again)
        })
        .await;
        assert!(is_replay(&again), "{deed:?}: {again:?}");
        assert_eq!(again.body, first.body);
        until("the backlog to be worked off", || async {
            let stats = one.stats().await;
            (stats.idempo("idempo_write_backlog", &[]) == 0).then_some(())
        })
        .await;
    }
    sound(&[&one, &two], &upstream);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_store_makes_everything_slower_and_nothing_wrong() {
    const SLOW: Duration = Duration::from_millis(300);
    let redis = Server::start(&[]);
    let front = Front::start(&redis, Way::Webdis);
    let gate = Gate::start(front.addr()).await;
    let upstream = Upstream::start().await;
    let envoy = start(
        &upstream,
        &front,
        gate.addr(),
        json!({"timeout": "2s"}),
        json!({}),
    )
    .await;
    gate.delay(SLOW);
    let keys: Vec<String> = (0..30).map(|_| key()).collect();
    for round in 0..2 {
        let mut all = JoinSet::new();
        for key in &keys {
            let (addr, request) = (envoy.addr(), charge(key));
            all.spawn(async move {
                let begin = Instant::now();
                (
                    Raw::exchange(addr, &request).await.unwrap(),
                    begin.elapsed(),
                )
            });
        }
        while let Some(done) = all.join_next().await {
            let (answer, took) = done.unwrap();
            assert_eq!(answer.status, 201, "{answer:?}");
            assert_eq!(is_replay(&answer), round == 1, "{answer:?}");
            assert!(took >= SLOW, "{took:?}");
        }
    }
    assert_eq!(upstream.effects(), 30);
    let stats = envoy.stats().await;
    assert_eq!(stats.idempo("idempo_store_error_total", &[]), 0);
    assert_eq!(stats.idempo("idempo_compensation_total", &[]), 0);
    sound(&[&envoy], &upstream);
}

/// What a client gets that repeats itself until it knows.
#[derive(Debug, Default)]
struct Story {
    key: String,
    /// Status and code of every answer.
    answers: Vec<String>,
    ok: bool,
}

/// Sends one operation to one Envoy and the other until it has an answer of the upstream's.
async fn insist(addrs: [SocketAddr; 2], end: Instant) -> Story {
    let mut story = Story {
        key: key(),
        ..Story::default()
    };
    let request = charge(&story.key).header("x-demo-delay-ms", "10");
    for addr in addrs.iter().cycle() {
        let answer = Raw::exchange(*addr, &request).await;
        match &answer {
            Ok(answer) => {
                let said = format!("{} {}", answer.status, code(answer));
                story.answers.push(said);
                if answer.status == 201 {
                    story.ok = true;
                    return story;
                }
            }
            Err(why) => story.answers.push(why.clone()),
        }
        if Instant::now() > end {
            return story;
        }
        sleep(Duration::from_millis(100)).await;
    }
    story
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_stands_still_for_five_seconds_under_load() {
    let redis = Server::start(&[]);
    let front = Front::start(&redis, Way::Webdis);
    let upstream = Upstream::start().await;
    // The lease ends while the store stands still.
    let route = json!({"lease": "2s"});
    let one = start(&upstream, &front, front.addr(), json!({}), route.clone()).await;
    let two = start(&upstream, &front, front.addr(), json!({}), route).await;
    let addrs = [one.addr(), two.addr()];
    let over = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for n in 0..12 {
        let over = Arc::clone(&over);
        let addrs = if n % 2 == 0 {
            addrs
        } else {
            [addrs[1], addrs[0]]
        };
        clients.spawn(async move {
            let mut stories = Vec::new();
            while !over.load(Ordering::Acquire) {
                let end = Instant::now() + Duration::from_secs(40);
                stories.push(insist(addrs, end).await);
            }
            stories
        });
    }
    upstream.wait_for_requests(100).await;
    redis.pause();
    // It is the length of the standstill that matters.
    sleep(Duration::from_secs(5)).await;
    let meanwhile = upstream.effects();
    redis.resume();
    until("new effects", || async {
        (upstream.effects() > meanwhile + 50).then_some(())
    })
    .await;
    over.store(true, Ordering::Release);
    let mut stories = Vec::new();
    while let Some(own) = clients.join_next().await {
        stories.extend(own.unwrap());
    }
    let effects = upstream.effects_by().by_key;
    let refused = stories.iter().filter(|s| s.answers.len() > 1).count();
    eprintln!(
        "{} operations, {refused} were not answered at once",
        stories.len()
    );
    assert!(refused > 0, "the standstill was not felt");
    for story in &stories {
        assert!(story.ok, "{story:#?}\n{}\n{}", one.log(), two.log());
        assert_eq!(effects.get(&story.key), Some(&1), "{story:#?}");
    }
    for envoy in [&one, &two] {
        gauge(envoy, "idempo_store_ready", 1).await;
        gauge(envoy, "idempo_write_backlog", 0).await;
        gauge(envoy, "idempo_unknown_open", 0).await;
        assert_eq!(
            envoy.stats().await.idempo("idempo_store_forgot_total", &[]),
            0
        );
    }
    sound(&[&one, &two], &upstream);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_comes_back_with_its_disk_is_taken_up_again() {
    let mut redis = Server::durable();
    let front = Front::start(&redis, Way::Webdis);
    let upstream = Upstream::start().await;
    let (hold, route) = (json!({"hold": "6s"}), json!({"lease": "5s"}));
    let envoy = start(&upstream, &front, front.addr(), hold, route).await;
    swept(&envoy).await;
    let before = charge(&key());
    let first = send(&envoy, &before).await;
    assert_eq!(first.status, 201, "{first:?}");
    let running = charge(&key());
    let sent = tokio::spawn({
        let (addr, request) = (envoy.addr(), running.clone().header("x-demo-gate", "open"));
        async move { Raw::exchange(addr, &request).await }
    });
    upstream.wait_for_requests(2).await;
    redis.kill();
    let meanwhile = charge(&key());
    let answer = send(&envoy, &meanwhile).await;
    refused(&answer, 503, "store_unavailable");
    assert!(answer.one("retry-after").is_some(), "{answer:?}");
    upstream.open("open");
    // The client does not wait for a store that is gone.
    let ran = sent.await.unwrap().unwrap();
    assert_eq!(ran.status, 201, "{ran:?}");
    gauge(&envoy, "idempo_store_ready", 0).await;
    redis.revive();
    gauge(&envoy, "idempo_store_ready", 1).await;
    replayed(&first, &once_back(&envoy, &before).await);
    // It might have lost something: that is found out first.
    let early = send(&envoy, &charge(&key())).await;
    refused(&early, 503, "store_recovering");
    gauge(&envoy, "idempo_write_backlog", 0).await;
    let again = send(&envoy, &running).await;
    assert!(is_replay(&again), "{again:?}");
    assert_eq!(again.body, ran.body);
    gauge(&envoy, "idempo_store_recovering", 0).await;
    let retried = send(&envoy, &meanwhile).await;
    assert_eq!(retried.status, 201, "{retried:?}");
    assert_eq!(upstream.effects(), 3);
    let stats = envoy.stats().await;
    assert_eq!(stats.idempo("idempo_store_forgot_total", &[]), 0);
    sound(&[&envoy], &upstream);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_comes_back_empty_is_told_what_is_known() {
    let mut redis = Server::durable();
    let front = Front::start(&redis, Way::Webdis);
    let upstream = Upstream::start().await;
    let hold = json!({"hold": "6s"});
    let route = json!({"lease": "5s"});
    let one = start(&upstream, &front, front.addr(), hold.clone(), route.clone()).await;
    let two = start(&upstream, &front, front.addr(), hold, route).await;
    // Enough that each shard has some.
    let mut done = Vec::new();
    for _ in 0..40 {
        let request = charge(&key());
        let first = send(&one, &request).await;
        assert_eq!(first.status, 201, "{first:?}");
        done.push((request, first));
    }
    let running = key();
    let sent = tokio::spawn({
        let request = charge(&running).header("x-demo-gate", "open");
        let addr = one.addr();
        async move { Raw::exchange(addr, &request).await }
    });
    upstream.wait_for_requests(41).await;
    for envoy in [&one, &two] {
        swept(envoy).await;
    }
    redis.kill();
    redis.lose_disk();
    redis.revive();

    for envoy in [&one, &two] {
        gauge(envoy, "idempo_store_recovering", 1).await;
        let forgot = envoy.stats().await.idempo("idempo_store_forgot_total", &[]);
        assert!(forgot >= 1);
        assert!(
            envoy.log().contains("has lost writes of shard"),
            "{}",
            envoy.log()
        );
    }
    let fresh = charge(&key());
    let answer = send(&one, &fresh).await;
    refused(&answer, 503, "store_recovering");
    assert!(answer.one("retry-after").is_some(), "{answer:?}");
    // What runs says so again.
    let mut store = Remote::new(&redis, Way::Resp);
    let deadline = Instant::now() + Duration::from_secs(10);
    while status(&mut store, &running) != Status::Pending {
        assert!(Instant::now() < deadline, "{}", one.log());
        sleep(Duration::from_millis(5)).await;
    }
    let duplicate = send(&two, &charge(&running)).await;
    refused(&duplicate, 409, "in_flight");
    upstream.open("open");
    let ran = sent.await.unwrap().unwrap();
    assert_eq!(ran.status, 201, "{ran:?}");
    let again = send(&two, &charge(&running)).await;
    assert!(is_replay(&again), "{again:?}");

    for envoy in [&one, &two] {
        gauge(envoy, "idempo_store_recovering", 0).await;
        gauge(envoy, "idempo_write_backlog", 0).await;
    }
    // What was acknowledged just before is written again, by the one that wrote it.
    for (request, first) in &done {
        for envoy in [&one, &two] {
            replayed(first, &send(envoy, request).await);
        }
    }
    let late = send(&one, &fresh).await;
    assert_eq!(late.status, 201, "{late:?}");
    assert_eq!(upstream.effects(), 42);
    sound(&[&one, &two], &upstream);
}

/// Who has nothing to do must still say what it knows: another proxy may be asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_idle_worker_knows_is_written_again_before_anything_is_claimed() {
    let mut redis = Server::durable();
    let front = Front::start(&redis, Way::Webdis);
    let upstream = Upstream::start().await;
    let hold = json!({"hold": "2s"});
    let route = json!({"lease": "1s"});
    let one = start(&upstream, &front, front.addr(), hold.clone(), route.clone()).await;
    let two = start(&upstream, &front, front.addr(), hold, route).await;
    for envoy in [&one, &two] {
        swept(envoy).await;
    }
    // Enough that each shard has some.
    let mut done = Vec::new();
    for _ in 0..64 {
        let request = charge(&key());
        let first = send(&one, &request).await;
        assert_eq!(first.status, 201, "{first:?}");
        done.push((request, first));
    }
    redis.kill();
    redis.lose_disk();
    redis.revive();
    for envoy in [&one, &two] {
        gauge(envoy, "idempo_store_recovering", 1).await;
    }
    for envoy in [&one, &two] {
        gauge(envoy, "idempo_store_recovering", 0).await;
        gauge(envoy, "idempo_write_backlog", 0).await;
    }
    for (request, first) in &done {
        // Whoever has not heard of it yet may take its time to, and no more.
        let again = until("the end of the recovery", || async {
            let again = send(&two, request).await;
            let waits = ["store_recovering", "in_flight"].contains(&code(&again).as_str());
            (!waits).then_some(again)
        })
        .await;
        assert!(is_replay(&again), "{again:?}\n{}\n{}", one.log(), two.log());
        assert_eq!(again.body, first.body);
    }
    assert_eq!(upstream.effects(), 64);
    sound(&[&one, &two], &upstream);
}

/// A retry may come to a proxy that has not heard of the loss yet. Its claim is taken back; until then
/// it must not keep out what another proxy writes again, nor what it writes for the first time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_again_is_not_lost_to_a_claim_that_is_taken_back() {
    let mut redis = Server::durable();
    let front = Front::start(&redis, Way::Webdis);
    let gates = [
        Gate::start(front.addr()).await,
        Gate::start(front.addr()).await,
    ];
    let upstream = Upstream::start().await;
    // Nothing is renewed for a while.
    let route = json!({"lease": "9s"});
    let store = json!({"hold": "9s", "timeout": "10s"});
    let one = start(
        &upstream,
        &front,
        gates[0].addr(),
        store.clone(),
        route.clone(),
    )
    .await;
    let two = start(&upstream, &front, gates[1].addr(), store, route).await;
    for envoy in [&one, &two] {
        swept(envoy).await;
    }
    let (done, running) = (charge(&key()), charge(&key()));
    let first = send(&one, &done).await;
    assert_eq!(first.status, 201, "{first:?}");
    let sent = tokio::spawn({
        let (addr, request) = (one.addr(), running.clone().header("x-demo-gate", "open"));
        async move { Raw::exchange(addr, &request).await }
    });
    upstream.wait_for_requests(2).await;
    // What has been seen of these shards can be missed.
    replayed(&first, &send(&two, &done).await);
    refused(&send(&two, &running).await, 409, "in_flight");
    // What the proxies ask of their own accord does not come before the retries.
    let sweeps = [
        gates[0].trap(Kind::Sweep, u64::MAX, Deed::HoldCall),
        gates[1].trap(Kind::Sweep, u64::MAX, Deed::HoldCall),
    ];
    redis.kill();
    redis.lose_disk();
    redis.revive();
    // Webdis finds out by failing that its connections are gone.
    let mut http = Http::connect(front.addr()).expect("Webdis listens");
    let mut pongs = 0;
    while pongs < 8 {
        let (status, _) = http.send("POST", "/", &[], b"PING");
        pongs = if status == 200 { pongs + 1 } else { 0 };
    }
    let cancels = gates[1].trap(Kind::Cancel, 2, Deed::HoldCall);
    let claims = gates[1].trap(Kind::Claim, 2, Deed::HoldAnswer);
    let retries: Vec<_> = [&done, &running]
        .map(|request| {
            let (addr, request) = (two.addr(), request.clone());
            tokio::spawn(async move { Raw::exchange(addr, &request).await })
        })
        .into();
    claims.reached(2).await;
    claims.let_go();
    for retry in retries {
        refused(&retry.await.unwrap().unwrap(), 503, "store_recovering");
    }
    cancels.reached(1).await;
    // Now the other one hears of it, and ends what it runs.
    sweeps[0].let_go();
    until("every shard's loss to be seen", || async {
        let stats = one.stats().await;
        (stats.idempo("idempo_store_forgot_total", &[]) >= 16).then_some(())
    })
    .await;
    upstream.open("open");
    let ran = sent.await.unwrap().unwrap();
    assert_eq!(ran.status, 201, "{ran:?}");
    assert_eq!(one.stats().await.idempo("idempo_late_write_total", &[]), 1);
    cancels.let_go();
    sweeps[1].let_go();
    for (request, first) in [(&done, &first), (&running, &ran)] {
        let again = until("the record", || async {
            let again = send(&two, request).await;
            let waits = ["store_recovering", "in_flight"].contains(&code(&again).as_str());
            (!waits).then_some(again)
        })
        .await;
        assert!(is_replay(&again), "{again:?}\n{}\n{}", one.log(), two.log());
        assert_eq!(again.body, first.body);
    }
    assert_eq!(upstream.effects(), 2);
    sound(&[&one, &two], &upstream);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_is_recorded_by_a_store_that_is_full() {
    let redis = Server::start(&["--maxmemory-policy", "noeviction"]);
    let front = Front::start(&redis, Way::Webdis);
    let upstream = Upstream::start().await;
    let envoy = start(&upstream, &front, front.addr(), json!({}), json!({})).await;
    let keys: Vec<String> = (0..10).map(|_| key()).collect();
    let mut running = JoinSet::new();
    for key in &keys {
        let request = charge(key)
            .header("x-demo-gate", "open")
            .wants_body([b'x'; 20_000]);
        let addr = envoy.addr();
        running.spawn(async move { Raw::exchange(addr, &request).await });
    }
    upstream.wait_for_requests(10).await;
    let limit = |octets: &str| {
        let said = redis
            .admin()
            .command(&["CONFIG", "SET", "maxmemory", octets]);
        assert_eq!(said.text(), "OK");
    };
    limit("1");
    let fresh = charge(&key());
    let answer = send(&envoy, &fresh).await;
    let problem = refused(&answer, 503, "store_full");
    assert_eq!(problem["reason"], "store", "{problem}");
    assert!(answer.one("retry-after").is_some(), "{answer:?}");
    // Of what runs, duplicates are told so as ever.
    refused(&send(&envoy, &charge(&keys[0])).await, 409, "in_flight");
    upstream.open("open");
    while let Some(ran) = running.join_next().await {
        let ran = ran.unwrap().unwrap();
        assert_eq!(ran.status, 201, "{ran:?}");
        assert_eq!(ran.one("idempotency-status"), Some("completed"));
    }
    for key in &keys {
        let again = send(&envoy, &charge(key)).await;
        assert!(is_replay(&again), "{again:?}");
        assert_eq!(again.body.len(), 20_000);
    }
    refused(&send(&envoy, &fresh).await, 503, "store_full");
    let stats = envoy.stats().await;
    assert_eq!(stats.idempo("idempo_compensation_total", &[]), 0);
    limit("0");
    let room = send(&envoy, &fresh).await;
    assert_eq!(room.status, 201, "{room:?}");
    assert_eq!(upstream.effects(), 11);
    sound(&[&envoy], &upstream);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webdis_that_dies_and_comes_back() {
    let redis = Server::start(&[]);
    let mut front = Front::start(&redis, Way::Webdis);
    let upstream = Upstream::start().await;
    let envoy = start(&upstream, &front, front.addr(), json!({}), json!({})).await;
    let before = charge(&key());
    let first = send(&envoy, &before).await;
    assert_eq!(first.status, 201, "{first:?}");
    front.kill();
    let meanwhile: Vec<Request> = (0..5).map(|_| charge(&key())).collect();
    for request in &meanwhile {
        let answer = send(&envoy, request).await;
        refused(&answer, 503, "store_unavailable");
        assert!(answer.one("retry-after").is_some(), "{answer:?}");
    }
    // A replay cannot be known without the store either.
    refused(&send(&envoy, &before).await, 503, "store_unavailable");
    gauge(&envoy, "idempo_store_ready", 0).await;
    assert!(envoy.log().contains("does not answer"), "{}", envoy.log());
    assert_eq!(upstream.effects(), 1);
    front.revive(&redis);
    gauge(&envoy, "idempo_store_ready", 1).await;
    replayed(&first, &once_back(&envoy, &before).await);
    for request in &meanwhile {
        // What was given up is taken back first.
        let answer = until("the claims to be taken back", || async {
            let answer = send(&envoy, request).await;
            (code(&answer) != "in_flight" && answer.status != 503).then_some(answer)
        })
        .await;
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    gauge(&envoy, "idempo_write_backlog", 0).await;
    assert_eq!(upstream.effects(), 6);
    sound(&[&envoy], &upstream);
}
