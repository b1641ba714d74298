//! `examples/redis`: its files are taken by what they are for, and enough for the engine.

use host_tests::{
    check::{replayed, until},
    client::Request,
    envoy::{Envoy, SIGNING_SECRET, config, envoy_binary, module, workspace},
    filter::{self, key},
    store::{redis::Webdis, wire::Http},
    upstream::Upstream,
};
use serde_json::json;
use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;

const PASSWORD: &str = "change-me";

fn example(name: &str) -> String {
    fs::read_to_string(workspace().join("examples/redis").join(name)).expect(name)
}

/// A file of the example with some of its values replaced, each of which must be there.
fn put(dir: &Path, name: &str, values: &[(&str, &str)]) -> std::path::PathBuf {
    let mut text = example(name);
    for (from, to) in values {
        assert!(text.contains(from), "{name}: {from}");
        text = text.replace(from, to);
    }
    let file = dir.join(name);
    fs::write(&file, text).expect("room for a file");
    file
}

#[test]
fn envoy_takes_the_configuration() {
    let dir = TempDir::with_prefix("idempo-example-").unwrap();
    let wasm = std::path::absolute(module()).unwrap();
    let wasm = wasm.display().to_string();
    let file = put(
        dir.path(),
        "envoy.yaml",
        &[("/etc/envoy/idempo_filter.wasm", &wasm)],
    );
    let done = Command::new(envoy_binary())
        .env(SIGNING_SECRET, [key(), key()].concat())
        .args(["--mode", "validate", "--disable-hot-restart"])
        .args([
            "--service-node",
            "envoy-a",
            "--reject-unknown-dynamic-fields",
        ])
        .arg("--config-path")
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    for line in said.lines() {
        let complains = line.contains("[warning]") || line.contains("[error]");
        assert!(!complains, "{line}");
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Redis on the example's files, on a Unix socket.
async fn redis(dir: &Path) -> Running {
    let acl = put(dir, "users.acl", &[]);
    let file = put(
        dir,
        "redis.conf",
        &[
            ("port 6379", "port 0"),
            ("/etc/redis/users.acl", &acl.display().to_string()),
            ("dir /data", &format!("dir {}", dir.display())),
        ],
    );
    let child = Command::new("redis-server")
        .arg(file)
        .arg("--unixsocket")
        .arg(dir.join("socket"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is installed: `make stores`");
    let socket = dir.join("socket");
    until("Redis", || {
        std::future::ready(socket.exists().then_some(()))
    })
    .await;
    Running(child)
}

#[tokio::test]
async fn what_webdis_and_redis_permit_is_what_the_engine_needs() {
    let dir = TempDir::with_prefix("idempo-example-").unwrap();
    let _redis = redis(dir.path()).await;
    let mut settings: serde_json::Value = serde_json::from_str(&example("webdis.json")).unwrap();
    assert_eq!(settings["redis_auth"], "$REDIS_PASSWORD");
    settings["redis_auth"] = json!(PASSWORD);
    let webdis = Webdis::with(&settings, &dir.path().join("socket"), dir.path());

    let upstream = Upstream::start().await;
    let mut filter = filter::with_route(json!({"lease": "5s"}));
    filter["store"] = json!({"redis": {"cluster": "store", "transport": "webdis"}});
    filter["replay_cache"] = json!({"bytes": 0});
    filter["limits"] = json!({"tenant_records": 1000});
    filter["tenant"] = json!({"sources": [{"header": "x-tenant"}]});
    let envoy = Envoy::with_filter(&upstream, filter)
        .options(|o| o.clusters.push(config::cluster("store", &[webdis.addr()])))
        .start()
        .await;
    until("the store to be ready", || async {
        (envoy.stats().await.idempo("idempo_store_ready", &[]) == 1).then_some(())
    })
    .await;
    let charge = |key: &str| {
        Request::post("/v1/charges")
            .key(key)
            .header("x-tenant", "a")
            .json("{}")
    };
    // A record and its answer, a cancellation, an unknown that a sweep sees: every command but few.
    let done = charge(&key());
    let first = envoy.pool().send(&done).await.unwrap();
    assert_eq!(first.status, 201, "{first:?}\n{}", envoy.log());
    replayed(&first, &envoy.pool().send(&done).await.unwrap());
    let released = charge(&key()).wants_status(429);
    for _ in 0..2 {
        let answer = envoy.pool().send(&released).await.unwrap();
        assert_eq!(answer.status, 429, "{answer:?}");
    }
    let unknown = charge(&key()).wants_status(500);
    envoy.pool().send(&unknown).await.unwrap();
    until("a sweep that counts it", || async {
        (envoy.stats().await.idempo("idempo_unknown_open", &[]) == 1).then_some(())
    })
    .await;
    let refused = |line: &&str| line.contains("NOPERM") || line.contains("can't run this command");
    assert_eq!(envoy.log().lines().find(refused), None);

    // And nothing more.
    let mut http = Http::connect(webdis.addr()).unwrap();
    for (command, status, said) in [
        ("PING", 403, ""),
        ("GET/x", 403, ""),
        ("CONFIG/GET/*", 403, ""),
        (
            "EVAL/return redis.call('FLUSHALL')/0",
            200,
            "can't run this command",
        ),
        (
            "EVAL/return redis.call('GET',KEYS[1])/1/other",
            200,
            "NOPERM",
        ),
        (
            "EVAL/return redis.call('GET',KEYS[1])/1/{idempo:00}:1:x",
            200,
            "null",
        ),
    ] {
        let (seen, body) = http.send("POST", "/", &[], command.as_bytes());
        let body = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(seen, status, "{command}: {body}");
        assert!(body.contains(said), "{command}: {body}");
    }
}

/// Each command that the script calls, and no other, is permitted.
#[test]
fn the_permitted_commands_are_those_of_the_script() {
    let script = idempo_core::store::redis::SCRIPT;
    let mut used: Vec<String> = script
        .split("call('")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('\'')?.0.to_lowercase()))
        .chain(["eval".into(), "evalsha".into()])
        .collect();
    let acl = example("users.acl");
    let words = acl.split_whitespace();
    let mut permitted: Vec<String> = words
        .filter_map(|word| Some(word.strip_prefix('+')?.to_owned()))
        .collect();
    for words in [&mut used, &mut permitted] {
        words.sort_unstable();
        words.dedup();
    }
    assert_eq!(permitted, used);
}
