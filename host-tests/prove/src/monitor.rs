//! Rule 2 once more, in other words than the step function's: each step that a store takes is judged by
//! what was there before and after, so that a store that breaks the rule is caught at once.

use idempo_core::record::{Record, State, Status, View};
use idempo_core::store::{Action, Fence, Reply, Target, Transition};

/// A write by somebody who no longer had the right.
pub(crate) const STALE: &str = "a write without the right to it succeeded";
/// A terminal state was changed.
pub(crate) const TERMINAL: &str = "a terminal record was changed";
/// An operation was given to a second owner while somebody had it.
pub(crate) const GIVEN: &str = "a claim was given that was somebody else's";
/// A version was used again.
pub(crate) const VERSION: &str = "a record changed under the same version";
/// A repeat was not recognised.
pub(crate) const REPEAT: &str = "a repeated write was not recognised";

/// What the step broke.
pub(crate) fn judge(
    before: Option<&Record>,
    action: &Action,
    after: Option<&Record>,
    reply: &Reply,
    now: u64,
) -> Option<&'static str> {
    let before = before.filter(|r| r.view(now) != View::Gone);
    let changed = before != after && !(before.is_none() && after.is_none());
    if let Some(was) = before
        && is_final(was, now)
        && after.is_none_or(|is| is.state != was.state || is.windows != was.windows)
    {
        return Some(TERMINAL);
    }
    if let (Some(was), Some(is)) = (before, after)
        && changed
        && was.version.incarnation == is.version.incarnation
        && was.version.counter >= is.version.counter
    {
        return Some(VERSION);
    }
    match action {
        Action::Read | Action::Body { .. } => changed.then_some(STALE),
        Action::Claim(claim) | Action::TakeOver { claim, .. } => {
            let given = matches!(reply, Reply::Claimed(_));
            let own = before.is_some_and(|r| r.owner() == Some(claim.owner));
            let free = match (action, before) {
                (_, None) => true,
                (Action::TakeOver { expect, .. }, Some(was)) => {
                    was.version == *expect && was.view(now).status() == Status::Unknown
                }
                _ => false,
            };
            (given && !own && !free).then_some(GIVEN)
        }
        Action::Cancel { owner } => {
            let own = before.is_some_and(|r| r.owner() == Some(*owner));
            (changed && !own).then_some(STALE)
        }
        Action::Transition(transition) => fenced(before, transition, reply, now),
    }
}

fn is_final(record: &Record, now: u64) -> bool {
    matches!(
        record.view(now),
        View::Completed(_) | View::Closed { .. } | View::Expired { .. }
    )
}

fn fenced(
    before: Option<&Record>,
    transition: &Transition,
    reply: &Reply,
    now: u64,
) -> Option<&'static str> {
    let was = before?;
    if !matches!(reply, Reply::Applied(_)) {
        return None;
    }
    let had_right = match &transition.fence {
        Fence::Owner { claim, .. } => was.owner() == Some(claim.owner),
        Fence::Version { version, from } => {
            was.version == *version && from.contains(&was.view(now).status())
        }
    };
    // A renewal is the owner's alone, and of what is pending.
    let renews = matches!(transition.to, Target::Renewed { .. });
    let fits = !renews || matches!(was.state, State::Pending { .. });
    (!had_right || !fits).then_some(STALE)
}
