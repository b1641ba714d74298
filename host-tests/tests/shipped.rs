//! The shipped configuration, as `make run` uses it.

use host_tests::{
    envoy::{SIGNING_SECRET, envoy_binary, module, workspace},
    filter::key,
    shipped::{Values, render},
};
use std::process::Command;

#[test]
fn the_shipped_configuration_is_valid() {
    let shipped = std::fs::read_to_string(workspace().join("envoy/envoy.yaml")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("envoy.yaml");
    let wasm = std::path::absolute(module()).unwrap();
    let values = Values {
        port: 0,
        admin_port: 0,
        upstream_port: 1,
        wasm: &wasm,
    };
    std::fs::write(&file, render(&shipped, &values).unwrap()).unwrap();
    let done = Command::new(envoy_binary())
        .env(SIGNING_SECRET, [key(), key()].concat())
        .args(["--mode", "validate", "--disable-hot-restart"])
        // What an operator would only see as a warning is an error here.
        .arg("--reject-unknown-dynamic-fields")
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

#[test]
fn scripts_in_browsers_see_every_marker() {
    let shipped = std::fs::read_to_string(workspace().join("envoy/envoy.yaml")).unwrap();
    let exposed = shipped
        .lines()
        .find_map(|l| l.trim().strip_prefix("expose_headers: "))
        .expect("expose_headers");
    for marker in [
        "Idempotent-Replayed",
        "Idempotency-Status",
        "Idempotency-Operation",
        "Idempotency-Result",
        "Idempotency-Expires",
        "Idempotency-First-Response",
        "Idempotency-Store",
        "Retry-After",
    ] {
        let named: Vec<_> = exposed.split(", ").collect();
        assert!(named.contains(&marker), "{marker}: {named:?}");
    }
}
