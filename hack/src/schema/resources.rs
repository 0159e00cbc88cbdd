//! The resource table, out of the published discovery documents and, for what they don't tell, the OpenAPI document.

use std::{fmt::Write as _, path::Path};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use super::modules::Modules;

/// One resource of one group and version, as discovery tells it.
#[derive(Debug)]
pub struct Resource {
    /// API group, empty for the core one.
    pub group: String,
    /// Version.
    pub version: String,
    /// The resource's own entry.
    pub entry: Entry,
    /// Its subresources.
    pub subresources: Vec<Entry>,
    /// A deletion is answered with the object rather than a Status.
    pub returns_deleted: bool,
}

/// An entry of a discovery document.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    name: String,
    kind: String,
    singular_name: String,
    namespaced: bool,
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    storage_version_hash: String,
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct Document {
    resources: Vec<Entry>,
}

#[derive(Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    name: String,
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

/// Reads all resources, in upstream's order of groups and versions (the preferred version first).
pub fn read(modules: &Modules) -> Result<Vec<Resource>> {
    let folder = modules.path("kubernetes").join("api/discovery");
    let groups: Groups = document(&folder, "apis.json")?;
    let openapi = openapi(modules)?;
    let mut resources = read_version(&folder, "api__v1.json", "", "v1")?;
    for group in groups.groups {
        for Version { version } in group.versions {
            let file = format!("apis__{}__{version}.json", group.name);
            resources.extend(read_version(&folder, &file, &group.name, &version)?);
        }
    }
    for resource in &mut resources {
        resource.returns_deleted = returns_deleted(&openapi, resource);
    }
    Ok(resources)
}

/// The groups and versions that upstream's server knows, served or not: those of the kinds that are of every group.
pub fn versions(modules: &Modules) -> Result<String> {
    let options = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
    let kinds = &openapi(modules)?["definitions"][options]["x-kubernetes-group-version-kind"];
    let mut out = String::from(
        "# The groups and versions that upstream knows, served or not: its options kinds are kinds of all of them.\n",
    );
    for kind in kinds.as_array().context("the kinds of DeleteOptions")? {
        let part = |name: &str| kind[name].as_str().unwrap_or_default();
        let _ = writeln!(out, "{}/{}", part("group"), part("version"));
    }
    Ok(out)
}

fn openapi(modules: &Modules) -> Result<Value> {
    document(&modules.path("kubernetes").join("api/openapi-spec"), "swagger.json")
}

fn returns_deleted(openapi: &Value, resource: &Resource) -> bool {
    let Resource { group, version, entry, .. } = resource;
    let root = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/{version}") };
    let namespace = if entry.namespaced { "/namespaces/{namespace}" } else { "" };
    let path = format!("{root}{namespace}/{}/{{name}}", entry.name);
    let answer = &openapi["paths"][path]["delete"]["responses"]["200"]["schema"]["$ref"];
    answer.as_str().is_some_and(|name| name.ends_with(&format!(".{}", entry.kind)))
}

fn document<T: serde::de::DeserializeOwned>(folder: &Path, file: &str) -> Result<T> {
    let text = std::fs::read_to_string(folder.join(file)).with_context(|| format!("reading {file}"))?;
    serde_json::from_str(&text).with_context(|| format!("parsing {file}"))
}

fn read_version(folder: &Path, file: &str, group: &str, version: &str) -> Result<Vec<Resource>> {
    let mut resources: Vec<Resource> = Vec::new();
    let document: Document = document(folder, file)?;
    for entry in document.resources {
        let parent = entry.name.split_once('/').map(|(parent, _)| parent.to_owned());
        match parent {
            None => resources.push(Resource {
                group: group.to_owned(),
                version: version.to_owned(),
                entry,
                subresources: Vec::new(),
                returns_deleted: false,
            }),
            Some(parent) => {
                let owner = resources.iter_mut().find(|resource| resource.entry.name == parent);
                owner.with_context(|| format!("{} without its resource", entry.name))?.subresources.push(entry);
            }
        }
    }
    Ok(resources)
}

/// The table's text.
pub fn write(resources: &[Resource]) -> String {
    let mut out = String::from(
        "# version GROUP/VERSION, then one line a resource: plural kind singular scope verbs [short=] [categories=] [hash=]\n\
         # [deleted=object, if a deletion is answered with the object]\n\
         # and one line a subresource: name kind (or group/version/kind) verbs. The order is discovery's.\n",
    );
    let mut current = None;
    for resource in resources {
        let version = (&resource.group, &resource.version);
        if current != Some(version) {
            let slash = if resource.group.is_empty() { "" } else { "/" };
            let _ = writeln!(out, "version {}{slash}{}", resource.group, resource.version);
            current = Some(version);
        }
        write_resource(&mut out, resource);
    }
    out
}

fn write_resource(out: &mut String, resource: &Resource) {
    let Entry { name, kind, singular_name, verbs, .. } = &resource.entry;
    let scope = if resource.entry.namespaced { "namespaced" } else { "cluster" };
    let _ = write!(out, "{name} {kind} {singular_name} {scope} {}", verbs.join(","));
    let lists = [("short", &resource.entry.short_names), ("categories", &resource.entry.categories)];
    for (flag, values) in lists.iter().filter(|(_, values)| !values.is_empty()) {
        let _ = write!(out, " {flag}={}", values.join(","));
    }
    if !resource.entry.storage_version_hash.is_empty() {
        let _ = write!(out, " hash={}", resource.entry.storage_version_hash);
    }
    if resource.returns_deleted {
        out.push_str(" deleted=object");
    }
    out.push('\n');
    for sub in &resource.subresources {
        let name = sub.name.split_once('/').map_or("", |(_, name)| name);
        let kind = if sub.version.is_empty() {
            sub.kind.clone()
        } else {
            format!("{}/{}/{}", sub.group, sub.version, sub.kind)
        };
        let _ = writeln!(out, "  {name} {kind} {}", sub.verbs.join(","));
    }
}
