//! Digests of values that have no `Hash`: states are told apart by them.

use std::fmt::{self, Debug, Write as _};
use xxhash_rust::xxh3::Xxh3;

/// A digest over what `Debug` shows. What it hides (keys, payloads, most of a token) is the same for
/// all attempts of a model, or told apart by what it does show.
pub(crate) fn of(value: &impl Debug) -> u64 {
    let mut sink = Sink(Xxh3::new());
    // A hasher takes everything.
    let _ = write!(sink, "{value:?}");
    sink.0.digest()
}

struct Sink(Xxh3);

impl fmt::Write for Sink {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

/// A value with its digest, made once and shared by all states that hold it.
#[derive(Clone)]
pub(crate) struct Marked<T> {
    pub(crate) value: T,
    pub(crate) digest: u64,
}

impl<T: Debug> Marked<T> {
    pub(crate) fn new(value: T) -> Self {
        let digest = of(&value);
        Self { value, digest }
    }
}

impl<T> std::hash::Hash for Marked<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}
