//! What upstreams and callouts answer.

use crate::pairs::{Lines, first, lines};
use std::collections::BTreeMap;

/// A request as an upstream or a callout's cluster sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The cluster it was sent to; empty for what the router forwards.
    pub cluster: String,
    /// Header lines.
    pub headers: Lines,
    /// Body.
    pub body: Vec<u8>,
    /// When it came, Unix milliseconds.
    pub at_ms: u64,
}

/// An answer, and when it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Milliseconds after the whole request.
    pub after_ms: u64,
    /// Header lines, `:status` first.
    pub headers: Lines,
    /// The body as it arrives.
    pub chunks: Vec<Vec<u8>>,
}

impl Answer {
    /// An answer at once.
    #[must_use]
    pub fn new(status: u16, body: &str) -> Self {
        let mut headers = lines(&[(":status", &status.to_string())]);
        let length = body.len().to_string();
        for (name, value) in [
            ("content-type", "application/json"),
            ("content-length", &length),
        ] {
            headers.push((name.into(), value.into()));
        }
        Self {
            after_ms: 1,
            headers,
            chunks: if body.is_empty() {
                Vec::new()
            } else {
                vec![body.as_bytes().to_vec()]
            },
        }
    }

    /// The same, later.
    #[must_use]
    pub fn after(mut self, ms: u64) -> Self {
        self.after_ms = ms;
        self
    }
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Answered.
    Answer(Answer),
    /// The connection breaks after so many milliseconds; the request was read, and acted upon.
    Reset(u64),
    /// Nobody ever answers: the time-out decides.
    Silence,
    /// Callouts only: back into the same worker's filter chain.
    Loopback,
    /// Callouts only: the host takes no such call.
    Refused,
}

/// Decides about the n-th request, from 0.
pub type Script = Box<dyn FnMut(&Seen, usize) -> Fate>;

/// Everything beyond the filter chain.
pub struct World {
    /// The upstream's script.
    pub upstream: Script,
    /// Callouts by cluster.
    pub clusters: BTreeMap<String, Script>,
    /// What the upstream acted upon.
    pub acted: Vec<Seen>,
    /// Callouts made.
    pub called: Vec<Seen>,
    /// How often the router tries again by itself where a request breaks, unless it is told not to.
    pub router_retries: u32,
    /// The time, Unix milliseconds.
    pub now_ms: u64,
}

impl Default for World {
    fn default() -> Self {
        Self {
            upstream: Box::new(|_, n| {
                Fate::Answer(Answer::new(201, &format!("{{\"charge\":{n}}}")))
            }),
            clusters: BTreeMap::new(),
            acted: Vec::new(),
            called: Vec::new(),
            router_retries: 0,
            now_ms: 0,
        }
    }
}

impl World {
    /// The upstream acts upon a request and answers.
    pub fn act(&mut self, mut seen: Seen) -> Fate {
        seen.at_ms = self.now_ms;
        let fate = (self.upstream)(&seen, self.acted.len());
        self.acted.push(seen);
        fate
    }

    /// A callout to a cluster.
    pub fn call(&mut self, mut seen: Seen) -> Fate {
        seen.at_ms = self.now_ms;
        let Some(script) = self.clusters.get_mut(&seen.cluster) else {
            return Fate::Refused;
        };
        let fate = script(&seen, self.called.len());
        if fate != Fate::Refused {
            self.called.push(seen);
        }
        fate
    }

    /// How often the upstream acted for that key.
    #[must_use]
    pub fn effects(&self, key: &str) -> usize {
        let of = |seen: &&Seen| first(&seen.headers, "idempotency-key").as_deref() == Some(key);
        self.acted.iter().filter(of).count()
    }
}
