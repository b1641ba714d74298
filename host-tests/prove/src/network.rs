//! Store calls on their way: taken, answered, given up; and what a proxy learns of the store by them.

use crate::digest::Marked;
use crate::fence::Fence;
use crate::setup::Setup;
use crate::world::{From, Trying, World};
use idempo_core::record::{Record, State};
use idempo_core::store::{self, Action, Op, Reply};
use std::sync::Arc;

impl World {
    /// The store takes a call: its answer goes back, if anybody waits for it.
    pub(crate) fn take(&mut self, setup: &Setup, k: usize) {
        let mut call = self.calls.remove(k);
        let now = self.now(setup);
        let (reply, broken) = self.store.take(&call.op.value, now, setup.removed);
        self.broken = self.broken.or(broken);
        if let (From::Attempt(i), Reply::Claimed(_)) = (call.from, &reply)
            && !call.heard
            && !setup.has(Fence::GaveUpForGood)
            && !self.attempts[i].upstream.sent
        {
            self.send(setup, i);
        }
        if call.heard && call.from != From::Settler {
            let reply = Arc::new(Marked::new(reply));
            // What nobody watches tells no states apart.
            let (epoch, seq) = if setup.forgets {
                (self.store.epoch, self.store.seq)
            } else {
                (0, 0)
            };
            call.answer = Some((reply, epoch, seq));
            self.push_call(call);
        }
    }

    /// An answer arrives at who asked.
    pub(crate) fn deliver(&mut self, setup: &Setup, k: usize) {
        let call = self.calls.remove(k);
        let Some((reply, epoch, seq)) = call.answer else {
            return;
        };
        let proxy = match call.from {
            From::Attempt(i) => setup.attempts[i].proxy,
            From::Backlog(p) => p,
            From::Settler => return,
        };
        if setup.forgets {
            self.notice(setup, proxy, epoch, seq);
        }
        // Also a claim that was asked before: it found an empty store.
        let holds = self.now(setup) < self.proxies[proxy].hold_until;
        match call.from {
            From::Attempt(i) => {
                let op = &call.op.value;
                let claims = matches!(op.action, Action::Claim(_) | Action::TakeOver { .. });
                if holds && claims {
                    let failed = Reply::Failed("recovering".to_owned());
                    let failed = Marked::new(failed);
                    return self.reply(setup, i, &failed);
                }
                if setup.forgets
                    && let Reply::Claimed(record) = &reply.value
                {
                    self.remember_claim(i, proxy, op, record);
                }
                self.reply(setup, i, &reply);
            }
            From::Backlog(p) => {
                let proxy = &mut self.proxies[p];
                let again = match &reply.value {
                    Reply::Failed(_) | Reply::Full(_) | Reply::Corrupt => true,
                    // Somebody claimed what this proxy asserts, from a store that had lost it. That claim
                    // is on its way out.
                    Reply::Stale(record) => holds && asserts(&call.op.value, record),
                    _ => false,
                };
                if again {
                    proxy.trying = Trying::Failed;
                    return;
                }
                proxy.trying = Trying::Idle;
                proxy.backlog.pop_front();
                self.work_off(p);
            }
            From::Settler => {}
        }
    }

    /// Who asked no longer waits. The request, if the store has not taken it, is still on its way.
    pub(crate) fn give_up(&mut self, setup: &Setup, k: usize) {
        let from = self.calls[k].from;
        self.calls[k].heard = false;
        self.tidy();
        match from {
            From::Attempt(i) => {
                let failed = Marked::new(Reply::Failed("timeout".to_owned()));
                self.reply(setup, i, &failed);
            }
            From::Backlog(p) => self.proxies[p].trying = Trying::Failed,
            From::Settler => {}
        }
    }

    /// Whether that is another store than the proxy knew, or an earlier one.
    pub(crate) fn sees(&self, p: usize, epoch: u8, seq: u16) -> bool {
        let proxy = &self.proxies[p];
        epoch != proxy.epoch || seq < proxy.seq
    }

    pub(crate) fn notice(&mut self, setup: &Setup, p: usize, epoch: u8, seq: u16) {
        let lost = self.sees(p, epoch, seq) && setup.has(Fence::EpochWatched);
        let now = self.now(setup);
        let proxy = &mut self.proxies[p];
        proxy.seq = if lost { seq } else { proxy.seq.max(seq) };
        proxy.epoch = epoch;
        if !lost {
            return;
        }
        if setup.has(Fence::RecoveryHold) {
            proxy.hold_until = now + setup.longest_lease();
        }
        if setup.has(Fence::Reasserted) {
            let known: Vec<_> = proxy.known.iter().map(|(_, op)| Arc::clone(op)).collect();
            for op in known {
                self.defer(p, op);
            }
        }
    }
}

/// Whether that is an owner's write that met somebody else's claim.
fn asserts(op: &Op, record: &Record) -> bool {
    let pending = matches!(record.state, State::Pending { .. });
    match &op.action {
        Action::Transition(t) => match &t.fence {
            store::Fence::Owner { claim, .. } => pending && record.owner() != Some(claim.owner),
            store::Fence::Version { .. } => false,
        },
        _ => false,
    }
}
