//! What each [`Act`] does to the world.

use crate::digest::Marked;
use crate::setup::{Settler, Setup};
use crate::upstream::{REFUSED, VIA_UPSTREAM};
use crate::world::{Act, Call, Client, From, Trying, World};
use idempo_core::store::Action;
use std::sync::Arc;

/// By how much somebody sets the host's clock, milliseconds.
const CLOCK_STEP_MS: i64 = 3_600_000;

impl World {
    /// The world after that act; `None` where it changes nothing.
    pub(crate) fn after(&self, setup: &Setup, act: Act) -> Option<Self> {
        let mut next = self.clone();
        next.happen(setup, act).then_some(next)
    }

    fn happen(&mut self, setup: &Setup, act: Act) -> bool {
        match act {
            Act::Arrive(i) => self.arrive(setup, i),
            Act::Upload(i) => self.upload(setup, i),
            Act::Take(k) => self.take(setup, k),
            Act::TakeCopy(k) => {
                self.budget.repeats -= 1;
                let copy = Call {
                    heard: false,
                    ..self.calls[k].clone()
                };
                let claims = matches!(
                    copy.op.value.action,
                    Action::Claim(_) | Action::TakeOver { .. }
                );
                if let From::Attempt(i) = copy.from
                    && claims
                {
                    self.attempts[i].copied = Some(Arc::clone(&copy.op));
                }
                self.take(setup, k);
                self.push_call(copy);
            }
            Act::Deliver(k) => self.deliver(setup, k),
            Act::GiveUp(k) => {
                self.budget.timeouts -= 1;
                self.give_up(setup, k);
            }
            Act::Resend(p) => {
                self.proxies[p].trying = Trying::Idle;
                self.work_off(p);
            }
            Act::Effect(i) => self.effect(setup, i),
            Act::Retry(i) => {
                self.budget.retries -= 1;
                let upstream = &mut self.attempts[i].upstream;
                upstream.tries += 1;
                upstream.flying += 1;
            }
            Act::Unsent(i) => {
                self.budget.unsent -= 1;
                let upstream = &mut self.attempts[i].upstream;
                upstream.flying -= 1;
                upstream.void = upstream.tries == 1;
                self.come_back(setup, i, 503, REFUSED);
            }
            Act::Busy(i) => {
                self.budget.busy -= 1;
                let upstream = &mut self.attempts[i].upstream;
                upstream.flying -= 1;
                upstream.void = upstream.tries == 1;
                self.come_back(setup, i, 429, VIA_UPSTREAM);
            }
            Act::Answer(i, status) => self.come_back(setup, i, status, VIA_UPSTREAM),
            Act::Head(i, status) => self.head(setup, i, status),
            Act::Tail(i) => self.tail(setup, i),
            Act::Reset(i) => {
                self.budget.resets -= 1;
                self.reset(setup, i);
            }
            Act::Leave(i) => {
                self.budget.leaves -= 1;
                let attempt = &mut self.attempts[i];
                attempt.client = Client::Left;
                attempt.ended = true;
                self.tell(setup, i, &"left", |e, now, out| {
                    e.on_end("downstream_remote_disconnect", now, out);
                });
            }
            Act::Wake(i) => {
                self.attempts[i].woken = false;
                return self.tell(setup, i, &"wake", |e, _, out| e.on_wake(out));
            }
            Act::Tick(p) => return self.tick(setup, p),
            Act::Pass(k) => {
                self.budget.passes -= 1;
                self.clock.pass(setup.steps[k]);
            }
            Act::Crash(p) => self.crash(setup, p),
            Act::Settle(settler) => self.settle(setup, settler),
            Act::Copy => {
                self.budget.copies -= 1;
                self.store.replicate();
            }
            Act::Lose => {
                self.budget.losses -= 1;
                self.lost = true;
                self.store.lose(setup.new_epoch);
            }
            Act::Notice(p) => self.notice(setup, p, self.store.epoch, self.store.seq),
            Act::Damage => {
                self.budget.damages -= 1;
                self.store.damage();
            }
            Act::Step(forward) => {
                self.budget.steps -= 1;
                let by = if forward {
                    CLOCK_STEP_MS
                } else {
                    -CLOCK_STEP_MS
                };
                self.clock.step(by);
            }
        }
        true
    }

    pub(crate) fn tick(&mut self, setup: &Setup, p: usize) -> bool {
        let mut came = false;
        for i in 0..self.attempts.len() {
            if setup.attempts[i].proxy == p {
                let trail = self.attempts[i].trail;
                let did = self.tell(setup, i, &"tick", |e, now, out| e.on_tick(now, out));
                if !did {
                    // Nothing came of it, so nothing changed.
                    self.attempts[i].trail = trail;
                }
                came |= did;
            }
        }
        came
    }

    fn crash(&mut self, setup: &Setup, p: usize) {
        self.budget.crashes -= 1;
        for i in 0..self.attempts.len() {
            let attempt = &mut self.attempts[i];
            if setup.attempts[i].proxy != p || !attempt.arrived {
                continue;
            }
            attempt.cut |= attempt.exchange.is_some();
            attempt.exchange = None;
            attempt.trail = 0;
            attempt.last = None;
            attempt.ended = true;
            attempt.woken = false;
            if attempt.client == Client::Waiting {
                attempt.client = Client::Cut;
            }
            self.unhear(From::Attempt(i));
        }
        self.unhear(From::Backlog(p));
        let proxy = &mut self.proxies[p];
        proxy.life += 1;
        if !proxy.backlog.is_empty() {
            // What it held goes with it: those operations become unknown when their leases end.
            proxy.backlog.clear();
            self.attempts.iter_mut().enumerate().for_each(|(i, a)| {
                a.cut |= setup.attempts[i].proxy == p && a.arrived;
            });
        }
        let proxy = &mut self.proxies[p];
        proxy.trying = Trying::Idle;
        proxy.known.clear();
    }

    fn settle(&mut self, setup: &Setup, settler: Settler) {
        let now = self.now(setup);
        self.writes += 1;
        let Some(op) = crate::settle::op(self.store.record(), settler, self.writes, now) else {
            return;
        };
        self.budget.settles -= 1;
        self.push_call(Call {
            from: From::Settler,
            op: Arc::new(Marked::new(op)),
            heard: true,
            answer: None,
        });
    }
}
