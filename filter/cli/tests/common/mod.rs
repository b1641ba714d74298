//! Runs the binary.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).expect("JSON on the standard output")
    }

    /// Exit status 2 and one line that holds this.
    pub(crate) fn complains(&self, part: &str) {
        assert_eq!(self.code, 2, "{}{}", self.out, self.err);
        assert_eq!(self.out, "");
        assert!(self.err.contains(part), "{part:?} in {:?}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{:?}", self.err);
        for not in ["panicked", "backtrace"] {
            assert!(!self.err.contains(not), "{:?}", self.err);
        }
    }
}

pub(crate) fn idempo(arguments: &[&str]) -> Ran {
    idempo_with(arguments, b"")
}

pub(crate) fn idempo_with(arguments: &[&str], input: &[u8]) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_idempo"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // The child may be done before it has read all of it.
    let _ = child.stdin.take().expect("stdin").write_all(input);
    let output = child.wait_with_output().expect("the binary ends");
    Ran {
        code: output.status.code().expect("no signal"),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

pub(crate) fn check_text(yaml: &str) -> Ran {
    idempo_with(&["check", "-"], yaml.as_bytes())
}

pub(crate) fn fixture(name: &str) -> String {
    path(&["tests", "fixtures", name])
}

pub(crate) fn repository(name: &str) -> String {
    path(&["..", "..", name])
}

fn path(parts: &[&str]) -> String {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.extend(parts);
    path.display().to_string()
}

/// A file in a directory of its own, which lives as long as what is returned.
pub(crate) fn file(name: &str, text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(name);
    std::fs::write(&path, text).expect("a file");
    let path = path.display().to_string();
    (directory, path)
}
