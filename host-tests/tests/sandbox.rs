//! `make run`: what it shows, that it says which port is busy, and that it leaves nothing behind.

use host_tests::{
    check::until,
    client::{Pool, Request},
    envoy::{Admin, module},
    filter::key,
};
use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process::Stdio,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

/// The names that operators' dashboards rely on.
const METRICS: [&str; 28] = [
    "idempo_claim_total",
    "idempo_replay_total",
    "idempo_conflict_total",
    "idempo_in_flight_total",
    "idempo_unknown_total",
    "idempo_expired_total",
    "idempo_rejected_total",
    "idempo_bypass_total",
    "idempo_late_write_total",
    "idempo_replay_corrupt_total",
    "idempo_store_error_total",
    "idempo_compensation_total",
    "idempo_unknown_open",
    "idempo_write_backlog",
    "idempo_store_used_ratio",
    "idempo_store_ready",
    "idempo_loopback_ready",
    "idempo_detached_calls",
    "idempo_claim_us",
    "idempo_store_rtt_us",
    "idempo_upstream_us",
    "idempo_hit_total",
    "idempo_executed_total",
    "idempo_unmatched_write_total",
    "idempo_would_total",
    "idempo_build_info",
    "idempo_store_since_seconds",
    "idempo_upstream_policy_odd_total",
];

struct Sandbox {
    child: Child,
    ports: [u16; 3],
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Three ports that were free a moment ago.
fn ports() -> [u16; 3] {
    let held = [(); 3].map(|()| TcpListener::bind(loopback(0)).unwrap());
    held.map(|l| l.local_addr().unwrap().port())
}

fn sandbox(ports: [u16; 3]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command
        .env("PORT", ports[0].to_string())
        .env("ADMIN_PORT", ports[1].to_string())
        .env("UPSTREAM_PORT", ports[2].to_string())
        .env("IDEMPO_WASM", module())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

impl Sandbox {
    /// Starts it and waits until it has shown everything; gives what it printed.
    async fn start() -> (Self, String) {
        let ports = ports();
        let child = sandbox(ports).spawn().unwrap();
        let mut started = Self { child, ports };
        let mut lines = BufReader::new(started.child.stdout.take().unwrap()).lines();
        let shown = timeout(Duration::from_secs(60), async {
            let mut shown = String::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                shown.push_str(&line);
                shown.push('\n');
                if line.contains("Ctrl-C") {
                    // Somebody has to read on, or the program would block when it says good-bye.
                    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
                    return shown;
                }
            }
            panic!("it ended early:\n{shown}");
        });
        let shown = shown.await.expect("the demonstration within a minute");
        (started, shown)
    }

    fn signal(&self, signal: rustix::process::Signal) {
        // None once it has been waited for.
        if let Some(pid) = self.child.id() {
            let raw = i32::try_from(pid).unwrap();
            let pid = rustix::process::Pid::from_raw(raw).unwrap();
            rustix::process::kill_process(pid, signal).unwrap();
        }
    }

    /// Ctrl-C, once.
    async fn interrupt(mut self) {
        self.signal(rustix::process::Signal::INT);
        let ended = timeout(Duration::from_secs(10), self.child.wait()).await;
        assert!(ended.expect("one Ctrl-C is enough").unwrap().success());
        for port in std::mem::take(&mut self.ports) {
            TcpListener::bind(loopback(port)).unwrap_or_else(|e| panic!("port {port}: {e}"));
        }
    }
}

/// A test that fails must not leave Envoy behind, so the program is asked, not killed.
impl Drop for Sandbox {
    fn drop(&mut self) {
        self.signal(rustix::process::Signal::TERM);
    }
}

#[tokio::test]
async fn a_busy_port_is_named_with_the_variable_to_change() {
    for (busy, variable) in ["PORT", "ADMIN_PORT", "UPSTREAM_PORT"].iter().enumerate() {
        let ports = ports();
        let _held = TcpListener::bind(loopback(ports[busy])).unwrap();
        let done = sandbox(ports).output().await.unwrap();
        assert!(!done.status.success());
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(said.contains(&format!("port {} ", ports[busy])), "{said}");
        assert!(said.contains(&format!("make run {variable}=")), "{said}");
    }
}

#[tokio::test]
async fn it_shows_a_first_attempt_a_replay_and_a_conflict_and_stops_at_once() {
    let (sandbox, shown) = Sandbox::start().await;
    for expected in [
        "-> 201",
        "idempotent-replayed: true",
        "-> 422",
        "payload_mismatch",
    ] {
        assert!(shown.contains(expected), "{expected}:\n{shown}");
    }
    assert_eq!(
        shown.matches("effects at the upstream: 1\n").count(),
        3,
        "{shown}"
    );
    sandbox.interrupt().await;
}

#[tokio::test]
async fn metrics_have_their_names_and_every_dimension_is_a_label() {
    let (sandbox, _) = Sandbox::start().await;
    let admin = Admin::new(loopback(sandbox.ports[1]));
    let pool = Pool::new(loopback(sandbox.ports[0]));
    // Something of everything that is easily had.
    let charge = |key: &str| Request::post("/v1/charges").key(key).json("{}");
    pool.send(&charge("weak")).await.unwrap();
    pool.send(&charge(&key()).wants_status(500)).await.unwrap();
    pool.send(&Request::post("/elsewhere")).await.unwrap();
    // Histograms are merged from the workers every few seconds.
    let text = until("a histogram of claims", || async {
        let text = admin.prometheus().await;
        let filled = text
            .lines()
            .any(|line| line.starts_with("idempo_claim_us_count{") && !line.ends_with("} 0"));
        filled.then_some(text)
    })
    .await;
    let mut seen = 0;
    for line in text.lines().filter(|l| l.starts_with("idempo_")) {
        let name = line.split('{').next().unwrap();
        let plain = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .filter(|plain| plain.ends_with("_us"))
            .unwrap_or(name);
        // A dimension without a tag in `stats_tags` would have stayed in the name.
        assert!(METRICS.contains(&plain), "{line}");
        seen += 1;
    }
    assert!(seen > 10, "{text}");
    let claimed = text
        .lines()
        .find(|l| l.starts_with("idempo_claim_total{") && l.contains(r#"result="claimed""#))
        .expect("claims are counted");
    assert!(claimed.contains(r#"route="charges""#), "{claimed}");
    assert!(claimed.contains(r#"tenant="b"#), "{claimed}");
    sandbox.interrupt().await;
}

#[tokio::test]
async fn scripts_in_browsers_may_read_the_markers_of_every_kind_of_answer() {
    let (sandbox, _) = Sandbox::start().await;
    let pool = Pool::new(loopback(sandbox.ports[0]));
    let charge = |body: &str| {
        Request::post("/v1/charges")
            .key("9d0f7a3e-6c1b-4f0e-9a55-0d6c1b2a3f44")
            .header("origin", "http://localhost:3000")
            .json(body)
    };
    for (body, status) in [("{}", 201), ("{}", 201), ("[]", 422)] {
        let answer = pool.send(&charge(body)).await.unwrap();
        assert_eq!(answer.status, status, "{answer:?}");
        let origin = answer.one("access-control-allow-origin");
        assert_eq!(origin, Some("http://localhost:3000"), "{answer:?}");
        let exposed = answer
            .one("access-control-expose-headers")
            .unwrap_or_default();
        assert!(exposed.contains("Idempotent-Replayed"), "{answer:?}");
    }
    let preflight = Request::new("OPTIONS", "/v1/charges")
        .header("origin", "http://localhost:3000")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "idempotency-key");
    let answer = pool.send(&preflight).await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    let allowed = answer
        .one("access-control-allow-headers")
        .unwrap_or_default();
    assert!(allowed.contains("idempotency-key"), "{answer:?}");
    sandbox.interrupt().await;
}
