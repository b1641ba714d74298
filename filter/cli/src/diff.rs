//! `idempo diff`: what an edit does to operations that already exist.

use crate::{Format, Report};
use idempo_core::config::diff::{self, Change, Kind};
use idempo_core::plan::Plan;
use serde_json::json;
use std::fmt::Write as _;

/// 1 where a retry across the edit may run again.
pub(crate) fn report(old: &Plan, new: &Plan, format: Format) -> Report {
    let changes = diff::diff(old, new);
    let identity = changes.iter().any(|c| c.kind == Kind::Identity);
    let text = match format {
        Format::Json => crate::pretty(&json!({"ok": !identity, "changes": changes})),
        Format::Text => text(&changes),
    };
    Report {
        text,
        status: u8::from(identity),
    }
}

fn text(changes: &[Change]) -> String {
    let mut out = String::new();
    if changes.is_empty() {
        return "no difference\n".to_owned();
    }
    // The gravest come first.
    for change in changes {
        let _ = writeln!(out, "{change}");
    }
    let identity = changes.iter().filter(|c| c.kind == Kind::Identity).count();
    if identity > 0 {
        let noun = if identity == 1 { "change" } else { "changes" };
        let _ = writeln!(
            out,
            "\n{identity} {noun} of identity: a retry across this edit may run again"
        );
    }
    out
}
