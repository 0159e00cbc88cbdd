//! The older form: one document a group and a version.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::cache::entry::Ordered;
use crate::config::Config;
use crate::conversion::api_version;
use crate::resource::Resource;

/// Documents by path, in JSON.
pub struct Legacy(BTreeMap<String, Bytes>);

impl Legacy {
    /// Of these resources.
    pub fn new(resources: &[Arc<Resource>], config: &Config) -> Self {
        let mut documents = BTreeMap::new();
        let address = std::net::SocketAddr::new(config.advertise_address, config.advertise_port);
        documents.insert(
            "/api".to_owned(),
            json!({"kind": "APIVersions", "versions": ["v1"],
                   "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address.to_string()}]}),
        );
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for resource in resources {
            let path = match resource.group.as_str() {
                "" => format!("/api/{}", resource.version),
                group => format!("/apis/{group}/{}", resource.version),
            };
            let document = documents.entry(path).or_insert_with(|| {
                let version = resource.api_version();
                match resource.group.as_str() {
                    "" => json!({"kind": "APIResourceList", "groupVersion": version, "resources": []}),
                    _ => {
                        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": []})
                    }
                }
            });
            if let Some(list) = document["resources"].as_array_mut() {
                list.extend(describe(resource));
                list.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
            }
            match groups.iter_mut().find(|(group, _)| *group == resource.group) {
                Some((_, versions)) if versions.contains(&resource.version.as_str()) => {}
                Some((_, versions)) => versions.push(&resource.version),
                None => groups.push((&resource.group, vec![&resource.version])),
            }
        }
        let groups: Vec<Value> = groups.into_iter().filter(|(group, _)| !group.is_empty()).map(group).collect();
        for group in &groups {
            let mut document = group.clone();
            document["kind"] = json!("APIGroup");
            document["apiVersion"] = json!("v1");
            documents.insert(format!("/apis/{}", group["name"].as_str().unwrap_or_default()), document);
        }
        documents.insert("/apis".to_owned(), json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}));
        let bytes =
            |(path, value): (String, Value)| (path, serde_json::to_vec(&Ordered(&value)).unwrap_or_default().into());
        Self(documents.into_iter().map(bytes).collect())
    }

    /// The document at a path.
    pub fn document(&self, path: &str) -> Option<&Bytes> {
        self.0.get(path)
    }

    /// All paths.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

fn group((name, versions): (&str, Vec<&str>)) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": api_version((name, version)), "version": version}))
        .collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

/// A resource and its subresources.
fn describe(resource: &Resource) -> Vec<Value> {
    let mut value = json!({
        "name": resource.name,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        value["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        value["categories"] = json!(resource.categories);
    }
    if !resource.storage_version_hash.is_empty() {
        value["storageVersionHash"] = json!(resource.storage_version_hash);
    }
    let subresources = resource.subresources.iter().map(|sub| {
        let mut value = json!({
            "name": format!("{}/{}", resource.name, sub.name),
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": sub.kind,
            "verbs": sub.verbs,
        });
        if sub.foreign {
            value["group"] = json!(sub.group);
            value["version"] = json!(sub.version);
        }
        value
    });
    std::iter::once(value).chain(subresources).collect()
}
