//! The configuration as it is written. Every member is optional here, so that what is missing can
//! be told together with everything else that is wrong; what is required, and what the defaults
//! are, is said by [`super::validate`] and [`super::compile`]. The comments on fields become the
//! descriptions in the JSON Schema.

use super::duration::Millis;
use super::forms::{SchemaVersion, WordOr};
use super::read::{self, Fault, Read, Reader, Slot};
use super::size::Size;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde_json::Value;
use std::collections::BTreeMap;

/// Declares the types of the model, and how each is read: an object member by member, in any order
/// and with no others, an enum as one of its words.
///
/// serde is not used for this. Its derived code is compiled once per type and once per way to a
/// value, which made it a tenth of the module, and it stops at the first mistake; here a member is
/// an entry in a table that one function walks, and that function goes on.
macro_rules! model {
    () => {};
    ($(#[$meta:meta])* pub struct $name:ident: $expecting:literal {
        $($(#[$doc:meta])* pub $member:ident: $type:ty,)*
    } $($rest:tt)*) => {
        #[derive(Clone, Debug, Default)]
        #[cfg_attr(feature = "schema", derive(JsonSchema), schemars(deny_unknown_fields))]
        $(#[$meta])*
        pub struct $name { $($(#[$doc])* pub $member: $type,)* }

        impl Read for $name {
            fn read<'v>(value: &'v Value, reader: &mut Reader<'v>) -> Result<Self, Fault> {
                let mut made = Self::default();
                let members: &mut [(&'static str, &mut dyn Slot)] =
                    &mut [$((stringify!($member), &mut made.$member),)*];
                reader.object(value, $expecting, members)?;
                Ok(made)
            }
        }

        model! { $($rest)* }
    };
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$doc:meta])* $variant:ident = $word:literal,)*
    } $($rest:tt)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[cfg_attr(feature = "schema", derive(JsonSchema))]
        $(#[$meta])*
        pub enum $name {
            $($(#[$doc])* #[cfg_attr(feature = "schema", schemars(rename = $word))] $variant,)*
        }

        impl Read for $name {
            fn read<'v>(value: &'v Value, _: &mut Reader<'v>) -> Result<Self, Fault> {
                match read::word(value, &[$($word),*])? {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(Fault::Word(&[$($word),*])),
                }
            }
        }

        model! { $($rest)* }
    };
}

/// Declares a struct that has, after its own members, the parts that routes and `defaults` share.
macro_rules! with_parts {
    ($(#[$meta:meta])* $name:ident: $expecting:literal { $($own:tt)* }) => {
        model! {
            $(#[$meta])*
            pub struct $name: $expecting {
                $($own)*
                /// Overrides the top-level mode: `enforce`, `observe` or `off`.
                pub mode: Option<Mode>,
                /// How the idempotency key is read and judged.
                pub key: Option<Key>,
                /// What makes two requests the same.
                pub fingerprint: Option<Fingerprint>,
                /// A body that is read raw and is complete within so many octets is claimed once it is complete, a larger one at that point, and then streams to the upstream (default 64KiB; 1KiB to 1MiB).
                pub claim_after: Option<Size>,
                /// `before_end`: the client gets the end of an answer once it is recorded (default); `async`: never held.
                pub commit: Option<Commit>,
                /// How an attempt is sent on.
                pub upstream: Option<Upstream>,
                /// How long an owner may be silent before its operation is `unknown`; the owner renews it. At least 1s (default 30s).
                pub lease: Option<Millis>,
                /// Which answers are recorded, and which of their headers.
                pub record: Option<Record>,
                /// Windows and sizes of what is remembered.
                pub replay: Option<Replay>,
                /// What a duplicate gets while the first attempt runs.
                pub in_flight: Option<InFlight>,
                /// What an operation with unknown outcome gets: `refuse` (default), `{forward: {upstream_dedupes: true}}` or `{retry: {i_accept_duplicates: "reason"}}`.
                pub unknown: Option<Unknown>,
                /// Where no claim can be made: `closed` answers 503 (default), `open` passes the request on unprotected.
                pub store_failure: Option<StoreFailure>,
                /// Status overrides, 400 to 599, by code, such as `payload_mismatch: 409`.
                pub statuses: Option<BTreeMap<String, u16>>,
                /// Raise it when old answers no longer fit new readers (default "1").
                pub schema_version: Option<SchemaVersion>,
                /// Verifiable age: `uuidv7`, `ulid`, or `{deadline_header: name}`.
                pub key_time: Option<KeyTime>,
                /// How long an accepted operation (202) may wait for its completion. At least 1s (default 86400s).
                pub accepted_deadline: Option<Millis>,
            }
        }
        impl $name {
            /// The shared parts.
            #[must_use]
            pub fn parts(&self) -> Parts<'_> {
                Parts {
                    mode: self.mode,
                    key: self.key.as_ref(),
                    fingerprint: self.fingerprint.as_ref(),
                    claim_after: self.claim_after,
                    commit: self.commit,
                    upstream: self.upstream.as_ref(),
                    lease: self.lease,
                    record: self.record.as_ref(),
                    replay: self.replay.as_ref(),
                    in_flight: self.in_flight.as_ref(),
                    unknown: self.unknown.as_ref(),
                    store_failure: self.store_failure,
                    statuses: self.statuses.as_ref(),
                    schema_version: self.schema_version.as_ref(),
                    key_time: self.key_time.as_ref(),
                    accepted_deadline: self.accepted_deadline,
                }
            }
        }
    };
}

/// What routes and `defaults` have in common, as one of them wrote it.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // described at the members themselves, above
pub struct Parts<'a> {
    pub mode: Option<Mode>,
    pub key: Option<&'a Key>,
    pub fingerprint: Option<&'a Fingerprint>,
    pub claim_after: Option<Size>,
    pub commit: Option<Commit>,
    pub upstream: Option<&'a Upstream>,
    pub lease: Option<Millis>,
    pub record: Option<&'a Record>,
    pub replay: Option<&'a Replay>,
    pub in_flight: Option<&'a InFlight>,
    pub unknown: Option<&'a Unknown>,
    pub store_failure: Option<StoreFailure>,
    pub statuses: Option<&'a BTreeMap<String, u16>>,
    pub schema_version: Option<&'a SchemaVersion>,
    pub key_time: Option<&'a KeyTime>,
    pub accepted_deadline: Option<Millis>,
}

with_parts! {
    /// Parts that every route inherits and may override member by member; lists, and `unknown`, `key_time` and `record.classes`, are replaced as a whole.
    Defaults: "an object with the optional parts of a route" {}
}

with_parts! {
    /// One rule: which requests, and what they get. The first rule that matches wins.
    Route: "a route such as {id: charges, match: {path: {prefix: /v1/charges}}}" {
        /// Stable by contract: part of every operation's identity. Small letters, digits, `_`, `.`, `-`; 64 at most.
        pub id: Option<String>,
        /// Identities that this route had before, looked up during a migration.
        pub previous: Option<Vec<Previous>>,
        /// What requests the rule is for; every part that is written must hold.
        pub r#match: Option<Match>,
    }
}

model! {
    /// Configuration of the idempo filter.
    pub struct Config: "an object with store, tenant and routes" {
        /// Part of every operation's identity (default `default`).
        pub namespace: Option<String>,
        /// `enforce` (default), `observe` or `off`.
        pub mode: Option<Mode>,
        /// Share of operations, by hash, that are enforced; the others are observed. 0 to 1 (default 1).
        pub enforce_fraction: Option<f64>,
        /// Where records live: exactly one engine.
        pub store: Option<Store>,
        /// Keeps recorded answers of a remote store at hand.
        pub replay_cache: Option<ReplayCache>,
        /// Bounds per tenant and worker.
        pub limits: Option<Limits>,
        /// Signs the derived headers for the upstream; secrets by the name of their environment variable.
        pub signing: Option<Signing>,
        /// The cluster whose endpoint is an internal listener of the same Envoy: attempts are sent through it and are recorded whether or not their client is still there. Needs `signing`.
        pub loopback_cluster: Option<String>,
        /// Whose operations these are.
        pub tenant: Option<Tenant>,
        /// The caller within the tenant, bound into the fingerprint: another one with the same key gets 403.
        pub principal: Option<Source>,
        /// Parts that every route inherits.
        pub defaults: Option<Defaults>,
        /// The rules; the first that matches wins. At least one.
        pub routes: Option<Vec<Route>>,
    }

    /// How much the filter may interfere.
    pub enum Mode {
        /// Answers, refuses, replays.
        Enforce = "enforce",
        /// Claims and compares, but never answers; counts what it would have done.
        Observe = "observe",
        /// Does nothing.
        Off = "off",
    }

    /// The store engine.
    pub struct Store: "one engine, such as {shared_data: {}}" {
        /// The host's shared data: one Envoy process, forgotten on restart.
        pub shared_data: Option<SharedData>,
        /// A Redis that every Envoy shares, reached through one of Envoy's clusters.
        pub redis: Option<Redis>,
    }

    /// Budgets of the shared-data table, each a hard bound.
    pub struct SharedData: "budgets such as {records: 64MiB}, or {}" {
        /// Records without bodies (default 64MiB).
        pub records: Option<Size>,
        /// Recorded answers (default 128MiB).
        pub bodies: Option<Size>,
        /// Packed tombstones (default 16MiB).
        pub tombstones: Option<Size>,
    }

    /// How the Redis is reached, and what is kept of it.
    pub struct Redis: "an object such as {cluster: redis-webdis, transport: webdis}" {
        /// The name of the Envoy cluster that calls go to.
        pub cluster: Option<String>,
        /// What answers there: `webdis`, `rest` or `resp`.
        pub transport: Option<Transport>,
        /// The `:authority` of the calls (default: the cluster's name).
        pub authority: Option<String>,
        /// `standalone` (default), or `cluster`: one call per hash slot.
        pub topology: Option<Topology>,
        /// What every key begins with: 1 to 32 letters, digits, `-` and `_` (default `idempo`).
        pub prefix: Option<String>,
        /// How long one call may take; an operation is repeated once. 0.01s to 10s (default 0.5s).
        pub timeout: Option<Millis>,
        /// Transport `rest`: the bearer token.
        pub token: Option<EnvSecret>,
        /// Transport `webdis`: the whole value of the `authorization` header.
        pub authorization: Option<EnvSecret>,
        /// Transport `resp`: what `AUTH` is sent.
        pub login: Option<Login>,
        /// How long nothing new is claimed after the store has forgotten something. At least the longest lease of all routes; by default that, and no less than 12 s, in which every proxy has heard of it.
        pub hold: Option<Millis>,
    }

    /// How commands travel.
    pub enum Transport {
        /// Webdis: HTTP to Redis, as a sidecar.
        Webdis = "webdis",
        /// Redis over REST: JSON arrays of words, a bearer token.
        Rest = "rest",
        /// Raw RESP, handed to Redis by a route of the same Envoy that terminates `CONNECT`. Recorded answers up to 12 KiB; no Redis Cluster.
        Resp = "resp",
    }

    /// What stands behind the transport.
    pub enum Topology {
        /// One server, with or without replicas: a call may touch any key.
        Standalone = "standalone",
        /// Redis Cluster: a call stays within one hash slot.
        Cluster = "cluster",
    }

    /// Who logs in.
    pub struct Login: "an object such as {user: idempo, password: {env: NAME}}" {
        /// The ACL user (default: the default user of Redis).
        pub user: Option<String>,
        /// The password.
        pub password: Option<EnvSecret>,
    }

    /// Recorded answers of a remote store, kept in the host's shared data.
    pub struct ReplayCache: "an object such as {bytes: 16MiB}" {
        /// Its budget (default 16MiB); 0 switches it off.
        pub bytes: Option<Size>,
    }

    /// Bounds that keep one tenant or one worker from taking everything.
    pub struct Limits: "an object such as {tenant_records: 100000}" {
        /// Live records that one tenant may hold (default: no quota).
        pub tenant_records: Option<u64>,
        /// New claims that one tenant may make per second and worker (default: as many as it likes).
        pub tenant_claims_per_second: Option<u32>,
        /// Attempts that may wait at once in one worker (default 1024).
        pub worker_waiters: Option<u32>,
        /// Memory for answers being recorded, per worker (default 64MiB).
        pub recording_bytes: Option<Size>,
        /// Calls to a remote store that one worker has under way, in a cluster to each hash slot, 1 to 64 (default 4).
        pub store_calls: Option<u32>,
        /// Operations that one such call carries, 1 to 256 (default 64).
        pub store_batch: Option<u32>,
        /// Operations that wait for such a call in one worker, 16 to 65536 (default 4096).
        pub store_queue: Option<u32>,
    }

    /// Secrets of the signature, two at once for a rotation.
    pub struct Signing: "an object such as {active: {env: IDEMPO_SECRET}}" {
        /// Signs and verifies.
        pub active: Option<EnvSecret>,
        /// Verifies only.
        pub previous: Option<EnvSecret>,
    }

    /// A secret by the name of its environment variable; literal secrets are refused.
    pub struct EnvSecret: "an object such as {env: NAME}" {
        /// The environment variable's name.
        pub env: Option<String>,
    }

    /// Whose operations these are.
    pub struct Tenant: "an object such as {sources: [{header: x-tenant-id}]}" {
        /// Refuse where no source gives a value (default: true where there are sources and no `default`).
        pub required: Option<bool>,
        /// Where the tenant comes from; all that are present must agree.
        pub sources: Option<Vec<Source>>,
        /// The tenant where no source gives a value (default `default`). Part of identity.
        pub default: Option<String>,
    }

    /// Where a value about the caller comes from: exactly one of these.
    pub struct Source: "a source: {header: name}, {metadata: {filter, path}} or {property: [names]}" {
        /// A request header; only as good as what sets it.
        pub header: Option<String>,
        /// Dynamic metadata, such as a JWT claim.
        pub metadata: Option<Metadata>,
        /// A host property, as a path of names.
        pub property: Option<Vec<String>>,
    }

    /// A place in the dynamic metadata.
    pub struct Metadata: "an object such as {filter: envoy.filters.http.jwt_authn, path: [claims, sub]}" {
        /// The metadata namespace, such as `envoy.filters.http.jwt_authn`.
        pub filter: Option<String>,
        /// Names from the outside in; at least one.
        pub path: Option<Vec<String>>,
    }

    /// An identity that a route had before.
    pub struct Previous: "an object such as {id: old-name}" {
        /// The route id of then.
        pub id: Option<String>,
        /// The tenant default of then, where it was another.
        pub tenant_default: Option<String>,
    }

    /// What a rule matches.
    pub struct Match: "an object such as {methods: [POST], path: {prefix: /v1/charges}}" {
        /// Methods in capitals (default: every method that writes).
        pub methods: Option<Vec<String>>,
        /// Host without port; a leading `*.` stands for one or more labels.
        pub host: Option<String>,
        /// One form of path, without query.
        pub path: Option<PathMatch>,
        /// The name of the Envoy route.
        pub route_name: Option<String>,
        /// A string in a JSON body.
        pub body: Option<BodyMatch>,
        /// Matches nothing by itself; Envoy route metadata selects the rule.
        pub metadata_only: Option<bool>,
    }

    /// Exactly one form of path.
    pub struct PathMatch: "one of {exact: /path}, {prefix: /path} and {template: \"/path/{id}\"}" {
        /// The whole path.
        pub exact: Option<String>,
        /// Whole segments: `/v1/charges` also matches `/v1/charges/x`, not `/v1/chargesx`.
        pub prefix: Option<String>,
        /// Segments, some of them variables: `/v1/orders/{id}/charges`.
        pub template: Option<String>,
    }

    /// A string in a JSON body.
    pub struct BodyMatch: "an object such as {pointer: /method, exact: tools/call}" {
        /// RFC 6901 JSON Pointer.
        pub pointer: Option<String>,
        /// The string that must stand there.
        pub exact: Option<String>,
    }

    /// How the key is read and judged.
    pub struct Key: "an object such as {formats: [uuid]}" {
        /// The header (default `idempotency-key`).
        pub header: Option<String>,
        /// JSON Pointer of the key in a JSON body (default `/idempotency_key`); null: header only.
        pub body_field: Option<Option<String>>,
        /// Refuse writes without a key (default true).
        pub required: Option<bool>,
        /// Accepted forms (default uuid, base64url).
        pub formats: Option<Vec<KeyFormat>>,
        /// For base64url octets after decoding, for opaque characters; 1 to 255 (default 16).
        pub min_entropy_bytes: Option<u32>,
        /// Characters, 1 to 255 (default 128).
        pub max_length: Option<u32>,
        /// Whether letters' case tells opaque keys apart (default `sensitive`).
        pub case: Option<KeyCase>,
        /// `lenient` (default) takes a bare token or a quoted RFC 9651 String, `strict` only the latter.
        pub syntax: Option<KeySyntax>,
    }

    /// Key forms.
    pub enum KeyFormat {
        /// Hyphenated UUID, not nil, not max.
        Uuid = "uuid",
        /// 26 characters of Crockford base 32.
        Ulid = "ulid",
        /// Unpadded base64url that decodes to enough octets.
        Base64url = "base64url",
        /// Visible ASCII of enough characters.
        Opaque = "opaque",
    }

    /// Case rules.
    pub enum KeyCase {
        /// `A` is not `a`.
        Sensitive = "sensitive",
        /// Compared in lower case.
        Insensitive = "insensitive",
    }

    /// Header syntaxes.
    pub enum KeySyntax {
        /// A bare token or an RFC 9651 String.
        Lenient = "lenient",
        /// An RFC 9651 String only.
        Strict = "strict",
    }

    /// What is bound into a fingerprint.
    pub struct Fingerprint: "an object such as {body: json, exclude: [/sent_at]}" {
        /// How the body is read (default `auto`: by media type).
        pub body: Option<BodyMode>,
        /// JSON Pointers: only these members of a JSON body.
        pub include: Option<Vec<String>>,
        /// JSON Pointers: all members of a JSON body but these.
        pub exclude: Option<Vec<String>>,
        /// Further request headers.
        pub headers: Option<Vec<String>>,
        /// `blake3` (default) or `sha256`.
        pub digest: Option<Digest>,
        /// The largest body that is taken; beyond it 413 (default: any, JSON, forms and multipart of more than 1MiB being read as octets).
        pub max_body: Option<Size>,
    }

    /// Body readings.
    pub enum BodyMode {
        /// By media type: JSON, form, multipart, else raw.
        Auto = "auto",
        /// Octets.
        Raw = "raw",
        /// RFC 8785 canonical JSON.
        Json = "json",
        /// Members sorted by name.
        Form = "form",
        /// Parts, whatever the boundary.
        Multipart = "multipart",
        /// The Content-Digest header is trusted in place of the body.
        ContentDigest = "content_digest",
        /// The body is not looked at.
        None = "none",
    }

    /// Hashes.
    pub enum Digest {
        /// BLAKE3.
        Blake3 = "blake3",
        /// SHA-256.
        Sha256 = "sha256",
    }

    /// Whether the client waits for the record.
    pub enum Commit {
        /// The end of an answer is held until it is recorded.
        BeforeEnd = "before_end",
        /// Nothing is held.
        Async = "async",
    }

    /// How an attempt is sent on.
    pub struct Upstream: "an object such as {timeout: 15s}" {
        /// Given to the router in place of the route's own time-out; covers the whole answer (default 15s).
        pub timeout: Option<Millis>,
        /// `detached`: sent through the loopback cluster, so that a client that leaves loses nothing (default where `loopback_cluster` is set). `inline`: forwarded in the client's own stream.
        pub execution: Option<Execution>,
        /// `contained`: the router tries once (default); `{allow: {reason: "…"}}` leaves its retries on.
        pub router_retries: Option<RouterRetries>,
        /// Ask the upstream for an unencoded answer, so that every replay serves every client (default true).
        pub identity_encoding: Option<bool>,
    }

    /// Ways to run a first attempt.
    pub enum Execution {
        /// Forwarded in the client's own stream.
        Inline = "inline",
        /// Sent through the loopback cluster, whether or not the client is still there.
        Detached = "detached",
    }

    /// The router's own retries.
    pub enum RouterRetriesWord {
        /// Switched off for every claimed request.
        Contained = "contained",
    }

    /// Leaves the router's own retries on.
    pub struct RouterRetriesMap: "an object such as {allow: {reason: \"…\"}}" {
        /// With a reason.
        pub allow: Option<Allow>,
    }

    /// Why.
    pub struct Allow: "an object such as {reason: \"the upstream dedupes\"}" {
        /// Why the upstream may see one request several times.
        pub reason: Option<String>,
    }

    /// Which answers are recorded.
    pub struct Record: "an object such as {classes: strict}" {
        /// A preset (default `strict`), or `{preset, overrides}`.
        pub classes: Option<Classes>,
        /// Headers of the recorded answer.
        pub headers: Option<RecordHeaders>,
    }

    /// Class tables.
    pub enum Preset {
        /// 5xx and 408 are unknown.
        Strict = "strict",
        /// 5xx are recorded and replayed too.
        RecordAll = "record-all",
        /// 5xx release: the next attempt runs.
        RetryFailed = "retry-failed",
    }

    /// A preset with exceptions.
    pub struct ClassesMap: "an object such as {preset: strict, overrides: {\"404\": release}}" {
        /// What the exceptions are from (default `strict`).
        pub preset: Option<Preset>,
        /// Classes by status: `404`, `5xx` or `500-503`. The narrowest wins.
        pub overrides: Option<BTreeMap<String, Class>>,
    }

    /// What an answer means for its operation.
    pub enum Class {
        /// Terminal: recorded and replayed.
        Record = "record",
        /// Proves that nothing was done: the next attempt runs.
        Release = "release",
        /// The effect cannot be known.
        Unknown = "unknown",
        /// Taken on, not done.
        Accepted = "accepted",
    }

    /// Which headers of an answer are kept.
    pub struct RecordHeaders: "an object such as {deny: [x-internal]}" {
        /// Kept although they would be dropped.
        pub allow: Option<Vec<String>>,
        /// Never kept.
        pub deny: Option<Vec<String>>,
    }

    /// Windows and sizes.
    pub struct Replay: "an object such as {ttl: 172800s}" {
        /// How long an answer is replayed, from the end of the operation (default 172800s).
        pub ttl: Option<Millis>,
        /// How long a late duplicate is refused after that (default 604800s); 0s: an expired key is a new operation.
        pub tombstone_ttl: Option<Millis>,
        /// The largest body that is recorded (default 1MiB); a larger answer is remembered, not replayed.
        pub max_inline_body: Option<Size>,
    }

    /// What a duplicate of a running operation gets.
    pub struct InFlight: "an object such as {action: wait, timeout: 10s}" {
        /// `reject` answers 409 (default); `wait` holds the duplicate until the operation ends.
        pub action: Option<InFlightAction>,
        /// How long a duplicate waits (default 10s).
        pub timeout: Option<Millis>,
        /// Waiters per operation and worker (default 32).
        pub max_waiters: Option<u32>,
    }

    /// Refuse or wait.
    pub enum InFlightAction {
        /// 409 with Retry-After.
        Reject = "reject",
        /// Hold until the operation ends.
        Wait = "wait",
    }

    /// The default policy.
    pub enum UnknownWord {
        /// 409 with evidence.
        Refuse = "refuse",
    }

    /// A policy that sends the operation on again: exactly one.
    pub struct UnknownMap: "an object such as {forward: {upstream_dedupes: true}}" {
        /// Sent on; the upstream dedupes by `x-idempo-operation`.
        pub forward: Option<Forward>,
        /// Sent on, at least once.
        pub retry: Option<Retry>,
    }

    /// The upstream dedupes.
    pub struct Forward: "an object such as {upstream_dedupes: true}" {
        /// Must be true.
        pub upstream_dedupes: Option<bool>,
    }

    /// At least once.
    pub struct Retry: "an object such as {i_accept_duplicates: \"reads only\"}" {
        /// Why duplicates are acceptable.
        pub i_accept_duplicates: Option<String>,
    }

    /// What happens where no claim can be made.
    pub enum StoreFailure {
        /// 503.
        Closed = "closed",
        /// Passed on unprotected, marked and counted.
        Open = "open",
    }

    /// Keys that carry their own time.
    pub enum KeyTimeWord {
        /// UUID version 7.
        UuidV7 = "uuidv7",
        /// ULID.
        Ulid = "ulid",
    }

    /// A deadline that the client states.
    pub struct KeyTimeMap: "an object such as {deadline_header: x-deadline}" {
        /// A request header with an HTTP date or Unix seconds.
        pub deadline_header: Option<String>,
    }
}

/// `contained`, or `{allow: {reason}}`.
pub type RouterRetries = WordOr<RouterRetriesWord, RouterRetriesMap>;
/// A preset's name, or `{preset, overrides}`.
pub type Classes = WordOr<Preset, ClassesMap>;
/// `refuse`, or `{forward}` or `{retry}`.
pub type Unknown = WordOr<UnknownWord, UnknownMap>;
/// `uuidv7`, `ulid`, or `{deadline_header}`.
pub type KeyTime = WordOr<KeyTimeWord, KeyTimeMap>;
