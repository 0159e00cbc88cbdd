//! Collects the descriptions of kinds and fields that OpenAPI documents carry. They are no part of this repository: the crate
//! `k8s-openapi`, which the build needs anyway, has them in its source as the descriptions of its JSON schemas.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The part of the crate that describes the release whose API is served.
const RELEASE: &str = "src/v1_37";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../Cargo.lock");
    let folder = crate_folder("k8s-openapi").join(RELEASE);
    let mut files = Vec::new();
    find(&folder, &mut files);
    files.sort();
    let mut text = String::new();
    for file in files {
        let source = std::fs::read_to_string(&file).expect("a source file of k8s-openapi");
        describe(&source, &mut text);
    }
    assert!(!text.is_empty(), "no descriptions in {}", folder.display());
    let target = PathBuf::from(std::env::var_os("OUT_DIR").expect("OUT_DIR")).join("descriptions.gz");
    let file = std::fs::File::create(target).expect("creating the file of descriptions");
    let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::best());
    encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish()).expect("writing descriptions");
}

/// Where cargo has put the source of a dependency.
fn crate_folder(name: &str) -> PathBuf {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let output = Command::new(variable("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform"])
        .arg(variable("TARGET"))
        .output()
        .expect("cargo metadata");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata = String::from_utf8(output.stdout).expect("cargo metadata");
    let manifests = metadata.split("\"manifest_path\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let folders = manifests.filter_map(|manifest| Path::new(manifest).parent());
    let mut found = folders.filter(|folder| {
        let own = folder.file_name().and_then(|own| own.to_str()).unwrap_or_default();
        own.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("-0") || rest.starts_with("-1"))
    });
    found.next().unwrap_or_else(|| panic!("cargo metadata does not name {name}")).to_owned()
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("a folder's entry").path();
        if path.is_dir() {
            find(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// Appends a record: U+001E, the type's name, then U+001F before its description and before each field's name and description.
fn describe(source: &str, text: &mut String) {
    let Some(name) = source.lines().find_map(|line| line.strip_prefix("// Generated from definition ")) else { return };
    let Some(at) = source.find("json_schema!({") else { return };
    let mut described = String::new();
    let mut fields = String::new();
    let mut field = None;
    let mut inside = false;
    for line in source[at..].lines() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim_start();
        match indent {
            12 if line.starts_with("\"description\": ") => described = literal(line),
            12 => inside = line.starts_with("\"properties\": "),
            16 if inside => field = line.strip_prefix('"').and_then(|rest| rest.split_once('"')).map(|(name, _)| name),
            20 if line.contains("\"description\"") => {
                if let Some(field) = field.take() {
                    let _ = write!(fields, "\u{1f}{field}\u{1f}{}", literal(line));
                }
            }
            _ => {}
        }
    }
    if !described.is_empty() || !fields.is_empty() {
        let _ = write!(text, "\u{1e}{name}\u{1f}{described}{fields}");
    }
}

/// The value of the string literal that follows `"description"` in a line.
fn literal(line: &str) -> String {
    let rest = line.split_once("\"description\"").map_or("", |(_, rest)| rest);
    let rest = rest.split_once('"').map_or("", |(_, rest)| rest);
    let mut value = String::new();
    let mut characters = rest.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' => match characters.next() {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                Some('r') => value.push('\r'),
                Some('u') => {
                    let code: String = characters.by_ref().skip(1).take_while(|one| *one != '}').collect();
                    value.extend(u32::from_str_radix(&code, 16).ok().and_then(char::from_u32));
                }
                Some(other) => value.push(other),
                None => break,
            },
            other => value.push(other),
        }
    }
    value
}
