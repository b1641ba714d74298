//! A record at a moment: what every reader computes from it and the store's clock.

use super::{Evidence, Outcome, OwnerToken, Record, State, Status};

/// The operation as an attempt sees it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// All windows are over: the operation is as if it had never been.
    Gone,
    /// The owner may still act.
    Pending {
        /// Milliseconds until the lease ends.
        lease_left: u64,
    },
    /// The acceptance may be replayed.
    Accepted(Outcome),
    /// The answer may be replayed.
    Completed(Outcome),
    /// Ended by a person.
    Closed {
        /// The reason code.
        reason: String,
    },
    /// Not known.
    Unknown {
        /// A late owner that may still settle it.
        owner: Option<OwnerToken>,
        /// What was seen.
        evidence: Evidence,
    },
    /// Only a tombstone remains.
    Expired {
        /// It was never settled.
        unresolved: bool,
    },
}

impl View {
    /// Its name.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            Self::Gone => Status::Absent,
            Self::Pending { .. } => Status::Pending,
            Self::Accepted(_) => Status::Accepted,
            Self::Completed(_) => Status::Completed,
            Self::Closed { .. } => Status::Closed,
            Self::Unknown { .. } => Status::Unknown,
            Self::Expired { .. } => Status::Expired,
        }
    }
}

impl Record {
    /// The operation at `now`.
    #[must_use]
    pub fn view(&self, now: u64) -> View {
        if now >= self.gone_at() {
            return View::Gone;
        }
        if now >= self.expires_at() {
            let unresolved = !matches!(self.state, State::Completed { .. } | State::Closed { .. });
            return View::Expired { unresolved };
        }
        match &self.state {
            State::Pending { lease_until, .. } if now < *lease_until => View::Pending {
                lease_left: lease_until.saturating_sub(now),
            },
            State::Pending { owner, .. } => View::Unknown {
                owner: Some(*owner),
                evidence: State::lease_over(),
            },
            State::Accepted {
                outcome, deadline, ..
            } if now < *deadline => View::Accepted(outcome.clone()),
            State::Accepted { outcome, .. } => View::Unknown {
                owner: None,
                evidence: State::deadline_over(outcome),
            },
            State::Completed { outcome, .. } => View::Completed(outcome.clone()),
            State::Closed { reason, .. } => View::Closed {
                reason: reason.clone(),
            },
            State::Unknown {
                owner, evidence, ..
            } => View::Unknown {
                owner: *owner,
                evidence: evidence.clone(),
            },
        }
    }

    /// When only a tombstone remains. Terminal states: their replay window after the transition.
    /// All else, once it has become unknown: both windows after the last attempt seen.
    #[must_use]
    pub fn expires_at(&self) -> u64 {
        match &self.state {
            State::Completed { at, .. } | State::Closed { at, .. } => {
                at.saturating_add(self.windows.replay_ms)
            }
            open => open
                .unknown_from()
                .max(self.last_seen)
                .saturating_add(self.windows.both()),
        }
    }

    /// Until when the answer is served: an acceptance to its deadline, a final answer to the end of
    /// its replay window. `None` where there is no answer.
    #[must_use]
    pub fn served_until(&self) -> Option<u64> {
        match &self.state {
            State::Accepted { deadline, .. } => Some(*deadline),
            State::Completed { .. } => Some(self.expires_at()),
            State::Pending { .. } | State::Closed { .. } | State::Unknown { .. } => None,
        }
    }

    /// When nothing remains.
    #[must_use]
    pub fn gone_at(&self) -> u64 {
        self.expires_at().saturating_add(self.windows.tombstone_ms)
    }
}

impl State {
    /// What is known of a pending operation whose lease is over.
    #[must_use]
    pub fn lease_over() -> Evidence {
        Evidence::named("lease_over")
    }

    /// What is known of an accepted operation whose deadline is over.
    #[must_use]
    pub fn deadline_over(outcome: &Outcome) -> Evidence {
        Evidence {
            status: Some(outcome.status),
            ..Evidence::named("accepted_deadline_over")
        }
    }

    /// From when on the state counts as unknown, for states that are not terminal.
    const fn unknown_from(&self) -> u64 {
        match self {
            Self::Pending { lease_until, .. } => *lease_until,
            Self::Accepted { deadline, .. } => *deadline,
            Self::Unknown { at, .. } | Self::Completed { at, .. } | Self::Closed { at, .. } => *at,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::*;
    use super::View;
    use crate::fingerprint::Form;
    use crate::plan::DigestAlgorithm;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    pub(crate) fn record(state: State) -> Record {
        Record {
            version: Version {
                incarnation: 7,
                counter: 1,
            },
            generation: 1,
            state,
            fingerprint: Fingerprint {
                digest: [3; 32],
                algorithm: DigestAlgorithm::Blake3,
                form: Form::Json,
                version: 1,
                settings: [1; 8],
                length: 10,
                media_type: "application/json".into(),
                principal: None,
                head: None,
            },
            schema_version: "1".into(),
            tenant: TenantDigest([9; 8]),
            route: "charges".into(),
            attempt: "a-1".into(),
            traceparent: None,
            claimed_at: 1_000,
            last_seen: 1_000,
            windows: Windows {
                replay_ms: 10_000,
                tombstone_ms: 50_000,
            },
            history: History::default(),
        }
    }

    pub(crate) fn outcome(status: u16) -> Outcome {
        Outcome {
            status,
            result: [5; 32],
            body_length: 2,
            wall_first_response: 1_700_000_000_000,
            replay: Replayable::Yes,
        }
    }

    fn pending() -> Record {
        record(State::Pending {
            owner: OwnerToken([1; 16]),
            lease_until: 31_000,
        })
    }

    #[test]
    fn a_lease_ends_by_itself() {
        assert_eq!(pending().view(30_999), View::Pending { lease_left: 1 });
        let View::Unknown { owner, evidence } = pending().view(31_000) else {
            panic!()
        };
        assert_eq!(owner, Some(OwnerToken([1; 16])));
        assert_eq!(evidence.details, "lease_over");
    }

    #[test]
    fn an_unsettled_operation_outlives_both_windows_and_is_flagged() {
        // Unknown from 31 000, both windows are 60 000, then one more tombstone window.
        assert_eq!(pending().view(90_999).status(), Status::Unknown);
        assert_eq!(pending().view(91_000), View::Expired { unresolved: true });
        assert_eq!(pending().view(140_999), View::Expired { unresolved: true });
        assert_eq!(pending().view(141_000), View::Gone);
    }

    #[test]
    fn an_attempt_seen_keeps_an_unknown_operation() {
        let mut record = pending();
        record.last_seen = 80_000;
        assert_eq!(record.view(139_999).status(), Status::Unknown);
    }

    #[test]
    fn a_completed_operation_expires_after_its_replay_window() {
        let record = record(State::Completed {
            outcome: outcome(201),
            at: 2_000,
        });
        assert_eq!(record.view(11_999), View::Completed(outcome(201)));
        assert_eq!(record.view(12_000), View::Expired { unresolved: false });
        assert_eq!(record.view(61_999), View::Expired { unresolved: false });
        assert_eq!(record.view(62_000), View::Gone);
    }

    #[test]
    fn an_acceptance_has_its_own_deadline() {
        let record = record(State::Accepted {
            outcome: outcome(202),
            at: 2_000,
            deadline: 9_000,
        });
        assert_eq!(record.view(8_999).status(), Status::Accepted);
        let View::Unknown { evidence, .. } = record.view(9_000) else {
            panic!()
        };
        assert_eq!(evidence.status, Some(202));
    }

    #[test]
    fn an_answer_is_served_to_its_deadline_or_the_end_of_its_window() {
        let owner = OwnerToken([1; 16]);
        let (at, deadline) = (2_000, 9_000);
        let evidence = State::lease_over();
        let reason = String::new();
        let accepted = outcome(202);
        let completed = outcome(201);
        for (state, until) in [
            (
                State::Accepted {
                    outcome: accepted,
                    at,
                    deadline,
                },
                Some(9_000),
            ),
            (
                State::Completed {
                    outcome: completed,
                    at,
                },
                Some(12_000),
            ),
            (State::Closed { reason, at }, None),
            (
                State::Unknown {
                    owner: Some(owner),
                    evidence,
                    at,
                },
                None,
            ),
        ] {
            assert_eq!(record(state).served_until(), until);
        }
        assert_eq!(pending().served_until(), None);
    }

    #[test]
    fn no_time_overflows() {
        let mut record = pending();
        record.windows = Windows {
            replay_ms: u64::MAX,
            tombstone_ms: u64::MAX,
        };
        assert_eq!(record.view(u64::MAX - 1).status(), Status::Unknown);
    }
}
