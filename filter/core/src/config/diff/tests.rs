use super::*;
use crate::config::parse_value;
use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn base() -> Value {
    json!({
        "store": {"shared_data": {}},
        "tenant": {"sources": [{"header": "x-tenant-id"}], "default": "public"},
        "routes": [
            {"id": "charges", "match": {"path": {"prefix": "/v1/charges"}}},
            {"id": "orders", "match": {"path": {"prefix": "/v1/orders"}}},
        ],
    })
}

/// (path, kind) of what changes when `edit` is made.
fn after(edit: impl FnOnce(&mut Value)) -> Vec<(String, Kind)> {
    between(base(), edit)
}

fn between(old: Value, edit: impl FnOnce(&mut Value)) -> Vec<(String, Kind)> {
    let mut new = old.clone();
    edit(&mut new);
    let plan = |v| parse_value(v).unwrap_or_else(|e| panic!("{e}"));
    diff(&plan(old), &plan(new))
        .into_iter()
        .map(|c| (c.path, c.kind))
        .collect()
}

fn only(path: &str, kind: Kind) -> Vec<(String, Kind)> {
    vec![(path.to_owned(), kind)]
}

#[test]
fn nothing_changed() {
    assert_eq!(after(|_| {}), []);
    // Written out or left to the default is the same.
    assert_eq!(after(|v| v["routes"][0]["lease"] = json!("30s")), []);
    assert_eq!(after(|v| v["namespace"] = json!("default")), []);
}

#[test]
fn how_attempts_are_sent_on_changes_nothing_that_is_recorded() {
    let mut old = base();
    old["signing"] = json!({"active": {"env": "IDEMPO_A"}});
    let changes = between(old, |v| v["loopback_cluster"] = json!("self"));
    let expected = [
        "loopback_cluster",
        "routes[charges].upstream",
        "routes[orders].upstream",
    ];
    let expected: Vec<_> = expected.map(|p| (p.to_owned(), Kind::Harmless)).into();
    assert_eq!(changes, expected);
}

#[test]
fn what_changes_identity() {
    for (path, pointer, value) in [
        ("namespace", "/namespace", json!("n")),
        (
            "tenant.sources",
            "/tenant/sources",
            json!([{"header": "x-org"}]),
        ),
        ("tenant.default", "/tenant/default", json!("other")),
        ("mode", "/mode", json!("off")),
        ("enforce_fraction", "/enforce_fraction", json!(0.5)),
        ("routes[charges].mode", "/routes/0/mode", json!("observe")),
        (
            "routes[charges].key.case",
            "/routes/0/key",
            json!({"case": "insensitive", "formats": ["uuid", "opaque"]}),
        ),
        (
            "routes[charges].key.syntax",
            "/routes/0/key",
            json!({"syntax": "strict"}),
        ),
        (
            "routes[charges].key.header",
            "/routes/0/key",
            json!({"header": "x-key"}),
        ),
        (
            "routes[charges].key.body_field",
            "/routes/0/key",
            json!({"body_field": null}),
        ),
        (
            "routes[charges].key.formats",
            "/routes/0/key",
            json!({"formats": ["opaque"]}),
        ),
        (
            "routes[charges].replay.tombstone_ttl",
            "/routes/0/replay",
            json!({"tombstone_ttl": "0s"}),
        ),
        (
            "store.shared_data.records",
            "/store/shared_data/records",
            json!("8MiB"),
        ),
        (
            "routes[charges].match",
            "/routes/0/match",
            json!({"path": {"prefix": "/v2"}}),
        ),
    ] {
        let changes = after(|v| {
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            v.pointer_mut(parent).unwrap()[name] = value;
        });
        assert!(
            changes.contains(&(path.to_owned(), Kind::Identity)),
            "{path}: {changes:?}"
        );
        assert_eq!(changes[0].1, Kind::Identity, "the gravest comes first");
    }
}

fn on_redis() -> Value {
    let mut config = base();
    config["store"] = json!({"redis": {"cluster": "redis", "transport": "rest"}});
    config
}

#[test]
fn another_store_knows_nothing_of_before() {
    let moved = after(|v| v["store"] = on_redis()["store"].take());
    assert_eq!(
        moved,
        [
            ("store".to_owned(), Kind::Identity),
            ("replay_cache".to_owned(), Kind::Harmless),
        ]
    );
    for (name, value) in [
        ("cluster", json!("other")),
        ("transport", json!("webdis")),
        ("authority", json!("other.internal:80")),
        ("topology", json!("cluster")),
        ("prefix", json!("other")),
    ] {
        let changes = between(on_redis(), |v| v["store"]["redis"][name] = value);
        assert_eq!(
            changes,
            only(&format!("store.redis.{name}"), Kind::Identity)
        );
    }
}

#[test]
fn how_a_store_is_called_changes_nothing_that_it_holds() {
    // What was left to the default may be written.
    let same = between(on_redis(), |v| {
        v["store"]["redis"]["authority"] = json!("redis");
        v["store"]["redis"]["prefix"] = json!("idempo");
        v["store"]["redis"]["topology"] = json!("standalone");
        v["replay_cache"] = json!({"bytes": "16MiB"});
    });
    assert_eq!(same, []);
    for (path, pointer, value) in [
        ("store.redis.timeout", "/store/redis/timeout", json!("1s")),
        ("store.redis.hold", "/store/redis/hold", json!("60s")),
        ("store.redis", "/store/redis/token", json!({"env": "T"})),
        ("replay_cache", "/replay_cache", json!({"bytes": 0})),
        ("limits", "/limits", json!({"store_calls": 8})),
        ("limits", "/limits", json!({"store_batch": 8})),
        ("limits", "/limits", json!({"tenant_claims_per_second": 8})),
        (
            "routes[charges].replay.max_inline_body",
            "/defaults",
            json!({"replay": {"max_inline_body": "4MiB"}}),
        ),
    ] {
        let changes = between(on_redis(), |v| {
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            v.pointer_mut(parent).unwrap()[name] = value;
        });
        assert_eq!(changes[0], (path.to_owned(), Kind::Harmless), "{changes:?}");
        assert!(
            changes.iter().all(|(_, k)| *k == Kind::Harmless),
            "{changes:?}"
        );
        assert!(pointer == "/defaults" || changes.len() == 1, "{changes:?}");
    }
}

#[test]
fn modes_are_compared_as_they_apply() {
    let mut observed = base();
    observed["mode"] = json!("observe");
    assert_eq!(
        between(observed.clone(), |v| v["routes"][0]["mode"] =
            json!("observe")),
        only("routes[charges].mode", Kind::Harmless)
    );
    assert_eq!(
        between(observed, |v| v["routes"][0]["mode"] = json!("off")),
        only("routes[charges].mode", Kind::Harmless)
    );
}

#[test]
fn a_renamed_route_breaks_identity_unless_previous_says_so() {
    assert_eq!(
        after(|v| v["routes"][0]["id"] = json!("payments")),
        [
            ("routes[charges]".to_owned(), Kind::Identity),
            ("routes[payments]".to_owned(), Kind::Harmless),
        ]
    );
    let declared = after(|v| {
        v["routes"][0]["id"] = json!("payments");
        v["routes"][0]["previous"] = json!([{"id": "charges"}]);
    });
    assert!(
        declared.iter().all(|(_, k)| *k == Kind::Harmless),
        "{declared:?}"
    );
}

#[test]
fn another_tenant_default_is_covered_only_by_every_route() {
    let previous = |id: &str| json!([{"id": id, "tenant_default": "public"}]);
    let half = after(|v| {
        v["tenant"]["default"] = json!("other");
        v["routes"][0]["previous"] = previous("charges");
    });
    assert!(
        half.contains(&("tenant.default".into(), Kind::Identity)),
        "{half:?}"
    );
    let whole = after(|v| {
        v["tenant"]["default"] = json!("other");
        v["routes"][0]["previous"] = previous("charges");
        v["routes"][1]["previous"] = previous("orders");
    });
    assert!(whole.iter().all(|(_, k)| *k == Kind::Harmless), "{whole:?}");
}

#[test]
fn order_matters_where_routes_meet() {
    // Apart from each other: the order says nothing.
    let swapped = after(|v| v["routes"].as_array_mut().unwrap().swap(0, 1));
    assert_eq!(swapped, []);
    // A new rule that takes requests from one that exists.
    let special = json!({"id": "special", "match": {"path": {"prefix": "/v1/charges/special"}}});
    let first = after(|v| v["routes"].as_array_mut().unwrap().insert(0, special));
    assert!(
        first.contains(&("routes[charges].match".into(), Kind::Identity)),
        "{first:?}"
    );
    // A new rule behind the others takes nothing.
    let rest = json!({"id": "rest", "match": {"path": {"prefix": "/v1"}}});
    assert_eq!(
        after(|v| v["routes"].as_array_mut().unwrap().push(rest)),
        only("routes[rest]", Kind::Harmless)
    );
}

#[test]
fn a_wider_match_is_harmless_unless_it_takes_from_a_later_route() {
    let wider = after(|v| v["routes"][1]["match"] = json!({"path": {"prefix": "/v1"}}));
    assert_eq!(wider, only("routes[orders].match", Kind::Harmless));
    let old = json!({
        "store": {"shared_data": {}},
        "routes": [
            {"id": "a", "match": {"methods": ["POST"], "path": {"exact": "/x"}}},
            {"id": "b", "match": {"path": {"prefix": "/y"}}},
        ],
    });
    let taking = between(old, |v| {
        v["routes"][0]["match"] = json!({"methods": ["POST"]})
    });
    assert!(
        taking.contains(&("routes[b].match".into(), Kind::Identity)),
        "{taking:?}"
    );
}

#[test]
fn what_changes_comparability_and_replay() {
    for (path, kind, name, value) in [
        (
            "fingerprint.body",
            Kind::Comparability,
            "fingerprint",
            json!({"body": "raw"}),
        ),
        (
            "fingerprint.exclude",
            Kind::Comparability,
            "fingerprint",
            json!({"exclude": ["/t"]}),
        ),
        (
            "fingerprint.headers",
            Kind::Comparability,
            "fingerprint",
            json!({"headers": ["x-v"]}),
        ),
        (
            "fingerprint.digest",
            Kind::Comparability,
            "fingerprint",
            json!({"digest": "sha256"}),
        ),
        ("schema_version", Kind::Replay, "schema_version", json!(2)),
        (
            "replay.ttl",
            Kind::Replay,
            "replay",
            json!({"ttl": "100000s"}),
        ),
        (
            "replay.ttl",
            Kind::Harmless,
            "replay",
            json!({"ttl": "259200s"}),
        ),
        (
            "fingerprint.max_body",
            Kind::Harmless,
            "fingerprint",
            json!({"max_body": 1}),
        ),
        ("lease", Kind::Harmless, "lease", json!("60s")),
        (
            "record.classes",
            Kind::Harmless,
            "record",
            json!({"classes": "record-all"}),
        ),
        (
            "statuses",
            Kind::Harmless,
            "statuses",
            json!({"payload_mismatch": 409}),
        ),
        (
            "unknown",
            Kind::Harmless,
            "unknown",
            json!({"forward": {"upstream_dedupes": true}}),
        ),
    ] {
        let changes = after(|v| v["routes"][0][name] = value);
        assert_eq!(changes, only(&format!("routes[charges].{path}"), kind));
    }
    assert_eq!(
        after(|v| v["principal"] = json!({"header": "x-user"})),
        only("principal", Kind::Comparability)
    );
}

#[test]
fn changes_read_well() {
    let change = Change {
        path: "namespace".into(),
        kind: Kind::Identity,
        sentence: "x".into(),
    };
    assert_eq!(change.to_string(), "[identity] namespace: x");
    assert_eq!(
        serde_json::to_value(&change).unwrap(),
        json!({"path": "namespace", "kind": "identity", "sentence": "x"})
    );
}
