//! The Redis store as it is configured: where it is, which variables hold its secrets, and the
//! bounds of calls to it.

use crate::store::redis::{DOUBT_MS, Layout, Login, Redis, Transport};
use crate::store::remote::{Credential, Limits};

/// The largest recorded body that a call carries: as text, with its headers and among others, it
/// stays well below the 32 MiB of an answer that Envoy holds for a filter.
pub const MAX_REMOTE_BODY: u64 = 8 << 20;

/// Octets of recorded bodies, as text, that one answer of the store may be asked for.
const ANSWER_BYTES: usize = 16 << 20;

/// Headers of a recorded answer, and what surrounds it in a call.
const AROUND_BODY: usize = 256 << 10;

/// The same for raw RESP. The end of a call is the end of the connection's other half, too, and Redis
/// drops what of its answer it could not write at once by then: 64 KiB at most, and at the start of a
/// connection over a network about 45 KiB. So this, as text, beside records of [`RESP_OPERATIONS`].
pub const MAX_RESP_BODY: u64 = 12 << 10;

/// Operations of a call over raw RESP: a record takes up to 3 KiB.
const RESP_OPERATIONS: usize = 8;

/// Where the Redis is, and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisStore {
    /// The cluster of Envoy that calls go to.
    pub cluster: String,
    /// The `:authority` of the calls.
    pub authority: String,
    /// How commands travel, with the names of the variables that hold secrets.
    pub transport: RedisTransport,
    /// Names of keys.
    pub layout: Layout,
    /// Each call stays within one shard, as Redis Cluster wants it.
    pub per_shard: bool,
    /// How long one call may take, ms (default 500).
    pub timeout_ms: u64,
    /// How long nothing new is claimed after the store has forgotten, ms (default: the longest lease,
    /// and at least [`DOUBT_MS`]).
    pub hold_ms: u64,
    /// Calls under way per worker (default 4).
    pub calls: u32,
    /// Bounds of one call (default 64 operations).
    pub batch: Limits,
    /// Operations that wait per worker (default 4096).
    pub queue: u32,
}

/// How commands travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisTransport {
    /// Webdis.
    Webdis {
        /// The variable with the value of the `authorization` header.
        authorization_env: Option<String>,
    },
    /// Redis over REST.
    Rest {
        /// The variable with the bearer token.
        token_env: Option<String>,
    },
    /// Raw RESP.
    Resp {
        /// Who logs in.
        login: Option<RedisLogin>,
    },
}

/// Who logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisLogin {
    /// The ACL user; `None`: the default user.
    pub user: Option<String>,
    /// The variable with the password.
    pub password_env: String,
}

impl RedisTransport {
    /// The name as configured.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Webdis { .. } => "webdis",
            Self::Rest { .. } => "rest",
            Self::Resp { .. } => "resp",
        }
    }

    /// The variable with the secret, where there is one.
    #[must_use]
    pub fn secret_env(&self) -> Option<&str> {
        match self {
            Self::Webdis { authorization_env } => authorization_env.as_deref(),
            Self::Rest { token_env } => token_env.as_deref(),
            Self::Resp { login } => login.as_ref().map(|l| l.password_env.as_str()),
        }
    }
}

impl RedisStore {
    /// The engine. `variable` reads an environment variable.
    ///
    /// # Errors
    /// What is wrong with the secret, for the log, without the secret.
    pub fn engine(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<Redis, String> {
        let secret = match self.transport.secret_env() {
            Some(name) => Some(credential(name, variable(name))?),
            None => None,
        };
        let transport = match &self.transport {
            RedisTransport::Webdis { .. } => Transport::Webdis {
                authorization: secret,
            },
            RedisTransport::Rest { .. } => Transport::Rest { token: secret },
            RedisTransport::Resp { login } => Transport::Resp {
                login: secret.map(|password| Login {
                    user: login.as_ref().and_then(|l| l.user.clone()),
                    password,
                }),
            },
        };
        let engine = Redis::new(transport, self.layout.clone());
        Ok(engine.doubting_for(self.hold_ms.min(DOUBT_MS)))
    }
}

fn credential(name: &str, value: Option<String>) -> Result<Credential, String> {
    let value = value.ok_or_else(|| {
        format!(
            "store.redis: the environment variable {name} is not set, or not passed to the filter; \
             name it in vm_config.environment_variables.host_env_keys"
        )
    })?;
    // A line break from a file would end the header or be taken for a part of the password.
    let odd = value.trim().len() != value.len() || value.chars().any(char::is_control);
    if value.is_empty() || odd {
        return Err(format!(
            "store.redis: {name}: is empty, or has a line break or white space around it; \
             put the secret alone into the variable"
        ));
    }
    Ok(Credential::new(value))
}

/// Bounds of one call: what the largest recorded answer needs, and no more answers at once than the
/// host holds.
pub(crate) fn call_limits(
    transport: &RedisTransport,
    operations: u32,
    largest_body: u64,
) -> Limits {
    let default = Limits::default();
    let octets = usize::try_from(largest_body.min(MAX_REMOTE_BODY)).unwrap_or(0);
    let text = octets.div_ceil(3).saturating_mul(4);
    let limits = Limits {
        operations: usize::try_from(operations).unwrap_or(default.operations),
        bytes: text.saturating_add(AROUND_BODY).max(default.bytes),
        bodies: (ANSWER_BYTES / text.max(1)).clamp(1, default.bodies),
    };
    if !matches!(transport, RedisTransport::Resp { .. }) {
        return limits;
    }
    let most = usize::try_from(MAX_RESP_BODY).unwrap_or(0);
    Limits {
        operations: limits.operations.min(RESP_OPERATIONS),
        bytes: most.div_ceil(3).saturating_mul(4).saturating_add(3072),
        bodies: 1,
    }
}
