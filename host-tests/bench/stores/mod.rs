//! `bench stores`: idempo over Redis, against plain proxying, against a callout for each operation,
//! and against nginx with Lua and the same Redis. All in one run.
//!
//! | module | what it is |
//! |---|---|
//! | [`lane`] | what is compared: listeners and filters |
//! | [`nginx`] | the yardstick that people write themselves |
//! | [`rig`] | the processes, and one slice of load |
//! | [`run`] | pairs in turns, and a store that fills |
//! | [`waits`] | latencies, and one store call |
//! | [`stock`] | what Redis says of itself, and filling it |
//! | [`report`] | the text |

mod lane;
mod nginx;
mod report;
mod rig;
mod run;
mod stock;
mod waits;

pub(crate) use run::Effort;

use crate::machine::{Machine, write_report};
use std::path::Path;

/// Measures everything and writes `stores.md`.
pub(crate) async fn run(effort: Effort, out: &Path) -> Result<(), String> {
    let rig = rig::Rig::start().await?;
    let machine = Machine::look(crate::rig::envoy_version(&rig.envoy).await);
    if rig.nginx.is_none() {
        println!(
            "nginx with Lua is not installed: its rows are left out (`make bench-stores` says what it takes)"
        );
    }
    let results = run::run(&rig, &effort).await?;
    if rig.envoy.vm_traps() > 0 {
        return Err("a VM has trapped".into());
    }
    let errors = rig
        .envoy
        .stats()
        .await
        .idempo("idempo_store_error_total", &[]);
    let redis = rig.info("server");
    let about = report::About {
        machine: &machine,
        effort: &effort,
        redis: redis.lines().find_map(|l| l.strip_prefix("redis_version:")),
        nginx: rig.nginx.as_ref().and_then(|_| nginx::version()),
        store_errors: errors,
    };
    let text = report::text(&results, &about);
    println!("\n{text}");
    write_report(out, "stores.md", &text)
}
