//! One Envoy with a listener for each lane, one Redis with what speaks HTTP for it, perhaps an nginx,
//! and the upstream.
//!
//! What proxies has core 0 for itself, and everything else shares core 1. The CPU time of each process
//! is taken around every slice, so that a reader sees what the limit was.

use super::{
    lane::{Fronts, Lane, Proxy, resources},
    nginx::Nginx,
    stock,
};
use crate::{
    load::{BODY, Expect, Key, Keys, Load, Tally, Template, Until},
    machine,
    variant::{ANSWER, REPLAYED_KEYS},
};
use host_tests::{
    envoy::{Envoy, config},
    store::{
        bridge,
        front::Front,
        redis::{Server, Way},
        wire::Resp,
    },
    upstream::{Instruction, Upstream},
};
use serde_json::json;
use std::{
    cell::RefCell,
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

/// The running whole. What is asked comes first, so that it ends before what it asks.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) envoy: Envoy,
    pub(crate) nginx: Option<Nginx>,
    pub(crate) upstream: Upstream,
    pub(crate) fronts: Fronts,
    pub(crate) redis: Server,
    admin: RefCell<Resp>,
    addresses: BTreeMap<Lane, SocketAddr>,
    keys: BTreeMap<Lane, Arc<[Key]>>,
}

/// Shares of a core.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Busy {
    /// Envoy, or nginx.
    pub(crate) proxy: f64,
    pub(crate) redis: f64,
    pub(crate) webdis: f64,
    /// Load generator, upstream and REST bridge.
    pub(crate) bench: f64,
}

/// One slice of load on one lane.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slice {
    pub(crate) per_second: f64,
    /// Microseconds of CPU time per request: of the proxy, of Redis, and within Redis of scripts.
    pub(crate) proxy_us: f64,
    pub(crate) redis_us: f64,
    pub(crate) script_us: f64,
    /// Store calls per request: scripts, or nginx's commands.
    pub(crate) calls: f64,
    pub(crate) busy: Busy,
}

/// Counters around a slice.
struct Before {
    effects: u64,
    inner: u64,
    cpu: [u64; 4],
    calls: u64,
    script_us: u64,
}

impl Rig {
    /// Starts everything.
    pub(crate) async fn start() -> Result<Self, String> {
        let module = host_tests::envoy::module();
        if !module.is_file() {
            return Err(format!("no module at {}: make builds it", module.display()));
        }
        let redis = Server::start(&[]);
        let fronts = Fronts {
            webdis: Front::start(&redis, Way::Webdis),
            rest: Front::start(&redis, Way::Rest),
            resp: Front::start(&redis, Way::Resp),
        };
        let upstream = Upstream::bind((Ipv4Addr::LOCALHOST, 0).into(), 0)
            .await
            .map_err(|e| format!("upstream: {e}"))?;
        let nginx = Nginx::start(upstream.addr(), &redis.socket())?;
        let builder = Envoy::plain(&upstream)
            .concurrency(1)
            .log_level("warning")
            .loopback();
        let store = fronts.rest.store(&json!({}));
        let token = store["redis"]["token"]["env"].as_str();
        let envoy = builder
            .env(token.unwrap_or_default(), bridge::TOKEN)
            .options(|o| {
                let mut all = vec![
                    config::cluster("upstream", &[upstream.addr()]),
                    config::loopback_cluster(o),
                ];
                let (listeners, stores) = resources(&fronts, &redis);
                all.extend(stores);
                o.bootstrap.insert(
                    "static_resources".into(),
                    json!({"listeners": listeners, "clusters": all}),
                );
            })
            .try_start()
            .await?;
        let mut addresses = BTreeMap::new();
        for lane in Lane::ALL {
            let addr = match lane.proxy() {
                Proxy::Envoy => Some(
                    envoy
                        .admin()
                        .listener(lane.name())
                        .await
                        .ok_or_else(|| format!("Envoy has no listener {}", lane.name()))?,
                ),
                Proxy::Nginx => nginx.as_ref().map(Nginx::addr),
            };
            addresses.extend(addr.map(|addr| (lane, addr)));
        }
        let mut rng = crate::load::rng();
        let keys = Lane::ALL.into_iter().filter(|lane| lane.is_replay());
        let keys = keys.map(|lane| {
            let keys = (0..REPLAYED_KEYS).map(|_| Key::random(&mut rng)).collect();
            (lane, keys)
        });
        let rig = Self {
            admin: RefCell::new(redis.admin()),
            keys: keys.collect(),
            envoy,
            nginx,
            upstream,
            fronts,
            redis,
            addresses,
        };
        rig.pin()?;
        Ok(rig)
    }

    fn pin(&self) -> Result<(), String> {
        if machine::cores() < 2 {
            return Ok(());
        }
        for pid in [Some(self.envoy.pid()), self.nginx.as_ref().map(Nginx::pid)] {
            pid.map_or(Ok(()), |pid| machine::pin(pid, 0))?;
        }
        let others = [Some(self.redis.pid()), self.fronts.webdis.pid()];
        for pid in others.into_iter().chain([Some(std::process::id())]) {
            pid.map_or(Ok(()), |pid| machine::pin(pid, 1))?;
        }
        Ok(())
    }

    /// Whether that lane can be run here.
    pub(crate) fn has(&self, lane: Lane) -> bool {
        self.addresses.contains_key(&lane)
    }

    fn lanes(&self) -> impl Iterator<Item = Lane> {
        Lane::ALL.into_iter().filter(|lane| self.has(*lane))
    }

    fn load(&self, lane: Lane, connections: usize) -> Result<Load, String> {
        let addr = self.addresses.get(&lane);
        let keys = self.keys.get(&lane);
        Ok(Load {
            addr: *addr.ok_or_else(|| format!("{} is not there", lane.title()))?,
            template: Template::post(lane.path(), BODY),
            keys: keys.map_or(Keys::Fresh, |keys| Keys::Cycle(Arc::clone(keys))),
            expect: lane.expect(),
            connections,
        })
    }

    /// Waits until every filter has its store and its loopback, records what is replayed, and replays
    /// each key once, so that it is in the cache.
    pub(crate) async fn prepare(&self) -> Result<(), String> {
        for lane in self.lanes().filter(|lane| !lane.is_replay()) {
            self.reach(lane).await?;
        }
        self.upstream.set_default(Instruction {
            body: Some("x".repeat(ANSWER).into_bytes()),
            ..Instruction::default()
        });
        let before = self.upstream.effects();
        let mut recorded = 0;
        for (lane, keys) in self.keys.iter().filter(|(lane, _)| self.has(**lane)) {
            let replay = Load {
                keys: Keys::Once(Arc::clone(keys)),
                ..self.load(*lane, 16)?
            };
            let record = Load {
                expect: Expect {
                    replayed: false,
                    ..replay.expect
                },
                ..replay.clone()
            };
            recorded += record.run(Until::Requests(keys.len())).await?.answered;
            replay.run(Until::Requests(keys.len())).await?;
        }
        self.upstream.clear_default();
        let effects = self.upstream.effects() - before;
        if effects != recorded {
            return Err(format!(
                "preparation: {effects} effects for {recorded} keys"
            ));
        }
        Ok(())
    }

    /// Asks until there is an answer as it is to be: a filter that has just started does not know its
    /// store yet, nor its loopback.
    async fn reach(&self, lane: Lane) -> Result<(), String> {
        let load = self.load(lane, 1)?;
        let mut why = "the loopback listener does not answer".to_owned();
        for _ in 0..150 {
            let inner = self.inner().await;
            match load.run(Until::Requests(1)).await {
                Ok(_) if lane != Lane::Detached || self.inner().await > inner => return Ok(()),
                Ok(_) => {}
                Err(e) => why = e,
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(format!("{}: {why}", lane.title()))
    }

    /// Requests that came through the loopback listener and were answered.
    async fn inner(&self) -> u64 {
        let stats = self.envoy.stats().await;
        stats.get("http.inner.downstream_rq_2xx")
    }

    /// What Redis says of itself.
    pub(crate) fn info(&self, section: &str) -> String {
        self.admin.borrow_mut().command(&["INFO", section]).text()
    }

    fn proxy_pid(&self, lane: Lane) -> u32 {
        match (lane.proxy(), &self.nginx) {
            (Proxy::Nginx, Some(nginx)) => nginx.pid(),
            _ => self.envoy.pid(),
        }
    }

    fn cpu(&self, lane: Lane) -> [u64; 4] {
        [
            machine::cpu_ns(self.proxy_pid(lane)),
            machine::cpu_ns(self.redis.pid()),
            self.fronts.webdis.pid().map_or(0, machine::cpu_ns),
            machine::cpu_ns(std::process::id()),
        ]
    }

    async fn look(&self, lane: Lane) -> Before {
        let info = self.info("commandstats");
        let scripts = ["eval", "evalsha"];
        let commands = match lane.proxy() {
            Proxy::Envoy => scripts.as_slice(),
            Proxy::Nginx => Nginx::commands(lane),
        };
        let sum = |names: &[&str]| {
            let each = names.iter().map(|name| stock::command(&info, name));
            each.fold((0, 0), |(n, us), one| (n + one.0, us + one.1))
        };
        Before {
            effects: self.upstream.effects(),
            inner: self.inner().await,
            calls: sum(commands).0,
            script_us: sum(&scripts).1,
            cpu: self.cpu(lane),
        }
    }

    /// Runs a lane, and holds its answers against the upstream's effects. With it comes what each
    /// request took, microseconds.
    pub(crate) async fn slice(
        &self,
        lane: Lane,
        span: Duration,
        connections: usize,
    ) -> Result<(Slice, Vec<u32>), String> {
        let load = self.load(lane, connections)?;
        let before = self.look(lane).await;
        let tally = load.run(Until::Elapsed(span)).await;
        let cpu = self.cpu(lane);
        let tally = tally.map_err(|why| format!("{}: {why}", lane.title()))?;
        let after = Before {
            cpu,
            ..self.look(lane).await
        };
        let expected = if lane.is_replay() { 0 } else { tally.answered };
        let effects = after.effects - before.effects;
        if effects != expected {
            return Err(format!(
                "{}: {effects} effects where {expected} were expected",
                lane.title()
            ));
        }
        if lane == Lane::Detached && after.inner - before.inner < tally.answered {
            return Err(format!(
                "{} of {} attempts came through the loopback",
                after.inner - before.inner,
                tally.answered
            ));
        }
        if tally.reconnects > 0 {
            return Err(format!(
                "{}: {} connections were closed, so connecting is measured too",
                lane.title(),
                tally.reconnects
            ));
        }
        Ok((Slice::of(&tally, &before, &after), tally.latencies_us))
    }

    /// Shares of a core while nothing is asked.
    pub(crate) async fn idle(&self, span: Duration) -> Busy {
        let (start, before) = (Instant::now(), self.cpu(Lane::Plain));
        tokio::time::sleep(span).await;
        Busy::of(
            &before,
            &self.cpu(Lane::Plain),
            start.elapsed().as_secs_f64(),
        )
    }

    /// Store calls so far by what they took: upper end of each span in microseconds, and how many.
    pub(crate) async fn store_times(&self) -> Result<Vec<(f64, u64)>, String> {
        let path = "/stats?filter=idempo_store_rtt_us&format=json&histogram_buckets=detailed";
        let answer = self.envoy.admin().get(path).await?.json();
        let all = &answer["stats"][0]["histograms"]["details"];
        let mut found = BTreeMap::new();
        for bucket in all
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|one| one["totals"].as_array())
            .flatten()
        {
            let part = |name: &str| bucket[name].as_f64().unwrap_or(0.0);
            let middle = part("lower_bound") + part("width") / 2.0;
            let count = bucket["count"].as_u64().unwrap_or(0);
            *found.entry(middle.to_bits()).or_insert(0) += count;
        }
        // Bits of numbers that are not negative sort as the numbers do.
        Ok(found
            .into_iter()
            .map(|(bits, n)| (f64::from_bits(bits), n))
            .collect())
    }

    /// Waits until what earlier slices left in Redis is over, or for as long as it is meant to stay.
    pub(crate) async fn settle(&self, stored: u64) {
        let end = Instant::now() + Duration::from_secs(2 * super::lane::PASSING_S);
        while self.records() > stored && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Keys in Redis.
    pub(crate) fn records(&self) -> u64 {
        let number = self.admin.borrow_mut().command(&["DBSIZE"]).number();
        u64::try_from(number).unwrap_or(0)
    }
}

impl Busy {
    #[allow(clippy::cast_precision_loss)] // Nanoseconds of a few seconds.
    fn of(before: &[u64; 4], after: &[u64; 4], seconds: f64) -> Self {
        let share = |n: usize| after[n].saturating_sub(before[n]) as f64 / 1e9 / seconds;
        Self {
            proxy: share(0),
            redis: share(1),
            webdis: share(2),
            bench: share(3),
        }
    }
}

impl Slice {
    #[allow(clippy::cast_precision_loss)] // Counts of a few seconds.
    fn of(tally: &Tally, before: &Before, after: &Before) -> Self {
        let busy = Busy::of(&before.cpu, &after.cpu, tally.seconds);
        let each = |n: f64| n / tally.answered.max(1) as f64;
        Self {
            per_second: tally.per_second(),
            proxy_us: each(busy.proxy * tally.seconds * 1e6),
            redis_us: each(busy.redis * tally.seconds * 1e6),
            script_us: each(after.script_us.saturating_sub(before.script_us) as f64),
            calls: each(after.calls.saturating_sub(before.calls) as f64),
            busy,
        }
    }
}
