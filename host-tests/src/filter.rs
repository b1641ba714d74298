//! Filter configurations that several tests share.
//!
//! They are written here once, so that a change of the configuration language is one edit.

use serde_json::{Value, json};

/// One rule for `POST /v1/charges` and below, everything else by default.
#[must_use]
pub fn minimal() -> Value {
    with_route(json!({}))
}

/// [`minimal`] with members of the rule set (or replaced).
#[must_use]
pub fn with_route(members: Value) -> Value {
    let mut route = json!({
        "id": "charges",
        "match": {"methods": ["POST"], "path": {"prefix": "/v1"}},
    });
    if let Value::Object(members) = members {
        for (name, value) in members {
            route[name] = value;
        }
    }
    json!({
        "namespace": "host-tests",
        "store": {"shared_data": {}},
        "routes": [route],
    })
}

/// A fresh random version 4 UUID, as client libraries make them.
///
/// # Panics
/// Where the kernel gives no randomness.
#[must_use]
pub fn key() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/uuid")
        .expect("a random UUID")
        .trim()
        .to_owned()
}
