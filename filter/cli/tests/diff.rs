//! `idempo diff`: exit statuses for edits that change identity, and for those that don't.

mod common;

use common::{file, fixture, idempo, repository};

/// Compares the fixture with an edit of it; `from` must be in it.
fn edited(from: &str, to: &str) -> common::Ran {
    let old = fixture("shop.yaml");
    let text = std::fs::read_to_string(&old).expect("the fixture");
    assert!(text.contains(from), "{from}");
    let (_keep, new) = file("new.yaml", &text.replacen(from, to, 1));
    let ran = idempo(&["diff", &old, &new]);
    let json = idempo(&["diff", &old, &new, "--format", "json"]);
    assert_eq!(json.code, ran.code);
    assert_eq!(json.json()["ok"], ran.code == 0);
    ran
}

#[test]
fn edits_of_identity_fail() {
    for (from, to, path) in [
        ("namespace: shop", "namespace: store", "namespace"),
        ("default: public", "default: everybody", "tenant.default"),
        ("id: refunds", "id: refunds-v2", "routes[refunds]"),
        ("header: x-tenant-id", "header: x-tenant", "tenant.sources"),
        ("- id: charges", "- id: charges2", "routes[charges]"),
        (
            "in_flight:",
            "key: { header: x-key }\n    in_flight:",
            "routes[charges].key.header",
        ),
    ] {
        let ran = edited(from, to);
        assert_eq!(ran.code, 1, "{from}\n{}{}", ran.out, ran.err);
        let line = format!("[identity] {path}: ");
        assert!(ran.out.contains(&line), "{line}\n{}", ran.out);
        assert!(
            ran.out
                .ends_with("a retry across this edit may run again\n"),
            "{}",
            ran.out
        );
    }
}

#[test]
fn a_declared_migration_and_harmless_edits_pass() {
    let renamed = edited(
        "- id: refunds\n",
        "- id: refunds-v2\n    previous: [{ id: refunds }]\n",
    );
    assert_eq!(renamed.code, 0, "{}", renamed.out);
    let harmless = edited("timeout: 3s", "timeout: 4s");
    assert_eq!(harmless.code, 0, "{}", harmless.out);
    assert!(harmless.out.contains("[harmless] "), "{}", harmless.out);
    let none = edited("namespace: shop", "namespace: \"shop\" # as before");
    assert_eq!((none.code, none.out.as_str()), (0, "no difference\n"));
    let shown = edited("statuses:", "schema_version: \"2\"\n    statuses:");
    assert_eq!(
        shown.code, 0,
        "replays stop, nothing runs again: {}",
        shown.out
    );
    assert!(shown.out.contains("[replay] "), "{}", shown.out);
}

#[test]
fn another_store_fails_and_another_time_out_does_not() {
    const REDIS: &str = "store: { redis: { cluster: redis-webdis, transport: webdis } }";
    let (moved, changes) = (
        edited("store: { shared_data: {} }", REDIS),
        "[identity] store: from shared_data to redis",
    );
    assert_eq!(moved.code, 1, "{}", moved.out);
    assert!(moved.out.contains(changes), "{}", moved.out);
    let old = std::fs::read_to_string(fixture("shop.yaml")).expect("the fixture");
    let old = old.replace("store: { shared_data: {} }", REDIS);
    let (_keep, before) = file("old.yaml", &old);
    for (to, code, line) in [
        ("timeout: 1s", 0, "[harmless] store.redis.timeout: "),
        ("prefix: shop", 1, "[identity] store.redis.prefix: "),
        ("topology: cluster", 1, "[identity] store.redis.topology: "),
    ] {
        let new = old.replace("transport: webdis", &format!("transport: webdis, {to}"));
        let (_keep, after) = file("new.yaml", &new);
        let ran = idempo(&["diff", &before, &after]);
        assert_eq!(ran.code, code, "{to}\n{}{}", ran.out, ran.err);
        assert!(ran.out.contains(line), "{line}\n{}", ran.out);
    }
}

#[test]
fn envoy_files_can_be_compared() {
    let path = repository("envoy/envoy.yaml");
    let text = std::fs::read_to_string(&path).expect("the shipped configuration");
    let (_keep, new) = file(
        "new.yaml",
        &text.replace("namespace: sandbox", "namespace: live"),
    );
    assert_eq!(idempo(&["diff", &path, &new]).code, 1);
    assert_eq!(idempo(&["diff", &path, &path]).code, 0);
}

#[test]
fn what_cannot_be_compared_is_2() {
    let good = fixture("shop.yaml");
    idempo(&["diff", &good, "/nonexistent.yaml"]).complains("/nonexistent.yaml: No such file");
    let (_keep, bad) = file("bad.yaml", "store: {}\n");
    let ran = idempo(&["diff", &good, &bad]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.contains("bad.yaml: ") && ran.err.contains("in the idempo configuration:"),
        "{}",
        ran.err
    );
}
