//! What an edit of the configuration does to operations that already exist.
//!
//! An operation is found again by (namespace, tenant, route id, key). Whatever changes one of these for a
//! request that may be retried across the edit makes the retry a new operation: it would run again. Such
//! changes are [`Kind::Identity`], and a pipeline should stop at them. Where this module cannot tell whether
//! a request keeps its identity (two matchers that may meet, say), it says Identity.

mod routes;
mod selection;
mod store;

use super::error::quote;
use crate::plan::{Mode, Plan, Route};
use serde::Serialize;
use std::fmt;

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Keys become new, or are no longer looked at: a retry across the change may run again.
    Identity,
    /// Records cannot be compared by fingerprint: retries get `fingerprint_incomparable`.
    Comparability,
    /// Recorded answers are no longer replayed: retries get `replay_unavailable` or `key_expired`.
    Replay,
    /// No operation that exists is answered otherwise than its record allows.
    Harmless,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Where; routes by their id: `routes[charges].key.case`.
    pub path: String,
    /// What it does.
    pub kind: Kind,
    /// What it means, in a sentence.
    pub sentence: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Identity => "identity",
            Kind::Comparability => "comparability",
            Kind::Replay => "replay",
            Kind::Harmless => "harmless",
        };
        write!(f, "[{kind}] {}: {}", self.path, self.sentence)
    }
}

/// Every difference, the gravest first.
#[must_use]
pub fn diff(old: &Plan, new: &Plan) -> Vec<Change> {
    let mut out = Changes::default();
    top(old, new, &mut out);
    let pairs = pairs(old, new);
    for (before, after) in &pairs {
        routes::compare(before, after, (old.mode, new.mode), &mut out);
    }
    for gone in old
        .routes
        .iter()
        .filter(|o| !pairs.iter().any(|(b, _)| b.id == o.id))
    {
        out.add(
            Kind::Identity,
            format!("routes[{}]", gone.id),
            "the route is gone, and no route names it in previous: its keys are forgotten, so a retry passes or becomes a new operation of another route",
        );
    }
    for born in new
        .routes
        .iter()
        .filter(|n| !pairs.iter().any(|(_, a)| a.id == n.id))
    {
        out.add(
            Kind::Harmless,
            format!("routes[{}]", born.id),
            "a new route; what it alone matches is protected from now on",
        );
    }
    selection::compare(old, new, &pairs, &mut out);
    out.list.sort_by_key(|c| c.kind);
    out.list
}

#[derive(Default)]
struct Changes {
    list: Vec<Change>,
}

impl Changes {
    fn add(&mut self, kind: Kind, path: impl Into<String>, sentence: impl Into<String>) {
        self.list.push(Change {
            path: path.into(),
            kind,
            sentence: sentence.into(),
        });
    }

    /// A change where two values differ.
    fn if_differs<T: PartialEq>(
        &mut self,
        (before, after): (&T, &T),
        kind: Kind,
        path: impl Into<String>,
        sentence: impl Into<String>,
    ) {
        if before != after {
            self.add(kind, path, sentence);
        }
    }
}

/// Routes that are the same one: by id, or by what `previous` says.
fn pairs<'a>(old: &'a Plan, new: &'a Plan) -> Vec<(&'a Route, &'a Route)> {
    let successor = |o: &Route| {
        new.route(&o.id).or_else(|| {
            new.routes
                .iter()
                .find(|n| n.previous.iter().any(|p| p.id == o.id))
        })
    };
    old.routes
        .iter()
        .filter_map(|o| Some((o, successor(o)?)))
        .collect()
}

const RERUN: &str = "so a retry across the change would run again";

fn top(old: &Plan, new: &Plan, out: &mut Changes) {
    out.if_differs(
        (&old.namespace, &new.namespace),
        Kind::Identity,
        "namespace",
        format!(
            "from {} to {}: every key becomes new, {RERUN}",
            quote(&old.namespace),
            quote(&new.namespace)
        ),
    );
    out.if_differs(
        (&old.tenant.sources, &new.tenant.sources),
        Kind::Identity,
        "tenant.sources",
        format!("a request may get another tenant, {RERUN}"),
    );
    out.if_differs(
        (&old.tenant.required, &new.tenant.required),
        Kind::Identity,
        "tenant.required",
        "requests without a tenant are told apart otherwise than before: their keys are refused or become new",
    );
    tenant_default(old, new, out);
    out.if_differs(
        (&old.principal, &new.principal),
        Kind::Comparability,
        "principal",
        "the principal is bound into the fingerprint: records of before cannot be compared",
    );
    mode("mode", old.mode, new.mode, out);
    if old.enforce_fraction.to_bits() != new.enforce_fraction.to_bits() {
        let less = new.enforce_fraction < old.enforce_fraction;
        out.add(
            if less { Kind::Identity } else { Kind::Harmless },
            "enforce_fraction",
            if less {
                "fewer operations are enforced: retries of the others are observed and run again"
            } else {
                "more operations are enforced"
            },
        );
    }
    store::compare(&old.store, &new.store, out);
    out.if_differs(
        (&old.replay_cache_bytes, &new.replay_cache_bytes),
        Kind::Harmless,
        "replay_cache",
        "only keeps at hand what the store knows",
    );
    out.if_differs(
        (&old.limits, &new.limits),
        Kind::Harmless,
        "limits",
        "bounds of new claims and recordings; what exists stays",
    );
    out.if_differs(
        (&old.signing, &new.signing),
        Kind::Harmless,
        "signing",
        "the upstream must know the new secret before it signs; records are not signed",
    );
    out.if_differs(
        (&old.loopback_cluster, &new.loopback_cluster),
        Kind::Harmless,
        "loopback_cluster",
        "new attempts are sent another way; what runs and what is recorded stays",
    );
}

/// Another default is no break for a route that looks its old identity up.
fn tenant_default(old: &Plan, new: &Plan, out: &mut Changes) {
    let was = &old.tenant.default;
    if *was == new.tenant.default {
        return;
    }
    let uncovered: Vec<&str> = pairs(old, new)
        .into_iter()
        .filter(|(before, after)| {
            let mut previous = after.previous.iter();
            !previous.any(|p| p.id == before.id && p.tenant_default.as_ref() == Some(was))
        })
        .map(|(_, after)| after.id.as_str())
        .collect();
    if uncovered.is_empty() {
        out.add(
            Kind::Harmless,
            "tenant.default",
            "every route looks its identity under the old default up",
        );
    } else {
        out.add(
            Kind::Identity,
            "tenant.default",
            format!(
                "keys without a tenant become new for {}, {RERUN}; previous: [{{id, tenant_default: {}}}] keeps them",
                uncovered.join(", "),
                quote(was)
            ),
        );
    }
}

fn mode(path: &str, before: Mode, after: Mode, out: &mut Changes) {
    if before == after {
        return;
    }
    let (kind, sentence) = match (before, after) {
        (Mode::Enforce, Mode::Observe | Mode::Off) => (
            Kind::Identity,
            "duplicates are no longer stopped: a retry across the change runs again",
        ),
        (_, Mode::Off) => (Kind::Harmless, "nothing is observed any more"),
        (_, Mode::Observe) => (Kind::Harmless, "operations are observed from now on"),
        (_, Mode::Enforce) => (
            Kind::Harmless,
            "operations are enforced from now on; those of before have no recorded answer",
        ),
    };
    out.add(kind, path, sentence);
}

#[cfg(test)]
mod tests;
