//! The compiled policy: plain data that the rest of the core reads.
//!
//! [`crate::config`] is the only maker of a [`Plan`] from what an operator wrote; by the time a
//! plan exists, every contradiction has been refused. Times are milliseconds unless a name says
//! otherwise.

mod redis;

pub(crate) use redis::call_limits;
pub use redis::{MAX_REMOTE_BODY, MAX_RESP_BODY, RedisLogin, RedisStore, RedisTransport};

use crate::fingerprint::CANONICAL_MAX;
use crate::reply::Code;
use std::collections::BTreeMap;

/// Everything one filter instance was told.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Part of every operation's identity (default `default`).
    pub namespace: String,
    /// The top-level mode.
    pub mode: Mode,
    /// Share of operations, by hash, that are enforced rather than observed: 0.0 to 1.0.
    pub enforce_fraction: f64,
    /// Where records live.
    pub store: Store,
    /// Budget of the cache in front of a remote store, bytes (default 16 MiB); 0: there is none.
    pub replay_cache_bytes: u64,
    /// Whose operations these are.
    pub tenant: Tenant,
    /// Optional caller identity, bound into the fingerprint.
    pub principal: Option<Source>,
    /// Bounds per tenant and worker.
    pub limits: Limits,
    /// HMAC secrets for the trusted headers, by environment variable name.
    pub signing: Option<Signing>,
    /// Loopback cluster for detached execution, where configured.
    pub loopback_cluster: Option<String>,
    /// Rules; the first match wins.
    pub routes: Vec<Route>,
}

impl Plan {
    /// The rule of that id.
    #[must_use]
    pub fn route(&self, id: &str) -> Option<&Route> {
        self.routes.iter().find(|r| r.id == id)
    }

    /// The longest lease of all routes, ms.
    #[must_use]
    pub fn longest_lease_ms(&self) -> u64 {
        longest_lease_ms(&self.routes)
    }
}

pub(crate) fn longest_lease_ms(routes: &[Route]) -> u64 {
    routes.iter().map(|r| r.lease_ms).max().unwrap_or(0)
}

/// How much the filter may interfere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// Answers, refuses, replays.
    #[default]
    Enforce,
    /// Claims and compares, but never answers; counts what it would have done.
    Observe,
    /// Does nothing.
    Off,
}

/// Which store engine, with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// The host's shared data: a fixed table of hashed slots.
    SharedData(SharedDataStore),
    /// A Redis, reached by calls through a cluster of Envoy.
    Redis(Box<RedisStore>),
}

impl Store {
    /// The engine's name as configured.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::SharedData(_) => "shared_data",
            Self::Redis(_) => "redis",
        }
    }
}

/// Byte budgets of the shared-data table. Each is a hard bound on what the table holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDataStore {
    /// Records without bodies (default 64 MiB).
    pub records_bytes: u64,
    /// Recorded answers: headers and bodies (default 128 MiB).
    pub bodies_bytes: u64,
    /// Packed tombstones (default 16 MiB).
    pub tombstones_bytes: u64,
}

impl Default for SharedDataStore {
    fn default() -> Self {
        Self {
            records_bytes: 64 << 20,
            bodies_bytes: 128 << 20,
            tombstones_bytes: 16 << 20,
        }
    }
}

/// Where a value about the caller comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A request header (lower-case name). Only as good as what sets it.
    Header(String),
    /// Dynamic metadata: filter name, then the path of keys inside (a JWT claim, say).
    Metadata {
        /// The metadata namespace, usually a filter's name such as `envoy.filters.http.jwt_authn`.
        filter: String,
        /// Keys from the outside in; at least one.
        path: Vec<String>,
    },
    /// A host property path such as `["connection", "uri_san_peer_certificate"]`.
    Property(Vec<String>),
}

/// Tenant policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Refuse with `tenant_missing` where no source gives a value.
    pub required: bool,
    /// Sources; all that are present must agree.
    pub sources: Vec<Source>,
    /// The tenant where no source gives a value and none is required. Part of identity.
    pub default: String,
}

/// Bounds that keep one tenant or one worker from taking everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Live records one tenant may hold; `None`: no quota.
    pub tenant_records: Option<u64>,
    /// New claims one tenant may make per second and worker; `None`: as many as it likes.
    pub tenant_claims_per_second: Option<u32>,
    /// Attempts of all operations that may wait at once in one worker (default 1024).
    pub worker_waiters: u32,
    /// Memory for answers being recorded, per worker, bytes (default 64 MiB). Beyond it an answer is
    /// remembered as not replayable (rule 7).
    pub recording_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tenant_records: None,
            tenant_claims_per_second: None,
            worker_waiters: 1024,
            recording_bytes: 64 << 20,
        }
    }
}

/// Names of the environment variables that hold the HMAC secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signing {
    /// Signs, and verifies.
    pub active_env: String,
    /// Verifies only, during a rotation.
    pub previous_env: Option<String>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Stable by contract: part of every operation's identity.
    pub id: String,
    /// Earlier identities, looked up during a migration.
    pub previous: Vec<PreviousIdentity>,
    /// Overrides the top-level mode.
    pub mode: Option<Mode>,
    /// What requests it is for.
    pub matcher: Matcher,
    /// How the key is read.
    pub key: KeyRule,
    /// What makes two requests the same.
    pub fingerprint: FingerprintRule,
    /// A body that is not read in a canonical form and is complete within so many octets is claimed once
    /// it is complete, a larger one at that point (default 64 KiB).
    pub claim_after: u64,
    /// Whether the client waits for the record.
    pub commit: Commit,
    /// How the attempt is sent on.
    pub upstream: Upstream,
    /// How long an owner may be silent, ms (default 30 000).
    pub lease_ms: u64,
    /// Which answers are recorded, and which of their headers.
    pub record: RecordRule,
    /// Windows and sizes.
    pub replay: Replay,
    /// What a duplicate gets while the first attempt runs.
    pub in_flight: InFlight,
    /// What happens to an operation whose effect is unknown.
    pub unknown: UnknownPolicy,
    /// Where the claim cannot be made.
    pub store_failure: StoreFailure,
    /// Status overrides per code.
    pub statuses: BTreeMap<Code, u16>,
    /// Raised by the operator when old answers no longer fit new readers (default `1`).
    pub schema_version: String,
    /// Verifiable age carried by the key itself.
    pub key_time: Option<KeyTime>,
    /// How long an `accepted` operation may stay so, ms (default 24 h).
    pub accepted_deadline_ms: u64,
}

impl Route {
    /// The most octets of a request body that are held before it is claimed.
    #[must_use]
    pub fn most_held(&self) -> u64 {
        let canonical = !matches!(
            self.fingerprint.body,
            BodyMode::Raw | BodyMode::None | BodyMode::ContentDigest
        );
        let inside = canonical || self.key.body_field.is_some() || self.matcher.body.is_some();
        let most = if inside {
            CANONICAL_MAX
        } else {
            self.claim_after
        };
        self.fingerprint.max_body.map_or(most, |max| most.min(max))
    }
}

/// An identity that this route had before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviousIdentity {
    /// The route id of then.
    pub id: String,
    /// The tenant default of then, where it was another.
    pub tenant_default: Option<String>,
}

/// What a rule matches; every part that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    /// Methods in upper case; empty: every method that writes.
    pub methods: Vec<String>,
    /// Host without port, lower case; a leading `*.` matches one or more labels.
    pub host: Option<String>,
    /// Path form.
    pub path: Option<PathMatch>,
    /// Envoy route name.
    pub route_name: Option<String>,
    /// A member of a JSON body.
    pub body: Option<BodyMatch>,
    /// Matches nothing by itself: selected by Envoy route metadata only.
    pub metadata_only: bool,
}

/// Path forms. Compared with the normalised path, without query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// The whole path.
    Exact(String),
    /// Whole segments: `/v1/charges` matches `/v1/charges` and `/v1/charges/x`, not `/v1/chargesx`.
    Prefix(String),
    /// Segments, of which some are variables: `/v1/orders/{id}/charges`.
    Template(Vec<Segment>),
}

/// One segment of a path template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Must be this text.
    Literal(String),
    /// Any one non-empty segment.
    Variable(String),
}

/// A member of a JSON body that must be this string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyMatch {
    /// RFC 6901 JSON Pointer.
    pub pointer: String,
    /// The string that the member must be.
    pub exact: String,
}

/// How the idempotency key is read and judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRule {
    /// Lower-case header name (default `idempotency-key`).
    pub header: String,
    /// RFC 6901 pointer into a JSON body (default `/idempotency_key`); `None`: header only.
    pub body_field: Option<String>,
    /// Refuse writes without a key (default true).
    pub required: bool,
    /// Accepted forms; a key need fit one (default UUID, base64url).
    pub formats: Vec<KeyFormat>,
    /// For `base64url`: octets after decoding (default 16). For `opaque`: characters.
    pub min_entropy_bytes: usize,
    /// Characters, 1 to 255 (default 128).
    pub max_length: usize,
    /// Case rule for forms other than UUID and ULID.
    pub case: KeyCase,
    /// Header syntax.
    pub syntax: KeySyntax,
}

impl Default for KeyRule {
    fn default() -> Self {
        Self {
            header: "idempotency-key".into(),
            body_field: Some("/idempotency_key".into()),
            required: true,
            formats: vec![KeyFormat::Uuid, KeyFormat::Base64url],
            min_entropy_bytes: 16,
            max_length: 128,
            case: KeyCase::Sensitive,
            syntax: KeySyntax::Lenient,
        }
    }
}

/// Key forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyFormat {
    /// RFC 9562 in its hyphenated form, not nil, not max.
    Uuid,
    /// 26 characters of Crockford base 32.
    Ulid,
    /// Unpadded RFC 4648 §5 that decodes to enough octets and is not trivially repetitive.
    Base64url,
    /// Visible ASCII of at least `min_entropy_bytes` characters.
    Opaque,
}

/// Whether letters' case tells keys apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCase {
    /// `A` is not `a`.
    Sensitive,
    /// Compared in lower case.
    Insensitive,
}

/// Header syntaxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySyntax {
    /// A bare token or an RFC 9651 String.
    Lenient,
    /// An RFC 9651 String only, as the IETF draft has it.
    Strict,
}

/// What is bound into a fingerprint, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FingerprintRule {
    /// How the body is read.
    pub body: BodyMode,
    /// For JSON: only these members (RFC 6901 pointers); empty: all.
    pub include: Vec<String>,
    /// For JSON: all but these.
    pub exclude: Vec<String>,
    /// Further request headers (lower case).
    pub headers: Vec<String>,
    /// The hash.
    pub digest: DigestAlgorithm,
    /// The largest body that is taken, octets; beyond it `payload_too_large`. `None`: any.
    pub max_body: Option<u64>,
}

impl Default for FingerprintRule {
    fn default() -> Self {
        Self {
            body: BodyMode::Auto,
            include: Vec::new(),
            exclude: Vec::new(),
            headers: Vec::new(),
            digest: DigestAlgorithm::Blake3,
            max_body: None,
        }
    }
}

/// Body readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyMode {
    /// By media type: JSON, form, multipart, else raw.
    Auto,
    /// Octets.
    Raw,
    /// RFC 8785.
    Json,
    /// `application/x-www-form-urlencoded` members, sorted by name.
    Form,
    /// `multipart/form-data` parts, independent of the boundary.
    Multipart,
    /// The RFC 9530 `Content-Digest` header is trusted in place of the body.
    ContentDigest,
    /// The body is not looked at.
    None,
}

/// Hashes for bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestAlgorithm {
    /// BLAKE3.
    Blake3,
    /// SHA-256.
    Sha256,
}

impl DigestAlgorithm {
    /// The name in configurations and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Blake3 => "blake3",
            Self::Sha256 => "sha256",
        }
    }
}

/// When the client has the whole answer, against when it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// Recorded before the client has the last octet.
    BeforeEnd,
    /// Never held: a crash in between leaves an operation unknown whose answer the client has.
    Async,
}

/// How an attempt is sent on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Sent to the router so that the two can't drift, ms (default 15 000). Covers the whole answer.
    pub timeout_ms: u64,
    /// Inline or detached.
    pub execution: Execution,
    /// Why the router may retry by itself, where the operator allows it; `None`: contained.
    pub router_retries_reason: Option<String>,
    /// Ask for `Accept-Encoding: identity`, so that each replay serves each client (default true).
    pub identity_encoding: bool,
}

/// Ways to run a first attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// Forwarded in the client's own stream.
    Inline,
    /// Sent by the root through the loopback listener.
    Detached,
}

/// Which answers are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRule {
    /// Class per status, most special first.
    pub classes: Vec<ClassRule>,
    /// Extra headers kept although their class would be dropped (lower case).
    pub allow_headers: Vec<String>,
    /// Headers never kept (lower case).
    pub deny_headers: Vec<String>,
}

/// Statuses (inclusive range) and what an answer with one of them means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassRule {
    /// First status.
    pub from: u16,
    /// Last status.
    pub to: u16,
    /// What it means.
    pub class: Class,
}

/// What an upstream's answer means for the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Terminal: recorded and replayed.
    Record,
    /// Proves that nothing was done: the claim is released.
    Release,
    /// The effect cannot be known.
    Unknown,
    /// Taken on, not done: completed later by an event or a probe.
    Accepted,
}

/// Windows and sizes of what is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// From the terminal transition, ms (default 172 800 000).
    pub ttl_ms: u64,
    /// After the replay window, ms (default 7 days).
    pub tombstone_ttl_ms: u64,
    /// The largest recorded body, octets (default 1 MiB).
    pub max_inline_body: u64,
}

/// What a duplicate of a running operation gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Refuse at once, or wait.
    pub action: InFlightAction,
    /// How long to wait, ms (default 10 000).
    pub timeout_ms: u64,
    /// Waiters per operation and worker (default 32).
    pub max_waiters: u32,
}

/// Refuse or wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlightAction {
    /// 409 `in_flight` with `Retry-After`.
    Reject,
    /// Hold the duplicate until the operation ends, then answer from the record.
    Wait,
}

/// What happens to an operation whose effect is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownPolicy {
    /// 409 `outcome_unknown` with evidence.
    Refuse,
    /// Sent on again: the upstream dedupes by `x-idempo-operation`.
    Forward,
    /// Sent on again, at least once; the operator's reason is kept.
    Retry {
        /// Why duplicates are acceptable.
        reason: String,
    },
}

/// Where the claim cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// 503 `store_unavailable`.
    Closed,
    /// Passed on unclaimed, marked and counted.
    Open,
}

/// Keys that carry their own time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyTime {
    /// RFC 9562 §5.7.
    UuidV7,
    /// The first 48 bits of a ULID.
    Ulid,
    /// A request header (lower case) in which the client states until when the operation may run:
    /// an HTTP date or Unix seconds. The name is bound to the operation by the route.
    DeadlineHeader(String),
}
