//! `make run`: a demo upstream and Envoy with the shipped configuration, shown at work.

use clap::Parser;
use host_tests::{
    client::{Answer, Pool, Request},
    envoy::{SIGNING_SECRET, envoy_binary, module, ready, workspace},
    filter,
    shipped::{self, Values},
    upstream::Upstream,
};
use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
};
use tokio::{
    process::{Child, Command},
    signal::unix::{Signal, SignalKind, signal},
};

/// Runs the sandbox until Ctrl-C.
#[derive(Parser)]
struct Args {
    /// Where clients connect.
    #[arg(long, env = "PORT", default_value_t = 10000)]
    port: u16,
    /// Envoy's admin endpoint.
    #[arg(long, env = "ADMIN_PORT", default_value_t = 9901)]
    admin_port: u16,
    /// The demo upstream.
    #[arg(long, env = "UPSTREAM_PORT", default_value_t = 10080)]
    upstream_port: u16,
    /// Stops after the demonstration instead of waiting for Ctrl-C.
    #[arg(long)]
    once: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("\n{why}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), String> {
    free(args.port, "PORT")?;
    free(args.admin_port, "ADMIN_PORT")?;
    free(args.upstream_port, "UPSTREAM_PORT")?;
    // Listened for from here on, so that nothing that is started below can be left behind.
    let mut stop = Stop::new().map_err(|e| format!("signals: {e}"))?;
    let upstream = Upstream::bind(loopback(args.upstream_port), 1000)
        .await
        .map_err(|e| format!("demo upstream: {e}"))?;
    let dir = tempfile::tempdir().map_err(|e| format!("temporary directory: {e}"))?;
    let mut envoy = start(&args, dir.path())?;
    let outcome = tokio::select! {
        outcome = show_and_stay(&args, &upstream, &mut envoy, dir.path()) => outcome,
        () = stop.asked() => Ok(()),
    };
    // An Envoy that has ended by itself is killed in vain, which is no error.
    let killed = envoy.kill().await;
    outcome.map_err(|why| format!("{why}\n{}", log(dir.path())))?;
    killed.map_err(|e| format!("stopping Envoy: {e}"))?;
    println!("\nstopped Envoy and the demo upstream");
    Ok(())
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// A busy port is the likeliest reason for not starting: say which, and what to do.
fn free(port: u16, variable: &str) -> Result<(), String> {
    TcpListener::bind(loopback(port)).map(drop).map_err(|e| {
        format!("port {port} on 127.0.0.1 cannot be used ({e}).\nChoose another: make run {variable}=<port>")
    })
}

fn start(args: &Args, dir: &Path) -> Result<Child, String> {
    let wasm = std::path::absolute(module()).map_err(|e| e.to_string())?;
    if !wasm.is_file() {
        return Err(format!("no module at {}: make filter", wasm.display()));
    }
    let file = workspace().join("envoy/envoy.yaml");
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let values = Values {
        port: args.port,
        admin_port: args.admin_port,
        upstream_port: args.upstream_port,
        wasm: &wasm,
    };
    let config = dir.join("envoy.yaml");
    std::fs::write(&config, shipped::render(&text, &values)?).map_err(|e| e.to_string())?;
    let open = |name| std::fs::File::create(dir.join(name)).map_err(|e| e.to_string());
    Command::new(envoy_binary())
        .arg("--config-path")
        .arg(config)
        .args(["--disable-hot-restart", "--concurrency", "2"])
        .args(["--file-flush-interval-msec", "100"])
        .args(["--component-log-level", "main:warning"])
        .arg("--admin-address-path")
        .arg(admin_file(dir))
        // The sandbox needs a secret, and nobody else needs to know it.
        .env(SIGNING_SECRET, [filter::key(), filter::key()].concat())
        // Ctrl-C is for this program, which then stops Envoy.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(open("access.log")?)
        .stderr(open("envoy.log")?)
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| format!("Envoy cannot be started: {e}"))
}

fn admin_file(dir: &Path) -> PathBuf {
    dir.join("admin-address")
}

fn log(dir: &Path) -> String {
    let text = std::fs::read_to_string(dir.join("envoy.log")).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Stop {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}

async fn show_and_stay(
    args: &Args,
    upstream: &Upstream,
    envoy: &mut Child,
    dir: &Path,
) -> Result<(), String> {
    ready(envoy, &admin_file(dir)).await?;
    show(args, upstream, dir).await?;
    if args.once {
        return Ok(());
    }
    println!("Running until Ctrl-C.");
    let status = envoy.wait().await.map_err(|e| e.to_string())?;
    Err(format!("Envoy ended by itself ({status}):"))
}

async fn show(args: &Args, upstream: &Upstream, dir: &Path) -> Result<(), String> {
    let pool = Pool::new(loopback(args.port));
    let key = filter::key();
    let charge = |amount: u32| {
        Request::post("/v1/charges")
            .key(&key)
            .json(format!(r#"{{"amount":{amount},"currency":"eur"}}"#))
    };
    let mut seen = Vec::new();
    for (title, amount) in [
        ("1. a charge", 1200),
        ("2. the same charge again: answered from the record", 1200),
        ("3. the same key for another amount: refused", 9900),
    ] {
        let request = charge(amount);
        println!("\n{title}");
        println!("   POST /v1/charges   idempotency-key: {key}");
        println!("   {}", String::from_utf8_lossy(&request.body));
        let answer = pool.send(&request).await?;
        print(&answer);
        println!("   effects at the upstream: {}", upstream.effects());
        seen.push((
            answer.status,
            answer.one("idempotent-replayed") == Some("true"),
        ));
    }
    // A sandbox that shows something else than it says would teach the wrong thing.
    if seen != [(201, false), (201, true), (422, false)] || upstream.effects() != 1 {
        return Err("That is not what idempo promises. Envoy's log:".into());
    }
    let Args {
        port,
        admin_port,
        upstream_port,
        ..
    } = args;
    println!(
        r#"
Try it:
  curl -i http://127.0.0.1:{port}/v1/charges -H 'content-type: application/json' \
       -H "idempotency-key: $(cat /proc/sys/kernel/random/uuid)" -d '{{"amount":1200}}'
  curl -s http://127.0.0.1:{upstream_port}/_demo/effects                       what the upstream did
  curl -s http://127.0.0.1:{admin_port}/stats/prometheus | grep idempo_    metrics
  access log: {dir}/access.log
  Envoy's log: {dir}/envoy.log
An upstream that is slow, fails or breaks off: add -H 'x-demo-delay-ms: 3000',
  -H 'x-demo-status: 503' or -H 'x-demo-fault: act-close'.
A client that leaves: a key of your own, -m 0.2 and -H 'x-demo-delay-ms: 1000'; its retry a second later is replayed."#,
        dir = dir.display(),
    );
    Ok(())
}

fn print(answer: &Answer) {
    println!("   -> {}", answer.status);
    for (name, value) in &answer.headers {
        let about_idempo = name.starts_with("idempot");
        if about_idempo || ["content-type", "location", "retry-after"].contains(&name.as_str()) {
            println!("      {name}: {}", String::from_utf8_lossy(value));
        }
    }
    println!("      {}", answer.text());
}
