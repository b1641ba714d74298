//! Raw RESP without a sidecar: a listener of the same Envoy takes a POST for the beginning of a tunnel,
//! and hands its body to Redis as it is (`CONNECT` termination with `allow_post`).
//!
//! It listens on a Unix socket that nobody else may open. An internal listener will not do: only worker
//! threads can connect to one, and the filter's own root on Envoy's main thread asks the store, too.
//!
//! The end of the request closes Envoy's side of the connection to Redis. Redis sees that after it has
//! answered, closes its own, and so ends the answer. Of an answer that it could not write at once it
//! then drops the rest: no more than 64 KiB come through for certain.

use crate::{envoy::Options, filter::key};
use serde_json::{Value, json};
use std::path::Path;

/// The listener, and the cluster that is Redis itself.
const LISTENER: &str = "store_resp";
const REDIS: &str = "redis";

/// Adds what makes `cluster` lead to the Redis at that socket.
pub fn add(options: &mut Options, cluster: &str, socket: &Path) {
    let (listener, clusters) = parts(cluster, socket);
    options.listeners.push(listener);
    options.clusters.extend(clusters);
}

/// The listener and the clusters that make `cluster` lead to the Redis at that socket.
#[must_use]
pub fn parts(cluster: &str, socket: &Path) -> (Value, [Value; 2]) {
    // Of each Envoy its own.
    let tunnel = socket.with_file_name(format!("resp-{}", key()));
    (
        listener(&tunnel),
        [at_socket(REDIS, socket), at_socket(cluster, &tunnel)],
    )
}

fn at_socket(cluster: &str, socket: &Path) -> Value {
    json!({
        "name": cluster,
        "type": "STATIC",
        "connect_timeout": "0.25s",
        "load_assignment": {"cluster_name": cluster, "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": {"pipe": {"path": socket}}}},
        ]}]},
    })
}

fn listener(tunnel: &Path) -> Value {
    json!({
        "name": LISTENER,
        "address": {"pipe": {"path": tunnel, "mode": 0o600}},
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": LISTENER,
                "route_config": {"virtual_hosts": [{
                    "name": "redis",
                    "domains": ["*"],
                    "routes": [{
                        "match": {"path": "/"},
                        "route": {
                            "cluster": REDIS,
                            "upgrade_configs": [{
                                "upgrade_type": "CONNECT",
                                "connect_config": {"allow_post": true},
                            }],
                        },
                    }],
                }]},
                "http_filters": [{
                    "name": "envoy.filters.http.router",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
                    },
                }],
            },
        }]}],
    })
}
