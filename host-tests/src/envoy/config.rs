//! The Envoy bootstrap that tests run with, as JSON (which Envoy reads as it reads YAML).
//!
//! It follows `envoy/envoy.yaml` where the filter is concerned; what differs is there for tests:
//! ports that the kernel chooses, one access log file, an optional listener file for reloads.

use serde_json::{Map, Value, json};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// The name of the data listener.
pub const LISTENER: &str = "data";

/// What a test may choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// The filter's configuration; `None` leaves the filter out (plain proxying).
    pub filter: Option<Value>,
    /// Hand the configuration over as a JSON string rather than as a `Struct`.
    pub filter_as_text: bool,
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
    /// Members merged into the bootstrap.
    pub bootstrap: Map<String, Value>,
    /// Upstream hosts.
    pub hosts: Vec<SocketAddr>,
}

impl Options {
    pub(super) fn new(hosts: Vec<SocketAddr>, filter: Option<Value>) -> Self {
        Self {
            filter,
            filter_as_text: false,
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
            bootstrap: Map::new(),
            hosts,
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
        let configuration = if self.filter_as_text {
            json!({
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": configuration.to_string(),
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

    /// The data listener. `access_log` is where its lines go.
    pub(super) fn listener(&self, access_log: &Path) -> Value {
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
            "stat_prefix": "data",
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
        merge(&mut manager, &self.manager);
        let mut listener = json!({
            "name": LISTENER,
            "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
            "filter_chains": [{"filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": manager,
            }]}],
        });
        merge(&mut listener, &self.listener);
        listener
    }

    /// The bootstrap. With `lds`, the data listener comes from that file.
    pub(super) fn bootstrap(&self, access_log: &Path, lds: Option<&Path>) -> Value {
        let mut cluster = cluster("upstream", &self.hosts);
        merge(&mut cluster, &self.cluster);
        let mut clusters = vec![cluster];
        clusters.extend(self.clusters.iter().cloned());
        let mut resources = json!({"clusters": clusters});
        let mut whole = json!({
            "node": {"id": "host-tests", "cluster": "host-tests"},
            "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        });
        match lds {
            None => resources["listeners"] = json!([self.listener(access_log)]),
            Some(file) => {
                whole["dynamic_resources"] = json!({
                    "lds_config": {"path_config_source": {"path": file}},
                });
            }
        }
        whole["static_resources"] = resources;
        merge(&mut whole, &self.bootstrap);
        whole
    }
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

/// A discovery answer that holds one listener.
pub(super) fn discovery(listener: &Value, version: u64) -> Value {
    let mut resource = listener.clone();
    resource["@type"] = json!("type.googleapis.com/envoy.config.listener.v3.Listener");
    json!({"version_info": version.to_string(), "resources": [resource]})
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
