//! The counting upstream: what a payment service looks like from the proxy, with a memory.
//!
//! It keeps every request as bytes (of large bodies length and digest), counts one effect per write that it acts on, and answers as
//! the request's `x-demo-*` headers say ([`Instruction`]). Other paths under `/_demo/` are a small
//! JSON control interface for people and scripts:
//!
//! | request | answer |
//! |---|---|
//! | `GET /_demo/effects` | total, per operation id, per key |
//! | `GET /_demo/requests` | the requests that are still kept |
//! | `POST /_demo/reset` | forgets everything |
//! | `POST /_demo/open/NAME` | opens a gate that answers wait at |
//!
//! The wire is read with `httparse` and written by hand, because a well-behaved server library
//! cannot be told to reset a connection, to stop in the middle of a body, or to send what it
//! considers invalid, and because header lines have to be kept as they came.

mod answer;
mod body;
mod control;
mod instruction;
mod memory;
mod serve;
mod uploads;
mod wire;

pub use answer::event;
pub use body::{Digest, KEPT_BODY, digest, octets};
pub use instruction::{Early, Fault, Framing, Instruction};
pub use memory::{Effects, Received};
pub use uploads::{Progress, Upload};

use memory::Memory;
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::watch,
    task::JoinHandle,
};

/// A running upstream; stops when dropped.
#[derive(Debug)]
pub struct Upstream {
    addr: SocketAddr,
    memory: Arc<Memory>,
    accept: JoinHandle<()>,
    /// Dropped with the upstream: every connection task listens for that.
    _alive: watch::Sender<()>,
}

impl Upstream {
    /// Starts on a loopback port that the kernel chooses, keeping every request.
    ///
    /// # Panics
    /// Where no socket can be bound.
    pub async fn start() -> Self {
        Self::bind((Ipv4Addr::LOCALHOST, 0).into(), usize::MAX)
            .await
            .expect("a loopback port")
    }

    /// Starts on `addr`, keeping the last `keep` requests. With `keep` 0 nothing is kept per
    /// request, only totals: for benchmarks.
    ///
    /// # Errors
    /// Where the address cannot be bound.
    pub async fn bind(addr: SocketAddr, keep: usize) -> std::io::Result<Self> {
        Self::listen(TcpListener::bind(addr).await?, keep)
    }

    /// Starts with a receive buffer of about so many octets for each connection, so that an upload
    /// that is not read stops its sender soon.
    ///
    /// # Panics
    /// Where no socket can be bound.
    pub async fn with_receive_buffer(octets: u32) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(octets).expect("SO_RCVBUF");
        let addr = (Ipv4Addr::LOCALHOST, 0).into();
        socket.bind(addr).expect("a loopback port");
        let listener = socket.listen(128).expect("a listening socket");
        Self::listen(listener, usize::MAX).expect("a loopback port")
    }

    fn listen(listener: TcpListener, keep: usize) -> std::io::Result<Self> {
        let addr = listener.local_addr()?;
        let memory = Arc::new(Memory::new(keep));
        let (alive, alive_rx) = watch::channel(());
        let accept = tokio::spawn({
            let memory = Arc::clone(&memory);
            async move {
                loop {
                    let Ok((stream, _)) = listener.accept().await else {
                        // Out of descriptors, most likely: back off rather than spin.
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        continue;
                    };
                    let memory = Arc::clone(&memory);
                    let mut alive = alive_rx.clone();
                    tokio::spawn(async move {
                        tokio::select! {
                            () = serve::connection(stream, memory) => {}
                            _ = alive.changed() => {}
                        }
                    });
                }
            }
        });
        Ok(Self {
            addr,
            memory,
            accept,
            _alive: alive,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Effects so far.
    #[must_use]
    pub fn effects(&self) -> u64 {
        self.memory.effects().total
    }

    /// Effects in total, per operation id and per raw key.
    #[must_use]
    pub fn effects_by(&self) -> Effects {
        self.memory.effects()
    }

    /// The requests that came, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<Received> {
        self.memory.requests()
    }

    /// The only request that came.
    ///
    /// # Panics
    /// Where none came, or several.
    #[must_use]
    pub fn only_request(&self) -> Received {
        let mut all = self.requests();
        assert_eq!(all.len(), 1, "requests that reached the upstream: {all:#?}");
        all.remove(0)
    }

    /// Waits until `n` requests have come in whole.
    ///
    /// # Panics
    /// After 10 s.
    pub async fn wait_for_requests(&self, n: u64) {
        let mut arrivals = self.memory.arrivals();
        tokio::time::timeout(
            Duration::from_secs(10),
            arrivals.wait_for(|seen| *seen >= n),
        )
        .await
        .unwrap_or_else(|_| panic!("{n} requests expected, {} came", self.memory.arrived()))
        .expect("the memory lives as long as the upstream");
    }

    /// The requests whose heads have come, oldest first, whatever became of their bodies.
    #[must_use]
    pub fn uploads(&self) -> Vec<Upload> {
        self.memory.uploads.all()
    }

    /// Waits until the `n`th request (counted from 1 by their heads) has come so far that `enough`
    /// says so; gives it as it was then.
    ///
    /// # Panics
    /// After 10 s, with what has come.
    pub async fn wait_for_upload(&self, n: usize, enough: impl Fn(&Upload) -> bool) -> Upload {
        let mut changes = self.memory.uploads.changes();
        let found = async {
            loop {
                let nth = self.uploads().into_iter().nth(n - 1);
                if let Some(upload) = nth.filter(&enough) {
                    return upload;
                }
                changes.changed().await.expect("the memory lives as long");
            }
        };
        tokio::time::timeout(Duration::from_secs(10), found)
            .await
            .unwrap_or_else(|_| panic!("upload {n} did not come so far: {:#?}", self.uploads()))
    }

    /// Opens a gate: what waits at it goes on, now and later.
    pub fn open(&self, gate: &str) {
        self.memory.open(gate);
    }

    /// What requests without instructions of their own get from now on.
    pub fn set_default(&self, instruction: Instruction) {
        self.memory.set_default(Some(instruction));
    }

    /// Back to answering 201.
    pub fn clear_default(&self) {
        self.memory.set_default(None);
    }

    /// Forgets requests, effects and gates.
    pub fn reset(&self) {
        self.memory.reset();
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accept.abort();
    }
}
