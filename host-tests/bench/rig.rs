//! One Envoy with a listener for each variant, and the upstream behind it.
//!
//! Everything that is compared runs in one process on one worker, so that what differs between two
//! listeners is their filter chain and nothing else. Each use of idempo has a `vm_id`, and with it a
//! table, of its own.

use crate::{
    load::{BODY, Expect, Key, Keys, Load, Tally, Template, Until},
    machine,
};
use host_tests::{
    envoy::{Envoy, config},
    upstream::{Instruction, Upstream},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

/// Octets of the answer that is replayed and of the direct response.
pub(crate) const ANSWER: usize = 1024;

/// Keys that replays go through, so that they meet more than one bucket.
pub(crate) const REPLAYED_KEYS: usize = 512;

/// What one listener does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Variant {
    /// Answers by itself, no module.
    Direct,
    /// Answers by itself behind the filter that does nothing.
    NoopDirect,
    /// Proxies, no module.
    Plain,
    /// Proxies behind the filter that does nothing.
    NoopProxy,
    /// idempo, every key new, in a table that holds a few seconds' operations.
    First,
    /// The same with an access log that shows filter state.
    FirstLogged,
    /// The same in a table that is 40 % full of operations that last.
    FirstFull,
    /// idempo replays from a table that holds little else.
    Replay,
    /// The same for requests with a body.
    ReplayBody,
    /// idempo replays from the table that is 40 % full.
    ReplayFull,
}

/// A filter in front of the router.
enum Filter<'a> {
    None,
    Noop,
    Idempo(&'a str),
}

impl Variant {
    pub(crate) const ALL: [Self; 10] = [
        Self::Direct,
        Self::NoopDirect,
        Self::Plain,
        Self::NoopProxy,
        Self::First,
        Self::FirstLogged,
        Self::FirstFull,
        Self::Replay,
        Self::ReplayBody,
        Self::ReplayFull,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::NoopDirect => "noop-direct",
            // The harness asks for a listener of that name.
            Self::Plain => config::LISTENER,
            Self::NoopProxy => "noop-proxy",
            Self::First => "first",
            Self::FirstLogged => "first-logged",
            Self::FirstFull => "first-full",
            Self::Replay => "replay",
            Self::ReplayBody => "replay-body",
            Self::ReplayFull => "replay-full",
        }
    }

    /// How the reports call it.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Direct => "direct response",
            Self::NoopDirect => "no-op filter + direct response",
            Self::Plain => "plain proxying",
            Self::NoopProxy => "no-op filter + proxying",
            Self::First => "first attempts",
            Self::FirstLogged => "first attempts, access log",
            Self::FirstFull => "first attempts, table 40 % full",
            Self::Replay => "replay",
            Self::ReplayBody => "replay, requests with a body",
            Self::ReplayFull => "replay, table 40 % full",
        }
    }

    const fn filter(self) -> Filter<'static> {
        match self {
            Self::Direct | Self::Plain => Filter::None,
            Self::NoopDirect | Self::NoopProxy => Filter::Noop,
            Self::First => Filter::Idempo("first"),
            Self::FirstLogged => Filter::Idempo("first-logged"),
            Self::Replay | Self::ReplayBody => Filter::Idempo("replay"),
            Self::FirstFull | Self::ReplayFull => Filter::Idempo("full"),
        }
    }

    const fn is_direct(self) -> bool {
        matches!(self, Self::Direct | Self::NoopDirect)
    }

    pub(crate) const fn is_replay(self) -> bool {
        matches!(self, Self::Replay | Self::ReplayBody | Self::ReplayFull)
    }

    /// Whether each request has an effect.
    pub(crate) const fn acts(self) -> bool {
        !self.is_direct() && !self.is_replay()
    }

    /// What is sent. A direct response comes before the request's body, whereupon Envoy closes an
    /// HTTP/1.1 connection: that would measure connecting. So the yardstick gets no body, and what is
    /// compared with it none either.
    const fn body(self) -> &'static str {
        match self {
            Self::Direct | Self::NoopDirect | Self::Replay | Self::ReplayFull => "",
            _ => BODY,
        }
    }

    /// The rule of idempo's that applies.
    const fn path(self) -> &'static str {
        if self.is_replay() { KEPT } else { PASSING }
    }
}

/// The rule whose operations are over after a few seconds.
const PASSING: &str = "/v1/charges";
/// The rule with the default windows.
pub(crate) const KEPT: &str = "/v1/orders";

/// The default budgets. Of the two rules one keeps its operations for the default windows, the other
/// for 2 s and 2 s as tombstones, so that a table under load holds what a few seconds bring and the
/// benchmark can go on for as long as it likes.
pub(crate) fn idempo() -> Value {
    json!({
        "namespace": "bench",
        "store": {"shared_data": {}},
        "routes": [
            {
                "id": "charges",
                "match": {"methods": ["POST"], "path": {"prefix": PASSING}},
                "lease": "1s",
                "accepted_deadline": "1s",
                "replay": {"ttl": "2s", "tombstone_ttl": "2s"},
            },
            {"id": "orders", "match": {"methods": ["POST"], "path": {"prefix": KEPT}}},
        ],
    })
}

/// The module that does nothing: `IDEMPO_NOOP_WASM`, else beside the shipped one.
fn noop_module() -> PathBuf {
    std::env::var_os("IDEMPO_NOOP_WASM").map_or_else(
        || host_tests::envoy::module().with_file_name("noop_filter.wasm"),
        PathBuf::from,
    )
}

/// A wasm filter.
pub(crate) fn wasm(vm_id: &str, module: &Path, configuration: &Value) -> Value {
    json!({
        "name": vm_id,
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": vm_id,
                "vm_config": {
                    "vm_id": vm_id,
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": {"local": {"filename": module}},
                },
                "configuration": {
                    "@type": "type.googleapis.com/google.protobuf.Struct",
                    "value": configuration,
                },
                "failure_policy": "FAIL_RELOAD",
                "allow_on_headers_stop_iteration": true,
            },
        },
    })
}

/// As shipped, but to nowhere: disks are not what is measured.
fn access_log() -> Value {
    json!({
        "name": "envoy.access_loggers.file",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
            "path": "/dev/null",
            "log_format": {"json_format": {
                "time": "%START_TIME%",
                "attempt": "%REQ(X-REQUEST-ID)%",
                "method": "%REQ(:METHOD)%",
                "authority": "%REQ(:AUTHORITY)%",
                "path": "%PATH(NQ)%",
                "protocol": "%PROTOCOL%",
                "status": "%RESPONSE_CODE%",
                "details": "%RESPONSE_CODE_DETAILS%",
                "flags": "%RESPONSE_FLAGS%",
                "duration_ms": "%DURATION%",
                "bytes_received": "%BYTES_RECEIVED%",
                "bytes_sent": "%BYTES_SENT%",
                "upstream": "%UPSTREAM_HOST%",
                "upstream_attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
                "envoy_route": "%ROUTE_NAME%",
                "idempo_outcome": "%FILTER_STATE(wasm.idempo.outcome:PLAIN)%",
                "idempo_operation": "%FILTER_STATE(wasm.idempo.operation:PLAIN)%",
                "idempo_route": "%FILTER_STATE(wasm.idempo.route:PLAIN)%",
                "idempo_audit": "%FILTER_STATE(wasm.idempo.audit:PLAIN)%",
            }},
        },
    })
}

fn listener(variant: Variant) -> Value {
    let mut filters = match variant.filter() {
        Filter::None => vec![],
        Filter::Noop => vec![wasm("noop", &noop_module(), &json!({}))],
        Filter::Idempo(vm_id) => vec![wasm(vm_id, &host_tests::envoy::module(), &idempo())],
    };
    filters.push(json!({
        "name": "envoy.filters.http.router",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
        },
    }));
    let mut route = json!({"name": "default", "match": {"prefix": "/"}});
    if variant.is_direct() {
        route["direct_response"] =
            json!({"status": 200, "body": {"inline_string": "x".repeat(ANSWER)}});
    } else {
        route["route"] = json!({"cluster": "upstream", "timeout": "15s"});
    }
    let log = (variant == Variant::FirstLogged).then(access_log);
    json!({
        "name": variant.name(),
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "per_connection_buffer_limit_bytes": 2 << 20,
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": variant.name(),
                "codec_type": "AUTO",
                "normalize_path": true,
                "merge_slashes": true,
                "path_with_escaped_slashes_action": "REJECT_REQUEST",
                "use_remote_address": true,
                "stream_idle_timeout": "35s",
                "access_log": log.into_iter().collect::<Vec<_>>(),
                "http_filters": filters,
                "route_config": {
                    "name": variant.name(),
                    "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}],
                },
            },
        }]}],
    })
}

/// The running whole.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) envoy: Envoy,
    pub(crate) upstream: Upstream,
    addresses: BTreeMap<&'static str, SocketAddr>,
    keys: BTreeMap<Variant, Arc<[Key]>>,
    connections: usize,
}

/// One slice of load on one variant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub(crate) per_second: f64,
    /// Envoy's CPU time per request, microseconds.
    pub(crate) cpu_us: f64,
    /// The share of the time that Envoy ran: near 1 where it, and nothing else, is the limit.
    pub(crate) busy: f64,
}

impl Rig {
    /// Starts upstream and Envoy, and puts them where they do not disturb each other.
    pub(crate) async fn start(connections: usize) -> Result<Self, String> {
        for module in [host_tests::envoy::module(), noop_module()] {
            if !module.is_file() {
                return Err(format!(
                    "no module at {}: make bench builds both",
                    module.display()
                ));
            }
        }
        let upstream = Upstream::bind((Ipv4Addr::LOCALHOST, 0).into(), 0)
            .await
            .map_err(|e| format!("upstream: {e}"))?;
        let envoy = Envoy::plain(&upstream)
            .concurrency(1)
            .log_level("warning")
            .options(|o| {
                let listeners: Vec<_> = Variant::ALL.map(listener).into();
                let cluster = config::cluster("upstream", &[upstream.addr()]);
                o.bootstrap.insert(
                    "static_resources".into(),
                    json!({"listeners": listeners, "clusters": [cluster]}),
                );
            })
            .try_start()
            .await?;
        if machine::cores() > 1 {
            machine::pin(envoy.pid(), 0)?;
            machine::pin(std::process::id(), 1)?;
        }
        let addresses = addresses(&envoy).await?;
        let mut rng = crate::load::rng();
        let mut keys = || (0..REPLAYED_KEYS).map(|_| Key::random(&mut rng)).collect();
        let keys = BTreeMap::from([
            (Variant::Replay, keys()),
            (Variant::ReplayBody, keys()),
            (Variant::ReplayFull, keys()),
        ]);
        Ok(Self {
            envoy,
            upstream,
            addresses,
            keys,
            connections,
        })
    }

    /// The load that belongs to a variant.
    fn load(&self, variant: Variant) -> Load {
        let keys = self.keys.get(&variant);
        Load {
            addr: self.addresses[variant.name()],
            template: Template::post(variant.path(), variant.body()),
            keys: keys.map_or(Keys::Fresh, |keys| Keys::Cycle(Arc::clone(keys))),
            expect: Expect {
                status: if variant.is_direct() { 200 } else { 201 },
                replayed: variant.is_replay(),
                length: (!variant.acts()).then_some(ANSWER),
            },
            connections: self.connections,
        }
    }

    /// Records what is replayed, and fills the table that is to be 40 % full with `filling`
    /// operations of that size.
    pub(crate) async fn prepare(&self, filling: usize) -> Result<(), String> {
        self.upstream.set_default(Instruction {
            body: Some("x".repeat(ANSWER).into_bytes()),
            ..Instruction::default()
        });
        let record = |variant: Variant, keys| Load {
            keys,
            expect: Expect {
                status: 201,
                replayed: false,
                length: Some(ANSWER),
            },
            ..self.load(variant)
        };
        let before = self.upstream.effects();
        let mut answered = 0;
        let fill = record(Variant::ReplayFull, Keys::Fresh);
        answered += fill.run(Until::Requests(filling)).await?.answered;
        for (variant, keys) in &self.keys {
            let once = record(*variant, Keys::Once(Arc::clone(keys)));
            answered += once.run(Until::Requests(keys.len())).await?.answered;
        }
        self.upstream.clear_default();
        self.check_effects("preparation", before, answered)
    }

    fn check_effects(&self, what: &str, before: u64, expected: u64) -> Result<(), String> {
        let effects = self.upstream.effects() - before;
        if effects == expected {
            return Ok(());
        }
        Err(format!(
            "{what}: {effects} effects where {expected} were expected"
        ))
    }

    /// The share of a core that Envoy takes while nothing is asked of it.
    pub(crate) async fn idle(&self, span: Duration) -> f64 {
        let pid = self.envoy.pid();
        let (start, cpu) = (Instant::now(), machine::cpu_ns(pid));
        tokio::time::sleep(span).await;
        Duration::from_nanos(machine::cpu_ns(pid) - cpu).as_secs_f64()
            / start.elapsed().as_secs_f64()
    }

    /// Runs a variant, and holds its answers against the upstream's effects.
    pub(crate) async fn slice(&self, variant: Variant, until: Until) -> Result<Slice, String> {
        let pid = self.envoy.pid();
        let effects = self.upstream.effects();
        let cpu = machine::cpu_ns(pid);
        let tally = self
            .load(variant)
            .run(until)
            .await
            .map_err(|why| format!("{}: {why}", variant.title()))?;
        let cpu = machine::cpu_ns(pid) - cpu;
        let expected = if variant.acts() { tally.answered } else { 0 };
        self.check_effects(variant.title(), effects, expected)?;
        if tally.reconnects > 0 {
            return Err(format!(
                "{}: Envoy closed {} connections, so connecting is measured too",
                variant.title(),
                tally.reconnects
            ));
        }
        Ok(Slice::of(&tally, cpu))
    }
}

impl Slice {
    #[allow(clippy::cast_precision_loss)] // Counts and nanoseconds of a few seconds.
    fn of(tally: &Tally, cpu_ns: u64) -> Self {
        Self {
            per_second: tally.per_second(),
            cpu_us: cpu_ns as f64 / 1000.0 / tally.answered.max(1) as f64,
            busy: cpu_ns as f64 / 1e9 / tally.seconds,
        }
    }
}

async fn addresses(envoy: &Envoy) -> Result<BTreeMap<&'static str, SocketAddr>, String> {
    let answer = envoy.admin().get("/listeners?format=json").await?;
    let all = answer.json();
    let mut found = BTreeMap::new();
    for variant in Variant::ALL {
        let port = all["listener_statuses"]
            .as_array()
            .and_then(|list| list.iter().find(|l| l["name"] == variant.name()))
            .and_then(|l| l["local_address"]["socket_address"]["port_value"].as_u64())
            .and_then(|port| u16::try_from(port).ok())
            .ok_or_else(|| format!("Envoy has no listener {}", variant.name()))?;
        found.insert(variant.name(), (Ipv4Addr::LOCALHOST, port).into());
    }
    Ok(found)
}

/// `x.y.z` from the admin endpoint.
pub(crate) async fn envoy_version(envoy: &Envoy) -> String {
    let Ok(answer) = envoy.admin().get("/server_info").await else {
        return "unknown".into();
    };
    // `<commit>/<version>/Clean/RELEASE/BoringSSL`
    let info = answer.json();
    let text = info["version"].as_str().unwrap_or_default();
    text.split('/').nth(1).unwrap_or("unknown").to_owned()
}
