//! Differences between stores: what is another store knows nothing of what was recorded before.

use super::{Changes, Kind, RERUN};
use crate::config::error::quote;
use crate::plan::{RedisStore, SharedDataStore, Store};

pub(super) fn compare(before: &Store, after: &Store, out: &mut Changes) {
    match (before, after) {
        (Store::SharedData(before), Store::SharedData(after)) => shared_data(before, after, out),
        (Store::Redis(before), Store::Redis(after)) => redis(before, after, out),
        _ => out.add(
            Kind::Identity,
            "store",
            format!(
                "from {} to {}: operations recorded before are not known there, {RERUN}",
                before.name(),
                after.name()
            ),
        ),
    }
}

fn shared_data(before: &SharedDataStore, after: &SharedDataStore, out: &mut Changes) {
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
}

/// Which server answers behind a cluster's name is not written here, so whatever may lead to another
/// one counts as another one.
fn redis(before: &RedisStore, after: &RedisStore, out: &mut Changes) {
    let topology = |store: &RedisStore| match store.per_shard {
        true => "cluster",
        false => "standalone",
    };
    let follows = |store: &RedisStore| store.authority == store.cluster;
    for (name, was, is) in [
        ("cluster", before.cluster.as_str(), after.cluster.as_str()),
        ("transport", before.transport.name(), after.transport.name()),
        (
            "authority",
            before.authority.as_str(),
            after.authority.as_str(),
        ),
        ("topology", topology(before), topology(after)),
    ] {
        // An authority that nobody wrote says nothing that the cluster has not said.
        if was != is && !(name == "authority" && follows(before) && follows(after)) {
            out.add(
                Kind::Identity,
                format!("store.redis.{name}"),
                format!(
                    "from {} to {}: unless it leads to the same Redis, operations recorded before are not known there, {RERUN}",
                    quote(was),
                    quote(is)
                ),
            );
        }
    }
    out.if_differs(
        (&before.layout, &after.layout),
        Kind::Identity,
        "store.redis.prefix",
        format!("other keys: operations recorded before are not found, {RERUN}"),
    );
    for (differs, path, sentence) in [
        (
            before.transport.name() == after.transport.name()
                && before.transport != after.transport,
            "store.redis",
            "another credential: it must be good for the same Redis",
        ),
        (
            before.timeout_ms != after.timeout_ms,
            "store.redis.timeout",
            "how long calls may take",
        ),
        (
            before.hold_ms != after.hold_ms,
            "store.redis.hold",
            "how long nothing new is claimed after the store has forgotten",
        ),
        (
            (before.calls, before.batch.operations, before.queue)
                != (after.calls, after.batch.operations, after.queue),
            "limits",
            "how operations travel to the store",
        ),
    ] {
        if differs {
            out.add(Kind::Harmless, path, sentence);
        }
    }
}
