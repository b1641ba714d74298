//! Redis beside the contract, step by random step.

use host_tests::store::Engine;
use host_tests::store::desk::{self, accepted, closed, done, renewed};
use host_tests::store::local::Model;
use host_tests::store::redis::{Remote, Server, Way};
use idempo_core::fingerprint::{Form, Head};
use idempo_core::ids::OperationId;
use idempo_core::record::{Evidence, Outcome, Replayable, Source, Status, Version, Windows};
use idempo_core::store::{Action, Fence, Op, Target};
use std::collections::HashSet;

/// Thousands of random steps: each reply, each record and each answer as the contract has them at
/// the very millisecond at which the server took the step.
#[test]
fn random_steps_are_the_contract_to_the_letter() {
    for (way, calls) in [(Way::Resp, 900), (Way::Webdis, 300)] {
        let server = Server::start(&[]);
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut remote = Remote::new(&server, way);
        let mut model = Model::default();
        let mut seen: HashSet<&'static str> = HashSet::new();
        let (mut now, mut owners, mut write, mut steps) = (1, 4, 100, 0);
        let mut last: Option<Op> = None;
        for _ in 0..calls {
            let ops: Vec<Op> = (0..rng.usize(1..12))
                .map(|_| {
                    write += 1;
                    owners += u64::from(rng.u8(..8) == 0);
                    let owner = owners - rng.u64(0..4);
                    let repeat = last.clone().filter(|_| rng.u8(..12) == 0);
                    let op = repeat.unwrap_or_else(|| random(&mut rng, &model, owner, write, now));
                    last = Some(op.clone());
                    op
                })
                .collect();
            let (at, replies) = remote.call(&ops);
            now = at;
            for (op, reply) in ops.iter().zip(replies) {
                let right = model.apply(op, at);
                assert_eq!(reply, right, "seed {seed}, step {steps} at {at}: {op:?}");
                seen.insert(reply.name());
                steps += 1;
            }
            if rng.u8(..4) == 0 {
                remote.advance(rng.u64(1..25));
            }
        }
        println!("{steps} steps, {seen:?}");
        for name in [
            "claimed",
            "current",
            "expired",
            "absent",
            "applied",
            "already",
            "stale",
            "cancelled",
            "body",
            "too_late",
        ] {
            assert!(seen.contains(name), "{name} never came up");
        }
    }
}

fn random(rng: &mut fastrand::Rng, model: &Model, owner: u64, write: u64, now: u64) -> Op {
    let operation = OperationId::new("random", b"t", "r", &[rng.u8(..6)]);
    let current = model.record(&operation);
    let version = current.map_or(
        Version {
            incarnation: 1,
            counter: 1,
        },
        |r| r.version,
    );
    // Mostly who holds the claim, else few steps would do anything.
    let windows = Windows {
        replay_ms: rng.u64(20..90),
        tombstone_ms: rng.u64(10..60),
    };
    let mut claim = desk::claim("random", owner, rng.u64(1..40), windows);
    claim.not_after = if rng.u8(..10) == 0 { now } else { u64::MAX };
    claim.forgotten = rng.u8(..40) == 0;
    // Some know only the beginning of the body, then or now.
    if rng.bool() {
        claim.fingerprint.digest[..8].copy_from_slice(&write.to_be_bytes());
        claim.fingerprint.form = Form::Head;
        claim.fingerprint.head = Some(Head {
            octets: write,
            declared: rng.bool().then_some(write),
        });
    }
    if let Some(holder) = current.and_then(|r| r.owner())
        && rng.u8(..4) != 0
    {
        claim.owner = holder;
    }
    let holder = claim.owner;
    let fence = Fence::Owner {
        claim: Box::new(claim.clone()),
        claimed_at: now,
        generation: now,
    };
    let to = match rng.u8(..9) {
        0 | 1 => renewed(rng.u64(1..40)),
        2 => accepted(write, rng.u64(1..40)),
        // An answer's evidence in an unknown state, which events and people may bring.
        3 => Target::Unknown {
            evidence: Evidence {
                status: Some(201),
                result: rng.bool().then_some([4; 32]),
                ..Evidence::named("completed")
            },
        },
        4 => closed(),
        5 => Target::Completed {
            outcome: Outcome {
                replay: Replayable::TooLarge,
                ..desk::outcome(write)
            },
            blob: None,
        },
        _ => done(write),
    };
    let sources = {
        use Source::*;
        [Owner, Reader, Sweep, Probe, Event, Operator]
    };
    let action = match rng.u8(..20) {
        0 => Action::Read,
        1..=6 => Action::Claim(claim),
        7 | 8 => Action::TakeOver {
            claim: desk::claim("random", owner, rng.u64(1..40), windows),
            expect: version,
        },
        9 => Action::Cancel { owner: holder },
        10..=14 => desk::transition(write, fence, to, Source::Owner),
        15 | 16 => {
            let states = [
                Status::Pending,
                Status::Accepted,
                Status::Unknown,
                Status::Completed,
            ];
            let fence = Fence::Version {
                version,
                from: states[rng.usize(..3)..].to_vec(),
            };
            desk::transition(write, fence, to, sources[rng.usize(..6)])
        }
        _ => Action::Body {
            incarnation: version.incarnation,
        },
    };
    Op { operation, action }
}
