//! From headers and body to an attempt that may claim, or to a refusal.

use super::metadata::RouteMetadata;
use super::refusal::Refusal;
use super::understand::Understood;
use super::upload;
use super::{CallerFacts, Chosen, Edit, Effect, Exchange, Field, Gather, Level, Moment, Phase};
use crate::fingerprint::CANONICAL_MAX;
use crate::http::{Headers, media_type};
use crate::key::{self, KeyError};
use crate::metrics::{Bypass, Counter};
use crate::plan::{Mode, Plan, Route};
use crate::reply::Code;
use crate::route::{self, RouteQuery, Selection};
use crate::tenant::{self, Facts};
use crate::trusted::{self, Verification};

/// What to do once the headers are read.
enum Verdict {
    Pass(Option<Counter>),
    Refuse(Option<Chosen>, Refusal),
    Gather(Box<Gather>),
    Evaluate(Box<Gather>),
}

impl Exchange {
    /// The request's headers. `end`: there is no body.
    pub fn on_request_headers(
        &mut self,
        headers: Headers,
        end: bool,
        facts: &dyn Facts,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        self.attempt_id = headers
            .first("x-request-id")
            .map(attempt_id)
            .unwrap_or_default();
        self.fitness.whole = end;
        self.languages = headers.all("accept-language").map(<[u8]>::to_vec).collect();
        let metadata = RouteMetadata::read(facts);
        self.route_mode = metadata.mode;
        let by_name = |r: &Route| r.matcher.route_name.is_some();
        let envoy_route = self
            .policy
            .plan
            .routes
            .iter()
            .any(by_name)
            .then(|| facts.property(&["xds", "route_name"]))
            .flatten()
            .and_then(|name| String::from_utf8(name).ok())
            .filter(|name| !name.is_empty());
        if self.signed(&headers, now) {
            return self.pass_signed(&headers, now, out);
        }
        if !self.plays_any_part(&metadata) {
            self.phase = Phase::Pass;
            return;
        }
        strip_forged(&headers, out);
        match self.judge_headers(headers, end, metadata, envoy_route, facts) {
            Verdict::Pass(counter) => {
                out.extend(counter.map(Effect::Count));
                self.phase = Phase::Pass;
            }
            Verdict::Refuse(chosen, refusal) => self.refuse(chosen, None, refusal, now, out),
            Verdict::Gather(gather) => self.phase = Phase::Gather(gather),
            Verdict::Evaluate(gather) => self.evaluate(*gather, Vec::new(), false, now, out),
        }
    }

    /// Larger than what observing may hold back, and not known to be larger than what the rule takes:
    /// nothing can be said of it.
    pub(super) fn pass_unobserved(&mut self, chosen: Option<Chosen>, out: &mut Vec<Effect>) {
        if let Some(rule) = chosen.and_then(|c| self.route(c.index)) {
            out.push(Effect::Show(Field::Route, rule.id.clone()));
        }
        out.push(Effect::Count(Counter::Bypass(Bypass::Unobserved)));
        out.push(Effect::Show(Field::Outcome, "unobserved".to_owned()));
        self.phase = Phase::Pass;
    }

    /// The body does not come although the client sends it: none of it where the host holds body
    /// callbacks back while headers are held, no more of it where the host's buffer is full. Only a setting of
    /// the host helps. `told`: the log says so already.
    pub fn on_body_withheld(&mut self, told: bool, now: Moment, out: &mut Vec<Effect>) {
        let Some(gather) = self.take_gather() else {
            return;
        };
        if !gather.body.is_empty() && self.observes(&gather) {
            return self.pass_unobserved(gather.route, out);
        }
        let (reason, help) = if gather.body.is_empty() {
            (
                "body_withheld",
                "no body callback while the headers are held: set \
                 allow_on_headers_stop_iteration: true in the plugin's configuration",
            )
        } else {
            (
                "body_stalled",
                "a body stopped coming that is longer than any before: set \
                 per_connection_buffer_limit_bytes of the listener above 1 MiB",
            )
        };
        if !told {
            out.push(Effect::Log(Level::Error, help.to_owned()));
        }
        self.refuse(
            gather.route,
            None,
            Refusal::because(Code::Misconfigured, reason),
            now,
            out,
        );
    }

    /// Whether the body is awaited only to observe it: then nobody may notice the wait.
    #[must_use]
    pub fn gathers_to_observe(&self) -> bool {
        match &self.phase {
            Phase::Gather(gather) => self.observes(gather),
            _ => false,
        }
    }

    pub(super) fn observes(&self, gather: &Gather) -> bool {
        // Where a rule looks into the body, any of them may turn out to be the one.
        let mode = gather.route.map_or_else(|| self.strictest(), |c| c.mode);
        mode == Mode::Observe
    }

    pub(super) fn take_gather(&mut self) -> Option<Box<Gather>> {
        match std::mem::take(&mut self.phase) {
            Phase::Gather(gather) => Some(gather),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// A valid signature of this namespace: another idempo, or an earlier pass, holds the claim.
    fn signed(&self, headers: &Headers, now: Moment) -> bool {
        self.policy.signer.as_ref().is_some_and(|signer| {
            let verification = signer.verify(
                headers,
                headers.method(),
                headers.path_and_query(),
                now.wall_ms() / 1000,
            );
            verification == Verification::Valid
        })
    }

    /// `off` everywhere is the kill switch: nothing at all is done.
    fn plays_any_part(&self, metadata: &RouteMetadata) -> bool {
        let plan = &self.policy.plan;
        let on = |mode: Mode| mode != Mode::Off;
        metadata.mode.map_or_else(
            || on(plan.mode) || plan.routes.iter().any(|r| r.mode.is_some_and(on)),
            on,
        )
    }

    fn judge_headers(
        &self,
        headers: Headers,
        end: bool,
        metadata: RouteMetadata,
        envoy_route: Option<String>,
        facts: &dyn Facts,
    ) -> Verdict {
        if route::passes_untouched(&headers) {
            return Verdict::Pass(Some(Counter::Bypass(Bypass::Protocol)));
        }
        if let Some(member) = metadata.odd {
            return Verdict::Refuse(None, Refusal::because(Code::Misconfigured, member));
        }
        let plan = &self.policy.plan;
        let safe = route::is_safe_method(headers.method());
        let query = RouteQuery {
            headers: &headers,
            envoy_route_name: envoy_route.as_deref(),
            body: None,
        };
        if route::method_override(&headers).is_some() {
            let named = || route::by_metadata(plan, metadata.route.as_deref()?);
            let evaded = route::hidden_write(plan, &query).or_else(named);
            let chosen = evaded.map(|index| self.choose(index));
            let demanded = metadata.route.is_some() || metadata.requires == Some(true);
            if chosen.map_or(demanded, |c| c.mode != Mode::Off) {
                return Verdict::Refuse(chosen, Refusal::new(Code::MethodOverride));
            }
        }
        if metadata.requires == Some(false) {
            return Verdict::Pass((!safe).then_some(Counter::Bypass(Bypass::RouteOptOut)));
        }
        let requires_key = metadata.requires == Some(true);
        let selection = match &metadata.route {
            Some(_) if safe => Selection::None,
            Some(name) => match route::by_metadata(plan, name) {
                Some(index) => Selection::Route(index),
                None => {
                    let refusal = Refusal::because(Code::Misconfigured, "unknown_rule");
                    return Verdict::Refuse(None, refusal);
                }
            },
            None => route::select(plan, &query),
        };
        let mut gather = Gather {
            headers,
            route: None,
            envoy_route,
            requires_key,
            may_hold_key: false,
            key_in_body: false,
            body: Vec::new(),
            facts: CallerFacts::default(),
        };
        match selection {
            Selection::None if safe => Verdict::Pass(None),
            Selection::None if requires_key => {
                Verdict::Refuse(None, Refusal::because(Code::Misconfigured, "no_rule"))
            }
            Selection::None => Verdict::Pass(Some(Counter::UnmatchedWrite)),
            Selection::Unnormalisable(_) => {
                Verdict::Refuse(None, Refusal::new(Code::PathAmbiguous))
            }
            Selection::NeedsBody => {
                gather.read_facts(plan, facts);
                if end {
                    Verdict::Evaluate(Box::new(gather))
                } else {
                    Verdict::Gather(Box::new(gather))
                }
            }
            Selection::Route(index) => {
                gather.read_facts(plan, facts);
                self.judge_route(gather, index, end)
            }
        }
    }

    /// The mode of what is refused although no rule is found for it: that of the strictest rule that
    /// it might be meant for, so that nothing gets around one that is enforced.
    pub(super) fn strictest(&self) -> Mode {
        let routes = 0..self.policy.plan.routes.len();
        routes.fold(Mode::Off, |strictest, index| {
            match (strictest, self.choose(index).mode) {
                (Mode::Enforce, _) | (_, Mode::Enforce) => Mode::Enforce,
                (Mode::Observe, _) | (_, Mode::Observe) => Mode::Observe,
                (Mode::Off, Mode::Off) => Mode::Off,
            }
        })
    }

    pub(super) fn choose(&self, index: usize) -> Chosen {
        let rule = self.route(index).and_then(|r| r.mode);
        Chosen {
            index,
            mode: self.route_mode.or(rule).unwrap_or(self.policy.plan.mode),
        }
    }

    /// What can be refused from the headers of a request whose rule is known, so that no body need
    /// be held for it.
    fn judge_route(&self, mut gather: Gather, index: usize, end: bool) -> Verdict {
        let chosen = self.choose(index);
        let Some(rule) = self.route(index) else {
            return Verdict::Pass(None);
        };
        if chosen.mode == Mode::Off {
            return Verdict::Pass(None);
        }
        gather.route = Some(chosen);
        let json = is_json(&gather.headers);
        let header = match key::from_headers(&rule.key, &gather.headers) {
            Ok(header) => header,
            Err(error) => return Verdict::Refuse(Some(chosen), error.into()),
        };
        let body_may_have_key = !end && json && rule.key.body_field.is_some();
        if header.is_none() && !body_may_have_key {
            if rule.key.required || gather.requires_key {
                return Verdict::Refuse(Some(chosen), KeyError::Missing.into());
            }
            return Verdict::Pass(Some(Counter::Bypass(Bypass::NoKey)));
        }
        if let Some(Err(error)) = &gather.facts.tenant {
            return Verdict::Refuse(Some(chosen), error.into());
        }
        gather.may_hold_key = body_may_have_key;
        gather.key_in_body = body_may_have_key && header.is_none();
        let declared = upload::declared_length(&gather.headers);
        let most = rule.fingerprint.max_body;
        if let Some(limit) = most.filter(|most| declared.is_some_and(|length| length > *most)) {
            return Verdict::Refuse(Some(chosen), Refusal::too_large(limit));
        }
        if gather.key_in_body && declared.is_some_and(|length| length > CANONICAL_MAX) {
            return Verdict::Refuse(Some(chosen), Refusal::too_large(CANONICAL_MAX));
        }
        if end || !(upload::reads_body(rule) || body_may_have_key) {
            return Verdict::Evaluate(Box::new(gather));
        }
        Verdict::Gather(Box::new(gather))
    }

    /// The request is complete, or (`more`) as complete as it gets before it is claimed: to an attempt,
    /// and to its first question to the store.
    pub(super) fn evaluate(
        &mut self,
        gather: Gather,
        body: Vec<u8>,
        more: bool,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        match self.understand(gather, body, more, now) {
            Understood::Attempt(attempt) => self.ask_first(attempt, now, out),
            Understood::Pass(counter) => {
                out.extend(counter.map(Effect::Count));
                self.phase = Phase::Pass;
            }
            Understood::Refuse(chosen, refusal) => self.refuse(chosen, None, refusal, now, out),
        }
    }
}

/// Forged copies of what only the filter may say never reach an upstream, matched or not.
fn strip_forged(headers: &Headers, out: &mut Vec<Effect>) {
    let mut edits: Vec<Edit> = Vec::new();
    for (name, _) in headers.lines() {
        let edit = Edit::Remove(name.clone());
        if (trusted::is_derived(name) || trusted::is_marker(name)) && !edits.contains(&edit) {
            edits.push(edit);
        }
    }
    if !edits.is_empty() {
        out.push(Effect::Request(edits));
    }
}

impl Gather {
    fn read_facts(&mut self, plan: &Plan, facts: &dyn Facts) {
        self.facts.tenant = Some(tenant::resolve(&plan.tenant, &self.headers, facts));
        self.facts.principal = plan
            .principal
            .as_ref()
            .map(|source| tenant::principal(source, &self.headers, facts));
    }
}

/// The trace id as it may be stored, logged and sent back: visible ASCII, bounded.
fn attempt_id(value: &[u8]) -> String {
    let mut visible = value.get(..64).unwrap_or(value).to_vec();
    visible.retain(u8::is_ascii_graphic);
    String::from_utf8(visible).unwrap_or_default()
}

/// Whether the request says that its body is JSON.
pub(super) fn is_json(headers: &Headers) -> bool {
    let media = media_type(headers.first("content-type"));
    media == "application/json" || media.ends_with("+json")
}
