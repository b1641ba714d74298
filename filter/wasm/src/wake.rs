//! Waking waiters in every worker.
//!
//! A waiter's worker puts its queue on a board in shared data; whoever ends an operation takes the
//! queues off and sends each a message. The board has a fixed number of places, so operations share
//! them: a message names a place, and every waiter of that place looks again. A wake-up can be
//! spurious, and one that is lost (a queue of a VM that died, a race for a place) is made good by
//! the waiters' own re-reading.

use crate::abi;
use idempo_core::ids::OperationId;
use idempo_core::store::table::SharedData;

const PLACES: u64 = 256;

/// Queues at one place. More workers than this re-read instead of being woken.
const MAX_QUEUES: usize = 64;

/// Tries against other workers.
const TRIES: usize = 8;

/// An operation's place on the board.
pub(crate) fn place(operation: &OperationId) -> u8 {
    u8::try_from(operation.prefix() % PLACES).unwrap_or(0)
}

fn key(place: u8) -> String {
    format!("idempo/1/w/{place}")
}

/// Puts a queue at a place. Values are never empty, for an empty one could not be told from none.
pub(crate) fn register(shared: &mut impl SharedData, place: u8, queue: u32) -> bool {
    let (key, token) = (key(place), queue.to_le_bytes());
    for _ in 0..TRIES {
        let done = match shared.get(&key) {
            Ok(None) => {
                let mut value = vec![1];
                value.extend_from_slice(&token);
                shared.create(&key, &value)
            }
            Ok(Some((mut value, cas))) => {
                let queues = value.get(1..).unwrap_or_default();
                if queues.chunks_exact(4).any(|q| q == token) {
                    return true;
                }
                if queues.len() >= MAX_QUEUES * 4 {
                    return false;
                }
                value.extend_from_slice(&token);
                shared.replace(&key, &value, cas)
            }
            Err(_) => return false,
        };
        if done.unwrap_or(false) {
            return true;
        }
    }
    false
}

/// Takes all queues off a place and sends each a message.
pub(crate) fn wake(shared: &mut impl SharedData, place: u8) {
    let key = key(place);
    for _ in 0..TRIES {
        let Ok(Some((value, cas))) = shared.get(&key) else {
            return;
        };
        let queues = value.get(1..).unwrap_or_default();
        if queues.is_empty() {
            return;
        }
        if shared.replace(&key, &[1], cas).unwrap_or(false) {
            for queue in queues.chunks_exact(4) {
                if let Ok(token) = queue.try_into() {
                    let _ = abi::enqueue(u32::from_le_bytes(token), &[place]);
                }
            }
            return;
        }
    }
}
