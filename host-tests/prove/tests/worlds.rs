//! Every world within the quick bound, and every fence missed. `make prove` goes further.

use idempo_prove::report::check;
use idempo_prove::{Fence, ONE_EFFECT, Setup, missing, scenarios};

/// More than any world here has: what is cut off proves nothing.
const MOST: usize = 300_000;

/// Goes through a world to its end.
fn holds(name: &str) {
    let mut worlds = scenarios::all().into_iter();
    let world = worlds
        .find(|w| w.name == name)
        .expect("a world of that name");
    let found = check(&world.brief(), MOST, 1, None);
    println!("{name}: {found}");
    for name in &found.wrong {
        println!("{name}: {:#?}", found.paths.get(name));
    }
    assert!(found.whole, "{name} was cut off: {found}");
    assert_eq!(found.wrong, [""; 0]);
}

/// Looks for the failure of one property, and shows how it comes about.
fn fails(world: &Setup, property: &'static str) {
    let found = check(world, MOST, 1, Some(property));
    println!("{found}");
    let path = found.paths.get(property);
    assert!(found.wrong.contains(&property), "not missed: {property}");
    println!("{property}: {path:#?}");
}

macro_rules! worlds {
    ($($test:ident => $name:literal),* $(,)?) => {
        $(#[test] fn $test() { holds($name); })*

        #[test]
        fn no_world_is_left_out() {
            let names: Vec<_> = scenarios::all().iter().map(|w| w.name).collect();
            assert_eq!(names, [$($name),*]);
        }
    };
}

worlds! {
    plain => "plain",
    network => "network",
    crowd => "crowd",
    departures => "departures",
    pieces => "pieces",
    leases => "leases",
    crashes => "crashes",
    router => "router",
    upload => "upload",
    settling => "settling",
    events => "events",
    clock => "clock",
    skew => "skew",
    configurations => "configurations",
    forward => "forward",
    taken_over => "taken over",
    stalls => "stalls",
    detached => "detached",
    damage => "damage",
    forgetting => "forgetting",
    tail => "tail",
    late => "late",
}

macro_rules! fences {
    ($($test:ident => $fence:ident),* $(,)?) => {
        $(#[test] fn $test() {
            let (world, property) = missing::without(Fence::$fence);
            fails(&world, property);
        })*

        #[test]
        fn no_fence_is_left_out() {
            assert_eq!(Fence::ALL, [$(Fence::$fence),*]);
        }
    };
}

fences! {
    without_atomic_claim => AtomicClaim,
    without_take_over_version => TakeOverVersion,
    without_owner_token => OwnerToken,
    without_expected_version => ExpectedVersion,
    without_write_id => WriteId,
    without_terminal_stays => TerminalStays,
    without_settling_disowns => SettlingDisowns,
    without_sent_decides => SentDecides,
    without_one_try => OneTry,
    without_router_contained => RouterContained,
    without_no_record_no_run => NoRecordNoRun,
    without_gave_up_for_good => GaveUpForGood,
    without_cancel_sent => CancelSent,
    without_cancel_mark => CancelMark,
    without_copy_cancelled => CopyCancelled,
    without_not_after => NotAfter,
    without_cancel_own => CancelOwn,
    without_write_waits => WriteWaits,
    without_unreplayable_stays => UnreplayableStays,
    without_damaged_is_there => DamagedIsThere,
    without_one_clock => OneClock,
    without_epoch_watched => EpochWatched,
    without_recovery_hold => RecoveryHold,
    without_reasserted => Reasserted,
}

#[test]
fn a_rule_that_retries_does_duplicate() {
    fails(&missing::retrying(), ONE_EFFECT);
}

#[test]
fn a_store_that_forgets_without_an_epoch_does_duplicate() {
    fails(&missing::same_epoch(), ONE_EFFECT);
}
