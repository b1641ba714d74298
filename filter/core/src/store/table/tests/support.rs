//! Makers of operations and steps for the table's tests.

use super::super::*;
use crate::fingerprint::{Fingerprint, Form};
use crate::ids::{OperationId, OwnerToken, TenantDigest};
use crate::plan::DigestAlgorithm;
use crate::record::*;
use crate::store::*;

pub(crate) const WINDOWS: Windows = Windows {
    replay_ms: 10_000,
    tombstone_ms: 20_000,
};

pub(crate) fn id(n: u32) -> OperationId {
    OperationId::new("test", b"t", "charges", &n.to_be_bytes())
}

pub(crate) fn token(n: u64) -> OwnerToken {
    OwnerToken::derive(&[&n.to_be_bytes()])
}

pub(crate) fn claim(owner: u64) -> Claim {
    Claim {
        owner: token(owner),
        lease_ms: 1_000,
        not_after: u64::MAX,
        fingerprint: Fingerprint {
            digest: [3; 32],
            algorithm: DigestAlgorithm::Blake3,
            form: Form::Json,
            version: 1,
            settings: [1; 8],
            length: 10,
            media_type: "application/json".into(),
            principal: None,
            head: None,
        },
        schema_version: "1".into(),
        tenant: TenantDigest([9; 8]),
        tenant_quota: None,
        route: "charges".into(),
        attempt: "9f0c2c1e-6d0a-4b52-9d0f-5a3a5d3a2f11".into(),
        traceparent: None,
        windows: WINDOWS,
        forgotten: false,
    }
}

/// An outcome whose digest names the write, so that an answer can be told to be its own.
pub(crate) fn outcome(write: u64) -> Outcome {
    let mut result = [0; 32];
    result[..8].copy_from_slice(&write.to_be_bytes());
    Outcome {
        status: 201,
        result,
        body_length: 2,
        wall_first_response: 1_700_000_000_000,
        replay: Replayable::Yes,
    }
}

pub(crate) fn answer(write: u64, length: usize) -> Vec<u8> {
    let mut octets = write.to_be_bytes().to_vec();
    octets.resize(length.max(8), write as u8);
    octets
}

pub(crate) fn completed(at: u64, replay_ms: u64) -> Record {
    let (change, _) = contract::apply(None, &Action::Claim(claim(1)), at);
    let contract::Change::Put(mut record) = change else {
        panic!()
    };
    record.windows.replay_ms = replay_ms;
    record.state = State::Completed {
        outcome: outcome(1),
        at,
    };
    *record
}

pub(crate) fn op(n: u32, action: Action) -> Op {
    Op {
        operation: id(n),
        action,
    }
}

pub(crate) fn owner_fence(owner: u64, at: u64) -> Fence {
    Fence::Owner {
        claim: Box::new(claim(owner)),
        claimed_at: at,
        generation: at.max(1),
    }
}

pub(crate) fn transition(write: u64, fence: Fence, to: Target, source: Source) -> Action {
    Action::Transition(Transition {
        write: WriteId(write),
        fence,
        to,
        source,
        operator: String::new(),
    })
}

pub(crate) fn complete(owner: u64, at: u64, write: u64, length: usize) -> Action {
    let to = Target::Completed {
        outcome: outcome(write),
        blob: Some(answer(write, length)),
    };
    transition(write, owner_fence(owner, at), to, Source::Owner)
}

pub(crate) fn budgets(records: u64, bodies: u64, tombstones: u64) -> SharedDataStore {
    SharedDataStore {
        records_bytes: records,
        bodies_bytes: bodies,
        tombstones_bytes: tombstones,
    }
}

pub(crate) fn opened(sd: &mut impl SharedData, store: &SharedDataStore) -> Table {
    let mut table = Table::new(store);
    table.open(sd, 1_700_000_000_000, [7; 16]).unwrap();
    table
}
