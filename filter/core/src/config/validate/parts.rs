//! The parts that routes and `defaults` share, each member by itself.

use super::{Wrong, names, take};
use crate::config::classes;
use crate::config::duration::Millis;
use crate::config::error::{Report, index, join, nearest, quote};
use crate::config::forms::WordOr;
use crate::config::model::{
    Class, Classes, Fingerprint, InFlight, InFlightAction, Key, KeyTime, Parts, Record,
    RouterRetries, Unknown, Upstream,
};
use crate::config::size::{self, Size};
use crate::fingerprint::CANONICAL_MAX;
use crate::order::repeated;
use crate::reply::Code;
use std::collections::BTreeMap;

/// The largest body that can be configured to be fingerprinted or recorded.
const MAX_BODY: u64 = 1 << 30;

/// Bound already: a second time would do nothing, or bind what the contract leaves out.
const BOUND: [&str; 2] = ["content-type", "content-encoding"];
/// Other on each attempt: bound, every retry would be a mismatch.
const PER_ATTEMPT: [&str; 9] = [
    "date",
    "x-request-id",
    "traceparent",
    "tracestate",
    "content-length",
    "x-envoy-attempt-count",
    "x-forwarded-for",
    "via",
    "forwarded",
];
/// About one connection, or a credential: design.md has them never stored.
const NEVER_STORED: [&str; 14] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-authentication-info",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "set-cookie",
    "www-authenticate",
    "authorization",
];

/// Less tells too little of a body to compare two uploads by it.
const CLAIM_AFTER_MIN: u64 = 1 << 10;

pub(super) fn check(path: &str, parts: Parts<'_>, report: &mut Report) {
    if let Some(k) = parts.key {
        key(&join(path, "key"), k, report);
    }
    if let Some(f) = parts.fingerprint {
        fingerprint(&join(path, "fingerprint"), f, report);
    }
    if let Some(Size(octets)) = parts.claim_after
        && !(CLAIM_AFTER_MIN..=CANONICAL_MAX).contains(&octets)
    {
        report.push(
            join(path, "claim_after"),
            format!("{} is held of each large body", size::show(octets)),
            "write 1KiB to 1MiB, and less than the listener's per_connection_buffer_limit_bytes",
        );
    }
    if let Some(u) = parts.upstream {
        upstream(&join(path, "upstream"), u, report);
    }
    at_least_a_second(
        join(path, "lease"),
        parts.lease,
        "an owner would count as gone while it works",
        report,
    );
    at_least_a_second(
        join(path, "accepted_deadline"),
        parts.accepted_deadline,
        "an accepted operation would be unknown at once",
        report,
    );
    if let Some(r) = parts.record {
        record(&join(path, "record"), r, report);
    }
    if let Some(r) = parts.replay {
        let path = join(path, "replay");
        at_least_a_second(
            join(&path, "ttl"),
            r.ttl,
            "no retry would find its answer",
            report,
        );
        body_size(join(&path, "max_inline_body"), r.max_inline_body, report);
    }
    if let Some(i) = parts.in_flight {
        in_flight(&join(path, "in_flight"), i, report);
    }
    if let Some(u) = parts.unknown {
        unknown(&join(path, "unknown"), u, report);
    }
    if let Some(s) = parts.statuses {
        statuses(&join(path, "statuses"), s, report);
    }
    if let Some(v) = parts.schema_version {
        take(
            report,
            join(path, "schema_version"),
            names::visible(&v.0, 64),
        );
    }
    if let Some(k) = parts.key_time {
        key_time(&join(path, "key_time"), k, report);
    }
}

fn at_least_a_second(path: String, time: Option<Millis>, because: &str, report: &mut Report) {
    if let Some(Millis(ms)) = time
        && ms < 1000
    {
        let shown = crate::config::duration::show(ms);
        report.push(
            path,
            format!("{} is too short: {because}", quote(&shown)),
            "write \"1s\" or more",
        );
    }
}

fn body_size(path: String, size: Option<Size>, report: &mut Report) {
    if let Some(Size(octets)) = size
        && octets > MAX_BODY
    {
        report.push(
            path,
            format!(
                "{} is more than a proxy holds of one body",
                size::show(octets)
            ),
            format!("write {} or less", quote(&size::show(MAX_BODY))),
        );
    }
}

fn key(path: &str, key: &Key, report: &mut Report) {
    if let Some(header) = &key.header {
        take(report, join(path, "header"), names::header(header));
    }
    if let Some(Some(pointer)) = &key.body_field {
        take(
            report,
            join(path, "body_field"),
            names::member_pointer(pointer),
        );
    }
    if let Some(formats) = &key.formats {
        let path = join(path, "formats");
        if formats.is_empty() {
            report.push(
                path,
                "accepts no key at all",
                "write forms such as [uuid, base64url]",
            );
        } else if let Some(at) = repeated(formats) {
            report.push(index(&path, at), "is there already", "name each form once");
        }
    }
    let between = |name: &str, n: Option<u32>, report: &mut Report| {
        if let Some(n) = n.filter(|n| !(1..=255).contains(n)) {
            report.push(
                join(path, name),
                format!("{n} is out of range"),
                "write a whole number from 1 to 255",
            );
        }
    };
    between("max_length", key.max_length, report);
    between("min_entropy_bytes", key.min_entropy_bytes, report);
}

fn headers(path: &str, list: &[String], report: &mut Report) {
    for (at, header) in list.iter().enumerate() {
        take(report, index(path, at), names::header(header));
    }
    let lower: Vec<String> = list.iter().map(|h| h.to_ascii_lowercase()).collect();
    if let Some(at) = repeated(&lower) {
        report.push(index(path, at), "is there already", "name each header once");
    }
}

fn fingerprint(path: &str, fingerprint: &Fingerprint, report: &mut Report) {
    for (name, list) in [
        ("include", &fingerprint.include),
        ("exclude", &fingerprint.exclude),
    ] {
        for (at, pointer) in list.iter().flatten().enumerate() {
            let path = index(&join(path, name), at);
            take(report, path, names::member_pointer(pointer));
        }
    }
    if let Some(list) = &fingerprint.headers {
        let path = join(path, "headers");
        headers(&path, list, report);
        for (at, header) in list.iter().enumerate() {
            let lower = header.to_ascii_lowercase();
            if BOUND.contains(&lower.as_str()) {
                report.push(
                    index(&path, at),
                    format!("{} is bound already", quote(header)),
                    "leave it out",
                );
            } else if PER_ATTEMPT.contains(&lower.as_str()) {
                report.push(
                    index(&path, at),
                    format!(
                        "{} changes with each attempt, so every retry would be a mismatch",
                        quote(header)
                    ),
                    "leave it out",
                );
            }
        }
    }
    if fingerprint.max_body == Some(Size(0)) {
        report.push(
            join(path, "max_body"),
            "0 would refuse every request with a body",
            "write the largest body to expect, or body: none to leave bodies out",
        );
    }
}

fn upstream(path: &str, upstream: &Upstream, report: &mut Report) {
    if upstream.timeout == Some(Millis(0)) {
        report.push(
            join(path, "timeout"),
            "\"0s\" would mean no time-out at all",
            "write how long the whole answer may take, such as \"15s\"",
        );
    }
    if let Some(RouterRetries::Object(map)) = &upstream.router_retries {
        let path = join(path, "router_retries");
        match &map.allow {
            None => report.missing(
                &path,
                "allow",
                "write contained, or {allow: {reason: \"why the upstream may see a request twice\"}}",
            ),
            Some(allow) => reason(&join(&path, "allow"), "reason", allow.reason.as_deref(), report),
        }
    }
}

fn reason(parent: &str, name: &str, text: Option<&str>, report: &mut Report) {
    const REMEDY: &str = "say in a sentence why duplicates do no harm here";
    match text {
        None => report.missing(parent, name, REMEDY),
        Some(text) if text.trim().is_empty() => {
            report.push(join(parent, name), "gives no reason", REMEDY);
        }
        Some(text) if text.len() > 500 => report.push(
            join(parent, name),
            "is longer than 500 octets",
            "put the long version into your runbook",
        ),
        Some(_) => {}
    }
}

fn record(path: &str, record: &Record, report: &mut Report) {
    if let Some(Classes::Object(map)) = &record.classes
        && let Some(overrides) = &map.overrides
    {
        class_overrides(&format!("{path}.classes.overrides"), overrides, report);
    }
    let Some(lists) = &record.headers else { return };
    let allow_path = format!("{path}.headers.allow");
    if let Some(allow) = &lists.allow {
        headers(&allow_path, allow, report);
        for (at, header) in allow.iter().enumerate() {
            if NEVER_STORED.contains(&header.to_ascii_lowercase().as_str()) {
                report.push(
                    index(&allow_path, at),
                    format!(
                        "{} is never stored: it speaks of one connection or is a credential",
                        quote(header)
                    ),
                    "leave it out",
                );
            }
        }
    }
    if let Some(deny) = &lists.deny {
        headers(&format!("{path}.headers.deny"), deny, report);
    }
}

fn class_overrides(path: &str, overrides: &BTreeMap<String, Class>, report: &mut Report) {
    let mut read = Vec::new();
    for (text, class) in overrides {
        let path = join(path, text);
        let (from, to) = match classes::range(text) {
            Ok(range) => range,
            Err((problem, remedy)) => {
                report.push(path, problem, remedy);
                continue;
            }
        };
        let succeeds = from < 300;
        if succeeds && *class == Class::Release {
            report.push(
                path.clone(),
                "a success that releases would let every retry run again",
                "write record, or unknown where a 2xx may hide a failure",
            );
        }
        if *class == Class::Accepted && to >= 300 {
            report.push(
                path.clone(),
                "only a 2xx can mean that an operation was taken on",
                "write record, release or unknown",
            );
        }
        let clash = read
            .iter()
            .find_map(|(other, range)| Some((*other, classes::ambiguous(*range, (from, to))?)));
        if let Some((other, status)) = clash {
            report.push(
                path,
                format!(
                    "{} and {} both speak of {status}, neither within the other",
                    quote(other),
                    quote(text)
                ),
                "write ranges that are apart, or one within the other",
            );
        }
        read.push((text.as_str(), (from, to)));
    }
}

fn in_flight(path: &str, in_flight: &InFlight, report: &mut Report) {
    if in_flight.action == Some(InFlightAction::Reject) {
        for (name, is_written) in [
            ("timeout", in_flight.timeout.is_some()),
            ("max_waiters", in_flight.max_waiters.is_some()),
        ] {
            if is_written {
                report.push(
                    join(path, name),
                    "does nothing where duplicates are rejected",
                    "leave it out, or write action: wait",
                );
            }
        }
    }
    if in_flight.timeout == Some(Millis(0)) {
        report.push(
            join(path, "timeout"),
            "\"0s\" would be no wait",
            "write how long a duplicate waits, or action: reject",
        );
    }
    if in_flight.max_waiters.is_some_and(|n| n == 0 || n > 10_000) {
        report.push(
            join(path, "max_waiters"),
            "is out of range",
            "write a whole number from 1 to 10000, or action: reject",
        );
    }
}

fn unknown(path: &str, unknown: &Unknown, report: &mut Report) {
    let WordOr::Object(map) = unknown else { return };
    match (&map.forward, &map.retry) {
        (Some(_), Some(_)) => report.push(
            path,
            "forward and retry exclude each other",
            "write one of them",
        ),
        (None, None) if !report.has_unread_within(path) => report.push(
            path,
            "names no policy",
            "write refuse, {forward: {upstream_dedupes: true}} or {retry: {i_accept_duplicates: \"reason\"}}",
        ),
        (Some(forward), None) => {
            if forward.upstream_dedupes != Some(true) {
                report.push(
                    format!("{path}.forward.upstream_dedupes"),
                    "forwarding is safe only where the upstream dedupes by x-idempo-operation, and that is not stated",
                    "write upstream_dedupes: true if it does, else unknown: refuse",
                );
            }
        }
        (None, Some(retry)) => reason(
            &join(path, "retry"),
            "i_accept_duplicates",
            retry.i_accept_duplicates.as_deref(),
            report,
        ),
        (None, None) => {}
    }
}

fn statuses(path: &str, statuses: &BTreeMap<String, u16>, report: &mut Report) {
    // Without a rule there is no table, so this code's status can't be set in one.
    let settable = || Code::ALL.into_iter().filter(|c| *c != Code::Misconfigured);
    for (name, status) in statuses {
        let path = join(path, name);
        match Code::from_name(name) {
            Some(Code::Misconfigured) => report.push(
                path.clone(),
                "misconfigured is answered where no rule applies, so no rule can set its status",
                "leave it out; it is 500",
            ),
            Some(_) => {}
            None => {
                let near = nearest(name, settable().map(Code::as_str));
                let known: Vec<_> = settable().map(Code::as_str).collect();
                report.push(
                    path.clone(),
                    format!("unknown code {}", quote(name)),
                    near.map_or_else(
                        || format!("known codes: {}", known.join(", ")),
                        |n| format!("did you mean {}?", quote(n)),
                    ),
                );
            }
        }
        if !(400..=599).contains(status) {
            report.push(
                path,
                format!("{status} does not say that the request was refused"),
                "write a status from 400 to 599",
            );
        }
    }
}

fn key_time(path: &str, key_time: &KeyTime, report: &mut Report) {
    let WordOr::Object(map) = key_time else {
        return;
    };
    match &map.deadline_header {
        None => report.missing(
            path,
            "deadline_header",
            "write uuidv7, ulid or {deadline_header: x-deadline}",
        ),
        Some(header) => {
            let checked: Result<(), Wrong> = names::header(header);
            take(report, join(path, "deadline_header"), checked);
        }
    }
}
