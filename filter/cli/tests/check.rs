//! `idempo check` on files, right and wrong.

mod common;

use common::{check_text, file, fixture, idempo, idempo_with, repository};

/// The least that works, in places that a test can change.
fn with(top: &str, route: &str) -> String {
    format!(
        "store: {{ shared_data: {{}} }}\ntenant: {{ sources: [{{ header: x-tenant-id }}], default: public }}\n{top}\nroutes:\n  - id: charges\n    match: {{ methods: [POST], path: {{ prefix: /v1/charges }} }}\n{route}\n"
    )
}

#[test]
fn good_configurations_pass_in_yaml_json_and_from_the_standard_input() {
    let ran = idempo(&["check", &fixture("shop.yaml")]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(
        ran.out
            .ends_with("ok, 2 routes, store shared_data, namespace shop, mode enforce\n")
    );
    let json = r#"{"enforce_fraction": 0.5, "store": {"shared_data": {}},
        "routes": [{"id": "a", "match": {"path": {"prefix": "/a"}}}]}"#;
    assert_eq!(check_text(json).code, 0);
    let (_keep, path) = file("own.json", json);
    assert_eq!(idempo(&["check", &path]).code, 0);
    assert_eq!(check_text(&format!("\u{feff}{}", with("", ""))).code, 0);
}

#[test]
fn the_shipped_envoy_configuration_passes_without_a_warning() {
    let ran = idempo(&["check", &repository("envoy/envoy.yaml")]);
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert!(
        ran.out
            .contains("http_filters[1].typed_config.config.configuration (plugin idempo): ok")
    );
    assert!(!ran.out.contains("warning"), "{}", ran.out);
    // Of the data listener and of the loopback.
    assert_eq!(ran.out.lines().count(), 2);
}

#[test]
fn the_examples_envoy_configurations_pass_without_a_warning() {
    let ran = idempo(&["check", &repository("examples/redis/envoy.yaml")]);
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert!(
        ran.out.contains("store redis, namespace payments"),
        "{}",
        ran.out
    );
    assert!(!ran.out.contains("warning"), "{}", ran.out);
}

#[test]
fn wrong_configurations_are_refused_with_place_and_remedy() {
    let top = |text: &str| with(text, "");
    let route = |text: &str| with("", &format!("    {text}"));
    let matching = |text: &str| {
        format!("store: {{ shared_data: {{}} }}\nroutes:\n  - id: charges\n    match: {text}\n")
    };
    let redis = |members: &str, more: &str| {
        format!(
            "store: {{ redis: {{ {members} }} }}\n{more}\nroutes: [{{ id: a, match: {{ path: {{ prefix: /a }} }} }}]"
        )
    };
    for (yaml, path, part) in [
        (top("namespac: x"), "namespac", "did you mean \"namespace\""),
        (
            top("mode: \"on\""),
            "mode",
            "known here: enforce, observe, off",
        ),
        (top("enforce_fraction: 2"), "enforce_fraction", "from 0"),
        (top("namespace: ''"), "namespace", "is empty"),
        (
            top("loopback_cluster: self"),
            "loopback_cluster",
            "needs signing",
        ),
        (
            top("limits: { worker_waiters: 0 }"),
            "limits.worker_waiters",
            "nobody",
        ),
        (
            top("principal: { header: ':authority' }"),
            "principal.header",
            "pseudo header",
        ),
        (
            top("signing: { active: { env: no-name } }"),
            "signing.active.env",
            "environment variable",
        ),
        (
            top("signing: { active: literal }"),
            "signing.active",
            "never written here",
        ),
        (
            top("defaults: { lease: 0.5s }"),
            "defaults.lease",
            "too short",
        ),
        (
            "store: { etcd: {} }\nroutes: [{ id: a, match: { path: { prefix: /a } } }]".to_owned(),
            "store.etcd",
            "not available in this version",
        ),
        (
            redis("transport: webdis", ""),
            "store.redis.cluster",
            "is missing",
        ),
        (
            redis("cluster: r, transport: webdsi", ""),
            "store.redis.transport",
            "did you mean \"webdis\"",
        ),
        (
            redis("cluster: r, transport: webdis, token: { env: T }", ""),
            "store.redis.token",
            "write authorization: {env: NAME}",
        ),
        (
            redis("cluster: r, transport: rest, token: literal", ""),
            "store.redis.token",
            "never written here",
        ),
        (
            redis("cluster: r, transport: resp, timeout: 500ms", ""),
            "store.redis.timeout",
            "write \"0.5s\"",
        ),
        (
            redis("cluster: r, transport: resp, hold: 1s", ""),
            "store.redis.hold",
            "write \"30s\" or more",
        ),
        (
            redis("cluster: r, transport: resp", "limits: { store_calls: 0 }"),
            "limits.store_calls",
            "write 1 to 64",
        ),
        (
            top("replay_cache: { bytes: 16MiB }"),
            "replay_cache",
            "would do nothing",
        ),
        (
            top("limits: { store_batch: 8 }"),
            "limits.store_batch",
            "no call leads to shared_data",
        ),
        (
            "store: { shared_data: {} }\nroutes: []".to_owned(),
            "routes",
            "nothing would be protected",
        ),
        (route("lease: 5m"), "routes[0].lease", "write \"300s\""),
        (
            route("lease: 30"),
            "routes[0].lease",
            "30 has no unit; write \"30s\"",
        ),
        (route("lease: ~"), "routes[0].lease", "is null"),
        (route("lease:"), "routes[0].lease", "is null"),
        (
            route("replay: { ttl: 3600s }"),
            "routes[0].replay.ttl",
            "write \"86430s\" or more",
        ),
        (
            route("replay: { max_inline_body: 1MB }"),
            "routes[0].replay.max_inline_body",
            "KiB, MiB or GiB",
        ),
        (
            route("key: { header: ~ }"),
            "routes[0].key.header",
            "cannot be switched off",
        ),
        (
            route("key: { max_length: 256 }"),
            "routes[0].key.max_length",
            "1 to 255",
        ),
        (
            route("key: { case: insensitive }"),
            "routes[0].key.case",
            "base64url",
        ),
        (
            route("key_time: ulid"),
            "routes[0].key_time",
            "accepts no ulid keys",
        ),
        (
            route("fingerprint: { include: [/a], exclude: [/b] }"),
            "routes[0].fingerprint.exclude",
            "contradict",
        ),
        (
            route("fingerprint: { headers: [X-Request-Id] }"),
            "routes[0].fingerprint.headers[0]",
            "every retry",
        ),
        (
            route("record: { headers: { allow: [Set-Cookie] } }"),
            "routes[0].record.headers.allow[0]",
            "never stored",
        ),
        (
            route("record: { classes: { overrides: { 600: record } } }"),
            "routes[0].record.classes.overrides.600",
            "within 200 and 599",
        ),
        (
            route("unknown: retry"),
            "routes[0].unknown",
            "needs a reason",
        ),
        (
            route("unknown: { probe: {} }"),
            "routes[0].unknown.probe",
            "not available in this version",
        ),
        (
            route("statuses: { payload_mismach: 409 }"),
            "routes[0].statuses.payload_mismach",
            "did you mean \"payload_mismatch\"",
        ),
        (
            route("statuses: { payload_mismatch: 200 }"),
            "routes[0].statuses.payload_mismatch",
            "400 to 599",
        ),
        (
            route("previous: [{ id: charges }]"),
            "routes[0].previous[0].id",
            "itself",
        ),
        (
            route("upstream: { timeout: 0s }"),
            "routes[0].upstream.timeout",
            "no time-out",
        ),
        (
            route("<<: { lease: 30s }"),
            "routes[0][\"<<\"]",
            "unknown field",
        ),
        (matching("{}"), "routes[0].match", "every write"),
        (
            matching("{ path: { prefix: v1/x } }"),
            "routes[0].match.path.prefix",
            "write \"/v1/x\"",
        ),
        (
            matching("{ methods: [GET], path: { prefix: /a } }"),
            "routes[0].match.methods[0]",
            "safe method",
        ),
        // Words and numbers that Envoy does not hand on as they look.
        (
            top("namespace: y"),
            "namespace",
            "true does not belong here",
        ),
        (
            route("schema_version: ''"),
            "routes[0].schema_version",
            "is empty",
        ),
        (
            route("key: { required: 'false' }"),
            "routes[0].key.required",
            "write true or false",
        ),
    ] {
        let ran = check_text(&yaml);
        assert_eq!(ran.code, 1, "{yaml}\n{}{}", ran.out, ran.err);
        let line = format!("{path}: ");
        let told = ran
            .out
            .lines()
            .any(|l| l.contains(&line) && l.contains(part));
        assert!(told, "{path}: {part}\n{yaml}\n{}", ran.out);
        assert!(
            ran.out.contains("in the idempo configuration:\n1. "),
            "{}",
            ran.out
        );
    }
}

#[test]
fn all_errors_are_told_as_the_filter_tells_them() {
    let yaml = with("mode: enforced", "    lease: 5m");
    let ran = check_text(&yaml);
    let value: serde_json::Value = serde_json::json!({
        "store": {"shared_data": {}}, "mode": "enforced",
        "tenant": {"sources": [{"header": "x-tenant-id"}], "default": "public"},
        "routes": [{"id": "charges", "lease": "5m", "match": {"methods": ["POST"], "path": {"prefix": "/v1/charges"}}}],
    });
    let core = idempo_core::config::parse_value(value).expect_err("refused");
    assert_eq!(ran.out, format!("standard input: refused\n{core}\n"));
    let json = idempo_with(&["check", "-", "--format", "json"], yaml.as_bytes());
    assert_eq!(json.code, 1);
    let errors = &json.json()["configurations"][0]["errors"];
    assert_eq!(*errors, serde_json::to_value(&core).expect("JSON"));
}

#[test]
fn what_envoy_reads_otherwise_is_pointed_at() {
    let ran = check_text(&with("namespace: no", ""));
    assert_eq!(ran.code, 1);
    assert!(
        ran.out
            .contains("note: line 3: Envoy reads a plain no as false"),
        "{}",
        ran.out
    );
    let quoted = check_text(&with("namespace: 'no'", ""));
    assert_eq!(quoted.code, 0, "{}", quoted.out);
    // A secret that went astray is not echoed by the note either.
    let ran = check_text(&with("signing: { active: 0.12345 }", ""));
    assert_eq!(ran.code, 1);
    assert!(!ran.out.contains("12345"), "{}", ran.out);
    let redis = |members: &str| {
        format!(
            "store: {{ redis: {{ cluster: r, transport: resp, {members} }} }}\nroutes: [{{ id: a, match: {{ path: {{ prefix: /a }} }} }}]"
        )
    };
    for secret in [
        "token: 0.12345",
        "authorization: 0.12345",
        "login: 0.12345",
        "login: { password: 0.12345 }",
        "login: { user: [0.12345], password: { env: P } }",
    ] {
        let ran = check_text(&redis(secret));
        assert_eq!(ran.code, 1, "{secret}");
        assert!(!ran.out.contains("12345"), "{}", ran.out);
    }
    let ran = check_text(&redis("prefix: no"));
    assert!(
        ran.out
            .contains("note: line 1: Envoy reads a plain no as false"),
        "{}",
        ran.out
    );
}

#[test]
fn what_cannot_be_read_is_one_line() {
    idempo(&["check", "/nonexistent/x.yaml"]).complains("/nonexistent/x.yaml: No such file");
    idempo(&["check", "/"]).complains("Is a directory");
    check_text("a: [1").complains("line ");
    check_text("store: {}\nstore: {}\n").complains("line 2: the same member twice");
    check_text("a: 1\n---\nb: 2\n").complains("several documents");
    check_text("kind: ConfigMap\napiVersion: v1\n").complains("no idempo configuration");
    check_text("static_resources: {}\n").complains("no wasm plugin in it");
    idempo_with(&["check", "-"], b"\xff\xfe").complains("is not UTF-8");
    let (_keep, path) = file("x.json", "{\"a\": 1, \"a\": 2}");
    idempo(&["check", &path]).complains("the same member twice");
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let before = vec![format!("*a{}", level - 1); 10].join(", ");
        laughs += &format!("a{level}: &a{level} [{before}]\n");
    }
    check_text(&laughs).complains("stand for more than");
    check_text(&"[".repeat(200_000)).complains("not YAML");
    let none = idempo(&["check"]);
    assert_eq!(none.code, 2);
    assert!(none.err.contains("Usage"));
}

#[test]
fn nothing_is_the_empty_configuration() {
    for text in ["", "# only a comment\n", "{}", "---\n"] {
        let ran = check_text(text);
        assert_eq!(ran.code, 1, "{text:?}");
        assert!(
            ran.out.contains("the configuration is empty"),
            "{}",
            ran.out
        );
    }
}

#[test]
fn the_schema_is_the_one_that_is_checked_in() {
    let ran = idempo(&["schema"]);
    assert_eq!(ran.code, 0);
    let text = std::fs::read_to_string(repository("docs/config.schema.json")).expect("the schema");
    let checked_in: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(ran.json(), checked_in);
}
