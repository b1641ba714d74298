//! Where the binary and the module are found.

use std::path::{Path, PathBuf};

/// The workspace root.
#[must_use]
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("host-tests lies in the workspace")
        .to_owned()
}

/// The Envoy binary: `IDEMPO_ENVOY`, else the one in the workspace's `.venv`.
///
/// # Panics
/// Where there is none, with what to do about it.
#[must_use]
pub fn envoy_binary() -> PathBuf {
    let path = std::env::var_os("IDEMPO_ENVOY")
        .map_or_else(|| workspace().join(".venv/bin/envoy"), PathBuf::from);
    assert!(
        path.is_file(),
        "no Envoy at {}: run `make envoy`, or name a binary in IDEMPO_ENVOY",
        path.display()
    );
    path
}

/// Cargo takes a relative target directory from where it was called: the workspace root, in `make`.
fn release() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    workspace()
        .join(target)
        .join("wasm32-unknown-unknown/release")
}

/// The shipped module as built: `IDEMPO_WASM`, else where `make filter` leaves it.
#[must_use]
pub fn module() -> PathBuf {
    std::env::var_os("IDEMPO_WASM")
        .map_or_else(|| release().join("idempo_filter.wasm"), PathBuf::from)
}

/// The module built with `test-crash`, which a request header can trap.
#[must_use]
pub fn crash_module() -> PathBuf {
    release().join("idempo_filter_test_crash.wasm")
}
