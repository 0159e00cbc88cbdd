//! Paths and operations of the served resources, in no version's notation yet.

use std::sync::Arc;

use pintle_machinery::schema::text::META;
use pintle_machinery::schema::{Gvk, Schema};

use super::custom;
use super::descriptions::Descriptions;
use super::operations::{self as verbs, Answered, Sent, Verb};
use super::parameters::{self, Parameter};
use super::roots;
use crate::resource::{Resource, Subresource};

/// One path with its operations.
#[derive(Debug)]
pub struct Endpoint {
    /// Path.
    pub path: String,
    /// What can be done there.
    pub operations: Vec<Operation>,
}

/// One operation of a path.
#[derive(Debug)]
pub struct Operation {
    /// HTTP method, lower case.
    pub method: &'static str,
    /// Under which heading documentation has it.
    pub tag: String,
    /// Its name, unique in a document.
    pub id: String,
    /// What it does.
    pub description: String,
    /// Verb and kind, of what is done with a kind.
    pub action: Option<(&'static str, Gvk)>,
    /// Parameters besides the body.
    pub parameters: Vec<Parameter>,
    /// OpenAPI name of the type that is sent, and whether it must be.
    pub body: Option<(String, bool)>,
    /// Media types that are taken.
    pub consumes: &'static [&'static str],
    /// Media types that are given.
    pub produces: &'static [&'static str],
    /// Status codes of success and what they say.
    pub codes: &'static [(&'static str, &'static str)],
    /// OpenAPI name of the type that is answered; none: text.
    pub answer: Option<String>,
}

/// Makes the endpoints of documents.
pub struct Maker<'a> {
    /// All kinds.
    pub schema: &'a Schema,
    /// What fields are for.
    pub descriptions: &'a Descriptions<'a>,
}

/// A resource, or a subresource of it, at a path.
struct Place<'a> {
    resource: &'a Resource,
    sub: Option<&'a Subresource>,
    path: String,
    /// Between version and kind in ids.
    scope: &'static str,
    /// At the end of ids.
    suffix: String,
}

impl Maker<'_> {
    /// The endpoints of a document: discovery's own path and those of the resources.
    pub fn document(&self, key: &str, resources: &[Arc<Resource>]) -> Vec<Endpoint> {
        let builtin = resources.iter().all(|resource| resource.custom.is_none());
        let mut endpoints: Vec<Endpoint> = builtin.then(|| roots::endpoint(key)).into_iter().collect();
        endpoints.extend(resources.iter().flat_map(|resource| self.resource(resource)));
        endpoints.retain(|endpoint| !endpoint.operations.is_empty());
        endpoints.sort_by(|left, right| left.path.cmp(&right.path));
        endpoints
    }

    fn resource(&self, resource: &Resource) -> Vec<Endpoint> {
        let (name, root) = (&resource.name, root(resource));
        let scope = if resource.namespaced { "Namespaced" } else { "" };
        let namespace = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
        let collection =
            Place { resource, sub: None, path: format!("{root}/{namespace}{name}"), scope, suffix: String::new() };
        let at = |path: String, suffix: &str| Place { resource, sub: None, path, scope, suffix: suffix.to_owned() };
        let watched = format!("{root}/watch/{namespace}{name}");
        let mut endpoints = Vec::new();
        if resource.namespaced {
            let all = |path: String, suffix: &str| Place { scope: "", ..at(path, suffix) };
            endpoints.push(self.endpoint(&all(format!("{root}/{name}"), "ForAllNamespaces"), &[verbs::LIST]));
        }
        if resource.custom.is_none() {
            if resource.namespaced {
                let list = at(format!("{root}/watch/{name}"), "ListForAllNamespaces");
                endpoints.push(self.endpoint(&Place { scope: "", ..list }, &[verbs::WATCH_LIST]));
            }
            endpoints.push(self.endpoint(&at(watched.clone(), "List"), &[verbs::WATCH_LIST]));
            endpoints.push(self.endpoint(&at(format!("{watched}/{{name}}"), ""), &[verbs::WATCH]));
        }
        let object = at(format!("{}/{{name}}", collection.path), "");
        endpoints.push(self.endpoint(&collection, &verbs::COLLECTION));
        endpoints.push(self.endpoint(&object, &verbs::OBJECT));
        for sub in &resource.subresources {
            endpoints.extend(self.subresource(&object, sub));
        }
        endpoints
    }

    fn subresource<'b>(&self, object: &Place<'b>, sub: &'b Subresource) -> Vec<Endpoint> {
        let at = |path: String, suffix: String| Place { sub: Some(sub), path, suffix, ..*object };
        let path = format!("{}/{}", object.path, sub.name);
        let place = at(path.clone(), capital(&sub.name));
        if !sub.kind.ends_with("Options") {
            let log = [verbs::LOG];
            let created = &verbs::COLLECTION[1..2];
            let mut endpoint = self.endpoint(&place, if sub.name == "log" { &log } else { &verbs::OBJECT });
            endpoint.operations.extend(self.endpoint(&place, created).operations);
            return vec![endpoint];
        }
        let mut endpoints = vec![self.connections(&place)];
        if endpoints[0].operations.iter().any(|one| one.parameters.iter().any(|parameter| parameter.name == "path")) {
            endpoints.push(self.connections(&at(format!("{path}/{{path}}"), format!("{}WithPath", place.suffix))));
        }
        endpoints
    }

    fn endpoint(&self, place: &Place<'_>, verbs: &[Verb]) -> Endpoint {
        let own = place.sub.map_or(&place.resource.verbs, |sub| &sub.verbs);
        let served = verbs.iter().filter(|verb| own.iter().any(|own| own == verb.name));
        Endpoint { path: place.path.clone(), operations: served.map(|verb| self.operation(place, verb)).collect() }
    }

    fn connections(&self, place: &Place<'_>) -> Endpoint {
        let own = place.sub.map_or(&place.resource.verbs, |sub| &sub.verbs);
        let served = verbs::CONNECT_METHODS.iter().filter(|(verb, _)| own.iter().any(|own| own == verb));
        let operations = served.map(|(_, method)| {
            let mut operation = self.operation(place, &Verb { method, ..verbs::CONNECT });
            let name = place.sub.map_or("", |sub| &sub.name);
            operation.description =
                format!("connect {} requests to {name} of {}", method.to_uppercase(), place.resource.kind);
            operation
        });
        Endpoint { path: place.path.clone(), operations: operations.collect() }
    }

    fn operation(&self, place: &Place<'_>, verb: &Verb) -> Operation {
        let resource = place.resource;
        let gvk = match place.sub {
            Some(sub) => Gvk::new(&sub.group, &sub.version, &sub.kind),
            None => Gvk::new(&resource.group, &resource.version, &resource.kind),
        };
        let body = match verb.sent {
            Sent::Nothing => None,
            Sent::Object => Some((self.name(&gvk), true)),
            Sent::DeleteOptions => Some((format!("{META}.DeleteOptions"), false)),
            Sent::Patch => Some((format!("{META}.Patch"), true)),
        };
        let own = Gvk::new(&resource.group, &resource.version, &resource.kind);
        let custom = resource.custom.is_some();
        let media = |builtin: &'static [&'static str], own: &'static [&'static str]| match builtin {
            verbs::ANY => builtin,
            _ if custom => own,
            builtin => builtin,
        };
        Operation {
            method: verb.method,
            tag: tag(&resource.group, &resource.version),
            id: id(place, verb),
            description: describe(place, verb),
            parameters: self.parameters(place, verb, &gvk.kind),
            body,
            consumes: match verb.sent {
                Sent::Patch => media(verb.consumes, custom::PATCHES),
                _ if custom => custom::OBJECTS,
                _ => verb.consumes,
            },
            produces: media(verb.produces, custom::OBJECTS),
            codes: verb.codes,
            answer: self.answer(resource, verb, &gvk),
            action: Some((verb.action, if custom { own } else { gvk })),
        }
    }

    fn answer(&self, resource: &Resource, verb: &Verb, gvk: &Gvk) -> Option<String> {
        Some(match verb.answered {
            Answered::Object => self.name(gvk),
            Answered::Deleted if resource.returns_deleted => self.name(gvk),
            Answered::List => self.name(&Gvk { kind: resource.list_kind(), ..gvk.clone() }),
            Answered::Deleted | Answered::Status => format!("{META}.Status"),
            Answered::Events => format!("{META}.WatchEvent"),
            Answered::Text => return None,
        })
    }

    /// OpenAPI's name of a kind.
    fn name(&self, gvk: &Gvk) -> String {
        match self.schema.kind(&gvk.group, &gvk.version, &gvk.kind) {
            Some(ty) => ty.name.clone(),
            None => custom::name(gvk),
        }
    }

    fn parameters(&self, place: &Place<'_>, verb: &Verb, kind: &str) -> Vec<Parameter> {
        let connection = verb.action == verbs::CONNECT.action;
        let options = if connection { &[kind][..] } else { verb.options };
        let mut parameters = parameters::of_path(&place.path, kind);
        for options in options {
            let of_options = parameters::of_options(self.schema, self.descriptions, options);
            parameters.extend(of_options.into_iter().filter(|one| !verb.without.contains(&one.name.as_str())));
        }
        if !connection {
            parameters.push(parameters::pretty());
        }
        parameters.sort_by(|left, right| (&left.name, left.place).cmp(&(&right.name, right.place)));
        parameters
    }
}

/// `/api/v1`, `/apis/apps/v1`.
pub fn root(resource: &Resource) -> String {
    match resource.group.as_str() {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    }
}

/// `rbac.authorization.k8s.io` → `rbacAuthorization`.
pub fn group_name(group: &str) -> String {
    let mut parts = group.trim_end_matches(".k8s.io").split('.');
    let first = parts.next().filter(|first| !first.is_empty()).unwrap_or("core");
    parts.fold(first.to_owned(), |name, part| name + &capital(part))
}

/// `apps_v1`
pub fn tag(group: &str, version: &str) -> String {
    format!("{}_{version}", group_name(group))
}

/// `pods` → `Pods`
pub fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

/// `patchAppsV1NamespacedDeploymentScale`
fn id(place: &Place<'_>, verb: &Verb) -> String {
    let resource = place.resource;
    let version = capital(&group_name(&resource.group)) + &capital(&resource.version);
    let between = match verb.action {
        "deletecollection" => "Collection".to_owned(),
        "connect" => capital(verb.method),
        _ => String::new(),
    };
    format!("{}{version}{between}{}{}{}", verb.id, place.scope, resource.kind, place.suffix)
}

fn describe(place: &Place<'_>, verb: &Verb) -> String {
    let kind = &place.resource.kind;
    let of = place.sub.map_or_else(String::new, |sub| format!("{} of ", sub.name));
    let phrase = match verb.action {
        "list" if !place.resource.allows("watch") || place.resource.custom.is_some() => "list objects of kind {kind}",
        _ => verb.phrase,
    };
    let one = format!("{of}{}{kind}", article(kind));
    phrase.replace("{one}", &one).replace("{the}", &format!("{of}the specified {kind}")).replace("{kind}", kind)
}

/// A kind whose name is a plural has none.
fn article(kind: &str) -> &'static str {
    match kind.chars().next() {
        _ if kind.ends_with('s') && !kind.ends_with("ss") => "",
        Some('A' | 'E' | 'I' | 'O' | 'U') => "an ",
        _ => "a ",
    }
}
