//! The module, compiled once and instantiated for every worker of every run.

use crate::calls;
use crate::worker::State;
use std::path::{Path, PathBuf};
use wasmtime::{Config, Engine, InstancePre, Linker, Module};

/// Instructions that one callback may take: many times what the longest does, and few enough that an
/// endless loop ends the test instead of stopping it.
pub(crate) const FUEL: u64 = 4_000_000_000;

/// A compiled module with its imports. Immutable, so tests may share one.
pub struct Compiled {
    pub(crate) engine: Engine,
    pub(crate) instance: InstancePre<State>,
}

impl Compiled {
    /// Compiles the module as `make filter` left it, or `IDEMPO_WASM`.
    ///
    /// # Panics
    /// Where there is none, it is no module, or it imports what this host does not have.
    #[must_use]
    pub fn shipped() -> Self {
        Self::read(&module())
    }

    /// Compiles a module.
    ///
    /// # Panics
    /// As [`Self::shipped`].
    #[must_use]
    pub fn read(path: &Path) -> Self {
        let octets = std::fs::read(path)
            .unwrap_or_else(|error| panic!("{}: {error}; `make filter` builds it", path.display()));
        let mut config = Config::new();
        config.consume_fuel(true);
        let engine = Engine::new(&config).expect("an engine");
        let module = Module::new(&engine, octets).expect("a module");
        let mut linker = Linker::new(&engine);
        calls::link(&mut linker).expect("host functions of different names");
        let instance = linker
            .instantiate_pre(&module)
            .expect("a module that imports nothing else");
        Self { engine, instance }
    }
}

/// Where the shipped module is: `IDEMPO_WASM`, else where `make filter` leaves it.
#[must_use]
pub fn module() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |dir| root.join(dir));
    std::env::var_os("IDEMPO_WASM").map_or_else(
        || target.join("wasm32-unknown-unknown/release/idempo_filter.wasm"),
        PathBuf::from,
    )
}
