//! What scenarios say: who does what, and when. Owners and writes are small numbers.

use super::Engine;
use idempo_core::fingerprint::{self, Fingerprint};
use idempo_core::http::Headers;
use idempo_core::ids::{OperationId, OwnerToken, TenantDigest};
use idempo_core::plan::FingerprintRule;
use idempo_core::record::{
    Evidence, Outcome, Record, Replayable, Source, Status, Version, Windows, WriteId,
};
use idempo_core::store::{Action, Claim, Fence, Op, Reply, Target, Transition};

/// A lease that is over soon, milliseconds.
pub const SHORT: u64 = 60;
/// One that outlives any test.
pub const LONG: u64 = 600_000;

/// The operations of one scenario on one engine.
pub struct Desk<'a> {
    engine: &'a mut dyn Engine,
    name: String,
    now: u64,
    /// What claims ask for from now on.
    pub lease: u64,
    /// Retention from now on.
    pub windows: Windows,
}

impl<'a> Desk<'a> {
    /// A desk whose operations nobody else uses.
    pub fn new(engine: &'a mut dyn Engine, name: &str) -> Self {
        let mut desk = Self {
            engine,
            name: name.to_owned(),
            now: 0,
            lease: LONG,
            windows: Windows {
                replay_ms: LONG,
                tombstone_ms: LONG,
            },
        };
        desk.call(&[(99, Action::Read)]);
        desk
    }

    /// The n-th operation.
    #[must_use]
    pub fn id(&self, n: u32) -> OperationId {
        OperationId::new(&self.name, b"t", "charges", &n.to_be_bytes())
    }

    /// The store's clock at the last call, milliseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// See [`Engine::remembers_cancellations`].
    #[must_use]
    pub fn remembers_cancellations(&self) -> bool {
        self.engine.remembers_cancellations()
    }

    /// Lets time pass.
    pub fn wait(&mut self, ms: u64) {
        self.engine.advance(ms);
    }

    /// Many steps in one call.
    pub fn call(&mut self, steps: &[(u32, Action)]) -> Vec<Reply> {
        let ops: Vec<Op> = steps
            .iter()
            .map(|(n, action)| Op {
                operation: self.id(*n),
                action: action.clone(),
            })
            .collect();
        let (now, replies) = self.engine.call(&ops);
        assert_eq!(replies.len(), ops.len(), "one reply for each operation");
        self.now = now;
        replies
    }

    /// One step on the first operation.
    pub fn step(&mut self, action: Action) -> Reply {
        self.call(&[(1, action)]).remove(0)
    }

    /// A claim.
    #[must_use]
    pub fn claim(&self, owner: u64) -> Claim {
        claim(&self.name, owner, self.lease, self.windows)
    }

    /// The claim's token.
    #[must_use]
    pub fn token(&self, owner: u64) -> OwnerToken {
        token(&self.name, owner)
    }

    /// Claims the first operation and gets it.
    pub fn claims(&mut self, owner: u64) -> Box<Record> {
        let claim = self.claim(owner);
        match self.step(Action::Claim(claim)) {
            Reply::Claimed(record) => record,
            other => panic!("claimed, not {other:?}"),
        }
    }

    /// Reads the first operation and finds a record.
    pub fn reads(&mut self) -> Box<Record> {
        match self.step(Action::Read) {
            Reply::Current(record) => record,
            other => panic!("a record, not {other:?}"),
        }
    }

    /// A transition by an owner.
    #[must_use]
    pub fn by_owner(&self, owner: u64, write: u64, to: Target) -> Action {
        let fence = Fence::Owner {
            claim: Box::new(self.claim(owner)),
            claimed_at: self.now,
            generation: self.now,
        };
        transition(write, fence, to, Source::Owner)
    }

    /// A transition by an operator who saw that version in those states.
    #[must_use]
    pub fn by_operator(&self, seen: Version, from: &[Status], write: u64, to: Target) -> Action {
        let fence = Fence::Version {
            version: seen,
            from: from.to_vec(),
        };
        let Action::Transition(mut change) = transition(write, fence, to, Source::Operator) else {
            unreachable!()
        };
        change.operator = "mallory, not ,:- plain".into();
        Action::Transition(change)
    }

    /// A cancellation.
    #[must_use]
    pub fn cancel(&self, owner: u64) -> Action {
        Action::Cancel {
            owner: self.token(owner),
        }
    }
}

/// An owner's token.
#[must_use]
pub fn token(name: &str, owner: u64) -> OwnerToken {
    OwnerToken::derive(&[name.as_bytes(), &owner.to_be_bytes()])
}

/// A claim with everything in it.
///
/// # Panics
/// Never: the request has a fingerprint.
#[must_use]
pub fn claim(name: &str, owner: u64, lease_ms: u64, windows: Windows) -> Claim {
    Claim {
        owner: token(name, owner),
        lease_ms,
        not_after: u64::MAX,
        fingerprint: fingerprint_of(name.as_bytes()),
        schema_version: "7".into(),
        tenant: TenantDigest::new(name.as_bytes()),
        tenant_quota: None,
        route: "charges/ä,:-".into(),
        attempt: "9f0c2c1e-6d0a-4b52-9d0f-5a3a5d3a2f11".into(),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()),
        windows,
        forgotten: false,
    }
}

fn fingerprint_of(body: &[u8]) -> Fingerprint {
    let mut headers = Headers::default();
    headers.push(":method", "POST");
    headers.push(":path", "/v1/charges");
    headers.push("content-type", "text/plain");
    let request = fingerprint::Request {
        headers: &headers,
        canonical_path: b"/v1/charges",
        principal: Some(b"somebody"),
        body,
    };
    fingerprint::compute(&FingerprintRule::default(), &request).expect("a small body")
}

/// An outcome whose digest names the write.
#[must_use]
pub fn outcome(write: u64) -> Outcome {
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

/// A recorded answer, with every octet there is in it.
#[must_use]
pub fn blob(write: u64) -> Vec<u8> {
    (0..=255).chain(write.to_be_bytes()).collect()
}

/// The answer of that write.
#[must_use]
pub fn done(write: u64) -> Target {
    Target::Completed {
        outcome: outcome(write),
        blob: Some(blob(write)),
    }
}

/// The acceptance of that write.
#[must_use]
pub fn accepted(write: u64, deadline_ms: u64) -> Target {
    Target::Accepted {
        outcome: Outcome {
            status: 202,
            ..outcome(write)
        },
        deadline_ms,
        blob: Some(blob(write)),
    }
}

/// A new lease.
#[must_use]
pub fn renewed(lease_ms: u64) -> Target {
    Target::Renewed { lease_ms }
}

/// A gateway error.
#[must_use]
pub fn unknown() -> Target {
    Target::Unknown {
        evidence: Evidence {
            status: Some(504),
            ..Evidence::named("response_timeout")
        },
    }
}

/// Ended by a person.
#[must_use]
pub fn closed() -> Target {
    Target::Closed {
        reason: "refunded".into(),
    }
}

/// A transition.
#[must_use]
pub fn transition(write: u64, fence: Fence, to: Target, source: Source) -> Action {
    Action::Transition(Transition {
        write: WriteId(write),
        fence,
        to,
        source,
        operator: String::new(),
    })
}
