//! From the model to the plan: defaults, inheritance, and names in the form in which they are compared.
//!
//! Total by design: what cannot be compiled has been reported by [`super::validate`], so that the
//! plan with a gap in its place is never handed out.

use super::duration::Millis;
use super::forms::WordOr;
use super::model::{self, Config, Parts};
use super::size::Size;
use super::{classes, validate};
use crate::plan::{self, Plan};
use crate::reply::Code;
use crate::store::redis::{DOUBT_MS, Layout};
use std::collections::BTreeMap;

const LEASE_MS: u64 = 30_000;
const UPSTREAM_TIMEOUT_MS: u64 = 15_000;
const WAIT_MS: u64 = 10_000;
const MAX_WAITERS: u32 = 32;
const ACCEPTED_DEADLINE_MS: u64 = 86_400_000;
const REPLAY_MS: u64 = 172_800_000;
const TOMBSTONE_MS: u64 = 604_800_000;
const MAX_INLINE_BODY: u64 = 1 << 20;
const CLAIM_AFTER: u64 = 64 << 10;
const REPLAY_CACHE: u64 = 16 << 20;
const STORE_TIMEOUT_MS: u64 = 500;
const STORE_CALLS: u32 = 4;
const STORE_BATCH: u32 = 64;
const STORE_QUEUE: u32 = 4096;
const DEFAULT_NAME: &str = "default";

/// A member of a part: the route's own where it wrote one, else the inherited one.
macro_rules! pick {
    ($own:expr, $inherited:expr, $part:ident.$member:ident) => {
        $own.$part
            .and_then(|part| part.$member.as_ref())
            .or($inherited.$part.and_then(|part| part.$member.as_ref()))
    };
}

pub(super) fn plan(config: &Config) -> Plan {
    let inherited = config.defaults.clone().unwrap_or_default();
    let execution = match config.loopback_cluster {
        Some(_) => plan::Execution::Detached,
        None => plan::Execution::Inline,
    };
    let written = config.routes.iter().flatten();
    let routes: Vec<_> = written
        .map(|r| route(r, inherited.parts(), execution))
        .collect();
    let (store, replay_cache_bytes) = match config.store.as_ref().and_then(|s| s.redis.as_ref()) {
        None => (plan::Store::SharedData(shared_data(config)), 0),
        Some(written) => {
            let cache = config.replay_cache.as_ref().and_then(|c| c.bytes);
            let store = redis(written, config.limits.as_ref(), &routes);
            (
                plan::Store::Redis(Box::new(store)),
                cache.map_or(REPLAY_CACHE, |s| s.0),
            )
        }
    };
    Plan {
        namespace: config
            .namespace
            .clone()
            .unwrap_or_else(|| DEFAULT_NAME.into()),
        mode: config.mode.map(mode).unwrap_or_default(),
        enforce_fraction: config.enforce_fraction.unwrap_or(1.0),
        store,
        replay_cache_bytes,
        tenant: tenant(config.tenant.as_ref()),
        principal: config.principal.as_ref().and_then(source),
        limits: limits(config.limits.as_ref()),
        signing: config.signing.as_ref().and_then(signing),
        loopback_cluster: config.loopback_cluster.clone(),
        routes,
    }
}

const fn mode(mode: model::Mode) -> plan::Mode {
    match mode {
        model::Mode::Enforce => plan::Mode::Enforce,
        model::Mode::Observe => plan::Mode::Observe,
        model::Mode::Off => plan::Mode::Off,
    }
}

fn shared_data(config: &Config) -> plan::SharedDataStore {
    let written = config.store.as_ref().and_then(|s| s.shared_data.as_ref());
    let mut store = plan::SharedDataStore::default();
    let Some(written) = written else { return store };
    for (to, from) in [
        (&mut store.records_bytes, written.records),
        (&mut store.bodies_bytes, written.bodies),
        (&mut store.tombstones_bytes, written.tombstones),
    ] {
        if let Some(Size(octets)) = from {
            *to = octets;
        }
    }
    store
}

fn limits(written: Option<&model::Limits>) -> plan::Limits {
    let default = plan::Limits::default();
    let Some(written) = written else {
        return default;
    };
    plan::Limits {
        tenant_records: written.tenant_records,
        tenant_claims_per_second: written.tenant_claims_per_second,
        worker_waiters: written.worker_waiters.unwrap_or(default.worker_waiters),
        recording_bytes: written
            .recording_bytes
            .map_or(default.recording_bytes, |s| s.0),
    }
}

fn redis(
    written: &model::Redis,
    limits: Option<&model::Limits>,
    routes: &[plan::Route],
) -> plan::RedisStore {
    let cluster = written.cluster.clone().unwrap_or_default();
    let limit =
        |of: fn(&model::Limits) -> Option<u32>, default| limits.and_then(of).unwrap_or(default);
    let ms = |time: Option<Millis>, default| time.map_or(default, |m| m.0);
    let bodies = routes.iter().map(|r| r.replay.max_inline_body).max();
    let transport = transport(written);
    plan::RedisStore {
        authority: written.authority.clone().unwrap_or_else(|| cluster.clone()),
        cluster,
        batch: plan::call_limits(
            &transport,
            limit(|l| l.store_batch, STORE_BATCH),
            bodies.unwrap_or(MAX_INLINE_BODY),
        ),
        transport,
        layout: written
            .prefix
            .as_deref()
            .map_or_else(Layout::default, Layout::new),
        per_shard: written.topology == Some(model::Topology::Cluster),
        timeout_ms: ms(written.timeout, STORE_TIMEOUT_MS),
        hold_ms: ms(written.hold, plan::longest_lease_ms(routes).max(DOUBT_MS)),
        calls: limit(|l| l.store_calls, STORE_CALLS),
        queue: limit(|l| l.store_queue, STORE_QUEUE),
    }
}

fn transport(written: &model::Redis) -> plan::RedisTransport {
    match written.transport {
        None | Some(model::Transport::Webdis) => plan::RedisTransport::Webdis {
            authorization_env: variable(&written.authorization),
        },
        Some(model::Transport::Rest) => plan::RedisTransport::Rest {
            token_env: variable(&written.token),
        },
        Some(model::Transport::Resp) => plan::RedisTransport::Resp {
            login: written.login.as_ref().and_then(|login| {
                Some(plan::RedisLogin {
                    user: login.user.clone(),
                    password_env: variable(&login.password)?,
                })
            }),
        },
    }
}

/// The name of a secret's variable.
fn variable(secret: &Option<model::EnvSecret>) -> Option<String> {
    secret.as_ref().and_then(|s| s.env.clone())
}

fn signing(written: &model::Signing) -> Option<plan::Signing> {
    Some(plan::Signing {
        active_env: variable(&written.active)?,
        previous_env: variable(&written.previous),
    })
}

fn tenant(written: Option<&model::Tenant>) -> plan::Tenant {
    let sources: Vec<_> = written
        .and_then(|t| t.sources.as_ref())
        .into_iter()
        .flatten()
        .filter_map(source)
        .collect();
    let default = written.and_then(|t| t.default.clone());
    plan::Tenant {
        // Someone who names sources and no default expects that a request without a tenant is refused,
        // not that all such requests share one.
        required: written
            .and_then(|t| t.required)
            .unwrap_or(!sources.is_empty() && default.is_none()),
        sources,
        default: default.unwrap_or_else(|| DEFAULT_NAME.into()),
    }
}

fn source(written: &model::Source) -> Option<plan::Source> {
    let header = written
        .header
        .as_ref()
        .map(|h| plan::Source::Header(lower(h)));
    let metadata = || {
        let metadata = written.metadata.as_ref()?;
        Some(plan::Source::Metadata {
            filter: metadata.filter.clone()?,
            path: metadata.path.clone()?,
        })
    };
    header
        .or_else(metadata)
        .or_else(|| written.property.clone().map(plan::Source::Property))
}

fn lower(text: &str) -> String {
    text.to_ascii_lowercase()
}

fn lower_all(list: Option<&Vec<String>>) -> Vec<String> {
    list.into_iter().flatten().map(|h| lower(h)).collect()
}

fn route(written: &model::Route, inherited: Parts<'_>, execution: plan::Execution) -> plan::Route {
    let own = written.parts();
    let ms = |time: Option<&Millis>, default| time.map_or(default, |m| m.0);
    let time_or = |a: Option<Millis>, b: Option<Millis>, default| a.or(b).map_or(default, |m| m.0);
    let previous = written
        .previous
        .iter()
        .flatten()
        .map(|p| plan::PreviousIdentity {
            id: p.id.clone().unwrap_or_default(),
            tenant_default: p.tenant_default.clone(),
        });
    plan::Route {
        id: written.id.clone().unwrap_or_default(),
        previous: previous.collect(),
        mode: own.mode.or(inherited.mode).map(mode),
        matcher: written.r#match.as_ref().map(matcher).unwrap_or_default(),
        key: key(own, inherited),
        fingerprint: fingerprint(own, inherited),
        claim_after: own
            .claim_after
            .or(inherited.claim_after)
            .map_or(CLAIM_AFTER, |s| s.0),
        commit: match own.commit.or(inherited.commit) {
            None | Some(model::Commit::BeforeEnd) => plan::Commit::BeforeEnd,
            Some(model::Commit::Async) => plan::Commit::Async,
        },
        upstream: plan::Upstream {
            timeout_ms: ms(pick!(own, inherited, upstream.timeout), UPSTREAM_TIMEOUT_MS),
            execution: match pick!(own, inherited, upstream.execution) {
                None => execution,
                Some(model::Execution::Inline) => plan::Execution::Inline,
                Some(model::Execution::Detached) => plan::Execution::Detached,
            },
            router_retries_reason: match pick!(own, inherited, upstream.router_retries) {
                Some(WordOr::Object(map)) => map.allow.as_ref().and_then(|a| a.reason.clone()),
                Some(WordOr::Word(model::RouterRetriesWord::Contained)) | None => None,
            },
            identity_encoding: pick!(own, inherited, upstream.identity_encoding)
                .copied()
                .unwrap_or(true),
        },
        lease_ms: time_or(own.lease, inherited.lease, LEASE_MS),
        record: record(own, inherited),
        replay: plan::Replay {
            ttl_ms: ms(pick!(own, inherited, replay.ttl), REPLAY_MS),
            tombstone_ttl_ms: ms(pick!(own, inherited, replay.tombstone_ttl), TOMBSTONE_MS),
            max_inline_body: pick!(own, inherited, replay.max_inline_body)
                .map_or(MAX_INLINE_BODY, |s| s.0),
        },
        in_flight: plan::InFlight {
            action: match pick!(own, inherited, in_flight.action) {
                None | Some(model::InFlightAction::Reject) => plan::InFlightAction::Reject,
                Some(model::InFlightAction::Wait) => plan::InFlightAction::Wait,
            },
            timeout_ms: ms(pick!(own, inherited, in_flight.timeout), WAIT_MS),
            max_waiters: pick!(own, inherited, in_flight.max_waiters)
                .copied()
                .unwrap_or(MAX_WAITERS),
        },
        unknown: own
            .unknown
            .or(inherited.unknown)
            .map_or(plan::UnknownPolicy::Refuse, unknown),
        store_failure: match own.store_failure.or(inherited.store_failure) {
            None | Some(model::StoreFailure::Closed) => plan::StoreFailure::Closed,
            Some(model::StoreFailure::Open) => plan::StoreFailure::Open,
        },
        statuses: statuses([inherited.statuses, own.statuses]),
        schema_version: own
            .schema_version
            .or(inherited.schema_version)
            .map_or_else(|| "1".into(), |v| v.0.clone()),
        key_time: own.key_time.or(inherited.key_time).and_then(key_time),
        accepted_deadline_ms: time_or(
            own.accepted_deadline,
            inherited.accepted_deadline,
            ACCEPTED_DEADLINE_MS,
        ),
    }
}

/// Later ones replace earlier ones.
fn statuses(written: [Option<&BTreeMap<String, u16>>; 2]) -> BTreeMap<Code, u16> {
    let mut statuses = BTreeMap::new();
    for (name, status) in written.into_iter().flatten().flatten() {
        if let Some(code) = Code::from_name(name) {
            statuses.insert(code, *status);
        }
    }
    statuses
}

fn matcher(written: &model::Match) -> plan::Matcher {
    let path = written.path.as_ref().and_then(|p| {
        let exact = p.exact.clone().map(plan::PathMatch::Exact);
        let prefix = || p.prefix.clone().map(plan::PathMatch::Prefix);
        let template = || {
            let segments = p.template.as_ref().map(|t| validate::template(t))?;
            segments.ok().map(plan::PathMatch::Template)
        };
        exact.or_else(prefix).or_else(template)
    });
    plan::Matcher {
        methods: written.methods.clone().unwrap_or_default(),
        host: written.host.clone(),
        path,
        route_name: written.route_name.clone(),
        body: written.body.as_ref().and_then(|b| {
            Some(plan::BodyMatch {
                pointer: b.pointer.clone()?,
                exact: b.exact.clone()?,
            })
        }),
        metadata_only: written.metadata_only.unwrap_or(false),
    }
}

fn key(own: Parts<'_>, inherited: Parts<'_>) -> plan::KeyRule {
    let default = plan::KeyRule::default();
    let count = |n: Option<&u32>, default: usize| {
        n.and_then(|n| usize::try_from(*n).ok()).unwrap_or(default)
    };
    plan::KeyRule {
        header: pick!(own, inherited, key.header).map_or(default.header, |h| lower(h)),
        body_field: pick!(own, inherited, key.body_field)
            .cloned()
            .unwrap_or(default.body_field),
        required: pick!(own, inherited, key.required)
            .copied()
            .unwrap_or(default.required),
        formats: pick!(own, inherited, key.formats).map_or(default.formats, |formats| {
            let format = |f: &model::KeyFormat| match f {
                model::KeyFormat::Uuid => plan::KeyFormat::Uuid,
                model::KeyFormat::Ulid => plan::KeyFormat::Ulid,
                model::KeyFormat::Base64url => plan::KeyFormat::Base64url,
                model::KeyFormat::Opaque => plan::KeyFormat::Opaque,
            };
            formats.iter().map(format).collect()
        }),
        min_entropy_bytes: count(
            pick!(own, inherited, key.min_entropy_bytes),
            default.min_entropy_bytes,
        ),
        max_length: count(pick!(own, inherited, key.max_length), default.max_length),
        case: match pick!(own, inherited, key.case) {
            None => default.case,
            Some(model::KeyCase::Sensitive) => plan::KeyCase::Sensitive,
            Some(model::KeyCase::Insensitive) => plan::KeyCase::Insensitive,
        },
        syntax: match pick!(own, inherited, key.syntax) {
            None => default.syntax,
            Some(model::KeySyntax::Lenient) => plan::KeySyntax::Lenient,
            Some(model::KeySyntax::Strict) => plan::KeySyntax::Strict,
        },
    }
}

fn fingerprint(own: Parts<'_>, inherited: Parts<'_>) -> plan::FingerprintRule {
    use model::BodyMode as Written;
    let default = plan::FingerprintRule::default();
    plan::FingerprintRule {
        body: pick!(own, inherited, fingerprint.body).map_or(default.body, |body| match body {
            Written::Auto => plan::BodyMode::Auto,
            Written::Raw => plan::BodyMode::Raw,
            Written::Json => plan::BodyMode::Json,
            Written::Form => plan::BodyMode::Form,
            Written::Multipart => plan::BodyMode::Multipart,
            Written::ContentDigest => plan::BodyMode::ContentDigest,
            Written::None => plan::BodyMode::None,
        }),
        include: pick!(own, inherited, fingerprint.include)
            .cloned()
            .unwrap_or_default(),
        exclude: pick!(own, inherited, fingerprint.exclude)
            .cloned()
            .unwrap_or_default(),
        headers: lower_all(pick!(own, inherited, fingerprint.headers)),
        digest: match pick!(own, inherited, fingerprint.digest) {
            None => default.digest,
            Some(model::Digest::Blake3) => plan::DigestAlgorithm::Blake3,
            Some(model::Digest::Sha256) => plan::DigestAlgorithm::Sha256,
        },
        max_body: pick!(own, inherited, fingerprint.max_body)
            .map(|s| s.0)
            .or(default.max_body),
    }
}

fn record(own: Parts<'_>, inherited: Parts<'_>) -> plan::RecordRule {
    let list = |of: fn(&model::RecordHeaders) -> Option<&Vec<String>>| {
        let from = |parts: Parts<'_>| {
            let headers = parts.record.and_then(|r| r.headers.as_ref());
            headers.and_then(of).cloned()
        };
        lower_all(from(own).or_else(|| from(inherited)).as_ref())
    };
    plan::RecordRule {
        classes: classes::compile(pick!(own, inherited, record.classes)),
        allow_headers: list(|h| h.allow.as_ref()),
        deny_headers: list(|h| h.deny.as_ref()),
    }
}

fn unknown(written: &model::Unknown) -> plan::UnknownPolicy {
    match written {
        WordOr::Word(model::UnknownWord::Refuse) => plan::UnknownPolicy::Refuse,
        WordOr::Object(map) => match (&map.forward, &map.retry) {
            (Some(_), None) => plan::UnknownPolicy::Forward,
            (None, Some(retry)) => match &retry.i_accept_duplicates {
                Some(reason) => plan::UnknownPolicy::Retry {
                    reason: reason.clone(),
                },
                None => plan::UnknownPolicy::Refuse,
            },
            _ => plan::UnknownPolicy::Refuse,
        },
    }
}

fn key_time(written: &model::KeyTime) -> Option<plan::KeyTime> {
    match written {
        WordOr::Word(model::KeyTimeWord::UuidV7) => Some(plan::KeyTime::UuidV7),
        WordOr::Word(model::KeyTimeWord::Ulid) => Some(plan::KeyTime::Ulid),
        WordOr::Object(map) => {
            let header = map.deadline_header.as_ref()?;
            Some(plan::KeyTime::DeadlineHeader(lower(header)))
        }
    }
}
