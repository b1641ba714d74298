//! Which requests change hands: a request that falls to another route gets another identity.

use super::{Changes, Kind, RERUN};
use crate::config::error::quote;
use crate::config::matching::{covers, overlap};
use crate::plan::{Plan, Route};

/// Requests that a route matched and that now fall to another route, or to none.
pub(super) fn compare(old: &Plan, new: &Plan, pairs: &[(&Route, &Route)], out: &mut Changes) {
    let place = |plan: &Plan, id: &str| plan.routes.iter().position(|r| r.id == id);
    for (before, after) in pairs {
        let path = format!("routes[{}].match", after.id);
        if before.matcher != after.matcher {
            if covers(&after.matcher, &before.matcher) {
                out.add(
                    Kind::Harmless,
                    path.clone(),
                    "matches all that it matched, and more",
                );
            } else {
                out.add(
                    Kind::Identity,
                    path.clone(),
                    format!(
                        "requests that it matched may now match another route or none, {RERUN}"
                    ),
                );
                continue;
            }
        }
        let (Some(was_at), Some(is_at)) = (place(old, &before.id), place(new, &after.id)) else {
            continue;
        };
        // A route that comes first now, and takes requests that this one had.
        let thief = new.routes.iter().take(is_at).find(|first| {
            let origin = pairs
                .iter()
                .find(|(_, a)| a.id == first.id)
                .map(|(b, _)| *b);
            let unchanged = origin.is_some_and(|o| {
                o.matcher == first.matcher && place(old, &o.id).is_some_and(|p| p < was_at)
            });
            !unchanged && overlap(&first.matcher, &before.matcher)
        });
        if let Some(thief) = thief {
            out.add(
                Kind::Identity,
                path,
                format!(
                    "{} now comes first and may take requests that this route had, {RERUN}",
                    quote(&thief.id)
                ),
            );
        }
    }
}
