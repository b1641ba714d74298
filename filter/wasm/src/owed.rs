//! What a stream's host has refused to do, and is asked for again at every tick.
//!
//! A host that does not resume a stream, does not take its answer or does not let it be entered leaves a
//! client without an answer for as long as its connection lives. No host is known to do so to a stream that
//! is there; one that is not there any more was told by `on_log`. So it is asked again for a while,
//! and then the stream is left to the host's own time-outs; its operation is settled in any case.

use crate::host::{self, Direction};
use idempo_core::exchange::Effect;
use idempo_core::reply::LocalReply;

/// How many ticks long: five seconds.
const TRIES: u32 = 50;

#[derive(Default)]
pub(crate) struct Owed {
    reply: Option<LocalReply>,
    request: bool,
    response: bool,
    /// What the exchange asked for while the stream could not be entered.
    effects: Vec<Effect>,
    tries: u32,
}

impl Owed {
    pub(crate) fn is_nothing(&self) -> bool {
        self.reply.is_none() && !self.request && !self.response && self.effects.is_empty()
    }

    /// What was held before is held until they are carried out.
    pub(crate) fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Sends an answer, now or later.
    pub(crate) fn reply(&mut self, reply: LocalReply) {
        if !host::reply(&reply) {
            self.reply = Some(reply);
        }
    }

    /// Resumes, now or later.
    pub(crate) fn resume(&mut self, direction: Direction) {
        let refused = !host::resume(direction);
        match direction {
            Direction::Request => self.request = refused,
            Direction::Response => self.response = refused,
        }
    }

    /// The stream cannot be entered: what it asks for waits. `false`: for too long already.
    pub(crate) fn put_off(&mut self, effects: Vec<Effect>) -> bool {
        self.effects.extend(effects);
        self.tries < TRIES
    }

    /// Counts a try; `false`: that was the last one.
    pub(crate) fn try_again(&mut self) -> bool {
        self.tries = self.tries.saturating_add(1);
        self.tries < TRIES
    }

    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// In the stream's context: all but the effects.
    pub(crate) fn make_good(&mut self) {
        if let Some(reply) = self.reply.take() {
            self.reply(reply);
        }
        if self.request {
            self.resume(Direction::Request);
        }
        if self.response {
            self.resume(Direction::Response);
        }
    }
}
