//! Pod templates: making pods out of them and telling whether two are the same.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// Label that tells the replica sets of a deployment apart.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// A pod made from a template; the name is left to the caller (or to the server, by `generateName`).
pub fn instantiate(template: &PodTemplateSpec, namespace: &str, owner: OwnerReference) -> Pod {
    let from = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            labels: from.labels,
            annotations: from.annotations,
            finalizers: from.finalizers,
            owner_references: Some(vec![owner]),
            ..Default::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// True if the templates ask for the same pods; the hash label does not count.
pub fn same(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    a.spec == b.spec && comparable(a.metadata.as_ref()) == comparable(b.metadata.as_ref())
}

/// Labels, annotations and finalizers, with "none" and "empty" made equal and the hash label left out.
fn comparable(meta: Option<&ObjectMeta>) -> (BTreeMap<&str, &str>, BTreeMap<&str, &str>, Vec<&str>) {
    fn pairs(map: Option<&BTreeMap<String, String>>) -> BTreeMap<&str, &str> {
        map.into_iter().flatten().map(|(k, v)| (k.as_str(), v.as_str())).collect()
    }
    let mut labels = pairs(meta.and_then(|m| m.labels.as_ref()));
    labels.remove(POD_TEMPLATE_HASH);
    let finalizers = meta.iter().flat_map(|m| m.finalizers.iter().flatten()).map(String::as_str).collect();
    (labels, pairs(meta.and_then(|m| m.annotations.as_ref())), finalizers)
}

/// A copy of the template with one more label.
pub fn with_label(template: &PodTemplateSpec, key: &str, value: &str) -> PodTemplateSpec {
    let mut copy = template.clone();
    let meta = copy.metadata.get_or_insert_default();
    meta.labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(image: &str) -> PodTemplateSpec {
        serde_json::from_value(serde_json::json!({
            "metadata": {"labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "image": image}]},
        }))
        .unwrap()
    }

    #[test]
    fn hash_label_does_not_count() {
        let a = template("a");
        assert!(same(&a, &with_label(&a, POD_TEMPLATE_HASH, "123")));
        assert!(!same(&a, &with_label(&a, "other", "123")));
        assert!(!same(&a, &template("b")));
    }

    #[test]
    fn pods_carry_the_template() {
        let pod = instantiate(&template("a"), "ns", OwnerReference { uid: "u".into(), ..Default::default() });
        assert_eq!(pod.metadata.namespace.as_deref(), Some("ns"));
        assert_eq!(pod.metadata.labels.unwrap()["app"], "x");
        assert_eq!(pod.metadata.owner_references.unwrap()[0].uid, "u");
    }
}
