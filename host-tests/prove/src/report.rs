//! Running the checker, and what it says.

use crate::rest::come_to_rest;
use crate::setup::Setup;
use crate::tell;
use stateright::{Checker as _, HasDiscoveries, Model as _, Path};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// What came of one run.
pub struct Found {
    /// Different states.
    pub states: usize,
    /// States that were come upon, the same ones counted again.
    pub generated: usize,
    /// Acts from the beginning to the farthest state.
    pub depth: usize,
    /// Every state within the bounds of the world was seen.
    pub whole: bool,
    /// The property that it was for has failed.
    pub stopped: bool,
    /// How long it took.
    pub took: Duration,
    /// For a property that must hold: how it fails. For a witness: how it comes about.
    pub paths: BTreeMap<&'static str, Vec<String>>,
    /// Properties that held in every state.
    pub holds: Vec<&'static str>,
    /// Witnesses that came about.
    pub comes: Vec<&'static str>,
    /// Properties that failed, and witnesses that never came.
    pub wrong: Vec<&'static str>,
}

/// Goes through a world, to its end or until about so many states were come upon. Where it is for one
/// property, it stops once that has failed.
#[must_use]
pub fn check(setup: &Setup, most: usize, threads: usize, until: Option<&'static str>) -> Found {
    let began = Instant::now();
    let mut builder = setup
        .clone()
        .checker()
        .threads(threads)
        .target_state_count(most);
    if let Some(name) = until {
        builder = builder.finish_when(HasDiscoveries::AnyOf([name].into()));
    }
    let checker = builder.spawn_bfs().join();
    let (mut holds, mut comes, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    for property in setup.properties() {
        let found = checker.discovery(property.name).is_some();
        let good = match (found, property.expectation.discovery_is_failure()) {
            (false, true) => &mut holds,
            (true, false) => &mut comes,
            _ => &mut wrong,
        };
        good.push(property.name);
    }
    let paths = checker.discoveries();
    let paths = paths
        .into_iter()
        .map(|(name, path)| (name, words(setup, path)));
    Found {
        states: checker.unique_state_count(),
        generated: checker.state_count(),
        depth: checker.max_depth().saturating_sub(1),
        whole: until.is_none() && checker.state_count() < most,
        stopped: until.is_some_and(|name| wrong.contains(&name)),
        took: began.elapsed(),
        paths: paths.collect(),
        holds,
        comes,
        wrong,
    }
}

fn words(setup: &Setup, path: Path<crate::State, crate::Act>) -> Vec<String> {
    let mut last = path.last_state().world.clone();
    let steps = path.into_vec().into_iter();
    let mut words: Vec<_> = steps
        .filter_map(|(state, act)| act.map(|act| tell::act(setup, &state.world, act)))
        .collect();
    words.push(format!("then: {}", tell::world(&last)));
    come_to_rest(setup, &mut last);
    words.push(format!("at rest: {}", tell::world(&last)));
    words
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} states ({} generated), depth {}, {} in {:.1} s",
            self.states,
            self.generated,
            self.depth,
            match (self.stopped, self.whole) {
                (true, _) => "until it failed",
                (false, true) => "whole",
                (false, false) => "cut off",
            },
            self.took.as_secs_f64()
        )
    }
}
