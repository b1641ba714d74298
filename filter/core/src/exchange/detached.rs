//! Attempts that outlive their client (design §5, "The client that leaves").
//!
//! Envoy resets the upstream when its client leaves, and the commonest retry follows a client's
//! time-out. So a claimed request that is whole and small is not forwarded in its stream: the host
//! sends it from elsewhere, through a listener of the same Envoy, where the usual routes, time-outs and
//! tracing apply. The stream holds what it has; its client gets the answer if it is still there,
//! and the record gets it in any case.
//!
//! ```text
//! outer pass  Ask ─ claimed ─> Away ─ answer ─> (Record ─>) Settle ─> reply, if anybody is there
//!                               │ └ client leaves: Away goes on
//!                               └ never sent ─> Run (inline), or released
//! inner pass  signed, x-idempo-detached ─> Pass, and a report in the answer's headers
//! ```
//!
//! The answer is judged by the code that judges inline ones. What only the inner stream knows of it
//! comes as a report ([`Inner`]); an answer without one is Envoy's own, made on the way there. The
//! inner pass has a module of its own, `inner`.

use super::refusal::Refusal;
use super::{Attempt, Edit, Effect, Exchange, Field, Moment, Origin, Phase, Run};
use crate::envelope;
use crate::http::{Headers, Line, media_type};
use crate::metrics::Counter;
use crate::plan::{Execution, Mode, Route};
use crate::record::{Evidence, Replayable};
use crate::reply::{Code, LocalReply};
use crate::store::Reply;
use crate::trusted::{self, Inner};
use serde_json::json;
use std::fmt;

/// Header lines, and octets of them. Envoy takes 100 and 60 KiB by default.
const LINES_MAX: usize = 80;
const OCTETS_MAX: usize = 48 << 10;

/// By how much the call's time-out exceeds the upstream's, milliseconds: the inner router's own comes
/// first, and it knows more.
const GRACE_MS: u64 = 1_000;

/// Evidence that the way through the loopback failed, and the request may have been sent.
const LOOPBACK_FAILED: &str = "loopback_failed";

/// A request for the host to send, whatever becomes of the client's stream.
#[derive(Clone, PartialEq, Eq)]
pub struct Call {
    /// Header lines, pseudo headers included.
    pub headers: Vec<Line>,
    /// The body; empty for none.
    pub body: Vec<u8>,
    /// How long to wait for the whole answer, milliseconds.
    pub timeout_ms: u64,
}

/// Headers may be credentials, bodies are payload: neither is shown.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("lines", &self.headers.len())
            .field("octets", &self.body.len())
            .field("timeout_ms", &self.timeout_ms)
            .finish()
    }
}

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFailure {
    /// The host took no such call: nothing was sent.
    NeverSent,
    /// It was on its way.
    Lost,
}

/// What the headers and the host say of this attempt's fitness.
#[derive(Clone, Debug, Default)]
pub(super) struct Fitness {
    /// The host says that the loopback answers, and has room for a call.
    ready: bool,
    /// The whole body was handed over, or there is none.
    pub(super) whole: bool,
    trailers: bool,
}

/// An attempt that is on its way outside of its stream.
#[derive(Clone, Debug)]
pub(super) struct Trip {
    /// The client has left.
    gone: bool,
    /// What makes the held request the same attempt, should it have to go inline.
    inline: Vec<Edit>,
    /// What the client gets once the answer is recorded; `None`: there is no answer.
    answer: Option<LocalReply>,
}

impl Exchange {
    /// Whether the loopback answers and has room: told before whatever may lead to a claim.
    pub fn set_loopback(&mut self, ready: bool) {
        self.fitness.ready = ready;
    }

    /// The request has trailers, which a call could not carry.
    pub fn note_trailers(&mut self) {
        self.fitness.trailers = true;
    }

    /// Whether an answer is awaited that does not come in this stream.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self.phase, Phase::Away(_))
    }

    /// Whether the held request must stay where it is because its attempt runs elsewhere.
    pub(super) fn waits_at_home(&self) -> bool {
        match &self.phase {
            Phase::Away(run) | Phase::Settle(run, _) => run.trip.as_ref().is_some_and(|t| !t.gone),
            _ => false,
        }
    }

    fn may_detach(&self, attempt: &Attempt, rule: &Route) -> bool {
        let fit = &self.fitness;
        // An event stream is wanted piece by piece, and a call's answer comes whole.
        let streams = attempt
            .headers
            .all("accept")
            .flat_map(|line| line.split(|b| *b == b','))
            .any(|item| media_type(Some(item)) == "text/event-stream");
        attempt.mode == Mode::Enforce
            && rule.upstream.execution == Execution::Detached
            && fit.ready
            && fit.whole
            && !fit.trailers
            && attempt.upload.is_none()
            // What is larger is copied out of the host and back.
            && attempt.body.len() as u64 <= rule.claim_after
            && fits(&attempt.headers)
            && !streams
    }

    /// Sends a claimed attempt on its way where it may go, and forwards it in its stream otherwise.
    /// `edits` make the stream's request the attempt; `derived` are the signed lines among them.
    pub(super) fn depart(
        &self,
        attempt: &mut Attempt,
        mut edits: Vec<Edit>,
        derived: Vec<Line>,
        now: Moment,
        out: &mut Vec<Effect>,
    ) -> Option<Box<Trip>> {
        let rule = self.route(attempt.route)?;
        let away = self.may_detach(attempt, rule);
        let signer = self.policy.signer.as_ref().filter(|_| away);
        let call = signer.map(|signer| {
            let body = std::mem::take(&mut attempt.body);
            let mut lines = passed_on(&attempt.headers, &edits, body.is_empty());
            let mut own: Vec<Line> = derived.clone();
            own.retain(|(name, _)| name != trusted::SIGNATURE_HEADER.as_bytes());
            own.push((trusted::DETACHED_HEADER.into(), b"1".to_vec()));
            let (method, path) = (attempt.headers.method(), attempt.headers.path_and_query());
            let signature = signer.sign(&own, method, path, now.wall_ms() / 1000);
            own.push((trusted::SIGNATURE_HEADER.into(), signature.into_bytes()));
            lines.extend(own);
            Call {
                headers: lines,
                body,
                timeout_ms: rule.upstream.timeout_ms.saturating_add(GRACE_MS),
            }
        });
        edits.extend(
            derived
                .into_iter()
                .map(|(name, value)| Edit::Set(name, value)),
        );
        let Some(call) = call else {
            if !edits.is_empty() {
                out.push(Effect::Request(edits));
            }
            return None;
        };
        out.push(Effect::Send(Box::new(call)));
        Some(Box::new(Trip {
            gone: false,
            inline: edits,
            answer: None,
        }))
    }

    /// The call's answer is whole. `trailers`: it has some, which are not passed on. `short`: the worker has
    /// no memory left to keep it in until it is recorded.
    pub fn on_detached_answer(
        &mut self,
        headers: &Headers,
        body: Vec<u8>,
        trailers: bool,
        short: bool,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let Some(report) = headers.first(trusted::INNER_HEADER).and_then(Inner::decode) else {
            return self.on_detached_failure(CallFailure::Lost, now, out);
        };
        let Some(mut run) = self.take_away() else {
            return;
        };
        let origin = Origin {
            details: &report.details,
            attempts: &|| report.attempts,
            can_hold: false,
        };
        let here = run.trip.as_ref().is_some_and(|trip| !trip.gone);
        let answer = here.then(|| LocalReply {
            status: status_of(headers),
            headers: envelope::forwardable(headers),
            body: body.clone(),
        });
        match (answer, &mut run.trip) {
            (Some(mut answer), _) if short => {
                // No room to keep it until it is recorded: the client has it now, as with `async`.
                answer.headers.extend(self.pending_markers(&run, now));
                out.push(Effect::Reply(answer));
                run.leave_alone();
            }
            (answer, Some(trip)) => trip.answer = answer,
            _ => {}
        }
        let end = body.is_empty() && !trailers;
        self.on_first_answer(run, headers, end, &origin, now, out);
        if short {
            self.on_memory_short();
        }
        if let Phase::Record(_, recording) = &mut self.phase
            && trailers
        {
            // Whatever length is declared, that is not all of it.
            recording.drop_body(Replayable::Trailers);
        }
        if self.records() && !body.is_empty() {
            self.on_response_body(&body, !trailers, now, out);
        }
        if self.records() && trailers {
            self.on_response_trailers(now, out);
        }
    }

    /// There will be no answer.
    pub fn on_detached_failure(&mut self, why: CallFailure, now: Moment, out: &mut Vec<Effect>) {
        let Some(mut run) = self.take_away() else {
            return;
        };
        let nothing = Headers::default();
        let here = run.trip.as_ref().is_some_and(|trip| !trip.gone);
        match why {
            CallFailure::NeverSent if here => {
                if let Some(trip) = run.trip.take() {
                    out.push(Effect::Request(trip.inline));
                }
                run.sent_us = now.wall_us;
                self.phase = Phase::Run(run);
            }
            CallFailure::NeverSent => self.release(run, &nothing, now, out),
            CallFailure::Lost => {
                self.unknown(run, &nothing, Evidence::named(LOOPBACK_FAILED), now, out);
            }
        }
    }

    fn take_away(&mut self) -> Option<Box<Run>> {
        match std::mem::take(&mut self.phase) {
            Phase::Away(run) => Some(run),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// The client of a detached attempt left before it had its answer.
    pub(super) fn leave_behind(&mut self, mut run: Box<Run>, out: &mut Vec<Effect>) {
        run.leave_alone();
        out.push(Effect::Show(Field::Outcome, "detached".to_owned()));
        self.phase = Phase::Away(run);
    }

    /// The last write was answered: the client gets what it waits for, with what is recorded.
    pub(super) fn bring_home(
        &self,
        run: &mut Run,
        reply: &Reply,
        markers: Vec<Line>,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let Some(trip) = run.trip.as_mut().filter(|trip| !trip.gone) else {
            return;
        };
        if let Some(mut answer) = trip.answer.take() {
            answer.headers.extend(markers);
            out.push(Effect::Reply(answer));
            return;
        }
        let index = run.attempt.route_index();
        let code = Code::OutcomeUnknown;
        out.push(Effect::Count(Counter::Rejected(Some(index), code)));
        let status = match reply {
            Reply::Applied(record) | Reply::Already(record) | Reply::Stale(record) => {
                record.state.status()
            }
            _ => crate::record::Status::Pending,
        };
        let refusal = Refusal {
            members: vec![("evidence", json!({"details": LOOPBACK_FAILED}))],
            status: status.as_str(),
            ..Refusal::new(code)
        };
        let rule = self.route(run.attempt.route);
        let status = rule.and_then(|r| r.statuses.get(&code).copied());
        let rendered = self.render(status, Some(&run.attempt), refusal, now);
        out.push(Effect::Reply(rendered));
    }
}

impl Run {
    /// Nobody waits for its answer any more.
    pub(super) fn leave_alone(&mut self) {
        if let Some(trip) = &mut self.trip {
            trip.gone = true;
            trip.inline = Vec::new();
            trip.answer = None;
        }
    }

    /// Octets of the answer that its client waits for.
    pub(super) fn kept_at_home(&self) -> u64 {
        let answer = self.trip.as_ref().and_then(|trip| trip.answer.as_ref());
        answer.map_or(0, |answer| answer.body.len() as u64)
    }

    /// Whether its transitions can no longer be shown with its client's stream.
    pub(super) fn is_alone(&self) -> bool {
        self.trip.as_ref().is_some_and(|trip| trip.gone)
    }
}

/// One try and one time-out, as the route has them; of a route that this plan does not have, one try.
pub(super) fn router_settings(rule: Option<&Route>) -> Vec<Edit> {
    let mut edits = Vec::with_capacity(2);
    if rule.is_none_or(|r| r.upstream.router_retries_reason.is_none()) {
        edits.push(Edit::Set(b"x-envoy-max-retries".to_vec(), b"0".to_vec()));
    }
    if let Some(rule) = rule {
        edits.push(Edit::Set(
            b"x-envoy-upstream-rq-timeout-ms".to_vec(),
            rule.upstream.timeout_ms.to_string().into_bytes(),
        ));
    }
    edits
}

/// Whether the lines, with what the passes add to them, are within the least that hosts take. Beyond
/// it the inner listener would refuse a request that nobody has seen, and nobody would know.
fn fits(headers: &Headers) -> bool {
    let octets = headers.lines().iter().map(|(n, v)| n.len() + v.len() + 2);
    headers.lines().len() <= LINES_MAX
        && octets.sum::<usize>() <= OCTETS_MAX
        && !headers.has("trailer")
        // Not of HTTP/2, which the way there speaks (RFC 9113 §8.2.2).
        && !headers.has("upgrade")
        // Refused there (RFC 9113 §8.3.1), and the refusal may take the whole connection with it, and
        // all that runs on it.
        && headers
            .first(":authority")
            .is_some_and(|host| !host.is_empty() && !host.contains(&b'@'))
}

/// The request's lines as they leave the filter, without what the host's own client would act on: it
/// has a router of its own, which must neither try again nor end before the inner one.
fn passed_on(headers: &Headers, edits: &[Edit], no_body: bool) -> Vec<Line> {
    let set = |name: &[u8]| {
        edits
            .iter()
            .any(|e| matches!(e, Edit::Set(n, _) if n == name))
    };
    let dropped = |name: &[u8]| {
        trusted::is_reserved_request_header(name)
            || name == b"transfer-encoding"
            || name == b"connection"
            // The host writes it where there is a body.
            || (name == b"content-length" && !no_body)
    };
    let mut lines: Vec<Line> = headers
        .lines()
        .iter()
        .filter(|(name, _)| !dropped(name) && !set(name))
        .cloned()
        .collect();
    for edit in edits {
        if let Edit::Set(name, value) = edit
            && !dropped(name)
        {
            lines.push((name.clone(), value.clone()));
        }
    }
    lines
}

pub(super) fn status_of(headers: &Headers) -> u16 {
    headers
        .first_str(":status")
        .and_then(|s| s.parse().ok())
        .unwrap_or(0)
}
