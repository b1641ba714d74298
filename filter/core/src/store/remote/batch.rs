//! Operations that travel together, within bounds.

use super::Nonce;
use crate::store::{Action, Op, Target};

/// Bounds of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Operations.
    pub operations: usize,
    /// Octets of the request, roughly.
    pub bytes: usize,
    /// Recorded answers that are asked for: they make the store's answer large.
    pub bodies: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            operations: 64,
            bytes: 2 << 20,
            bodies: 4,
        }
    }
}

/// What became of an operation that was offered to a batch.
#[derive(Debug, PartialEq, Eq)]
pub enum Added {
    /// It travels.
    Yes,
    /// It has to wait for the next call.
    Later(Op),
    /// It fits no call: its answer must be left out (rule 7).
    TooLarge(Op),
}

/// What a call carries so far, against its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    limits: Limits,
    operations: usize,
    bytes: usize,
    bodies: usize,
}

impl Weight {
    /// Of an empty call.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            operations: 0,
            bytes: 0,
            bodies: 0,
        }
    }

    /// Whether any call carries that operation.
    #[must_use]
    pub fn carries(&self, op: &Op) -> bool {
        weight(op) <= self.limits.bytes
    }

    /// Adds an operation, unless the call is full. Whatever the limits, one operation travels: else it
    /// never would.
    pub fn add(&mut self, op: &Op) -> bool {
        let bytes = self.bytes.saturating_add(weight(op));
        let body = matches!(op.action, Action::Body { .. });
        let full = self.operations >= self.limits.operations
            || bytes > self.limits.bytes
            || (body && self.bodies >= self.limits.bodies);
        if full && self.operations > 0 {
            return false;
        }
        *self = Self {
            operations: self.operations + 1,
            bytes,
            bodies: self.bodies + usize::from(body),
            ..*self
        };
        true
    }
}

/// The operations of one call, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    nonce: Nonce,
    ops: Vec<Op>,
    weight: Weight,
}

impl Batch {
    /// An empty one.
    #[must_use]
    pub const fn new(nonce: Nonce, limits: Limits) -> Self {
        Self {
            nonce,
            ops: Vec::new(),
            weight: Weight::new(limits),
        }
    }

    /// Takes an operation in, where there is room.
    pub fn push(&mut self, op: Op) -> Added {
        if !self.weight.carries(&op) {
            return Added::TooLarge(op);
        }
        if !self.weight.add(&op) {
            return Added::Later(op);
        }
        self.ops.push(op);
        Added::Yes
    }

    /// The call's name.
    #[must_use]
    pub const fn nonce(&self) -> &Nonce {
        &self.nonce
    }

    /// What travels.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Gives the operations back, to be sent again: in halves, after an ambiguous answer.
    #[must_use]
    pub fn into_ops(self) -> Vec<Op> {
        self.ops
    }
}

/// Octets that an operation takes as text, rounded up: what a record holds is bounded, answers
/// are not.
fn weight(op: &Op) -> usize {
    match &op.action {
        Action::Read | Action::Body { .. } | Action::Cancel { .. } => 512,
        Action::Claim(_) | Action::TakeOver { .. } => 2048,
        Action::Transition(transition) => match &transition.to {
            Target::Accepted { blob, .. } | Target::Completed { blob, .. } => {
                let octets = blob.as_ref().map_or(0, Vec::len);
                octets.div_ceil(3).saturating_mul(4).saturating_add(3072)
            }
            _ => 3072,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::table::testing::{claim, complete, op};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn batch(operations: usize, bytes: usize, bodies: usize) -> Batch {
        let limits = Limits {
            operations,
            bytes,
            bodies,
        };
        Batch::new(Nonce([1; 16]), limits)
    }

    #[test]
    fn operations_wait_when_there_are_enough() {
        let mut batch = batch(2, 10_000, 1);
        assert_eq!(batch.push(op(1, Action::Read)), Added::Yes);
        assert_eq!(batch.push(op(2, Action::Read)), Added::Yes);
        let third = op(3, Action::Read);
        assert_eq!(batch.push(third.clone()), Added::Later(third));
        assert_eq!(batch.ops().len(), 2);
    }

    #[test]
    fn octets_count_and_what_never_fits_is_told_apart() {
        let mut batch = batch(9, 6_000, 1);
        assert_eq!(batch.push(op(1, Action::Claim(claim(1)))), Added::Yes);
        let large = op(2, complete(1, 1, 2, 2_000));
        assert_eq!(batch.push(large.clone()), Added::Later(large));
        let huge = op(2, complete(1, 1, 2, 4_000));
        assert_eq!(batch.push(huge.clone()), Added::TooLarge(huge));
    }

    #[test]
    fn answers_asked_for_are_few() {
        let mut batch = batch(9, 10_000, 1);
        let body = |n| op(n, Action::Body { incarnation: 1 });
        assert_eq!(batch.push(body(1)), Added::Yes);
        assert_eq!(batch.push(body(2)), Added::Later(body(2)));
        assert_eq!(batch.push(op(2, Action::Read)), Added::Yes);
    }

    #[test]
    fn one_operation_always_travels() {
        let mut batch = batch(0, 10_000, 0);
        let body = op(1, Action::Body { incarnation: 1 });
        assert_eq!(batch.push(body), Added::Yes);
    }
}
