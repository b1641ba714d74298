//! The crash matrix: an Envoy is killed, its client leaves, or a call to the store is overtaken by
//! events, at each step between the claim and the reply; then the retry comes through another Envoy.
//!
//! What must hold is asserted here. What each row looks like is printed and kept in
//! `docs/crash-matrix.md`; `IDEMPO_REFRESH=1` writes that file anew.

use host_tests::{
    check::until,
    client::{Answer, Raw, Request},
    envoy::{Envoy, SIGNING_SECRET, Stats, config::LOOPBACK, workspace},
    filter::{self, key},
    store::{
        Engine as _,
        front::Front,
        gate::{Deed, Gate, Kind},
        redis::{Remote, Server, Way},
    },
    upstream::Upstream,
};
use idempo_core::{
    ids::OperationId,
    record::View,
    store::{Action, Op, Reply},
};
use serde_json::{Value, json};
use std::{fmt::Write as _, fs, sync::Arc};
use tokio::{
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
};

/// Rows that run at once.
const AT_ONCE: usize = 3;

/// For the retry that comes before its end.
const LEASE: &str = "2s";

/// Nothing here waits for the upstream for so long.
const UPSTREAM_TIMEOUT: &str = "1.9s";

/// How an attempt runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Execution {
    Inline,
    Detached,
}

/// How it has to end, whatever the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// There is no record, and the retry runs.
    Executes,
    /// Nobody can know: in flight to the end of the lease, `outcome_unknown` after it.
    Unknown,
    /// The retry gets the recorded answer.
    Replays,
}

/// Where it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    ClaimNotSent,
    ClaimUnderWay,
    ClaimApplied,
    Forwarded,
    ForwardedActsLater,
    EffectDone,
    AnswerSeen,
    CompletionUnderWay,
    CompletionApplied,
    Replied,
    RepliedUnrecorded,
    ClaimTimesOut,
    CancelOvertakes,
    ClientLeaves,
    ClientLeavesClaimed,
    CompletionLost,
    CompletionUnheard,
}

impl Point {
    const ALL: [Self; 17] = [
        Self::ClaimNotSent,
        Self::ClaimUnderWay,
        Self::ClaimApplied,
        Self::Forwarded,
        Self::ForwardedActsLater,
        Self::EffectDone,
        Self::AnswerSeen,
        Self::CompletionUnderWay,
        Self::CompletionApplied,
        Self::Replied,
        Self::RepliedUnrecorded,
        Self::ClaimTimesOut,
        Self::CancelOvertakes,
        Self::ClientLeaves,
        Self::ClientLeavesClaimed,
        Self::CompletionLost,
        Self::CompletionUnheard,
    ];

    const fn words(self) -> &'static str {
        match self {
            Self::ClaimNotSent => "killed before the claim has left",
            Self::ClaimUnderWay => "killed while the claim is under way; it arrives afterwards",
            Self::ClaimApplied => "killed when the claim is applied, its answer not seen",
            Self::Forwarded => "killed when the upstream has the request; it never acts",
            Self::ForwardedActsLater => {
                "killed when the upstream has the request; it acts afterwards"
            }
            Self::EffectDone => "killed when the effect is done, its answer not sent",
            Self::AnswerSeen => "killed when the answer is seen, its record not sent",
            Self::CompletionUnderWay => "killed while the record is under way; it arrives",
            Self::CompletionApplied => "killed when the record is applied, not acknowledged",
            Self::Replied => "killed after the reply",
            Self::RepliedUnrecorded => {
                "the record cannot be written, the reply is given, then killed"
            }
            Self::ClaimTimesOut => "the claim times out and arrives after its `not_after`",
            Self::CancelOvertakes => "the claim times out, and its cancellation overtakes it",
            Self::ClientLeaves => "the client leaves while the claim is under way",
            Self::ClientLeavesClaimed => {
                "the client leaves when the claim is applied, its answer not seen"
            }
            Self::CompletionLost => "the record is lost on its way, twice",
            Self::CompletionUnheard => "the record is applied, its acknowledgement lost, twice",
        }
    }

    const fn end(self) -> End {
        match self {
            Self::ClaimNotSent
            | Self::ClaimTimesOut
            | Self::CancelOvertakes
            | Self::ClientLeaves
            | Self::ClientLeavesClaimed => End::Executes,
            Self::ClaimUnderWay
            | Self::ClaimApplied
            | Self::Forwarded
            | Self::ForwardedActsLater
            | Self::EffectDone
            | Self::AnswerSeen
            | Self::RepliedUnrecorded => End::Unknown,
            Self::CompletionUnderWay
            | Self::CompletionApplied
            | Self::Replied
            | Self::CompletionLost
            | Self::CompletionUnheard => End::Replays,
        }
    }

    /// How long a store call may take: so long that the row is over before, or so short that it
    /// is what the row is about.
    const fn store_timeout(self) -> &'static str {
        match self {
            Self::ClaimTimesOut => "0.3s",
            _ => "8s",
        }
    }
}

/// Everything of one row.
struct Rig {
    store: Remote,
    upstream: Upstream,
    gate: Gate,
    first: Envoy,
    other: Envoy,
    operation: OperationId,
    request: Request,
    _front: Front,
    _redis: Server,
}

type Sent = JoinHandle<Result<Answer, String>>;

impl Rig {
    async fn start(point: Point, execution: Execution) -> Self {
        let redis = Server::start(&[]);
        let front = Front::start(&redis, Way::Webdis);
        let gate = Gate::start(front.addr()).await;
        let upstream = Upstream::start().await;
        let mut config = filter::with_route(json!({
            "lease": LEASE,
            "upstream": {"timeout": UPSTREAM_TIMEOUT},
        }));
        config["store"] = front.store(&json!({"timeout": point.store_timeout()}));
        // The record itself is asked.
        config["replay_cache"] = json!({"bytes": 0});
        if execution == Execution::Detached {
            config["signing"] = json!({"active": {"env": SIGNING_SECRET}});
            config["loopback_cluster"] = json!(LOOPBACK);
        }
        let envoy = |addr| {
            let mut builder = Envoy::with_filter(&upstream, config.clone()).concurrency(1);
            if execution == Execution::Detached {
                builder = builder.loopback();
            }
            front.reached(builder, addr).start()
        };
        let (first, other) = tokio::join!(envoy(gate.addr()), envoy(front.addr()));
        for envoy in [&first, &other] {
            until("store and loopback to be ready", || async {
                let stats = envoy.stats().await;
                let loopback = execution == Execution::Inline
                    || stats.idempo("idempo_loopback_ready", &[]) == 1;
                (stats.idempo("idempo_store_ready", &[]) == 1 && loopback).then_some(())
            })
            .await;
        }
        let key = key();
        Self {
            store: Remote::new(&redis, Way::Resp),
            operation: OperationId::new("host-tests", b"default", "charges", key.as_bytes()),
            request: Request::post("/v1/charges")
                .key(&key)
                .json(r#"{"amount":1200,"currency":"eur"}"#),
            upstream,
            gate,
            first,
            other,
            _front: front,
            _redis: redis,
        }
    }

    /// The first attempt.
    fn send(&self, instruction: Option<(&str, &str)>) -> Sent {
        let addr = self.first.addr();
        let mut request = self.request.clone();
        if let Some((name, value)) = instruction {
            request = request.header(name, value);
        }
        tokio::spawn(async move { Raw::exchange(addr, &request).await })
    }

    async fn retry(&self) -> Answer {
        let answer = Raw::exchange(self.other.addr(), &self.request).await;
        answer.expect("the other Envoy answers")
    }

    /// The record's state by the store's clock, without the filter.
    fn state(&mut self) -> &'static str {
        let (now, mut replies) = self.store.call(&[Op {
            operation: self.operation,
            action: Action::Read,
        }]);
        match replies.pop() {
            Some(Reply::Absent) => "absent",
            Some(Reply::Current(record)) => match record.view(now) {
                View::Gone => "absent",
                View::Pending { .. } => "pending",
                View::Accepted(_) => "accepted",
                View::Completed(_) => "completed",
                View::Closed { .. } => "closed",
                View::Unknown { .. } => "unknown",
                View::Expired { .. } => "expired",
            },
            other => panic!("{other:?}"),
        }
    }

    /// Waits for a state that time or somebody's clearing up brings.
    async fn comes_to_be(&mut self, state: &str) {
        for _ in 0..3_000 {
            if self.state() == state {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!(
            "waited 15 s in vain for {state}: {}\n{}",
            self.state(),
            self.first.log()
        );
    }

    fn store_now(&mut self) -> u64 {
        self.store.call(&[]).0
    }

    /// Plays the row up to the retry; gives what the first client got.
    async fn play(&mut self, point: Point) -> String {
        match point {
            Point::ClaimNotSent | Point::ClaimUnderWay => {
                let claim = self.gate.trap(Kind::Claim, 1, Deed::HoldCall);
                let sent = self.send(None);
                claim.reached(1).await;
                self.first.kill().await;
                if point == Point::ClaimNotSent {
                    claim.forget();
                } else {
                    claim.let_go();
                    claim.passed(1).await;
                }
                reply(sent.await.unwrap())
            }
            Point::ClaimApplied => {
                let claim = self.gate.trap(Kind::Claim, 1, Deed::HoldAnswer);
                let sent = self.send(None);
                claim.reached(1).await;
                self.first.kill().await;
                reply(sent.await.unwrap())
            }
            Point::Forwarded | Point::ForwardedActsLater => {
                let sent = self.send(Some(("x-demo-act-gate", "act")));
                self.upstream
                    .wait_for_upload(1, |upload| {
                        upload.progress == host_tests::upstream::Progress::Whole
                    })
                    .await;
                self.first.kill().await;
                if point == Point::ForwardedActsLater {
                    self.upstream.open("act");
                    self.upstream.wait_for_requests(1).await;
                }
                reply(sent.await.unwrap())
            }
            Point::EffectDone => {
                let sent = self.send(Some(("x-demo-gate", "never")));
                self.upstream.wait_for_requests(1).await;
                self.first.kill().await;
                reply(sent.await.unwrap())
            }
            Point::AnswerSeen | Point::CompletionUnderWay => {
                let completion = self.gate.trap(Kind::Settling, 1, Deed::HoldCall);
                let sent = self.send(None);
                completion.reached(1).await;
                self.first.kill().await;
                if point == Point::AnswerSeen {
                    completion.forget();
                } else {
                    completion.let_go();
                    completion.passed(1).await;
                }
                reply(sent.await.unwrap())
            }
            Point::CompletionApplied => {
                let completion = self.gate.trap(Kind::Settling, 1, Deed::HoldAnswer);
                let sent = self.send(None);
                completion.reached(1).await;
                self.first.kill().await;
                reply(sent.await.unwrap())
            }
            Point::Replied => {
                let got = reply(self.send(None).await.unwrap());
                self.first.kill().await;
                got
            }
            Point::RepliedUnrecorded => {
                let _lost = self.gate.trap(Kind::Settling, u64::MAX, Deed::LoseCall);
                let got = reply(self.send(None).await.unwrap());
                self.first.kill().await;
                got
            }
            Point::ClaimTimesOut => {
                let claim = self.gate.trap(Kind::Claim, 2, Deed::HoldCall);
                let got = reply(self.send(None).await.unwrap());
                claim.reached(2).await;
                // The call's time-out, and what the store's clock may be ahead.
                let over = self.store_now() + 300 + 250;
                while self.store_now() <= over {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
                claim.let_go();
                claim.passed(2).await;
                got
            }
            Point::CancelOvertakes => {
                let cancel = self.gate.trap(Kind::Cancel, 1, Deed::HoldAnswer);
                cancel.let_go();
                let claim = self.gate.trap(Kind::Claim, 2, Deed::Detain);
                let got = reply(self.send(None).await.unwrap());
                cancel.reached(1).await;
                claim.let_go();
                claim.passed(2).await;
                got
            }
            Point::ClientLeaves | Point::ClientLeavesClaimed => {
                let deed = if point == Point::ClientLeaves {
                    Deed::HoldCall
                } else {
                    Deed::HoldAnswer
                };
                let claim = self.gate.trap(Kind::Claim, 1, deed);
                let mut client = Raw::connect(self.first.addr()).await;
                client.write(&Raw::encode(&self.request)).await;
                claim.reached(1).await;
                client.reset();
                self.first.access_log_lines(1).await;
                let cancel = self.gate.trap(Kind::Cancel, 1, Deed::HoldAnswer);
                cancel.let_go();
                claim.let_go();
                cancel.reached(1).await;
                "(has left)".to_owned()
            }
            Point::CompletionLost | Point::CompletionUnheard => {
                let deed = if point == Point::CompletionLost {
                    Deed::LoseCall
                } else {
                    Deed::LoseAnswer
                };
                let completion = self.gate.trap(Kind::Settling, 2, deed);
                let got = reply(self.send(None).await.unwrap());
                completion.reached(2).await;
                self.comes_to_be("completed").await;
                until("the backlog to be worked off", || async {
                    let stats = self.first.stats().await;
                    (stats.idempo("idempo_write_backlog", &[]) == 0).then_some(())
                })
                .await;
                got
            }
        }
    }

    fn effects(&self) -> u64 {
        let effects = self.upstream.effects_by();
        assert_eq!(effects.total, self.upstream.effects());
        effects.by_operation.values().copied().max().unwrap_or(0)
    }

    /// What counters of the Envoys that live, their logs, and their access logs say of it.
    async fn seen(&self, killed: bool) -> String {
        let mut out = Vec::new();
        let mut envoys = vec![("", &self.other)];
        if !killed {
            envoys.insert(0, ("first: ", &self.first));
        }
        for (whose, envoy) in envoys {
            let outcomes = outcomes(envoy, &self.operation).await;
            if !outcomes.is_empty() {
                out.push(format!("{whose}outcomes `{}`", outcomes.join("`, `")));
            }
            let stats = envoy.stats().await;
            out.extend(counted(&stats).into_iter().map(|c| format!("{whose}`{c}`")));
            out.extend(
                logged(&envoy.log(), &self.operation)
                    .into_iter()
                    .map(|line| format!("{whose}log “{line}”")),
            );
        }
        out.join("; ")
    }
}

/// `idempo.outcome` of the operation's attempts, by the access log.
async fn outcomes(envoy: &Envoy, operation: &OperationId) -> Vec<String> {
    let streams = envoy.stats().await.get("http.data.downstream_rq_completed");
    let lines = envoy
        .access_log_lines(usize::try_from(streams).expect("few"))
        .await;
    let id = operation.hex();
    let of_it = lines.iter().filter(|line| line["operation"] == id.as_str());
    of_it
        .filter_map(|line| line["outcome"].as_str().map(str::to_owned))
        .collect()
}

/// Counters that say what became of operations.
fn counted(stats: &Stats) -> Vec<String> {
    const OF_INTEREST: [&str; 7] = [
        "idempo_executed_total",
        "idempo_replay_total",
        "idempo_unknown_total",
        "idempo_unknown_open",
        "idempo_late_write_total",
        "idempo_compensation_total",
        "idempo_store_error_total",
    ];
    let mut out = Vec::new();
    for (name, value) in &stats.0 {
        let Some(name) = name.strip_prefix("wasmcustom.") else {
            continue;
        };
        let mut parts = name.split('.');
        let metric = parts.next().unwrap_or_default();
        if *value == 0 || !OF_INTEREST.contains(&metric) {
            continue;
        }
        let parts: Vec<_> = parts.collect();
        let labels: Vec<_> = parts
            .chunks_exact(2)
            .filter(|pair| !["route", "tenant"].contains(&pair[0]))
            .map(|pair| pair.join("="))
            .collect();
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(","))
        };
        out.push(format!("{metric}{labels} {value}"));
    }
    out
}

/// Lines of the filter about that operation.
fn logged(log: &str, operation: &OperationId) -> Vec<String> {
    let id = operation.hex();
    log.lines()
        .filter(|line| line.contains("wasm log") && line.contains(&id))
        .filter(|line| !line.contains("audit:"))
        .map(|line| {
            let from = line.find("wasm log").unwrap_or(0);
            let line = line.get(from..).unwrap_or_default();
            let line = line.split_once(": ").map_or(line, |(_, rest)| rest);
            line.replace(&id, "…")
        })
        .collect()
}

fn reply(got: Result<Answer, String>) -> String {
    match got {
        Err(_) => "(connection broken)".to_owned(),
        Ok(answer) => said(&answer),
    }
}

fn said(answer: &Answer) -> String {
    if answer.one("idempotent-replayed") == Some("true") {
        return format!("{} replayed", answer.status);
    }
    let problem = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
    match problem["code"].as_str() {
        Some(code) => format!("{} `{code}`", answer.status),
        None => answer.status.to_string(),
    }
}

/// Plays a row; gives its line of the table.
async fn row(point: Point, execution: Execution) -> String {
    let mut rig = Rig::start(point, execution).await;
    let first = rig.play(point).await;
    let killed = rig.first.try_pid().is_none();
    let state = rig.state();
    let before = rig.effects();
    let retry = said(&rig.retry().await);
    let mut later = (String::from("–"), String::from("–"));
    match point.end() {
        End::Executes => {
            assert_eq!((state, before), ("absent", 0));
            assert_eq!(retry, "201");
        }
        End::Replays => {
            assert_eq!((state, before), ("completed", 1));
            assert_eq!(retry, "201 replayed");
        }
        End::Unknown => {
            assert_eq!(state, "pending");
            assert_eq!(retry, "409 `in_flight`");
            rig.comes_to_be("unknown").await;
            later = ("unknown".into(), said(&rig.retry().await));
            assert_eq!(later.1, "409 `outcome_unknown`");
            until("the sweep's count", || async {
                let stats = rig.other.stats().await;
                (stats.idempo("idempo_unknown_open", &[]) == 1).then_some(())
            })
            .await;
            let over = [("cause", "lease_over")];
            let stats = rig.other.stats().await;
            assert_eq!(stats.idempo("idempo_unknown_total", &over), 1);
        }
    }
    // Whoever asks once more learns the same, and nothing runs.
    let effects = rig.effects();
    let again = said(&rig.retry().await);
    match point.end() {
        End::Unknown => assert_eq!(again, later.1),
        _ => assert_eq!(again, "201 replayed"),
    }
    assert_eq!(rig.effects(), effects);
    assert!(effects <= 1, "{:#?}", rig.upstream.requests());
    let mut traps = rig.other.vm_traps();
    traps += rig.first.vm_traps();
    assert_eq!(traps, 0);
    let seen = rig.seen(killed).await;
    format!(
        "| {} | {first} | {before} | {state} | {retry} | {} | {} | {effects} | {seen} |",
        point.words(),
        later.0,
        later.1,
    )
}

fn document(tables: &[(Execution, Vec<String>)]) -> String {
    let mut out = String::from(include_str!("redis_crash/preface.md"));
    for (execution, rows) in tables {
        let _ = write!(
            out,
            "\n## {execution:?}\n\n\
             | what happens | the client gets | effects | state | retry through another Envoy | state after the lease | retry then | effects in the end | what the operator sees |\n\
             |---|---|---|---|---|---|---|---|---|\n"
        );
        for row in rows {
            out += row;
            out.push('\n');
        }
    }
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_anywhere_leaves_no_second_effect() {
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let only = std::env::var("IDEMPO_ROW").ok();
    let mut all = JoinSet::new();
    for execution in [Execution::Detached, Execution::Inline] {
        for point in Point::ALL {
            if only
                .as_ref()
                .is_some_and(|only| *only != format!("{point:?}"))
            {
                continue;
            }
            let room = Arc::clone(&room);
            let played = tokio::spawn(async move {
                let _one = room.acquire_owned().await.expect("open");
                row(point, execution).await
            });
            all.spawn(async move { (execution, point, played.await) });
        }
    }
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    while let Some(played) = all.join_next().await {
        let (execution, point, played) = played.unwrap();
        match played {
            Ok(line) => {
                eprintln!("{execution:?} {line}");
                rows.push((execution, point as usize, line));
            }
            Err(_) => failed.push(format!("{execution:?} {point:?}")),
        }
    }
    assert!(failed.is_empty(), "rows that failed: {failed:#?}");
    if only.is_some() {
        return;
    }
    rows.sort_by_key(|(_, point, _)| *point);
    let tables = [Execution::Detached, Execution::Inline].map(|execution| {
        let own = rows.iter().filter(|(e, ..)| *e == execution);
        (execution, own.map(|(.., line)| line.clone()).collect())
    });
    let found = document(&tables);
    let file = workspace().join("docs/crash-matrix.md");
    if std::env::var_os("IDEMPO_REFRESH").is_some() {
        fs::write(&file, &found).expect("the document can be written");
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == found,
        "docs/crash-matrix.md is stale; refresh it with\n  IDEMPO_REFRESH=1 cargo nextest run \
         -p host-tests --test redis_crash\n{found}"
    );
}
