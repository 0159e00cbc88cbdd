//! The corpus: sample objects of every kind, values that they refer to, sessions.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use pintle_api::Resource;
use serde::Deserialize;
use serde_json::Value;

/// Kinds whose objects change how a server answers requests about others.
const UNSETTLING: [&str; 13] = [
    "APIService",
    "CustomResourceDefinition",
    "FlowSchema",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "Namespace",
    "PriorityClass",
    "PriorityLevelConfiguration",
    "ServiceCIDR",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
];

/// What is kept in the corpus folder.
pub struct Corpus {
    /// Valid objects, at least one of each kind that can be created.
    pub samples: Vec<Sample>,
    /// Sessions by file name.
    pub sessions: BTreeMap<String, String>,
    /// What `$name` stands for in samples and sessions.
    pub values: BTreeMap<String, String>,
}

/// A valid object.
#[derive(Clone)]
pub struct Sample {
    /// Its resource.
    pub resource: &'static Resource,
    /// The object.
    pub object: Value,
}

impl Sample {
    /// `Pod`, or with the group for kinds that several groups or versions have.
    pub fn kind(&self) -> String {
        kind_name(self.resource)
    }

    /// Whether the object changes how a server answers requests about others.
    pub fn unsettles(&self) -> bool {
        UNSETTLING.contains(&self.resource.kind)
    }

    /// Path of the collection.
    pub fn collection(&self, namespace: &str) -> String {
        collection(self.resource, namespace)
    }

    /// Path of the objects of all namespaces.
    pub fn everywhere(&self) -> String {
        self.collection("").replace("/namespaces//", "/")
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Path of the object.
    pub fn path(&self, namespace: &str) -> String {
        format!("{}/{}", self.collection(namespace), escape(self.name()))
    }
}

/// A name as a part of a path.
pub fn escape(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F").replace(' ', "%20")
}

/// As scores name a resource's kind.
pub fn kind_name(resource: &Resource) -> String {
    match (resource.group, resource.kind, resource.version) {
        ("events.k8s.io", kind, _) => format!("{kind}.events.k8s.io"),
        ("autoscaling", kind, "v1") => format!("{kind}.v1"),
        (_, kind, _) => kind.to_owned(),
    }
}

/// Path of a resource's collection.
pub fn collection(resource: &Resource, namespace: &str) -> String {
    let root = match resource.group {
        "" => "/api/v1".to_owned(),
        group => format!("/apis/{group}/{}", resource.version),
    };
    match resource.namespaced {
        true => format!("{root}/namespaces/{namespace}/{}", resource.plural),
        false => format!("{root}/{}", resource.plural),
    }
}

impl Corpus {
    /// Reads the folder.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let values = std::fs::read(folder.join("values.yaml")).context("reading the corpus")?;
        let mut values: BTreeMap<String, String> = serde_yaml_ng::from_slice(&values).context("values.yaml")?;
        let mut samples = Vec::new();
        for (name, text) in files(&folder.join("objects"), "yaml")? {
            for document in serde_yaml_ng::Deserializer::from_str(&text) {
                let object = Value::deserialize(document).with_context(|| name.clone())?;
                samples.push(sample(object).with_context(|| name.clone())?);
            }
        }
        let sessions = files(&folder.join("sessions"), "session")?;
        values.insert("corpus".to_owned(), folder.display().to_string());
        let mut corpus = Self { samples, sessions, values };
        for sample in &mut corpus.samples {
            substitute(&mut sample.object, &corpus.values);
        }
        Ok(corpus)
    }
}

fn files(folder: &Path, extension: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|own| own == extension) {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            found.insert(name, text);
        }
    }
    Ok(found)
}

fn sample(object: Value) -> anyhow::Result<Sample> {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = pintle_api::resource_of_kind(group, version, kind)
        .with_context(|| format!("no resource has the kind {kind} of {group}/{version}"))?;
    Ok(Sample { resource, object })
}

/// Puts values in the place of texts that name them.
pub fn substitute(object: &mut Value, values: &BTreeMap<String, String>) {
    match object {
        Value::Object(map) => map.values_mut().for_each(|item| substitute(item, values)),
        Value::Array(items) => items.iter_mut().for_each(|item| substitute(item, values)),
        Value::String(text) => {
            if let Some(value) = text.strip_prefix('$').and_then(|name| values.get(name)) {
                *text = value.clone();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus() -> Corpus {
        Corpus::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")).unwrap()
    }

    /// Kinds without a sample, and why.
    const WITHOUT: [&str; 3] = ["Binding", "ComponentStatus", "PodCertificateRequest"];

    #[test]
    fn every_kind_has_a_sample() {
        let corpus = corpus();
        let missing: Vec<String> = pintle_api::resources()
            .iter()
            .filter(|resource| resource.default_served)
            .filter(|resource| !corpus.samples.iter().any(|sample| sample.resource == *resource))
            .map(kind_name)
            .filter(|kind| !WITHOUT.contains(&kind.as_str()))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn paths_are_those_of_the_api() {
        let corpus = corpus();
        let find = |kind: &str| corpus.samples.iter().find(|sample| sample.kind() == kind).unwrap();
        assert_eq!(find("Deployment").path("x"), "/apis/apps/v1/namespaces/x/deployments/sample");
        assert_eq!(find("Node").path("x"), "/api/v1/nodes/sample-node");
    }
}
