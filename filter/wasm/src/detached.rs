//! Calls of detached attempts: sent by the root through the loopback cluster, so that they outlive the
//! stream that they are for; and the probes that tell whether that way is open.
//!
//! The host keeps a call with the context that makes it and cancels it with that context. So the
//! root's context is entered for it, and the stream's again afterwards. While a call is under way it
//! keeps its stream alive here, whatever became of the host's.
//!
//! Until a probe was answered attempts run inline, and so they do again when a call comes back with
//! an answer that Envoy made on the way: a loopback that is not set up costs the client's
//! independence, and no operation.

use crate::abi;
use crate::host::{self, HostSharedData};
use crate::metrics::Metrics;
use crate::plugin::Plugin;
use crate::stream::Stream;
use idempo_core::exchange::{Call, Level, Moment};
use idempo_core::http::{Headers, Line};
use idempo_core::metrics::Gauge;
use idempo_core::pairs;
use idempo_core::store::table::SharedData;
use idempo_core::trusted::{DETACHED_HEADER, INNER_HEADER, PROBE, PROBE_PATH, SIGNATURE_HEADER};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// Calls under way in one worker; what comes beyond runs inline.
const MAX_CALLS: usize = 1024;

/// How long a probe may take, milliseconds.
const PROBE_TIMEOUT_MS: u64 = 1_000;

/// The pause after the first probe that failed, and the longest, milliseconds.
const FIRST_PAUSE_MS: u64 = 100;
const LONGEST_PAUSE_MS: u64 = 30_000;

/// Between probes of a loopback that answers, milliseconds.
const CONFIRM_MS: u64 = 30_000;

/// At start the listener may open a little later than the first tick comes: told from this failure on.
const TOLD_AT_FAILURE: u32 = 5;

/// When it was last told, for all workers, and how often it is, milliseconds.
const TOLD: &str = "idempo/1/loopback";
const TOLD_AGAIN_MS: u64 = 600_000;

/// The way through the loopback cluster, of one root.
pub(crate) struct Loopback {
    cluster: String,
    root: u32,
    calls: RefCell<HashMap<u32, Rc<RefCell<Stream>>>>,
    /// What the gauge was last told of them.
    reported: Cell<usize>,
    ready: Cell<bool>,
    /// Requests come to this root. The host's main thread has one, too, to which none ever come and
    /// from which no internal listener can be reached.
    used: Cell<bool>,
    probe: Cell<Probe>,
}

#[derive(Clone, Copy, Default)]
struct Probe {
    /// The one under way.
    token: Option<u32>,
    /// Store clock of the next one.
    due: u64,
    failures: u32,
}

impl Loopback {
    pub(crate) fn new(cluster: String, root: u32) -> Self {
        Self {
            cluster,
            root,
            calls: RefCell::default(),
            reported: Cell::default(),
            ready: Cell::default(),
            used: Cell::default(),
            probe: Cell::default(),
        }
    }

    /// Whether an attempt may go this way now.
    pub(crate) fn is_open(&self) -> bool {
        self.ready.get() && self.calls.borrow().len() < MAX_CALLS
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.calls.borrow().is_empty()
    }

    /// A request came to this root.
    pub(crate) fn note_used(&self) {
        if !self.used.replace(true) && !self.ready.get() {
            let probe = self.probe.get();
            self.probe.set(Probe { due: 0, ..probe });
        }
    }

    /// Sends an attempt's request. `false`: the host takes no such call, nothing was sent.
    pub(crate) fn send(
        &self,
        call: &Call,
        stream: Rc<RefCell<Stream>>,
        metrics: &Metrics,
        now: Moment,
    ) -> bool {
        match self.call(&call.headers, &call.body, call.timeout_ms) {
            Ok(token) => {
                self.calls.borrow_mut().insert(token, stream);
                true
            }
            Err(status) => {
                let why = format!("the loopback takes no call (status {status})");
                self.shut(&why, metrics, now);
                false
            }
        }
    }

    /// Nobody else goes this way until a probe was answered.
    fn shut(&self, why: &str, metrics: &Metrics, now: Moment) {
        host::log(
            Level::Warn,
            &format!("{why}: running inline until it answers again"),
        );
        self.ready.set(false);
        metrics.gauge(Gauge::LoopbackReady, 0);
        let probe = self.probe.get();
        self.probe.set(Probe {
            due: now.store_ms,
            ..probe
        });
    }

    fn call(&self, lines: &[Line], body: &[u8], timeout_ms: u64) -> Result<u32, u32> {
        abi::set_effective_context(self.root)?;
        let timeout = u32::try_from(timeout_ms).unwrap_or(u32::MAX >> 1);
        abi::http_call(&self.cluster, &pairs::write(lines), body, timeout)
    }

    /// The stream whose call this was, where it was one.
    pub(crate) fn take(&self, token: u32) -> Option<Rc<RefCell<Stream>>> {
        self.calls.borrow_mut().remove(&token)
    }

    /// What an answer says of the way that it came. `None`: the call broke off, for whatever reason.
    pub(crate) fn learn(&self, answer: Option<&Headers>, metrics: &Metrics, now: Moment) {
        // An answer that no inner pass has seen is Envoy's own: nobody else is to meet it.
        if self.ready.get() && answer.is_some_and(|headers| !headers.has(INNER_HEADER)) {
            let why = "an answer did not come through the loopback listener";
            self.shut(why, metrics, now);
        }
    }

    /// Takes a probe's answer; `false` where the token is not a probe's.
    pub(crate) fn on_probed(
        &self,
        token: u32,
        answer: Option<&Headers>,
        plugin: &Plugin,
        now: Moment,
    ) -> bool {
        if self.probe.get().token != Some(token) {
            return false;
        }
        let good = answer.is_some_and(|headers| {
            headers.first_str(":status") == Some("204") && headers.has(INNER_HEADER)
        });
        self.note(good, plugin, now);
        true
    }

    fn note(&self, good: bool, plugin: &Plugin, now: Moment) {
        let metrics = plugin.metrics();
        let failures = if good {
            0
        } else {
            self.probe.get().failures.saturating_add(1)
        };
        let pause = if good {
            CONFIRM_MS
        } else {
            (FIRST_PAUSE_MS << failures.min(9)).min(LONGEST_PAUSE_MS)
        };
        self.probe.set(Probe {
            token: None,
            due: now.store_ms.saturating_add(pause),
            failures,
        });
        let used = self.used.get();
        if self.ready.replace(good) != good || (used && failures == TOLD_AT_FAILURE) {
            metrics.gauge(Gauge::LoopbackReady, u64::from(good));
        }
        if used && failures >= TOLD_AT_FAILURE && may_tell(now) {
            host::log(
                Level::Warn,
                &format!(
                    "nothing of this filter answers at the loopback cluster {}, so attempts run \
                     inline and a client that leaves makes its operation unknown. The cluster needs \
                     an envoy_internal_address endpoint, the bootstrap the extension \
                     envoy.bootstrap.internal_listener, and the internal listener this filter with \
                     the same configuration and signing secret. It is tried again, quietly",
                    self.cluster
                ),
            );
        }
    }

    /// Sends a probe where one is due, and tells the gauge how many calls there are.
    pub(crate) fn tick(&self, plugin: &Plugin, now: Moment) {
        let (before, calls) = (self.reported.get(), self.calls.borrow().len());
        if before != calls {
            self.reported.set(calls);
            let change = |n: usize| i64::try_from(n).unwrap_or(0);
            let metrics = plugin.metrics();
            metrics.shift(Gauge::DetachedCalls, change(calls) - change(before));
        }
        let probe = self.probe.get();
        let idle = !self.used.get() && probe.failures >= TOLD_AT_FAILURE;
        if idle || probe.token.is_some() || now.store_ms < probe.due {
            return;
        }
        let policy = plugin.policy();
        let Some(signer) = &policy.signer else {
            return;
        };
        let mut own: Vec<Line> = vec![(DETACHED_HEADER.into(), PROBE.into())];
        let path = PROBE_PATH.as_bytes();
        let signature = signer.sign(&own, b"GET", path, now.wall_ms() / 1000);
        own.push((SIGNATURE_HEADER.into(), signature.into_bytes()));
        let pseudo: [(&str, &str); 4] = [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "idempo"),
            (":path", PROBE_PATH),
        ];
        let mut lines: Vec<Line> = pseudo.map(|(n, v)| (n.into(), v.into())).into();
        lines.extend(own);
        match self.call(&lines, &[], PROBE_TIMEOUT_MS) {
            Ok(token) => self.probe.set(Probe {
                token: Some(token),
                ..probe
            }),
            Err(_) => self.note(false, plugin, now),
        }
    }

    /// The root is about to go: what its gauge counts goes with it.
    pub(crate) fn close(&self, metrics: &Metrics) {
        let left = i64::try_from(self.reported.replace(0)).unwrap_or(0);
        if left != 0 {
            metrics.shift(Gauge::DetachedCalls, -left);
        }
    }
}

/// All workers see that a loopback does not answer: one of them says so, and says so again after a
/// while.
fn may_tell(now: Moment) -> bool {
    let mut shared = HostSharedData;
    let stamp = now.store_ms.to_le_bytes();
    let won = match shared.get(TOLD) {
        Ok(None) => shared.create(TOLD, &stamp),
        Ok(Some((value, cas))) => {
            let told = value.try_into().map_or(0, u64::from_le_bytes);
            if now.store_ms < told.saturating_add(TOLD_AGAIN_MS) {
                return false;
            }
            shared.replace(TOLD, &stamp, cas)
        }
        Err(_) => return true,
    };
    won.unwrap_or(false)
}
