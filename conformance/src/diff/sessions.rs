//! Feed 1: the corpus of sessions. Each has a namespace of its own, `$ns`. A session `for: resource` is repeated for each
//! sample, with `$kind`, `$plural`, `$apiVersion`, `$collection`, `$path`, `$name` and `$object`; one `for: groupversion`
//! for each served version, with `$gv` and `$root`.

use std::collections::BTreeMap;

use anyhow::Context;
use futures::{StreamExt, stream};
use pintle_api::Resource;
use serde_json::Value;

use super::Bounds;
use super::compare::{self, Comparison, Difference};
use super::corpus::{Corpus, Sample};
use super::kubectl;
use super::score::Found;
use super::script::{self, Action, Script, Step};
use super::scrub;
use super::servers::Pair;
use super::wire::{Answer, Request, Server, Status};

/// Sessions that are played at once.
const AT_ONCE: usize = 3;

type Variables = BTreeMap<String, String>;

/// A session to play.
struct Session<'a> {
    /// Name of the file, and what it is repeated for.
    name: String,
    script: &'a Script,
    variables: Variables,
    namespace: String,
    /// What it makes changes how servers answer others: it is played when these are done.
    unsettles: bool,
}

/// Runs the feed.
pub async fn run(pair: &Pair, corpus: &Corpus, bounds: &Bounds) -> anyhow::Result<Found> {
    let mut scripts = Vec::new();
    for (name, text) in &corpus.sessions {
        scripts.push((name, script::parse(text).with_context(|| format!("session {name}"))?));
    }
    let sessions = scripts.iter().flat_map(|(name, script)| expand(name, script, corpus));
    let (last, first): (Vec<_>, Vec<_>) =
        sessions.filter(|one| bounds.wants(&one.name)).partition(|session| session.unsettles);
    let mut found = Found::default();
    for (sessions, at_once) in [(first, AT_ONCE), (last, 1)] {
        let mut played = stream::iter(&sessions)
            .map(|session| async move { (session, whole(pair, session).await) })
            .buffered(at_once);
        while let Some((session, comparisons)) = played.next().await {
            for comparison in comparisons.with_context(|| format!("session {}", session.name))? {
                found.add(&session.name, comparison);
            }
            if bounds.shutdown.is_cancelled() {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

fn expand<'a>(name: &str, script: &'a Script, corpus: &Corpus) -> Vec<Session<'a>> {
    let session = |suffix: &str, variables: Variables| {
        let full = if suffix.is_empty() { name.to_owned() } else { format!("{name}/{suffix}") };
        let namespace = format!("s-{}", full.to_lowercase().replace(['/', '.', '_'], "-"));
        let mut all = corpus.values.clone();
        all.extend(variables);
        all.insert("ns".into(), namespace.clone());
        Session { name: full, script, variables: all, namespace, unsettles: false }
    };
    match script.each.as_str() {
        "resource" => {
            let mut done: Vec<&Resource> = Vec::new();
            let mut sessions = Vec::new();
            for sample in corpus.samples.iter().filter(|sample| sample.resource.allows("get")) {
                if !done.contains(&sample.resource) {
                    done.push(sample.resource);
                    let mut made = session(&sample.kind(), Variables::new());
                    made.variables.extend(variables_of(sample, &made.namespace));
                    made.unsettles = sample.unsettles();
                    sessions.push(made);
                }
            }
            sessions
        }
        "groupversion" => {
            let versions = pintle_api::groups(true).into_iter().flat_map(|(group, versions)| {
                versions.into_iter().map(move |version| match group {
                    "" => ("api", version.to_owned()),
                    group => ("apis", format!("{group}/{version}")),
                })
            });
            versions
                .map(|(root, gv)| {
                    session(&gv, [("gv".to_owned(), gv.clone()), ("root".to_owned(), root.to_owned())].into())
                })
                .collect()
        }
        _ => vec![session("", Variables::new())],
    }
}

fn variables_of(sample: &Sample, namespace: &str) -> Variables {
    let mut object = sample.object.clone();
    let values = [("ns".to_owned(), namespace.to_owned())];
    super::corpus::substitute(&mut object, &values.into());
    let resource = sample.resource;
    // The older paths of watches have a word behind the version.
    let (version, everywhere) = (format!("/{}/", resource.api_version()), sample.everywhere());
    let watched = |collection: &str| collection.replacen(&version, &format!("{version}watch/"), 1);
    let list = [
        ("everywhere", everywhere.clone()),
        ("watched", watched(&sample.collection(namespace))),
        ("watchedEverywhere", watched(&everywhere)),
        ("kind", resource.kind.to_owned()),
        ("plural", resource.plural.to_owned()),
        ("singular", resource.singular.to_owned()),
        ("group", resource.group.to_owned()),
        ("apiVersion", resource.api_version()),
        ("collection", sample.collection(namespace)),
        ("path", sample.path(namespace)),
        ("name", sample.name().to_owned()),
        ("object", object.to_string()),
    ];
    list.map(|(name, value)| (name.to_owned(), value)).into()
}

/// A session in its own namespace.
async fn whole(pair: &Pair, session: &Session<'_>) -> anyhow::Result<Vec<Comparison>> {
    pair.namespace(&session.namespace).await?;
    play(pair, session).await
}

/// Plays a session. What a step keeps of the answers may be another thing on each server.
async fn play(pair: &Pair, session: &Session<'_>) -> anyhow::Result<Vec<Comparison>> {
    let (mut theirs, mut own) = (session.variables.clone(), session.variables.clone());
    let mut comparisons = Vec::new();
    for step in &session.script.steps {
        let stepped = async {
            let requests = (request(step, &theirs)?, request(step, &own)?);
            let namespace = &session.namespace;
            let (upstream, ours) = tokio::try_join!(
                act(&pair.upstream, pair, step, &requests.0, namespace),
                act(&pair.ours, pair, step, &requests.1, namespace)
            )?;
            anyhow::Ok((requests.0, upstream, ours))
        };
        let (mut shown, upstream, ours) = stepped.await.with_context(|| format!("step {}", step.title))?;
        for (name, path) in &step.captures {
            theirs.insert(name.clone(), captured(&upstream, path));
            own.insert(name.clone(), captured(&ours, path));
        }
        if step.quiet {
            continue;
        }
        shown.headers.insert(0, ("Step".to_owned(), step.title.clone()));
        let whole = compare::answers(&shown, upstream, ours);
        let as_a_whole = whole.upstream.status == Status::Broken || whole.upstream.status != whole.ours.status;
        if step.each.is_empty() || as_a_whole {
            comparisons.push(whole);
        } else {
            step.each.iter().for_each(|path| comparisons.extend(apart(&whole, path)));
        }
    }
    Ok(comparisons)
}

/// Longest names first: `$namespace` is not `$name` and more.
fn fill(text: &str, variables: &Variables) -> String {
    let mut names: Vec<&String> = variables.keys().collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names.into_iter().fold(text.to_owned(), |text, name| text.replace(&format!("${name}"), &variables[name]))
}

fn request(step: &Step, variables: &Variables) -> anyhow::Result<Request> {
    let body = fill(&step.body, variables);
    match &step.action {
        Action::Kubectl(arguments) => {
            let words: Vec<String> = arguments.iter().map(|word| fill(word, variables)).collect();
            Ok(kubectl::request(&words, body.into_bytes()))
        }
        Action::Request(method, path, headers) => {
            let mut request = Request::new(method, fill(path, variables));
            for (name, value) in headers {
                request = request.header(name, &fill(value, variables));
            }
            if body.is_empty() {
                return Ok(request);
            }
            let bytes = match step.raw {
                true => body.into_bytes(),
                false => serde_yaml_ng::from_str::<Value>(&body).context("the body")?.to_string().into_bytes(),
            };
            if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
                request = request.header("Content-Type", "application/json");
            }
            Ok(request.bytes(bytes))
        }
    }
}

async fn act(server: &Server, pair: &Pair, step: &Step, request: &Request, namespace: &str) -> anyhow::Result<Answer> {
    match step.action {
        Action::Request(..) => server.send(request).await,
        Action::Kubectl(_) => kubectl::run(&pair.kubectl, server, request, namespace).await,
    }
}

fn captured(answer: &Answer, path: &str) -> String {
    let value = answer.json().unwrap_or_default();
    let found = path.split('.').fold(&value, |value, name| match name.parse::<usize>() {
        Ok(index) if value.is_array() => value.get(index).unwrap_or(&Value::Null),
        _ => value.get(name).unwrap_or(&Value::Null),
    });
    found.as_str().map_or_else(|| found.to_string(), str::to_owned)
}

/// The comparisons of all entries below a path.
fn apart(whole: &Comparison, path: &str) -> Vec<Comparison> {
    let at = |answer: &Answer| {
        let mut value = answer.json().unwrap_or_default();
        scrub::value(&mut value, "");
        if whole.request.path.starts_with("/openapi/") {
            undescribed(&mut value);
        }
        path.split('.')
            .filter(|name| *name != "*")
            .fold(value, |value, name| value.get(name).cloned().unwrap_or_default())
    };
    let (theirs, own) = (keyed(at(&whole.upstream)), keyed(at(&whole.ours)));
    let names: std::collections::BTreeSet<&String> = theirs.keys().chain(own.keys()).collect();
    let compared = names.into_iter().map(|name| {
        let (left, right) = (theirs.get(name).cloned().unwrap_or_default(), own.get(name).cloned().unwrap_or_default());
        let differences = compare::bodies(&left, &right)
            .into_iter()
            .map(|one| Difference { path: format!("{path}: {name}: {}", one.path), ..one })
            .collect();
        let answer = |answer: &Answer, value: Value| Answer {
            body: value.to_string().into_bytes(),
            headers: answer.headers.clone(),
            ..*answer
        };
        Comparison {
            request: whole.request.clone(),
            upstream: answer(&whole.upstream, left),
            ours: answer(&whole.ours, right),
            before: Vec::new(),
            differences,
        }
    });
    compared.collect()
}

/// OpenAPI documents are compared as paths, parameters, schemas and extensions: descriptions go, but for properties that
/// are called so.
fn undescribed(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("description").is_some_and(Value::is_string) {
                map.remove("description");
            }
            map.values_mut().for_each(undescribed);
        }
        Value::Array(items) => items.iter_mut().for_each(undescribed),
        _ => {}
    }
}

/// Entries by key; of a list, by name where the items have one.
fn keyed(value: Value) -> BTreeMap<String, Value> {
    match value {
        Value::Object(map) => map.into_iter().collect(),
        Value::Array(items) => {
            let name = |item: &Value| item["name"].as_str().or(item["metadata"]["name"].as_str()).map(str::to_owned);
            items
                .into_iter()
                .enumerate()
                .map(|(at, item)| (name(&item).unwrap_or_else(|| at.to_string()), item))
                .collect()
        }
        other => [(String::new(), other)].into(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::compare::Class;
    use super::*;

    /// Says the same of both servers, but for three command lines.
    const KUBECTL: &str = r#"#!/bin/sh
case "$2 $7" in
  *ours.kubeconfig*output) echo "pod 2" ;;
  *ours.kubeconfig*error) echo "pod 1"; echo "warning" >&2 ;;
  *ours.kubeconfig*status) echo "pod 1"; exit 1 ;;
  *) echo "pod 1" ;;
esac
"#;

    #[tokio::test]
    async fn wrong_output_errors_and_exit_status_of_kubectl_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("kubectl");
        std::fs::write(&program, KUBECTL).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let pair = Pair::idle(dir.path(), program).await.unwrap();
        let text = "== a\nkubectl same\n== b\nkubectl output\n== c\nkubectl error\n== d\nkubectl status\n";
        let script = script::parse(text).unwrap();
        let (variables, namespace) = (Variables::new(), "n".into());
        let session = Session { name: "x".into(), script: &script, variables, namespace, unsettles: false };
        let classes: Vec<_> = play(&pair, &session)
            .await
            .unwrap()
            .into_iter()
            .map(|one| one.difference().map(|difference| (difference.class, difference.path.clone())))
            .collect();
        let seen = |class: Class, path: &str| Some((class, path.to_owned()));
        let expected =
            [None, seen(Class::Body, "stdout[0]"), seen(Class::Body, "stderr"), seen(Class::Status, "status")];
        assert_eq!(classes, expected);
    }
}
