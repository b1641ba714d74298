//! What an edit of the configuration does to operations that already exist.
//!
//! An operation is found again by (namespace, tenant, route id, key). Whatever changes one of these for a
//! request that may be retried across the edit makes the retry a new operation: it would run again. Such
//! changes are [`Kind::Identity`], and a pipeline should stop at them. Where this module cannot tell whether
//! a request keeps its identity (two matchers that may meet, say), it says Identity.

use super::duration::show;
use super::error::quote;
use super::matching::{covers, overlap};
use crate::plan::{Class, KeyFormat, Mode, Plan, Route, Store};
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
        route(before, after, &mut out);
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
    selection(old, new, &pairs, &mut out);
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
    let (Store::SharedData(before), Store::SharedData(after)) = (&old.store, &new.store);
    for (name, pair, kind, sentence) in [
        (
            "records",
            (&before.records_bytes, &after.records_bytes),
            Kind::Identity,
            "the table is laid out by its budget: where its size changes without a restart, records of before may not be found",
        ),
        (
            "tombstones",
            (&before.tombstones_bytes, &after.tombstones_bytes),
            Kind::Identity,
            "the table is laid out by its budget: where its size changes without a restart, tombstones of before may not be found",
        ),
        (
            "bodies",
            (&before.bodies_bytes, &after.bodies_bytes),
            Kind::Replay,
            "the table is laid out by its budget: answers of before may not be found, and are then unavailable, not run again",
        ),
    ] {
        out.if_differs(pair, kind, format!("store.shared_data.{name}"), sentence);
    }
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

fn route(before: &Route, after: &Route, out: &mut Changes) {
    let at = |member: &str| format!("routes[{}].{member}", after.id);
    if before.id != after.id {
        out.add(
            Kind::Harmless,
            at("id"),
            format!(
                "was {}, which previous declares: its records are found",
                quote(&before.id)
            ),
        );
    }
    if before.mode != after.mode {
        // None follows the top-level mode, whose own change is told there.
        let (b, a) = (
            before.mode.unwrap_or_default(),
            after.mode.unwrap_or_default(),
        );
        if b == a {
            out.add(
                Kind::Harmless,
                at("mode"),
                "inherits what it said before, or the reverse",
            );
        } else {
            mode(&at("mode"), b, a, out);
        }
    }
    key(before, after, out);
    out.if_differs(
        (&before.key_time, &after.key_time),
        Kind::Harmless,
        at("key_time"),
        "another rule for the age of keys: retries that are too old by it are refused",
    );
    fingerprint(before, after, out);
    out.if_differs(
        (&before.schema_version, &after.schema_version),
        Kind::Replay,
        at("schema_version"),
        format!(
            "from {} to {}: answers of before are unavailable (replay_unavailable)",
            quote(&before.schema_version),
            quote(&after.schema_version)
        ),
    );
    windows(before, after, out);
    record(before, after, out);
    for (differs, member, sentence) in [
        (
            before.upstream != after.upstream,
            "upstream",
            "how new attempts are sent on",
        ),
        (
            before.lease_ms != after.lease_ms,
            "lease",
            "holds for new claims",
        ),
        (
            before.in_flight != after.in_flight,
            "in_flight",
            "what duplicates get while the first attempt runs",
        ),
        (
            before.unknown != after.unknown,
            "unknown",
            "applies to operations that are unknown now, too: check that re-running those is meant",
        ),
        (
            before.store_failure != after.store_failure,
            "store_failure",
            "what requests get while the store cannot be asked",
        ),
        (
            before.statuses != after.statuses,
            "statuses",
            "refusals carry other statuses",
        ),
        (
            before.accepted_deadline_ms != after.accepted_deadline_ms,
            "accepted_deadline",
            "holds for new acceptances",
        ),
        (
            before.previous != after.previous,
            "previous",
            "other earlier identities are looked up; drop one only after its windows have passed",
        ),
    ] {
        if differs {
            out.add(Kind::Harmless, at(member), sentence);
        }
    }
}

fn key(before: &Route, after: &Route, out: &mut Changes) {
    let at = |member: &str| format!("routes[{}].key.{member}", after.id);
    let (b, a) = (&before.key, &after.key);
    let moved = "the key is read from elsewhere: a retry that carries it in the old place is new, or has none";
    out.if_differs((&b.header, &a.header), Kind::Identity, at("header"), moved);
    out.if_differs(
        (&b.body_field, &a.body_field),
        Kind::Identity,
        at("body_field"),
        moved,
    );
    out.if_differs(
        (&b.case, &a.case),
        Kind::Identity,
        at("case"),
        format!("keys are compared otherwise, {RERUN}"),
    );
    out.if_differs(
        (&b.syntax, &a.syntax),
        Kind::Identity,
        at("syntax"),
        "the header is read otherwise: a retry in the old form is refused or becomes another key",
    );
    if b.formats != a.formats {
        // UUIDs and ULIDs are compared in lower case, other forms by the route's rule: a key that
        // changes sides changes identity.
        let folds = |f: KeyFormat| b.formats.contains(&f) != a.formats.contains(&f);
        let crosses = folds(KeyFormat::Uuid) || folds(KeyFormat::Ulid);
        out.add(
            if crosses { Kind::Identity } else { Kind::Harmless },
            at("formats"),
            if crosses {
                "uuid and ulid keys are compared in lower case, others by the case rule: a key that is now read as another form may become new"
            } else {
                "keys of a form that is no longer listed are refused"
            },
        );
    }
    let bounds = |k: &crate::plan::KeyRule| (k.min_entropy_bytes, k.max_length);
    out.if_differs(
        (&bounds(b), &bounds(a)),
        Kind::Harmless,
        at("max_length"),
        "keys outside of the new bounds are refused, never taken for others",
    );
    out.if_differs(
        (&b.required, &a.required),
        Kind::Harmless,
        at("required"),
        if a.required {
            "writes without a key are refused from now on"
        } else {
            "writes without a key pass unprotected from now on"
        },
    );
}

fn fingerprint(before: &Route, after: &Route, out: &mut Changes) {
    let at = |member: &str| format!("routes[{}].fingerprint.{member}", after.id);
    let (b, a) = (&before.fingerprint, &after.fingerprint);
    let sentence = "records of before were made under other settings: a retry that cannot be compared gets fingerprint_incomparable";
    for (differs, member) in [
        (b.body != a.body, "body"),
        (b.include != a.include, "include"),
        (b.exclude != a.exclude, "exclude"),
        (b.headers != a.headers, "headers"),
        (b.digest != a.digest, "digest"),
    ] {
        if differs {
            out.add(Kind::Comparability, at(member), sentence);
        }
    }
    if b.max_body != a.max_body {
        out.add(
            Kind::Harmless,
            at("max_body"),
            if a.max_body < b.max_body {
                "a retry with a larger body is refused (payload_too_large)"
            } else {
                "larger bodies are taken"
            },
        );
    }
}

fn windows(before: &Route, after: &Route, out: &mut Changes) {
    let at = |member: &str| format!("routes[{}].replay.{member}", after.id);
    let (b, a) = (&before.replay, &after.replay);
    if b.ttl_ms != a.ttl_ms {
        let shorter = a.ttl_ms < b.ttl_ms;
        out.add(
            if shorter {
                Kind::Replay
            } else {
                Kind::Harmless
            },
            at("ttl"),
            format!(
                "from {} to {}: {}",
                show(b.ttl_ms),
                show(a.ttl_ms),
                if shorter {
                    "answers expire sooner than clients were told"
                } else {
                    "answers live longer"
                }
            ),
        );
    }
    if b.tombstone_ttl_ms != a.tombstone_ttl_ms {
        let none = a.tombstone_ttl_ms == 0;
        out.add(
            if none { Kind::Identity } else { Kind::Harmless },
            at("tombstone_ttl"),
            if none {
                "an expired key is a new operation from now on, so a late retry runs again"
                    .to_owned()
            } else {
                format!(
                    "from {} to {}",
                    show(b.tombstone_ttl_ms),
                    show(a.tombstone_ttl_ms)
                )
            },
        );
    }
    out.if_differs(
        (&b.max_inline_body, &a.max_inline_body),
        Kind::Harmless,
        at("max_inline_body"),
        "holds for answers recorded from now on",
    );
}

fn record(before: &Route, after: &Route, out: &mut Changes) {
    let at = |member: &str| format!("routes[{}].record.{member}", after.id);
    let class = |route: &Route, status: u16| {
        let rule = route
            .record
            .classes
            .iter()
            .find(|r| (r.from..=r.to).contains(&status));
        rule.map(|r| r.class)
    };
    let differing: Vec<u16> = (200..=599)
        .filter(|s| class(before, *s) != class(after, *s))
        .collect();
    if let (Some(first), Some(last)) = (differing.first(), differing.last()) {
        let released = differing
            .iter()
            .any(|s| class(after, *s) == Some(Class::Release));
        out.add(
            Kind::Harmless,
            at("classes"),
            format!(
                "holds for answers recorded from now on ({} statuses between {first} and {last}){}",
                differing.len(),
                if released { "; some of them let a retry run again: check that they prove that nothing was done" } else { "" }
            ),
        );
    }
    out.if_differs(
        (
            &(&before.record.allow_headers, &before.record.deny_headers),
            &(&after.record.allow_headers, &after.record.deny_headers),
        ),
        Kind::Harmless,
        at("headers"),
        "holds for answers recorded from now on",
    );
}

/// Requests that a route matched and that now fall to another route, or to none.
fn selection(old: &Plan, new: &Plan, pairs: &[(&Route, &Route)], out: &mut Changes) {
    let place = |plan: &Plan, id: &str| plan.routes.iter().position(|r| r.id == id);
    for (before, after) in pairs {
        let path = format!("routes[{}].match", after.id);
        if before.matcher != after.matcher {
            if covers(&after.matcher, &before.matcher) {
                out.add(
                    Kind::Harmless,
                    path.clone(),
                    "matches all that it matched, and more",
                );
            } else {
                out.add(
                    Kind::Identity,
                    path.clone(),
                    format!(
                        "requests that it matched may now match another route or none, {RERUN}"
                    ),
                );
                continue;
            }
        }
        let (Some(was_at), Some(is_at)) = (place(old, &before.id), place(new, &after.id)) else {
            continue;
        };
        // A route that comes first now, and takes requests that this one had.
        let thief = new.routes.iter().take(is_at).find(|first| {
            let origin = pairs
                .iter()
                .find(|(_, a)| a.id == first.id)
                .map(|(b, _)| *b);
            let unchanged = origin.is_some_and(|o| {
                o.matcher == first.matcher && place(old, &o.id).is_some_and(|p| p < was_at)
            });
            !unchanged && overlap(&first.matcher, &before.matcher)
        });
        if let Some(thief) = thief {
            out.add(
                Kind::Identity,
                path,
                format!(
                    "{} now comes first and may take requests that this route had, {RERUN}",
                    quote(&thief.id)
                ),
            );
        }
    }
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
