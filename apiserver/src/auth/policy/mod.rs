//! The RBAC objects that every cluster starts with, and how they are brought into a cluster that has them already.
//!
//! `table.txt` has an object a line, rules of roles indented below it:
//! ```text
//! ClusterRole NAME [part-of AGGREGATE]… [collects AGGREGATE]…
//! Role NAMESPACE/NAME
//!   VERBS GROUPS RESOURCES [named NAMES]       lists with commas; - is the core group
//!   VERBS paths URLS
//! ClusterRoleBinding NAME ROLE SUBJECT…        user:NAME, group:NAME or sa:NAMESPACE/NAME
//! RoleBinding NAMESPACE/NAME ROLE SUBJECT…
//! ```

pub mod plan;

use std::sync::OnceLock;

use serde_json::{Value, json};

use super::RBAC_GROUP;

const TABLE: &str = include_str!("table.txt");
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";
/// Annotation that lets the server bring an object up to date.
pub const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// An object of the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyObject {
    /// Plural resource name.
    pub resource: &'static str,
    /// Namespace; empty for cluster roles and their bindings.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The object as it is written.
    pub value: Value,
}

/// All objects of the policy: roles first.
pub fn objects() -> &'static [PolicyObject] {
    static OBJECTS: OnceLock<Vec<PolicyObject>> = OnceLock::new();
    OBJECTS.get_or_init(|| parse(TABLE))
}

fn parse(table: &str) -> Vec<PolicyObject> {
    let mut objects: Vec<PolicyObject> = Vec::new();
    for line in table.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with(' ') {
            let rules = objects.last_mut().and_then(|role| role.value["rules"].as_array_mut());
            if let (Some(rules), Some(rule)) = (rules, rule(&words)) {
                rules.push(rule);
            }
        } else if let Some(object) = object(&words) {
            objects.push(object);
        }
    }
    for object in &mut objects {
        if object.value["aggregationRule"].is_object() {
            object.value["rules"] = Value::Null;
        }
    }
    objects
}

fn object(words: &[&str]) -> Option<PolicyObject> {
    let (kind, name, rest) = match words {
        [kind, name, rest @ ..] => (*kind, *name, rest),
        _ => return None,
    };
    let (namespace, name) = match kind {
        "Role" | "RoleBinding" => name.split_once('/')?,
        _ => ("", name),
    };
    let mut value = json!({
        "kind": kind,
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {AUTOUPDATE: "true"},
        },
    });
    if !namespace.is_empty() {
        value["metadata"]["namespace"] = json!(namespace);
    }
    let resource = match kind {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "RoleBinding" => "rolebindings",
        _ => return None,
    };
    match rest {
        [role, subjects @ ..] if kind.ends_with("Binding") => {
            value["roleRef"] = json!({"apiGroup": RBAC_GROUP, "kind": kind.trim_end_matches("Binding"), "name": role});
            if !subjects.is_empty() {
                value["subjects"] = subjects.iter().filter_map(|text| subject(text)).collect();
            }
        }
        _ => fill_role(&mut value, rest),
    }
    Some(PolicyObject { resource, namespace: namespace.into(), name: name.into(), value })
}

fn fill_role(value: &mut Value, words: &[&str]) {
    value["rules"] = json!([]);
    let mut selectors = Vec::new();
    for pair in words.chunks(2) {
        match pair {
            ["part-of", aggregate] => value["metadata"]["labels"][format!("{AGGREGATE}{aggregate}")] = json!("true"),
            ["collects", aggregate] => {
                selectors.push(json!({"matchLabels": {format!("{AGGREGATE}{aggregate}"): "true"}}))
            }
            _ => {}
        }
    }
    if !selectors.is_empty() {
        value["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
    }
}

fn subject(text: &str) -> Option<Value> {
    let (kind, name) = text.split_once(':')?;
    Some(match kind {
        "user" => json!({"kind": "User", "apiGroup": RBAC_GROUP, "name": name}),
        "group" => json!({"kind": "Group", "apiGroup": RBAC_GROUP, "name": name}),
        _ => {
            let (namespace, name) = name.split_once('/')?;
            json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
        }
    })
}

fn rule(words: &[&str]) -> Option<Value> {
    let list = |text: &str| Value::from_iter(text.split(',').map(|item| if item == "-" { "" } else { item }));
    Some(match words {
        [verbs, "paths", urls] => json!({"verbs": list(verbs), "nonResourceURLs": list(urls)}),
        [verbs, groups, resources] => {
            json!({"verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources)})
        }
        [verbs, groups, resources, "named", names] => json!({
            "verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources), "resourceNames": list(names)
        }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_understood() {
        let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (rules, heads): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with(' '));
        assert_eq!(objects().len(), heads.len());
        let parsed: usize = objects().iter().filter_map(|o| o.value["rules"].as_array()).map(Vec::len).sum();
        assert_eq!(parsed, rules.len());
        let subjects: usize = objects().iter().filter_map(|o| o.value["subjects"].as_array()).map(Vec::len).sum();
        let bindings = heads.iter().filter(|line| line.split(' ').next().is_some_and(|kind| kind.ends_with("Binding")));
        assert_eq!(subjects, bindings.map(|line| line.split_whitespace().count() - 3).sum::<usize>());
    }

    #[test]
    fn samples() {
        let find = |name| objects().iter().find(|object| object.name == name).map(|object| &object.value);
        let admin = find("admin").expect("admin");
        assert_eq!(
            admin["aggregationRule"],
            json!({"clusterRoleSelectors": [{"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}}]})
        );
        assert_eq!(
            find("edit").expect("edit")["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"],
            "true"
        );
        assert_eq!(
            find("cluster-admin").expect("cluster-admin")["rules"],
            json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}])
        );
    }

    /// Compares with a running upstream server: `PINTLE_UPSTREAM_RBAC` is a file with the items of its four RBAC lists.
    #[test]
    fn equals_what_upstream_serves() {
        let Some(file) = std::env::var_os("PINTLE_UPSTREAM_RBAC") else { return };
        let theirs: Value = serde_json::from_slice(&std::fs::read(file).expect("file")).expect("JSON");
        let key = |value: &Value| {
            format!("{} {} {}", value["kind"], value["metadata"]["namespace"], value["metadata"]["name"])
        };
        let mut theirs: Vec<Value> = theirs["items"].as_array().expect("items").clone();
        for object in &mut theirs {
            let metadata = object["metadata"].as_object_mut().expect("metadata");
            metadata.retain(|field, _| ["name", "namespace", "labels", "annotations"].contains(&field.as_str()));
        }
        let mut ours: Vec<Value> = objects().iter().map(|object| object.value.clone()).collect();
        theirs.sort_by_key(key);
        ours.sort_by_key(key);
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs);
        }
        assert_eq!(ours.len(), theirs.len());
    }
}
