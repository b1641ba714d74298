//! A real `redis-server`, a real Webdis, and the engine over them.

use super::wire::{Http, Resp, Said};
use super::{Engine, bridge};
use idempo_core::store::redis::{Layout, Login, Redis, Script, Transport};
use idempo_core::store::remote::{
    Added, Answered, Batch, Credential, HttpAnswer, HttpRequest, Limits, Nonce, Swept, Understood,
};
use idempo_core::store::{Op, Reply};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{self, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What [`Way::Resp`] logs in with, on a server that asks for it.
pub const PASSWORD: &str = "a-password-of-the-tests";

/// A process that ends with the test.
#[derive(Debug)]
pub(super) struct Running(pub(super) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What an append-only file is told by, so that nothing that was acknowledged is lost.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// A Redis of its own: a Unix socket in a temporary directory. Nothing is on disk, unless it is
/// [`Server::durable`].
#[derive(Debug)]
pub struct Server {
    process: Running,
    dir: TempDir,
    arguments: Vec<String>,
}

impl Server {
    /// Starts one, with further arguments, and waits until it answers.
    ///
    /// # Panics
    /// Where it does not start; `make stores` installs it.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Self {
        let dir = TempDir::with_prefix("idempo-redis-").expect("a temporary directory");
        let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
        let server = Self {
            process: launch(&dir, &arguments),
            dir,
            arguments,
        };
        server.answers();
        server
    }

    /// Starts one that forgets nothing that it has acknowledged.
    ///
    /// # Panics
    /// As [`Server::start`].
    #[must_use]
    pub fn durable() -> Self {
        Self::start(&DURABLE)
    }

    /// Starts it again after [`Server::kill`], at the same place, with what it has on disk.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn revive(&mut self) {
        self.process = launch(&self.dir, &self.arguments);
        self.answers();
    }

    /// Removes what it has on disk: a volume that was not there when it came back.
    ///
    /// # Panics
    /// Where there is nothing to remove.
    pub fn lose_disk(&self) {
        fs::remove_dir_all(self.dir.path().join("appendonlydir")).expect("an append-only file");
    }

    /// SIGSTOP: it keeps its connections, and answers nothing.
    ///
    /// # Panics
    /// Where it has ended.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    ///
    /// # Panics
    /// Where it has ended.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let raw = i32::try_from(self.process.0.id()).expect("a process id");
        let pid = Pid::from_raw(raw).expect("a process id");
        kill_process(pid, signal).expect("Redis runs");
    }

    fn answers(&self) {
        within("Redis", || {
            let mut redis = Resp::connect(&self.socket()).ok()?;
            let said = redis.command(&["PING"]);
            let loads = matches!(&said, Said::Error(text) if text.starts_with("LOADING"));
            (matches!(said, Said::Status(_) | Said::Error(_)) && !loads).then_some(())
        });
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Kills it: a host that is gone.
    pub fn kill(&mut self) {
        let _ = self.process.0.kill();
        let _ = self.process.0.wait();
    }

    /// A connection for the test itself.
    ///
    /// # Panics
    /// Where there is none.
    #[must_use]
    pub fn admin(&self) -> Resp {
        Resp::connect(&self.socket()).expect("Redis listens")
    }
}

fn launch(dir: &TempDir, arguments: &[String]) -> Running {
    let log = dir.path().join("log");
    let log = fs::File::options().create(true).append(true).open(log);
    let process = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no"])
        .arg("--unixsocket")
        .arg(dir.path().join("socket"))
        .arg("--dir")
        .arg(dir.path())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.expect("a log file"))
        .spawn()
        .expect("redis-server is installed: `make stores`");
    Running(process)
}

pub(super) fn within<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(15);
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < end, "waited 15 s in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A Webdis in front of a Redis.
#[derive(Debug)]
pub struct Webdis {
    process: Running,
    addr: SocketAddr,
}

/// What Webdis is told beside where it is.
fn webdis_defaults() -> Value {
    json!({"threads": 1, "pool_size": 2, "daemonize": false, "database": 0, "verbosity": 0})
}

fn pong(status: u16, body: &[u8]) -> bool {
    let pong: &[u8] = br#"{"PING":[true,"PONG"]}"#;
    status == 200 && body == pong
}

impl Webdis {
    /// Starts one, and waits until it answers.
    ///
    /// # Panics
    /// Where it does not start; `make stores` installs it.
    #[must_use]
    pub fn start(server: &Server) -> Self {
        Self::anywhere(&json!({}), &server.socket(), server.dir.path(), pong)
    }

    /// Starts one for whoever will listen at that Unix socket, with its files in that directory.
    ///
    /// # Panics
    /// As [`Webdis::start`].
    #[must_use]
    pub fn before(socket: &path::Path, dir: &path::Path) -> Self {
        Self::with(&json!({"pool_size": 4}), socket, dir)
    }

    /// [`Webdis::before`] with settings of one's own; what is the test's business is replaced in them.
    ///
    /// # Panics
    /// As [`Webdis::start`].
    #[must_use]
    pub fn with(settings: &Value, socket: &path::Path, dir: &path::Path) -> Self {
        Self::anywhere(settings, socket, dir, |_, _| true)
    }

    /// Starts one where another has ended.
    ///
    /// # Panics
    /// Where somebody else has the port by now.
    #[must_use]
    pub fn at(server: &Server, addr: SocketAddr) -> Self {
        Self::try_at(&json!({}), &server.socket(), server.dir.path(), addr, pong)
            .expect("the port is free")
    }

    fn anywhere(
        settings: &Value,
        socket: &path::Path,
        dir: &path::Path,
        is_up: fn(u16, &[u8]) -> bool,
    ) -> Self {
        // It cannot be told to take any port, nor says which it took: one that was free a moment ago,
        // and another where somebody was faster.
        for _ in 0..10 {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
            let addr = free.expect("a port");
            if let Some(webdis) = Self::try_at(settings, socket, dir, addr, is_up) {
                return webdis;
            }
        }
        panic!("no port for Webdis in ten attempts");
    }

    fn try_at(
        settings: &Value,
        socket: &path::Path,
        dir: &path::Path,
        addr: SocketAddr,
        is_up: fn(u16, &[u8]) -> bool,
    ) -> Option<Self> {
        let port = addr.port();
        let file = dir.join(format!("webdis-{port}.json"));
        let mut whole = webdis_defaults();
        for (name, value) in settings.as_object().into_iter().flatten() {
            whole[name] = value.clone();
        }
        whole["redis_host"] = json!(socket);
        whole["http_host"] = json!("127.0.0.1");
        whole["http_port"] = json!(port);
        whole["logfile"] = json!(dir.join("webdis.log"));
        fs::write(&file, whole.to_string()).expect("room for a file");
        let child = Command::new("webdis")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("webdis is installed: `make stores`");
        let mut process = Running(child);
        let up = within("Webdis", || {
            if process.0.try_wait().expect("a child").is_some() {
                return Some(false);
            }
            let mut http = Http::connect(addr).ok()?;
            let (status, body) = http.send("POST", "/", &[], b"PING");
            is_up(status, &body).then_some(true)
        });
        up.then_some(Self { process, addr })
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }
}

/// How the engine reaches its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through Webdis.
    Webdis,
    /// Through the REST bridge.
    Rest,
    /// RESP, as Envoy would pass it on.
    Resp,
    /// The same, with a password before each call.
    RespWithLogin,
}

enum Path {
    /// With the process behind it, where there is one.
    Http(
        Http,
        #[expect(dead_code, reason = "lives as long")] Option<Webdis>,
    ),
    Resp(Resp, usize),
}

/// The engine over a server.
pub struct Remote {
    path: Path,
    engine: Redis,
    limits: Limits,
    calls: u128,
    last: Option<Answered>,
    unprepared: u32,
}

impl Remote {
    /// Connects to a server.
    ///
    /// # Panics
    /// Where it cannot.
    #[must_use]
    pub fn new(server: &Server, way: Way) -> Self {
        let http = |addr| Http::connect(addr).expect("the server listens");
        let resp = || Resp::connect(&server.socket()).expect("Redis listens");
        let (path, transport) = match way {
            Way::Webdis => {
                let webdis = Webdis::start(server);
                let transport = Transport::Webdis {
                    authorization: None,
                };
                (Path::Http(http(webdis.addr), Some(webdis)), transport)
            }
            Way::Rest => {
                let token = Some(Credential::new(bridge::TOKEN.into()));
                let addr = bridge::start(&server.socket());
                (Path::Http(http(addr), None), Transport::Rest { token })
            }
            Way::Resp => (Path::Resp(resp(), 1), Transport::Resp { login: None }),
            Way::RespWithLogin => {
                let login = Login {
                    user: Some("default".into()),
                    password: Credential::new(PASSWORD.into()),
                };
                let login = Some(login);
                (Path::Resp(resp(), 2), Transport::Resp { login })
            }
        };
        Self {
            path,
            engine: Redis::new(transport, Layout::default()),
            limits: Limits {
                bodies: 64,
                ..Limits::default()
            },
            calls: 0,
            last: None,
            unprepared: 0,
        }
    }

    /// How often the server lacked the script.
    #[must_use]
    pub fn unprepared(&self) -> u32 {
        self.unprepared
    }

    /// The last answer, whole.
    ///
    /// # Panics
    /// Before the first call.
    #[must_use]
    pub fn last(&self) -> &Answered {
        self.last.as_ref().expect("a call")
    }

    /// The engine itself.
    #[must_use]
    pub fn engine(&self) -> &Redis {
        &self.engine
    }

    /// One call as it is, and the raw answer.
    pub fn exchange(&mut self, batch: &Batch, script: Script) -> (u16, Vec<u8>) {
        self.path.send(&self.engine.request(batch, script))
    }

    /// A sweep of one shard.
    ///
    /// # Panics
    /// Where the store does not answer it.
    pub fn sweep(&mut self, shard: u8, limit: u32) -> Swept {
        self.calls += 1;
        let nonce = Nonce(self.calls.to_be_bytes());
        for script in [Script::Known, Script::Whole] {
            let request = self.engine.sweep_request(&nonce, shard, limit, script);
            let (status, body) = self.path.send(&request);
            let answer = HttpAnswer {
                status,
                body: &body,
            };
            match self.engine.understand_sweep(&nonce, shard, answer) {
                Ok(swept) => return swept,
                Err(Understood::Unprepared) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        panic!("the server has no room for scripts")
    }

    /// A batch of these operations.
    ///
    /// # Panics
    /// Where they do not fit one.
    pub fn batch(&mut self, ops: &[Op]) -> Batch {
        self.calls += 1;
        let mut batch = Batch::new(Nonce(self.calls.to_be_bytes()), self.limits);
        for op in ops {
            assert_eq!(batch.push(op.clone()), Added::Yes);
        }
        batch
    }

    /// One call, and what it means; the script is sent along where the server lacks it.
    pub fn understand(&mut self, batch: &Batch) -> Understood {
        let understood = self.once(batch, Script::Known);
        if understood != Understood::Unprepared {
            return understood;
        }
        self.unprepared += 1;
        self.once(batch, Script::Whole)
    }

    fn once(&mut self, batch: &Batch, script: Script) -> Understood {
        let (status, body) = self.exchange(batch, script);
        let answer = HttpAnswer {
            status,
            body: &body,
        };
        self.engine.understand(batch, answer)
    }
}

impl Path {
    fn send(&mut self, request: &HttpRequest) -> (u16, Vec<u8>) {
        match self {
            Self::Http(http, _) => http.send(
                request.method,
                &request.path,
                &request.headers,
                &request.body,
            ),
            Self::Resp(resp, replies) => (200, resp.raw(&request.body, *replies)),
        }
    }
}

impl Engine for Remote {
    fn call(&mut self, ops: &[Op]) -> (u64, Vec<Reply>) {
        let batch = self.batch(ops);
        match self.understand(&batch) {
            Understood::Answered(answered) => {
                let (now, replies) = (answered.now, answered.replies.clone());
                self.last = Some(answered);
                (now, replies)
            }
            other => (0, other.replies(ops.len())),
        }
    }

    fn advance(&mut self, ms: u64) {
        // The store's clock, not this one, is what must have moved.
        let end = self.last().now + ms;
        within("the store's clock", || {
            let now = self.call(&[]).0;
            std::thread::sleep(Duration::from_millis(end.saturating_sub(now).min(200)));
            (now >= end).then_some(())
        });
    }

    fn remembers_cancellations(&self) -> bool {
        true
    }
}
