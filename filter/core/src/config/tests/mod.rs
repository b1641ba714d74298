//! The whole way: bytes to plan, or to errors.

#[cfg(not(target_arch = "wasm32"))]
mod properties;
mod refused;
mod store;

use super::*;
use crate::plan::{Class, Execution, Mode, PathMatch, Segment, Source, Store, UnknownPolicy};
use serde_json::json;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn minimal() -> Value {
    json!({
        "store": {"shared_data": {}},
        "tenant": {"sources": [{"header": "x-tenant-id"}], "default": "public"},
        "routes": [{"id": "charges", "match": {"methods": ["POST"], "path": {"prefix": "/v1/charges"}}}],
    })
}

/// The minimal configuration with one member set; `pointer` is an RFC 6901 pointer whose parents exist or are made.
fn with(pointer: &str, value: Value) -> Value {
    let mut config = minimal();
    set(&mut config, pointer, value);
    config
}

fn with_redis() -> Value {
    let mut config = minimal();
    config["store"] = json!({"redis": {"cluster": "redis-webdis", "transport": "webdis"}});
    config
}

fn set(config: &mut Value, pointer: &str, value: Value) {
    let mut at = config;
    for name in pointer.split('/').skip(1) {
        at = match name.parse::<usize>() {
            Ok(i) => &mut at[i],
            Err(_) => &mut at[name],
        };
    }
    *at = value;
}

/// Both forms in which a host delivers a configuration.
fn both(config: &Value) -> [Result<Plan, ConfigErrors>; 2] {
    [
        parse(config.to_string().as_bytes()),
        parse(&struct_pb::encode(config)),
    ]
}

fn route(pointer: &str, value: Value) -> crate::plan::Route {
    let plan = parse_value(with(&format!("/routes/0{pointer}"), value));
    plan.unwrap_or_else(|e| panic!("{e}")).routes.remove(0)
}

#[test]
fn what_envoy_makes_of_plain_yaml_is_understood() {
    let plan = parse_value(with("/mode", json!(false))).unwrap();
    assert_eq!(plan.mode, Mode::Off);
    let plan = parse_value(with("/enforce_fraction", json!("0.25"))).unwrap();
    assert_eq!(plan.enforce_fraction.to_bits(), 0.25_f64.to_bits());
    let plan = parse_value(with("/limits", json!({"tenant_records": "5000000000"}))).unwrap();
    assert_eq!(plan.limits.tenant_records, Some(5_000_000_000));
    for odd in ["", "0x10", "1e3", "NaN", "inf", "-1", "+1", " 1", "1.2.3"] {
        assert!(
            parse_value(with("/enforce_fraction", json!(odd))).is_err(),
            "{odd}"
        );
    }
    assert!(parse_value(with("/mode", json!(true))).is_err());
}

#[test]
fn the_minimal_configuration_is_the_same_in_every_form() {
    let [from_json, from_struct] = both(&minimal());
    let plan = from_json.unwrap();
    assert_eq!(plan, from_struct.unwrap());
    assert_eq!(plan, parse_value(minimal()).unwrap());
    assert_eq!(plan.namespace, "default");
    assert_eq!(plan.mode, Mode::Enforce);
    assert_eq!(plan.store, Store::SharedData(Default::default()));
    assert_eq!(plan.tenant.sources, [Source::Header("x-tenant-id".into())]);
    assert!(!plan.tenant.required);
    let route = &plan.routes[0];
    assert_eq!(
        route.matcher.path,
        Some(PathMatch::Prefix("/v1/charges".into()))
    );
    assert_eq!(route.key, Default::default());
    assert_eq!(route.fingerprint, Default::default());
    assert_eq!(route.lease_ms, 30_000);
    assert_eq!(route.upstream.timeout_ms, 15_000);
    assert_eq!(route.upstream.execution, Execution::Inline);
    assert_eq!(route.replay.ttl_ms, 172_800_000);
    assert_eq!(route.replay.tombstone_ttl_ms, 604_800_000);
    assert_eq!(route.accepted_deadline_ms, 86_400_000);
    assert_eq!(route.in_flight.timeout_ms, 10_000);
    assert_eq!(route.unknown, UnknownPolicy::Refuse);
    assert_eq!(route.schema_version, "1");
}

#[test]
fn white_space_around_json_is_no_struct() {
    let expected = parse_value(minimal()).unwrap();
    for text in [
        format!("\n{}\n", minimal()),
        format!("\r\n\t {:#}", minimal()),
    ] {
        assert_eq!(parse(text.as_bytes()), Ok(expected.clone()));
    }
}

#[test]
fn a_share_may_be_a_whole_number() {
    for (written, share) in [(json!(1), 1.0), (json!(0), 0.0), (json!(0.5), 0.5)] {
        let [a, b] = both(&with("/enforce_fraction", written));
        assert_eq!(a.unwrap().enforce_fraction.to_bits(), f64::to_bits(share));
        assert_eq!(b.unwrap().enforce_fraction.to_bits(), f64::to_bits(share));
    }
}

#[test]
fn a_document_that_is_all_wrong_is_not_told_to_lack_what_was_not_read() {
    let members = (0..200).map(|i| (format!("x{i}"), json!(1)));
    for value in [json!([1]), json!("x"), Value::Object(members.collect())] {
        let errors = parse_value(value).unwrap_err();
        assert!(
            errors
                .errors()
                .iter()
                .all(|e| !e.path.starts_with("routes")),
            "{errors}"
        );
    }
}

#[test]
fn the_text_shown_to_those_who_wrote_nothing_is_the_minimal_configuration() {
    // Not parsed as YAML here (the core has no YAML): flow style keeps it close enough to compare.
    for part in [
        "store: { shared_data: {} }",
        "{ header: x-tenant-id }",
        "default: public",
        "- id: charges",
        "methods: [POST], path: { prefix: /v1/charges }",
    ] {
        assert!(MINIMAL.contains(part), "{part}");
    }
    for nothing in ["", "  \n", "{}", " {} ", "null"] {
        let said = parse(nothing.as_bytes()).unwrap_err().to_string();
        assert!(said.contains("is empty"), "{said}");
        assert!(said.contains(MINIMAL), "{said}");
    }
}

#[test]
fn attempts_are_detached_where_there_is_a_loopback_and_no_route_says_otherwise() {
    let config = |top: Option<&str>, defaults: Option<&str>, own: Option<&str>| {
        let mut config = minimal();
        config["signing"] = json!({"active": {"env": "IDEMPO_A"}});
        if let Some(cluster) = top {
            config["loopback_cluster"] = json!(cluster);
        }
        if let Some(word) = defaults {
            config["defaults"] = json!({"upstream": {"execution": word}});
        }
        if let Some(word) = own {
            config["routes"][0]["upstream"] = json!({"execution": word});
        }
        parse_value(config).map(|plan| (plan.loopback_cluster, plan.routes[0].upstream.execution))
    };
    let named = Some("self".to_owned());
    for (defaults, own, execution) in [
        (None, None, Execution::Detached),
        (None, Some("inline"), Execution::Inline),
        (Some("inline"), None, Execution::Inline),
        (Some("inline"), Some("detached"), Execution::Detached),
    ] {
        let seen = config(Some("self"), defaults, own).unwrap();
        assert_eq!(seen, (named.clone(), execution), "{defaults:?} {own:?}");
    }
    assert_eq!(config(None, None, None).unwrap(), (None, Execution::Inline));
    assert!(config(None, Some("detached"), None).is_err());
    assert!(config(None, Some("detached"), Some("inline")).is_ok());
}

#[test]
fn everything_at_once() {
    let config = json!({
        "namespace": "payments",
        "mode": "observe",
        "enforce_fraction": 0.25,
        "store": {"shared_data": {"records": "8MiB", "bodies": 33_554_432, "tombstones": "1MiB"}},
        "limits": {"tenant_records": 100_000, "worker_waiters": 64, "recording_bytes": "16MiB"},
        "signing": {"active": {"env": "IDEMPO_A"}, "previous": {"env": "IDEMPO_B"}},
        "tenant": {"required": true, "sources": [
            {"metadata": {"filter": "envoy.filters.http.jwt_authn", "path": ["claims", "org"]}},
            {"header": "X-Tenant-Id"},
        ]},
        "principal": {"property": ["connection", "uri_san_peer_certificate"]},
        "defaults": {
            "key": {"header": "X-Key", "max_length": 64},
            "replay": {"ttl": "259200s"},
            "statuses": {"payload_mismatch": 409, "in_flight": 425},
            "record": {"headers": {"deny": ["X-Secret"]}},
        },
        "routes": [
            {
                "id": "charges",
                "previous": [{"id": "old-charges", "tenant_default": "t"}],
                "mode": "enforce",
                "match": {"methods": ["POST", "PATCH"], "host": "*.example.com", "path": {"template": "/v1/orders/{id}/charges"},
                          "route_name": "r", "body": {"pointer": "/method", "exact": "tools/call"}},
                "key": {"body_field": null, "required": false, "formats": ["ulid"], "syntax": "strict"},
                "fingerprint": {"body": "json", "exclude": ["/sent_at"], "headers": ["X-Version"], "digest": "sha256", "max_body": "2MiB"},
                "upstream": {"timeout": "2.5s", "execution": "inline", "router_retries": {"allow": {"reason": "idempotent there"}}, "identity_encoding": false},
                "lease": "5s",
                "record": {"classes": {"preset": "record-all", "overrides": {"503": "release"}}, "headers": {"allow": ["Date"]}},
                "replay": {"tombstone_ttl": "0s", "max_inline_body": "512KiB"},
                "in_flight": {"action": "wait", "timeout": "3s", "max_waiters": 4},
                "unknown": {"retry": {"i_accept_duplicates": "harmless here"}},
                "store_failure": "open",
                "statuses": {"in_flight": 409},
                "schema_version": 7,
                "key_time": "ulid",
                "accepted_deadline": "3600s",
            },
            {"id": "rest", "match": {"metadata_only": true}, "unknown": {"forward": {"upstream_dedupes": true}}, "key_time": {"deadline_header": "X-Deadline"}},
        ],
    });
    let [from_json, from_struct] = both(&config);
    let plan = from_json.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(plan, from_struct.unwrap());
    let [charges, rest] = plan.routes.as_slice() else {
        panic!("two routes");
    };
    assert_eq!(charges.key.header, "x-key");
    assert_eq!(charges.key.max_length, 64);
    assert_eq!(charges.key.body_field, None);
    assert_eq!(rest.key.body_field.as_deref(), Some("/idempotency_key"));
    assert_eq!(charges.replay.ttl_ms, 259_200_000);
    assert_eq!(charges.replay.tombstone_ttl_ms, 0);
    assert_eq!(rest.replay.tombstone_ttl_ms, 604_800_000);
    assert_eq!(
        charges.statuses.values().copied().collect::<Vec<_>>(),
        [409, 409]
    );
    assert_eq!(
        rest.statuses.values().copied().collect::<Vec<_>>(),
        [409, 425]
    );
    assert_eq!(charges.record.allow_headers, ["date"]);
    assert_eq!(charges.record.deny_headers, ["x-secret"]);
    assert_eq!(charges.record.classes[0].class, Class::Release);
    assert_eq!(charges.schema_version, "7");
    assert_eq!(charges.upstream.timeout_ms, 2500);
    assert_eq!(
        charges.matcher.path,
        Some(PathMatch::Template(vec![
            Segment::Literal("v1".into()),
            Segment::Literal("orders".into()),
            Segment::Variable("id".into()),
            Segment::Literal("charges".into()),
        ]))
    );
    assert_eq!(rest.unknown, UnknownPolicy::Forward);
    assert!(plan.tenant.required);
}

#[test]
fn whether_a_tenant_is_required_follows_from_what_is_written() {
    let required = |tenant: Value| {
        parse_value(with("/tenant", tenant))
            .unwrap()
            .tenant
            .required
    };
    let sources = json!([{"header": "x-t"}]);
    assert!(required(json!({ "sources": sources })));
    assert!(!required(json!({"sources": sources, "default": "d"})));
    assert!(!required(json!({"sources": sources, "required": false})));
    assert!(!required(json!({})));
}

#[test]
fn windows_bind_only_what_can_happen() {
    // A rejected duplicate does not wait: lease + accepted_deadline, to the millisecond.
    assert_eq!(
        route("/replay/ttl", json!("86430s")).replay.ttl_ms,
        86_430_000
    );
    assert!(parse_value(with("/routes/0/replay/ttl", json!("86429.999s"))).is_err());
    // One that waits adds its wait.
    let mut waits = with("/routes/0/in_flight", json!({"action": "wait"}));
    set(&mut waits, "/routes/0/replay/ttl", json!("86439s"));
    assert!(parse_value(waits.clone()).is_err());
    set(&mut waits, "/routes/0/replay/ttl", json!("86440s"));
    assert!(parse_value(waits).is_ok());
    // Without acceptances their deadline does not count.
    let overrides = json!({"classes": {"overrides": {"202": "record"}}});
    let mut never = with("/routes/0/record", overrides);
    set(&mut never, "/routes/0/replay/ttl", json!("30s"));
    assert!(parse_value(never).is_ok());
}

#[test]
fn wrong_configurations_are_refused_at_the_right_place_in_both_forms() {
    for (config, path, fragment) in refused::all() {
        for refused in both(&config) {
            let Err(errors) = refused else {
                panic!("{path}: accepted {config}");
            };
            // One mistake, one error.
            let [error] = errors.errors() else {
                panic!("{path}: {errors}");
            };
            assert_eq!(error.path, path, "{error}");
            assert!(
                error.to_string().contains(fragment),
                "{fragment:?}: {error}"
            );
            assert!(!error.remedy.is_empty(), "{error}");
        }
    }
}

#[test]
fn many_mistakes_are_told_together_and_numbered() {
    let mut config = minimal();
    config["namespac"] = json!("x");
    config["routes"][0]["lease"] = json!("0s");
    config["routes"][0]["match"]["path"]["prefix"] = json!("v1/x");
    config["tenant"]["default"] = json!("");
    let said = parse_value(config).unwrap_err().to_string();
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[0], "4 errors in the idempo configuration:");
    assert!(lines[1].starts_with("1. namespac: "), "{said}");
    assert!(
        lines.iter().any(|l| l.ends_with(
            ". routes[0].match.path.prefix: \"v1/x\" does not start with \"/\"; write \"/v1/x\""
        )),
        "{said}"
    );
}

#[test]
fn errors_serialise_for_machines() {
    let errors = parse_value(with("/mode", json!("on"))).unwrap_err();
    assert_eq!(
        serde_json::to_value(&errors).unwrap(),
        json!([{"path": "mode", "problem": "unknown value \"on\"", "remedy": "known here: enforce, observe, off"}])
    );
}

#[test]
fn nothing_under_signing_is_echoed() {
    for signing in [
        json!("s3cret"),
        json!({"active": {"env": "s3cret value"}}),
        json!({"active": {"env": "A"}, "previous": {"env": "s3cret-value"}}),
        json!({"s3cret": null}),
        json!({"active": {"s3cret": 1e300}}),
        json!({"active": {"env": null}}),
        json!({"active": [["s3cret"]]}),
    ] {
        for refused in both(&with("/signing", signing)) {
            let said = refused.unwrap_err();
            assert!(!said.to_string().contains("s3cret"), "{said}");
            assert!(
                said.errors().iter().all(|e| e.path.starts_with("signing")),
                "{said}"
            );
        }
    }
}

#[test]
fn text_that_is_neither_form_is_refused_shortly() {
    for bytes in [
        &b"store: { shared_data: {} }"[..],
        b"{\"store\": }",
        b"\xef\xbb\xbf{}",
        b"\x0a\xff\x12",
        b"\x0a\x05\x0a\x01a\x12\x00",
        b"[1]",
        b"1",
        b"\"text\"",
        &[0xff; 64],
    ] {
        let said = parse(bytes).unwrap_err().to_string();
        assert!(said.len() < 700, "{said}");
    }
}

#[test]
fn a_rule_that_metadata_selects_is_never_shadowed() {
    let mut config = minimal();
    let routes = config["routes"].as_array_mut().unwrap();
    routes.push(json!({"id": "m", "match": {"metadata_only": true}}));
    routes.push(json!({"id": "n", "match": {"metadata_only": true}}));
    assert!(parse_value(config).is_ok());
}

#[test]
fn previous_may_name_the_route_itself_under_another_tenant_default() {
    let earlier = json!([{"id": "charges", "tenant_default": "before"}]);
    assert_eq!(route("/previous", earlier).previous.len(), 1);
}
