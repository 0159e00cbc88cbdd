//! Reads a definition into the resources that it defines, one for each version that is served.

use std::cmp::Reverse;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pintle_machinery::schema::{Gvk, Schema};
use serde_json::Value;

use super::jsonpath::JsonPath;
use super::schema::{self, Node};
use super::{Custom, Scale, columns};
use crate::cache::Cache;
use crate::conversion::api_version;
use crate::registry;
use crate::resource::{Resource, Subresource};

/// Verbs of custom resources, in discovery's order.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
/// Verbs of their subresources.
const SUB_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The status of a condition is that.
pub fn is(definition: &Value, condition: &str, status: &str) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|found| found["type"] == condition && found["status"] == status)
}

/// Prefix of the objects' keys in the store.
pub fn prefix(definition: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("/registry/{}/{}/", text(&definition["spec"]["group"]), text(&definition["spec"]["names"]["plural"]))
}

/// The resources of a definition, the preferred version first.
pub fn resources(definition: &Value, builtin: &Schema, cache: &Arc<Cache>) -> Vec<Resource> {
    let spec = &definition["spec"];
    let mut versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    versions.sort_by_key(|version| Reverse(priority(version["name"].as_str().unwrap_or_default())));
    let storage = versions.iter().find(|version| version["storage"] == true).map(|version| &version["name"]);
    let storage = storage.and_then(Value::as_str).unwrap_or_default();
    versions
        .into_iter()
        .filter(|version| version["served"] == true)
        .map(|version| resource(definition, version, storage, builtin, cache))
        .collect()
}

fn resource(definition: &Value, version: &Value, storage: &str, builtin: &Schema, cache: &Arc<Cache>) -> Resource {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let (spec, names) = (&definition["spec"], &definition["status"]["acceptedNames"]);
    let (group, name) = (text(&spec["group"]), text(&version["name"]));
    let custom = custom(definition, version, builtin);
    let verbs = || SUB_VERBS.map(str::to_owned).to_vec();
    let kind = custom.kind.kind.clone();
    let mut subresources = Vec::new();
    if custom.has_status {
        let (group, version) = (group.clone(), name.clone());
        let kind = kind.clone();
        subresources.push(Subresource { name: "status".into(), group, version, foreign: false, kind, verbs: verbs() });
    }
    if custom.scale.is_some() {
        let (group, version) = ("autoscaling".into(), "v1".into());
        let kind = "Scale".into();
        subresources.push(Subresource { name: "scale".into(), group, version, foreign: true, kind, verbs: verbs() });
    }
    Resource {
        version: name,
        name: text(&names["plural"]),
        singular: text(&names["singular"]),
        namespaced: spec["scope"] == "Namespaced",
        verbs: VERBS.map(str::to_owned).to_vec(),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        storage_version_hash: version_hash(&group, storage, &kind),
        kind,
        subresources,
        returns_deleted: false,
        storage: (group.clone(), storage.to_owned()),
        group,
        cache: Some(cache.clone()),
        rules: &registry::CUSTOM,
        custom: Some(Arc::new(custom)),
    }
}

fn custom(definition: &Value, version: &Value, builtin: &Schema) -> Custom {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (spec, names) = (&definition["spec"], &definition["status"]["acceptedNames"]);
    let kind = Gvk { group: text(&spec["group"]), version: text(&version["name"]), kind: text(&names["kind"]) };
    let given = version["schema"]["openAPIV3Schema"].clone();
    let mut node = Node::read(&given);
    // Of old: definitions that came by v1beta1 may keep everything.
    node.preserve |= spec["preserveUnknownFields"] == true;
    let fields = version["selectableFields"].as_array().into_iter().flatten();
    let path = |value: &Value| value.as_str().and_then(JsonPath::parse);
    let scale = &version["subresources"]["scale"];
    let scale = || {
        let (wanted, actual) = (path(&scale["specReplicasPath"])?, path(&scale["statusReplicasPath"])?);
        Some(Scale { wanted, actual, selector: path(&scale["labelSelectorPath"]) })
    };
    let deprecated = version["deprecated"] == true;
    let warning = || match version["deprecationWarning"].as_str() {
        Some(own) => own.to_owned(),
        None => format!("{} {} is deprecated", api_version((&kind.group, &kind.version)), kind.kind),
    };
    Custom {
        types: schema::compile(&kind, &node, builtin),
        node,
        given,
        list_kind: text(&names["listKind"]),
        columns: columns::of(version),
        fields: fields.map(|field| text(&field["jsonPath"]).trim_start_matches('.').to_owned()).collect(),
        scale: scale(),
        has_status: version["subresources"]["status"].is_object(),
        deprecation: deprecated.then(warning),
        kind,
    }
}

/// What discovery shows of the stored version.
fn version_hash(group: &str, version: &str, kind: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, format!("{group}/{version}/{kind}").as_bytes());
    STANDARD.encode(&digest.as_ref()[..8])
}

/// Orders versions as Kubernetes does: `v2` before `v1` before `v1beta1` before `v1alpha1` before all others, which go by
/// their names. The greatest is preferred.
pub fn priority(version: &str) -> (u8, u64, u64, Reverse<String>) {
    let other = (0, 0, 0, Reverse(version.to_owned()));
    let Some(rest) = version.strip_prefix('v') else { return other };
    let (major, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    let Ok(major) = major.parse() else { return other };
    let level =
        [("alpha", 1), ("beta", 2)].into_iter().find_map(|(name, level)| Some((level, rest.strip_prefix(name)?)));
    match (rest, level.map(|(level, minor)| (level, minor.parse()))) {
        ("", _) => (3, major, 0, Reverse(String::new())),
        (_, Some((level, Ok(minor)))) => (level, major, minor, Reverse(String::new())),
        _ => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_are_in_order() {
        let mut versions = ["foo1", "v1alpha1", "v10", "v1beta2", "v2", "v1beta1", "bar", "v12alpha1", "v3beta1", "v1"]
            .map(str::to_owned);
        versions.sort_by_key(|version| Reverse(priority(version)));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v3beta1", "v1beta2", "v1beta1", "v12alpha1", "v1alpha1", "bar", "foo1"]
        );
    }

    #[test]
    fn a_definition_becomes_resources() {
        let version = |name: &str, storage: bool, served: bool| {
            json!({"name": name, "storage": storage, "served": served, "subresources": {"status": {}},
                   "selectableFields": [{"jsonPath": ".spec.color"}], "schema": {"openAPIV3Schema": {"type": "object"}}})
        };
        let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["wd"]});
        let definition = json!({"spec": {"group": "example.com", "scope": "Namespaced", "names": names,
            "versions": [version("v1beta1", true, true), version("v1", false, true), version("v2", false, false)]},
            "status": {"acceptedNames": names}});
        let cache = Arc::new(Cache::new(prefix(&definition), &registry::CUSTOM));
        let resources = resources(&definition, pintle_api::schema(), &cache);
        let versions: Vec<&str> = resources.iter().map(|resource| resource.version.as_str()).collect();
        assert_eq!(versions, ["v1", "v1beta1"]);
        let first = &resources[0];
        assert_eq!(first.key("n", "a"), "/registry/example.com/widgets/n/a");
        assert_eq!((first.stored(), first.serves_stored_form()), (("example.com", "v1beta1"), false));
        assert_eq!(first.subresources.iter().map(|sub| sub.name.as_str()).collect::<Vec<_>>(), ["status"]);
        let custom = first.custom.as_ref().unwrap();
        assert_eq!(custom.field(&json!({"spec": {"color": "red"}}), "spec.color").as_deref(), Some("red"));
        assert!(custom.ty().unwrap().field("metadata").is_some());
        assert_eq!(version_hash("example.com", "v1", "Widget"), "gIwvi5rymmg=");
    }
}
