//! The shipped `envoy/envoy.yaml`, running: what an operator gets, with nothing changed but ports.

use crate::{
    client::Pool,
    envoy::{Admin, config::LISTENER, envoy_binary, module, ready, workspace},
    shipped::{Values, render},
    upstream::Upstream,
};
use serde_json::Value;
use std::{fs, net::SocketAddr, process::Stdio};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// An Envoy that runs the shipped configuration; killed when dropped.
#[derive(Debug)]
pub struct Running {
    _child: Child,
    addr: SocketAddr,
    admin: Admin,
    dir: TempDir,
}

impl Running {
    /// Starts it in front of `upstream`, and waits until it is ready.
    ///
    /// # Panics
    /// With its log, where it does not start.
    pub async fn start(upstream: &Upstream) -> Self {
        let dir = TempDir::with_prefix("idempo-shipped-").expect("a temporary directory");
        let shipped = fs::read_to_string(workspace().join("envoy/envoy.yaml")).expect("the file");
        let wasm = std::path::absolute(module()).expect("a module");
        let values = Values {
            port: 0,
            admin_port: 0,
            upstream_port: upstream.addr().port(),
            wasm: &wasm,
        };
        let file = dir.path().join("envoy.yaml");
        let text = render(&shipped, &values).expect("every marker");
        fs::write(&file, text).expect("room for the configuration");
        let create = |name| fs::File::create(dir.path().join(name)).expect("a log file");
        let admin_path = dir.path().join("admin-address");
        let mut child = Command::new(envoy_binary())
            .arg("--config-path")
            .arg(file)
            .args(["--disable-hot-restart", "--concurrency", "2"])
            .args(["--file-flush-interval-msec", "20"])
            .args(["--component-log-level", "main:warning"])
            .arg("--admin-address-path")
            .arg(&admin_path)
            .stdin(Stdio::null())
            .stdout(create("access.log"))
            .stderr(create("envoy.log"))
            .kill_on_drop(true)
            .spawn()
            .expect("Envoy can be started");
        let log = || fs::read_to_string(dir.path().join("envoy.log")).unwrap_or_default();
        let admin = ready(&mut child, &admin_path)
            .await
            .unwrap_or_else(|why| panic!("{why}:\n{}", log()));
        let addr = admin.listener(LISTENER).await.expect("the data listener");
        Self {
            _child: child,
            addr,
            admin,
            dir,
        }
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

    /// Its log so far.
    ///
    /// # Panics
    /// Where it cannot be read.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("envoy.log")).expect("the log")
    }

    /// Access log lines so far, as written.
    ///
    /// # Panics
    /// Where the log cannot be read or a line is not JSON.
    #[must_use]
    pub fn access_log(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.dir.path().join("access.log")).expect("the log");
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| serde_json::from_str(line).expect("a JSON access log line"))
            .collect()
    }
}
