//! The store and what belongs to it: the replay cache, and the limits of a remote store.

use super::{names, take};
use crate::config::duration::{Millis, show};
use crate::config::error::{Report, join, quote};
use crate::config::model::{
    Config, EnvSecret, Limits, Login, Redis, ReplayCache, SharedData, Topology, Transport,
};
use crate::config::size::{self, Size};

/// Less cannot hold a table with a useful number of slots.
const MIN_BUDGET: u64 = 64 << 10;
/// More is beyond what a proxy's memory holds.
const MAX_BUDGET: u64 = 64 << 30;

/// Shorter than any network is reliably; longer than any client waits for two of them.
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 10..=10_000;

const ENGINES: &str = "write store: {shared_data: {}} for one Envoy process, or store: {redis: {cluster: NAME, transport: webdis}}";

pub(super) fn check(config: &Config, report: &mut Report) {
    let Some(store) = &config.store else {
        report.missing("", "store", ENGINES);
        return;
    };
    match (&store.shared_data, &store.redis) {
        (None, None) => report.push("store", "names no engine", ENGINES),
        (Some(_), Some(_)) => {
            report.push(
                "store",
                "names several engines, and a record lies in one",
                ENGINES,
            );
        }
        (Some(budgets), None) => {
            shared_data(budgets, report);
            only_remote(config, report);
        }
        (None, Some(written)) => redis(written, report),
    }
    if let Some(limits) = &config.limits {
        bounds(limits, report);
    }
    if let Some(ReplayCache { bytes: Some(bytes) }) = &config.replay_cache
        && bytes.0 != 0
    {
        budget("replay_cache.bytes", Some(*bytes), report);
    }
}

fn shared_data(budgets: &SharedData, report: &mut Report) {
    for (name, size) in [
        ("records", budgets.records),
        ("bodies", budgets.bodies),
        ("tombstones", budgets.tombstones),
    ] {
        budget(&format!("store.shared_data.{name}"), size, report);
    }
}

fn budget(path: &str, size: Option<Size>, report: &mut Report) {
    let Some(Size(octets)) = size else { return };
    if octets < MIN_BUDGET {
        report.push(
            path,
            format!("{} is too small for the table", size::show(octets)),
            format!("write {} or more", quote(&size::show(MIN_BUDGET))),
        );
    } else if octets > MAX_BUDGET {
        report.push(
            path,
            format!(
                "{} is more than a proxy holds in memory",
                size::show(octets)
            ),
            format!("write {} or less", quote(&size::show(MAX_BUDGET))),
        );
    }
}

/// The settings of calls to a store.
fn of_calls(limits: &Limits) -> [(&'static str, Option<u32>, u32, u32); 3] {
    [
        ("store_calls", limits.store_calls, 1, 64),
        ("store_batch", limits.store_batch, 1, 256),
        ("store_queue", limits.store_queue, 16, 65_536),
    ]
}

fn bounds(limits: &Limits, report: &mut Report) {
    for (name, written, least, most) in of_calls(limits) {
        if let Some(n) = written
            && !(least..=most).contains(&n)
        {
            report.push(
                join("limits", name),
                format!("{n} is outside of {least} to {most}"),
                format!("write {least} to {most}"),
            );
        }
    }
}

/// What does nothing where the store is the host's own memory.
fn only_remote(config: &Config, report: &mut Report) {
    if config.replay_cache.is_some() {
        report.push(
            "replay_cache",
            "a replay cache would do nothing: shared_data already lives in the host's memory",
            "leave replay_cache out",
        );
    }
    let limits = config.limits.as_ref().map(of_calls);
    for (name, written, ..) in limits.into_iter().flatten() {
        if written.is_some() {
            report.push(
                join("limits", name),
                "does nothing: no call leads to shared_data",
                "leave it out",
            );
        }
    }
}

fn redis(redis: &Redis, report: &mut Report) {
    const AT: &str = "store.redis";
    match &redis.cluster {
        None => report.missing(
            AT,
            "cluster",
            "name the cluster of Envoy that leads to the store, such as redis-webdis",
        ),
        Some(cluster) => {
            let path = join(AT, "cluster");
            take(report, path.clone(), names::visible(cluster, 256));
            if redis.authority.is_none()
                && !report.has_error_within(&path)
                && !report.has_unread_within(&join(AT, "authority"))
                && names::authority(cluster).is_err()
            {
                report.push(
                    join(AT, "authority"),
                    "is not written, and the cluster's name, which stands in for it, is no authority",
                    "write the host that the store answers to, such as authority: redis-webdis",
                );
            }
        }
    }
    if let Some(authority) = &redis.authority {
        take(report, join(AT, "authority"), names::authority(authority));
    }
    if let Some(prefix) = &redis.prefix {
        take(report, join(AT, "prefix"), names::prefix(prefix));
    }
    if let Some(Millis(ms)) = redis.timeout
        && !TIMEOUT_MS.contains(&ms)
    {
        let [least, most] = [TIMEOUT_MS.start(), TIMEOUT_MS.end()].map(|ms| quote(&show(*ms)));
        report.push(
            join(AT, "timeout"),
            format!("{} is outside of {least} to {most}", quote(&show(ms))),
            format!("write {least} to {most}; an operation that fails is repeated once"),
        );
    }
    match redis.transport {
        None => report.missing(
            AT,
            "transport",
            "write what answers at the cluster: webdis, rest or resp",
        ),
        Some(transport) => credential(transport, redis, report),
    }
    if redis.transport == Some(Transport::Resp) && redis.topology == Some(Topology::Cluster) {
        report.push(
            join(AT, "topology"),
            "is out of reach of transport resp, which leads to one server",
            "write transport: webdis, with Envoy's redis_proxy between Webdis and the cluster",
        );
    }
    for (name, secret) in [
        ("token", &redis.token),
        ("authorization", &redis.authorization),
    ] {
        if let Some(secret) = secret {
            variable(&join(AT, name), secret, report);
        }
    }
    if let Some(written) = &redis.login {
        login(written, report);
    }
}

/// Each transport has a credential of its own.
fn credential(transport: Transport, redis: &Redis, report: &mut Report) {
    let (word, own, form) = match transport {
        Transport::Webdis => ("webdis", "authorization", "authorization: {env: NAME}"),
        Transport::Rest => ("rest", "token", "token: {env: NAME}"),
        Transport::Resp => (
            "resp",
            "login",
            "login: {user: NAME, password: {env: NAME}}",
        ),
    };
    for (name, written) in [
        ("token", redis.token.is_some()),
        ("authorization", redis.authorization.is_some()),
        ("login", redis.login.is_some()),
    ] {
        if written && name != own {
            report.push(
                join("store.redis", name),
                format!("is no credential of transport {word}"),
                format!("write {form}, or leave it out"),
            );
        }
    }
}

fn login(login: &Login, report: &mut Report) {
    const AT: &str = "store.redis.login";
    if let Some(user) = &login.user {
        take(report, join(AT, "user"), names::user(user));
    }
    match &login.password {
        None => report.missing(AT, "password", "write password: {env: NAME}"),
        Some(password) => variable(&join(AT, "password"), password, report),
    }
}

/// A secret by the name of its variable.
pub(super) fn variable(path: &str, secret: &EnvSecret, report: &mut Report) {
    match &secret.env {
        None => report.missing(path, "env", "write {env: NAME}"),
        Some(name) => take(report, join(path, "env"), names::env_name(name)),
    }
}
