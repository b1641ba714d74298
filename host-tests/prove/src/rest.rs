//! What becomes of a world in which nothing more goes wrong: a fair run to rest, in one order.
//!
//! Some properties speak of the end: every attempt gets its answer, nothing that never ran stays
//! unknown, nothing that was answered is lost. They are asked of every state that the checker
//! reaches, by letting it come to rest.

use crate::fence::Fence;
use crate::setup::Setup;
use crate::world::{Client, Trying, World};
use idempo_core::record::Status;

/// Milliseconds that pass, one after the other: waiters look again, leases are renewed, then end.
const PAUSES: [u64; 6] = [1_001, 1_001, 10_001, 11_000, 31_000, 61_000];

/// Steps between two pauses after which a world evidently never rests.
const RESTLESS: usize = 400;

/// What a world comes to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest {
    /// It went on and on.
    pub(crate) restless: bool,
    /// An attempt whose client waited got no answer.
    pub(crate) unanswered: bool,
    /// No attempt was ever sent, and yet the operation is not absent.
    pub(crate) stuck: bool,
    /// An upstream's answer that came to a living exchange is not in the record.
    pub(crate) forgotten: bool,
}

pub(crate) fn rest(setup: &Setup, world: &World) -> Rest {
    let mut world = world.clone();
    let mut rest = Rest {
        restless: come_to_rest(setup, &mut world),
        ..Rest::default()
    };
    judge(setup, &world, &mut rest);
    rest
}

/// Lets everything end. `true`: it would not.
pub(crate) fn come_to_rest(setup: &Setup, world: &mut World) -> bool {
    let mut restless = false;
    for pause in PAUSES {
        restless |= !world.calm(setup);
        world.clock.pass(pause);
        for p in 0..world.proxies.len() {
            world.tick(setup, p);
            if world.proxies[p].trying == Trying::Failed {
                world.proxies[p].trying = Trying::Idle;
                world.work_off(p);
            }
        }
    }
    restless | !world.calm(setup)
}

fn judge(setup: &Setup, world: &World, rest: &mut Rest) {
    let mut attempts = world.attempts.iter();
    rest.unanswered = attempts.any(|a| a.arrived && a.client == Client::Waiting);
    let now = world.now(setup);
    let status = world.store.view(now).map_or(Status::Absent, |v| v.status());
    let quiet = !world.lost && !world.store.is_damaged();
    let may_have_run = |a: &crate::world::Attempt| a.cut || (a.upstream.sent && !a.upstream.void);
    let ran = world.attempts.iter().any(may_have_run);
    // Who settled it, or took it over, has taken its owner's word away.
    let settled = setup.dedupes || world.budget.settles < setup.budget.settles;
    rest.stuck = quiet && !ran && !settled && status != Status::Absent;
    let told = world.attempts.iter().any(|a| a.upstream.told && !a.cut);
    let kept = matches!(
        status,
        Status::Completed | Status::Accepted | Status::Closed | Status::Expired
    );
    // Or it lost against who took the operation over, and is kept beside.
    let beside = world.store.record().is_some_and(|r| {
        let mut events = r.history.events().iter();
        events.any(|e| e.evidence.as_ref().is_some_and(|e| e.result.is_some()))
    });
    let overdue = status == Status::Unknown
        && world
            .store
            .record()
            .is_some_and(|r| r.state.status() == Status::Accepted);
    rest.forgotten = quiet && told && !kept && !beside && !overdue;
}

impl World {
    /// Everything that is under way arrives, the upstream acts and answers. `false`: without end.
    fn calm(&mut self, setup: &Setup) -> bool {
        (0..RESTLESS).any(|_| !self.move_on(setup))
    }

    /// One thing that is bound to happen.
    fn move_on(&mut self, setup: &Setup) -> bool {
        if let Some(k) = self.calls.iter().position(|c| c.heard) {
            if self.calls[k].answer.is_some() {
                self.deliver(setup, k);
            } else {
                self.take(setup, k);
            }
            return true;
        }
        // What nobody waits for may also be lost; that it arrives is among the acts.
        self.calls.clear();
        for p in 0..self.proxies.len() {
            if setup.forgets && setup.has(Fence::EpochWatched) {
                let (epoch, seq) = (self.store.epoch, self.store.seq);
                if self.sees(p, epoch, seq) {
                    self.notice(setup, p, epoch, seq);
                    return true;
                }
            }
        }
        (0..self.attempts.len()).any(|i| self.move_attempt(setup, i))
    }

    fn move_attempt(&mut self, setup: &Setup, i: usize) -> bool {
        let attempt = &self.attempts[i];
        if !attempt.arrived {
            return false;
        }
        if !attempt.uploaded && attempt.exchange.is_some() {
            self.upload(setup, i);
            return true;
        }
        if attempt.upstream.flying > 0 {
            self.effect(setup, i);
            return true;
        }
        if attempt.is_open() {
            if attempt.upstream.head.is_some() {
                self.tail(setup, i);
            } else {
                self.come_back(setup, i, 201, "via_upstream");
            }
            return true;
        }
        if attempt.woken {
            self.attempts[i].woken = false;
            self.tell(setup, i, &"wake", |e, _, out| e.on_wake(out));
            return true;
        }
        false
    }
}
