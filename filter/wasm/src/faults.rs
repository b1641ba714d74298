//! For tests only, in a module of its own: request headers that make the filter or its store fail
//! where a test wants it. Never in a shipped module.

use crate::host;
use crate::stream::Stream;
use idempo_core::exchange::Moment;
use idempo_core::http::Headers;
use idempo_core::record::NEXT_FORMAT;
use idempo_core::store::{Action, Op};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// `IDEMPO_TEST_FORMAT=next` in the environment: records are written as the next version will.
pub(crate) fn choose_format() {
    let next = host::environment_variable("IDEMPO_TEST_FORMAT").is_some_and(|v| v == b"next");
    NEXT_FORMAT.store(next, Ordering::Relaxed);
}

/// `x-test-crash: request | response` kills the VM there.
pub(crate) fn crash_at(point: &str, headers: &Headers) {
    if headers.first_str("x-test-crash") == Some(point) {
        core::arch::wasm32::unreachable();
    }
}

thread_local! {
    static OUTLIVING: RefCell<Vec<Rc<RefCell<Stream>>>> = RefCell::default();
}

/// Keeps a stream that is over, for as long as the VM lives.
pub(crate) fn outlive(stream: Option<Rc<RefCell<Stream>>>) {
    OUTLIVING.with(|all| all.borrow_mut().extend(stream));
}

/// `x-test-slow-claim: <ms>` and `x-test-slow-write: <ms>`: this stream's claims, or what it writes
/// afterwards, are answered so much later.
#[derive(Default)]
pub(crate) struct SlowStore {
    claim_ms: u64,
    write_ms: u64,
    waiting: Option<(u64, Op)>,
}

impl SlowStore {
    pub(crate) fn asked_by(headers: &Headers) -> Self {
        let ms = |name| {
            let value = headers.first_str(name);
            value.and_then(|v| v.parse().ok()).unwrap_or(0)
        };
        Self {
            claim_ms: ms("x-test-slow-claim"),
            write_ms: ms("x-test-slow-write"),
            waiting: None,
        }
    }

    /// Whether the operation waits.
    pub(crate) fn delays(&mut self, op: &Op, now: Moment) -> bool {
        let delay = match &op.action {
            Action::Claim(_) | Action::TakeOver { .. } => self.claim_ms,
            Action::Transition(_) | Action::Cancel { .. } => self.write_ms,
            Action::Read | Action::Body { .. } => 0,
        };
        if delay == 0 {
            return false;
        }
        self.waiting = Some((now.store_ms.saturating_add(delay), op.clone()));
        true
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// The operation whose time has come.
    pub(crate) fn due(&mut self, now: Moment) -> Option<Op> {
        let (_, op) = self.waiting.take_if(|(due, _)| *due <= now.store_ms)?;
        Some(op)
    }
}
