//! The Envoy bootstrap that tests run with, as JSON (which Envoy reads as it reads YAML).
//!
//! It follows `envoy/envoy.yaml` where the filter is concerned; what differs is there for tests:
//! ports that the kernel chooses, one access log file, an optional listener file for reloads.

use super::{loopback, process::Files};
use serde_json::{Map, Value, json};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// The name of the data listener.
pub const LISTENER: &str = "data";

pub use super::loopback::{LOOPBACK, cluster as loopback_cluster};

/// What a test may choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// The filter's configuration; `None` leaves the filter out (plain proxying).
    pub filter: Option<Value>,
    /// Hand the configuration over as a JSON string rather than as a `Struct`.
    pub filter_as_text: bool,
    /// Hand this text over as it is, in place of the configuration.
    pub filter_text: Option<String>,
    /// The module.
    pub wasm: PathBuf,
    /// `allow_on_headers_stop_iteration` of the plugin.
    pub stop_iteration: bool,
    /// Environment variables that the module may read.
    pub host_env_keys: Vec<String>,
    /// HTTP filters before idempo.
    pub filters_before: Vec<Value>,
    /// HTTP filters between idempo and the router.
    pub filters_after: Vec<Value>,
    /// Members merged into the default route's action, a `retry_policy` say.
    pub route_action: Map<String, Value>,
    /// Members merged into the default route entry, `typed_per_filter_config` say.
    pub route: Map<String, Value>,
    /// Filter metadata of the default route.
    pub route_metadata: Map<String, Value>,
    /// Whole route entries before the default one.
    pub routes_before: Vec<Value>,
    /// Members merged into the connection manager.
    pub manager: Map<String, Value>,
    /// Members merged into the listener.
    pub listener: Map<String, Value>,
    /// Members merged into the upstream cluster.
    pub cluster: Map<String, Value>,
    /// Further clusters.
    pub clusters: Vec<Value>,
    /// Further listeners.
    pub listeners: Vec<Value>,
    /// Members merged into the bootstrap.
    pub bootstrap: Map<String, Value>,
    /// Upstream hosts.
    pub hosts: Vec<SocketAddr>,
    /// The listener file holds no listener: what there was is drained and removed.
    pub withdrawn: bool,
    /// Adds the internal listener and the cluster [`LOOPBACK`], see [`super::Builder::loopback`].
    pub loopback: bool,
    /// Octets that each connection may buffer before its peer is held back (Envoy's default: 1 MiB).
    pub buffer_limit: Option<u32>,
    /// The filter's configuration on the loopback, where it is another than on the data listener.
    pub loopback_filter: Option<Value>,
}

impl Options {
    pub(super) fn new(hosts: Vec<SocketAddr>, filter: Option<Value>) -> Self {
        Self {
            filter,
            filter_as_text: false,
            filter_text: None,
            wasm: super::files::module(),
            stop_iteration: true,
            host_env_keys: Vec::new(),
            filters_before: Vec::new(),
            filters_after: Vec::new(),
            route_action: Map::new(),
            route: Map::new(),
            route_metadata: Map::new(),
            routes_before: Vec::new(),
            manager: Map::new(),
            listener: Map::new(),
            cluster: Map::new(),
            clusters: Vec::new(),
            listeners: Vec::new(),
            bootstrap: Map::new(),
            hosts,
            withdrawn: false,
            loopback: false,
            buffer_limit: None,
            loopback_filter: None,
        }
    }

    /// Believes the `x-envoy-*` headers of loopback clients, as a mesh believes those of its own.
    pub fn trust_the_caller(&mut self) {
        self.manager
            .insert("use_remote_address".into(), json!(true));
        self.manager.insert(
            "internal_address_config".into(),
            json!({"cidr_ranges": [{"address_prefix": "127.0.0.0", "prefix_len": 8}]}),
        );
    }

    /// The plugin as an HTTP filter entry.
    fn idempo(&self) -> Option<Value> {
        let configuration = self.filter.as_ref()?;
        let text = self.filter_text.clone();
        let text = text.or_else(|| self.filter_as_text.then(|| configuration.to_string()));
        let configuration = if let Some(text) = text {
            json!({
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": text,
            })
        } else {
            json!({
                "@type": "type.googleapis.com/google.protobuf.Struct",
                "value": configuration,
            })
        };
        Some(json!({
            "name": "idempo",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
                "config": {
                    "name": "idempo",
                    "vm_config": {
                        "vm_id": "idempo",
                        "runtime": "envoy.wasm.runtime.v8",
                        "code": {"local": {"filename": self.wasm}},
                        "environment_variables": {"host_env_keys": self.host_env_keys},
                    },
                    "configuration": configuration,
                    "failure_policy": "FAIL_RELOAD",
                    "reload_config": {"backoff": {"base_interval": "0.1s", "max_interval": "1s"}},
                    "allow_on_headers_stop_iteration": self.stop_iteration,
                },
            },
        }))
    }

    /// The listeners: data, the loopback where there is one, and what a test adds.
    pub(super) fn all_listeners(&self, files: &Files) -> Vec<Value> {
        if self.withdrawn {
            return Vec::new();
        }
        let mut all = vec![self.listener(&files.access_log())];
        all.extend(
            self.loopback
                .then(|| loopback::listener(self, &files.loopback_access_log())),
        );
        all.extend(self.listeners.iter().cloned());
        all
    }

    fn listener(&self, access_log: &Path) -> Value {
        let mut listener = json!({
            "name": LISTENER,
            "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
            "filter_chains": [chain(self.manager(LISTENER, access_log))],
        });
        self.limit_buffers(&mut listener);
        merge(&mut listener, &self.listener);
        listener
    }

    /// A connection manager with the filters and the routes of the data listener.
    pub(super) fn manager(&self, stat_prefix: &str, access_log: &Path) -> Value {
        let mut action = json!({"cluster": "upstream", "timeout": "15s"});
        merge(&mut action, &self.route_action);
        let mut route = json!({
            "name": "default",
            "match": {"prefix": "/"},
            "route": action,
            "metadata": {"filter_metadata": self.route_metadata},
        });
        merge(&mut route, &self.route);
        let mut routes = self.routes_before.clone();
        routes.push(route);
        let mut filters = self.filters_before.clone();
        filters.extend(self.idempo());
        filters.extend(self.filters_after.iter().cloned());
        filters.push(json!({
            "name": "envoy.filters.http.router",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
            },
        }));
        let mut manager = json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": stat_prefix,
            "codec_type": "AUTO",
            "normalize_path": true,
            "merge_slashes": true,
            "path_with_escaped_slashes_action": "REJECT_REQUEST",
            "stream_idle_timeout": "35s",
            "access_log": [access_log_to(access_log)],
            "http_filters": filters,
            "route_config": {
                "name": "data",
                "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}],
            },
        });
        if self.buffer_limit.is_some() {
            manager["http2_protocol_options"] = self.http2();
        }
        merge(&mut manager, &self.manager);
        manager
    }

    /// Sets the limit on a listener or a cluster.
    pub(super) fn limit_buffers(&self, of: &mut Value) {
        if let Some(octets) = self.buffer_limit {
            of["per_connection_buffer_limit_bytes"] = json!(octets);
        }
    }

    /// HTTP/2 with windows as large as the buffers: else a peer may send 16 MiB ahead.
    pub(super) fn http2(&self) -> Value {
        match self.buffer_limit {
            None => json!({}),
            Some(octets) => {
                let window = octets.max(65_535);
                json!({
                    "initial_stream_window_size": window,
                    "initial_connection_window_size": window,
                })
            }
        }
    }

    /// The bootstrap. With `lds`, the listeners come from that file.
    pub(super) fn bootstrap(&self, files: &Files, lds: Option<&Path>) -> Value {
        let mut cluster = cluster("upstream", &self.hosts);
        self.limit_buffers(&mut cluster);
        merge(&mut cluster, &self.cluster);
        let mut clusters = vec![cluster];
        clusters.extend(self.loopback.then(|| loopback::cluster(self)));
        clusters.extend(self.clusters.iter().cloned());
        let mut resources = json!({"clusters": clusters});
        let mut whole = json!({
            "node": {"id": "host-tests", "cluster": "host-tests"},
            "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        });
        match lds {
            None => resources["listeners"] = self.all_listeners(files).into(),
            Some(file) => {
                whole["dynamic_resources"] = json!({
                    "lds_config": {"path_config_source": {"path": file}},
                });
            }
        }
        whole["static_resources"] = resources;
        if self.loopback {
            whole["bootstrap_extensions"] = loopback::extensions();
        }
        merge(&mut whole, &self.bootstrap);
        whole
    }
}

/// A filter chain that is this connection manager alone.
pub(super) fn chain(manager: Value) -> Value {
    json!({"filters": [{
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": manager,
    }]})
}

/// A static cluster of those hosts.
#[must_use]
pub fn cluster(name: &str, hosts: &[SocketAddr]) -> Value {
    let endpoints: Vec<_> = hosts
        .iter()
        .map(|a| {
            json!({"endpoint": {"address": {"socket_address": {
                "address": a.ip().to_string(),
                "port_value": a.port(),
            }}}})
        })
        .collect();
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
    })
}

/// A discovery answer that holds those listeners.
pub(super) fn discovery(listeners: Vec<Value>, version: u64) -> Value {
    let typed = |mut resource: Value| {
        resource["@type"] = json!("type.googleapis.com/envoy.config.listener.v3.Listener");
        resource
    };
    let resources: Vec<_> = listeners.into_iter().map(typed).collect();
    json!({"version_info": version.to_string(), "resources": resources})
}

fn access_log_to(path: &Path) -> Value {
    json!({
        "name": "envoy.access_loggers.file",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
            "path": path,
            "log_format": {"json_format": {
                "method": "%REQ(:METHOD)%",
                "path": "%REQ(:PATH)%",
                "protocol": "%PROTOCOL%",
                "request_id": "%REQ(X-REQUEST-ID)%",
                "status": "%RESPONSE_CODE%",
                "details": "%RESPONSE_CODE_DETAILS%",
                "flags": "%RESPONSE_FLAGS%",
                "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
                "upstream": "%UPSTREAM_HOST%",
                "outcome": "%FILTER_STATE(wasm.idempo.outcome:PLAIN)%",
                "operation": "%FILTER_STATE(wasm.idempo.operation:PLAIN)%",
                "route": "%FILTER_STATE(wasm.idempo.route:PLAIN)%",
                "audit": "%FILTER_STATE(wasm.idempo.audit:PLAIN)%",
            }},
        },
    })
}

fn merge(into: &mut Value, members: &Map<String, Value>) {
    for (name, value) in members {
        into[name] = value.clone();
    }
}
