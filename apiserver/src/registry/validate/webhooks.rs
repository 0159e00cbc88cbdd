//! Errors of webhook configurations, and of the rules that they share with policies.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::{expressions, label_selector, one_of};
use crate::registry::Context;
use crate::registry::value::{at, has, items, number, text};

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const REVIEWS: &str = "v1, v1beta1";
const FORM: &str = "desired format: https://host[/path]";

/// A ValidatingWebhookConfiguration or MutatingWebhookConfiguration.
pub fn configuration(_context: &Context<'_>, configuration: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut known = HashSet::new();
    for (index, webhook) in items(configuration, "webhooks").iter().enumerate() {
        let path = Path::new("webhooks").index(index);
        one(&mut errors, webhook, &path);
        let name = text(webhook, "name");
        if !name.is_empty() && !known.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
    }
    errors
}

/// An update of one.
pub fn configuration_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    configuration(context, new)
}

fn one(errors: &mut ErrorList, webhook: &Value, path: &Path) {
    full_name(errors, text(webhook, "name"), &path.child("name"));
    for (index, rule) in items(webhook, "rules").iter().enumerate() {
        self::rule(errors, rule, &path.child("rules").index(index));
    }
    for (field, known) in [("failurePolicy", ["Fail", "Ignore"]), ("matchPolicy", ["Equivalent", "Exact"])] {
        if has(webhook, field) {
            one_of(errors, &path.child(field), text(webhook, field), &known);
        }
    }
    let effects = path.child("sideEffects");
    match has(webhook, "sideEffects") {
        true => one_of(errors, &effects, text(webhook, "sideEffects"), &["None", "NoneOnDryRun"]),
        false => errors.required(&effects, "must specify one of None, NoneOnDryRun"),
    }
    if has(webhook, "reinvocationPolicy") {
        let policy = text(webhook, "reinvocationPolicy");
        one_of(errors, &path.child("reinvocationPolicy"), policy, &["IfNeeded", "Never"]);
    }
    if let Some(seconds) = number(webhook, "timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&path.child("timeoutSeconds"), seconds, detail);
    }
    for field in ["namespaceSelector", "objectSelector"] {
        label_selector(errors, &path.child(field), at(webhook, field));
    }
    client(errors, at(webhook, "clientConfig"), &path.child("clientConfig"));
    let variables = ["object", "oldObject", "request", "authorizer"];
    conditions(errors, items(webhook, "matchConditions"), &variables, &path.child("matchConditions"));
    reviews(errors, items(webhook, "admissionReviewVersions"), &path.child("admissionReviewVersions"));
}

/// Versions of the question that a webhook understands.
pub fn reviews(errors: &mut ErrorList, versions: &[Value], path: &Path) {
    if versions.is_empty() {
        return errors.required(path, format!("must specify one of {REVIEWS}"));
    }
    let mut known = HashSet::new();
    for (index, version) in versions.iter().enumerate() {
        let version = version.as_str().unwrap_or_default();
        if !known.insert(version) {
            errors.invalid(&path.index(index), version, "duplicate version");
            continue;
        }
        errors.invalid_each(&path.index(index), version, names::dns1035_label(version));
    }
    if !known.iter().any(|version| matches!(*version, "v1" | "v1beta1")) {
        errors.invalid(path, versions.to_vec(), format!("must include at least one of {REVIEWS}"));
    }
}

fn full_name(errors: &mut ErrorList, name: &str, path: &Path) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let faults = names::dns1123_subdomain(name);
    if faults.is_empty() && name.matches('.').count() < 2 {
        errors.invalid(path, name, "should be a domain with at least three segments separated by dots");
    }
    errors.invalid_each(path, name, faults);
}

/// What operations on what resources something is about.
pub fn rule(errors: &mut ErrorList, rule: &Value, path: &Path) {
    let operations = items(rule, "operations");
    starred(errors, operations, &path.child("operations"), "operations");
    for (index, operation) in operations.iter().enumerate() {
        let path = path.child("operations").index(index);
        one_of(errors, &path, operation.as_str().unwrap_or_default(), &OPERATIONS);
    }
    starred(errors, items(rule, "apiGroups"), &path.child("apiGroups"), "API groups");
    let versions = items(rule, "apiVersions");
    starred(errors, versions, &path.child("apiVersions"), "API versions");
    for (index, _) in versions.iter().enumerate().filter(|(_, version)| **version == "") {
        errors.required(&path.child("apiVersions").index(index), "");
    }
    resources(errors, items(rule, "resources"), &path.child("resources"));
    if has(rule, "scope") {
        one_of(errors, &path.child("scope"), text(rule, "scope"), &["*", "Cluster", "Namespaced"]);
    }
}

fn starred(errors: &mut ErrorList, list: &[Value], path: &Path, what: &str) {
    if list.is_empty() {
        errors.required(path, "");
    }
    if list.len() > 1 && list.iter().any(|item| item == "*") {
        errors.invalid(path, list.to_vec(), format!("if '*' is present, must not specify other {what}"));
    }
}

fn resources(errors: &mut ErrorList, list: &[Value], path: &Path) {
    if list.is_empty() {
        return errors.required(path, "");
    }
    let named: Vec<&str> = list.iter().map(|resource| resource.as_str().unwrap_or_default()).collect();
    for (at, resource) in named.iter().enumerate() {
        let path = path.index(at);
        if resource.is_empty() {
            errors.required(&path, "");
            continue;
        }
        let Some((main, sub)) = resource.split_once('/') else { continue };
        let before = &named[..at];
        let (all, any) = (format!("{main}/*"), format!("*/{sub}"));
        let fault = |star: &str| format!("if '{star}' is present, must not specify {resource}");
        if before.contains(&all.as_str()) {
            errors.invalid(&path, *resource, fault(&all));
        } else if before.contains(&any.as_str()) {
            errors.invalid(&path, *resource, fault(&any));
        }
    }
    if named.len() > 1 && named.contains(&"*/*") {
        errors.invalid(path, list.to_vec(), "if '*/*' is present, must not specify other resources");
    }
    let plain = named.iter().filter(|resource| !resource.contains('/')).count();
    if named.contains(&"*") && plain > 1 {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(path, list.to_vec(), detail);
    }
}

/// Conditions under which something is asked at all.
pub fn conditions(errors: &mut ErrorList, conditions: &[Value], variables: &[&str], path: &Path) {
    const MOST: usize = 64;
    if conditions.len() > MOST {
        errors.too_many(path, conditions.len(), MOST);
    }
    let mut known = HashSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let expression = text(condition, "expression");
        if expression.trim().is_empty() {
            errors.required(&path.child("expression"), "");
        } else if let Some(fault) = expressions::fault(expression, variables) {
            errors.invalid(&path.child("expression"), expression, fault);
        }
        match text(condition, "name") {
            "" => errors.required(&path.child("name"), ""),
            name => {
                errors.invalid_each(&path.child("name"), name, names::qualified(name));
                if !known.insert(name) {
                    errors.duplicate(&path.child("name"), name);
                }
            }
        }
    }
}

/// Where a webhook is.
pub fn client(errors: &mut ErrorList, client: &Value, path: &Path) {
    match (has(client, "url"), has(client, "service")) {
        (true, false) => url(errors, text(client, "url"), &path.child("url")),
        (false, true) => service(errors, at(client, "service"), &path.child("service")),
        _ => errors.required(path, "exactly one of url or service is required"),
    }
}

fn url(errors: &mut ErrorList, url: &str, path: &Path) {
    if let Some(fault) = url_fault(url) {
        return errors.required(path, format!("url must be a valid URL: parse \"{url}\": {fault}; {FORM}"));
    }
    // What has no scheme is the path of one that is not told.
    let letter = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let told = |scheme: &str| scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(letter);
    let (scheme, rest) = url.split_once(':').filter(|(scheme, _)| told(scheme)).unwrap_or(("", url));
    if scheme != "https" {
        errors.invalid(path, scheme, format!("'https' is the only allowed URL scheme; {FORM}"));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.strip_prefix("//").and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if host.is_empty() {
        errors.invalid(path, host, format!("host must be specified; {FORM}"));
    }
    if let Some(user) = user {
        errors.invalid(path, user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        errors.invalid(path, fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        errors.invalid(path, query, "query parameters are not permitted in the URL");
    }
}

/// Upstream leaves out the first byte, whatever it is: what is left of a letter of two bytes is in no name.
fn cut(text: &str) -> &str {
    if text.is_char_boundary(1) { &text[1..] } else { text }
}

/// What makes a text no URL at all.
fn url_fault(url: &str) -> Option<String> {
    if url.starts_with(':') {
        return Some("missing protocol scheme".to_owned());
    }
    let host = url.split_once("//").map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
    if let Some(bad) = host.and_then(|host| host.chars().find(|c| " <>\"".contains(*c))) {
        return Some(format!("invalid character {bad:?} in host name").replace('\'', "\""));
    }
    let escapes = url.match_indices('%').map(|(at, _)| &url[at..]);
    let whole =
        |escape: &&str| escape.as_bytes().iter().skip(1).take(2).filter(|byte| byte.is_ascii_hexdigit()).count() == 2;
    let broken = escapes.into_iter().find(|escape| !whole(escape))?;
    let shown: String = broken.chars().take(3).collect();
    Some(format!("invalid URL escape \"{shown}\""))
}

fn service(errors: &mut ErrorList, service: &Value, path: &Path) {
    // Upstream looks for the one and names the other.
    for (field, told) in [("namespace", "name"), ("name", "namespace")] {
        if text(service, field).is_empty() {
            errors.required(&path.child(told), "");
        }
    }
    if let Some(port) = number(service, "port")
        && let Some(fault) = names::port_number(port)
    {
        errors.invalid(&path.child("port"), port, format!("port is not valid: {fault}"));
    }
    let given = text(service, "path");
    if given.is_empty() || given == "/" {
        return;
    }
    let path = path.child("path");
    if !given.starts_with('/') {
        errors.invalid(&path, given, "must start with a '/'");
    }
    let whole = given.strip_suffix('/').unwrap_or(given);
    let segments: Vec<&str> = match whole.is_empty() {
        true => Vec::new(),
        false => whole.strip_prefix('/').unwrap_or_else(|| cut(whole)).split('/').collect(),
    };
    for (index, segment) in segments.into_iter().enumerate() {
        if segment.is_empty() {
            errors.invalid(&path, given, format!("segment[{index}] may not be empty"));
            continue;
        }
        for fault in names::dns1123_subdomain(segment) {
            errors.push(FieldError::new(Fault::Invalid, &path, given, format!("segment[{index}]: {fault}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn urls() {
        let faults = |given: &str| {
            let mut errors = ErrorList::new();
            url(&mut errors, given, &Path::new("u"));
            errors.to_string()
        };
        for (given, expected) in [
            ("https://x.y/z", ""),
            (
                "http://x",
                "u: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
            ),
            ("https://x?a=b", "u: Invalid value: \"a=b\": query parameters are not permitted in the URL"),
            ("https://u:p@x", "u: Invalid value: \"u:p\": user information is not permitted in the URL"),
            ("https:///x", "u: Invalid value: \"\": host must be specified; desired format: https://host[/path]"),
        ] {
            assert_eq!(faults(given), expected);
        }
    }

    #[test]
    fn rules() {
        let faults = |resources: Value| {
            let mut errors = ErrorList::new();
            let given = json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": resources});
            rule(&mut errors, &given, &Path::new("r"));
            errors.to_string()
        };
        assert_eq!(faults(json!(["pods", "pods/status"])), "");
        assert_eq!(
            faults(json!(["pods/*", "pods/x"])),
            "r.resources[1]: Invalid value: \"pods/x\": if 'pods/*' is present, must not specify pods/x"
        );
    }
}
