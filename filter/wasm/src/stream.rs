//! One HTTP stream: host callbacks to core events, core effects to host calls.

use crate::detached::Loopback;
use crate::exports::{DataStatus, HeadersStatus};
#[cfg(feature = "test-faults")]
use crate::faults;
use crate::host::{self, Buffer, Direction, HostSharedData, Map, Properties};
use crate::owed::Owed;
use crate::plugin::Plugin;
use crate::suspects;
use crate::vm::Vm;
use idempo_core::exchange::{Body, CallFailure, Edit, Effect, Exchange, Level, Moment, Origin};
use idempo_core::http::Headers;
use idempo_core::record::Record;
use idempo_core::reply::LocalReply;
use idempo_core::store::{self, Op, Reply};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

/// A body that the host announces but does not show, or not go on to show, for this long, while it never
/// showed one or never went on from so far, is withheld by the host's settings, milliseconds.
const WITHHELD_MS: u64 = 10_000;

/// A body that has begun and stops coming may be a client that pauses: it is given longer, milliseconds.
const STALLED_MS: u64 = 15_000;

/// Octets of request bodies that one worker holds until they are claimed, all together.
const MAX_HOLDING: u64 = 256 << 20;

/// The same where the body is only observed, which must not delay anybody for long: a slow client's
/// goes unobserved then, until a quicker one has shown that the host is well set up.
const WITHHELD_OBSERVED_MS: u64 = 1_000;

/// A stream and its exchange. Shared with the plugin, which drives it when a tick or a wake-up is
/// its business.
pub(crate) struct Stream {
    id: u32,
    own: Weak<RefCell<Self>>,
    plugin: Rc<Plugin>,
    exchange: Exchange,
    /// The host was told to hold the request.
    held_request: bool,
    /// The host was told to hold the response.
    held_response: bool,
    /// A local reply was sent: the host takes no second one.
    replied: bool,
    /// The content type of the local reply, once it is sent.
    reply_type: Option<Vec<u8>>,
    /// Since when the body, or more of it, is awaited, store clock.
    gather_since: Option<u64>,
    /// Octets of the answer that count against the worker's recording memory.
    recording: u64,
    /// Octets of the request's body that are held until it is claimed.
    holding: u64,
    registered: bool,
    /// The host's stream is over; what is left to do concerns the operation only.
    gone: bool,
    /// The step whose reply is being dealt with, for [`Effect::Retry`].
    last: Option<Op>,
    /// The record that the store, or the cache, answered last, and in the latter case its answer: the
    /// next step may ask for that.
    met: Option<(Record, Option<Vec<u8>>)>,
    /// Steps were put to a store that answers later.
    asked: bool,
    /// What the host refused to do so far.
    owed: Owed,
    /// The host refused a change without which the request must not go on.
    unfit: bool,
    #[cfg(feature = "test-faults")]
    slow: faults::SlowStore,
}

impl Stream {
    pub(crate) fn new(id: u32, plugin: Rc<Plugin>) -> Rc<RefCell<Self>> {
        if let Some(loopback) = plugin.loopback() {
            loopback.note_used();
        }
        Rc::new_cyclic(|own| {
            let exchange = Exchange::new(plugin.policy(), plugin.vm().seed());
            RefCell::new(Self {
                id,
                own: own.clone(),
                plugin,
                exchange,
                held_request: false,
                held_response: false,
                replied: false,
                reply_type: None,
                gather_since: None,
                recording: 0,
                holding: 0,
                registered: false,
                gone: false,
                last: None,
                met: None,
                asked: false,
                owed: Owed::default(),
                unfit: false,
                #[cfg(feature = "test-faults")]
                slow: faults::SlowStore::default(),
            })
        })
    }

    /// An event outside of the stream's own callbacks. Where it leads to anything, the host is told
    /// whose calls follow, and resumes what is no longer held.
    pub(crate) fn visit(
        &mut self,
        now: Moment,
        event: impl FnOnce(&mut Exchange, &mut Vec<Effect>),
    ) {
        let mut out = Vec::new();
        event(&mut self.exchange, &mut out);
        if out.is_empty() {
            return;
        }
        // What is left of a stream that is over concerns the operation, and is done without the stream.
        if !self.gone && !host::enter(self.id) {
            if self.owed.put_off(out) {
                return self.watch();
            }
            out = self.owed.take_effects();
            self.gone = true;
        }
        if self.gone {
            self.carry_out(out, now);
            return self.leave();
        }
        let mut all = self.owed.take_effects();
        all.append(&mut out);
        self.carry_out_and_resume(all, now);
    }

    /// In the stream's context, outside of its callbacks.
    fn carry_out_and_resume(&mut self, out: Vec<Effect>, now: Moment) {
        self.carry_out(out, now);
        let (request_was_held, response_was_held) = (self.held_request, self.held_response);
        self.note_holds();
        if request_was_held && !self.held_request && !self.replied {
            self.owed.resume(Direction::Request);
        }
        if response_was_held && !self.held_response {
            self.owed.resume(Direction::Response);
        }
        self.watch_owed();
    }

    fn watch_owed(&mut self) {
        if !self.owed.is_nothing() {
            self.watch();
        }
    }

    /// Asks the host again for what it has refused.
    fn make_good(&mut self, now: Moment) {
        if self.gone || self.owed.is_nothing() {
            return;
        }
        let again = self.owed.try_again();
        if host::enter(self.id) {
            let late = self.owed.take_effects();
            if !late.is_empty() {
                self.carry_out_and_resume(late, now);
            }
            self.owed.make_good();
        }
        if !again || self.owed.is_nothing() {
            let late = self.owed.take_effects();
            self.owed = Owed::default();
            self.carry_out_behind(late, now);
        }
    }

    /// What a stream that is over was still to do: all that concerns its operation.
    fn carry_out_behind(&mut self, late: Vec<Effect>, now: Moment) {
        if !late.is_empty() {
            self.gone = true;
            self.carry_out(late, now);
        }
    }

    /// The answer to this stream's call: headers and body, or nothing.
    pub(crate) fn on_detached(
        &mut self,
        answer: Option<(Headers, Vec<u8>)>,
        trailers: bool,
        now: Moment,
    ) {
        let octets = answer.as_ref().map_or(0, |(_, body)| body.len() as u64);
        let limit = self.plugin.policy().plan.limits.recording_bytes;
        // It is kept twice: for its client and for its record.
        let used = self.plugin.vm().recording().get();
        let short = used.saturating_add(octets.saturating_mul(2)) > limit;
        self.visit(now, |exchange, out| match answer {
            Some((headers, body)) => {
                exchange.on_detached_answer(&headers, body, trailers, short, now, out);
            }
            None => exchange.on_detached_failure(CallFailure::Lost, now, out),
        });
        self.account();
    }

    /// Ticks are wanted no more, unless its attempt is still away.
    fn leave(&self) {
        if self.registered && !self.exchange.is_away() {
            self.plugin.forget(self.id);
        }
    }

    /// Time passes.
    pub(crate) fn tick(&mut self, now: Moment) {
        self.make_good(now);
        let gathered = self.exchange.gathered().unwrap_or(0);
        let patience = if self.exchange.gathers_to_observe() {
            WITHHELD_OBSERVED_MS
        } else if gathered > 0 {
            STALLED_MS
        } else {
            WITHHELD_MS
        };
        let overdue = self
            .gather_since
            .is_some_and(|since| now.store_ms >= since.saturating_add(patience));
        let held = self.exchange.gathered().filter(|_| overdue);
        let withheld = held.is_some_and(|held| !self.plugin.can_hold(held));
        if withheld {
            self.plugin.note_withheld(now);
        }
        #[cfg(feature = "test-faults")]
        if let Some(op) = self.slow.due(now) {
            let reply = self.plugin.vm().store(&op, now);
            self.on_store_reply(op, reply, now);
        }
        self.visit(now, |exchange, out| {
            if withheld {
                exchange.on_body_withheld(false, now, out);
            } else {
                exchange.on_tick(now, out);
            }
        });
    }

    fn note_holds(&mut self) {
        self.held_request = self.exchange.holds_request();
        self.held_response = self.exchange.holds_response();
    }

    /// Carries effects out, in order; what a store's reply leads to comes after them. The shared-data
    /// store answers within microseconds, so all of it happens at `now`: asking the host for the
    /// time costs as much as the store.
    fn carry_out(&mut self, effects: Vec<Effect>, now: Moment) {
        let mut queue = VecDeque::from(effects);
        while let Some(effect) = queue.pop_front() {
            let plugin = Rc::clone(&self.plugin);
            match effect {
                #[cfg(feature = "test-faults")]
                Effect::Store(op) if self.slow.delays(&op, now) => self.watch(),
                Effect::Store(op) => match self.ask(op, now) {
                    Some((op, reply)) => {
                        // What a claim took is measured, so it gets a reading of its own.
                        let now = match op.action {
                            store::Action::Claim(_) | store::Action::TakeOver { .. } => {
                                plugin.now()
                            }
                            _ => now,
                        };
                        if op.renews() {
                            self.exchange.on_renewal();
                        } else {
                            self.before_reply(op, &reply, now);
                            let mut more = Vec::new();
                            self.exchange.on_store(reply, now, &mut more);
                            queue.extend(more);
                        }
                    }
                    None => self.asked = true,
                },
                Effect::Wait(operation) => {
                    let limits = &plugin.policy().plan.limits;
                    let waiter = (self.id, self.own.clone());
                    let granted = plugin.vm().wait(
                        operation,
                        waiter,
                        self.exchange.max_waiters(),
                        limits.worker_waiters,
                    );
                    self.watch();
                    let mut more = Vec::new();
                    self.exchange.on_registered(granted, now, &mut more);
                    queue.extend(more);
                }
                Effect::Send(call) => {
                    let sent = plugin
                        .loopback()
                        .zip(self.own.upgrade())
                        .is_some_and(|(l, own)| l.send(&call, own, plugin.metrics(), now));
                    // The call was made in the root's name.
                    host::enter(self.id);
                    if !sent {
                        let mut more = Vec::new();
                        self.exchange
                            .on_detached_failure(CallFailure::NeverSent, now, &mut more);
                        queue.extend(more);
                    }
                }
                // There is no stream any more that they could be about.
                Effect::Reply(_) | Effect::Request(_) | Effect::Response(_) | Effect::Show(..)
                    if self.gone => {}
                Effect::Reply(reply) => {
                    if !self.replied {
                        self.replied = true;
                        let lines = &reply.headers;
                        self.reply_type = lines
                            .iter()
                            .find(|(name, _)| name == b"content-type")
                            .map(|(_, value)| value.clone());
                        self.owed.reply(reply);
                        self.watch_owed();
                    }
                }
                Effect::Defer(op) => plugin.defer(op),
                Effect::Retry => {
                    if let Some(op) = self.last.take() {
                        plugin.defer(op);
                    }
                }
                Effect::Request(edits) => self.unfit |= !host::edit_headers(Map::Request, &edits),
                Effect::Response(edits) => {
                    host::edit_headers(Map::Response, &edits);
                }
                Effect::Wake(operation) => Vm::wake(&operation),
                Effect::NoteUnknown(operation, likeness) => {
                    suspects::note(&mut HostSharedData, likeness, &operation);
                }
                Effect::Suspect(operation, likeness) => {
                    plugin.report_changed_key(&operation, likeness, now);
                }
                Effect::Count(counter) => {
                    plugin.metrics().count(&plugin.policy().plan, counter);
                }
                Effect::Time(histogram, value) => plugin.metrics().time(histogram, value),
                Effect::Show(field, value) => host::show(field, &value),
                Effect::Log(level, message) => host::log(level, &message),
            }
        }
        if self.unfit && !self.replied && !self.exchange.holds_request() {
            self.unfit = false;
            let mut more = Vec::new();
            self.exchange.on_request_unfit(now, &mut more);
            return self.carry_out(more, now);
        }
        if self.exchange.waits().is_none() && self.registered {
            self.plugin.vm().forget_waiter(self.id);
        }
        if std::mem::take(&mut self.asked)
            && let Some(remote) = self.plugin.remote()
        {
            remote.pump(&self.plugin);
            // Its calls are made in the root's name.
            host::enter(self.id);
        }
    }

    /// Puts a step to the store; `None`: its reply comes later.
    fn ask(&mut self, op: Op, now: Moment) -> Option<(Op, Reply)> {
        match &op.action {
            store::Action::Claim(_) | store::Action::Read => {
                if let Some((record, answer)) = self.plugin.recall(&op.operation, now) {
                    self.met = Some((record.clone(), Some(answer)));
                    return Some((op, Reply::Current(Box::new(record))));
                }
            }
            store::Action::Body { incarnation } => {
                if let Some((record, answer)) = &mut self.met
                    && record.version.incarnation == *incarnation
                    && let Some(answer) = answer.take()
                {
                    return Some((op, Reply::Body(Some(answer))));
                }
            }
            _ => {}
        }
        self.plugin.ask(op, &self.own, now)
    }

    /// What has to be known before the exchange deals with a reply.
    fn before_reply(&mut self, op: Op, reply: &Reply, now: Moment) {
        let open = self.plugin.loopback().is_some_and(Loopback::is_open);
        self.exchange.set_loopback(open);
        if let Some(remote) = self.plugin.remote() {
            self.exchange.set_store_failures(remote.failures());
            match reply {
                // What the cache has just answered is more: it has the answer, too.
                Reply::Current(record) if !matches!(self.met, Some((_, Some(_)))) => {
                    self.met = Some(((**record).clone(), None));
                }
                Reply::Body(Some(answer)) => {
                    if let Some((record, None)) = &self.met {
                        self.plugin.remember(&op.operation, record, answer, now);
                    }
                }
                _ => {}
            }
        }
        self.last = Some(op);
    }

    /// A step that was put to a remote store has its reply.
    pub(crate) fn on_store_reply(&mut self, op: Op, reply: Reply, now: Moment) {
        if op.renews() {
            return self.exchange.on_renewal();
        }
        self.before_reply(op, &reply, now);
        self.visit(now, |exchange, out| exchange.on_store(reply, now, out));
        // What waited for the record has gone.
        self.account();
    }

    /// Ticks are wanted from now on.
    fn watch(&mut self) {
        if !self.registered {
            self.registered = true;
            self.plugin.watch(self.id, self.own.clone());
        }
    }

    /// Whether the host is to hold the request after a callback.
    fn hold_request(&mut self) -> bool {
        if !self.owed.has_effects() {
            self.note_holds();
        }
        self.held_request || self.replied
    }

    pub(crate) fn on_request_headers(&mut self, end: bool) -> HeadersStatus {
        let Some(headers) = host::headers(Map::Request) else {
            self.replied = true;
            refuse_unreadable();
            return HeadersStatus::StopIteration;
        };
        #[cfg(feature = "test-faults")]
        {
            faults::crash_at("request", &headers);
            self.slow = faults::SlowStore::asked_by(&headers);
        }
        let now = self.plugin.now();
        let mut out = Vec::new();
        self.exchange
            .on_request_headers(headers, end, &Properties, now, &mut out);
        if self.exchange.gathers_to_observe() && self.plugin.is_withheld(now) {
            self.exchange.on_body_withheld(true, now, &mut out);
        }
        self.carry_out(out, now);
        if self.exchange.gathered().is_some() {
            self.gather_since = Some(now.store_ms);
        }
        if !self.exchange.is_over() {
            self.watch();
        }
        HeadersStatus::hold(self.hold_request())
    }

    pub(crate) fn on_request_body(&mut self, size: usize, end: bool) -> DataStatus {
        if self.held_request {
            // A body that passes without being held says nothing about the host.
            self.plugin.body_seen().set(true);
        }
        if self.exchange.body() != Body::Pass && !self.replied {
            match shown(Buffer::Request, size) {
                Some(chunk) => self.chunk(chunk, end),
                // Nobody can say any more what was asked.
                None => self.on_event(Exchange::on_body_lost),
            }
        }
        let hold = self.hold_request();
        match self.exchange.body() {
            Body::Drop => DataStatus::StopNoBuffer,
            _ if self.replied => DataStatus::StopNoBuffer,
            // Whatever takes its time slows the client down, however much it sends.
            _ if hold => DataStatus::StopAndWatermark,
            _ => DataStatus::Continue,
        }
    }

    /// With trailers no body callback says that the body is complete.
    pub(crate) fn on_request_trailers(&mut self) -> HeadersStatus {
        self.exchange.note_trailers();
        if self.exchange.body() != Body::Pass {
            self.chunk(Vec::new(), true);
        }
        HeadersStatus::hold(self.hold_request())
    }

    fn chunk(&mut self, chunk: Vec<u8>, end: bool) {
        if let Some(held) = self.exchange.gathered() {
            self.plugin.note_held(held);
        }
        self.on_event(|exchange, now, out| exchange.on_request_chunk(chunk, end, now, out));
    }

    /// An event in one of the stream's own callbacks.
    fn on_event(&mut self, event: impl FnOnce(&mut Exchange, Moment, &mut Vec<Effect>)) {
        let now = self.plugin.now();
        let mut out = Vec::new();
        event(&mut self.exchange, now, &mut out);
        let held = self.exchange.gathered();
        if held.is_some() {
            self.gather_since = Some(now.store_ms);
        }
        if !self.hold_body(held.unwrap_or(0)) {
            self.exchange.on_holding_short(now, &mut out);
            self.hold_body(0);
        }
        self.carry_out(out, now);
    }

    /// Counts what is held of the request's body against the worker's bound; `false`: beyond it.
    fn hold_body(&mut self, octets: u64) -> bool {
        let all = self.plugin.vm().holding();
        let others = all.get().saturating_sub(self.holding);
        self.holding = octets;
        all.set(others.saturating_add(octets));
        octets == 0 || all.get() <= MAX_HOLDING
    }

    pub(crate) fn on_response_headers(&mut self, end: bool) -> HeadersStatus {
        if self.replied {
            // Envoy adds a content type to a body that has none, and takes the one away that comes
            // with no body: a replay is what it was.
            let edit = match self.reply_type.take() {
                Some(value) => Edit::Set(b"content-type".to_vec(), value),
                None => Edit::Remove(b"content-type".to_vec()),
            };
            host::edit_headers(Map::Response, &[edit]);
            return HeadersStatus::Continue;
        }
        if self.exchange.is_away() {
            // Somebody else has answered the client; its operation goes on.
            self.replied = true;
        }
        if !self.exchange.wants_response() {
            return HeadersStatus::Continue;
        }
        let Some(headers) = host::headers(Map::Response) else {
            return HeadersStatus::Continue;
        };
        #[cfg(feature = "test-faults")]
        faults::crash_at("response", &headers);
        // Only this property tells an upstream's answer from one that Envoy or another filter made:
        // any header could have been copied into the latter.
        let details = host::text_property(&["response", "code_details"]).unwrap_or_default();
        let origin = Origin {
            details: &details,
            attempts: &|| host::number_property(&["upstream", "request_attempt_count"]),
            can_hold: self.plugin.body_seen().get(),
        };
        let mut out = Vec::new();
        let now = self.plugin.now();
        self.exchange
            .on_response_headers(&headers, end, &origin, now, &mut out);
        self.carry_out(out, now);
        HeadersStatus::hold(self.hold_response())
    }

    pub(crate) fn on_response_body(&mut self, size: usize, end: bool) -> DataStatus {
        if !self.exchange.records() {
            return self.response_status();
        }
        let held = self.exchange.holds_response();
        if held && !end && !self.exchange.held_is_whole(size as u64) {
            return DataStatus::StopAndBuffer;
        }
        let chunk = shown(Buffer::Response, size);
        if chunk.is_none() {
            // Remembered without what the host does not show, never replayed without it.
            self.exchange.on_memory_short();
        }
        let now = self.plugin.now();
        let mut out = Vec::new();
        let octets = chunk.unwrap_or_default();
        self.exchange
            .on_response_body(&octets, end || held, now, &mut out);
        self.carry_out(out, now);
        self.account();
        self.response_status()
    }

    fn response_status(&mut self) -> DataStatus {
        if self.hold_response() {
            // Beyond its limit the host would answer 500 in place of an answer that is recorded.
            DataStatus::StopAndWatermark
        } else {
            DataStatus::Continue
        }
    }

    pub(crate) fn on_response_trailers(&mut self) -> HeadersStatus {
        let now = self.plugin.now();
        let mut out = Vec::new();
        self.exchange.on_response_trailers(now, &mut out);
        self.carry_out(out, now);
        self.account();
        HeadersStatus::hold(self.hold_response())
    }

    /// Whether the host is to hold the response after a callback.
    fn hold_response(&mut self) -> bool {
        if !self.owed.has_effects() {
            self.note_holds();
        }
        self.held_response
    }

    /// Counts what is kept of the answer against the worker's recording memory; beyond it the answer
    /// is not kept.
    fn account(&mut self) {
        let used = self.plugin.vm().recording();
        let others = used.get().saturating_sub(self.recording);
        self.recording = self.exchange.recorded_octets();
        let limit = self.plugin.policy().plan.limits.recording_bytes;
        if others.saturating_add(self.recording) > limit {
            self.exchange.on_memory_short();
            self.recording = self.exchange.recorded_octets();
        }
        used.set(others.saturating_add(self.recording));
    }

    pub(crate) fn on_log(&mut self) {
        let late = self.owed.take_effects();
        if !late.is_empty() {
            let now = self.plugin.now();
            self.carry_out_behind(late, now);
            // Its line in the access log is still to be written.
            self.gone = false;
        }
        if !self.exchange.is_over() {
            let details = host::text_property(&["response", "code_details"]).unwrap_or_default();
            let now = self.plugin.now();
            let mut out = Vec::new();
            self.exchange.on_end(&details, now, &mut out);
            self.carry_out(out, now);
        }
        self.account();
        self.hold_body(0);
        self.gone = true;
        #[cfg(feature = "test-faults")]
        if self.slow.is_waiting() {
            // As with a real store, what is under way is answered although the stream is over.
            return faults::outlive(self.own.upgrade());
        }
        self.leave();
        if self.registered {
            self.plugin.vm().forget_waiter(self.id);
        }
    }
}

impl Stream {
    /// The host has forgotten it; what still holds it here is about its operation.
    pub(crate) fn on_delete(&mut self) {
        let late = self.owed.take_effects();
        self.gone = true;
        if !late.is_empty() {
            let now = self.plugin.vm().now();
            self.carry_out_behind(late, now);
        }
    }
}

/// The octets that a callback announced, all of them or none.
fn shown(buffer: Buffer, size: usize) -> Option<Vec<u8>> {
    host::buffer(buffer, size).filter(|octets| octets.len() == size)
}

/// What cannot be read cannot be claimed, and must not run unclaimed.
pub(crate) fn refuse_unreadable() {
    host::log(Level::Error, "a request could not be read");
    host::reply(&LocalReply {
        status: 500,
        headers: Vec::new(),
        body: Vec::new(),
    });
}
