//! The `Status` object that answers every failed request, and the errors it is made from.
//!
//! [`ApiError`] names what went wrong in the terms of the API; [`ApiError::status`] turns it into the object,
//! with the code, reason and wording that upstream's clients know.

use crate::{Value, field_path::ErrorList};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The text of the usual optimistic-lock failure.
pub const OBJECT_MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// A `v1.Status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Always `Status`.
    pub kind: String,
    /// Always `v1`.
    pub api_version: String,
    /// List metadata; empty here.
    #[serde(default)]
    pub metadata: serde_json::Map<String, Value>,
    /// `Success` or `Failure`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// The text for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The word for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What the failure is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
    /// The HTTP code.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub code: u16,
}

/// `Status.details`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// Name of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Resource or kind, as the reason demands.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// UID of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// One entry a fault.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// When to try again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One fault of a Status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// The word for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The text for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The field at fault.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

impl Status {
    /// A failure without details.
    pub fn failure(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            kind: "Status".into(),
            api_version: "v1".into(),
            metadata: serde_json::Map::new(),
            status: "Failure".into(),
            message: message.into(),
            reason: reason.into(),
            details: None,
            code,
        }
    }

    /// The answer to a deletion that is done: details say what is gone.
    pub fn success(details: Details) -> Self {
        let mut status = Self::failure(0, "", "");
        status.status = "Success".into();
        status.details = Some(details);
        status
    }

    /// The same with details.
    pub fn with_details(mut self, details: Details) -> Self {
        self.details = Some(details);
        self
    }

    /// As a JSON value.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    /// As JSON text, fields in upstream's order.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// A resource of a group, shown as `pods` or `deployments.apps`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// API group, empty for the core group.
    pub group: String,
    /// Plural resource name, or the kind where [`ApiError::Invalid`] asks for a kind.
    pub resource: String,
}

/// A kind of a group: same shape, shown as `Pod` or `Deployment.apps`.
pub type GroupKind = GroupResource;

impl GroupResource {
    /// From the two names.
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }

    fn details(&self, name: &str) -> Details {
        Details { name: name.into(), group: self.group.clone(), kind: self.resource.clone(), ..Details::default() }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_str() {
            "" => f.write_str(&self.resource),
            group => write!(f, "{}.{group}", self.resource),
        }
    }
}

/// A failed API request.
#[derive(Debug, Clone, PartialEq)]
pub enum ApiError {
    /// 400: the request makes no sense.
    BadRequest(String),
    /// 401: nobody knows who asks.
    Unauthorized,
    /// 403: the caller may not. An empty resource stands for a path that is no resource; an empty name for all of them.
    Forbidden {
        /// What was asked for.
        resource: GroupResource,
        /// Name of the object or "".
        name: String,
        /// Why not.
        message: String,
    },
    /// 404: no object of that name.
    NotFound {
        /// Resource of the object.
        resource: GroupResource,
        /// Name of the object.
        name: String,
    },
    /// 404: no such path.
    NoSuchResource,
    /// 405: this verb is not for this resource.
    MethodNotSupported {
        /// What was asked for.
        resource: GroupResource,
        /// The verb.
        verb: String,
    },
    /// 405: this HTTP method is not for this path.
    MethodNotAllowed,
    /// 406: none of the media types asked for can be made; those that can.
    NotAcceptable(Vec<String>),
    /// 409: the name is taken.
    AlreadyExists {
        /// Resource of the object.
        resource: GroupResource,
        /// Name of the object.
        name: String,
    },
    /// 409: generated names were taken too often.
    GenerateNameConflict {
        /// Resource of the object.
        resource: GroupResource,
        /// The last name tried.
        name: String,
    },
    /// 409: the write was based on something else than what is there; see [`OBJECT_MODIFIED`].
    Conflict {
        /// Resource of the object.
        resource: GroupResource,
        /// Name of the object.
        name: String,
        /// Why.
        message: String,
    },
    /// 409: a server-side apply that would take fields from others.
    ApplyConflict {
        /// The sentence that names the conflicts.
        message: String,
        /// One cause a field.
        causes: Vec<Cause>,
    },
    /// 410: a resource version that is compacted away.
    Expired(String),
    /// 410: gone for another reason.
    Gone(String),
    /// 413: the body is too large.
    RequestEntityTooLarge(String),
    /// 415: the body's media type; those that are understood.
    UnsupportedMediaType(Vec<String>),
    /// 422: the object breaks rules.
    Invalid {
        /// Kind of the object.
        kind: GroupKind,
        /// Name of the object.
        name: String,
        /// What is wrong with it.
        errors: ErrorList,
    },
    /// 429: come back later.
    TooManyRequests {
        /// Why.
        message: String,
        /// When, in seconds.
        retry_after: u32,
    },
    /// 500: our fault.
    Internal(String),
    /// 500: the operation couldn't be completed in time, try again.
    ServerTimeout {
        /// What was asked for.
        resource: GroupResource,
        /// The verb.
        verb: String,
        /// When, in seconds.
        retry_after: u32,
    },
    /// 503: not now.
    ServiceUnavailable(String),
    /// 504: the request took too long.
    Timeout(String),
    /// Anything else, ready made (an answer of another server, a webhook's refusal).
    Other(Box<Status>),
}

impl ApiError {
    /// `pods "x" not found`.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::NotFound { resource: resource.clone(), name: name.into() }
    }

    /// `pods "x" already exists`.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::AlreadyExists { resource: resource.clone(), name: name.into() }
    }

    /// The optimistic lock failed.
    pub fn modified(resource: &GroupResource, name: &str) -> Self {
        Self::conflict(resource, name, OBJECT_MODIFIED)
    }

    /// A conflict for a given reason.
    pub fn conflict(resource: &GroupResource, name: &str, message: impl Into<String>) -> Self {
        Self::Conflict { resource: resource.clone(), name: name.into(), message: message.into() }
    }

    /// A refusal.
    pub fn forbidden(resource: &GroupResource, name: &str, message: impl Into<String>) -> Self {
        Self::Forbidden { resource: resource.clone(), name: name.into(), message: message.into() }
    }

    /// The object breaks rules.
    pub fn invalid(kind: &GroupKind, name: &str, errors: ErrorList) -> Self {
        Self::Invalid { kind: kind.clone(), name: name.into(), errors }
    }

    /// The HTTP code.
    pub fn code(&self) -> u16 {
        self.status().code
    }

    /// The Status object that the caller gets.
    pub fn status(&self) -> Status {
        match self {
            Self::BadRequest(message) => Status::failure(400, "BadRequest", message),
            Self::Unauthorized => Status::failure(401, "Unauthorized", "Unauthorized"),
            Self::Forbidden { resource, name, message } => {
                let message = match (resource.resource.as_str(), name.as_str()) {
                    ("", _) => format!("forbidden: {message}"),
                    (_, "") => format!("{resource} is forbidden: {message}"),
                    _ => format!("{resource} {} is forbidden: {message}", quoted(name)),
                };
                Status::failure(403, "Forbidden", message).with_details(resource.details(name))
            }
            Self::NotFound { resource, name } => {
                Status::failure(404, "NotFound", format!("{resource} {} not found", quoted(name)))
                    .with_details(resource.details(name))
            }
            Self::NoSuchResource => {
                Status::failure(404, "NotFound", "the server could not find the requested resource")
                    .with_details(Details::default())
            }
            Self::MethodNotSupported { resource, verb } => Status::failure(
                405,
                "MethodNotAllowed",
                format!("{verb} is not supported on resources of kind {}", quoted(&resource.to_string())),
            )
            .with_details(resource.details("")),
            Self::MethodNotAllowed => Status::failure(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            )
            .with_details(Details::default()),
            Self::NotAcceptable(types) => Status::failure(
                406,
                "NotAcceptable",
                format!("only the following media types are accepted: {}", types.join(", ")),
            ),
            Self::Expired(message) => Status::failure(410, "Expired", message),
            Self::Gone(message) => Status::failure(410, "Gone", message),
            Self::RequestEntityTooLarge(message) => {
                Status::failure(413, "RequestEntityTooLarge", format!("Request entity too large: {message}"))
            }
            Self::UnsupportedMediaType(types) => Status::failure(
                415,
                "UnsupportedMediaType",
                format!(
                    "the body of the request was in an unknown format - accepted media types include: {}",
                    types.join(", ")
                ),
            ),
            Self::Invalid { kind, name, errors } => invalid(kind, name, errors),
            Self::AlreadyExists { .. }
            | Self::GenerateNameConflict { .. }
            | Self::Conflict { .. }
            | Self::ApplyConflict { .. } => self.conflict_status(),
            Self::TooManyRequests { .. }
            | Self::Internal(_)
            | Self::ServerTimeout { .. }
            | Self::ServiceUnavailable(_)
            | Self::Timeout(_) => self.server_status(),
            Self::Other(status) => (**status).clone(),
        }
    }

    fn conflict_status(&self) -> Status {
        match self {
            Self::AlreadyExists { resource, name } => {
                Status::failure(409, "AlreadyExists", format!("{resource} {} already exists", quoted(name)))
                    .with_details(resource.details(name))
            }
            Self::GenerateNameConflict { resource, name } => Status::failure(
                409,
                "AlreadyExists",
                format!(
                    "{resource} {} already exists, the server was not able to generate a unique name for the object",
                    quoted(name)
                ),
            )
            .with_details(Details { retry_after_seconds: 1, ..resource.details(name) }),
            Self::Conflict { resource, name, message } => Status::failure(
                409,
                "Conflict",
                format!("Operation cannot be fulfilled on {resource} {}: {message}", quoted(name)),
            )
            .with_details(resource.details(name)),
            Self::ApplyConflict { message, causes } => Status::failure(409, "Conflict", message)
                .with_details(Details { causes: causes.clone(), ..Details::default() }),
            _ => Status::failure(500, "InternalError", ""),
        }
    }

    fn server_status(&self) -> Status {
        match self {
            Self::TooManyRequests { message, retry_after } => Status::failure(429, "TooManyRequests", message)
                .with_details(Details { retry_after_seconds: *retry_after, ..Details::default() }),
            Self::Internal(message) => {
                let cause = Cause { message: message.clone(), ..Cause::default() };
                Status::failure(500, "InternalError", format!("Internal error occurred: {message}"))
                    .with_details(Details { causes: vec![cause], ..Details::default() })
            }
            Self::ServerTimeout { resource, verb, retry_after } => Status::failure(
                500,
                "ServerTimeout",
                format!(
                    "The {verb} operation against {resource} could not be completed at this time, please try again."
                ),
            )
            .with_details(Details { retry_after_seconds: *retry_after, ..resource.details(verb) }),
            Self::ServiceUnavailable(message) => Status::failure(503, "ServiceUnavailable", message),
            Self::Timeout(message) => {
                Status::failure(504, "Timeout", format!("Timeout: {message}")).with_details(Details::default())
            }
            _ => Status::failure(500, "InternalError", ""),
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.status().message)
    }
}

impl std::error::Error for ApiError {}

fn invalid(kind: &GroupKind, name: &str, errors: &ErrorList) -> Status {
    let mut message = format!("{kind} {} is invalid", quoted(name));
    if !errors.is_empty() {
        message.push_str(": ");
        message.push_str(&errors.to_string());
    }
    Status::failure(422, "Invalid", message).with_details(Details { causes: errors.causes(), ..kind.details(name) })
}

/// A string in quotes with the escapes that Go's `%q` makes.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if c.is_control() || c == '\u{feff}' || (c.is_whitespace() && c != ' ') => {
                out.push_str(&format!("\\u{:04x}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pods() -> GroupResource {
        GroupResource::new("", "pods")
    }

    #[test]
    fn messages_codes_and_reasons() {
        let apps = GroupResource::new("apps", "deployments");
        let denied = r#"User "u" cannot list resource "pods" in API group "" in the namespace "default""#;
        let cases = [
            (ApiError::not_found(&pods(), "x"), 404, "NotFound", r#"pods "x" not found"#),
            (ApiError::already_exists(&apps, "x"), 409, "AlreadyExists", r#"deployments.apps "x" already exists"#),
            (
                ApiError::modified(&pods(), "x"),
                409,
                "Conflict",
                "Operation cannot be fulfilled on pods \"x\": the object has been modified; \
                 please apply your changes to the latest version and try again",
            ),
            (
                ApiError::forbidden(&pods(), "", denied),
                403,
                "Forbidden",
                r#"pods is forbidden: User "u" cannot list resource "pods" in API group "" in the namespace "default""#,
            ),
            (ApiError::Internal("x".into()), 500, "InternalError", "Internal error occurred: x"),
            (
                ApiError::MethodNotSupported { resource: apps.clone(), verb: "create".into() },
                405,
                "MethodNotAllowed",
                r#"create is not supported on resources of kind "deployments.apps""#,
            ),
        ];
        for (error, code, reason, message) in cases {
            let status = error.status();
            assert_eq!((status.code, status.reason.as_str(), status.message.as_str()), (code, reason, message));
        }
    }

    #[test]
    fn json_shape() {
        let text = String::from_utf8(ApiError::not_found(&pods(), "x").status().to_json()).unwrap();
        assert_eq!(
            text,
            "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\
             \"message\":\"pods \\\"x\\\" not found\",\"reason\":\"NotFound\",\
             \"details\":{\"name\":\"x\",\"kind\":\"pods\"},\"code\":404}"
        );
        assert_eq!(ApiError::NoSuchResource.status().to_value()["details"], json!({}));
    }

    #[test]
    fn quoting_is_gos() {
        assert_eq!(quoted("a\"b\\\n\u{1}é"), r#""a\"b\\\n\x01é""#);
    }
}
