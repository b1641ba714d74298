//! One configured plugin in one worker: configuration, metrics, ticks, wake-ups.

use crate::deferred::Deferred;
use crate::detached::Loopback;
use crate::host::{self, Buffer, HostSharedData, Map};
use crate::metrics::Metrics;
use crate::remote::{self, Remote};
use crate::stream::Stream;
use crate::suspects;
use crate::vm::{self, Vm};
use idempo_core::config;
use idempo_core::exchange::{Level, Moment, Policy, lapse, likeness};
use idempo_core::ids::OperationId;
use idempo_core::metrics::{Counter, Gauge};
use idempo_core::plan::{Plan, Signing, Store};
use idempo_core::record::{Record, Status};
use idempo_core::store::rate::Rates;
use idempo_core::store::table::{Cache, SharedData};
use idempo_core::store::{Action, Full, Op, Reply};
use idempo_core::trusted::{Secret, Signer};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Ticks per second are ten: waiters time out, leases are renewed, the clock moves on.
const TICK_MS: u32 = 100;

/// What a root that was replaced stays beyond its longest upstream time-out, milliseconds.
const LEAVING_GRACE_MS: u64 = 5_000;

/// No host's buffer is so small that a body of this many octets would fill it.
const SMALL_BUFFER: u64 = 16 << 10;

/// How often a host that withholds bodies is tried again, milliseconds.
const WITHHELD_AGAIN_MS: u64 = 60_000;

/// A configured plugin, shared with its streams.
pub(crate) struct Plugin {
    policy: Arc<Policy>,
    metrics: Metrics,
    vm: Rc<Vm>,
    /// Streams that want ticks.
    watched: RefCell<HashMap<u32, Weak<RefCell<Stream>>>>,
    /// A body callback came while headers were held: the host is set up as it must be. Each
    /// configuration has its own, since the host's setting comes with it.
    body_seen: Cell<bool>,
    /// The most octets of a held body after which the host still went on to show more.
    most_held: Cell<u64>,
    /// When a held body was last found to be withheld, or one is held to find that out again.
    withheld_at: Cell<Option<u64>>,
    /// The way of detached attempts, where one is configured.
    loopback: Option<Loopback>,
    /// The way to the store, where it is not in this host's memory.
    remote: Option<Remote>,
    /// Answers that a remote store need not be asked for.
    cache: Option<Cache>,
    deferred: Deferred,
    rates: Option<RefCell<Rates>>,
}

impl Plugin {
    pub(crate) fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy)
    }

    pub(crate) const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) fn vm(&self) -> &Vm {
        &self.vm
    }

    pub(crate) const fn body_seen(&self) -> &Cell<bool> {
        &self.body_seen
    }

    pub(crate) const fn loopback(&self) -> Option<&Loopback> {
        self.loopback.as_ref()
    }

    pub(crate) const fn remote(&self) -> Option<&Remote> {
        self.remote.as_ref()
    }

    pub(crate) const fn deferred(&self) -> &Deferred {
        &self.deferred
    }

    /// The time, by the store's clock where it has one.
    pub(crate) fn now(&self) -> Moment {
        self.of_store(self.vm.now())
    }

    /// That moment by the store's clock.
    pub(crate) fn of_store(&self, host: Moment) -> Moment {
        let store_ms = match &self.remote {
            Some(remote) => remote.store_now(host.store_ms),
            None => host.store_ms,
        };
        Moment { store_ms, ..host }
    }

    /// Puts a step to the store. `None`: its reply comes later, to [`Stream::on_store_reply`].
    pub(crate) fn ask(
        &self,
        op: Op,
        stream: &Weak<RefCell<Stream>>,
        now: Moment,
    ) -> Option<(Op, Reply)> {
        if let Action::Claim(claim) | Action::TakeOver { claim, .. } = &op.action {
            let rates = self.rates.as_ref();
            if !rates.is_none_or(|r| r.borrow_mut().admits(claim.tenant, now.wall_ms())) {
                return Some((op, Reply::Full(Full::TenantRate)));
            }
            if self.deferred.is_high() {
                let why = "too many writes wait already to be made";
                return Some((op, Reply::Unsent(why.to_owned())));
            }
        }
        match &self.remote {
            Some(remote) => remote.ask(op, stream, self.vm.at(now.wall_us).store_ms),
            None => {
                let reply = self.vm.store(&op, now);
                Some((op, reply))
            }
        }
    }

    /// The record of an operation that has ended, and its answer, as far as they are at hand.
    pub(crate) fn recall(&self, operation: &OperationId, now: Moment) -> Option<(Record, Vec<u8>)> {
        self.cache?
            .recall(&mut HostSharedData, operation, now.store_ms)
    }

    /// Keeps an answer at hand.
    pub(crate) fn remember(
        &self,
        operation: &OperationId,
        record: &Record,
        blob: &[u8],
        now: Moment,
    ) {
        if let Some(cache) = self.cache {
            cache.remember(&mut HostSharedData, operation, record, blob, now.store_ms);
        }
    }

    /// Keeps a write until it is made; a claim that has not left yet is taken out instead.
    pub(crate) fn defer(&self, op: Op) {
        if let (Action::Cancel { owner }, Some(remote)) = (&op.action, &self.remote)
            && remote.withdraw(&op.operation, *owner)
        {
            return;
        }
        self.deferred.defer(op, self.vm.now().store_ms);
    }

    /// A new operation asks for what another one, still unknown, asked for: its client changed keys
    /// before that was settled, and may act twice.
    pub(crate) fn report_changed_key(&self, new: &OperationId, likeness: u64, now: Moment) {
        let Some(unknown) = self.vm.suspect(new, likeness) else {
            return;
        };
        let read = Op {
            operation: unknown,
            action: Action::Read,
        };
        match &self.remote {
            Some(remote) => remote.look(unknown, *new, self.vm.at(now.wall_us).store_ms),
            None => self.on_suspicion(new, unknown, &self.vm.store(&read, now), now),
        }
    }

    pub(crate) fn on_suspicion(
        &self,
        new: &OperationId,
        unknown: OperationId,
        reply: &Reply,
        now: Moment,
    ) {
        if let Reply::Current(record) = reply
            && record.view(now.store_ms).status() == Status::Unknown
            && self.vm.first_report(unknown)
        {
            host::log(
                Level::Warn,
                &format!(
                    "operation {new} of route {} asks for the same as operation {unknown}, which is \
                     still unknown: the client may have changed keys too early",
                    record.route
                ),
            );
        }
    }

    /// Streams that want ticks.
    pub(crate) fn watched(&self) -> Vec<Rc<RefCell<Stream>>> {
        let watched = self.watched.borrow();
        watched.values().filter_map(Weak::upgrade).collect()
    }

    /// What many streams ask the store for while that runs leaves together.
    fn together(&self, run: impl FnOnce()) {
        match &self.remote {
            Some(remote) => remote.together(self, run),
            None => run(),
        }
    }

    /// Whether nothing is left that must still be recorded.
    fn is_idle(&self) -> bool {
        self.loopback.as_ref().is_none_or(Loopback::is_idle)
            && self.remote.as_ref().is_none_or(Remote::is_idle)
            && self.deferred.is_empty()
    }

    /// What its gauges count goes with it; writes that wait are for whoever comes next.
    fn close(&self) {
        if let Some(loopback) = &self.loopback {
            loopback.close(&self.metrics);
        }
        match self.deferred.close() {
            0 => {}
            left => self.metrics.shift(Gauge::WriteBacklog, -left),
        }
    }

    /// How long anything may take that was begun now, milliseconds.
    fn longest_ms(&self) -> u64 {
        let routes = self.policy.plan.routes.iter();
        let longest = routes.map(|r| r.upstream.timeout_ms).max();
        longest.unwrap_or(0).saturating_add(LEAVING_GRACE_MS)
    }

    /// The host went on to show a body of which it holds so much.
    pub(crate) fn note_held(&self, octets: u64) {
        self.most_held.set(self.most_held.get().max(octets));
    }

    /// Whether the host is known to go on while it holds so much of a body: then it is the client that
    /// takes its time.
    pub(crate) fn can_hold(&self, octets: u64) -> bool {
        self.body_seen.get() && octets <= self.most_held.get().max(SMALL_BUFFER)
    }

    pub(crate) fn note_withheld(&self, now: Moment) {
        self.withheld_at.set(Some(now.store_ms));
    }

    /// Whether a body to be observed need not be waited for: it would not come. One in a while is
    /// waited for all the same, since a first client that was slow looks like such a host.
    pub(crate) fn is_withheld(&self, now: Moment) -> bool {
        let Some(at) = self.withheld_at.get() else {
            return false;
        };
        if self.body_seen.get() {
            return false;
        }
        let due = now.store_ms >= at.saturating_add(WITHHELD_AGAIN_MS);
        if due {
            self.note_withheld(now);
        }
        !due
    }

    pub(crate) fn watch(&self, id: u32, stream: Weak<RefCell<Stream>>) {
        self.watched.borrow_mut().insert(id, stream);
    }

    pub(crate) fn forget(&self, id: u32) {
        self.watched.borrow_mut().remove(&id);
    }

    fn tick(&self) {
        self.vm.advance_clock();
        self.vm.look_for_notes();
        // A stream may leave the map while it is visited.
        let streams = self.watched();
        let now = self.now();
        self.together(|| {
            for stream in streams {
                stream.borrow_mut().tick(now);
            }
        });
        // All workers share the gauge, so each adds its own change.
        match self.deferred.tick(self.vm.now().store_ms) {
            0 => {}
            change => self.metrics.shift(Gauge::WriteBacklog, change),
        }
        if let Some(remote) = &self.remote {
            return remote.tick(self);
        }
        for (id, op) in self.deferred.due(now.store_ms, usize::MAX) {
            let reply = self.vm.store(&op, now);
            self.deferred.settle(id, &op, &reply, now.store_ms);
        }
        if let Some(report) = self.vm.sweep(now) {
            self.report(&report);
        }
    }

    /// Operations of which the sweep found that time has passed.
    pub(crate) fn report_lapses(&self, transitions: &[(OperationId, Record)]) {
        for (operation, record) in transitions {
            let route = self
                .policy
                .plan
                .routes
                .iter()
                .position(|r| r.id == record.route);
            let index = route
                .and_then(|r| u16::try_from(r).ok())
                .unwrap_or(u16::MAX);
            let (cause, line) = lapse(operation, record);
            self.metrics
                .count(&self.policy.plan, Counter::Unknown(index, cause));
            let likeness = likeness(&record.tenant, &record.route, &record.fingerprint);
            suspects::note(&mut HostSharedData, likeness, operation);
            host::log(Level::Warn, &line);
        }
    }

    fn report(&self, report: &crate::vm::Swept) {
        self.report_lapses(&report.transitions);
        if let Some(pass) = report.pass {
            self.metrics.gauge(Gauge::UnknownOpen, pass.open_unknown);
            self.metrics
                .gauge(Gauge::StoreUsedRatio, pass.used_permille);
            self.metrics
                .gauge(Gauge::StoreReady, u64::from(pass.damaged == 0));
            if pass.damaged > 0 {
                host::log(
                    Level::Error,
                    &format!(
                        "{} parts of the store are damaged: operations there are refused until \
                         this Envoy restarts",
                        pass.damaged
                    ),
                );
            }
        }
    }
}

/// The host's root context: a plugin, once it is configured.
pub(crate) struct Root {
    id: u32,
    /// It was replaced and has asked to stay, until this time of the store's clock at most.
    leaving: Cell<Option<u64>>,
    plugin: RefCell<Option<Rc<Plugin>>>,
    queue_registered: Cell<bool>,
}

impl Root {
    pub(crate) fn new(id: u32) -> Self {
        Self {
            id,
            leaving: Cell::default(),
            plugin: RefCell::default(),
            queue_registered: Cell::default(),
        }
    }

    /// What its new streams belong to.
    pub(crate) fn plugin(&self) -> Option<Rc<Plugin>> {
        self.register_queue_once();
        self.plugin.borrow().clone()
    }

    /// Reads the configuration and opens the store.
    ///
    /// # Errors
    /// What to write in the log; the host then refuses the configuration.
    fn configure(&self, size: usize) -> Result<(), String> {
        let bytes = host::buffer(Buffer::PluginConfiguration, size).unwrap_or_default();
        let plan = config::parse(&bytes)
            .map_err(|errors| format!("the configuration is refused:\n{errors}"))?;
        let signer = plan
            .signing
            .as_ref()
            .map(|s| signer(s, &plan))
            .transpose()?;
        host::learn_cas_rule();
        let vm = Vm::current();
        #[cfg(feature = "test-faults")]
        crate::faults::choose_format();
        let proxy = host::text_property(&["xds", "node", "id"]).unwrap_or_default();
        let metrics = Metrics::default();
        metrics.build_info();
        let holder = vm.number().wrapping_shl(16) | u64::from(self.id & 0xffff);
        let (remote, deferred, remembers_since, first) = match &plan.store {
            Store::SharedData(store) => {
                let opened = vm.open(store)?;
                metrics.gauge(Gauge::StoreReady, 1);
                let since = opened.since_wall_ms;
                metrics.gauge(Gauge::StoreSince, since / 1000);
                host::log(
                    Level::Info,
                    "the shared_data store forgets when this Envoy restarts: an operation from \
                     before a restart would run again",
                );
                let deferred = Deferred::new("shared_data", holder);
                (None, deferred, Some(since), opened.first)
            }
            Store::Redis(store) => {
                vm.open_clock();
                let deferred = Deferred::new(&remote::identity(store), holder);
                let first = is_first();
                if first {
                    // Until it has answered.
                    metrics.gauge(Gauge::StoreReady, 0);
                    metrics.gauge(Gauge::StoreRecovering, 0);
                }
                (Some(Remote::new(store, self.id)?), deferred, None, first)
            }
        };
        if first {
            // It is there from the start; later only its changes are told.
            metrics.gauge(Gauge::WriteBacklog, 0);
        }
        let cache = (remote.is_some() && plan.replay_cache_bytes > 0)
            .then(|| Cache::new(plan.replay_cache_bytes, vm::cache_seed()));
        let rates = plan.limits.tenant_claims_per_second.map(Rates::new);
        let cluster = plan.loopback_cluster.clone();
        let loopback = cluster.map(|cluster| Loopback::new(cluster, self.id));
        if loopback.is_some() && first {
            metrics.gauge(Gauge::LoopbackReady, 0);
        }
        let policy = Arc::new(Policy {
            plan,
            signer,
            proxy,
            remembers_since,
        });
        host::set_tick_ms(TICK_MS)?;
        *self.plugin.borrow_mut() = Some(Rc::new(Plugin {
            policy,
            metrics,
            vm,
            watched: RefCell::default(),
            body_seen: Cell::default(),
            most_held: Cell::default(),
            withheld_at: Cell::default(),
            loopback,
            remote,
            cache,
            deferred,
            rates: rates.map(RefCell::new),
        }));
        Ok(())
    }

    /// Not at configuration: a VM that is only tried out must leave nothing behind.
    fn register_queue_once(&self) {
        if let Some(plugin) = self.plugin.borrow().as_ref()
            && !self.queue_registered.replace(true)
        {
            plugin.vm.register_queue();
        }
    }
}

/// Whether this is the first configuration of the process with a remote store.
fn is_first() -> bool {
    const BEGUN: &str = "idempo/1/begun";
    HostSharedData.create(BEGUN, b"1").unwrap_or(false)
}

fn signer(signing: &Signing, plan: &Plan) -> Result<Signer, String> {
    let read = |name: &str| {
        let value = host::environment_variable(name).ok_or_else(|| {
            format!(
                "signing: the environment variable {name} is not set, or not passed to the filter; \
                 name it in vm_config.environment_variables.host_env_keys"
            )
        })?;
        Secret::new(value).map_err(|error| format!("signing: {name}: {error}"))
    };
    Ok(Signer {
        active: read(&signing.active_env)?,
        previous: signing.previous_env.as_deref().map(read).transpose()?,
        namespace: plan.namespace.clone(),
    })
}

impl Root {
    pub(crate) fn on_configure(&self, size: usize) -> bool {
        match self.configure(size) {
            Ok(()) => true,
            Err(message) => {
                host::log(Level::Error, &message);
                false
            }
        }
    }

    pub(crate) fn on_tick(&self) {
        let Some(plugin) = self.plugin() else {
            return;
        };
        plugin.tick();
        let now = plugin.now();
        let Some(until) = self.leaving.get() else {
            if let Some(loopback) = &plugin.loopback {
                loopback.tick(&plugin, now);
            }
            return;
        };
        let late = now.store_ms >= until;
        if !late && !plugin.is_idle() {
            return;
        }
        if late {
            host::log(
                Level::Error,
                "a replaced configuration goes although writes of it still wait: the next one \
                 takes them over",
            );
        }
        self.leaving.set(None);
        plugin.close();
        host::root_is_done(self.id);
    }

    /// The answer to one of this root's calls. Read here, where the host shows it, before any stream is
    /// entered.
    pub(crate) fn on_call_response(&self, token: u32, lines: usize, size: usize, trailers: usize) {
        let Some(plugin) = self.plugin() else {
            return;
        };
        if let Some(remote) = &plugin.remote
            && remote.on_response(&plugin, token, lines, size)
        {
            return;
        }
        let Some(loopback) = &plugin.loopback else {
            return;
        };
        let headers = if lines == 0 {
            None
        } else {
            host::headers(Map::CallResponse)
        };
        let now = plugin.now();
        if loopback.on_probed(token, headers.as_ref(), &plugin, now) {
            return;
        }
        let Some(stream) = loopback.take(token) else {
            return;
        };
        loopback.learn(headers.as_ref(), &plugin.metrics, now);
        let body = host::buffer(Buffer::CallResponse, size).filter(|body| body.len() == size);
        stream
            .borrow_mut()
            .on_detached(headers.zip(body), trailers != 0, now);
    }

    pub(crate) fn on_queue_ready(&self, queue: u32) {
        if let Some(plugin) = self.plugin() {
            let now = plugin.now();
            plugin.together(|| {
                for stream in plugin.vm.woken(queue) {
                    stream
                        .borrow_mut()
                        .visit(now, |exchange, out| exchange.on_wake(out));
                }
            });
        }
    }

    /// Whether it may go at once: not while calls are under way, whose answers would be lost with it.
    pub(crate) fn on_done(&self) -> bool {
        let Some(plugin) = self.plugin.borrow().clone() else {
            return true;
        };
        if plugin.is_idle() {
            plugin.close();
            return true;
        }
        let now = plugin.now();
        let until = now.store_ms.saturating_add(plugin.longest_ms());
        self.leaving.set(Some(until));
        false
    }
}
