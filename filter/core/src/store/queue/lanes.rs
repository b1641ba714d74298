//! Which shards fail together: all of them on one server, each by itself in a cluster, where one dead
//! master must not take the others' shards with it.

use super::breaker::{Breaker, Room};
use crate::store::remote::SHARDS;

/// Circuit breakers: one for all shards, or one for each.
#[derive(Debug)]
pub(super) struct Lanes(Vec<Breaker>);

/// How many operations a call to each shard may carry now; 0: none may leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rooms([usize; SHARDS as usize]);

impl Lanes {
    /// `full`: operations of a call at full admission.
    pub(super) fn new(per_shard: bool, full: usize) -> Self {
        let lanes = if per_shard { SHARDS } else { 1 };
        Self((0..lanes).map(|_| Breaker::new(full)).collect())
    }

    fn of(&self, shard: u8) -> Option<&Breaker> {
        self.0.get(usize::from(shard)).or_else(|| self.0.first())
    }

    fn of_mut(&mut self, shard: u8) -> Option<&mut Breaker> {
        let at = usize::from(shard);
        let at = if at < self.0.len() { at } else { 0 };
        self.0.get_mut(at)
    }

    /// Calls in a row that failed, where that is worst.
    pub(super) fn failures(&self) -> u32 {
        self.0.iter().map(Breaker::failures).max().unwrap_or(0)
    }

    /// Why this shard was given up, where it was.
    pub(super) fn why(&self, shard: u8) -> Option<&str> {
        self.of(shard)?.why()
    }

    /// Whether no shard is given up.
    pub(super) fn all_answer(&self) -> bool {
        self.0.iter().all(|breaker| breaker.why().is_none())
    }

    /// Why an operation would wait in vain, where it would.
    pub(super) fn refuses(&self, shard: u8, now: u64, deadline: u64) -> Option<String> {
        self.of(shard)?.refuses(now, deadline)
    }

    /// What may leave beside what is under way to these shards; `calls` at once in each lane.
    pub(super) fn rooms(
        &mut self,
        now: u64,
        calls: usize,
        under_way: impl Iterator<Item = u8> + Clone,
    ) -> Rooms {
        let one = self.0.len() == 1;
        let mut rooms = Rooms([0; SHARDS as usize]);
        let of_lane = |breaker: &mut Breaker, lane: u8| {
            let Room { calls, operations } = breaker.room(now, calls);
            let busy = under_way.clone().filter(|shard| one || *shard == lane);
            if busy.count() < calls { operations } else { 0 }
        };
        if let [breaker] = self.0.as_mut_slice() {
            rooms.0.fill(of_lane(breaker, 0));
            return rooms;
        }
        for ((room, breaker), lane) in rooms.0.iter_mut().zip(&mut self.0).zip(0..) {
            *room = of_lane(breaker, lane);
        }
        rooms
    }

    /// `true`: it had been given up, and now every shard answers.
    pub(super) fn on_success(&mut self, shard: u8) -> bool {
        let back = self.of_mut(shard).is_some_and(Breaker::on_success);
        back && self.all_answer()
    }

    /// What is to be said, where this failure is the one by which the shard is given up.
    pub(super) fn on_failure(&mut self, shard: u8, why: &str, now: u64) -> Option<String> {
        let given_up = self.of_mut(shard)?.on_failure(why, now);
        given_up.then(|| match self.0.len() {
            1 => why.to_owned(),
            _ => format!("shard {shard}: {why}"),
        })
    }
}

impl Rooms {
    /// Operations that a call to that shard may carry.
    pub(super) fn of(&self, shard: u8) -> usize {
        self.0.get(usize::from(shard)).copied().unwrap_or(0)
    }

    /// Whether nothing may leave.
    pub(super) fn is_none(&self) -> bool {
        self.0.iter().all(|room| *room == 0)
    }
}
