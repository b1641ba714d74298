//! What the Envoy route says in its metadata: `filter_metadata: {idempo: {…}}`.

use crate::plan::Mode;
use crate::tenant::Facts;

/// The understood members.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RouteMetadata {
    /// `requires_idempotency`: true demands a rule and a key, false passes.
    pub(super) requires: Option<bool>,
    /// `route`: the rule's id.
    pub(super) route: Option<String>,
    /// `mode`: overrides the rule's.
    pub(super) mode: Option<Mode>,
    /// A member that was not understood: refused as misconfigured, never passed.
    pub(super) odd: Option<&'static str>,
}

const BASE: [&str; 4] = ["xds", "route_metadata", "filter_metadata", "idempo"];

impl RouteMetadata {
    pub(super) fn read(facts: &dyn Facts) -> Self {
        let [a, b, c, d] = BASE;
        // One question for the usual case that the route says nothing.
        if facts.property(&BASE).is_none() {
            return Self::default();
        }
        let member = |name: &str| {
            facts
                .property(&[a, b, c, d, name])
                .filter(|v| !v.is_empty())
        };
        let mut out = Self::default();
        if let Some(value) = member("requires_idempotency") {
            match value.as_slice() {
                [1] | b"true" => out.requires = Some(true),
                [0] | b"false" => out.requires = Some(false),
                _ => out.odd = Some("requires_idempotency"),
            }
        }
        if let Some(value) = member("route") {
            match String::from_utf8(value) {
                Ok(name) => out.route = Some(name),
                Err(_) => out.odd = Some("route"),
            }
        }
        if let Some(value) = member("mode") {
            match value.as_slice() {
                b"enforce" => out.mode = Some(Mode::Enforce),
                b"observe" => out.mode = Some(Mode::Observe),
                b"off" => out.mode = Some(Mode::Off),
                _ => out.odd = Some("mode"),
            }
        }
        out
    }
}
