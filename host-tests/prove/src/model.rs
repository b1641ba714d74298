//! The small world as the checker sees it: states, acts, properties.

use crate::monitor;
use crate::rest::{Rest, rest};
use crate::setup::{Settler, Setup};
use crate::world::{Act, Client, World};
use idempo_core::record::{State as Recorded, View};
use idempo_core::store::Reply;
use stateright::{Model, Property};
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

/// A world, and what it comes to, once somebody has asked.
#[derive(Clone)]
pub struct State {
    pub(crate) world: World,
    rest: OnceLock<Rest>,
}

impl State {
    fn new(world: World) -> Self {
        Self {
            world,
            rest: OnceLock::new(),
        }
    }

    fn rest(&self, setup: &Setup) -> &Rest {
        self.rest.get_or_init(|| rest(setup, &self.world))
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.world.hash(state);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.world.digest() == other.world.digest()
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&crate::tell::world(&self.world))
    }
}

/// Rule 1.
pub const ONE_EFFECT: &str = "at most one effect";
/// Every attempt gets an answer.
pub const ANSWERED: &str = "every attempt gets an answer";
/// Rule 2, as `monitor` has it.
pub const NO_STALE: &str = "no stale owner's write succeeds";
/// Rule 2.
pub const TERMINAL: &str = "a terminal record changes only by its windows";
/// Every unknown operation can be settled.
pub const SETTLES: &str = "every unknown can be settled";
/// What was never sent is absent in the end.
pub const NEVER_SENT: &str = "an operation never sent does not stay unknown";
/// Rule 6.
pub const KEPT: &str = "an answer that came is recorded";

impl Model for Setup {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(World::new(self))]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Act>) {
        // What has gone wrong need not go on.
        if one_effect(self, &state.world) {
            state.world.acts(self, actions);
        }
    }

    fn next_state(&self, last: &State, action: Act) -> Option<State> {
        last.world.after(self, action).map(State::new)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always(ONE_EFFECT, |m: &Self, s: &State| one_effect(m, &s.world)),
            Property::always(NO_STALE, |_, s: &State| {
                s.world.broken.is_none_or(|b| b == monitor::TERMINAL)
            }),
            Property::always(TERMINAL, |_, s: &State| {
                s.world.broken != Some(monitor::TERMINAL)
            }),
            Property::always(ANSWERED, |m: &Self, s: &State| {
                let rest = s.rest(m);
                !rest.unanswered && !rest.restless
            }),
            Property::always(SETTLES, |m: &Self, s: &State| settles(m, &s.world)),
            Property::always(NEVER_SENT, |m: &Self, s: &State| !s.rest(m).stuck),
            Property::always(KEPT, |m: &Self, s: &State| !s.rest(m).forgotten),
        ];
        if self.removed.is_none() {
            all.push(Property::sometimes(
                "an effect is recorded",
                |_, s: &State| {
                    let record = s.world.store.record();
                    record.is_some_and(|r| r.state.outcome().is_some())
                },
            ));
            all.push(Property::sometimes(
                "all is said and done",
                |_, s: &State| {
                    let mut attempts = s.world.attempts.iter();
                    s.world.calls.is_empty() && attempts.all(|a| a.arrived && a.exchange.is_none())
                },
            ));
        }
        if self.removed.is_none() && self.attempts.len() > 1 {
            all.push(Property::sometimes(
                "another attempt gets the answer",
                |_, s: &State| {
                    let mut later = s.world.attempts.iter().skip(1);
                    later.any(|a| matches!(a.client, Client::Told(201 | 202 | 409)))
                },
            ));
        }
        all
    }
}

fn one_effect(setup: &Setup, world: &World) -> bool {
    let of_attempts = world.effects().filter(|n| *n > 0).count();
    let allowed = |i: usize| {
        let policy = &setup.policies[setup.attempts[i].policy];
        let mut rules = policy.plan.routes.iter();
        rules.any(|r| r.upstream.router_retries_reason.is_some())
    };
    let within = world
        .effects()
        .enumerate()
        .all(|(i, n)| n <= 1 || allowed(i));
    of_attempts <= 1 && within
}

/// Whether a person could close the operation, and could state its answer, if it is unknown now.
fn settles(setup: &Setup, world: &World) -> bool {
    let now = world.now(setup);
    if world.store.is_damaged() || !matches!(world.store.view(now), Some(View::Unknown { .. })) {
        return true;
    }
    [
        Settler::Close,
        Settler::Person,
        Settler::Event,
        Settler::Probe,
    ]
    .into_iter()
    .all(|settler| {
        let mut store = world.store.clone();
        let Some(op) = crate::settle::op(store.record(), settler, u8::MAX, now) else {
            return false;
        };
        let (reply, broken) = store.take(&op, now, setup.removed);
        let ends = matches!(&reply, Reply::Applied(record) if matches!(
            record.state,
            Recorded::Completed { .. } | Recorded::Closed { .. }
        ));
        ends && broken.is_none()
    })
}
