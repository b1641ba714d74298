//! Facts about the machine, the build and a process, for the reports.

use rustix::{
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};
use std::{fs, path::Path, process::Command, time::SystemTime};

/// What a figure is worth without: which machine, which build, when.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) load: String,
    pub(crate) envoy: String,
    pub(crate) git: String,
    pub(crate) module_bytes: u64,
}

impl Machine {
    pub(crate) fn look(envoy_version: String) -> Self {
        let module = host_tests::envoy::module();
        Self {
            date: httpdate::fmt_http_date(SystemTime::now()),
            cpu: cpu_model(),
            cores: cores(),
            load: fs::read_to_string("/proc/loadavg")
                .unwrap_or_default()
                .split_whitespace()
                .next()
                .unwrap_or("unknown")
                .to_owned(),
            envoy: envoy_version,
            git: git(),
            module_bytes: fs::metadata(module).map_or(0, |m| m.len()),
        }
    }
}

/// Of the machine, wherever this process is pinned to.
pub(crate) fn cores() -> usize {
    fs::read_to_string("/proc/cpuinfo")
        .unwrap_or_default()
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count()
        .max(1)
}

fn cpu_model() -> String {
    fs::read_to_string("/proc/cpuinfo")
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or_else(|| "unknown".into(), |(_, model)| model.trim().to_owned())
}

fn git() -> String {
    let run = |args: &[&str]| {
        let done = Command::new("git")
            .args(args)
            .current_dir(host_tests::envoy::workspace())
            .output()
            .ok()?;
        let text = String::from_utf8(done.stdout).ok()?;
        done.status.success().then(|| text.trim().to_owned())
    };
    let Some(revision) = run(&["rev-parse", "--short", "HEAD"]) else {
        return "unknown".into();
    };
    // The reports themselves are written into the tree.
    let changed = run(&["status", "--porcelain", "--", ".", ":(exclude)docs/bench"]);
    match changed.as_deref() {
        Some("") => revision,
        _ => format!("{revision} with changes"),
    }
}

/// Puts every thread of a process on one core; threads that it starts later inherit that.
pub(crate) fn pin(pid: u32, core: usize) -> Result<(), String> {
    let mut set = CpuSet::new();
    set.set(core);
    for thread in threads(pid) {
        let id = i32::try_from(thread).ok().and_then(Pid::from_raw);
        sched_setaffinity(id, &set).map_err(|e| format!("pinning thread {thread}: {e}"))?;
    }
    Ok(())
}

fn threads(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// Nanoseconds that a process's threads have run so far.
pub(crate) fn cpu_ns(pid: u32) -> u64 {
    threads(pid)
        .iter()
        .filter_map(|thread| {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        })
        .sum()
}

/// Resident memory of a process, octets.
pub(crate) fn rss(pid: u32) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/statm"))
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok())
        .map_or(0, |pages| pages * rustix::param::page_size() as u64)
}

/// `docs/bench/<name>` in the workspace.
pub(crate) fn write_report(directory: &Path, name: &str, text: &str) -> Result<(), String> {
    let file = directory.join(name);
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(&file, text))
        .map_err(|e| format!("{}: {e}", file.display()))?;
    println!("wrote {}", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_takes_time() {
        let me = std::process::id();
        assert!(rss(me) > 1 << 20);
        assert!(cpu_ns(me) > 0);
        assert!(cores() > 0);
    }
}
