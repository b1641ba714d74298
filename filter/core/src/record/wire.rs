//! A record as octets: `magic, format, checksum, protobuf`.
//!
//! Protobuf, because two neighbouring versions of the filter share one store: a field that one of
//! them does not know is skipped by the other. The checksum tells a half or damaged record from a
//! good one (rule 9): such a record is never served and never treated as absent.

use super::{
    Event, Evidence, History, Outcome, OwnerToken, Record, Replayable, Source, State, Status,
    TenantDigest, Version, Windows, WriteId, bounded, proto,
};
use crate::fingerprint::{Fingerprint, Form, Head};
use crate::plan::DigestAlgorithm;
use prost::Message as _;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The format that this build writes. It reads this and the one before.
pub const FORMAT: u8 = 1;

/// For tests of two neighbouring versions: write the next format, which this build reads then, too.
#[cfg(feature = "test-faults")]
pub static NEXT_FORMAT: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

fn format() -> u8 {
    #[cfg(feature = "test-faults")]
    if NEXT_FORMAT.load(std::sync::atomic::Ordering::Relaxed) {
        return FORMAT + 1;
    }
    FORMAT
}

/// No record is larger, whatever a client or operator sent: texts are cut to bounds that add up to
/// less than this. Stores reserve it for every open operation, so that a transition always fits.
pub const MAX_ENCODED: usize = 2048;

const MAGIC: u8 = 0xd7;
const HEAD: usize = 6;

/// Octets that are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// Too short, wrong mark or wrong checksum.
    #[error("the record is damaged")]
    Damaged,
    /// Written by a version that this one cannot read.
    #[error("the record has format {0}, which this version cannot read")]
    Format(u8),
    /// A field that must be there is missing or impossible.
    #[error("the record's field {0} is missing or impossible")]
    Field(&'static str),
}

/// Writes a record.
#[must_use]
pub fn encode(record: &Record) -> Vec<u8> {
    seal(&to_wire(record))
}

/// Octets with mark, format and checksum.
pub(super) fn seal(wire: &proto::Record) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + wire.encoded_len());
    out.extend_from_slice(&[MAGIC, format(), 0, 0, 0, 0]);
    // Encoding into a Vec cannot run out of room.
    let _ = wire.encode(&mut out);
    let sum = checksum(format(), out.get(HEAD..).unwrap_or_default());
    if let Some(place) = out.get_mut(2..HEAD) {
        place.copy_from_slice(&sum);
    }
    out
}

/// Reads a record.
///
/// # Errors
/// [`Corrupt`] where the octets are not a whole record of a format that this version reads.
pub fn decode(bytes: &[u8]) -> Result<Record, Corrupt> {
    from_wire(unseal(bytes)?)
}

/// What [`seal`] wrote.
pub(super) fn unseal(bytes: &[u8]) -> Result<proto::Record, Corrupt> {
    let Some((&[magic, format, s0, s1, s2, s3], rest)) = bytes.split_first_chunk::<HEAD>() else {
        return Err(Corrupt::Damaged);
    };
    if magic != MAGIC || checksum(format, rest) != [s0, s1, s2, s3] {
        return Err(Corrupt::Damaged);
    }
    if format == 0 || (format != self::format() && format != self::format() - 1) {
        return Err(Corrupt::Format(format));
    }
    proto::Record::decode(rest).map_err(|_| Corrupt::Damaged)
}

fn checksum(format: u8, body: &[u8]) -> [u8; 4] {
    // Finds halves and rot, and is read on every step: a fast hash, not a cryptographic one.
    let hash = xxh3_64_with_seed(body, u64::from(format)).to_be_bytes();
    *hash.first_chunk().unwrap_or(&[0; 4])
}

/// Numbers of an enum on the wire: one table for both directions.
macro_rules! numbers {
    ($to:ident, $from:ident, $type:ty, $($number:literal => $value:path),+ $(,)?) => {
        pub(super) fn $to(value: $type) -> u32 {
            match value { $($value => $number),+ }
        }
        fn $from(number: u32, field: &'static str) -> Result<$type, Corrupt> {
            match number { $($number => Ok($value),)+ _ => Err(Corrupt::Field(field)) }
        }
    };
}

numbers!(status_number, status, Status,
    1 => Status::Absent, 2 => Status::Pending, 3 => Status::Accepted, 4 => Status::Completed,
    5 => Status::Closed, 6 => Status::Unknown, 7 => Status::Expired);
numbers!(source_number, source, Source,
    1 => Source::Owner, 2 => Source::Reader, 3 => Source::Sweep, 4 => Source::Probe,
    5 => Source::Event, 6 => Source::Operator, 7 => Source::Restart);
numbers!(replay_number, replay, Replayable,
    1 => Replayable::Yes, 2 => Replayable::TooLarge, 3 => Replayable::Cut,
    4 => Replayable::Trailers, 5 => Replayable::NoStore, 6 => Replayable::StoreFull,
    7 => Replayable::RecordingMemory, 8 => Replayable::Observed,
    9 => Replayable::PartialRequest);
numbers!(algorithm_number, algorithm, DigestAlgorithm,
    1 => DigestAlgorithm::Blake3, 2 => DigestAlgorithm::Sha256);
numbers!(form_number, form, Form,
    1 => Form::Empty, 2 => Form::Raw, 3 => Form::Json, 4 => Form::FormUrlencoded,
    5 => Form::Multipart, 6 => Form::ContentDigest, 7 => Form::Unread, 8 => Form::Head);

pub(super) fn to_wire(record: &Record) -> proto::Record {
    let mut out = proto::Record {
        incarnation: record.version.incarnation,
        counter: record.version.counter,
        generation: record.generation,
        state: status_number(record.state.status()),
        fingerprint: Some(fingerprint_to_wire(&record.fingerprint)),
        schema_version: bounded(&record.schema_version, 64),
        tenant: record.tenant.0.to_vec(),
        route: bounded(&record.route, 64),
        attempt: bounded(&record.attempt, 64),
        traceparent: bounded(record.traceparent.as_deref().unwrap_or_default(), 64),
        claimed_at: record.claimed_at,
        last_seen: record.last_seen,
        replay_ms: record.windows.replay_ms,
        tombstone_ms: record.windows.tombstone_ms,
        events: record.history.events().iter().map(event_to_wire).collect(),
        dropped: record.history.dropped(),
        ..Default::default()
    };
    state_to_wire(&record.state, &mut out);
    out
}

pub(super) fn state_to_wire(state: &State, out: &mut proto::Record) {
    match state {
        State::Pending { owner, lease_until } => {
            out.owner = owner.0.to_vec();
            out.until = *lease_until;
        }
        State::Accepted {
            outcome,
            at,
            deadline,
        } => {
            out.outcome = Some(outcome_to_wire(outcome));
            out.at = *at;
            out.until = *deadline;
        }
        State::Completed { outcome, at } => {
            out.outcome = Some(outcome_to_wire(outcome));
            out.at = *at;
        }
        State::Closed { reason, at } => {
            out.reason = bounded(reason, 64);
            out.at = *at;
        }
        State::Unknown {
            owner,
            evidence,
            at,
        } => {
            out.owner = owner.map(|o| o.0.to_vec()).unwrap_or_default();
            out.evidence = Some(evidence_to_wire(evidence));
            out.at = *at;
        }
    }
}

pub(super) fn from_wire(wire: proto::Record) -> Result<Record, Corrupt> {
    let owner = match wire.owner.as_slice() {
        [] => None,
        bytes => Some(OwnerToken(array(bytes, "owner")?)),
    };
    let outcome = wire.outcome.map(outcome_from_wire).transpose()?;
    let state = match status(wire.state, "state")? {
        Status::Pending => State::Pending {
            owner: owner.ok_or(Corrupt::Field("owner"))?,
            lease_until: wire.until,
        },
        Status::Accepted => State::Accepted {
            outcome: outcome.ok_or(Corrupt::Field("outcome"))?,
            at: wire.at,
            deadline: wire.until,
        },
        Status::Completed => State::Completed {
            outcome: outcome.ok_or(Corrupt::Field("outcome"))?,
            at: wire.at,
        },
        Status::Closed => State::Closed {
            reason: wire.reason,
            at: wire.at,
        },
        Status::Unknown => State::Unknown {
            owner,
            evidence: evidence_from_wire(wire.evidence.ok_or(Corrupt::Field("evidence"))?)?,
            at: wire.at,
        },
        Status::Absent | Status::Expired => return Err(Corrupt::Field("state")),
    };
    let events = wire
        .events
        .into_iter()
        .map(event_from_wire)
        .collect::<Result<_, _>>()?;
    Ok(Record {
        version: Version {
            incarnation: wire.incarnation,
            counter: wire.counter,
        },
        generation: wire.generation,
        state,
        fingerprint: fingerprint_from_wire(wire.fingerprint.ok_or(Corrupt::Field("fingerprint"))?)?,
        schema_version: wire.schema_version,
        tenant: TenantDigest(array(&wire.tenant, "tenant")?),
        route: wire.route,
        attempt: wire.attempt,
        traceparent: Some(wire.traceparent).filter(|t| !t.is_empty()),
        claimed_at: wire.claimed_at,
        last_seen: wire.last_seen,
        windows: Windows {
            replay_ms: wire.replay_ms,
            tombstone_ms: wire.tombstone_ms,
        },
        history: History::from_parts(events, wire.dropped),
    })
}

fn array<const N: usize>(bytes: &[u8], field: &'static str) -> Result<[u8; N], Corrupt> {
    bytes.try_into().map_err(|_| Corrupt::Field(field))
}

fn outcome_to_wire(outcome: &Outcome) -> proto::Outcome {
    proto::Outcome {
        status: u32::from(outcome.status),
        result: outcome.result.to_vec(),
        body_length: outcome.body_length,
        wall_first_response: outcome.wall_first_response,
        replay: replay_number(outcome.replay),
    }
}

fn outcome_from_wire(wire: proto::Outcome) -> Result<Outcome, Corrupt> {
    Ok(Outcome {
        status: u16::try_from(wire.status).map_err(|_| Corrupt::Field("outcome.status"))?,
        result: array(&wire.result, "outcome.result")?,
        body_length: wire.body_length,
        wall_first_response: wire.wall_first_response,
        replay: replay(wire.replay, "outcome.replay")?,
    })
}

pub(super) fn evidence_to_wire(evidence: &Evidence) -> proto::Evidence {
    proto::Evidence {
        status: evidence.status.map(u32::from).unwrap_or_default(),
        details: bounded(&evidence.details, 96),
        result: evidence.result.map(|r| r.to_vec()).unwrap_or_default(),
    }
}

fn evidence_from_wire(wire: proto::Evidence) -> Result<Evidence, Corrupt> {
    let status = u16::try_from(wire.status).map_err(|_| Corrupt::Field("evidence.status"))?;
    Ok(Evidence {
        status: Some(status).filter(|s| *s != 0),
        details: wire.details,
        result: match wire.result.as_slice() {
            [] => None,
            bytes => Some(array(bytes, "evidence.result")?),
        },
    })
}

fn fingerprint_to_wire(fingerprint: &Fingerprint) -> proto::Fingerprint {
    proto::Fingerprint {
        digest: fingerprint.digest.to_vec(),
        algorithm: algorithm_number(fingerprint.algorithm),
        form: form_number(fingerprint.form),
        version: u32::from(fingerprint.version),
        settings: fingerprint.settings.to_vec(),
        length: fingerprint.length,
        media_type: bounded(&fingerprint.media_type, 64),
        principal: fingerprint
            .principal
            .map(|p| p.to_vec())
            .unwrap_or_default(),
        head_octets: fingerprint.head.map_or(0, |h| h.octets),
        head_declared: fingerprint
            .head
            .and_then(|h| h.declared)
            .map_or(0, |length| length.saturating_add(1)),
    }
}

fn fingerprint_from_wire(wire: proto::Fingerprint) -> Result<Fingerprint, Corrupt> {
    let form = form(wire.form, "fingerprint.form")?;
    Ok(Fingerprint {
        digest: array(&wire.digest, "fingerprint.digest")?,
        algorithm: algorithm(wire.algorithm, "fingerprint.algorithm")?,
        form,
        head: (form == Form::Head).then_some(Head {
            octets: wire.head_octets,
            declared: wire.head_declared.checked_sub(1),
        }),
        version: u8::try_from(wire.version).map_err(|_| Corrupt::Field("fingerprint.version"))?,
        settings: array(&wire.settings, "fingerprint.settings")?,
        length: wire.length,
        media_type: wire.media_type,
        principal: match wire.principal.as_slice() {
            [] => None,
            bytes => Some(array(bytes, "fingerprint.principal")?),
        },
    })
}

fn event_to_wire(event: &Event) -> proto::Event {
    proto::Event {
        at: event.at,
        from: status_number(event.from),
        to: status_number(event.to),
        source: source_number(event.source),
        write: event.write.0,
        operator: bounded(&event.operator, 48),
        evidence: event.evidence.as_ref().map(|evidence| proto::Evidence {
            details: bounded(&evidence.details, 48),
            ..evidence_to_wire(evidence)
        }),
    }
}

fn event_from_wire(wire: proto::Event) -> Result<Event, Corrupt> {
    Ok(Event {
        at: wire.at,
        from: status(wire.from, "event.from")?,
        to: status(wire.to, "event.to")?,
        source: source(wire.source, "event.source")?,
        write: WriteId(wire.write),
        operator: wire.operator,
        evidence: wire.evidence.map(evidence_from_wire).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::{outcome, record};
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn states() -> Vec<State> {
        let owner = OwnerToken([8; 16]);
        let evidence = Evidence {
            status: Some(504),
            details: "response_timeout".into(),
            result: Some([4; 32]),
        };
        vec![
            State::Pending {
                owner,
                lease_until: 99,
            },
            State::Accepted {
                outcome: outcome(202),
                at: 5,
                deadline: 77,
            },
            State::Completed {
                outcome: outcome(201),
                at: 5,
            },
            State::Closed {
                reason: "duplicate_of_ticket".into(),
                at: 6,
            },
            State::Unknown {
                owner: Some(owner),
                evidence: evidence.clone(),
                at: 7,
            },
            State::Unknown {
                owner: None,
                evidence,
                at: 7,
            },
        ]
    }

    #[test]
    fn every_state_round_trips() {
        for state in states() {
            let record = record(state);
            assert_eq!(decode(&encode(&record)), Ok(record));
        }
    }

    #[test]
    fn any_changed_octet_is_noticed() {
        let bytes = encode(&record(states().remove(2)));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert!(decode(&bad).is_err(), "octet {at}");
            assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn another_format_is_named() {
        let good = encode(&record(states().remove(0)));
        let body = &good[HEAD..];
        let mut bad = vec![MAGIC, FORMAT + 1];
        bad.extend_from_slice(&checksum(FORMAT + 1, body));
        bad.extend_from_slice(body);
        assert_eq!(decode(&bad), Err(Corrupt::Format(FORMAT + 1)));
    }

    #[test]
    fn the_largest_record_fits_its_bound() {
        let long = "ü".repeat(400);
        let evidence = Evidence {
            status: Some(65535),
            details: long.clone(),
            result: Some([255; 32]),
        };
        let mut record = record(State::Unknown {
            owner: Some(OwnerToken([255; 16])),
            evidence: evidence.clone(),
            at: u64::MAX,
        });
        record.version = Version {
            incarnation: u64::MAX,
            counter: u32::MAX,
        };
        record.generation = u64::MAX;
        record.schema_version.clone_from(&long);
        record.route.clone_from(&long);
        record.attempt.clone_from(&long);
        record.traceparent = Some(long.clone());
        record.fingerprint.media_type.clone_from(&long);
        record.fingerprint.principal = Some([255; 8]);
        record.fingerprint.length = u64::MAX;
        record.claimed_at = u64::MAX;
        record.last_seen = u64::MAX;
        record.windows = Windows {
            replay_ms: u64::MAX,
            tombstone_ms: u64::MAX,
        };
        for n in 0..20 {
            record.history.push(Event {
                at: u64::MAX,
                from: Status::Unknown,
                to: Status::Unknown,
                source: Source::Operator,
                write: WriteId(n),
                operator: long.clone(),
                evidence: Some(evidence.clone()),
            });
        }
        let bytes = encode(&record);
        assert!(bytes.len() <= MAX_ENCODED, "{}", bytes.len());
        assert!(decode(&bytes).is_ok());
    }
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod properties {
    use proptest::prelude::*;

    use super::super::view::tests::record;
    use super::super::{
        Event, Evidence, History, Outcome, Record, Replayable, Source, State, Status,
    };
    use super::super::{Version, Windows, WriteId};
    use super::{FORMAT, MAGIC, checksum, decode, encode};
    use crate::fingerprint::{Form, Head};
    use crate::ids::{OwnerToken, TenantDigest};

    fn evidence() -> impl Strategy<Value = Evidence> {
        (
            any::<Option<u16>>(),
            "[a-z_{}|]{0,30}",
            any::<Option<[u8; 32]>>(),
        )
            .prop_map(|(status, details, result)| Evidence {
                status,
                details,
                result,
            })
    }

    fn outcome() -> impl Strategy<Value = Outcome> {
        use Replayable as R;
        let replay = prop::sample::select(vec![
            R::Yes,
            R::TooLarge,
            R::Cut,
            R::Trailers,
            R::NoStore,
            R::StoreFull,
            R::RecordingMemory,
            R::Observed,
            R::PartialRequest,
        ]);
        (any::<u16>(), any::<[u8; 32]>(), any::<[u64; 2]>(), replay).prop_map(
            |(status, result, [body_length, wall_first_response], replay)| Outcome {
                status,
                result,
                body_length,
                wall_first_response,
                replay,
            },
        )
    }

    fn state() -> impl Strategy<Value = State> {
        let owner = || any::<[u8; 16]>().prop_map(OwnerToken);
        prop_oneof![
            (owner(), any::<u64>())
                .prop_map(|(owner, lease_until)| State::Pending { owner, lease_until }),
            (outcome(), any::<u64>(), any::<u64>()).prop_map(|(outcome, at, deadline)| {
                State::Accepted {
                    outcome,
                    at,
                    deadline,
                }
            }),
            (outcome(), any::<u64>()).prop_map(|(outcome, at)| State::Completed { outcome, at }),
            ("[a-z_]{0,30}", any::<u64>()).prop_map(|(reason, at)| State::Closed { reason, at }),
            (prop::option::of(owner()), evidence(), any::<u64>()).prop_map(
                |(owner, evidence, at)| State::Unknown {
                    owner,
                    evidence,
                    at
                }
            ),
        ]
    }

    fn event() -> impl Strategy<Value = Event> {
        use Status as S;
        let status = || {
            prop::sample::select(vec![
                S::Absent,
                S::Pending,
                S::Accepted,
                S::Completed,
                S::Closed,
                S::Unknown,
                S::Expired,
            ])
        };
        let source = prop::sample::select(vec![
            Source::Owner,
            Source::Reader,
            Source::Sweep,
            Source::Probe,
            Source::Event,
            Source::Operator,
            Source::Restart,
        ]);
        let rest = (
            any::<u64>(),
            any::<u64>(),
            "\\PC{0,10}",
            prop::option::of(evidence()),
        );
        (status(), status(), source, rest).prop_map(
            |(from, to, source, (at, write, operator, evidence))| Event {
                at,
                from,
                to,
                source,
                write: WriteId(write),
                operator,
                evidence,
            },
        )
    }

    fn any_record() -> impl Strategy<Value = Record> {
        let numbers = any::<([u64; 4], u32, [u64; 2])>();
        let texts = (
            "\\PC{0,12}",
            "\\PC{0,12}",
            "[a-f0-9-]{0,36}",
            prop::option::of("[0-9a-f-]{1,55}"),
        );
        let asked = (
            any::<[u8; 32]>(),
            any::<u64>(),
            any::<Option<[u8; 8]>>(),
            any::<Option<u64>>(),
        );
        let events = prop::collection::vec(event(), 0..6);
        (state(), numbers, texts, asked, events, any::<[u8; 8]>()).prop_map(
            |(state, (times, counter, windows), texts, asked, events, tenant)| {
                let mut record = record(state);
                let [incarnation, generation, claimed_at, last_seen] = times;
                record.version = Version {
                    incarnation,
                    counter,
                };
                record.generation = generation;
                record.claimed_at = claimed_at;
                record.last_seen = last_seen;
                record.windows = Windows {
                    replay_ms: windows[0],
                    tombstone_ms: windows[1],
                };
                record.tenant = TenantDigest(tenant);
                (
                    record.schema_version,
                    record.route,
                    record.attempt,
                    record.traceparent,
                ) = texts;
                let fingerprint = &mut record.fingerprint;
                (
                    fingerprint.digest,
                    fingerprint.length,
                    fingerprint.principal,
                    _,
                ) = asked;
                if let Some(octets) = asked.3 {
                    fingerprint.form = Form::Head;
                    // `u64::MAX` octets are more than anybody declares.
                    let declared = (octets % 2 == 0).then_some(octets / 2);
                    fingerprint.head = Some(Head { octets, declared });
                }
                record.history = History::default();
                events.into_iter().for_each(|e| record.history.push(e));
                record
            },
        )
    }

    proptest! {
        #[test]
        fn every_record_round_trips(record in any_record()) {
            prop_assert_eq!(decode(&encode(&record)), Ok(record));
        }

        #[test]
        fn no_damage_goes_unnoticed(record in any_record(), at: prop::sample::Index, change in 1_u8..) {
            let mut octets = encode(&record);
            let at = at.index(octets.len());
            octets[at] ^= change;
            prop_assert!(decode(&octets).is_err());
        }

        #[test]
        fn arbitrary_content_under_a_good_checksum_never_panics(
            octets in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            let mut sealed = vec![MAGIC, FORMAT];
            sealed.extend_from_slice(&checksum(FORMAT, &octets));
            sealed.extend_from_slice(&octets);
            if let Ok(read) = decode(&sealed) {
                // What is read is what would be written, as far as it is within bounds.
                let written = encode(&read);
                prop_assert_eq!(decode(&written).map(|r| encode(&r)), Ok(written));
            }
        }

        #[test]
        fn arbitrary_octets_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = super::decode(&bytes);
        }
    }
}
