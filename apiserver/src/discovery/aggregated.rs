//! The aggregated form: everything in one document (`apidiscovery.k8s.io/v2`).

use std::sync::Arc;

use serde_json::{Value, json};

use crate::resource::{Resource, Subresource};

/// Versions with their resources' descriptions.
type Versions<'a> = Vec<(&'a str, Vec<Value>)>;

/// The document of the core group or of all others.
pub fn document(resources: &[Arc<Resource>], core: bool) -> Value {
    let mut groups: Vec<(&str, Versions<'_>)> = Vec::new();
    for resource in resources.iter().filter(|resource| resource.group.is_empty() == core) {
        let at = match groups.iter().position(|(group, _)| *group == resource.group) {
            Some(at) => at,
            None => {
                groups.push((&resource.group, Vec::new()));
                groups.len() - 1
            }
        };
        let versions = &mut groups[at].1;
        match versions.iter_mut().find(|(version, _)| *version == resource.version) {
            Some((_, list)) => list.push(describe(resource)),
            None => versions.push((&resource.version, vec![describe(resource)])),
        }
    }
    let items: Vec<Value> = groups
        .into_iter()
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .into_iter()
                .map(|(version, resources)| json!({"version": version, "resources": resources, "freshness": "Current"}))
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn describe(resource: &Resource) -> Value {
    let mut value = json!({
        "resource": resource.name,
        "responseKind": {"group": "", "version": "", "kind": resource.kind},
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        value["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        value["categories"] = json!(resource.categories);
    }
    if !resource.subresources.is_empty() {
        value["subresources"] = resource.subresources.iter().map(describe_subresource).collect();
    }
    value
}

fn describe_subresource(sub: &Subresource) -> Value {
    let (group, version) = if sub.foreign { (sub.group.as_str(), sub.version.as_str()) } else { ("", "") };
    json!({
        "subresource": sub.name,
        "responseKind": {"group": group, "version": version, "kind": sub.kind},
        "verbs": sub.verbs,
    })
}
