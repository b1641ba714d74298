//! What speaks HTTP for a Redis, and how an Envoy under test reaches it.

use super::bridge;
use super::redis::{PASSWORD, Server, Way, Webdis};
use super::resp;
use crate::envoy::{Builder, config};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The cluster's name in every configuration.
pub const CLUSTER: &str = "store";

/// The variable with the bridge's token.
const TOKEN: &str = "IDEMPO_STORE_TOKEN";

/// The variable with the password of Redis.
const STORE_PASSWORD: &str = "IDEMPO_STORE_PASSWORD";

/// A front of a Redis: Webdis, Redis over REST, or Envoy itself.
#[derive(Debug)]
pub struct Front {
    way: Way,
    addr: SocketAddr,
    socket: PathBuf,
    webdis: Option<Webdis>,
}

impl Front {
    /// Starts one.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn start(server: &Server, way: Way) -> Self {
        let webdis = (way == Way::Webdis).then(|| Webdis::start(server));
        let addr = match (&webdis, way) {
            (Some(webdis), _) => webdis.addr(),
            (_, Way::Rest) => bridge::start(&server.socket()),
            // A listener inside of each Envoy.
            _ => (Ipv4Addr::LOCALHOST, 0).into(),
        };
        Self {
            way,
            addr,
            socket: server.socket(),
            webdis,
        }
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The process, where it is one of its own.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.webdis.as_ref().map(Webdis::pid)
    }

    /// Ends it without a word.
    ///
    /// # Panics
    /// Where it is not a process of its own.
    pub fn kill(&mut self) {
        drop(self.webdis.take().expect("a Webdis"));
    }

    /// Starts it again where it was.
    ///
    /// # Panics
    /// Where it does not start, or is not a process of its own.
    pub fn revive(&mut self, server: &Server) {
        assert_eq!(self.way, Way::Webdis);
        self.webdis = Some(Webdis::at(server, self.addr));
    }

    /// `store:` of the filter's configuration, with members set or replaced.
    #[must_use]
    pub fn store(&self, members: &Value) -> Value {
        let mut store = json!({"cluster": CLUSTER});
        let (transport, secret) = match self.way {
            Way::Webdis => ("webdis", None),
            Way::Rest => ("rest", Some(("token", json!({"env": TOKEN})))),
            Way::Resp => ("resp", None),
            Way::RespWithLogin => {
                let login = json!({"user": "default", "password": {"env": STORE_PASSWORD}});
                ("resp", Some(("login", login)))
            }
        };
        store["transport"] = json!(transport);
        if let Some((name, value)) = secret {
            store[name] = value;
        }
        for (name, value) in members.as_object().into_iter().flatten() {
            store[name] = value.clone();
        }
        json!({ "redis": store })
    }

    /// An Envoy that reaches it at `addr`: its own, or that of something in between. Raw RESP goes
    /// to the server itself, whatever the address.
    #[must_use]
    pub fn reached(&self, builder: Builder, addr: SocketAddr) -> Builder {
        let plainly = |builder: Builder| {
            builder.options(|o| o.clusters.push(config::cluster(CLUSTER, &[addr])))
        };
        let raw = |builder: Builder| builder.options(|o| resp::add(o, CLUSTER, &self.socket));
        match self.way {
            Way::Webdis => plainly(builder),
            Way::Rest => plainly(builder).env(TOKEN, bridge::TOKEN),
            Way::Resp => raw(builder),
            Way::RespWithLogin => raw(builder).env(STORE_PASSWORD, PASSWORD),
        }
    }
}
