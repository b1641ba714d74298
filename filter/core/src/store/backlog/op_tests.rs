use super::*;
use proptest::prelude::*;

fn text() -> impl Strategy<Value = String> {
    // Longer than a record would keep it, and anything.
    prop_oneof![Just(String::new()), "\\PC{0,150}"]
}

fn evidence() -> impl Strategy<Value = Evidence> {
    (any::<Option<u16>>(), text(), any::<Option<[u8; 32]>>()).prop_map(
        |(status, details, result)| Evidence {
            status,
            details,
            result,
        },
    )
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let replays = [
        Replayable::Yes,
        Replayable::TooLarge,
        Replayable::Cut,
        Replayable::Trailers,
        Replayable::NoStore,
        Replayable::StoreFull,
        Replayable::RecordingMemory,
        Replayable::Observed,
        Replayable::PartialRequest,
    ];
    (
        any::<u16>(),
        any::<[u8; 32]>(),
        any::<(u64, u64)>(),
        prop::sample::select(replays.to_vec()),
    )
        .prop_map(|(status, result, (body_length, first), replay)| Outcome {
            status,
            result,
            body_length,
            wall_first_response: first,
            replay,
        })
}

fn blob() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop::option::of(prop::collection::vec(any::<u8>(), 0..300))
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        any::<u64>().prop_map(|lease_ms| Target::Renewed { lease_ms }),
        (outcome(), any::<u64>(), blob()).prop_map(|(outcome, deadline_ms, blob)| {
            Target::Accepted {
                outcome,
                deadline_ms,
                blob,
            }
        }),
        (outcome(), blob()).prop_map(|(outcome, blob)| Target::Completed { outcome, blob }),
        text().prop_map(|reason| Target::Closed { reason }),
        evidence().prop_map(|evidence| Target::Unknown { evidence }),
    ]
}

fn fingerprint() -> impl Strategy<Value = Fingerprint> {
    let algorithms = vec![DigestAlgorithm::Blake3, DigestAlgorithm::Sha256];
    (
        any::<[u8; 32]>(),
        prop::sample::select(algorithms),
        prop::sample::select(Form::ALL.to_vec()),
        any::<(u8, [u8; 8], u64)>(),
        text(),
        any::<Option<[u8; 8]>>(),
        any::<Option<(u64, Option<u64>)>>(),
    )
        .prop_map(
            |(
                digest,
                algorithm,
                form,
                (version, settings, length),
                media_type,
                principal,
                head,
            )| {
                Fingerprint {
                    digest,
                    algorithm,
                    form,
                    version,
                    settings,
                    length,
                    media_type,
                    principal,
                    head: head.map(|(octets, declared)| Head { octets, declared }),
                }
            },
        )
}

fn claim() -> impl Strategy<Value = Claim> {
    (
        any::<([u8; 16], u64, u64, bool)>(),
        fingerprint(),
        (text(), text(), text(), prop::option::of(text())),
        any::<([u8; 8], Option<u64>, u64, u64)>(),
    )
        .prop_map(
            |(
                (owner, lease_ms, not_after, forgotten),
                fingerprint,
                (schema_version, route, attempt, traceparent),
                (tenant, tenant_quota, replay_ms, tombstone_ms),
            )| Claim {
                owner: OwnerToken(owner),
                lease_ms,
                not_after,
                fingerprint,
                schema_version,
                tenant: TenantDigest(tenant),
                tenant_quota,
                route,
                attempt,
                traceparent,
                windows: Windows {
                    replay_ms,
                    tombstone_ms,
                },
                forgotten,
            },
        )
}

fn fence() -> impl Strategy<Value = Fence> {
    let statuses = vec![
        Status::Absent,
        Status::Pending,
        Status::Accepted,
        Status::Completed,
        Status::Closed,
        Status::Unknown,
        Status::Expired,
    ];
    let from = prop::collection::vec(prop::sample::select(statuses), 0..9);
    prop_oneof![
        (claim(), any::<(u64, u64)>()).prop_map(|(claim, (claimed_at, generation))| {
            Fence::Owner {
                claim: Box::new(claim),
                claimed_at,
                generation,
            }
        }),
        (any::<(u64, u32)>(), from).prop_map(|((incarnation, counter), from)| Fence::Version {
            version: Version {
                incarnation,
                counter,
            },
            from,
        }),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let sources = vec![
        Source::Owner,
        Source::Reader,
        Source::Sweep,
        Source::Probe,
        Source::Event,
        Source::Operator,
        Source::Restart,
    ];
    prop_oneof![
        1 => any::<[u8; 16]>().prop_map(|owner| Action::Cancel { owner: OwnerToken(owner) }),
        5 => (any::<u64>(), fence(), target(), prop::sample::select(sources), text()).prop_map(
            |(write, fence, to, source, operator)| Action::Transition(Transition {
                write: WriteId(write),
                fence,
                to,
                source,
                operator,
            })
        ),
    ]
}

fn write() -> impl Strategy<Value = (Mark, Op)> {
    (any::<(u64, u64, [u8; 32])>(), action()).prop_map(|((writer, sequence, id), action)| {
        let operation = OperationId(id);
        (Mark { writer, sequence }, Op { operation, action })
    })
}

proptest! {
    #[test]
    fn every_field_round_trips((mark, op) in write()) {
        let octets = encode(mark, &op).unwrap();
        prop_assert_eq!(mark_of(&octets), Some(mark));
        prop_assert_eq!(decode(&octets), Ok((mark, op)));
    }

    #[test]
    fn any_change_is_noticed((mark, op) in write(), at: prop::sample::Index, bit in 0..8_u8) {
        let octets = encode(mark, &op).unwrap();
        let at = at.index(octets.len());
        let mut bad = octets.clone();
        bad[at] ^= 1 << bit;
        prop_assert_eq!(decode(&bad), Err(Unreadable), "octet {}", at);
        prop_assert_eq!(decode(&octets[..at]), Err(Unreadable), "cut at {}", at);
    }

    #[test]
    fn arbitrary_octets_never_panic(octets in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert_eq!(decode(&octets), Err(Unreadable));
        let _ = mark_of(&octets);
    }

    /// Behind a right checksum: whatever a program that is not this one may have put there.
    #[test]
    fn arbitrary_fields_never_panic(
        (mark, op) in write(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut octets = encode(mark, &op).unwrap();
        for (at, octet) in changes {
            let at = HEAD + at.index(octets.len() - HEAD);
            octets[at] = octet;
        }
        let sum = checksum(FORMAT, &octets[HEAD..]);
        octets[4..HEAD].copy_from_slice(&sum);
        if let Ok((mark, op)) = decode(&octets) {
            prop_assert_eq!(encode(mark, &op).and_then(|o| decode(&o).ok()), Some((mark, op)));
        }
    }
}

#[test]
fn what_asks_or_claims_is_not_written() {
    use crate::store::table::testing;
    let mark = Mark {
        writer: 1,
        sequence: 2,
    };
    for action in [
        Action::Read,
        Action::Claim(testing::claim(1)),
        Action::Body { incarnation: 1 },
    ] {
        let op = testing::op(1, action);
        assert!(!can_be_durable(&op));
        assert_eq!(encode(mark, &op), None);
    }
}

#[test]
fn another_format_is_not_read() {
    use crate::store::table::testing;
    let op = testing::op(1, testing::complete(1, 0, 1, 9));
    let mark = Mark {
        writer: 1,
        sequence: 2,
    };
    let mut octets = encode(mark, &op).unwrap();
    octets[2] = FORMAT + 1;
    let sum = checksum(FORMAT + 1, &octets[HEAD..]);
    octets[4..HEAD].copy_from_slice(&sum);
    assert_eq!(decode(&octets), Err(Unreadable));
    assert_eq!(mark_of(&octets), None);
}
