//! Answering an attempt from a record. The order of design §5: tombstone, fingerprint, schema
//! version, state.

use super::refusal::Refusal;
use super::understand::fingerprint_of;
use super::{Attempt, Chosen, Effect, Exchange, Field, Level, Moment, Phase, Step};
use crate::envelope;
use crate::fingerprint::{self, Comparison, Fingerprint};
use crate::ids::hex_of;
use crate::metrics::{Counter, Waited};
use crate::plan::{Mode, Route, UnknownPolicy};
use crate::record::{Evidence, Outcome, Record, Replayable, Status, View};
use crate::reply::{Code, LocalReply};
use crate::store::{Action, Op, Reply};
use crate::trusted::{self, Markers};
use serde_json::json;

/// Records met in a row before an attempt gives up: each can honestly be another one, a few times.
const MOST_MEETINGS: u8 = 8;

impl Exchange {
    /// There is a record that is not this attempt's.
    pub(super) fn answer(
        &mut self,
        mut attempt: Box<Attempt>,
        record: Record,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        attempt.met = attempt.met.saturating_add(1);
        if attempt.met > MOST_MEETINGS {
            let reply = Reply::Failed("the record keeps changing".to_owned());
            return self.on_store_failure(&attempt, &Step::Reread, &reply, now, out);
        }
        let view = record.view(now.store_ms);
        match self.before_state(&attempt, &record, &view) {
            Before::Nothing => {}
            Before::Refusal(refusal) => return self.turn_away(&attempt, *refusal, now, out),
            Before::Body if attempt.mode == Mode::Enforce => return self.drain(attempt, now, out),
            // Comparing would take its body away.
            Before::Body => {
                let chosen = Chosen {
                    index: attempt.route,
                    mode: attempt.mode,
                };
                return self.pass_unobserved(Some(chosen), out);
            }
        }
        match view {
            View::Pending { lease_left } => {
                let since = now.store_ms.saturating_sub(record.claimed_at);
                self.meet_pending(attempt, lease_left, since, now, out);
            }
            View::Completed(outcome) | View::Accepted(outcome) => {
                self.replay(attempt, record, outcome, now, out);
            }
            View::Closed { reason } => {
                let refusal = Refusal {
                    members: vec![("closed_reason", reason.into())],
                    status: Status::Closed.as_str(),
                    ..Refusal::new(Code::OperationClosed)
                };
                self.turn_away(&attempt, refusal, now, out);
            }
            View::Unknown { evidence, .. } => {
                self.meet_unknown(attempt, &record, &evidence, now, out);
            }
            View::Expired { .. } | View::Gone => {
                let refusal = Refusal {
                    status: Status::Expired.as_str(),
                    ..Refusal::because(Code::KeyExpired, "window_over")
                };
                self.turn_away(&attempt, refusal, now, out);
            }
        }
    }

    fn before_state(&self, attempt: &Attempt, record: &Record, view: &View) -> Before {
        if matches!(view, View::Expired { .. } | View::Gone) {
            return Before::Nothing;
        }
        let Some(rule) = self.route(attempt.route) else {
            return Before::Nothing;
        };
        let again = attempt.fingerprint_like(&record.fingerprint, rule);
        let fresh = again.as_ref().unwrap_or(&attempt.fingerprint);
        let code = match record.fingerprint.compare(fresh) {
            Comparison::Same if record.schema_version == rule.schema_version => {
                return Before::Nothing;
            }
            Comparison::Same => {
                return Before::refusal(Refusal {
                    status: view.status().as_str(),
                    ..Refusal::because(Code::ReplayUnavailable, "schema_changed")
                });
            }
            Comparison::OtherPrincipal => {
                // Not even the operation's state is another principal's business.
                return Before::refusal(Refusal::new(Code::PrincipalMismatch));
            }
            Comparison::NeedsBody => return Before::Body,
            Comparison::Different => Code::PayloadMismatch,
            Comparison::Incomparable => Code::FingerprintIncomparable,
        };
        Before::refusal(Refusal {
            members: vec![(
                "fingerprint",
                json!({"recorded": report(&record.fingerprint), "received": report(fresh)}),
            )],
            status: view.status().as_str(),
            ..Refusal::new(code)
        })
    }

    fn replay(
        &mut self,
        attempt: Box<Attempt>,
        record: Record,
        outcome: Outcome,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        // An answer recorded by observing would have been kept by enforcing.
        let kept = matches!(outcome.replay, Replayable::Yes | Replayable::Observed);
        if attempt.mode != Mode::Enforce && kept {
            out.push(Effect::Count(Counter::Would(attempt.route_index(), None)));
            out.push(Effect::Show(Field::Outcome, "would_replay".to_owned()));
            self.phase = Phase::Pass;
            return;
        }
        // Whatever the record says: nobody knows all that was asked.
        let why = match record.fingerprint.head {
            Some(_) => Replayable::PartialRequest,
            None => outcome.replay,
        };
        if why != Replayable::Yes {
            let refusal = Refusal {
                members: vec![("upstream_status", outcome.status.into())],
                status: record.state.status().as_str(),
                ..Refusal::because(Code::ReplayUnavailable, why.as_str())
            };
            return self.turn_away(&attempt, refusal, now, out);
        }
        let incarnation = record.version.incarnation;
        out.push(Effect::Store(Op {
            operation: attempt.found_at,
            action: Action::Body { incarnation },
        }));
        self.phase = Phase::Ask(attempt, Step::Body(Box::new(record), outcome));
    }

    /// The recorded answer came from the store, or should have.
    pub(super) fn on_body(
        &mut self,
        attempt: Box<Attempt>,
        record: Record,
        outcome: Outcome,
        reply: Reply,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let blob = match reply {
            Reply::Body(blob) => blob,
            // The record has moved on since it was read.
            Reply::Current(record) => return self.answer(attempt, *record, now, out),
            Reply::Expired { .. } => {
                let refusal = Refusal {
                    status: Status::Expired.as_str(),
                    ..Refusal::because(Code::KeyExpired, "window_over")
                };
                return self.turn_away(&attempt, refusal, now, out);
            }
            // There was a record a moment ago: its answer is lost, not absent.
            Reply::Absent | Reply::Corrupt => None,
            other => {
                let step = Step::Body(Box::new(record), outcome);
                return self.on_store_failure(&attempt, &step, &other, now, out);
            }
        };
        let decoded = blob.as_deref().map(envelope::decode);
        let Some(Ok(envelope)) =
            decoded.filter(|d| d.as_ref().is_ok_and(|e| e.status == outcome.status))
        else {
            out.push(Effect::Count(Counter::ReplayCorrupt));
            out.push(Effect::Log(
                Level::Error,
                format!(
                    "the recorded answer of operation {} is missing or damaged",
                    attempt.found_at
                ),
            ));
            let refusal = Refusal {
                members: vec![("upstream_status", outcome.status.into())],
                status: record.state.status().as_str(),
                ..Refusal::because(Code::ReplayUnavailable, "answer_corrupt")
            };
            return self.turn_away(&attempt, refusal, now, out);
        };
        self.count_served(&attempt, out);
        out.push(Effect::Show(Field::Outcome, "replayed".to_owned()));
        if let Some(trace) = &record.traceparent {
            let audit = json!({"v": crate::audit::SCHEMA, "replayed_attempt": record.attempt, "traceparent": trace});
            let audit = serde_json::to_string(&audit).unwrap_or_default();
            out.push(Effect::Show(Field::Audit, audit));
        }
        let mut headers = envelope.headers;
        headers.extend(trusted::markers(&Markers {
            replayed: true,
            status: record.state.status().as_str(),
            operation: Some(&attempt.operation),
            result: Some(&outcome.result),
            expires_unix_ms: record.served_until().map(|at| now.to_wall_ms(at)),
            first_response_unix_ms: Some(outcome.wall_first_response),
        }));
        headers.extend(self.memory_marker(&attempt, now));
        out.push(Effect::Reply(LocalReply {
            status: envelope.status,
            headers,
            body: envelope.body,
        }));
        self.phase = Phase::Replied;
    }

    fn count_served(&self, attempt: &Attempt, out: &mut Vec<Effect>) {
        let (route, tenant) = (attempt.route_index(), attempt.tenant_bucket);
        if attempt.wait_until.is_some() {
            out.push(Effect::Count(Counter::InFlight(route, Waited::Served)));
        }
        out.push(Effect::Count(Counter::Replay(route, tenant)));
        out.push(Effect::Count(Counter::Hit(route, tenant)));
    }

    fn meet_unknown(
        &mut self,
        attempt: Box<Attempt>,
        record: &Record,
        evidence: &Evidence,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let again = self.route(attempt.route).is_some_and(|r| match &r.unknown {
            UnknownPolicy::Refuse => false,
            UnknownPolicy::Forward | UnknownPolicy::Retry { .. } => true,
        });
        // Only under the identity that the record has: a migrated one stays where it is. And not what
        // this very attempt has just made unknown, because the store may have forgotten it.
        let own = attempt.found_at == attempt.operation
            && attempt.holds_body()
            && record.version.incarnation != attempt.owner.incarnation();
        if again && own && attempt.mode == Mode::Enforce {
            return self.take_over(attempt, record, now, out);
        }
        let mut shown = json!({"details": evidence.details});
        if let (Some(status), Some(members)) = (evidence.status, shown.as_object_mut()) {
            members.insert("upstream_status".to_owned(), status.into());
        }
        let refusal = Refusal {
            members: vec![("evidence", shown)],
            status: Status::Unknown.as_str(),
            ..Refusal::new(Code::OutcomeUnknown)
        };
        self.turn_away(&attempt, refusal, now, out);
    }
}

/// What comes before the state, in the order of design §5.
enum Before {
    Nothing,
    Refusal(Box<Refusal>),
    /// The attempt's body must be known whole first.
    Body,
}

impl Before {
    fn refusal(refusal: Refusal) -> Self {
        Self::Refusal(Box::new(refusal))
    }
}

impl Attempt {
    /// The attempt's fingerprint as the stored one was computed, where it was under other settings or
    /// over a beginning, and where that can be done from what is known of the body.
    fn fingerprint_like(&self, stored: &Fingerprint, rule: &Route) -> Option<Fingerprint> {
        let caller = self.principal.as_deref();
        let compute = |like: &dyn Fn(&fingerprint::Request<'_>) -> Option<Fingerprint>| {
            fingerprint_of(&self.headers, caller, &self.body, like)
        };
        match (stored.head, &self.upload) {
            (Some(head), upload) => {
                let longer = upload.is_some() || self.body.len() as u64 > head.octets;
                let declared = match upload {
                    Some(upload) => upload.declared(),
                    None => Some(self.body.len() as u64),
                };
                if !longer {
                    return None;
                }
                compute(&|request| {
                    fingerprint::head_like(stored, &rule.fingerprint, request, declared)
                })
            }
            (None, None) if stored.algorithm != self.fingerprint.algorithm => {
                compute(&|request| fingerprint::compute_like(stored, &rule.fingerprint, request))
            }
            (None, _) => None,
        }
    }
}

/// A fingerprint as a conflict report shows it: digest, length, form; no part of a payload.
fn report(fingerprint: &Fingerprint) -> serde_json::Value {
    let mut shown = json!({
        "digest": hex_of(&fingerprint.digest),
        "algorithm": fingerprint.algorithm.as_str(),
        "form": fingerprint.form.as_str(),
        "version": fingerprint.version,
        "length": fingerprint.length,
        "media_type": fingerprint.media_type,
    });
    if let (Some(head), Some(members)) = (fingerprint.head, shown.as_object_mut()) {
        members.insert("head_octets".to_owned(), head.octets.into());
    }
    shown
}
