//! A batch as the script's keys and arguments.

use super::{CANCELLED_MS, Layout, SCRIPT, SCRIPT_SHA1, Script};
use crate::ids::{OwnerToken, hex_of};
use crate::record::{Evidence, Replayable, Source, State, Status, Version, WriteId, parts};
use crate::store::contract::{SEEN_EVERY_MS, claim_write, claimed, is_answer, released};
use crate::store::remote::{Batch, Nonce, SHARDS, shard_of};
use crate::store::{Action, Claim, Fence, Op, Target, Transition};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::borrow::Cow;

/// Above this a double, which is all that Lua has, is no longer exact. Two hundred thousand years.
const MAX_EXACT: u64 = (1 << 53) - 1;

/// One script call.
pub(super) struct Call {
    keys: Vec<String>,
    args: Vec<String>,
}

impl Call {
    /// The words of the command.
    pub(super) fn words(&self, script: Script) -> Vec<Cow<'_, str>> {
        let (verb, script) = match script {
            Script::Known => ("EVALSHA", SCRIPT_SHA1),
            Script::Whole => ("EVAL", SCRIPT),
        };
        let mut words = Vec::with_capacity(3 + self.keys.len() + self.args.len());
        words.extend([verb.into(), script.into()]);
        words.push(self.keys.len().to_string().into());
        let rest = self.keys.iter().chain(&self.args);
        words.extend(rest.map(|word| Cow::from(word.as_str())));
        words
    }
}

/// The shards that a batch touches, in the order in which it first does.
pub(super) fn shards(batch: &Batch) -> Vec<u8> {
    let mut shards = Vec::new();
    for op in batch.ops() {
        let shard = shard_of(&op.operation);
        if !shards.contains(&shard) {
            shards.push(shard);
        }
    }
    shards
}

pub(super) fn call(batch: &Batch, layout: &Layout, doubt_ms: u64) -> Call {
    let shards = shards(batch);
    let mut keys: Vec<String> = shards.iter().flat_map(|s| layout.shard(*s)).collect();
    let mut args = vec![batch.nonce().hex(), format!("{},{doubt_ms}", shards.len())];
    for op in batch.ops() {
        let shard = shard_of(&op.operation);
        let index = shards.iter().position(|s| *s == shard).unwrap_or(0) + 1;
        let mut fields = Fields(index.to_string());
        fields.number(keys.len() as u64 + 1);
        keys.push(layout.record(shard, &op.operation));
        step(op, shard, layout, &mut keys, &mut fields);
        args.push(fields.0);
    }
    Call { keys, args }
}

pub(super) fn sweep(nonce: &Nonce, shard: u8, limit: u32, layout: &Layout, doubt_ms: u64) -> Call {
    Call {
        keys: layout.shard(shard).into(),
        args: vec![
            nonce.hex(),
            format!("1,{doubt_ms}"),
            format!("1,1,S,{limit}"),
        ],
    }
}

fn step(op: &Op, shard: u8, layout: &Layout, keys: &mut Vec<String>, fields: &mut Fields) {
    match &op.action {
        Action::Read => fields.word("R"),
        Action::Body { incarnation } => {
            keys.push(layout.body(shard, &op.operation));
            fields.word("B");
            fields.hex(*incarnation);
        }
        Action::Claim(claim) => {
            keys.push(layout.mark(shard, &op.operation, &claim.owner));
            fields.word("C");
            fields.claim(claim);
        }
        Action::TakeOver { claim, expect } => {
            keys.push(layout.mark(shard, &op.operation, &claim.owner));
            fields.word("O");
            fields.version(*expect);
            fields.claim(claim);
        }
        Action::Cancel { owner } => {
            keys.push(layout.mark(shard, &op.operation, owner));
            let write = claim_write(*owner);
            fields.word("X");
            fields.owner(owner);
            fields.hex(write.0);
            fields.hex(write.0.wrapping_sub(1));
            fields.octets(Some(&parts::evidence(&released())));
            fields.number(CANCELLED_MS);
        }
        Action::Transition(transition) => {
            keys.push(layout.body(shard, &op.operation));
            if let Fence::Owner { claim, .. } = &transition.fence {
                keys.push(layout.mark(shard, &op.operation, &claim.owner));
            }
            fields.word("T");
            fields.transition(transition);
        }
    }
}

/// Fields joined by commas. None is empty, and none holds a comma, a colon, a semicolon or anything
/// that a transport would have to escape.
struct Fields(String);

impl Fields {
    fn word(&mut self, word: &str) {
        self.0.push(',');
        self.0.push_str(if word.is_empty() { "-" } else { word });
    }

    fn number(&mut self, number: u64) {
        self.word(&number.min(MAX_EXACT).to_string());
    }

    fn hex(&mut self, number: u64) {
        self.word(&hex_of(&number.to_be_bytes()));
    }

    fn flag(&mut self, flag: bool) {
        self.word(if flag { "1" } else { "0" });
    }

    fn octets(&mut self, octets: Option<&[u8]>) {
        self.part(',', octets);
    }

    fn part(&mut self, mark: char, octets: Option<&[u8]>) {
        self.0.push(mark);
        match octets {
            Some(octets) if !octets.is_empty() => {
                URL_SAFE_NO_PAD.encode_string(octets, &mut self.0)
            }
            _ => self.0.push('-'),
        }
    }

    fn owner(&mut self, owner: &OwnerToken) {
        self.word(&hex_of(&owner.0));
    }

    fn version(&mut self, version: Version) {
        self.hex(version.incarnation);
        self.number(version.counter.into());
    }

    /// A part of its own, in parts of its own: `claim_of` in the script.
    fn claim(&mut self, claim: &Claim) {
        self.0.push(';');
        self.0.push_str(&hex_of(&claim.owner.0));
        self.hex(claim.owner.incarnation());
        self.number(claim.lease_ms);
        self.number(claim.not_after);
        self.number(claim.windows.replay_ms);
        self.number(claim.windows.tombstone_ms);
        self.hex(claim_write(claim.owner).0);
        self.word(&claim.tenant.hex());
        match claim.tenant_quota {
            Some(quota) => self.number(share(quota)),
            None => self.word("-"),
        }
        self.number(SEEN_EVERY_MS);
        self.flag(claim.fingerprint.head.is_some());
        self.part(':', Some(&parts::facts(&claimed(claim, 0, 0))));
        self.part(':', Some(&parts::evidence(&State::lease_over())));
        let restart = claim
            .forgotten
            .then(|| parts::evidence(&Evidence::named("restart")));
        self.part(':', restart.as_deref());
    }

    /// Ten fields and the fence, then the claim and the answer: `transition_of` in the script.
    fn transition(&mut self, transition: &Transition) {
        let WriteId(write) = transition.write;
        let to = &transition.to;
        self.hex(write);
        self.word(source_letter(transition.source));
        self.word(status_letter(to.status()));
        self.number(match to {
            Target::Renewed { lease_ms } => *lease_ms,
            Target::Accepted { deadline_ms, .. } => *deadline_ms,
            _ => 0,
        });
        let evidence = match to {
            Target::Unknown { evidence } => Some(evidence.clone()),
            to => to.answer(),
        };
        let mut replayable = false;
        let (mut detail, mut over, mut blob) = (None, None, None);
        match to {
            Target::Renewed { .. } => {}
            Target::Accepted {
                outcome, blob: b, ..
            } => {
                replayable = outcome.replay == Replayable::Yes;
                (detail, blob) = (Some(settled(to)), b.as_deref());
                over = Some(parts::evidence(&State::deadline_over(outcome)));
            }
            Target::Completed { outcome, blob: b } => {
                replayable = outcome.replay == Replayable::Yes;
                (detail, blob) = (Some(settled(to)), b.as_deref());
            }
            Target::Closed { .. } | Target::Unknown { .. } => detail = Some(settled(to)),
        }
        self.flag(evidence.as_ref().is_some_and(is_answer));
        self.flag(replayable);
        self.octets(detail.map(|state| parts::detail(&state)).as_deref());
        self.octets(evidence.map(|e| parts::evidence(&e)).as_deref());
        self.octets(over.as_deref());
        self.octets(Some(parts::operator(&transition.operator).as_bytes()));
        self.fence(&transition.fence);
        // An answer may be nothing, and is then still one.
        match blob.filter(|_| replayable) {
            Some(blob) => {
                self.0.push_str(";=");
                URL_SAFE_NO_PAD.encode_string(blob, &mut self.0);
            }
            None => self.0.push_str(";-"),
        }
    }

    fn fence(&mut self, fence: &Fence) {
        match fence {
            Fence::Owner {
                claim,
                claimed_at,
                generation,
            } => {
                self.word("W");
                self.owner(&claim.owner);
                self.number(*claimed_at);
                self.number(*generation);
                self.claim(claim);
            }
            Fence::Version { version, from } => {
                self.word("V");
                self.version(*version);
                let letters: String = from.iter().map(|s| status_letter(*s)).collect();
                self.word(&letters);
                self.0.push_str(";-");
            }
        }
    }
}

/// The state that a target leads to; the script knows the times and the owner.
fn settled(to: &Target) -> State {
    match to {
        Target::Accepted { outcome, .. } | Target::Completed { outcome, .. } => State::Completed {
            outcome: outcome.clone(),
            at: 0,
        },
        Target::Closed { reason } => State::Closed {
            reason: reason.clone(),
            at: 0,
        },
        Target::Unknown { evidence } => State::Unknown {
            owner: None,
            evidence: evidence.clone(),
            at: 0,
        },
        Target::Renewed { .. } => State::Pending {
            owner: OwnerToken::default(),
            lease_until: 0,
        },
    }
}

/// How many of a tenant's records one shard holds. Operations fall on shards by chance: the mean and
/// three standard deviations, so that a tenant within its quota is hardly ever refused.
fn share(quota: u64) -> u64 {
    let mean = quota.div_ceil(u64::from(SHARDS));
    let margin = mean.isqrt().saturating_mul(3);
    mean.saturating_add(margin).min(quota)
}

/// As records in Redis name states.
pub(super) const STATUS: [(&str, Status); 7] = [
    ("0", Status::Absent),
    ("P", Status::Pending),
    ("A", Status::Accepted),
    ("C", Status::Completed),
    ("X", Status::Closed),
    ("U", Status::Unknown),
    ("E", Status::Expired),
];

/// As records in Redis name sources.
pub(super) const SOURCE: [(&str, Source); 7] = [
    ("1", Source::Owner),
    ("2", Source::Reader),
    ("3", Source::Sweep),
    ("4", Source::Probe),
    ("5", Source::Event),
    ("6", Source::Operator),
    ("7", Source::Restart),
];

fn status_letter(status: Status) -> &'static str {
    let found = STATUS.iter().find(|(_, s)| *s == status);
    found.map_or("0", |(letter, _)| letter)
}

fn source_letter(source: Source) -> &'static str {
    let found = SOURCE.iter().find(|(_, s)| *s == source);
    found.map_or("0", |(letter, _)| letter)
}
