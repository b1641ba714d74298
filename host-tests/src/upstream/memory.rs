//! What the upstream remembers: requests as they came, effects, gates.

use super::{
    Instruction,
    body::{Digest, digest},
    uploads::Uploads,
};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tokio::sync::watch;

/// One request as it reached the upstream.
#[derive(Clone)]
pub struct Received {
    /// The method.
    pub method: String,
    /// Path and query as sent.
    pub target: String,
    /// Header lines in order; names as sent.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The whole body, without transfer coding; empty where it was larger than [`KEPT_BODY`](super::KEPT_BODY).
    pub body: Bytes,
    /// How many octets it had.
    pub length: u64,
    /// Its digest, however large it was.
    pub digest: Digest,
    /// Whether the whole of it came.
    pub whole: bool,
    /// The number of the effect that it had, counted from 1.
    pub effect: Option<u64>,
}

impl Received {
    /// The values of every line of that name (any case), in order.
    #[must_use]
    pub fn all(&self, name: &str) -> Vec<&[u8]> {
        self.headers
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_slice())
            .collect()
    }

    /// The value of the only line of that name; `None` where there is none.
    ///
    /// # Panics
    /// Where the line is repeated or not UTF-8: a test that expects one value must not pass by the
    /// first of several.
    #[must_use]
    pub fn one(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() <= 1, "{name} is repeated in {self:?}");
        all.first()
            .map(|v| std::str::from_utf8(v).expect("a UTF-8 value"))
    }

    /// Whether exactly these octets came as its body.
    #[must_use]
    pub fn brought(&self, octets: &[u8]) -> bool {
        self.whole && self.length == octets.len() as u64 && self.digest == digest(octets)
    }

    /// The names of the trusted derived headers that it carries.
    #[must_use]
    pub fn derived(&self) -> Vec<&str> {
        self.headers
            .iter()
            .map(|(n, _)| n.as_str())
            .filter(|n| n.starts_with("x-idempo-"))
            .collect()
    }

    /// The trusted operation id.
    #[must_use]
    pub fn operation(&self) -> Option<&str> {
        self.one("x-idempo-operation")
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} {} (effect {:?})",
            self.method, self.target, self.effect
        )?;
        for (name, value) in &self.headers {
            writeln!(f, "  {name}: {}", value.escape_ascii())?;
        }
        let state = if self.whole { "" } else { ", cut off" };
        write!(f, "  {} octets of body{state}", self.length)
    }
}

/// Effects counted three ways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// All.
    pub total: u64,
    /// Per `x-idempo-operation`; writes without one are under the empty string.
    pub by_operation: BTreeMap<String, u64>,
    /// Per `idempotency-key` as it reached the upstream.
    pub by_key: BTreeMap<String, u64>,
}

#[derive(Debug, Default)]
struct Log {
    requests: VecDeque<Received>,
    by_operation: BTreeMap<String, u64>,
    by_key: BTreeMap<String, u64>,
    default: Option<Instruction>,
}

/// Shared by all connections of one upstream.
#[derive(Debug)]
pub(super) struct Memory {
    keep: usize,
    effects: AtomicU64,
    arrivals: watch::Sender<u64>,
    open: watch::Sender<HashSet<String>>,
    has_default: AtomicBool,
    log: Mutex<Log>,
    pub(super) uploads: Uploads,
}

impl Memory {
    pub(super) fn new(keep: usize) -> Self {
        Self {
            keep,
            effects: AtomicU64::new(0),
            arrivals: watch::Sender::new(0),
            open: watch::Sender::new(HashSet::new()),
            has_default: AtomicBool::new(false),
            log: Mutex::new(Log::default()),
            uploads: Uploads::new(keep),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        // A test that panicked elsewhere must still be able to print what came.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether requests are kept at all; if not, callers need not collect them.
    pub(super) fn keeps(&self) -> bool {
        self.keep > 0
    }

    /// Counts an effect; returns its number.
    pub(super) fn act(&self) -> u64 {
        self.effects.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Remembers a request.
    pub(super) fn record(&self, request: Received) {
        let mut log = self.log();
        if request.effect.is_some() {
            let text = |name: &str| {
                let values = request.all(name);
                String::from_utf8_lossy(&values.join(&b", "[..])).into_owned()
            };
            let (operation, key) = (text("x-idempo-operation"), text("idempotency-key"));
            *log.by_operation.entry(operation).or_default() += 1;
            *log.by_key.entry(key).or_default() += 1;
        }
        log.requests.push_back(request);
        if log.requests.len() > self.keep {
            log.requests.pop_front();
        }
        drop(log);
        self.arrivals.send_modify(|n| *n += 1);
    }

    pub(super) fn effects(&self) -> Effects {
        let log = self.log();
        Effects {
            total: self.effects.load(Ordering::Relaxed),
            by_operation: log.by_operation.clone(),
            by_key: log.by_key.clone(),
        }
    }

    pub(super) fn requests(&self) -> Vec<Received> {
        self.log().requests.iter().cloned().collect()
    }

    pub(super) fn arrivals(&self) -> watch::Receiver<u64> {
        self.arrivals.subscribe()
    }

    pub(super) fn arrived(&self) -> u64 {
        *self.arrivals.borrow()
    }

    pub(super) fn open(&self, gate: &str) {
        self.open.send_modify(|set| {
            set.insert(gate.to_owned());
        });
    }

    pub(super) async fn wait_at(&self, gate: &str) {
        // The sender lives in `self`, so this ends only by the gate.
        let _ = self
            .open
            .subscribe()
            .wait_for(|set| set.contains(gate))
            .await;
    }

    pub(super) fn default_instruction(&self) -> Option<Instruction> {
        if !self.has_default.load(Ordering::Acquire) {
            return None;
        }
        self.log().default.clone()
    }

    pub(super) fn set_default(&self, instruction: Option<Instruction>) {
        self.has_default
            .store(instruction.is_some(), Ordering::Release);
        self.log().default = instruction;
    }

    pub(super) fn reset(&self) {
        let mut log = self.log();
        log.requests.clear();
        log.by_operation.clear();
        log.by_key.clear();
        drop(log);
        self.uploads.reset();
        self.effects.store(0, Ordering::Relaxed);
        self.arrivals.send_replace(0);
        self.open.send_replace(HashSet::new());
    }
}
