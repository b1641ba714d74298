//! What a run of the checker may do: who takes part, under which policy, and how much may go wrong.

use crate::fence::Fence;
use idempo_core::config;
use idempo_core::exchange::Policy;
use idempo_core::plan::{Plan, Route};
use idempo_core::trusted::{Secret, Signer};
use serde_json::{Value, json};
use std::sync::Arc;

/// A small world, and how much may go wrong in it.
#[derive(Clone)]
pub struct Setup {
    /// A short name.
    pub name: &'static str,
    /// What is looked at.
    pub about: &'static str,
    pub(crate) policies: Vec<Arc<Policy>>,
    pub(crate) attempts: Vec<Part>,
    pub(crate) proxies: usize,
    pub(crate) budget: Budget,
    /// What the upstream may answer once it has had its effect.
    pub(crate) answers: &'static [u16],
    /// Answers come in two pieces.
    pub(crate) pieces: bool,
    /// By how much time may pass at once, milliseconds.
    pub(crate) steps: Vec<u64>,
    /// Time passes also while calls are under way: a worker that stands still gives none of them up.
    pub(crate) stalls: bool,
    /// By how much each proxy's notion of the store's clock is off, milliseconds.
    pub(crate) skew: Vec<i64>,
    /// A store that forgets: its epoch and sequence are watched.
    pub(crate) forgets: bool,
    /// A replica takes over with what it has; else everything is gone.
    pub(crate) replica: bool,
    /// The loss shows in the epoch.
    pub(crate) new_epoch: bool,
    /// The upstream has at most one effect for each `x-idempo-operation`.
    pub(crate) dedupes: bool,
    /// Who may settle the operation beside its owner.
    pub(crate) settlers: &'static [Settler],
    /// The fence that is missing.
    pub removed: Option<Fence>,
}

/// One attempt's part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) proxy: usize,
    pub(crate) policy: usize,
    /// Its body is claimed by its beginning.
    pub(crate) large: bool,
}

/// Who settles an operation that is not its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settler {
    /// A person closes it.
    Close,
    /// A person states the answer.
    Person,
    /// A completion event brings the answer.
    Event,
    /// A final status probe does.
    Probe,
}

/// How often each thing may still go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// A store call is given up; it may arrive all the same.
    pub(crate) timeouts: u8,
    /// A store call arrives twice.
    pub(crate) repeats: u8,
    /// A proxy dies with all it knows.
    pub(crate) crashes: u8,
    /// A client goes away.
    pub(crate) leaves: u8,
    /// The upstream's stream is reset.
    pub(crate) resets: u8,
    /// A request provably never left.
    pub(crate) unsent: u8,
    /// The upstream says that it did nothing (429).
    pub(crate) busy: u8,
    /// The router tries again, where it is not told otherwise.
    pub(crate) retries: u8,
    /// Time passes by one of the steps.
    pub(crate) passes: u8,
    /// Somebody else settles the operation.
    pub(crate) settles: u8,
    /// The store forgets.
    pub(crate) losses: u8,
    /// A replica catches up.
    pub(crate) copies: u8,
    /// The record is damaged.
    pub(crate) damages: u8,
    /// The host's clock is set.
    pub(crate) steps: u8,
}

/// One rule with defaults, or with those members over them.
pub(crate) fn policy(members: &Value) -> Arc<Policy> {
    adjusted(members, |_| {})
}

/// The same, with what no configuration says (times that are too short for it).
pub(crate) fn adjusted(members: &Value, adjust: impl FnOnce(&mut Route)) -> Arc<Policy> {
    let mut rule = json!({
        "id": "charges",
        "match": {"methods": ["POST"], "path": {"prefix": "/v1/charges"}},
    });
    merge(&mut rule, members);
    let text = json!({"store": {"shared_data": {}}, "routes": [rule]}).to_string();
    let plan = config::parse(text.as_bytes());
    let mut plan: Plan = plan.unwrap_or_else(|errors| panic!("{errors}"));
    if let Some(rule) = plan.routes.first_mut() {
        adjust(rule);
    }
    Arc::new(Policy {
        plan,
        signer: None,
        proxy: "edge".to_owned(),
        remembers_since: None,
    })
}

/// A policy under which attempts outlive their clients.
pub(crate) fn detached() -> Arc<Policy> {
    use idempo_core::plan::Execution;
    let inline = adjusted(&json!({}), |r| r.upstream.execution = Execution::Detached);
    let secret = Secret::new("0123456789abcdef0123456789abcdef");
    let Ok(active) = secret else {
        panic!("a good secret was refused");
    };
    let mut policy = (*inline).clone();
    policy.plan.loopback_cluster = Some("self".to_owned());
    policy.signer = Some(Signer {
        active,
        previous: None,
        namespace: policy.plan.namespace.clone(),
    });
    Arc::new(policy)
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

impl Setup {
    /// Two proxies with an attempt each, under the default policy, and nothing that goes wrong.
    pub(crate) fn new(name: &'static str, about: &'static str) -> Self {
        Self {
            name,
            about,
            policies: vec![policy(&json!({}))],
            attempts: vec![Part::small(0), Part::small(1)],
            proxies: 2,
            budget: Budget::default(),
            answers: &[201],
            pieces: false,
            steps: vec![],
            stalls: false,
            skew: vec![0; 3],
            forgets: false,
            replica: false,
            new_epoch: true,
            dedupes: false,
            settlers: &[],
            removed: None,
        }
    }

    /// The same with less that goes wrong, to be gone through in a moment.
    #[must_use]
    pub fn brief(mut self) -> Self {
        let budget = &mut self.budget;
        for left in [
            &mut budget.timeouts,
            &mut budget.leaves,
            &mut budget.passes,
            &mut budget.settles,
            &mut budget.steps,
        ] {
            *left = (*left).min(1);
        }
        if budget.passes > 0 || self.dedupes {
            self.attempts.truncate(2);
        }
        // What is given up is looked at in other worlds.
        if budget.passes > 0 && (budget.leaves > 0 || budget.settles > 0) {
            budget.timeouts = 0;
        }
        if self.replica {
            (budget.busy, budget.passes) = (0, 0);
        }
        self
    }

    /// The same without that fence.
    #[must_use]
    pub fn without(mut self, fence: Fence) -> Self {
        self.removed = Some(fence);
        if fence == Fence::NoRecordNoRun {
            self.policies = vec![policy(&json!({"store_failure": "open"}))];
        }
        self
    }

    pub(crate) fn has(&self, fence: Fence) -> bool {
        self.removed != Some(fence)
    }

    /// The longest lease of all policies, milliseconds.
    pub(crate) fn longest_lease(&self) -> u64 {
        let rules = self.policies.iter().flat_map(|p| &p.plan.routes);
        rules.map(|r| r.lease_ms).max().unwrap_or(0)
    }
}

impl Part {
    pub(crate) const fn small(proxy: usize) -> Self {
        Self {
            proxy,
            policy: 0,
            large: false,
        }
    }
}
