//! One moment of the small world: clients, proxies, the network, the store, the upstream.

use crate::clock::Clock;
use crate::digest::Marked;
use crate::setup::{Budget, Settler, Setup};
use crate::store::Store;
use idempo_core::exchange::Exchange;
use idempo_core::store::{Op, Reply};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Everything.
#[derive(Clone, Hash)]
pub struct World {
    pub(crate) clock: Clock,
    pub(crate) store: Store,
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) attempts: Vec<Attempt>,
    /// On the way to the store or back. In an order of its own, so that states meet again.
    pub(crate) calls: Vec<Call>,
    pub(crate) budget: Budget,
    /// Names the next write of somebody who is no attempt.
    pub(crate) writes: u8,
    /// What a step of the store broke.
    pub(crate) broken: Option<&'static str>,
    /// The store has lost something.
    pub(crate) lost: bool,
}

/// What a proxy's VM keeps beside its exchanges.
#[derive(Clone, Default, Hash)]
pub(crate) struct Proxy {
    /// How often it has begun anew.
    pub(crate) life: u8,
    /// Writes that wait.
    pub(crate) backlog: VecDeque<Asked>,
    /// The first of them is under way, or has failed and waits for its next try.
    pub(crate) trying: Trying,
    /// What it last saw of the store.
    pub(crate) epoch: u8,
    pub(crate) seq: u16,
    /// Store clock until which it claims nothing.
    pub(crate) hold_until: u64,
    /// What each attempt would write again if the store had lost it.
    pub(crate) known: Vec<(usize, Asked)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Trying {
    #[default]
    Idle,
    UnderWay,
    Failed,
}

/// A store operation.
pub(crate) type Asked = Arc<Marked<Op>>;

/// One attempt, from its client to the upstream.
#[derive(Clone, Default)]
pub(crate) struct Attempt {
    pub(crate) arrived: bool,
    /// The body is complete.
    pub(crate) uploaded: bool,
    /// The shipped state machine, while it has anything to do.
    pub(crate) exchange: Option<Arc<Exchange>>,
    /// Digest of all that the exchange was told: two that were told the same are the same.
    pub(crate) trail: u64,
    pub(crate) client: Client,
    pub(crate) upstream: Upstream,
    /// The latest store call.
    pub(crate) last: Option<Asked>,
    /// Its claim was sent twice, so that a copy of it may arrive at any time.
    pub(crate) copied: Option<Asked>,
    /// The host was told of the stream's end.
    pub(crate) ended: bool,
    /// The operation that it waits for may have ended.
    pub(crate) woken: bool,
    /// Its proxy has died under it.
    pub(crate) cut: bool,
}

impl Hash for Attempt {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let known = (
            self.arrived,
            self.uploaded,
            self.ended,
            self.woken,
            self.cut,
        );
        known.hash(state);
        self.exchange.is_some().hash(state);
        self.trail.hash(state);
        self.client.hash(state);
        self.upstream.hash(state);
        self.last.hash(state);
        self.copied.hash(state);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    #[default]
    Waiting,
    /// Answered by the filter: a replay, a refusal.
    Told(u16),
    /// Answered by the upstream, or by the router in its place.
    Served(u16),
    /// It went away.
    Left,
    /// Its connection broke with its proxy.
    Cut,
}

/// What became of the request behind the filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Upstream {
    pub(crate) sent: bool,
    /// Sent outside of the stream.
    pub(crate) away: bool,
    /// The router was told to try once.
    pub(crate) contained: bool,
    /// What the router tried.
    pub(crate) tries: u8,
    /// Tries that the upstream has yet to see.
    pub(crate) flying: u8,
    pub(crate) effects: u8,
    /// The answer's headers, while its end is awaited.
    pub(crate) head: Option<u16>,
    /// The answer is whole, or there will be none.
    pub(crate) answered: Option<u16>,
    /// A recordable answer came whole to an exchange that lived.
    pub(crate) told: bool,
    /// It provably did nothing.
    pub(crate) void: bool,
}

/// Who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum From {
    Attempt(usize),
    Backlog(usize),
    Settler,
}

/// A store call on its way.
#[derive(Clone, Hash)]
pub(crate) struct Call {
    pub(crate) from: From,
    pub(crate) op: Asked,
    /// Somebody still waits for the answer.
    pub(crate) heard: bool,
    /// The answer, with the epoch and the sequence that came with it.
    pub(crate) answer: Option<(Arc<Marked<Reply>>, u8, u16)>,
}

impl Call {
    fn place(&self) -> (From, u64, bool, u64) {
        let answer = self.answer.as_ref().map_or(0, |(reply, ..)| reply.digest);
        (self.from, self.op.digest, self.heard, answer)
    }
}

/// One thing that happens. Numbers are places: of an attempt, a proxy, a call, a step of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A client's request arrives.
    Arrive(usize),
    /// The rest of its body does.
    Upload(usize),
    /// The store takes a call.
    Take(usize),
    /// The store takes a call, and a copy of it is still under way.
    TakeCopy(usize),
    /// The store's answer arrives.
    Deliver(usize),
    /// A call is given up.
    GiveUp(usize),
    /// A proxy tries its backlog again.
    Resend(usize),
    /// The upstream sees the request and acts on it.
    Effect(usize),
    /// The router tries again.
    Retry(usize),
    /// The request, or the router's latest try, provably never left.
    Unsent(usize),
    /// The upstream says that it did nothing.
    Busy(usize),
    /// The upstream answers, whole.
    Answer(usize, u16),
    /// The headers of its answer come.
    Head(usize, u16),
    /// The rest does.
    Tail(usize),
    /// The upstream's stream is reset.
    Reset(usize),
    /// The client goes away.
    Leave(usize),
    /// A waiter is woken.
    Wake(usize),
    /// A proxy's tick.
    Tick(usize),
    /// Time passes.
    Pass(usize),
    /// A proxy dies, and begins anew.
    Crash(usize),
    /// Somebody else sends the settling of the operation as it is now.
    Settle(Settler),
    /// A replica of the store catches up.
    Copy,
    /// The store forgets.
    Lose,
    /// A proxy sees what the store says of itself.
    Notice(usize),
    /// The record is damaged.
    Damage,
    /// The host's clock is set: forward or back.
    Step(bool),
}

impl World {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            clock: Clock::default(),
            store: Store::default(),
            proxies: vec![Proxy::default(); setup.proxies],
            attempts: vec![Attempt::default(); setup.attempts.len()],
            calls: Vec::new(),
            budget: setup.budget,
            writes: 0,
            broken: None,
            lost: false,
        }
    }

    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    pub(crate) fn now(&self, setup: &Setup) -> u64 {
        self.clock
            .store_ms(!setup.has(crate::fence::Fence::OneClock))
    }

    pub(crate) fn push_call(&mut self, call: Call) {
        self.calls.push(call);
        self.calls.sort_by_key(Call::place);
    }

    /// Effects that the upstream had, by attempt.
    pub(crate) fn effects(&self) -> impl Iterator<Item = u8> {
        self.attempts.iter().map(|a| a.upstream.effects)
    }
}
