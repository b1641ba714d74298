//! The shipped `envoy/envoy.yaml`, running: what an operator gets, with nothing changed but ports.

use crate::{
    envoy::{Files, Process, SIGNING_SECRET, module, workspace},
    filter::key,
    shipped::{Values, render},
    upstream::Upstream,
};
use std::{fs, ops::Deref};

/// An Envoy that runs the shipped configuration; killed when dropped.
#[derive(Debug)]
pub struct Running(Process);

impl Running {
    /// Starts it in front of `upstream`, and waits until it is ready.
    ///
    /// # Panics
    /// With its log, where it does not start.
    pub async fn start(upstream: &Upstream) -> Self {
        let shipped = fs::read_to_string(workspace().join("envoy/envoy.yaml")).expect("the file");
        let wasm = std::path::absolute(module()).expect("a module");
        let values = Values {
            port: 0,
            admin_port: 0,
            upstream_port: upstream.addr().port(),
            wasm: &wasm,
        };
        let text = render(&shipped, &values).expect("every marker");
        let files = Files::new();
        let mut command = files.command(&text, 2);
        command.env(SIGNING_SECRET, [key(), key()].concat());
        // Its access log goes to standard output.
        command.stdout(fs::File::create(files.access_log()).expect("a log file"));
        let process = Process::start(files, command).await;
        Self(process.unwrap_or_else(|why| panic!("{why}")))
    }
}

impl Deref for Running {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.0
    }
}
