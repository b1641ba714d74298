//! A pooled HTTP/1.1 client.

use super::{Answer, Request};
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use std::net::SocketAddr;
use tokio::task::JoinSet;

/// HTTP/1.1 with a connection per request in flight, reused afterwards. Never retries.
#[derive(Clone, Debug)]
pub struct Pool {
    addr: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Pool {
    /// For the server at `addr`.
    #[must_use]
    pub fn new(addr: SocketAddr) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            // A request that was sent twice by the client would spoil every count.
            .retry_canceled_requests(false)
            .build_http();
        Self { addr, client }
    }

    /// Sends one request; gives the whole answer. Dropping the future closes the connection.
    ///
    /// # Errors
    /// Where the connection failed or the answer broke off.
    pub async fn send(&self, request: &Request) -> Result<Answer, String> {
        let request = request.to_hyper(Some(self.addr))?;
        let answer = self
            .client
            .request(request)
            .await
            .map_err(|e| format!("no answer: {e:?}"))?;
        Answer::from_hyper(answer).await
    }

    /// Sends all at once, each on a connection of its own; answers in the order of the requests.
    ///
    /// # Panics
    /// Where one was not answered.
    pub async fn send_all(&self, requests: Vec<Request>) -> Vec<Answer> {
        let pool = self.clone();
        send_all(requests, move |request| {
            let pool = pool.clone();
            async move { pool.send(&request).await }
        })
        .await
    }
}

/// Runs `send` for every request at once; answers in the order of the requests.
pub(super) async fn send_all<F>(requests: Vec<Request>, send: impl Fn(Request) -> F) -> Vec<Answer>
where
    F: Future<Output = Result<Answer, String>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let count = requests.len();
    for (index, request) in requests.into_iter().enumerate() {
        let answer = send(request);
        tasks.spawn(async move { (index, answer.await) });
    }
    let mut answers = vec![None; count];
    while let Some(done) = tasks.join_next().await {
        let (index, answer) = done.expect("a client task");
        answers[index] = Some(answer.unwrap_or_else(|e| panic!("request {index}: {e}")));
    }
    answers.into_iter().flatten().collect()
}
