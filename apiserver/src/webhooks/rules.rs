//! Which requests a webhook is for.

use std::sync::Arc;

use pintle_machinery::selector::label;
use pintle_machinery::status::ApiError;
use serde_json::Value;

use super::config::Hook;
use super::review::Subject;
use crate::cel;
use crate::internal::{self, Address};
use crate::state::State;

/// Operations on resources. `*` stands for all.
#[derive(Debug, Default)]
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

impl Rule {
    /// From a configuration.
    pub fn read(rule: &Value) -> Self {
        let texts = |name: &str| {
            rule[name].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            scope: rule["scope"].as_str().unwrap_or("*").to_owned(),
        }
    }

    fn concerns(&self, subject: &Subject<'_>, version: &str) -> bool {
        let any = |list: &[String], wanted: &str| list.iter().any(|one| one == "*" || one == wanted);
        let scope = match self.scope.as_str() {
            "Namespaced" => subject.namespaced && subject.resource != "namespaces",
            "Cluster" => !subject.namespaced,
            _ => true,
        };
        scope
            && any(&self.operations, subject.operation)
            && any(&self.groups, subject.group)
            && any(&self.versions, version)
            && self.resources.iter().any(|pattern| names(pattern, subject.resource, subject.subresource))
    }
}

/// `pods`, `pods/status`, `pods/*`, `*/status`, `*`, `*/*`.
fn names(pattern: &str, resource: &str, subresource: &str) -> bool {
    let (own, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
    (own == "*" || own == resource) && (sub == subresource || sub == "*")
}

/// The request is for the hook to judge.
pub async fn concern(state: &Arc<State>, hook: &Hook, subject: &Subject<'_>) -> Result<bool, ApiError> {
    let other_version = |rule: &Rule| {
        let served = state.served();
        let versions = served.resources.iter().filter(|one| one.group == subject.group && one.name == subject.resource);
        let mut versions = versions.map(|one| one.version.as_str());
        versions.any(|version| rule.concerns(subject, version))
    };
    let ruled = hook
        .rules
        .iter()
        .any(|rule| rule.concerns(subject, subject.version) || (hook.equivalent && other_version(rule)));
    if !ruled || !namespace_fits(state, hook, subject).await? || !labels_fit(&hook.objects, subject) {
        return Ok(false);
    }
    conditions_hold(hook, subject)
}

/// The labels of the object's namespace fit; those of a namespace are its own. What is in no namespace always fits.
async fn namespace_fits(state: &Arc<State>, hook: &Hook, subject: &Subject<'_>) -> Result<bool, ApiError> {
    if hook.namespaces.is_everything() {
        return Ok(true);
    }
    if subject.group.is_empty() && subject.resource == "namespaces" {
        return Ok(labels_fit(&hook.namespaces, subject));
    }
    if !subject.namespaced {
        return Ok(true);
    }
    let namespace = internal::known(state, Address::new("", "namespaces", "", subject.namespace)).await?;
    Ok(namespace.is_none_or(|namespace| hook.namespaces.matches(&namespace["metadata"]["labels"].as_object())))
}

/// The labels of the object, as it is or as it was, fit.
fn labels_fit(selector: &label::Selector, subject: &Subject<'_>) -> bool {
    selector.is_everything()
        || [subject.object, subject.old]
            .into_iter()
            .flatten()
            .any(|object| selector.matches(&object["metadata"]["labels"].as_object()))
}

/// All expressions hold. One that fails to be worked out is a failure of the hook, unless another is false.
fn conditions_hold(hook: &Hook, subject: &Subject<'_>) -> Result<bool, ApiError> {
    let request = subject.request();
    let null = Value::Null;
    let variables = [
        ("object", subject.object.unwrap_or(&null)),
        ("oldObject", subject.old.unwrap_or(&null)),
        ("request", &request),
    ];
    let mut failed = None;
    for (name, expression) in &hook.conditions {
        match cel::holds(expression, &variables) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => drop(failed.get_or_insert((name, error))),
        }
    }
    match failed {
        None => Ok(true),
        Some(_) if hook.fail_open => Ok(false),
        Some((name, error)) => {
            Err(ApiError::Internal(format!("webhook \"{}\": match condition \"{name}\": {error}", hook.name)))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_are_named_by_patterns() {
        for (pattern, resource, subresource, fits) in [
            ("pods", "pods", "", true),
            ("pods", "pods", "status", false),
            ("pods/status", "pods", "status", true),
            ("pods/*", "pods", "exec", true),
            ("pods/*", "pods", "", true),
            ("*", "pods", "", true),
            ("*", "pods", "status", false),
            ("*/*", "pods", "status", true),
            ("*/scale", "deployments", "scale", true),
        ] {
            assert_eq!(names(pattern, resource, subresource), fits, "{pattern} {resource}/{subresource}");
        }
    }

    #[test]
    fn rules_name_operations_versions_and_scope() {
        let rule = Rule::read(&json!({"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"],
                                      "resources": ["deployments"], "scope": "Namespaced"}));
        let subject = Subject {
            operation: "CREATE",
            group: "apps",
            version: "v1",
            resource: "deployments",
            namespaced: true,
            namespace: "n",
            ..Subject::default()
        };
        assert!(rule.concerns(&subject, "v1"));
        assert!(!rule.concerns(&subject, "v1beta1"));
        assert!(!rule.concerns(&Subject { operation: "UPDATE", ..subject.clone() }, "v1"));
        assert!(!rule.concerns(&Subject { namespaced: false, ..subject }, "v1"));
    }
}
