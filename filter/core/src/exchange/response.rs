//! The upstream's answer: what it means, what is recorded, and when the client may have it.

use super::detached::status_of;
use super::failure::{self, Sent};
use super::recording::start;
use super::{Edit, Effect, Exchange, Held, Moment, Phase, Recording, Run};
use crate::envelope::{self, UpstreamPolicy};
use crate::http::{Headers, Line};
use crate::metrics::{Counter, Histogram};
use crate::plan::{Class, ClassRule, Commit, Mode, Route};
use crate::record::{Evidence, Replayable, Status};
use crate::store::{Action, Reply, Target};
use crate::trusted::{self, Markers};

/// Evidence that is the upstream's own status.
pub(super) const UPSTREAM_STATUS: &str = "upstream_status";

/// What the host knows of a response beside its headers.
#[derive(Clone, Copy)]
pub struct Origin<'a> {
    /// `response.code_details`.
    pub details: &'a str,
    /// `upstream.request_attempt_count`; `None` where the host could not tell.
    ///
    /// Asked only where it matters: the usual answer is recorded whatever it says.
    pub attempts: &'a dyn Fn() -> Option<u64>,
    /// Whether this host goes on with body callbacks while response headers are held.
    pub can_hold: bool,
}

/// What an answer means for the operation.
enum Meaning {
    Record { accepted: bool, replay: Replayable },
    Release,
    Unknown,
}

impl Exchange {
    /// The response's headers. `end`: there is no body.
    pub fn on_response_headers(
        &mut self,
        headers: &Headers,
        end: bool,
        origin: &Origin<'_>,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        match std::mem::take(&mut self.phase) {
            Phase::Run(run) => self.on_first_answer(run, headers, end, origin, now, out),
            other => {
                if self.inner {
                    out.push(Effect::Response(Self::report(headers, origin)));
                }
                if self.bypassed && matches!(other, Phase::Pass) {
                    let facts = Markers {
                        status: "bypassed",
                        ..Markers::default()
                    };
                    out.push(Effect::Response(mark(
                        present_markers(headers),
                        trusted::markers(&facts),
                    )));
                }
                self.phase = other;
            }
        }
    }

    pub(super) fn on_first_answer(
        &mut self,
        run: Box<Run>,
        headers: &Headers,
        end: bool,
        origin: &Origin<'_>,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let Some(rule) = self.route(run.attempt.route) else {
            return;
        };
        let status = status_of(headers);
        out.push(Effect::Time(
            Histogram::UpstreamUs,
            now.wall_us.saturating_sub(run.sent_us),
        ));
        if origin.details != failure::VIA_UPSTREAM {
            return match failure::judge(origin.details, (origin.attempts)()) {
                Sent::No => self.release(run, headers, now, out),
                // The status is Envoy's: the upstream never gave one.
                Sent::Maybe => {
                    self.unknown(run, headers, Evidence::named(origin.details), now, out);
                }
            };
        }
        let reading = envelope::upstream_policy(headers);
        // Success contradicts "nothing was done", and each retry would run again.
        let contradicted =
            reading.policy == Some(UpstreamPolicy::NotStarted) && (200..300).contains(&status);
        if reading.odd || contradicted {
            out.push(Effect::Count(Counter::OddPolicy));
        }
        let policy = reading.policy.filter(|_| !contradicted);
        match meaning(rule, status, policy, origin.attempts) {
            Meaning::Release => self.release(run, headers, now, out),
            Meaning::Unknown => {
                let evidence = Evidence {
                    status: Some(status),
                    ..Evidence::named(UPSTREAM_STATUS)
                };
                self.unknown(run, headers, evidence, now, out);
            }
            Meaning::Record { accepted, replay } => {
                let recording = start(rule, &run, headers, status, accepted, replay, end, origin);
                self.record(run, recording, headers, end, now, out);
            }
        }
    }

    fn record(
        &mut self,
        run: Box<Run>,
        recording: Recording,
        headers: &Headers,
        end: bool,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        if end || recording.hold || run.trip.is_some() {
            self.part_with_headers(&run, headers, now, out);
        } else {
            self.mark_pending(&run, headers, now, out);
        }
        if end {
            return self.finish(run, recording, now, out);
        }
        self.phase = Phase::Record(run, Box::new(recording));
    }

    /// A piece of the answer's body; the whole of it where the response is held. `end`: there is no
    /// more, trailers included.
    pub fn on_response_body(
        &mut self,
        chunk: &[u8],
        end: bool,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let Some((run, mut recording)) = self.take_record() else {
            return;
        };
        recording.take(chunk, self.route(run.attempt.route));
        // A client closes when it has counted its bytes: the chunk that completes the declared
        // length is the end, whatever the host still sends.
        if end
            || recording
                .declared
                .is_some_and(|length| recording.seen >= length)
        {
            return self.finish(run, *recording, now, out);
        }
        self.phase = Phase::Record(run, recording);
    }

    /// The answer that is being recorded. Any other phase stays what it is: a body or trailers may
    /// also follow an answer whose last write is under way already.
    fn take_record(&mut self) -> Option<(Box<Run>, Box<Recording>)> {
        match std::mem::take(&mut self.phase) {
            Phase::Record(run, recording) => Some((run, recording)),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// The answer ends with trailers.
    pub fn on_response_trailers(&mut self, now: Moment, out: &mut Vec<Effect>) {
        if let Some((run, mut recording)) = self.take_record() {
            recording.drop_body(Replayable::Trailers);
            self.finish(run, *recording, now, out);
        }
    }

    /// Whether the whole of the held answer is there once `held` octets are.
    #[must_use]
    pub fn held_is_whole(&self, held: u64) -> bool {
        match &self.phase {
            Phase::Record(_, recording) => recording.declared.is_some_and(|length| held >= length),
            _ => false,
        }
    }

    /// Octets of answer that this exchange keeps in memory.
    #[must_use]
    pub fn recorded_octets(&self) -> u64 {
        match &self.phase {
            Phase::Record(run, recording) => run.kept_at_home() + recording.body.len() as u64,
            Phase::Settle(run, _) => run.kept_at_home(),
            _ => 0,
        }
    }

    /// The worker's recording memory is used up: the answer is remembered, but not kept (rule 7).
    pub fn on_memory_short(&mut self) {
        if let Phase::Record(_, recording) = &mut self.phase {
            recording.drop_body(Replayable::RecordingMemory);
        }
    }

    /// The answer is whole: write it down.
    fn finish(
        &mut self,
        mut run: Box<Run>,
        mut recording: Recording,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        if run.attempt.whole_fingerprint().is_none() {
            // Who knows only how the request began cannot tell a duplicate from another one.
            recording.drop_body(Replayable::PartialRequest);
        }
        let target = self.target(&run, recording, now);
        let action = run.transition(target);
        out.push(run.attempt.op(action));
        self.settle(run);
    }

    /// Awaits the reply to the last write, with or without the client. A detached attempt's answer is
    /// in no stream that could be held.
    fn settle(&mut self, run: Box<Run>) {
        let held = if run.trip.is_some() || self.commits_early(&run) {
            Held::Nothing
        } else {
            Held::Response
        };
        self.phase = Phase::Settle(run, held);
    }

    /// A detached attempt's client gets the answer once it is recorded, whatever the route says.
    fn commits_early(&self, run: &Run) -> bool {
        run.trip.is_none()
            && self
                .route(run.attempt.route)
                .is_some_and(|r| r.commit == Commit::Async)
    }

    /// What a recorded answer makes of the operation.
    pub(super) fn target(&self, run: &Run, recording: Recording, now: Moment) -> Target {
        let accepted = recording.accepted;
        let (outcome, blob) = recording.outcome(now);
        if !accepted {
            return Target::Completed { outcome, blob };
        }
        let rule = self.route(run.attempt.route);
        Target::Accepted {
            outcome,
            deadline_ms: rule.map_or(0, |r| r.accepted_deadline_ms),
            blob,
        }
    }

    /// Nothing was done: the operation may be tried again.
    pub(super) fn release(
        &mut self,
        mut run: Box<Run>,
        headers: &Headers,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        self.part_with_headers(&run, headers, now, out);
        run.aim = None;
        out.push(run.attempt.op(Action::Cancel {
            owner: run.attempt.owner,
        }));
        self.settle(run);
    }

    /// Nobody knows: the client gets what there is, and the truth in a header.
    pub(super) fn unknown(
        &mut self,
        mut run: Box<Run>,
        headers: &Headers,
        evidence: Evidence,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        self.part_with_headers(&run, headers, now, out);
        let action = run.transition(Target::Unknown { evidence });
        out.push(run.attempt.op(action));
        self.settle(run);
    }

    /// The headers wait for the reply to the last write, and get their markers then; unless nothing is
    /// held.
    fn part_with_headers(
        &mut self,
        run: &Run,
        headers: &Headers,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        if self.commits_early(run) {
            self.mark_pending(run, headers, now, out);
        } else if run.attempt.mode == Mode::Enforce {
            self.unmarked = Some(present_markers(headers));
        }
    }

    /// The headers leave before anything is recorded.
    fn mark_pending(&self, run: &Run, headers: &Headers, now: Moment, out: &mut Vec<Effect>) {
        if run.attempt.mode != Mode::Enforce {
            return;
        }
        let lines = self.pending_markers(run, now);
        out.push(Effect::Response(mark(present_markers(headers), lines)));
    }

    /// Markers of an answer that leaves before anything is recorded.
    pub(super) fn pending_markers(&self, run: &Run, now: Moment) -> Vec<Line> {
        let facts = Markers {
            status: Status::Pending.as_str(),
            operation: Some(&run.attempt.operation),
            ..Markers::default()
        };
        let mut lines = trusted::markers(&facts);
        lines.extend(self.memory_marker(&run.attempt, now));
        lines
    }

    /// Markers that say what is recorded.
    pub(super) fn mark_settled(
        &mut self,
        run: &mut Run,
        reply: &Reply,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let Some(copies) = self.unmarked.take() else {
            return;
        };
        let record = match reply {
            Reply::Applied(record) | Reply::Already(record) | Reply::Stale(record) => Some(record),
            _ => None,
        };
        let facts = Markers {
            replayed: false,
            status: match (record, reply) {
                (Some(record), _) => record.state.status().as_str(),
                (None, Reply::Cancelled) => "released",
                // Not recorded yet: the write waits.
                (None, _) => Status::Pending.as_str(),
            },
            operation: Some(&run.attempt.operation),
            result: record.and_then(|r| r.state.outcome()).map(|o| &o.result),
            expires_unix_ms: record
                .and_then(|r| r.served_until())
                .map(|at| now.to_wall_ms(at)),
            first_response_unix_ms: None,
        };
        let mut lines = trusted::markers(&facts);
        lines.extend(self.memory_marker(&run.attempt, now));
        if run.trip.is_some() {
            return self.bring_home(run, reply, lines, now, out);
        }
        out.push(Effect::Response(mark(copies, lines)));
    }
}

/// Lines that the filter adds, and the upstream's copies of them removed.
fn mark(copies: Vec<Vec<u8>>, lines: Vec<Line>) -> Vec<Edit> {
    let set = lines
        .into_iter()
        .map(|(name, value)| Edit::Set(name, value));
    copies.into_iter().map(Edit::Remove).chain(set).collect()
}

/// Names in the upstream's answer that only the filter may say.
fn present_markers(headers: &Headers) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    for (name, _) in headers.lines() {
        let ours = trusted::is_marker(name) || trusted::is_derived(name);
        if ours && !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn meaning(
    rule: &Route,
    status: u16,
    policy: Option<UpstreamPolicy>,
    attempts: &dyn Fn() -> Option<u64>,
) -> Meaning {
    let class = class_of(&rule.record.classes, status);
    match (policy, class) {
        (Some(UpstreamPolicy::NotStarted), _)
        | (Some(UpstreamPolicy::NoStore) | None, Class::Release) => {
            // The router may have sent it before: then this answer speaks for one try only.
            if attempts().is_some_and(|n| n <= 1) {
                Meaning::Release
            } else {
                Meaning::Unknown
            }
        }
        (Some(UpstreamPolicy::NoStore), Class::Record | Class::Accepted) => Meaning::Record {
            accepted: class == Class::Accepted,
            replay: Replayable::NoStore,
        },
        (Some(UpstreamPolicy::Store), Class::Accepted) | (None, Class::Accepted) => {
            Meaning::Record {
                accepted: true,
                replay: Replayable::Yes,
            }
        }
        (Some(UpstreamPolicy::Store), _) | (None, Class::Record) => Meaning::Record {
            accepted: false,
            replay: Replayable::Yes,
        },
        (Some(UpstreamPolicy::NoStore) | None, Class::Unknown) => Meaning::Unknown,
    }
}

fn class_of(classes: &[ClassRule], status: u16) -> Class {
    classes
        .iter()
        .find(|c| (c.from..=c.to).contains(&status))
        .map_or(Class::Unknown, |c| c.class)
}
