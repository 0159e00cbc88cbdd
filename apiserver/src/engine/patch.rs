//! The patch verb: JSON patch, merge patch, strategic merge patch and server-side apply.

use pintle_machinery::codec::json;
use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::patch;
use pintle_machinery::status::{ApiError, GroupResource, Status};
use serde_json::Value;

use super::modify::{self, Ownership, Written};
use super::update::answer;
use super::{Answer, Call, create, meta};
use crate::codec::FieldValidation;
use crate::http::negotiate;
use crate::managed;

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
            "application/apply-patch+yaml" => Self::Apply,
            _ => {
                let status = Status::failure(415, "UnsupportedMediaType", "415: Unsupported Media Type");
                return Err(ApiError::Other(Box::new(status.with_details(Default::default()))));
            }
        })
    }
}

/// PATCH of an object.
pub async fn patch(call: &Call, body: &[u8]) -> Answer {
    let kind = PatchKind::of(call)?;
    let dry_run = call.dry_run()?;
    check_options(call, kind)?;
    let written = match kind {
        PatchKind::Apply => apply(call, body, dry_run).await?,
        _ => {
            let make = |old: &Value| patched(call, kind, old, body);
            modify::modify(call, &make, Ownership::Update, dry_run).await?
        }
    };
    answer(call, &written)
}

fn check_options(call: &Call, kind: PatchKind) -> Result<(), ApiError> {
    let mut errors = ErrorList::new();
    match kind {
        PatchKind::Apply if call.query.text("fieldManager").is_none() => {
            errors.required(&Path::new("fieldManager"), "is required for apply patch");
        }
        PatchKind::Apply => {}
        _ if call.query.get("force").is_some() => {
            errors.forbidden(&Path::new("force"), "may not be specified for non-apply patch");
        }
        _ => {}
    }
    match errors.is_empty() {
        true => Ok(()),
        false => {
            let kind = GroupResource::new("meta.k8s.io", "PatchOptions");
            Err(ApiError::invalid(&kind, "", errors))
        }
    }
}

/// The object that a patch makes out of another (both in the served form).
pub fn patched(call: &Call, kind: PatchKind, old: &Value, body: &[u8]) -> Result<Value, ApiError> {
    let resource = &call.resource;
    let ty = call
        .state
        .schema
        .kind(&resource.group, &resource.version, &resource.kind)
        .ok_or_else(|| ApiError::Internal(format!("no schema for {}", resource.kind)))?;
    let new = match kind {
        PatchKind::Json => patch::json::apply(old, body)?,
        PatchKind::Merge => patch::merge::apply(old, body)?,
        PatchKind::Strategic => patch::strategic::apply(call.state.schema, ty, old, body)?,
        PatchKind::Apply => return Err(ApiError::Internal("apply is no plain patch".into())),
    };
    reread(call, old, new)
}

/// What a patch made goes through the schema, as a body does: unknown fields are told or refused.
fn reread(call: &Call, old: &Value, new: Value) -> Result<Value, ApiError> {
    let resource = &call.resource;
    let schema = call.state.schema;
    let ty = schema
        .kind(&resource.group, &resource.version, &resource.kind)
        .ok_or_else(|| ApiError::Internal(format!("no schema for {}", resource.kind)))?;
    let bytes = serde_json::to_vec(&new).map_err(|error| ApiError::Internal(error.to_string()))?;
    let refused = |why: String| {
        let mut shown = Vec::new();
        json::encode_patched(schema, ty, old, &new, &mut shown);
        let mut errors = ErrorList::new();
        errors.invalid(&Path::new("patch"), String::from_utf8_lossy(&shown).into_owned(), why);
        ApiError::invalid(&GroupResource::new("", ""), "", errors)
    };
    let decoded = json::decode(schema, ty, &bytes).map_err(|error| refused(error.to_string()))?;
    if !decoded.strict_errors.is_empty() {
        match FieldValidation::of(call)? {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => decoded.strict_errors.iter().for_each(|error| call.warn(error)),
            FieldValidation::Strict => {
                return Err(refused(format!("strict decoding error: {}", decoded.strict_errors.join(", "))));
            }
        }
    }
    Ok(decoded.value)
}

/// Server-side apply: creates what is absent.
async fn apply(call: &Call, body: &[u8], dry_run: bool) -> Result<Written, ApiError> {
    let applied = crate::codec::decode_yaml(call, body)?;
    for _ in 0..5 {
        if let Some(current) = modify::current(call).await? {
            let make = |old: &Value| managed::apply(call, Some(old), &applied);
            return modify::modify_from(call, current, &make, Ownership::Apply, dry_run).await;
        }
        if !call.info.subresource.is_empty() {
            return Err(call.not_found());
        }
        if !meta::text(&applied, "uid").is_empty() {
            let message = format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                meta::text(&applied, "uid")
            );
            return Err(ApiError::conflict(&call.group_resource(), &call.info.name, message));
        }
        match create::create_applied(call, &applied, dry_run).await {
            Err(ApiError::AlreadyExists { .. }) => {}
            Ok((bytes, revision)) => return Ok(Written { bytes, revision, created: true }),
            Err(error) => return Err(error),
        }
    }
    Err(ApiError::modified(&call.group_resource(), &call.info.name))
}
