//! What is counted. Names and dimensions are fixed, and every dimension is bounded: hosts never
//! forget a metric.
//!
//! proxy-wasm has no labels, so dimensions travel in the name as `.key.value` pairs; the shipped
//! Envoy configuration turns them back into labels with `stats_tags`.

use crate::plan::Plan;
use crate::reply::Code;

/// A rule's place in [`Plan::routes`].
pub type RouteIndex = u16;

/// A counter with its dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counter {
    /// `idempo_claim_total{route,tenant,result}`.
    Claim(RouteIndex, u8, ClaimResult),
    /// `idempo_replay_total{route,tenant}`: answers served from the record.
    Replay(RouteIndex, u8),
    /// `idempo_hit_total{route,tenant}`: attempts that an existing record kept from executing.
    Hit(RouteIndex, u8),
    /// `idempo_executed_total{route,tenant}`: attempts sent to the upstream under a claim.
    Executed(RouteIndex, u8),
    /// `idempo_conflict_total{route,tenant,code}`: same key, something else asked.
    Conflict(RouteIndex, u8, Code),
    /// `idempo_in_flight_total{route,action}`.
    InFlight(RouteIndex, Waited),
    /// `idempo_unknown_total{route,cause}`: transitions into `unknown`.
    Unknown(RouteIndex, Cause),
    /// `idempo_expired_total{route}`: attempts refused as expired.
    Expired(RouteIndex),
    /// `idempo_rejected_total{route,code}`: every attempt that the filter refused.
    Rejected(Option<RouteIndex>, Code),
    /// `idempo_would_total{route,code}`: what `observe` would have refused or replayed.
    Would(RouteIndex, Option<Code>),
    /// `idempo_bypass_total{reason}`: passed on unclaimed.
    Bypass(Bypass),
    /// `idempo_late_write_total{route}`: an owner's answer came after somebody else had settled.
    LateWrite(RouteIndex),
    /// `idempo_replay_corrupt_total`: a record or answer that failed its checksum.
    ReplayCorrupt,
    /// `idempo_store_error_total{op}`.
    StoreError(StoreOp),
    /// `idempo_compensation_total{route}`: an effect whose record could not be written at once.
    Compensation(RouteIndex),
    /// `idempo_store_forgot_total`: times that a store was found to have lost writes.
    StoreForgot,
    /// `idempo_unmatched_write_total`: writes that no rule matched.
    UnmatchedWrite,
    /// `idempo_upstream_policy_total{known}`: `Idempotency-Policy` values that were not understood.
    OddPolicy,
}

/// How a claim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimResult {
    /// This attempt runs.
    Claimed,
    /// This attempt runs an operation again, as the route's policy says.
    TakenOver,
    /// There was a record.
    Existing,
    /// The store failed or had no room.
    Failed,
}

/// What became of a duplicate of a running operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waited {
    /// Refused at once.
    Rejected,
    /// Waited, and got an end.
    Served,
    /// Waited in vain.
    TimedOut,
}

/// Why an operation became unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The upstream's status says so.
    Status,
    /// Sent, then reset.
    Reset,
    /// Sent, then no answer in time.
    Timeout,
    /// The client left before the upstream had answered.
    ClientGone,
    /// The owner was silent for a lease.
    LeaseOver,
    /// Envoy's drain or reload cut the stream.
    Drained,
    /// Anything else that cannot be shown to precede sending.
    Other,
}

/// Why a request passed unclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bypass {
    /// gRPC, CONNECT or an upgrade.
    Protocol,
    /// A valid signature of the same namespace.
    Signed,
    /// No key, and none required.
    NoKey,
    /// The store failed and the route says `open`.
    StoreFailure,
    /// The Envoy route says that it needs none.
    RouteOptOut,
    /// `observe` could not look at it.
    Unobserved,
}

/// Steps on a store, for error counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreOp {
    /// Claim or take-over.
    Claim,
    /// Read.
    Read,
    /// Transition.
    Transition,
    /// Cancel or release.
    Cancel,
    /// Recorded answer.
    Body,
}

/// Histograms, integers of microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Histogram {
    /// From the complete request to the claim's end, queueing included.
    ClaimUs,
    /// One round trip to a store that is reached over the network: never for `shared_data`.
    StoreRttUs,
    /// From forwarding to the upstream's answer.
    UpstreamUs,
}

impl Histogram {
    /// The metric's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClaimUs => "idempo_claim_us",
            Self::StoreRttUs => "idempo_store_rtt_us",
            Self::UpstreamUs => "idempo_upstream_us",
        }
    }
}

/// Gauges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gauge {
    /// Operations whose outcome is unknown.
    UnknownOpen,
    /// Writes waiting to be made.
    WriteBacklog,
    /// The fullest of the store's budgets, per mille.
    StoreUsedRatio,
    /// 1 where the store answers.
    StoreReady,
    /// 1 while nothing is claimed because the store has forgotten.
    StoreRecovering,
    /// Unix seconds since when this store remembers: a `shared_data` store forgets on restart.
    StoreSince,
    /// 1 where the loopback cluster answers: attempts run detached.
    LoopbackReady,
    /// Detached attempts under way.
    DetachedCalls,
}

impl Gauge {
    /// The metric's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownOpen => "idempo_unknown_open",
            Self::WriteBacklog => "idempo_write_backlog",
            Self::StoreUsedRatio => "idempo_store_used_ratio",
            Self::StoreReady => "idempo_store_ready",
            Self::StoreRecovering => "idempo_store_recovering",
            Self::StoreSince => "idempo_store_since_seconds",
            Self::LoopbackReady => "idempo_loopback_ready",
            Self::DetachedCalls => "idempo_detached_calls",
        }
    }
}

impl Counter {
    /// The name on the host: metric, then `.key.value` for each dimension.
    #[must_use]
    pub fn name(&self, plan: &Plan) -> String {
        let route = |index: RouteIndex| {
            plan.routes
                .get(usize::from(index))
                .map_or("none", |r| r.id.as_str())
                .replace('.', "_")
        };
        match *self {
            Self::Claim(r, t, result) => format!(
                "idempo_claim_total.route.{}.tenant.b{t:02}.result.{}",
                route(r),
                match result {
                    ClaimResult::Claimed => "claimed",
                    ClaimResult::TakenOver => "taken_over",
                    ClaimResult::Existing => "existing",
                    ClaimResult::Failed => "failed",
                }
            ),
            Self::Replay(r, t) => {
                format!("idempo_replay_total.route.{}.tenant.b{t:02}", route(r))
            }
            Self::Hit(r, t) => format!("idempo_hit_total.route.{}.tenant.b{t:02}", route(r)),
            Self::Executed(r, t) => {
                format!("idempo_executed_total.route.{}.tenant.b{t:02}", route(r))
            }
            Self::Conflict(r, t, code) => {
                format!(
                    "idempo_conflict_total.route.{}.tenant.b{t:02}.code.{code}",
                    route(r)
                )
            }
            Self::InFlight(r, waited) => format!(
                "idempo_in_flight_total.route.{}.action.{}",
                route(r),
                match waited {
                    Waited::Rejected => "rejected",
                    Waited::Served => "served",
                    Waited::TimedOut => "timed_out",
                }
            ),
            Self::Unknown(r, cause) => format!(
                "idempo_unknown_total.route.{}.cause.{}",
                route(r),
                match cause {
                    Cause::Status => "status",
                    Cause::Reset => "reset",
                    Cause::Timeout => "timeout",
                    Cause::ClientGone => "client_gone",
                    Cause::LeaseOver => "lease_over",
                    Cause::Drained => "drained",
                    Cause::Other => "other",
                }
            ),
            Self::Expired(r) => format!("idempo_expired_total.route.{}", route(r)),
            Self::Rejected(r, code) => format!(
                "idempo_rejected_total.route.{}.code.{code}",
                r.map_or_else(|| "none".to_owned(), route)
            ),
            Self::Would(r, code) => format!(
                "idempo_would_total.route.{}.code.{}",
                route(r),
                code.map_or("replayed", Code::as_str)
            ),
            Self::Bypass(reason) => format!(
                "idempo_bypass_total.reason.{}",
                match reason {
                    Bypass::Protocol => "protocol",
                    Bypass::Signed => "signed",
                    Bypass::NoKey => "no_key",
                    Bypass::StoreFailure => "store_failure",
                    Bypass::RouteOptOut => "route_opt_out",
                    Bypass::Unobserved => "unobserved",
                }
            ),
            Self::LateWrite(r) => format!("idempo_late_write_total.route.{}", route(r)),
            Self::ReplayCorrupt => "idempo_replay_corrupt_total".to_owned(),
            Self::StoreError(op) => format!(
                "idempo_store_error_total.op.{}",
                match op {
                    StoreOp::Claim => "claim",
                    StoreOp::Read => "read",
                    StoreOp::Transition => "transition",
                    StoreOp::Cancel => "cancel",
                    StoreOp::Body => "body",
                }
            ),
            Self::Compensation(r) => format!("idempo_compensation_total.route.{}", route(r)),
            Self::StoreForgot => "idempo_store_forgot_total".to_owned(),
            Self::UnmatchedWrite => "idempo_unmatched_write_total".to_owned(),
            Self::OddPolicy => "idempo_upstream_policy_odd_total".to_owned(),
        }
    }
}

impl Cause {
    /// The cause of an end that Envoy described with these response code details.
    #[must_use]
    pub fn of(details: &str) -> Self {
        // What Envoy's codecs say is about the client's side (`http2.remote_reset`); the upstream's has
        // a prefix of its own.
        let from_codec = ["http1.", "http2.", "http3."]
            .iter()
            .any(|codec| details.starts_with(codec));
        if details.contains("filter_chain_is_being_removed") || details.contains("drain") {
            Self::Drained
        } else if from_codec || details.contains("downstream") {
            Self::ClientGone
        } else if details.contains("timeout") {
            Self::Timeout
        } else if details.contains("reset") || details.contains("terminat") {
            Self::Reset
        } else {
            Self::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_reset_is_the_clients_or_the_upstreams() {
        let removed = "downstream_local_disconnect(filter_chain_is_being_removed)";
        for (details, cause) in [
            ("downstream_remote_disconnect", Cause::ClientGone),
            ("http2.remote_reset", Cause::ClientGone),
            (removed, Cause::Drained),
            ("response_timeout", Cause::Timeout),
            (
                "upstream_reset_before_response_started{remote_reset}",
                Cause::Reset,
            ),
            (
                "upstream_reset_before_response_started{connection_termination}",
                Cause::Reset,
            ),
            ("stream_ended", Cause::Other),
        ] {
            assert_eq!(Cause::of(details), cause, "{details}");
        }
    }
}
