//! One Envoy with a listener for each variant, and the upstream behind it.
//!
//! Everything that is compared runs in one process on one worker, so that what differs between two
//! listeners is their filter chain and nothing else. Each use of idempo has a `vm_id`, and with it a
//! table, of its own.

use crate::{
    load::{Expect, Key, Keys, Load, Tally, Template, Until},
    machine,
    variant::{self, ANSWER, REPLAYED_KEYS, Variant, inner_listener, listener},
};
use host_tests::{
    envoy::{Envoy, config},
    upstream::{Instruction, Upstream},
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

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
        for module in [host_tests::envoy::module(), variant::noop_module()] {
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
            .loopback()
            .options(|o| {
                let mut listeners: Vec<_> = Variant::ALL.map(listener).into();
                listeners.push(inner_listener());
                let cluster = config::cluster("upstream", &[upstream.addr()]);
                let loopback = config::loopback_cluster(o);
                o.bootstrap.insert(
                    "static_resources".into(),
                    json!({"listeners": listeners, "clusters": [cluster, loopback]}),
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
            template: Template::of(variant.path(), variant.media_type(), variant.body()),
            keys: keys.map_or(Keys::Fresh, |keys| Keys::Cycle(Arc::clone(keys))),
            expect: Expect {
                status: if variant.is_direct() { 200 } else { 201 },
                replayed: variant.is_replay(),
                length: (!variant.acts()).then_some(ANSWER),
            },
            connections: self.connections,
        }
    }

    /// Waits until detached attempts have a way to go: it is looked for once requests come.
    async fn open_the_loopback(&self) -> Result<(), String> {
        let load = self.load(Variant::FirstDetached);
        for _ in 0..100 {
            load.run(Until::Requests(8)).await?;
            let stats = self.envoy.stats().await;
            if stats.idempo("idempo_loopback_ready", &[]) > 0 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err("the loopback listener does not answer".into())
    }

    /// Requests that came through the loopback listener and were answered.
    async fn inner(&self) -> u64 {
        let stats = self.envoy.stats().await;
        stats.get("http.inner.downstream_rq_2xx")
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
        self.check_effects("preparation", before, answered)?;
        self.open_the_loopback().await
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
        let (slice, _) = self.timed(variant, until, self.connections).await?;
        Ok(slice)
    }

    /// The same over so many connections, with what each request took.
    pub(crate) async fn timed(
        &self,
        variant: Variant,
        until: Until,
        connections: usize,
    ) -> Result<(Slice, Vec<u32>), String> {
        let pid = self.envoy.pid();
        let effects = self.upstream.effects();
        let inner = self.inner().await;
        let load = Load {
            connections,
            ..self.load(variant)
        };
        let cpu = machine::cpu_ns(pid);
        let tally = load
            .run(until)
            .await
            .map_err(|why| format!("{}: {why}", variant.title()))?;
        let cpu = machine::cpu_ns(pid) - cpu;
        let expected = if variant.acts() { tally.answered } else { 0 };
        self.check_effects(variant.title(), effects, expected)?;
        let inner = self.inner().await - inner;
        if variant == Variant::FirstDetached && inner < tally.answered {
            return Err(format!(
                "{inner} of {} attempts came through the loopback",
                tally.answered
            ));
        }
        if tally.reconnects > 0 {
            return Err(format!(
                "{}: Envoy closed {} connections, so connecting is measured too",
                variant.title(),
                tally.reconnects
            ));
        }
        Ok((Slice::of(&tally, cpu), tally.latencies_us))
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
