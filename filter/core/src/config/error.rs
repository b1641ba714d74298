//! What is wrong with a configuration, told so that the next edit is right.
//!
//! Every error names its place, the problem and the remedy. Values that an operator wrote are
//! shown escaped and cut, so that a log line stays one line; nothing that could be a secret is ever shown.

use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// Echoed values are cut after this many characters.
const ECHO_CHARS: usize = 80;
/// Errors beyond this many are counted, not listed.
const LISTED: usize = 50;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigError {
    /// Where: `routes[0].replay.ttl`; empty for the configuration as a whole.
    pub path: String,
    /// What is wrong there.
    pub problem: String,
    /// What would be right.
    pub remedy: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{}; {}", self.problem, self.remedy)
    }
}

/// Everything that is wrong, in the order of the document as far as it could be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ConfigErrors {
    errors: Vec<ConfigError>,
}

impl ConfigErrors {
    /// The errors; never empty.
    #[must_use]
    pub fn errors(&self) -> &[ConfigError] {
        &self.errors
    }

    pub(super) fn one(path: &str, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            errors: vec![ConfigError {
                path: path.to_owned(),
                problem: problem.into(),
                remedy: remedy.into(),
            }],
        }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.errors.len();
        let noun = if count == 1 { "error" } else { "errors" };
        write!(f, "{count} {noun} in the idempo configuration:")?;
        for (number, error) in self.errors.iter().take(LISTED).enumerate() {
            write!(f, "\n{}. {error}", number + 1)?;
        }
        match count.saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(f, "\n… and {more} more"),
        }
    }
}

impl std::error::Error for ConfigErrors {}

/// Collects errors while the configuration is read, and keeps one mistake from being told twice:
/// what could not be read is cut out of the document before it is read on, so its absence, or what
/// its default would contradict, is no second mistake.
#[derive(Default)]
pub(super) struct Report {
    errors: Vec<ConfigError>,
    unread: Vec<String>,
}

impl Report {
    /// Something with the wrong shape, which is then cut out of the document.
    pub(super) fn unreadable(&mut self, path: String, problem: String, remedy: String) {
        let path = redacted(path);
        if self.unread.contains(&path) {
            return;
        }
        self.unread.push(path.clone());
        self.errors.push(ConfigError {
            path,
            problem,
            remedy,
        });
    }

    /// Something that could be read and is wrong.
    pub(super) fn push(
        &mut self,
        path: impl Into<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.put(path.into(), problem.into(), remedy.into());
    }

    /// Apart from [`Self::push`], which is compiled once for each kind of its texts.
    fn put(&mut self, path: String, problem: String, remedy: String) {
        let path = redacted(path);
        let told = self
            .unread
            .iter()
            .any(|u| is_within(u, &path) || is_within(&path, u));
        if !told {
            self.errors.push(ConfigError {
                path,
                problem,
                remedy,
            });
        }
    }

    /// Something that is not there. A misspelt neighbour may be it, so then nothing is said.
    pub(super) fn missing(&mut self, parent: &str, name: &str, remedy: impl Into<String>) {
        let path = join(parent, name);
        let misspelt = self
            .unread
            .iter()
            .any(|u| u.rsplit_once('.').map_or("", |(p, _)| p) == parent);
        if !misspelt {
            self.push(path, "is missing", remedy);
        }
    }

    /// Whether something at or under this path could not be read.
    pub(super) fn has_unread_within(&self, path: &str) -> bool {
        self.unread.iter().any(|u| is_within(u, path))
    }

    /// Whether something at or under this path is wrong already.
    pub(super) fn has_error_within(&self, path: &str) -> bool {
        self.errors.iter().any(|e| is_within(&e.path, path))
    }

    pub(super) fn is_clean(&self) -> bool {
        self.errors.is_empty()
    }

    pub(super) fn into_errors(self) -> ConfigErrors {
        ConfigErrors {
            errors: self.errors,
        }
    }
}

/// The parts of a configuration in which a secret may have been written.
const SECRET: [&str; 4] = [
    "signing",
    "store.redis.token",
    "store.redis.authorization",
    "store.redis.login",
];

/// The part of the configuration at or around this path of which nothing may be shown, because
/// somebody may have written a secret there.
#[must_use]
pub fn secret_part(path: &str) -> Option<&'static str> {
    SECRET.into_iter().find(|part| is_within(path, part))
}

/// A path into such a part only as far as its names are known: an unknown one might be the secret.
pub(super) fn redacted(path: String) -> String {
    const KNOWN: [&str; 6] = ["active", "previous", "user", "password", "env", ""];
    let Some(part) = secret_part(&path) else {
        return path;
    };
    let names = path.get(part.len()..).unwrap_or_default().split('.');
    let known = names.take_while(|name| KNOWN.contains(name)).skip(1);
    known.fold(part.to_owned(), |path, name| path + "." + name)
}

/// Whether `inner` is `outer` or lies under it.
fn is_within(inner: &str, outer: &str) -> bool {
    inner
        .strip_prefix(outer)
        .is_some_and(|rest| rest.is_empty() || outer.is_empty() || rest.starts_with(['.', '[']))
}

/// A member's path.
pub(super) fn join(parent: &str, name: &str) -> String {
    let plain = !name.is_empty()
        && name.len() <= ECHO_CHARS
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    match (plain, parent.is_empty()) {
        (true, true) => name.to_owned(),
        (true, false) => format!("{parent}.{name}"),
        (false, _) => format!("{parent}[{}]", quote(name)),
    }
}

/// An element's path.
pub(super) fn index(parent: &str, at: usize) -> String {
    format!("{parent}[{at}]")
}

/// A value in quotation marks, escaped to visible ASCII and cut.
pub(super) fn quote(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(ECHO_CHARS)
        .flat_map(|c| {
            // Direction marks and their like would make a log line lie, so only ASCII stays as it is;
            // apostrophes need no escape between double quotation marks.
            let plain = (c == '\'').then_some(c);
            let escaped = plain.is_none().then(|| c.escape_default());
            plain.into_iter().chain(escaped.into_iter().flatten())
        })
        .collect();
    if text.chars().nth(ECHO_CHARS).is_some() {
        shown.push('…');
    }
    format!("\"{shown}\"")
}

/// Any value, briefly.
pub(super) fn brief(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => n.to_string(),
        Value::String(s) => quote(s),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}

/// The known name that was probably meant.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > 64 {
        return None;
    }
    let tolerance = (name.len() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|k| (strsim::osa_distance(&name.to_ascii_lowercase(), k), k))
        .filter(|(distance, _)| *distance <= tolerance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, k)| k)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn echoes_are_one_short_ascii_line() {
        let shown = quote(&format!("a\n\u{202e}\"{}", "x".repeat(500)));
        assert!(shown.starts_with(r#""a\n\u{202e}\"xxx"#), "{shown}");
        assert!(shown.chars().count() < 100, "{shown}");
        assert_eq!(quote("it's"), "\"it's\"");
    }

    #[test]
    fn long_lists_are_cut() {
        let mut report = Report::default();
        for i in 0..60 {
            report.push(index("routes", i), "is wrong", "make it right");
        }
        let text = report.into_errors().to_string();
        assert_eq!(text.lines().count(), 52);
        assert!(text.starts_with("60 errors"), "{text}");
        assert!(text.ends_with("… and 10 more"), "{text}");
    }

    #[test]
    fn one_mistake_is_told_once() {
        let mut report = Report::default();
        report.unreadable("routes[1].mtach".into(), "unknown".into(), "match".into());
        report.missing("routes[1]", "match", "add one");
        report.push("routes", "is empty", "add one");
        report.push("routes[10].id", "is odd", "change it");
        assert!(report.has_unread_within("routes[1]"));
        assert!(!report.has_unread_within("routes[10]"));
        let errors = report.into_errors();
        let paths: Vec<_> = errors.errors().iter().map(|e| e.path.as_str()).collect();
        assert_eq!(paths, ["routes[1].mtach", "routes[10].id"]);
    }

    #[test]
    fn suggestions_are_near_or_none() {
        let known = ["ttl", "tombstone_ttl", "max_inline_body"];
        assert_eq!(nearest("tombstone_tll", known), Some("tombstone_ttl"));
        assert_eq!(nearest("TTL", known), Some("ttl"));
        assert_eq!(nearest("colour", known), None);
    }
}
