//! What a call's answer, or what there is instead, means for the operations that it carried.

use super::{Event, Group, Item, Load, Memory, Queue, TRIES_ALONE, UnderWay, answer, items};
use crate::store::redis::Script;
use crate::store::remote::{Answered, HttpAnswer, ShardState, Swept, Understood, shard_of};
use crate::store::{Action, Op, Reply};

impl Queue {
    /// The host did not take the call: nothing left.
    pub fn on_refused(&mut self, call: u32, why: &str, now: u64, out: &mut Vec<Event>) {
        let Some(under_way) = self.end(call) else {
            return;
        };
        if let Load::Batch(batch, tickets) = under_way.load {
            let items = items(batch, tickets);
            self.again.push_front(Group {
                items,
                script: under_way.script,
            });
        }
        self.failed(under_way.shard, why, now, out);
    }

    pub(super) fn end(&mut self, call: u32) -> Option<UnderWay> {
        let at = self.under_way.iter().position(|u| u.call == call)?;
        Some(self.under_way.swap_remove(at))
    }

    /// A call was answered, or not (`None`).
    pub fn on_answer(
        &mut self,
        call: u32,
        answer: Option<HttpAnswer<'_>>,
        now: u64,
        out: &mut Vec<Event>,
    ) {
        let Some(under_way) = self.end(call) else {
            return;
        };
        let lost = || Understood::Ambiguous("no answer in time".to_owned());
        match &under_way.load {
            Load::Batch(batch, _) => {
                let understood = answer.map_or_else(lost, |a| self.engine.understand(batch, a));
                self.on_batch(under_way, understood, now, out);
            }
            Load::Sweep(nonce, shard) => {
                let swept = answer.map_or_else(
                    || Err(lost()),
                    |a| self.engine.understand_sweep(nonce, *shard, a),
                );
                self.on_sweep(*shard, &under_way, swept, now, out);
            }
        }
    }

    pub(super) fn on_batch(
        &mut self,
        under_way: UnderWay,
        understood: Understood,
        now: u64,
        out: &mut Vec<Event>,
    ) {
        let Load::Batch(batch, tickets) = under_way.load else {
            return;
        };
        let (items, shard) = (items(batch, tickets), under_way.shard);
        match understood {
            Understood::Answered(answered) => {
                self.answered(answered, shard, items, &under_way.known, now, out);
            }
            Understood::Unprepared if under_way.script == Script::Known => {
                // It has done nothing: the same again, with the script.
                self.again.push_front(Group {
                    items,
                    script: Script::Whole,
                });
            }
            other => {
                let why = why(other);
                self.repeat(items, &why, now, out);
                self.failed(shard, &why, now, out);
            }
        }
    }

    pub(super) fn on_sweep(
        &mut self,
        shard: u8,
        under_way: &UnderWay,
        swept: Result<Swept, Understood>,
        now: u64,
        out: &mut Vec<Event>,
    ) {
        match swept {
            Ok(swept) => {
                let lost = self.heard(swept.now, shard, &[swept.state], &under_way.known, now, out);
                out.push(Event::Swept(swept));
                self.assert(&lost, now, out);
            }
            Err(Understood::Unprepared) if under_way.script == Script::Known => {
                self.sweeps.push_front((shard, 0, Script::Whole));
            }
            Err(other) => self.failed(shard, &why(other), now, out),
        }
    }

    fn answered(
        &mut self,
        answered: Answered,
        shard: u8,
        items: Vec<Item>,
        known: &Memory,
        now: u64,
        out: &mut Vec<Event>,
    ) {
        let lost = self.heard(answered.now, shard, &answered.shards, known, now, out);
        let left = self.recovering_ms(now);
        let unread: Vec<u8> = unread(&answered.shards).collect();
        for (Item { op, mut ticket }, reply) in items.into_iter().zip(answered.replies) {
            // Whether its shard has forgotten is not known: what is there is certain, what is not there
            // may be lost.
            let reply = match reply {
                Reply::Claimed(_) | Reply::Absent if unread.contains(&shard_of(&op.operation)) => {
                    Reply::Failed(UNREAD.to_owned())
                }
                reply => reply,
            };
            let reply = match (reply, &op.action) {
                (Reply::Absent, Action::Claim(_)) => Reply::Recovering(left.max(1)),
                // By a store that has forgotten: there may be a record, among those that it lost.
                (Reply::Claimed(_), Action::Claim(claim) | Action::TakeOver { claim, .. })
                    if left > 0 =>
                {
                    if ticket.tries == 0 {
                        out.push(Event::TakeBack(Op {
                            operation: op.operation,
                            action: Action::Cancel { owner: claim.owner },
                        }));
                    }
                    Reply::Recovering(left)
                }
                // This step alone failed, as none should: again, by itself.
                (Reply::Failed(_), _) if ticket.tries < TRIES_ALONE && now < ticket.deadline => {
                    ticket.tries = ticket.tries.saturating_add(1);
                    self.again.push_back(Group {
                        items: vec![ticket.item(op)],
                        script: Script::Known,
                    });
                    continue;
                }
                (reply, _) => reply,
            };
            if let Action::Claim(claim) | Action::TakeOver { claim, .. } = &op.action
                && ticket.tries > 0
                && !matches!(reply, Reply::Claimed(_) | Reply::Failed(_) | Reply::TooLate)
            {
                // It was sent before, and may still arrive; its attempt does not run.
                let action = Action::Cancel { owner: claim.owner };
                let operation = op.operation;
                out.push(Event::TakeBack(Op { operation, action }));
            }
            if let Reply::Applied(_) | Reply::Already(_) | Reply::Cancelled = reply {
                self.recent.note(&op, now);
            }
            answer(op, ticket.waiters, reply, out);
        }
        self.assert(&lost, now, out);
    }

    /// What was written to these shards a moment ago is to be written again.
    fn assert(&mut self, lost: &[u8], now: u64, out: &mut Vec<Event>) {
        for shard in lost {
            let writes = self.recent.of_shard(*shard, now);
            out.extend(writes.into_iter().map(Event::Assert));
        }
    }

    /// The store has spoken: says which shards have lost writes.
    fn heard(
        &mut self,
        store_now: u64,
        shard: u8,
        shards: &[ShardState],
        known: &Memory,
        now: u64,
        out: &mut Vec<Event>,
    ) -> Vec<u8> {
        let first = self.offset.is_none();
        self.offset = Some(store_now.cast_signed().wrapping_sub(now.cast_signed()));
        if self.lanes.on_success(shard) || (first && self.lanes.all_answer()) {
            out.push(Event::Ready(Ok(())));
        }
        if !self.anonymous && shards.iter().any(|s| s.doubt_until.is_none()) {
            self.anonymous = true;
            out.push(Event::Anonymous);
        }
        let mut lost = Vec::new();
        for state in shards {
            let how = self.memory.note(state, known);
            if self.memory.doubts(state) {
                let first = self.doubted_until <= now;
                let left = state.doubt_until.unwrap_or(0).saturating_sub(store_now);
                self.doubted_until = self.doubted_until.max(now.saturating_add(left));
                let shard = state.shard;
                out.push(Event::Doubted { shard, first });
                if how.is_none() {
                    lost.push(shard);
                }
            }
            let Some(how) = how else {
                continue;
            };
            self.recovering_until = now.saturating_add(self.settings.hold_ms);
            out.push(Event::Forgot {
                shard: state.shard,
                how,
            });
            lost.push(state.shard);
        }
        lost
    }

    fn failed(&mut self, shard: u8, why: &str, now: u64, out: &mut Vec<Event>) {
        if let Some(why) = self.lanes.on_failure(shard, why, now) {
            out.push(Event::Ready(Err(why)));
        }
    }

    /// A call was not understood: each of its operations may have been done or not.
    fn repeat(&mut self, mut items: Vec<Item>, why: &str, now: u64, out: &mut Vec<Event>) {
        let alone = items.len() == 1;
        for item in &mut items {
            item.ticket.tries = item.ticket.tries.saturating_add(1);
        }
        let (over, mut left): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| {
            // Somebody else's poison must not count against an operation; time does.
            now >= item.ticket.deadline || (alone && item.ticket.tries >= TRIES_ALONE)
        });
        for Item { op, ticket } in over {
            answer(op, ticket.waiters, Reply::Failed(why.to_owned()), out);
        }
        if left.is_empty() {
            return;
        }
        let second = left.split_off(left.len().div_ceil(2));
        for items in [second, left] {
            if !items.is_empty() {
                self.again.push_front(Group {
                    items,
                    script: Script::Known,
                });
            }
        }
    }
}

/// Why nothing begins on the word of a shard whose state is not known.
const UNREAD: &str = "the epoch, seq or server of its shard could not be read or written";

fn unread(shards: &[ShardState]) -> impl Iterator<Item = u8> {
    let unread = shards.iter().filter(|state| state.epoch.is_none());
    unread.map(|state| state.shard)
}

fn why(understood: Understood) -> String {
    match understood {
        Understood::Ambiguous(why) => why,
        _ => "the store lacks the engine's script".to_owned(),
    }
}
