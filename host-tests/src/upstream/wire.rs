//! Reading HTTP/1.1 requests from a connection, bodies included.

use bytes::{Buf as _, Bytes, BytesMut};
use std::io;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Envoy sends no more than 100 by default.
const MAX_HEADERS: usize = 256;

/// One request.
pub(super) struct Incoming {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Bytes,
    pub(super) keep_alive: bool,
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

    /// The next request; `None` where the peer closed between requests.
    pub(super) async fn next(&mut self) -> io::Result<Option<Incoming>> {
        let (mut request, framing, expects_continue) = loop {
            if let Some(head) = self.parse_head()? {
                break head;
            }
            match self.fill().await {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && self.buffer.is_empty() => {
                    return Ok(None);
                }
                Err(e) => return Err(e),
            }
        };
        if expects_continue {
            self.stream
                .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
                .await?;
        }
        request.body = match framing {
            Framing::Length(n) => self.exactly(n).await?,
            Framing::Chunked => self.chunked().await?,
        };
        Ok(Some(request))
    }

    fn parse_head(&mut self) -> io::Result<Option<(Incoming, Framing, bool)>> {
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
                framing = Framing::Chunked;
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
            body: Bytes::new(),
            keep_alive,
        };
        self.buffer.advance(head);
        Ok(Some((request, framing, expects_continue)))
    }

    async fn exactly(&mut self, n: usize) -> io::Result<Bytes> {
        while self.buffer.len() < n {
            self.fill().await?;
        }
        Ok(self.buffer.split_to(n).freeze())
    }

    async fn chunked(&mut self) -> io::Result<Bytes> {
        let mut body = BytesMut::new();
        loop {
            let (skip, size) = loop {
                match httparse::parse_chunk_size(&self.buffer) {
                    Ok(httparse::Status::Complete(found)) => break found,
                    Ok(httparse::Status::Partial) => self.fill().await?,
                    Err(_) => return Err(invalid("chunk size")),
                }
            };
            self.buffer.advance(skip);
            if size == 0 {
                self.skip_trailers().await?;
                return Ok(body.freeze());
            }
            let size = usize::try_from(size).map_err(|_| invalid("chunk size"))?;
            body.extend_from_slice(&self.exactly(size).await?);
            self.exactly(2).await?;
        }
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

enum Framing {
    Length(usize),
    Chunked,
}
