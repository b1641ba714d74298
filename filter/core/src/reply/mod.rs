//! Local replies: stable codes, `application/problem+json` (RFC 9457), nine languages.
//!
//! | file | |
//! |---|---|
//! | `code` | the stable codes and their statuses |
//! | `problem` | one refusal as headers and a JSON body |
//! | `lang` | title and detail of every code, in nine languages |
//! | `negotiate` | which of them the client reads |
//! | [`retry_after`] | when to come back |

mod code;
mod lang;
mod negotiate;
mod problem;
pub mod retry_after;

pub use code::Code;
pub use lang::{Language, Text};
pub use negotiate::negotiate;
pub use problem::{Problem, render, type_uri};

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
