//! A Redis Cluster of three masters, and Envoy's own Redis proxy before it, as production would have
//! it: filter, Webdis, `redis_proxy`, the master of the shard.
//!
//! The masters write an append-only file and evict nothing. There are no replicas: what is shown here is
//! what one dead master does to the others' shards.

use super::redis::{Running, within};
use super::wire::{Resp, Said};
use crate::envoy::Options;
use idempo_core::ids::OperationId;
use idempo_core::store::remote::shard_of;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Masters, and the hash slots that there are.
const MASTERS: u16 = 3;
const SLOTS: u16 = 16_384;

/// The listener of Envoy's Redis proxy.
pub const PROXY: &str = "redis_proxy";

/// The cluster behind it.
const REDIS: &str = "redis_cluster";

#[derive(Debug)]
struct Master {
    process: Running,
    addr: SocketAddr,
    bus: u16,
    dir: TempDir,
    slots: std::ops::RangeInclusive<u16>,
}

/// Three masters that know each other.
#[derive(Debug)]
pub struct Cluster(Vec<Master>);

impl Cluster {
    /// Starts one, and waits until it is whole.
    ///
    /// # Panics
    /// Where it does not start; `make stores` installs `redis-server`.
    #[must_use]
    pub fn start() -> Self {
        let masters: Vec<_> = (0..MASTERS).map(Master::start).collect();
        let said = |master: &Master, words: &[String]| {
            let said = master.admin().command(words);
            assert_eq!(said, Said::Status("OK".into()), "{words:?}");
        };
        let words = |text: String| -> Vec<String> { text.split(' ').map(Into::into).collect() };
        let first = masters.first().expect("a master");
        for (nth, master) in masters.iter().enumerate() {
            let (from, to) = (master.slots.start(), master.slots.end());
            said(master, &words(format!("CLUSTER ADDSLOTSRANGE {from} {to}")));
            // Epochs that differ from the start spare the masters a vote.
            said(
                master,
                &words(format!("CLUSTER SET-CONFIG-EPOCH {}", nth + 1)),
            );
            let (port, bus) = (master.addr.port(), master.bus);
            if nth > 0 {
                said(
                    first,
                    &words(format!("CLUSTER MEET 127.0.0.1 {port} {bus}")),
                );
            }
        }
        for master in &masters {
            within("the cluster to be whole", || {
                let info = master.admin().command(&["CLUSTER", "INFO"]).text();
                let whole = |line: &&str| {
                    [
                        "cluster_state:ok",
                        "cluster_slots_ok:16384",
                        "cluster_known_nodes:3",
                    ]
                    .contains(line)
                };
                (info.lines().filter(whole).count() == 3).then_some(())
            });
        }
        Self(masters)
    }

    /// Which master has the shard of that operation.
    ///
    /// # Panics
    /// Where it is no operation's id.
    #[must_use]
    pub fn master_of(&self, operation: &str) -> usize {
        let operation = OperationId::from_hex(operation).expect("an operation id");
        let key = format!("{{idempo:{:02}}}:1:epoch", shard_of(&operation));
        let first = self.0.first().expect("a master");
        let slot = first
            .admin()
            .command(&["CLUSTER", "KEYSLOT", &key])
            .number();
        let slot = u16::try_from(slot).expect("a slot");
        let has = |master: &Master| master.slots.contains(&slot);
        self.0
            .iter()
            .position(has)
            .expect("every slot has a master")
    }

    /// Stops a master as a host stops that hangs: connections stay, and nobody answers.
    ///
    /// # Panics
    /// Where it has ended.
    pub fn stop(&self, master: usize) {
        self.signal(master, Signal::STOP);
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// Where it has ended.
    pub fn go_on(&self, master: usize) {
        self.signal(master, Signal::CONT);
    }

    fn signal(&self, master: usize, signal: Signal) {
        let id = self.0.get(master).expect("a master").process.0.id();
        let pid = Pid::from_raw(i32::try_from(id).expect("a process id"));
        kill_process(pid.expect("a process id"), signal).expect("it runs");
    }

    /// Kills a master, and starts it again from its append-only file.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn restart(&mut self, master: usize) {
        let master = self.0.get_mut(master).expect("a master");
        let _ = master.process.0.kill();
        let _ = master.process.0.wait();
        master.process = master.run();
        master.wait();
    }

    /// A connection to each master.
    pub fn admins(&self) -> impl Iterator<Item = Resp> {
        self.0.iter().map(Master::admin)
    }

    /// Adds Envoy's Redis proxy for it, at that Unix socket.
    pub fn add(&self, options: &mut Options, at: &Path) {
        let hosts: Vec<_> = self.0.iter().map(|m| m.addr).collect();
        options.listeners.push(json!({
            "name": PROXY,
            "address": {"pipe": {"path": at}},
            "filter_chains": [{"filters": [{
                "name": "envoy.filters.network.redis_proxy",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy",
                    "stat_prefix": "store",
                    "settings": {
                        // Below the filter's own 0.5 s: an error says more than silence, and what waits
                        // behind a dead master on the same connection waits no longer.
                        "op_timeout": "0.3s",
                        // A slot that has moved is asked for where it is now.
                        "enable_redirection": true,
                        // A replica knows less than its master: never for claims.
                        "read_policy": "MASTER",
                    },
                    "prefix_routes": {"catch_all_route": {"cluster": REDIS}},
                },
            }]}],
        }));
        let mut cluster = crate::envoy::config::cluster(REDIS, &hosts);
        cluster["connect_timeout"] = json!("0.25s");
        cluster["lb_policy"] = json!("CLUSTER_PROVIDED");
        cluster.as_object_mut().expect("an object").remove("type");
        cluster["cluster_type"] = json!({
            "name": "envoy.clusters.redis",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.clusters.redis.v3.RedisClusterConfig",
                "cluster_refresh_rate": "5s",
                "cluster_refresh_timeout": "0.5s",
                "redirect_refresh_interval": "1s",
                "redirect_refresh_threshold": 1,
            },
        });
        options.clusters.push(cluster);
    }
}

impl Master {
    /// On two ports that were free a moment ago: it can't be told to take any, and others must know it.
    fn start(nth: u16) -> Self {
        let each = SLOTS / MASTERS;
        let end = if nth + 1 == MASTERS {
            SLOTS
        } else {
            (nth + 1) * each
        };
        for _ in 0..10 {
            let held = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
            let [addr, bus] = held.each_ref().map(|l| l.local_addr().expect("an address"));
            drop(held);
            let dir = TempDir::with_prefix("idempo-cluster-").expect("a temporary directory");
            let mut master = Self {
                process: command(dir.path(), addr.port(), bus.port()),
                addr,
                bus: bus.port(),
                dir,
                slots: nth * each..=end - 1,
            };
            if master.wait() {
                return master;
            }
        }
        panic!("no ports for a master in ten attempts");
    }

    fn run(&self) -> Running {
        command(self.dir.path(), self.addr.port(), self.bus)
    }

    /// `false`: somebody was faster at its ports.
    fn wait(&mut self) -> bool {
        within("a master", || {
            if self.process.0.try_wait().expect("a child").is_some() {
                return Some(false);
            }
            let mut redis = Resp::tcp(self.addr).ok()?;
            (redis.command(&["PING"]) == Said::Status("PONG".into())).then_some(true)
        })
    }

    fn admin(&self) -> Resp {
        Resp::tcp(self.addr).expect("the master listens")
    }
}

fn command(dir: &Path, port: u16, bus: u16) -> Running {
    let child = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port"])
        .arg(port.to_string())
        .args(["--cluster-enabled", "yes", "--cluster-port"])
        .arg(bus.to_string())
        .args([
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
        ])
        .args(["--maxmemory-policy", "noeviction"])
        // What the others have is served whatever became of one: it is one shard's business alone.
        .args(["--cluster-require-full-coverage", "no"])
        .arg("--dir")
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is installed: `make stores`");
    Running(child)
}
