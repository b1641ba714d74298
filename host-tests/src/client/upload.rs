//! A request that is sent in steps: piece by piece, paused, broken off.

use super::{
    Answer, Arriving, Raw, Request,
    arriving::patient,
    http2::{Channel, H2, Outgoing},
    raw::BodyFraming,
};
use bytes::{Bytes, BytesMut};
use std::{net::SocketAddr, time::Duration};
use tokio::{task::JoinHandle, time::timeout};

/// How long a write must stand still to count as held back.
const HELD_BACK: Duration = Duration::from_millis(500);

/// An upload over HTTP/1.1 on a connection of its own.
#[derive(Debug)]
pub struct Upload {
    raw: Raw,
    method: String,
    framing: BodyFraming,
    body: Bytes,
    /// Octets of the body that were put on the wire.
    sent: usize,
}

impl Upload {
    /// Connects, and sends the head.
    ///
    /// # Panics
    /// Where nobody listens.
    pub async fn begin(addr: SocketAddr, request: &Request, framing: BodyFraming) -> Self {
        Self::begin_on(Raw::connect(addr).await, request, framing).await
    }

    /// Sends the head on that connection.
    ///
    /// # Panics
    /// Where the connection is gone.
    pub async fn begin_on(mut raw: Raw, request: &Request, framing: BodyFraming) -> Self {
        raw.write(&Raw::head(request, framing)).await;
        Self {
            raw,
            method: request.method.clone(),
            framing,
            body: request.body.clone(),
            sent: 0,
        }
    }

    /// Octets of the body that were sent.
    #[must_use]
    pub fn sent(&self) -> usize {
        self.sent
    }

    /// Sends the next `octets` of the body, or what there is of them, `piece` at a time: each in a
    /// segment of its own, and in a chunk of its own where the framing is chunked.
    ///
    /// # Errors
    /// Where the peer is gone.
    ///
    /// # Panics
    /// Where `piece` is 0.
    pub async fn send(&mut self, octets: usize, piece: usize) -> Result<(), String> {
        let end = self.body.len().min(self.sent.saturating_add(octets));
        while self.sent < end {
            let next = self
                .body
                .slice(self.sent..end.min(self.sent.saturating_add(piece)));
            self.raw.try_write(&self.framed(&next)).await?;
            self.sent += next.len();
        }
        Ok(())
    }

    fn framed(&self, piece: &[u8]) -> Bytes {
        match self.framing {
            BodyFraming::Length => Bytes::copy_from_slice(piece),
            BodyFraming::Chunked => {
                let size = format!("{:x}\r\n", piece.len());
                [size.as_bytes(), piece, b"\r\n"].concat().into()
            }
        }
    }

    /// Sends the body until it is out or the peer takes no more for half a second; gives how much
    /// has been sent by then. Only for bodies with Content-Length, since a chunk may be broken off.
    ///
    /// # Errors
    /// Where the peer is gone.
    ///
    /// # Panics
    /// Where the framing is chunked.
    pub async fn send_until_held_back(&mut self) -> Result<usize, String> {
        assert_eq!(self.framing, BodyFraming::Length);
        while self.sent < self.body.len() {
            let next = self.body.slice(self.sent..);
            match timeout(HELD_BACK, self.raw.write_some(&next)).await {
                Ok(written) => self.sent += written?,
                Err(_) => break,
            }
        }
        Ok(self.sent)
    }

    /// Sends what is left of the body, `piece` at a time, then the end with these trailers (which
    /// only a chunked body can have).
    ///
    /// # Errors
    /// Where the peer is gone.
    ///
    /// # Panics
    /// Where there are trailers and the framing is not chunked.
    pub async fn end(&mut self, piece: usize, trailers: &[(&str, &str)]) -> Result<(), String> {
        self.send(usize::MAX, piece).await?;
        if self.framing == BodyFraming::Length {
            assert!(trailers.is_empty(), "trailers need chunks");
            return Ok(());
        }
        let mut end = BytesMut::from(&b"0\r\n"[..]);
        for (name, value) in trailers {
            end.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        end.extend_from_slice(b"\r\n");
        self.raw.try_write(&end).await
    }

    /// Waits for `100 Continue` (the request must have asked for it with [`Request::expecting`]).
    ///
    /// # Errors
    /// With the answer, where the peer gives a final one at once.
    pub async fn continued(&mut self) -> Result<(), String> {
        let answer = self.raw.any_head(&self.method).await?;
        if answer.status == 100 {
            return Ok(());
        }
        Err(format!("a final answer: {answer:?}"))
    }

    /// The answer, from its head on.
    ///
    /// # Errors
    /// Where the connection ends before, or nothing comes for 20 s.
    pub async fn arriving(self) -> Result<Arriving, String> {
        self.raw.arriving(&self.method).await
    }

    /// The whole answer.
    ///
    /// # Errors
    /// Where it breaks off, or nothing comes for 20 s.
    pub async fn answer(self) -> Result<Answer, String> {
        self.arriving().await?.rest().await
    }

    /// Leaves in good order (FIN).
    pub async fn leave(self) {
        self.raw.leave().await;
    }

    /// Leaves with a reset.
    pub fn reset(self) {
        self.raw.reset();
    }
}

/// An upload on a stream of an HTTP/2 connection. Dropping it resets the stream.
#[derive(Debug)]
pub struct H2Upload {
    channel: Option<Channel>,
    answer: JoinHandle<Result<Arriving, String>>,
    body: Bytes,
    sent: usize,
}

impl H2Upload {
    /// Sends the head. The length is declared only by a `content-length` line of the request's own.
    ///
    /// # Errors
    /// Where the connection is gone.
    pub async fn begin(h2: &H2, request: &Request) -> Result<Self, String> {
        let (channel, outgoing) = Outgoing::channel();
        let h2 = h2.clone();
        let head = Request {
            body: Bytes::new(),
            ..request.clone()
        };
        let answer = tokio::spawn(async move { h2.exchange(&head, outgoing).await });
        Ok(Self {
            channel: Some(channel),
            answer,
            body: request.body.clone(),
            sent: 0,
        })
    }

    /// Octets of the body that the stream has taken.
    #[must_use]
    pub fn sent(&self) -> usize {
        self.sent
    }

    /// Sends the next `octets` of the body, or what there is of them, `piece` at a time.
    ///
    /// # Errors
    /// Where the stream was reset.
    ///
    /// # Panics
    /// Where `piece` is 0.
    pub async fn send(&mut self, octets: usize, piece: usize) -> Result<(), String> {
        let end = self.body.len().min(self.sent.saturating_add(octets));
        while self.sent < end {
            let next = self
                .body
                .slice(self.sent..end.min(self.sent.saturating_add(piece)));
            let length = next.len();
            let channel = self.channel.as_mut().ok_or("the upload has ended")?;
            patient(channel.data(next)).await?;
            self.sent += length;
        }
        Ok(())
    }

    /// Sends what is left of the body, `piece` at a time, then the end with these trailers.
    ///
    /// # Errors
    /// Where the stream was reset.
    pub async fn end(&mut self, piece: usize, trailers: &[(&str, &str)]) -> Result<(), String> {
        self.send(usize::MAX, piece).await?;
        let mut channel = self.channel.take().ok_or("the upload has ended")?;
        if trailers.is_empty() {
            return Ok(());
        }
        channel.trailers(trailers).await
    }

    /// The answer, from its head on. What was not ended goes on until this value is dropped.
    ///
    /// # Errors
    /// Where the stream was reset before, or nothing comes for 20 s.
    pub async fn arriving(&mut self) -> Result<Arriving, String> {
        patient(async {
            (&mut self.answer)
                .await
                .map_err(|e| format!("the stream's task: {e}"))?
        })
        .await
    }

    /// Resets the stream.
    pub fn reset(mut self) {
        if let Some(channel) = self.channel.take() {
            channel.abort();
        }
        self.answer.abort();
    }
}

impl Drop for H2Upload {
    fn drop(&mut self) {
        if let Some(channel) = self.channel.take() {
            channel.abort();
        }
    }
}
