//! How a test's Envoy is put together and started.

use super::{
    Envoy, Options,
    process::{Files, Process},
};
use crate::filter::key;
use serde_json::Value;
use std::net::SocketAddr;
use tokio::process::Command;

/// The environment variable that [`Builder::loopback`] sets.
pub const SIGNING_SECRET: &str = "IDEMPO_SIGNING_SECRET";

/// How an Envoy is to be run.
#[derive(Clone, Debug)]
pub struct Builder {
    /// Its configuration.
    pub options: Options,
    concurrency: u32,
    log_level: String,
    env: Vec<(String, String)>,
    lds: bool,
    drain_time_s: Option<u32>,
}

/// What `envoy --mode validate` said.
#[derive(Clone, Debug)]
pub struct Validation {
    /// Whether the configuration was accepted.
    pub ok: bool,
    /// Everything that it printed.
    pub output: String,
}

impl Builder {
    pub(super) fn new(hosts: Vec<SocketAddr>, filter: Option<Value>) -> Self {
        Self {
            options: Options::new(hosts, filter),
            concurrency: 2,
            log_level: "info".into(),
            env: Vec::new(),
            lds: false,
            drain_time_s: None,
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

    /// Adds the internal listener `idempo_loopback` and the cluster of that name that leads to it, and
    /// gives the module a secret of its own in `IDEMPO_SIGNING_SECRET`.
    #[must_use]
    pub fn loopback(mut self) -> Self {
        self.options.loopback = true;
        self.env(SIGNING_SECRET, &[key(), key()].concat())
    }

    /// Octets that each connection may buffer before its peer is held back, upstream and downstream.
    #[must_use]
    pub fn buffer_limit(mut self, octets: u32) -> Self {
        self.options.buffer_limit = Some(octets);
        self
    }

    /// How long connections of an old configuration may stay, seconds (Envoy's default: 600).
    #[must_use]
    pub fn drain_time_s(mut self, seconds: u32) -> Self {
        self.drain_time_s = Some(seconds);
        self
    }

    /// Takes the listener from a file, so that [`Envoy::reload`] works.
    #[must_use]
    pub fn lds(mut self) -> Self {
        self.lds = true;
        self
    }

    fn command(&self, files: &Files) -> Command {
        let lds = files.lds();
        if self.lds {
            files.write_listener(&self.options, 0);
        }
        let bootstrap = self
            .options
            .bootstrap(files, self.lds.then_some(lds.as_path()));
        let mut command = files.command(&bootstrap.to_string(), self.concurrency);
        command
            .args(["--log-level", &self.log_level])
            .envs(self.env.iter().cloned());
        if let Some(seconds) = self.drain_time_s {
            command.args(["--drain-time-s", &seconds.to_string()]);
        }
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
        let files = Files::new();
        let command = self.command(&files);
        Ok(Envoy {
            process: Process::start(files, command).await?,
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
        let files = Files::new();
        let done = self
            .command(&files)
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
