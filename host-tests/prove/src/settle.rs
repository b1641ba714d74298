//! Settling by somebody who is not the owner: what an operations API will send.

use crate::setup::Settler;
use idempo_core::ids::OperationId;
use idempo_core::record::{Outcome, Record, Replayable, Source, Status, WriteId};
use idempo_core::store::{Action, Fence, Op, Target, Transition};

/// What that settler sends, having seen the record as it is now. `None` where it has nothing to say.
pub(crate) fn op(record: Option<&Record>, settler: Settler, number: u8, now: u64) -> Option<Op> {
    let record = record?;
    let from = match settler {
        // An event may overtake the acceptance that it completes.
        Settler::Event => vec![Status::Pending, Status::Accepted, Status::Unknown],
        Settler::Probe | Settler::Close | Settler::Person => vec![Status::Unknown],
    };
    if !from.contains(&record.view(now).status()) {
        return None;
    }
    let to = match settler {
        Settler::Close => Target::Closed {
            reason: "reconciled".to_owned(),
        },
        Settler::Event | Settler::Person | Settler::Probe => Target::Completed {
            outcome: Outcome {
                status: 200,
                result: [7; 32],
                body_length: 0,
                wall_first_response: 0,
                replay: Replayable::NoStore,
            },
            blob: None,
        },
    };
    let (source, operator) = match settler {
        Settler::Event => (Source::Event, ""),
        Settler::Probe => (Source::Probe, ""),
        Settler::Close | Settler::Person => (Source::Operator, "ops@example.test"),
    };
    let action = Action::Transition(Transition {
        write: WriteId(u64::from(number)),
        fence: Fence::Version {
            version: record.version,
            from,
        },
        to,
        source,
        operator: operator.to_owned(),
    });
    // The world has one operation; the step function does not look at its id.
    let operation = OperationId([0; 32]);
    Some(Op { operation, action })
}
