//! Where things lie in Redis.

use crate::ids::{OperationId, OwnerToken, hex_of};

/// The layout's version, in every key: two layouts never meet.
const VERSION: &str = "1";

/// Names of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    prefix: String,
}

impl Default for Layout {
    fn default() -> Self {
        Self::new("idempo")
    }
}

impl Layout {
    /// Keys that begin with this name: letters, digits, `-` and `_` count, and nothing else, since
    /// a brace would move the hash tag.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        Self {
            prefix: prefix.chars().filter(plain).collect(),
        }
    }

    fn base(&self, shard: u8) -> String {
        format!("{{{}:{shard:02}}}:{VERSION}:", self.prefix)
    }

    pub(super) fn shard(&self, shard: u8) -> [String; 4] {
        ["epoch", "seq", "open", "unknown"].map(|name| self.base(shard) + name)
    }

    pub(super) fn record(&self, shard: u8, operation: &OperationId) -> String {
        self.base(shard) + "r:" + &operation.hex()
    }

    pub(super) fn body(&self, shard: u8, operation: &OperationId) -> String {
        self.base(shard) + "b:" + &operation.hex()
    }

    pub(super) fn mark(&self, shard: u8, operation: &OperationId, owner: &OwnerToken) -> String {
        self.base(shard) + "x:" + &operation.hex() + ":" + &hex_of(&owner.0)
    }
}
