//! One real Envoy per test.
//!
//! Ports are the kernel's choice (Envoy is told 0 and asked what it got), hot restart is off so that
//! nothing is shared between processes, and every wait is for a condition that the admin endpoint
//! states. The process is killed, by its own handle, when the value is dropped.
//!
//! | module | what it is |
//! |---|---|
//! | [`config`] | the bootstrap as JSON, and what a test may change in it |
//! | `builder` | puts it together and starts it |
//! | `process` | one Envoy process, whatever its configuration: readiness, logs, end |
//! | `loopback` | the way back into the same Envoy |
//! | `admin` | its admin endpoint |
//! | `files` | where the binary and the module are found |
//! | `ports` | ports on which nobody answers |

mod admin;
mod builder;
pub mod config;
mod files;
mod loopback;
mod ports;
mod process;

pub use admin::{Admin, Stats};
pub use builder::{Builder, SIGNING_SECRET, Validation};
pub use config::Options;
pub use files::{crash_module, envoy_binary, module, workspace};
pub use ports::RefusedPort;
pub(crate) use process::Files;
pub use process::{Process, ready};

use crate::{check, upstream::Upstream};
use serde_json::{Value, json};
use std::{
    fs,
    ops::{Deref, DerefMut},
    path::PathBuf,
};

/// A running Envoy with the configuration of a test.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    options: Options,
    version: u64,
    lds: bool,
}

/// All that any Envoy can be asked, this one can.
impl Deref for Envoy {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Envoy {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
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
        self.process
            .files()
            .write_listener(&self.options, self.version);
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

impl Files {
    fn lds(&self) -> PathBuf {
        self.path("lds.json")
    }

    /// Envoy watches for a move into place, so a half-written file is never read.
    fn write_listener(&self, options: &Options, version: u64) {
        let draft = self.path("lds.json.draft");
        let answer = config::discovery(options.all_listeners(self), version);
        fs::write(&draft, answer.to_string()).expect("the listener can be written");
        fs::rename(draft, self.lds()).expect("the listener can be moved into place");
    }
}
