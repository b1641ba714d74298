//! Which host call fails, and how.
//!
//! Calls are counted over the whole process, in the order in which they are made. With the same
//! scenario the order is the same every time (nothing in here depends on real time or chance), so
//! the count of a run without faults says which calls there are to fail.

/// The statuses of the ABI.
pub mod status {
    /// Done.
    pub const OK: u32 = 0;
    /// There is no such thing.
    pub const NOT_FOUND: u32 = 1;
    /// The host does not take such arguments, or not now.
    pub const BAD_ARGUMENT: u32 = 2;
    /// A pointer leads nowhere.
    pub const INVALID_MEMORY_ACCESS: u32 = 6;
    /// The queue has nothing.
    pub const EMPTY: u32 = 7;
    /// Another number than the key's.
    pub const CAS_MISMATCH: u32 = 8;
    /// The host failed.
    pub const INTERNAL_FAILURE: u32 = 10;
    /// The host does not have that call.
    pub const UNIMPLEMENTED: u32 = 12;
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not done, and said so.
    Refused(u32),
    /// Done, and said otherwise.
    DoneBut(u32),
    /// "Done", with nothing where the result belongs: a null pointer of no length, a number 0.
    Nothing,
    /// "Done", with nothing written to where the result belongs.
    Silent,
    /// "Done", with a null pointer and a length.
    NullWithLength,
    /// "Done", with a length far beyond what was allocated.
    TooLong,
    /// "Done", with a pointer that the module never allocated.
    Foreign,
    /// "Done", with octets that mean nothing: as long as the true ones, all set.
    Garbage,
    /// "Done", with half of the true octets.
    Half,
}

impl Fault {
    /// What can happen to a call that hands octets over.
    pub const OCTETS: [Self; 7] = [
        Self::Nothing,
        Self::Silent,
        Self::NullWithLength,
        Self::TooLong,
        Self::Foreign,
        Self::Garbage,
        Self::Half,
    ];
}

/// Which calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The n-th of all, from 0.
    Nth(usize),
    /// Every one of that name.
    Every(&'static str),
    /// Every one from the n-th on.
    From(usize),
}

/// The plan of one run, and what was called.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    plan: Option<(Which, Fault)>,
    /// Every call's name.
    pub trace: Vec<&'static str>,
    /// How many calls were made to fail.
    pub struck: usize,
}

impl Faults {
    /// Fails these calls so.
    #[must_use]
    pub fn plan(which: Which, fault: Fault) -> Self {
        Self {
            plan: Some((which, fault)),
            ..Self::default()
        }
    }

    /// No more faults; the count goes on.
    pub fn lift(&mut self) {
        self.plan = None;
    }

    /// A call is made: does it fail?
    pub fn next(&mut self, name: &'static str) -> Option<Fault> {
        let index = self.trace.len();
        self.trace.push(name);
        let (which, fault) = self.plan.as_ref()?;
        let struck = match which {
            Which::Nth(n) => *n == index,
            Which::Every(all) => *all == name,
            Which::From(n) => *n <= index,
        };
        self.struck += usize::from(struck);
        struck.then_some(*fault)
    }
}
