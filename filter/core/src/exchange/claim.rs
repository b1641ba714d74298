//! Asking the store, and what its replies mean for an attempt that is not running yet.

use super::detached::router_settings;
use super::effects::likeness;
use super::ending::{lapse, wrote_lapse};
use super::refusal::Refusal;
use super::{Attempt, Chosen, Edit, Effect, Exchange, Field, Level, Moment, Phase, Run, Step};
use crate::audit::Transition;
use crate::ids::OperationId;
use crate::metrics::{Bypass, ClaimResult, Counter, Histogram, StoreOp, Waited};
use crate::plan::{InFlightAction, Mode, Store, StoreFailure};
use crate::record::{Record, Status, Windows};
use crate::reply::Code;
use crate::reply::retry_after::{self, Wait};
use crate::store::{Action, Claim, Full, Op, Reply};
use crate::trusted::{self, Derived};

/// How long after its call a claim may still take effect, milliseconds: nobody waits longer.
const CLAIM_VALID_MS: u64 = 2_000;

/// Waiters look again, in case their wake-up was lost or comes from another proxy: at first so often,
/// then ever less, and at least as often as the last says, milliseconds.
const REREAD_MS: [u64; 4] = [100, 200, 500, 1_000];

impl Exchange {
    /// The first question: what the route's earlier identities know, then the claim.
    pub(super) fn ask_first(&mut self, attempt: Box<Attempt>, now: Moment, out: &mut Vec<Effect>) {
        out.push(Effect::Show(Field::Operation, attempt.operation.hex()));
        if let Some(rule) = self.route(attempt.route) {
            out.push(Effect::Show(Field::Route, rule.id.clone()));
        }
        self.ask_previous(attempt, 0, now, out);
    }

    /// Looks under the route's earlier identities, from that place on, then claims.
    fn ask_previous(
        &mut self,
        mut attempt: Box<Attempt>,
        place: usize,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let Some(operation) = self.previous_operation(&attempt, place) else {
            attempt.found_at = attempt.operation;
            return self.ask_claim(attempt, now, out);
        };
        attempt.found_at = operation;
        out.push(Effect::Store(Op {
            operation,
            action: Action::Read,
        }));
        self.phase = Phase::Ask(attempt, Step::Previous(place));
    }

    fn previous_operation(&self, attempt: &Attempt, place: usize) -> Option<OperationId> {
        let plan = &self.policy.plan;
        let previous = self.route(attempt.route)?.previous.get(place)?;
        let tenant = match &previous.tenant_default {
            Some(then) if attempt.tenant.as_bytes() == plan.tenant.default.as_bytes() => {
                then.as_bytes()
            }
            _ => attempt.tenant.as_bytes(),
        };
        Some(OperationId::new(
            &plan.namespace,
            tenant,
            &previous.id,
            attempt.key.as_bytes(),
        ))
    }

    fn ask_claim(&mut self, mut attempt: Box<Attempt>, now: Moment, out: &mut Vec<Effect>) {
        attempt.started_us = now.wall_us;
        let Some(claim) = self.claim(&attempt, now) else {
            return self.lost_rule(&attempt, now, out);
        };
        out.push(attempt.op(Action::Claim(claim)));
        self.phase = Phase::Ask(attempt, Step::Claim);
    }

    fn claim(&self, attempt: &Attempt, now: Moment) -> Option<Claim> {
        let rule = self.route(attempt.route)?;
        Some(Claim {
            owner: attempt.owner,
            lease_ms: rule.lease_ms,
            not_after: now.store_ms.saturating_add(CLAIM_VALID_MS),
            fingerprint: attempt.fingerprint.clone(),
            schema_version: rule.schema_version.clone(),
            tenant: attempt.tenant_digest,
            tenant_quota: self.policy.plan.limits.tenant_records,
            route: rule.id.clone(),
            attempt: self.attempt_id.clone(),
            traceparent: attempt.headers.first_str("traceparent").map(str::to_owned),
            forgotten: attempt.forgotten,
            windows: Windows {
                replay_ms: rule.replay.ttl_ms,
                tombstone_ms: rule.replay.tombstone_ttl_ms,
            },
        })
    }

    /// How many calls to the store have failed in a row: told before a reply that may be a failure.
    pub fn set_store_failures(&mut self, failures: u32) {
        self.store_failures = failures;
    }

    /// A store's reply to the latest [`Effect::Store`] that is no renewal.
    pub fn on_store(&mut self, reply: Reply, now: Moment, out: &mut Vec<Effect>) {
        match std::mem::take(&mut self.phase) {
            Phase::Ask(attempt, step) => self.on_answer(attempt, step, reply, now, out),
            Phase::Settle(run, _) => self.on_settled(run, reply, now, out),
            other => self.phase = other,
        }
    }

    /// The reply to a renewal ([`Op::renews`]), whatever it is: a refused one changes nothing for this
    /// attempt, its answer will be fenced, or kept. It may come before or after that of the last write.
    pub fn on_renewal(&mut self) {
        if let Phase::Run(run) | Phase::Away(run) | Phase::Record(run, _) | Phase::Settle(run, _) =
            &mut self.phase
        {
            run.on_renewed();
        }
    }

    fn on_answer(
        &mut self,
        attempt: Box<Attempt>,
        step: Step,
        reply: Reply,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        match (step, reply) {
            (Step::Previous(place), Reply::Absent) => {
                self.ask_previous(attempt, place.saturating_add(1), now, out);
            }
            (Step::Claim, Reply::Claimed(record)) => {
                self.forward(attempt, &record, ClaimResult::Claimed, now, out);
            }
            (Step::TakeOver, Reply::Claimed(record)) => {
                self.forward(attempt, &record, ClaimResult::TakenOver, now, out);
            }
            // Released, or vanished: claimed anew, never run unclaimed (rule 4). Without its body it
            // cannot run: the next attempt can.
            (Step::Reread | Step::TakeOver, Reply::Absent) => {
                if attempt.holds_body() {
                    self.ask_previous(attempt, 0, now, out);
                } else {
                    self.in_flight(&attempt, 0, Waited::Rejected, now, out);
                }
            }
            (Step::Body(record, outcome), reply) => {
                self.on_body(attempt, *record, outcome, reply, now, out);
            }
            (step, Reply::Current(record) | Reply::Claimed(record)) => {
                if matches!(step, Step::Claim) {
                    self.count_claim(&attempt, ClaimResult::Existing, now, out);
                    if wrote_lapse(&record, attempt.owner) {
                        let (cause, line) = lapse(&attempt.found_at, &record);
                        out.push(Effect::Count(Counter::Unknown(
                            attempt.route_index(),
                            cause,
                        )));
                        out.push(Effect::Log(Level::Warn, line));
                        let likeness = likeness(&record.tenant, &record.route, &record.fingerprint);
                        out.push(Effect::NoteUnknown(attempt.operation, likeness));
                    }
                }
                self.answer(attempt, *record, now, out);
            }
            (_, Reply::Expired { unresolved }) => {
                let reason = if unresolved {
                    "unresolved"
                } else {
                    "window_over"
                };
                let refusal = Refusal {
                    status: Status::Expired.as_str(),
                    ..Refusal::because(Code::KeyExpired, reason)
                };
                self.turn_away(&attempt, refusal, now, out);
            }
            (_, Reply::Full(full)) => {
                self.count_claim(&attempt, ClaimResult::Failed, now, out);
                let reason = match full {
                    Full::Store => "store",
                    Full::Tenant => "tenant_quota",
                    Full::TenantRate => "tenant_rate",
                };
                let refusal = Refusal {
                    retry_after_s: Some(self.back_off(&attempt)),
                    ..Refusal::because(Code::StoreFull, reason)
                };
                self.turn_away(&attempt, refusal, now, out);
            }
            (_, Reply::Corrupt) => {
                out.push(Effect::Count(Counter::ReplayCorrupt));
                out.push(Effect::Log(
                    Level::Error,
                    format!(
                        "the record of operation {} is damaged, or of a version that this one \
                         cannot read",
                        attempt.operation
                    ),
                ));
                let refusal = Refusal {
                    status: Status::Unknown.as_str(),
                    ..Refusal::because(Code::OutcomeUnknown, "record_corrupt")
                };
                self.turn_away(&attempt, refusal, now, out);
            }
            (step, reply) => self.on_store_failure(&attempt, &step, &reply, now, out),
        }
    }

    /// The claim cannot be made: the route's policy decides (rule 4).
    pub(super) fn on_store_failure(
        &mut self,
        attempt: &Attempt,
        step: &Step,
        reply: &Reply,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let op = match step {
            Step::Claim | Step::TakeOver => StoreOp::Claim,
            Step::Body(..) => StoreOp::Body,
            Step::Previous(_) | Step::Reread => StoreOp::Read,
        };
        out.push(Effect::Count(Counter::StoreError(op)));
        if let Reply::Failed(why) = reply {
            out.push(Effect::Log(Level::Warn, format!("store: {why}")));
        }
        if op == StoreOp::Claim {
            self.count_claim(attempt, ClaimResult::Failed, now, out);
        }
        if !matches!(reply, Reply::Unsent(_) | Reply::Recovering(_)) {
            self.give_up_claim(attempt, step, out);
        }
        // Only where nothing is known of the operation: whatever else is asked, there is a record.
        let open = matches!(step, Step::Previous(_) | Step::Claim)
            && self
                .route(attempt.route)
                .is_some_and(|r| r.store_failure == StoreFailure::Open);
        if open && attempt.mode == Mode::Enforce {
            out.push(Effect::Count(Counter::Bypass(Bypass::StoreFailure)));
            out.push(Effect::Show(Field::Outcome, "bypassed".to_owned()));
            self.bypassed = true;
            self.phase = Phase::Pass;
            return;
        }
        let refusal = match reply {
            Reply::Recovering(left_ms) => Refusal {
                retry_after_s: Some(retry_after::seconds(
                    Wait::Lease(*left_ms),
                    None,
                    attempt.jitter(),
                )),
                ..Refusal::new(Code::StoreRecovering)
            },
            _ => Refusal {
                retry_after_s: Some(self.back_off(attempt)),
                ..Refusal::new(Code::StoreUnavailable)
            },
        };
        self.turn_away(attempt, refusal, now, out);
    }

    /// A claim that nobody waits for leaves nothing behind (rule 5).
    pub(super) fn give_up_claim(&self, attempt: &Attempt, step: &Step, out: &mut Vec<Effect>) {
        if matches!(step, Step::Claim | Step::TakeOver) {
            out.push(Effect::Defer(Op {
                operation: attempt.operation,
                action: Action::Cancel {
                    owner: attempt.owner,
                },
            }));
        }
    }

    /// Refuses an attempt that is understood.
    pub(super) fn turn_away(
        &mut self,
        attempt: &Attempt,
        refusal: Refusal,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let chosen = Chosen {
            index: attempt.route,
            mode: attempt.mode,
        };
        self.refuse(Some(chosen), Some(attempt), refusal, now, out);
    }

    /// The plan has no such rule, which cannot be: nothing runs for it.
    fn lost_rule(&mut self, attempt: &Attempt, now: Moment, out: &mut Vec<Effect>) {
        let refusal = Refusal::because(Code::Misconfigured, "unknown_rule");
        self.turn_away(attempt, refusal, now, out);
    }

    pub(super) fn back_off(&self, attempt: &Attempt) -> u32 {
        retry_after::seconds(Wait::Failures(self.store_failures), None, attempt.jitter())
    }

    pub(super) fn count_claim(
        &self,
        attempt: &Attempt,
        result: ClaimResult,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        out.push(Effect::Count(Counter::Claim(
            attempt.route_index(),
            attempt.tenant_bucket,
            result,
        )));
        out.push(Effect::Time(
            Histogram::ClaimUs,
            now.wall_us.saturating_sub(attempt.started_us),
        ));
    }

    /// The claim is this attempt's: it runs.
    fn forward(
        &mut self,
        mut attempt: Box<Attempt>,
        record: &Record,
        result: ClaimResult,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        self.count_claim(&attempt, result, now, out);
        let (Some(claim), Some(rule)) = (self.claim(&attempt, now), self.route(attempt.route))
        else {
            return self.lost_rule(&attempt, now, out);
        };
        out.push(Effect::Count(Counter::Executed(
            attempt.route_index(),
            attempt.tenant_bucket,
        )));
        let (mut edits, mut derived) = (Vec::new(), Vec::new());
        if attempt.mode == Mode::Enforce {
            edits = router_edits(rule, &attempt);
            derived = trusted::lines(
                &Derived {
                    operation: &attempt.operation,
                    attempt: &self.attempt_id,
                    generation: record.generation,
                    tenant: attempt.tenant.as_bytes(),
                    route: &rule.id,
                    key_hash: &trusted::key_hash(attempt.key.as_bytes()),
                    claimed_at_unix_ms: now.to_wall_ms(record.claimed_at),
                    proxy: &self.policy.proxy,
                },
                self.policy.signer.as_ref(),
                attempt.headers.method(),
                attempt.headers.path_and_query(),
                now.wall_ms() / 1000,
            );
        }
        let trip = self.depart(&mut attempt, edits, derived, now, out);
        if result == ClaimResult::Claimed {
            let likeness = likeness(&claim.tenant, &claim.route, &claim.fingerprint);
            out.push(Effect::Suspect(attempt.operation, likeness));
        }
        // Neither is needed any more, and the exchange may last.
        attempt.body = Vec::new();
        attempt.headers = crate::http::Headers::default();
        let from = if result == ClaimResult::TakenOver {
            Status::Unknown
        } else {
            Status::Absent
        };
        let phase = if trip.is_some() {
            Phase::Away
        } else {
            Phase::Run
        };
        self.phase = phase(Box::new(Run {
            attempt,
            claim: Box::new(claim),
            generation: record.generation,
            claimed_at: record.claimed_at,
            sent_us: now.wall_us,
            renewed_at: now.store_ms,
            renewing: false,
            writes: 0,
            aim: None,
            transitions: vec![Transition::own(
                now.wall_ms(),
                from,
                Status::Pending,
                "applied",
            )],
            trip,
        }));
    }

    /// A duplicate of a running operation.
    pub(super) fn meet_pending(
        &mut self,
        mut attempt: Box<Attempt>,
        lease_left: u64,
        runs_since: u64,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let Some(rule) = self.route(attempt.route) else {
            return self.lost_rule(&attempt, now, out);
        };
        attempt.met = 0;
        let wait = rule.in_flight.action == InFlightAction::Wait && attempt.mode == Mode::Enforce;
        match attempt.wait_until {
            Some(until) if now.store_ms < until => {
                let again = std::mem::take(&mut attempt.woken);
                attempt.reread_at = self.next_look(runs_since, now.store_ms);
                self.phase = Phase::Wait(attempt);
                if again {
                    self.on_wake(out);
                }
            }
            Some(_) => self.in_flight(&attempt, lease_left, Waited::TimedOut, now, out),
            None if wait => {
                attempt.wait_until = Some(now.store_ms.saturating_add(rule.in_flight.timeout_ms));
                out.push(Effect::Wait(attempt.found_at));
                self.phase = Phase::Wait(attempt);
            }
            None => self.in_flight(&attempt, lease_left, Waited::Rejected, now, out),
        }
    }

    fn in_flight(
        &mut self,
        attempt: &Attempt,
        lease_left: u64,
        waited: Waited,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        out.push(Effect::Count(Counter::InFlight(
            attempt.route_index(),
            waited,
        )));
        let seconds = retry_after::seconds(Wait::Lease(lease_left), None, attempt.jitter());
        let refusal = Refusal {
            retry_after_s: Some(seconds),
            status: Status::Pending.as_str(),
            ..Refusal::new(Code::InFlight)
        };
        self.turn_away(attempt, refusal, now, out);
    }

    /// Whether the host could register the waiter asked for by [`Effect::Wait`]. It looks again
    /// before it waits: the operation may have ended before it was registered.
    pub fn on_registered(&mut self, granted: bool, now: Moment, out: &mut Vec<Effect>) {
        if granted {
            return self.on_wake(out);
        }
        if let Phase::Wait(attempt) = std::mem::take(&mut self.phase) {
            self.in_flight(&attempt, 0, Waited::Rejected, now, out);
        }
    }

    /// The operation that this attempt waits for may have ended.
    pub fn on_wake(&mut self, out: &mut Vec<Effect>) {
        match std::mem::take(&mut self.phase) {
            Phase::Wait(attempt) => {
                out.push(Effect::Store(Op {
                    operation: attempt.found_at,
                    action: Action::Read,
                }));
                self.phase = Phase::Ask(attempt, Step::Reread);
            }
            Phase::Ask(mut attempt, Step::Reread) => {
                attempt.woken = true;
                self.phase = Phase::Ask(attempt, Step::Reread);
            }
            other => self.phase = other,
        }
    }

    /// Time passes: waiters look again or give up, owners renew their lease, bodies stall.
    pub fn on_tick(&mut self, now: Moment, out: &mut Vec<Effect>) {
        match &mut self.phase {
            Phase::Wait(attempt) => {
                let late = attempt.wait_until.is_none_or(|until| now.store_ms >= until);
                if late || now.store_ms >= attempt.reread_at {
                    self.on_wake(out);
                }
            }
            Phase::Drain(_) => self.stalled(now, out),
            Phase::Run(run) | Phase::Away(run) | Phase::Record(run, _) => run.renew(now, out),
            _ => {}
        }
    }

    /// When a waiter looks again. It depends on the operation alone, not on the waiter: so all of them
    /// look at the same moments, and one question to the store serves all of a worker's. Whatever
    /// ends in this host's own memory wakes its waiters.
    fn next_look(&self, runs_since: u64, now: u64) -> u64 {
        let [first, second, third, last] = REREAD_MS;
        let pause = match (&self.policy.plan.store, runs_since) {
            (Store::SharedData(_), _) => last,
            (_, 0..1_000) => first,
            (_, 1_000..3_000) => second,
            (_, 3_000..10_000) => third,
            _ => last,
        };
        now.saturating_add(1).div_ceil(pause).saturating_mul(pause)
    }

    /// What a take-over needs: the route's policy has said that the operation may run again.
    pub(super) fn take_over(
        &mut self,
        attempt: Box<Attempt>,
        record: &Record,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let Some(claim) = self.claim(&attempt, now) else {
            return self.lost_rule(&attempt, now, out);
        };
        out.push(attempt.op(Action::TakeOver {
            claim,
            expect: record.version,
        }));
        self.phase = Phase::Ask(attempt, Step::TakeOver);
    }
}

/// What keeps the router to one try and one time-out (rule 3, design §5).
fn router_edits(rule: &crate::plan::Route, attempt: &Attempt) -> Vec<Edit> {
    let contained = rule.upstream.router_retries_reason.is_none();
    let mut edits = Vec::with_capacity(14);
    for (name, _) in attempt.headers.lines() {
        let remove = if contained {
            trusted::is_router_control(name)
        } else {
            trusted::is_router_timeout_control(name)
        };
        if remove {
            edits.push(Edit::Remove(name.clone()));
        }
    }
    edits.extend(router_settings(Some(rule)));
    if rule.upstream.identity_encoding {
        edits.push(Edit::Set(b"accept-encoding".to_vec(), b"identity".to_vec()));
    }
    edits
}
