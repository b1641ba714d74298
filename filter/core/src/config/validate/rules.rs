//! Rules: their ids, what they match, and whether each can be reached.

use super::{names, parts, path, take};
use crate::config::error::{Report, index, join, quote};
use crate::config::matching;
use crate::config::model::{Match, PathMatch, Route};
use crate::order::repeated;
use crate::plan::Plan;

/// One rule by itself.
pub(super) fn check(at: &str, route: &Route, report: &mut Report) {
    match &route.id {
        None => report.missing(at, "id", "write a stable id, such as id: charges"),
        Some(id) => take(report, join(at, "id"), names::route_id(id)),
    }
    for (i, previous) in route.previous.iter().flatten().enumerate() {
        let path = index(&join(at, "previous"), i);
        match &previous.id {
            None => report.missing(&path, "id", "write the id that the route had"),
            Some(id) => take(report, join(&path, "id"), names::route_id(id)),
        }
        if let Some(default) = &previous.tenant_default {
            take(
                report,
                join(&path, "tenant_default"),
                names::visible(default, 255),
            );
        }
    }
    match &route.r#match {
        None => report.missing(
            at,
            "match",
            "write what the rule is for, such as match: {methods: [POST], path: {prefix: /v1/charges}}",
        ),
        Some(matcher) => matches(&join(at, "match"), matcher, report),
    }
    parts::check(at, route.parts(), report);
}

fn matches(at: &str, m: &Match, report: &mut Report) {
    let has_part = m.methods.is_some()
        || m.host.is_some()
        || m.path.is_some()
        || m.route_name.is_some()
        || m.body.is_some();
    let metadata_only = m.metadata_only == Some(true);
    if metadata_only && has_part {
        report.push(
            join(at, "metadata_only"),
            "a rule that only metadata selects looks at no request, so its other parts do nothing",
            "leave either metadata_only or the other parts out",
        );
    }
    if !metadata_only && !has_part && !report.has_unread_within(at) {
        report.push(
            at,
            "is empty, which would match every write",
            "write methods or a path, or metadata_only: true where Envoy route metadata selects the rule",
        );
    }
    if let Some(methods) = &m.methods {
        let at = join(at, "methods");
        for (i, method) in methods.iter().enumerate() {
            take(report, index(&at, i), names::method(method));
        }
        if methods.is_empty() {
            report.push(
                at,
                "names no method",
                "leave it out for every method that writes",
            );
        } else if let Some(i) = repeated(methods) {
            report.push(index(&at, i), "is there already", "name each method once");
        }
    }
    if let Some(host) = &m.host {
        take(report, join(at, "host"), names::host(host));
    }
    if let Some(p) = &m.path {
        path_match(&join(at, "path"), p, report);
    }
    if let Some(name) = &m.route_name {
        take(report, join(at, "route_name"), names::visible(name, 256));
    }
    if let Some(body) = &m.body {
        let at = join(at, "body");
        match &body.pointer {
            None => report.missing(&at, "pointer", "write a JSON Pointer such as /method"),
            Some(pointer) => take(report, join(&at, "pointer"), names::pointer(pointer)),
        }
        if body.exact.is_none() {
            report.missing(&at, "exact", "write the string that must stand there");
        }
    }
}

fn path_match(at: &str, p: &PathMatch, report: &mut Report) {
    const FORMS: &str =
        "write one of {exact: /path}, {prefix: /path} and {template: \"/path/{id}\"}";
    let written = [p.exact.is_some(), p.prefix.is_some(), p.template.is_some()];
    match written.into_iter().filter(|w| *w).count() {
        0 if !report.has_unread_within(at) => report.push(at, "names no path", FORMS),
        0 | 1 => {}
        _ => report.push(at, "names several forms of path", FORMS),
    }
    if let Some(text) = &p.exact {
        take(report, join(at, "exact"), path::exact(text));
    }
    if let Some(text) = &p.prefix {
        take(report, join(at, "prefix"), path::prefix(text));
    }
    if let Some(text) = &p.template {
        take(report, join(at, "template"), path::template(text));
    }
}

/// What rules have to do with each other.
pub(super) fn together(plan: &Plan, report: &mut Report) {
    for (i, route) in plan.routes.iter().enumerate() {
        let at = index("routes", i);
        let earlier = || plan.routes.iter().take(i).enumerate();
        if let Some((j, _)) = earlier().find(|(_, e)| !route.id.is_empty() && e.id == route.id) {
            report.push(
                join(&at, "id"),
                format!("{} is the id of routes[{j}] already", quote(&route.id)),
                "give each route its own id; it is part of every operation's identity",
            );
        }
        previous(plan, i, report);
        if report.has_unread_within(&at) {
            continue;
        }
        let hidden = earlier().find(|(j, e)| {
            !e.matcher.metadata_only
                && !report.has_unread_within(&index("routes", *j))
                && matching::covers(&e.matcher, &route.matcher)
        });
        if let Some((j, by)) = hidden {
            report.push(
                join(&at, "match"),
                format!(
                    "can never be reached: routes[{j}] ({}) matches first whatever this one matches",
                    quote(&by.id)
                ),
                format!("move it before routes[{j}], narrow that one, or write metadata_only: true"),
            );
        }
    }
}

fn previous(plan: &Plan, at: usize, report: &mut Report) {
    let Some(route) = plan.routes.get(at) else {
        return;
    };
    for (i, was) in route.previous.iter().enumerate() {
        let path = format!("routes[{at}].previous[{i}].id");
        let default = was.tenant_default.as_ref().unwrap_or(&plan.tenant.default);
        if was.id.is_empty() {
            continue;
        }
        if was.id == route.id && *default == plan.tenant.default {
            report.push(
                path,
                "names the route itself",
                "name the id that it had before, or state the tenant_default of then where only that has changed",
            );
        } else if was.id != route.id && plan.route(&was.id).is_some() {
            report.push(
                path,
                format!("{} is the id of a route that still exists", quote(&was.id)),
                "name an id that is no longer in use",
            );
        } else if route.previous.iter().take(i).any(|p| p == was) {
            report.push(path, "is there already", "name each earlier identity once");
        }
    }
}
