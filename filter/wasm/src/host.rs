//! What the filter asks of its host, in the core's own terms. Every call returns a value or says
//! why not; none can panic.

use crate::abi;
use idempo_core::exchange::{Edit, Field, Level};
use idempo_core::http::Headers;
use idempo_core::pairs;
use idempo_core::reply::LocalReply;
use idempo_core::store::table::{HostError, SharedData};
use idempo_core::tenant::Facts;
use std::cell::Cell;

/// Header maps of a stream, and of the answer to a call.
#[derive(Clone, Copy)]
pub(crate) enum Map {
    Request = 0,
    Response = 2,
    CallResponse = 6,
}

/// Body buffers of a stream and of the answer to a call, and the plugin's configuration.
#[derive(Clone, Copy)]
pub(crate) enum Buffer {
    Request = 0,
    Response = 1,
    CallResponse = 4,
    PluginConfiguration = 7,
}

/// Directions of a stream.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    Request = 0,
    Response = 1,
}

pub(crate) fn log(level: Level, message: &str) {
    let level = match level {
        Level::Info => 2,
        Level::Warn => 3,
        Level::Error => 4,
    };
    abi::log(level, &format!("idempo: {message}"));
}

/// Unix microseconds; 0 where the host has no clock.
pub(crate) fn now_us() -> u64 {
    abi::now_ns().unwrap_or(0) / 1000
}

pub(crate) fn headers(map: Map) -> Option<Headers> {
    pairs::read(&abi::header_map(map as u32).ok()??)
}

/// `false`: the host refused one of them.
pub(crate) fn edit_headers(map: Map, edits: &[Edit]) -> bool {
    let mut all = true;
    for edit in edits {
        let done = match edit {
            Edit::Remove(name) => abi::remove_header(map as u32, name),
            Edit::Set(name, value) => abi::replace_header(map as u32, name, value),
        };
        if let Err(status) = done {
            all = false;
            log(
                Level::Error,
                &format!("the host refused a header change (status {status})"),
            );
        }
    }
    all
}

/// Tells the host that a root which asked to stay may go.
pub(crate) fn root_is_done(root: u32) {
    if enter(root)
        && let Err(status) = abi::done()
    {
        log(
            Level::Warn,
            &format!("the host did not let a plugin go (status {status})"),
        );
    }
}

/// The calls that follow are for that stream. `false`: the host knows it no more.
pub(crate) fn enter(stream: u32) -> bool {
    abi::set_effective_context(stream).is_ok()
}

/// # Errors
/// What to write in the log: without ticks nothing that waits would ever end.
pub(crate) fn set_tick_ms(period: u32) -> Result<(), String> {
    abi::set_tick_ms(period).map_err(|status| format!("no ticks on this host (status {status})"))
}

/// A whole buffer, up to `size` octets.
pub(crate) fn buffer(buffer: Buffer, size: usize) -> Option<Vec<u8>> {
    if size == 0 {
        return Some(Vec::new());
    }
    match abi::buffer(buffer as u32, 0, size) {
        Ok(bytes) => Some(bytes.unwrap_or_default()),
        Err(_) => None,
    }
}

/// `false`: the host refused.
pub(crate) fn resume(direction: Direction) -> bool {
    let resumed = abi::continue_stream(direction as u32);
    if let Err(status) = resumed {
        log(
            Level::Warn,
            &format!("a stream could not be resumed (status {status})"),
        );
    }
    resumed.is_ok()
}

/// Sends the filter's own answer. The host takes it once per stream. `false`: it refused.
pub(crate) fn reply(reply: &LocalReply) -> bool {
    let headers = pairs::write(&reply.headers);
    let sent = abi::send_local_response(u32::from(reply.status), "idempo", &reply.body, &headers);
    if let Err(status) = sent {
        log(
            Level::Error,
            &format!("a local reply was refused (status {status})"),
        );
    }
    sent.is_ok()
}

pub(crate) fn show(field: Field, value: &str) {
    let _ = abi::set_property(field.name().as_bytes(), value.as_bytes());
}

/// Host properties of the stream in whose context the call is made.
pub(crate) struct Properties;

impl Facts for Properties {
    fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        property(path)
    }
}

pub(crate) fn property(path: &[&str]) -> Option<Vec<u8>> {
    abi::property(path.join("\0").as_bytes()).ok().flatten()
}

pub(crate) fn text_property(path: &[&str]) -> Option<String> {
    String::from_utf8(property(path)?).ok()
}

/// An integer property: eight octets, little endian.
pub(crate) fn number_property(path: &[&str]) -> Option<u64> {
    Some(u64::from_le_bytes(property(path)?.try_into().ok()?))
}

/// An environment variable that the VM was given.
pub(crate) fn environment_variable(name: &str) -> Option<Vec<u8>> {
    abi::environment().split(|b| *b == 0).find_map(|entry| {
        let (key, value) = entry.split_at_checked(name.len())?;
        let value = value.strip_prefix(b"=")?;
        (key == name.as_bytes()).then(|| value.to_vec())
    })
}

/// The host's shared data.
///
/// Envoy creates a key that is not there whatever number is passed, takes 0 for "whatever is there", and
/// refuses another number than the key's own. So a number that no key ever has creates only where
/// there is nothing. `ngx_wasm_module` wants the key's own number in any case, and 0 where there is no key.
pub(crate) struct HostSharedData;

const NO_KEY_HAS_IT: u32 = u32::MAX;

/// Written to find out which rule is in force.
const CAS_PROBE: &str = "idempo/1/cas";
/// Never there under the other rule, since nothing else writes it.
const CAS_PROBE_ABSENT: &str = "idempo/1/cas/absent";

thread_local! {
    /// What creates only where there is nothing.
    static CREATES: Cell<u32> = const { Cell::new(NO_KEY_HAS_IT) };
}

/// Finds out by which rule this host compares numbers. To take Envoy for the other one would write over
/// what is there, so all that sets them apart must be seen; the other way round nothing is ever
/// created, and the store says that it cannot be used.
pub(crate) fn learn_cas_rule() {
    let write = |cas| abi::set_shared_data(CAS_PROBE, &[1], cas);
    // There it is afterwards, under either rule.
    let _ = write(0);
    let refuses_zero = write(0) == Ok(false);
    let other = refuses_zero
        && abi::set_shared_data(CAS_PROBE_ABSENT, &[1], NO_KEY_HAS_IT) == Ok(false)
        && abi::shared_data(CAS_PROBE_ABSENT) == Ok(None)
        // Another worker may do the same at this moment.
        && (0..8).any(|_| match abi::shared_data(CAS_PROBE) {
            Ok(Some((_, own))) => write(own) == Ok(true),
            _ => false,
        });
    CREATES.set(if other { 0 } else { NO_KEY_HAS_IT });
}

impl SharedData for HostSharedData {
    fn get(&mut self, key: &str) -> Result<Option<(Vec<u8>, u32)>, HostError> {
        abi::shared_data(key).map_err(|status| failed("get", status))
    }

    fn create(&mut self, key: &str, value: &[u8]) -> Result<bool, HostError> {
        abi::set_shared_data(key, value, CREATES.get()).map_err(|status| failed("create", status))
    }

    fn replace(&mut self, key: &str, value: &[u8], cas: u32) -> Result<bool, HostError> {
        if cas == 0 {
            // For the host 0 means "whatever is there": never.
            return Ok(false);
        }
        abi::set_shared_data(key, value, cas).map_err(|status| failed("replace", status))
    }
}

fn failed(what: &str, status: u32) -> HostError {
    HostError(format!("shared data: {what} failed with status {status}"))
}
