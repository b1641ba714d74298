//! The part of the backlog that lies in shared data: journals, leases, adoption.

use super::directory::{self, Journal, Trouble};
use super::op::{self, Mark};
use super::{Backlog, Entry, Keeping, MAX_OCTETS, MAX_WRITES, leave_answer_out, octets_of};
use crate::store::table::{HostError, SharedData};

/// How long a holder may be silent before others take what it keeps.
const LEASE_MS: u64 = 3_000;
/// How often the lease is renewed.
const RENEW_MS: u64 = 1_000;
/// Slots of one journal, at most: what one holder may keep, and some that cannot be read.
const MAX_SLOTS: u32 = 2 * MAX_WRITES as u32;
/// Slots that a new journal has; it grows by doubling. A slot costs nothing before it is used.
const FIRST_SLOTS: u32 = 64;
/// Slots and octets that one tick reads of an adopted journal: other work waits meanwhile.
const READ_SLOTS: u32 = 512;
const READ_OCTETS: usize = 4 << 20;
/// Writes that one tick tries to make durable after all.
const KEEP_AGAIN: usize = 16;
/// How often a slot that turned out to be taken, or a journal that turned out to be lost, makes the
/// holder look for another.
const TRIES: u32 = 64;
/// A slot that was used and is free. Not an empty value: for the host a key without a value is
/// there when it is to be created, and not there when it is read.
const FREE: &[u8] = &[0];

/// Where a write is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) journal: u32,
    slot: u32,
    mark: Mark,
}

/// A journal of this holder's.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) number: u32,
    /// As many as the directory says.
    slots: u32,
    /// Slots to be used next, the lowest last.
    free: Vec<u32>,
    /// The next slot to be read, while there are some.
    pub(super) unread: Option<u32>,
    /// Slots that cannot be read.
    odd: u32,
}

/// What is in a slot.
enum Slot {
    /// Nothing; with the number to write over, where it was used before.
    Free(Option<u32>),
    Taken(Vec<u8>),
}

impl Backlog {
    /// Keeps what is this holder's its own, and adopts what another has left behind, a journal at a
    /// time. To be called a few times a second. Returns how many writes were adopted.
    pub fn tick(&mut self, sd: &mut dyn SharedData, now: u64) -> usize {
        self.clock = self.clock.max(now);
        for place in std::mem::take(&mut self.owed) {
            self.give_slot_back(sd, place);
        }
        let changed = self.renew_and_adopt(sd, now);
        if changed.is_err_and(|trouble| trouble == Trouble::Unreadable) {
            self.note_damaged_directory();
        }
        self.keep_the_rest(sd, KEEP_AGAIN);
        self.read_on(sd)
    }

    /// Gives all that is left to whoever comes next. Afterwards only those writes are here that could
    /// not be kept elsewhere.
    pub fn close(&mut self, sd: &mut dyn SharedData) {
        self.keep_the_rest(sd, MAX_WRITES);
        // Where the host refuses, the lease ends by itself.
        let _ = directory::change(sd, &self.key, &mut |journals| {
            let mut changed = false;
            for own in &self.owned {
                let entry = journals.get_mut(own.number as usize);
                if let Some(journal) = entry.filter(|j| j.holder == self.holder) {
                    journal.holder = 0;
                    journal.lease_until = 0;
                    journal.left = !self.is_idle(own);
                    changed = true;
                }
            }
            changed
        });
        self.owned.clear();
        self.owed.clear();
        self.renewed = None;
        self.entries
            .retain(|e| e.place.is_none() && e.keeping != Keeping::Elsewhere);
        self.octets = self.entries.iter().map(|e| e.octets).sum();
        let rest: Vec<_> = self.entries.iter().map(|e| e.op.operation).collect();
        for operation in rest {
            self.hold(operation);
        }
    }

    /// Nothing is in it that anybody would miss.
    fn is_idle(&self, own: &Owned) -> bool {
        let within = |place: &Place| place.journal == own.number;
        own.unread.is_none()
            && own.odd == 0
            && !self
                .entries
                .iter()
                .any(|e| e.place.as_ref().is_some_and(within))
            && !self.owed.iter().any(within)
    }

    fn note_damaged_directory(&mut self) {
        if !self.directory_is_damaged {
            self.directory_is_damaged = true;
            self.damaged = self.damaged.saturating_add(1);
        }
    }

    fn must_renew(&self, now: u64) -> bool {
        self.renewed
            .is_none_or(|at| now >= at.saturating_add(RENEW_MS))
    }

    /// One look at the directory, and one change where there is something to change.
    fn renew_and_adopt(&mut self, sd: &mut dyn SharedData, now: u64) -> Result<(), Trouble> {
        let renew = self.must_renew(now);
        let own: Vec<(u32, bool)> = self
            .owned
            .iter()
            .map(|o| (o.number, renew && self.is_idle(o)))
            .collect();
        let may_adopt = self.owned.iter().all(|o| o.unread.is_none());
        let (mut lost, mut adopted) = (Vec::new(), None);
        directory::change(sd, &self.key, &mut |journals| {
            (lost, adopted) = (Vec::new(), None);
            let mut changed = false;
            for (number, idle) in &own {
                let entry = journals.get_mut(*number as usize);
                let Some(journal) = entry.filter(|j| j.holder == self.holder) else {
                    lost.push(*number);
                    continue;
                };
                if *idle {
                    *journal = Journal {
                        slots: journal.slots,
                        ..Journal::default()
                    };
                } else if renew {
                    journal.lease_until = now.saturating_add(LEASE_MS);
                }
                changed |= renew;
            }
            // One that is this holder's and that it knows nothing of: a call failed and was made.
            let unknown = |number: u32| !own.iter().any(|(n, _)| *n == number);
            let left = (0..).zip(journals.iter_mut());
            let mut left = left.filter(|(n, j)| may_adopt && unknown(*n) && j.is_left_behind(now));
            if let Some((number, journal)) = left.next() {
                journal.holder = self.holder;
                journal.lease_until = now.saturating_add(LEASE_MS);
                journal.left = false;
                adopted = Some((number, journal.slots.min(MAX_SLOTS)));
                changed = true;
            }
            changed
        })?;
        if renew {
            self.renewed = Some(now);
        }
        for number in lost {
            self.lose(number);
        }
        self.owned.retain(|o| !own.contains(&(o.number, true)));
        if let Some((number, slots)) = adopted {
            self.owned.push(Owned {
                number,
                slots,
                free: Vec::new(),
                unread: Some(0),
                odd: 0,
            });
        }
        Ok(())
    }

    /// Somebody else has the journal, and what is in it. What this holder has in memory it may go on
    /// trying; the slots are not its own any more.
    fn lose(&mut self, number: u32) {
        self.owned.retain(|o| o.number != number);
        self.owed.retain(|p| p.journal != number);
        for entry in &mut self.entries {
            if entry.place.as_ref().is_some_and(|p| p.journal == number) {
                entry.place = None;
                entry.keeping = Keeping::Elsewhere;
            }
        }
    }

    fn keep_the_rest(&mut self, sd: &mut dyn SharedData, most: usize) {
        for _ in 0..most {
            let mut entries = self.entries.iter();
            let next = entries.find(|e| e.keeping == Keeping::Wanted && e.place.is_none());
            let Some(id) = next.map(|e| e.id) else {
                return;
            };
            if self.keep(sd, id).is_err() {
                return;
            }
        }
    }

    /// Writes one write into a slot.
    pub(super) fn keep(&mut self, sd: &mut dyn SharedData, id: u64) -> Result<(), String> {
        let mark = Mark {
            writer: self.holder,
            sequence: id,
        };
        let octets = self.entry(id).and_then(|e| op::encode(mark, &e.op));
        let octets = octets.ok_or("such a write cannot be kept")?;
        // Whoever keeps something is not silent: a write that is kept just before the lease ends would
        // at once be another's, too. Without an answer the lease is as it was.
        if !self.owned.is_empty() && self.must_renew(self.clock) {
            let _ = self.renew_and_adopt(sd, self.clock);
        }
        for _ in 0..TRIES {
            let (journal, slot) = match self.next_slot(sd) {
                Ok(found) => found,
                Err(Trouble::Unreadable) => {
                    self.note_damaged_directory();
                    return Err(Trouble::Unreadable.text());
                }
                Err(trouble) => return Err(trouble.text()),
            };
            let place = Place {
                journal,
                slot,
                mark,
            };
            let key = self.slot_key(journal, slot);
            let (written, taken) = match look(sd, &key) {
                Ok(Slot::Free(None)) => (sd.create(&key, &octets), None),
                Ok(Slot::Free(Some(cas))) => (sd.replace(&key, &octets, cas), None),
                Ok(Slot::Taken(value)) => (Ok(false), Some(value)),
                Err(e) => (Err(e), None),
            };
            // Only now is it certain that whoever adopts the journal later will find it.
            let holder = directory::holder(sd, &self.key, journal);
            let (written, holder) = match (written, holder) {
                (Ok(written), Ok(holder)) => (written, holder),
                (Err(e), _) => return Err(self.unsure(place, Trouble::Host(e))),
                (_, Err(trouble)) => return Err(self.unsure(place, trouble)),
            };
            if holder != self.holder {
                self.lose(journal);
                if written {
                    let _ = free(sd, &key, mark);
                }
            } else if written {
                if let Some(entry) = self.entry(id) {
                    entry.place = Some(place);
                }
                return Ok(());
            } else if let Some(value) = taken {
                // Left by somebody who crashed before he noticed that the journal was not his any more.
                self.meet(&value, journal, slot);
            } else if let Some(own) = self.owned.iter_mut().find(|o| o.number == journal) {
                own.free.push(slot);
            }
        }
        Err(Trouble::Contended.text())
    }

    /// The write may be there or not: it is tried again elsewhere, and the slot freed later.
    fn unsure(&mut self, place: Place, trouble: Trouble) -> String {
        self.owed.push(place);
        trouble.text()
    }

    fn slot_key(&self, journal: u32, slot: u32) -> String {
        format!("{}/{journal}/{slot}", self.key)
    }

    /// A slot of a journal of its own that should be free.
    fn next_slot(&mut self, sd: &mut dyn SharedData) -> Result<(u32, u32), Trouble> {
        loop {
            let mut read = self.owned.iter_mut().filter(|o| o.unread.is_none());
            if let Some(found) = read.find_map(|o| Some((o.number, o.free.pop()?))) {
                return Ok(found);
            }
            let mut read = self.owned.iter().filter(|o| o.unread.is_none());
            match read.find(|o| o.slots < MAX_SLOTS).map(|o| o.number) {
                Some(number) => self.grow(sd, number)?,
                None => self.take(sd)?,
            }
        }
    }

    /// Makes a journal of its own longer: in the directory first, so that an adopter looks there.
    fn grow(&mut self, sd: &mut dyn SharedData, number: u32) -> Result<(), Trouble> {
        let mut grown = None;
        directory::change(sd, &self.key, &mut |journals| {
            let entry = journals.get_mut(number as usize);
            let Some(journal) = entry.filter(|j| j.holder == self.holder) else {
                grown = None;
                return false;
            };
            journal.slots = larger(journal.slots);
            grown = Some(journal.slots);
            true
        })?;
        let own = self.owned.iter_mut().find(|o| o.number == number);
        match own.zip(grown) {
            Some((own, slots)) => {
                own.free = (own.slots..slots).rev().collect();
                own.slots = slots;
            }
            None => self.lose(number),
        }
        Ok(())
    }

    /// Takes a journal that is nobody's and has nothing in it, the longest, so that its keys serve
    /// again; or a new one.
    fn take(&mut self, sd: &mut dyn SharedData) -> Result<(), Trouble> {
        let lease_until = self.clock.saturating_add(LEASE_MS);
        let mut taken = None;
        directory::change(sd, &self.key, &mut |journals| {
            let free = (0..).zip(journals.iter()).filter(|(_, j)| j.is_free());
            let longest = free.max_by_key(|(_, j)| j.slots).map(|(number, _)| number);
            let number = longest.unwrap_or(journals.len());
            if longest.is_none() {
                journals.push(Journal::default());
            }
            if let Some(journal) = journals.get_mut(number) {
                *journal = Journal {
                    holder: self.holder,
                    lease_until,
                    slots: journal.slots.clamp(FIRST_SLOTS, MAX_SLOTS),
                    left: false,
                };
                taken = u32::try_from(number).ok().map(|n| (n, journal.slots));
            }
            true
        })?;
        let (number, slots) = taken.ok_or(Trouble::Full)?;
        if self.owned.is_empty() {
            self.renewed = Some(self.clock);
        }
        self.owned.push(Owned {
            number,
            slots,
            free: (0..slots).rev().collect(),
            unread: None,
            odd: 0,
        });
        Ok(())
    }

    /// Frees the slot of a write that is over, where it is still that write's.
    pub(super) fn give_slot_back(&mut self, sd: &mut dyn SharedData, place: Place) {
        let key = self.slot_key(place.journal, place.slot);
        let Some(own) = self.owned.iter_mut().find(|o| o.number == place.journal) else {
            return;
        };
        match free(sd, &key, place.mark) {
            Ok(()) => own.free.push(place.slot),
            Err(_) => self.owed.push(place),
        }
    }

    /// Reads on in a journal that was adopted, as far as a tick may and there is room.
    fn read_on(&mut self, sd: &mut dyn SharedData) -> usize {
        let Some(at) = self.owned.iter().position(|o| o.unread.is_some()) else {
            return 0;
        };
        let (mut writes, mut octets) = (0, 0);
        for _ in 0..READ_SLOTS {
            let Some(own) = self.owned.get_mut(at) else {
                break;
            };
            let (number, Some(slot)) = (own.number, own.unread) else {
                break;
            };
            if slot >= own.slots {
                own.unread = None;
                own.free.reverse();
                break;
            }
            if octets >= READ_OCTETS {
                break;
            }
            match look(sd, &self.slot_key(number, slot)) {
                Ok(Slot::Free(_)) => {
                    if let Some(own) = self.owned.get_mut(at) {
                        own.free.push(slot);
                    }
                }
                Ok(Slot::Taken(value)) => {
                    octets += value.len();
                    match self.meet(&value, number, slot) {
                        Met::Adopted => writes += 1,
                        Met::NoRoom => break,
                        Met::Known | Met::Odd => {}
                    }
                }
                // Tried again at the next tick.
                Err(_) => break,
            }
            if let Some(own) = self.owned.get_mut(at) {
                own.unread = Some(slot.saturating_add(1));
            }
        }
        writes
    }

    /// Takes in what was found in a slot of its own journal.
    fn meet(&mut self, value: &[u8], journal: u32, slot: u32) -> Met {
        let Ok((mark, mut op)) = op::decode(value) else {
            self.damaged = self.damaged.saturating_add(1);
            if let Some(own) = self.owned.iter_mut().find(|o| o.number == journal) {
                own.odd = own.odd.saturating_add(1);
            }
            return Met::Odd;
        };
        let place = Place {
            journal,
            slot,
            mark,
        };
        // Far from the end, so that a next free one is always found.
        let mut id = mark.sequence & (u64::MAX >> 1);
        if let Some(entry) = self.entry(id)
            && entry.op == op
            && entry.place.is_none()
        {
            // Its own, which another had adopted meanwhile.
            entry.place = Some(place);
            entry.keeping = Keeping::Wanted;
            return Met::Known;
        }
        let octets = self.octets.saturating_add(octets_of(&op));
        if self.entries.len() >= MAX_WRITES || octets > MAX_OCTETS {
            // It can wait where it is, if anything from elsewhere will make room.
            let same = |p: &Place| p.journal == journal;
            let elsewhere = |e: &Entry| !e.place.as_ref().is_some_and(same);
            if self.entries.iter().any(|e| elsewhere(e)) {
                return Met::NoRoom;
            }
            if octets > MAX_OCTETS {
                leave_answer_out(&mut op);
            }
        }
        while self.position(id).is_ok() {
            id = id.saturating_add(1);
        }
        self.insert(id, op, Some(place), Keeping::Wanted);
        Met::Adopted
    }
}

/// What became of something that was found.
enum Met {
    Adopted,
    Known,
    NoRoom,
    Odd,
}

const fn larger(slots: u32) -> u32 {
    let twice = slots.saturating_mul(2);
    if twice < FIRST_SLOTS {
        FIRST_SLOTS
    } else if twice > MAX_SLOTS {
        MAX_SLOTS
    } else {
        twice
    }
}

fn look(sd: &mut dyn SharedData, key: &str) -> Result<Slot, HostError> {
    Ok(match sd.get(key)? {
        None => Slot::Free(None),
        Some((value, cas)) if value == FREE => Slot::Free(Some(cas)),
        Some((value, _)) => Slot::Taken(value),
    })
}

/// Frees a slot, if that write is in it: it may be another's by now.
fn free(sd: &mut dyn SharedData, key: &str, mark: Mark) -> Result<(), HostError> {
    match sd.get(key)? {
        Some((value, cas)) if op::mark_of(&value) == Some(mark) => {
            // Another number: somebody has freed it before.
            sd.replace(key, FREE, cas).map(drop)
        }
        _ => Ok(()),
    }
}
