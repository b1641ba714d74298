//! Worlds in which a property must fail: a fence is missing, or duplicates are what the rule accepts. A
//! checker that found nothing there would find nothing anywhere.

use crate::fence::Fence;
use crate::model::{KEPT, NEVER_SENT, NO_STALE, ONE_EFFECT, TERMINAL};
use crate::scenarios::*;
use crate::setup::{Budget, Setup, policy};
use serde_json::json;

/// In which world a fence is taken away, and which property then fails.
#[must_use]
pub fn without(fence: Fence) -> (Setup, &'static str) {
    use Fence::*;
    let (world, property) = match fence {
        AtomicClaim => (plain(), ONE_EFFECT),
        TakeOverVersion => (forwarded(), NO_STALE),
        OwnerToken => (taken_over(), NO_STALE),
        ExpectedVersion => (settling(), NO_STALE),
        WriteId => (network(), NO_STALE),
        TerminalStays | SettlingDisowns => (settling(), TERMINAL),
        SentDecides => (departures(), ONE_EFFECT),
        OneTry => (router(), ONE_EFFECT),
        RouterContained => (contained(), ONE_EFFECT),
        GaveUpForGood | NoRecordNoRun => (network(), ONE_EFFECT),
        CancelOwn => (crowd(), ONE_EFFECT),
        CancelSent | CancelMark | CopyCancelled => (network(), NEVER_SENT),
        NotAfter => (late(), NEVER_SENT),
        WriteWaits => (network(), KEPT),
        UnreplayableStays => (pieces(), ONE_EFFECT),
        DamagedIsThere => (damage(), ONE_EFFECT),
        OneClock => (clock(), ONE_EFFECT),
        EpochWatched | RecoveryHold | Reasserted => (forgetting(), ONE_EFFECT),
    };
    (world.without(fence), property)
}

/// The `retry` policy, which accepts duplicates: they must come, else the checker could not see them.
#[must_use]
pub fn retrying() -> Setup {
    let retry = json!({"unknown": {"retry": {"i_accept_duplicates": "a test"}}});
    Setup {
        policies: vec![policy(&retry)],
        budget: Budget {
            resets: 1,
            ..Budget::default()
        },
        ..Setup::new(
            "retry",
            "unknown operations that are run again, as the rule accepts",
        )
    }
}

/// A replica that takes over under the old epoch: its sequence catches up before anybody looks.
#[must_use]
pub fn same_epoch() -> Setup {
    Setup {
        name: "same epoch",
        about: "a replica that takes over without the latest writes, under the same epoch",
        new_epoch: false,
        ..tail()
    }
}
