//! A served resource: its names and verbs, where it is stored, its cache and its rules.

use std::sync::Arc;

use pintle_machinery::status::GroupResource;

use crate::cache::Cache;
use crate::conversion::{GroupVersion, api_version};
use crate::custom::Custom;
use crate::registry::Rules;

/// One resource in one served version.
#[derive(Debug, Clone)]
pub struct Resource {
    /// API group, empty for core.
    pub group: String,
    /// Served version.
    pub version: String,
    /// Plural name.
    pub name: String,
    /// Singular name.
    pub singular: String,
    /// Kind.
    pub kind: String,
    /// Objects live in namespaces.
    pub namespaced: bool,
    /// Verbs of the resource itself.
    pub verbs: Vec<String>,
    /// Short names of kubectl.
    pub short_names: Vec<String>,
    /// Categories of kubectl.
    pub categories: Vec<String>,
    /// What discovery shows of the stored version.
    pub storage_version_hash: String,
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// A deletion is answered with the object rather than a Status.
    pub returns_deleted: bool,
    /// Group and version that are stored.
    pub storage: (String, String),
    /// The cache, if objects are stored at all.
    pub cache: Option<Arc<Cache>>,
    /// What is special about it.
    pub rules: &'static Rules,
    /// What stands for the built-in kinds' tables, if a definition defines it.
    pub custom: Option<Arc<Custom>>,
}

/// A subresource: `status`, `scale`, …
#[derive(Debug, Clone)]
pub struct Subresource {
    /// Name.
    pub name: String,
    /// Group of its kind.
    pub group: String,
    /// Version of its kind.
    pub version: String,
    /// Its kind is not of the resource's group and version.
    pub foreign: bool,
    /// Its kind.
    pub kind: String,
    /// Its verbs.
    pub verbs: Vec<String>,
}

impl Resource {
    /// A built-in resource of the table.
    pub fn built_in(
        api: &pintle_api::Resource,
        storage: GroupVersion<'_>,
        cache: Option<Arc<Cache>>,
        rules: &'static Rules,
    ) -> Self {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let subresources = api.subresources.iter().map(|sub| Subresource {
            name: sub.name.to_owned(),
            group: sub.kind.group.clone(),
            version: sub.kind.version.clone(),
            foreign: sub.foreign,
            kind: sub.kind.kind.clone(),
            verbs: texts(&sub.verbs),
        });
        Self {
            group: api.group.to_owned(),
            version: api.version.to_owned(),
            name: api.plural.to_owned(),
            singular: api.singular.to_owned(),
            kind: api.kind.to_owned(),
            namespaced: api.namespaced,
            verbs: texts(&api.verbs),
            short_names: texts(&api.short_names),
            categories: texts(&api.categories),
            storage_version_hash: api.storage_version_hash.to_owned(),
            subresources: subresources.collect(),
            returns_deleted: api.returns_deleted,
            storage: (storage.0.to_owned(), storage.1.to_owned()),
            cache,
            rules,
            custom: None,
        }
    }

    /// The served form.
    pub fn served(&self) -> GroupVersion<'_> {
        (&self.group, &self.version)
    }

    /// The stored form.
    pub fn stored(&self) -> GroupVersion<'_> {
        (&self.storage.0, &self.storage.1)
    }

    /// The stored bytes can be served as they are; not those of custom objects, whose schema may have changed since.
    pub fn serves_stored_form(&self) -> bool {
        self.served() == self.stored() && self.custom.is_none()
    }

    /// `apps/v1`
    pub fn api_version(&self) -> String {
        api_version(self.served())
    }

    /// Kind of its lists.
    pub fn list_kind(&self) -> String {
        match &self.custom {
            Some(custom) if !custom.list_kind.is_empty() => custom.list_kind.clone(),
            _ => format!("{}List", self.kind),
        }
    }

    /// As errors name it.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&self.group, &self.name)
    }

    /// As validation errors name it: by the group in which it is stored.
    pub fn group_kind(&self) -> GroupResource {
        GroupResource::new(&self.storage.0, &self.kind)
    }

    /// The subresource of that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// The verb is served.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// Prefix of the keys of a namespace, or of all.
    pub fn prefix(&self, namespace: &str) -> String {
        let prefix = self.cache.as_ref().map(|cache| cache.prefix.as_str()).unwrap_or_default();
        if self.namespaced && !namespace.is_empty() { format!("{prefix}{namespace}/") } else { prefix.to_owned() }
    }

    /// Key of an object.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        format!("{}{name}", self.prefix(namespace))
    }
}

/// Resources whose keys have another name than `/registry/RESOURCE/`, as in upstream's stores.
const PREFIXES: [(&str, &str, &str); 6] = [
    ("", "nodes", "minions"),
    ("", "replicationcontrollers", "controllers"),
    ("", "services", "services/specs"),
    ("", "endpoints", "services/endpoints"),
    ("networking.k8s.io", "ingresses", "ingress"),
    ("events.k8s.io", "events", "events"),
];

/// Groups whose keys have the group's name in them.
const GROUP_IN_KEY: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// Key prefix of a resource in the store.
pub fn key_prefix(group: &str, resource: &str) -> String {
    match PREFIXES.iter().find(|(g, r, _)| *g == group && *r == resource) {
        Some((_, _, name)) => format!("/registry/{name}/"),
        None if GROUP_IN_KEY.contains(&group) => format!("/registry/{group}/{resource}/"),
        None => format!("/registry/{resource}/"),
    }
}
