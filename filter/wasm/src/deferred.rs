//! Writes that could not be made yet: the backlog of one root, which survives its VM (design.md rule 6).

use crate::host::{self, HostSharedData};
use crate::vm::Vm;
use idempo_core::exchange::Level;
use idempo_core::record::Status;
use idempo_core::store::backlog::{Backlog, Kept};
use idempo_core::store::{Action, Op, Reply};
use std::cell::{Cell, RefCell};

/// From this on nothing new is claimed: what runs must still find room, per mille.
const HIGH_WATER_PERMILLE: u64 = 750;

pub(crate) struct Deferred {
    backlog: RefCell<Backlog>,
    /// What the gauge was last told.
    reported: Cell<usize>,
    /// Damaged entries that were told.
    damaged: Cell<u64>,
}

impl Deferred {
    /// Of one store, by one holder in the process.
    pub(crate) fn new(store: &str, holder: u64) -> Self {
        Self {
            backlog: RefCell::new(Backlog::new(store, holder)),
            reported: Cell::default(),
            damaged: Cell::default(),
        }
    }

    /// Keeps a write until it is made.
    pub(crate) fn defer(&self, op: Op, host: u64) {
        let mut backlog = self.backlog.borrow_mut();
        match backlog.defer(&mut HostSharedData, op, true, host) {
            Kept::Durable => {}
            Kept::InMemory(why) => host::log(
                Level::Warn,
                &format!("a write waits in this worker's memory alone: {why}"),
            ),
            Kept::Dropped(op) => host::log(
                Level::Error,
                &format!(
                    "the backlog is full: a write of operation {} is given up",
                    op.operation
                ),
            ),
        }
    }

    /// Keeps a write that was acknowledged once and may be lost; as long as what was never acknowledged
    /// has room.
    pub(crate) fn assert(&self, op: Op, host: u64) {
        let mut backlog = self.backlog.borrow_mut();
        if backlog.fill_permille() >= HIGH_WATER_PERMILLE {
            return;
        }
        backlog.assert(&mut HostSharedData, op, host);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.backlog.borrow().is_empty()
    }

    /// So much waits that nothing new should begin.
    pub(crate) fn is_high(&self) -> bool {
        self.backlog.borrow().fill_permille() >= HIGH_WATER_PERMILLE
    }

    pub(crate) fn due(&self, host: u64, most: usize) -> Vec<(u64, Op)> {
        self.backlog.borrow_mut().due(host, most)
    }

    pub(crate) fn hurry(&self, host: u64) {
        self.backlog.borrow_mut().hurry(host);
    }

    /// A write was tried.
    pub(crate) fn settle(&self, id: u64, op: &Op, reply: &Reply, host: u64) {
        let mut backlog = self.backlog.borrow_mut();
        match reply {
            // Not understood, no room or damaged: the write still waits.
            Reply::Failed(_)
            | Reply::Unsent(_)
            | Reply::Recovering(_)
            | Reply::Full(_)
            | Reply::Corrupt => return backlog.again(id, host),
            // Somebody has claimed what this write ends. A store that has forgotten lets them, and
            // such a claim is taken back, which may remove the record and this write's trace in it. A
            // claim that stays comes to an end, too.
            Reply::Stale(record)
                if matches!(op.action, Action::Transition(_))
                    && record.state.status() == Status::Pending =>
            {
                return backlog.again(id, host);
            }
            Reply::Stale(_) if matches!(op.action, Action::Transition(_)) => host::log(
                Level::Error,
                &format!(
                    "operation {} was settled before a write from the backlog came",
                    op.operation
                ),
            ),
            _ => {}
        }
        backlog.done(&mut HostSharedData, id);
        drop(backlog);
        Vm::wake(&op.operation);
    }

    /// Adopts what others left behind. Returns by how many writes the backlog has grown since the last
    /// time.
    pub(crate) fn tick(&self, host: u64) -> i64 {
        let mut backlog = self.backlog.borrow_mut();
        let adopted = backlog.tick(&mut HostSharedData, host);
        if adopted > 0 {
            host::log(
                Level::Info,
                &format!("{adopted} writes that another worker left behind are taken over"),
            );
        }
        let damaged = backlog.damaged();
        if self.damaged.replace(damaged) != damaged {
            host::log(
                Level::Error,
                &format!("{damaged} writes in the backlog are damaged or of another version"),
            );
        }
        let left = backlog.len();
        let before = self.reported.replace(left);
        i64::try_from(left).unwrap_or(0) - i64::try_from(before).unwrap_or(0)
    }

    /// The root goes: what is left is for whoever comes next. Returns what its gauge counted.
    pub(crate) fn close(&self) -> i64 {
        self.backlog.borrow_mut().close(&mut HostSharedData);
        i64::try_from(self.reported.replace(0)).unwrap_or(0)
    }
}
