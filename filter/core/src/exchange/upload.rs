//! Request bodies that are too large to be held (design §4, "When the claim is made").
//!
//! What is held of a body until the claim: a body that may be read in a canonical form, or in which a
//! key or a rule is looked for, up to [`CANONICAL_MAX`]; any other one up to the rule's `claim_after`.
//! Where more comes, the operation is claimed under a fingerprint of the beginning, and the body is
//! hashed while it passes: forwarded by the attempt that holds the claim, dropped where a record
//! must be compared with the whole of it.

use super::refusal::Refusal;
use super::understand::fingerprint_of;
use super::{Attempt, Effect, Exchange, Gather, Moment, Phase, Step};
use crate::fingerprint::{self, CANONICAL_MAX, Fingerprint, Streamed};
use crate::http::Headers;
use crate::plan::{BodyMode, Mode, Route};
use crate::reply::Code;
use crate::store::{Action, Op};

/// In `observe` mode a body is held back at most this far: the host's own limit (Envoy: 1 MiB by
/// default) would answer 413, and observing must change nothing.
const OBSERVED_BODY: u64 = 256 << 10;

/// How long a body that is read to be compared may bring nothing, milliseconds.
const STALLED_MS: u64 = 5_000;

/// What the host is to do with the request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing in particular: it is not looked at.
    Pass,
    /// Show each piece ([`Exchange::on_request_chunk`]) and hold it; slow the sender down where that becomes
    /// too much.
    Hold,
    /// Show each piece and pass it on.
    Stream,
    /// Show each piece and drop it.
    Drop,
}

/// A body on its way.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    hash: Option<Streamed>,
    /// Once it is complete.
    whole: Option<Fingerprint>,
    /// `Content-Length`.
    declared: Option<u64>,
    /// The host has said that it was all.
    ended: bool,
    /// Dropped while it came: the attempt can no longer be forwarded.
    dropped: bool,
}

impl Upload {
    /// The body of that request, of which `body` came so far.
    pub(super) fn begin(
        rule: &Route,
        headers: &Headers,
        principal: Option<&[u8]>,
        body: &[u8],
    ) -> Self {
        let mut hash = fingerprint_of(headers, principal, &[], |request| {
            Streamed::new(&rule.fingerprint, request)
        });
        hash.update(body);
        Self {
            hash: Some(hash),
            whole: None,
            declared: declared_length(headers),
            ended: false,
            dropped: false,
        }
    }

    /// The whole fingerprint, once the body is complete.
    pub(super) fn whole(&self) -> Option<&Fingerprint> {
        self.whole.as_ref()
    }

    /// `Content-Length`, or the length once it is known.
    pub(super) fn declared(&self) -> Option<u64> {
        self.whole.as_ref().map(|w| w.length).or(self.declared)
    }

    fn length(&self) -> u64 {
        let coming = self.hash.as_ref().map(Streamed::length);
        coming
            .or(self.whole.as_ref().map(|w| w.length))
            .unwrap_or(0)
    }

    /// Some of it was not seen, so the whole is never known.
    fn lose(&mut self) {
        self.hash = None;
        self.whole = None;
    }

    /// The next piece; `end`: the last one.
    fn take(&mut self, chunk: &[u8], end: bool) {
        if let Some(hash) = &mut self.hash {
            hash.update(chunk);
        } else if !chunk.is_empty() {
            // More than was declared.
            self.lose();
        }
        // What was declared is there: the host's own word may come with a later, empty piece, and the
        // upstream's answer before it.
        self.ended |= end;
        let end = end || self.declared.is_some_and(|d| self.length() >= d);
        if end && let Some(hash) = self.hash.take() {
            self.whole = Some(hash.finish());
        }
    }
}

impl Attempt {
    /// Whether its body is still there to be forwarded.
    pub(super) fn holds_body(&self) -> bool {
        self.upload.as_ref().is_none_or(|u| !u.dropped)
    }

    /// The fingerprint of the whole request, once that is known.
    pub(super) fn whole_fingerprint(&self) -> Option<&Fingerprint> {
        match &self.upload {
            None => Some(&self.fingerprint),
            Some(upload) => upload.whole(),
        }
    }
}

impl Exchange {
    /// What is to be done with the request's body, after each event.
    #[must_use]
    pub fn body(&self) -> Body {
        let open = |attempt: &Attempt| {
            let upload = attempt.upload.as_ref();
            upload.is_some_and(|u| !u.ended)
        };
        match &self.phase {
            Phase::Gather(_) => Body::Hold,
            Phase::Ask(attempt, _) | Phase::Wait(attempt) if open(attempt) => {
                if attempt.holds_body() {
                    Body::Hold
                } else {
                    Body::Drop
                }
            }
            Phase::Drain(_) => Body::Drop,
            Phase::Run(run) | Phase::Record(run, _) if open(&run.attempt) => Body::Stream,
            Phase::Replied => Body::Drop,
            _ => Body::Pass,
        }
    }

    /// How much of the body is held before it is known what to do with it, octets.
    fn gather_limit(&self, gather: &Gather) -> u64 {
        let limit = match gather.route.and_then(|c| self.route(c.index)) {
            // Some rule looks inside.
            None => CANONICAL_MAX,
            Some(rule) => {
                let declared = declared_length(&gather.headers).unwrap_or(0);
                let inside = gather.key_in_body
                    || (declared <= CANONICAL_MAX
                        && (gather.may_hold_key
                            || fingerprint::may_be_canonical(&rule.fingerprint, &gather.headers)));
                let limit = if inside {
                    CANONICAL_MAX
                } else {
                    rule.claim_after
                };
                rule.fingerprint
                    .max_body
                    .map_or(limit, |most| limit.min(most))
            }
        };
        if self.observes(gather) {
            limit.min(OBSERVED_BODY)
        } else {
            limit
        }
    }

    /// Octets of the body that are held until it is known what to do with it; `None` where nothing is
    /// awaited.
    #[must_use]
    pub fn gathered(&self) -> Option<u64> {
        match &self.phase {
            Phase::Gather(gather) => Some(gather.body.len() as u64),
            _ => None,
        }
    }

    /// A piece of the body while it is gathered.
    fn gather(&mut self, chunk: Vec<u8>, end: bool, now: Moment, out: &mut Vec<Effect>) {
        let Phase::Gather(gather) = &mut self.phase else {
            return;
        };
        if gather.body.is_empty() {
            gather.body = chunk;
        } else {
            gather.body.extend_from_slice(&chunk);
        }
        let held = gather.body.len() as u64;
        if let Phase::Gather(gather) = &self.phase
            && (end || held > self.gather_limit(gather))
            && let Some(mut gather) = self.take_gather()
        {
            let body = std::mem::take(&mut gather.body);
            self.on_gathered(gather, body, end, now, out);
        }
    }

    /// The whole body (`end`), or as much as is wanted of it and more follows.
    fn on_gathered(
        &mut self,
        gather: Box<Gather>,
        body: Vec<u8>,
        end: bool,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let chosen = gather.route;
        self.fitness.whole = end;
        let rule = chosen.and_then(|c| self.route(c.index));
        let most = rule.and_then(|r| r.fingerprint.max_body);
        if let Some(limit) = most.filter(|most| body.len() as u64 > *most) {
            return self.refuse(chosen, None, Refusal::too_large(limit), now, out);
        }
        if end {
            return self.evaluate(*gather, body, false, now, out);
        }
        let observes = self.observes(&gather);
        match rule {
            // A rule or a key may be further on.
            None => self.beyond(chosen, observes, now, out),
            Some(_) if gather.key_in_body => self.beyond(chosen, observes, now, out),
            // Enforcing would have read the whole of it.
            Some(rule)
                if observes
                    && (body.len() as u64) <= CANONICAL_MAX
                    && fingerprint::may_be_canonical(&rule.fingerprint, &gather.headers) =>
            {
                self.pass_unobserved(chosen, out);
            }
            Some(_) => self.evaluate(*gather, body, true, now, out),
        }
    }

    /// What must be looked for in the body is not in what can be held of it.
    fn beyond(
        &mut self,
        chosen: Option<super::Chosen>,
        observes: bool,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        if observes {
            return self.pass_unobserved(chosen, out);
        }
        self.refuse(chosen, None, Refusal::too_large(CANONICAL_MAX), now, out);
    }

    /// A piece of the body, as [`Self::body`] wants it. `end`: there is no more, trailers included.
    pub fn on_request_chunk(
        &mut self,
        chunk: Vec<u8>,
        end: bool,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let attempt = match &mut self.phase {
            Phase::Gather(_) => return self.gather(chunk, end, now, out),
            Phase::Ask(attempt, _) | Phase::Wait(attempt) | Phase::Drain(attempt) => attempt,
            Phase::Run(run) | Phase::Record(run, _) => &mut run.attempt,
            _ => return,
        };
        let route = attempt.route;
        let Some(upload) = &mut attempt.upload else {
            return;
        };
        upload.take(&chunk, end);
        let length = upload.length();
        if let Phase::Drain(attempt) = &mut self.phase {
            attempt.reread_at = now.store_ms.saturating_add(STALLED_MS);
            // An answer before the host has seen the end would cost the client its connection.
            if end {
                return self.drained(out);
            }
        }
        let rule = self.policy.plan.routes.get(route);
        let most = rule.and_then(|r| r.fingerprint.max_body);
        if let Some(limit) = most.filter(|most| length > *most) {
            self.outgrown(limit, now, out);
        }
    }

    /// The worker has no room to hold more of bodies: this one, which is not claimed, is refused.
    pub fn on_holding_short(&mut self, now: Moment, out: &mut Vec<Effect>) {
        let Some(gather) = self.take_gather() else {
            return;
        };
        if self.observes(&gather) {
            return self.pass_unobserved(gather.route, out);
        }
        let refusal = Refusal {
            retry_after_s: Some(1),
            ..Refusal::because(Code::StoreUnavailable, "worker_memory")
        };
        self.refuse(gather.route, None, refusal, now, out);
    }

    /// A piece of the body could not be seen: the whole is never known, so nothing of it can be compared.
    pub fn on_body_lost(&mut self, now: Moment, out: &mut Vec<Effect>) {
        if let Phase::Run(run) | Phase::Record(run, _) = &mut self.phase
            && let Some(upload) = &mut run.attempt.upload
        {
            upload.lose();
        }
        self.abandon(
            Refusal::because(Code::Misconfigured, "body_withheld"),
            now,
            out,
        );
    }

    /// Longer than the rule takes, which its headers did not say. Where it runs already, the upstream has
    /// had some of it: the answer below ends the stream, and the operation is unknown then.
    fn outgrown(&mut self, limit: u64, now: Moment, out: &mut Vec<Effect>) {
        self.abandon(Refusal::too_large(limit), now, out);
    }

    fn abandon(&mut self, refusal: Refusal, now: Moment, out: &mut Vec<Effect>) {
        match std::mem::take(&mut self.phase) {
            Phase::Ask(attempt, step) => {
                self.give_up_claim(&attempt, &step, out);
                self.turn_away(&attempt, refusal, now, out);
            }
            Phase::Wait(attempt) | Phase::Drain(attempt) => {
                self.turn_away(&attempt, refusal, now, out);
            }
            Phase::Run(run) if run.attempt.mode == Mode::Enforce => {
                self.cut_short(run, refusal, now, out);
            }
            Phase::Gather(gather) if self.observes(&gather) => {
                self.pass_unobserved(gather.route, out);
            }
            Phase::Gather(gather) => self.refuse(gather.route, None, refusal, now, out),
            other => self.phase = other,
        }
    }

    /// The attempt's fingerprint is needed whole before it can be answered.
    pub(super) fn drain(&mut self, mut attempt: Box<Attempt>, now: Moment, out: &mut Vec<Effect>) {
        attempt.reread_at = now.store_ms.saturating_add(STALLED_MS);
        if let Some(upload) = &mut attempt.upload {
            upload.dropped = true;
            let complete = upload.ended;
            self.phase = Phase::Drain(attempt);
            if complete {
                self.drained(out);
            }
        }
    }

    /// Nothing more comes of a body that is read to be compared. A host whose buffer was full before the
    /// record was known has stopped reading for good, and cannot be told to throw away what it
    /// holds; a client may have stalled. The next attempt may fare better.
    pub(super) fn stalled(&mut self, now: Moment, out: &mut Vec<Effect>) {
        if let Phase::Drain(attempt) = &self.phase
            && now.store_ms >= attempt.reread_at
            && let Phase::Drain(attempt) = std::mem::take(&mut self.phase)
        {
            let refusal = Refusal {
                retry_after_s: Some(self.back_off(&attempt)),
                ..Refusal::because(Code::StoreUnavailable, "upload_stalled")
            };
            self.turn_away(&attempt, refusal, now, out);
        }
    }

    /// Now it is: the record is looked at again, since it may have moved on meanwhile.
    fn drained(&mut self, out: &mut Vec<Effect>) {
        match std::mem::take(&mut self.phase) {
            Phase::Drain(mut attempt) => {
                if let Some(whole) = attempt.upload.as_ref().and_then(|u| u.whole.clone()) {
                    attempt.fingerprint = whole;
                }
                out.push(Effect::Store(Op {
                    operation: attempt.found_at,
                    action: Action::Read,
                }));
                self.phase = Phase::Ask(attempt, Step::Reread);
            }
            other => self.phase = other,
        }
    }
}

/// `Content-Length` (RFC 9110 §8.6).
pub(super) fn declared_length(headers: &Headers) -> Option<u64> {
    headers
        .first_str("content-length")
        .and_then(|v| v.parse().ok())
}

/// Whether the rule reads bodies at all.
pub(super) fn reads_body(rule: &Route) -> bool {
    !matches!(
        rule.fingerprint.body,
        BodyMode::None | BodyMode::ContentDigest
    )
}
