//! A write as octets, for a journal's slot.
//!
//! ```text
//! mark 2 (d7 b6), format 1, 0, checksum 8, writer 8, sequence 8, operation 32, then the action
//! ```
//!
//! Integers are little endian, texts and octets carry their length before them, an option an octet 0
//! or 1. The octets of a record are not used for this: they cut texts and normalise fields, which is
//! right for what is kept and wrong for what is still to be asked. Written by hand and not by a serialiser
//! because two dozen fields are smaller so. A checksum over all of it (XXH3, as in records) tells what is
//! half or foreign.

use super::super::{Action, Claim, Fence, Op, Target, Transition};
use crate::fingerprint::{Fingerprint, Form, Head};
use crate::ids::{OperationId, OwnerToken, TenantDigest};
use crate::plan::DigestAlgorithm;
use crate::record::{Evidence, Outcome, Replayable, Source, Status, Version, Windows, WriteId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The format that this build writes, and the only one that it reads.
const FORMAT: u8 = 1;
const MAGIC: [u8; 2] = [0xd7, 0xb6];
/// Octets before the checksummed part.
const HEAD: usize = 12;

/// Tells a slot's write from every other: who put it there first, and which of its writes it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) writer: u64,
    pub(super) sequence: u64,
}

/// The octets are no write that this build reads: damaged, or of another format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// Whether such a write can be kept beyond this VM. What asks or claims cannot: nobody waits for it
/// once the VM is gone.
pub(super) const fn can_be_durable(op: &Op) -> bool {
    matches!(op.action, Action::Cancel { .. } | Action::Transition(_))
}

/// Writes a cancellation or transition; `None` for anything else.
pub(super) fn encode(mark: Mark, op: &Op) -> Option<Vec<u8>> {
    let mut out = Out(vec![0; HEAD]);
    out.u64(mark.writer);
    out.u64(mark.sequence);
    out.raw(&op.operation.0);
    match &op.action {
        Action::Cancel { owner } => {
            out.u8(1);
            out.raw(&owner.0);
        }
        Action::Transition(transition) => {
            out.u8(2);
            out.transition(transition);
        }
        Action::Read | Action::Claim(_) | Action::TakeOver { .. } | Action::Body { .. } => {
            return None;
        }
    }
    let mut octets = out.0;
    let (head, rest) = octets.split_first_chunk_mut::<HEAD>()?;
    let [s0, s1, s2, s3, s4, s5, s6, s7] = checksum(FORMAT, rest);
    let [m0, m1] = MAGIC;
    *head = [m0, m1, FORMAT, 0, s0, s1, s2, s3, s4, s5, s6, s7];
    Some(octets)
}

/// Reads what [`encode`] wrote.
pub(super) fn decode(octets: &[u8]) -> Result<(Mark, Op), Unreadable> {
    read(octets).ok_or(Unreadable)
}

/// The mark of the write that is there, as far as it looks like one: for comparing, not for trusting.
pub(super) fn mark_of(octets: &[u8]) -> Option<Mark> {
    let (head, mut rest) = octets.split_first_chunk::<HEAD>()?;
    let [m0, m1, format, ..] = *head;
    ([m0, m1] == MAGIC && format == FORMAT).then_some(())?;
    mark(&mut rest)
}

fn mark(from: &mut &[u8]) -> Option<Mark> {
    Some(Mark {
        writer: u64(from)?,
        sequence: u64(from)?,
    })
}

fn checksum(format: u8, octets: &[u8]) -> [u8; 8] {
    xxh3_64_with_seed(octets, u64::from(format)).to_le_bytes()
}

fn read(octets: &[u8]) -> Option<(Mark, Op)> {
    let (head, mut rest) = octets.split_first_chunk::<HEAD>()?;
    let [m0, m1, format, zero, sum @ ..] = *head;
    let whole = [m0, m1] == MAGIC && format == FORMAT && zero == 0;
    (whole && sum == checksum(format, rest)).then_some(())?;
    let from = &mut rest;
    let mark = mark(from)?;
    let operation = OperationId(take(from)?);
    let action = match u8(from)? {
        1 => Action::Cancel {
            owner: OwnerToken(take(from)?),
        },
        2 => Action::Transition(transition(from)?),
        _ => return None,
    };
    from.is_empty().then_some((mark, Op { operation, action }))
}

/// Numbers of an enum in a slot: one table for both directions.
macro_rules! numbers {
    ($put:ident, $get:ident, $type:ty, $($number:literal => $value:path),+ $(,)?) => {
        const fn $put(value: $type) -> u8 {
            match value { $($value => $number),+ }
        }
        fn $get(from: &mut &[u8]) -> Option<$type> {
            Some(match u8(from)? { $($number => $value,)+ _ => return None })
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

struct Out(Vec<u8>);

impl Out {
    fn raw(&mut self, octets: &[u8]) {
        self.0.extend_from_slice(octets);
    }

    fn u8(&mut self, value: u8) {
        self.raw(&[value]);
    }

    fn u32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    fn counted(&mut self, octets: &[u8]) {
        self.u64(octets.len() as u64);
        self.raw(octets);
    }

    fn optional(&mut self, octets: Option<&[u8]>) {
        self.u8(octets.is_some().into());
        if let Some(octets) = octets {
            self.counted(octets);
        }
    }

    fn optional_u64(&mut self, value: Option<u64>) {
        self.u8(value.is_some().into());
        self.u64(value.unwrap_or_default());
    }

    fn transition(&mut self, transition: &Transition) {
        self.u64(transition.write.0);
        match &transition.fence {
            Fence::Owner {
                claim,
                claimed_at,
                generation,
            } => {
                self.u8(1);
                self.claim(claim);
                self.u64(*claimed_at);
                self.u64(*generation);
            }
            Fence::Version { version, from } => {
                self.u8(2);
                self.u64(version.incarnation);
                self.u32(version.counter);
                let from: Vec<u8> = from.iter().map(|s| status_number(*s)).collect();
                self.counted(&from);
            }
        }
        self.u8(source_number(transition.source));
        self.counted(transition.operator.as_bytes());
        self.target(&transition.to);
    }

    fn claim(&mut self, claim: &Claim) {
        self.raw(&claim.owner.0);
        self.u64(claim.lease_ms);
        self.u64(claim.not_after);
        self.fingerprint(&claim.fingerprint);
        self.counted(claim.schema_version.as_bytes());
        self.raw(&claim.tenant.0);
        self.optional_u64(claim.tenant_quota);
        self.counted(claim.route.as_bytes());
        self.counted(claim.attempt.as_bytes());
        self.optional(claim.traceparent.as_deref().map(str::as_bytes));
        self.u64(claim.windows.replay_ms);
        self.u64(claim.windows.tombstone_ms);
        self.u8(claim.forgotten.into());
    }

    fn fingerprint(&mut self, fingerprint: &Fingerprint) {
        self.raw(&fingerprint.digest);
        self.u8(algorithm_number(fingerprint.algorithm));
        self.u8(form_number(fingerprint.form));
        self.u8(fingerprint.version);
        self.raw(&fingerprint.settings);
        self.u64(fingerprint.length);
        self.counted(fingerprint.media_type.as_bytes());
        self.optional(fingerprint.principal.as_ref().map(<[u8; 8]>::as_slice));
        self.optional_u64(fingerprint.head.map(|h| h.octets));
        self.optional_u64(fingerprint.head.and_then(|h| h.declared));
    }

    fn target(&mut self, target: &Target) {
        match target {
            Target::Renewed { lease_ms } => {
                self.u8(1);
                self.u64(*lease_ms);
            }
            Target::Accepted {
                outcome,
                deadline_ms,
                blob,
            } => {
                self.u8(2);
                self.u64(*deadline_ms);
                self.outcome(outcome);
                self.optional(blob.as_deref());
            }
            Target::Completed { outcome, blob } => {
                self.u8(3);
                self.outcome(outcome);
                self.optional(blob.as_deref());
            }
            Target::Closed { reason } => {
                self.u8(4);
                self.counted(reason.as_bytes());
            }
            Target::Unknown { evidence } => {
                self.u8(5);
                self.optional_u64(evidence.status.map(u64::from));
                self.counted(evidence.details.as_bytes());
                self.optional(evidence.result.as_ref().map(<[u8; 32]>::as_slice));
            }
        }
    }

    fn outcome(&mut self, outcome: &Outcome) {
        self.u64(outcome.status.into());
        self.raw(&outcome.result);
        self.u64(outcome.body_length);
        self.u64(outcome.wall_first_response);
        self.u8(replay_number(outcome.replay));
    }
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*head)
}

fn u8(from: &mut &[u8]) -> Option<u8> {
    let [value] = take(from)?;
    Some(value)
}

fn u64(from: &mut &[u8]) -> Option<u64> {
    take(from).map(u64::from_le_bytes)
}

fn flag(from: &mut &[u8]) -> Option<bool> {
    match u8(from)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn counted<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(u64(from)?).ok()?;
    let (octets, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(octets)
}

fn text(from: &mut &[u8]) -> Option<String> {
    let octets = counted(from)?;
    std::str::from_utf8(octets).ok().map(str::to_owned)
}

/// The outer option: whether it could be read.
fn optional<'a>(from: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    Some(if flag(from)? {
        Some(counted(from)?)
    } else {
        None
    })
}

fn optional_array<const N: usize>(from: &mut &[u8]) -> Option<Option<[u8; N]>> {
    Some(match optional(from)? {
        Some(octets) => Some(octets.try_into().ok()?),
        None => None,
    })
}

fn optional_u64(from: &mut &[u8]) -> Option<Option<u64>> {
    let (there, value) = (flag(from)?, u64(from)?);
    Some(there.then_some(value))
}

fn transition(from: &mut &[u8]) -> Option<Transition> {
    let write = WriteId(u64(from)?);
    let fence = match u8(from)? {
        1 => Fence::Owner {
            claim: Box::new(claim(from)?),
            claimed_at: u64(from)?,
            generation: u64(from)?,
        },
        2 => Fence::Version {
            version: Version {
                incarnation: u64(from)?,
                counter: take(from).map(u32::from_le_bytes)?,
            },
            from: statuses(counted(from)?)?,
        },
        _ => return None,
    };
    Some(Transition {
        write,
        fence,
        source: source(from)?,
        operator: text(from)?,
        to: target(from)?,
    })
}

fn statuses(mut octets: &[u8]) -> Option<Vec<Status>> {
    let mut all = Vec::new();
    while !octets.is_empty() {
        all.push(status(&mut octets)?);
    }
    Some(all)
}

fn claim(from: &mut &[u8]) -> Option<Claim> {
    Some(Claim {
        owner: OwnerToken(take(from)?),
        lease_ms: u64(from)?,
        not_after: u64(from)?,
        fingerprint: fingerprint(from)?,
        schema_version: text(from)?,
        tenant: TenantDigest(take(from)?),
        tenant_quota: optional_u64(from)?,
        route: text(from)?,
        attempt: text(from)?,
        traceparent: if flag(from)? { Some(text(from)?) } else { None },
        windows: Windows {
            replay_ms: u64(from)?,
            tombstone_ms: u64(from)?,
        },
        forgotten: flag(from)?,
    })
}

fn fingerprint(from: &mut &[u8]) -> Option<Fingerprint> {
    Some(Fingerprint {
        digest: take(from)?,
        algorithm: algorithm(from)?,
        form: form(from)?,
        version: u8(from)?,
        settings: take(from)?,
        length: u64(from)?,
        media_type: text(from)?,
        principal: optional_array(from)?,
        head: {
            let (octets, declared) = (optional_u64(from)?, optional_u64(from)?);
            octets.map(|octets| Head { octets, declared })
        },
    })
}

fn target(from: &mut &[u8]) -> Option<Target> {
    Some(match u8(from)? {
        1 => Target::Renewed {
            lease_ms: u64(from)?,
        },
        2 => Target::Accepted {
            deadline_ms: u64(from)?,
            outcome: outcome(from)?,
            blob: optional(from)?.map(<[u8]>::to_vec),
        },
        3 => Target::Completed {
            outcome: outcome(from)?,
            blob: optional(from)?.map(<[u8]>::to_vec),
        },
        4 => Target::Closed {
            reason: text(from)?,
        },
        5 => Target::Unknown {
            evidence: Evidence {
                status: match optional_u64(from)? {
                    Some(status) => Some(u16::try_from(status).ok()?),
                    None => None,
                },
                details: text(from)?,
                result: optional_array(from)?,
            },
        },
        _ => return None,
    })
}

fn outcome(from: &mut &[u8]) -> Option<Outcome> {
    Some(Outcome {
        status: u16::try_from(u64(from)?).ok()?,
        result: take(from)?,
        body_length: u64(from)?,
        wall_first_response: u64(from)?,
        replay: replay(from)?,
    })
}

#[cfg(all(test, not(target_arch = "wasm32")))]
#[path = "op_tests.rs"]
mod tests;
