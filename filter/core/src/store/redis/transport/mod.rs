//! How a Redis command travels in HTTP, and its reply back.
//!
//! | transport | request | for |
//! |---|---|---|
//! | [`webdis`] | `POST /`, words joined by `/` | a sidecar that speaks HTTP to Redis |
//! | [`rest`] | `POST /`, a JSON array of words | Redis over REST, hosted or by a proxy |
//! | [`resp`] | raw RESP as the body | no sidecar: an Envoy route that terminates `CONNECT` |

mod resp;
mod rest;
mod webdis;

use crate::record::bounded;
use crate::store::remote::{Credential, HttpAnswer, HttpRequest};
use serde_json::Value;
use std::borrow::Cow;

/// Redis credentials for [`Transport::Resp`]. The others' go into a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Letters for `AUTH`; `None` is Redis's default user.
    pub user: Option<String>,
    /// The password.
    pub password: Credential,
}

/// How commands travel. Credentials are `None` where Envoy adds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Webdis.
    Webdis {
        /// The `authorization` header's value.
        authorization: Option<Credential>,
    },
    /// Redis over REST.
    Rest {
        /// The bearer token.
        token: Option<Credential>,
    },
    /// Raw RESP.
    Resp {
        /// Sent before each command: every call is a connection of its own.
        login: Option<Login>,
    },
}

/// Why an answer gave no texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The server does not know the script.
    NoScript,
    /// It is not a reply of ours.
    Not(String),
}

impl Transport {
    pub(super) fn request(&self, words: &[Cow<'_, str>]) -> HttpRequest {
        let (body, kind, authorization) = match self {
            Self::Webdis { authorization } => (
                webdis::body(words),
                "text/plain",
                authorization.as_ref().map(|a| a.reveal().to_owned()),
            ),
            Self::Rest { token } => (
                rest::body(words),
                "application/json",
                token.as_ref().map(|t| format!("Bearer {}", t.reveal())),
            ),
            Self::Resp { login } => (
                resp::body(words, login.as_ref()),
                "application/octet-stream",
                None,
            ),
        };
        let mut headers = vec![("content-type", kind.to_owned())];
        headers.extend(authorization.map(|value| ("authorization", value)));
        HttpRequest {
            method: "POST",
            path: "/".to_owned(),
            headers,
            body,
        }
    }

    pub(super) fn answer(&self, answer: HttpAnswer<'_>) -> Result<Vec<String>, Fault> {
        match self {
            Self::Webdis { .. } => webdis::texts(answer),
            Self::Rest { .. } => rest::texts(answer),
            Self::Resp { login } => resp::texts(answer, login.is_some()),
        }
    }
}

impl Fault {
    fn not(why: &str) -> Self {
        Self::Not(why.to_owned())
    }

    fn status(status: u16) -> Self {
        Self::Not(format!("status {status}"))
    }

    /// An error that Redis, or whoever speaks for it, gave.
    fn said(text: &str) -> Self {
        if text.starts_with("NOSCRIPT") {
            return Self::NoScript;
        }
        Self::Not(bounded(&format!("the store says: {text}"), 160))
    }
}

/// JSON of an answer. From text, as everywhere: `serde_json` is compiled once per kind of source.
fn json(body: &[u8]) -> Option<Value> {
    serde_json::from_str(std::str::from_utf8(body).ok()?).ok()
}

/// An array of texts and nothing else.
fn texts(value: Value) -> Option<Vec<String>> {
    let Value::Array(items) = value else {
        return None;
    };
    let text = |item| match item {
        Value::String(text) => Some(text),
        _ => None,
    };
    items.into_iter().map(text).collect()
}
