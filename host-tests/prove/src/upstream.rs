//! What is behind the filter: the router, the upstream, and what comes back from them.

use crate::fence::Fence;
use crate::setup::Setup;
use crate::world::{Client, World};
use idempo_core::exchange::{CallFailure, Effect, Exchange, Moment, Origin};
use idempo_core::http::Headers;
use idempo_core::trusted::{INNER_HEADER, Inner};

/// Code details of a connection that was never made, and of one that broke.
pub(crate) const REFUSED: &str =
    "upstream_reset_before_response_started{remote_connection_failure|delayed_connect}";
const BROKEN: &str = "upstream_reset_before_response_started{connection_termination}";
pub(crate) const VIA_UPSTREAM: &str = "via_upstream";

/// What comes back behind the filter.
#[derive(Clone, Copy, Debug)]
struct Back {
    status: u16,
    details: &'static str,
    /// The answer ends with its headers.
    whole: bool,
}

impl World {
    pub(crate) fn effect(&mut self, setup: &Setup, i: usize) {
        let had = self.effects().any(|n| n > 0);
        let upstream = &mut self.attempts[i].upstream;
        upstream.flying -= 1;
        if !(setup.dedupes && had) {
            upstream.effects += 1;
        }
    }

    /// An answer, whole, from whomever.
    pub(crate) fn come_back(
        &mut self,
        setup: &Setup,
        i: usize,
        status: u16,
        details: &'static str,
    ) {
        let back = Back {
            status,
            details,
            whole: details != VIA_UPSTREAM,
        };
        let attempt = &mut self.attempts[i];
        let upstream = &mut attempt.upstream;
        upstream.answered = Some(status);
        let (tries, away) = (upstream.tries, upstream.away);
        upstream.told = matches!(status, 201 | 202) && attempt.exchange.is_some();
        let attempts = self.attempts_said(setup, tries);
        if away {
            self.tell(setup, i, &back, |e, now, out| {
                come_home(e, back, attempts, now, out);
            });
            return;
        }
        self.tell(setup, i, &back, |e, now, out| {
            begin(e, back, attempts, now, out);
            if !back.whole {
                e.on_response_body(b"done", true, now, out);
            }
        });
    }

    pub(crate) fn attempts_said(&self, setup: &Setup, tries: u8) -> u64 {
        if setup.has(Fence::OneTry) {
            u64::from(tries)
        } else {
            1
        }
    }

    pub(crate) fn head(&mut self, setup: &Setup, i: usize, status: u16) {
        self.attempts[i].upstream.head = Some(status);
        let attempts = self.attempts_said(setup, self.attempts[i].upstream.tries);
        let back = Back {
            status,
            details: VIA_UPSTREAM,
            whole: false,
        };
        self.tell(setup, i, &back, |e, now, out| {
            begin(e, back, attempts, now, out);
        });
    }

    pub(crate) fn tail(&mut self, setup: &Setup, i: usize) {
        let attempt = &mut self.attempts[i];
        attempt.upstream.answered = attempt.upstream.head.take();
        attempt.upstream.told = attempt.exchange.is_some();
        self.tell(setup, i, &"tail", |e, now, out| {
            e.on_response_body(b"done", true, now, out);
        });
    }

    pub(crate) fn reset(&mut self, setup: &Setup, i: usize) {
        if self.attempts[i].upstream.away {
            self.attempts[i].upstream.answered = Some(503);
            return self.fail_call(setup, i, CallFailure::Lost);
        }
        if self.attempts[i].upstream.head.take().is_some() {
            // In the midst of the answer: the stream ends with it.
            let attempt = &mut self.attempts[i];
            attempt.upstream.answered = Some(0);
            attempt.client = Client::Served(0);
            attempt.ended = true;
            self.tell(setup, i, &"broken", |e, now, out| {
                e.on_end(
                    "upstream_reset_after_response_started{connection_termination}",
                    now,
                    out,
                )
            });
            return;
        }
        let details = if setup.has(Fence::SentDecides) {
            BROKEN
        } else {
            REFUSED
        };
        self.come_back(setup, i, 503, details);
    }
}

fn begin(exchange: &mut Exchange, back: Back, attempts: u64, now: Moment, out: &mut Vec<Effect>) {
    let origin = Origin {
        details: back.details,
        attempts: &|| Some(attempts),
        can_hold: true,
    };
    exchange.on_response_headers(&headers(back), back.whole, &origin, now, out);
}

fn come_home(
    exchange: &mut Exchange,
    back: Back,
    attempts: u64,
    now: Moment,
    out: &mut Vec<Effect>,
) {
    let report = Inner {
        details: back.details.to_owned(),
        attempts: Some(attempts),
    };
    let mut lines = headers(back);
    lines.push(INNER_HEADER, report.encode());
    let body = if back.whole { vec![] } else { b"done".to_vec() };
    exchange.on_detached_answer(&lines, body, false, false, now, out);
}

fn headers(back: Back) -> Headers {
    let status = back.status.to_string();
    let length = if back.whole { "0" } else { "4" };
    [(":status", status.as_str()), ("content-length", length)]
        .into_iter()
        .collect()
}
