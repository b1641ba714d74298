//! Ways in which a Redis comes back with less than it has acknowledged.

use super::redis::Server;
use super::wire::Said;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What becomes of the last writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It starts from an earlier copy of its disk: a backup, a volume's snapshot.
    EarlierCopy,
    /// Its append-only file ends in the middle of a command: a machine that lost power.
    CutFile,
    /// A replica takes its place to which the last writes did not get.
    Failover,
}

/// A Redis, and what will be left of it.
pub struct Lossy {
    loss: Loss,
    server: Server,
    replica: Option<Server>,
    copy: TempDir,
}

impl Lossy {
    /// Starts it.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn start(loss: Loss) -> Self {
        let copy = TempDir::with_prefix("idempo-copy-").expect("a temporary directory");
        if loss != Loss::Failover {
            return Self {
                loss,
                server: Server::durable(),
                replica: None,
                copy,
            };
        }
        let (server, port) = listening();
        let replica = Server::start(&["--replicaof", "127.0.0.1", &port.to_string()]);
        Self {
            loss,
            server,
            replica: Some(replica),
            copy,
        }
    }

    /// The one that serves.
    #[must_use]
    pub const fn server(&self) -> &Server {
        &self.server
    }

    /// From here on, what is written will be lost.
    ///
    /// # Panics
    /// Where the replica does not catch up, or the disk cannot be read.
    pub fn keep(&mut self) {
        let Some(replica) = &self.replica else {
            let from = self.disk();
            for file in fs::read_dir(from).expect("an append-only file") {
                let file = file.expect("a directory that can be read");
                let to = self.copy.path().join(file.file_name());
                fs::copy(file.path(), to).expect("room for a copy");
            }
            return;
        };
        let offset = |server: &Server, field: &str| -> Option<u64> {
            let info = server.admin().command(&["INFO", "replication"]).text();
            let line = info.lines().find_map(|line| line.strip_prefix(field))?;
            line.strip_prefix(':')?.trim().parse().ok()
        };
        let end = Instant::now() + Duration::from_secs(15);
        loop {
            let sent = offset(&self.server, "master_repl_offset");
            if sent.is_some() && sent == offset(replica, "slave_repl_offset") {
                break;
            }
            assert!(Instant::now() < end, "the replica does not catch up");
            std::thread::sleep(Duration::from_millis(5));
        }
        // It goes on as a replica, of a master that it cannot reach.
        let closed = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
        let port = closed.expect("a port").port().to_string();
        let said = replica
            .admin()
            .command(&["REPLICAOF", "127.0.0.1", port.as_str()]);
        assert_eq!(said, Said::Status("OK".into()));
    }

    /// The server dies, and what is left of it takes its place. Whoever connected to the Unix socket
    /// finds it at [`Lossy::server`] again.
    ///
    /// # Panics
    /// Where nothing starts.
    pub fn lose(&mut self) {
        self.server.kill();
        if let Some(replica) = self.replica.take() {
            let said = replica.admin().command(&["REPLICAOF", "NO", "ONE"]);
            assert_eq!(said, Said::Status("OK".into()));
            self.server = replica;
            return;
        }
        let disk = self.disk();
        for file in fs::read_dir(&disk).expect("an append-only file") {
            let file = file.expect("a directory that can be read");
            let kept = self.copy.path().join(file.file_name());
            if self.loss == Loss::EarlierCopy {
                fs::remove_file(file.path()).expect("a file that can be removed");
            } else if file.file_name().to_string_lossy().ends_with(".incr.aof") {
                let had = fs::metadata(&kept).expect("a copy").len();
                let has = file.metadata().expect("a file").len();
                assert!(has > had + 7, "nothing to lose was written");
                let open = fs::File::options().write(true).open(file.path());
                // Within the next command.
                open.and_then(|f| f.set_len(had + 7))
                    .expect("a file that can be cut");
            }
        }
        if self.loss == Loss::EarlierCopy {
            for file in fs::read_dir(self.copy.path()).expect("a copy") {
                let file = file.expect("a directory that can be read");
                fs::copy(file.path(), disk.join(file.file_name())).expect("room for a copy");
            }
        }
        self.server.revive();
    }

    fn disk(&self) -> PathBuf {
        let socket = self.server.socket();
        let dir = socket.parent().expect("a directory");
        dir.join("appendonlydir")
    }
}

/// A server that listens on a port, too, as replicas need it.
fn listening() -> (Server, u16) {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    let port = free.expect("a port").port();
    let server = Server::start(&["--bind", "127.0.0.1", "--port", &port.to_string()]);
    (server, port)
}
