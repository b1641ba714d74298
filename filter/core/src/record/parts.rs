//! A record in parts, for engines that decide where the record lies.
//!
//! A store that runs its own program (a script, a function) must move a record from state to state
//! by itself, since one round trip is all there is. It need not understand what a record says for
//! that: it moves a few numbers and names, and keeps sealed parts beside them, which only this
//! module writes and reads. Each part is octets of the record's own format (`mark, format, checksum,
//! protobuf`) with some of its fields, so a part damaged or of another format is noticed, and a field
//! that a newer version adds travels through an older program untouched.

use super::wire::{
    evidence_to_wire, from_wire, seal, source_number, state_to_wire, status_number, to_wire, unseal,
};
use super::{
    Corrupt, Evidence, OwnerToken, Record, Source, State, Status, Version, Windows, WriteId,
    bounded, proto,
};

/// What the claim says, and nothing after it changes: fingerprint, route, attempt and the like.
#[must_use]
pub fn facts(record: &Record) -> Vec<u8> {
    let whole = to_wire(record);
    // All that the program moves by itself goes; whatever else a record has, or will have, stays.
    seal(&proto::Record {
        incarnation: 0,
        counter: 0,
        generation: 0,
        state: 0,
        owner: Vec::new(),
        until: 0,
        at: 0,
        outcome: None,
        evidence: None,
        reason: String::new(),
        claimed_at: 0,
        last_seen: 0,
        replay_ms: 0,
        tombstone_ms: 0,
        events: Vec::new(),
        dropped: 0,
        ..whole
    })
}

/// What a state holds besides times and owner: an outcome, evidence or a reason.
#[must_use]
pub fn detail(state: &State) -> Vec<u8> {
    let mut wire = proto::Record::default();
    state_to_wire(state, &mut wire);
    seal(&proto::Record {
        owner: Vec::new(),
        until: 0,
        at: 0,
        ..wire
    })
}

/// The evidence of one event, which is also the detail of an unknown state.
#[must_use]
pub fn evidence(evidence: &Evidence) -> Vec<u8> {
    seal(&proto::Record {
        evidence: Some(evidence_to_wire(evidence)),
        ..Default::default()
    })
}

/// A record as such a program gives it back.
#[derive(Debug)]
pub struct Parts {
    /// Moved by the program.
    pub version: Version,
    /// Moved by the program.
    pub generation: u64,
    /// Moved by the program.
    pub status: Status,
    /// Who may still act.
    pub owner: Option<OwnerToken>,
    /// End of the lease, or deadline.
    pub until: u64,
    /// When the state began.
    pub at: u64,
    /// When the claim was made.
    pub claimed_at: u64,
    /// When an attempt was last seen.
    pub last_seen: u64,
    /// Retention.
    pub windows: Windows,
    /// As [`facts`] wrote them.
    pub facts: Vec<u8>,
    /// Facts of which the fingerprint replaces the first one: the owner has seen the whole body since.
    pub amended: Option<Vec<u8>>,
    /// As [`detail`] or [`evidence`] wrote it.
    pub detail: Option<Vec<u8>>,
    /// Oldest first.
    pub events: Vec<EventParts>,
    /// How many events were dropped.
    pub dropped: u32,
}

/// One event of such a record.
#[derive(Debug)]
pub struct EventParts {
    /// Store clock, milliseconds.
    pub at: u64,
    /// The state before.
    pub from: Status,
    /// The state after.
    pub to: Status,
    /// Who.
    pub source: Source,
    /// Which write.
    pub write: WriteId,
    /// The person.
    pub operator: String,
    /// As [`evidence`] wrote it.
    pub evidence: Option<Vec<u8>>,
}

impl Parts {
    /// The record.
    ///
    /// # Errors
    /// [`Corrupt`] where a part is damaged, of another format, or missing.
    pub fn join(self) -> Result<Record, Corrupt> {
        let mut wire = unseal(&self.facts)?;
        if let Some(amended) = self.amended {
            let amended = unseal(&amended)?;
            wire.fingerprint = amended.fingerprint.or(wire.fingerprint);
        }
        if let Some(detail) = self.detail {
            let detail = unseal(&detail)?;
            wire.outcome = detail.outcome;
            wire.evidence = detail.evidence;
            wire.reason = detail.reason;
        }
        wire.incarnation = self.version.incarnation;
        wire.counter = self.version.counter;
        wire.generation = self.generation;
        wire.state = status_number(self.status);
        wire.owner = self.owner.map(|o| o.0.to_vec()).unwrap_or_default();
        wire.until = self.until;
        wire.at = self.at;
        wire.claimed_at = self.claimed_at;
        wire.last_seen = self.last_seen;
        wire.replay_ms = self.windows.replay_ms;
        wire.tombstone_ms = self.windows.tombstone_ms;
        wire.dropped = self.dropped;
        for event in self.events {
            let evidence = match event.evidence {
                Some(octets) => unseal(&octets)?.evidence,
                None => None,
            };
            wire.events.push(proto::Event {
                at: event.at,
                from: status_number(event.from),
                to: status_number(event.to),
                source: source_number(event.source),
                write: event.write.0,
                operator: event.operator,
                evidence,
            });
        }
        from_wire(wire)
    }
}

/// An operator's name as records keep it.
#[must_use]
pub fn operator(name: &str) -> String {
    bounded(name, 48)
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::{outcome, record};
    use super::super::{Event, History, encode};
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn apart(record: &Record) -> Parts {
        let (until, at) = match &record.state {
            State::Pending { lease_until, .. } => (*lease_until, 0),
            State::Accepted { at, deadline, .. } => (*deadline, *at),
            State::Completed { at, .. } | State::Closed { at, .. } | State::Unknown { at, .. } => {
                (0, *at)
            }
        };
        let events = record.history.events().iter().map(|e| EventParts {
            at: e.at,
            from: e.from,
            to: e.to,
            source: e.source,
            write: e.write,
            operator: operator(&e.operator),
            evidence: e.evidence.as_ref().map(evidence),
        });
        Parts {
            version: record.version,
            generation: record.generation,
            status: record.state.status(),
            owner: record.owner(),
            until,
            at,
            claimed_at: record.claimed_at,
            last_seen: record.last_seen,
            windows: record.windows,
            facts: facts(record),
            amended: None,
            detail: Some(detail(&record.state)),
            events: events.collect(),
            dropped: record.history.dropped(),
        }
    }

    fn records() -> Vec<Record> {
        let owner = OwnerToken([1; 16]);
        let states = [
            State::Pending {
                owner,
                lease_until: 9,
            },
            State::Accepted {
                outcome: outcome(202),
                at: 2,
                deadline: 9,
            },
            State::Completed {
                outcome: outcome(201),
                at: 2,
            },
            State::Closed {
                reason: "refunded".into(),
                at: 2,
            },
            State::Unknown {
                owner: Some(owner),
                evidence: Evidence::named("reset"),
                at: 2,
            },
        ];
        let mut records: Vec<_> = states.into_iter().map(record).collect();
        for record in &mut records {
            record.history = History::from_parts(
                vec![Event {
                    at: 5,
                    from: Status::Absent,
                    to: Status::Pending,
                    source: Source::Operator,
                    write: WriteId(u64::MAX),
                    operator: "ops".into(),
                    evidence: Some(Evidence::named("seen")),
                }],
                3,
            );
        }
        records
    }

    #[test]
    fn parts_join_to_the_record_they_came_from() {
        for record in records() {
            assert_eq!(apart(&record).join(), Ok(record));
        }
    }

    #[test]
    fn a_damaged_part_or_one_of_another_format_is_noticed() {
        for record in records() {
            for break_it in [
                (|p: &mut Parts| p.facts[8] ^= 1) as fn(&mut Parts),
                |p| p.facts.truncate(5),
                |p| p.facts[1] = 9,
                |p| p.detail.as_mut().unwrap()[2] ^= 1,
                |p| p.amended = Some(vec![1, 2]),
                |p| p.events[0].evidence = Some(Vec::new()),
            ] {
                let mut parts = apart(&record);
                break_it(&mut parts);
                assert!(parts.join().is_err(), "{record:?}");
            }
        }
    }

    #[test]
    fn a_state_without_its_detail_is_corrupt() {
        for record in records() {
            let mut parts = apart(&record);
            parts.detail = None;
            let needs = matches!(
                record.state,
                State::Accepted { .. } | State::Completed { .. } | State::Unknown { .. }
            );
            assert_eq!(parts.join().is_err(), needs, "{record:?}");
        }
    }

    #[test]
    fn a_later_fingerprint_replaces_the_first() {
        let first = records().remove(0);
        let mut second = first.clone();
        second.fingerprint.digest = [8; 32];
        let mut parts = apart(&first);
        parts.amended = Some(facts(&second));
        assert_eq!(parts.join(), Ok(second));
    }

    #[test]
    fn facts_hold_nothing_that_the_program_moves() {
        let first = facts(&records()[0]);
        for mut record in records() {
            record.version = Version {
                incarnation: 70,
                counter: 71,
            };
            record.generation = 72;
            record.claimed_at = 73;
            record.last_seen = 74;
            record.windows = Windows {
                replay_ms: 75,
                tombstone_ms: 76,
            };
            record.history = History::from_parts(Vec::new(), 77);
            assert_eq!(facts(&record), first);
            assert!(first.len() < encode(&record).len());
        }
    }

    #[test]
    fn a_detail_holds_neither_owner_nor_times() {
        let [pending, accepted, _, _, unknown] = <[Record; 5]>::try_from(records()).unwrap();
        let later = |mut state: State| {
            match &mut state {
                State::Pending { owner, lease_until } => {
                    (owner.0, *lease_until) = ([2; 16], 90);
                }
                State::Accepted { at, deadline, .. } => (*at, *deadline) = (20, 90),
                State::Unknown { owner, at, .. } => (*owner, *at) = (None, 20),
                State::Completed { .. } | State::Closed { .. } => panic!(),
            }
            state
        };
        for Record { state, .. } in [pending, accepted, unknown] {
            assert_eq!(detail(&later(state.clone())), detail(&state));
        }
    }

    #[test]
    fn a_name_is_cut_between_characters() {
        assert_eq!(operator(&"a".repeat(49)), "a".repeat(48));
        let name = "a".to_owned() + &"\u{20ac}".repeat(16);
        assert_eq!(operator(&name), "a".to_owned() + &"\u{20ac}".repeat(15));
    }
}
