//! What all plugins and streams of one worker's VM share: the table, the clock, the waiters.

use crate::host::{self, HostSharedData};
use crate::stream::Stream;
use crate::{abi, suspects, wake};
use idempo_core::clock::ClockPoint;
use idempo_core::exchange::{Level, Moment, Seed};
use idempo_core::ids::{OperationId, OwnerToken};
use idempo_core::plan::SharedDataStore;
use idempo_core::record::Record;
use idempo_core::store::table::{Geometry, Opened, SharedData, SweepReport, Table};
use idempo_core::store::{Op, Reply};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};

const CLOCK: &str = "idempo/1/clock";
const SWEEPER: &str = "idempo/1/sweeper";
const VMS: &str = "idempo/1/vms";

/// A sweeper that is silent this long is replaced, milliseconds.
const SWEEPER_LEASE_MS: u64 = 3_000;

/// How many reported operations are remembered.
const MAX_REPORTED: usize = 64;

thread_local! {
    static VM: Rc<Vm> = Rc::new(Vm::default());
}

/// The worker's VM.
#[derive(Default)]
pub(crate) struct Vm {
    table: RefCell<Option<Table>>,
    geometry: Cell<Option<Geometry>>,
    clock: Cell<Option<ClockPoint>>,
    identity: Cell<[u8; 16]>,
    number: Cell<u64>,
    exchanges: Cell<u64>,
    queue: Cell<Option<u32>>,
    waiters: RefCell<HashMap<u32, Waiter>>,
    sweep: RefCell<Sweep>,
    /// Octets of answers being recorded.
    recording: Cell<u64>,
    /// Octets of request bodies that are held until they are claimed.
    holding: Cell<u64>,
    /// Some operation was noted as unknown since this Envoy started.
    notes: Cell<bool>,
    /// Unknown operations that were reported as asked for again.
    reported_unknown: RefCell<VecDeque<OperationId>>,
}

struct Waiter {
    operation: OperationId,
    stream: Weak<RefCell<Stream>>,
}

/// Progress of this VM's sweep over the table, while it is the sweeper.
#[derive(Default)]
struct Sweep {
    next: u32,
    sum: SweepReport,
}

/// Sums of one whole pass.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) open_unknown: u64,
    /// The fuller of the two budgets.
    pub(crate) used_permille: u64,
    pub(crate) damaged: u64,
}

/// What one step of the sweep found.
pub(crate) struct Swept {
    /// The sums, where this step ended a pass.
    pub(crate) pass: Option<Pass>,
    /// Operations that became unknown.
    pub(crate) transitions: Vec<(OperationId, Record)>,
}

impl Vm {
    pub(crate) fn current() -> Rc<Self> {
        VM.with(Rc::clone)
    }

    /// Opens the table that all workers share, or finds it open.
    ///
    /// # Errors
    /// What is wrong, for the log.
    pub(crate) fn open(&self, store: &SharedDataStore) -> Result<Opened, String> {
        let now_us = host::now_us();
        let mut table = Table::new(store);
        let opened = table
            .open(&mut HostSharedData, now_us / 1000, table_seed())
            .map_err(|error| error.to_string())?;
        if opened.wanted.is_some() {
            host::log(
                Level::Warn,
                "store.shared_data: other budgets are in force since this Envoy started; the \
                 configured ones take effect with its next start",
            );
        }
        self.geometry.set(Some(opened.geometry));
        *self.table.borrow_mut() = Some(table);
        self.read_clock(now_us / 1000);
        Ok(opened)
    }

    /// Runs a store operation.
    pub(crate) fn store(&self, op: &Op, now: Moment) -> Reply {
        match self.table.borrow_mut().as_mut() {
            Some(table) => table.apply(&mut HostSharedData, op, now.store_ms),
            None => Reply::Failed("the store is not open".to_owned()),
        }
    }

    /// The time. The store's clock is the shared one, moved on by the host's since the last tick.
    pub(crate) fn now(&self) -> Moment {
        self.at(host::now_us())
    }

    /// That time of the host's clock.
    pub(crate) fn at(&self, wall_us: u64) -> Moment {
        let point = self
            .clock
            .get()
            .unwrap_or_else(|| ClockPoint::start(wall_us / 1000));
        Moment {
            wall_us,
            store_ms: point.now(wall_us / 1000),
        }
    }

    /// Opens what a VM without a table shares with the others: the clock.
    pub(crate) fn open_clock(&self) {
        self.read_clock(host::now_us() / 1000);
    }

    /// Takes the shared clock over, or starts it.
    fn read_clock(&self, host_ms: u64) {
        let mut shared = HostSharedData;
        let point = match shared.get(CLOCK) {
            Ok(Some((bytes, _))) => ClockPoint::decode(&bytes),
            Ok(None) => {
                let start = ClockPoint::start(host_ms);
                match shared.create(CLOCK, &start.encode()) {
                    Ok(true) => Some(start),
                    _ => shared
                        .get(CLOCK)
                        .ok()
                        .flatten()
                        .and_then(|(b, _)| ClockPoint::decode(&b)),
                }
            }
            Err(_) => None,
        };
        // One that cannot be read does not stand still: this worker's own goes on with the host's.
        let own = || self.clock.get().map(|own| own.advanced(host_ms));
        self.clock.set(point.or_else(own));
    }

    /// Moves the shared clock on, unless another worker just did.
    pub(crate) fn advance_clock(&self) {
        let host_ms = host::now_us() / 1000;
        let mut shared = HostSharedData;
        if let Ok(Some((bytes, cas))) = shared.get(CLOCK) {
            // What something else wrote there is written over: a clock that stands ends no lease.
            let point = ClockPoint::decode(&bytes)
                .or_else(|| self.clock.get())
                .unwrap_or_else(|| ClockPoint::start(host_ms));
            let next = point.advanced(host_ms);
            let won = shared.replace(CLOCK, &next.encode(), cas).unwrap_or(false);
            if won {
                self.clock.set(Some(next));
                return;
            }
        }
        self.read_clock(host_ms);
    }

    /// This VM's number among all of the process, taken once: with the time it makes tokens unique.
    pub(crate) fn number(&self) -> u64 {
        if self.number.get() != 0 {
            return self.number.get();
        }
        let mut shared = HostSharedData;
        let mut number = 0;
        for _ in 0..64 {
            let taken = match shared.get(VMS) {
                Ok(Some((bytes, cas))) => {
                    number = bytes
                        .try_into()
                        .map_or(1, u64::from_le_bytes)
                        .saturating_add(1);
                    shared.replace(VMS, &number.to_le_bytes(), cas)
                }
                Ok(None) => {
                    number = 1;
                    shared.create(VMS, &1_u64.to_le_bytes())
                }
                Err(_) => break,
            };
            if taken.unwrap_or(false) {
                break;
            }
        }
        let mut identity = [0; 16];
        let (head, tail) = identity.split_at_mut(8);
        head.copy_from_slice(&number.to_be_bytes());
        tail.copy_from_slice(&abi::now_ns().unwrap_or(0).to_be_bytes());
        self.identity.set(identity);
        self.number.set(number.max(1));
        self.number.get()
    }

    /// What makes the next exchange's token unique.
    pub(crate) fn seed(&self) -> Seed {
        self.number();
        let counter = self.exchanges.get().wrapping_add(1);
        self.exchanges.set(counter);
        Seed {
            vm: self.identity.get(),
            counter,
        }
    }

    /// This worker's queue, registered when first needed: a VM that is only tried out has no side
    /// effect. A new root registers it again, because the host tells the latest one.
    pub(crate) fn register_queue(&self) {
        let name = format!("idempo/{}", self.number());
        match abi::register_queue(&name) {
            Ok(id) => self.queue.set(Some(id)),
            Err(status) => {
                host::log(
                    Level::Warn,
                    &format!("no queue for wake-ups (status {status})"),
                );
            }
        }
    }

    /// Registers a waiter; `false` where there is no room for it.
    pub(crate) fn wait(
        &self,
        operation: OperationId,
        stream: (u32, Weak<RefCell<Stream>>),
        per_operation: u32,
        per_worker: u32,
    ) -> bool {
        let mut waiters = self.waiters.borrow_mut();
        let same = waiters
            .values()
            .filter(|w| w.operation == operation)
            .count();
        if waiters.len() >= per_worker as usize || same >= per_operation as usize {
            return false;
        }
        waiters.insert(
            stream.0,
            Waiter {
                operation,
                stream: stream.1,
            },
        );
        drop(waiters);
        // Without a place on the board the waiter still looks again by itself.
        if let Some(queue) = self.queue.get() {
            wake::register(&mut HostSharedData, wake::place(&operation), queue);
        }
        true
    }

    /// A waiter that waits no more.
    pub(crate) fn forget_waiter(&self, stream: u32) {
        self.waiters.borrow_mut().remove(&stream);
    }

    /// The operation ended: wakes whoever waits for it, in this and in every other worker.
    pub(crate) fn wake(operation: &OperationId) {
        wake::wake(&mut HostSharedData, wake::place(operation));
    }

    /// Messages to this worker: the streams that should look again.
    pub(crate) fn woken(&self, queue: u32) -> Vec<Rc<RefCell<Stream>>> {
        let mut places = [false; 256];
        while let Ok(Some(message)) = abi::dequeue(queue) {
            if let Some(place) = message
                .first()
                .and_then(|p| places.get_mut(usize::from(*p)))
            {
                *place = true;
            }
        }
        let at = |waiter: &&Waiter| {
            places
                .get(usize::from(wake::place(&waiter.operation)))
                .copied()
                .unwrap_or(false)
        };
        let waiters = self.waiters.borrow();
        let woken = waiters
            .values()
            .filter(at)
            .filter_map(|w| w.stream.upgrade())
            .collect();
        // Others at the same places wait on, so the queue goes back on the board.
        if let Some(own) = self.queue.get() {
            for waiter in waiters.values().filter(at) {
                wake::register(&mut HostSharedData, wake::place(&waiter.operation), own);
            }
        }
        woken
    }

    /// Whether any operation was ever noted as unknown: asked once per tick, so that the usual claim
    /// need not ask.
    pub(crate) fn look_for_notes(&self) {
        if !self.notes.get() {
            self.notes.set(suspects::any(&mut HostSharedData));
        }
    }

    /// The operation, still unknown when it was noted, that asked for the same as this new one.
    pub(crate) fn suspect(&self, operation: &OperationId, likeness: u64) -> Option<OperationId> {
        if !self.notes.get() {
            return None;
        }
        suspects::find(&mut HostSharedData, likeness, operation)
    }

    /// One line per unknown operation: where requests are alike by nature, every one would be another.
    pub(crate) fn first_report(&self, unknown: OperationId) -> bool {
        let mut reported = self.reported_unknown.borrow_mut();
        if reported.contains(&unknown) {
            return false;
        }
        if reported.len() >= MAX_REPORTED {
            reported.pop_front();
        }
        reported.push_back(unknown);
        true
    }

    /// Sweeps a part of the table, if this VM is the one that does.
    pub(crate) fn sweep(&self, now: Moment) -> Option<Swept> {
        if !self.is_sweeper(now) {
            return None;
        }
        let mut guard = self.table.borrow_mut();
        let table = guard.as_mut()?;
        let mut sweep = self.sweep.borrow_mut();
        let geometry = self.geometry.get()?;
        // A pass takes about ten seconds whatever the table's size: ticks come ten times a second.
        let count = (geometry.buckets / 100).max(8);
        let mut report = table.sweep(&mut HostSharedData, now.store_ms, sweep.next, count);
        let transitions = std::mem::take(&mut report.transitions);
        sweep.next = report.next_bucket;
        sweep.sum.add(report);
        let pass = (sweep.next == 0).then(|| {
            let sum = std::mem::take(&mut sweep.sum);
            let share = |used: u64, of: u64| used.saturating_mul(1000) / of.max(1);
            Pass {
                open_unknown: sum.open_unknown,
                used_permille: share(sum.charged_bytes, geometry.records_bytes())
                    .max(share(sum.bodies_bytes, geometry.bodies_bytes())),
                damaged: sum.damaged,
            }
        });
        Some(Swept { pass, transitions })
    }

    /// One VM of the process sweeps: the one that holds this lease.
    pub(crate) fn is_sweeper(&self, now: Moment) -> bool {
        let mut shared = HostSharedData;
        let mut mine = self.number().to_le_bytes().to_vec();
        mine.extend_from_slice(&now.store_ms.saturating_add(SWEEPER_LEASE_MS).to_le_bytes());
        match shared.get(SWEEPER) {
            Ok(None) => shared.create(SWEEPER, &mine).unwrap_or(false),
            Ok(Some((value, cas))) => {
                let number = |range: std::ops::Range<usize>| {
                    value
                        .get(range)
                        .and_then(|b| b.try_into().ok())
                        .map_or(0, u64::from_le_bytes)
                };
                let (holder, until) = (number(0..8), number(8..16));
                (holder == self.number() || until <= now.store_ms)
                    && shared.replace(SWEEPER, &mine, cas).unwrap_or(false)
            }
            Err(_) => false,
        }
    }

    pub(crate) fn holding(&self) -> &Cell<u64> {
        &self.holding
    }

    pub(crate) fn recording(&self) -> &Cell<u64> {
        &self.recording
    }
}

/// What spreads entries of the replay cache, the same for all workers.
pub(crate) fn cache_seed() -> [u8; 16] {
    const SEED: &str = "idempo/1/cs";
    let (mut shared, own) = (HostSharedData, table_seed());
    if shared.create(SEED, &own).unwrap_or(false) {
        return own;
    }
    let found = shared.get(SEED).ok().flatten();
    found
        .and_then(|(octets, _)| octets.try_into().ok())
        .unwrap_or(own)
}

/// The host has no entropy source on this target: nanoseconds since 1970 and the proxy's name are
/// what a stranger cannot tell. The table only needs that nobody can aim at one bucket.
fn table_seed() -> [u8; 16] {
    let time = abi::now_ns().unwrap_or(0).to_be_bytes();
    let node = host::property(&["xds", "node", "id"]).unwrap_or_default();
    OwnerToken::derive(&[b"table", &time, &node]).0
}
