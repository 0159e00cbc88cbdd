//! Admission: what changes or refuses a write that is otherwise fine. A fixed sequence of plain functions.
//!
//! [`mutate`] runs before validation, [`reserve`] takes what an object needs from shared pools (addresses, ports) and
//! [`validate`] runs last. What was reserved is given back when the write does not happen.

use pintle_machinery::status::ApiError;
use serde_json::Value;

use crate::engine::Call;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A changed one.
    Update,
    /// A deletion (or its beginning).
    Delete,
}

/// Things taken from shared pools for a write that has not happened yet.
#[derive(Debug, Default)]
#[must_use]
pub struct Reservation {}

impl Reservation {
    /// The write happened.
    pub fn keep(self) {}

    /// It did not: gives everything back.
    pub async fn undo(self, call: &Call) {
        let _ = call;
    }
}

/// Changes a new object (stored form) before it is validated.
pub async fn mutate(call: &Call, operation: Operation, new: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    let _ = (call, operation, new, old);
    Ok(())
}

/// Takes addresses and ports.
pub async fn reserve(
    call: &Call,
    operation: Operation,
    new: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<Reservation, ApiError> {
    let _ = (call, operation, new, old, dry_run);
    Ok(Reservation::default())
}

/// Refuses what is not allowed; for a deletion `new` is `None`.
pub async fn validate(
    call: &Call,
    operation: Operation,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let _ = (call, operation, new, old);
    Ok(())
}

/// An object is gone: gives back what it held.
pub async fn released(call: &Call, old: &Value) {
    let _ = (call, old);
}
