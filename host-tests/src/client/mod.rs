//! Clients: pooled HTTP/1.1, one HTTP/2 connection, raw bytes, uploads in steps, answers read by the
//! piece, and ones that leave too early.

mod arriving;
mod http2;
mod pool;
mod raw;
mod upload;
mod wire;

pub use arriving::Arriving;
pub use http2::H2;
pub use pool::{Client, Pool, send_all};
pub use raw::{BodyFraming, Raw};
pub use upload::{H2Upload, Upload};

use bytes::Bytes;
use std::fmt;

/// A request to be sent by any of the clients.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Header lines in order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Bytes,
}

impl Request {
    /// A request without headers and body.
    #[must_use]
    pub fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.into(),
            target: target.into(),
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }

    /// A POST.
    #[must_use]
    pub fn post(target: &str) -> Self {
        Self::new("POST", target)
    }

    /// Adds a header line.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.into(), value.as_ref().to_vec()));
        self
    }

    /// Adds an `idempotency-key` line.
    #[must_use]
    pub fn key(self, key: impl AsRef<[u8]>) -> Self {
        self.header("idempotency-key", key)
    }

    /// Sets the body and its media type.
    #[must_use]
    pub fn content(mut self, media_type: &str, body: impl AsRef<[u8]>) -> Self {
        self.body = Bytes::copy_from_slice(body.as_ref());
        self.header("content-type", media_type)
    }

    /// Sets a JSON body.
    #[must_use]
    pub fn json(self, body: impl AsRef<[u8]>) -> Self {
        self.content("application/json", body)
    }

    /// Sends the body only once told to go on.
    #[must_use]
    pub fn expecting(self) -> Self {
        self.header("expect", "100-continue")
    }

    /// Has the upstream answer with that status.
    #[must_use]
    pub fn wants_status(self, status: u16) -> Self {
        self.header("x-demo-status", status.to_string())
    }

    /// Has the upstream answer with that body.
    #[must_use]
    pub fn wants_body(self, body: impl AsRef<[u8]>) -> Self {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        self.header("x-demo-body-b64", STANDARD.encode(body))
    }

    /// Has the upstream's answer carry a header line.
    #[must_use]
    pub fn wants_header(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.header(
            "x-demo-header",
            [name.as_bytes(), b"=", value.as_ref()].concat(),
        )
    }

    /// Has the upstream answer with those [`octets`](crate::upstream::octets), their end told by
    /// `framing`: `length`, `chunked` or `close`.
    #[must_use]
    pub fn wants_octets(&self, seed: u64, size: usize, framing: &str) -> Self {
        self.clone()
            .header("x-demo-size", size.to_string())
            .header("x-demo-seed", seed.to_string())
            .header("x-demo-framing", framing)
    }

    /// Has the upstream answer with so many [`event`](crate::upstream::event)s, each let go by a gate:
    /// `event-1` and so on, then `end`.
    #[must_use]
    pub fn wants_events(&self, number: usize) -> Self {
        self.clone()
            .header("x-demo-events", number.to_string())
            .header("x-demo-chunk-gate", "event-")
            .header("x-demo-end-gate", "end")
    }

    /// Asks the router for everything that could make it send the request again.
    #[must_use]
    pub fn wants_router_retries(self) -> Self {
        [
            (
                "x-envoy-retry-on",
                "5xx,reset,gateway-error,retriable-status-codes",
            ),
            ("x-envoy-retry-grpc-on", "unavailable"),
            ("x-envoy-max-retries", "3"),
            ("x-envoy-retriable-status-codes", "503"),
            ("x-envoy-retriable-header-names", "x-a"),
            ("x-envoy-hedge-on-per-try-timeout", "true"),
            ("x-envoy-upstream-rq-per-try-timeout-ms", "20"),
        ]
        .into_iter()
        .fold(self, |r, (name, value)| r.header(name, value))
    }

    fn to_hyper(&self, authority: Option<std::net::SocketAddr>) -> Result<HyperRequest, String> {
        let uri = match authority {
            Some(addr) => format!("http://{addr}{}", self.target),
            None => self.target.clone(),
        };
        let mut request = hyper::Request::builder()
            .method(self.method.as_str())
            .uri(uri);
        for (name, value) in &self.headers {
            request = request.header(name.as_str(), value.as_slice());
        }
        request
            .body(http_body_util::Full::new(self.body.clone()))
            .map_err(|e| format!("this client cannot send that request: {e}"))
    }
}

type HyperRequest = hyper::Request<http_body_util::Full<Bytes>>;

/// A whole answer.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Header lines in order; names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body, without transfer coding.
    pub body: Bytes,
}

impl Answer {
    /// The values of every line of that (lower-case) name, in order.
    #[must_use]
    pub fn all(&self, name: &str) -> Vec<&[u8]> {
        self.headers
            .iter()
            .filter(|(n, _)| n == name)
            .map(|(_, v)| v.as_slice())
            .collect()
    }

    /// The only value of that name.
    ///
    /// # Panics
    /// Where the line is repeated or not UTF-8.
    #[must_use]
    #[track_caller]
    pub fn one(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() <= 1, "{name} is repeated in {self:?}");
        all.first()
            .map(|v| std::str::from_utf8(v).expect("a UTF-8 value"))
    }

    /// The body as text, odd bytes replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// Where it is not.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Header lines without what the proxy or idempo says about this very exchange; sorted by name,
    /// with lines of one name in their order. What is left is the upstream's, so a replay must have
    /// exactly the same.
    #[must_use]
    pub fn business_headers(&self) -> Vec<(String, Vec<u8>)> {
        const ABOUT_THIS_EXCHANGE: [&str; 7] = [
            "date",
            "server",
            "connection",
            "keep-alive",
            "transfer-encoding",
            "content-length",
            "x-request-id",
        ];
        let mut kept: Vec<_> = self
            .headers
            .iter()
            .filter(|(name, _)| {
                !(ABOUT_THIS_EXCHANGE.contains(&name.as_str())
                    || name.starts_with("x-envoy-")
                    || name.starts_with("idempotent-")
                    || name.starts_with("idempotency-"))
            })
            .cloned()
            .collect();
        kept.sort_by(|a, b| a.0.cmp(&b.0));
        kept
    }

    async fn from_hyper(answer: hyper::Response<hyper::body::Incoming>) -> Result<Self, String> {
        use http_body_util::BodyExt as _;
        let (head, body) = answer.into_parts();
        let body = body
            .collect()
            .await
            .map_err(|e| format!("the answer broke off: {e}"))?;
        Ok(Self {
            body: body.to_bytes(),
            ..Self::head(&head)
        })
    }

    fn head(head: &hyper::http::response::Parts) -> Self {
        Self {
            status: head.status.as_u16(),
            headers: head
                .headers
                .iter()
                .map(|(n, v)| (n.as_str().to_owned(), v.as_bytes().to_vec()))
                .collect(),
            body: Bytes::new(),
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.status)?;
        for (name, value) in &self.headers {
            writeln!(f, "  {name}: {}", value.escape_ascii())?;
        }
        let shown = self.body.get(..2000).unwrap_or(&self.body);
        write!(f, "  {}", shown.escape_ascii())
    }
}
