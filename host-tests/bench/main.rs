//! The benchmarks. `make bench`, `make bench-churn`, `make bench-core`, `make bench-profile`,
//! `make bench-stores`.
//!
//! | module | what it is |
//! |---|---|
//! | [`variant`] | what is compared: listeners and filters |
//! | [`rig`] | one Envoy with a listener per variant |
//! | [`load`] | the load generator |
//! | [`compare`] | pairs of variants, in turns; the table |
//! | [`large`] | uploads of a mebibyte; latencies |
//! | [`churn`] | many short-lived operations through a small table |
//! | [`micro`] | the core natively; host calls counted |
//! | [`profile`] | where Envoy's time goes |
//! | [`stores`] | the same over Redis, against other designs |
//! | [`chart`], [`machine`] | pictures; facts about machine and build |
//!
//! A figure is never a test: the exit code is 0 whatever the figures are. It is not where an answer
//! was wrong, or an effect was one too many.

mod chart;
mod churn;
mod compare;
mod large;
mod load;
mod machine;
mod micro;
mod profile;
mod rig;
mod stores;
mod variant;

use clap::{Args, Parser, Subcommand};
use machine::{Machine, write_report};
use rig::Rig;
use std::{path::PathBuf, process::ExitCode, time::Duration};

#[derive(Parser)]
struct Cli {
    /// Where reports are written.
    #[arg(long, global = true)]
    out: Option<PathBuf>,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Throughput against yardsticks in the same Envoy.
    Compare(Compare),
    /// Many short-lived operations through a small table.
    Churn(Churn),
    /// Over Redis, against plain proxying and against other designs.
    Stores(Stores),
    /// The core natively, and host calls per request.
    Core {
        /// Requests of each kind.
        #[arg(long, default_value_t = 5_000)]
        count: usize,
    },
    /// The load generator alone: POSTs without a body to whatever answers 200 at an address.
    Load {
        /// Host and port.
        addr: std::net::SocketAddr,
        /// How long.
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
        /// Connections.
        #[arg(long, default_value_t = 16)]
        connections: usize,
    },
    /// Where Envoy's time goes (needs perf).
    Profile {
        /// Seconds of each load.
        #[arg(long, default_value_t = 4.0)]
        seconds: f64,
    },
}

#[derive(Args)]
struct Compare {
    /// Pairs of each row that has a goal.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Pairs of each other row.
    #[arg(long, default_value_t = 5)]
    context_rounds: usize,
    /// Seconds of each slice.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Connections of the load.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Operations in the table that is 40 % full; by default what makes it so.
    #[arg(long)]
    filling: Option<usize>,
}

#[derive(Args)]
struct Churn {
    /// Operations, each with a key of its own.
    #[arg(long, default_value_t = 1_000_000)]
    operations: u64,
    /// Connections of the load.
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// Duplicates per hundred operations.
    #[arg(long, default_value_t = 10)]
    duplicates: u8,
    /// Stops after so many seconds.
    #[arg(long, default_value_t = 300.0)]
    at_most: f64,
}

#[derive(Args)]
struct Stores {
    /// Pairs of each row that has a goal.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Pairs of each other row.
    #[arg(long, default_value_t = 3)]
    context_rounds: usize,
    /// Seconds of each slice.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Connections of the load.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Operations that Redis is filled with in the end: some 2 KiB of memory each.
    #[arg(long, default_value_t = 1_000_000)]
    stored: usize,
}

// One thread for load generator and upstream, which share a core.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("\nFAILED {why}");
            ExitCode::FAILURE
        }
    }
}

fn seconds(value: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value).map_err(|e| format!("{value} seconds: {e}"))
}

async fn run(cli: Cli) -> Result<(), String> {
    let out = cli
        .out
        .unwrap_or_else(|| host_tests::envoy::workspace().join("docs/bench"));
    match cli.what {
        What::Compare(args) => {
            let effort = compare::Effort {
                rounds: args.rounds.max(1),
                context_rounds: args.context_rounds.max(1),
                slice: seconds(args.seconds)?,
                connections: args.connections.max(1),
                filling: match args.filling {
                    Some(filling) => filling,
                    None => micro::two_fifths_of_the_table()?,
                },
            };
            let rig = Rig::start(effort.connections).await?;
            let machine = Machine::look(rig::envoy_version(&rig.envoy).await);
            let (rows, idle) = compare::run(&rig, &effort).await?;
            let uploads = large::uploads(&rig, &effort).await?;
            let waits = [
                large::waits(&rig, &effort, 1).await?,
                large::waits(&rig, &effort, effort.connections).await?,
            ];
            if rig.envoy.vm_traps() > 0 {
                return Err("a VM has trapped".into());
            }
            let report = compare::report(&rows, &uploads, &waits, idle, &machine, &effort);
            println!("\n{report}");
            write_report(&out, "latest.md", &report)?;
            chart::ratios(&rows, &out.join("latest.svg"))
        }
        What::Churn(args) => {
            let effort = churn::Effort {
                operations: args.operations.max(1),
                connections: args.connections.max(1),
                duplicates: args.duplicates.min(100),
                at_most: seconds(args.at_most)?,
            };
            churn::run(effort, &out).await
        }
        What::Stores(args) => {
            let effort = stores::Effort {
                rounds: args.rounds.max(1),
                context_rounds: args.context_rounds.max(1),
                slice: seconds(args.seconds)?,
                connections: args.connections.max(1),
                stored: args.stored.max(1),
            };
            stores::run(effort, &out).await
        }
        What::Core { count } => {
            println!("{}", micro::run(count.max(1))?);
            Ok(())
        }
        What::Load {
            addr,
            seconds: each,
            connections,
        } => {
            let load = load::Load {
                addr,
                template: load::Template::post("/", ""),
                keys: load::Keys::Fresh,
                expect: load::Expect {
                    status: 200,
                    replayed: false,
                    length: None,
                },
                connections,
            };
            let tally = load.run(load::Until::Elapsed(seconds(each)?)).await?;
            println!("{:.0} requests/s", tally.per_second());
            Ok(())
        }
        What::Profile { seconds: each } => {
            let rig = Rig::start(16).await?;
            let report = profile::run(&rig, seconds(each)?).await?;
            println!("{report}");
            write_report(&out, "profile.md", &report)
        }
    }
}
