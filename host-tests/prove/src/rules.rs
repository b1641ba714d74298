//! What can happen next.

use crate::fence::Fence;
use crate::setup::Setup;
use crate::world::{Act, Attempt, Client, From, Trying, World};
use idempo_core::store::Action;

impl World {
    /// Every act that can happen now, in an order that depends on the world alone.
    pub(crate) fn acts(&self, setup: &Setup, acts: &mut Vec<Act>) {
        for (i, attempt) in self.attempts.iter().enumerate() {
            if attempt.arrived {
                self.acts_of(setup, i, attempt, acts);
            } else {
                // One after the other: which of them is first makes no difference otherwise.
                acts.push(Act::Arrive(i));
                break;
            }
        }
        self.acts_of_calls(acts);
        for p in 0..self.proxies.len() {
            self.acts_of_proxy(setup, p, acts);
        }
        self.acts_of_others(setup, acts);
    }

    fn acts_of(&self, setup: &Setup, i: usize, attempt: &Attempt, acts: &mut Vec<Act>) {
        let left = &self.budget;
        if !attempt.uploaded && attempt.exchange.is_some() {
            acts.push(Act::Upload(i));
        }
        if attempt.woken {
            acts.push(Act::Wake(i));
        }
        if left.leaves > 0 && attempt.client == Client::Waiting {
            acts.push(Act::Leave(i));
        }
        let upstream = &attempt.upstream;
        if upstream.flying > 0 {
            acts.push(Act::Effect(i));
        }
        if !attempt.is_open() {
            return;
        }
        if left.resets > 0 {
            acts.push(Act::Reset(i));
        }
        if upstream.head.is_some() {
            acts.push(Act::Tail(i));
            return;
        }
        if upstream.flying > 0 && left.unsent > 0 {
            acts.push(Act::Unsent(i));
        }
        if upstream.flying > 0 && left.busy > 0 {
            acts.push(Act::Busy(i));
        }
        if left.retries > 0 && !upstream.contained && upstream.tries < 2 {
            acts.push(Act::Retry(i));
        }
        if upstream.tries > upstream.flying {
            for status in setup.answers {
                acts.push(if setup.pieces {
                    Act::Head(i, *status)
                } else {
                    Act::Answer(i, *status)
                });
            }
        }
    }

    fn acts_of_calls(&self, acts: &mut Vec<Act>) {
        for (k, call) in self.calls.iter().enumerate() {
            let twin = k.checked_sub(1).and_then(|before| self.calls.get(before));
            let same = twin.is_some_and(|t| {
                t.from == call.from
                    && t.op.digest == call.op.digest
                    && t.heard == call.heard
                    && t.answer.is_some() == call.answer.is_some()
            });
            if same && call.answer.is_none() {
                continue;
            }
            let looks = matches!(call.op.value.action, Action::Read | Action::Body { .. });
            if call.answer.is_some() {
                acts.push(Act::Deliver(k));
            } else {
                acts.push(Act::Take(k));
                if self.budget.repeats > 0 && !looks {
                    acts.push(Act::TakeCopy(k));
                }
            }
            if self.budget.timeouts > 0 && call.heard && call.from != From::Settler {
                acts.push(Act::GiveUp(k));
            }
        }
    }

    fn acts_of_proxy(&self, setup: &Setup, p: usize, acts: &mut Vec<Act>) {
        let lives = self
            .attempts
            .iter()
            .zip(&setup.attempts)
            .any(|(a, part)| part.proxy == p && a.exchange.is_some());
        let proxy = &self.proxies[p];
        if proxy.trying == Trying::Failed {
            acts.push(Act::Resend(p));
        }
        // A tick matters once time has passed.
        if lives && self.budget.passes < setup.budget.passes {
            acts.push(Act::Tick(p));
        }
        if self.budget.crashes > 0 && (lives || !proxy.backlog.is_empty()) {
            acts.push(Act::Crash(p));
        }
        if self.is_news(setup, p) {
            acts.push(Act::Notice(p));
        }
    }

    fn is_news(&self, setup: &Setup, p: usize) -> bool {
        setup.forgets
            && setup.has(Fence::EpochWatched)
            && self.sees(p, self.store.epoch, self.store.seq)
    }

    fn acts_of_others(&self, setup: &Setup, acts: &mut Vec<Act>) {
        let left = &self.budget;
        // What the hold after a loss is for: every proxy that lives has looked at the store and has
        // asserted what it knows before it ends.
        let recovers = self.lost
            && (0..self.proxies.len())
                .any(|p| self.is_news(setup, p) || !self.proxies[p].backlog.is_empty());
        // Every step of time is longer than a call is waited for.
        let waits = !setup.stalls
            && self
                .calls
                .iter()
                .any(|c| c.heard && c.from != From::Settler);
        if left.passes > 0 && !recovers && !waits {
            acts.extend((0..setup.steps.len()).map(Act::Pass));
        }
        if left.settles > 0 {
            let now = self.now(setup);
            for settler in setup.settlers {
                if crate::settle::op(self.store.record(), *settler, 0, now).is_some() {
                    acts.push(Act::Settle(*settler));
                }
            }
        }
        let there = self.store.record().is_some();
        if setup.replica && left.copies > 0 && there && !self.lost {
            acts.push(Act::Copy);
        }
        if left.losses > 0 && there {
            acts.push(Act::Lose);
        }
        if left.damages > 0 && there {
            acts.push(Act::Damage);
        }
        if left.steps > 0 {
            acts.extend([Act::Step(true), Act::Step(false)]);
        }
    }
}

impl Attempt {
    /// An answer from behind the filter can still reach the exchange or the client.
    pub(crate) fn is_open(&self) -> bool {
        let upstream = &self.upstream;
        let away = upstream.away && self.exchange.as_ref().is_some_and(|e| e.is_away());
        let here = !upstream.away && self.client == Client::Waiting;
        upstream.sent && upstream.answered.is_none() && (away || here)
    }
}
