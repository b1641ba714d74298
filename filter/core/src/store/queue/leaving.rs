//! What leaves next, and with what.

use super::lanes::Rooms;
use super::{CLOCK_SLACK_MS, Group, Item, Load, Outgoing, Queue, UnderWay};
use crate::ids::OperationId;
use crate::store::redis::Script;
use crate::store::remote::{Added, Batch, HttpRequest, Limits, Nonce, Weight, shard_of};
use crate::store::{Action, Op};

impl Queue {
    /// The next call, where there is one to be made. `nonce` names it, and is used once.
    pub fn next(&mut self, nonce: Nonce, now: u64) -> Option<Outgoing> {
        let under_way = self.under_way.iter().map(|call| call.shard);
        let rooms = self.lanes.rooms(now, self.settings.calls, under_way);
        if rooms.is_none() {
            return None;
        }
        let Some(store_now) = self.store_now(now) else {
            return self.probe(nonce, &rooms);
        };
        if let Some((items, script)) = self.take(&rooms) {
            return Some(self.depart(items, script, nonce, now, store_now));
        }
        let (shard, limit, script) = self.sweeps.pop_front()?;
        if rooms.of(shard) == 0 {
            // The next one is another shard's.
            return None;
        }
        Some(self.depart_sweep(nonce, shard, limit, script))
    }

    /// Before anything else its clock must be known.
    fn probe(&mut self, nonce: Nonce, rooms: &Rooms) -> Option<Outgoing> {
        if !self.under_way.is_empty() {
            return None;
        }
        let asked = self.sweeps.pop_front();
        let again = self.again.iter().flat_map(|group| &group.items);
        let waiting = self.waiting.iter().chain(again);
        let mut shards = waiting
            .map(|item| shard_of(&item.op.operation))
            .chain(asked.map(|(shard, ..)| shard));
        let script = asked.map_or(Script::Known, |(.., script)| script);
        let shard = shards.find(|shard| rooms.of(*shard) > 0)?;
        Some(self.depart_sweep(nonce, shard, 0, script))
    }

    /// The operations of the next call.
    fn take(&mut self, rooms: &Rooms) -> Option<(Vec<Item>, Script)> {
        let mut blocked: Vec<OperationId> = Vec::new();
        for call in &self.under_way {
            if let Load::Batch(batch, _) = &call.load {
                blocked.extend(batch.ops().iter().map(|op| op.operation));
            }
        }
        // What has to be repeated comes first, and as it is.
        let mut free = None;
        for (at, group) in self.again.iter().enumerate() {
            let operations = || group.items.iter().map(|item| item.op.operation);
            let shut = |operation| rooms.of(shard_of(&operation)) == 0;
            if !operations().any(|operation| shut(operation) || blocked.contains(&operation)) {
                free = Some(at);
                break;
            }
            blocked.extend(operations());
        }
        if let Some(group) = free.and_then(|at| self.again.remove(at)) {
            return Some((group.items, group.script));
        }
        self.collect(rooms, blocked)
    }

    /// Collects operations that have not left yet, in their order, into one batch.
    fn collect(&mut self, rooms: &Rooms, blocked: Vec<OperationId>) -> Option<(Vec<Item>, Script)> {
        let limits = self.settings.limits;
        let (mut weight, mut shard) = (None, None);
        let (mut taken, mut at) = (Vec::new(), 0);
        while let Some(Item { op, .. }) = self.waiting.get(at) {
            let own = shard_of(&op.operation);
            let elsewhere = self.settings.per_shard && shard.is_some_and(|s| s != own);
            let most = rooms.of(own);
            if elsewhere || most == 0 || blocked.contains(&op.operation) {
                at += 1;
                continue;
            }
            let weight = weight.get_or_insert_with(|| {
                Weight::new(Limits {
                    operations: limits.operations.min(most),
                    ..limits
                })
            });
            if !weight.add(op) {
                break;
            }
            shard = Some(own);
            taken.extend(self.waiting.remove(at));
        }
        (!taken.is_empty()).then_some((taken, Script::Known))
    }

    fn depart(
        &mut self,
        items: Vec<Item>,
        script: Script,
        nonce: Nonce,
        now: u64,
        store_now: u64,
    ) -> Outgoing {
        let recovering = self.recovering_ms(now) > 0;
        // Later the host has given the call up, and whoever asked has been told.
        let not_after = store_now
            .saturating_add(self.settings.timeout_ms)
            .saturating_add(CLOCK_SLACK_MS);
        let mut batch = Batch::new(nonce, self.settings.limits);
        let (mut tickets, mut rest) = (Vec::with_capacity(items.len()), Vec::new());
        for Item { mut op, mut ticket } in items {
            if let Action::Claim(claim) | Action::TakeOver { claim, .. } = &mut op.action {
                claim.not_after = not_after;
            }
            if recovering && matches!(op.action, Action::Claim(_)) {
                let look = Op {
                    operation: op.operation,
                    action: Action::Read,
                };
                ticket.claim = Some(std::mem::replace(&mut op, look));
            }
            match batch.push(op) {
                Added::Yes => tickets.push(ticket),
                Added::Later(op) | Added::TooLarge(op) => rest.push(ticket.item(op)),
            }
        }
        if !rest.is_empty() {
            let items = rest;
            self.again.push_front(Group { items, script });
        }
        let request = self.engine.request(&batch, script);
        let shard = batch.ops().first().map_or(0, |op| shard_of(&op.operation));
        self.leave(shard, Load::Batch(batch, tickets), script, request)
    }

    fn depart_sweep(&mut self, nonce: Nonce, shard: u8, limit: u32, script: Script) -> Outgoing {
        let request = self.engine.sweep_request(&nonce, shard, limit, script);
        self.leave(shard, Load::Sweep(nonce, shard), script, request)
    }

    fn leave(&mut self, shard: u8, load: Load, script: Script, request: HttpRequest) -> Outgoing {
        self.calls = self.calls.wrapping_add(1);
        let call = self.calls;
        self.under_way.push(UnderWay {
            call,
            shard,
            load,
            script,
            known: self.memory.clone(),
        });
        Outgoing {
            call,
            request,
            timeout_ms: self.settings.timeout_ms,
        }
    }
}
