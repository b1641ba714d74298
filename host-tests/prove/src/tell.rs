//! Acts and worlds in words: what a counterexample is printed as.

use crate::setup::{Settler, Setup};
use crate::world::{Act, Call, From, World};
use idempo_core::store::{Action, Target};
use std::fmt::Write as _;

/// A, B, C: attempts.
fn attempt(i: usize) -> char {
    char::from(b'A' + u8::try_from(i).unwrap_or(25))
}

fn what(action: &Action) -> String {
    match action {
        Action::Read => "read".into(),
        Action::Claim(_) => "claim".into(),
        Action::TakeOver { .. } => "take-over".into(),
        Action::Cancel { .. } => "cancel".into(),
        Action::Body { .. } => "body".into(),
        Action::Transition(t) => match &t.to {
            Target::Renewed { .. } => "renewal".into(),
            to => to.status().as_str().into(),
        },
    }
}

fn call(call: &Call) -> String {
    let what = what(&call.op.value.action);
    match call.from {
        From::Attempt(i) => format!("{}'s {what}", attempt(i)),
        From::Backlog(p) => format!("proxy {p}'s deferred {what}"),
        From::Settler => format!("the settler's {what}"),
    }
}

/// One act, happening in that world.
pub(crate) fn act(setup: &Setup, world: &World, act: Act) -> String {
    let of = |k: usize| world.calls.get(k).map(call).unwrap_or_default();
    let a = attempt;
    match act {
        Act::Arrive(i) => format!("{} arrives at proxy {}", a(i), setup.attempts[i].proxy),
        Act::Upload(i) => format!("{}'s body is complete", a(i)),
        Act::Take(k) => format!("the store takes {}", of(k)),
        Act::TakeCopy(k) => format!("the store takes {}, a copy stays under way", of(k)),
        Act::Deliver(k) => {
            let answer = world.calls.get(k).and_then(|c| c.answer.as_ref());
            let name = answer.map_or("", |(reply, ..)| reply.value.name());
            format!("{} is answered: {name}", of(k))
        }
        Act::GiveUp(k) => format!("{} is given up", of(k)),
        Act::Resend(p) => format!("proxy {p} tries its backlog again"),
        Act::Effect(i) => format!("the upstream acts on {}", a(i)),
        Act::Retry(i) => format!("the router tries {} again", a(i)),
        Act::Unsent(i) => format!("{}'s connection is refused", a(i)),
        Act::Busy(i) => format!("the upstream answers {} 429", a(i)),
        Act::Answer(i, status) => format!("the upstream answers {} {status}", a(i)),
        Act::Head(i, status) => format!("{}'s answer begins, {status}", a(i)),
        Act::Tail(i) => format!("{}'s answer ends", a(i)),
        Act::Reset(i) => format!("{}'s upstream stream breaks", a(i)),
        Act::Leave(i) => format!("{}'s client leaves", a(i)),
        Act::Wake(i) => format!("{} is woken", a(i)),
        Act::Tick(p) => format!("proxy {p} ticks"),
        Act::Pass(k) => format!("{} ms pass", setup.steps[k]),
        Act::Crash(p) => format!("proxy {p} crashes"),
        Act::Settle(Settler::Close) => "a person sends: closed".into(),
        Act::Settle(Settler::Person) => "a person sends: completed".into(),
        Act::Settle(Settler::Event) => "a completion event is sent".into(),
        Act::Settle(Settler::Probe) => "a probe sends: completed".into(),
        Act::Copy => "a replica catches up".into(),
        Act::Lose => "the store forgets".into(),
        Act::Notice(p) => format!("proxy {p} looks at the store"),
        Act::Damage => "the record is damaged".into(),
        Act::Step(true) => "the host's clock is set an hour ahead".into(),
        Act::Step(false) => "the host's clock is set an hour back".into(),
    }
}

/// A world in one line.
pub(crate) fn world(world: &World) -> String {
    let mut text = String::new();
    if let Some(record) = world.store.record() {
        let (state, version) = (record.state.status().as_str(), record.version.counter);
        let _ = write!(text, "{state}/{version}");
    } else {
        text.push_str("absent");
    }
    for (i, attempt) in world.attempts.iter().enumerate().filter(|(_, a)| a.arrived) {
        let name = self::attempt(i);
        let (client, effects) = (attempt.client, attempt.upstream.effects);
        let _ = write!(text, " {name}:{client:?},{effects}");
    }
    for under_way in &world.calls {
        let heard = if under_way.heard { "" } else { ", given up" };
        let _ = write!(text, " [{}{heard}]", call(under_way));
    }
    text
}
