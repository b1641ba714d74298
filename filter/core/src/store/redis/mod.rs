//! The Redis engine: one script call carries a batch, and one step for each of its operations.
//!
//! # Who decides
//!
//! A claim and a transition take one round trip each, so the decision falls where the record is: in
//! `engine.lua`, which restates [`super::contract`] over the few fields it needs (state, owner,
//! version, times, write ids). What a record *says* (fingerprint, outcome, evidence, names) it
//! never looks into: those are sealed parts ([`crate::record::parts`]) that the core writes
//! and reads, and that the script only moves. Everything that the script would have to make up is
//! brought along instead: each claim carries the evidence that its record will have if the lease ends,
//! an acceptance that of its deadline, a cancellation that of a give-back.
//!
//! # Keys
//!
//! `NN` is the shard, `00` to `15`, from the operation id alone; the hash tag keeps an operation and
//! its shard in one slot of a cluster. A call to a cluster must stay within one shard
//! ([`super::remote::shard_of`]); a standalone server takes any.
//!
//! | key | value | lives |
//! |---|---|---|
//! | `{idempo:NN}:1:r:<operation>` | the record | until nothing remains of it: set anew by every write |
//! | `{idempo:NN}:1:b:<operation>` | `incarnation,write,=answer` | exactly as long as the answer is served |
//! | `{idempo:NN}:1:x:<operation>:<owner>` | a cancelled token | [`CANCELLED_MS`] |
//! | `{idempo:NN}:1:open` | sorted set: pending and accepted operations by when they are due | |
//! | `{idempo:NN}:1:unknown` | sorted set: unknown operations by when they expire | |
//! | `{idempo:NN}:1:t:<tenant>` | sorted set: a counted tenant's records by when they expire | with the last of them |
//! | `{idempo:NN}:1:epoch`, `:seq` | how a store that forgets is noticed | no expiry |
//! | `{idempo:NN}:1:server` | `history,until`: the server that wrote last, and until when its shard is in doubt | no expiry |
//!
//! `1` is the layout's version. A record is text: `1,<checksum>,<fields>;<sealed parts>;<events>` with the fields
//! that `text_of` lists in the script; the checksum covers the operation id and the fields. Whatever
//! else is found at its key (another type, half a record, a format from the future) is `corrupt`,
//! never absent (rule 9), and is left alone.
//!
//! Everything is text (numbers, hex, base64url without padding), because Webdis cuts its JSON at
//! NUL, takes `/`, `?`, `.` and `+` in arguments for its own, and RESP and JSON alike carry
//! letters unescaped.
//!
//! # Rules that the script adds to the contract
//!
//! - **A cancellation may overtake its claim**: over a network, a call given up may still arrive. So
//!   it leaves a mark under its owner token, whatever it finds; a claim or take-over under a marked
//!   token is [`super::Reply::TooLate`], and a renewal under one restores nothing. The mark
//!   lives far longer than any claim's `not_after` may lie ahead. Hence a token never claims again
//!   after it was cancelled.
//! - **Memory**: at `maxmemory` (policy `noeviction`) a claim that would create a record is
//!   [`super::Full::Store`]; everything that keeps what runs (transitions, cancellations, notes)
//!   passes. Redis refuses a write for want of memory only where it is a script's first; the script
//!   raises `seq` first, and if that is refused it knows, and begins with a write that needs no
//!   memory. So `maxmemory` is the high-water mark, and should lie below what the machine has.
//! - **Quotas** are kept per shard, because no slot sees the others: a shard holds its share of the
//!   tenant's records and a margin for chance (`encode::share`); a tenant may end up a few percent
//!   above a large quota, or at some times a very small one.
//! - **`seq`** rises with every call that writes to the shard, in the same script as the write; the
//!   epoch is drawn by whoever finds none.
//!
//! - **Doubt**: a server that was started again, or a replica that took over, may lack the last writes,
//!   and a proxy that has not seen them sees nothing wrong: `seq` is not lower than what it knows. So
//!   the shard itself remembers which server it was on, by the name that Redis gives its history
//!   (`master_replid`: another after each start and each promotion). Where that has changed, nothing is claimed
//!   for [`DOUBT_MS`], whoever asks, and every proxy is told by the shard's state: those that wrote
//!   lately write it again ([`super::queue`]). A server that does not say its history has no doubts; that it
//!   does not is said in the shard's state.
//!
//! Redis 6.2 (`PXAT`) or anything later that speaks its commands will do.
//!
//! One poisoned operation fails alone: each step runs protected, and a step that fails
//! halfway is `failed`, which is ambiguous, and repeatable as every step is.

mod decode;
mod encode;
mod layout;
#[cfg(test)]
mod tests;
mod transport;
mod value;

pub use layout::Layout;
pub use transport::{Login, Transport};

use super::remote::{Batch, HttpAnswer, HttpRequest, Nonce, SHARDS, Swept, Understood};

/// The script.
pub const SCRIPT: &str = include_str!("engine.lua");

/// Its SHA-1, by which Redis knows it: the engine's version. A test asks a real server for it.
pub const SCRIPT_SHA1: &str = "48011d542de175aeeca441a9c5ca7a7834ca4204";

/// How long a cancelled token is remembered, milliseconds. A claim must not be valid for longer
/// (`not_after`) than this after it was made.
pub const CANCELLED_MS: u64 = 600_000;

/// How long nothing is claimed in a shard whose server has become another one, milliseconds. By then
/// every proxy that lives has heard of it, the longest pause of its circuit breaker included, and has
/// written again what the shard may lack.
pub const DOUBT_MS: u64 = 12_000;

/// How the script is named in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// By its digest: the server has it, as a rule.
    Known,
    /// Whole, after [`Understood::Unprepared`].
    Whole,
}

/// A Redis behind some transport.
#[derive(Clone, Debug)]
pub struct Redis {
    transport: Transport,
    layout: Layout,
    doubt_ms: u64,
}

impl Redis {
    /// An engine.
    #[must_use]
    pub const fn new(transport: Transport, layout: Layout) -> Self {
        Self {
            transport,
            layout,
            doubt_ms: DOUBT_MS,
        }
    }

    /// Doubts another server for that long instead of [`DOUBT_MS`].
    #[must_use]
    pub const fn doubting_for(mut self, ms: u64) -> Self {
        self.doubt_ms = ms;
        self
    }

    /// The call that carries a batch.
    #[must_use]
    pub fn request(&self, batch: &Batch, script: Script) -> HttpRequest {
        let call = encode::call(batch, &self.layout, self.doubt_ms);
        self.transport.request(&call.words(script))
    }

    /// The call that sweeps one shard: at most `limit` operations that are due become unknown.
    /// A limit of 0 only counts.
    #[must_use]
    pub fn sweep_request(
        &self,
        nonce: &Nonce,
        shard: u8,
        limit: u32,
        script: Script,
    ) -> HttpRequest {
        let call = encode::sweep(nonce, shard % SHARDS, limit, &self.layout, self.doubt_ms);
        self.transport.request(&call.words(script))
    }

    /// What the answer to that call says: `Err` as [`Self::understand`] has it for a batch.
    ///
    /// # Errors
    /// [`Understood::Unprepared`] or [`Understood::Ambiguous`].
    pub fn understand_sweep(
        &self,
        nonce: &Nonce,
        shard: u8,
        answer: HttpAnswer<'_>,
    ) -> Result<Swept, Understood> {
        let texts = self.transport.answer(answer).map_err(Understood::from)?;
        let swept = decode::swept(nonce, shard % SHARDS, &texts);
        swept.map_err(|why| Understood::Ambiguous(why.to_owned()))
    }

    /// What the answer to that call says.
    #[must_use]
    pub fn understand(&self, batch: &Batch, answer: HttpAnswer<'_>) -> Understood {
        let texts = match self.transport.answer(answer) {
            Ok(texts) => texts,
            Err(fault) => return fault.into(),
        };
        match decode::answered(batch, &texts) {
            Ok(answered) => Understood::Answered(answered),
            Err(why) => Understood::Ambiguous(why.to_owned()),
        }
    }
}

impl From<transport::Fault> for Understood {
    fn from(fault: transport::Fault) -> Self {
        match fault {
            transport::Fault::NoScript => Self::Unprepared,
            transport::Fault::Not(why) => Self::Ambiguous(why),
        }
    }
}
