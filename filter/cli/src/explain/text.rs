//! Findings as text.

use super::findings::{
    Findings, FingerprintNote, KeyNote, ModeNote, Problem, UpstreamNote, ValueNote,
};
use super::states::Row;
use std::fmt::Write as _;

/// Writes the report, in the order in which the filter decides.
pub(crate) fn write(findings: &Findings) -> String {
    let mut out = Lines(String::new());
    let path = match (&findings.path.normalised, &findings.path.problem) {
        (Some(path), _) => path.clone(),
        (None, Some(problem)) => format!("has no single reading: {problem}"),
        (None, None) => String::new(),
    };
    out.entry("method", &findings.method);
    out.entry("path", &path);
    out.entry("rule", findings.rule.as_deref().unwrap_or("none"));
    for rule in findings.rules.iter().filter(|r| !r.selected) {
        out.under(&format!("not {}: {}", rule.id, rule.because.join("; ")));
    }
    if let Some(note) = &findings.mode {
        mode(&mut out, note);
    }
    if let Some(note) = &findings.key {
        key(&mut out, note);
    }
    if let Some(told) = &findings.key_time {
        out.entry("key time", &told.text);
    }
    if let Some(note) = &findings.tenant {
        value(&mut out, "tenant", note);
    }
    if let Some(note) = &findings.principal {
        value(&mut out, "principal", note);
    }
    if let Some(operation) = &findings.operation {
        out.entry("operation", operation);
    }
    for note in &findings.previous {
        out.under(&format!("as {} it was {}", note.route, note.operation));
    }
    if let Some(note) = &findings.fingerprint {
        fingerprint(&mut out, note);
    }
    if let Some(note) = &findings.upstream {
        upstream(&mut out, note);
    }
    if let Some(at_once) = &findings.at_once {
        out.entry("answer", &at_once.text);
        if at_once.row.status.is_some() {
            out.under(&answer(&at_once.row));
        }
    }
    if !findings.states.is_empty() {
        states(&mut out, &findings.states);
    }
    out.0
}

/// `name: text` with the texts in one column.
struct Lines(String);

impl Lines {
    fn entry(&mut self, name: &str, text: &str) {
        let _ = writeln!(self.0, "{:<13}{text}", format!("{name}:"));
    }

    fn under(&mut self, text: &str) {
        let _ = writeln!(self.0, "{:<13}{text}", "");
    }
}

fn mode(out: &mut Lines, note: &ModeNote) {
    let mut text = format!("{} (from {})", note.mode, note.from);
    if note.mode == "enforce" && note.enforce_fraction < 1.0 {
        let _ = write!(text, ", share {}", note.enforce_fraction);
        if let Some(applies) = note.applies {
            let _ = write!(text, ": this operation is in {applies}");
        }
    }
    out.entry("mode", &text);
}

fn key(out: &mut Lines, note: &KeyNote) {
    let verdict = match (&note.problem, &note.hash) {
        (Some(problem), _) => shown(problem),
        (None, Some(hash)) => format!("accepted, sha256 {hash}"),
        (None, None) if note.required => "none".to_owned(),
        (None, None) => "none, and none is required".to_owned(),
    };
    out.entry("key", &verdict);
    for place in &note.places {
        let mut text = place.place.clone();
        let parts = [
            place.written.map(str::to_owned),
            place.format.map(str::to_owned),
            place.length.map(|n| format!("{n} characters")),
            place.problem.as_ref().map(shown),
        ];
        for part in parts.into_iter().flatten() {
            let _ = write!(text, ", {part}");
        }
        out.under(&text);
    }
    if let Some(value) = &note.value {
        out.under(&format!("value {value}"));
    }
}

fn shown(problem: &Problem) -> String {
    match problem.reason {
        Some(reason) => format!("{} ({reason}): {}", problem.code, problem.text),
        None => format!("{}: {}", problem.code, problem.text),
    }
}

fn value(out: &mut Lines, name: &str, note: &ValueNote) {
    let from = note.from.join(", ");
    let text = match (&note.problem, &note.digest) {
        (Some(problem), _) if from.is_empty() => problem.clone(),
        (Some(problem), _) => format!("{problem} ({from})"),
        (None, Some(digest)) => format!("digest {digest}, from {from}"),
        (None, None) if from.is_empty() => "none".to_owned(),
        (None, None) => format!("from {from}"),
    };
    out.entry(name, &text);
    if let Some(value) = &note.value {
        out.under(&format!("value {value}"));
    }
}

fn fingerprint(out: &mut Lines, note: &FingerprintNote) {
    out.entry("fingerprint", &note.digest);
    out.under(&format!(
        "{}, body read as {}, {} octets, media type {}, settings {}, version {}",
        note.algorithm,
        note.form,
        note.length,
        if note.media_type.is_empty() {
            "none"
        } else {
            &note.media_type
        },
        note.settings,
        note.version
    ));
    for part in &note.parts {
        let name = &part.name;
        out.under(&format!("{name:<17} {:>8} {}", part.length, part.digest));
    }
}

fn upstream(out: &mut Lines, note: &UpstreamNote) {
    if note.set.is_empty() && note.removed.is_empty() {
        out.entry("upstream", "gets the request unchanged");
        return;
    }
    out.entry("upstream", "gets, on a first attempt:");
    for (name, value) in &note.set {
        out.under(&format!("{name}: {value}"));
    }
    for text in &note.notes {
        out.under(text);
    }
    if !note.removed.is_empty() {
        out.under(&format!("without {}", note.removed.join(", ")));
    }
}

fn states(out: &mut Lines, rows: &[Row]) {
    let width = |column: fn(&Row) -> &str, title: &str| {
        let texts = rows.iter().map(column).chain([title]);
        texts.map(|t| t.chars().count()).max().unwrap_or(0) + 2
    };
    let (state, action) = ("state", "what is done");
    let first = width(|row| row.state, state);
    let second = width(|row| &row.action, action);
    let _ = writeln!(out.0, "\n{state:<first$}{action:<second$}answer");
    for row in rows {
        let (state, action) = (row.state, &row.action);
        let _ = writeln!(out.0, "{state:<first$}{action:<second$}{}", answer(row));
    }
}

fn answer(row: &Row) -> String {
    let Some(status) = row.status else {
        return "the upstream's".to_owned();
    };
    let mut text = status.to_string();
    for part in [&row.code, &row.reason].into_iter().flatten() {
        let _ = write!(text, " {part}");
    }
    if row.retry_after {
        text.push_str(", Retry-After");
    }
    text
}
