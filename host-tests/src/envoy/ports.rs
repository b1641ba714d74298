//! Ports on which nobody answers.

use std::net::SocketAddr;

/// A loopback port that refuses connections for as long as this lives: bound, never listening.
#[derive(Debug)]
pub struct RefusedPort {
    addr: SocketAddr,
    _socket: tokio::net::TcpSocket,
}

impl RefusedPort {
    /// Takes one.
    ///
    /// # Panics
    /// Where no port is free.
    #[must_use]
    pub fn take() -> Self {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket
            .bind(([127, 0, 0, 1], 0).into())
            .expect("a loopback port");
        Self {
            addr: socket.local_addr().expect("a bound socket"),
            _socket: socket,
        }
    }

    /// Its address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}
