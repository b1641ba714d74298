//! What in Envoy's own settings around the filter works against it. Warnings, not errors: Envoy
//! starts with all of this, and then does something else than its operator believes.

use super::Plugin;
use crate::document::Node;
use idempo_core::plan::{Plan, Store};
use serde::Serialize;

/// One setting to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Warning {
    /// Where in the file.
    pub(crate) path: String,
    /// From 1; 0 where the form does not tell.
    pub(crate) line: usize,
    /// What is wrong with it, and what would be right.
    pub(crate) warning: String,
}

/// Filters that decide who may do what: a replay must not outlive what they revoke.
const ACCESS: [&str; 7] = [
    "jwt_authn",
    "ext_authz",
    "rbac",
    "oauth2",
    "basic_auth",
    "api_key_auth",
    "credential_",
];
/// Envoy's default for streams, seconds.
const IDLE_DEFAULT_S: f64 = 300.0;
/// Envoy's default for what is held per connection, octets.
const BUFFER_DEFAULT: u64 = 1 << 20;

/// Everything around one plugin that deserves a look. `plan`: where the configuration is right.
pub(crate) fn warnings(plugin: &Plugin<'_>, plan: Option<&Plan>) -> Vec<Warning> {
    let mut out = Vec::new();
    vm(plugin, plan, &mut out);
    manager(plugin, plan, &mut out);
    order(plugin, &mut out);
    listener(plugin, plan, &mut out);
    out
}

fn add(out: &mut Vec<Warning>, path: &str, node: &Node, warning: impl Into<String>) {
    out.push(Warning {
        path: path.to_owned(),
        line: node.line,
        warning: warning.into(),
    });
}

fn vm(plugin: &Plugin<'_>, plan: Option<&Plan>, out: &mut Vec<Warning>) {
    let (path, node) = (plugin.path.as_str(), plugin.node);
    if !node
        .get("allow_on_headers_stop_iteration")
        .is_some_and(Node::is_true)
    {
        add(
            out,
            path,
            node,
            "allow_on_headers_stop_iteration is not true: bodies are held back while the filter holds the headers, so every write with a body is answered as misconfigured",
        );
    }
    let vm_id = node
        .at(&["vm_config", "vm_id"])
        .and_then(Node::text)
        .unwrap_or_default();
    if vm_id.is_empty() {
        add(
            out,
            path,
            node,
            "vm_config.vm_id is missing: plugins that leave it blank share one store",
        );
    }
    let policy = node.get("failure_policy").and_then(Node::text);
    match policy {
        Some("FAIL_RELOAD") => {}
        Some("FAIL_OPEN") => add(
            out,
            path,
            node,
            "failure_policy is FAIL_OPEN: after a crash of the module, writes pass without any protection; write FAIL_RELOAD",
        ),
        _ if node.get("fail_open").is_some_and(Node::is_true) => add(
            out,
            path,
            node,
            "fail_open is true: after a crash of the module, writes pass without any protection; write failure_policy: FAIL_RELOAD",
        ),
        _ => {
            let forgets = match plan.map(|p| &p.store) {
                Some(Store::Redis(_)) => "",
                Some(Store::SharedData(_)) | None => {
                    ", and a restart forgets the shared_data store"
                }
            };
            add(
                out,
                path,
                node,
                format!(
                    "failure_policy is not FAIL_RELOAD: after a crash of the module Envoy answers 503 until it is restarted{forgets}"
                ),
            );
        }
    }
    let passed: Vec<&str> = node
        .at(&["vm_config", "environment_variables", "host_env_keys"])
        .map(|keys| keys.items().filter_map(Node::text).collect())
        .unwrap_or_default();
    let literal = node.at(&["vm_config", "environment_variables", "key_values"]);
    for (reader, name) in plan.map(variables).unwrap_or_default() {
        if !passed.contains(&name) && literal.is_none_or(|l| !l.has(name)) {
            add(
                out,
                path,
                node,
                format!(
                    "{reader} reads the environment variable {name}, which vm_config.environment_variables.host_env_keys does not pass on"
                ),
            );
        }
    }
}

/// The environment variables that a configuration reads, and which part of it does.
fn variables(plan: &Plan) -> Vec<(&'static str, &str)> {
    let signing = plan.signing.iter().flat_map(|signing| {
        let names = std::iter::once(&signing.active_env).chain(&signing.previous_env);
        names.map(|name| ("signing", name.as_str()))
    });
    let store = match &plan.store {
        Store::Redis(redis) => redis.transport.secret_env(),
        Store::SharedData(_) => None,
    };
    signing
        .chain(store.map(|name| ("store.redis", name)))
        .collect()
}

fn manager(plugin: &Plugin<'_>, plan: Option<&Plan>, out: &mut Vec<Warning>) {
    let Some((path, node)) = &plugin.around.manager else {
        return;
    };
    // Only this filter sends there, what the data listener has taken: paths are normalised, and the
    // router's time-out is in the request.
    let listener = plugin.around.listener.as_ref();
    if listener.is_some_and(|(_, node)| node.has("internal_listener")) {
        return;
    }
    for (name, what) in [
        ("normalize_path", "`/v1/%63harges` and `/v1/x/../charges`"),
        ("merge_slashes", "`//v1/charges`"),
    ] {
        if !node.get(name).is_some_and(Node::is_true) {
            add(
                out,
                path,
                node,
                format!(
                    "{name} is not true: {what} reach the upstream as written, which may take them for a path that a rule is for"
                ),
            );
        }
    }
    let slashes = node
        .get("path_with_escaped_slashes_action")
        .and_then(Node::text);
    if matches!(
        slashes,
        None | Some("KEEP_UNCHANGED" | "IMPLEMENTATION_SPECIFIC_DEFAULT")
    ) {
        add(
            out,
            path,
            node,
            "path_with_escaped_slashes_action leaves `/v1%2Fcharges` as it is: write REJECT_REQUEST",
        );
    }
    let longest = plan.and_then(|p| p.routes.iter().max_by_key(|r| r.lease_ms));
    let idle = match node.get("stream_idle_timeout") {
        None => Some(IDLE_DEFAULT_S),
        Some(value) => value.text().and_then(seconds),
    };
    match (idle, longest) {
        (Some(0.0), _) => add(
            out,
            path,
            node,
            "stream_idle_timeout is 0: a request whose worker VM has died would wait for ever; write a little more than the lease",
        ),
        (Some(idle), Some(route)) if idle * 1000.0 < route.lease_ms as f64 => add(
            out,
            path,
            node,
            format!(
                "stream_idle_timeout ({idle}s) is shorter than the lease of route {} ({}s): attempts that still run are cut off",
                route.id,
                route.lease_ms as f64 / 1000.0
            ),
        ),
        _ => {}
    }
}

fn order(plugin: &Plugin<'_>, out: &mut Vec<Warning>) {
    let (Some((path, manager)), Some((own, filter))) =
        (&plugin.around.manager, &plugin.around.filter)
    else {
        return;
    };
    let Some(filters) = manager.get("http_filters") else {
        return;
    };
    for (at, other) in filters.items().enumerate() {
        let kind = kind(other);
        let is = |names: &[&str]| names.iter().any(|name| kind.contains(name));
        let place = format!("{path}.http_filters[{at}]");
        if at < *own && is(&["filters.http.router"]) {
            add(
                out,
                &format!("{path}.http_filters[{own}]"),
                filter,
                "the filter stands after the router, where no request reaches it",
            );
        } else if at < *own && is(&["ratelimit", "rate_limit"]) {
            add(
                out,
                &place,
                other,
                "a rate limit before idempo counts replays and refuses retries",
            );
        } else if at > *own && is(&["filters.http.cors"]) {
            add(
                out,
                &place,
                other,
                "cors after idempo: refusals and replays carry no CORS headers",
            );
        } else if at > *own && is(&ACCESS) {
            add(
                out,
                &place,
                other,
                "an access check after idempo: a replay is answered before it, and so outlives a revoked grant",
            );
        } else if at > *own && is(&["filters.http.compressor"]) {
            add(
                out,
                &place,
                other,
                "a compressor after idempo: compressed answers are recorded, and replayed to clients that did not ask for that",
            );
        }
    }
}

/// Names the kind of a filter: its type, or its name where the type is not written.
fn kind(filter: &Node) -> String {
    let kind = filter
        .at(&["typed_config", "@type"])
        .or_else(|| filter.get("name"));
    kind.and_then(Node::text)
        .unwrap_or_default()
        .to_ascii_lowercase()
}

fn listener(plugin: &Plugin<'_>, plan: Option<&Plan>, out: &mut Vec<Warning>) {
    let (Some((path, node)), Some(plan)) = (&plugin.around.listener, plan) else {
        return;
    };
    let limit = node
        .get("per_connection_buffer_limit_bytes")
        .map_or(Some(BUFFER_DEFAULT), Node::number);
    let largest = plan.routes.iter().max_by_key(|r| r.most_held());
    if let (Some(limit), Some(route)) = (limit, largest)
        && limit < route.most_held()
    {
        add(
            out,
            path,
            node,
            format!(
                "per_connection_buffer_limit_bytes ({limit}) is less than what is held of a body for route {} ({}): a larger body never becomes complete",
                route.id,
                route.most_held()
            ),
        );
    }
}

/// A duration in protobuf's JSON form.
fn seconds(text: &str) -> Option<f64> {
    text.strip_suffix('s')?
        .parse()
        .ok()
        .filter(|s: &f64| s.is_finite())
}
