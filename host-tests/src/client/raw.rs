//! HTTP/1.1 by the byte: what no decent client library lets one send, and clients that leave.

use super::{Answer, Request};
use bytes::{Bytes, BytesMut};
use std::{net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// One connection.
#[derive(Debug)]
pub struct Raw {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Raw {
    /// Connects.
    ///
    /// # Panics
    /// Where nobody listens.
    pub async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.expect("a connection");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        Self {
            stream,
            buffer: BytesMut::new(),
        }
    }

    /// The octets of a request: lines exactly as given, then Host and Content-Length.
    #[must_use]
    pub fn encode(request: &Request) -> Vec<u8> {
        let mut out = format!("{} {} HTTP/1.1\r\n", request.method, request.target).into_bytes();
        for (name, value) in &request.headers {
            out.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        let length = request.body.len();
        out.extend_from_slice(format!("host: test\r\ncontent-length: {length}\r\n\r\n").as_bytes());
        out.extend_from_slice(&request.body);
        out
    }

    /// Sends octets as they are.
    ///
    /// # Panics
    /// Where the connection is gone.
    pub async fn write(&mut self, octets: &[u8]) {
        self.stream.write_all(octets).await.expect("a connection");
    }

    /// Sends a request on a new connection, header values unchecked; gives the answer.
    ///
    /// # Errors
    /// Where the connection ended without a whole answer.
    pub async fn exchange(addr: SocketAddr, request: &Request) -> Result<Answer, String> {
        let mut raw = Self::connect(addr).await;
        raw.write(&Self::encode(request)).await;
        raw.answer(&request.method).await
    }

    /// Reads one answer.
    ///
    /// # Errors
    /// Where the connection ends before it is whole, or nothing comes for 20 s.
    pub async fn answer(&mut self, method: &str) -> Result<Answer, String> {
        timeout(PATIENCE, self.read_answer(method))
            .await
            .unwrap_or_else(|_| Err("no whole answer within 20 s".into()))
    }

    async fn read_answer(&mut self, method: &str) -> Result<Answer, String> {
        let mut answer = loop {
            if let Some(answer) = self.parse_head()? {
                if answer.status >= 200 {
                    break answer;
                }
                continue;
            }
            self.fill().await?;
        };
        let value = |name: &str| answer.all(name).first().map(|v| v.to_vec());
        answer.body = if method == "HEAD" || matches!(answer.status, 204 | 304) {
            Bytes::new()
        } else if value("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case(b"chunked")) {
            self.chunked().await?
        } else if let Some(length) = value("content-length") {
            let length = String::from_utf8_lossy(&length)
                .parse()
                .map_err(|_| "content-length")?;
            self.exactly(length).await?
        } else {
            while self.fill().await.is_ok() {}
            self.buffer.split().freeze()
        };
        Ok(answer)
    }

    async fn fill(&mut self) -> Result<(), String> {
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(0) => Err("the connection was closed".into()),
            Ok(_) => Ok(()),
            Err(e) => Err(format!("the connection broke: {e}")),
        }
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
            headers: parsed
                .headers
                .iter()
                .map(|l| (l.name.to_ascii_lowercase(), l.value.to_vec()))
                .collect(),
            body: Bytes::new(),
        };
        let _ = self.buffer.split_to(end);
        Ok(Some(answer))
    }

    async fn exactly(&mut self, n: usize) -> Result<Bytes, String> {
        while self.buffer.len() < n {
            self.fill().await?;
        }
        Ok(self.buffer.split_to(n).freeze())
    }

    async fn chunked(&mut self) -> Result<Bytes, String> {
        let mut body = BytesMut::new();
        loop {
            let (skip, size) = loop {
                match httparse::parse_chunk_size(&self.buffer) {
                    Ok(httparse::Status::Complete(found)) => break found,
                    Ok(httparse::Status::Partial) => self.fill().await?,
                    Err(_) => return Err("chunk size".into()),
                }
            };
            let _ = self.buffer.split_to(skip);
            if size == 0 {
                // Trailers, if any, up to the empty line; nobody asks for them here.
                while !self.buffer.starts_with(b"\r\n")
                    && !self.buffer.windows(4).any(|w| w == b"\r\n\r\n")
                {
                    self.fill().await?;
                }
                self.buffer.clear();
                return Ok(body.freeze());
            }
            let size = usize::try_from(size).map_err(|_| "chunk size")?;
            body.extend_from_slice(&self.exactly(size).await?);
            self.exactly(2).await?;
        }
    }

    /// Leaves in good order (FIN).
    pub async fn leave(mut self) {
        // The peer may have been quicker; gone is gone.
        let _ = self.stream.shutdown().await;
    }

    /// Leaves with a reset, as a client process that was killed with unread data does.
    ///
    /// # Panics
    /// Where the socket option is refused.
    pub fn reset(self) {
        self.stream.set_zero_linger().expect("SO_LINGER");
    }
}
