//! What is compared: lanes from the load generator to the upstream, each of them a listener.

use crate::{
    load::Expect,
    variant::{ANSWER, chain, inner, proxying, wasm},
};
use host_tests::{
    envoy::{SIGNING_SECRET, config, module},
    store::{front::Front, redis::Server, resp},
};
use serde_json::{Value, json};

/// One way that a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// Proxied, no module.
    Plain,
    /// idempo over Redis behind Webdis, everything by default.
    Webdis,
    /// The same, and the client does not wait for the record.
    Async,
    /// The same behind the REST bridge.
    Rest,
    /// Raw RESP: a tunnel through a listener of the same Envoy, a connection to Redis for each call.
    Resp,
    /// A callout of its own for each operation, as a filter without group commit has it.
    TwoCallouts,
    /// Sent through the loopback listener.
    Detached,
    /// So many calls under way at once.
    Calls1,
    Calls2,
    Calls4,
    Calls8,
    /// idempo replays from its cache.
    Replay,
    /// nginx: `SET NX EX`, the upstream, `SET EX`.
    Nginx,
    /// nginx replays: `SET NX EX` fails, `GET`.
    NginxReplay,
    /// nginx replays where it looks first: `GET` alone.
    NginxLooks,
}

/// Which program runs a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proxy {
    Envoy,
    Nginx,
}

/// The fronts of the one Redis. A further transport is a front here, a lane, and its row.
#[derive(Debug)]
pub(crate) struct Fronts {
    pub(crate) webdis: Front,
    pub(crate) rest: Front,
    pub(crate) resp: Front,
}

/// The clusters that lead to them.
const WEBDIS: &str = "store-webdis";
const REST: &str = "store-rest";
const RESP: &str = "store-resp";

/// The rule whose operations are over after a few seconds; the same with `commit: async`; and the one
/// whose operations last.
pub(crate) const PASSING: &str = "/v1/charges";
const ASYNC: &str = "/v1/async";
pub(crate) const KEPT: &str = "/v1/orders";
/// For nginx alone: the place where it looks before it claims.
pub(crate) const LOOKS: &str = "/v1/looks";

/// Lease and windows of operations that pass, seconds: Redis holds what so much time brings.
const LEASE_S: u64 = 3;
const ACCEPTED_S: u64 = 1;
const REPLAY_S: u64 = 4;
const TOMBSTONE_S: u64 = 2;
/// For how long a passing operation stays in Redis, whoever keeps it there.
pub(crate) const PASSING_S: u64 = REPLAY_S + TOMBSTONE_S;

impl Lane {
    pub(crate) const ALL: [Self; 15] = [
        Self::Plain,
        Self::Webdis,
        Self::Async,
        Self::Rest,
        Self::Resp,
        Self::TwoCallouts,
        Self::Detached,
        Self::Calls1,
        Self::Calls2,
        Self::Calls4,
        Self::Calls8,
        Self::Replay,
        Self::Nginx,
        Self::NginxReplay,
        Self::NginxLooks,
    ];

    /// Of its listener.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            // The harness asks for a listener of that name.
            Self::Plain => config::LISTENER,
            Self::Webdis => "webdis",
            Self::Async => "async",
            Self::Rest => "rest",
            Self::Resp => "resp",
            Self::TwoCallouts => "two-callouts",
            Self::Detached => "detached",
            Self::Calls1 => "calls-1",
            Self::Calls2 => "calls-2",
            Self::Calls4 => "calls-4",
            Self::Calls8 => "calls-8",
            Self::Replay => "replay",
            Self::Nginx => "nginx",
            Self::NginxReplay => "nginx-replay",
            Self::NginxLooks => "nginx-looks",
        }
    }

    /// How the report calls it.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Plain => "plain proxying",
            Self::Webdis => "first attempts over Webdis",
            Self::Async => "first attempts over Webdis, commit: async",
            Self::Rest => "first attempts over REST",
            Self::Resp => "first attempts over RESP",
            Self::TwoCallouts => "first attempts, a callout for each operation",
            Self::Detached => "first attempts over Webdis, detached",
            Self::Calls1 => "first attempts, store_calls: 1",
            Self::Calls2 => "first attempts, store_calls: 2",
            Self::Calls4 => "first attempts, store_calls: 4",
            Self::Calls8 => "first attempts, store_calls: 8",
            Self::Replay => "replay from the cache",
            Self::Nginx => "nginx, first attempts",
            Self::NginxReplay => "nginx, replay (SET NX, GET)",
            Self::NginxLooks => "nginx, replay (GET)",
        }
    }

    pub(crate) const fn proxy(self) -> Proxy {
        match self {
            Self::Nginx | Self::NginxReplay | Self::NginxLooks => Proxy::Nginx,
            _ => Proxy::Envoy,
        }
    }

    pub(crate) const fn is_replay(self) -> bool {
        matches!(self, Self::Replay | Self::NginxReplay | Self::NginxLooks)
    }

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Async => ASYNC,
            Self::Replay | Self::NginxReplay => KEPT,
            Self::NginxLooks => LOOKS,
            _ => PASSING,
        }
    }

    pub(crate) fn expect(self) -> Expect {
        Expect {
            status: 201,
            replayed: self.is_replay(),
            length: self.is_replay().then_some(ANSWER),
        }
    }

    /// VM and configuration of its filter. Lanes with the same filter share a VM.
    fn filter(self, fronts: &Fronts) -> Option<(&'static str, Value)> {
        let webdis = |limits: Value| {
            let store = fronts
                .webdis
                .store(&json!({"cluster": WEBDIS, "timeout": "2s"}));
            idempo(&store, &limits)
        };
        Some(match self {
            Self::Webdis | Self::Async | Self::Replay => ("webdis", webdis(json!({}))),
            Self::Rest => {
                let store = fronts
                    .rest
                    .store(&json!({"cluster": REST, "timeout": "2s"}));
                ("rest", idempo(&store, &json!({})))
            }
            Self::Resp => {
                let store = fronts
                    .resp
                    .store(&json!({"cluster": RESP, "timeout": "2s"}));
                ("resp", idempo(&store, &json!({})))
            }
            Self::TwoCallouts => {
                let limits = json!({"store_batch": 1, "store_calls": 64});
                ("two-callouts", webdis(limits))
            }
            Self::Detached => {
                let mut all = webdis(json!({}));
                all["loopback_cluster"] = json!(config::LOOPBACK);
                all["signing"] = json!({"active": {"env": SIGNING_SECRET}});
                ("detached", all)
            }
            Self::Calls1 => ("calls-1", webdis(json!({"store_calls": 1}))),
            Self::Calls2 => ("calls-2", webdis(json!({"store_calls": 2}))),
            Self::Calls4 => ("calls-4", webdis(json!({"store_calls": 4}))),
            Self::Calls8 => ("calls-8", webdis(json!({"store_calls": 8}))),
            Self::Plain | Self::Nginx | Self::NginxReplay | Self::NginxLooks => return None,
        })
    }

    fn listener(self, fronts: &Fronts) -> Value {
        let filter = self.filter(fronts).map(|(vm_id, configuration)| {
            let token = &configuration["store"]["redis"]["token"]["env"];
            let mut filter = wasm(vm_id, &module(), &configuration);
            if token.is_string() {
                let vm = &mut filter["typed_config"]["config"]["vm_config"];
                vm["environment_variables"]["host_env_keys"] = json!([SIGNING_SECRET, token]);
            }
            filter
        });
        chain(self.name(), filter, &proxying("upstream"), None)
    }
}

/// Envoy's listeners, those for detached attempts and for RESP included, and the clusters of the stores.
pub(crate) fn resources(fronts: &Fronts, redis: &Server) -> (Vec<Value>, Vec<Value>) {
    let of_envoy = Lane::ALL.into_iter().filter(|l| l.proxy() == Proxy::Envoy);
    let mut listeners: Vec<_> = of_envoy.map(|lane| lane.listener(fronts)).collect();
    listeners.push(inner(Lane::Detached.listener(fronts)));
    let (tunnel, raw) = resp::parts(RESP, &redis.socket());
    listeners.push(tunnel);
    let mut clusters = vec![
        config::cluster(WEBDIS, &[fronts.webdis.addr()]),
        config::cluster(REST, &[fronts.rest.addr()]),
    ];
    clusters.extend(raw);
    (listeners, clusters)
}

/// Three rules over a store. Its time-out is longer than by default, so that a machine that was busy
/// for a moment does not end a run of minutes.
fn idempo(store: &Value, limits: &Value) -> Value {
    let passing = |id: &str, path: &str, commit: &str| {
        json!({
            "id": id,
            "match": {"methods": ["POST"], "path": {"prefix": path}},
            "commit": commit,
            "lease": format!("{LEASE_S}s"),
            "accepted_deadline": format!("{ACCEPTED_S}s"),
            "replay": {
                "ttl": format!("{REPLAY_S}s"),
                "tombstone_ttl": format!("{TOMBSTONE_S}s"),
            },
        })
    };
    json!({
        "namespace": "bench",
        "store": store,
        "limits": limits,
        "routes": [
            passing("charges", PASSING, "before_end"),
            passing("async", ASYNC, "async"),
            {"id": "orders", "match": {"methods": ["POST"], "path": {"prefix": KEPT}}},
        ],
    })
}
