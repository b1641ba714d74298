//! A pooled HTTP/1.1 client, and sending many requests at once over any client.

use super::{Answer, Request};
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use std::{net::SocketAddr, sync::Arc};
use tokio::{sync::Semaphore, task::JoinSet};

/// HTTP/1.1 with a connection per request in flight, reused afterwards. Never retries.
#[derive(Clone, Debug)]
pub struct Pool {
    addr: SocketAddr,
    client: legacy::Client<HttpConnector, Full<Bytes>>,
}

impl Pool {
    /// For the server at `addr`.
    #[must_use]
    pub fn new(addr: SocketAddr) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            // A request that was sent twice by the client would spoil every count.
            .retry_canceled_requests(false)
            .build(connector);
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
        let at_once = requests.len();
        send_all(self, requests, at_once).await
    }
}

impl Client for Pool {
    async fn send(&self, request: Request) -> Result<Answer, String> {
        Pool::send(self, &request).await
    }
}

/// What can send many requests at once over one handle.
pub trait Client: Clone + Send + Sync + 'static {
    /// Sends one request; gives the whole answer.
    fn send(&self, request: Request) -> impl Future<Output = Result<Answer, String>> + Send;
}

/// Sends all, no more than `at_once` at a time; answers in the order of the requests.
///
/// # Panics
/// Where one was not answered.
pub async fn send_all(client: &impl Client, requests: Vec<Request>, at_once: usize) -> Vec<Answer> {
    let places = Arc::new(Semaphore::new(at_once.max(1)));
    let mut tasks = JoinSet::new();
    let count = requests.len();
    for (index, request) in requests.into_iter().enumerate() {
        let (client, places) = (client.clone(), Arc::clone(&places));
        tasks.spawn(async move {
            let _place = places.acquire_owned().await.expect("never closed");
            (index, client.send(request).await)
        });
    }
    let mut answers = vec![None; count];
    while let Some(done) = tasks.join_next().await {
        let (index, answer) = done.expect("a client task");
        answers[index] = Some(answer.unwrap_or_else(|e| panic!("request {index}: {e}")));
    }
    answers.into_iter().flatten().collect()
}
