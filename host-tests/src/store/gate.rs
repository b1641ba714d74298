//! Between an Envoy and what speaks HTTP for its store: passes every call on, unless a test has set a
//! trap for it. So a process can be killed, and an answer lost, at exactly the step that a test names.
//!
//! What a call carries is read from its body, by the form that `store/redis/encode.rs` of the core
//! documents: the words of one script call, joined by `/` (Webdis) or in a JSON array (REST). HTTP is read
//! and written by hand, since no server library cuts an answer in the middle.
//!
//! ```no_run
//! # async fn example(gate: host_tests::store::gate::Gate) {
//! use host_tests::store::gate::{Deed, Kind};
//! let claim = gate.trap(Kind::Claim, 1, Deed::HoldAnswer);
//! // … send a request …
//! claim.reached(1).await; // applied, and nobody knows
//! claim.let_go();
//! # }
//! ```

use serde_json::Value;
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

/// What a test waits for has failed by then.
const PATIENCE: Duration = Duration::from_secs(20);

/// What one step of a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Acquires an operation.
    Claim,
    /// Acquires one that is unknown.
    TakeOver,
    /// Takes a claim back.
    Cancel,
    /// Looks at a record.
    Read,
    /// Fetches a recorded answer.
    Body,
    /// Prolongs a lease.
    Renewal,
    /// Any other transition: completed, accepted, unknown, closed.
    Settling,
    /// The sweep of a shard, or the question how the store is.
    Sweep,
    /// In a trap: every call. Of a step: one that is none of these.
    Any,
}

/// What happens to a call in a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Waits before the call is passed on.
    HoldCall,
    /// Passes it on, and waits before the answer is.
    HoldAnswer,
    /// Hangs up on the caller at once, and passes the call on when let go: a call that was under way
    /// for longer than its caller waited.
    Detain,
    /// Hangs up; the call is lost.
    LoseCall,
    /// Passes it on, and hangs up in place of the answer.
    LoseAnswer,
    /// Passes it on, and hangs up in the middle of the answer.
    CutAnswer,
    /// Loses the call, and answers with an HTML page of that status.
    PageForCall(u16),
    /// Passes it on, and answers with such a page in place of the store's answer.
    PageForAnswer(u16),
}

/// One step of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub kind: Kind,
    /// The operation's id; of a sweep nothing.
    pub operation: String,
}

/// The steps of a call, by its body.
#[must_use]
pub fn steps(body: &[u8]) -> Vec<Step> {
    let text = String::from_utf8_lossy(body);
    let words: Vec<String> = match serde_json::from_str(&text) {
        Ok(Value::Array(words)) => words
            .iter()
            .filter_map(|w| w.as_str().map(str::to_owned))
            .collect(),
        _ => text.split('/').map(str::to_owned).collect(),
    };
    // Verb, script, number of keys, the keys; nonce, number of shards, one word for each step.
    let Some(keys) = words.get(2).and_then(|n| n.parse::<usize>().ok()) else {
        return Vec::new();
    };
    let Some((keys, arguments)) = words.get(3..).and_then(|rest| rest.split_at_checked(keys))
    else {
        return Vec::new();
    };
    arguments
        .iter()
        .skip(2)
        .map(|step| step_of(step, keys))
        .collect()
}

fn step_of(step: &str, keys: &[String]) -> Step {
    // Shard, place of the record's key counted from 1, verb; of a transition write id, source, target.
    let fields: Vec<&str> = step.split([',', ';']).collect();
    let field = |at: usize| fields.get(at).copied().unwrap_or_default();
    let kind = match (field(2), field(5)) {
        ("C", _) => Kind::Claim,
        ("O", _) => Kind::TakeOver,
        ("X", _) => Kind::Cancel,
        ("R", _) => Kind::Read,
        ("B", _) => Kind::Body,
        ("T", "P") => Kind::Renewal,
        ("T", _) => Kind::Settling,
        ("S", _) => Kind::Sweep,
        _ => Kind::Any,
    };
    let key = field(1)
        .parse::<usize>()
        .ok()
        .and_then(|at| keys.get(at.checked_sub(1)?));
    let operation = key.and_then(|key| key.rsplit_once(":r:"));
    Step {
        kind,
        operation: operation.map_or_else(String::new, |(_, id)| id.to_owned()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Go {
    Wait,
    On,
    Never,
}

/// How far the calls in a trap have come.
#[derive(Clone, Copy, Debug)]
struct Stage {
    reached: usize,
    passed: usize,
    go: Go,
}

#[derive(Debug)]
struct Rule {
    kind: Kind,
    deed: Deed,
    left: AtomicU64,
    stage: watch::Sender<Stage>,
}

impl Rule {
    fn takes(&self, steps: &[Step]) -> bool {
        (self.kind == Kind::Any || steps.iter().any(|step| step.kind == self.kind))
            && self
                .left
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1))
                .is_ok()
    }

    fn reached(&self) {
        self.stage.send_modify(|stage| stage.reached += 1);
    }

    fn passed(&self) {
        self.stage.send_modify(|stage| stage.passed += 1);
    }

    /// Whether the call, or its answer, goes on after all.
    async fn go(&self) -> bool {
        let mut stage = self.stage.subscribe();
        let decided = stage.wait_for(|stage| stage.go != Go::Wait).await;
        decided.is_ok_and(|stage| stage.go == Go::On)
    }
}

/// A trap that was set. Dropped, it takes no further calls, and lets go of those that it holds.
#[derive(Debug)]
pub struct Trap {
    rule: Arc<Rule>,
    shared: Arc<Shared>,
}

impl Trap {
    /// Waits until so many calls are where the trap holds or spoils them: with [`Deed::HoldAnswer`] and
    /// the like, the store has done them.
    ///
    /// # Panics
    /// After 20 s.
    pub async fn reached(&self, calls: usize) {
        self.wait(|stage| stage.reached >= calls, "reached").await;
    }

    /// Waits until the store has answered so many of them.
    ///
    /// # Panics
    /// After 20 s.
    pub async fn passed(&self, calls: usize) {
        self.wait(|stage| stage.passed >= calls, "passed").await;
    }

    /// How many calls have come so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.rule.stage.borrow().reached
    }

    async fn wait(&self, enough: impl FnMut(&Stage) -> bool, what: &str) {
        let mut stage = self.rule.stage.subscribe();
        let waited = timeout(PATIENCE, stage.wait_for(enough)).await;
        let kind = self.rule.kind;
        assert!(
            waited.is_ok(),
            "waited 20 s in vain for {kind:?} to have {what}: {:?}",
            self.rule.stage.borrow()
        );
    }

    /// What is held goes on, and what comes later is not held.
    pub fn let_go(&self) {
        self.rule.stage.send_modify(|stage| stage.go = Go::On);
    }

    /// What is held never gets where it was bound for.
    pub fn forget(&self) {
        self.rule.stage.send_modify(|stage| stage.go = Go::Never);
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        let mut rules = self.shared.rules();
        rules.retain(|rule| !Arc::ptr_eq(rule, &self.rule));
        drop(rules);
        self.rule.stage.send_if_modified(|stage| {
            let waits = stage.go == Go::Wait;
            if waits {
                stage.go = Go::On;
            }
            waits
        });
    }
}

#[derive(Debug)]
struct Shared {
    front: SocketAddr,
    rules: Mutex<Vec<Arc<Rule>>>,
    delay_ms: AtomicU64,
    calls: AtomicU64,
}

impl Shared {
    fn rules(&self) -> MutexGuard<'_, Vec<Arc<Rule>>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rule(&self, steps: &[Step]) -> Option<Arc<Rule>> {
        self.rules().iter().find(|rule| rule.takes(steps)).cloned()
    }
}

/// A running gate; it ends when dropped.
#[derive(Debug)]
pub struct Gate {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accept: JoinHandle<()>,
}

impl Gate {
    /// Starts one in front of `front`.
    ///
    /// # Panics
    /// Where there is no port.
    pub async fn start(front: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            front,
            rules: Mutex::default(),
            delay_ms: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        });
        let accept = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let shared = Arc::clone(&shared);
                    tokio::spawn(async move {
                        let mut client = Connection::new(stream);
                        let mut front = None;
                        while let Some(request) = client.message().await {
                            if !serve(&shared, &request, &mut client, &mut front).await {
                                break;
                            }
                        }
                    });
                }
            }
        });
        Self {
            addr,
            shared,
            accept,
        }
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Sets a trap for the next calls, at most so many, that carry a step of that kind. The trap that
    /// was set first takes a call first.
    #[must_use]
    pub fn trap(&self, kind: Kind, calls: u64, deed: Deed) -> Trap {
        let stage = Stage {
            reached: 0,
            passed: 0,
            go: Go::Wait,
        };
        let rule = Arc::new(Rule {
            kind,
            deed,
            left: AtomicU64::new(calls),
            stage: watch::Sender::new(stage),
        });
        self.shared.rules().push(Arc::clone(&rule));
        Trap {
            rule,
            shared: Arc::clone(&self.shared),
        }
    }

    /// From now on every call takes that much longer.
    pub fn delay(&self, by: Duration) {
        let ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.shared.delay_ms.store(ms, Ordering::Release);
    }

    /// How many calls have come.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Acquire)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

/// One call. `false`: the caller's connection is over.
async fn serve(
    shared: &Shared,
    request: &Octets,
    client: &mut Connection,
    front: &mut Option<Connection>,
) -> bool {
    shared.calls.fetch_add(1, Ordering::AcqRel);
    let delay = shared.delay_ms.load(Ordering::Acquire);
    if delay > 0 {
        sleep(Duration::from_millis(delay)).await;
    }
    let Some(rule) = shared.rule(&steps(&request.body)) else {
        let Some(answer) = pass(shared, request, front).await else {
            return false;
        };
        return client.write(&[&answer.head, &answer.body]).await;
    };
    match rule.deed {
        Deed::HoldCall | Deed::LoseCall | Deed::PageForCall(_) => rule.reached(),
        Deed::Detain => {
            client.hang_up().await;
            rule.reached();
        }
        _ => {}
    }
    match rule.deed {
        Deed::LoseCall => return false,
        Deed::PageForCall(status) => return client.page(status).await,
        Deed::HoldCall | Deed::Detain if !rule.go().await => return false,
        _ => {}
    }
    let Some(answer) = pass(shared, request, front).await else {
        return false;
    };
    rule.passed();
    match rule.deed {
        Deed::HoldCall | Deed::Detain => {}
        _ => rule.reached(),
    }
    match rule.deed {
        Deed::Detain | Deed::LoseAnswer => false,
        Deed::PageForAnswer(status) => client.page(status).await,
        Deed::CutAnswer => {
            let (half, _) = answer.body.split_at(answer.body.len() / 2);
            client.write(&[&answer.head, half]).await;
            false
        }
        Deed::HoldAnswer if !rule.go().await => false,
        _ => client.write(&[&answer.head, &answer.body]).await,
    }
}

async fn pass(shared: &Shared, request: &Octets, front: &mut Option<Connection>) -> Option<Octets> {
    if front.is_none() {
        let stream = TcpStream::connect(shared.front).await.ok()?;
        *front = Some(Connection::new(stream));
    }
    let connection = front.as_mut()?;
    if !connection.write(&[&request.head, &request.body]).await {
        return None;
    }
    connection.message().await
}

/// A message of HTTP/1.1 as it came: up to the empty line, and what `content-length` says follows.
struct Octets {
    head: Vec<u8>,
    body: Vec<u8>,
}

struct Connection(BufReader<TcpStream>);

impl Connection {
    fn new(stream: TcpStream) -> Self {
        // Messages are written whole: delaying them for more can only hurt.
        let _ = stream.set_nodelay(true);
        Self(BufReader::new(stream))
    }

    /// The next message; `None`: the other side has hung up.
    async fn message(&mut self) -> Option<Octets> {
        let mut head = Vec::new();
        let mut length = 0;
        loop {
            let from = head.len();
            if self.0.read_until(b'\n', &mut head).await.ok()? == 0 {
                return None;
            }
            let line = String::from_utf8_lossy(head.get(from..)?);
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.ok()?;
        Some(Octets { head, body })
    }

    /// In one piece; `false`: the other side has hung up.
    async fn write(&mut self, pieces: &[&[u8]]) -> bool {
        let whole = pieces.concat();
        self.0.get_mut().write_all(&whole).await.is_ok()
    }

    /// What a proxy that cannot reach its server says.
    async fn page(&mut self, status: u16) -> bool {
        let page = "<html><head><title>Sorry</title></head><body><h1>Sorry</h1></body></html>";
        let head = format!(
            "HTTP/1.1 {status} Sorry\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n",
            page.len()
        );
        self.write(&[head.as_bytes(), page.as_bytes()]).await
    }

    async fn hang_up(&mut self) {
        // The other side may have been quicker; gone is gone.
        let _ = self.0.get_mut().shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use idempo_core::ids::OperationId;
    use idempo_core::ids::OwnerToken;
    use idempo_core::store::redis::{Layout, Redis, Script, Transport};
    use idempo_core::store::remote::{Batch, Limits, Nonce};
    use idempo_core::store::{Action, Op};

    /// The kinds of every other step come from real claims in the tests that use the gate; these are
    /// the ones that need no claim.
    #[test]
    fn steps_are_recognised_in_what_the_engine_writes() {
        let webdis = Transport::Webdis {
            authorization: None,
        };
        let operation = OperationId::new("n", b"t", "r", b"k");
        let owner = OwnerToken::derive(&[b"o"]);
        let actions = [Action::Read, Action::Cancel { owner }];
        for transport in [webdis, Transport::Rest { token: None }] {
            let engine = Redis::new(transport, Layout::default());
            for script in [Script::Known, Script::Whole] {
                let mut batch = Batch::new(Nonce([7; 16]), Limits::default());
                for action in actions.clone() {
                    let _ = batch.push(Op { operation, action });
                }
                let request = engine.request(&batch, script);
                let found = steps(&request.body);
                let kinds: Vec<_> = found.iter().map(|step| step.kind).collect();
                assert_eq!(kinds, [Kind::Read, Kind::Cancel]);
                assert!(found.iter().all(|step| step.operation == operation.hex()));
                let sweep = engine.sweep_request(&Nonce([7; 16]), 3, 10, script);
                let [step] = &steps(&sweep.body)[..] else {
                    panic!("one step");
                };
                assert_eq!(step.kind, Kind::Sweep);
            }
        }
        assert_eq!(steps(b"PING"), []);
    }
}
