//! `schema`: makes the tables in `lib/api/schema` out of the published API descriptions.

mod facts;
mod gates;
mod golang;
mod modules;
mod resources;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use facts::Packages;
use modules::Modules;

/// Flags of `schema`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Compare with the committed tables instead of writing them.
    #[arg(long)]
    check: bool,
    /// The release to read; `go mod download` brings its modules.
    #[arg(long, default_value = modules::RELEASE)]
    release: String,
    /// Where the tables go instead of the committed ones' place: what a release changes shows in a diff.
    #[arg(long, conflicts_with = "check")]
    out: Option<PathBuf>,
}

/// Packages beside those of the served groups.
const MORE: [&str; 6] = [
    "k8s.io/apimachinery/pkg/apis/meta/v1",
    "k8s.io/apimachinery/pkg/version",
    "k8s.io/apimachinery/pkg/types",
    "k8s.io/api/admission/v1",
    "k8s.io/api/apidiscovery/v2",
    "k8s.io/apiserver/pkg/apis/audit/v1",
];

/// Makes or checks the tables.
pub fn run(args: &Args) -> Result<()> {
    let folder = folder();
    let modules = match Modules::find(&args.release) {
        Ok(modules) => modules,
        Err(error) if args.check => {
            pintle_host::say!("skipped: {error:#}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let tables = tables(&modules, &folder)?;
    if args.check { check(&folder, &tables) } else { write(args.out.as_deref().unwrap_or(&folder), &tables) }
}

/// Where the committed tables are.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lib/api/schema/v1.37")
}

/// All generated tables: file name → text.
fn tables(modules: &Modules, folder: &Path) -> Result<BTreeMap<String, String>> {
    let resources = resources::read(modules)?;
    let packages = packages(modules, &resources)?;
    let defaults = defaults(folder)?;
    let mut tables = BTreeMap::new();
    for import in packages.keys() {
        let text = facts::Table::new(&packages, import, &defaults).write()?;
        tables.insert(format!("{}.txt", facts::short(import)), text);
    }
    tables.insert("resources.txt".to_owned(), resources::write(&resources));
    tables.insert("versions.txt".to_owned(), resources::versions(modules)?);
    tables.insert("gates.txt".to_owned(), gates::write(modules)?);
    Ok(tables)
}

/// Reads the packages of the served groups and all that they refer to.
fn packages(modules: &Modules, resources: &[resources::Resource]) -> Result<Packages> {
    let mut wanted: BTreeSet<String> = MORE.iter().map(|import| (*import).to_owned()).collect();
    wanted.extend(resources.iter().map(|resource| import_of(&resource.group, &resource.version)));
    let mut packages = Packages::new();
    while let Some(import) = wanted.pop_first() {
        let path = modules.package(&import).with_context(|| format!("no module for {import}"))?;
        let mut package = golang::Package::default();
        for text in modules::go_files(&path)? {
            golang::read_file(&mut package, &text);
        }
        if import == "k8s.io/apimachinery/pkg/types" {
            package.types.retain(|ty| matches!(ty.name.as_str(), "UID" | "NodeName"));
            package.group = None;
        }
        let next: Vec<String> = mentions(&package).into_iter().filter(|name| !packages.contains_key(name)).collect();
        packages.insert(import, package);
        wanted.extend(next.into_iter().filter(|name| !packages.contains_key(name)));
    }
    Ok(packages)
}

fn mentions(package: &golang::Package) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for ty in &package.types {
        let texts: Vec<&str> = match &ty.body {
            golang::Body::Struct(fields) => fields.iter().map(|field| field.ty.as_str()).collect(),
            golang::Body::Alias(target) => vec![target],
        };
        found.extend(texts.into_iter().filter_map(facts::mentioned).filter(|import| is_api(import)).map(str::to_owned));
    }
    found
}

/// Whether types of the package travel as structs of their own.
fn is_api(import: &str) -> bool {
    import.starts_with("k8s.io/api/")
        || import.starts_with("k8s.io/apiextensions-apiserver/")
        || import.starts_with("k8s.io/kube-aggregator/")
}

/// The Go package of a group and version.
fn import_of(group: &str, version: &str) -> String {
    match group {
        "" => format!("k8s.io/api/core/{version}"),
        "apiextensions.k8s.io" => format!("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/{version}"),
        "apiregistration.k8s.io" => format!("k8s.io/kube-aggregator/pkg/apis/apiregistration/{version}"),
        "internal.apiserver.k8s.io" => format!("k8s.io/api/apiserverinternal/{version}"),
        "flowcontrol.apiserver.k8s.io" => format!("k8s.io/api/flowcontrol/{version}"),
        "rbac.authorization.k8s.io" => format!("k8s.io/api/rbac/{version}"),
        group => format!("k8s.io/api/{}/{version}", group.split('.').next().unwrap_or(group)),
    }
}

/// Defaults that are upstream's behaviour but in no marker: `defaults.txt`, one a line, `core.v1.Container.name value`.
fn defaults(folder: &Path) -> Result<HashMap<String, String>> {
    let path = folder.join("defaults.txt");
    let text = if path.exists() { std::fs::read_to_string(&path)? } else { String::new() };
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (field, value) = line.split_once(' ').with_context(|| format!("no value: {line}"))?;
            serde_json::from_str::<serde_json::Value>(value).with_context(|| format!("not JSON: {line}"))?;
            Ok((field.to_owned(), value.to_owned()))
        })
        .collect()
}

fn write(folder: &Path, tables: &BTreeMap<String, String>) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for (name, text) in tables {
        std::fs::write(folder.join(name), text).with_context(|| format!("writing {name}"))?;
    }
    pintle_host::say!("{} tables in {}", tables.len(), folder.display());
    Ok(())
}

fn check(folder: &Path, tables: &BTreeMap<String, String>) -> Result<()> {
    let differs = |(name, text): &(&String, &String)| {
        std::fs::read_to_string(folder.join(name)).map_or(true, |committed| committed != **text)
    };
    let names: Vec<&str> = tables.iter().filter(differs).map(|(name, _)| name.as_str()).collect();
    if !names.is_empty() {
        bail!("not what `schema` makes: {}", names.join(", "));
    }
    pintle_host::say!("{} tables are as `schema` makes them", tables.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_tables_are_current() {
        run(&Args { check: true, release: modules::RELEASE.to_owned(), out: None }).unwrap();
    }

    #[test]
    fn finds_the_go_package_of_a_group() {
        assert_eq!(import_of("rbac.authorization.k8s.io", "v1"), "k8s.io/api/rbac/v1");
        assert_eq!(import_of("networking.k8s.io", "v1"), "k8s.io/api/networking/v1");
        assert_eq!(import_of("", "v1"), "k8s.io/api/core/v1");
    }
}
