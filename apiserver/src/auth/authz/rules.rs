//! Rules of roles: matching a request, and one set of rules covering another.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::auth::{Attributes, texts};

/// A rule of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// Verbs, `*` for all.
    pub verbs: Vec<String>,
    /// API groups, `*` for all.
    pub groups: Vec<String>,
    /// Resources, `*` for all, `*/subresource` for one subresource of all.
    pub resources: Vec<String>,
    /// Names of objects; empty for all.
    pub names: Vec<String>,
    /// Paths that are no resources; a trailing `*` matches the rest.
    pub paths: Vec<String>,
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

impl Rule {
    /// From a `PolicyRule`.
    pub fn from_value(value: &Value) -> Self {
        Self {
            verbs: texts(&value["verbs"]),
            groups: texts(&value["apiGroups"]),
            resources: texts(&value["resources"]),
            names: texts(&value["resourceNames"]),
            paths: texts(&value["nonResourceURLs"]),
        }
    }

    /// From a list of `PolicyRule`s.
    pub fn list(value: &Value) -> Vec<Self> {
        value.as_array().into_iter().flatten().map(Self::from_value).collect()
    }

    /// As a `PolicyRule`.
    pub fn to_value(&self) -> Value {
        let mut value = json!({"verbs": self.verbs});
        let lists = [
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.paths),
        ];
        for (field, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            value[field] = json!(list);
        }
        value
    }

    /// Allows the request.
    pub fn allows(&self, request: &Attributes) -> bool {
        if !has(&self.verbs, &request.verb) {
            return false;
        }
        if !request.is_resource() {
            return self.paths.iter().any(|pattern| path_matches(pattern, &request.path));
        }
        has(&self.groups, &request.group)
            && self.resources.iter().any(|pattern| resource_matches(pattern, request))
            && (self.names.is_empty() || self.names.contains(&request.name))
    }

    /// In parts of one verb and one resource, name or path each.
    fn parts(&self) -> Vec<Self> {
        let one = |text: &String| vec![text.clone()];
        let mut parts = Vec::new();
        for verb in &self.verbs {
            for group in &self.groups {
                for resource in &self.resources {
                    let part =
                        Self { verbs: one(verb), groups: one(group), resources: one(resource), ..Self::default() };
                    match self.names.is_empty() {
                        true => parts.push(part),
                        false => parts.extend(self.names.iter().map(|name| Self { names: one(name), ..part.clone() })),
                    }
                }
            }
            parts.extend(self.paths.iter().map(|path| Self { verbs: one(verb), paths: one(path), ..Self::default() }));
        }
        parts
    }

    /// Covers a part.
    fn covers(&self, part: &Self) -> bool {
        let all = |own: &[String], wanted: &[String]| wanted.iter().all(|item| has(own, item));
        let resource = |wanted: &String| {
            let subresource = wanted.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
            has(&self.resources, wanted) || subresource.is_some_and(|any| self.resources.contains(&any))
        };
        let names = self.names.is_empty()
            || (!part.names.is_empty() && part.names.iter().all(|name| self.names.contains(name)));
        let path = |wanted: &String| {
            self.paths.iter().any(|own| own == wanted || own.strip_suffix('*').is_some_and(|p| wanted.starts_with(p)))
        };
        all(&self.verbs, &part.verbs)
            && all(&self.groups, &part.groups)
            && part.resources.iter().all(resource)
            && names
            && part.paths.iter().all(path)
    }

    /// As messages show a rule: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    pub fn describe(&self) -> String {
        let lists = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("ResourceNames", &self.names),
            ("NonResourceURLs", &self.paths),
            ("Verbs", &self.verbs),
        ];
        let parts = lists.iter().filter(|(_, list)| !list.is_empty()).map(|(field, list)| {
            let items: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
            format!("{field}:[{}]", items.join(" "))
        });
        format!("{{{}}}", parts.collect::<Vec<_>>().join(", "))
    }
}

fn path_matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == pattern,
    }
}

fn resource_matches(pattern: &str, request: &Attributes) -> bool {
    match pattern.split_once('/') {
        _ if pattern == "*" => true,
        None => pattern == request.resource && request.subresource.is_empty(),
        Some(("*", subresource)) => subresource == request.subresource,
        Some((resource, subresource)) => resource == request.resource && subresource == request.subresource,
    }
}

/// The parts of `wanted` that none of `owned` covers.
pub fn missing(owned: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let parts = wanted.iter().flat_map(Rule::parts);
    parts.filter(|part| !owned.iter().any(|own| own.covers(part))).collect()
}

/// Joins rules of one group and one resource without names into one with all their verbs.
pub fn compact(rules: &[Rule]) -> Vec<Rule> {
    let simple = |rule: &Rule| {
        rule.groups.len() == 1 && rule.resources.len() == 1 && rule.paths.is_empty() && rule.names.len() <= 1
    };
    let mut result: Vec<Rule> = Vec::new();
    for rule in rules {
        let same = |other: &&mut Rule| {
            simple(rule)
                && simple(other)
                && other.groups == rule.groups
                && other.resources == rule.resources
                && other.names == rule.names
        };
        match result.iter_mut().find(same) {
            Some(other) => {
                let known: BTreeSet<String> = other.verbs.iter().cloned().collect();
                other.verbs.extend(rule.verbs.iter().filter(|verb| !known.contains(*verb)).cloned());
            }
            None => result.push(rule.clone()),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &str, groups: &str, resources: &str, names: &str) -> Rule {
        let list = |text: &str| match text {
            "" => Vec::new(),
            text => text.split(',').map(|item| item.trim_matches('-').to_owned()).collect(),
        };
        Rule {
            verbs: list(verbs),
            groups: list(groups),
            resources: list(resources),
            names: list(names),
            paths: Vec::new(),
        }
    }

    fn paths(verbs: &[&str], paths: &[&str]) -> Rule {
        let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect();
        Rule { verbs: owned(verbs), paths: owned(paths), ..Rule::default() }
    }

    #[test]
    fn matching() {
        let request = |verb: &str, group: &str, resource: &str, name: &str| {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let mut attributes = Attributes::resource(verb, group, resource, "ns", name);
            attributes.subresource = subresource.into();
            attributes
        };
        let cases = [
            (rule("get", "-", "pods", ""), request("get", "", "pods", "a"), true),
            (rule("get", "-", "pods", ""), request("list", "", "pods", ""), false),
            (rule("get", "-", "pods", ""), request("get", "apps", "pods", "a"), false),
            (rule("get", "-", "pods", ""), request("get", "", "pods/log", "a"), false),
            (rule("get", "-", "pods/log", ""), request("get", "", "pods/log", "a"), true),
            (rule("get", "-", "*/log", ""), request("get", "", "pods/log", "a"), true),
            (rule("get", "-", "*/log", ""), request("get", "", "pods", "a"), false),
            (rule("*", "*", "*", ""), request("patch", "x", "y/z", "a"), true),
            (rule("get", "-", "pods", "a,b"), request("get", "", "pods", "b"), true),
            (rule("get", "-", "pods", "a,b"), request("get", "", "pods", "c"), false),
            (rule("get", "-", "pods", "a"), request("get", "", "pods", ""), false),
        ];
        for (rule, request, allowed) in cases {
            assert_eq!(rule.allows(&request), allowed, "{rule:?} {request:?}");
        }
        let rule = paths(&["get"], &["/api", "/apis/*"]);
        for (path, allowed) in
            [("/api", true), ("/api/", false), ("/apis/", true), ("/apis/x/y", true), ("/apis", false)]
        {
            assert_eq!(rule.allows(&Attributes::path("get", path)), allowed, "{path}");
        }
        assert!(!rule.allows(&Attributes::path("post", "/api")));
    }

    #[test]
    fn covering() {
        let cases = [
            (rule("get,list", "-", "pods,services", ""), rule("get", "-", "services", ""), 0),
            (rule("get", "-", "pods", ""), rule("get,list", "-", "pods,services", ""), 3),
            (rule("*", "*", "*", ""), rule("get", "x", "y/z", "n"), 0),
            (rule("get", "*", "*", ""), rule("*", "x", "y", ""), 1),
            (rule("get", "-", "pods", "a"), rule("get", "-", "pods", ""), 1),
            (rule("get", "-", "pods", "a"), rule("get", "-", "pods", "a,b"), 1),
            (rule("get", "-", "*/scale", ""), rule("get", "-", "x/scale", ""), 0),
            (paths(&["get"], &["/a/*"]), paths(&["get"], &["/a/b", "/c"]), 1),
        ];
        for (owned, wanted, count) in cases {
            assert_eq!(
                missing(std::slice::from_ref(&owned), std::slice::from_ref(&wanted)).len(),
                count,
                "{owned:?} {wanted:?}"
            );
        }
        let compacted = compact(&missing(&[], &[rule("get,list", "-", "pods", "")]));
        assert_eq!(compacted, [rule("get,list", "-", "pods", "")]);
        assert_eq!(compacted[0].describe(), r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#);
    }
}
