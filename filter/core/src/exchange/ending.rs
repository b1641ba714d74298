//! Last writes: their replies, streams that end before their time, leases that are renewed.

use super::effects::likeness;
use super::refusal::Refusal;
use super::response::UPSTREAM_STATUS;
use super::{Effect, Exchange, Field, Held, Level, Moment, Phase, Run};
use crate::audit::{self, Transition};
use crate::ids::{OperationId, OwnerToken};
use crate::metrics::{Cause, Counter, StoreOp};
use crate::plan::Mode;
use crate::record::{Evidence, Record, Source, State, Status, WriteId};
use crate::reply::Code;
use crate::store::remote::shard_of;
use crate::store::{self, Action, Fence, Reply, Target};

impl Run {
    /// A fenced write of this attempt, with a write id of its own.
    pub(super) fn transition(&mut self, to: Target) -> Action {
        self.writes = self.writes.saturating_add(1);
        // The claim was made by the body's beginning; meanwhile all of it may have been seen.
        if let Some(whole) = self.attempt.whole_fingerprint()
            && self.claim.fingerprint.head.is_some()
        {
            self.claim.fingerprint = whole.clone();
        }
        let claim = store::contract::claim_write(self.claim.owner);
        if !matches!(to, Target::Renewed { .. }) {
            self.aim = Some(Aim::of(&to));
        }
        Action::Transition(store::Transition {
            write: WriteId(claim.0.wrapping_add(u64::from(self.writes))),
            fence: Fence::Owner {
                claim: self.claim.clone(),
                claimed_at: self.claimed_at,
                generation: self.generation,
            },
            to,
            source: Source::Owner,
            operator: String::new(),
        })
    }

    /// A third of the lease has passed without a word: speak. A short exchange never gets here.
    pub(super) fn renew(&mut self, now: Moment, out: &mut Vec<Effect>) {
        let due = self.renewed_at.saturating_add(self.claim.lease_ms / 3);
        if self.renewing || now.store_ms < due {
            return;
        }
        let lease_ms = self.claim.lease_ms;
        let action = self.transition(Target::Renewed { lease_ms });
        out.push(self.attempt.op(action));
        self.renewing = true;
        self.renewed_at = now.store_ms;
    }

    /// A renewal was answered.
    pub(super) fn on_renewed(&mut self) {
        self.renewing = false;
    }
}

impl Exchange {
    /// The store has lost writes of this shard: an attempt that runs says again that it does, which
    /// makes its record anew where it is gone.
    pub fn on_store_forgot(&mut self, shard: u8, now: Moment, out: &mut Vec<Effect>) {
        if let Phase::Run(run) | Phase::Away(run) | Phase::Record(run, _) = &mut self.phase
            && shard_of(&run.attempt.operation) == shard
        {
            run.renewed_at = 0;
            run.renew(now, out);
        }
    }

    /// The reply to the last write.
    pub(super) fn on_settled(
        &mut self,
        mut run: Box<Run>,
        reply: Reply,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let aim = run.aim.take();
        let index = run.attempt.route_index();
        self.mark_settled(&mut run, &reply, now, out);
        let (from, to, result) = match &reply {
            Reply::Applied(record) => (Status::Pending, record.state.status(), "applied"),
            Reply::Already(record) => (Status::Pending, record.state.status(), "already"),
            Reply::Cancelled => (Status::Pending, Status::Absent, "applied"),
            Reply::Stale(record) => {
                let status = record.state.status();
                out.push(Effect::Count(Counter::LateWrite(index)));
                if status == Status::Pending {
                    // Claimed by somebody else, where the store has forgotten: such a claim is
                    // taken back, and with it goes what it keeps of this write.
                    out.push(Effect::Retry);
                }
                out.push(Effect::Log(
                    Level::Error,
                    format!(
                        "operation {}: a write came after the operation was settled as {}; an \
                         answer that it carried is kept as evidence",
                        run.attempt.operation,
                        status.as_str()
                    ),
                ));
                (status, status, "stale")
            }
            other => {
                compensate(&run, aim.is_none(), other, out);
                let to = aim.map_or(Status::Absent, |a| a.status);
                (Status::Pending, to, "failed")
            }
        };
        if let (
            Some(Aim {
                cause: Some(cause), ..
            }),
            "applied" | "already",
        ) = (aim, result)
        {
            out.push(Effect::Count(Counter::Unknown(index, cause)));
            let claim = &run.claim;
            let likeness = likeness(&claim.tenant, &claim.route, &claim.fingerprint);
            out.push(Effect::NoteUnknown(run.attempt.operation, likeness));
        }
        run.transitions
            .push(Transition::own(now.wall_ms(), from, to, result));
        self.show_end(&run, to, out);
        out.push(Effect::Wake(run.attempt.operation));
        self.phase = Phase::Done;
    }

    fn show_end(&self, run: &Run, to: Status, out: &mut Vec<Effect>) {
        let outcome = match (run.attempt.mode, to) {
            (Mode::Enforce, Status::Absent) => "released",
            (Mode::Enforce, Status::Unknown) => "unknown",
            (Mode::Enforce, _) => "executed",
            _ => "observed",
        };
        let rule = self.route(run.attempt.route).map_or("", |r| r.id.as_str());
        let audit = audit::render(
            &run.attempt.operation,
            rule,
            &run.attempt.tenant_digest,
            &self.attempt_id,
            run.generation,
            &run.transitions,
        );
        if run.is_alone() {
            // Its stream's access log line is written (design §9).
            let level = if to == Status::Unknown {
                Level::Warn
            } else {
                Level::Info
            };
            out.push(Effect::Log(level, format!("audit: {audit}")));
            return;
        }
        out.push(Effect::Show(Field::Outcome, outcome.to_owned()));
        out.push(Effect::Show(Field::Audit, audit));
    }

    /// The request turned out to be one that must not go on, although some of it has: the client is told,
    /// and nobody knows what the upstream makes of its part.
    pub(super) fn cut_short(
        &mut self,
        mut run: Box<Run>,
        refusal: Refusal,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let evidence = Evidence::named(refusal.code.as_str());
        self.turn_away(&run.attempt, refusal, now, out);
        let action = run.transition(Target::Unknown { evidence });
        out.push(run.attempt.op(action));
        self.phase = Phase::Settle(run, Held::Nothing);
    }

    /// The host did not change the request as asked. Without those changes it may be taken for what it
    /// is not, or be sent twice by the router: so it does not go on. Nothing of it was sent.
    pub fn on_request_unfit(&mut self, now: Moment, out: &mut Vec<Effect>) {
        let refusal = Refusal::because(Code::Misconfigured, "headers_refused");
        match std::mem::take(&mut self.phase) {
            Phase::Run(mut run) if run.attempt.mode == Mode::Enforce => {
                self.turn_away(&run.attempt, refusal, now, out);
                run.aim = None;
                out.push(run.attempt.op(Action::Cancel {
                    owner: run.attempt.owner,
                }));
                self.phase = Phase::Settle(run, Held::Nothing);
            }
            Phase::Pass => self.refuse(None, None, refusal, now, out),
            other => self.phase = other,
        }
    }

    /// The stream is over. `details` is what the host says about its end.
    pub fn on_end(&mut self, details: &str, now: Moment, out: &mut Vec<Effect>) {
        // Its headers have left, or never will.
        self.unmarked = None;
        match std::mem::take(&mut self.phase) {
            // Sent, and nothing came back: whatever the reason, nobody knows.
            Phase::Run(mut run) => {
                let evidence = Evidence::named(match details {
                    "" => "stream_ended",
                    told => told,
                });
                let action = run.transition(Target::Unknown { evidence });
                out.push(run.attempt.op(action));
                self.phase = Phase::Settle(run, Held::Nothing);
            }
            // The status is known, the rest is not: remembered, never replayed (rule 7).
            Phase::Record(mut run, mut recording) => {
                recording.cut();
                let target = self.target(&run, *recording, now);
                let action = run.transition(target);
                out.push(run.attempt.op(action));
                self.phase = Phase::Settle(run, Held::Nothing);
            }
            Phase::Away(run) => self.leave_behind(run, out),
            Phase::Settle(mut run, _) => {
                run.leave_alone();
                self.phase = Phase::Settle(run, Held::Nothing);
            }
            Phase::Ask(attempt, step) => {
                self.give_up_claim(&attempt, &step, out);
                self.phase = Phase::Done;
            }
            _ => self.phase = Phase::Done,
        }
    }
}

/// An operation that became unknown because time passed: what is counted, and the log line. A reader
/// and the sweep may both be the first to see it; only the one that writes it says so.
#[must_use]
pub fn lapse(operation: &OperationId, record: &Record) -> (Cause, String) {
    let what = match &record.state {
        State::Unknown { evidence, .. } => evidence.details.as_str(),
        _ => "",
    };
    let (cause, why) = match what {
        "lease_over" => (Cause::LeaseOver, "its owner was silent for a lease"),
        other => (Cause::of(other), other),
    };
    let route = &record.route;
    let line = format!("operation {operation} of route {route} is unknown: {why}");
    (cause, line)
}

/// Whether it was this attempt's claim that wrote down that time had passed.
pub(super) fn wrote_lapse(record: &Record, owner: OwnerToken) -> bool {
    let write = store::contract::claim_write(owner);
    record.history.events().last().is_some_and(|event| {
        event.to == Status::Unknown && event.source == Source::Reader && event.write == write
    })
}

/// The effect happened and the record could not be written (rule 6): the client still gets the
/// answer; the write waits, as it was, in the backlog; the line and the counter say so.
fn compensate(run: &Run, release: bool, reply: &Reply, out: &mut Vec<Effect>) {
    out.push(Effect::Retry);
    if release {
        out.push(Effect::Count(Counter::StoreError(StoreOp::Cancel)));
        return;
    }
    out.push(Effect::Count(Counter::StoreError(StoreOp::Transition)));
    out.push(Effect::Count(Counter::Compensation(
        run.attempt.route_index(),
    )));
    let operation = run.attempt.operation;
    out.push(Effect::Log(
        Level::Error,
        format!(
            "compensation: operation {operation} ran, its record could not be written ({}); the \
             write waits in the backlog",
            reply.name()
        ),
    ));
}

/// What a write was for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    status: Status,
    cause: Option<Cause>,
}

impl Aim {
    fn of(target: &Target) -> Self {
        let cause = match target {
            Target::Unknown { evidence } if evidence.details == UPSTREAM_STATUS => {
                Some(Cause::Status)
            }
            Target::Unknown { evidence } => Some(Cause::of(&evidence.details)),
            _ => None,
        };
        Self {
            status: target.status(),
            cause,
        }
    }
}
