//! Many streams over one HTTP/2 connection (prior knowledge).

use super::{Answer, Client, Request, send_all};
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// One connection; clones share it.
#[derive(Clone, Debug)]
pub struct H2 {
    addr: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
}

impl H2 {
    /// Connects.
    ///
    /// # Errors
    /// Where the connection or the handshake failed.
    pub async fn connect(addr: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(addr).await.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(|e| format!("HTTP/2 handshake: {e}"))?;
        tokio::spawn(connection);
        Ok(Self { addr, sender })
    }

    /// Sends one request on a stream of its own. Dropping the future resets the stream.
    ///
    /// # Errors
    /// Where the stream failed.
    pub async fn send(&self, request: &Request) -> Result<Answer, String> {
        let request = request.to_hyper(Some(self.addr))?;
        let mut sender = self.sender.clone();
        sender.ready().await.map_err(|e| e.to_string())?;
        let answer = sender
            .send_request(request)
            .await
            .map_err(|e| format!("no answer: {e:?}"))?;
        Answer::from_hyper(answer).await
    }

    /// Sends all at once over this one connection; answers in the order of the requests.
    ///
    /// # Panics
    /// Where one was not answered.
    pub async fn send_all(&self, requests: Vec<Request>) -> Vec<Answer> {
        let at_once = requests.len();
        send_all(self, requests, at_once).await
    }
}

impl Client for H2 {
    async fn send(&self, request: Request) -> Result<Answer, String> {
        H2::send(self, &request).await
    }
}
