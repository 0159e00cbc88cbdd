//! `deny.toml` without `cargo deny`, whose build takes longer than all of ours: licences, duplicate versions, banned crates
//! and sources of what `cargo metadata` resolves. The file stays in cargo deny's format, so that the tool gives the same
//! answers; advisories need the network and the tool.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;

#[derive(Deserialize)]
struct Rules {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Named>,
    skip: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "crate")]
    package: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Clone, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    license_file: Option<PathBuf>,
    manifest_path: PathBuf,
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
}

fn rules() -> Rules {
    toml::from_str(include_str!("../../deny.toml")).expect("deny.toml")
}

/// The packages that a build for this machine uses.
fn packages() -> Vec<Package> {
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--filter-platform", &host])
        .output()
        .expect("cargo metadata runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata = serde_json::from_slice(&output.stdout).expect("cargo metadata gives JSON");
    let used: BTreeSet<String> = metadata.resolve.nodes.into_iter().map(|node| node.id).collect();
    metadata.packages.into_iter().filter(|package| used.contains(&package.id)).collect()
}

fn none(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn licences_are_allowed_ones() {
    let allow = rules().licenses.allow;
    let refused = |package: &Package| {
        let licence = package.license.clone().or_else(|| licence_of_text(package)).unwrap_or_default();
        (!permits(&licence, &allow)).then(|| format!("{} {}: {licence:?}", package.name, package.version))
    };
    none(packages().iter().filter_map(refused).collect());
}

/// What a package that just points at a file says there, if that is a text we know.
fn licence_of_text(package: &Package) -> Option<String> {
    let text = std::fs::read_to_string(package.manifest_path.parent()?.join(package.license_file.as_ref()?)).ok()?;
    text.trim_start().starts_with("Permission is hereby granted, free of charge, to any").then(|| "MIT".to_owned())
}

#[test]
fn no_version_is_doubled_but_those_that_are_listed() {
    let skip: BTreeSet<String> = rules().bans.skip.into_iter().map(|named| named.package).collect();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        versions.entry(package.name).or_default().insert(package.version);
    }
    let doubled = |name: &str| versions.get(name).is_some_and(|all| all.len() > 1);
    let mut wrong = Vec::new();
    for (name, all) in versions.iter().filter(|(name, _)| doubled(name)) {
        let listed = |version: &String| skip.contains(name) || skip.contains(&format!("{name}@{version}"));
        if all.iter().filter(|version| !listed(version)).count() > 1 {
            wrong.push(format!("{name}: {all:?}"));
        }
    }
    let name_of = |entry: &str| entry.split('@').next().unwrap_or_default().to_owned();
    wrong.extend(
        skip.iter().filter(|e| !doubled(&name_of(e))).map(|e| format!("{e} is listed and not doubled any more")),
    );
    none(wrong);
}

#[test]
fn banned_crates_are_not_there() {
    let denied: BTreeSet<String> = rules().bans.deny.into_iter().map(|named| named.package).collect();
    none(packages().into_iter().map(|package| package.name).filter(|name| denied.contains(name)).collect());
}

#[test]
fn crates_come_from_known_registries() {
    let allowed = rules().sources.allow_registry;
    let unknown = |package: Package| {
        let source = package.source?;
        let registry = source.strip_prefix("registry+").unwrap_or(&source);
        (!allowed.contains(registry)).then(|| format!("{} comes from {source}", package.name))
    };
    none(packages().into_iter().filter_map(unknown).collect());
}

/// An SPDX expression is met by the allowed licences. `/` is the old way to write OR.
fn permits(expression: &str, allow: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let met = any(&mut words, allow);
    met && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Words, allow: &BTreeSet<String>) -> bool {
    let mut met = all(words, allow);
    while words.next_if_eq(&"OR").is_some() {
        met |= all(words, allow);
    }
    met
}

fn all(words: &mut Words, allow: &BTreeSet<String>) -> bool {
    let mut met = one(words, allow);
    while words.next_if_eq(&"AND").is_some() {
        met &= one(words, allow);
    }
    met
}

fn one(words: &mut Words, allow: &BTreeSet<String>) -> bool {
    match words.next() {
        Some("(") => any(words, allow) & (words.next() == Some(")")),
        Some(licence) => {
            let exception = words.next_if_eq(&"WITH").and_then(|_| words.next());
            let whole = exception.map_or_else(|| licence.to_owned(), |exception| format!("{licence} WITH {exception}"));
            // An exception only adds permissions.
            allow.contains(&whole) || allow.contains(licence)
        }
        None => false,
    }
}

#[test]
fn licence_expressions_are_understood() {
    let allow: BTreeSet<String> = ["MIT", "ISC", "Zlib"].map(str::to_owned).into();
    for (expression, expected) in [
        ("MIT", true),
        ("MIT OR GPL-3.0", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR GPL-3.0) AND ISC", true),
        ("(MIT OR Zlib) AND (GPL-3.0 AND ISC)", false),
        ("GPL-3.0 OR MIT AND ISC", true),
        ("MIT WITH Some-exception", true),
        ("GPL-3.0 WITH Some-exception", false),
        ("", false),
        ("MIT )", false),
        ("( MIT", false),
    ] {
        assert_eq!(permits(expression, &allow), expected, "{expression}");
    }
}
