//! The worlds that are checked: each lets a few things go wrong together, for all together would be
//! beyond any bound.

use crate::setup::{Budget, Part, Settler, Setup, adjusted, detached, policy};
use serde_json::json;

const LEASE_MS: u64 = 30_001;
const THIRD_MS: u64 = 10_001;
/// Longer than a cancelled token is remembered.
const MARK_MS: u64 = 600_001;

/// Every world in which the properties must hold.
#[must_use]
pub fn all() -> Vec<Setup> {
    vec![
        plain(),
        network(),
        crowd(),
        departures(),
        pieces(),
        leases(),
        crashes(),
        router(),
        upload(),
        settling(),
        events(),
        clock(),
        skewed(),
        configurations(),
        forwarded(),
        taken_over(),
        stalls(),
        going_detached(),
        damage(),
        forgetting(),
        tail(),
        late(),
    ]
}

/// Nothing goes wrong.
pub(crate) fn plain() -> Setup {
    Setup::new("plain", "two attempts, and nothing that goes wrong")
}

pub(crate) fn network() -> Setup {
    Setup {
        budget: Budget {
            timeouts: 2,
            repeats: 1,
            busy: 1,
            ..Budget::default()
        },
        ..Setup::new(
            "network",
            "store calls lost, late, repeated; a cancellation that overtakes its claim",
        )
    }
}

pub(crate) fn crowd() -> Setup {
    Setup {
        attempts: vec![Part::small(0), Part::small(1), Part::small(0)],
        budget: Budget {
            timeouts: 1,
            ..Budget::default()
        },
        ..Setup::new(
            "crowd",
            "a third attempt, and a store call that is given up",
        )
    }
}

pub(crate) fn departures() -> Setup {
    Setup {
        budget: Budget {
            leaves: 2,
            timeouts: 1,
            resets: 1,
            ..Budget::default()
        },
        answers: &[201, 500],
        ..Setup::new(
            "departures",
            "clients that leave with the claim in flight, before, during and after the answer",
        )
    }
}

pub(crate) fn pieces() -> Setup {
    Setup {
        budget: Budget {
            leaves: 1,
            timeouts: 1,
            resets: 1,
            ..Budget::default()
        },
        pieces: true,
        ..Setup::new(
            "pieces",
            "answers that come in two pieces, or break off; a client that leaves after the upstream's end",
        )
    }
}

pub(crate) fn leases() -> Setup {
    Setup {
        attempts: vec![Part::small(0), Part::small(1), Part::small(1)],
        budget: Budget {
            passes: 2,
            timeouts: 1,
            ..Budget::default()
        },
        steps: vec![THIRD_MS, LEASE_MS],
        ..Setup::new(
            "leases",
            "leases that are renewed, or end under a late owner; waiters and a third attempt",
        )
    }
}

pub(crate) fn crashes() -> Setup {
    Setup {
        attempts: vec![Part::small(0), Part::small(1), Part::small(0)],
        budget: Budget {
            crashes: 1,
            passes: 1,
            timeouts: 1,
            ..Budget::default()
        },
        steps: vec![LEASE_MS],
        ..Setup::new("crashes", "a proxy that dies at any step")
    }
}

pub(crate) fn router() -> Setup {
    let allowed =
        json!({"upstream": {"router_retries": {"allow": {"reason": "proved idempotent"}}}});
    Setup {
        policies: vec![policy(&allowed)],
        budget: Budget {
            retries: 1,
            unsent: 2,
            busy: 1,
            resets: 1,
            ..Budget::default()
        },
        ..Setup::new(
            "router",
            "a router that retries inside an attempt, as the rule allows; requests that never left",
        )
    }
}

pub(crate) fn contained() -> Setup {
    Setup {
        budget: Budget {
            retries: 1,
            unsent: 1,
            ..Budget::default()
        },
        ..Setup::new("contained", "a router that would retry inside an attempt")
    }
}

pub(crate) fn upload() -> Setup {
    let large = |proxy| Part {
        large: true,
        ..Part::small(proxy)
    };
    Setup {
        policies: vec![adjusted(&json!({}), |r| r.claim_after = 4)],
        attempts: vec![large(0), large(1)],
        budget: Budget {
            passes: 2,
            leaves: 1,
            ..Budget::default()
        },
        steps: vec![LEASE_MS],
        ..Setup::new(
            "upload",
            "a slow upload past its lease, claimed by its beginning",
        )
    }
}

pub(crate) fn settling() -> Setup {
    Setup {
        budget: Budget {
            settles: 2,
            passes: 1,
            timeouts: 1,
            resets: 1,
            ..Budget::default()
        },
        steps: vec![LEASE_MS],
        settlers: &[Settler::Close, Settler::Person, Settler::Probe],
        ..Setup::new(
            "settling",
            "people and probes that settle what is unknown, against late owners and each other",
        )
    }
}

pub(crate) fn events() -> Setup {
    Setup {
        budget: Budget {
            settles: 2,
            timeouts: 1,
            repeats: 1,
            ..Budget::default()
        },
        answers: &[202],
        settlers: &[Settler::Event],
        ..Setup::new(
            "events",
            "completion events, also before the acceptance is written",
        )
    }
}

/// Windows so short that an hour's step of a clock would end them.
pub(crate) fn short() -> std::sync::Arc<idempo_core::exchange::Policy> {
    adjusted(&json!({}), |r| {
        r.replay.ttl_ms = 300_000;
        r.replay.tombstone_ttl_ms = 600_000;
    })
}

pub(crate) fn clock() -> Setup {
    Setup {
        policies: vec![short()],
        budget: Budget {
            steps: 2,
            passes: 2,
            timeouts: 1,
            ..Budget::default()
        },
        steps: vec![THIRD_MS],
        ..Setup::new(
            "clock",
            "a host whose clock is set an hour ahead and back, over short windows",
        )
    }
}

pub(crate) fn skewed() -> Setup {
    Setup {
        budget: Budget {
            passes: 2,
            timeouts: 1,
            resets: 1,
            ..Budget::default()
        },
        steps: vec![THIRD_MS, LEASE_MS],
        skew: vec![4_000, -4_000],
        ..Setup::new(
            "skew",
            "proxies whose notion of the store's clock is seconds apart",
        )
    }
}

pub(crate) fn configurations() -> Setup {
    let other = adjusted(
        &json!({"fingerprint": {"digest": "sha256"}, "in_flight": {"action": "reject"}}),
        |r| r.lease_ms = 12_000,
    );
    Setup {
        policies: vec![policy(&json!({})), other],
        attempts: vec![
            Part::small(0),
            Part {
                policy: 1,
                ..Part::small(1)
            },
            Part {
                policy: 1,
                ..Part::small(0)
            },
        ],
        budget: Budget {
            passes: 1,
            timeouts: 1,
            ..Budget::default()
        },
        steps: vec![13_000],
        ..Setup::new(
            "configurations",
            "two configurations at once: other lease, other digest, other way to wait",
        )
    }
}

pub(crate) fn forwarded() -> Setup {
    Setup {
        attempts: vec![Part::small(0), Part::small(1), Part::small(0)],
        budget: Budget {
            resets: 1,
            timeouts: 1,
            ..Budget::default()
        },
        ..forwarded_as(
            "forward",
            "unknown operations taken over, where the upstream dedupes",
        )
    }
}

pub(crate) fn forwarded_as(name: &'static str, about: &'static str) -> Setup {
    let forward = json!({"unknown": {"forward": {"upstream_dedupes": true}}});
    Setup {
        policies: vec![policy(&forward)],
        dedupes: true,
        ..Setup::new(name, about)
    }
}

pub(crate) fn going_detached() -> Setup {
    Setup {
        policies: vec![detached()],
        budget: Budget {
            leaves: 2,
            timeouts: 1,
            resets: 1,
            unsent: 1,
            ..Budget::default()
        },
        ..Setup::new("detached", "attempts that outlive their clients")
    }
}

pub(crate) fn damage() -> Setup {
    Setup {
        budget: Budget {
            damages: 1,
            timeouts: 1,
            ..Budget::default()
        },
        ..Setup::new("damage", "a record that is damaged")
    }
}

pub(crate) fn forgetting() -> Setup {
    Setup {
        attempts: vec![Part::small(0), Part::small(1), Part::small(1)],
        budget: Budget {
            losses: 1,
            passes: 1,
            ..Budget::default()
        },
        steps: vec![LEASE_MS],
        forgets: true,
        ..Setup::new(
            "forgetting",
            "a store that loses all it had, its epoch with it",
        )
    }
}

pub(crate) fn tail() -> Setup {
    Setup {
        budget: Budget {
            losses: 1,
            copies: 1,
            passes: 1,
            busy: 1,
            ..Budget::default()
        },
        replica: true,
        attempts: vec![Part::small(0), Part::small(1)],
        ..Setup {
            name: "tail",
            about: "a replica that takes over without the latest writes, under another epoch",
            ..forgetting()
        }
    }
}

pub(crate) fn stalls() -> Setup {
    Setup {
        budget: Budget {
            passes: 1,
            timeouts: 1,
            leaves: 1,
            ..Budget::default()
        },
        steps: vec![LEASE_MS],
        stalls: true,
        ..Setup::new(
            "stalls",
            "workers that stand still for a lease while their calls are answered",
        )
    }
}

pub(crate) fn taken_over() -> Setup {
    Setup {
        attempts: vec![Part::small(0), Part::small(1)],
        budget: Budget {
            passes: 2,
            timeouts: 1,
            busy: 1,
            ..Budget::default()
        },
        steps: vec![LEASE_MS],
        ..forwarded_as(
            "taken over",
            "owners that are late, under a rule that takes over what is unknown",
        )
    }
}

pub(crate) fn late() -> Setup {
    Setup {
        attempts: vec![Part::small(0)],
        proxies: 1,
        budget: Budget {
            timeouts: 1,
            repeats: 1,
            passes: 2,
            leaves: 1,
            ..Budget::default()
        },
        steps: vec![MARK_MS],
        ..Setup::new(
            "late",
            "calls that arrive when nobody remembers that they were given up",
        )
    }
}
