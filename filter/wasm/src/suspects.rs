//! Clients that change keys too early.
//!
//! Whoever gets `outcome_unknown` and tries again under a new key may act twice, and nothing in the
//! protocol shows it. So unknown operations are noted by what they asked for (tenant, route,
//! fingerprint), and a new operation that asks for the same is reported. Notes are hints in a fixed
//! number of small places: one that is lost costs a log line.

use idempo_core::ids::OperationId;
use idempo_core::store::table::SharedData;

const PLACES: u64 = 256;

/// Notes at one place; the oldest goes first.
const MAX_NOTES: usize = 32;

const LENGTH: usize = 40;

const TRIES: usize = 8;

fn key(likeness: u64) -> String {
    format!("idempo/1/u/{}", likeness % PLACES)
}

/// There from the first note on.
const ANY: &str = "idempo/1/u";

/// Whether there is any note.
pub(crate) fn any(shared: &mut impl SharedData) -> bool {
    matches!(shared.get(ANY), Ok(Some(_)))
}

/// Notes that an operation of that likeness is unknown.
pub(crate) fn note(shared: &mut impl SharedData, likeness: u64, operation: &OperationId) {
    let _ = shared.create(ANY, &[1]);
    let key = key(likeness);
    for _ in 0..TRIES {
        let done = match shared.get(&key) {
            Ok(None) => shared.create(&key, &write(&[(likeness, *operation)])),
            Ok(Some((value, cas))) => {
                let mut notes: Vec<_> = read(&value).filter(|(_, o)| o != operation).collect();
                notes.push((likeness, *operation));
                let surplus = notes.len().saturating_sub(MAX_NOTES);
                notes.drain(..surplus);
                shared.replace(&key, &write(&notes), cas)
            }
            Err(_) => return,
        };
        if done.unwrap_or(true) {
            return;
        }
    }
}

/// An operation of that likeness that was noted last, other than `own`.
pub(crate) fn find(
    shared: &mut impl SharedData,
    likeness: u64,
    own: &OperationId,
) -> Option<OperationId> {
    let (value, _) = shared.get(&key(likeness)).ok()??;
    read(&value)
        .filter(|(l, o)| *l == likeness && o != own)
        .map(|(_, o)| o)
        .last()
}

fn read(value: &[u8]) -> impl Iterator<Item = (u64, OperationId)> + '_ {
    value.chunks_exact(LENGTH).filter_map(|note| {
        let (likeness, operation) = note.split_first_chunk::<8>()?;
        Some((
            u64::from_be_bytes(*likeness),
            OperationId(operation.try_into().ok()?),
        ))
    })
}

fn write(notes: &[(u64, OperationId)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(notes.len() * LENGTH);
    for (likeness, operation) in notes {
        out.extend_from_slice(&likeness.to_be_bytes());
        out.extend_from_slice(&operation.0);
    }
    out
}
