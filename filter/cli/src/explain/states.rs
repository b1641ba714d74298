//! The states that an operation can be in when the request arrives, and what each is answered with.
//!
//! Each state is made by the contract's own steps from another attempt's claim, and answered by the
//! real exchange: nothing here knows what the filter would say.

use super::drive::{Fake, Run, Trouble, drive};
use super::request::Request;
use idempo_core::envelope::{self, Envelope};
use idempo_core::exchange::{Moment, Policy};
use idempo_core::ids::OwnerToken;
use idempo_core::plan::{Route, Store};
use idempo_core::record::{Evidence, Outcome, Replayable, Source, Status, WriteId};
use idempo_core::store::{Action, Claim, Fence, Full, Target, Transition};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// One line of the table.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) state: &'static str,
    /// What is done with the request.
    pub(crate) action: String,
    /// What the client gets from the filter; `None`: what the upstream answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Whether there is a `Retry-After`. Its seconds are spread, so they are no fact.
    pub(crate) retry_after: bool,
}

/// The status of the recorded answers in the table.
const RECORDED: u16 = 201;
const ACCEPTED: u16 = 202;
const OTHER_PRINCIPAL: &str = "other principal";

/// What happens in every state.
pub(crate) fn table(
    policy: &Arc<Policy>,
    request: &Request,
    claim: &Claim,
    route: &Route,
    now: Moment,
) -> Vec<Row> {
    let maker = Maker {
        claim,
        route,
        now: now.store_ms,
    };
    let mut states = maker.states();
    if policy.plan.principal.is_none() {
        states.retain(|(state, _)| *state != OTHER_PRINCIPAL);
    }
    if policy.plan.limits.tenant_records.is_some() {
        states.push(("tenant quota full", trouble(Trouble::Full(Full::Tenant))));
    }
    let mut rows: Vec<Row> = states
        .into_iter()
        .map(|(state, mut fake)| row(state, &drive(policy, request, &mut fake, now)))
        .collect();
    if route.key_time.is_some() && matches!(policy.plan.store, Store::SharedData(_)) {
        // A store that forgets knows which keys it may have forgotten.
        let restarted = Arc::new(Policy {
            remembers_since: Some(now.wall_ms()),
            ..policy.as_ref().clone()
        });
        let run = drive(&restarted, request, &mut Fake::default(), now);
        rows.push(row("absent, store restarted", &run));
    }
    rows
}

/// What a run shows of itself.
pub(crate) fn row(state: &'static str, run: &Run) -> Row {
    let problem = run.reply.as_ref().and_then(problem);
    let member = |name: &str| {
        let value = problem.as_ref()?.get(name)?.as_str()?;
        Some(value.to_owned())
    };
    let would = run
        .outcome
        .as_deref()
        .and_then(|o| o.strip_prefix("would_"));
    let mut action = match (&run.reply, would) {
        (Some(_), _) if problem.is_some() => "refused".to_owned(),
        (Some(_), _) => "recorded answer replayed".to_owned(),
        (None, Some(would)) => format!("passed on (observed; enforced: {would})"),
        (None, None) if run.executed => "sent to the upstream".to_owned(),
        (None, None) if run.outcome.as_deref() == Some("bypassed") => {
            "passed on unclaimed (bypassed)".to_owned()
        }
        (None, None) => "passed on unclaimed".to_owned(),
    };
    if let Some(waited) = run.waited_ms {
        action = format!("waits up to {}s, then {action}", waited / 1000);
    }
    let retry_after = run.reply.as_ref().is_some_and(|r| {
        r.headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case(b"retry-after"))
    });
    Row {
        state,
        action,
        status: run.reply.as_ref().map(|r| r.status),
        code: member("code"),
        reason: member("reason"),
        retry_after,
    }
}

/// The problem details of a refusal; a replayed answer has none of the filter's.
fn problem(reply: &idempo_core::reply::LocalReply) -> Option<Value> {
    let replayed = |(name, value): &(Vec<u8>, Vec<u8>)| {
        name.eq_ignore_ascii_case(b"idempotent-replayed") && value == b"true"
    };
    if reply.headers.iter().any(replayed) {
        return None;
    }
    serde_json::from_slice(&reply.body).ok()
}

struct Maker<'a> {
    claim: &'a Claim,
    route: &'a Route,
    now: u64,
}

impl Maker<'_> {
    fn states(&self) -> Vec<(&'static str, Fake)> {
        let completed = |change: &dyn Fn(&mut Claim)| {
            let mut claim = self.other();
            change(&mut claim);
            self.settled(claim, self.now, self.completed(Replayable::Yes))
        };
        let windows = self.claim.windows;
        let long_ago = self.now.saturating_sub(windows.replay_ms.saturating_add(1));
        let mut pending = self.pending(self.other(), self.now);
        pending.renews_ms = Some(self.route.lease_ms);
        let silent = self
            .now
            .saturating_sub(self.route.lease_ms.saturating_add(1));
        vec![
            ("absent", Fake::default()),
            ("pending", pending),
            ("pending, lease over", self.pending(self.other(), silent)),
            (
                "accepted",
                self.settled(self.other(), self.now, self.accepted()),
            ),
            ("completed", completed(&|_| {})),
            (
                "completed, not replayable",
                self.settled(self.other(), self.now, self.completed(Replayable::TooLarge)),
            ),
            ("closed", self.closed()),
            (
                "unknown",
                self.settled(
                    self.other(),
                    self.now,
                    (
                        Target::Unknown {
                            evidence: Evidence::named("response_timeout"),
                        },
                        None,
                    ),
                ),
            ),
            (
                "expired",
                self.settled(self.other(), long_ago, self.completed(Replayable::Yes)),
            ),
            (
                "other payload",
                completed(&|claim| flip(&mut claim.fingerprint.digest)),
            ),
            (
                OTHER_PRINCIPAL,
                completed(&|claim| {
                    let mut other = claim.fingerprint.principal.unwrap_or_default();
                    flip(&mut other);
                    claim.fingerprint.principal = Some(other);
                }),
            ),
            (
                "other fingerprint settings",
                completed(&|claim| flip(&mut claim.fingerprint.settings)),
            ),
            (
                "other schema version",
                completed(&|claim| claim.schema_version.push('x')),
            ),
            ("record damaged", trouble(Trouble::Damaged)),
            ("store down", trouble(Trouble::Down)),
            ("store full", trouble(Trouble::Full(Full::Store))),
        ]
    }

    /// The same request by another attempt.
    fn other(&self) -> Claim {
        let mut claim = self.claim.clone();
        claim.owner = OwnerToken([0x5a; 16]);
        claim.not_after = u64::MAX;
        claim.tenant_quota = None;
        claim
    }

    fn pending(&self, claim: Claim, at: u64) -> Fake {
        let mut fake = Fake::default();
        fake.apply(&Action::Claim(claim), at);
        fake
    }

    fn settled(&self, claim: Claim, at: u64, (to, blob): (Target, Option<Vec<u8>>)) -> Fake {
        let mut fake = self.pending(claim.clone(), at);
        fake.blob = blob;
        let generation = fake.record.as_ref().map_or(0, |r| r.generation);
        let transition = Transition {
            write: WriteId(1),
            fence: Fence::Owner {
                claim: Box::new(claim),
                claimed_at: at,
                generation,
            },
            to,
            source: Source::Owner,
            operator: String::new(),
        };
        fake.apply(&Action::Transition(transition), at);
        fake
    }

    fn closed(&self) -> Fake {
        let mut fake = self.pending(self.other(), self.now);
        let Some(version) = fake.record.as_ref().map(|r| r.version) else {
            return fake;
        };
        let transition = Transition {
            write: WriteId(2),
            fence: Fence::Version {
                version,
                from: vec![Status::Pending],
            },
            to: Target::Closed {
                reason: "refunded_by_hand".to_owned(),
            },
            source: Source::Operator,
            operator: "operator".to_owned(),
        };
        fake.apply(&Action::Transition(transition), self.now);
        fake
    }

    fn completed(&self, replay: Replayable) -> (Target, Option<Vec<u8>>) {
        let (outcome, blob) = answer(RECORDED, replay, self.now);
        let target = Target::Completed {
            outcome,
            blob: blob.clone(),
        };
        (target, blob)
    }

    fn accepted(&self) -> (Target, Option<Vec<u8>>) {
        let (outcome, blob) = answer(ACCEPTED, Replayable::Yes, self.now);
        let target = Target::Accepted {
            outcome,
            deadline_ms: self.route.accepted_deadline_ms,
            blob: blob.clone(),
        };
        (target, blob)
    }
}

fn answer(status: u16, replay: Replayable, now: u64) -> (Outcome, Option<Vec<u8>>) {
    let envelope = Envelope {
        status,
        ..Envelope::default()
    };
    let outcome = Outcome {
        status,
        result: envelope::result_digest(&envelope),
        body_length: 0,
        wall_first_response: now,
        replay,
    };
    let blob = (replay == Replayable::Yes).then(|| envelope::encode(&envelope));
    (outcome, blob)
}

fn trouble(trouble: Trouble) -> Fake {
    Fake {
        trouble: Some(trouble),
        ..Fake::default()
    }
}

fn flip(octets: &mut [u8]) {
    for octet in octets {
        *octet = !*octet;
    }
}
