//! One worker: a VM with its roots and streams, and the filter chain around them.

use crate::engine::{Compiled, FUEL};
use crate::faults::status;
use crate::host::{Agenda, Due, Ended, How};
use crate::pairs::{self, Lines, lines};
use crate::script::{Answer, Fate, Seen, World};
use crate::shared::Shared;
use crate::stream::{Data, Flow, Opener, Stream, Way};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wasmtime::{Instance, Memory, Store, TypedFunc, WasmParams, WasmResults};

/// Octets that Envoy holds of a body by default.
pub const BUFFER_LIMIT: usize = 1 << 20;

/// The router's time-out where nobody says otherwise, milliseconds.
const ROUTE_TIMEOUT_MS: u64 = 15_000;

/// A local reply as the module asked for it.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u32,
    pub(crate) details: String,
    pub(crate) body: Vec<u8>,
    pub(crate) headers: Lines,
}

/// What a callback asked for and Envoy does once it is over.
pub(crate) enum Deferred {
    Reply(u32, Reply),
    Continue(u32, Way),
    /// A callout back into this worker: root, token, request.
    Loop(u32, u32, Seen),
}

/// What the host functions work on.
pub struct State {
    pub(crate) worker: usize,
    pub(crate) shared: Rc<RefCell<Shared>>,
    world: Rc<RefCell<World>>,
    agenda: Rc<RefCell<Agenda>>,
    pub(crate) memory: Option<Memory>,
    pub(crate) malloc: Option<TypedFunc<u32, u32>>,
    /// The root that new streams belong to.
    pub(crate) root: u32,
    pub(crate) roots: BTreeSet<u32>,
    pub(crate) streams: BTreeMap<u32, Stream>,
    /// The context for which calls are made.
    pub(crate) effective: u32,
    pub(crate) tick_ms: u32,
    pub(crate) deferred: Vec<Deferred>,
    /// Roots that said they are done.
    pub(crate) done: Vec<u32>,
    configuration: Vec<u8>,
    properties: BTreeMap<Vec<u8>, Vec<u8>>,
    call_answer: Option<(Lines, Vec<u8>)>,
    tokens: u32,
    /// Callouts that were not answered yet, and the stream that each opened.
    calls: BTreeMap<u32, Option<u32>>,
}

impl State {
    pub(crate) fn buffer(&self, kind: u32) -> Option<&[u8]> {
        let stream = self.streams.get(&self.effective);
        match kind {
            0 => stream?.request.shown.as_deref(),
            1 => stream?.response.shown.as_deref(),
            4 => self.call_answer.as_ref().map(|(_, body)| body.as_slice()),
            7 => Some(&self.configuration),
            _ => None,
        }
    }

    pub(crate) fn map(&mut self, kind: u32) -> Option<&mut Lines> {
        let live = |flow: &mut Flow| flow.map_is_live;
        let stream = self.streams.get_mut(&self.effective);
        match kind {
            0 => stream.map(|s| &mut s.request).filter(|f| f.map_is_live),
            2 => {
                let mut flow = stream.map(|s| &mut s.response);
                if !flow.as_deref_mut().is_some_and(live) {
                    return None;
                }
                flow
            }
            6 => return self.call_answer.as_mut().map(|(headers, _)| headers),
            _ => None,
        }
        .map(|flow| &mut flow.headers)
    }

    pub(crate) fn property(&self, path: &[u8]) -> Option<Vec<u8>> {
        let stream = self.streams.get(&self.effective);
        let own = stream.and_then(|s| s.properties.get(path));
        own.or_else(|| self.properties.get(path)).cloned()
    }

    /// A callout of the context that makes it.
    pub(crate) fn call(&mut self, seen: Seen, timeout_ms: u32) -> Result<u32, u32> {
        let fate = self.world.borrow_mut().call(seen.clone());
        if fate == Fate::Refused {
            return Err(status::BAD_ARGUMENT);
        }
        self.tokens += 1;
        let (root, token) = (self.effective, self.tokens);
        self.calls.insert(token, None);
        let mut agenda = self.agenda.borrow_mut();
        let due = |answer| Due::Call {
            worker: self.worker,
            root,
            token,
            answer,
        };
        let overdue = lines(&[(":status", "504")]);
        let overdue = Some((overdue, b"upstream request timeout".to_vec()));
        match fate {
            Fate::Answer(answer) => {
                let whole = (answer.headers, answer.chunks.concat());
                agenda.after(answer.after_ms, due(Some(whole)));
            }
            Fate::Reset(ms) => agenda.after(ms, due(None)),
            Fate::Loopback => {
                self.deferred.push(Deferred::Loop(root, token, seen));
                agenda.after(u64::from(timeout_ms), due(overdue));
            }
            Fate::Silence => agenda.after(u64::from(timeout_ms), due(overdue)),
            Fate::Refused => {}
        }
        Ok(token)
    }
}

/// A piece of an upstream's answer.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Headers(Lines, bool),
    Data(Vec<u8>, bool),
    Broken,
    Overdue,
}

struct Callbacks {
    context_create: TypedFunc<(u32, u32), ()>,
    configure: TypedFunc<(u32, u32), u32>,
    tick: TypedFunc<u32, ()>,
    queue_ready: TypedFunc<(u32, u32), ()>,
    call_response: TypedFunc<(u32, u32, u32, u32, u32), ()>,
    headers: [TypedFunc<(u32, u32, u32), u32>; 2],
    body: [TypedFunc<(u32, u32, u32), u32>; 2],
    request_trailers: TypedFunc<(u32, u32), u32>,
    done: TypedFunc<u32, u32>,
    log: TypedFunc<u32, ()>,
    delete: TypedFunc<u32, ()>,
}

impl Callbacks {
    fn of(instance: &Instance, store: &mut Store<State>) -> wasmtime::Result<Self> {
        fn f<P: WasmParams, R: WasmResults>(
            instance: &Instance,
            store: &mut Store<State>,
            name: &str,
        ) -> wasmtime::Result<TypedFunc<P, R>> {
            instance.get_typed_func(store, name)
        }
        let (i, s) = (instance, store);
        Ok(Self {
            context_create: f(i, s, "proxy_on_context_create")?,
            configure: f(i, s, "proxy_on_configure")?,
            tick: f(i, s, "proxy_on_tick")?,
            queue_ready: f(i, s, "proxy_on_queue_ready")?,
            call_response: f(i, s, "proxy_on_http_call_response")?,
            headers: [
                f(i, s, "proxy_on_request_headers")?,
                f(i, s, "proxy_on_response_headers")?,
            ],
            body: [
                f(i, s, "proxy_on_request_body")?,
                f(i, s, "proxy_on_response_body")?,
            ],
            request_trailers: f(i, s, "proxy_on_request_trailers")?,
            done: f(i, s, "proxy_on_done")?,
            log: f(i, s, "proxy_on_log")?,
            delete: f(i, s, "proxy_on_delete")?,
        })
    }
}

/// One worker's VM.
pub struct Worker {
    store: Store<State>,
    callbacks: Callbacks,
    next_context: u32,
    /// Its plugin took the configuration.
    pub configured: bool,
    /// What ended the VM, if anything did.
    pub trapped: Option<String>,
    /// Body callbacks come while headers are held (`allow_on_headers_stop_iteration`).
    pub bodies_while_held: bool,
    /// Streams that ended since the host last looked.
    pub(crate) ended: Vec<Ended>,
    next_tick_ns: u64,
}

const fn count(lines: &Lines) -> u32 {
    lines.len() as u32
}

impl Worker {
    /// A VM with a configured root.
    ///
    /// # Panics
    /// Where the module lacks a callback.
    pub(crate) fn start(
        compiled: &Compiled,
        worker: usize,
        configuration: &[u8],
        shared: Rc<RefCell<Shared>>,
        world: Rc<RefCell<World>>,
        agenda: Rc<RefCell<Agenda>>,
    ) -> Self {
        let node = ("xds\0node\0id".into(), format!("proxy-{worker}").into());
        let state = State {
            worker,
            shared,
            world,
            agenda,
            memory: None,
            malloc: None,
            root: 0,
            roots: BTreeSet::new(),
            streams: BTreeMap::new(),
            effective: 0,
            tick_ms: 0,
            deferred: Vec::new(),
            done: Vec::new(),
            configuration: Vec::new(),
            properties: BTreeMap::from([node]),
            call_answer: None,
            tokens: 0,
            calls: BTreeMap::new(),
        };
        let mut store = Store::new(&compiled.engine, state);
        store.set_fuel(FUEL).expect("fuel is on");
        let instance = compiled.instance.instantiate(&mut store);
        let instance = instance.expect("an instance");
        let memory = instance.get_memory(&mut store, "memory");
        let malloc = instance.get_typed_func(&mut store, "malloc");
        store.data_mut().memory = memory;
        store.data_mut().malloc = malloc.ok();
        let callbacks = Callbacks::of(&instance, &mut store).expect("the ABI's callbacks");
        let mut this = Self {
            store,
            callbacks,
            next_context: 1,
            configured: false,
            trapped: None,
            bodies_while_held: true,
            ended: Vec::new(),
            next_tick_ns: 0,
        };
        if let Ok(f) = instance.get_typed_func::<(), ()>(&mut this.store, "_initialize") {
            this.run(0, &f, ());
        }
        this.configured = this.configure(configuration);
        this
    }

    /// A new root with that configuration, which new streams belong to from now on; the one before is
    /// told to end.
    pub(crate) fn configure(&mut self, configuration: &[u8]) -> bool {
        let before = self.store.data().root;
        let root = self.fresh();
        let state = self.store.data_mut();
        state.roots.insert(root);
        state.configuration = configuration.to_vec();
        let size = u32::try_from(configuration.len()).expect("a small configuration");
        let (create, configure) = (
            self.callbacks.context_create.clone(),
            self.callbacks.configure.clone(),
        );
        self.run(root, &create, (root, 0));
        let taken = self.run(root, &configure, (root, size)) == 1;
        if !taken {
            return false;
        }
        self.store.data_mut().root = root;
        if before != 0 {
            let done = self.callbacks.done.clone();
            if self.run(before, &done, before) == 1 {
                self.store.data_mut().done.push(before);
            }
        }
        self.after();
        true
    }

    fn fresh(&mut self) -> u32 {
        self.next_context += 1;
        self.next_context
    }

    /// Runs a callback. After a trap none runs any more.
    fn run<P: WasmParams, R: WasmResults + Default>(
        &mut self,
        context: u32,
        callback: &TypedFunc<P, R>,
        parameters: P,
    ) -> R {
        if self.trapped.is_some() {
            return R::default();
        }
        self.store.data_mut().effective = context;
        self.store.set_fuel(FUEL).expect("fuel is on");
        match callback.call(&mut self.store, parameters) {
            Ok(result) => result,
            Err(trap) => {
                self.trapped = Some(format!("{trap:#}"));
                R::default()
            }
        }
    }

    fn state(&mut self) -> &mut State {
        self.store.data_mut()
    }

    fn stream(&mut self, context: u32) -> Option<&mut Stream> {
        self.store.data_mut().streams.get_mut(&context)
    }

    /// Streams that are open.
    #[must_use]
    pub fn open_streams(&self) -> &BTreeMap<u32, Stream> {
        &self.store.data().streams
    }

    /// Roots that are there.
    #[must_use]
    pub fn roots(&self) -> usize {
        self.store.data().roots.len()
    }

    /// Does what callbacks asked for, and what follows from that.
    pub(crate) fn after(&mut self) {
        loop {
            let deferred = std::mem::take(&mut self.state().deferred);
            if deferred.is_empty() {
                break;
            }
            for one in deferred {
                match one {
                    Deferred::Reply(context, reply) => self.reply(context, reply),
                    Deferred::Continue(context, way) => self.go_on(context, way),
                    Deferred::Loop(root, token, seen) => {
                        let end = seen.body.is_empty();
                        let upload = if end { vec![] } else { vec![(seen.body, true)] };
                        let opener = Opener::Call(root, token);
                        let context = self.open(opener, seen.headers, end, upload);
                        if let Some(call) = self.state().calls.get_mut(&token) {
                            *call = Some(context);
                        }
                    }
                }
            }
        }
        for root in std::mem::take(&mut self.state().done) {
            if self.state().roots.remove(&root) {
                let delete = self.callbacks.delete.clone();
                self.run(root, &delete, root);
            }
        }
    }

    /// A request comes.
    pub(crate) fn open(
        &mut self,
        opener: Opener,
        headers: Lines,
        end: bool,
        upload: Vec<(Vec<u8>, bool)>,
    ) -> u32 {
        let (context, root) = (self.fresh(), self.state().root);
        let mut stream = Stream::new(opener);
        stream.upload = upload.into();
        let lines = count(&headers);
        stream.request = Flow {
            headers,
            map_is_live: true,
            begun: true,
            ended: end,
            ..Flow::default()
        };
        self.state().streams.insert(context, stream);
        if !self.configured || self.trapped.is_some() {
            self.local(context, 503, "wasm_fail_stream", Vec::new(), Vec::new());
            return context;
        }
        let create = self.callbacks.context_create.clone();
        self.run(context, &create, (context, root));
        let callback = self.callbacks.headers[0].clone();
        let stop = self.run(context, &callback, (context, lines, u32::from(end))) != 0;
        if let Some(stream) = self.stream(context) {
            stream.request.after_headers(stop);
        }
        self.after();
        self.pump(context);
        context
    }

    /// More of a request's body.
    pub(crate) fn upload(&mut self, context: u32, octets: Vec<u8>, end: bool) {
        if let Some(stream) = self.stream(context) {
            stream.upload.push_back((octets, end));
        }
        self.pump(context);
    }

    /// The request ends with trailers.
    pub(crate) fn trailers(&mut self, context: u32) {
        let callback = self.callbacks.request_trailers.clone();
        let stop = self.run(context, &callback, (context, 1)) != 0;
        if let Some(stream) = self.stream(context) {
            stream.request.ended = true;
            if stop {
                stream.request.stopped = true;
            } else {
                stream.request.go_on();
            }
        }
        self.after();
        self.route(context);
    }

    /// Brings on what the client has sent, as far as it may come.
    fn pump(&mut self, context: u32) {
        loop {
            let together = self.bodies_while_held;
            let Some(stream) = self.stream(context) else {
                return;
            };
            let flow = &stream.request;
            let closed = flow.stopped && !flow.headers_passed && !together;
            let full = flow.stopped && flow.held.len() > BUFFER_LIMIT;
            if stream.replied || closed || full {
                return;
            }
            let Some((chunk, end)) = stream.upload.pop_front() else {
                break;
            };
            self.data(context, Way::Request, &chunk, end);
            self.after();
        }
        self.route(context);
    }

    /// A body's callback.
    fn data(&mut self, context: u32, way: Way, chunk: &[u8], end: bool) {
        let Some(stream) = self.stream(context) else {
            return;
        };
        let size = stream.flow(way).show(chunk, end);
        let size = u32::try_from(size).expect("a small body");
        let callback = self.callbacks.body[way as usize].clone();
        let status = self.run(context, &callback, (context, size, u32::from(end)));
        let status = Data::of(status);
        let Some(stream) = self.stream(context) else {
            return;
        };
        let flow = stream.flow(way);
        flow.after_data(status);
        if status == Data::Buffer && flow.held.len() > BUFFER_LIMIT {
            let code = if way == Way::Request { 413 } else { 500 };
            self.local(context, code, "buffer_limit", Vec::new(), Vec::new());
        }
    }

    /// `continueDecoding`, `continueEncoding`.
    fn go_on(&mut self, context: u32, way: Way) {
        let Some(stream) = self.stream(context) else {
            return;
        };
        if way == Way::Request && stream.replied {
            return;
        }
        let flow = stream.flow(way);
        if !flow.begun || !flow.stopped {
            let what = format!("{way:?} of {context} resumed although it was not held");
            self.state().shared.borrow_mut().misuse.push(what);
            return;
        }
        flow.go_on();
        match way {
            Way::Request => self.pump(context),
            Way::Response => self.finish(context),
        }
    }

    /// The router takes over once it has the whole request.
    fn route(&mut self, context: u32) {
        let Some(stream) = self.stream(context) else {
            return;
        };
        let flow = &stream.request;
        if stream.forwarded || stream.replied || !flow.headers_passed || !flow.out_ended {
            return;
        }
        stream.forwarded = true;
        stream.tries = 1;
        let seen = Seen {
            cluster: String::new(),
            headers: stream.request.headers.clone(),
            body: stream.request.out.clone(),
            ..Seen::default()
        };
        let once = pairs::first(&seen.headers, "x-envoy-max-retries").as_deref() == Some("0");
        let told = pairs::first(&seen.headers, "x-envoy-upstream-rq-timeout-ms");
        let patience = told
            .and_then(|ms| ms.parse().ok())
            .unwrap_or(ROUTE_TIMEOUT_MS);
        let state = self.store.data_mut();
        let mut world = state.world.borrow_mut();
        let mut left = if once { 0 } else { world.router_retries };
        let mut tries = 1;
        let fate = loop {
            let fate = world.act(seen.clone());
            if matches!(fate, Fate::Reset(_)) && left > 0 {
                left -= 1;
                tries += 1;
                continue;
            }
            break fate;
        };
        let worker = state.worker;
        let mut agenda = state.agenda.borrow_mut();
        let due = |piece| Due::Piece {
            worker,
            context,
            piece,
        };
        match fate {
            Fate::Answer(Answer {
                after_ms,
                headers,
                chunks,
            }) => {
                agenda.after(after_ms, due(Piece::Headers(headers, chunks.is_empty())));
                let last = chunks.len();
                for (place, chunk) in (1..).zip(chunks) {
                    agenda.after(after_ms, due(Piece::Data(chunk, place == last)));
                }
            }
            Fate::Reset(ms) => agenda.after(ms, due(Piece::Broken)),
            Fate::Silence | Fate::Loopback | Fate::Refused => {
                agenda.after(patience, due(Piece::Overdue));
            }
        }
        drop((agenda, world));
        if let Some(stream) = self.stream(context) {
            stream.tries = tries;
            stream.tell("upstream.request_attempt_count", &tries.to_le_bytes());
        }
    }

    /// Something comes back for a stream.
    pub(crate) fn piece(&mut self, context: u32, piece: Piece) {
        let Some(stream) = self.stream(context).filter(|s| !s.replied) else {
            return;
        };
        match piece {
            Piece::Headers(headers, end) => {
                stream.tell("response.code_details", b"via_upstream");
                self.answer(context, headers, end);
            }
            Piece::Data(chunk, end) => {
                self.data(context, Way::Response, &chunk, end);
                self.after();
                self.finish(context);
            }
            Piece::Broken if stream.response.begun => self.close(context, How::Broken),
            Piece::Broken => {
                let details = "upstream_reset_before_response_started{connection_termination}";
                self.local(
                    context,
                    503,
                    details,
                    Vec::new(),
                    b"upstream error".to_vec(),
                );
            }
            Piece::Overdue => {
                self.local(
                    context,
                    504,
                    "response_timeout",
                    Vec::new(),
                    b"overdue".to_vec(),
                );
            }
        }
    }

    fn answer(&mut self, context: u32, headers: Lines, end: bool) {
        let lines = count(&headers);
        let Some(stream) = self.stream(context) else {
            return;
        };
        stream.response = Flow {
            headers,
            map_is_live: true,
            begun: true,
            ended: end,
            ..Flow::default()
        };
        let callback = self.callbacks.headers[1].clone();
        let stop = self.run(context, &callback, (context, lines, u32::from(end))) != 0;
        if let Some(stream) = self.stream(context) {
            stream.response.after_headers(stop);
        }
        self.after();
        self.finish(context);
    }

    /// The module's own answer.
    fn reply(&mut self, context: u32, reply: Reply) {
        let Some(stream) = self.stream(context) else {
            return;
        };
        let twice = stream.replied || stream.response.begun;
        if twice {
            let what = format!("a second answer for {context}: {}", reply.details);
            self.state().shared.borrow_mut().misuse.push(what);
            return self.close(context, How::Broken);
        }
        let status = u16::try_from(reply.status).unwrap_or(0);
        self.local(context, status, &reply.details, reply.headers, reply.body);
    }

    /// An answer that the upstream did not give: it passes the filter as any other.
    fn local(&mut self, context: u32, status: u16, details: &str, headers: Lines, body: Vec<u8>) {
        let Some(stream) = self.stream(context) else {
            return;
        };
        stream.replied = true;
        stream.upload.clear();
        stream.tell("response.code_details", details.as_bytes());
        let mut all = lines(&[(":status", &status.to_string())]);
        all.extend(headers);
        if !body.is_empty() && pairs::first(&all, "content-type").is_none() {
            all.extend(lines(&[("content-type", "text/plain")]));
        }
        self.answer(context, all, body.is_empty());
        if !body.is_empty() {
            self.data(context, Way::Response, &body, true);
            self.after();
            self.finish(context);
        }
    }

    /// The client has the whole answer.
    fn finish(&mut self, context: u32) {
        let Some(stream) = self.stream(context) else {
            return;
        };
        if !stream.response.out_ended {
            return;
        }
        let path = b"response\0code_details".as_slice();
        let details = stream.properties.get(path).map(Vec::as_slice);
        let how = match (stream.replied, details) {
            (false, _) => How::Upstream,
            (true, Some(b"idempo")) => How::Filter,
            (true, _) => How::Proxy,
        };
        self.close(context, how);
    }

    /// The client leaves, or the host ends the stream in its place.
    pub(crate) fn cut(&mut self, context: u32) {
        if let Some(stream) = self.stream(context) {
            stream.tell("response.code_details", b"downstream_remote_disconnect");
            self.close(context, How::Left);
        }
    }

    fn close(&mut self, context: u32, how: How) {
        let (log, done, delete) = (
            self.callbacks.log.clone(),
            self.callbacks.done.clone(),
            self.callbacks.delete.clone(),
        );
        self.run(context, &log, context);
        self.run(context, &done, context);
        self.run(context, &delete, context);
        if let Some(stream) = self.state().streams.remove(&context) {
            self.ended.push(Ended {
                opener: stream.opener,
                how,
                headers: stream.response.headers,
                body: stream.response.out,
                properties: stream.properties,
            });
        }
        self.after();
    }

    /// The answer to a callout.
    pub(crate) fn call_answered(
        &mut self,
        root: u32,
        token: u32,
        answer: Option<(Lines, Vec<u8>)>,
    ) {
        // Answered before, or cancelled with its root.
        let Some(inner) = self.state().calls.remove(&token) else {
            return;
        };
        if let Some(inner) = inner {
            self.cut(inner);
        }
        if !self.state().roots.contains(&root) {
            return;
        }
        let (headers, body) = answer.as_ref().map_or((0, 0), |(headers, body)| {
            (count(headers), u32::try_from(body.len()).expect("small"))
        });
        self.state().call_answer = answer;
        let callback = self.callbacks.call_response.clone();
        self.run(root, &callback, (root, token, headers, body, 0));
        self.state().call_answer = None;
        self.after();
    }

    pub(crate) fn queue_ready(&mut self, root: u32, token: u32) {
        if self.state().roots.contains(&root) {
            let callback = self.callbacks.queue_ready.clone();
            self.run(root, &callback, (root, token));
            self.after();
        }
    }

    /// When its next tick is due, if it wants any.
    pub(crate) fn next_tick(&self) -> Option<u64> {
        let wanted = self.store.data().tick_ms > 0 && self.trapped.is_none();
        wanted.then_some(self.next_tick_ns)
    }

    pub(crate) fn tick(&mut self, now_ns: u64) {
        self.next_tick_ns = now_ns + u64::from(self.store.data().tick_ms) * 1_000_000;
        for root in self.store.data().roots.clone() {
            let callback = self.callbacks.tick.clone();
            self.run(root, &callback, root);
            self.after();
        }
    }
}
