//! Where Envoy's time goes under each load, by `perf`.
//!
//! Uses the kernel's `cpu-clock`, which virtual machines without hardware counters have too. What V8
//! compiled from a module has no symbols and is one line of its own, and so is Envoy, whose binaries come
//! stripped: what host calls cost is what Envoy takes beyond the yardstick.
//! For the module's own functions profile the core natively: see `docs/bench/README.md`.

use crate::{load::Until, rig::Rig, variant::Variant};
use rustix::process::{Pid, Signal, kill_process};
use std::{fmt::Write as _, path::Path, process::Stdio, time::Duration};
use tokio::process::{Child, Command};

const VARIANTS: [Variant; 4] = [
    Variant::NoopDirect,
    Variant::Replay,
    Variant::Plain,
    Variant::First,
];

/// The report as Markdown.
pub(crate) async fn run(rig: &Rig, slice: Duration) -> Result<String, String> {
    rig.prepare(0).await?;
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut text = String::from(
        "# Where Envoy's time goes\n\nWritten by `make bench-profile`: shares of Envoy's CPU time under each load.\n",
    );
    for variant in VARIANTS {
        // Compiled and warm before it is looked at.
        rig.slice(variant, Until::Elapsed(slice / 2)).await?;
        let data = dir.path().join(variant.name());
        let perf = record(rig.envoy.pid(), &data)?;
        let slice = rig.slice(variant, Until::Elapsed(slice)).await;
        stop(perf).await?;
        let slice = slice?;
        let _ = write!(
            text,
            "\n## {}\n\n{:.1} µs of CPU time per request, {:.0} requests/s.\n\n\
             | in | share | µs per request |\n|---|---:|---:|\n",
            variant.title(),
            slice.cpu_us,
            slice.per_second,
        );
        for (share, part) in shares(&data).await? {
            let each = slice.cpu_us * share / 100.0;
            let _ = writeln!(text, "| {part} | {share:.1} % | {each:.1} |");
        }
    }
    Ok(text)
}

fn record(pid: u32, data: &Path) -> Result<Child, String> {
    Command::new("perf")
        .args([
            "record",
            "--quiet",
            "--event",
            "cpu-clock",
            "--freq",
            "1999",
        ])
        .args(["--pid", &pid.to_string(), "--output"])
        .arg(data)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| format!("perf: {e}; on Debian it is in the package linux-perf"))
}

/// SIGINT, at which it writes what it has.
async fn stop(mut perf: Child) -> Result<(), String> {
    let pid = perf
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
        .ok_or("perf ended early: may it look at other processes (kernel.perf_event_paranoid)?")?;
    kill_process(pid, Signal::INT).map_err(|e| format!("stopping perf: {e}"))?;
    perf.wait().await.map(drop).map_err(|e| e.to_string())
}

/// Percentages by what the code is part of, the largest first.
async fn shares(data: &Path) -> Result<Vec<(f64, String)>, String> {
    let done = Command::new("perf")
        .args(["report", "--stdio", "--no-children", "--sort", "dso"])
        .args(["--percent-limit", "0.5", "--input"])
        .arg(data)
        .stdin(Stdio::null())
        .output()
        .await
        .map_err(|e| format!("perf: {e}"))?;
    let text = String::from_utf8_lossy(&done.stdout);
    let found: Vec<_> = text.lines().filter_map(share).collect();
    if found.is_empty() {
        let why = String::from_utf8_lossy(&done.stderr);
        return Err(format!("perf saw nothing: {why}"));
    }
    Ok(found)
}

/// `    68.19%  envoy`
fn share(line: &str) -> Option<(f64, String)> {
    let (percent, part) = line.trim().split_once('%')?;
    let part = match part.trim() {
        part if part.starts_with("[JIT]") || part.contains("anon") => {
            "the module, as compiled by V8"
        }
        "[kernel.kallsyms]" => "the kernel",
        "envoy" => "Envoy, host calls included",
        part => part,
    };
    Some((percent.parse().ok()?, part.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn a_line_of_perf_is_read() {
        let jit = share("    25.78%  [JIT] tid 9430").unwrap();
        assert_eq!(jit, (25.78, "the module, as compiled by V8".into()));
        assert_eq!(share("     4.24%  libc.so.6").unwrap().1, "libc.so.6");
        assert_eq!(share("# Total Lost Samples: 0"), None);
    }
}
