//! The table of feature gates, out of the lists that upstream publishes for its own checks.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::modules::Modules;

/// Where the lists are.
const FOLDER: &str = "test/compatibility_lifecycle/reference";

/// The gates that stand for all others of a stage.
const ALL: [(&str, &str); 2] = [("AllAlpha", "alpha false"), ("AllBeta", "beta false")];

#[derive(Deserialize)]
struct Gate {
    name: String,
    #[serde(rename = "versionedSpecs")]
    specs: Vec<Spec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    default: bool,
    lock_to_default: bool,
    pre_release: String,
    /// The older releases in the cluster must be that new; the default is that they are one release older.
    min_compatibility_version: Option<String>,
}

/// The table's text.
pub fn write(modules: &Modules) -> Result<String> {
    let folder = modules.path("kubernetes").join(FOLDER);
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).with_context(|| format!("reading {file}"));
    let listed = read("feature_list.md")?;
    let rows: Vec<Vec<&str>> = listed.lines().filter_map(row).collect();
    let gates: Vec<Gate> = serde_yaml_ng::from_str(&read("versioned_feature_list.yaml")?)?;
    let mut lines: BTreeMap<String, String> = rows.iter().map(|row| (row[0].to_owned(), of_row(row))).collect();
    for gate in &gates {
        let mut specs = gate.specs.iter().filter(|spec| spec.min_compatibility_version.is_none());
        let latest = specs.next_back().with_context(|| format!("{} without versions", gate.name))?;
        let stage = latest.pre_release.to_lowercase();
        let stage = if stage.is_empty() { "ga" } else { &stage };
        let locked = if latest.lock_to_default { " locked" } else { "" };
        lines.insert(gate.name.clone(), format!("{stage} {}{locked}", latest.default));
    }
    for row in rows {
        if let Some(line) = lines.get_mut(row[0]).filter(|_| !row[6].is_empty()) {
            let _ = write!(line, " needs={}", row[6].replace("<br>", ","));
        }
    }
    lines.extend(ALL.map(|(name, line)| (name.to_owned(), line.to_owned())));
    let mut out = String::from(
        "# Feature gates: name, stage, whether it is on by default, `locked` if that can't be changed, and the gates that\n\
         # have to be on with it.\n",
    );
    lines.iter().for_each(|(name, line)| {
        let _ = writeln!(out, "{name} {line}");
    });
    Ok(out)
}

/// The cells of a line about a gate: name, enabled, locked, alpha, beta, GA, dependencies.
fn row(line: &str) -> Option<Vec<&str>> {
    let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
    let [name, enabled, locked, alpha, beta, ga, _, needs, ..] = cells[..] else { return None };
    let named = name.starts_with(|first: char| first.is_ascii_uppercase()) && name != "Feature";
    named.then(|| vec![name, enabled, locked, alpha, beta, ga, needs])
}

/// A gate that is in the readable list only: its stage is the one whose versions have no end.
fn of_row(row: &[&str]) -> String {
    let stages = [("alpha", row[3]), ("beta", row[4]), ("ga", row[5])];
    let stage = stages.iter().find(|(_, versions)| versions.ends_with('–')).map_or("deprecated", |(stage, _)| stage);
    let locked = if row[2].is_empty() { "" } else { " locked" };
    format!("{stage} {}{locked}", !row[1].is_empty())
}
