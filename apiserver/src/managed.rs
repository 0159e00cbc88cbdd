//! Field ownership as the verbs need it: who set which field, kept in `metadata.managedFields`.

use pintle_machinery::status::ApiError;
use serde_json::Value;

use crate::engine::Call;

/// A new object (served form, defaulted): all its fields are the manager's.
pub fn on_create(call: &Call, object: &mut Value) -> Result<(), ApiError> {
    let _ = (call, object);
    Ok(())
}

/// An update (both in the served form): what changed is the manager's.
pub fn on_update(call: &Call, old: &Value, new: &mut Value) -> Result<(), ApiError> {
    let _ = (call, old, new);
    Ok(())
}
