//! What the upstream is told and may believe, and what the client is told.
//!
//! The filter is the only speaker of `x-idempo-*` towards the upstream: every copy that a client
//! sends is removed ([`is_reserved_request_header`]), then [`lines`] writes the filter's own, and
//! with a secret signs them ([`Signer`]). Towards the client it is the only speaker of the
//! [`MARKERS`].
//!
//! | file | |
//! |---|---|
//! | `reserved` | names that only the filter may use; the router's knobs that could cause a second send |
//! | `derived` | `x-idempo-operation` and its siblings |
//! | `signature` | `x-idempo-signature`: the signed string, signing, verifying, rotation |
//! | `inner` | what the outer and the inner pass of a detached attempt tell each other |
//! | `markers` | `Idempotent-Replayed`, `Idempotency-*` on answers |

mod derived;
mod inner;
mod markers;
mod reserved;
mod signature;

pub use derived::{ATTEMPT_MAX, Derived, bounded_attempt, key_hash, lines};
pub use inner::{DETACHED_HEADER, INNER_HEADER, Inner, PROBE, PROBE_PATH, names_route};
pub use markers::{MARKERS, Markers, STORE, is_marker, markers};
pub use reserved::{
    is_derived, is_reserved_request_header, is_router_control, is_router_retry_control,
    is_router_timeout_control,
};
pub use signature::{SIGNATURE_HEADER, Secret, SecretError, Signer, TOLERANCE_S, Verification};

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

/// Everything that a header value should not carry, and `%` itself so that no two values look the
/// same. Octets from 0x80 on are always encoded.
const NOT_PLAIN: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// A header value of visible ASCII for any octets; what is visible ASCII already stays as it is.
fn visible(octets: &[u8]) -> Vec<u8> {
    percent_encode(octets, NOT_PLAIN).to_string().into_bytes()
}
