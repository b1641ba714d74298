//! Many short-lived operations through a small table in real Envoy.
//!
//! Two workers, keys that are used once, and duplicates of some of them, on any connection and so on
//! either worker, while the operation runs or soon afterwards. The upstream counts effects per key:
//! more than one within the window is a failure of this program, not a figure in its report.

use crate::{
    chart,
    load::{Answer, BODY, Connection, Key, Template, rng},
    machine::{self, Machine},
    rig,
};
use host_tests::{envoy::Envoy, upstream::Upstream};
use serde_json::json;
use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    net::Ipv4Addr,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// How much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) operations: u64,
    pub(crate) connections: usize,
    /// Duplicates per hundred operations.
    pub(crate) duplicates: u8,
    /// Stops early after that long, and says so.
    pub(crate) at_most: Duration,
}

const MIB: u64 = 1 << 20;
const RECORDS: u64 = 24 * MIB;
const BODIES: u64 = 32 * MIB;
const TOMBSTONES: u64 = 64 << 10;

/// How long an answer is replayed.
const WINDOW: Duration = Duration::from_secs(2);

/// No duplicate is sent for an operation older than this, so that it arrives within the window.
const OLDEST: Duration = Duration::from_millis(1_500);

const SAMPLES: u64 = 200;

/// An operation that may get a duplicate.
#[derive(Clone, Debug)]
struct Recent {
    key: Key,
    sent: Instant,
    /// The answer, unless it is still awaited.
    body: Option<Vec<u8>>,
}

/// What the clients saw.
#[derive(Debug, Default)]
struct Seen {
    recent: VecDeque<Recent>,
    samples: Vec<(u64, u64)>,
    executed: u64,
    refused: u64,
    /// First attempts that a duplicate had overtaken.
    overtaken: u64,
    duplicates: u64,
    replayed: u64,
    /// Refusals of duplicates, by status and code.
    others: BTreeMap<String, u64>,
    /// Keys whose duplicate was answered so late that it may have run again.
    late: HashSet<Key>,
}

struct Shared {
    effort: Effort,
    pid: u32,
    next: AtomicU64,
    start: Instant,
    seen: Mutex<Seen>,
}

impl Shared {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the next operation.
    fn next(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let ends = number >= self.effort.operations || self.start.elapsed() >= self.effort.at_most;
        if ends {
            return None;
        }
        if number.is_multiple_of((self.effort.operations / SAMPLES).max(1)) {
            self.seen().samples.push((number, machine::rss(self.pid)));
        }
        Some(number)
    }
}

/// One connection's part.
async fn drive(
    shared: Arc<Shared>,
    mut connection: Connection,
    mut template: Template,
) -> Result<(), String> {
    let mut rng = rng();
    while shared.next().is_some() {
        let key = Key::random(&mut rng);
        let sent = Instant::now();
        // Some may be duplicated while they run.
        let races = rng.u8(..100) < 2;
        if races {
            remember(&shared, key, sent, None);
        }
        let answer = connection.exchange(template.with_key(&key)).await?;
        let executed = first(&shared, &answer, races)?;
        if executed && !races && rng.u8(..4) == 0 {
            remember(&shared, key, sent, Some(answer.body.to_vec()));
        }
        if rng.u8(..100) < shared.effort.duplicates {
            duplicate(&shared, &mut connection, &mut template, &mut rng).await?;
        }
    }
    Ok(())
}

/// Takes note of the answer to a first attempt; whether it was executed.
fn first(shared: &Shared, answer: &Answer<'_>, races: bool) -> Result<bool, String> {
    let mut seen = shared.seen();
    match (answer.status, answer.replayed) {
        (201, false) => {
            seen.executed += 1;
            return Ok(true);
        }
        (503, _) if memchr::memmem::find(answer.body, b"store_full").is_some() => {
            seen.refused += 1;
        }
        (201, true) | (409, _) if races => seen.overtaken += 1,
        (status, replayed) => {
            return Err(format!(
                "a first attempt got {status}, replayed {replayed}: {}",
                answer.body.escape_ascii()
            ));
        }
    }
    Ok(false)
}

fn remember(shared: &Shared, key: Key, sent: Instant, body: Option<Vec<u8>>) {
    let mut seen = shared.seen();
    while seen
        .recent
        .front()
        .is_some_and(|r| r.sent.elapsed() > OLDEST)
    {
        seen.recent.pop_front();
    }
    seen.recent.push_back(Recent { key, sent, body });
}

/// Sends an operation of some other connection again.
async fn duplicate(
    shared: &Shared,
    connection: &mut Connection,
    template: &mut Template,
    rng: &mut fastrand::Rng,
) -> Result<(), String> {
    let chosen = {
        let seen = shared.seen();
        // Half of them right behind the first, the others at any age.
        let count = seen.recent.len();
        let index = if rng.bool() {
            count.checked_sub(1)
        } else {
            rng.usize(..count.max(1)).into()
        };
        index.and_then(|i| seen.recent.get(i).cloned())
    };
    let Some(earlier) = chosen.filter(|r| r.sent.elapsed() < OLDEST) else {
        return Ok(());
    };
    let answer = connection.exchange(template.with_key(&earlier.key)).await?;
    let age = earlier.sent.elapsed();
    let mut seen = shared.seen();
    seen.duplicates += 1;
    match (answer.status, answer.replayed) {
        (201, true) => {
            seen.replayed += 1;
            if earlier.body.is_some_and(|body| body != answer.body) {
                return Err("a replay is not the answer that was given first".into());
            }
        }
        (201, false) => {
            // The upstream's count per key says whether that was once too often.
            seen.executed += 1;
            if age >= WINDOW {
                seen.late.insert(earlier.key);
            }
        }
        (status, _) => {
            let refusal = format!("{status} `{}`", code(answer.body));
            *seen.others.entry(refusal).or_default() += 1;
        }
    }
    Ok(())
}

/// The `code` of a problem document.
fn code(body: &[u8]) -> String {
    serde_json::from_slice(body)
        .ok()
        .and_then(|problem: serde_json::Value| Some(problem.get("code")?.as_str()?.to_owned()))
        .unwrap_or_else(|| "none".into())
}

fn filter() -> serde_json::Value {
    json!({
        "namespace": "churn",
        "store": {"shared_data": {
            "records": format!("{}MiB", RECORDS / MIB),
            "bodies": format!("{}MiB", BODIES / MIB),
            "tombstones": format!("{}KiB", TOMBSTONES >> 10),
        }},
        "routes": [{
            "id": "charges",
            "match": {"methods": ["POST"], "path": {"prefix": "/v1"}},
            "lease": "1s",
            "accepted_deadline": "1s",
            "replay": {"ttl": format!("{}s", WINDOW.as_secs()), "tombstone_ttl": "0s"},
        }],
    })
}

/// Runs it, checks it, and writes report and picture.
pub(crate) async fn run(effort: Effort, directory: &Path) -> Result<(), String> {
    // It has to keep one request to count effects per key.
    let upstream = Upstream::bind((Ipv4Addr::LOCALHOST, 0).into(), 1)
        .await
        .map_err(|e| format!("upstream: {e}"))?;
    let envoy = Envoy::with_filter(&upstream, filter())
        .concurrency(2)
        .log_level("warning")
        .options(|o| {
            o.manager.insert("access_log".into(), json!([]));
        })
        .try_start()
        .await?;
    let machine = Machine::look(rig::envoy_version(&envoy).await);
    let before = machine::rss(envoy.pid());
    let shared = Arc::new(Shared {
        effort,
        pid: envoy.pid(),
        next: AtomicU64::new(0),
        start: Instant::now(),
        seen: Mutex::default(),
    });
    let mut tasks = JoinSet::new();
    for _ in 0..effort.connections {
        let connection = Connection::open(envoy.addr()).await?;
        let template = Template::post("/v1/charges", BODY);
        tasks.spawn(drive(Arc::clone(&shared), connection, template));
    }
    while let Some(done) = tasks.join_next().await {
        done.map_err(|e| e.to_string())??;
    }
    let seconds = shared.start.elapsed().as_secs_f64();
    let after = machine::rss(envoy.pid());
    let seen = std::mem::take(&mut *shared.seen());
    let operations = check(&seen, &upstream)?;
    let workers = envoy.busy_workers().await;
    if envoy.vm_traps() > 0 {
        return Err("a VM has trapped".into());
    }
    let figures = Figures {
        operations,
        wanted: effort.operations,
        seconds,
        before,
        after,
        workers,
    };
    std::fs::create_dir_all(directory).map_err(|e| e.to_string())?;
    let report = report(&figures, &seen, &effort, &machine);
    println!("{report}");
    machine::write_report(directory, "churn.md", &report)?;
    picture(&seen, before, directory)
}

struct Figures {
    operations: u64,
    wanted: u64,
    seconds: f64,
    before: u64,
    after: u64,
    workers: usize,
}

/// Holds what the clients saw against what the upstream did.
fn check(seen: &Seen, upstream: &Upstream) -> Result<u64, String> {
    let effects = upstream.effects_by();
    if effects.total != seen.executed {
        return Err(format!(
            "{} effects, but {} answers of executions",
            effects.total, seen.executed
        ));
    }
    let twice: Vec<_> = effects
        .by_key
        .iter()
        .filter(|(key, count)| {
            let late = seen.late.iter().any(|k| k.as_bytes() == key.as_bytes());
            **count > 1 && !late
        })
        .collect();
    if let Some((key, count)) = twice.first() {
        return Err(format!(
            "{} operations ran more than once within their window, {key} for one ran {count} times",
            twice.len()
        ));
    }
    let sum: u64 = effects.by_key.values().sum();
    if sum != effects.total {
        return Err(format!("{sum} effects by key, {} in all", effects.total));
    }
    Ok(seen.executed + seen.refused)
}

#[allow(clippy::cast_precision_loss)] // Megabytes and percentages for people.
fn mib(octets: u64) -> f64 {
    octets as f64 / MIB as f64
}

#[allow(clippy::cast_precision_loss)] // As above.
fn report(figures: &Figures, seen: &Seen, effort: &Effort, machine: &Machine) -> String {
    let Figures {
        operations,
        wanted,
        seconds,
        before,
        after,
        workers,
    } = figures;
    let budgets = RECORDS + BODIES + TOMBSTONES;
    let peak = seen
        .samples
        .iter()
        .map(|(_, rss)| *rss)
        .max()
        .unwrap_or(0)
        .max(*after);
    let half = seen
        .samples
        .get(seen.samples.len() / 2)
        .map_or(0, |(_, rss)| *rss);
    let constant = mib(peak) - mib(*before) - mib(budgets);
    let percent = |n: u64, of: u64| 100.0 * n as f64 / of.max(1) as f64;
    let complete = if operations + seen.overtaken >= *wanted {
        String::new()
    } else {
        format!(
            " (stopped after {:.0} s; {wanted} were wanted)",
            effort.at_most.as_secs_f64()
        )
    };
    let memory = if constant <= 0.0 {
        format!(
            "**stayed {:.1} MiB below** what it was before plus the budgets",
            -constant
        )
    } else {
        format!("**stayed within** what it was before, the budgets, and {constant:.1} MiB")
    };
    format!(
        r"# Churn

Written by `make bench-churn`: short-lived operations through a small table, in real Envoy.

- {operations} operations{complete} in {seconds:.0} s ({rate:.0}/s), each with a key of its own, and {duplicates}
  duplicates of them within their window of {window} s, over {connections} connections on {workers} workers.
- **None ran twice**: the upstream counted {executed} effects, and no key had more than one.{late}
- Memory {memory}.

| | |
|---|---:|
| resident before the first operation | {before:.1} MiB |
| budgets: records {records:.0}, answers {bodies:.0}, tombstones {tombstones:.2} MiB | {budgets:.1} MiB |
| greatest resident | {peak:.1} MiB |
| half way | {half:.1} MiB |
| at the end | {after:.1} MiB |
| growth in the second half | {growth:+.1} MiB |
| operations refused for want of room (503 `store_full`) | {refused} ({refused_share:.3} %) |
| duplicates replayed | {replayed} ({replayed_share:.1} %) |
| duplicates refused | {others} |
| first attempts that their own duplicate had overtaken | {overtaken} |

![memory over operations](churn.svg)

`in_flight`: while the operation runs. `replay_unavailable`: there was no room for the answer, and the
operation is remembered without it. Resident memory includes Envoy itself, the two VMs and
what V8 and the allocator keep for later; the budgets bound the table alone.

{date}; {cpu}, {cores} cores, load {load}; Envoy {envoy}; idempo {git}.
",
        rate = *operations as f64 / seconds,
        duplicates = seen.duplicates,
        window = WINDOW.as_secs(),
        connections = effort.connections,
        executed = seen.executed,
        late = if seen.late.is_empty() {
            String::new()
        } else {
            format!(
                " ({} duplicates were answered after the window and are left out.)",
                seen.late.len()
            )
        },
        before = mib(*before),
        records = mib(RECORDS),
        bodies = mib(BODIES),
        tombstones = mib(TOMBSTONES),
        budgets = mib(budgets),
        peak = mib(peak),
        half = mib(half),
        after = mib(*after),
        growth = mib(*after) - mib(half),
        refused = seen.refused,
        refused_share = percent(seen.refused, *operations),
        replayed = seen.replayed,
        replayed_share = percent(seen.replayed, seen.duplicates),
        others = seen
            .others
            .iter()
            .map(|(refusal, count)| format!("{refusal}: {count}"))
            .collect::<Vec<_>>()
            .join(", "),
        overtaken = seen.overtaken,
        date = machine.date,
        cpu = machine.cpu,
        cores = machine.cores,
        load = machine.load,
        envoy = machine.envoy,
        git = machine.git,
    )
}

#[allow(clippy::cast_precision_loss)] // A picture.
fn picture(seen: &Seen, before: u64, directory: &Path) -> Result<(), String> {
    let mut samples: Vec<_> = seen
        .samples
        .iter()
        .map(|(n, rss)| (*n as f64, mib(*rss)))
        .collect();
    samples.sort_by(|a, b| a.0.total_cmp(&b.0));
    let bound = mib(before + RECORDS + BODIES + TOMBSTONES);
    chart::memory(&samples, bound, &directory.join("churn.svg"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_execution_is_found() {
        let addr = (Ipv4Addr::LOCALHOST, 0).into();
        let upstream = Upstream::bind(addr, 1).await.unwrap();
        let mut connection = Connection::open(upstream.addr()).await.unwrap();
        let mut template = Template::post("/v1/charges", BODY);
        let (once, twice) = (Key::random(&mut rng()), Key::random(&mut rng()));
        for key in [&once, &twice] {
            let answer = connection.exchange(template.with_key(key)).await.unwrap();
            assert_eq!((answer.status, answer.replayed), (201, false));
        }
        let mut seen = Seen {
            executed: 2,
            ..Seen::default()
        };
        assert_eq!(check(&seen, &upstream), Ok(2));

        connection
            .exchange(template.with_key(&twice))
            .await
            .unwrap();
        // An effect that no client was told of.
        assert!(check(&seen, &upstream).is_err());
        seen.executed = 3;
        let why = check(&seen, &upstream).unwrap_err();
        assert!(why.contains("1 operations ran more than once"), "{why}");
        // After the window it may.
        seen.late.insert(twice);
        assert_eq!(check(&seen, &upstream), Ok(3));
    }

    #[test]
    fn a_refusal_is_named_by_its_code() {
        assert_eq!(code(br#"{"status":409,"code":"in_flight"}"#), "in_flight");
        assert_eq!(code(b"oops"), "none");
    }
}
