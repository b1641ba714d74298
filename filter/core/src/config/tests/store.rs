//! The Redis store, from what is written to the engine.

use super::*;
use crate::plan::{RedisLogin, RedisStore, RedisTransport};
use crate::store::redis::{DOUBT_MS, Layout, Script};
use crate::store::remote::{Batch, Limits, Nonce};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn redis(config: Value) -> RedisStore {
    let [from_json, from_struct] = both(&config);
    let plan = from_json.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(plan, from_struct.unwrap());
    match plan.store {
        Store::Redis(store) => *store,
        other => panic!("{other:?}"),
    }
}

#[test]
fn defaults() {
    let store = redis(with_redis());
    assert_eq!(
        store,
        RedisStore {
            cluster: "redis-webdis".into(),
            authority: "redis-webdis".into(),
            transport: RedisTransport::Webdis {
                authorization_env: None
            },
            layout: Layout::new("idempo"),
            per_shard: false,
            timeout_ms: 500,
            hold_ms: 30_000,
            calls: 4,
            batch: Limits::default(),
            queue: 4096,
        }
    );
    let plan = parse_value(with_redis()).unwrap();
    assert_eq!(plan.store.name(), "redis");
    assert_eq!(plan.replay_cache_bytes, 16 << 20);
    assert_eq!(plan.limits.tenant_claims_per_second, None);
    assert_eq!(parse_value(minimal()).unwrap().replay_cache_bytes, 0);
}

#[test]
fn everything_written() {
    let mut config = with_redis();
    config["store"] = json!({"redis": {
        "cluster": "outbound|7379||webdis.payments.svc", "transport": "webdis", "authority": "webdis.payments.svc:7379",
        "topology": "cluster", "prefix": "pay-1_x", "timeout": "0.25s", "hold": "120s",
        "authorization": {"env": "WEBDIS_AUTHORIZATION"},
    }});
    config["replay_cache"] = json!({"bytes": 0});
    config["limits"] = json!({
        "store_calls": 64, "store_batch": 256, "store_queue": 65_536, "tenant_claims_per_second": 200,
    });
    let plan = parse_value(config.clone()).unwrap();
    assert_eq!(plan.replay_cache_bytes, 0);
    assert_eq!(plan.limits.tenant_claims_per_second, Some(200));
    let store = redis(config);
    assert_eq!(store.authority, "webdis.payments.svc:7379");
    assert_eq!(store.transport.secret_env(), Some("WEBDIS_AUTHORIZATION"));
    assert_eq!(store.layout, Layout::new("pay-1_x"));
    assert!(store.per_shard);
    assert_eq!((store.timeout_ms, store.hold_ms), (250, 120_000));
    assert_eq!((store.calls, store.queue), (64, 65_536));
    assert_eq!(store.batch.operations, 256);
}

#[test]
fn raw_resp_asks_for_no_more_than_redis_writes_at_once() {
    let mut config = with_redis();
    config["store"] = json!({"redis": {"cluster": "store", "transport": "resp"}});
    config["limits"] = json!({"store_batch": 256});
    let batch = redis(config.clone()).batch;
    let largest = batch.operations * 3072 + batch.bodies * (12 << 10) * 4 / 3;
    assert!(largest <= 40 << 10, "{batch:?}");
    assert_eq!(batch.bytes, (16 << 10) + 3072);
    config["limits"] = json!({"store_batch": 2});
    assert_eq!(redis(config).batch.operations, 2);
}

#[test]
fn who_holds_a_claim_is_waited_for() {
    // The longest lease of all routes, inherited ones too.
    let mut config = with_redis();
    config["defaults"] = json!({"lease": "45s"});
    let short = json!({"id": "short", "lease": "5s", "match": {"path": {"prefix": "/short"}}});
    config["routes"].as_array_mut().unwrap().push(short);
    assert_eq!(redis(config.clone()).hold_ms, 45_000);
    // However short: every proxy must have heard of a loss by then.
    let mut hasty = with_redis();
    hasty["defaults"] = json!({"lease": "5s"});
    assert_eq!(redis(hasty.clone()).hold_ms, DOUBT_MS);
    hasty["store"]["redis"]["hold"] = json!("5s");
    assert_eq!(redis(hasty).hold_ms, 5_000);
    config["store"]["redis"]["hold"] = json!("44s");
    let said = parse_value(config).unwrap_err();
    assert_eq!(said.errors()[0].path, "store.redis.hold");
}

#[test]
fn a_call_carries_the_largest_answer_and_few_of_them() {
    let batch = |size: &str| {
        let mut config = with_redis();
        config["routes"][0]["replay"] = json!({"max_inline_body": size});
        redis(config).batch
    };
    let usual = Limits::default();
    assert_eq!(batch("1MiB"), usual);
    let large = batch("8MiB");
    assert!(large.bytes > (8 << 20) * 4 / 3, "{large:?}");
    assert_eq!(large.bodies, 1);
    assert!(batch("3MiB").bodies >= 2);
    // A quarter more for the rest, and still less than Envoy holds of an answer.
    for size in ["64KiB", "1MiB", "3MiB", "5MiB", "8MiB"] {
        let batch = batch(size);
        assert!(
            batch.bytes < 16 << 20 && batch.bodies <= usual.bodies,
            "{size}"
        );
    }
}

#[test]
fn the_secret_comes_from_the_variable() {
    let engine = |edit: Value, value: Option<&str>| {
        let mut config = with_redis();
        config["store"]["redis"] = edit;
        let store = redis(config);
        let variable = |name: &str| {
            assert_eq!(name, "SECRET");
            value.map(ToOwned::to_owned)
        };
        store.engine(&variable)
    };
    let with = |transport: &str, name: &str, secret: Value| json!({"cluster": "r", "transport": transport, name: secret});
    let variable = || json!({"env": "SECRET"});
    let sent = |edit: Value| {
        let engine = engine(edit, Some("s3cret word")).unwrap();
        assert!(!format!("{engine:?}").contains("s3cret"), "{engine:?}");
        let batch = Batch::new(Nonce([1; 16]), Limits::default());
        let request = engine.request(&batch, Script::Known);
        let header = request
            .headers
            .into_iter()
            .find(|(n, _)| *n == "authorization");
        (
            header.map(|(_, v)| v),
            String::from_utf8(request.body).unwrap(),
        )
    };
    let (header, _) = sent(with("webdis", "authorization", variable()));
    assert_eq!(header.as_deref(), Some("s3cret word"));
    let (header, _) = sent(with("rest", "token", variable()));
    assert_eq!(header.as_deref(), Some("Bearer s3cret word"));
    let login = json!({"user": "idempo", "password": variable()});
    let (header, body) = sent(with("resp", "login", login.clone()));
    assert_eq!(header, None);
    assert!(body.starts_with("*3\r\n$4\r\nAUTH\r\n$6\r\nidempo\r\n$11\r\ns3cret word\r\n"));

    let refused = |value: Option<&str>| engine(with("resp", "login", login.clone()), value);
    let missing = refused(None).unwrap_err();
    assert!(missing.contains("SECRET is not set"), "{missing}");
    assert!(missing.contains("host_env_keys"), "{missing}");
    for odd in ["", "s3cret\n", " s3cret", "s3\r\ncret", "s3cret\0"] {
        let said = refused(Some(odd)).unwrap_err();
        assert!(said.contains("SECRET") && !said.contains("s3"), "{said}");
    }
    // Without a secret no variable is read.
    let none = json!({"cluster": "r", "transport": "rest"});
    assert!(engine(none, None).is_ok());
}

#[test]
fn a_login_may_have_no_user() {
    let mut config = with_redis();
    config["store"]["redis"] =
        json!({"cluster": "r", "transport": "resp", "login": {"password": {"env": "P"}}});
    let login = Some(RedisLogin {
        user: None,
        password_env: "P".into(),
    });
    assert_eq!(redis(config).transport, RedisTransport::Resp { login });
}

#[test]
fn nothing_that_may_be_a_secret_of_the_store_is_echoed() {
    for (pointer, value) in [
        ("/token", json!("s3cret")),
        ("/token", json!({"s3cret": 1})),
        ("/token", json!({"env": "s3cret value"})),
        ("/token", json!({"env": ["s3cret"]})),
        ("/token", json!({"s3cret": 1e300})),
        ("/authorization", json!("Basic s3cret")),
        ("/authorization", json!([["s3cret"]])),
        ("/login", json!("idempo:s3cret")),
        (
            "/login",
            json!({"user": "idempo s3cret", "password": {"env": "P"}}),
        ),
        ("/login", json!({"password": "s3cret"})),
        ("/login", json!({"password": {"value": "s3cret"}})),
        ("/login", json!({"s3cret": null})),
        ("", json!("redis://:s3cret@redis")),
        ("/cluster", json!(["s3cret"])),
        ("/authority", json!("idempo:s3cret@redis")),
        ("/password", json!("s3cret")),
    ] {
        let mut config = with_redis();
        set(&mut config, &format!("/store/redis{pointer}"), value);
        for refused in both(&config) {
            let said = refused.unwrap_err();
            assert!(!said.to_string().contains("s3cret"), "{said}");
            let here = |e: &ConfigError| e.path.starts_with("store.redis");
            assert!(said.errors().iter().all(here), "{said}");
        }
    }
}
