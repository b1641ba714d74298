//! The stable codes of every refusal.

use std::fmt;

/// Why an attempt was answered by the filter. The names are part of the contract: clients match
/// on them, so none is ever renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Code {
    /// A key is required and none came.
    KeyMissing,
    /// The key cannot be read or does not have the form.
    KeyInvalid,
    /// The key has the form but could be guessed.
    KeyWeak,
    /// The operation is too old: its windows, or its own deadline, have passed.
    KeyExpired,
    /// A tenant is required and no source gave one.
    TenantMissing,
    /// Tenant sources disagree.
    TenantDrift,
    /// Another principal used this key.
    PrincipalMismatch,
    /// Same key, other request.
    PayloadMismatch,
    /// Recorded under fingerprint settings that cannot be recomputed.
    FingerprintIncomparable,
    /// The answer exists but cannot be served again.
    ReplayUnavailable,
    /// The first attempt still runs.
    InFlight,
    /// Whether the effect happened is not known.
    OutcomeUnknown,
    /// An operator closed the operation.
    OperationClosed,
    /// The store cannot be asked.
    StoreUnavailable,
    /// The store may have forgotten; new claims are held back.
    StoreRecovering,
    /// No room for another record, in the store or in the tenant's quota.
    StoreFull,
    /// The body is larger than the route can fingerprint.
    PayloadTooLarge,
    /// A write hides behind a safe method.
    MethodOverride,
    /// The path can be read as another one, on which a rule stands.
    PathAmbiguous,
    /// The route takes `Content-Digest` for the body, and it is missing or malformed.
    ContentDigestInvalid,
    /// Route metadata names a rule that does not exist, or the filter is set up so that it cannot work.
    Misconfigured,
}

impl Code {
    /// Every code, for tables and tests.
    pub const ALL: [Self; 21] = [
        Self::KeyMissing,
        Self::KeyInvalid,
        Self::KeyWeak,
        Self::KeyExpired,
        Self::TenantMissing,
        Self::TenantDrift,
        Self::PrincipalMismatch,
        Self::PayloadMismatch,
        Self::FingerprintIncomparable,
        Self::ReplayUnavailable,
        Self::InFlight,
        Self::OutcomeUnknown,
        Self::OperationClosed,
        Self::StoreUnavailable,
        Self::StoreRecovering,
        Self::StoreFull,
        Self::PayloadTooLarge,
        Self::MethodOverride,
        Self::PathAmbiguous,
        Self::ContentDigestInvalid,
        Self::Misconfigured,
    ];

    /// The name on the wire, in metrics and in `statuses`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KeyMissing => "key_missing",
            Self::KeyInvalid => "key_invalid",
            Self::KeyWeak => "key_weak",
            Self::KeyExpired => "key_expired",
            Self::TenantMissing => "tenant_missing",
            Self::TenantDrift => "tenant_drift",
            Self::PrincipalMismatch => "principal_mismatch",
            Self::PayloadMismatch => "payload_mismatch",
            Self::FingerprintIncomparable => "fingerprint_incomparable",
            Self::ReplayUnavailable => "replay_unavailable",
            Self::InFlight => "in_flight",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::OperationClosed => "operation_closed",
            Self::StoreUnavailable => "store_unavailable",
            Self::StoreRecovering => "store_recovering",
            Self::StoreFull => "store_full",
            Self::PayloadTooLarge => "payload_too_large",
            Self::MethodOverride => "method_override",
            Self::PathAmbiguous => "path_ambiguous",
            Self::ContentDigestInvalid => "content_digest_invalid",
            Self::Misconfigured => "misconfigured",
        }
    }

    /// The status unless the route says otherwise.
    #[must_use]
    pub const fn default_status(self) -> u16 {
        match self {
            Self::KeyMissing
            | Self::KeyInvalid
            | Self::KeyWeak
            | Self::TenantMissing
            | Self::MethodOverride
            | Self::PathAmbiguous
            | Self::ContentDigestInvalid => 400,
            Self::TenantDrift | Self::PrincipalMismatch => 403,
            Self::KeyExpired => 410,
            Self::PayloadTooLarge => 413,
            Self::PayloadMismatch => 422,
            Self::ReplayUnavailable
            | Self::FingerprintIncomparable
            | Self::InFlight
            | Self::OutcomeUnknown
            | Self::OperationClosed => 409,
            Self::Misconfigured => 500,
            Self::StoreUnavailable | Self::StoreRecovering | Self::StoreFull => 503,
        }
    }

    /// The code of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.as_str() == name)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_read_back() {
        for code in Code::ALL {
            assert_eq!(Code::from_name(code.as_str()), Some(code));
        }
        assert_eq!(Code::from_name("nope"), None);
    }
}
