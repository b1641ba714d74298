//! The fences of design §2, each of which can be taken away: what then goes wrong is what it is for.
//!
//! Nothing in the shipped code knows of this list. A fence is taken away around it: what goes into
//! [`idempo_core::store::contract::apply`] is changed so that its check finds nothing to object to,
//! or the host around [`idempo_core::exchange::Exchange`] leaves out what it was asked to do.

/// One fence, and the rule of design §2 that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fence {
    /// Rule 1: a claim finds the record that is there.
    AtomicClaim,
    /// Rule 1: a take-over names the version that it saw.
    TakeOverVersion,
    /// Rule 2: an owner's write needs the owner's token.
    OwnerToken,
    /// Rule 2: anybody else's write needs the version that was seen.
    ExpectedVersion,
    /// Rule 2: a write that was made is known by its id.
    WriteId,
    /// Rule 2: a terminal state changes by its windows only.
    TerminalStays,
    /// Rule 2: settling by event, probe or operator takes the owner's token away.
    SettlingDisowns,
    /// Rule 3: a reset is no proof that nothing was sent.
    SentDecides,
    /// Rule 3: a failure after a second try says nothing of the first.
    OneTry,
    /// Rule 3: the router is told to try once.
    RouterContained,
    /// Rule 4: what cannot be claimed does not run.
    NoRecordNoRun,
    /// Rule 5: an attempt that gave up on its claim does not run when it is given later.
    GaveUpForGood,
    /// Rule 5: an attempt that gave up on its claim has it cancelled.
    CancelSent,
    /// Rule 5: a cancellation is remembered, so that it may overtake its claim.
    CancelMark,
    /// Rule 5: a claim that was sent twice and did not run is cancelled like one that was given up.
    CopyCancelled,
    /// Rule 5: a claim is refused once nobody can wait for it any more.
    NotAfter,
    /// Rule 5: a cancellation removes its own token's claim only.
    CancelOwn,
    /// Rule 6: a last write that failed waits and is made again.
    WriteWaits,
    /// Rule 7: what cannot be replayed is remembered anyway.
    UnreplayableStays,
    /// Rule 9: what is damaged is not absent.
    DamagedIsThere,
    /// Rule 10: no step of the host's clock moves a window.
    OneClock,
    /// Design §6: the store's epoch and sequence are watched.
    EpochWatched,
    /// Design §6: after a loss new claims wait for the longest lease.
    RecoveryHold,
    /// Design §6: after a loss every proxy asserts again what it knows.
    Reasserted,
}

impl Fence {
    /// All of them, in the order of the rules.
    pub const ALL: [Self; 24] = [
        Self::AtomicClaim,
        Self::TakeOverVersion,
        Self::OwnerToken,
        Self::ExpectedVersion,
        Self::WriteId,
        Self::TerminalStays,
        Self::SettlingDisowns,
        Self::SentDecides,
        Self::OneTry,
        Self::RouterContained,
        Self::NoRecordNoRun,
        Self::GaveUpForGood,
        Self::CancelSent,
        Self::CancelMark,
        Self::CopyCancelled,
        Self::NotAfter,
        Self::CancelOwn,
        Self::WriteWaits,
        Self::UnreplayableStays,
        Self::DamagedIsThere,
        Self::OneClock,
        Self::EpochWatched,
        Self::RecoveryHold,
        Self::Reasserted,
    ];

    /// The rule of design §2, or the section.
    #[must_use]
    pub const fn rule(self) -> &'static str {
        match self {
            Self::AtomicClaim | Self::TakeOverVersion => "1",
            Self::OwnerToken
            | Self::ExpectedVersion
            | Self::WriteId
            | Self::TerminalStays
            | Self::SettlingDisowns => "2",
            Self::SentDecides | Self::OneTry | Self::RouterContained => "3",
            Self::NoRecordNoRun => "4",
            Self::GaveUpForGood
            | Self::CancelSent
            | Self::CancelMark
            | Self::CopyCancelled
            | Self::NotAfter
            | Self::CancelOwn => "5",
            Self::WriteWaits => "6",
            Self::UnreplayableStays => "7",
            Self::DamagedIsThere => "9",
            Self::OneClock => "10",
            Self::EpochWatched | Self::RecoveryHold | Self::Reasserted => "§6",
        }
    }

    /// What it says.
    #[must_use]
    pub const fn says(self) -> &'static str {
        match self {
            Self::AtomicClaim => "a claim finds the record that is there",
            Self::TakeOverVersion => "a take-over names the version that it saw",
            Self::OwnerToken => "an owner's write needs the owner's token",
            Self::ExpectedVersion => "anybody else's write needs the version that was seen",
            Self::WriteId => "a write that was made is known by its id",
            Self::TerminalStays => "a terminal state changes by its windows only",
            Self::SettlingDisowns => "settling takes the owner's token away",
            Self::SentDecides => "a reset is no proof that nothing was sent",
            Self::OneTry => "a failure after a second try says nothing of the first",
            Self::RouterContained => "the router is told to try once",
            Self::NoRecordNoRun => "what cannot be claimed does not run",
            Self::GaveUpForGood => "who gave up on a claim does not run when it is given later",
            Self::CancelSent => "a claim that was given up is cancelled",
            Self::CancelMark => "a cancellation that overtakes its claim is remembered",
            Self::CopyCancelled => "a claim that was sent twice and did not run is cancelled",
            Self::NotAfter => "a claim is refused once nobody can wait for it",
            Self::CancelOwn => "a cancellation removes its own token's claim only",
            Self::WriteWaits => "a last write that failed waits and is made again",
            Self::UnreplayableStays => "what cannot be replayed is remembered anyway",
            Self::DamagedIsThere => "what is damaged is not absent",
            Self::OneClock => "no step of the host's clock moves a window",
            Self::EpochWatched => "the store's epoch and sequence are watched",
            Self::RecoveryHold => "after a loss new claims wait for the longest lease",
            Self::Reasserted => "after a loss every proxy asserts again what it knows",
        }
    }
}
