//! The host functions that this filter uses, as proxy-wasm ABI 0.2.1 declares them.
//!
//! Declared here rather than called through the SDK: the SDK's wrappers panic on every status that
//! they do not expect, take only UTF-8 in local replies and calls, and a panic kills a worker's VM for
//! all its streams. Everything here returns a plain status; nothing here can panic.
//!
//! This is the only file with `unsafe`. Its obligations are those of the ABI: pointers are valid for
//! the length that goes with them during the call; what the host returns was allocated by the
//! module's own allocator ([`allocate`]) and is owned by the caller. The last one is not left to the
//! host: what it says of where its octets are is compared with what was allocated.

use std::cell::Cell;
use std::ptr::{null, null_mut};

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_log(level: u32, message: *const u8, size: usize) -> u32;
    fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
    fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    fn proxy_get_buffer_bytes(
        kind: u32,
        start: usize,
        max: usize,
        data: *mut *mut u8,
        size: *mut usize,
    ) -> u32;
    fn proxy_get_header_map_pairs(kind: u32, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_replace_header_map_value(
        kind: u32,
        name: *const u8,
        name_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_remove_header_map_value(kind: u32, name: *const u8, name_size: usize) -> u32;
    fn proxy_get_property(
        path: *const u8,
        path_size: usize,
        data: *mut *mut u8,
        size: *mut usize,
    ) -> u32;
    fn proxy_set_property(
        path: *const u8,
        path_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_get_shared_data(
        key: *const u8,
        key_size: usize,
        data: *mut *mut u8,
        size: *mut usize,
        cas: *mut u32,
    ) -> u32;
    fn proxy_set_shared_data(
        key: *const u8,
        key_size: usize,
        value: *const u8,
        value_size: usize,
        cas: u32,
    ) -> u32;
    fn proxy_register_shared_queue(name: *const u8, name_size: usize, id: *mut u32) -> u32;
    fn proxy_dequeue_shared_queue(id: u32, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_enqueue_shared_queue(id: u32, value: *const u8, value_size: usize) -> u32;
    fn proxy_continue_stream(kind: u32) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_size: usize,
        body: *const u8,
        body_size: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;
    fn proxy_set_effective_context(context: u32) -> u32;
    fn proxy_done() -> u32;
    fn proxy_http_call(
        cluster: *const u8,
        cluster_size: usize,
        headers: *const u8,
        headers_size: usize,
        body: *const u8,
        body_size: usize,
        trailers: *const u8,
        trailers_size: usize,
        timeout: u32,
        token: *mut u32,
    ) -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, name_size: usize, id: *mut u32) -> u32;
    fn proxy_record_metric(id: u32, value: u64) -> u32;
    fn proxy_increment_metric(id: u32, by: i64) -> u32;
}

// Environment variables: the two WASI functions that the module may import. The standard library
// does not see them on this target.
#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn environ_sizes_get(count: *mut usize, size: *mut usize) -> u16;
    fn environ_get(pointers: *mut *mut u8, buffer: *mut u8) -> u16;
}

/// Memory for what the host returns. Under the name `malloc`, which hosts look for on this target.
///
/// Boxed as a slice, so that length and capacity are the same when [`returned`] takes it over.
#[unsafe(export_name = "malloc")]
extern "C" fn allocate(size: usize) -> *mut u8 {
    let data = Box::into_raw(vec![0_u8; size].into_boxed_slice()).cast();
    ALLOCATED.set((data, size));
    data
}

thread_local! {
    /// What the host allocated last, and has not handed over yet.
    static ALLOCATED: Cell<(*mut u8, usize)> = const { Cell::new((null_mut(), 0)) };
}

/// The host's log level `critical`.
pub(crate) const CRITICAL: u32 = 5;

/// The host's status `Ok`.
pub(crate) const OK: u32 = 0;
/// The host's status `NotFound`.
pub(crate) const NOT_FOUND: u32 = 1;
/// The host's status `InternalFailure`: also what a host is taken to mean whose result cannot be.
const INTERNAL_FAILURE: u32 = 10;
/// The host's status `CasMismatch`.
pub(crate) const CAS_MISMATCH: u32 = 8;

/// Octets that the host allocated for us.
type Returned = Result<Option<Vec<u8>>, u32>;

/// Runs a host call that returns octets.
fn returned(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Returned {
    let mut data: *mut u8 = null_mut();
    let mut size: usize = 0;
    ALLOCATED.set((null_mut(), 0));
    let status = call(&raw mut data, &raw mut size);
    let (allocated, capacity) = ALLOCATED.replace((null_mut(), 0));
    // SAFETY: `allocate` made it with just this capacity during the call, and nothing else owns it.
    let owned = (!allocated.is_null())
        .then(|| unsafe { Vec::from_raw_parts(allocated, capacity, capacity) });
    match (status, owned) {
        (OK, _) if data.is_null() && size == 0 => Ok(None),
        (OK, Some(mut octets)) if data == allocated && size <= capacity => {
            octets.truncate(size);
            Ok(Some(octets))
        }
        // Somewhere else, or more than there is room for: not to be touched.
        (OK, _) => Err(INTERNAL_FAILURE),
        (NOT_FOUND, _) => Ok(None),
        (status, _) => Err(status),
    }
}

const fn checked(status: u32) -> Result<(), u32> {
    if status == OK { Ok(()) } else { Err(status) }
}

pub(crate) fn log(level: u32, message: &str) {
    // SAFETY: pointer and length are of one slice. A log line that is lost changes nothing.
    let _ = unsafe { proxy_log(level, message.as_ptr(), message.len()) };
}

pub(crate) fn now_ns() -> Result<u64, u32> {
    let mut time = 0;
    // SAFETY: the pointer is to a live local.
    checked(unsafe { proxy_get_current_time_nanoseconds(&raw mut time) }).map(|()| time)
}

pub(crate) fn set_tick_ms(period: u32) -> Result<(), u32> {
    // SAFETY: no pointers.
    checked(unsafe { proxy_set_tick_period_milliseconds(period) })
}

pub(crate) fn buffer(kind: u32, start: usize, max: usize) -> Returned {
    // SAFETY: `returned` passes pointers to live locals.
    returned(|data, size| unsafe { proxy_get_buffer_bytes(kind, start, max, data, size) })
}

pub(crate) fn header_map(kind: u32) -> Returned {
    // SAFETY: as above.
    returned(|data, size| unsafe { proxy_get_header_map_pairs(kind, data, size) })
}

pub(crate) fn replace_header(kind: u32, name: &[u8], value: &[u8]) -> Result<(), u32> {
    // SAFETY: pointers and lengths are of one slice each.
    checked(unsafe {
        proxy_replace_header_map_value(kind, name.as_ptr(), name.len(), value.as_ptr(), value.len())
    })
}

pub(crate) fn remove_header(kind: u32, name: &[u8]) -> Result<(), u32> {
    // SAFETY: pointer and length are of one slice.
    checked(unsafe { proxy_remove_header_map_value(kind, name.as_ptr(), name.len()) })
}

pub(crate) fn property(path: &[u8]) -> Returned {
    // SAFETY: pointer and length are of one slice.
    returned(|data, size| unsafe { proxy_get_property(path.as_ptr(), path.len(), data, size) })
}

pub(crate) fn set_property(path: &[u8], value: &[u8]) -> Result<(), u32> {
    // SAFETY: pointers and lengths are of one slice each.
    checked(unsafe { proxy_set_property(path.as_ptr(), path.len(), value.as_ptr(), value.len()) })
}

pub(crate) fn shared_data(key: &str) -> Result<Option<(Vec<u8>, u32)>, u32> {
    let mut cas = 0;
    let value = returned(|data, size| {
        // SAFETY: pointers to live locals; the key's are of one slice.
        unsafe { proxy_get_shared_data(key.as_ptr(), key.len(), data, size, &raw mut cas) }
    })?;
    Ok(value.map(|value| (value, cas)))
}

/// `Ok(false)`: another number.
pub(crate) fn set_shared_data(key: &str, value: &[u8], cas: u32) -> Result<bool, u32> {
    // SAFETY: pointers and lengths are of one slice each.
    let status =
        unsafe { proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), cas) };
    match status {
        OK => Ok(true),
        CAS_MISMATCH => Ok(false),
        other => Err(other),
    }
}

pub(crate) fn register_queue(name: &str) -> Result<u32, u32> {
    let mut id = 0;
    // SAFETY: pointers to a live local and of one slice.
    checked(unsafe { proxy_register_shared_queue(name.as_ptr(), name.len(), &raw mut id) })
        .map(|()| id)
}

/// `Ok(None)`: empty, or no such queue.
pub(crate) fn dequeue(id: u32) -> Returned {
    const EMPTY: u32 = 7;
    // SAFETY: `returned` passes pointers to live locals.
    match returned(|data, size| unsafe { proxy_dequeue_shared_queue(id, data, size) }) {
        Err(EMPTY) => Ok(None),
        other => other,
    }
}

pub(crate) fn enqueue(id: u32, value: &[u8]) -> Result<(), u32> {
    // SAFETY: pointer and length are of one slice.
    checked(unsafe { proxy_enqueue_shared_queue(id, value.as_ptr(), value.len()) })
}

pub(crate) fn continue_stream(kind: u32) -> Result<(), u32> {
    // SAFETY: no pointers.
    checked(unsafe { proxy_continue_stream(kind) })
}

pub(crate) fn send_local_response(
    status: u32,
    details: &str,
    body: &[u8],
    headers: &[u8],
) -> Result<(), u32> {
    let body_pointer = if body.is_empty() {
        null()
    } else {
        body.as_ptr()
    };
    // SAFETY: pointers and lengths are of one slice each; an empty body may be null.
    checked(unsafe {
        proxy_send_local_response(
            status,
            details.as_ptr(),
            details.len(),
            body_pointer,
            body.len(),
            headers.as_ptr(),
            headers.len(),
            -1,
        )
    })
}

pub(crate) fn set_effective_context(context: u32) -> Result<(), u32> {
    // SAFETY: no pointers. The host answers an unknown context with a status.
    checked(unsafe { proxy_set_effective_context(context) })
}

/// The context entered last has nothing left to do.
pub(crate) fn done() -> Result<(), u32> {
    // SAFETY: no pointers.
    checked(unsafe { proxy_done() })
}

/// Sends a request for the context entered last; its answer comes under the token. Headers as
/// [`idempo_core::pairs::write`] writes them; the time-out in milliseconds.
pub(crate) fn http_call(
    cluster: &str,
    headers: &[u8],
    body: &[u8],
    timeout: u32,
) -> Result<u32, u32> {
    // A map without lines: its number of lines.
    const NO_TRAILERS: [u8; 4] = [0; 4];
    let mut token = 0;
    // SAFETY: pointers and lengths are of one slice each; the token's is to a live local.
    checked(unsafe {
        proxy_http_call(
            cluster.as_ptr(),
            cluster.len(),
            headers.as_ptr(),
            headers.len(),
            body.as_ptr(),
            body.len(),
            NO_TRAILERS.as_ptr(),
            NO_TRAILERS.len(),
            timeout,
            &raw mut token,
        )
    })
    .map(|()| token)
}

pub(crate) fn define_metric(kind: u32, name: &str) -> Result<u32, u32> {
    let mut id = 0;
    // SAFETY: pointers to a live local and of one slice.
    checked(unsafe { proxy_define_metric(kind, name.as_ptr(), name.len(), &raw mut id) })
        .map(|()| id)
}

pub(crate) fn record_metric(id: u32, value: u64) -> Result<(), u32> {
    // SAFETY: no pointers.
    checked(unsafe { proxy_record_metric(id, value) })
}

pub(crate) fn increment_metric(id: u32, by: i64) -> Result<(), u32> {
    // SAFETY: no pointers.
    checked(unsafe { proxy_increment_metric(id, by) })
}

/// The environment as `NAME=value\0…`; empty where the host has none.
pub(crate) fn environment() -> Vec<u8> {
    let (mut count, mut size) = (0, 0);
    // SAFETY: pointers to live locals.
    if unsafe { environ_sizes_get(&raw mut count, &raw mut size) } != 0 {
        return Vec::new();
    }
    let mut pointers = vec![null_mut(); count];
    let mut buffer = vec![0; size];
    // SAFETY: both have the sizes that the host has just asked for.
    if unsafe { environ_get(pointers.as_mut_ptr(), buffer.as_mut_ptr()) } != 0 {
        return Vec::new();
    }
    buffer
}
