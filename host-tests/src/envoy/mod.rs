//! One real Envoy per test.
//!
//! Ports are the kernel's choice (Envoy is told 0 and asked what it got), hot restart is off so that
//! nothing is shared between processes, and every wait is for a condition that the admin endpoint
//! states. The process is killed, by its own handle, when the value is dropped.

mod admin;
pub mod config;
mod files;

pub use admin::{Admin, Stats};
pub use config::Options;
pub use files::{crash_module, envoy_binary, module, workspace};

use crate::{check, client::Pool, upstream::Upstream};
use serde_json::{Value, json};
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

/// Long enough for V8 to compile the module on a loaded machine.
const START: Duration = Duration::from_secs(60);

/// How an Envoy is to be run.
#[derive(Clone, Debug)]
pub struct Builder {
    /// Its configuration.
    pub options: Options,
    concurrency: u32,
    log_level: String,
    env: Vec<(String, String)>,
    lds: bool,
}

/// A running Envoy.
#[derive(Debug)]
pub struct Envoy {
    child: Child,
    addr: SocketAddr,
    admin: Admin,
    dir: TempDir,
    options: Options,
    version: u64,
    lds: bool,
}

/// What `envoy --mode validate` said.
#[derive(Clone, Debug)]
pub struct Validation {
    /// Whether the configuration was accepted.
    pub ok: bool,
    /// Everything that it printed.
    pub output: String,
}

impl Envoy {
    /// Plain proxying to `upstream`, without the filter.
    #[must_use]
    pub fn plain(upstream: &Upstream) -> Builder {
        Builder::new(vec![upstream.addr()], None)
    }

    /// With the filter in front of `upstream`.
    #[must_use]
    pub fn with_filter(upstream: &Upstream, filter: Value) -> Builder {
        Builder::new(vec![upstream.addr()], Some(filter))
    }

    /// Where clients connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The admin endpoint.
    #[must_use]
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// A pooled client for it.
    #[must_use]
    pub fn pool(&self) -> Pool {
        Pool::new(self.addr)
    }

    /// Counters and gauges now.
    pub async fn stats(&self) -> Stats {
        self.admin.stats().await
    }

    /// What it has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        read(&log_path(self.dir.path()))
    }

    /// How many workers have had connections on the data listener.
    pub async fn busy_workers(&self) -> usize {
        // Admin has its own listener, and the name of the data listener's address is the one it was
        // configured with: port 0.
        self.stats()
            .await
            .0
            .iter()
            .filter(|(name, count)| {
                name.starts_with("listener.127.0.0.1_0.worker_")
                    && name.ends_with(".downstream_cx_total")
                    && **count > 0
            })
            .count()
    }

    /// How many VMs have trapped so far. Envoy counts a reload only when the next stream comes to that
    /// worker, so the log is asked: it has a line for each trap at once.
    #[must_use]
    pub fn vm_traps(&self) -> usize {
        traps(&self.log())
    }

    /// Access log lines so far.
    ///
    /// # Panics
    /// Where a line is not JSON.
    #[must_use]
    pub fn access_log(&self) -> Vec<Value> {
        let text = read(&access_path(self.dir.path()));
        // A line that is still being written has no end yet.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| serde_json::from_str(line).expect("a JSON access log line"))
            .collect()
    }

    /// Waits until the access log has `n` lines or more; gives all of them.
    pub async fn access_log_lines(&self, n: usize) -> Vec<Value> {
        check::until(&format!("{n} access log lines"), || async {
            let lines = self.access_log();
            (lines.len() >= n).then_some(lines)
        })
        .await
    }

    /// The process id.
    ///
    /// # Panics
    /// Where it has ended.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id().expect("Envoy runs")
    }

    /// `kill -9`, and waits for the end.
    ///
    /// # Panics
    /// Where the process cannot be reaped.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("Envoy can be killed");
    }

    /// SIGTERM, and waits for the end.
    ///
    /// # Panics
    /// Where it does not end within 30 s.
    pub async fn terminate(&mut self) -> ExitStatus {
        let raw = i32::try_from(self.pid()).expect("a process id");
        let pid = rustix::process::Pid::from_raw(raw).expect("a process id");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("SIGTERM");
        timeout(Duration::from_secs(30), self.child.wait())
            .await
            .expect("Envoy ends within 30 s of SIGTERM")
            .expect("Envoy can be reaped")
    }

    /// Begins draining the listeners as a load balancer's pre-stop hook does.
    ///
    /// # Panics
    /// Where the admin endpoint refuses.
    pub async fn drain(&self) {
        let answer = self.admin.post("/drain_listeners?graceful").await;
        assert_eq!(answer.map(|a| a.status), Ok(200));
    }

    /// Puts another filter configuration live through the listener file.
    ///
    /// # Errors
    /// With Envoy's log since then, where the listener manager rejected it.
    ///
    /// # Panics
    /// Where the Envoy was not started with [`Builder::lds`].
    pub async fn reload(&mut self, filter: Value) -> Result<(), String> {
        self.options.filter = Some(filter);
        self.reload_listener().await
    }

    /// Writes the listener from [`Envoy::options_mut`] and waits until Envoy has taken or rejected it.
    ///
    /// # Errors
    /// With Envoy's log since then, where the listener manager rejected it.
    ///
    /// # Panics
    /// Where the Envoy was not started with [`Builder::lds`].
    pub async fn reload_listener(&mut self) -> Result<(), String> {
        assert!(self.lds, "Builder::lds() makes the listener reloadable");
        const TAKEN: &str = "listener_manager.lds.update_success";
        const REJECTED: &str = "listener_manager.lds.update_rejected";
        let before = self.stats().await;
        let logged = self.log().len();
        self.version += 1;
        write_listener(&self.options, self.dir.path(), self.version);
        let accepted = check::until("the listener update", || async {
            let now = self.stats().await;
            if now.get(REJECTED) > before.get(REJECTED) {
                return Some(false);
            }
            let done = now.get(TAKEN) > before.get(TAKEN)
                && now.get("listener_manager.total_listeners_warming") == 0;
            done.then_some(true)
        })
        .await;
        if accepted {
            return Ok(());
        }
        Err(self.log().get(logged..).unwrap_or_default().to_owned())
    }

    /// The options that the next [`Envoy::reload_listener`] uses.
    pub fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }
}

/// Waits until the Envoy that writes its admin address to `file` says that it is ready.
///
/// # Errors
/// Where the process ends, or is not ready after a minute.
pub async fn ready(child: &mut Child, file: &Path) -> Result<Admin, String> {
    let deadline = Instant::now() + START;
    while Instant::now() < deadline {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("Envoy ended at start ({status})"));
        }
        if let Ok(addr) = read(file).trim().parse() {
            let admin = Admin::new(addr);
            if admin.get("/ready").await.is_ok_and(|a| a.status == 200) {
                return Ok(admin);
            }
        }
        sleep(Duration::from_millis(10)).await;
    }
    Err("Envoy is not ready after a minute".into())
}

impl Builder {
    fn new(hosts: Vec<SocketAddr>, filter: Option<Value>) -> Self {
        Self {
            options: Options::new(hosts, filter),
            concurrency: 2,
            log_level: "info".into(),
            env: Vec::new(),
            lds: false,
        }
    }

    /// Changes any of the options.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// Worker threads (default 2).
    #[must_use]
    pub fn concurrency(mut self, workers: u32) -> Self {
        self.concurrency = workers;
        self
    }

    /// Envoy's log level (default `info`).
    #[must_use]
    pub fn log_level(mut self, level: &str) -> Self {
        level.clone_into(&mut self.log_level);
        self
    }

    /// Sets a variable in Envoy's environment, and lets the module read it.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.options.host_env_keys.push(name.into());
        self.env.push((name.into(), value.into()));
        self
    }

    /// Takes the listener from a file, so that [`Envoy::reload`] works.
    #[must_use]
    pub fn lds(mut self) -> Self {
        self.lds = true;
        self
    }

    fn command(&self, dir: &Path) -> Command {
        let lds = lds_path(dir);
        if self.lds {
            write_listener(&self.options, dir, 0);
        }
        let bootstrap = self
            .options
            .bootstrap(&access_path(dir), self.lds.then_some(lds.as_path()));
        let file = dir.join("bootstrap.json");
        fs::write(&file, bootstrap.to_string()).expect("the bootstrap can be written");
        let mut command = Command::new(envoy_binary());
        command
            .arg("--config-path")
            .arg(file)
            .args(["--disable-hot-restart", "--log-level", &self.log_level])
            // At `info` it lists every extension that it was built with.
            .args(["--component-log-level", "main:warning"])
            .args(["--concurrency", &self.concurrency.to_string()])
            .args(["--file-flush-interval-msec", "20"])
            .arg("--admin-address-path")
            .arg(admin_path(dir))
            .envs(self.env.iter().cloned())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Starts it, and waits until it is ready.
    ///
    /// # Errors
    /// With its log, where it does not start.
    ///
    /// # Panics
    /// Where the machine has no room for its files.
    pub async fn try_start(self) -> Result<Envoy, String> {
        let dir = TempDir::with_prefix("idempo-envoy-").expect("a temporary directory");
        let log = fs::File::create(log_path(dir.path())).expect("a log file");
        let mut child = self
            .command(dir.path())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|e| format!("Envoy cannot be started: {e}"))?;
        let admin = ready(&mut child, &admin_path(dir.path()))
            .await
            .map_err(|why| format!("{why}:\n{}", read(&log_path(dir.path()))))?;
        let Some(addr) = admin.listener(config::LISTENER).await else {
            // A listener from a file that is rejected does not keep Envoy from being ready.
            return Err(format!(
                "no data listener:\n{}",
                read(&log_path(dir.path()))
            ));
        };
        Ok(Envoy {
            child,
            addr,
            admin,
            dir,
            options: self.options,
            version: 0,
            lds: self.lds,
        })
    }

    /// Starts it, and waits until it is ready.
    ///
    /// # Panics
    /// With its log, where it does not start.
    pub async fn start(self) -> Envoy {
        self.try_start().await.unwrap_or_else(|why| panic!("{why}"))
    }

    /// `envoy --mode validate` on this configuration.
    ///
    /// # Panics
    /// Where Envoy cannot be run at all.
    pub async fn validate(self) -> Validation {
        let dir = TempDir::with_prefix("idempo-envoy-").expect("a temporary directory");
        let done = self
            .command(dir.path())
            .args(["--mode", "validate"])
            .output()
            .await
            .expect("Envoy runs");
        Validation {
            ok: done.status.success(),
            output: [done.stdout, done.stderr]
                .iter()
                .map(|bytes| String::from_utf8_lossy(bytes))
                .collect(),
        }
    }
}

/// When a test fails, what Envoy logged is the first thing wanted.
impl Drop for Envoy {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            let from = lines.len().saturating_sub(60);
            eprintln!(
                "--- the end of Envoy's log ---\n{}",
                lines[from..].join("\n")
            );
        }
    }
}

/// A loopback port that refuses connections for as long as this lives: bound, never listening.
#[derive(Debug)]
pub struct RefusedPort {
    addr: SocketAddr,
    _socket: tokio::net::TcpSocket,
}

impl RefusedPort {
    /// Takes one.
    ///
    /// # Panics
    /// Where no port is free.
    #[must_use]
    pub fn take() -> Self {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket
            .bind(([127, 0, 0, 1], 0).into())
            .expect("a loopback port");
        Self {
            addr: socket.local_addr().expect("a bound socket"),
            _socket: socket,
        }
    }

    /// Its address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

/// A retry policy as careless meshes have it: for tests of what the filter contains.
#[must_use]
pub fn eager_retries() -> Value {
    json!({
        "retry_on": "5xx,reset,connect-failure,refused-stream,retriable-status-codes",
        "retriable_status_codes": [409, 503],
        "num_retries": 3,
        "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.01s"},
    })
}

fn log_path(dir: &Path) -> PathBuf {
    dir.join("envoy.log")
}

fn access_path(dir: &Path) -> PathBuf {
    dir.join("access.log")
}

fn admin_path(dir: &Path) -> PathBuf {
    dir.join("admin-address")
}

fn lds_path(dir: &Path) -> PathBuf {
    dir.join("lds.json")
}

/// Envoy watches for a move into place, so a half-written file is never read.
fn write_listener(options: &Options, dir: &Path, version: u64) {
    let listener = options.listener(&access_path(dir));
    let draft = dir.join("lds.json.draft");
    let answer = config::discovery(&listener, version);
    fs::write(&draft, answer.to_string()).expect("the listener can be written");
    fs::rename(draft, lds_path(dir)).expect("the listener can be moved into place");
}

fn traps(log: &str) -> usize {
    log.lines()
        .filter(|line| line.contains("[error][wasm]") && line.contains(" failed: "))
        .count()
}

fn read(path: &Path) -> String {
    fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::traps;

    #[test]
    fn a_trap_in_the_log_is_counted() {
        let log = "[2026-11-30 21:35:29.277][12805][error][wasm] [source/extensions/common/wasm/wasm_vm.cc:38] \
             Function: proxy_on_request_headers failed: Uncaught RuntimeError: unreachable\n\
             Proxy-Wasm plugin in-VM backtrace:\n\
             [2026-11-30 21:35:30.327][12765][info][wasm] [x] wasm log idempo: nothing failed: here\n";
        assert_eq!(traps(log), 1);
    }
}
