//! Refusals: why, and what the client is told.

use super::understand::enforced;
use super::{Attempt, Chosen, Effect, Exchange, Field, Moment, Phase};
use crate::fingerprint::FingerprintError;
use crate::http::Line;
use crate::ids::OperationId;
use crate::key::KeyError;
use crate::metrics::{Counter, RouteIndex};
use crate::plan::Mode;
use crate::reply::{self, Code, LocalReply, Problem};
use crate::tenant::TenantError;
use crate::trusted::{self, Markers};
use serde_json::Value;

/// A refusal on its way to the client.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: Code,
    /// A stable id that tells cases of one code apart.
    pub(super) reason: Option<&'static str>,
    pub(super) members: Vec<(&'static str, Value)>,
    pub(super) retry_after_s: Option<u32>,
    /// `Idempotency-Status`, where the operation's state is known.
    pub(super) status: &'static str,
}

impl Refusal {
    pub(super) fn new(code: Code) -> Self {
        Self {
            code,
            reason: None,
            members: Vec::new(),
            retry_after_s: None,
            status: "",
        }
    }

    pub(super) fn because(code: Code, reason: &'static str) -> Self {
        Self {
            reason: Some(reason),
            ..Self::new(code)
        }
    }

    pub(super) fn too_large(limit: u64) -> Self {
        Self {
            members: vec![("limit", limit.into())],
            ..Self::new(Code::PayloadTooLarge)
        }
    }
}

impl From<KeyError> for Refusal {
    fn from(error: KeyError) -> Self {
        Self {
            reason: error.reason(),
            ..Self::new(error.code())
        }
    }
}

impl From<&TenantError> for Refusal {
    fn from(error: &TenantError) -> Self {
        match error {
            TenantError::Missing => Self::new(Code::TenantMissing),
            TenantError::Drift => Self::new(Code::TenantDrift),
            TenantError::Invalid => Self::because(Code::TenantMissing, "tenant_invalid"),
        }
    }
}

impl From<FingerprintError> for Refusal {
    fn from(error: FingerprintError) -> Self {
        match error {
            FingerprintError::TooLarge { limit } => Self::too_large(limit),
            FingerprintError::MissingContentDigest => {
                Self::because(Code::ContentDigestInvalid, "missing")
            }
            FingerprintError::MalformedContentDigest => {
                Self::because(Code::ContentDigestInvalid, "malformed")
            }
        }
    }
}

impl Exchange {
    /// Refuses the request; in `observe` mode counts that it would have, and passes it on.
    pub(super) fn refuse(
        &mut self,
        chosen: Option<Chosen>,
        attempt: Option<&Attempt>,
        refusal: Refusal,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let index = chosen.and_then(|c| RouteIndex::try_from(c.index).ok());
        let mode = match chosen.map_or_else(|| self.strictest(), |c| c.mode) {
            // No operation yet, so the roll-out goes by attempt.
            Mode::Enforce if attempt.is_none() => self.rolled_out(&self.attempt_id),
            mode => mode,
        };
        let rule = chosen.and_then(|c| self.route(c.index));
        if let Some(rule) = rule {
            out.push(Effect::Show(Field::Route, rule.id.clone()));
        }
        if let Some(attempt) = attempt {
            out.push(Effect::Show(Field::Operation, attempt.operation.hex()));
        }
        if mode != Mode::Enforce {
            // No rule has that number: it is shown as `none`.
            let index = index.unwrap_or(RouteIndex::MAX);
            out.push(Effect::Count(Counter::Would(index, Some(refusal.code))));
            out.push(Effect::Show(
                Field::Outcome,
                format!("would_{}", refusal.code),
            ));
            self.phase = Phase::Pass;
            return;
        }
        count_refusal(index, attempt, refusal.code, out);
        out.push(Effect::Show(
            Field::Outcome,
            refusal.code.as_str().to_owned(),
        ));
        let status = rule.and_then(|r| r.statuses.get(&refusal.code).copied());
        let reply = self.render(status, attempt, refusal, now);
        out.push(Effect::Reply(reply));
        self.phase = Phase::Replied;
    }

    /// The refusal as the client sees it. `status`: what the route says of the code.
    pub(super) fn render(
        &self,
        status: Option<u16>,
        attempt: Option<&Attempt>,
        refusal: Refusal,
        now: Moment,
    ) -> LocalReply {
        let status = status.unwrap_or_else(|| refusal.code.default_status());
        let operation = attempt.map(|a| &a.operation);
        let mut headers = markers(refusal.status, operation);
        headers.extend(attempt.and_then(|a| self.memory_marker(a, now)));
        let languages = self.languages.iter().map(Vec::as_slice).collect::<Vec<_>>();
        reply::render(
            &Problem {
                code: refusal.code,
                status,
                operation,
                attempt: &self.attempt_id,
                reason: refusal.reason,
                retry_after_s: refusal.retry_after_s,
                members: refusal.members,
                headers,
            },
            &languages,
        )
    }

    /// Which part of the roll-out a request without an operation is in.
    fn rolled_out(&self, attempt: &str) -> Mode {
        let hash = OperationId::new("roll-out", b"", "", attempt.as_bytes());
        if enforced(&hash, self.policy.plan.enforce_fraction) {
            Mode::Enforce
        } else {
            Mode::Observe
        }
    }

    /// `Idempotency-Store`: a store that forgets on restart says since when it remembers, as long
    /// as something that it should remember may be older.
    pub(super) fn memory_marker(&self, attempt: &Attempt, now: Moment) -> Option<Line> {
        let since = self.policy.remembers_since?;
        let replay = &self.route(attempt.route)?.replay;
        let window = replay.ttl_ms.saturating_add(replay.tombstone_ttl_ms);
        (now.wall_ms().saturating_sub(since) < window).then(|| {
            let value = format!("{}; since={}", self.policy.plan.store.name(), since / 1000);
            (trusted::STORE.as_bytes().to_vec(), value.into_bytes())
        })
    }
}

fn count_refusal(
    index: Option<RouteIndex>,
    attempt: Option<&Attempt>,
    code: Code,
    out: &mut Vec<Effect>,
) {
    out.push(Effect::Count(Counter::Rejected(index, code)));
    let (Some(index), Some(attempt)) = (index, attempt) else {
        return;
    };
    let tenant = attempt.tenant_bucket;
    match code {
        Code::PayloadMismatch | Code::PrincipalMismatch | Code::FingerprintIncomparable => {
            out.push(Effect::Count(Counter::Conflict(index, tenant, code)));
        }
        Code::KeyExpired => out.push(Effect::Count(Counter::Expired(index))),
        _ => {}
    }
    if !matches!(
        code,
        Code::StoreFull | Code::StoreUnavailable | Code::StoreRecovering
    ) {
        out.push(Effect::Count(Counter::Hit(index, tenant)));
    }
}

fn markers(status: &str, operation: Option<&OperationId>) -> Vec<Line> {
    trusted::markers(&Markers {
        status,
        operation,
        ..Markers::default()
    })
}
