//! The whole way: bytes to plan, or to errors.

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

/// What is wrong, where it is said to be wrong, and a part of what is said.
fn wrong() -> Vec<(Value, &'static str, &'static str)> {
    let r = |pointer: &str, value: Value| with(&format!("/routes/0{pointer}"), value);
    let second = |route: Value| {
        let mut config = minimal();
        config["routes"].as_array_mut().unwrap().push(route);
        config
    };
    let prefix = |p: &str| json!({"path": {"prefix": p}});
    vec![
        // Structure.
        (
            with("/namespac", json!("x")),
            "namespac",
            "did you mean \"namespace\"",
        ),
        (
            with("/mode", json!("on")),
            "mode",
            "known here: enforce, observe, off",
        ),
        (with("/routes", json!({})), "routes", "write a list"),
        (
            with("/routes", json!([])),
            "routes",
            "nothing would be protected",
        ),
        (
            r("/lease", json!("5m")),
            "routes[0].lease",
            "write \"300s\"",
        ),
        (
            r("/lease", json!(30)),
            "routes[0].lease",
            "30 has no unit; write \"30s\"",
        ),
        (r("/lease", json!("-1s")), "routes[0].lease", "negative"),
        (
            r("/replay/ttl", json!("400000000s")),
            "routes[0].replay.ttl",
            "ten years",
        ),
        (
            r("/replay/max_inline_body", json!("1MB")),
            "routes[0].replay.max_inline_body",
            "KiB, MiB or GiB",
        ),
        (
            r("/replay/max_inline_body", json!(0.5)),
            "routes[0].replay.max_inline_body",
            "does not belong here",
        ),
        (r("/lease", Value::Null), "routes[0].lease", "is null"),
        (
            r("/key/header", Value::Null),
            "routes[0].key.header",
            "cannot be switched off",
        ),
        (
            with("/limits/tenant_records", json!(1e300)),
            "limits.tenant_records",
            "beyond the numbers",
        ),
        (
            with("/tenant", json!([true])),
            "tenant",
            "a list does not belong here",
        ),
        (
            with("/routes/0", json!(["charges"])),
            "routes[0]",
            "write a route such as",
        ),
        // Not in this version.
        (
            with("/store/redis", json!({})),
            "store.redis",
            "not available in this version",
        ),
        (
            with("/store", json!({"etcd": {}})),
            "store.etcd",
            "not available in this version",
        ),
        (
            with("/store", json!({"postgres": {}})),
            "store.postgres",
            "not available in this version",
        ),
        (
            with("/replay_cache", json!({})),
            "replay_cache",
            "would do nothing",
        ),
        (
            with("/loopback_cluster", json!("self")),
            "loopback_cluster",
            "not available in this version",
        ),
        (
            r("/upstream/execution", json!("detached")),
            "routes[0].upstream.execution",
            "not available in this version",
        ),
        (
            r("/unknown", json!("probe")),
            "routes[0].unknown",
            "not available in this version",
        ),
        (
            r("/unknown", json!({"probe": {}})),
            "routes[0].unknown.probe",
            "not available in this version",
        ),
        // Top.
        (with("/store", json!({})), "store", "names no engine"),
        (
            with("/store/shared_data/records", json!("32KiB")),
            "store.shared_data.records",
            "too small",
        ),
        (
            with("/store/shared_data/bodies", json!("64KiB")),
            "routes[0].replay.max_inline_body",
            "more than store.shared_data.bodies holds",
        ),
        (
            with("/enforce_fraction", json!(1.5)),
            "enforce_fraction",
            "from 0",
        ),
        (
            with("/enforce_fraction", json!(-0.1)),
            "enforce_fraction",
            "from 0",
        ),
        (with("/namespace", json!("")), "namespace", "is empty"),
        (
            with("/tenant/default", json!("")),
            "tenant.default",
            "is empty",
        ),
        (
            with("/tenant", json!({"required": true})),
            "tenant.required",
            "no source",
        ),
        (
            with("/tenant/required", json!(true)),
            "tenant.default",
            "contradict",
        ),
        (
            with("/tenant/sources/0", json!({})),
            "tenant.sources[0]",
            "names no source",
        ),
        (
            with("/tenant/sources/0/property", json!(["a"])),
            "tenant.sources[0]",
            "several sources",
        ),
        (
            with(
                "/tenant/sources/0",
                json!({"metadata": {"filter": "f", "path": []}}),
            ),
            "tenant.sources[0].metadata.path",
            "0 names",
        ),
        (
            with("/principal", json!({"header": ":authority"})),
            "principal.header",
            "pseudo header",
        ),
        (
            with("/principal", json!({"header": "X-Idempo-Tenant"})),
            "principal.header",
            "filter itself",
        ),
        (
            with("/signing", json!({"active": {"env": "no-name"}})),
            "signing.active.env",
            "environment variable",
        ),
        (
            with("/signing", json!({"active": "literal"})),
            "signing.active",
            "never written here",
        ),
        (
            with("/limits/worker_waiters", json!(0)),
            "limits.worker_waiters",
            "nobody",
        ),
        // Rules.
        (r("/id", json!("Charges")), "routes[0].id", "small letters"),
        (r("/match", json!({})), "routes[0].match", "every write"),
        (
            r("/match", prefix("v1/x")),
            "routes[0].match.path.prefix",
            "\"v1/x\" does not start with \"/\"; write \"/v1/x\"",
        ),
        (
            r("/match", prefix("/v1?x")),
            "routes[0].match.path.prefix",
            "query",
        ),
        (
            r("/match", prefix("/v1/../x")),
            "routes[0].match.path.prefix",
            "dot segment",
        ),
        (
            r("/match", prefix("/v1/%63")),
            "routes[0].match.path.prefix",
            "escape",
        ),
        (
            r("/match", json!({"path": {"template": "/{a}/{a}"}})),
            "routes[0].match.path.template",
            "twice",
        ),
        (
            r("/match", json!({"path": {"template": "/{a"}})),
            "routes[0].match.path.template",
            "segment of a template",
        ),
        (
            r("/match", json!({"path": {}})),
            "routes[0].match.path",
            "names no path",
        ),
        (
            r("/match/methods", json!(["GET"])),
            "routes[0].match.methods[0]",
            "safe method",
        ),
        (
            r("/match/methods", json!(["post"])),
            "routes[0].match.methods[0]",
            "write \"POST\"",
        ),
        (
            r("/match/metadata_only", json!(true)),
            "routes[0].match.metadata_only",
            "do nothing",
        ),
        (
            second(json!({"id": "charges", "match": prefix("/v2")})),
            "routes[1].id",
            "routes[0] already",
        ),
        (
            second(
                json!({"id": "b", "match": {"methods": ["POST"], "path": {"exact": "/v1/charges/x"}}}),
            ),
            "routes[1].match",
            "never be reached",
        ),
        (
            r("/previous", json!([{"id": "charges"}])),
            "routes[0].previous[0].id",
            "itself",
        ),
        (
            second(json!({"id": "b", "match": prefix("/v2"), "previous": [{"id": "charges"}]})),
            "routes[1].previous[0].id",
            "still exists",
        ),
        // Parts.
        (r("/lease", json!("0s")), "routes[0].lease", "too short"),
        (
            r("/replay/ttl", json!("3600s")),
            "routes[0].replay.ttl",
            "write \"86430s\" or more",
        ),
        (
            with("/defaults", json!({"lease": "0.5s"})),
            "defaults.lease",
            "too short",
        ),
        (
            r("/key/header", json!("bad name")),
            "routes[0].key.header",
            "not a header name",
        ),
        (
            r("/key/header", json!("x-tenant-id")),
            "routes[0].key.header",
            "source of the tenant",
        ),
        (
            r("/key/body_field", json!("idempotency_key")),
            "routes[0].key.body_field",
            "write \"/idempotency_key\"",
        ),
        (
            r("/key/max_length", json!(256)),
            "routes[0].key.max_length",
            "1 to 255",
        ),
        (
            r("/key/max_length", json!(0)),
            "routes[0].key.max_length",
            "1 to 255",
        ),
        (
            r(
                "/key",
                json!({"formats": ["opaque"], "min_entropy_bytes": 64, "max_length": 32}),
            ),
            "routes[0].key.max_length",
            "no room",
        ),
        (
            r("/key/formats", json!([])),
            "routes[0].key.formats",
            "no key at all",
        ),
        (
            r("/key/case", json!("insensitive")),
            "routes[0].key.case",
            "base64url",
        ),
        (
            r("/key_time", json!("ulid")),
            "routes[0].key_time",
            "accepts no ulid keys",
        ),
        (
            r("/key", json!({"formats": ["opaque"]}))
                .tap(|v| set(v, "/routes/0/key_time", json!("uuidv7"))),
            "routes[0].key_time",
            "accepts no uuid keys",
        ),
        (
            r(
                "/fingerprint",
                json!({"include": ["/a"], "exclude": ["/b"]}),
            ),
            "routes[0].fingerprint.exclude",
            "contradict",
        ),
        (
            r("/fingerprint", json!({"body": "raw", "include": ["/a"]})),
            "routes[0].fingerprint.include",
            "does not read bodies as JSON",
        ),
        (
            r("/fingerprint/include", json!(["a"])),
            "routes[0].fingerprint.include[0]",
            "JSON Pointer",
        ),
        (
            r("/fingerprint/headers", json!(["X-Request-Id"])),
            "routes[0].fingerprint.headers[0]",
            "every retry",
        ),
        (
            r("/fingerprint/headers", json!(["Idempotency-Key"])),
            "routes[0].fingerprint.headers[0]",
            "identity",
        ),
        (
            r("/record/headers", json!({"allow": ["Set-Cookie"]})),
            "routes[0].record.headers.allow[0]",
            "never stored",
        ),
        (
            r(
                "/record/headers",
                json!({"allow": ["date"], "deny": ["Date"]}),
            ),
            "routes[0].record.headers.allow[0]",
            "denied",
        ),
        (
            r("/record/classes", json!({"overrides": {"600": "record"}})),
            "routes[0].record.classes.overrides.600",
            "within 200 and 599",
        ),
        (
            r("/record/classes", json!({"overrides": {"2xx": "release"}})),
            "routes[0].record.classes.overrides.2xx",
            "run again",
        ),
        (
            r(
                "/record/classes",
                json!({"overrides": {"400-450": "record", "430-499": "unknown"}}),
            ),
            "routes[0].record.classes.overrides.430-499",
            "430",
        ),
        (
            r("/upstream/timeout", json!("0s")),
            "routes[0].upstream.timeout",
            "no time-out",
        ),
        (
            r(
                "/upstream/router_retries",
                json!({"allow": {"reason": " "}}),
            ),
            "routes[0].upstream.router_retries.allow.reason",
            "no reason",
        ),
        (
            r("/unknown", json!({"retry": {}})),
            "routes[0].unknown.retry.i_accept_duplicates",
            "is missing",
        ),
        (
            r("/unknown", json!({"retry": {"i_accept_duplicates": ""}})),
            "routes[0].unknown.retry.i_accept_duplicates",
            "no reason",
        ),
        (
            r("/unknown", json!({"forward": {"upstream_dedupes": false}})),
            "routes[0].unknown.forward.upstream_dedupes",
            "not stated",
        ),
        (
            r("/unknown", json!("retry")),
            "routes[0].unknown",
            "needs a reason",
        ),
        (
            r("/in_flight", json!({"action": "reject", "timeout": "1s"})),
            "routes[0].in_flight.timeout",
            "does nothing",
        ),
        (
            r("/in_flight", json!({"action": "wait", "max_waiters": 2000})),
            "routes[0].in_flight.max_waiters",
            "worker_waiters",
        ),
        (
            r("/statuses", json!({"payload_mismach": 409})),
            "routes[0].statuses.payload_mismach",
            "did you mean \"payload_mismatch\"",
        ),
        (
            r("/statuses", json!({"payload_mismatch": 200})),
            "routes[0].statuses.payload_mismatch",
            "400 to 599",
        ),
        (
            r("/schema_version", json!("")),
            "routes[0].schema_version",
            "is empty",
        ),
    ]
}

trait Tap: Sized {
    fn tap(mut self, edit: impl FnOnce(&mut Self)) -> Self {
        edit(&mut self);
        self
    }
}
impl Tap for Value {}

#[test]
fn wrong_configurations_are_refused_at_the_right_place_in_both_forms() {
    for (config, path, fragment) in wrong() {
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

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use super::*;
    use proptest::prelude::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,12}".prop_map(Value::from),
            prop_oneof![
                Just("30s"),
                Just("64MiB"),
                Just("POST"),
                Just("/v1/{id}"),
                Just("strict")
            ]
            .prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 48, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map(known_name(), inner, 0..6)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    /// Names that lead deep into the model, and some that do not.
    fn known_name() -> impl Strategy<Value = String> {
        prop_oneof![
            proptest::sample::select(vec![
                "store",
                "shared_data",
                "records",
                "limits",
                "signing",
                "active",
                "env",
                "tenant",
                "sources",
                "header",
                "metadata",
                "property",
                "path",
                "defaults",
                "routes",
                "id",
                "match",
                "methods",
                "prefix",
                "template",
                "exact",
                "body",
                "key",
                "formats",
                "record",
                "classes",
                "overrides",
                "5xx",
                "replay",
                "ttl",
                "unknown",
                "retry",
                "statuses",
                "key_time",
                "lease",
                "upstream",
            ])
            .prop_map(ToOwned::to_owned),
            "\\PC{0,8}",
        ]
    }

    /// The minimal configuration with one random value at a place that exists.
    fn nearly_right() -> impl Strategy<Value = Value> {
        let places = vec![
            "/store/shared_data",
            "/store",
            "/tenant",
            "/limits",
            "/defaults",
            "/routes/0",
            "/routes/0/match",
            "/routes/0/key",
            "/routes/0/record",
            "/routes/0/replay",
            "/routes/0/unknown",
            "/routes/0/statuses",
            "/enforce_fraction",
            "/routes/0/lease",
            "/routes/0/schema_version",
        ];
        (proptest::sample::select(places), any_json()).prop_map(|(place, value)| with(place, value))
    }

    /// Members that a valid configuration may have, so that plans are compared, too.
    fn right() -> impl Strategy<Value = Value> {
        (
            1_u32..100,
            100_000_u32..400_000,
            64_u64..4096,
            1_u32..=255,
            0.0..=1.0_f64,
            any::<bool>(),
        )
            .prop_map(|(lease, ttl, kib, version, fraction, flag)| {
                let mut config = minimal();
                set(&mut config, "/routes/0/lease", json!(format!("{lease}.5s")));
                set(
                    &mut config,
                    "/routes/0/replay/ttl",
                    json!(format!("{ttl}s")),
                );
                set(&mut config, "/store/shared_data/records", json!(kib * 1024));
                set(&mut config, "/routes/0/schema_version", json!(version));
                set(
                    &mut config,
                    "/routes/0/upstream/identity_encoding",
                    json!(flag),
                );
                set(&mut config, "/enforce_fraction", json!(fraction));
                config
            })
    }

    fn agree(config: &Value) -> Result<bool, TestCaseError> {
        let [from_json, from_struct] = both(config);
        prop_assert_eq!(&from_json, &from_struct);
        Ok(from_json.is_ok())
    }

    proptest! {
        #[test]
        fn any_value_is_survived(value in any_json()) {
            let _ = parse_value(value.clone());
            let _ = parse(value.to_string().as_bytes());
        }

        #[test]
        fn any_octets_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let mut tagged = vec![0x0a];
            tagged.extend(&bytes);
            tagged.push(0x12);
            let _ = parse(&tagged);
        }

        #[test]
        fn damaged_struct_bytes_are_survived(at in 0_usize..120, octet in any::<u8>()) {
            let mut bytes = struct_pb::encode(&minimal());
            let at = at % bytes.len();
            bytes[at] = octet;
            let _ = parse(&bytes);
        }

        #[test]
        fn both_forms_agree_on_what_is_nearly_right(config in nearly_right()) {
            agree(&config)?;
        }

        #[test]
        fn both_forms_give_the_same_plan(config in right()) {
            prop_assert!(agree(&config)?);
        }
    }
}
