//! Which rule is a request for?
//!
//! | module | what it does |
//! |---|---|
//! | `path` | one spelling per path |
//! | `loose` | the ways in which some server might read it nevertheless |
//! | `matcher` | one rule against one request |
//! | `guard` | safe methods, method overrides, what passes untouched |
//!
//! Rules are tried in order and the first match wins. This runs for every request, so a plain path
//! costs one pass and no allocation.
//!
//! **Paths without a single reading.** A write must not get around a rule by a spelling that the
//! upstream undoes, and traffic that no rule covers must not break. So a path that cannot be
//! normalised, or that holds escapes or `;parameters`, is matched in every reading that a server is
//! known to make of it (`loose`). If none of them meets a rule, the request passes as unmatched. If
//! one does, and the normal form did not lead to that rule or an earlier one, the answer is
//! [`Selection::Unnormalisable`], to be refused with 400. A rule that takes any path is met whatever
//! the path means, so it is selected. Rule patterns are expected in normal form themselves.
//!
//! **Body matches.** A rule may depend on a JSON body. Until the body is there the answer is
//! [`Selection::NeedsBody`], if the rest of the rule holds and no earlier rule matched. The media type
//! is not asked: servers parse JSON under other names, so try to parse whatever came, and hand in
//! `null` for a complete body that is no JSON.

mod guard;
mod loose;
mod matcher;
mod path;

pub use guard::{is_safe_method, method_override, passes_untouched};
pub use path::{PathError, normalise_path};

use crate::http::Headers;
use crate::plan::{Matcher, PathMatch, Plan};
use serde_json::Value;

/// What a selection looks at. No `Debug`: a body is a payload.
#[derive(Clone, Copy)]
pub struct RouteQuery<'a> {
    /// The request headers.
    pub headers: &'a Headers,
    /// The name of the Envoy route that was chosen, where the host tells.
    pub envoy_route_name: Option<&'a str>,
    /// The parsed body; `None`: not complete yet; `Value::Null`: complete, but no JSON.
    pub body: Option<&'a Value>,
}

/// The outcome. Indices are those of [`Plan::routes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// This rule.
    Route(usize),
    /// The first rule that could match looks into the body, which is not there yet.
    NeedsBody,
    /// No rule: the request passes, and is counted if it writes.
    None,
    /// Some reading of the path meets a rule, and the path has more than one: refuse.
    Unnormalisable(PathError),
}

/// Selects the rule for a request.
#[must_use]
pub fn select(plan: &Plan, query: &RouteQuery<'_>) -> Selection {
    let request = Request::new(query);
    let raw = query.headers.split_path().0;
    let (strict, flaw) = match normalise_path(raw) {
        Ok(normal) => {
            let hit = request.first(plan, |form| matcher::path(form, &normal));
            if !loose::may_differ(&normal) {
                return hit.map_or(Selection::None, Hit::selection);
            }
            (hit, PathError::Ambiguous)
        }
        Err(flaw) => (None, flaw),
    };
    let loosely = loose::readings(raw)
        .iter()
        .filter_map(|reading| request.first(plan, |form| loose::matches(form, reading)))
        .min_by_key(|hit| hit.index);
    match (strict, loosely) {
        (Some(hit), Some(other)) if other.index >= hit.index => hit.selection(),
        (Some(hit), None) => hit.selection(),
        (_, Some(other)) if other.needs_body || other.any_path => other.selection(),
        (_, Some(_)) => Selection::Unnormalisable(flaw),
        (None, None) => Selection::None,
    }
}

/// The rule that a method override would get around: to be refused, whatever the method says.
///
/// Looks at host, Envoy route name and path in every reading, and neither at the method, which is
/// what the request lies about, nor at the body. `None` where nothing is overridden. For a rule
/// selected by metadata ask [`method_override`] alone.
#[must_use]
pub fn hidden_write(plan: &Plan, query: &RouteQuery<'_>) -> Option<usize> {
    method_override(query.headers)?;
    let request = Request {
        method: None,
        body: Body::Ignored,
        ..Request::new(query)
    };
    let raw = query.headers.split_path().0;
    let strict = normalise_path(raw)
        .ok()
        .and_then(|normal| request.first(plan, |form| matcher::path(form, &normal)));
    strict
        .or_else(|| {
            loose::readings(raw)
                .iter()
                .find_map(|reading| request.first(plan, |form| loose::matches(form, reading)))
        })
        .map(|hit| hit.index)
}

/// The rule that Envoy route metadata names.
#[must_use]
pub fn by_metadata(plan: &Plan, name: &str) -> Option<usize> {
    plan.routes.iter().position(|route| route.id == name)
}

/// What of a query every rule is compared with, read once.
struct Request<'a> {
    /// `None`: any.
    method: Option<&'a [u8]>,
    host: &'a [u8],
    envoy_route_name: Option<&'a str>,
    body: Body<'a>,
}

#[derive(Clone, Copy)]
enum Body<'a> {
    Ignored,
    Awaited,
    Json(&'a Value),
}

/// The first rule that matches, or that would if the body does.
#[derive(Clone, Copy)]
struct Hit {
    index: usize,
    needs_body: bool,
    any_path: bool,
}

impl Hit {
    fn selection(self) -> Selection {
        if self.needs_body {
            Selection::NeedsBody
        } else {
            Selection::Route(self.index)
        }
    }
}

impl<'a> Request<'a> {
    fn new(query: &RouteQuery<'a>) -> Self {
        Self {
            method: Some(query.headers.method()),
            host: matcher::host_of(query.headers.authority()),
            envoy_route_name: query.envoy_route_name,
            body: query.body.map_or(Body::Awaited, Body::Json),
        }
    }

    fn first(&self, plan: &Plan, path: impl Fn(&PathMatch) -> bool) -> Option<Hit> {
        plan.routes
            .iter()
            .enumerate()
            .filter(|(_, route)| !route.matcher.metadata_only)
            .find_map(|(index, route)| {
                let needs_body = self.matches(&route.matcher, &path)?;
                Some(Hit {
                    index,
                    needs_body,
                    any_path: matcher::takes_any_path(route.matcher.path.as_ref()),
                })
            })
    }

    /// `None`: no; otherwise whether the body has yet to agree.
    fn matches(&self, rule: &Matcher, path: impl Fn(&PathMatch) -> bool) -> Option<bool> {
        let holds = self
            .method
            .is_none_or(|m| matcher::method(&rule.methods, m))
            && rule
                .host
                .as_ref()
                .is_none_or(|h| matcher::host(h, self.host))
            && (rule.route_name.is_none() || rule.route_name.as_deref() == self.envoy_route_name)
            && rule.path.as_ref().is_none_or(path);
        match (&rule.body, self.body) {
            _ if !holds => None,
            (None, _) | (_, Body::Ignored) => Some(false),
            (Some(_), Body::Awaited) => Some(true),
            (Some(rule), Body::Json(body)) => matcher::body(rule, body).then_some(false),
        }
    }
}

#[cfg(test)]
mod tests;
