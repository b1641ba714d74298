//! The host's shared data as the table sees it: three calls, each of which may fail.

/// A process-wide map with a compare-and-swap number per key.
///
/// The adapter hides here how its host spells "create if absent" (Envoy and `ngx_wasm_module`
/// differ). Keys are never freed by the host, hence the table's fixed set of keys. Each call copies
/// its value between the host and the module.
pub trait SharedData {
    /// The value and its number; an empty value counts as absent.
    ///
    /// # Errors
    /// [`HostError`] where the host refused.
    fn get(&mut self, key: &str) -> Result<Option<(Vec<u8>, u32)>, HostError>;

    /// Writes where nothing is. `true`: written; `false`: someone else was there first.
    ///
    /// # Errors
    /// [`HostError`] where the host refused: whether it has written is then not known.
    fn create(&mut self, key: &str, value: &[u8]) -> Result<bool, HostError>;

    /// Writes if the number is still `cas`. `true`: written; `false`: someone else was there first.
    ///
    /// # Errors
    /// [`HostError`] where the host refused: whether it has written is then not known.
    fn replace(&mut self, key: &str, value: &[u8], cas: u32) -> Result<bool, HostError>;
}

/// What a host said when it refused a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HostError(pub String);

/// How often one step is tried again when other workers write the same key. Each failed try means
/// that somebody else got through, so that running out of tries takes a storm; the caller is then
/// told that the step failed, and nothing was written.
pub(super) const TRIES: u32 = 64;

pub(super) fn contended() -> HostError {
    HostError("other workers kept writing the same key".into())
}

/// Writes over what was seen, and only over that.
pub(super) fn put(
    sd: &mut impl SharedData,
    key: &str,
    value: &[u8],
    seen: Option<u32>,
) -> Result<bool, HostError> {
    match seen {
        None => sd.create(key, value),
        Some(cas) => sd.replace(key, value, cas),
    }
}

/// What one `get` brought: octets (none where the key is absent) and what to write over.
pub(super) fn fetch(
    sd: &mut impl SharedData,
    key: &str,
) -> Result<(Vec<u8>, Option<u32>), HostError> {
    Ok(match sd.get(key)? {
        Some((value, cas)) => (value, Some(cas)),
        None => (Vec::new(), None),
    })
}
