//! What speaks HTTP for a Redis, and how an Envoy under test reaches it.

use super::bridge;
use super::redis::{Server, Way, Webdis};
use crate::envoy::{Builder, config};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// The cluster's name in every configuration.
pub const CLUSTER: &str = "store";

/// The variable with the bridge's token.
const TOKEN: &str = "IDEMPO_STORE_TOKEN";

/// A front of a Redis: Webdis, or Redis over REST.
#[derive(Debug)]
pub struct Front {
    way: Way,
    addr: SocketAddr,
    webdis: Option<Webdis>,
}

impl Front {
    /// Starts one.
    ///
    /// # Panics
    /// Where it does not start, or is none.
    #[must_use]
    pub fn start(server: &Server, way: Way) -> Self {
        match way {
            Way::Webdis => {
                let webdis = Webdis::start(server);
                Self {
                    way,
                    addr: webdis.addr(),
                    webdis: Some(webdis),
                }
            }
            Way::Rest => Self {
                way,
                addr: bridge::start(&server.socket()),
                webdis: None,
            },
            other => panic!("{other:?} needs no front"),
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
        let mut store = json!({"cluster": CLUSTER, "transport": match self.way {
            Way::Rest => "rest",
            _ => "webdis",
        }});
        if self.way == Way::Rest {
            store["token"] = json!({"env": TOKEN});
        }
        for (name, value) in members.as_object().into_iter().flatten() {
            store[name] = value.clone();
        }
        json!({ "redis": store })
    }

    /// An Envoy that reaches it at `addr`: its own, or that of something in between.
    #[must_use]
    pub fn reached(&self, builder: Builder, addr: SocketAddr) -> Builder {
        let builder = builder.options(|o| o.clusters.push(config::cluster(CLUSTER, &[addr])));
        match self.way {
            Way::Rest => builder.env(TOKEN, bridge::TOKEN),
            _ => builder,
        }
    }
}
