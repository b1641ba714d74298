//! `idempo` on the command line: the filter's own code on a file, on one request, on two files.
//!
//! | file | command |
//! |---|---|
//! | `check` | would the filter take this configuration? |
//! | [`explain`] | what would it do with this request? |
//! | `diff` | what does this edit do to operations that exist? |
//! | `load`, `document`, `envoy` | files: YAML as Envoy reads it, plugins inside of Envoy's own |
//!
//! Nothing here decides anything: parsing, comparing and answering are the core's, so that what is
//! printed is what the filter does. No network, nothing is executed, no file is written.

#![forbid(unsafe_code)]

mod check;
mod diff;
mod document;
mod envoy;
mod explain;
mod load;

use clap::{Parser, Subcommand, ValueEnum};
use idempo_core::plan::Mode;
use serde_json::Value;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Idempotency keys at the edge: check, explain and compare configurations of the idempo filter.
#[derive(Parser)]
#[command(name = "idempo", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Say whether the filter would take a configuration: its own, or all in an Envoy file.
    ///
    /// Exit status: 0 right, 1 refused, 2 unreadable.
    Check {
        /// YAML or JSON; `-` for the standard input.
        file: PathBuf,
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Say what the filter would do with a request, in each state of the operation.
    ///
    /// Exit status: 0 explained, 2 unreadable or refused configuration, or a bad request.
    Explain(Box<explain::Arguments>),
    /// Say what an edit does to operations that already exist.
    ///
    /// Exit status: 0 no retry runs again, 1 an identity changes, 2 unreadable or refused.
    Diff {
        /// The configuration as it is.
        old: PathBuf,
        /// As it is to be.
        new: PathBuf,
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Print the JSON Schema of the configuration.
    Schema,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// What goes to the standard output, and the exit status.
pub(crate) struct Report {
    pub(crate) text: String,
    pub(crate) status: u8,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(report) => {
            let mut out = std::io::stdout().lock();
            let written = out
                .write_all(report.text.as_bytes())
                .and_then(|()| out.flush());
            match written {
                // Whoever reads has enough, as `head` does.
                Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                    complain(&format!("standard output: {e}"))
                }
                _ => ExitCode::from(report.status),
            }
        }
        Err(problem) => complain(&problem),
    }
}

fn complain(problem: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "idempo: {problem}");
    ExitCode::from(2)
}

fn run(command: Command) -> Result<Report, String> {
    match command {
        Command::Check { file, format } => Ok(check::report(&load::load(&file)?, format)),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Diff { old, new, format } => {
            Ok(diff::report(&load::plan(&old)?, &load::plan(&new)?, format))
        }
        Command::Schema => Ok(Report {
            text: pretty(&idempo_core::config::schema()),
            status: 0,
        }),
    }
}

/// JSON on several lines.
pub(crate) fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

pub(crate) fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Observe => "observe",
        Mode::Off => "off",
    }
}
