//! Which rule, and why not the others.
//!
//! A rule is taken apart: each of its conditions alone, as a plan of one rule, is put before the
//! core's own selection.

use super::request::Request;
use idempo_core::config;
use idempo_core::plan::{Matcher, PathMatch, Plan, Route};
use idempo_core::route::{self, RouteQuery, Selection};
use serde::Serialize;
use serde_json::Value;

/// One rule against the request.
#[derive(Serialize)]
pub(crate) struct RuleNote {
    pub(crate) id: String,
    pub(crate) selected: bool,
    /// Conditions that do not hold; empty for the selected one.
    pub(crate) because: Vec<String>,
}

/// Looks at every rule.
pub(crate) fn notes(plan: &Plan, request: &Request, selected: Option<&str>) -> Vec<RuleNote> {
    let chosen = plan
        .routes
        .iter()
        .position(|r| Some(r.id.as_str()) == selected);
    let note = |(index, rule): (usize, &Route)| {
        let selected = chosen == Some(index);
        let because = if selected {
            Vec::new()
        } else {
            because(plan, rule, request, chosen.is_some_and(|c| c < index))
        };
        RuleNote {
            id: rule.id.clone(),
            selected,
            because,
        }
    };
    plan.routes.iter().enumerate().map(note).collect()
}

fn because(plan: &Plan, rule: &Route, request: &Request, after: bool) -> Vec<String> {
    let matcher = &rule.matcher;
    if matcher.metadata_only {
        return vec!["only Envoy route metadata selects it".to_owned()];
    }
    let method = String::from_utf8_lossy(request.headers.method()).into_owned();
    // Not restricted: the request's own.
    let any = Matcher {
        methods: vec![method],
        ..Matcher::default()
    };
    let mut parts = vec![(
        if matcher.methods.is_empty() {
            "method: not one that writes".to_owned()
        } else {
            format!("method: not {}", matcher.methods.join(", "))
        },
        Matcher {
            methods: matcher.methods.clone(),
            ..Matcher::default()
        },
    )];
    if let Some(host) = &matcher.host {
        let alone = Matcher {
            host: Some(host.clone()),
            ..any.clone()
        };
        parts.push((format!("host: not {host}"), alone));
    }
    if let Some(path) = &matcher.path {
        let alone = Matcher {
            path: Some(path.clone()),
            ..any.clone()
        };
        parts.push((format!("path: not {}", shown(path)), alone));
    }
    if let Some(name) = &matcher.route_name {
        let alone = Matcher {
            route_name: Some(name.clone()),
            ..any.clone()
        };
        parts.push((format!("Envoy route: not {name}"), alone));
    }
    if let Some(body) = &matcher.body {
        let text = format!("body: {} is not {:?}", body.pointer, body.exact);
        let alone = Matcher {
            body: Some(body.clone()),
            ..any.clone()
        };
        parts.push((text, alone));
    }
    let mut because: Vec<String> = parts
        .into_iter()
        .filter_map(
            |(text, matcher)| match alone(plan, rule, matcher, request) {
                Selection::None => Some(text),
                Selection::Unnormalisable(flaw) => {
                    Some(format!("{flaw}, and so perhaps meets {text}"))
                }
                Selection::Route(_) | Selection::NeedsBody => None,
            },
        )
        .collect();
    if because.is_empty() && after {
        because.push("an earlier rule matched".to_owned());
    }
    if because.is_empty() {
        because.push("not reached".to_owned());
    }
    because
}

fn alone(plan: &Plan, rule: &Route, matcher: Matcher, request: &Request) -> Selection {
    let one = Plan {
        routes: vec![Route {
            matcher,
            ..rule.clone()
        }],
        ..plan.clone()
    };
    let body = config::json_value(&request.body).unwrap_or(Value::Null);
    let name = envoy_route(request);
    route::select(
        &one,
        &RouteQuery {
            headers: &request.headers,
            envoy_route_name: name.as_deref(),
            body: Some(&body),
        },
    )
}

fn envoy_route(request: &Request) -> Option<String> {
    use idempo_core::tenant::Facts as _;
    let name = request.properties.property(&["xds", "route_name"])?;
    String::from_utf8(name).ok().filter(|n| !n.is_empty())
}

fn shown(path: &PathMatch) -> String {
    use idempo_core::plan::Segment;
    match path {
        PathMatch::Exact(path) => format!("exactly {path}"),
        PathMatch::Prefix(path) => format!("under {path}"),
        PathMatch::Template(segments) => segments.iter().fold(String::new(), |out, s| match s {
            Segment::Literal(text) => format!("{out}/{text}"),
            Segment::Variable(name) => format!("{out}/{{{name}}}"),
        }),
    }
}
