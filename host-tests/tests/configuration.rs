//! Configurations that are refused, and what Envoy's log then says; the forms that are accepted.

use host_tests::{
    client::{Raw, Request},
    envoy::{Envoy, Validation, workspace},
    filter::{self, key},
    upstream::Upstream,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::{sync::Semaphore, task::JoinSet};

/// `fixtures/wrong_configurations.json`: the command line is held to the same table.
#[derive(Deserialize)]
struct Wrong {
    name: String,
    config: Value,
    /// Where it is said to be wrong.
    path: String,
    /// A part of what is said.
    fragment: String,
}

fn table() -> Vec<Wrong> {
    let file = workspace().join("host-tests/fixtures/wrong_configurations.json");
    let rows: Vec<Wrong> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert!(rows.len() >= 20);
    rows
}

async fn validate(config: Value, as_text: bool) -> Validation {
    let upstream = Upstream::start().await;
    Envoy::with_filter(&upstream, config)
        .options(|o| o.filter_as_text = as_text)
        .validate()
        .await
}

/// Half of the table as a Struct and half as text: core's own tests have each in both forms. Two tests
/// share the work, since each row costs an Envoy's start.
async fn refused_with_reasons(as_text: bool) {
    let places = Arc::new(Semaphore::new(2));
    let mut tasks = JoinSet::new();
    for row in table().into_iter().skip(as_text.into()).step_by(2) {
        let places = Arc::clone(&places);
        tasks.spawn(async move {
            let _place = places.acquire_owned().await.unwrap();
            let said = validate(row.config.clone(), as_text).await;
            (row, said)
        });
    }
    while let Some(done) = tasks.join_next().await {
        let (row, said) = done.unwrap();
        let name = &row.name;
        assert!(!said.ok, "{name} is accepted:\n{}", said.output);
        let line = said
            .output
            .lines()
            .find(|l| l.starts_with(&format!("1. {}: ", row.path)))
            .unwrap_or_else(|| panic!("{name}: no line for {}:\n{}", row.path, said.output));
        assert!(line.contains(&row.fragment), "{name}: {line}");
        // Word for word what the core says, every line of it.
        let core = idempo_core::config::parse_value(row.config).expect_err(name);
        assert!(said.output.contains(&core.to_string()), "{name}: {core}");
        assert!(!said.output.contains("written-out-secret"), "{name}");
    }
}

#[tokio::test]
async fn wrong_structs_keep_envoy_from_starting_and_it_says_why() {
    refused_with_reasons(false).await;
}

#[tokio::test]
async fn wrong_texts_keep_envoy_from_starting_and_it_says_why() {
    refused_with_reasons(true).await;
}

#[tokio::test]
async fn text_that_is_not_json_and_members_twice_are_refused() {
    let upstream = Upstream::start().await;
    for (text, said) in [
        ("store: {shared_data: {}}", "the text is not JSON"),
        (
            r#"{"mode":"off","mode":"enforce","store":{"shared_data":{}},"routes":[]}"#,
            "the same member twice",
        ),
        ("", "the configuration is empty"),
        ("{}", "the least that works is"),
    ] {
        let done = Envoy::with_filter(&upstream, json!({}))
            .options(|o| o.filter_text = Some(text.to_owned()))
            .validate()
            .await;
        assert!(!done.ok, "{text}");
        assert!(done.output.contains(said), "{text}: {}", done.output);
    }
}

/// The least that works, from docs/configuration.md.
fn minimal() -> Value {
    json!({
        "store": {"shared_data": {}},
        "tenant": {"sources": [{"header": "x-tenant-id"}], "default": "public"},
        "routes": [{
            "id": "charges",
            "match": {"methods": ["POST"], "path": {"prefix": "/v1/charges"}},
        }],
    })
}

#[tokio::test]
async fn the_minimal_configuration_works_as_a_struct_and_as_text() {
    let mut operations = Vec::new();
    let request = Request::post("/v1/charges").key(key()).json("{}");
    for as_text in [false, true] {
        assert!(validate(minimal(), as_text).await.ok, "text: {as_text}");
        let upstream = Upstream::start().await;
        let envoy = Envoy::with_filter(&upstream, minimal())
            .options(|o| o.filter_as_text = as_text)
            .start()
            .await;
        let first = envoy.pool().send(&request).await.unwrap();
        let again = envoy.pool().send(&request).await.unwrap();
        host_tests::check::replayed(&first, &again);
        assert_eq!(upstream.effects(), 1);
        operations.push(first.one("idempotency-operation").unwrap().to_owned());
    }
    // The form is no part of an operation's identity.
    assert_eq!(operations[0], operations[1]);
}

fn signing() -> Value {
    let mut config = filter::minimal();
    config["signing"] = json!({
        "active": {"env": "IDEMPO_TEST_ACTIVE"},
        "previous": {"env": "IDEMPO_TEST_PREVIOUS"},
    });
    config
}

const ACTIVE: &str = "correct-horse-battery-active";
const PREVIOUS: &str = "correct-horse-battery-previous";

#[tokio::test]
async fn a_secret_that_is_not_there_is_named_and_one_that_is_weak_is_not_shown() {
    let upstream = Upstream::start().await;
    let builder = || Envoy::with_filter(&upstream, signing()).log_level("trace");
    // Neither is passed on.
    let done = builder().validate().await;
    assert!(!done.ok);
    assert!(
        done.output.contains("IDEMPO_TEST_ACTIVE"),
        "{}",
        done.output
    );
    assert!(done.output.contains("host_env_keys"), "{}", done.output);
    // One is.
    let done = builder().env("IDEMPO_TEST_ACTIVE", ACTIVE).validate().await;
    assert!(!done.ok);
    let missing = "the environment variable IDEMPO_TEST_PREVIOUS is not set";
    assert!(done.output.contains(missing), "{}", done.output);
    assert!(!done.output.contains(ACTIVE));
    // Both are, one of them too short.
    let done = builder()
        .env("IDEMPO_TEST_ACTIVE", ACTIVE)
        .env("IDEMPO_TEST_PREVIOUS", "tooshort")
        .validate()
        .await;
    assert!(!done.ok);
    let weak = "IDEMPO_TEST_PREVIOUS: a signing secret needs at least 16 octets";
    assert!(done.output.contains(weak), "{}", done.output);
    assert!(!done.output.contains("tooshort"));
    // All is well.
    let done = builder()
        .env("IDEMPO_TEST_ACTIVE", ACTIVE)
        .env("IDEMPO_TEST_PREVIOUS", PREVIOUS)
        .validate()
        .await;
    assert!(done.ok, "{}", done.output);
    assert!(!done.output.contains("correct-horse"));
}

#[tokio::test]
async fn secrets_show_up_nowhere_while_requests_are_signed_and_logged_in_full() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, signing())
        .env("IDEMPO_TEST_ACTIVE", ACTIVE)
        .env("IDEMPO_TEST_PREVIOUS", PREVIOUS)
        .log_level("trace")
        .start()
        .await;
    let request = Request::post("/v1/charges").key(key()).json("{}");
    let first = envoy.pool().send(&request).await.unwrap();
    let again = envoy.pool().send(&request).await.unwrap();
    host_tests::check::replayed(&first, &again);
    assert!(upstream.only_request().one("x-idempo-signature").is_some());
    let dump = envoy.admin().get("/config_dump").await.unwrap().text();
    assert!(dump.contains("IDEMPO_TEST_ACTIVE"));
    for text in [envoy.log(), dump, format!("{:?}", envoy.access_log())] {
        assert!(!text.contains("correct-horse"), "a secret is shown");
    }
    // That the log would have had it.
    assert!(envoy.log().contains("x-idempo-signature"));
}

/// An update that is wrong changes nothing: what runs, runs on.
#[tokio::test]
async fn a_wrong_update_is_rejected_and_the_old_configuration_stays() {
    let upstream = Upstream::start().await;
    let mut envoy = Envoy::with_filter(&upstream, filter::minimal())
        .lds()
        .start()
        .await;
    let request = Request::post("/v1/charges").key(key()).json("{}");
    let first = Raw::exchange(envoy.addr(), &request).await.unwrap();
    let refused = envoy
        .reload(filter::with_route(json!({"lease": "5m"})))
        .await;
    let said = refused.expect_err("five minutes are written 300s");
    assert!(
        said.contains("routes[0].lease: \"5m\" is not a duration; write \"300s\""),
        "{said}"
    );
    let again = Raw::exchange(envoy.addr(), &request).await.unwrap();
    host_tests::check::replayed(&first, &again);
    assert_eq!(upstream.effects(), 1);
    assert_eq!(envoy.vm_traps(), 0);
}
