//! What the host calls: the callbacks of proxy-wasm ABI 0.2.1 that this filter takes part in.
//!
//! Exported here rather than through the SDK, for three things that it cannot do: answer a body
//! callback with "hold, and slow the sender down" (its `Action` knows two of the host's four answers), get
//! the answer of a call that no registered context asked for without a panic, and take any context
//! id without one. A callback for an unknown context changes nothing.
//!
//! The host never calls back into a callback (it defers resuming and replying until the callback is
//! over), except to allocate memory; so the maps are borrowed only to find a context, never while
//! it runs.

use crate::plugin::Root;
use crate::stream::Stream;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// What the host is to do after a header or trailer callback.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum HeadersStatus {
    /// Go on to the next filter.
    Continue = 0,
    /// Hold the headers; body callbacks come all the same where the plugin's configuration allows it.
    StopIteration = 1,
}

impl HeadersStatus {
    pub(crate) const fn hold(hold: bool) -> Self {
        if hold {
            Self::StopIteration
        } else {
            Self::Continue
        }
    }
}

/// What the host is to do after a body callback.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum DataStatus {
    /// Go on to the next filter, with everything that was held.
    Continue = 0,
    /// Hold, up to the host's buffer limit: beyond it the host answers 413, or 500 for a response.
    /// The next callback shows all that is held.
    StopAndBuffer = 1,
    /// Hold, and beyond the host's buffer limit stop reading. The next callback shows only what is
    /// new, and what is held may not be looked at any more.
    StopAndWatermark = 2,
    /// Drop what this callback showed.
    StopNoBuffer = 3,
}

#[derive(Default)]
struct Contexts {
    roots: RefCell<HashMap<u32, Rc<Root>>>,
    streams: RefCell<HashMap<u32, Rc<RefCell<Stream>>>>,
}

thread_local! {
    static CONTEXTS: Contexts = Contexts::default();
}

fn root(id: u32) -> Option<Rc<Root>> {
    CONTEXTS.with(|c| c.roots.borrow().get(&id).map(Rc::clone))
}

fn stream(id: u32) -> Option<Rc<RefCell<Stream>>> {
    CONTEXTS.with(|c| c.streams.borrow().get(&id).map(Rc::clone))
}

/// The version of the ABI, by the name of this function.
#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

#[unsafe(no_mangle)]
extern "C" fn _initialize() {
    std::panic::set_hook(Box::new(|panic| {
        crate::abi::log(crate::abi::CRITICAL, &format!("idempo: {panic}"));
    }));
}

/// `parent` 0: a root, one per configured plugin. Else a stream of that root.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(id: u32, parent: u32) {
    CONTEXTS.with(|contexts| {
        if parent == 0 {
            contexts
                .roots
                .borrow_mut()
                .insert(id, Rc::new(Root::new(id)));
        } else if let Some(plugin) = root(parent).and_then(|root| root.plugin()) {
            contexts
                .streams
                .borrow_mut()
                .insert(id, Stream::new(id, plugin));
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(id: u32, size: usize) -> u32 {
    u32::from(root(id).is_some_and(|root| root.on_configure(size)))
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_tick(id: u32) {
    if let Some(root) = root(id) {
        root.on_tick();
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_queue_ready(id: u32, queue: u32) {
    if let Some(root) = root(id) {
        root.on_queue_ready(queue);
    }
}

/// The answer to a call of that root's; no headers: it broke off.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_http_call_response(
    id: u32,
    token: u32,
    headers: usize,
    body: usize,
    trailers: usize,
) {
    if let Some(root) = root(id) {
        root.on_call_response(token, headers, body, trailers);
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_headers(id: u32, _count: usize, end: u32) -> u32 {
    let status = match stream(id) {
        Some(stream) => stream.borrow_mut().on_request_headers(end != 0),
        None => {
            // The plugin of this stream was never configured: nothing may run unclaimed.
            crate::stream::refuse_unreadable();
            HeadersStatus::StopIteration
        }
    };
    status as u32
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_body(id: u32, size: usize, end: u32) -> u32 {
    let status = stream(id).map_or(DataStatus::Continue, |stream| {
        stream.borrow_mut().on_request_body(size, end != 0)
    });
    status as u32
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_trailers(id: u32, _count: usize) -> u32 {
    let status = stream(id).map_or(HeadersStatus::Continue, |stream| {
        stream.borrow_mut().on_request_trailers()
    });
    status as u32
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_headers(id: u32, _count: usize, end: u32) -> u32 {
    let status = stream(id).map_or(HeadersStatus::Continue, |stream| {
        stream.borrow_mut().on_response_headers(end != 0)
    });
    status as u32
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_body(id: u32, size: usize, end: u32) -> u32 {
    let status = stream(id).map_or(DataStatus::Continue, |stream| {
        stream.borrow_mut().on_response_body(size, end != 0)
    });
    status as u32
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_trailers(id: u32, _count: usize) -> u32 {
    let status = stream(id).map_or(HeadersStatus::Continue, |stream| {
        stream.borrow_mut().on_response_trailers()
    });
    status as u32
}

/// A root may ask to stay (0) until it says `proxy_done`; for streams the value is ignored.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_done(id: u32) -> u32 {
    u32::from(root(id).is_none_or(|root| root.on_done()))
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_log(id: u32) {
    if let Some(stream) = stream(id) {
        stream.borrow_mut().on_log();
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_delete(id: u32) {
    CONTEXTS.with(|contexts| {
        // Taken out first: what they own may be a context too.
        let stream = contexts.streams.borrow_mut().remove(&id);
        let root = contexts.roots.borrow_mut().remove(&id);
        if let Some(stream) = &stream {
            stream.borrow_mut().on_delete();
        }
        drop((stream, root));
    });
}
