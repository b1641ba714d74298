//! One process: workers, clients, the virtual clock and what is due on it.

use crate::engine::Compiled;
use crate::faults::Faults;
use crate::pairs::{Lines, first, lines};
use crate::script::World;
use crate::shared::{CasRule, Shared};
use crate::stream::Opener;
use crate::worker::{Piece, Worker};
use std::cell::{Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

/// When virtual time begins: some day of 2027, Unix nanoseconds.
const BEGIN_NS: u64 = 1_800_000_000_000_000_000;

/// What is due for a worker.
pub(crate) enum Due {
    Piece {
        worker: usize,
        context: u32,
        piece: Piece,
    },
    Call {
        worker: usize,
        root: u32,
        token: u32,
        answer: Option<(Lines, Vec<u8>)>,
    },
}

/// What is due when, in order.
#[derive(Default)]
pub(crate) struct Agenda {
    now_ns: u64,
    due: BTreeMap<(u64, u64), Due>,
    sequence: u64,
}

impl Agenda {
    pub(crate) fn after(&mut self, ms: u64, due: Due) {
        self.sequence += 1;
        let at = self.now_ns + ms * 1_000_000;
        self.due.insert((at, self.sequence), due);
    }
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// With the upstream's answer.
    Upstream,
    /// With the filter's own.
    Filter,
    /// With one that the host made.
    Proxy,
    /// The client left.
    Left,
    /// In the middle of an answer.
    Broken,
}

/// A stream that ended.
pub(crate) struct Ended {
    pub(crate) opener: Opener,
    pub(crate) how: How,
    pub(crate) headers: Lines,
    pub(crate) body: Vec<u8>,
    pub(crate) properties: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What a client got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    /// How it ended.
    pub how: How,
    /// The status; 0 where there was none.
    pub status: u16,
    /// Header lines.
    pub headers: Lines,
    /// Body.
    pub body: Vec<u8>,
    /// Milliseconds from the request on.
    pub took_ms: u64,
    /// Filter state and host properties of its stream.
    pub properties: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Got {
    /// A response header's first value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<String> {
        first(&self.headers, name)
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The `code` of a problem document.
    #[must_use]
    pub fn code(&self) -> Option<String> {
        let text = self.text();
        let (_, rest) = text.split_once("\"code\":\"")?;
        rest.split_once('"').map(|(code, _)| code.to_owned())
    }

    /// What the access log shows of it.
    #[must_use]
    pub fn outcome(&self) -> Option<String> {
        let shown = self.properties.get(b"idempo.outcome".as_slice())?;
        Some(String::from_utf8_lossy(shown).into_owned())
    }
}

/// A request of a test.
#[derive(Clone, Debug)]
pub struct Request {
    headers: Lines,
    chunks: Vec<Vec<u8>>,
    /// More is sent by [`Host::upload`].
    open: bool,
}

impl Request {
    /// `POST` of a JSON body in one piece.
    #[must_use]
    pub fn post(path: &str, key: &str, body: &str) -> Self {
        let mut headers = lines(&[
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "shop.example"),
            (":path", path),
            ("content-type", "application/json"),
            ("x-request-id", "5f0c6f9e-6f39-4d0f-9c55-b7e3c1a1d0aa"),
        ]);
        if !key.is_empty() {
            headers.extend(lines(&[("idempotency-key", key)]));
        }
        let chunks = if body.is_empty() {
            Vec::new()
        } else {
            headers.extend(lines(&[("content-length", &body.len().to_string())]));
            vec![body.as_bytes().to_vec()]
        };
        Self {
            headers,
            chunks,
            open: false,
        }
    }

    /// With this header line, in place of others of that name.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(n, _)| n != name.as_bytes());
        self.headers.extend(lines(&[(name, value)]));
        self
    }

    /// The body in pieces of that size.
    #[must_use]
    pub fn in_pieces(mut self, size: usize) -> Self {
        let whole = self.chunks.concat();
        self.chunks = whole.chunks(size).map(<[u8]>::to_vec).collect();
        self
    }

    /// The end of the body is sent later.
    #[must_use]
    pub fn unfinished(mut self) -> Self {
        self.open = true;
        self
    }
}

struct Client {
    worker: usize,
    context: u32,
    since_ns: u64,
    got: Option<Got>,
}

/// One process.
pub struct Host {
    /// Its workers.
    pub workers: Vec<Worker>,
    shared: Rc<RefCell<Shared>>,
    world: Rc<RefCell<World>>,
    agenda: Rc<RefCell<Agenda>>,
    clients: Vec<Client>,
}

/// How a process is set up.
#[derive(Default)]
pub struct Setup {
    /// The filter's configuration.
    pub configuration: String,
    /// How many workers.
    pub workers: usize,
    /// How shared data understands numbers.
    pub rule: CasRule,
    /// Environment variables of the plugin.
    pub environment: Vec<(String, String)>,
    /// Which calls fail.
    pub faults: Faults,
    /// What is beyond the filter chain.
    pub world: World,
}

impl Host {
    /// A process with its workers, configured as far as that succeeds.
    #[must_use]
    pub fn start(compiled: &Compiled, setup: Setup) -> Self {
        let shared = Rc::new(RefCell::new(Shared {
            rule: setup.rule,
            now_ns: BEGIN_NS,
            environment: setup.environment,
            faults: setup.faults,
            ..Shared::default()
        }));
        let world = Rc::new(RefCell::new(World {
            now_ms: BEGIN_NS / 1_000_000,
            ..setup.world
        }));
        let agenda = Rc::new(RefCell::new(Agenda {
            now_ns: BEGIN_NS,
            ..Agenda::default()
        }));
        let workers = (0..setup.workers.max(1))
            .map(|n| {
                let configuration = setup.configuration.as_bytes();
                let parts = (shared.clone(), world.clone(), agenda.clone());
                Worker::start(compiled, n, configuration, parts.0, parts.1, parts.2)
            })
            .collect();
        Self {
            workers,
            shared,
            world,
            agenda,
            clients: Vec::new(),
        }
    }

    /// What workers share.
    #[must_use]
    pub fn shared(&self) -> Ref<'_, Shared> {
        self.shared.borrow()
    }

    /// The same, to change it.
    #[must_use]
    pub fn shared_mut(&self) -> RefMut<'_, Shared> {
        self.shared.borrow_mut()
    }

    /// What is beyond the filter chain.
    #[must_use]
    pub fn world(&self) -> Ref<'_, World> {
        self.world.borrow()
    }

    /// The same, to change it.
    #[must_use]
    pub fn world_mut(&self) -> RefMut<'_, World> {
        self.world.borrow_mut()
    }

    /// Every VM's end that was not wanted, and everything that Envoy would not have had.
    #[must_use]
    pub fn wrongs(&self) -> Vec<String> {
        let traps = self.workers.iter().filter_map(|w| w.trapped.clone());
        let misuse = self.shared().misuse.clone();
        traps.chain(misuse).collect()
    }

    /// Unix nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.shared().now_ns
    }

    /// A new configuration for one worker; `false`: refused.
    pub fn reconfigure(&mut self, worker: usize, configuration: &str) -> bool {
        let taken = self.workers[worker].configure(configuration.as_bytes());
        self.drain();
        taken
    }

    /// A client's request comes to a worker. Returns the client's number.
    pub fn send(&mut self, worker: usize, request: Request) -> usize {
        let client = self.clients.len();
        self.clients.push(Client {
            worker,
            context: 0,
            since_ns: self.now_ns(),
            got: None,
        });
        let last = request.chunks.len();
        let upload = (1..)
            .zip(request.chunks)
            .map(|(n, chunk)| (chunk, n == last && !request.open))
            .collect();
        let opener = Opener::Client(client);
        let end = last == 0 && !request.open;
        let context = self.workers[worker].open(opener, request.headers, end, upload);
        self.clients[client].context = context;
        self.drain();
        client
    }

    /// More of a client's body.
    pub fn upload(&mut self, client: usize, octets: &[u8], end: bool) {
        let Client {
            worker, context, ..
        } = self.clients[client];
        self.workers[worker].upload(context, octets.to_vec(), end);
        self.drain();
    }

    /// A client's body ends with trailers.
    pub fn trailers(&mut self, client: usize) {
        let Client {
            worker, context, ..
        } = self.clients[client];
        self.workers[worker].trailers(context);
        self.drain();
    }

    /// A client leaves.
    pub fn leave(&mut self, client: usize) {
        let Client {
            worker, context, ..
        } = self.clients[client];
        self.workers[worker].cut(context);
        self.drain();
    }

    /// What a client got so far: nothing before its stream has ended.
    #[must_use]
    pub fn got(&self, client: usize) -> Option<&Got> {
        self.clients[client].got.as_ref()
    }

    /// Clients whose streams have not ended.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.clients.iter().filter(|c| c.got.is_none()).count()
    }

    /// Sends a request and lets time pass until it is answered, for two minutes at most.
    ///
    /// # Panics
    /// Where it is not answered by then.
    pub fn ask(&mut self, worker: usize, request: Request) -> Got {
        let client = self.send(worker, request);
        self.until(120_000, |host| host.got(client).is_some());
        let got = self.got(client).cloned();
        got.unwrap_or_else(|| panic!("not answered; {:?}", self.wrongs()))
    }

    /// Lets time pass until that is so, for so many milliseconds at most; `false`: it is not.
    pub fn until(&mut self, ms: u64, is_so: impl Fn(&Self) -> bool) -> bool {
        let end = self.now_ns() + ms * 1_000_000;
        while !is_so(self) {
            if self.now_ns() >= end {
                return false;
            }
            self.step(end);
        }
        true
    }

    /// Lets time pass.
    pub fn pass(&mut self, ms: u64) {
        self.until(ms, |_| false);
    }

    /// On to whatever comes next.
    fn step(&mut self, end: u64) {
        let due = self.agenda.borrow().due.keys().next().map(|(at, _)| *at);
        let ticks = self.workers.iter().filter_map(Worker::next_tick);
        let next = ticks.chain(due).min().unwrap_or(end);
        let now = next.clamp(self.now_ns(), end);
        self.shared_mut().now_ns = now;
        self.world_mut().now_ms = now / 1_000_000;
        self.agenda.borrow_mut().now_ns = now;
        loop {
            let first = {
                let mut agenda = self.agenda.borrow_mut();
                let entry = agenda.due.first_entry().filter(|e| e.key().0 <= now);
                entry.map(|e| e.remove())
            };
            match first {
                None => break,
                Some(Due::Piece {
                    worker,
                    context,
                    piece,
                }) => self.workers[worker].piece(context, piece),
                Some(Due::Call {
                    worker,
                    root,
                    token,
                    answer,
                }) => self.workers[worker].call_answered(root, token, answer),
            }
            self.drain();
        }
        for worker in 0..self.workers.len() {
            if self.workers[worker].next_tick().is_some_and(|at| at <= now) {
                self.workers[worker].tick(now);
                self.drain();
            }
        }
    }

    /// Everything that follows at once: news in queues, streams that ended.
    fn drain(&mut self) {
        loop {
            let rung = self.shared_mut().rung.pop_front();
            if let Some(token) = rung {
                let owner = self
                    .shared()
                    .queues
                    .get(token as usize - 1)
                    .map(|q| q.owner);
                if let Some((worker, root)) = owner {
                    self.workers[worker].queue_ready(root, token);
                }
                continue;
            }
            let ended = (0..self.workers.len())
                .find_map(|w| self.workers[w].ended.pop().map(|ended| (w, ended)));
            let Some((worker, ended)) = ended else {
                return;
            };
            match ended.opener {
                Opener::Client(client) => self.note(client, ended),
                Opener::Call(root, token) => {
                    let whole = !matches!(ended.how, How::Left | How::Broken);
                    let answer = whole.then_some((ended.headers, ended.body));
                    self.workers[worker].call_answered(root, token, answer);
                }
            }
        }
    }

    fn note(&mut self, client: usize, ended: Ended) {
        let now = self.now_ns();
        let client = &mut self.clients[client];
        let status = first(&ended.headers, ":status").and_then(|s| s.parse().ok());
        client.got = Some(Got {
            how: ended.how,
            status: status.unwrap_or(0),
            headers: ended.headers,
            body: ended.body,
            took_ms: (now - client.since_ns) / 1_000_000,
            properties: ended.properties,
        });
    }
}
