//! The way back into the same Envoy: a cluster whose only endpoint is an internal listener, which has
//! the filters and the routes of the data listener.
//!
//! What is sent there has been through the data listener, or was made by the filter itself: so the
//! connection manager takes addresses and request ids as they come instead of adding its own.

use super::config::{Options, chain};
use serde_json::{Value, json};
use std::path::Path;

/// The name of the internal listener and of the cluster that leads to it.
pub const LOOPBACK: &str = "idempo_loopback";

/// More at once than there ever are: what the filter has claimed must not be refused here.
const UNLIMITED: u32 = 1_000_000;

/// Without this extension nothing can connect to an internal listener.
pub(super) fn extensions() -> Value {
    json!([{
        "name": "envoy.bootstrap.internal_listener",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener",
        },
    }])
}

pub(super) fn listener(options: &Options, access_log: &Path) -> Value {
    let mut own = options.clone();
    own.filter = options.loopback_filter.clone().or(own.filter);
    // What a test sets there is meant for clients.
    own.manager.clear();
    let mut manager = own.manager(LOOPBACK, access_log);
    for (name, value) in [
        ("use_remote_address", false),
        ("skip_xff_append", true),
        ("generate_request_id", false),
        ("preserve_external_request_id", true),
    ] {
        manager[name] = json!(value);
    }
    let mut listener = json!({
        "name": LOOPBACK,
        "internal_listener": {},
        "filter_chains": [chain(manager)],
    });
    options.limit_buffers(&mut listener);
    listener
}

/// The cluster that leads to the internal listener.
#[must_use]
pub fn cluster(options: &Options) -> Value {
    let mut cluster = json!({
        "name": LOOPBACK,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": LOOPBACK, "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": {"envoy_internal_address": {"server_listener_name": LOOPBACK}}}},
        ]}]},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": options.http2()},
            },
        },
        "transport_socket": {
            "name": "envoy.transport_sockets.internal_upstream",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.internal_upstream.v3.InternalUpstreamTransport",
                "transport_socket": {
                    "name": "envoy.transport_sockets.raw_buffer",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer",
                    },
                },
            },
        },
        "circuit_breakers": {"thresholds": [{
            "max_connections": UNLIMITED,
            "max_pending_requests": UNLIMITED,
            "max_requests": UNLIMITED,
        }]},
    });
    options.limit_buffers(&mut cluster);
    cluster
}
