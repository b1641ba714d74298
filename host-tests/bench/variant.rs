//! What is compared: one listener of the rig for each variant, and the filter in it.

use crate::load::BODY;
use host_tests::envoy::{SIGNING_SECRET, config};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// Octets of the answer that is replayed and of the direct response.
pub(crate) const ANSWER: usize = 1024;

/// Keys that replays go through, so that they meet more than one bucket.
pub(crate) const REPLAYED_KEYS: usize = 512;

/// What one listener does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Variant {
    /// Answers by itself, no module.
    Direct,
    /// Answers by itself behind the filter that does nothing.
    NoopDirect,
    /// Proxies, no module.
    Plain,
    /// Proxies behind the filter that does nothing.
    NoopProxy,
    /// idempo, every key new, in a table that holds a few seconds' operations.
    First,
    /// The same with an access log that shows filter state.
    FirstLogged,
    /// The same, sent through the loopback listener.
    FirstDetached,
    /// Inline, and the client does not wait for the record.
    FirstAsync,
    /// Proxies a mebibyte, no module.
    UploadPlain,
    /// idempo claims a mebibyte by its beginning and hashes the rest as it passes.
    Upload,
    /// The same where the rule does not look at bodies.
    UploadUnread,
    /// The same in a table that is 40 % full of operations that last.
    FirstFull,
    /// idempo replays from a table that holds little else.
    Replay,
    /// The same for requests with a body.
    ReplayBody,
    /// idempo replays from the table that is 40 % full.
    ReplayFull,
}

/// A filter in front of the router.
enum Filter<'a> {
    None,
    Noop,
    Idempo(&'a str),
}

impl Variant {
    pub(crate) const ALL: [Self; 15] = [
        Self::Direct,
        Self::NoopDirect,
        Self::Plain,
        Self::NoopProxy,
        Self::First,
        Self::FirstLogged,
        Self::FirstDetached,
        Self::FirstAsync,
        Self::UploadPlain,
        Self::Upload,
        Self::UploadUnread,
        Self::FirstFull,
        Self::Replay,
        Self::ReplayBody,
        Self::ReplayFull,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::NoopDirect => "noop-direct",
            // The harness asks for a listener of that name.
            Self::Plain => config::LISTENER,
            Self::NoopProxy => "noop-proxy",
            Self::First => "first",
            Self::FirstLogged => "first-logged",
            Self::FirstDetached => "first-detached",
            Self::FirstAsync => "first-async",
            Self::UploadPlain => "upload-plain",
            Self::Upload => "upload",
            Self::UploadUnread => "upload-unread",
            Self::FirstFull => "first-full",
            Self::Replay => "replay",
            Self::ReplayBody => "replay-body",
            Self::ReplayFull => "replay-full",
        }
    }

    /// How the reports call it.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Direct => "direct response",
            Self::NoopDirect => "no-op filter + direct response",
            Self::Plain => "plain proxying",
            Self::NoopProxy => "no-op filter + proxying",
            Self::First => "first attempts",
            Self::FirstLogged => "first attempts, access log",
            Self::FirstDetached => "first attempts, detached",
            Self::FirstAsync => "first attempts, commit: async",
            Self::UploadPlain => "1 MiB, plain proxying",
            Self::Upload => "1 MiB, fingerprint raw",
            Self::UploadUnread => "1 MiB, fingerprint none",
            Self::FirstFull => "first attempts, table 40 % full",
            Self::Replay => "replay",
            Self::ReplayBody => "replay, requests with a body",
            Self::ReplayFull => "replay, table 40 % full",
        }
    }

    const fn filter(self) -> Filter<'static> {
        match self {
            Self::Direct | Self::Plain | Self::UploadPlain => Filter::None,
            Self::NoopDirect | Self::NoopProxy => Filter::Noop,
            Self::First | Self::FirstAsync | Self::Upload | Self::UploadUnread => {
                Filter::Idempo("first")
            }
            Self::FirstDetached => Filter::Idempo(DETACHED),
            Self::FirstLogged => Filter::Idempo("first-logged"),
            Self::Replay | Self::ReplayBody => Filter::Idempo("replay"),
            Self::FirstFull | Self::ReplayFull => Filter::Idempo("full"),
        }
    }

    pub(crate) const fn is_direct(self) -> bool {
        matches!(self, Self::Direct | Self::NoopDirect)
    }

    pub(crate) const fn is_replay(self) -> bool {
        matches!(self, Self::Replay | Self::ReplayBody | Self::ReplayFull)
    }

    /// Whether each request has an effect.
    pub(crate) const fn acts(self) -> bool {
        !self.is_direct() && !self.is_replay()
    }

    /// What is sent. A direct response comes before the request's body, whereupon Envoy closes an
    /// HTTP/1.1 connection: that would measure connecting. So the yardstick gets no body, and what is
    /// compared with it none either.
    pub(crate) fn body(self) -> &'static str {
        match self {
            Self::UploadPlain | Self::Upload | Self::UploadUnread => &MEBIBYTE,
            Self::Direct | Self::NoopDirect | Self::Replay | Self::ReplayFull => "",
            _ => BODY,
        }
    }

    /// The rule of idempo's that applies.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::FirstAsync => ASYNC,
            Self::UploadUnread => UNREAD,
            _ if self.is_replay() => KEPT,
            _ => PASSING,
        }
    }

    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::UploadPlain | Self::Upload | Self::UploadUnread => "application/octet-stream",
            _ => "application/json",
        }
    }
}

/// The rule whose operations are over after a few seconds.
const PASSING: &str = "/v1/charges";
/// The same with `commit: async`, and without a look at bodies.
const ASYNC: &str = "/v1/async";
const UNREAD: &str = "/v1/unread";

/// The VM whose attempts are sent through the loopback.
const DETACHED: &str = "detached";

static MEBIBYTE: LazyLock<String> = LazyLock::new(|| "0123456789abcdef".repeat((1 << 20) / 16));

/// The rule with the default windows.
pub(crate) const KEPT: &str = "/v1/orders";

/// The default budgets. Of the two rules one keeps its operations for the default windows, the other
/// for 2 s and 2 s as tombstones, so that a table under load holds what a few seconds bring and the
/// benchmark can go on for as long as it likes.
pub(crate) fn idempo() -> Value {
    json!({
        "namespace": "bench",
        "store": {"shared_data": {}},
        "routes": [
            {
                "id": "charges",
                "match": {"methods": ["POST"], "path": {"prefix": PASSING}},
                "lease": "1s",
                "accepted_deadline": "1s",
                "replay": {"ttl": "2s", "tombstone_ttl": "2s"},
            },
            {
                "id": "async",
                "match": {"methods": ["POST"], "path": {"prefix": ASYNC}},
                "commit": "async",
                "lease": "1s",
                "accepted_deadline": "1s",
                "replay": {"ttl": "2s", "tombstone_ttl": "2s"},
            },
            {
                "id": "unread",
                "match": {"methods": ["POST"], "path": {"prefix": UNREAD}},
                "fingerprint": {"body": "none"},
                "lease": "1s",
                "accepted_deadline": "1s",
                "replay": {"ttl": "2s", "tombstone_ttl": "2s"},
            },
            {"id": "orders", "match": {"methods": ["POST"], "path": {"prefix": KEPT}}},
        ],
    })
}

/// The module that does nothing: `IDEMPO_NOOP_WASM`, else beside the shipped one.
pub(crate) fn noop_module() -> PathBuf {
    std::env::var_os("IDEMPO_NOOP_WASM").map_or_else(
        || host_tests::envoy::module().with_file_name("noop_filter.wasm"),
        PathBuf::from,
    )
}

/// A wasm filter.
pub(crate) fn wasm(vm_id: &str, module: &Path, configuration: &Value) -> Value {
    json!({
        "name": vm_id,
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": vm_id,
                "vm_config": {
                    "vm_id": vm_id,
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": {"local": {"filename": module}},
                    "environment_variables": {"host_env_keys": [SIGNING_SECRET]},
                },
                "configuration": {
                    "@type": "type.googleapis.com/google.protobuf.Struct",
                    "value": configuration,
                },
                "failure_policy": "FAIL_RELOAD",
                "allow_on_headers_stop_iteration": true,
            },
        },
    })
}

/// As shipped, but to nowhere: disks are not what is measured.
fn access_log() -> Value {
    json!({
        "name": "envoy.access_loggers.file",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
            "path": "/dev/null",
            "log_format": {"json_format": {
                "time": "%START_TIME%",
                "attempt": "%REQ(X-REQUEST-ID)%",
                "method": "%REQ(:METHOD)%",
                "authority": "%REQ(:AUTHORITY)%",
                "path": "%PATH(NQ)%",
                "protocol": "%PROTOCOL%",
                "status": "%RESPONSE_CODE%",
                "details": "%RESPONSE_CODE_DETAILS%",
                "flags": "%RESPONSE_FLAGS%",
                "duration_ms": "%DURATION%",
                "bytes_received": "%BYTES_RECEIVED%",
                "bytes_sent": "%BYTES_SENT%",
                "upstream": "%UPSTREAM_HOST%",
                "upstream_attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
                "envoy_route": "%ROUTE_NAME%",
                "idempo_outcome": "%FILTER_STATE(wasm.idempo.outcome:PLAIN)%",
                "idempo_operation": "%FILTER_STATE(wasm.idempo.operation:PLAIN)%",
                "idempo_route": "%FILTER_STATE(wasm.idempo.route:PLAIN)%",
                "idempo_audit": "%FILTER_STATE(wasm.idempo.audit:PLAIN)%",
            }},
        },
    })
}

/// [`idempo`] with everything sent through the loopback.
fn detached() -> Value {
    let mut configuration = idempo();
    configuration["loopback_cluster"] = json!(config::LOOPBACK);
    configuration["signing"] = json!({"active": {"env": SIGNING_SECRET}});
    configuration
}

/// The listener that detached attempts come back through: the same filter and route.
pub(crate) fn inner_listener() -> Value {
    inner(listener(Variant::FirstDetached))
}

/// That listener as the one that detached attempts come back through.
pub(crate) fn inner(mut listener: Value) -> Value {
    listener["name"] = json!(config::LOOPBACK);
    listener["internal_listener"] = json!({});
    if let Some(members) = listener.as_object_mut() {
        members.remove("address");
    }
    let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
    manager["stat_prefix"] = json!("inner");
    manager["use_remote_address"] = json!(false);
    manager["skip_xff_append"] = json!(true);
    manager["generate_request_id"] = json!(false);
    listener
}

pub(crate) fn listener(variant: Variant) -> Value {
    let filter = match variant.filter() {
        Filter::None => None,
        Filter::Idempo(DETACHED) => Some(wasm(DETACHED, &host_tests::envoy::module(), &detached())),
        Filter::Noop => Some(wasm("noop", &noop_module(), &json!({}))),
        Filter::Idempo(vm_id) => Some(wasm(vm_id, &host_tests::envoy::module(), &idempo())),
    };
    let action = if variant.is_direct() {
        json!({"direct_response": {"status": 200, "body": {"inline_string": "x".repeat(ANSWER)}}})
    } else {
        proxying("upstream")
    };
    let log = (variant == Variant::FirstLogged).then(access_log);
    chain(variant.name(), filter, &action, log)
}

/// A route's action: on to that cluster.
pub(crate) fn proxying(cluster: &str) -> Value {
    json!({"route": {"cluster": cluster, "timeout": "15s"}})
}

/// A listener with that filter before the router, and one route.
pub(crate) fn chain(
    name: &str,
    filter: Option<Value>,
    action: &Value,
    log: Option<Value>,
) -> Value {
    let mut filters: Vec<_> = filter.into_iter().collect();
    filters.push(json!({
        "name": "envoy.filters.http.router",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
        },
    }));
    let mut route = action.clone();
    route["name"] = json!("default");
    route["match"] = json!({"prefix": "/"});
    json!({
        "name": name,
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "per_connection_buffer_limit_bytes": 2 << 20,
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": name,
                "codec_type": "AUTO",
                "normalize_path": true,
                "merge_slashes": true,
                "path_with_escaped_slashes_action": "REJECT_REQUEST",
                "use_remote_address": true,
                "stream_idle_timeout": "35s",
                "access_log": log.into_iter().collect::<Vec<_>>(),
                "http_filters": filters,
                "route_config": {
                    "name": name,
                    "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}],
                },
            },
        }]}],
    })
}
