//! The inner pass of a detached attempt: a request that this very Envoy's filter has sent through the
//! loopback listener ([`super::detached`]), and the probes that ask whether it would arrive.
//!
//! It is no attempt of its own, so nothing is claimed. The upstream must see what an inline attempt
//! shows it, and the outer pass must learn what only this stream can know of the answer.

use super::detached::router_settings;
use super::{Edit, Effect, Exchange, Field, Moment, Origin, Phase};
use crate::http::{Headers, Line};
use crate::metrics::{Bypass, Counter};
use crate::reply::LocalReply;
use crate::trusted::{self, Inner};

impl Exchange {
    /// A valid signature of this namespace. An inner pass of this very Envoy is told by a header that
    /// only its outer pass can sign; what else is signed comes from another idempo in the path.
    pub(super) fn pass_signed(&mut self, headers: &Headers, now: Moment, out: &mut Vec<Effect>) {
        self.phase = Phase::Pass;
        let Some(kind) = headers.first(trusted::DETACHED_HEADER) else {
            out.push(Effect::Count(Counter::Bypass(Bypass::Signed)));
            out.push(Effect::Show(Field::Outcome, "signed".to_owned()));
            return;
        };
        out.push(Effect::Show(Field::Outcome, "inner".to_owned()));
        if kind == trusted::PROBE.as_bytes() {
            let report = Inner {
                details: trusted::PROBE.to_owned(),
                attempts: None,
            };
            out.push(Effect::Reply(LocalReply {
                status: 204,
                headers: vec![(trusted::INNER_HEADER.into(), report.encode())],
                body: Vec::new(),
            }));
            self.phase = Phase::Replied;
            return;
        }
        for (field, name) in [
            (Field::Operation, "x-idempo-operation"),
            (Field::Route, "x-idempo-route"),
        ] {
            let value = headers.first_str(name).unwrap_or_default();
            out.push(Effect::Show(field, value.to_owned()));
        }
        out.push(Effect::Request(self.inner_edits(headers, now)));
        self.inner = true;
    }

    /// What makes the request what an inline attempt's is: the connection manager of the inner listener
    /// may have removed the router's instructions, the host's own client used them up, and the
    /// upstream must be able to verify what it sees.
    fn inner_edits(&self, headers: &Headers, now: Moment) -> Vec<Edit> {
        let mut edits = vec![Edit::Remove(trusted::DETACHED_HEADER.into())];
        let mut own: Vec<Line> = Vec::new();
        for (name, value) in headers.lines() {
            if trusted::is_router_control(name) {
                edits.push(Edit::Remove(name.clone()));
            }
            let dropped = [trusted::DETACHED_HEADER, trusted::SIGNATURE_HEADER];
            if trusted::is_derived(name) && !dropped.iter().any(|n| name == n.as_bytes()) {
                own.push((name.clone(), value.clone()));
            }
        }
        if let Some(signer) = &self.policy.signer {
            let (method, path) = (headers.method(), headers.path_and_query());
            let signature = signer.sign(&own, method, path, now.wall_ms() / 1000);
            let name = trusted::SIGNATURE_HEADER.into();
            edits.push(Edit::Set(name, signature.into_bytes()));
        }
        let named = headers.first("x-idempo-route").unwrap_or_default();
        let mut routes = self.policy.plan.routes.iter();
        let rule = routes.find(|r| trusted::names_route(named, &r.id));
        edits.extend(router_settings(rule));
        edits
    }

    /// What the inner pass adds to an answer; a copy of it that an upstream sent is not believed.
    pub(super) fn report(headers: &Headers, origin: &Origin<'_>) -> Vec<Edit> {
        let report = Inner {
            details: origin.details.to_owned(),
            attempts: (origin.attempts)(),
        };
        let mut edits: Vec<Edit> = Vec::new();
        for (name, _) in headers.lines() {
            let edit = Edit::Remove(name.clone());
            if trusted::is_derived(name) && !edits.contains(&edit) {
                edits.push(edit);
            }
        }
        let name = trusted::INNER_HEADER.into();
        edits.push(Edit::Set(name, report.encode()));
        edits
    }
}
