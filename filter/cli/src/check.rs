//! `idempo check`: would the filter take this configuration?

use crate::load::{Configuration, Loaded};
use crate::{Format, Report};
use idempo_core::plan::Plan;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// 0 where every configuration is right, 1 where one is refused.
pub(crate) fn report(loaded: &Loaded, format: Format) -> Report {
    let refused = loaded.configurations.iter().any(|c| c.plan.is_err());
    let text = match format {
        Format::Text => text(loaded),
        Format::Json => crate::pretty(&as_json(loaded, refused)),
    };
    Report {
        text,
        status: u8::from(refused),
    }
}

fn text(loaded: &Loaded) -> String {
    let mut out = String::new();
    if loaded.unclear {
        let _ = writeln!(
            out,
            "{}: no plugin is called idempo, so every wasm plugin is checked",
            loaded.name
        );
    }
    for path in &loaded.skipped {
        let _ = writeln!(out, "{}: skipped {path}: another plugin", loaded.name);
    }
    for configuration in &loaded.configurations {
        one(&mut out, &loaded.name, configuration);
    }
    out
}

fn one(out: &mut String, name: &str, configuration: &Configuration) {
    let mut at = name.to_owned();
    if let Some(place) = &configuration.place {
        at.push_str(&line(place.line));
        let _ = write!(at, ": {}", place.path);
        if let Some(plugin) = &place.plugin {
            let _ = write!(at, " (plugin {})", plugin.escape_debug());
        }
    }
    match &configuration.plan {
        Ok(plan) => {
            let _ = writeln!(out, "{at}: ok, {}", summary(plan));
        }
        Err(refusal) => {
            let _ = writeln!(out, "{at}: refused\n{}", refusal.text);
        }
    }
    for note in &configuration.notes {
        let _ = writeln!(out, "note: {note}");
    }
    for warning in &configuration.warnings {
        let _ = writeln!(
            out,
            "warning: {name}{}: {}: {}",
            line(warning.line),
            warning.path,
            warning.warning
        );
    }
}

fn line(line: usize) -> String {
    if line == 0 {
        return String::new();
    }
    format!(":{line}")
}

fn summary(plan: &Plan) -> String {
    let routes = plan.routes.len();
    let noun = if routes == 1 { "route" } else { "routes" };
    format!(
        "{routes} {noun}, store {}, namespace {}, mode {}",
        plan.store.name(),
        plan.namespace,
        crate::mode_name(plan.mode)
    )
}

fn as_json(loaded: &Loaded, refused: bool) -> Value {
    let configurations: Vec<Value> = loaded
        .configurations
        .iter()
        .map(|c| {
            json!({
                "path": c.place.as_ref().map(|p| &p.path),
                "line": c.place.as_ref().map(|p| p.line).filter(|l| *l > 0),
                "plugin": c.place.as_ref().and_then(|p| p.plugin.as_ref()),
                "ok": c.plan.is_ok(),
                "errors": c.plan.as_ref().err().map(|r| &r.errors).into_iter().flatten().collect::<Vec<_>>(),
                "notes": c.notes,
                "warnings": c.warnings,
            })
        })
        .collect();
    json!({
        "file": loaded.name,
        "ok": !refused,
        "all_plugins_taken": loaded.unclear,
        "skipped": loaded.skipped,
        "configurations": configurations,
    })
}
