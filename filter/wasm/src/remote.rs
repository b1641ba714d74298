//! A store behind a network: calls sent by the root, so that they outlive the streams that they are for.
//!
//! What leaves when, with what, and what an answer means is the core's business ([`Queue`]). Here its
//! calls become the host's, and its events reach whoever waits. An operation that is under way keeps its
//! stream alive, whatever became of the host's.

use crate::abi;
use crate::host::{self, Buffer, HostSharedData, Map};
use crate::plugin::Plugin;
use crate::stream::Stream;
use idempo_core::exchange::{Level, Moment};
use idempo_core::http::Line;
use idempo_core::ids::{OperationId, OwnerToken};
use idempo_core::metrics::{Counter, Gauge, Histogram};
use idempo_core::pairs;
use idempo_core::plan::RedisStore;
use idempo_core::store::queue::{Event, Memory, Outgoing, Queue, Settings};
use idempo_core::store::remote::{HttpAnswer, Nonce, SHARDS, Swept};
use idempo_core::store::table::SharedData;
use idempo_core::store::{Action, Op, Reply};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

/// Between sweeps of one shard each, milliseconds: all of them take about three seconds.
const SWEEP_EVERY_MS: u64 = 200;

/// Operations that one sweep settles at most.
const SWEEP_MOST: u32 = 100;

/// How often workers tell each other what they know of the store, milliseconds.
const SHARE_EVERY_MS: u64 = 1_000;

/// Writes from the backlog that are under way at once.
const BACKLOG_MOST: usize = 64;

/// Who waits for an operation.
enum Waiter {
    Stream(Rc<RefCell<Stream>>),
    /// A write of the backlog, by its id there.
    Backlog(u64),
    /// A look at an unknown operation, for which this new one may be another try.
    Suspicion(OperationId),
}

/// A call of the host's.
struct Sent {
    call: u32,
    at_us: u64,
}

/// The way to a store, of one root.
pub(crate) struct Remote {
    root: u32,
    cluster: String,
    authority: String,
    queue: RefCell<Queue>,
    sent: RefCell<HashMap<u32, Sent>>,
    waiters: RefCell<HashMap<u64, Waiter>>,
    last_waiter: Cell<u64>,
    nonces: Cell<u64>,
    /// Replies are being delivered: what they lead to leaves together, afterwards.
    delivering: Cell<bool>,
    /// Store operations that are unknown, by shard, as sweeps counted them.
    unknown: RefCell<[Option<u64>; SHARDS as usize]>,
    swept: Cell<(u8, u64)>,
    /// So many shards are to be asked soon whether they have lost what this worker knows: somebody has
    /// found a loss. Without that, who has nothing to do would never find out, nor say what it knows,
    /// before others claim anew what they take for absent.
    asks: Cell<u8>,
    shared_at: Cell<u64>,
    shared: RefCell<Vec<u8>>,
    /// Where in shared data workers tell each other what they know of the store.
    place: String,
    reported_recovering: Cell<bool>,
}

impl Remote {
    pub(crate) fn new(store: &RedisStore, root: u32) -> Result<Self, String> {
        let variable = |name: &str| {
            let value = host::environment_variable(name)?;
            String::from_utf8(value).ok()
        };
        let settings = Settings {
            per_shard: store.per_shard,
            timeout_ms: store.timeout_ms,
            calls: store.calls as usize,
            limits: store.batch,
            waiting: store.queue as usize,
            hold_ms: store.hold_ms,
        };
        Ok(Self {
            root,
            cluster: store.cluster.clone(),
            authority: store.authority.clone(),
            queue: RefCell::new(Queue::new(store.engine(&variable)?, settings)),
            sent: RefCell::default(),
            waiters: RefCell::default(),
            last_waiter: Cell::default(),
            nonces: Cell::default(),
            delivering: Cell::default(),
            unknown: RefCell::default(),
            swept: Cell::default(),
            asks: Cell::default(),
            shared_at: Cell::default(),
            shared: RefCell::default(),
            place: format!("idempo/1/e/{}", identity(store)),
            reported_recovering: Cell::default(),
        })
    }

    /// The store's clock, where `host` is the host's.
    pub(crate) fn store_now(&self, host: u64) -> u64 {
        self.queue.borrow().store_now(host).unwrap_or(host)
    }

    pub(crate) fn failures(&self) -> u32 {
        self.queue.borrow().failures()
    }

    /// Whether no answer is awaited that anybody waits for.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiters.borrow().is_empty()
    }

    fn waiter(&self, waiter: Waiter) -> u64 {
        let id = self.last_waiter.get().wrapping_add(1);
        self.last_waiter.set(id);
        self.waiters.borrow_mut().insert(id, waiter);
        id
    }

    /// Takes an operation of a stream's in. `Some`: it has its reply already.
    pub(crate) fn ask(
        &self,
        op: Op,
        stream: &Weak<RefCell<Stream>>,
        host: u64,
    ) -> Option<(Op, Reply)> {
        let Some(stream) = stream.upgrade() else {
            return Some((op, Reply::Unsent("its stream is over".to_owned())));
        };
        let waiter = self.waiter(Waiter::Stream(stream));
        let mut events = Vec::new();
        self.queue.borrow_mut().push(op, waiter, host, &mut events);
        // The one thing that can come of it at once is its own reply.
        let Some(Event::Reply { op, reply, .. }) = events.pop() else {
            return None;
        };
        self.waiters.borrow_mut().remove(&waiter);
        Some((op, reply))
    }

    /// Looks whether an operation is still unknown, to report that a new one may be another try.
    pub(crate) fn look(&self, unknown: OperationId, new: OperationId, host: u64) {
        let waiter = self.waiter(Waiter::Suspicion(new));
        let op = Op {
            operation: unknown,
            action: Action::Read,
        };
        let mut events = Vec::new();
        self.queue.borrow_mut().push(op, waiter, host, &mut events);
        if !events.is_empty() {
            self.waiters.borrow_mut().remove(&waiter);
        }
    }

    /// Whether a claim could be taken out before it left.
    pub(crate) fn withdraw(&self, operation: &OperationId, owner: OwnerToken) -> bool {
        let waiter = self.queue.borrow_mut().withdraw(operation, owner);
        waiter.is_some_and(|waiter| self.waiters.borrow_mut().remove(&waiter).is_some())
    }

    /// Sends what may leave. Enters the root's context; the caller enters its own again.
    pub(crate) fn pump(&self, plugin: &Plugin) {
        if self.delivering.get() {
            return;
        }
        let mut events = Vec::new();
        loop {
            let at = plugin.vm().now();
            let next = self
                .queue
                .borrow_mut()
                .next(self.nonce(plugin), at.store_ms);
            let Some(Outgoing {
                call,
                request,
                timeout_ms,
            }) = next
            else {
                break;
            };
            let pseudo: [(&str, &str); 4] = [
                (":method", request.method),
                (":scheme", "http"),
                (":authority", &self.authority),
                (":path", &request.path),
            ];
            let line = |(name, value): (&str, &str)| -> Line { (name.into(), value.into()) };
            let mut lines: Vec<Line> = pseudo.map(line).into();
            lines.extend(request.headers.iter().map(|(n, v)| line((n, v))));
            let timeout = u32::try_from(timeout_ms).unwrap_or(u32::MAX >> 1);
            let token = abi::set_effective_context(self.root).and_then(|()| {
                abi::http_call(&self.cluster, &pairs::write(&lines), &request.body, timeout)
            });
            match token {
                Ok(token) => {
                    let at_us = at.wall_us;
                    self.sent.borrow_mut().insert(token, Sent { call, at_us });
                }
                Err(status) => {
                    let why = format!("the host takes no call to the cluster (status {status})");
                    let mut queue = self.queue.borrow_mut();
                    queue.on_refused(call, &why, at.store_ms, &mut events);
                }
            }
        }
        self.deliver(plugin, events);
    }

    /// Hard to guess from outside: a store without an epoch takes it for one.
    fn nonce(&self, plugin: &Plugin) -> Nonce {
        let count = self.nonces.get().wrapping_add(1);
        self.nonces.set(count);
        let seed = plugin.vm().seed();
        Nonce(
            OwnerToken::derive(&[
                b"call",
                &seed.vm,
                &seed.counter.to_be_bytes(),
                &count.to_be_bytes(),
            ])
            .0,
        )
    }

    /// Takes the answer to one of this store's calls; `false` where it is another's.
    pub(crate) fn on_response(
        &self,
        plugin: &Plugin,
        token: u32,
        lines: usize,
        size: usize,
    ) -> bool {
        let Some(Sent { call, at_us }) = self.sent.borrow_mut().remove(&token) else {
            return false;
        };
        let headers = if lines == 0 {
            None
        } else {
            host::headers(Map::CallResponse)
        };
        let status = headers.and_then(|h| h.first_str(":status")?.parse().ok());
        let body = host::buffer(Buffer::CallResponse, size).filter(|body| body.len() == size);
        let answer = status.zip(body.as_deref());
        let answer = answer.map(|(status, body)| HttpAnswer { status, body });
        let now = plugin.vm().now();
        if answer.is_some() {
            let took = now.wall_us.saturating_sub(at_us);
            plugin.metrics().time(Histogram::StoreRttUs, took);
        }
        let mut events = Vec::new();
        let mut queue = self.queue.borrow_mut();
        queue.on_answer(call, answer, now.store_ms, &mut events);
        drop(queue);
        self.deliver(plugin, events);
        self.pump(plugin);
        true
    }

    /// What many streams ask for while that runs leaves together afterwards.
    pub(crate) fn together(&self, plugin: &Plugin, run: impl FnOnce()) {
        let outer = self.delivering.replace(true);
        run();
        self.delivering.set(outer);
        self.pump(plugin);
    }

    /// Gives up what has waited too long, works the backlog off, sweeps.
    pub(crate) fn tick(&self, plugin: &Plugin) {
        let at = plugin.vm().now();
        let host = at.store_ms;
        let mut events = Vec::new();
        self.queue.borrow_mut().on_tick(host, &mut events);
        self.share(host);
        let sweeper = plugin.vm().is_sweeper(at);
        let (shard, due) = self.swept.get();
        let asks = self.asks.get();
        if asks > 0 || host >= due {
            let mut queue = self.queue.borrow_mut();
            let asked = if sweeper {
                queue.sweep(shard, SWEEP_MOST)
            } else if asks > 0 || queue.failures() > 0 || queue.store_now(host).is_none() {
                // Somebody has to find out that it answers again.
                queue.sweep(shard, 0)
            } else {
                true
            };
            if asked {
                let next = shard.wrapping_add(1) % SHARDS;
                self.swept.set((next, host.saturating_add(SWEEP_EVERY_MS)));
                self.asks.set(asks.saturating_sub(1));
            }
        }
        for (id, op) in plugin.deferred().due(host, BACKLOG_MOST) {
            let waiter = self.waiter(Waiter::Backlog(id));
            self.queue.borrow_mut().push_patient(op, waiter);
        }
        self.deliver(plugin, events);
        self.pump(plugin);
        let recovering = self.queue.borrow().is_holding(host);
        if self.reported_recovering.replace(recovering) != recovering {
            let gauge = u64::from(recovering);
            plugin.metrics().gauge(Gauge::StoreRecovering, gauge);
        }
    }

    fn deliver(&self, plugin: &Plugin, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let outer = self.delivering.replace(true);
        let host = plugin.vm().now();
        let now = plugin.of_store(host);
        for event in events {
            self.on_event(plugin, event, host.store_ms, now);
        }
        self.delivering.set(outer);
    }

    fn on_event(&self, plugin: &Plugin, event: Event, host: u64, now: Moment) {
        match event {
            Event::Reply { waiter, op, reply } => {
                let waiter = self.waiters.borrow_mut().remove(&waiter);
                match waiter {
                    Some(Waiter::Stream(stream)) => {
                        stream.borrow_mut().on_store_reply(op, reply, now);
                    }
                    Some(Waiter::Backlog(id)) => plugin.deferred().settle(id, &op, &reply, host),
                    Some(Waiter::Suspicion(new)) => {
                        plugin.on_suspicion(&new, op.operation, &reply, now);
                    }
                    None => {}
                }
            }
            Event::TakeBack(op) => plugin.deferred().defer(op, host),
            Event::Assert(op) => plugin.deferred().assert(op, host),
            Event::Forgot { shard, how } => self.on_forgot(plugin, shard, how, host, now),
            Event::Doubted { shard, first } => self.on_doubted(plugin, shard, first, host, now),
            Event::Anonymous => host::log(
                Level::Warn,
                &format!(
                    "the store at cluster {} does not say which server it is: when it starts again, or another \
                     takes its place, nothing tells that the last writes may be lost. Its user should be \
                     allowed INFO, and INFO replication should have master_replid",
                    self.cluster
                ),
            ),
            Event::Swept(swept) => self.on_swept(plugin, swept),
            Event::Ready(Ok(())) => {
                plugin.metrics().gauge(Gauge::StoreReady, 1);
                plugin.deferred().hurry(host);
                host::log(
                    Level::Info,
                    &format!("the store at cluster {} answers", self.cluster),
                );
            }
            Event::Ready(Err(why)) => {
                plugin.metrics().gauge(Gauge::StoreReady, 0);
                host::log(
                    Level::Error,
                    &format!(
                        "the store at cluster {} does not answer ({why}): claims follow each \
                         route's store_failure. Is there a cluster of this name, is what speaks \
                         for the store up, is it the configured transport?",
                        self.cluster
                    ),
                );
            }
        }
    }

    fn on_forgot(&self, plugin: &Plugin, shard: u8, how: &str, host: u64, now: Moment) {
        let left = self.queue.borrow().recovering_ms(host) / 1000;
        host::log(
            Level::Error,
            &format!(
                "the store at cluster {} has lost writes of shard {shard} ({how}): for {left} s \
                 nothing new is claimed there, while proxies write again what they know. What no \
                 living proxy knows is lost",
                self.cluster
            ),
        );
        let metrics = plugin.metrics();
        metrics.count(&plugin.policy().plan, Counter::StoreForgot);
        self.write_again(plugin, shard, host, now);
    }

    /// The server of this shard is another one than before.
    fn on_doubted(&self, plugin: &Plugin, shard: u8, first: bool, host: u64, now: Moment) {
        if first {
            host::log(
                Level::Warn,
                &format!(
                    "the store at cluster {} has been started again, or another server has taken its \
                     place: nothing new is claimed for a moment, while proxies write again what it may \
                     lack",
                    self.cluster
                ),
            );
        }
        self.write_again(plugin, shard, host, now);
    }

    /// Other workers are told, and what runs says so again.
    fn write_again(&self, plugin: &Plugin, shard: u8, host: u64, now: Moment) {
        plugin.metrics().gauge(Gauge::StoreRecovering, 1);
        self.reported_recovering.set(true);
        self.asks.set(SHARDS);
        self.shared_at.set(0);
        self.share(host);
        for stream in plugin.watched() {
            // A stream that is just being told is told by its own next tick.
            if let Ok(mut stream) = stream.try_borrow_mut() {
                stream.visit(now, |exchange, out| {
                    exchange.on_store_forgot(shard, now, out)
                });
            }
        }
    }

    fn on_swept(&self, plugin: &Plugin, swept: Swept) {
        let mut noted = Vec::new();
        for (operation, record) in swept.noted {
            match record {
                Some(record) => noted.push((operation, *record)),
                None => host::log(
                    Level::Error,
                    &format!("the record of operation {operation} is damaged"),
                ),
            }
        }
        plugin.report_lapses(&noted);
        let mut unknown = self.unknown.borrow_mut();
        if let Some(slot) = unknown.get_mut(usize::from(swept.state.shard)) {
            *slot = Some(swept.unknown);
        }
        // Only the worker that sweeps has seen all of them.
        if swept.state.shard == SHARDS - 1
            && let Some(sum) = unknown.iter().copied().sum()
        {
            plugin.metrics().gauge(Gauge::UnknownOpen, sum);
        }
    }

    /// Learns what other workers know of the store, and tells them.
    fn share(&self, host: u64) {
        if host < self.shared_at.get().saturating_add(SHARE_EVERY_MS) {
            return;
        }
        self.shared_at.set(host);
        let mut shared = HostSharedData;
        let found = shared.get(&self.place).ok().flatten();
        let mut queue = self.queue.borrow_mut();
        if let Some((octets, _)) = &found
            && let Some((memory, until)) = octets.split_last_chunk::<8>()
        {
            let until = u64::from_le_bytes(*until);
            if queue.learn(&Memory::decode(memory), until) {
                self.asks.set(SHARDS);
            }
        }
        let mut own = queue.memory().encode();
        own.extend_from_slice(&queue.recovering_until().to_le_bytes());
        drop(queue);
        // Whoever has nothing new to say does not speak over others.
        if *self.shared.borrow() == own {
            return;
        }
        let told = match found {
            None => shared.create(&self.place, &own),
            Some((_, cas)) => shared.replace(&self.place, &own, cas),
        };
        if told.unwrap_or(false) {
            *self.shared.borrow_mut() = own;
        }
    }
}

/// What makes it this store and no other.
pub(crate) fn identity(store: &RedisStore) -> String {
    let layout = format!("{:?}", store.layout);
    let parts = [
        store.cluster.as_bytes(),
        store.authority.as_bytes(),
        layout.as_bytes(),
    ];
    let token = OwnerToken::derive(&parts);
    let hex = |octet: &u8| format!("{octet:02x}");
    token.0.iter().take(8).map(hex).collect()
}
