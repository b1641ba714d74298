//! Configurations that are refused, each with the place and a part of what must be said.

use super::*;

/// What is wrong, where it is said to be wrong, and a part of what is said.
pub(super) fn all() -> Vec<(Value, &'static str, &'static str)> {
    let r = |pointer: &str, value: Value| with(&format!("/routes/0{pointer}"), value);
    let second = |route: Value| {
        let mut config = minimal();
        config["routes"].as_array_mut().unwrap().push(route);
        config
    };
    let redis = |pointer: &str, value: Value| {
        let mut config = with_redis();
        set(&mut config, &format!("/store/redis{pointer}"), value);
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
            "needs signing",
        ),
        (
            with("/loopback_cluster", json!("")),
            "loopback_cluster",
            "is empty",
        ),
        (
            r("/upstream/execution", json!("detached")),
            "routes[0].upstream.execution",
            "none is named",
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
        // A remote store, and what belongs to it.
        (
            with("/store/redis", json!({"cluster": "r", "transport": "resp"})),
            "store",
            "several engines",
        ),
        (
            with("/store", json!({"redis": "redis://:s3cret@redis:6379"})),
            "store.redis",
            "a text does not belong here; write an object such as {cluster",
        ),
        (
            redis("/cluster", json!("")),
            "store.redis.cluster",
            "is empty",
        ),
        (
            redis("/cluster", json!("outbound|7379||webdis.svc")),
            "store.redis.authority",
            "stands in for it",
        ),
        (
            redis("/authority", json!("http://redis")),
            "store.redis.authority",
            "without scheme, user or path",
        ),
        (
            redis("/transport", json!("http")),
            "store.redis.transport",
            "known here: webdis, rest, resp",
        ),
        (
            redis("/topology", json!("sentinel")),
            "store.redis.topology",
            "known here: standalone, cluster",
        ),
        (
            redis(
                "",
                json!({"cluster": "store", "transport": "resp", "topology": "cluster"}),
            ),
            "store.redis.topology",
            "write transport: webdis",
        ),
        (
            redis("/prefix", json!("{x}")),
            "store.redis.prefix",
            "1 to 32 letters",
        ),
        (redis("/prefix", json!("")), "store.redis.prefix", "1 to 32"),
        (
            redis("/prefix", json!("x".repeat(33))),
            "store.redis.prefix",
            "1 to 32",
        ),
        (
            redis("/timeout", json!("0.009s")),
            "store.redis.timeout",
            "outside of \"0.01s\" to \"10s\"",
        ),
        (
            redis("/timeout", json!("10.001s")),
            "store.redis.timeout",
            "outside",
        ),
        (
            redis("/timeout", json!("500ms")),
            "store.redis.timeout",
            "write \"0.5s\"",
        ),
        (
            redis("/hold", json!("29.999s")),
            "store.redis.hold",
            "write \"30s\" or more",
        ),
        (
            redis("/token", json!({"env": "T"})),
            "store.redis.token",
            "is no credential of transport webdis; write authorization: {env: NAME}",
        ),
        (
            redis("/login", json!({"password": {"env": "T"}})),
            "store.redis.login",
            "write authorization: {env: NAME}",
        ),
        (
            redis("/transport", json!("rest"))
                .tap(|v| set(v, "/store/redis/authorization", json!({"env": "T"}))),
            "store.redis.authorization",
            "write token: {env: NAME}",
        ),
        (
            redis("/transport", json!("resp"))
                .tap(|v| set(v, "/store/redis/token", json!({"env": "T"}))),
            "store.redis.token",
            "write login: {user: NAME, password: {env: NAME}}",
        ),
        (
            redis("/transport", json!("resp"))
                .tap(|v| set(v, "/store/redis/login", json!({"user": "idempo"}))),
            "store.redis.login.password",
            "is missing",
        ),
        (
            redis("/transport", json!("resp")).tap(|v| {
                set(
                    v,
                    "/store/redis/login",
                    json!({"user": "a b", "password": {"env": "P"}}),
                );
            }),
            "store.redis.login.user",
            "not the name of a user",
        ),
        (
            redis("/authorization", json!("Basic s3cret")),
            "store.redis.authorization",
            "never written here; write {env: NAME}",
        ),
        (
            redis("/authorization", json!({})),
            "store.redis.authorization.env",
            "is missing",
        ),
        (
            redis("/authorization", json!({"env": "Basic s3cret"})),
            "store.redis.authorization.env",
            "put the secret into that variable",
        ),
        (
            redis("/password", json!("s3cret")),
            "store.redis.password",
            "this alone is no login",
        ),
        (
            redis("/url", json!("redis://s3cret")),
            "store.redis.url",
            "write cluster: NAME",
        ),
        (
            redis("/memory", json!("512MiB")),
            "store.redis.memory",
            "unknown field",
        ),
        (
            redis("", json!({"transport": "webdis"})),
            "store.redis.cluster",
            "is missing",
        ),
        (
            redis("", json!({"cluster": "r"})),
            "store.redis.transport",
            "webdis, rest or resp",
        ),
        (
            redis("", json!({"cluster": "r", "transport": "resp"}))
                .tap(|v| set(v, "/routes/0/replay", json!({"max_inline_body": "9MiB"}))),
            "routes[0].replay.max_inline_body",
            "one call to the store carries; write \"8MiB\" or less",
        ),
        (
            redis("/prefix", json!("p")).tap(|v| set(v, "/replay_cache", json!({"bytes": "1KiB"}))),
            "replay_cache.bytes",
            "too small",
        ),
        (
            redis("/prefix", json!("p")).tap(|v| set(v, "/replay_cache", json!("16MiB"))),
            "replay_cache",
            "such as {bytes: 16MiB}",
        ),
        (
            with("/replay_cache", json!({"bytes": 0})),
            "replay_cache",
            "would do nothing",
        ),
        (
            redis("/prefix", json!("p")).tap(|v| set(v, "/limits", json!({"store_calls": 65}))),
            "limits.store_calls",
            "65 is outside of 1 to 64",
        ),
        (
            redis("/prefix", json!("p")).tap(|v| set(v, "/limits", json!({"store_batch": 257}))),
            "limits.store_batch",
            "outside of 1 to 256",
        ),
        (
            redis("/prefix", json!("p")).tap(|v| set(v, "/limits", json!({"store_queue": 15}))),
            "limits.store_queue",
            "outside of 16 to 65536",
        ),
        (
            with("/limits", json!({"store_queue": 64})),
            "limits.store_queue",
            "no call leads to shared_data",
        ),
        (
            with("/limits", json!({"tenant_claims_per_second": 0})),
            "limits.tenant_claims_per_second",
            "refuse every write",
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
