//! A record as the script writes it: parts joined by semicolons, of which the first is fields joined
//! by commas, and the last ones are events, joined by colons.

use super::encode::{SOURCE, STATUS};
use crate::ids::OwnerToken;
use crate::record::parts::{EventParts, Parts};
use crate::record::{MAX_EVENTS, Record, Source, Status, Version, Windows, WriteId};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Reads a record; `None`: it is none (rule 9).
pub(super) fn record(text: &str) -> Option<Record> {
    let mut parts = text.split(';');
    let mut fields = parts.next()?.split(',');
    let mut next = || fields.next();
    let version = Version {
        incarnation: hex(next()?)?,
        counter: next()?.parse().ok()?,
    };
    let generation = next()?.parse().ok()?;
    let status = status(next()?)?;
    let owner = match next()? {
        "-" => None,
        text => {
            let mut token = [0; 16];
            hex::decode_to_slice(text, &mut token).ok()?;
            Some(OwnerToken(token))
        }
    };
    let (until, at) = (next()?.parse().ok()?, next()?.parse().ok()?);
    let (claimed_at, last_seen) = (next()?.parse().ok()?, next()?.parse().ok()?);
    let windows = Windows {
        replay_ms: next()?.parse().ok()?,
        tombstone_ms: next()?.parse().ok()?,
    };
    // The tenant, whether it is counted, the answer's name, flags: the script's own.
    let (_, _, _, _) = (next()?, next()?, next()?, next()?);
    let dropped = next()?.parse().ok()?;
    let facts = octets(parts.next()?)?;
    let amended = optional(parts.next()?)?;
    let detail = optional(parts.next()?)?;
    let _over = parts.next()?;
    let mut events = Vec::new();
    for text in parts {
        if events.len() >= MAX_EVENTS {
            return None;
        }
        events.push(event(text)?);
    }
    let parts = Parts {
        version,
        generation,
        status,
        owner,
        until,
        at,
        claimed_at,
        last_seen,
        windows,
        facts,
        amended,
        detail,
        events,
        dropped,
    };
    parts.join().ok()
}

fn event(text: &str) -> Option<EventParts> {
    let mut fields = text.split(':');
    let mut next = || fields.next();
    let at = next()?.parse().ok()?;
    let (from, to) = (status(next()?)?, status(next()?)?);
    let source = source(next()?)?;
    let write = WriteId(hex(next()?)?);
    let _answer = next()?;
    let operator = optional(next()?)?.unwrap_or_default();
    let evidence = optional(next()?)?;
    Some(EventParts {
        at,
        from,
        to,
        source,
        write,
        operator: String::from_utf8(operator).ok()?,
        evidence,
    })
}

fn status(letter: &str) -> Option<Status> {
    let found = STATUS.iter().find(|(l, _)| *l == letter);
    found.map(|(_, status)| *status)
}

fn source(letter: &str) -> Option<Source> {
    let found = SOURCE.iter().find(|(l, _)| *l == letter);
    found.map(|(_, source)| *source)
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn optional(text: &str) -> Option<Option<Vec<u8>>> {
    match text {
        "-" => Some(None),
        text => octets(text).map(Some),
    }
}

pub(super) fn octets(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}
