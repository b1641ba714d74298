//! RESP over a Unix socket and HTTP/1.1 over TCP, plainly and blocking: the other side of what the
//! codecs write, so that it shares no code with them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A store that says nothing for this long has failed the test.
const PATIENCE: Duration = Duration::from_secs(20);

/// What Redis says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// `+`
    Status(String),
    /// `-`
    Error(String),
    /// `:`
    Number(i64),
    /// `$`
    Text(Option<Vec<u8>>),
    /// `*`
    Array(Vec<Said>),
}

impl Said {
    /// Text, status or number as text.
    ///
    /// # Panics
    /// Where it is none of these.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Status(text) => text.clone(),
            Self::Number(number) => number.to_string(),
            Self::Text(Some(octets)) => String::from_utf8_lossy(octets).into_owned(),
            other => panic!("a text, not {other:?}"),
        }
    }

    /// A number.
    ///
    /// # Panics
    /// Where it is none.
    #[must_use]
    pub fn number(&self) -> i64 {
        match self {
            Self::Number(number) => *number,
            other => panic!("a number, not {other:?}"),
        }
    }
}

/// One connection to Redis.
#[derive(Debug)]
pub struct Resp(BufReader<Stream>);

/// What Redis listens on.
#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(into),
            Self::Tcp(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(octets),
            Self::Tcp(stream) => stream.write(octets),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Resp {
    /// Connects.
    ///
    /// # Errors
    /// Where nobody listens.
    pub fn connect(socket: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(Stream::Unix(stream))))
    }

    /// Connects over TCP.
    ///
    /// # Errors
    /// Where nobody listens.
    pub fn tcp(addr: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(Stream::Tcp(stream))))
    }

    /// Sends octets as they are and gives that many replies as they came.
    ///
    /// # Panics
    /// Where Redis does not answer.
    pub fn raw(&mut self, octets: &[u8], replies: usize) -> Vec<u8> {
        self.0.get_mut().write_all(octets).expect("Redis reads");
        let mut copy = Vec::new();
        for _ in 0..replies {
            read(&mut self.0, &mut copy);
        }
        copy
    }

    /// One command.
    ///
    /// # Panics
    /// Where Redis does not answer.
    pub fn command<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Said {
        let mut octets = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            let word = word.as_ref();
            octets.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            octets.extend_from_slice(word);
            octets.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&octets).expect("Redis reads");
        read(&mut self.0, &mut Vec::new())
    }
}

fn read(from: &mut impl BufRead, copy: &mut Vec<u8>) -> Said {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line).expect("a reply of Redis");
    copy.extend_from_slice(&line);
    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
    assert!(!text.is_empty(), "Redis has hung up");
    let (kind, rest) = text.split_at(1);
    match kind {
        "+" => Said::Status(rest.to_owned()),
        "-" => Said::Error(rest.to_owned()),
        ":" => Said::Number(rest.parse().expect("a number")),
        "$" if rest == "-1" => Said::Text(None),
        "$" => {
            let mut octets = vec![0; rest.parse::<usize>().expect("a length") + 2];
            from.read_exact(&mut octets).expect("a whole text");
            copy.extend_from_slice(&octets);
            octets.truncate(octets.len() - 2);
            Said::Text(Some(octets))
        }
        "*" => {
            let count = rest.parse().expect("a count");
            Said::Array((0..count).map(|_| read(from, copy)).collect())
        }
        _ => panic!("not RESP: {text}"),
    }
}

/// A message of HTTP/1.1: its first line, its headers in lower case, its body.
#[derive(Debug)]
pub struct Message {
    /// Request line or status line.
    pub first: String,
    /// Name and value.
    pub headers: Vec<(String, String)>,
    /// By `content-length`.
    pub body: Vec<u8>,
}

impl Message {
    /// Reads one; `None`: the other side has hung up.
    pub fn read(from: &mut impl BufRead) -> Option<Self> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if from.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end().to_owned();
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        let first = lines.remove(0);
        let headers: Vec<(String, String)> = lines
            .iter()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.map_or(0, |(_, value)| value.parse().expect("a length"));
        let mut body = vec![0; length];
        from.read_exact(&mut body).ok()?;
        Some(Self {
            first,
            headers,
            body,
        })
    }
}

/// A client with one connection.
#[derive(Debug)]
pub struct Http(BufReader<TcpStream>);

impl Http {
    /// Connects.
    ///
    /// # Errors
    /// Where nobody listens.
    pub fn connect(addr: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// One exchange: status and body.
    ///
    /// # Panics
    /// Where the server does not answer.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: &[u8],
    ) -> (u16, Vec<u8>) {
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: store\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        let stream = self.0.get_mut();
        stream.write_all(head.as_bytes()).expect("the server reads");
        stream.write_all(body).expect("the server reads");
        let answer = Message::read(&mut self.0).expect("an answer");
        let status = answer.first.split(' ').nth(1).expect("a status");
        (status.parse().expect("a status"), answer.body)
    }
}
