//! The script's texts as replies.

use super::encode::shards;
use super::value;
use crate::ids::OperationId;
use crate::record::bounded;
use crate::store::remote::{Answered, Batch, Nonce, ShardState, Swept};
use crate::store::{Action, Full, Reply};

/// The script's name for itself, in every answer.
const MARK: &str = "idempo1";

/// Reads one answer. The error says why it is not the answer to this call.
pub(super) fn answered(batch: &Batch, texts: &[String]) -> Result<Answered, &'static str> {
    let (now, mut texts) = begin(batch.nonce(), texts)?;
    let mut states = Vec::new();
    for shard in shards(batch) {
        let state = texts.next().and_then(|text| state(shard, text));
        states.push(state.ok_or("an answer without a shard's state")?);
    }
    let mut replies = Vec::with_capacity(batch.ops().len());
    for op in batch.ops() {
        let text = texts.next().ok_or("fewer replies than operations")?;
        replies.push(reply(&op.action, text));
    }
    if texts.next().is_some() {
        return Err("more replies than operations");
    }
    Ok(Answered {
        now,
        shards: states,
        replies,
    })
}

/// Reads a sweep's answer.
pub(super) fn swept(nonce: &Nonce, shard: u8, texts: &[String]) -> Result<Swept, &'static str> {
    const NOT: &str = "not a sweep's answer";
    let (now, mut texts) = begin(nonce, texts)?;
    let state = texts.next().and_then(|text| state(shard, text));
    let state = state.ok_or("an answer without a shard's state")?;
    let (Some(text), None) = (texts.next(), texts.next()) else {
        return Err(NOT);
    };
    let mut parts = text.split('|');
    let mut counts = parts.next().unwrap_or_default().split(',');
    if counts.next() != Some("swept") {
        return Err(NOT);
    }
    let mut count = || counts.next().and_then(|n| n.parse().ok()).ok_or(NOT);
    let (open, unknown, expired) = (count()?, count()?, count()?);
    let mut noted = Vec::new();
    for part in parts {
        let (id, text) = part.split_once('=').ok_or(NOT)?;
        let id = OperationId::from_hex(id).ok_or(NOT)?;
        noted.push((id, value::record(text).map(Box::new)));
    }
    Ok(Swept {
        now,
        state,
        noted,
        open,
        unknown,
        expired,
    })
}

/// The head of every answer: whose it is, and when. The rest follows.
fn begin<'a>(
    nonce: &Nonce,
    texts: &'a [String],
) -> Result<(u64, impl Iterator<Item = &'a str>), &'static str> {
    let mut texts = texts.iter().map(String::as_str);
    let mut head = texts.next().unwrap_or_default().split(',');
    if head.next() != Some(MARK) {
        return Err("not an answer of the engine's script");
    }
    if head.next() != Some(nonce.hex().as_str()) {
        return Err("the answer to another call");
    }
    let now = head.next().and_then(|now| now.parse().ok());
    Ok((now.ok_or("an answer without the store's time")?, texts))
}

fn state(shard: u8, text: &str) -> Option<ShardState> {
    let (epoch, rest) = text.split_once(',')?;
    let (seq, doubt) = rest.split_once(',')?;
    let doubt_until = match doubt {
        "-" => None,
        until => Some(until.parse().ok()?),
    };
    let mut octets = [0; 16];
    let known = hex::decode_to_slice(epoch, &mut octets).is_ok();
    Some(ShardState {
        shard,
        epoch: known.then_some(octets),
        seq: seq.parse().ok()?,
        doubt_until,
    })
}

fn reply(action: &Action, text: &str) -> Reply {
    let (word, rest) = text.split_once(',').unwrap_or((text, ""));
    if !fits(action, word) {
        return Reply::Failed(bounded(&format!("the store answered {word:?}"), 120));
    }
    let with_record = |make: fn(Box<crate::record::Record>) -> Reply| {
        value::record(rest).map_or(Reply::Corrupt, |record| make(Box::new(record)))
    };
    match word {
        "claimed" => with_record(Reply::Claimed),
        "current" => with_record(Reply::Current),
        "applied" => with_record(Reply::Applied),
        "already" => with_record(Reply::Already),
        "stale" => with_record(Reply::Stale),
        "expired" => Reply::Expired {
            unresolved: rest != "0",
        },
        "absent" => Reply::Absent,
        "cancelled" => Reply::Cancelled,
        "late" => Reply::TooLate,
        "recovering" => match rest.parse() {
            Ok(left_ms) => Reply::Recovering(left_ms),
            Err(_) => Reply::Failed(bounded(rest, 120)),
        },
        "full" if rest == "tenant" => Reply::Full(Full::Tenant),
        "full" => Reply::Full(Full::Store),
        "body" => Reply::Body(rest.strip_prefix('=').and_then(value::octets)),
        "corrupt" => Reply::Corrupt,
        _ => Reply::Failed(bounded(rest, 120)),
    }
}

/// Whether a step can be answered so at all.
fn fits(action: &Action, word: &str) -> bool {
    let words: &[&str] = match action {
        Action::Read => &["current", "absent"],
        Action::Body { .. } => &["current", "absent", "body"],
        Action::Claim(_) | Action::TakeOver { .. } => {
            &["claimed", "current", "late", "recovering", "full"]
        }
        Action::Cancel { .. } => &["cancelled", "applied", "stale"],
        Action::Transition(_) => &["applied", "already", "stale", "absent"],
    };
    words.contains(&word) || ["expired", "corrupt", "failed"].contains(&word)
}
