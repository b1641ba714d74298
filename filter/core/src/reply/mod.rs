//! Local replies: stable codes, `application/problem+json` (RFC 9457), nine languages.

mod code;

pub use code::Code;

use crate::http::Line;

/// An answer that the filter gives by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalReply {
    /// HTTP status.
    pub status: u16,
    /// Header lines without `:status` and `content-length`.
    pub headers: Vec<Line>,
    /// The body.
    pub body: Vec<u8>,
}
