//! HTTP/1.1 by the byte: what no decent client library lets one send, and clients that leave.

use super::{
    Answer, Arriving, Request,
    arriving::patient,
    wire::{Lines, Wire},
};
use std::{net::SocketAddr, time::Duration};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpSocket, TcpStream},
    time::timeout,
};

pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// How a request's body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// By Content-Length.
    Length,
    /// In chunks.
    Chunked,
}

/// One connection.
#[derive(Debug)]
pub struct Raw(Wire);

impl Raw {
    /// Connects.
    ///
    /// # Panics
    /// Where nobody listens.
    pub async fn connect(addr: SocketAddr) -> Self {
        Self::over(TcpStream::connect(addr).await.expect("a connection"))
    }

    /// Connects with kernel buffers of about so many octets each way, so that a peer that does not
    /// read, or whose answer is not read, is felt soon.
    ///
    /// # Panics
    /// Where nobody listens.
    pub async fn connect_with_buffers(addr: SocketAddr, octets: u32) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(octets).expect("SO_RCVBUF");
        socket.set_send_buffer_size(octets).expect("SO_SNDBUF");
        Self::over(socket.connect(addr).await.expect("a connection"))
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("TCP_NODELAY");
        Self(Wire::new(stream))
    }

    /// The octets of a request's head: lines exactly as given, then Host and how the body is framed.
    #[must_use]
    pub fn head(request: &Request, framing: BodyFraming) -> Vec<u8> {
        let mut out = format!("{} {} HTTP/1.1\r\n", request.method, request.target).into_bytes();
        for (name, value) in &request.headers {
            out.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        let framed = match framing {
            BodyFraming::Length => format!("content-length: {}", request.body.len()),
            BodyFraming::Chunked => "transfer-encoding: chunked".into(),
        };
        out.extend_from_slice(format!("host: test\r\n{framed}\r\n\r\n").as_bytes());
        out
    }

    /// The octets of a request with Content-Length.
    #[must_use]
    pub fn encode(request: &Request) -> Vec<u8> {
        let mut out = Self::head(request, BodyFraming::Length);
        out.extend_from_slice(&request.body);
        out
    }

    /// The same with a chunked body, `size` octets in each chunk.
    ///
    /// # Panics
    /// Where `size` is 0.
    #[must_use]
    pub fn encode_chunked(request: &Request, size: usize) -> Vec<u8> {
        let mut out = Self::head(request, BodyFraming::Chunked);
        for chunk in request.body.chunks(size) {
            out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            out.extend_from_slice(&[chunk, b"\r\n"].concat());
        }
        out.extend_from_slice(b"0\r\n\r\n");
        out
    }

    /// Sends octets as they are.
    ///
    /// # Panics
    /// Where the connection is gone.
    pub async fn write(&mut self, octets: &[u8]) {
        self.try_write(octets).await.expect("a connection");
    }

    /// The same, to a peer that may have left.
    ///
    /// # Errors
    /// Where it has, or takes nothing for 20 s.
    pub async fn try_write(&mut self, octets: &[u8]) -> Result<(), String> {
        let written = self.0.stream.write_all(octets);
        patient(async {
            written
                .await
                .map_err(|e| format!("the connection broke: {e}"))
        })
        .await
    }

    /// Sends as much of it as the connection takes now, at least an octet; gives how much that was.
    pub(super) async fn write_some(&mut self, octets: &[u8]) -> Result<usize, String> {
        let written = self.0.stream.write(octets).await;
        written.map_err(|e| format!("the connection broke: {e}"))
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

    /// Sends a request on a new connection; gives the answer from its head on.
    ///
    /// # Errors
    /// Where the connection ends before, or nothing comes for 20 s.
    pub async fn opened(addr: SocketAddr, request: &Request) -> Result<Arriving, String> {
        let mut raw = Self::connect(addr).await;
        raw.write(&Self::encode(request)).await;
        raw.arriving(&request.method).await
    }

    /// Reads one answer.
    ///
    /// # Errors
    /// Where the connection ends before it is whole, or it is not whole after 20 s.
    pub async fn answer(&mut self, method: &str) -> Result<Answer, String> {
        timeout(PATIENCE, self.read_answer(method))
            .await
            .unwrap_or_else(|_| Err("no whole answer within 20 s".into()))
    }

    async fn read_answer(&mut self, method: &str) -> Result<Answer, String> {
        let (mut answer, mut left) = loop {
            let found = self.0.head(method).await?;
            if found.0.status >= 200 {
                break found;
            }
        };
        let mut body = Vec::new();
        // Nobody asks for trailers here.
        while let Some(piece) = self.0.piece(&mut left, &mut Lines::new()).await? {
            body.extend_from_slice(&piece);
        }
        answer.body = body.into();
        Ok(answer)
    }

    /// The next head, interim ones included.
    pub(super) async fn any_head(&mut self, method: &str) -> Result<Answer, String> {
        Ok(patient(self.0.head(method)).await?.0)
    }

    /// Reads the head of an answer; its body is read by the piece.
    ///
    /// # Errors
    /// Where the connection ends before, or nothing comes for 20 s.
    pub async fn arriving(self, method: &str) -> Result<Arriving, String> {
        Arriving::h1(self.0, method).await
    }

    /// Leaves in good order (FIN).
    pub async fn leave(mut self) {
        // The peer may have been quicker; gone is gone.
        let _ = self.0.stream.shutdown().await;
    }

    /// Leaves with a reset, as a client process that was killed with unread data does.
    ///
    /// # Panics
    /// Where the socket option is refused.
    pub fn reset(self) {
        self.0.stream.set_zero_linger().expect("SO_LINGER");
    }
}
