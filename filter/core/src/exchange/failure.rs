//! Answers that are not the upstream's: was the request sent, or not?
//!
//! Rule 3: sent or not sent decides, not aborted or not. Envoy names the origin of every answer in
//! `response.code_details`. Only the names on an explicit list prove that nothing was sent, and
//! only if the router tried once: with a retry inside the router the last failure says nothing
//! about the first try. Everything else is unknown.

/// What a failure proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Nothing reached the upstream: the claim is released.
    No,
    /// It may have.
    Maybe,
}

/// Envoy's name for an answer that came from the upstream.
pub const VIA_UPSTREAM: &str = "via_upstream";

/// Details, whole, of answers made before the router, or by it instead of routing at all: no try was
/// ever made, whatever the host can say of tries.
const BEFORE_ROUTER: [&str; 10] = [
    "route_not_found",
    "cluster_not_found",
    "direct_response",
    "overload",
    "overload_error_response",
    "request_rate_limited",
    "rate_limited",
    "fault_filter_abort",
    "ext_authz_denied",
    "ext_authz_error",
];

/// Beginnings of details of answers made by filters behind this one, before the router.
const BEFORE_ROUTER_PREFIX: [&str; 3] = [
    "rbac_access_denied",
    "jwt_authn_access_denied",
    "local_rate_limited",
];

/// Details of answers that the router makes where a try ends before it sends. An earlier try may
/// have been sent.
const NOT_SENT: [&str; 3] = ["no_healthy_upstream", "maintenance_mode", "no_more_hosts"];

/// What is inside the braces of `upstream_reset_before_response_started{…}` where the request
/// provably never left: the connection was never made, or the peer refused the stream unprocessed
/// (RFC 9113 §8.7).
const RESET_NOT_SENT: [&str; 5] = [
    "remote_connection_failure",
    "local_connection_failure",
    "connection_failure",
    "overflow",
    "remote_refused_stream_reset",
];

/// Judges an answer that Envoy or another filter made.
///
/// `attempts` is `upstream.request_attempt_count`; `None` where the host could not tell.
#[must_use]
pub fn judge(details: &str, attempts: Option<u64>) -> Sent {
    let before_router = BEFORE_ROUTER.contains(&details)
        || BEFORE_ROUTER_PREFIX.iter().any(|p| details.starts_with(p));
    let reset = details
        .strip_prefix("upstream_reset_before_response_started{")
        .map(|rest| rest.split(['|', '}']).next().unwrap_or_default());
    let not_sent =
        NOT_SENT.contains(&details) || reset.is_some_and(|r| RESET_NOT_SENT.contains(&r));
    let tried_once = attempts.is_some_and(|n| n <= 1);
    let never_tried = attempts.is_none_or(|n| n <= 1);
    if (before_router && never_tried) || (not_sent && tried_once) {
        Sent::No
    } else {
        Sent::Maybe
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_refused_connection_releases_only_if_the_router_tried_once() {
        let refused =
            "upstream_reset_before_response_started{remote_connection_failure|delayed_connect}";
        assert_eq!(judge(refused, Some(1)), Sent::No);
        assert_eq!(judge(refused, Some(2)), Sent::Maybe);
        assert_eq!(
            judge(refused, None),
            Sent::Maybe,
            "unreadable means unknown"
        );
    }

    #[test]
    fn what_precedes_routing_releases() {
        for details in BEFORE_ROUTER {
            assert_eq!(judge(details, Some(1)), Sent::No, "{details}");
            assert_eq!(judge(details, None), Sent::No, "{details}");
            assert_eq!(judge(details, Some(2)), Sent::Maybe, "{details}");
        }
        let overflow = "upstream_reset_before_response_started{overflow}";
        for details in NOT_SENT.into_iter().chain([overflow]) {
            assert_eq!(judge(details, Some(1)), Sent::No, "{details}");
            assert_eq!(judge(details, Some(2)), Sent::Maybe, "{details}");
            assert_eq!(judge(details, None), Sent::Maybe, "{details}: unreadable");
        }
        assert_eq!(
            judge("rbac_access_denied_matched_policy[x]", None),
            Sent::No
        );
    }

    #[test]
    fn everything_else_is_unknown() {
        for details in [
            "",
            "via_upstream",
            "response_timeout",
            "upstream_per_try_timeout",
            "upstream_reset_before_response_started{connection_termination}",
            "upstream_reset_before_response_started{remote_reset}",
            "upstream_reset_before_response_started{protocol_error}",
            "upstream_reset_after_response_started{remote_connection_failure}",
            "upstream_reset_before_response_started{}",
            "upstream_reset_before_response_started{remote_connection_failures}",
            "downstream_remote_disconnect",
            "no_healthy_upstream_ever",
        ] {
            assert_eq!(judge(details, Some(1)), Sent::Maybe, "{details}");
        }
    }
}
