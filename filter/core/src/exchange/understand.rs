//! A complete request, understood: key, tenant, age, operation id, fingerprint.

use super::refusal::Refusal;
use super::request::is_json;
use super::upload::{self, Upload};
use super::{Attempt, Chosen, Exchange, Gather, Moment};
use crate::fingerprint;
use crate::http::Headers;
use crate::ids::{OperationId, OwnerToken};
use crate::key::{self, Key, KeyAge, KeyError, Timeliness};
use crate::metrics::{Bypass, Counter};
use crate::plan::{KeyRule, Mode, Plan, Route};
use crate::reply::Code;
use crate::route::{self, RouteQuery, Selection};
use crate::tenant::TenantError;
use serde_json::Value;
use std::borrow::Cow;

/// What a complete request is.
pub(super) enum Understood {
    Attempt(Box<Attempt>),
    Pass(Option<Counter>),
    Refuse(Option<Chosen>, Refusal),
}

impl Exchange {
    /// `more`: `body` is only the beginning, and too much to look into.
    pub(super) fn understand(
        &self,
        gather: Gather,
        body: Vec<u8>,
        more: bool,
        now: Moment,
    ) -> Understood {
        let plan = &self.policy.plan;
        let rule = gather.route.and_then(|c| self.route(c.index));
        let inside = match rule {
            _ if more => Inside::Nothing,
            None => look_inside(&body),
            Some(rule) if is_json(&gather.headers) && may_hold_key(&rule.key, &body) => {
                look_inside(&body)
            }
            Some(_) => Inside::Nothing,
        };
        // Two members of one name, say: a rule or a key may hide behind the one that is not read,
        // whatever the media type says.
        let shaped = || matches!(body.trim_ascii_start().first(), Some(b'{' | b'['));
        if matches!(inside, Inside::Unreadable) && (is_json(&gather.headers) || shaped()) {
            let refusal = KeyError::Invalid(key::reason::BODY_UNREADABLE);
            return Understood::Refuse(gather.route, refusal.into());
        }
        let json = match inside {
            Inside::Json(json) => Some(json),
            Inside::Unreadable | Inside::Nothing => None,
        };
        let chosen = match gather.route {
            Some(chosen) => chosen,
            None => match self.choose_by_body(&gather, json.as_ref(), plan) {
                Ok(chosen) => chosen,
                Err(understood) => return *understood,
            },
        };
        let Some(rule) = self.route(chosen.index) else {
            return Understood::Pass(None);
        };
        if chosen.mode == Mode::Off {
            return Understood::Pass(None);
        }
        match self.attempt(gather, (body, more), json.as_ref(), chosen, rule, now) {
            Ok(Some(attempt)) => Understood::Attempt(attempt),
            Ok(None) => Understood::Pass(Some(Counter::Bypass(Bypass::NoKey))),
            Err(refusal) => Understood::Refuse(Some(chosen), refusal),
        }
    }

    fn choose_by_body(
        &self,
        gather: &Gather,
        json: Option<&Value>,
        plan: &Plan,
    ) -> Result<Chosen, Box<Understood>> {
        let null = Value::Null;
        let query = RouteQuery {
            headers: &gather.headers,
            envoy_route_name: gather.envoy_route.as_deref(),
            // Not JSON at all: no rule that looks inside can match, later rules may.
            body: Some(json.unwrap_or(&null)),
        };
        match route::select(plan, &query) {
            Selection::Route(index) => Ok(self.choose(index)),
            Selection::None if gather.requires_key => Err(Box::new(Understood::Refuse(
                None,
                Refusal::because(Code::Misconfigured, "no_rule"),
            ))),
            Selection::Unnormalisable(_) => Err(Box::new(Understood::Refuse(
                None,
                Refusal::new(Code::PathAmbiguous),
            ))),
            Selection::None | Selection::NeedsBody => {
                Err(Box::new(Understood::Pass(Some(Counter::UnmatchedWrite))))
            }
        }
    }

    /// `None`: no key, and none required.
    fn attempt(
        &self,
        gather: Gather,
        (mut body, more): (Vec<u8>, bool),
        json: Option<&Value>,
        chosen: Chosen,
        rule: &Route,
        now: Moment,
    ) -> Result<Option<Box<Attempt>>, Refusal> {
        let plan = &self.policy.plan;
        let in_header = key::from_headers(&rule.key, &gather.headers)?;
        let in_body = match json {
            Some(json) => key::from_body(&rule.key, json)?,
            None => None,
        };
        let Some(key) = key::settle(&rule.key, in_header, in_body)? else {
            return if gather.requires_key {
                Err(KeyError::Missing.into())
            } else {
                Ok(None)
            };
        };
        let tenant = match gather.facts.tenant {
            Some(Ok(tenant)) => tenant,
            Some(Err(error)) => return Err((&error).into()),
            None => return Err((&TenantError::Missing).into()),
        };
        let principal = match gather.facts.principal {
            Some(Err(error)) => return Err((&error).into()),
            Some(Ok(principal)) => principal,
            None => None,
        };
        let forgotten = self.judge_age(&key, rule, &gather.headers, now)?;
        let operation =
            OperationId::new(&plan.namespace, tenant.as_bytes(), &rule.id, key.as_bytes());
        let caller = principal.as_deref();
        let (upload, fingerprint) = if more && upload::reads_body(rule) {
            let upload = Upload::begin(rule, &gather.headers, caller, &body);
            // However it came in pieces, its beginning is as long as the rule says.
            body.truncate(usize::try_from(rule.claim_after).unwrap_or(usize::MAX));
            body.shrink_to_fit();
            let head = fingerprint_of(&gather.headers, caller, &body, |request| {
                fingerprint::head_of(&rule.fingerprint, request, upload.declared())
            });
            (Some(Box::new(upload)), head)
        } else {
            let whole = fingerprint_of(&gather.headers, caller, &body, |request| {
                fingerprint::compute(&rule.fingerprint, request)
            })?;
            (None, whole)
        };
        let owner = OwnerToken::derive(&[
            &self.seed.vm,
            &self.seed.counter.to_be_bytes(),
            &now.wall_us.to_be_bytes(),
            &operation.0,
            // Proxies that share a store may have started alike.
            self.policy.proxy.as_bytes(),
            self.attempt_id.as_bytes(),
        ]);
        let mode = match chosen.mode {
            Mode::Enforce if !enforced(&operation, plan.enforce_fraction) => Mode::Observe,
            mode => mode,
        };
        let tenant_digest = tenant.digest();
        Ok(Some(Box::new(Attempt {
            route: chosen.index,
            mode,
            operation,
            found_at: operation,
            tenant_bucket: tenant_digest.bucket(),
            tenant_digest,
            tenant,
            key,
            headers: gather.headers,
            body,
            upload,
            principal,
            fingerprint,
            owner,
            forgotten,
            started_us: now.wall_us,
            wait_until: None,
            reread_at: 0,
            woken: false,
            met: 0,
        })))
    }

    /// Verifiable age: too old is refused even where every record is gone. Otherwise: whether the
    /// operation may be older than what the store remembers.
    fn judge_age(
        &self,
        key: &Key,
        rule: &Route,
        headers: &Headers,
        now: Moment,
    ) -> Result<bool, Refusal> {
        let Some(kind) = &rule.key_time else {
            return Ok(false);
        };
        let age = key::embedded_time_ms(key, kind, headers)?;
        let remembered = rule
            .replay
            .ttl_ms
            .saturating_add(rule.replay.tombstone_ttl_ms);
        match (age.judge(now.wall_ms(), remembered)?, age) {
            (Timeliness::TooLate, _) => Err(Refusal::because(Code::KeyExpired, "key_time")),
            (Timeliness::Timely, KeyAge::Created(at)) => {
                Ok(self.policy.remembers_since.is_some_and(|since| at < since))
            }
            (Timeliness::Timely, KeyAge::Deadline(_)) => Ok(false),
        }
    }
}

/// What the fingerprint is computed over. A path that no rule of RFC 3986 can normalise is bound as
/// it is.
pub(super) fn fingerprint_of<T>(
    headers: &Headers,
    principal: Option<&[u8]>,
    body: &[u8],
    compute: impl FnOnce(&fingerprint::Request<'_>) -> T,
) -> T {
    let raw = headers.split_path().0;
    let path = route::normalise_path(raw).unwrap_or(Cow::Borrowed(raw));
    compute(&fingerprint::Request {
        headers,
        canonical_path: &path,
        principal,
        body,
    })
}

/// A body as rules and keys see it.
enum Inside {
    Json(Value),
    /// Not JSON, or JSON that two readers may read in two ways.
    Unreadable,
    Nothing,
}

/// Whatever the media type says: an upstream may read JSON all the same.
fn look_inside(body: &[u8]) -> Inside {
    if body.is_empty() {
        return Inside::Nothing;
    }
    crate::config::json_value(body).map_or(Inside::Unreadable, Inside::Json)
}

/// Parsing a body costs more than looking for the member's name in it. A name may also be written
/// with escapes, so a body with any `\u` is parsed.
fn may_hold_key(rule: &KeyRule, body: &[u8]) -> bool {
    let Some(name) = rule
        .body_field
        .as_deref()
        .and_then(|p| p.rsplit('/').next())
    else {
        return false;
    };
    let plain = name.replace("~1", "/").replace("~0", "~");
    contains(body, plain.as_bytes()) || contains(body, b"\\u") || plain.contains(['"', '\\', '/'])
}

fn contains(hay: &[u8], needle: &[u8]) -> bool {
    needle.is_empty() || memchr::memmem::find(hay, needle).is_some()
}

/// Rolls out by operation, so that all attempts of one are treated alike.
pub(super) fn enforced(operation: &OperationId, fraction: f64) -> bool {
    // 53 bits are exact in a double.
    let place = (operation.prefix() >> 11) as f64 / (1u64 << 53) as f64;
    place < fraction
}
