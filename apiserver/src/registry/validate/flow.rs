//! Errors of FlowSchemas and PriorityLevelConfigurations.

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::{Value, json};

use super::one_of;
use crate::registry::Context;
use crate::registry::value::{at, flag, has, int, items, number, text};

const VERBS: [&str; 9] = ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
const LAST_PRECEDENCE: i64 = 10_000;
const MOST_QUEUES: i64 = 10_000_000;
/// More than so many queues of a hand are over any entropy, however few queues there are.
const MOST_DEALT: i64 = 1000;
/// How much choice a hand of queues may have, in bits.
const MOST_ENTROPY: f64 = 60.0;

/// FlowSchema.
pub fn schema(_context: &Context<'_>, schema: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(schema, "spec");
    let precedence = int(spec, "matchingPrecedence");
    let of_precedence = path.child("matchingPrecedence");
    if precedence <= 0 {
        errors.invalid(&of_precedence, precedence, "must be a positive value");
    }
    if precedence > LAST_PRECEDENCE {
        errors.invalid(&of_precedence, precedence, format!("must not be greater than {LAST_PRECEDENCE}"));
    }
    if precedence == 1 && text(schema, "metadata.name") != "exempt" {
        let detail = "only the schema named 'exempt' may have matchingPrecedence 1";
        errors.invalid(&of_precedence, precedence, detail);
    }
    let method = text(spec, "distinguisherMethod.type");
    if has(spec, "distinguisherMethod") && !matches!(method, "ByNamespace" | "ByUser") {
        let detail = "supported values: \"ByNamespace\", \"ByUser\"";
        let path = path.child("distinguisherMethod").child("type");
        errors.push(FieldError::new(Fault::NotSupported, &path, json!({"Type": method}), detail));
    }
    let level = path.child("priorityLevelConfiguration").child("name");
    match text(spec, "priorityLevelConfiguration.name") {
        "" => errors.required(&level, "must reference a priority level"),
        name => errors.invalid_each(&level, name, names::dns1123_subdomain(name)),
    }
    for (index, rule) in items(spec, "rules").iter().enumerate() {
        self::rule(&mut errors, rule, &path.child("rules").index(index));
    }
    conditions(&mut errors, schema);
    errors
}

/// An update of a FlowSchema.
pub fn schema_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    schema(context, new)
}

fn conditions(errors: &mut ErrorList, object: &Value) {
    let mut known = Vec::new();
    for (index, condition) in items(object, "status.conditions").iter().enumerate() {
        let path = Path::new("status").child("conditions").index(index).child("type");
        match text(condition, "type") {
            "" => errors.required(&path, ""),
            ty if known.contains(&ty) => errors.duplicate(&path, ty),
            ty => known.push(ty),
        }
    }
}

fn rule(errors: &mut ErrorList, rule: &Value, path: &Path) {
    let subjects = items(rule, "subjects");
    if subjects.is_empty() {
        errors.required(&path.child("subjects"), "subjects must contain at least one value");
    }
    for (index, subject) in subjects.iter().enumerate() {
        self::subject(errors, subject, &path.child("subjects").index(index));
    }
    let (resources, others) = (items(rule, "resourceRules"), items(rule, "nonResourceRules"));
    if resources.is_empty() && others.is_empty() {
        errors.required(path, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    for (index, rule) in resources.iter().enumerate() {
        resource_rule(errors, rule, &path.child("resourceRules").index(index));
    }
    for (index, rule) in others.iter().enumerate() {
        other_rule(errors, rule, &path.child("nonResourceRules").index(index));
    }
}

fn subject(errors: &mut ErrorList, subject: &Value, path: &Path) {
    const KINDS: [(&str, &str); 3] = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = text(subject, "kind");
    let Some((_, own)) = KINDS.iter().find(|(known, _)| *known == kind) else {
        return errors.not_supported(&path.child("kind"), kind, &["Group", "ServiceAccount", "User"]);
    };
    let of_own = path.child(own);
    let named = at(subject, own);
    if named.is_null() {
        errors.required(&of_own, format!("{own} is required when subject kind is '{kind}'"));
    } else {
        named_subject(errors, own, named, &of_own);
    }
    for (kind, other) in KINDS.iter().filter(|(_, other)| other != own && has(subject, other)) {
        errors.forbidden(&path.child(other), format!("{other} is forbidden when subject kind is not '{kind}'"));
    }
}

fn named_subject(errors: &mut ErrorList, own: &str, named: &Value, path: &Path) {
    let name = text(named, "name");
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    } else if own == "serviceAccount" && name != "*" {
        errors.invalid_each(&path.child("name"), name, names::dns1123_subdomain(name));
    }
    if own == "serviceAccount" {
        match text(named, "namespace") {
            "" => errors.required(&path.child("namespace"), "must specify namespace for service account"),
            namespace => errors.invalid_each(&path.child("namespace"), namespace, names::dns1123_label(namespace)),
        }
    }
}

/// A list in which a star stands alone.
fn starred(errors: &mut ErrorList, holder: &Value, field: &str, path: &Path, empty: &str, others: &str) {
    let list = items(holder, field);
    let path = path.child(field);
    if list.is_empty() {
        errors.required(&path, empty);
    } else if list.len() > 1 && list.iter().any(|item| item == "*") {
        errors.invalid(&path, list.to_vec(), format!("if '*' is present, must not specify other {others}"));
    }
}

fn verbs(errors: &mut ErrorList, rule: &Value, path: &Path) {
    starred(errors, rule, "verbs", path, "verbs must contain at least one value", "verbs");
    let list = items(rule, "verbs");
    let known = |verb: &Value| verb.as_str().is_some_and(|verb| verb == "*" || VERBS.contains(&verb));
    if !list.iter().all(known) {
        errors.not_supported(&path.child("verbs"), list.to_vec(), &VERBS);
    }
}

fn resource_rule(errors: &mut ErrorList, rule: &Value, path: &Path) {
    verbs(errors, rule, path);
    let detail = "resource rules must supply at least one api group";
    starred(errors, rule, "apiGroups", path, detail, "api groups");
    starred(errors, rule, "resources", path, "resource rules must supply at least one resource", "resources");
    let namespaces = items(rule, "namespaces");
    if namespaces.is_empty() && !flag(rule, "clusterScope") {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.required(&path.child("namespaces"), detail);
    } else if !namespaces.is_empty() {
        starred(errors, rule, "namespaces", path, "", "namespaces");
        for (index, namespace) in namespaces.iter().enumerate() {
            let namespace = namespace.as_str().unwrap_or_default();
            let faults = if namespace == "*" { Vec::new() } else { names::dns1123_label(namespace) };
            for fault in faults {
                let detail = format!("each member of this list must be '*' or a DNS-1123 label; {fault}");
                errors.invalid(&path.child("namespaces").index(index), namespace, detail);
            }
        }
    }
}

fn other_rule(errors: &mut ErrorList, rule: &Value, path: &Path) {
    verbs(errors, rule, path);
    let detail = "nonResourceURLs must contain at least one value";
    starred(errors, rule, "nonResourceURLs", path, detail, "non-resource URLs");
    for (index, url) in items(rule, "nonResourceURLs").iter().enumerate() {
        let url = url.as_str().unwrap_or_default();
        if let Some(detail) = url_fault(url) {
            errors.invalid(&path.child("nonResourceURLs").index(index), url, detail);
        }
    }
}

fn url_fault(url: &str) -> Option<&'static str> {
    match url {
        "" => return Some("must not be empty"),
        "/" | "*" => return None,
        _ => {}
    }
    if !url.starts_with('/') {
        Some("must start with slash")
    } else if url.contains(' ') {
        Some("must not contain white-space")
    } else if url.contains("//") {
        Some("must not contain double slash")
    } else if url.contains('*') && !(url.matches('*').count() == 1 && url.ends_with("/*")) {
        Some("wildcard can only do suffix matching")
    } else {
        None
    }
}

/// PriorityLevelConfiguration.
pub fn level(_context: &Context<'_>, level: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(level, "spec");
    let ty = text(spec, "type");
    let is_exempt = text(level, "metadata.name") == "exempt";
    if (ty == "Exempt") != is_exempt && (is_exempt || ty == "Exempt") {
        let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.invalid(&path.child("type"), ty, detail);
    }
    let forbid = |errors: &mut ErrorList, field: &str| {
        if has(spec, field) {
            errors.forbidden(&path.child(field), "");
        }
    };
    match ty {
        "Exempt" => {
            forbid(&mut errors, "limited");
            percent(&mut errors, at(spec, "exempt"), &path.child("exempt"));
        }
        "Limited" => {
            match has(spec, "limited") {
                true => limited(&mut errors, at(spec, "limited"), &path.child("limited")),
                false => errors.required(&path.child("limited"), ""),
            }
            forbid(&mut errors, "exempt");
        }
        "" => {
            forbid(&mut errors, "limited");
            errors.required(&path.child("type"), "");
        }
        _ => {
            one_of(&mut errors, &path.child("type"), ty, &["Exempt", "Limited"]);
            forbid(&mut errors, "exempt");
            forbid(&mut errors, "limited");
        }
    }
    // Of what isn't for its type upstream's declared rules still say what is lacking.
    if !matches!(ty, "Exempt" | "Limited") && has(spec, "limited") {
        let (response, path) = (at(spec, "limited.limitResponse"), path.child("limited").child("limitResponse"));
        match text(response, "type") {
            "" => errors.required(&path.child("type"), ""),
            "Queue" if at(response, "queuing").is_null() => errors.required(&path.child("queuing"), ""),
            _ => {}
        }
    }
    conditions(&mut errors, level);
    errors
}

/// An update of a PriorityLevelConfiguration.
pub fn level_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    level(context, new)
}

fn percent(errors: &mut ErrorList, holder: &Value, path: &Path) {
    if let Some(shares) = number(holder, "nominalConcurrencyShares").filter(|shares| *shares < 0) {
        errors.invalid(&path.child("nominalConcurrencyShares"), shares, "must be a non-negative integer");
    }
    if let Some(percent) = number(holder, "lendablePercent").filter(|percent| !(0..=100).contains(percent)) {
        errors.invalid(&path.child("lendablePercent"), percent, "must be between 0 and 100, inclusive");
    }
}

fn limited(errors: &mut ErrorList, limited: &Value, path: &Path) {
    percent(errors, limited, path);
    if let Some(percent) = number(limited, "borrowingLimitPercent").filter(|percent| *percent < 0) {
        errors.invalid(&path.child("borrowingLimitPercent"), percent, "if specified, must be a non-negative integer");
    }
    let path = path.child("limitResponse");
    let response = at(limited, "limitResponse");
    let queuing = at(response, "queuing");
    let ty = text(response, "type");
    if !matches!(ty, "" | "Queue" | "Reject") {
        one_of(errors, &path.child("type"), ty, &["Queue", "Reject"]);
    }
    if ty != "Queue" && !queuing.is_null() {
        errors.forbidden(&path.child("queuing"), "");
    }
    match ty {
        "Queue" if queuing.is_null() => errors.required(&path.child("queuing"), ""),
        "Queue" => queues(errors, queuing, &path.child("queuing")),
        "" => errors.required(&path.child("type"), ""),
        _ => {}
    }
}

fn queues(errors: &mut ErrorList, queuing: &Value, path: &Path) {
    let (queues, hand, length) = (int(queuing, "queues"), int(queuing, "handSize"), int(queuing, "queueLengthLimit"));
    if length <= 0 {
        errors.invalid(&path.child("queueLengthLimit"), length, "must be positive");
    }
    if queues <= 0 {
        errors.invalid(&path.child("queues"), queues, "must be positive");
    }
    if queues > MOST_QUEUES {
        errors.invalid(&path.child("queues"), queues, format!("must not be greater than {MOST_QUEUES}"));
    }
    let hand_path = path.child("handSize");
    if hand <= 0 {
        errors.invalid(&hand_path, hand, "must be positive");
    } else if hand > queues {
        errors.invalid(&hand_path, hand, format!("should not be greater than queues ({queues})"));
    } else if (0..hand.min(MOST_DEALT)).map(|dealt| ((queues - dealt) as f64).log2()).sum::<f64>().ceil() > MOST_ENTROPY
    {
        let detail =
            format!("required entropy bits of deckSize {queues} and handSize {hand} should not be greater than 60");
        errors.invalid(&hand_path, hand, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (url, fault) in [
            ("/healthz", None),
            ("*", None),
            ("/a/*", None),
            ("a", Some("must start with slash")),
            ("/a*", Some("wildcard can only do suffix matching")),
            ("/a//b", Some("must not contain double slash")),
            ("", Some("must not be empty")),
        ] {
            assert_eq!(url_fault(url), fault, "{url}");
        }
    }

    #[test]
    fn hands() {
        let faults = |queues: i64, hand: i64| {
            let mut errors = ErrorList::new();
            let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": 50});
            super::queues(&mut errors, &queuing, &Path::new("q"));
            errors.to_string()
        };
        assert_eq!(faults(64, 6), "");
        assert_eq!(faults(64, 65), "q.handSize: Invalid value: 65: should not be greater than queues (64)");
        assert!(faults(512, 20).contains("required entropy bits"));
    }
}
