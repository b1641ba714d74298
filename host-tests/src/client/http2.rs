//! Many streams over one HTTP/2 connection (prior knowledge).

use super::{Answer, Arriving, Client, Request, send_all};
use bytes::Bytes;
use http_body_util::{
    BodyExt as _, Full,
    channel::{Channel as Receiver, Sender},
    combinators::BoxBody,
};
use hyper::{
    HeaderMap,
    client::conn::http2::{SendRequest, handshake},
    header::{HeaderName, HeaderValue},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{fmt, net::SocketAddr};
use tokio::net::TcpStream;

/// One connection; clones share it.
#[derive(Clone, Debug)]
pub struct H2 {
    addr: SocketAddr,
    sender: SendRequest<BoxBody<Bytes, GivenUp>>,
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
        self.arriving(request).await?.rest().await
    }

    /// Sends one request; gives the answer from its head on. Dropping it resets the stream.
    ///
    /// # Errors
    /// Where the stream failed.
    pub async fn arriving(&self, request: &Request) -> Result<Arriving, String> {
        let body = Full::new(request.body.clone()).map_err(|never| match never {});
        self.exchange(request, Outgoing(body.boxed())).await
    }

    pub(super) async fn exchange(
        &self,
        request: &Request,
        body: Outgoing,
    ) -> Result<Arriving, String> {
        let request = request.to_hyper(Some(self.addr))?.map(|_| body.0);
        let mut sender = self.sender.clone();
        sender.ready().await.map_err(|e| e.to_string())?;
        let answer = sender
            .send_request(request)
            .await
            .map_err(|e| format!("no answer: {e:?}"))?;
        Ok(Arriving::h2(answer))
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

/// The body of a request.
pub(super) struct Outgoing(BoxBody<Bytes, GivenUp>);

impl Outgoing {
    /// A body that is given piece by piece, and the other end of it.
    pub(super) fn channel() -> (Channel, Self) {
        // One piece at a time, so that the sender feels the stream's flow control.
        let (sender, receiver) = Receiver::new(1);
        (Channel(sender), Self(receiver.boxed()))
    }
}

/// Where the pieces of a body go in.
#[derive(Debug)]
pub(super) struct Channel(Sender<Bytes, GivenUp>);

impl Channel {
    pub(super) async fn data(&mut self, piece: Bytes) -> Result<(), String> {
        let sent = self.0.send_data(piece).await;
        sent.map_err(|_| "the stream was reset".into())
    }

    pub(super) async fn trailers(&mut self, lines: &[(&str, &str)]) -> Result<(), String> {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            let name = HeaderName::try_from(*name).map_err(|e| e.to_string())?;
            let value = HeaderValue::try_from(*value).map_err(|e| e.to_string())?;
            map.append(name, value);
        }
        let sent = self.0.send_trailers(map).await;
        sent.map_err(|_| "the stream was reset".into())
    }

    pub(super) fn abort(self) {
        self.0.abort(GivenUp);
    }
}

/// The client gave its upload up.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenUp;

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the upload was given up")
    }
}

impl std::error::Error for GivenUp {}
