//! The contract itself as a store, and the shared-data table. Their time is a number.

use super::Engine;
use idempo_core::ids::{OperationId, OwnerToken};
use idempo_core::plan::SharedDataStore;
use idempo_core::record::{Record, Replayable, State, View};
use idempo_core::store::contract::{self, Change};
use idempo_core::store::table::{Table, fake::Fake};
use idempo_core::store::{Action, Op, Reply, Target};
use std::collections::{HashMap, HashSet};

/// [`contract::apply`] over a map, with what a remote engine adds: answers, and marks of
/// cancelled tokens.
#[derive(Debug, Default)]
pub struct Model {
    records: HashMap<OperationId, Record>,
    answers: HashMap<OperationId, Vec<u8>>,
    cancelled: HashSet<(OperationId, OwnerToken)>,
    now: u64,
}

impl Model {
    /// The record of an operation, whatever the time.
    #[must_use]
    pub fn record(&self, id: &OperationId) -> Option<&Record> {
        self.records.get(id)
    }

    /// One step at that time.
    pub fn apply(&mut self, op: &Op, now: u64) -> Reply {
        let current = self.records.get(&op.operation);
        if let Some(reply) = self.overtaken(op, current, now) {
            return reply;
        }
        if let Action::Cancel { owner } = &op.action {
            self.cancelled.insert((op.operation, *owner));
        }
        let (change, reply) = contract::apply(current, &op.action, now);
        if let (Action::Body { incarnation }, Reply::Current(record)) = (&op.action, &reply)
            && record.version.incarnation == *incarnation
            && let View::Completed(outcome) | View::Accepted(outcome) = record.view(now)
            && outcome.replay == Replayable::Yes
        {
            return Reply::Body(self.answers.get(&op.operation).cloned());
        }
        match change {
            Change::Keep => return reply,
            Change::Put(record) => self.put(op, *record, &reply),
            Change::Delete => {
                self.records.remove(&op.operation);
                self.answers.remove(&op.operation);
            }
        }
        reply
    }

    /// What comes after the cancellation that should have followed it.
    fn overtaken(&self, op: &Op, current: Option<&Record>, now: u64) -> Option<Reply> {
        let current = current.filter(|r| r.view(now) != View::Gone);
        let marked = |owner| self.cancelled.contains(&(op.operation, owner));
        match &op.action {
            Action::Claim(claim) | Action::TakeOver { claim, .. } if marked(claim.owner) => {
                let (_, reply) = contract::apply(current, &op.action, now);
                let makes = match &reply {
                    // A claim of a forgotten key makes a record too, though it is nobody's.
                    Reply::Current(_) => current.is_none(),
                    Reply::Claimed(record) => current.is_none_or(|c| c.version != record.version),
                    Reply::Full(_) => true,
                    _ => false,
                };
                makes.then_some(Reply::TooLate)
            }
            Action::Transition(change) if current.is_none() => match (&change.to, &change.fence) {
                (Target::Renewed { .. }, idempo_core::store::Fence::Owner { claim, .. })
                    if marked(claim.owner) =>
                {
                    Some(Reply::Absent)
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn put(&mut self, op: &Op, record: Record, reply: &Reply) {
        let holds = matches!(
            record.state,
            State::Completed { .. } | State::Accepted { .. }
        );
        if let (Action::Transition(change), Reply::Applied(_)) = (&op.action, reply)
            && let Target::Completed { blob, .. } | Target::Accepted { blob, .. } = &change.to
        {
            match blob {
                Some(blob) => self.answers.insert(op.operation, blob.clone()),
                None => self.answers.remove(&op.operation),
            };
        }
        if !holds {
            self.answers.remove(&op.operation);
        }
        self.records.insert(op.operation, record);
    }
}

impl Engine for Model {
    fn call(&mut self, ops: &[Op]) -> (u64, Vec<Reply>) {
        let now = self.now;
        let replies = ops.iter().map(|op| self.apply(op, now)).collect();
        (now, replies)
    }

    fn advance(&mut self, ms: u64) {
        self.now += ms;
    }

    fn remembers_cancellations(&self) -> bool {
        true
    }
}

/// The table, in a host in memory.
#[derive(Debug)]
pub struct Shared {
    table: Table,
    host: Fake,
    now: u64,
}

impl Default for Shared {
    fn default() -> Self {
        let mut table = Table::new(&SharedDataStore::default());
        let mut host = Fake::new();
        table
            .open(&mut host, 1_700_000_000_000, [7; 16])
            .expect("a table in an empty host");
        Self {
            table,
            host,
            now: 1_000,
        }
    }
}

impl Engine for Shared {
    fn call(&mut self, ops: &[Op]) -> (u64, Vec<Reply>) {
        let apply = |op| self.table.apply(&mut self.host, op, self.now);
        (self.now, ops.iter().map(apply).collect())
    }

    fn advance(&mut self, ms: u64) {
        self.now += ms;
    }

    fn remembers_cancellations(&self) -> bool {
        false
    }
}
