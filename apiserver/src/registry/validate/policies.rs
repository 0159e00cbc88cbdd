//! Errors of admission policies and their bindings, as far as they can be told without understanding expressions.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::webhooks::{conditions, rule};
use super::{expressions, label_selector, one_of};
use crate::registry::Context;
use crate::registry::value::{at, has, items, text};

/// ValidatingAdmissionPolicy.
pub fn validating(_context: &Context<'_>, policy: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(policy, "spec");
    common(&mut errors, spec, &path);
    let declared = variables(spec);
    let (validations, annotations) = (items(spec, "validations"), items(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        for field in ["validations", "auditAnnotations"] {
            let detail = "validations or auditAnnotations must contain at least one item";
            errors.required(&path.child(field), detail);
        }
    }
    for (index, validation) in validations.iter().enumerate() {
        self::validation(&mut errors, validation, &declared, &path.child("validations").index(index));
    }
    let mut known = HashSet::new();
    for (index, annotation) in annotations.iter().enumerate() {
        let path = path.child("auditAnnotations").index(index);
        let key = text(annotation, "key");
        let full = format!("{}/{key}", text(policy, "metadata.name"));
        if text(policy, "metadata.name").is_empty() {
            errors.invalid(&path.child("key"), key, "requires metadata.name be non-empty");
        } else {
            errors.invalid_each(&path.child("key"), &full, names::qualified(&full));
        }
        if text(annotation, "valueExpression").trim().is_empty() {
            errors.required(&path.child("valueExpression"), "valueExpression is not specified");
        } else {
            compiles(&mut errors, text(annotation, "valueExpression"), &declared, &path.child("valueExpression"));
        }
        if !known.insert(key) {
            errors.duplicate(&path.child("key"), key);
        }
    }
    errors
}

/// An update of a ValidatingAdmissionPolicy.
pub fn validating_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    if context.subresource.is_some() {
        let mut errors = ErrorList::new();
        super::conditions(&mut errors, at(new, "status"), &Path::new("status"));
        return errors;
    }
    validating(context, new)
}

/// MutatingAdmissionPolicy.
pub fn mutating(_context: &Context<'_>, policy: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(policy, "spec");
    common(&mut errors, spec, &path);
    // Nothing is left to change of what goes.
    for rule in items(spec, "matchConstraints.resourceRules") {
        for operation in items(rule, "operations").iter().map(|operation| operation.as_str().unwrap_or_default()) {
            let path = path.child("matchConstraints").child("resourceRules").child("operations");
            one_of(&mut errors, &path, operation, &["*", "CONNECT", "CREATE", "UPDATE"]);
        }
    }
    let mutations = items(spec, "mutations");
    if mutations.is_empty() {
        errors.required(&path.child("mutations"), "mutations must contain at least one item");
    }
    for (index, mutation) in mutations.iter().enumerate() {
        self::mutation(&mut errors, mutation, &variables(spec), &path.child("mutations").index(index));
    }
    match text(spec, "reinvocationPolicy") {
        "" => errors.required(&path.child("reinvocationPolicy"), ""),
        policy => one_of(&mut errors, &path.child("reinvocationPolicy"), policy, &["IfNeeded", "Never"]),
    }
    errors
}

/// An update of a MutatingAdmissionPolicy.
pub fn mutating_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    mutating(context, new)
}

/// ValidatingAdmissionPolicyBinding.
pub fn validating_binding(_context: &Context<'_>, binding: &Value) -> ErrorList {
    let mut errors = bound(binding);
    let path = Path::new("spec").child("validationActions");
    let actions = items(binding, "spec.validationActions");
    for (index, action) in actions.iter().enumerate() {
        one_of(&mut errors, &path.index(index), action.as_str().unwrap_or_default(), &["Audit", "Deny", "Warn"]);
        if actions[..index].contains(action) {
            errors.duplicate(&path.index(index), action.clone());
        }
    }
    let has = |name: &str| actions.iter().any(|action| action == name);
    if has("Deny") && has("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                      response and headers serves no purpose)";
        errors.invalid(&path, actions.to_vec(), detail);
    }
    policy_is_named(&mut errors, binding);
    if actions.is_empty() {
        errors.required(&path, "");
    }
    errors
}

/// An update of a ValidatingAdmissionPolicyBinding.
pub fn validating_binding_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    validating_binding(context, new)
}

/// MutatingAdmissionPolicyBinding.
pub fn mutating_binding(_context: &Context<'_>, binding: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    policy_is_named(&mut errors, binding);
    errors.extend(bound(binding));
    errors
}

/// A policy must be told.
fn policy_is_named(errors: &mut ErrorList, binding: &Value) {
    if text(binding, "spec.policyName").is_empty() {
        errors.required(&Path::new("spec").child("policyName"), "");
    }
}

/// What a policy is bound to.
fn bound(binding: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(binding, "spec");
    let name = text(spec, "policyName");
    if !name.is_empty() {
        errors.invalid_each(&path.child("policyName"), name, names::dns1123_subdomain(name));
    }
    if has(spec, "paramRef") {
        parameter(&mut errors, at(spec, "paramRef"), &path.child("paramRef"));
    }
    if has(spec, "matchResources") {
        matching(&mut errors, at(spec, "matchResources"), &path.child("matchResources"));
    }
    errors
}

/// An update of a MutatingAdmissionPolicyBinding.
pub fn mutating_binding_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    mutating_binding(context, new)
}

/// The names that a policy's expressions know.
fn variables(spec: &Value) -> Vec<&'static str> {
    let mut known = vec!["object", "oldObject", "request", "namespaceObject", "authorizer"];
    known.extend(has(spec, "paramKind").then_some("params"));
    known.extend((!items(spec, "variables").is_empty()).then_some("variables"));
    known
}

fn compiles(errors: &mut ErrorList, expression: &str, variables: &[&str], path: &Path) {
    if let Some(fault) = expressions::fault(expression, variables) {
        errors.invalid(path, expression, fault);
    }
}

/// What both policies have.
fn common(errors: &mut ErrorList, spec: &Value, path: &Path) {
    if has(spec, "failurePolicy") {
        one_of(errors, &path.child("failurePolicy"), text(spec, "failurePolicy"), &["Fail", "Ignore"]);
    }
    if has(spec, "paramKind") {
        kind(errors, at(spec, "paramKind"), &path.child("paramKind"));
    }
    let constraints = path.child("matchConstraints");
    match has(spec, "matchConstraints") {
        false => errors.required(&constraints, ""),
        true => {
            matching(errors, at(spec, "matchConstraints"), &constraints);
            if items(spec, "matchConstraints.resourceRules").is_empty() {
                errors.required(&constraints.child("resourceRules"), "");
            }
        }
    }
    conditions(errors, items(spec, "matchConditions"), &variables(spec), &path.child("matchConditions"));
    for (index, variable) in items(spec, "variables").iter().enumerate() {
        let path = path.child("variables").index(index);
        match text(variable, "name") {
            "" => errors.required(&path.child("name"), "name is not specified"),
            name if !is_identifier(name) => {
                errors.invalid(&path.child("name"), name, "must be a valid CEL identifier");
            }
            _ => {}
        }
        if text(variable, "expression").trim().is_empty() {
            errors.required(&path.child("expression"), "expression is not specified");
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(word)
}

fn kind(errors: &mut ErrorList, kind: &Value, path: &Path) {
    let version = text(kind, "apiVersion");
    let of_version = path.child("apiVersion");
    match version.matches('/').count() {
        _ if version.is_empty() => errors.required(&of_version, ""),
        0 | 1 => {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            if !group.is_empty() {
                errors.invalid_each(&of_version, group, names::dns1123_subdomain(group));
            }
            errors.invalid_each(&of_version, version, names::dns1035_label(version));
        }
        _ => errors.invalid(&of_version, version, format!("unexpected GroupVersion string: {version}")),
    }
    let name = text(kind, "kind");
    if name.is_empty() {
        return errors.required(&path.child("kind"), "");
    }
    let faults = names::dns1035_label(&name.to_lowercase());
    if !faults.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
        errors.invalid(&path.child("kind"), name, detail);
    }
}

fn matching(errors: &mut ErrorList, matching: &Value, path: &Path) {
    for field in ["namespaceSelector", "objectSelector"] {
        label_selector(errors, &path.child(field), at(matching, field));
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for (index, named) in items(matching, list).iter().enumerate() {
            let path = path.child(list).index(index);
            rule(errors, named, &path);
            let mut seen = HashSet::new();
            for (index, name) in items(named, "resourceNames").iter().enumerate() {
                let path = path.child("resourceNames").index(index);
                let text = name.as_str().unwrap_or_default();
                errors.invalid_each(&path, text, names::path_segment(text));
                if !seen.insert(text) {
                    errors.duplicate(&path, text);
                }
            }
        }
    }
    if has(matching, "matchPolicy") {
        one_of(errors, &path.child("matchPolicy"), text(matching, "matchPolicy"), &["Equivalent", "Exact"]);
    }
}

fn validation(errors: &mut ErrorList, validation: &Value, variables: &[&str], path: &Path) {
    if text(validation, "expression").trim().is_empty() {
        errors.required(&path.child("expression"), "expression is not specified");
    } else {
        compiles(errors, text(validation, "expression"), variables, &path.child("expression"));
    }
    if !text(validation, "messageExpression").trim().is_empty() {
        compiles(errors, text(validation, "messageExpression"), variables, &path.child("messageExpression"));
    }
    let message = text(validation, "message");
    if has(validation, "message") && !message.is_empty() && message.trim().is_empty() {
        errors.invalid(&path.child("message"), message, "message must be non-empty if specified");
    } else if message.contains(['\n', '\r']) {
        errors.invalid(&path.child("message"), message, "must not contain line breaks");
    }
    if has(validation, "reason") {
        let known = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
        let reason = text(validation, "reason");
        if reason != "Unauthorized" {
            one_of(errors, &path.child("reason"), reason, &known);
        }
    }
}

fn mutation(errors: &mut ErrorList, mutation: &Value, variables: &[&str], path: &Path) {
    let ty = text(mutation, "patchType");
    let forms = [("ApplyConfiguration", "applyConfiguration"), ("JSONPatch", "jsonPatch")];
    let Some((_, own)) = forms.iter().find(|(known, _)| *known == ty) else {
        return match ty {
            "" => errors.required(&path.child("patchType"), ""),
            other => one_of(errors, &path.child("patchType"), other, &["ApplyConfiguration", "JSONPatch"]),
        };
    };
    match has(mutation, own) {
        false => errors.required(&path.child(own), format!("must be specified when patchType is {ty}")),
        true if text(&mutation[*own], "expression").trim().is_empty() => {
            errors.required(&path.child(own).child("expression"), "");
        }
        true => compiles(errors, text(&mutation[*own], "expression"), variables, &path.child(own).child("expression")),
    }
    for (_, other) in forms.iter().filter(|(_, other)| other != own && has(mutation, other)) {
        let detail = format!("must not be specified when patchType is {ty}");
        errors.invalid(&path.child(other), format!("{{{other}}}"), detail);
    }
}

fn parameter(errors: &mut ErrorList, parameter: &Value, path: &Path) {
    const EITHER: &str = "name and selector are mutually exclusive";
    let name = text(parameter, "name");
    let selected = has(parameter, "selector");
    if !name.is_empty() {
        errors.invalid_each(&path.child("name"), name, names::path_segment(name));
        if selected {
            errors.forbidden(&path.child("name"), EITHER);
        }
    }
    if selected {
        label_selector(errors, &path.child("selector"), at(parameter, "selector"));
        if !name.is_empty() {
            errors.forbidden(&path.child("selector"), EITHER);
        }
    } else if name.is_empty() {
        errors.required(path, "one of name or selector must be specified");
    }
    let action = path.child("parameterNotFoundAction");
    match text(parameter, "parameterNotFoundAction") {
        "" => errors.required(&action, ""),
        other => one_of(errors, &action, other, &["Deny", "Allow"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parameters() {
        let faults = |given: Value| {
            let mut errors = ErrorList::new();
            parameter(&mut errors, &given, &Path::new("p"));
            errors.to_string()
        };
        assert_eq!(faults(json!({"name": "a", "parameterNotFoundAction": "Deny"})), "");
        assert_eq!(faults(json!({"name": "a"})), "p.parameterNotFoundAction: Required value");
        let both = json!({"name": "a", "selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}, "parameterNotFoundAction": "Deny"});
        let fields = ["p.name: ", "p.selector.matchExpressions[0].values: ", "p.selector: "];
        let told = faults(both);
        assert!(fields.iter().all(|field| told.contains(field)), "{told}");
        assert_eq!(
            faults(json!({"parameterNotFoundAction": "Deny"})),
            "p: Required value: one of name or selector must be specified"
        );
    }

    #[test]
    fn mutations() {
        let mut errors = ErrorList::new();
        mutation(&mut errors, &json!({"patchType": "JSONPatch"}), &[], &Path::new("m"));
        assert_eq!(errors.to_string(), "m.jsonPatch: Required value: must be specified when patchType is JSONPatch");
    }
}
