//! One HTTP/1.1 connection, read by the piece.

use super::Answer;
use bytes::{Buf as _, Bytes, BytesMut};
use tokio::{io::AsyncReadExt as _, net::TcpStream};

/// Header lines in order.
pub(super) type Lines = Vec<(String, Vec<u8>)>;

/// What is still to be read of an answer's body.
#[derive(Clone, Copy, Debug)]
pub(super) enum Left {
    /// So many octets.
    Length(u64),
    /// So many octets of this chunk, then its line end.
    Chunk(u64),
    /// A chunk size.
    ChunkSize,
    /// All until the connection ends.
    UntilClose,
}

/// A connection with what was read beyond what was asked for.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) stream: TcpStream,
    buffer: BytesMut,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
        }
    }

    async fn fill(&mut self) -> Result<(), String> {
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(0) => Err("the connection was closed".into()),
            Ok(_) => Ok(()),
            Err(e) => Err(format!("the connection broke: {e}")),
        }
    }

    /// The next head, interim ones included, and what is to be read after it.
    pub(super) async fn head(&mut self, method: &str) -> Result<(Answer, Left), String> {
        let answer = loop {
            if let Some(answer) = self.parse_head()? {
                break answer;
            }
            self.fill().await?;
        };
        let value = |name: &str| answer.all(name).first().map(|v| v.to_vec());
        let bodyless = method == "HEAD" || matches!(answer.status, 100..=199 | 204 | 304);
        let left = if bodyless {
            Left::Length(0)
        } else if value("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case(b"chunked")) {
            Left::ChunkSize
        } else if let Some(length) = value("content-length") {
            let length = String::from_utf8_lossy(&length).parse();
            Left::Length(length.map_err(|_| "content-length")?)
        } else {
            Left::UntilClose
        };
        Ok((answer, left))
    }

    fn parse_head(&mut self) -> Result<Option<Answer>, String> {
        let mut lines = [httparse::EMPTY_HEADER; 256];
        let mut parsed = httparse::Response::new(&mut lines);
        let end = match parsed.parse(&self.buffer) {
            Ok(httparse::Status::Complete(n)) => n,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(e) => return Err(format!("answer head: {e}")),
        };
        let answer = Answer {
            status: parsed.code.unwrap_or_default(),
            headers: owned(parsed.headers),
            body: Bytes::new(),
        };
        self.buffer.advance(end);
        Ok(Some(answer))
    }

    /// The next piece of a body, as it arrived; `None` at its end. Trailers are added to `trailers`.
    pub(super) async fn piece(
        &mut self,
        left: &mut Left,
        trailers: &mut Lines,
    ) -> Result<Option<Bytes>, String> {
        loop {
            match *left {
                Left::Length(0) => return Ok(None),
                Left::Length(n) => {
                    let piece = self.up_to(n).await?;
                    *left = Left::Length(n - piece.len() as u64);
                    return Ok(Some(piece));
                }
                Left::Chunk(0) => {
                    while self.buffer.len() < 2 {
                        self.fill().await?;
                    }
                    self.buffer.advance(2);
                    *left = Left::ChunkSize;
                }
                Left::Chunk(n) => {
                    let piece = self.up_to(n).await?;
                    *left = Left::Chunk(n - piece.len() as u64);
                    return Ok(Some(piece));
                }
                Left::ChunkSize => match self.chunk_size().await? {
                    0 => {
                        trailers.extend(self.trailers().await?);
                        *left = Left::Length(0);
                    }
                    size => *left = Left::Chunk(size),
                },
                // A reset is no end.
                Left::UntilClose => {
                    if self.buffer.is_empty()
                        && self
                            .stream
                            .read_buf(&mut self.buffer)
                            .await
                            .map_err(|e| format!("the connection broke: {e}"))?
                            == 0
                    {
                        return Ok(None);
                    }
                    return Ok(Some(self.buffer.split().freeze()));
                }
            }
        }
    }

    /// What has come, or else comes next, but no more than `most` octets.
    async fn up_to(&mut self, most: u64) -> Result<Bytes, String> {
        if self.buffer.is_empty() {
            self.buffer.reserve(16 << 10);
            self.fill().await?;
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Ok(self.buffer.split_to(most.min(self.buffer.len())).freeze())
    }

    async fn chunk_size(&mut self) -> Result<u64, String> {
        loop {
            match httparse::parse_chunk_size(&self.buffer) {
                Ok(httparse::Status::Complete((skip, size))) => {
                    self.buffer.advance(skip);
                    return Ok(size);
                }
                Ok(httparse::Status::Partial) => self.fill().await?,
                Err(_) => return Err("chunk size".into()),
            }
        }
    }

    async fn trailers(&mut self) -> Result<Lines, String> {
        loop {
            let mut lines = [httparse::EMPTY_HEADER; 64];
            match httparse::parse_headers(&self.buffer, &mut lines) {
                Ok(httparse::Status::Complete((end, lines))) => {
                    let found = owned(lines);
                    self.buffer.advance(end);
                    return Ok(found);
                }
                Ok(httparse::Status::Partial) => self.fill().await?,
                Err(e) => return Err(format!("trailers: {e}")),
            }
        }
    }
}

fn owned(lines: &[httparse::Header<'_>]) -> Lines {
    lines
        .iter()
        .map(|l| (l.name.to_ascii_lowercase(), l.value.to_vec()))
        .collect()
}
