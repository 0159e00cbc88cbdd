//! AdmissionReview: what a webhook is asked, and what it answers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pintle_machinery::status::ApiError;
use serde_json::{Value, json};

use crate::access::UserInfo;
use crate::admission::Operation;
use crate::engine::Call;

/// A request as webhooks see it.
#[derive(Debug, Clone, Default)]
pub struct Subject<'a> {
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT`.
    pub operation: &'static str,
    /// API group.
    pub group: &'a str,
    /// Version of the request.
    pub version: &'a str,
    /// Plural name.
    pub resource: &'a str,
    /// Subresource, or nothing.
    pub subresource: &'a str,
    /// Kind of the object.
    pub kind: &'a str,
    /// Objects of the resource live in namespaces.
    pub namespaced: bool,
    /// Namespace.
    pub namespace: &'a str,
    /// Name, if it is known.
    pub name: &'a str,
    /// Nothing will be written.
    pub dry_run: bool,
    /// The object; none for a deletion.
    pub object: Option<&'a Value>,
    /// What it was.
    pub old: Option<&'a Value>,
    /// Who asks.
    pub user: Value,
    /// The options of the request, as an object.
    pub options: Value,
}

impl<'a> Subject<'a> {
    /// A write of an object; both are in the form of the request.
    pub fn of(
        call: &'a Call,
        operation: Operation,
        object: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> Result<Self, ApiError> {
        let (operation, options) = match operation {
            Operation::Create => ("CREATE", "CreateOptions"),
            Operation::Update if call.info.verb == "patch" => ("UPDATE", "PatchOptions"),
            Operation::Update => ("UPDATE", "UpdateOptions"),
            Operation::Delete => ("DELETE", "DeleteOptions"),
        };
        let name = object.or(old).and_then(|object| object["metadata"]["name"].as_str()).unwrap_or_default();
        let dry_run = call.dry_run()?;
        let mut options = json!({"kind": options, "apiVersion": "meta.k8s.io/v1"});
        if dry_run {
            options["dryRun"] = json!(["All"]);
        }
        if operation != "DELETE" {
            options["fieldManager"] = json!(call.manager());
        }
        Ok(Self { operation, name, dry_run, object, old, options, kind: &call.resource.kind, ..Self::about(call) })
    }

    /// A connection, by its options.
    pub fn connection(call: &'a Call, options: &'a Value) -> Self {
        let kind = options["kind"].as_str().unwrap_or_default();
        Self { operation: "CONNECT", name: &call.info.name, object: Some(options), kind, ..Self::about(call) }
    }

    fn about(call: &'a Call) -> Self {
        Self {
            group: &call.resource.group,
            version: &call.resource.version,
            resource: &call.resource.name,
            subresource: &call.info.subresource,
            namespaced: call.resource.namespaced,
            namespace: &call.info.namespace,
            user: user(&call.user),
            ..Self::default()
        }
    }

    /// What expressions know as `request`, and reviews have beside the objects.
    pub fn request(&self) -> Value {
        // A connection's kind is of the core group whatever it leads to.
        let kind = json!({"group": self.group, "version": self.version, "kind": self.kind});
        let resource = json!({"group": self.group, "version": self.version, "resource": self.resource});
        let mut request = json!({
            "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "operation": self.operation, "userInfo": self.user, "dryRun": self.dry_run, "options": self.options,
        });
        for (name, value) in [
            ("name", self.name),
            ("namespace", self.namespace),
            ("subResource", self.subresource),
            ("requestSubResource", self.subresource),
        ] {
            if !value.is_empty() {
                request[name] = json!(value);
            }
        }
        request
    }
}

fn user(user: &UserInfo) -> Value {
    let mut value = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        value["uid"] = json!(user.uid);
    }
    if !user.extra.is_empty() {
        value["extra"] = json!(user.extra);
    }
    value
}

/// One question.
pub struct Request {
    /// Its own id, which the answer repeats.
    pub uid: String,
    /// The AdmissionReview.
    pub review: Value,
}

impl Request {
    /// About a request.
    pub fn new(subject: &Subject<'_>) -> Self {
        let uid = uuid::Uuid::new_v4().to_string();
        let mut request = subject.request();
        request["uid"] = json!(uid);
        request["object"] = subject.object.cloned().unwrap_or_default();
        request["oldObject"] = subject.old.cloned().unwrap_or_default();
        Self {
            review: json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}),
            uid,
        }
    }
}

/// What a webhook says.
#[derive(Debug, PartialEq)]
pub struct Verdict {
    /// The request may go on.
    pub allowed: bool,
    /// A JSON patch.
    pub patch: Option<Vec<u8>>,
    /// Why not, as a Status.
    pub status: Value,
    /// For the client.
    pub warnings: Vec<String>,
}

impl Verdict {
    /// Reads an answer; the error says what is wrong with it.
    pub fn read(answer: &[u8], uid: &str) -> Result<Self, String> {
        let review: Value = serde_json::from_slice(answer).map_err(|error| error.to_string())?;
        let response = &review["response"];
        if !response.is_object() {
            return Err("webhook response was absent".into());
        }
        if review["kind"] != "AdmissionReview" || review["apiVersion"] != "admission.k8s.io/v1" {
            let found = format!("{}, Kind={}", plain(&review["apiVersion"]), plain(&review["kind"]));
            return Err(format!("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {found}"));
        }
        if response["uid"] != uid {
            return Err(format!("expected response.uid=\"{uid}\", got \"{}\"", plain(&response["uid"])));
        }
        let patch = match (response["patch"].as_str().filter(|patch| !patch.is_empty()), response["patchType"].as_str())
        {
            (None, _) => None,
            (Some(patch), Some("JSONPatch")) => {
                Some(STANDARD.decode(patch).map_err(|error| format!("response.patch: {error}"))?)
            }
            (Some(_), other) => {
                return Err(format!("response.patchType must be \"JSONPatch\", got \"{}\"", other.unwrap_or_default()));
            }
        };
        let warnings = response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Ok(Self {
            allowed: response["allowed"] == true,
            patch,
            status: response["status"].clone(),
            warnings: warnings.map(str::to_owned).collect(),
        })
    }
}

fn plain(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let answer = |response: Value| {
            let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
            Verdict::read(review.to_string().as_bytes(), "u")
        };
        let allowed =
            answer(json!({"uid": "u", "allowed": true, "patchType": "JSONPatch", "patch": "W10=", "warnings": ["w"]}));
        let wanted =
            Verdict { allowed: true, patch: Some(b"[]".to_vec()), status: Value::Null, warnings: vec!["w".into()] };
        assert_eq!(allowed, Ok(wanted));
        assert!(!answer(json!({"uid": "u", "allowed": false})).unwrap().allowed);
        assert!(answer(json!({"uid": "other", "allowed": true})).unwrap_err().contains("expected response.uid=\"u\""));
        assert!(answer(json!({"uid": "u", "allowed": true, "patch": "W10="})).is_err());
        assert!(Verdict::read(b"nonsense", "u").is_err());
        assert!(Verdict::read(b"{}", "u").is_err());
    }
}
