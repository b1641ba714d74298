//! What operators see: metrics under the shipped names with clean labels, access log fields, and no
//! secret in either.

use host_tests::{
    check::{replayed, until},
    client::{Answer, Raw, Request},
    envoy::{Envoy, workspace},
    filter::{self, key},
    running::Running,
    upstream::Upstream,
};
use idempo_core::{
    config,
    metrics::{Bypass, Cause, ClaimResult, Counter, Gauge, Histogram, StoreOp, Waited},
    reply::Code,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// One name for every shape that the filter can define on its host.
fn every_name() -> Vec<String> {
    let plan = config::parse_value(filter::minimal()).unwrap();
    let code = Code::PayloadMismatch;
    let mut names: Vec<String> = [
        Counter::Claim(0, 7, ClaimResult::Claimed),
        Counter::Replay(0, 7),
        Counter::Hit(0, 7),
        Counter::Executed(0, 7),
        Counter::Conflict(0, 7, code),
        Counter::InFlight(0, Waited::Rejected),
        Counter::Unknown(0, Cause::Reset),
        Counter::Expired(0),
        Counter::Rejected(Some(0), code),
        Counter::Rejected(None, code),
        Counter::Would(0, None),
        Counter::Bypass(Bypass::Protocol),
        Counter::LateWrite(0),
        Counter::ReplayCorrupt,
        Counter::StoreError(StoreOp::Claim),
        Counter::Compensation(0),
        Counter::UnmatchedWrite,
        Counter::OddPolicy,
    ]
    .iter()
    .map(|counter| counter.name(&plan))
    .collect();
    let gauges = [
        Gauge::UnknownOpen,
        Gauge::WriteBacklog,
        Gauge::StoreUsedRatio,
        Gauge::StoreReady,
        Gauge::StoreSince,
        Gauge::LoopbackReady,
        Gauge::DetachedCalls,
    ];
    names.extend(gauges.map(|g| g.name().to_owned()));
    let histograms = [
        Histogram::ClaimUs,
        Histogram::StoreRttUs,
        Histogram::UpstreamUs,
    ];
    names.extend(histograms.map(|h| h.name().to_owned()));
    names.push("idempo_build_info.version.0_1_0.git.unknown.record.1".to_owned());
    names
}

/// The metric, and the dimensions in its name.
fn split(name: &str) -> (&str, Vec<(&str, &str)>) {
    let mut parts = name.split('.');
    let metric = parts.next().unwrap();
    let rest: Vec<_> = parts.collect();
    assert_eq!(rest.len() % 2, 0, "{name}");
    let pairs = rest.chunks(2).map(|pair| (pair[0], pair[1])).collect();
    (metric, pairs)
}

#[test]
fn the_shipped_tags_are_exactly_the_dimensions_that_there_are() {
    let shipped = std::fs::read_to_string(workspace().join("envoy/envoy.yaml")).unwrap();
    let tags: BTreeSet<&str> = shipped
        .lines()
        .filter_map(|l| l.trim().strip_prefix("- {tag_name: ")?.split(',').next())
        .collect();
    let names = every_name();
    let dimensions: BTreeSet<&str> = names
        .iter()
        .flat_map(|name| split(name).1)
        .map(|(dimension, _)| dimension)
        .collect();
    assert_eq!(tags, dimensions);
}

/// One sample of the Prometheus text.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

fn samples(text: &str) -> Vec<Sample> {
    text.lines()
        .filter(|l| !l.starts_with('#') && l.contains("idempo"))
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels.strip_suffix('}').unwrap();
            let labels = labels.split(',').filter(|l| !l.is_empty()).map(|label| {
                let (name, value) = label.split_once('=').unwrap();
                (name.to_owned(), value.trim_matches('"').to_owned())
            });
            Sample {
                name: name.to_owned(),
                labels: labels.collect(),
                value: value.parse().unwrap(),
            }
        })
        .collect()
}

fn sum(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> f64 {
    samples
        .iter()
        .filter(|s| s.name == name)
        .filter(|s| {
            labels
                .iter()
                .all(|(l, v)| s.labels.get(*l).map(String::as_str) == Some(v))
        })
        .map(|s| s.value)
        .sum()
}

fn charge(key: &str, body: &str) -> Request {
    Request::post("/v1/charges").key(key).json(body)
}

#[tokio::test]
async fn metrics_have_the_shipped_names_and_clean_labels() {
    let upstream = Upstream::start().await;
    let envoy = Running::start(&upstream).await;
    let pool = envoy.pool();
    let k = key();
    let executed = pool.send(&charge(&k, "{}")).await.unwrap();
    replayed(&executed, &pool.send(&charge(&k, "{}")).await.unwrap());
    pool.send(&charge(&k, "[]")).await.unwrap();
    pool.send(&Request::post("/v1/charges").json("{}"))
        .await
        .unwrap();
    let failed = charge(&key(), "{}").wants_status(500);
    pool.send(&failed).await.unwrap();
    let running = charge(&key(), "{}").header("x-demo-gate", "go");
    let first = tokio::spawn({
        let (pool, running) = (pool.clone(), running.clone());
        async move { pool.send(&running).await.unwrap() }
    });
    upstream.wait_for_requests(3).await;
    assert_eq!(pool.send(&running).await.unwrap().status, 409);
    upstream.open("go");
    assert_eq!(first.await.unwrap().status, 201);
    pool.send(&Request::post("/elsewhere")).await.unwrap();
    let grpc = Request::post("/v1/charges").content("application/grpc", "");
    pool.send(&grpc).await.unwrap();
    pool.send(&charge(&key(), "{}").wants_header("idempotency-policy", "odd"))
        .await
        .unwrap();

    let got = until("a whole pass of the sweep", || async {
        let got = samples(&envoy.admin().prometheus().await);
        let swept = sum(&got, "idempo_unknown_open", &[]) > 0.0;
        // Histograms are merged at the flush, every five seconds.
        let merged = sum(&got, "idempo_claim_us_count", &[]) > 0.0;
        (swept && merged).then_some(got)
    })
    .await;
    let charges = ("route", "charges");
    for (name, labels, expected) in [
        (
            "idempo_claim_total",
            &[charges, ("result", "claimed")][..],
            4.0,
        ),
        (
            "idempo_claim_total",
            &[charges, ("result", "existing")],
            3.0,
        ),
        ("idempo_replay_total", &[charges], 1.0),
        ("idempo_hit_total", &[charges], 3.0),
        ("idempo_executed_total", &[charges], 4.0),
        (
            "idempo_conflict_total",
            &[charges, ("code", "payload_mismatch")],
            1.0,
        ),
        (
            "idempo_in_flight_total",
            &[charges, ("action", "rejected")],
            1.0,
        ),
        ("idempo_unknown_total", &[charges, ("cause", "status")], 1.0),
        (
            "idempo_rejected_total",
            &[charges, ("code", "key_missing")],
            1.0,
        ),
        ("idempo_rejected_total", &[], 3.0),
        ("idempo_bypass_total", &[("reason", "protocol")], 1.0),
        ("idempo_unmatched_write_total", &[], 1.0),
        ("idempo_upstream_policy_odd_total", &[], 1.0),
        ("idempo_unknown_open", &[], 1.0),
        ("idempo_write_backlog", &[], 0.0),
        ("idempo_store_ready", &[], 1.0),
        (
            "idempo_build_info",
            &[("version", "0_1_0"), ("record", "1")],
            1.0,
        ),
    ] {
        let found = got.iter().any(|s| s.name == name);
        assert!(found, "{name} is not there: {got:#?}");
        assert_eq!(
            sum(&got, name, labels),
            expected,
            "{name} {labels:?}: {got:#?}"
        );
    }
    let ratio = sum(&got, "idempo_store_used_ratio", &[]);
    assert!((0.0..=1000.0).contains(&ratio), "{ratio}");
    assert!(sum(&got, "idempo_store_since_seconds", &[]) > 1_700_000_000.0);
    for (histogram, count) in [("idempo_claim_us", 7.0), ("idempo_upstream_us", 4.0)] {
        assert_eq!(
            sum(&got, &format!("{histogram}_count"), &[]),
            count,
            "{histogram}"
        );
        assert!(sum(&got, &format!("{histogram}_sum"), &[]) > 0.0);
        let bound = |s: &&Sample| s.name == format!("{histogram}_bucket");
        let bounds: Vec<_> = got.iter().filter(bound).map(|s| &s.labels["le"]).collect();
        // Microseconds have buckets of their own, not those for milliseconds.
        assert!(bounds.iter().any(|le| *le == "30000000"), "{bounds:?}");
    }

    // Nothing else, and no dimension left in a name.
    let names = every_name();
    let known: BTreeMap<&str, BTreeSet<&str>> = names
        .iter()
        .map(|name| {
            let (metric, pairs) = split(name);
            (metric, pairs.into_iter().map(|(d, _)| d).collect())
        })
        .collect();
    for sample in &got {
        if sample.name.starts_with("envoy_") {
            continue;
        }
        let base = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| sample.name.strip_suffix(suffix))
            .filter(|base| base.ends_with("_us"))
            .unwrap_or(&sample.name);
        let dimensions = known
            .get(base)
            .unwrap_or_else(|| panic!("unknown metric {sample:?}"));
        let labels: BTreeSet<&str> = sample
            .labels
            .keys()
            .map(String::as_str)
            .filter(|l| *l != "le")
            .collect();
        assert_eq!(&labels, dimensions, "{sample:?}");
        if let Some(tenant) = sample.labels.get("tenant") {
            let bucket = tenant.strip_prefix('b').and_then(|n| n.parse::<u8>().ok());
            assert!(bucket.is_some_and(|n| n < 32), "{tenant}");
        }
    }
}

#[tokio::test]
async fn the_shipped_access_log_says_what_became_of_each_attempt() {
    let upstream = Upstream::start().await;
    let envoy = Running::start(&upstream).await;
    let pool = envoy.pool();
    let k = key();
    let first = pool.send(&charge(&k, "{}")).await.unwrap();
    pool.send(&charge(&k, "{}")).await.unwrap();
    pool.send(&charge(&k, "[]")).await.unwrap();
    pool.send(&Request::post("/v1/charges").json("{}"))
        .await
        .unwrap();
    pool.send(&Request::new("GET", "/v1/charges"))
        .await
        .unwrap();
    let lines = until("five lines", || async {
        let mut lines = envoy.access_log();
        // Both listeners write here: inner passes and probes are told apart by their outcome.
        lines.retain(|l| l["idempo_outcome"] != "inner");
        (lines.len() >= 5).then_some(lines)
    })
    .await;
    let field = |n: usize, name: &str| lines[n][format!("idempo_{name}")].clone();
    let outcomes: Vec<_> = (0..5).map(|n| field(n, "outcome")).collect();
    assert_eq!(
        outcomes,
        [
            json!("executed"),
            json!("replayed"),
            json!("payload_mismatch"),
            json!("key_missing"),
            Value::Null
        ]
    );
    let operation = json!(first.one("idempotency-operation").unwrap());
    for n in 0..3 {
        assert_eq!(field(n, "operation"), operation);
    }
    assert_eq!(field(3, "operation"), Value::Null);
    for n in 0..4 {
        assert_eq!(field(n, "route"), "charges");
    }
    let audit = field(0, "audit");
    let audit: Value = serde_json::from_str(audit.as_str().unwrap()).unwrap();
    assert_eq!(audit["attempt"], first.one("x-request-id").unwrap());
}

const KEY: &str = "KEYMARKER-abcdefghijklmnopqrst";
const TENANT: &str = "TENANTMARKER";
const PRINCIPAL: &str = "PRINCIPALMARKER";
const PAYLOAD: &str = "PAYLOADMARKER";
const ANSWER: &str = "ANSWERMARKER";
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The transitions of an audit value, after checking everything around them.
fn transitions(line: &Value, answer_operation: Option<&str>) -> Vec<(String, String, String)> {
    let audit: Value = serde_json::from_str(line["audit"].as_str().unwrap()).unwrap();
    let members: Vec<_> = audit.as_object().unwrap().keys().cloned().collect();
    let expected = [
        "attempt",
        "generation",
        "operation",
        "route",
        "tenant",
        "transitions",
        "v",
    ];
    let mut sorted = members.clone();
    sorted.sort();
    assert_eq!(sorted, expected);
    assert_eq!(audit["v"], 1);
    assert_eq!(audit["operation"], line["operation"]);
    if let Some(operation) = answer_operation {
        assert_eq!(audit["operation"], operation);
    }
    assert_eq!(audit["route"], line["route"]);
    let tenant = audit["tenant"].as_str().unwrap();
    assert!(
        tenant.len() == 16 && tenant.bytes().all(|b| b.is_ascii_hexdigit()),
        "{audit}"
    );
    assert!(audit["generation"].as_u64().unwrap() > 0);
    assert!(!audit["attempt"].as_str().unwrap().is_empty());
    audit["transitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| {
            assert!(t["at"].as_u64().unwrap() > 1_700_000_000_000, "{t}");
            assert_eq!(t["source"], "owner");
            let text = |name: &str| t[name].as_str().unwrap().to_owned();
            (text("from"), text("to"), text("result"))
        })
        .collect()
}

#[tokio::test]
async fn audit_values_follow_their_schema_and_no_secret_reaches_a_log() {
    let upstream = Upstream::start().await;
    let mut config = filter::minimal();
    config["tenant"] = json!({"sources": [{"header": "x-tenant"}]});
    config["principal"] = json!({"header": "x-principal"});
    // One worker, so that the lines are in the order of the requests.
    let envoy = Envoy::with_filter(&upstream, config)
        .concurrency(1)
        .start()
        .await;
    let addr = envoy.addr();
    let send = move |request: Request| async move { Raw::exchange(addr, &request).await.unwrap() };
    let ask = |k: &str, body: &str| {
        charge(k, &format!(r#"{{"{PAYLOAD}":"{body}"}}"#))
            .header("x-tenant", TENANT)
            .header("x-principal", PRINCIPAL)
            .header("traceparent", TRACE)
            .wants_body(ANSWER)
    };
    let keys: Vec<String> = (0..4).map(|n| format!("{KEY}{n}")).collect();
    let executed = send(ask(&keys[0], "a")).await;
    let answers: Vec<Answer> = vec![
        send(ask(&keys[0], "a")).await,
        send(ask(&keys[0], "b")).await,
        send(ask(&keys[0], "a").header("x-tenant", "another")).await,
        send(ask("KEYMARKER", "a")).await,
        send(ask(&keys[1], "a").wants_status(500)).await,
        send(ask(&keys[1], "a")).await,
        send(ask(&keys[2], "a").wants_status(429)).await,
        send(ask(&keys[3], "a").wants_status(202)).await,
        send(ask(&keys[3], "a").key(&keys[2])).await,
    ];
    let lines = envoy.access_log_lines(10).await;
    let outcomes: Vec<_> = lines
        .iter()
        .map(|l| l["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(
        outcomes,
        [
            "executed",
            "replayed",
            "payload_mismatch",
            "tenant_drift",
            "key_weak",
            "unknown",
            "outcome_unknown",
            "released",
            "executed",
            "key_invalid",
        ],
        "{answers:#?}"
    );
    let steps = |n: usize| transitions(&lines[n], None);
    let step = |from: &str, to: &str| (from.to_owned(), to.to_owned(), "applied".to_owned());
    let claimed = step("absent", "pending");
    let operation = executed.one("idempotency-operation");
    assert_eq!(
        transitions(&lines[0], operation),
        [claimed.clone(), step("pending", "completed")]
    );
    assert_eq!(steps(5), [claimed.clone(), step("pending", "unknown")]);
    assert_eq!(steps(7), [claimed.clone(), step("pending", "absent")]);
    assert_eq!(steps(8), [claimed, step("pending", "accepted")]);
    // A replay names the attempt and the trace that it repeats; a refusal moves nothing.
    let replay: Value = serde_json::from_str(lines[1]["audit"].as_str().unwrap()).unwrap();
    let first: Value = serde_json::from_str(lines[0]["audit"].as_str().unwrap()).unwrap();
    assert_eq!(replay["traceparent"], TRACE);
    assert_eq!(replay["replayed_attempt"], first["attempt"]);
    for n in [2, 3, 4, 6, 9] {
        assert_eq!(lines[n]["audit"], Value::Null, "{}", lines[n]);
    }
    let logs = [envoy.log(), format!("{lines:?}")];
    for marker in ["KEYMARKER", TENANT, PRINCIPAL, PAYLOAD, ANSWER] {
        for log in &logs {
            let found = log.to_ascii_uppercase().contains(marker);
            assert!(!found, "{marker} in {log}");
        }
    }
    assert_eq!(envoy.vm_traps(), 0);
}
