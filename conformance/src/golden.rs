//! `pintle conformance golden`: k8s.io/api ships each kind in JSON, YAML and protobuf, of this release and earlier ones;
//! decoding and encoding must give the same bytes. Where upstream ships what comes out of a round trip, that is expected.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use pintle_machinery::codec::{TypeMeta, json, protobuf, yaml};
use pintle_machinery::normalize::normalize;
use pintle_machinery::schema::{StructType, Value};
use serde::Serialize;

/// `pintle conformance golden`
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Go module whose k8s.io/api is read.
    #[arg(long, default_value = "conformance/upstream")]
    pub module: PathBuf,
    /// Samples of kinds that are not in there, as upstream's API server sends them.
    #[arg(long, default_value = "conformance/golden")]
    pub answers: PathBuf,
    /// File for the figures.
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// Kinds of answers that are no resources.
const OF_SERVERS: [&str; 8] = [
    "apidiscovery.k8s.io.v2.APIGroupDiscoveryList",
    "core.v1.APIGroup",
    "core.v1.APIGroupList",
    "core.v1.APIResourceList",
    "core.v1.ConfigMapList",
    "core.v1.Status",
    "meta.k8s.io.v1.PartialObjectMetadata",
    "meta.k8s.io.v1.PartialObjectMetadataList",
];

/// What one release's samples came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Release {
    /// `HEAD` or a version; the samples of a server's answers are of a `server-` version.
    pub release: String,
    /// Files that were read: a sample is three, or more where a round trip changes it.
    pub files: usize,
    /// Files that came out as they should.
    pub passed: usize,
    /// What did not, and how.
    pub failed: Vec<String>,
}

/// Checks all releases, prints and writes the figures; fails if any sample fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let releases = [check(&testdata(&args.module)?)?, check(&args.answers)?].concat();
    for release in &releases {
        pintle_host::say!("{}: {} of {} files", release.release, release.passed, release.files);
        release.failed.iter().for_each(|failure| pintle_host::say!("  {failure}"));
    }
    if let Some(out) = &args.out {
        std::fs::write(out, serde_json::to_string_pretty(&releases)? + "\n")
            .with_context(|| format!("writing {}", out.display()))?;
    }
    ensure!(releases.iter().all(|release| release.failed.is_empty()), "some samples came out otherwise");
    Ok(())
}

/// Where the Go module cache has the samples.
pub fn testdata(module: &Path) -> anyhow::Result<PathBuf> {
    ensure!(module.is_dir(), "there is no Go module in {}: --module", module.display());
    let mut command = Command::new("go");
    command.args(["list", "-m", "-f", "{{.Dir}}", "k8s.io/api"]).current_dir(module);
    let output = command.output().context("asking go for k8s.io/api")?;
    ensure!(output.status.success(), "go list: {}", String::from_utf8_lossy(&output.stderr).trim());
    let folder = Path::new(String::from_utf8(output.stdout)?.trim()).join("testdata");
    ensure!(folder.is_dir(), "no samples in {}", folder.display());
    Ok(folder)
}

/// Checks the samples of every release of a folder.
pub fn check(testdata: &Path) -> anyhow::Result<Vec<Release>> {
    let mut releases = Vec::new();
    for entry in std::fs::read_dir(testdata)? {
        let folder = entry?.path();
        if folder.is_dir() {
            releases.push(check_release(&folder)?);
        }
    }
    releases.sort_by(|left, right| left.release.cmp(&right.release));
    Ok(releases)
}

fn check_release(folder: &Path) -> anyhow::Result<Release> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut release = Release { release: name, ..Release::default() };
    for sample in samples(folder)? {
        for (format, outcome) in sample.check() {
            release.files += 1;
            match outcome {
                Ok(()) => release.passed += 1,
                Err(why) => release.failed.push(format!("{}.{format}: {why}", sample.name)),
            }
        }
    }
    Ok(release)
}

/// The kinds that are served, with group and version, as the files are named.
fn served() -> BTreeSet<String> {
    let mut names = BTreeSet::from(OF_SERVERS.map(str::to_owned));
    for resource in pintle_api::resources() {
        let kinds = resource.subresources.iter().map(|sub| sub.kind.clone()).chain([resource.gvk()]);
        for kind in kinds {
            let group = if kind.group.is_empty() { "core" } else { &kind.group };
            names.insert(format!("{group}.{}.{}", kind.version, kind.kind));
        }
    }
    names
}

fn samples(folder: &Path) -> anyhow::Result<Vec<Sample>> {
    let served = served();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".json").filter(|name| served.contains(*name)).map(str::to_owned));
    }
    names.sort();
    Ok(names.into_iter().map(|name| Sample { name, folder: folder.to_owned() }).collect())
}

struct Sample {
    name: String,
    folder: PathBuf,
}

type Outcome = Result<(), String>;

impl Sample {
    fn given(&self, format: &str) -> Result<Vec<u8>, String> {
        std::fs::read(self.folder.join(format!("{}.{format}", self.name))).map_err(|error| error.to_string())
    }

    /// What the sample is after a round trip: of older releases there is a file of its own where it differs.
    fn expected(&self, format: &str) -> Result<Vec<u8>, String> {
        let after = self.folder.join(format!("{}.after_roundtrip.{format}", self.name));
        std::fs::read(after).or_else(|_| self.given(format))
    }

    fn check(&self) -> [(&'static str, Outcome); 3] {
        let value = self.of_json();
        let on_value = |check: fn(&Self, &Value) -> Outcome| {
            value.as_ref().map_err(String::clone).and_then(|value| check(self, value))
        };
        [
            ("json", on_value(Self::check_json)),
            ("pb", on_value(Self::check_protobuf)),
            ("yaml", on_value(Self::check_yaml)),
        ]
    }

    fn of_json(&self) -> Result<Value, String> {
        let given = self.given("json")?;
        let meta = json::type_meta(&given).map_err(|error| error.to_string())?;
        let ty = type_of(&meta)?;
        let mut value = json::decode(pintle_api::schema(), ty, &given).map_err(|error| error.to_string())?.value;
        normalize(pintle_api::schema(), ty, &mut value);
        Ok(value)
    }

    fn check_json(&self, value: &Value) -> Outcome {
        same_text(&encoded(value)?, &compact(&self.expected("json")?))
    }

    fn check_protobuf(&self, value: &Value) -> Outcome {
        let schema = pintle_api::schema();
        let mut read = protobuf::decode(schema, &self.given("pb")?).map_err(|error| error.to_string())?.value;
        normalized(&mut read)?;
        let value = &without_kinds_of_items(value);
        same_value(&read, value)?;
        let bytes = protobuf::encode(schema, value).map_err(|error| error.to_string())?;
        if bytes == self.expected("pb")? {
            return Ok(());
        }
        let again = protobuf::decode(schema, &bytes).map_err(|error| error.to_string())?;
        same_value(&again.value, value)?;
        Err("other bytes of the same value".to_owned())
    }

    fn check_yaml(&self, value: &Value) -> Outcome {
        let ty = type_of(&TypeMeta::of(value))?;
        let given = self.given("yaml")?;
        let mut read = yaml::decode(pintle_api::schema(), ty, &given).map_err(|error| error.to_string())?.value;
        normalized(&mut read)?;
        same_value(&read, value)
    }
}

fn type_of(meta: &TypeMeta) -> Result<&'static StructType, String> {
    let (group, version) = meta.group_version();
    pintle_api::schema().kind(group, version, &meta.kind).ok_or_else(|| "no such kind".to_owned())
}

/// Items of a list may say in text what they are; in protobuf they don't.
fn without_kinds_of_items(value: &Value) -> Value {
    let mut value = value.clone();
    for item in value.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(item) = item.as_object_mut() {
            item.retain(|name, _| name != "kind" && name != "apiVersion");
        }
    }
    value
}

fn normalized(value: &mut Value) -> Outcome {
    let ty = type_of(&TypeMeta::of(value))?;
    normalize(pintle_api::schema(), ty, value);
    Ok(())
}

fn encoded(value: &Value) -> Result<Vec<u8>, String> {
    let ty = type_of(&TypeMeta::of(value))?;
    let mut text = Vec::new();
    json::encode(pintle_api::schema(), ty, value, &mut text);
    Ok(text)
}

fn same_value(ours: &Value, theirs: &Value) -> Outcome {
    let write = |value: &Value| {
        let mut text = Vec::new();
        json::encode_any(value, &mut text);
        text
    };
    same_text(&write(ours), &write(theirs))
}

fn same_text(ours: &[u8], theirs: &[u8]) -> Outcome {
    let at = ours.iter().zip(theirs).take_while(|(left, right)| left == right).count();
    if at == ours.len() && at == theirs.len() {
        return Ok(());
    }
    let around =
        |text: &[u8]| String::from_utf8_lossy(&text[at.saturating_sub(60)..text.len().min(at + 40)]).into_owned();
    Err(format!("ours …{}… theirs …{}…", around(ours), around(theirs)))
}

/// JSON without the spaces between its tokens.
fn compact(text: &[u8]) -> Vec<u8> {
    let (mut out, mut quoted, mut escaped) = (Vec::new(), false, false);
    for &byte in text {
        if quoted || !byte.is_ascii_whitespace() {
            out.push(byte);
        }
        if byte == b'"' && !escaped {
            quoted = !quoted;
        }
        escaped = quoted && byte == b'\\' && !escaped;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_between_tokens_go() {
        assert_eq!(compact(br#"{ "a b" : "c \" d" }"#), br#"{"a b":"c \" d"}"#);
    }

    #[test]
    fn what_a_server_sends() {
        let releases = check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")).unwrap();
        let [release] = &releases[..] else { panic!("{} releases", releases.len()) };
        assert_eq!(release.failed, [""; 0], "{}", release.release);
        assert_eq!(release.files, 3 * (OF_SERVERS.len() + 2));
    }

    #[test]
    fn every_file_of_every_release() {
        let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("upstream");
        let testdata = testdata(&module).expect("the module k8s.io/api: go -C conformance/upstream mod download");
        let releases = check(&testdata).unwrap();
        assert!(releases.len() >= 5, "{} releases", releases.len());
        for release in releases {
            assert!(release.files > 200, "{} has few samples: {}", release.release, release.files);
            assert!(release.failed.is_empty(), "{}:\n{}", release.release, release.failed.join("\n"));
        }
    }
}
