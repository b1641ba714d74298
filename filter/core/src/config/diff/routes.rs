//! Differences within one route.

use super::{Changes, Kind, RERUN, mode};
use crate::config::duration::show;
use crate::config::error::quote;
use crate::plan::{Class, KeyFormat, Mode, Route};

/// Every difference within one route but what it matches.
pub(super) fn compare(
    before: &Route,
    after: &Route,
    (top_before, top_after): (Mode, Mode),
    out: &mut Changes,
) {
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
        let (b, a) = (
            before.mode.unwrap_or(top_before),
            after.mode.unwrap_or(top_after),
        );
        if b == a {
            out.add(
                Kind::Harmless,
                at("mode"),
                "the same mode, inherited instead of written or the reverse",
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
            before.claim_after != after.claim_after,
            "claim_after",
            "large bodies are claimed at another point: a retry of an upload that was cut off before may get fingerprint_incomparable",
        ),
        (
            before.commit != after.commit,
            "commit",
            "answers are held until they are recorded, or no longer",
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
            if a.max_body.unwrap_or(u64::MAX) < b.max_body.unwrap_or(u64::MAX) {
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
