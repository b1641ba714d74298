//! English.

use super::{Code, Text, text};

pub(super) const fn text_of(code: Code) -> Text {
    match code {
        Code::KeyMissing => text(
            "Idempotency key required",
            "This operation needs an idempotency key, and the request carried none. This request was not executed. Create one key for each intended operation, such as a UUID, and send the same key with every retry.",
        ),
        Code::KeyInvalid => text(
            "Idempotency key not accepted",
            "The idempotency key cannot be read or does not have an accepted form. This request was not executed. Use a UUID or another form that this API documents, and send the same key with every retry.",
        ),
        Code::KeyWeak => text(
            "Idempotency key too predictable",
            "The idempotency key is simple enough to occur twice by chance. This request was not executed. Use a random value, such as a version 4 UUID, for each new operation.",
        ),
        Code::KeyExpired => text(
            "Idempotency key expired",
            "The time in which this key can be retried has passed. This request was not executed. Check whether the original operation took effect before you start a new one with a new key.",
        ),
        Code::TenantMissing => text(
            "Account context missing",
            "The request does not say on behalf of which tenant it is made. This request was not executed. Check the credentials or tenant header that this API documents, then retry with the same key.",
        ),
        Code::TenantDrift => text(
            "Account context inconsistent",
            "Different parts of the request name different tenants, most often because of a configuration error. This request was not executed. Make them agree, then retry with the same key.",
        ),
        Code::PrincipalMismatch => text(
            "Key first used by another caller",
            "This idempotency key was first used under another caller identity, for example before credentials changed. This request was not executed, and the earlier answer is not shown. Retry as the original caller; use a new key only for a new operation.",
        ),
        Code::PayloadMismatch => text(
            "Key already used for a different request",
            "An earlier request with this idempotency key had different content. This request was not executed, and the earlier operation is unaffected. For a retry, send exactly the original request; for a new operation, use a new key.",
        ),
        Code::FingerprintIncomparable => text(
            "Request cannot be compared",
            "The earlier request with this key was recorded under other settings, so the two cannot be compared. This request was not executed. Check the result of the original operation before you use a new key.",
        ),
        Code::ReplayUnavailable => text(
            "Recorded answer not available",
            "The operation for this key was already processed, but its answer cannot be shown again. This request was not executed. Look up the result through the API before you use a new key.",
        ),
        Code::InFlight => text(
            "Operation still in progress",
            "An earlier request with this key is still being processed. This request was not executed. Wait for the time given in Retry-After, then send the same request with the same key.",
        ),
        Code::OutcomeUnknown => text(
            "Outcome not confirmed",
            "The operation for this key was started, but it could not be confirmed whether it took effect. It was not run again, to avoid a duplicate. Check the result and do not switch to a new key; support can help with the operation id.",
        ),
        Code::OperationClosed => text(
            "Operation closed after review",
            "The operator of the service reviewed this operation and closed it; a reason code is included. This request was not executed. Contact support with the operation id if the operation is still needed.",
        ),
        Code::StoreUnavailable => text(
            "Request cannot be accepted right now",
            "The service that protects against duplicates cannot be reached. This request was not executed. Retry with the same key after the time given in Retry-After.",
        ),
        Code::StoreRecovering => text(
            "Duplicate protection is recovering",
            "After an interruption, recent operations are being checked again. This request was not executed. Retry with the same key after the time given in Retry-After.",
        ),
        Code::StoreFull => text(
            "Limit of stored operations reached",
            "There is currently no room to register another operation, for this account or for the whole service. This request was not executed. Retry later with the same key; if this continues, contact support.",
        ),
        Code::PayloadTooLarge => text(
            "Request body too large",
            "The request body is larger than can be retried safely for this operation. This request was not executed. Send a smaller body, or ask the API provider about the limit.",
        ),
        Code::MethodOverride => text(
            "Method override not accepted",
            "The request asks for another HTTP method through an override header. This request was not executed. Send it with the intended method itself, and with an idempotency key.",
        ),
        Code::PathAmbiguous => text(
            "Request path is ambiguous",
            "The request's path is written so that different servers could read it as different resources, for example because of percent-escapes, double slashes or dot segments. This request was not executed. Send it with the path in its normal form, and keep the same key if the request has one.",
        ),
        Code::ContentDigestInvalid => text(
            "Content-Digest missing or malformed",
            "This API compares requests by their Content-Digest header (RFC 9530), and the header is missing or malformed. This request was not executed. Send a valid sha-256 or sha-512 digest of the body in that header, with the same key.",
        ),
        Code::Misconfigured => text(
            "Service configuration problem",
            "A configuration problem on the server prevents safe processing; the request itself is not the cause. This request was not executed. Tell the API provider the attempt id, and keep the same key for the retry.",
        ),
    }
}
