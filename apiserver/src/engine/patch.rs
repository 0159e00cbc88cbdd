//! The patch verb: JSON patch, merge patch, strategic merge patch and server-side apply.

use std::borrow::Cow;

use pintle_machinery::codec::json;
use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::patch;
use pintle_machinery::schema::Object;
use pintle_machinery::status::{ApiError, GroupResource, Status};
use serde_json::Value;

use super::modify::{self, Ownership, Written};
use super::update::answer;
use super::{Answer, Call, create, meta};
use crate::codec::{daemon_generation, tell_strict};
use crate::custom::object;
use crate::http::negotiate::{self, Encoding, Encodings};
use crate::managed;

/// Patches of custom objects.
const CUSTOM_PATCHES: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

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
            "application/apply-patch+cbor" if Encodings::of(&call.state.config.features.gates).has(Encoding::Cbor) => {
                Self::Apply
            }
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
    if kind == PatchKind::Strategic && call.resource.custom.is_some() && call.info.subresource != "scale" {
        return Err(ApiError::UnsupportedMediaType(CUSTOM_PATCHES.map(str::to_owned).to_vec()));
    }
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
    let (schema, ty) = managed::types(call)?;
    let new = match kind {
        PatchKind::Json => patch::json::apply(&opened(old, body), body)?,
        PatchKind::Merge => patch::merge::apply(old, body)?,
        PatchKind::Strategic => patch::strategic::apply(schema, ty, old, body)?,
        PatchKind::Apply => return Err(ApiError::Internal("apply is no plain patch".into())),
    };
    let moves = if kind == PatchKind::Json { patch::json::moves(body) } else { Vec::new() };
    reread(call, (old, &moves), new)
}

/// The object with all that the paths of a JSON patch may lead into.
fn opened<'a>(object: &'a Value, patch: &[u8]) -> Cow<'a, Value> {
    let names = |name: &[u8]| patch.windows(name.len()).any(|part| part == name);
    match names(b"managedFields") || names(b"\\") {
        true => json::with_fields_as_json(object),
        false => Cow::Borrowed(object),
    }
}

/// Takes out of a patched object what the patch left alone; managed fields are large and mostly among that.
fn take_unchanged(old: &Value, new: &mut Value) -> (Object, Option<Value>) {
    let mut unchanged = Object::new();
    let Value::Object(map) = new else { return (unchanged, None) };
    let same = map.iter().filter(|(name, value)| old.get(name) == Some(value)).map(|(name, _)| name.clone());
    for name in same.collect::<Vec<_>>() {
        if let Some((name, value)) = map.remove_entry(&name) {
            unchanged.insert(name, value);
        }
    }
    const MANAGED: &str = "managedFields";
    let metadata = map.get_mut("metadata").and_then(Value::as_object_mut);
    let managed = metadata.filter(|metadata| metadata.get(MANAGED) == Some(&old["metadata"][MANAGED]));
    (unchanged, managed.and_then(|metadata| metadata.remove(MANAGED)))
}

/// Puts it back.
fn put_unchanged(object: &mut Value, (unchanged, managed): (Object, Option<Value>)) {
    if let Some(managed) = managed {
        meta::set(object, "managedFields", managed);
    }
    if let Value::Object(map) = object {
        map.extend(unchanged);
    }
}

/// What a patch made goes through the schema, as a body does: unknown fields are told or refused.
fn reread(call: &Call, (old, moves): (&Value, &[(String, String)]), mut new: Value) -> Result<Value, ApiError> {
    let (schema, ty) = managed::types(call)?;
    let patched = json::Patched { schema, ty, old, moves };
    let custom = call.resource.custom.as_deref();
    // What was there before was read before.
    let unchanged = match custom.is_none() && moves.is_empty() {
        true => take_unchanged(old, &mut new),
        false => Default::default(),
    };
    let bytes = serde_json::to_vec(&*json::with_fields_as_json(&new));
    let bytes = bytes.map_err(|error| ApiError::Internal(error.to_string()))?;
    let refused = |why: String| {
        let (mut new, mut shown) = (new.clone(), Vec::new());
        put_unchanged(&mut new, unchanged.clone());
        match custom {
            Some(_) => json::encode_any(&json::with_fields_as_json(&new), &mut shown),
            None => patched.encode(&new, &mut shown),
        }
        let mut errors = ErrorList::new();
        errors.invalid(&Path::new("patch"), String::from_utf8_lossy(&shown).into_owned(), why);
        ApiError::invalid(&GroupResource::new("", ""), "", errors)
    };
    if let Some(custom) = custom {
        let decoded = object::shaped(custom, &bytes).map_err(refused)?;
        tell_strict(call, &decoded.strict_errors, refused)?;
        return Ok(decoded.value);
    }
    let mut decoded = json::decode(schema, ty, &bytes).map_err(|error| refused(error.to_string()))?;
    if decoded.strict_errors.len() > 1 && !moves.is_empty() {
        // They are told in the order in which they stand.
        let mut bytes = Vec::new();
        patched.encode(&new, &mut bytes);
        decoded = json::decode(schema, ty, &bytes).map_err(|error| refused(error.to_string()))?;
    }
    tell_strict(call, &decoded.strict_errors, refused)?;
    if let Err(why) = daemon_generation(&call.resource.kind, &decoded.value) {
        let strategic = negotiate::content_type(&call.headers).contains("strategic");
        return Err(if strategic { ApiError::Other(Box::new(Status::failure(500, "", why))) } else { refused(why) });
    }
    put_unchanged(&mut decoded.value, unchanged);
    Ok(decoded.value)
}

/// Server-side apply: creates what is absent.
async fn apply(call: &Call, body: &[u8], dry_run: bool) -> Result<Written, ApiError> {
    let applied = crate::codec::decode_applied(call, body)?;
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
