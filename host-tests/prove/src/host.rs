//! The host around the exchanges: what `filter/wasm` does with effects, over a store that takes its
//! time and a network that loses things.
//!
//! Kept as close to `Stream::carry_out` as that allows. What a networked store adds: each call is
//! answered later or given up; only the latest call of an exchange is listened to, as
//! [`Exchange::on_store`] has it; what nobody waits for goes through the backlog, first to last.

use crate::digest::{self, Marked};
use crate::fence::Fence;
use crate::setup::Setup;
use crate::world::{Asked, Attempt, Call, Client, From, Trying, World};
use idempo_core::exchange::{CallFailure, Edit, Effect, Exchange, Moment, Seed};
use idempo_core::http::Headers;
use idempo_core::ids::OwnerToken;
use idempo_core::record::{Record, Source, WriteId};
use idempo_core::store::{self, Action, Op, Reply, Target, Transition};
use idempo_core::tenant::Facts;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;

const KEY: &str = "5f3c1a52-8e0b-4d0e-9f57-3f1f5d2a9c11";

/// A host without properties.
struct NoFacts;

impl Facts for NoFacts {
    fn property(&self, _: &[&str]) -> Option<Vec<u8>> {
        None
    }
}

impl World {
    pub(crate) fn moment(&self, setup: &Setup, proxy: usize) -> Moment {
        let skew = setup.skew.get(proxy).copied().unwrap_or(0);
        self.clock.moment(!setup.has(Fence::OneClock), skew)
    }

    /// Tells an attempt's exchange something. `told` is all that was told, for the trail. Returns
    /// whether anything came of it.
    pub(crate) fn tell(
        &mut self,
        setup: &Setup,
        i: usize,
        told: &impl Debug,
        event: impl FnOnce(&mut Exchange, Moment, &mut Vec<Effect>),
    ) -> bool {
        let moment = self.moment(setup, setup.attempts[i].proxy);
        let attempt = &mut self.attempts[i];
        let Some(exchange) = &mut attempt.exchange else {
            return false;
        };
        let mut out = Vec::new();
        event(Arc::make_mut(exchange), moment, &mut out);
        attempt.trail = digest::of(&(attempt.trail, moment, told));
        let came = !out.is_empty();
        self.carry_out(setup, i, out);
        self.look_after(setup, i);
        came
    }

    fn carry_out(&mut self, setup: &Setup, i: usize, effects: Vec<Effect>) {
        let proxy = setup.attempts[i].proxy;
        let moment = self.moment(setup, proxy);
        let mut queue = VecDeque::from(effects);
        while let Some(effect) = queue.pop_front() {
            let mut more = Vec::new();
            match effect {
                Effect::Store(op) => self.ask(setup, i, op, &mut more),
                Effect::Wait(_) => {
                    let granted = |e: &mut Exchange, out: &mut Vec<Effect>| {
                        e.on_registered(true, moment, out);
                    };
                    self.answer_at_once(i, "registered", granted, &mut more);
                }
                Effect::Send(call) => {
                    let lines = Headers::new(call.headers);
                    let upstream = &mut self.attempts[i].upstream;
                    upstream.away = true;
                    upstream.contained = lines.first_str("x-envoy-max-retries") == Some("0");
                    self.send(setup, i);
                }
                Effect::Request(edits) => {
                    let once = Edit::Set(b"x-envoy-max-retries".to_vec(), b"0".to_vec());
                    self.attempts[i].upstream.contained |= edits.contains(&once);
                }
                Effect::Reply(reply) => {
                    let attempt = &mut self.attempts[i];
                    // No stream, nobody to answer.
                    if attempt.client == Client::Waiting {
                        attempt.client = Client::Told(reply.status);
                    }
                }
                Effect::Defer(op) => {
                    if setup.has(Fence::CancelSent) {
                        self.defer(proxy, Arc::new(Marked::new(op)));
                    }
                }
                Effect::Retry => {
                    if let Some(op) = self.attempts[i].last.take()
                        && setup.has(Fence::WriteWaits)
                    {
                        self.defer(proxy, op);
                    }
                }
                Effect::Wake(_) => self.wake(),
                Effect::Response(_)
                | Effect::NoteUnknown(..)
                | Effect::Suspect(..)
                | Effect::Count(_)
                | Effect::Time(..)
                | Effect::Show(..)
                | Effect::Log(..) => {}
            }
            queue.extend(more);
        }
    }

    fn answer_at_once(
        &mut self,
        i: usize,
        told: &str,
        event: impl FnOnce(&mut Exchange, &mut Vec<Effect>),
        more: &mut Vec<Effect>,
    ) {
        let attempt = &mut self.attempts[i];
        if let Some(exchange) = &mut attempt.exchange {
            event(Arc::make_mut(exchange), more);
            attempt.trail = digest::of(&(attempt.trail, told));
        }
    }

    fn wake(&mut self) {
        for attempt in &mut self.attempts {
            let waits = attempt
                .exchange
                .as_ref()
                .is_some_and(|e| e.waits().is_some());
            attempt.woken |= waits;
        }
    }

    /// A store call of an exchange.
    fn ask(&mut self, setup: &Setup, i: usize, op: Op, more: &mut Vec<Effect>) {
        let proxy = setup.attempts[i].proxy;
        let claims = matches!(op.action, Action::Claim(_) | Action::TakeOver { .. });
        if claims && self.now(setup) < self.proxies[proxy].hold_until {
            let moment = self.moment(setup, proxy);
            let reply = Reply::Failed("recovering".to_owned());
            let refused = |e: &mut Exchange, out: &mut Vec<Effect>| e.on_store(reply, moment, out);
            return self.answer_at_once(i, "recovering", refused, more);
        }
        let op: Asked = Arc::new(Marked::new(op));
        if setup.forgets {
            self.remember(i, proxy, &op);
        }
        // Only the latest call is listened to.
        self.unhear(From::Attempt(i));
        self.attempts[i].last = Some(Arc::clone(&op));
        self.push_call(Call {
            from: From::Attempt(i),
            op,
            heard: true,
            answer: None,
        });
    }

    pub(crate) fn unhear(&mut self, from: From) {
        for call in self.calls.iter_mut().filter(|c| c.from == from) {
            call.heard = false;
        }
        self.tidy();
    }

    /// What nobody waits for and what changes nothing is no longer of interest.
    pub(crate) fn tidy(&mut self) {
        self.calls.retain(|call| {
            let looks = matches!(call.op.value.action, Action::Read | Action::Body { .. });
            call.heard || (call.answer.is_none() && !looks)
        });
        let mut calls = std::mem::take(&mut self.calls);
        for call in calls.drain(..) {
            self.push_call(call);
        }
    }

    pub(crate) fn defer(&mut self, proxy: usize, op: Asked) {
        self.proxies[proxy].backlog.push_back(op);
        self.work_off(proxy);
    }

    /// Sends the first write that waits.
    pub(crate) fn work_off(&mut self, proxy: usize) {
        let Some(op) = self.proxies[proxy].backlog.front().cloned() else {
            return;
        };
        if self.proxies[proxy].trying == Trying::Idle {
            self.proxies[proxy].trying = Trying::UnderWay;
            self.push_call(Call {
                from: From::Backlog(proxy),
                op,
                heard: true,
                answer: None,
            });
        }
    }

    /// The request goes on to the upstream.
    pub(crate) fn send(&mut self, setup: &Setup, i: usize) {
        let upstream = &mut self.attempts[i].upstream;
        upstream.sent = true;
        upstream.tries = 1;
        upstream.flying = 1;
        upstream.contained &= setup.has(Fence::RouterContained);
    }

    /// What follows from what the exchange now holds.
    pub(crate) fn look_after(&mut self, setup: &Setup, i: usize) {
        let Some(exchange) = self.attempts[i].exchange.clone() else {
            return;
        };
        let attempt = &self.attempts[i];
        let waiting = attempt.client == Client::Waiting;
        let gathers = exchange.gathered().is_some();
        if waiting && !attempt.upstream.sent && !exchange.holds_request() && !gathers {
            self.send(setup, i);
        }
        let attempt = &mut self.attempts[i];
        if let Some(status) = attempt.upstream.answered
            && attempt.client == Client::Waiting
            && !attempt.upstream.away
            && !exchange.holds_response()
        {
            attempt.client = Client::Served(status);
        }
        if attempt.client != Client::Waiting && !attempt.ended && !exchange.is_over() {
            attempt.ended = true;
            self.tell(setup, i, &"end", |e, now, out| e.on_end("", now, out));
            return;
        }
        let attempt = &mut self.attempts[i];
        if exchange.is_over() && (attempt.client != Client::Waiting || attempt.ended) {
            let copied = attempt.copied.take();
            let ran = attempt.upstream.sent;
            retire(attempt);
            self.unhear(From::Attempt(i));
            if let Some(op) = copied
                && !ran
                && setup.has(Fence::CopyCancelled)
            {
                self.defer(setup.attempts[i].proxy, cancellation(&op.value));
            }
        }
    }

    /// A client's request arrives.
    pub(crate) fn arrive(&mut self, setup: &Setup, i: usize) {
        let part = setup.attempts[i];
        let large = part.large;
        let policy = Arc::clone(&setup.policies[part.policy]);
        let seed = Seed {
            vm: [u8::try_from(part.proxy).unwrap_or(0) * 16 + self.proxies[part.proxy].life; 16],
            counter: i as u64,
        };
        let mut exchange = Exchange::new(policy, seed);
        exchange.set_loopback(true);
        let attempt = &mut self.attempts[i];
        attempt.arrived = true;
        attempt.uploaded = !large;
        attempt.exchange = Some(Arc::new(exchange));
        let (kind, length) = if large {
            ("application/octet-stream", "8")
        } else {
            ("application/json", "2")
        };
        let headers: Headers = [
            (":method", "POST"),
            (":path", "/v1/charges"),
            (":authority", "api.test"),
            ("idempotency-key", KEY),
            ("content-type", kind),
            ("content-length", length),
            (
                "x-request-id",
                ["a", "b", "c"].get(i).copied().unwrap_or("d"),
            ),
        ]
        .into_iter()
        .collect();
        self.tell(setup, i, &(i, seed.vm), |e, now, out| {
            e.on_request_headers(headers, false, &NoFacts, now, out);
        });
        let piece: &[u8] = if large { b"12345" } else { b"{}" };
        self.tell(setup, i, &"body", |e, now, out| {
            e.on_request_chunk(piece.to_vec(), !large, now, out);
        });
    }

    /// The rest of a large body comes.
    pub(crate) fn upload(&mut self, setup: &Setup, i: usize) {
        self.attempts[i].uploaded = true;
        self.tell(setup, i, &"rest", |e, now, out| {
            if e.body() != idempo_core::exchange::Body::Pass {
                e.on_request_chunk(b"678".to_vec(), true, now, out);
            }
        });
    }

    /// The exchange gets a reply, or what there is instead.
    pub(crate) fn reply(&mut self, setup: &Setup, i: usize, reply: &Marked<Reply>) {
        let value = reply.value.clone();
        self.tell(setup, i, &reply.digest, |e, now, out| {
            e.on_store(value, now, out);
        });
    }

    /// Keeps what the attempt would write again, if the store had lost it.
    fn remember(&mut self, i: usize, proxy: usize, op: &Asked) {
        let last = match &op.value.action {
            Action::Transition(t) => !matches!(t.to, Target::Renewed { .. }),
            Action::Cancel { .. } => true,
            _ => false,
        };
        if last {
            self.know(i, proxy, Arc::clone(op));
        }
    }

    fn know(&mut self, i: usize, proxy: usize, op: Asked) {
        let known = &mut self.proxies[proxy].known;
        known.retain(|(of, _)| *of != i);
        known.push((i, op));
        known.sort_by_key(|(of, _)| *of);
    }

    /// A claim was given: until the last write, it is what would be asserted again.
    pub(crate) fn remember_claim(&mut self, i: usize, proxy: usize, op: &Op, record: &Record) {
        let (Action::Claim(claim) | Action::TakeOver { claim, .. }) = &op.action else {
            return;
        };
        let write = WriteId(store::contract::claim_write(claim.owner).0 ^ (1 << 62));
        let action = Action::Transition(Transition {
            write,
            fence: store::Fence::Owner {
                claim: Box::new(claim.clone()),
                claimed_at: record.claimed_at,
                generation: record.generation,
            },
            to: Target::Renewed {
                lease_ms: claim.lease_ms,
            },
            source: Source::Owner,
            operator: String::new(),
        });
        let operation = op.operation;
        self.know(i, proxy, Arc::new(Marked::new(Op { operation, action })));
    }

    /// The call of a detached attempt comes to nothing.
    pub(crate) fn fail_call(&mut self, setup: &Setup, i: usize, why: CallFailure) {
        self.tell(setup, i, &why, |e, now, out| {
            e.on_detached_failure(why, now, out);
        });
    }
}

/// A claim that was sent twice, of an attempt that does not run: its copy must find nothing to do.
fn cancellation(op: &Op) -> Asked {
    let owner = match &op.action {
        Action::Claim(claim) | Action::TakeOver { claim, .. } => claim.owner,
        _ => OwnerToken::default(),
    };
    Arc::new(Marked::new(Op {
        operation: op.operation,
        action: Action::Cancel { owner },
    }))
}

/// Nothing that the exchange knows matters any more.
fn retire(attempt: &mut Attempt) {
    attempt.exchange = None;
    attempt.trail = 0;
    attempt.last = None;
    attempt.ended = true;
    attempt.woken = false;
}
