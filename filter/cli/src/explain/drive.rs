//! Runs the filter's own exchange up to the point where the upstream would be asked.
//!
//! The store is a fake that keeps its contract, by running the contract. It holds one record at most.

use super::request::Request;
use idempo_core::exchange::{Body, Edit, Effect, Exchange, Field, Moment, Policy, Seed};
use idempo_core::ids::OperationId;
use idempo_core::metrics::{Bypass, Counter};
use idempo_core::record::Record;
use idempo_core::reply::LocalReply;
use idempo_core::store::contract::{self, Change};
use idempo_core::store::{Action, Claim, Full, Op, Reply};
use std::collections::VecDeque;
use std::sync::Arc;

/// Effects beyond this many mean that something goes round in circles.
const MAX_EFFECTS: usize = 10_000;

/// A store with one operation in one state.
#[derive(Clone, Default)]
pub(crate) struct Fake {
    pub(crate) record: Option<Record>,
    /// The recorded answer.
    pub(crate) blob: Option<Vec<u8>>,
    pub(crate) trouble: Option<Trouble>,
    /// The holder of the claim is alive and renews its lease, so a duplicate that waits meets it
    /// again.
    pub(crate) renews_ms: Option<u64>,
}

/// What keeps the store from answering.
#[derive(Clone, Copy)]
pub(crate) enum Trouble {
    Down,
    Full(Full),
    Damaged,
}

impl Fake {
    /// Answers a step, and changes what it holds, as the contract says.
    pub(crate) fn apply(&mut self, action: &Action, now: u64) -> Reply {
        match self.trouble {
            Some(Trouble::Down) => return Reply::Failed("the store does not answer".to_owned()),
            Some(Trouble::Full(full)) if matches!(action, Action::Claim(_)) => {
                return Reply::Full(full);
            }
            Some(Trouble::Damaged) => return Reply::Corrupt,
            _ => {}
        }
        if let Action::Body { .. } = action {
            return Reply::Body(self.blob.clone());
        }
        if let (Some(lease_ms), Some(record)) = (self.renews_ms, &mut self.record)
            && let idempo_core::record::State::Pending { lease_until, .. } = &mut record.state
        {
            *lease_until = now.saturating_add(lease_ms);
        }
        let (change, reply) = contract::apply(self.record.as_ref(), action, now);
        match change {
            Change::Keep => {}
            Change::Delete => self.record = None,
            Change::Put(record) => self.record = Some(*record),
        }
        reply
    }
}

/// What happened.
#[derive(Default)]
pub(crate) struct Run {
    /// The filter's own answer.
    pub(crate) reply: Option<LocalReply>,
    /// Changes to the request that goes on.
    pub(crate) edits: Vec<Edit>,
    /// The claim, under the operation's id: from the store's point of view.
    pub(crate) claim: Option<(OperationId, Claim)>,
    /// Ids that were read before it: the identities that the route had.
    pub(crate) previous: Vec<OperationId>,
    /// `idempo.outcome` of the access log.
    pub(crate) outcome: Option<String>,
    /// `idempo.route`: the rule.
    pub(crate) route: Option<String>,
    /// How long a duplicate was held, milliseconds.
    pub(crate) waited_ms: Option<u64>,
    /// Sent to the upstream under a claim.
    pub(crate) executed: bool,
    /// Why it passed unclaimed.
    pub(crate) bypass: Option<Bypass>,
    pub(crate) unmatched_write: bool,
}

/// Sends the request through a new exchange.
pub(crate) fn drive(
    policy: &Arc<Policy>,
    request: &Request,
    fake: &mut Fake,
    start: Moment,
) -> Run {
    let seed = Seed {
        vm: [0x1d; 16],
        counter: 1,
    };
    let mut exchange = Exchange::new(policy.clone(), seed);
    let mut run = Run::default();
    let mut now = start;
    let mut queue = VecDeque::new();
    let mut out = Vec::new();
    let end = request.body.is_empty();
    exchange.on_request_headers(
        request.headers.clone(),
        end,
        &request.properties,
        now,
        &mut out,
    );
    queue.extend(out.drain(..));
    // In one piece, so that a large one is compared as it is in the end, not by its beginning.
    let mut body = (!end).then(|| request.body.clone());
    for _ in 0..MAX_EFFECTS {
        if let Some(effect) = queue.pop_front() {
            take(effect, &mut exchange, &mut run, fake, now, &mut out);
        } else if exchange.body() != Body::Pass
            && let Some(body) = body.take()
        {
            exchange.on_request_chunk(body, true, now, &mut out);
        } else if exchange.waits().is_some() {
            // Nothing ends it, so the clock runs until the filter gives up.
            now.store_ms = now.store_ms.saturating_add(1_000);
            now.wall_us = now.wall_us.saturating_add(1_000_000);
            run.waited_ms = Some(now.store_ms.saturating_sub(start.store_ms));
            exchange.on_tick(now, &mut out);
        } else {
            break;
        }
        queue.extend(out.drain(..));
    }
    run
}

fn take(
    effect: Effect,
    exchange: &mut Exchange,
    run: &mut Run,
    fake: &mut Fake,
    now: Moment,
    out: &mut Vec<Effect>,
) {
    match effect {
        Effect::Store(Op { operation, action }) => {
            let claims = run.claim.is_none();
            match &action {
                Action::Claim(claim) if claims => run.claim = Some((operation, claim.clone())),
                // Before the claim only earlier identities are read, and they are empty here.
                Action::Read if claims => {
                    run.previous.push(operation);
                    return exchange.on_store(Reply::Absent, now, out);
                }
                _ => {}
            }
            exchange.on_store(fake.apply(&action, now.store_ms), now, out);
        }
        Effect::Wait(_) => exchange.on_registered(true, now, out),
        Effect::Reply(reply) => run.reply = Some(reply),
        Effect::Request(edits) => run.edits.extend(edits),
        Effect::Show(Field::Outcome, outcome) => run.outcome = Some(outcome),
        Effect::Show(Field::Route, route) => run.route = Some(route),
        Effect::Count(Counter::Executed(..)) => run.executed = true,
        Effect::Count(Counter::Bypass(bypass)) => run.bypass = Some(bypass),
        Effect::Count(Counter::UnmatchedWrite) => run.unmatched_write = true,
        _ => {}
    }
}
