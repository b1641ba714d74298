//! What is refused although it has the right shape.
//!
//! [`members`] looks at each member as it was written, at its own place; [`plan`] looks at the
//! compiled whole, where members of a route, its defaults and the budgets meet.

mod contradictions;
mod names;
mod parts;
mod path;
mod rules;
mod store;
mod top;

pub(super) use path::template;

use super::error::Report;
use super::model::Config;
use crate::plan::Plan;

/// (problem, remedy).
pub(super) type Wrong = (String, String);

/// More rules than this are a generator gone astray, and each request walks them.
const MAX_ROUTES: usize = 1000;

/// Each member by itself.
pub(super) fn members(config: &Config, report: &mut Report) {
    top::check(config, report);
    if let Some(defaults) = &config.defaults {
        parts::check("defaults", defaults.parts(), report);
    }
    let routes = config.routes.as_deref().unwrap_or_default();
    if routes.is_empty() {
        report.push(
            "routes",
            "there is no route, so nothing would be protected",
            "write one such as {id: charges, match: {methods: [POST], path: {prefix: /v1/charges}}}",
        );
    }
    if routes.len() > MAX_ROUTES {
        report.push(
            "routes",
            format!("there are {} routes", routes.len()),
            format!("write {MAX_ROUTES} at most; a prefix or template can stand for many"),
        );
        return;
    }
    for (at, route) in routes.iter().enumerate() {
        rules::check(&super::error::index("routes", at), route, report);
    }
}

/// All of them together.
pub(super) fn plan(plan: &Plan, config: &Config, report: &mut Report) {
    if plan.routes.len() <= MAX_ROUTES {
        rules::together(plan, report);
        contradictions::check(plan, config, report);
    }
}

/// Reports what a check found.
fn take<T>(report: &mut Report, path: String, found: Result<T, Wrong>) {
    if let Err((problem, remedy)) = found {
        report.push(path, problem, remedy);
    }
}
