//! What is kept of an upstream's answer, octet for octet.
//!
//! An [`Envelope`] is the status, the header lines that may be served to somebody else at another
//! time, and the body. Three questions, one file each:
//!
//! | file | question |
//! |---|---|
//! | [`recordable`](fn@recordable) | which header lines outlive the connection and the client they were for? (RFC 9110 §7.6.1) |
//! | [`encode`], [`decode`] | how does it lie in a store, and is what came back whole? |
//! | [`upstream_policy`] | did the upstream say what to do with its answer? |
//!
//! `Content-Length` is never kept: on a replay the host counts the body it sends, so answers to
//! HEAD, 204 and 304 need no special case here.

mod codec;
mod policy;
mod recordable;

pub use codec::{Corrupt, decode, encode, result_digest};
pub use policy::{POLICY_HEADER, PolicyReading, UpstreamPolicy, upstream_policy};
pub use recordable::{forwardable, recordable};

use crate::http::Line;
use std::fmt;

/// A recorded answer.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Envelope {
    /// HTTP status, 100 to 999.
    pub status: u16,
    /// Header lines in the order they came, repeated lines kept apart, values untouched.
    pub headers: Vec<Line>,
    /// The whole body, in the content coding that the upstream used.
    pub body: Vec<u8>,
    /// The lengths of the pieces in which a body of undeclared length came, at most [`MAX_SEGMENTS`];
    /// empty otherwise. What came in pieces is one result all the same: no part of the digest.
    pub segments: Vec<u32>,
}

/// How many pieces of a body are told apart; the last one is what was left.
pub const MAX_SEGMENTS: usize = 1024;

/// A stored response never reaches a log: only names and sizes are shown.
impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self
            .headers
            .iter()
            .map(|(name, _)| String::from_utf8_lossy(name))
            .collect();
        f.debug_struct("Envelope")
            .field("status", &self.status)
            .field("headers", &names)
            .field("body_len", &self.body.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn debug_shows_neither_values_nor_body() {
        let shown = format!(
            "{:?}",
            Envelope {
                status: 201,
                headers: vec![(b"location".to_vec(), b"/charges/secret-id".to_vec())],
                body: b"secret-body".to_vec(),
                segments: vec![],
            }
        );
        assert!(shown.contains("location") && shown.contains("201"));
        assert!(!shown.contains("secret"));
    }
}
