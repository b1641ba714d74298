//! The load generator: keep-alive connections in a closed loop, every answer checked.
//!
//! A program of this size rather than `wrk`: `wrk` breaks off what is in flight when its time is over,
//! so that its count can never be held against the upstream's; here every request is awaited, and the
//! two must be equal. And `wrk` looks at statuses alone, so that it would take a second execution for
//! a replay. Against a bare direct response it reaches some 5 % more; no row with a filter comes near
//! that rate, and the reports say how busy Envoy was. It runs in the same thread as the upstream,
//! which saves the switches between the two on the core they share.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

/// About 200 octets, as a charge has.
pub(crate) const BODY: &str = concat!(
    r#"{"amount":1999,"currency":"EUR","customer":"cus_9s6XKzkNRiz8i3","#,
    r#""description":"Order 2041-77-A, two items, gift wrap","capture":true,"#,
    r#""metadata":{"cart":"b7c1e0","channel":"web","retry":"0"}}"#,
);

const KEY_LENGTH: usize = 36;

/// One request with a place for its key.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    octets: Vec<u8>,
    key_at: usize,
}

impl Template {
    /// `POST path` with that JSON.
    pub(crate) fn post(path: &str, body: &str) -> Self {
        Self::of(path, "application/json", body)
    }

    /// `POST path` with that body.
    pub(crate) fn of(path: &str, media_type: &str, body: &str) -> Self {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: bench.test\r\ncontent-type: {media_type}\r\n\
             content-length: {}\r\nidempotency-key: ",
            body.len()
        );
        let key_at = head.len();
        let octets = format!("{head}{}\r\n\r\n{body}", "0".repeat(KEY_LENGTH)).into_bytes();
        Self { octets, key_at }
    }

    /// The request with that key.
    pub(crate) fn with_key(&mut self, key: &Key) -> &[u8] {
        self.octets[self.key_at..self.key_at + KEY_LENGTH].copy_from_slice(key.as_bytes());
        &self.octets
    }
}

/// A version 4 UUID in its usual form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key([u8; KEY_LENGTH]);

impl Key {
    /// A random one.
    pub(crate) fn random(rng: &mut fastrand::Rng) -> Self {
        let mut key = [0; KEY_LENGTH];
        uuid::Builder::from_random_bytes(rng.u128(..).to_ne_bytes())
            .into_uuid()
            .hyphenated()
            .encode_lower(&mut key);
        Self(key)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Seeded by the kernel: two runs against one store must not share keys.
pub(crate) fn rng() -> fastrand::Rng {
    let seed = host_tests::filter::key();
    let number = seed
        .bytes()
        .filter(u8::is_ascii_hexdigit)
        .fold(0_u64, |n, b| {
            n.rotate_left(5) ^ u64::from(b).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
    fastrand::Rng::with_seed(number)
}

/// What of an answer the benchmarks look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    /// `idempotent-replayed: true`.
    pub(crate) replayed: bool,
    pub(crate) body: &'a [u8],
}

/// A keep-alive connection.
#[derive(Debug)]
pub(crate) struct Connection {
    addr: SocketAddr,
    stream: TcpStream,
    buffer: Vec<u8>,
    closing: bool,
    /// How often the server closed after an answer.
    pub(crate) reconnects: u64,
}

impl Connection {
    pub(crate) async fn open(addr: SocketAddr) -> Result<Self, String> {
        Ok(Self {
            addr,
            stream: connect(addr).await?,
            buffer: Vec::with_capacity(16 << 10),
            closing: false,
            reconnects: 0,
        })
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<Answer<'_>, String> {
        if self.closing {
            self.stream = connect(self.addr).await?;
            self.reconnects += 1;
            self.closing = false;
        }
        self.buffer.clear();
        let broken = |e: std::io::Error| format!("the connection broke: {e}");
        self.stream.write_all(request).await.map_err(broken)?;
        let head = loop {
            if self
                .stream
                .read_buf(&mut self.buffer)
                .await
                .map_err(broken)?
                == 0
            {
                return Err("the server closed instead of answering".into());
            }
            if let Some(head) = Head::parse(&self.buffer)? {
                break head;
            }
        };
        let whole = head.size + head.length;
        while self.buffer.len() < whole {
            if self
                .stream
                .read_buf(&mut self.buffer)
                .await
                .map_err(broken)?
                == 0
            {
                return Err("the answer broke off".into());
            }
        }
        self.closing = head.closes;
        Ok(Answer {
            status: head.status,
            replayed: head.replayed,
            body: &self.buffer[head.size..whole],
        })
    }
}

async fn connect(addr: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(addr)
        .await
        .map_err(|e| format!("connecting to {addr}: {e}"))?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    Ok(stream)
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    size: usize,
    status: u16,
    length: usize,
    replayed: bool,
    closes: bool,
}

impl Head {
    fn parse(buffer: &[u8]) -> Result<Option<Self>, String> {
        // Parsing is tried only once the head is whole, which it nearly always is at once.
        if memchr::memmem::find(buffer, b"\r\n\r\n").is_none() {
            return Ok(None);
        }
        let mut lines = [httparse::EMPTY_HEADER; 64];
        let mut parsed = httparse::Response::new(&mut lines);
        let size = match parsed.parse(buffer) {
            Ok(httparse::Status::Complete(size)) => size,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(e) => return Err(format!("not an answer: {e}")),
        };
        let mut length = None;
        let mut head = Self {
            size,
            status: parsed.code.unwrap_or(0),
            length: 0,
            replayed: false,
            closes: false,
        };
        for line in parsed.headers.iter() {
            // Envoy writes names in lower case, what it is compared with does not.
            let is = |name: &str| line.name.eq_ignore_ascii_case(name);
            if is("content-length") {
                length = std::str::from_utf8(line.value)
                    .ok()
                    .and_then(|v| v.parse().ok());
            } else if is("idempotent-replayed") {
                head.replayed = line.value == b"true";
            } else if is("connection") {
                head.closes = line.value.eq_ignore_ascii_case(b"close");
            }
        }
        // Nothing that is measured here streams.
        head.length = length.ok_or("an answer without content-length")?;
        Ok(Some(head))
    }
}

/// Which key each request carries.
#[derive(Clone, Debug)]
pub(crate) enum Keys {
    /// A new one each time.
    Fresh,
    /// These, over and over.
    Cycle(Arc<[Key]>),
    /// These, once each; then the load ends.
    Once(Arc<[Key]>),
}

/// When to stop sending. What is in flight then is awaited.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// That long.
    Elapsed(Duration),
    /// That many requests, over all connections.
    Requests(usize),
}

/// What every answer must be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expect {
    pub(crate) status: u16,
    pub(crate) replayed: bool,
    /// Octets of body, where they are known.
    pub(crate) length: Option<usize>,
}

/// One load.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) addr: SocketAddr,
    pub(crate) template: Template,
    pub(crate) keys: Keys,
    pub(crate) expect: Expect,
    pub(crate) connections: usize,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Requests sent, each of them answered as expected.
    pub(crate) answered: u64,
    pub(crate) reconnects: u64,
    pub(crate) seconds: f64,
    /// How long each took, microseconds, in no order.
    pub(crate) latencies_us: Vec<u32>,
}

impl Tally {
    #[allow(clippy::cast_precision_loss)] // Counts of a few seconds.
    pub(crate) fn per_second(&self) -> f64 {
        self.answered as f64 / self.seconds
    }
}

impl Load {
    /// Runs it.
    ///
    /// # Errors
    /// The first answer that is not as expected: a benchmark of wrong answers measures nothing.
    pub(crate) async fn run(&self, until: Until) -> Result<Tally, String> {
        let sent = Arc::new(AtomicUsize::new(0));
        let mut connections = Vec::new();
        for _ in 0..self.connections {
            connections.push(Connection::open(self.addr).await?);
        }
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for connection in connections {
            tasks.spawn(
                self.clone()
                    .drive(connection, Arc::clone(&sent), start, until),
            );
        }
        let mut tally = Tally::default();
        while let Some(done) = tasks.join_next().await {
            let one = done.map_err(|e| e.to_string())??;
            tally.answered += one.answered;
            tally.reconnects += one.reconnects;
            tally.latencies_us.extend(one.latencies_us);
        }
        tally.seconds = start.elapsed().as_secs_f64();
        Ok(tally)
    }

    async fn drive(
        mut self,
        mut connection: Connection,
        sent: Arc<AtomicUsize>,
        start: Instant,
        until: Until,
    ) -> Result<Tally, String> {
        let mut rng = rng();
        let mut latencies_us = Vec::new();
        loop {
            if let Until::Elapsed(limit) = until
                && start.elapsed() >= limit
            {
                break;
            }
            let number = sent.fetch_add(1, Ordering::Relaxed);
            if let Until::Requests(limit) = until
                && number >= limit
            {
                break;
            }
            let key = match &self.keys {
                Keys::Fresh => Key::random(&mut rng),
                Keys::Cycle(keys) => keys[number % keys.len()],
                Keys::Once(keys) => match keys.get(number) {
                    Some(key) => *key,
                    None => break,
                },
            };
            let since = Instant::now();
            let answer = connection.exchange(self.template.with_key(&key)).await?;
            self.expect.check(&answer)?;
            let took = since.elapsed().as_micros();
            latencies_us.push(u32::try_from(took).unwrap_or(u32::MAX));
        }
        Ok(Tally {
            answered: latencies_us.len() as u64,
            reconnects: connection.reconnects,
            seconds: 0.0,
            latencies_us,
        })
    }
}

impl Expect {
    fn check(self, answer: &Answer<'_>) -> Result<(), String> {
        let right = answer.status == self.status
            && answer.replayed == self.replayed
            && self.length.is_none_or(|n| answer.body.len() == n);
        if right {
            return Ok(());
        }
        Err(format!(
            "expected {self:?}, got status {}, replayed {}, {} octets: {}",
            answer.status,
            answer.replayed,
            answer.body.len(),
            answer.body.get(..400).unwrap_or(answer.body).escape_ascii()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_version_4_uuid_and_goes_where_it_belongs() {
        let mut rng = rng();
        let (a, b) = (Key::random(&mut rng), Key::random(&mut rng));
        assert_ne!(a, b);
        let uuid = uuid::Uuid::try_parse_ascii(a.as_bytes()).unwrap();
        assert_eq!(uuid.get_version_num(), 4);
        let mut template = Template::post("/v1/charges", BODY);
        let text = String::from_utf8(template.with_key(&a).to_vec()).unwrap();
        let line = format!("\r\nidempotency-key: {uuid}\r\n\r\n{BODY}");
        assert!(text.ends_with(&line), "{text}");
        assert!(text.contains(&format!("\r\ncontent-length: {}\r\n", BODY.len())));
    }

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        let answer =
            b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\nidempotent-replayed: true\r\n\r\n{}";
        for end in 0..answer.len() - 2 {
            assert_eq!(Head::parse(&answer[..end]), Ok(None));
        }
        let head = Head::parse(answer).unwrap().unwrap();
        assert_eq!(
            (head.status, head.length, head.size),
            (201, 2, answer.len() - 2)
        );
        assert!(head.replayed && !head.closes);
        let other = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Close\r\n\r\n";
        let head = Head::parse(other).unwrap().unwrap();
        assert!(!head.replayed && head.closes);
        assert!(Head::parse(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }

    #[test]
    fn a_wrong_answer_is_told_from_a_right_one() {
        let expect = Expect {
            status: 201,
            replayed: true,
            length: Some(2),
        };
        let right = Answer {
            status: 201,
            replayed: true,
            body: b"{}",
        };
        assert!(expect.check(&right).is_ok());
        assert!(
            expect
                .check(&Answer {
                    status: 409,
                    ..right
                })
                .is_err()
        );
        assert!(
            expect
                .check(&Answer {
                    replayed: false,
                    ..right
                })
                .is_err()
        );
        assert!(expect.check(&Answer { body: b"", ..right }).is_err());
    }
}
