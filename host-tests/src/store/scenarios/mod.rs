//! The contract as a list that every engine must pass: design.md §2 and §6, one rule each.
//!
//! Time passes in reality where a real server keeps it, so leases are either over soon or not in
//! this test's life, and nothing depends on being fast.

mod claims;
mod giving_up;
mod settling;

use super::desk::{
    Desk, LONG, SHORT, accepted, blob, closed, done, outcome, renewed, transition, unknown,
};
use idempo_core::fingerprint::{Form, Head};
use idempo_core::record::{Evidence, Outcome, Replayable, Source, State, Status, View, Windows};
use idempo_core::store::contract::claim_write;
use idempo_core::store::{Action, Claim, Fence, Full, Reply, Target};

/// Name and steps. A scenario panics where the engine breaks the rule.
pub type Scenario = (&'static str, fn(&mut Desk<'_>));

/// All of them.
pub const ALL: &[Scenario] = &[
    (
        "a claim creates, and says all of itself",
        claims::claim_creates,
    ),
    (
        "a repeated claim is yours, another is not",
        claims::repeat_is_yours,
    ),
    ("nothing is absent until it is claimed", claims::absent),
    ("a claim past its not_after is refused", claims::not_after),
    ("a quota of nothing refuses", claims::quota_of_nothing),
    ("a forgotten key begins as unknown", claims::forgotten),
    (
        "a lease that is over is written by the next claim",
        claims::lease_over,
    ),
    (
        "an owner whose lease is over still settles",
        claims::late_owner_settles,
    ),
    (
        "a renewal moves the lease and leaves no event",
        claims::renewal,
    ),
    (
        "a stale owner changes nothing by any transition",
        settling::stale_owner,
    ),
    (
        "a repeat with the same write id is already done",
        settling::repeat_is_already,
    ),
    (
        "a late answer is evidence, and stays late",
        settling::late_answer,
    ),
    (
        "another incarnation is fenced from an old version",
        settling::old_version,
    ),
    (
        "a version fence asks for version and state",
        settling::version_fence,
    ),
    ("two that race: one wins", settling::lost_race),
    (
        "an acceptance is completed by an event",
        settling::acceptance,
    ),
    (
        "an acceptance whose deadline is over is unknown",
        settling::deadline_over,
    ),
    ("a release leaves nothing", giving_up::release),
    (
        "a cancellation spares what the owner called unknown",
        giving_up::cancel_spares,
    ),
    (
        "a cancellation overtakes its claim",
        giving_up::cancel_overtakes,
    ),
    (
        "an unknown operation is taken over once",
        giving_up::take_over,
    ),
    (
        "a take-over given back is unknown again",
        giving_up::give_back,
    ),
    (
        "a give-back is one however much came after",
        giving_up::late_give_back,
    ),
    (
        "a generation rises whatever the clock does",
        giving_up::generation,
    ),
    (
        "an owner makes its lost record again",
        giving_up::lost_record,
    ),
    ("an answer is kept octet for octet", settling::answer_kept),
    (
        "an answer that was not kept is missing",
        settling::answer_missing,
    ),
    (
        "an answer that cannot be replayed is not given",
        settling::not_replayable,
    ),
    (
        "a record expires between two steps",
        claims::expires_between,
    ),
    (
        "an unsettled record expires unresolved",
        claims::expires_unresolved,
    ),
    (
        "when nothing remains, it is claimed anew",
        claims::claimed_anew,
    ),
    ("mixed outcomes in one call", settling::mixed),
    (
        "many steps on one operation keep their order",
        settling::ordered,
    ),
    ("the history stays bounded", settling::bounded_history),
    ("texts of any kind come back", settling::texts),
    (
        "a claim by a body's beginning is completed",
        claims::beginning,
    ),
];
