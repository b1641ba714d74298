//! Reading HTTP/1.1 requests from a connection: the head, then the body piece by piece.

use bytes::{Buf as _, Bytes, BytesMut};
use std::io;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Envoy sends no more than 100 by default.
const MAX_HEADERS: usize = 256;

/// The head of one request. Its body is still to be read.
pub(super) struct Incoming {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) keep_alive: bool,
    pub(super) body: Body,
}

/// What is still to be read of a request's body.
pub(super) struct Body {
    framing: Framing,
    expects_continue: bool,
}

enum Framing {
    /// So many octets.
    Length(u64),
    /// So many octets of this chunk, then its line end.
    Chunk(u64),
    /// A chunk size.
    ChunkSize,
    /// Nothing.
    End,
}

/// A connection with what was read beyond the last request.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    buffer: BytesMut,
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: BytesMut::with_capacity(8 << 10),
        }
    }

    /// Reads more; an orderly end before it is an error of its own kind.
    async fn fill(&mut self) -> io::Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// The head of the next request; `None` where the peer closed between requests. The body of the
    /// one before must have been read.
    pub(super) async fn next(&mut self) -> io::Result<Option<Incoming>> {
        loop {
            if let Some(head) = self.parse_head()? {
                return Ok(Some(head));
            }
            match self.fill().await {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && self.buffer.is_empty() => {
                    return Ok(None);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// The next piece of the body, as it arrived; `None` at its end.
    pub(super) async fn piece(&mut self, body: &mut Body) -> io::Result<Option<Bytes>> {
        if std::mem::take(&mut body.expects_continue) {
            self.stream
                .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
                .await?;
        }
        loop {
            match body.framing {
                Framing::End | Framing::Length(0) => return Ok(None),
                Framing::Length(left) => {
                    let piece = self.up_to(left).await?;
                    body.framing = Framing::Length(left - piece.len() as u64);
                    return Ok(Some(piece));
                }
                Framing::Chunk(0) => {
                    while self.buffer.len() < 2 {
                        self.fill().await?;
                    }
                    self.buffer.advance(2);
                    body.framing = Framing::ChunkSize;
                }
                Framing::Chunk(left) => {
                    let piece = self.up_to(left).await?;
                    body.framing = Framing::Chunk(left - piece.len() as u64);
                    return Ok(Some(piece));
                }
                Framing::ChunkSize => {
                    body.framing = match self.chunk_size().await? {
                        0 => {
                            self.skip_trailers().await?;
                            Framing::End
                        }
                        size => Framing::Chunk(size),
                    };
                }
            }
        }
    }

    /// What has come, or else comes next, but no more than `most` octets.
    async fn up_to(&mut self, most: u64) -> io::Result<Bytes> {
        if self.buffer.is_empty() {
            self.buffer.reserve(16 << 10);
            self.fill().await?;
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Ok(self.buffer.split_to(most.min(self.buffer.len())).freeze())
    }

    async fn chunk_size(&mut self) -> io::Result<u64> {
        loop {
            match httparse::parse_chunk_size(&self.buffer) {
                Ok(httparse::Status::Complete((skip, size))) => {
                    self.buffer.advance(skip);
                    return Ok(size);
                }
                Ok(httparse::Status::Partial) => self.fill().await?,
                Err(_) => return Err(invalid("chunk size")),
            }
        }
    }

    fn parse_head(&mut self) -> io::Result<Option<Incoming>> {
        let mut lines = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut parsed = httparse::Request::new(&mut lines);
        let head = match parsed.parse(&self.buffer) {
            Ok(httparse::Status::Complete(n)) => n,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(e) => return Err(invalid(format!("request head: {e}"))),
        };
        let mut framing = Framing::Length(0);
        let mut keep_alive = parsed.version == Some(1);
        let mut expects_continue = false;
        let mut headers = Vec::with_capacity(parsed.headers.len());
        for line in parsed.headers.iter() {
            if line.name.eq_ignore_ascii_case("content-length") {
                let length = std::str::from_utf8(line.value)
                    .ok()
                    .and_then(|v| v.parse().ok())
                    .ok_or_else(|| invalid("content-length"))?;
                framing = Framing::Length(length);
            } else if line.name.eq_ignore_ascii_case("transfer-encoding") {
                framing = Framing::ChunkSize;
            } else if line.name.eq_ignore_ascii_case("connection") {
                keep_alive = !line.value.eq_ignore_ascii_case(b"close");
            } else if line.name.eq_ignore_ascii_case("expect") {
                expects_continue = true;
            }
            headers.push((line.name.to_owned(), line.value.to_vec()));
        }
        let request = Incoming {
            method: parsed.method.unwrap_or_default().to_owned(),
            target: parsed.path.unwrap_or_default().to_owned(),
            headers,
            keep_alive,
            body: Body {
                framing,
                expects_continue,
            },
        };
        self.buffer.advance(head);
        Ok(Some(request))
    }

    async fn skip_trailers(&mut self) -> io::Result<()> {
        loop {
            let Some(end) = self.buffer.iter().position(|b| *b == b'\n') else {
                self.fill().await?;
                continue;
            };
            let line = self.buffer.split_to(end + 1);
            if line.trim_ascii().is_empty() {
                return Ok(());
            }
        }
    }
}
