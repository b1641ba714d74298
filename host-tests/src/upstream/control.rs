//! The upstream's own JSON answers under `/_demo/`.

use super::memory::Memory;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

/// Answers one control request; `rest` is the path after `/_demo/`.
pub(super) fn answer(method: &str, rest: &str, memory: &Memory) -> (u16, String) {
    let body = match (method, rest) {
        ("GET", "effects") => {
            let effects = memory.effects();
            json!({
                "total": effects.total,
                "by_operation": effects.by_operation,
                "by_key": effects.by_key,
            })
        }
        ("GET", "requests") => memory
            .requests()
            .iter()
            .map(|r| {
                let headers: Vec<_> = r
                    .headers
                    .iter()
                    .map(|(n, v)| json!([n, String::from_utf8_lossy(v)]))
                    .collect();
                json!({
                    "method": r.method,
                    "target": r.target,
                    "headers": headers,
                    "body_b64": STANDARD.encode(&r.body),
                    "body_length": r.length,
                    "body_blake3": r.digest.to_hex().as_str(),
                    "effect": r.effect,
                })
            })
            .collect(),
        ("POST", "reset") => {
            memory.reset();
            json!({"reset": true})
        }
        ("POST", _) if rest.starts_with("open/") => {
            let gate = &rest["open/".len()..];
            memory.open(gate);
            json!({"opened": gate})
        }
        _ => return (404, json!({"error": "unknown control request"}).to_string()),
    };
    (200, body.to_string())
}
