//! What Redis says of itself, and filling it.

use host_tests::store::{
    Engine as _,
    desk::{blob, claim, outcome, token},
    redis::{Remote, Server, Way},
};
use idempo_core::{
    ids::OperationId,
    record::{Source, Windows, WriteId},
    store::{Action, Claim, Fence, Op, Reply, Target, Transition},
};

/// Operations that one call carries.
const AT_ONCE: usize = 64;

/// What fills the store stays longer than any run takes, milliseconds.
const STAYS_MS: u64 = 6 * 3_600_000;

/// Octets of the answer that each of them keeps.
pub(crate) const KEPT_ANSWER: usize = 264;

/// Puts completed operations into a Redis, by the codec that the filter uses, over RESP.
pub(crate) struct Filler {
    remote: Remote,
    template: Claim,
    stored: usize,
}

impl Filler {
    pub(crate) fn new(server: &Server) -> Self {
        let windows = Windows {
            replay_ms: STAYS_MS,
            tombstone_ms: STAYS_MS,
        };
        Self {
            remote: Remote::new(server, Way::Resp),
            template: claim("stored", 0, STAYS_MS, windows),
            stored: 0,
        }
    }

    /// Claims and completes until there are that many.
    pub(crate) fn up_to(&mut self, total: usize) -> Result<(), String> {
        while self.stored < total {
            let end = total.min(self.stored + AT_ONCE);
            self.store(self.stored..end)?;
            self.stored = end;
        }
        Ok(())
    }

    fn store(&mut self, range: std::ops::Range<usize>) -> Result<(), String> {
        let claims: Vec<(OperationId, Claim)> = range
            .map(|n| {
                let claim = Claim {
                    owner: token("stored", n as u64),
                    ..self.template.clone()
                };
                let id = OperationId::new("stored", b"t", "charges", &n.to_be_bytes());
                (id, claim)
            })
            .collect();
        let ops: Vec<Op> = claims
            .iter()
            .map(|(id, claim)| op(*id, Action::Claim(claim.clone())))
            .collect();
        let (_, replies) = self.remote.call(&ops);
        let mut ops = Vec::new();
        for ((id, claim), reply) in claims.into_iter().zip(replies) {
            let Reply::Claimed(record) = reply else {
                return Err(format!("a claim of what is to be stored: {reply:?}"));
            };
            let fence = Fence::Owner {
                claimed_at: record.claimed_at,
                generation: record.generation,
                claim: Box::new(claim),
            };
            ops.push(op(id, completion(fence)));
        }
        let (_, replies) = self.remote.call(&ops);
        match replies
            .into_iter()
            .find(|r| !matches!(r, Reply::Applied(_)))
        {
            None => Ok(()),
            Some(reply) => Err(format!("a completion of what is to be stored: {reply:?}")),
        }
    }
}

fn op(operation: OperationId, action: Action) -> Op {
    Op { operation, action }
}

fn completion(fence: Fence) -> Action {
    Action::Transition(Transition {
        write: WriteId(1),
        fence,
        to: Target::Completed {
            outcome: outcome(1),
            blob: Some(blob(1)),
        },
        source: Source::Owner,
        operator: String::new(),
    })
}

/// The numbers of operations that are measured: a thousand, a hundred thousand, and the given one.
pub(crate) fn steps(stored: usize) -> Vec<usize> {
    let below = [1_000, 100_000].into_iter().filter(|n| *n < stored);
    below.chain([stored]).collect()
}

/// Calls of a command and the microseconds that they took, from `INFO commandstats`.
pub(crate) fn command(info: &str, name: &str) -> (u64, u64) {
    let line = info.lines().find_map(|l| {
        l.strip_prefix("cmdstat_")?
            .strip_prefix(name)?
            .strip_prefix(':')
    });
    let field = |wanted: &str| {
        let fields = line.unwrap_or_default().split(',');
        let mut found = fields.filter_map(|f| f.strip_prefix(wanted)?.strip_prefix('='));
        found
            .next()
            .and_then(|v| v.trim().parse().ok())
            .unwrap_or(0)
    };
    (field("calls"), field("usec"))
}

/// A whole number of `INFO`.
pub(crate) fn number(info: &str, name: &str) -> u64 {
    info.lines()
        .find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))
        .and_then(|v| v.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Commandstats\r\n\
        cmdstat_evalsha:calls=12,usec=345,usec_per_call=28.75,rejected_calls=0,failed_calls=1\r\n\
        cmdstat_get:calls=7,usec=9,usec_per_call=1.28\r\nused_memory:1048576\r\n";

    #[test]
    fn a_command_is_found_by_its_whole_name() {
        assert_eq!(command(INFO, "evalsha"), (12, 345));
        assert_eq!(command(INFO, "get"), (7, 9));
        assert_eq!(command(INFO, "eval"), (0, 0));
        assert_eq!(command("", "get"), (0, 0));
    }

    #[test]
    fn a_number_is_found_by_its_whole_name() {
        assert_eq!(number(INFO, "used_memory"), 1 << 20);
        assert_eq!(number(INFO, "used"), 0);
    }

    #[test]
    fn the_last_step_is_what_was_asked_for() {
        assert_eq!(steps(1_000_000), [1_000, 100_000, 1_000_000]);
        assert_eq!(steps(100_000), [1_000, 100_000]);
        assert_eq!(steps(500), [500]);
    }

    #[test]
    fn the_answer_is_as_long_as_the_report_says() {
        assert_eq!(blob(1).len(), KEPT_ANSWER);
    }
}
