//! An answer while it arrives, over either protocol.

use super::{
    Answer,
    raw::PATIENCE,
    wire::{Left, Lines, Wire},
};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::{io::AsyncWriteExt as _, time::timeout};

/// An answer whose head has come and whose body is read piece by piece.
#[derive(Debug)]
pub struct Arriving {
    /// Status and headers; the body is what [`Arriving::exactly`] and [`Arriving::rest`] have read so
    /// far.
    pub answer: Answer,
    /// Interim answers that came before it.
    pub interim: Vec<Answer>,
    /// Trailers, once the end has been read.
    pub trailers: Lines,
    /// Read beyond what was asked for.
    ahead: BytesMut,
    source: Source,
}

#[derive(Debug)]
enum Source {
    H1(Wire, Left),
    H2(Incoming),
}

impl Arriving {
    pub(super) async fn h1(mut wire: Wire, method: &str) -> Result<Self, String> {
        let mut interim = Vec::new();
        let (answer, left) = loop {
            let (answer, left) = patient(wire.head(method)).await?;
            if answer.status >= 200 {
                break (answer, left);
            }
            interim.push(answer);
        };
        Ok(Self {
            answer,
            interim,
            trailers: Lines::new(),
            ahead: BytesMut::new(),
            source: Source::H1(wire, left),
        })
    }

    pub(super) fn h2(answer: hyper::Response<Incoming>) -> Self {
        let (head, body) = answer.into_parts();
        Self {
            answer: Answer::head(&head),
            interim: Vec::new(),
            trailers: Lines::new(),
            ahead: BytesMut::new(),
            source: Source::H2(body),
        }
    }

    /// The next piece as it arrives; `None` at the end.
    ///
    /// # Errors
    /// Where the answer breaks off, or nothing comes for 20 s.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, String> {
        if !self.ahead.is_empty() {
            return Ok(Some(self.ahead.split().freeze()));
        }
        match &mut self.source {
            Source::H1(wire, left) => patient(wire.piece(left, &mut self.trailers)).await,
            Source::H2(body) => loop {
                let frame = patient(async {
                    let frame = body.frame().await.transpose();
                    frame.map_err(|e| format!("the answer broke off: {e}"))
                });
                let Some(frame) = frame.await? else {
                    return Ok(None);
                };
                match frame.into_data() {
                    // An empty DATA frame may carry the end of the stream.
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => return Ok(Some(data)),
                    Err(frame) => {
                        if let Ok(lines) = frame.into_trailers() {
                            let owned = |(n, v): (
                                &hyper::header::HeaderName,
                                &hyper::header::HeaderValue,
                            )| {
                                (n.as_str().to_owned(), v.as_bytes().to_vec())
                            };
                            self.trailers.extend(lines.iter().map(owned));
                        }
                    }
                }
            },
        }
    }

    /// The next `n` octets, as soon as they are there.
    ///
    /// # Errors
    /// Where the answer ends or breaks off before, or nothing comes for 20 s.
    pub async fn exactly(&mut self, n: usize) -> Result<Bytes, String> {
        let mut found = BytesMut::new();
        while found.len() < n {
            let piece = self.piece().await?;
            let piece = piece.ok_or_else(|| format!("the answer ended after {found:?}"))?;
            found.extend_from_slice(&piece);
        }
        self.ahead = found.split_off(n);
        self.keep(&found);
        Ok(found.freeze())
    }

    /// All that is still to come, to the end; gives the whole answer.
    ///
    /// # Errors
    /// Where it breaks off, or nothing comes for 20 s.
    pub async fn rest(mut self) -> Result<Answer, String> {
        Ok(self.finish().await?.clone())
    }

    /// The same, keeping the trailers and the connection.
    ///
    /// # Errors
    /// Where it breaks off, or nothing comes for 20 s.
    pub async fn finish(&mut self) -> Result<&Answer, String> {
        let mut found = BytesMut::new();
        while let Some(piece) = self.piece().await? {
            found.extend_from_slice(&piece);
        }
        self.keep(&found);
        Ok(&self.answer)
    }

    fn keep(&mut self, octets: &[u8]) {
        self.answer.body = [&self.answer.body[..], octets].concat().into();
    }

    /// Leaves without reading further: with FIN over HTTP/1.1, with RST_STREAM over HTTP/2.
    pub async fn leave(self) {
        if let Source::H1(mut wire, _) = self.source {
            // The peer may have been quicker; gone is gone.
            let _ = wire.stream.shutdown().await;
        }
    }

    /// Leaves with a reset.
    ///
    /// # Panics
    /// Where the socket option is refused.
    pub fn reset(self) {
        if let Source::H1(wire, _) = self.source {
            wire.stream.set_zero_linger().expect("SO_LINGER");
        }
    }
}

/// Nobody waits for ever.
pub(super) async fn patient<T>(what: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    timeout(PATIENCE, what)
        .await
        .unwrap_or_else(|_| Err("nothing came for 20 s".into()))
}
