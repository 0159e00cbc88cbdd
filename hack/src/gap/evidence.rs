//! What is tried out somewhere: requests of the differential and of the API server's tests, and sample objects.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

/// A request that some test sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// `GET`.
    pub method: String,
    /// Without the query.
    pub path: String,
    /// It watches.
    pub watch: bool,
}

impl Request {
    /// Of a method and a path with its query; what a variable stands for is any name.
    fn new(method: &str, target: &str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let watch =
            ["watch=1", "watch=true", "watch&"].iter().any(|part| query.contains(part)) || path.contains("/watch/");
        Self { method: method.to_owned(), path: path.to_owned(), watch }
    }
}

/// A sample of a kind, as the differential has it.
struct Sample {
    resource: &'static pintle_api::Resource,
    name: String,
}

impl Sample {
    /// Path of all objects of the kind, in a namespace if they are in some.
    fn collection(&self, namespace: &str) -> String {
        let resource = self.resource;
        let root = if resource.group.is_empty() { "/api" } else { "/apis" };
        let namespace = if resource.namespaced { namespace } else { "" };
        format!("{root}/{}{namespace}/{}", resource.api_version(), resource.plural)
    }

    /// What sessions call it.
    fn variables(&self) -> Vec<(&'static str, String)> {
        let collection = self.collection("/namespaces/x");
        let everywhere = self.collection("");
        let watched = everywhere.replacen(
            &format!("/{}/", self.resource.api_version()),
            &format!("/{}/watch/", self.resource.api_version()),
            1,
        );
        let watched_here =
            watched.replacen("/watch/", if self.resource.namespaced { "/watch/namespaces/x/" } else { "/watch/" }, 1);
        vec![
            ("$collection", collection.clone()),
            ("$path", format!("{collection}/{}", self.name)),
            ("$everywhere", everywhere),
            ("$watchedEverywhere", watched),
            ("$watched", watched_here),
        ]
    }
}

/// All requests.
pub fn requests(root: &Path) -> Result<Vec<Request>> {
    let corpus = root.join("conformance/corpus");
    let samples = samples(&corpus)?;
    let mut requests = Vec::new();
    for file in files(&corpus.join("sessions"), "session")? {
        let text = std::fs::read_to_string(&file)?;
        of_session(&text, &samples, &mut requests);
    }
    for sample in &samples {
        of_feeds(sample, &mut requests);
    }
    let tests = [root.join("apiserver/tests"), root.join("apiserver/src")];
    for file in tests.iter().map(|folder| files(folder, "rs")).collect::<Result<Vec<_>>>()?.concat() {
        of_code(&std::fs::read_to_string(file)?, &mut requests)?;
    }
    requests.dedup();
    Ok(requests)
}

/// The requests of a session, for each sample or version if it is repeated for them.
fn of_session(text: &str, samples: &[Sample], requests: &mut Vec<Request>) {
    let each = text.lines().find_map(|line| line.strip_prefix("for:")).map(str::trim).unwrap_or_default();
    let repeated: Vec<Vec<(&str, String)>> = match each {
        "resource" => samples.iter().filter(|sample| sample.resource.allows("get")).map(Sample::variables).collect(),
        "groupversion" => pintle_api::groups(true)
            .into_iter()
            .flat_map(|(group, versions)| versions.into_iter().map(move |version| (group, version)))
            .map(|(group, version)| match group {
                "" => vec![("$root", "api".to_owned()), ("$gv", version.to_owned())],
                group => vec![("$root", "apis".to_owned()), ("$gv", format!("{group}/{version}"))],
            })
            .collect(),
        _ => vec![Vec::new()],
    };
    let lines: Vec<(&str, &str)> = text.lines().filter_map(method_and_path).collect();
    for variables in &repeated {
        for (method, path) in &lines {
            let filled = variables.iter().fold((*path).to_owned(), |path, (name, value)| match path.find(name) {
                Some(at) if !path[at + name.len()..].starts_with(|next: char| next.is_ascii_alphabetic()) => {
                    path.replacen(name, value, 1)
                }
                _ => path,
            });
            requests.push(Request::new(method, &filled));
        }
    }
}

fn method_and_path(line: &str) -> Option<(&str, &str)> {
    const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
    let (method, path) = line.split_once(' ')?;
    let path = path.trim();
    (METHODS.contains(&method) && (path.starts_with('/') || path.starts_with('$'))).then_some((method, path))
}

/// What the feeds of objects and patches send for every sample.
fn of_feeds(sample: &Sample, requests: &mut Vec<Request>) {
    let collection = sample.collection("/namespaces/x");
    let path = format!("{collection}/{}", sample.name);
    let mut send = |verb: &str, method: &str, path: &str| {
        if sample.resource.allows(verb) {
            requests.push(Request::new(method, path));
        }
    };
    send("create", "POST", &collection);
    send("update", "PUT", &path);
    send("patch", "PATCH", &path);
    send("delete", "DELETE", &path);
    if sample.resource.subresource("status").is_some() {
        send("update", "PUT", &format!("{path}/status"));
    }
}

/// Requests in code: a method and a path in text, one after the other.
fn of_code(text: &str, requests: &mut Vec<Request>) -> Result<()> {
    let pattern = Regex::new(r#""(GET|POST|PUT|PATCH|DELETE)",\s*(?:&?format!\(\s*)?"(/[^"\s]*)""#)?;
    requests.extend(pattern.captures_iter(text).map(|found| Request::new(&found[1], &found[2])));
    let patches = Regex::new(r#"\.patch\(\s*(?:&?format!\(\s*)?"(/[^"\s]*)""#)?;
    requests.extend(patches.captures_iter(text).map(|found| Request::new("PATCH", &found[1])));
    Ok(())
}

/// Objects in JSON and YAML files below folders.
pub fn objects(folders: &[PathBuf]) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for folder in folders {
        for file in [files(folder, "json")?, files(folder, "yaml")?].concat() {
            let text = std::fs::read_to_string(&file)?;
            for document in serde_yaml_ng::Deserializer::from_str(&text) {
                objects.push(Value::deserialize(document).with_context(|| file.display().to_string())?);
            }
        }
    }
    Ok(objects)
}

fn samples(corpus: &Path) -> Result<Vec<Sample>> {
    let sample = |object: Value| {
        let part = |name: &str| object[name].as_str().unwrap_or_default();
        let (group, version) = part("apiVersion").split_once('/').unwrap_or(("", part("apiVersion")));
        let resource = pintle_api::resource_of_kind(group, version, part("kind"))?;
        Some(Sample { resource, name: object["metadata"]["name"].as_str().unwrap_or("x").to_owned() })
    };
    Ok(objects(&[corpus.join("objects")])?.into_iter().filter_map(sample).collect())
}

/// Files below a folder whose names end so, in order.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|own| own == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_requests_for_every_sample() {
        let samples =
            [Sample { resource: pintle_api::resource("apps", "v1", "deployments").unwrap(), name: "d".into() }];
        let text = "for: resource\n== list\nGET $collection?watch=1&timeoutSeconds=1\n== status\nPUT $path/status\n\n$object\n\
                    == old\nGET $watched/$name\n== all\nGET $watchedEverywhere\n";
        let mut requests = Vec::new();
        of_session(text, &samples, &mut requests);
        let told: Vec<String> =
            requests.iter().map(|one| format!("{} {} {}", one.method, one.path, one.watch)).collect();
        let expected = [
            "GET /apis/apps/v1/namespaces/x/deployments true",
            "PUT /apis/apps/v1/namespaces/x/deployments/d/status false",
            "GET /apis/apps/v1/watch/namespaces/x/deployments/$name true",
            "GET /apis/apps/v1/watch/deployments true",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn code_has_requests() {
        let mut requests = Vec::new();
        let code = r#"server.ok("POST", "/api/v1/namespaces", x); server.json("GET", &format!("/api/v1/{name}?watch=1"), y);
                      server.patch("/api/v1/nodes/n", "application/json")"#;
        of_code(code, &mut requests).unwrap();
        let told: Vec<String> =
            requests.iter().map(|one| format!("{} {} {}", one.method, one.path, one.watch)).collect();
        assert_eq!(told, ["POST /api/v1/namespaces false", "GET /api/v1/{name} true", "PATCH /api/v1/nodes/n false"]);
    }
}
