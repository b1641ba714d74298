//! `idempo explain`: what is told of a request, and what is not.

mod common;

use common::{Ran, file, fixture, idempo};
use serde_json::Value;

const KEY: &str = "5f3c1a52-8e0b-4d0e-9f57-3f1f5d2a9c11";
const CHARGES: &str = "http://api.test/v1/charges";
const REFUNDS: &str = "http://api.test/v1/charges/5/refunds";

fn explain(url: &str, more: &[&str]) -> Ran {
    let config = fixture("shop.yaml");
    let mut arguments = vec![
        "explain",
        "--config",
        &config,
        "--url",
        url,
        "--now",
        "1700000000",
    ];
    arguments.extend(more);
    idempo(&arguments)
}

fn json(url: &str, more: &[&str]) -> Value {
    let ran = explain(url, &[more, &["--format", "json"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.json()
}

fn key_line() -> String {
    format!("Idempotency-Key: {KEY}")
}

fn row<'a>(report: &'a Value, state: &str) -> &'a Value {
    let rows = report["states"].as_array().expect("a table");
    rows.iter()
        .find(|r| r["state"] == state)
        .unwrap_or_else(|| panic!("{state} in {rows:#?}"))
}

/// Status, code, what is done.
fn told(row: &Value) -> (u64, &str, &str) {
    let text = |name: &str| row[name].as_str().unwrap_or_default();
    (
        row["status"].as_u64().unwrap_or_default(),
        text("code"),
        text("action"),
    )
}

#[test]
fn a_whole_report_stays_as_it_is() {
    let ran = explain(
        "http://api.test/v1//%63harges?b=1&a=2",
        &[
            "-H",
            &format!("Idempotency-Key: \"{}\"", KEY.to_uppercase()),
            "-H",
            "Content-Type: application/json",
            "-H",
            "X-Tenant-Id: acme-bank",
            "-H",
            "X-User: ann",
            "-H",
            "x-envoy-retry-on: 5xx",
            "--data",
            "{\"amount\": 1}",
        ],
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    let golden = fixture("explain.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &ran.out).expect("written");
    }
    let expected = std::fs::read_to_string(&golden).expect("the golden file");
    assert_eq!(ran.out, expected, "UPDATE_GOLDEN=1 writes it anew");
    for secret in ["5f3c1a52", "5F3C1A52", "acme-bank", "ann\n"] {
        assert!(!ran.out.contains(secret), "{secret}");
    }
}

#[test]
fn values_are_shown_only_on_demand() {
    let key = key_line();
    let lines = [
        "-X",
        "POST",
        "-H",
        &key,
        "-H",
        "X-Tenant-Id: acme-bank",
        "-H",
        "X-User: annabel",
    ];
    for format in ["text", "json"] {
        let hidden = explain(CHARGES, &[&lines[..], &["--format", format]].concat());
        let shown = explain(
            CHARGES,
            &[&lines[..], &["--format", format, "--show-values"]].concat(),
        );
        assert_eq!((hidden.code, shown.code), (0, 0));
        for value in [KEY, "acme-bank", "annabel"] {
            assert!(!hidden.out.contains(value), "{value}");
            assert!(shown.out.contains(value), "{value}");
        }
    }
}

#[test]
fn policies_of_the_rule_show_in_the_table() {
    let key = key_line();
    let report = json(REFUNDS, &["-X", "POST", "-H", &key]);
    assert_eq!(report["rule"], "refunds");
    assert_eq!(
        told(row(&report, "absent")),
        (0, "", "sent to the upstream")
    );
    assert_eq!(told(row(&report, "pending")), (409, "in_flight", "refused"));
    assert_eq!(
        told(row(&report, "unknown")),
        (0, "", "sent to the upstream"),
        "forward"
    );
    assert_eq!(
        told(row(&report, "pending, lease over")),
        (0, "", "sent to the upstream")
    );
    assert_eq!(
        told(row(&report, "store down")),
        (0, "", "passed on unclaimed (bypassed)"),
        "open"
    );
    assert_eq!(
        told(row(&report, "other payload")),
        (422, "payload_mismatch", "refused")
    );

    let report = json(CHARGES, &["-X", "POST", "-H", &key]);
    assert_eq!(report["rule"], "charges");
    assert_eq!(
        told(row(&report, "pending")),
        (409, "in_flight", "waits up to 3s, then refused")
    );
    assert_eq!(
        told(row(&report, "unknown")),
        (409, "outcome_unknown", "refused")
    );
    assert_eq!(
        told(row(&report, "store down")),
        (503, "store_unavailable", "refused")
    );
    assert_eq!(
        told(row(&report, "store full")),
        (503, "store_full", "refused")
    );
    assert_eq!(
        told(row(&report, "other payload")),
        (409, "payload_mismatch", "refused"),
        "statuses"
    );
    assert_eq!(
        told(row(&report, "other principal")),
        (403, "principal_mismatch", "refused")
    );
    assert_eq!(
        told(row(&report, "completed")),
        (201, "", "recorded answer replayed")
    );
    assert_eq!(
        told(row(&report, "accepted")),
        (202, "", "recorded answer replayed")
    );
    assert_eq!(
        told(row(&report, "expired")),
        (410, "key_expired", "refused")
    );
    assert_eq!(
        told(row(&report, "closed")),
        (409, "operation_closed", "refused")
    );
    assert_eq!(
        row(&report, "other schema version")["reason"],
        "schema_changed"
    );
    assert_eq!(
        row(&report, "completed, not replayable")["code"],
        "replay_unavailable"
    );
}

#[test]
fn operation_ids_are_those_of_the_identity() {
    let key = key_line();
    let report = json(
        CHARGES,
        &["-X", "POST", "-H", &key, "-H", "X-Tenant-Id: acme"],
    );
    let id = |route: &str| {
        idempo_core::ids::OperationId::new("shop", b"acme", route, KEY.as_bytes()).hex()
    };
    assert_eq!(report["operation"], id("charges"));
    assert_eq!(report["previous"][0]["route"], "payments");
    assert_eq!(report["previous"][0]["operation"], id("payments"));
    let in_body = json(
        CHARGES,
        &[
            "-H",
            "Content-Type: application/json",
            "-H",
            "X-Tenant-Id: acme",
            "--data",
            &format!("{{\"idempotency_key\":\"{KEY}\"}}"),
        ],
    );
    assert_eq!(in_body["operation"], report["operation"]);
    assert_eq!(
        in_body["key"]["places"][0]["place"],
        "body /idempotency_key"
    );
}

#[test]
fn what_is_refused_or_passes_before_the_store_says_why() {
    let key = key_line();
    let at_once = |url: &str, more: &[&str]| {
        let report = json(url, more);
        assert_eq!(report["states"], serde_json::json!([]));
        assert_eq!(report["operation"], Value::Null);
        report
    };
    let weak = at_once(CHARGES, &["-X", "POST", "-H", "Idempotency-Key: abc"]);
    assert_eq!(weak["at_once"]["code"], "key_weak");
    assert_eq!(weak["at_once"]["status"], 400);
    assert_eq!(weak["key"]["problem"]["reason"], "short");
    let none = at_once(CHARGES, &["-X", "POST"]);
    assert_eq!(none["at_once"]["code"], "key_missing");
    let twice = at_once(
        CHARGES,
        &[
            "-X",
            "POST",
            "-H",
            &key,
            "-H",
            "Idempotency-Key: 0190a3b4-0000-7000-8000-00000000abcd",
        ],
    );
    assert_eq!(twice["at_once"]["reason"], "lines_differ");
    assert_eq!(twice["key"]["places"].as_array().map(Vec::len), Some(2));
    let drift = at_once(
        CHARGES,
        &[
            "-X",
            "POST",
            "-H",
            &key,
            "-H",
            "x-tenant-id: a",
            "-H",
            "x-tenant-id: b",
        ],
    );
    assert_eq!(drift["at_once"]["code"], "tenant_drift");
    let hidden = at_once(CHARGES, &["-H", "X-HTTP-Method-Override: POST"]);
    assert_eq!(hidden["at_once"]["code"], "method_override");
    let slash = at_once("http://a/v1%2Fcharges", &["-X", "POST", "-H", &key]);
    assert_eq!(slash["at_once"]["code"], "path_ambiguous");
    assert!(
        slash["path"]["problem"]
            .as_str()
            .is_some_and(|p| p.contains("escaped slash"))
    );
    let get = at_once(CHARGES, &[]);
    assert_eq!(get["at_once"]["action"], "passed on unclaimed");
    assert_eq!(get["rules"][1]["because"][0], "method: not POST");
    let other = at_once("http://a/v2", &["-X", "POST"]);
    assert!(
        other["at_once"]["text"]
            .as_str()
            .is_some_and(|t| t.contains("no rule is for"))
    );
    let body = ["-H", "Content-Type: application/json", "--data"];
    let twice = format!("{{\"idempotency_key\":\"{KEY}\",\"idempotency_key\":\"x\"}}");
    let twice = at_once(CHARGES, &[&body[..], &[&twice, "-H", &key]].concat());
    assert_eq!(twice["at_once"]["reason"], "body_unreadable");
    assert_eq!(twice["key"]["problem"]["reason"], "body_unreadable");
    let large = "x".repeat((1 << 20) + 1);
    let (_keep, path) = file("large", &large);
    let large = at_once(CHARGES, &[&body[..2], &["--data-file", &path]].concat());
    assert_eq!(large["at_once"]["code"], "payload_too_large");
}

#[test]
fn metadata_selects_rules_and_modes() {
    let key = key_line();
    let by_name = json(
        "http://a/elsewhere",
        &["-X", "POST", "-H", &key, "--metadata", "route=refunds"],
    );
    assert_eq!(by_name["rule"], "refunds");
    let unknown = json(
        "http://a/elsewhere",
        &["-X", "POST", "-H", &key, "--metadata", "route=nope"],
    );
    assert_eq!(unknown["at_once"]["code"], "misconfigured");
    let observed = json(
        CHARGES,
        &["-X", "POST", "-H", &key, "--metadata", "mode=observe"],
    );
    assert_eq!(observed["mode"]["applies"], "observe");
    assert_eq!(
        told(row(&observed, "other payload")),
        (0, "", "passed on (observed; enforced: payload_mismatch)")
    );
    assert_eq!(observed["upstream"]["set"], serde_json::json!([]));
    let text = explain(
        CHARGES,
        &["-X", "POST", "-H", &key, "--metadata", "mode=observe"],
    )
    .out;
    assert!(
        text.contains("enforced: fingerprint_incomparable)  the upstream's\n"),
        "{text}"
    );
    let off = json(
        CHARGES,
        &["-X", "POST", "-H", &key, "--metadata", "mode=off"],
    );
    assert_eq!(off["at_once"]["text"], "passes untouched");
}

#[test]
fn properties_and_key_times_are_read() {
    const NOW: &str = "1720000000";
    let (_keep, config) = file(
        "c.yaml",
        "store: { shared_data: {} }\ntenant: { sources: [{ metadata: { filter: envoy.filters.http.jwt_authn, path: [claims, tenant] } }] }\nroutes:\n  - id: a\n    key_time: uuidv7\n    key: { formats: [uuid] }\n    match: { route_name: pay }\n",
    );
    let run = |now: &str, more: &[&str]| {
        let base = [
            "explain",
            "--config",
            &config,
            "--url",
            "http://a/x",
            "-X",
            "POST",
            "--now",
            now,
            "--format",
            "json",
            "-H",
            "Idempotency-Key: 019077fd-2c18-7000-8000-00000000abcd",
            "--envoy-route",
            "pay",
        ];
        let ran = idempo(&[&base[..], more].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.json()
    };
    assert_eq!(run(NOW, &[])["at_once"]["code"], "tenant_missing");
    let property = "metadata.filter_metadata.envoy.filters.http.jwt_authn.claims.tenant=acme";
    let report = run(NOW, &["--property", property]);
    assert_eq!(
        report["tenant"]["from"][0],
        "metadata envoy.filters.http.jwt_authn claims.tenant"
    );
    assert_eq!(report["key_time"]["ok"], true, "{report:#}");
    assert!(report["operation"].is_string());
    let forgotten = row(&report, "absent, store restarted");
    assert_eq!(told(forgotten), (409, "outcome_unknown", "refused"));
    let redis = std::fs::read_to_string(&config).expect("it was written");
    let redis = redis.replace("shared_data: {}", "redis: { cluster: r, transport: resp }");
    std::fs::write(&config, redis).expect("a temporary file");
    let states = run(NOW, &["--property", property])["states"].to_string();
    assert!(states.contains("\"absent\""), "{states}");
    assert!(!states.contains("store restarted"), "{states}");
    let late = run("1800000000", &["--property", property]);
    assert_eq!(late["at_once"]["code"], "key_expired");
    assert_eq!(late["key_time"]["ok"], false);
}

#[test]
fn arguments_that_cannot_be_used_are_one_line() {
    for (url, more, part) in [
        ("api.test/v1", vec![], "write http://host/path"),
        ("ftp://a/v1", vec![], "write http://host/path"),
        ("http://", vec![], "write http://host/path"),
        ("http://a/b c", vec![], "is not a URL"),
        (
            CHARGES,
            vec!["-H", "no colon s3cret"],
            "-H: a header without a colon",
        ),
        (CHARGES, vec!["-H", "bad name: x"], "is not a header name"),
        (CHARGES, vec!["-H", ":path: /x"], "is not a header name"),
        (CHARGES, vec!["-H", "a: b\nc"], "control character"),
        (CHARGES, vec!["-X", "P OST"], "is not a method"),
        (
            CHARGES,
            vec!["--data-file", "/nonexistent"],
            "--data-file: /nonexistent: No such file",
        ),
        (CHARGES, vec!["--data-file", "/"], "Is a directory"),
        (
            CHARGES,
            vec!["--property", "x"],
            "--property: write a name, =, and a value",
        ),
        (
            CHARGES,
            vec!["--metadata", "=x"],
            "--metadata: write a name, =, and a value",
        ),
    ] {
        let ran = explain(url, &more);
        ran.complains(part);
        assert!(!ran.err.contains("s3cret"));
    }
    idempo(&["explain", "--config", "/nonexistent", "--url", CHARGES]).complains("No such file");
    assert_eq!(
        explain(CHARGES, &["--data", "a", "--data-file", "b"]).code,
        2
    );
}
