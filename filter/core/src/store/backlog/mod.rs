//! The backlog: writes that could not be made yet (design.md rules 5 and 6).
//!
//! An answer that came while the store was down, a claim that was given up: the write waits here until
//! the store has acknowledged it. It is kept in memory, and also in the host's shared data, so that
//! it survives the VM: whoever comes next adopts it.
//!
//! | key | value |
//! |---|---|
//! | `idempo/1/j/<tag>` | the directory of journals, and whose each is (`directory`) |
//! | `idempo/1/j/<tag>/<journal>/<slot>` | one write (`op`), or one octet 0: free |
//!
//! `<tag>` names the store that the writes are for. Each holder (a root in a VM) writes to journals of
//! its own only, under a lease of 3 s that each tick renews. A journal whose holder has closed or fallen
//! silent becomes another's, whole, by one compare-and-swap of the directory.
//!
//! **Nothing leaks.** The host never frees a key, so slots and journals are used again; a holder that
//! has nothing to keep has no journal. There are at most as many journals as holders ever kept writes at
//! once, each with as many slots as one of them ever kept writes.
//!
//! **A repeat is harmless, a loss is not.** Writes name themselves (rule 2), so wherever both are
//! possible (a holder that was paused while another adopted what it had, a host that failed in the
//! middle) a write is made twice. What is kept as durable has been checked, after it was written, to lie
//! in a journal that was still the holder's: whoever adopts that journal finds it.
//!
//! Times are the clock that all VMs of the process share, milliseconds.

mod directory;
mod keep;
mod op;
#[cfg(all(test, not(target_arch = "wasm32")))]
mod properties;
#[cfg(test)]
mod tests;

use super::table::SharedData;
use super::{Action, Op, Target};
use crate::ids::{OperationId, hex_of};
use crate::record::Replayable;
use keep::{Owned, Place};

/// Writes that one holder keeps at most.
const MAX_WRITES: usize = 4096;
/// Octets of answers that one holder keeps at most.
const MAX_OCTETS: usize = 64 << 20;
/// The first wait after a failure, milliseconds; each further one is twice as long.
const FIRST_WAIT_MS: u64 = 200;
/// The longest wait.
const LONGEST_WAIT_MS: u64 = 30_000;
/// Over how long writes are spread once the store is back.
const SPREAD_MS: u64 = 1_000;

/// What became of a write that was deferred.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is looked at once, and never stored"
)]
pub enum Kept {
    /// It survives this VM.
    Durable,
    /// It waits, but only as long as this VM lives: why, for the log.
    InMemory(String),
    /// There was no room: the write that was given up for it, or itself. If it is another, the one that
    /// was deferred waits.
    Dropped(Op),
}

/// One holder's writes that wait for their store.
#[derive(Debug)]
pub struct Backlog {
    /// The key of the directory, before those of the slots.
    key: String,
    holder: u64,
    /// By id, which is by age. Boxed, so that taking one out moves pointers and not writes.
    #[expect(clippy::vec_box, reason = "taking one out moves all that follow")]
    entries: Vec<Box<Entry>>,
    /// Of all answers.
    octets: usize,
    /// The latest id of its own.
    last: u64,
    /// The latest time it was told.
    clock: u64,
    owned: Vec<Owned>,
    /// Slots that could not be freed yet.
    owed: Vec<Place>,
    renewed: Option<u64>,
    damaged: u64,
    directory_is_damaged: bool,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    op: Op,
    /// Where it is kept, beside here.
    place: Option<Place>,
    keeping: Keeping,
    state: State,
    failures: u32,
    /// Another write of its operation goes first.
    held: bool,
    octets: usize,
}

/// What should be kept beyond this VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeping {
    /// This need not be.
    Unwanted,
    /// This should be: where it has no place yet, that is tried again.
    Wanted,
    /// Another has adopted it.
    Elsewhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Until then.
    Waits(u64),
    /// Handed out.
    UnderWay,
}

impl Backlog {
    /// An empty backlog, of which nothing is to be seen in shared data before something is kept.
    /// `store` names the store that the writes are for, `holder` this VM and root, and nobody else,
    /// ever; it is not 0.
    #[must_use]
    pub fn new(store: &str, holder: u64) -> Self {
        let tag = blake3::hash(store.as_bytes());
        let tag = hex_of(tag.as_bytes().first_chunk::<8>().unwrap_or(&[0; 8]));
        Self {
            key: format!("idempo/1/j/{tag}"),
            holder: holder.max(1),
            entries: Vec::new(),
            octets: 0,
            last: 0,
            clock: 0,
            owned: Vec::new(),
            owed: Vec::new(),
            renewed: None,
            damaged: 0,
            directory_is_damaged: false,
        }
    }

    /// Keeps a write until [`Self::done`]; it is due at once. `durable: false` is for writes that were
    /// acknowledged before: those are kept in memory only, as is whatever claims or asks.
    ///
    /// Beyond the bounds an answer is left out (rule 7), or the oldest cancellation dropped, or the
    /// oldest write where there is none: an operation whose claim was not cancelled becomes unknown,
    /// which is safe.
    pub fn defer(&mut self, sd: &mut dyn SharedData, op: Op, durable: bool, now: u64) -> Kept {
        self.clock = self.clock.max(now);
        let mut given_up = None;
        if self.entries.len() >= MAX_WRITES {
            let is_cancel = |op: &Op| matches!(op.action, Action::Cancel { .. });
            let first = self.entries.iter().find(|e| is_cancel(&e.op));
            if first.is_none() && is_cancel(&op) {
                return Kept::Dropped(op);
            }
            let victim = first.or(self.entries.first()).map(|e| e.id);
            given_up = victim.and_then(|id| self.remove(sd, id));
        }
        let mut op = op;
        if self.octets.saturating_add(octets_of(&op)) > MAX_OCTETS {
            leave_answer_out(&mut op);
        }
        let why_not = match (durable, op::can_be_durable(&op)) {
            (true, true) => None,
            (true, false) => Some("such a step means nothing to another VM"),
            (false, _) => Some("it was acknowledged before"),
        };
        let keeping = why_not.map_or(Keeping::Wanted, |_| Keeping::Unwanted);
        let id = self.next_id();
        self.insert(id, op, None, keeping);
        let kept = match why_not {
            Some(why) => Err(why.to_owned()),
            None => self.keep(sd, id),
        };
        match (given_up, kept) {
            (Some(op), _) => Kept::Dropped(op),
            (None, Ok(())) => Kept::Durable,
            (None, Err(why)) => Kept::InMemory(why),
        }
    }

    /// Keeps a write that was acknowledged once and may be lost, in memory only and without regard to
    /// room; unless it waits already, as where the same loss is noticed once more.
    pub fn assert(&mut self, sd: &mut dyn SharedData, op: Op, now: u64) {
        if !self.entries.iter().any(|e| e.op == op) {
            self.defer(sd, op, false, now);
        }
    }

    /// Writes that are due, oldest first, at most so many, each once until [`Self::done`] or
    /// [`Self::again`] is called for it. Writes of one operation keep their order: one that is under way
    /// or waits for its next try keeps later ones back.
    pub fn due(&mut self, now: u64, most: usize) -> Vec<(u64, Op)> {
        self.clock = self.clock.max(now);
        let mut out = Vec::new();
        for entry in &mut self.entries {
            if out.len() >= most {
                break;
            }
            let due = matches!(entry.state, State::Waits(at) if at <= now);
            if !due || entry.held {
                continue;
            }
            // A journal that is still being read may have an older write of the same operation.
            let journal = entry.place.as_ref().map(|p| p.journal);
            let partly = |o: &Owned| o.unread.is_some() && Some(o.number) == journal;
            if !self.owned.iter().any(partly) {
                entry.state = State::UnderWay;
                out.push((entry.id, entry.op.clone()));
            }
        }
        out
    }

    /// It was acknowledged: forgotten, here and in shared data.
    pub fn done(&mut self, sd: &mut dyn SharedData, id: u64) {
        self.remove(sd, id);
    }

    /// It failed: it is due again after 200 ms at first, then twice as long each time, up to 30 s,
    /// less a share that differs from operation to operation.
    pub fn again(&mut self, id: u64, now: u64) {
        self.clock = self.clock.max(now);
        let Some(entry) = self.entry(id) else {
            return;
        };
        let longest = FIRST_WAIT_MS
            .saturating_mul(1 << entry.failures.min(16))
            .min(LONGEST_WAIT_MS);
        // The octets of an id are random; other ones of them count at each try.
        let chance = entry.op.operation.prefix().rotate_left(entry.failures * 7);
        let wait = longest - chance % (longest / 2 + 1);
        entry.failures = entry.failures.saturating_add(1).min(64);
        entry.state = State::Waits(now.saturating_add(wait));
        let operation = entry.op.operation;
        self.hold(operation);
    }

    /// The store is back: nothing waits for longer than a second, over which the writes are spread.
    pub fn hurry(&mut self, now: u64) {
        for entry in &mut self.entries {
            if let State::Waits(at) = &mut entry.state {
                *at = now
                    .saturating_add(entry.op.operation.prefix() % SPREAD_MS)
                    .min(*at);
                entry.failures = 0;
            }
        }
    }

    /// How many writes wait or are under way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How full it is, 0 to 1000, by writes or by octets of answers, whichever is more. From 750 on
    /// nothing new should be claimed: what runs should be able to end.
    #[must_use]
    pub fn fill_permille(&self) -> u64 {
        let of = |part: usize, whole: usize| (part as u64).saturating_mul(1000) / whole as u64;
        let fullest = of(self.entries.len(), MAX_WRITES).max(of(self.octets, MAX_OCTETS));
        fullest.min(1000)
    }

    /// How many things this holder has met in shared data that it could not read: damaged, or of
    /// another version. They stay where they are.
    #[must_use]
    pub const fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Ids rise with time, across holders, so that the order of adopted writes is known.
    fn next_id(&mut self) -> u64 {
        let start = self.clock.min(u64::MAX >> 17) << 16;
        self.last = start.max(self.last.saturating_add(1));
        while self.position(self.last).is_ok() {
            self.last = self.last.saturating_add(1);
        }
        self.last
    }

    fn position(&self, id: u64) -> Result<usize, usize> {
        self.entries.binary_search_by(|e| e.id.cmp(&id))
    }

    fn entry(&mut self, id: u64) -> Option<&mut Entry> {
        let at = self.position(id).ok()?;
        self.entries.get_mut(at).map(|e| &mut **e)
    }

    fn insert(&mut self, id: u64, op: Op, place: Option<Place>, keeping: Keeping) {
        let Err(at) = self.position(id) else {
            return;
        };
        let (operation, octets) = (op.operation, octets_of(&op));
        self.octets += octets;
        let entry = Entry {
            id,
            op,
            place,
            keeping,
            state: State::Waits(0),
            failures: 0,
            held: false,
            octets,
        };
        self.entries.insert(at, Box::new(entry));
        self.hold(operation);
    }

    fn remove(&mut self, sd: &mut dyn SharedData, id: u64) -> Option<Op> {
        let at = self.position(id).ok()?;
        let entry = *self.entries.remove(at);
        self.octets = self.octets.saturating_sub(entry.octets);
        self.hold(entry.op.operation);
        if let Some(place) = entry.place {
            self.give_slot_back(sd, place);
        }
        Some(entry.op)
    }

    /// Of the writes of one operation at most one may leave: the one that is under way, or the oldest.
    fn hold(&mut self, operation: OperationId) {
        let same = |e: &&mut Box<Entry>| e.op.operation == operation;
        let mut all = self.entries.iter().filter(|e| e.op.operation == operation);
        let mut taken = all.any(|e| e.state == State::UnderWay);
        for entry in self.entries.iter_mut().filter(same) {
            entry.held = taken && entry.state != State::UnderWay;
            taken = true;
        }
    }
}

/// Octets of the answer that a write carries.
fn octets_of(op: &Op) -> usize {
    let Action::Transition(transition) = &op.action else {
        return 0;
    };
    match &transition.to {
        Target::Accepted { blob, .. } | Target::Completed { blob, .. } => {
            blob.as_ref().map_or(0, Vec::len)
        }
        _ => 0,
    }
}

/// Rule 7: what cannot be replayed is remembered anyway.
fn leave_answer_out(op: &mut Op) {
    if let Action::Transition(transition) = &mut op.action
        && let Target::Accepted { outcome, blob, .. } | Target::Completed { outcome, blob } =
            &mut transition.to
        && blob.take().is_some()
    {
        outcome.replay = Replayable::StoreFull;
    }
}
