//! Everything that is told of a request, as data.

use super::drive::{Fake, Run, drive};
use super::reading::{self, key_time, principal_note, read_key, tenant_note};
use super::request::Request;
use super::rules::{self, RuleNote};
use super::states::{self, Row};
use idempo_core::config;
use idempo_core::exchange::{Edit, Moment, Policy};
use idempo_core::fingerprint::{self, Fingerprint};
use idempo_core::metrics::Bypass;
use idempo_core::plan::{Plan, Route};
use idempo_core::route::{self, RouteQuery, Selection};
use idempo_core::tenant::{self, Facts as _};
use idempo_core::trusted::is_derived;
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// The report.
#[derive(Serialize)]
pub(crate) struct Findings {
    pub(crate) method: String,
    /// As rules are compared with it; the reason where it has no single reading.
    pub(crate) path: PathNote,
    pub(crate) rules: Vec<RuleNote>,
    pub(crate) rule: Option<String>,
    pub(crate) mode: Option<ModeNote>,
    pub(crate) key: Option<KeyNote>,
    pub(crate) key_time: Option<Told>,
    pub(crate) tenant: Option<ValueNote>,
    pub(crate) principal: Option<ValueNote>,
    /// Its id, where the request gets as far as that.
    pub(crate) operation: Option<String>,
    /// The ids that are looked up first, by the route's `previous`.
    pub(crate) previous: Vec<PreviousNote>,
    pub(crate) fingerprint: Option<FingerprintNote>,
    pub(crate) upstream: Option<UpstreamNote>,
    /// Where the store is never asked: what happens instead.
    pub(crate) at_once: Option<AtOnce>,
    pub(crate) states: Vec<Row>,
}

#[derive(Serialize)]
pub(crate) struct PathNote {
    pub(crate) normalised: Option<String>,
    pub(crate) problem: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct ModeNote {
    pub(crate) mode: &'static str,
    /// Where it is said.
    pub(crate) from: &'static str,
    pub(crate) enforce_fraction: f64,
    /// What applies to this operation, after the roll-out's share.
    pub(crate) applies: Option<&'static str>,
}

#[derive(Serialize)]
pub(crate) struct KeyNote {
    pub(crate) required: bool,
    pub(crate) places: Vec<PlaceNote>,
    pub(crate) problem: Option<Problem>,
    /// SHA-256, as the upstream is told.
    pub(crate) hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct PlaceNote {
    pub(crate) place: String,
    pub(crate) written: Option<&'static str>,
    pub(crate) format: Option<&'static str>,
    pub(crate) length: Option<usize>,
    pub(crate) problem: Option<Problem>,
}

#[derive(Serialize)]
pub(crate) struct Problem {
    pub(crate) code: String,
    pub(crate) reason: Option<&'static str>,
    pub(crate) text: String,
}

#[derive(Serialize)]
pub(crate) struct Told {
    pub(crate) ok: bool,
    pub(crate) text: String,
}

#[derive(Serialize)]
pub(crate) struct ValueNote {
    /// Which sources give it.
    pub(crate) from: Vec<String>,
    pub(crate) digest: Option<String>,
    pub(crate) problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct PreviousNote {
    pub(crate) route: String,
    pub(crate) operation: String,
}

#[derive(Serialize)]
pub(crate) struct FingerprintNote {
    pub(crate) digest: String,
    pub(crate) algorithm: &'static str,
    pub(crate) form: &'static str,
    pub(crate) version: u8,
    pub(crate) length: u64,
    pub(crate) media_type: String,
    /// Digest of what decides which parts are bound.
    pub(crate) settings: String,
    pub(crate) parts: Vec<PartNote>,
}

#[derive(Serialize)]
pub(crate) struct PartNote {
    pub(crate) name: String,
    pub(crate) length: u64,
    pub(crate) digest: String,
}

#[derive(Serialize)]
pub(crate) struct UpstreamNote {
    pub(crate) set: Vec<(String, String)>,
    pub(crate) removed: Vec<String>,
    /// What depends on the proxy and is not computed here.
    pub(crate) notes: Vec<String>,
}

#[derive(Serialize)]
pub(crate) struct AtOnce {
    pub(crate) text: String,
    #[serde(flatten)]
    pub(crate) row: Row,
}

/// Finds out.
pub(crate) fn find(plan: Plan, request: &Request, now: Moment, show: bool) -> Findings {
    let policy = Arc::new(Policy {
        plan,
        signer: None,
        proxy: String::new(),
        remembers_since: None,
    });
    let plan = &policy.plan;
    let run = drive(&policy, request, &mut Fake::default(), now);
    let id = run.route.clone().or_else(|| selected(plan, request));
    let rule = id.as_deref().and_then(|id| plan.route(id));
    let key = rule.map(|rule| read_key(rule, request));
    let settled = key.as_ref().and_then(|(_, key)| key.clone());
    let claim = run.claim.as_ref();
    let (states, at_once) = match (claim, rule) {
        (Some((_, claim)), Some(rule)) => (states::table(&policy, request, claim, rule, now), None),
        _ => (Vec::new(), Some(at_once(&run))),
    };
    Findings {
        method: lossy(request.headers.method()),
        path: path_note(request),
        rules: rules::notes(plan, request, rule.map(|r| r.id.as_str())),
        mode: rule.map(|rule| mode_note(plan, rule, request, &run)),
        key: key.map(|(mut note, key)| {
            note.value = key.filter(|_| show).map(|k| lossy(k.as_bytes()));
            reading::blame_body(&mut note, at_once.as_ref());
            note
        }),
        key_time: rule
            .zip(settled.as_ref())
            .and_then(|(rule, key)| key_time(rule, key, request, now)),
        tenant: rule.map(|_| tenant_note(&plan.tenant, request, show)),
        principal: rule
            .and(plan.principal.as_ref())
            .map(|source| principal_note(source, request, claim.map(|c| &c.1.fingerprint), show)),
        operation: claim.map(|(operation, _)| operation.hex()),
        previous: rule.map_or_else(Vec::new, |rule| previous(rule, &run)),
        fingerprint: claim
            .zip(rule)
            .map(|((_, claim), rule)| fingerprint_note(plan, rule, request, &claim.fingerprint)),
        upstream: claim.map(|_| upstream_note(plan, &run, show)),
        at_once,
        states,
        rule: id,
    }
}

/// Where the run itself does not say which rule it was, because the request passes.
fn selected(plan: &Plan, request: &Request) -> Option<String> {
    let metadata = metadata(request, "route");
    if let Some(name) = metadata {
        return route::by_metadata(plan, &name).map(|_| name);
    }
    let body = config::json_value(&request.body).unwrap_or(Value::Null);
    let envoy_route = request.properties.property(&["xds", "route_name"]);
    let envoy_route = envoy_route.and_then(|n| String::from_utf8(n).ok());
    let query = RouteQuery {
        headers: &request.headers,
        envoy_route_name: envoy_route.as_deref().filter(|n| !n.is_empty()),
        body: Some(&body),
    };
    match route::select(plan, &query) {
        Selection::Route(index) => plan.routes.get(index).map(|r| r.id.clone()),
        _ => None,
    }
}

fn metadata(request: &Request, name: &str) -> Option<String> {
    let path = ["xds", "route_metadata", "filter_metadata", "idempo", name];
    let value = request.properties.property(&path)?;
    String::from_utf8(value).ok().filter(|v| !v.is_empty())
}

fn path_note(request: &Request) -> PathNote {
    match route::normalise_path(request.headers.split_path().0) {
        Ok(path) => PathNote {
            normalised: Some(lossy(&path)),
            problem: None,
        },
        Err(flaw) => PathNote {
            normalised: None,
            problem: Some(flaw.to_string()),
        },
    }
}

fn mode_note(plan: &Plan, rule: &Route, request: &Request, run: &Run) -> ModeNote {
    let by_metadata = metadata(request, "mode").and_then(|m| match m.as_str() {
        "enforce" => Some("enforce"),
        "observe" => Some("observe"),
        "off" => Some("off"),
        _ => None,
    });
    let (mode, from) = match (by_metadata, rule.mode) {
        (Some(mode), _) => (mode, "Envoy route metadata"),
        (None, Some(mode)) => (crate::mode_name(mode), "the rule"),
        (None, None) => (crate::mode_name(plan.mode), "the top of the configuration"),
    };
    // Only an enforced attempt tells the upstream about itself.
    let derived = |edit: &Edit| matches!(edit, Edit::Set(name, _) if is_derived(name));
    let applies = run.claim.as_ref().map(|_| {
        if run.edits.iter().any(derived) {
            "enforce"
        } else {
            "observe"
        }
    });
    ModeNote {
        mode,
        from,
        enforce_fraction: plan.enforce_fraction,
        applies,
    }
}

fn previous(rule: &Route, run: &Run) -> Vec<PreviousNote> {
    let pairs = rule.previous.iter().zip(&run.previous);
    pairs
        .map(|(was, operation)| PreviousNote {
            route: was.id.clone(),
            operation: operation.hex(),
        })
        .collect()
}

fn fingerprint_note(
    plan: &Plan,
    rule: &Route,
    request: &Request,
    fingerprint: &Fingerprint,
) -> FingerprintNote {
    let principal = plan.principal.as_ref().and_then(|source| {
        tenant::principal(source, &request.headers, &request.properties)
            .ok()
            .flatten()
    });
    let raw = request.headers.split_path().0;
    let path = route::normalise_path(raw).unwrap_or(Cow::Borrowed(raw));
    let parts = fingerprint::parts(
        &rule.fingerprint,
        &fingerprint::Request {
            headers: &request.headers,
            canonical_path: &path,
            principal: principal.as_deref(),
            body: &request.body,
        },
    );
    FingerprintNote {
        digest: hex::encode(fingerprint.digest),
        algorithm: fingerprint.algorithm.as_str(),
        form: fingerprint.form.as_str(),
        version: fingerprint.version,
        length: fingerprint.length,
        media_type: fingerprint.media_type.clone(),
        settings: hex::encode(fingerprint.settings),
        parts: parts
            .unwrap_or_default()
            .into_iter()
            .map(|part| PartNote {
                name: part.name,
                length: part.length,
                digest: hex::encode(part.digest),
            })
            .collect(),
    }
}

fn upstream_note(plan: &Plan, run: &Run, show: bool) -> UpstreamNote {
    let mut note = UpstreamNote {
        set: Vec::new(),
        removed: Vec::new(),
        notes: Vec::new(),
    };
    for edit in &run.edits {
        match edit {
            Edit::Remove(name) => {
                let name = lossy(name);
                if !note.removed.contains(&name) {
                    note.removed.push(name);
                }
            }
            Edit::Set(name, value) => {
                let hidden = name == b"x-idempo-tenant" && !show;
                let value = if hidden {
                    "(the tenant)".to_owned()
                } else {
                    lossy(value)
                };
                note.set.push((lossy(name), value));
            }
        }
    }
    if !note.set.is_empty() {
        note.notes
            .push("x-idempo-proxy: Envoy's node id".to_owned());
        if plan.signing.is_some() {
            note.notes
                .push("x-idempo-signature: made with the proxy's secret".to_owned());
        }
    }
    note
}

fn at_once(run: &Run) -> AtOnce {
    let row = states::row("any", run);
    let observed = run
        .outcome
        .as_deref()
        .is_some_and(|o| o.starts_with("would_"));
    let text = match (&run.reply, run.bypass) {
        (Some(_), _) => "refused before the store is asked",
        (None, _) if observed => "would be refused; in observe mode it passes",
        (None, Some(Bypass::Protocol)) => "gRPC, CONNECT and upgrades pass unclaimed",
        (None, Some(Bypass::NoKey)) => "no key, and none is required: passes unclaimed",
        (None, Some(Bypass::RouteOptOut)) => {
            "the Envoy route's metadata says that it needs none: passes unclaimed"
        }
        (None, Some(Bypass::Unobserved)) => "larger than what observing holds back: passes",
        (None, Some(_)) => "passes unclaimed",
        (None, None) if run.unmatched_write => {
            "a write that no rule is for: passes unclaimed, counted"
        }
        (None, None) => "passes untouched",
    };
    AtOnce {
        text: text.to_owned(),
        row,
    }
}

/// Text for a terminal: no control characters, whatever the octets.
pub(super) fn lossy(octets: &[u8]) -> String {
    let text = String::from_utf8_lossy(octets);
    text.chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = escaped.is_none().then_some(c);
            plain.into_iter().chain(escaped.into_iter().flatten())
        })
        .collect()
}
