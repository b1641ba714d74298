//! The recorded answer of an operation: found by what its record names.

use super::apply::Fault;
use super::bodies::Address;
use super::bucket::{Bucket, Found, Head};
use super::memory::{SharedData, TRIES, contended, fetch};
use super::{Shape, Table};
use crate::ids::OperationId;
use crate::record::{Record, Replayable, State, View, decode};
use crate::store::contract;
use crate::store::{Action, Reply};

/// Where the answer of the operation last seen is. Only a hint: the address names claim and write,
/// so that what is found there is that answer or nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memo {
    pub(super) address: Address,
    pub(super) length: u32,
    pub(super) until: u64,
}

impl Table {
    pub(super) fn body(
        &self,
        shape: &Shape,
        sd: &mut impl SharedData,
        operation: &OperationId,
        incarnation: u64,
        now: u64,
    ) -> Reply {
        if let Some(memo) = self.memo
            && memo.address.operation == *operation
            && memo.address.incarnation == incarnation
            && now < memo.until
            && let Ok(Some(answer)) = shape
                .bodies
                .get(sd, &memo.address, memo.length as usize, now)
        {
            return Reply::Body(Some(answer));
        }
        read_body(shape, sd, operation, incarnation, now).unwrap_or_else(Into::into)
    }
}

fn read_body(
    shape: &Shape,
    sd: &mut impl SharedData,
    operation: &OperationId,
    incarnation: u64,
    now: u64,
) -> Result<Reply, Fault> {
    let mut missed = None;
    for _ in 0..TRIES {
        let (head, record) = match look(shape, sd, operation, now)? {
            Ok(there) => there,
            Err(reply) => return Ok(reply),
        };
        let replayable = match record.view(now) {
            View::Completed(outcome) | View::Accepted(outcome) => outcome.replay == Replayable::Yes,
            _ => false,
        };
        if !replayable || record.version.incarnation != incarnation {
            return Ok(Reply::Current(Box::new(record)));
        }
        // Missing twice under the same record: it is not there. Missing once may be a race with
        // whoever replaced an acceptance by the final answer.
        let Some(answer) = head.answer.filter(|a| missed != Some(*a)) else {
            return Ok(Reply::Body(None));
        };
        let address = Address {
            operation: *operation,
            incarnation,
            write: answer.write,
        };
        let found = shape
            .bodies
            .get(sd, &address, answer.length as usize, now)?;
        if found.is_some() {
            return Ok(Reply::Body(found));
        }
        missed = Some(answer);
    }
    Err(contended().into())
}

/// The live entry of an operation, or what a read answers in its place.
fn look(
    shape: &Shape,
    sd: &mut impl SharedData,
    operation: &OperationId,
    now: u64,
) -> Result<Result<(Head, Record), Reply>, Fault> {
    let index = shape.geometry.bucket(&shape.seed, operation);
    let (value, _) = fetch(sd, &Shape::bucket_key(index))?;
    Ok(match Bucket::read(&value)?.find(operation, now) {
        Found::Nothing => Err(Reply::Absent),
        Found::Tombstone { unresolved } => Err(Reply::Expired { unresolved }),
        Found::Entry(head, octets) => {
            let record = decode(octets).map_err(|_| Fault::Damaged)?;
            match contract::apply(Some(&record), &Action::Read, now).1 {
                Reply::Current(_) => Ok((head, record)),
                reply => Err(reply),
            }
        }
    })
}

/// Until when the record's answer may be served.
pub(super) fn ends(record: &Record) -> u64 {
    match &record.state {
        State::Accepted { deadline, .. } => (*deadline).min(record.expires_at()),
        _ => record.expires_at(),
    }
}
