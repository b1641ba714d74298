//! The audit line: a stream's transitions as one JSON value, versioned.
//!
//! It goes into filter state, from where the access log takes it, since filter log lines are often
//! switched off. No key, no payload; the tenant as a digest.

use crate::ids::{OperationId, TenantDigest};
use crate::record::{Source, Status};
use serde::Serialize;

/// Version of the schema below. Members may be added within a version, never changed or removed.
pub const SCHEMA: u32 = 1;

/// One transition that this stream caused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Transition {
    /// Unix milliseconds.
    pub at: u64,
    /// The state before.
    pub from: &'static str,
    /// The state after.
    pub to: &'static str,
    /// Who.
    pub source: &'static str,
    /// How the store answered: `applied`, `already`, `stale`, `failed`.
    pub result: &'static str,
}

impl Transition {
    /// A transition of the attempt that holds the claim.
    #[must_use]
    pub const fn own(at: u64, from: Status, to: Status, result: &'static str) -> Self {
        Self {
            at,
            from: from.as_str(),
            to: to.as_str(),
            source: Source::Owner.as_str(),
            result,
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    v: u32,
    operation: &'a str,
    route: &'a str,
    tenant: &'a str,
    attempt: &'a str,
    generation: u64,
    transitions: &'a [Transition],
}

/// The JSON value.
#[must_use]
pub fn render(
    operation: &OperationId,
    route: &str,
    tenant: &TenantDigest,
    attempt: &str,
    generation: u64,
    transitions: &[Transition],
) -> String {
    let line = Line {
        v: SCHEMA,
        operation: &operation.hex(),
        route,
        tenant: &tenant.hex(),
        attempt,
        generation,
        transitions,
    };
    serde_json::to_string(&line).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn the_schema_is_fixed() {
        let text = render(
            &OperationId([0; 32]),
            "charges",
            &TenantDigest([1; 8]),
            "a\"1",
            7,
            &[Transition::own(
                5,
                Status::Absent,
                Status::Pending,
                "applied",
            )],
        );
        let zeros = "0".repeat(64);
        assert_eq!(
            text,
            format!(
                r#"{{"v":1,"operation":"{zeros}","route":"charges","tenant":"0101010101010101","attempt":"a\"1","generation":7,"transitions":[{{"at":5,"from":"absent","to":"pending","source":"owner","result":"applied"}}]}}"#
            )
        );
    }
}
