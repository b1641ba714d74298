//! Members that are possible by themselves and impossible together. Looked at in the compiled
//! routes, so that what a route inherits counts as what it says.

use crate::config::duration::show;
use crate::config::error::{Report, index, join, quote};
use crate::config::model::{Config, Parts};
use crate::config::size;
use crate::plan::{
    BodyMode, Class, Execution, InFlightAction, KeyCase, KeyFormat, KeyTime, MAX_REMOTE_BODY, Plan,
    RedisStore, Route, Source, Store,
};

pub(super) fn check(plan: &Plan, config: &Config, report: &mut Report) {
    // What is wrong by itself would contradict everything: it is told alone. Where the defaults are
    // wrong, every route would be judged by what it does not say.
    if report.has_error_within("defaults") {
        return;
    }
    let defaults = config.defaults.as_ref().map(|d| d.parts());
    let right = ["store", "limits", "tenant"].map(|part| !report.has_error_within(part));
    let [store, limits, tenant] = right;
    let written = config.routes.as_deref().unwrap_or_default();
    if let Store::Redis(redis) = &plan.store
        && store
        && !report.has_error_within("routes")
    {
        hold(redis, plan, report);
    }
    for (at, (route, model)) in plan.routes.iter().zip(written).enumerate() {
        let at = index("routes", at);
        if report.has_error_within(&at) {
            continue;
        }
        let own = [Some(model.parts()), defaults];
        windows(&at, route, report);
        if route.upstream.execution == Execution::Detached && plan.loopback_cluster.is_none() {
            report.push(
                format!("{at}.upstream.execution"),
                "detached execution goes through a loopback cluster, and none is named",
                "write loopback_cluster: NAME at the top, or execution: inline",
            );
        }
        fingerprint(&at, route, report);
        key(&at, route, &own, report);
        if tenant {
            headers(&at, route, plan, report);
        }
        if store && limits {
            sizes(&at, route, plan, report);
            waiters(&at, route, &own, plan, report);
        }
    }
}

/// The answer must outlive everything that a client may still be waiting for when it retries:
/// a lease, a wait, and, where an answer can be an acceptance, the time until its completion.
fn windows(at: &str, route: &Route, report: &mut Report) {
    let wait = match route.in_flight.action {
        InFlightAction::Wait => route.in_flight.timeout_ms,
        InFlightAction::Reject => 0,
    };
    let class = |status: u16| {
        let mut rules = route.record.classes.iter();
        rules
            .find(|r| (r.from..=r.to).contains(&status))
            .map(|r| r.class)
    };
    let may_accept = (200..=299).any(|status| class(status) == Some(Class::Accepted));
    let accepted = if may_accept {
        route.accepted_deadline_ms
    } else {
        0
    };
    let least = route.lease_ms.saturating_add(wait).saturating_add(accepted);
    if route.replay.ttl_ms < least {
        report.push(
            format!("{at}.replay.ttl"),
            format!(
                "{} is shorter than lease {} + wait {} + accepted_deadline {}, so a retry could find its answer gone",
                quote(&show(route.replay.ttl_ms)),
                quote(&show(route.lease_ms)),
                quote(&show(wait)),
                quote(&show(accepted)),
            ),
            format!("write {} or more, or lower those", quote(&show(least))),
        );
    }
}

fn fingerprint(at: &str, route: &Route, report: &mut Report) {
    let rule = &route.fingerprint;
    if !rule.include.is_empty() && !rule.exclude.is_empty() {
        report.push(
            format!("{at}.fingerprint.exclude"),
            "include and exclude contradict each other",
            "keep one; an inherited list is emptied with []",
        );
    }
    let selects = !rule.include.is_empty() || !rule.exclude.is_empty();
    if selects && !matches!(rule.body, BodyMode::Auto | BodyMode::Json) {
        let list = if rule.include.is_empty() {
            "exclude"
        } else {
            "include"
        };
        report.push(
            format!("{at}.fingerprint.{list}"),
            "selects members of a JSON body, and this route does not read bodies as JSON",
            "write body: json or auto, or leave the list out",
        );
    }
}

const fn shortest(format: KeyFormat, min_entropy: usize) -> usize {
    match format {
        KeyFormat::Uuid => 36,
        KeyFormat::Ulid => 26,
        KeyFormat::Base64url => min_entropy.saturating_mul(4).div_ceil(3),
        KeyFormat::Opaque => min_entropy,
    }
}

const fn name(format: KeyFormat) -> &'static str {
    match format {
        KeyFormat::Uuid => "uuid",
        KeyFormat::Ulid => "ulid",
        KeyFormat::Base64url => "base64url",
        KeyFormat::Opaque => "opaque",
    }
}

fn key(at: &str, route: &Route, written: &[Option<Parts<'_>>; 2], report: &mut Report) {
    let key = &route.key;
    let has = |f: KeyFormat| key.formats.contains(&f);
    let measured = has(KeyFormat::Base64url) || has(KeyFormat::Opaque);
    for format in &key.formats {
        let least = shortest(*format, key.min_entropy_bytes);
        if least <= key.max_length {
            continue;
        }
        let path = format!("{at}.key.max_length");
        report.push(
            path,
            format!(
                "{} leaves no room for {} keys, which have at least {least} characters",
                key.max_length,
                name(*format)
            ),
            if least > 255 {
                "lower min_entropy_bytes, or leave the form out of formats".to_owned()
            } else {
                format!("write {least} or more, or leave the form out of formats")
            },
        );
    }
    let says = written
        .iter()
        .flatten()
        .filter_map(|p| p.key)
        .any(|k| k.min_entropy_bytes.is_some());
    if says && !measured && !key.formats.is_empty() {
        report.push(
            format!("{at}.key.min_entropy_bytes"),
            "does nothing: uuid and ulid keys have a length of their own",
            "leave it out, or accept base64url or opaque keys",
        );
    }
    if key.case == KeyCase::Insensitive {
        if has(KeyFormat::Base64url) {
            report.push(
                format!("{at}.key.case"),
                "base64url tells small letters from capitals, so different keys would be taken for one",
                "write sensitive, or leave base64url out of formats",
            );
        } else if !measured {
            report.push(
                format!("{at}.key.case"),
                "does nothing: uuid and ulid keys are always compared in lower case",
                "leave it out",
            );
        }
    }
    let carrier = match route.key_time {
        Some(KeyTime::UuidV7) => Some(("uuidv7", KeyFormat::Uuid)),
        Some(KeyTime::Ulid) => Some(("ulid", KeyFormat::Ulid)),
        Some(KeyTime::DeadlineHeader(_)) | None => None,
    };
    if let Some((word, format)) = carrier
        && !has(format)
    {
        report.push(
            format!("{at}.key_time"),
            format!(
                "{word} reads the time from the key, and the route accepts no {} keys",
                name(format)
            ),
            format!("write key: {{formats: [{}]}}", name(format)),
        );
    }
}

/// One header, one meaning.
fn headers(at: &str, route: &Route, plan: &Plan, report: &mut Report) {
    let key = &route.key.header;
    if plan
        .tenant
        .sources
        .iter()
        .any(|s| *s == Source::Header(key.clone()))
    {
        report.push(
            format!("{at}.key.header"),
            format!("{} is a source of the tenant already", quote(key)),
            "read the key from a header of its own",
        );
    }
    if route.key_time == Some(KeyTime::DeadlineHeader(key.clone())) {
        report.push(
            format!("{at}.key_time.deadline_header"),
            format!("{} is the header of the key", quote(key)),
            "read the deadline from a header of its own",
        );
    }
    if let Some(i) = route.fingerprint.headers.iter().position(|h| h == key) {
        report.push(
            index(&format!("{at}.fingerprint.headers"), i),
            format!(
                "{} is the header of the key, which is identity, not evidence",
                quote(key)
            ),
            "leave it out",
        );
    }
    let denied = &route.record.deny_headers;
    if let Some(i) = route
        .record
        .allow_headers
        .iter()
        .position(|h| denied.contains(h))
    {
        report.push(
            index(&format!("{at}.record.headers.allow"), i),
            "is denied by the same route",
            "keep the header in one of the two lists",
        );
    }
}

/// While the store's loss is being made good, whoever held a claim may still run under it.
fn hold(store: &RedisStore, plan: &Plan, report: &mut Report) {
    if store.hold_ms < plan.longest_lease_ms() {
        let lease = show(plan.longest_lease_ms());
        report.push(
            "store.redis.hold",
            format!(
                "{} is shorter than the longest lease ({lease}), so what runs while the store forgets it could be claimed again",
                quote(&show(store.hold_ms)),
            ),
            format!("write {} or more, or leave it out", quote(&lease)),
        );
    }
}

fn sizes(at: &str, route: &Route, plan: &Plan, report: &mut Report) {
    let body = route.replay.max_inline_body;
    if matches!(plan.store, Store::Redis(_)) && body > MAX_REMOTE_BODY {
        report.push(
            format!("{at}.replay.max_inline_body"),
            format!(
                "{} is more than one call to the store carries",
                size::show(body)
            ),
            format!("write {} or less", quote(&size::show(MAX_REMOTE_BODY))),
        );
        return;
    }
    let bodies = match &plan.store {
        Store::SharedData(store) => Some(("store.shared_data.bodies", store.bodies_bytes)),
        Store::Redis(_) => None,
    };
    let recording = ("limits.recording_bytes", plan.limits.recording_bytes);
    for (budget, octets) in bodies.into_iter().chain([recording]) {
        if body > octets {
            report.push(
                format!("{at}.replay.max_inline_body"),
                format!(
                    "{} is more than {budget} holds ({})",
                    size::show(body),
                    size::show(octets)
                ),
                format!(
                    "write {} or less, or raise {budget}",
                    quote(&size::show(octets))
                ),
            );
        }
    }
}

fn waiters(
    at: &str,
    route: &Route,
    written: &[Option<Parts<'_>>; 2],
    plan: &Plan,
    report: &mut Report,
) {
    let says = written
        .iter()
        .flatten()
        .filter_map(|p| p.in_flight)
        .any(|i| i.max_waiters.is_some());
    let (one, all) = (route.in_flight.max_waiters, plan.limits.worker_waiters);
    if says && one > all {
        report.push(
            join(&join(at, "in_flight"), "max_waiters"),
            format!("{one} is more than limits.worker_waiters ({all}) lets wait at all"),
            format!("write {all} or less, or raise limits.worker_waiters"),
        );
    }
}
