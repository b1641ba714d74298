//! An Envoy process: started from a configuration file, waited for, asked, ended.

use super::{
    admin::{Admin, Stats},
    config::LISTENER,
    files::envoy_binary,
};
use crate::{check, client::Pool};
use serde_json::Value;
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

/// The files of one Envoy; gone when dropped.
#[derive(Debug)]
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(TempDir::with_prefix("idempo-envoy-").expect("a temporary directory"))
    }

    /// Where the file of that name is.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path("envoy.log")
    }

    pub(crate) fn access_log(&self) -> PathBuf {
        self.path("access.log")
    }

    pub(crate) fn loopback_access_log(&self) -> PathBuf {
        self.path("loopback-access.log")
    }

    fn admin(&self) -> PathBuf {
        self.path("admin-address")
    }

    /// Envoy on that configuration, with what every Envoy of a test is started with.
    pub(crate) fn command(&self, configuration: &str, concurrency: u32) -> Command {
        let file = self.path("bootstrap.yaml");
        fs::write(&file, configuration).expect("room for the configuration");
        let mut command = Command::new(envoy_binary());
        command
            .arg("--config-path")
            .arg(file)
            .args(["--disable-hot-restart", "--concurrency"])
            .arg(concurrency.to_string())
            // At `info` it lists every extension that it was built with.
            .args(["--component-log-level", "main:warning"])
            .args(["--file-flush-interval-msec", "20"])
            .arg("--admin-address-path")
            .arg(self.admin())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true);
        command
    }
}

/// A running Envoy, whatever its configuration.
#[derive(Debug)]
pub struct Process {
    child: Child,
    addr: SocketAddr,
    admin: Admin,
    files: Files,
}

impl Process {
    /// Runs the command, and waits until Envoy is ready and has the data listener.
    ///
    /// # Errors
    /// With its log, where it does not start.
    pub(crate) async fn start(files: Files, mut command: Command) -> Result<Self, String> {
        let log = fs::File::create(files.log()).expect("a log file");
        let mut child = command
            .stderr(log)
            .spawn()
            .map_err(|e| format!("Envoy cannot be started: {e}"))?;
        let logged = |why: String| format!("{why}:\n{}", read(&files.log()));
        let admin = ready(&mut child, &files.admin()).await.map_err(logged)?;
        // A listener from a file that is rejected does not keep Envoy from being ready.
        let addr = admin
            .listener(LISTENER)
            .await
            .ok_or_else(|| logged("no data listener".into()))?;
        Ok(Self {
            child,
            addr,
            admin,
            files,
        })
    }

    pub(crate) fn files(&self) -> &Files {
        &self.files
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
        read(&self.files.log())
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
        lines(&self.files.access_log())
    }

    /// Access log lines of the loopback so far.
    ///
    /// # Panics
    /// Where a line is not JSON.
    #[must_use]
    pub fn loopback_access_log(&self) -> Vec<Value> {
        lines(&self.files.loopback_access_log())
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

    /// The same, where it runs.
    #[must_use]
    pub fn try_pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Octets that it has allocated now, by its own account.
    ///
    /// # Panics
    /// Where the admin endpoint does not say so.
    pub async fn allocated(&self) -> u64 {
        let answer = self.admin.get("/memory").await.expect("an answer");
        let allocated = answer.json()["allocated"].as_str().map(str::parse);
        allocated.expect("a figure").expect("a number")
    }

    /// Octets of memory that it takes now, by the kernel's account.
    ///
    /// # Panics
    /// Where it has ended.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.memory_of("VmRSS:")
    }

    /// The most that [`Process::resident`] has been since the start, or since
    /// [`Process::forget_peak`].
    ///
    /// # Panics
    /// Where it has ended.
    #[must_use]
    pub fn peak_resident(&self) -> u64 {
        self.memory_of("VmHWM:")
    }

    /// Lets [`Process::peak_resident`] begin anew.
    ///
    /// # Panics
    /// Where it has ended.
    pub fn forget_peak(&self) {
        // proc_pid_clear_refs(5): 5 resets the peak resident set size.
        fs::write(format!("/proc/{}/clear_refs", self.pid()), "5").expect("Envoy runs");
    }

    fn memory_of(&self, line: &str) -> u64 {
        let status = read(Path::new(&format!("/proc/{}/status", self.pid())));
        let kib = status.lines().find_map(|l| {
            let figure = l.strip_prefix(line)?.trim().strip_suffix(" kB")?;
            figure.parse::<u64>().ok()
        });
        kib.expect("Envoy runs") << 10
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
}

/// When a test fails, what Envoy logged is the first thing wanted.
impl Drop for Process {
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

/// The whole lines of a JSON log.
fn lines(file: &Path) -> Vec<Value> {
    let text = read(file);
    // A line that is still being written has no end yet.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON access log line"))
        .collect()
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
