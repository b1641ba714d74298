//! `idempo check` on Envoy files: finding the configuration, and what around it works against it.

mod common;

use common::{check_text, idempo_with, repository};

fn shipped() -> String {
    std::fs::read_to_string(repository("envoy/envoy.yaml")).expect("the shipped configuration")
}

/// The shipped file with one text replaced, which must be there.
fn with(from: &str, to: &str) -> String {
    let text = shipped();
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn each_setting_that_works_against_the_filter_is_warned_of() {
    let router = "                  - &router\n                    name: envoy.filters.http.router\n                    typed_config:\n                      \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router\n";
    let filter = |name: &str, kind: &str| {
        format!(
            "                  - name: {name}\n                    typed_config:\n                      \"@type\": type.googleapis.com/envoy.extensions.filters.http.{kind}\n"
        )
    };
    let behind = |name: &str, kind: &str| with(router, &format!("{}{router}", filter(name, kind)));
    let list = "                http_filters:\n";
    let before = |name: &str, kind: &str| with(list, &format!("{list}{}", filter(name, kind)));
    for (text, place, part) in [
        (
            with("allow_on_headers_stop_iteration: true", "root_id: idempo"),
            "http_filters[1].typed_config.config",
            "allow_on_headers_stop_iteration is not true",
        ),
        (
            with("vm_id: idempo", "vm_id: \"\""),
            "config",
            "share one store",
        ),
        (
            with("failure_policy: FAIL_RELOAD", "failure_policy: FAIL_OPEN"),
            "config",
            "without any protection",
        ),
        (
            with("failure_policy: FAIL_RELOAD", "fail_open: false"),
            "config",
            "until it is restarted",
        ),
        (
            with("normalize_path: true", "normalize_path: false"),
            "typed_config",
            "normalize_path is not true",
        ),
        (
            with("merge_slashes: true", ""),
            "typed_config",
            "merge_slashes is not true",
        ),
        (
            with(
                "path_with_escaped_slashes_action: REJECT_REQUEST",
                "path_with_escaped_slashes_action: KEEP_UNCHANGED",
            ),
            "typed_config",
            "REJECT_REQUEST",
        ),
        (
            with("path_with_escaped_slashes_action: REJECT_REQUEST", ""),
            "typed_config",
            "REJECT_REQUEST",
        ),
        (
            with("stream_idle_timeout: 35s", "stream_idle_timeout: 20s"),
            "typed_config",
            "(20s) is shorter than the lease of route charges (30s)",
        ),
        (
            with("stream_idle_timeout: 35s", "stream_idle_timeout: 0s"),
            "typed_config",
            "for ever",
        ),
        (
            with(
                "per_connection_buffer_limit_bytes: 2097152",
                "per_connection_buffer_limit_bytes: 65536",
            ),
            "listeners[0]",
            "(65536) is less than what is held",
        ),
        (
            with(
                "signing: {active: {env: IDEMPO_SIGNING_SECRET}}",
                "signing: {active: {env: IDEMPO_SECRET}}",
            ),
            "config",
            "IDEMPO_SECRET",
        ),
        (
            with(
                "shared_data: {}",
                "redis: {cluster: r, transport: rest, token: {env: REDIS_TOKEN}}",
            ),
            "config",
            "store.redis reads the environment variable REDIS_TOKEN",
        ),
        (
            before("r", "router.v3.Router"),
            "http_filters[2]",
            "after the router",
        ),
        (
            before("rl", "ratelimit.v3.RateLimit"),
            "http_filters[0]",
            "counts replays",
        ),
        (
            behind("jwt", "jwt_authn.v3.JwtAuthentication"),
            "http_filters[2]",
            "outlives a revoked grant",
        ),
        (
            behind("z", "compressor.v3.Compressor"),
            "http_filters[2]",
            "compressor after idempo",
        ),
        (
            behind("c", "cors.v3.Cors"),
            "http_filters[2]",
            "no CORS headers",
        ),
    ] {
        let ran = check_text(&text);
        assert_eq!(ran.code, 0, "a warning is no refusal: {}", ran.out);
        let warnings: Vec<&str> = ran
            .out
            .lines()
            .filter(|l| l.starts_with("warning: "))
            .collect();
        assert_eq!(warnings.len(), 1, "{part}\n{}", ran.out);
        assert!(warnings[0].contains(part), "{part}\n{}", ran.out);
        assert!(
            warnings[0].contains(&format!("{place}: ")),
            "{place}\n{}",
            ran.out
        );
    }
}

#[test]
fn a_refused_configuration_names_its_place_and_line() {
    let text = with("- id: charges", "- id: Charges");
    let ran = check_text(&text);
    assert_eq!(ran.code, 1);
    let line = 1 + text
        .lines()
        .position(|l| l.ends_with("configuration:"))
        .expect("the place");
    // The value starts on the line after its name.
    assert!(
        ran.out.starts_with(&format!(
            "standard input:{}: static_resources.listeners[0]",
            line + 1
        )),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("\n1. routes[0].id: "), "{}", ran.out);
    let json = idempo_with(&["check", "-", "--format", "json"], text.as_bytes()).json();
    assert_eq!(json["ok"], false);
    assert_eq!(json["configurations"][0]["plugin"], "idempo");
    assert_eq!(
        json["configurations"][0]["errors"][0]["path"],
        "routes[0].id"
    );
}

/// A listener resource with plugins: (name, file, configuration).
fn listener(plugins: &[(&str, &str, &str)]) -> String {
    let mut out =
        "resources:\n- filter_chains:\n  - filters:\n    - typedConfig:\n        httpFilters:\n"
            .to_owned();
    for (name, file, configuration) in plugins {
        out += &format!(
            "        - name: x\n          typedConfig:\n            '@type': type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm\n            config:\n              name: {name}\n              vmConfig: {{code: {{local: {{filename: {file}}}}}}}\n              configuration: {configuration}\n"
        );
    }
    out
}

const STRING: &str = "{'@type': type.googleapis.com/google.protobuf.StringValue, value: '{\"store\":{\"shared_data\":{}},\"enforce_fraction\":0.5,\"routes\":[{\"id\":\"a\",\"match\":{\"path\":{\"prefix\":\"/a\"}}}]}'}";
const OTHER: &str = "{'@type': type.googleapis.com/google.protobuf.Struct, value: {rules: []}}";

#[test]
fn only_plugins_that_are_called_idempo_are_taken_where_any_is() {
    for plugins in [
        [
            ("waf", "/waf.wasm", OTHER),
            ("edge", "/lib/idempo_filter.wasm", STRING),
        ],
        [("waf", "/waf.wasm", OTHER), ("Idempo", "/f.wasm", STRING)],
    ] {
        let ran = check_text(&listener(&plugins));
        assert_eq!(ran.code, 0, "{}", ran.out);
        assert!(
            ran.out.contains(
                "skipped resources[0].filter_chains[0].filters[0].typedConfig.httpFilters[0]"
            ),
            "{}",
            ran.out
        );
        assert_eq!(ran.out.matches(": ok, 1 route").count(), 1);
    }
    let ran = check_text(&listener(&[
        ("waf", "/w.wasm", OTHER),
        ("b", "/b.wasm", STRING),
    ]));
    assert_eq!(ran.code, 1, "unclear, so both are checked");
    assert!(
        ran.out.contains("every wasm plugin is checked"),
        "{}",
        ran.out
    );
    assert!(
        ran.out.contains("(plugin waf): refused") && ran.out.contains("(plugin b): ok"),
        "{}",
        ran.out
    );
}

#[test]
fn what_envoy_or_the_filter_would_not_take_is_refused() {
    for (configuration, part) in [
        ("{store: {shared_data: {}}}", "has no \"@type\""),
        (
            "{'@type': type.googleapis.com/google.protobuf.Duration, value: 1s}",
            "neither a Struct nor a StringValue",
        ),
        (
            "{'@type': type.googleapis.com/google.protobuf.StringValue, value: {a: 1}}",
            "value is no string",
        ),
        (
            "{'@type': type.googleapis.com/google.protobuf.StringValue, value: 'store: {}'}",
            "the text is not JSON",
        ),
        (
            "{'@type': type.googleapis.com/google.protobuf.StringValue}",
            "the configuration is empty",
        ),
        (
            "{'@type': type.googleapis.com/google.protobuf.Struct}",
            "the configuration is empty",
        ),
        ("", "has no \"@type\""),
    ] {
        let ran = check_text(&listener(&[("idempo", "/f.wasm", configuration)]));
        assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
        assert!(ran.out.contains(part), "{part}\n{}", ran.out);
    }
    let without = listener(&[("idempo", "/f.wasm", STRING)]);
    let without = without
        .lines()
        .filter(|l| !l.contains("configuration:"))
        .collect::<Vec<_>>()
        .join("\n");
    let ran = check_text(&without);
    assert!(
        ran.code == 1 && ran.out.contains("the configuration is empty"),
        "{}",
        ran.out
    );
}

#[test]
fn an_envoy_file_in_json_is_read_too() {
    let json = r#"{"http_filters": [{"name": "idempo", "typed_config": {"config": {"vm_config": {},
        "configuration": {"@type": "x/google.protobuf.Struct", "value": {"store": {"shared_data": {}},
        "enforce_fraction": 0.5, "routes": [{"id": "a", "match": {"path": {"prefix": "/a"}}}]}}}}}]}"#;
    let ran = check_text(json);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(
        ran.out.starts_with(
            "standard input: http_filters[0].typed_config.config.configuration (plugin idempo): ok"
        ),
        "{}",
        ran.out
    );
}
