//! The patch verb: JSON patch, merge patch, strategic merge patch and server-side apply.

use pintle_machinery::status::ApiError;
use serde_json::Value;

use super::modify::{self, Ownership};
use super::update::answer;
use super::{Answer, Call};
use crate::http::negotiate;

/// The kinds of patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own, by the schema's merge keys.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchKind {
    /// By content type.
    pub fn of(call: &Call) -> Result<Self, ApiError> {
        Ok(match negotiate::content_type(&call.headers).as_str() {
            "application/json-patch+json" => Self::Json,
            "application/merge-patch+json" => Self::Merge,
            "application/strategic-merge-patch+json" => Self::Strategic,
            "application/apply-patch+yaml" | "application/apply-patch+json" => Self::Apply,
            _ => {
                let accepted = [
                    "application/json-patch+json",
                    "application/merge-patch+json",
                    "application/strategic-merge-patch+json",
                    "application/apply-patch+yaml",
                    "application/apply-patch+cbor",
                ];
                return Err(ApiError::UnsupportedMediaType(accepted.map(str::to_owned).to_vec()));
            }
        })
    }
}

/// PATCH of an object.
pub async fn patch(call: &Call, body: &[u8]) -> Answer {
    let dry_run = call.dry_run()?;
    let kind = PatchKind::of(call)?;
    let make = |old: &Value| patched(call, kind, old, body);
    let written = modify::modify(call, &make, Ownership::Update, dry_run).await?;
    answer(call, &written)
}

/// The object that a patch makes out of another.
pub fn patched(call: &Call, kind: PatchKind, old: &Value, body: &[u8]) -> Result<Value, ApiError> {
    let _ = (call, kind);
    let patch: Value = serde_json::from_slice(body).map_err(|error| ApiError::BadRequest(error.to_string()))?;
    let mut new = old.clone();
    merge(&mut new, &patch);
    Ok(new)
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = serde_json::json!({});
    }
    if let Some(target) = target.as_object_mut() {
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }
}
