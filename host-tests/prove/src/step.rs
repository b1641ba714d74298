//! What each [`Act`] does to the world, and which can happen now.

use crate::fence::Fence;
use crate::setup::{Settler, Setup};
use crate::world::{Act, Call, Client, From, Trying, World};
use idempo_core::exchange::{CallFailure, Effect, Exchange, Moment, Origin};
use idempo_core::http::Headers;
use idempo_core::record::{Record, State};
use idempo_core::store::{self, Action, Op, Reply};
use idempo_core::trusted::{INNER_HEADER, Inner};
use std::sync::Arc;

/// By how much somebody sets the host's clock, milliseconds.
const CLOCK_STEP_MS: i64 = 3_600_000;

/// Code details of a connection that was never made, and of one that broke.
const REFUSED: &str =
    "upstream_reset_before_response_started{remote_connection_failure|delayed_connect}";
const BROKEN: &str = "upstream_reset_before_response_started{connection_termination}";
const VIA_UPSTREAM: &str = "via_upstream";

/// What comes back behind the filter.
#[derive(Clone, Copy, Debug)]
struct Back {
    status: u16,
    details: &'static str,
    /// The answer ends with its headers.
    whole: bool,
}

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
                let by = if forward { CLOCK_STEP_MS } else { -CLOCK_STEP_MS };
                self.clock.step(by);
            }
        }
        true
    }

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
            let reply = Arc::new(crate::digest::Marked::new(reply));
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
                    let failed = crate::digest::Marked::new(failed);
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
                let failed = crate::digest::Marked::new(Reply::Failed("timeout".to_owned()));
                self.reply(setup, i, &failed);
            }
            From::Backlog(p) => self.proxies[p].trying = Trying::Failed,
            From::Settler => {}
        }
    }

    pub(crate) fn effect(&mut self, setup: &Setup, i: usize) {
        let had = self.effects().any(|n| n > 0);
        let upstream = &mut self.attempts[i].upstream;
        upstream.flying -= 1;
        if !(setup.dedupes && had) {
            upstream.effects += 1;
        }
    }

    /// An answer, whole, from whomever.
    pub(crate) fn come_back(&mut self, setup: &Setup, i: usize, status: u16, details: &'static str) {
        let back = Back {
            status,
            details,
            whole: details != VIA_UPSTREAM,
        };
        let attempt = &mut self.attempts[i];
        let upstream = &mut attempt.upstream;
        upstream.answered = Some(status);
        let (tries, away) = (upstream.tries, upstream.away);
        upstream.told = matches!(status, 201 | 202) && attempt.exchange.is_some();
        let attempts = self.attempts_said(setup, tries);
        if away {
            self.tell(setup, i, &back, |e, now, out| {
                come_home(e, back, attempts, now, out);
            });
            return;
        }
        self.tell(setup, i, &back, |e, now, out| {
            begin(e, back, attempts, now, out);
            if !back.whole {
                e.on_response_body(b"done", true, now, out);
            }
        });
    }

    fn attempts_said(&self, setup: &Setup, tries: u8) -> u64 {
        if setup.has(Fence::OneTry) {
            u64::from(tries)
        } else {
            1
        }
    }

    fn head(&mut self, setup: &Setup, i: usize, status: u16) {
        self.attempts[i].upstream.head = Some(status);
        let attempts = self.attempts_said(setup, self.attempts[i].upstream.tries);
        let back = Back {
            status,
            details: VIA_UPSTREAM,
            whole: false,
        };
        self.tell(setup, i, &back, |e, now, out| {
            begin(e, back, attempts, now, out);
        });
    }

    pub(crate) fn tail(&mut self, setup: &Setup, i: usize) {
        let attempt = &mut self.attempts[i];
        attempt.upstream.answered = attempt.upstream.head.take();
        attempt.upstream.told = attempt.exchange.is_some();
        self.tell(setup, i, &"tail", |e, now, out| {
            e.on_response_body(b"done", true, now, out);
        });
    }

    fn reset(&mut self, setup: &Setup, i: usize) {
        if self.attempts[i].upstream.away {
            self.attempts[i].upstream.answered = Some(503);
            return self.fail_call(setup, i, CallFailure::Lost);
        }
        if self.attempts[i].upstream.head.take().is_some() {
            // In the midst of the answer: the stream ends with it.
            let attempt = &mut self.attempts[i];
            attempt.upstream.answered = Some(0);
            attempt.client = Client::Served(0);
            attempt.ended = true;
            self.tell(setup, i, &"broken", |e, now, out| e.on_end("upstream_reset_after_response_started{connection_termination}", now, out));
            return;
        }
        let details = if setup.has(Fence::SentDecides) {
            BROKEN
        } else {
            REFUSED
        };
        self.come_back(setup, i, 503, details);
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
            op: Arc::new(crate::digest::Marked::new(op)),
            heard: true,
            answer: None,
        });
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

fn begin(exchange: &mut Exchange, back: Back, attempts: u64, now: Moment, out: &mut Vec<Effect>) {
    let origin = Origin {
        details: back.details,
        attempts: &|| Some(attempts),
        can_hold: true,
    };
    exchange.on_response_headers(&headers(back), back.whole, &origin, now, out);
}

fn come_home(
    exchange: &mut Exchange,
    back: Back,
    attempts: u64,
    now: Moment,
    out: &mut Vec<Effect>,
) {
    let report = Inner {
        details: back.details.to_owned(),
        attempts: Some(attempts),
    };
    let mut lines = headers(back);
    lines.push(INNER_HEADER, report.encode());
    let body = if back.whole { vec![] } else { b"done".to_vec() };
    exchange.on_detached_answer(&lines, body, false, now, out);
}

fn headers(back: Back) -> Headers {
    let status = back.status.to_string();
    let length = if back.whole { "0" } else { "4" };
    [(":status", status.as_str()), ("content-length", length)]
        .into_iter()
        .collect()
}
