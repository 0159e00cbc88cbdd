//! Writes the facts table of one Go package: what `pintle_machinery::schema::text` reads.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
};

use anyhow::{Context, Result};

use super::golang::{Body, FieldDecl, Package, TypeDecl};

/// All packages by import path.
pub type Packages = BTreeMap<String, Package>;

const META: &str = "k8s.io/apimachinery/pkg/apis/meta/v1";

/// Go types that are basic in the table.
const BASIC: [(&str, &str); 16] = [
    ("[]byte", "bytes"),
    ("float64", "double"),
    ("int", "int64"),
    ("interface{}", "object"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.Duration", "duration"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1", "fieldsv1"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime", "microtime"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.Time", "time"),
    ("k8s.io/apimachinery/pkg/api/resource.Quantity", "quantity"),
    ("k8s.io/apimachinery/pkg/runtime.RawExtension", "object"),
    ("k8s.io/apimachinery/pkg/util/intstr.IntOrString", "intorstring"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON", "json"),
    ("string", "string"),
    ("bool", "bool"),
    ("int32", "int32"),
    ("int64", "int64"),
];

/// Struct types that the table has as something else, or that are never in a request or an answer.
const LEFT_OUT: [&str; 11] = [
    "Duration",
    "FieldsV1",
    "MicroTime",
    "Time",
    "Timestamp",
    "JSON",
    "List",
    "ApplyOptions",
    "TableOptions",
    "RootPaths",
    "InternalEvent",
];

/// Kinds whose group and version are not those of their package.
const SERVED_AS: [(&str, &str); 5] =
    [("Status", "v1"), ("APIVersions", "v1"), ("APIGroup", "v1"), ("APIGroupList", "v1"), ("APIResourceList", "v1")];

/// The short name by which tables call a package: `core.v1`; also its file's name.
pub fn short(import: &str) -> String {
    let mut parts = import.rsplit('/');
    let version = parts.next().unwrap_or_default();
    match import {
        "k8s.io/apimachinery/pkg/types" => "types".to_owned(),
        _ => format!("{}.{version}", parts.next().unwrap_or_default()),
    }
}

/// `k8s.io/api/core/v1` → `io.k8s.api.core.v1`.
fn openapi(import: &str) -> String {
    let (host, rest) = import.split_once('/').unwrap_or((import, ""));
    let host: Vec<&str> = host.split('.').rev().collect();
    format!("{}.{}", host.join("."), rest.replace('/', "."))
}

/// The packages' import paths that a type text mentions.
pub fn mentioned(ty: &str) -> Option<&str> {
    let name = &ty[ty.find("k8s.io/")?..];
    name.rsplit_once('.').map(|(import, _)| import)
}

/// One package's table.
pub struct Table<'a> {
    packages: &'a Packages,
    import: &'a str,
    defaults: &'a HashMap<String, String>,
}

impl<'a> Table<'a> {
    /// The table of the package at `import`. `defaults` are those that Go's markers do not tell: `core.v1.Pod.spec` → JSON.
    pub fn new(packages: &'a Packages, import: &'a str, defaults: &'a HashMap<String, String>) -> Self {
        Table { packages, import, defaults }
    }

    /// The text.
    pub fn write(&self) -> Result<String> {
        let package = &self.packages[self.import];
        let version = self.import.rsplit('/').next().unwrap_or_default();
        let mut out = format!("package {} {} go={version}", short(self.import), openapi(self.import));
        if let Some(group) = &package.group {
            let group = if group.is_empty() { String::new() } else { format!("{group}/") };
            write!(out, " serves={group}{version}")?;
        }
        out.push('\n');
        let mut types: Vec<&TypeDecl> = package.types.iter().filter(|ty| self.kept(ty)).collect();
        types.sort_by(|left, right| left.name.cmp(&right.name));
        for ty in types.iter().filter(|ty| matches!(ty.body, Body::Alias(_))) {
            self.alias(&mut out, package, ty)?;
        }
        for ty in types {
            if let Body::Struct(fields) = &ty.body {
                self.structure(&mut out, ty, fields).with_context(|| format!("{}.{}", self.import, ty.name))?;
            }
        }
        Ok(out)
    }

    fn kept(&self, ty: &TypeDecl) -> bool {
        let exported = ty.name.starts_with(|first: char| first.is_ascii_uppercase());
        exported && !LEFT_OUT.contains(&ty.name.as_str())
    }

    fn alias(&self, out: &mut String, package: &Package, ty: &TypeDecl) -> Result<()> {
        let Body::Alias(target) = &ty.body else { return Ok(()) };
        let Some(target) = self.written(target) else { return Ok(()) };
        write!(out, "alias {} {target}", ty.name)?;
        if ty.has("protobuf.nullable=true") && target.starts_with("[]") {
            out.push_str(" wrapped");
        }
        if ty.has("enum") || ty.has("k8s:enum") {
            let own = package.constants.values().filter(|(of, _)| *of == ty.name).map(|(_, value)| value.as_str());
            let borrowed = package.borrowed.values().filter(|(of, ..)| *of == ty.name);
            let borrowed = borrowed.filter_map(|(_, import, name)| self.packages.get(import)?.constants.get(name));
            let values: BTreeSet<&str> = own.chain(borrowed.map(|(_, value)| value.as_str())).collect();
            if !values.is_empty() {
                write!(out, " enum={}", values.into_iter().collect::<Vec<_>>().join(","))?;
            }
        }
        out.push('\n');
        Ok(())
    }

    fn structure(&self, out: &mut String, ty: &TypeDecl, fields: &[FieldDecl]) -> Result<()> {
        let union = !fields.is_empty()
            && fields.iter().all(|field| field.tags.contains_key("protobuf") && !field.tags.contains_key("json"));
        write!(out, "{} {}", if union { "union" } else { "type" }, ty.name)?;
        let is_object = fields.first().is_some_and(|field| field.ty.ends_with(".TypeMeta") || field.ty == "TypeMeta");
        if is_object && ty.markers.iter().any(|marker| marker.starts_with("k8s:deepcopy-gen:interfaces=")) {
            match SERVED_AS.iter().find(|(name, _)| self.import == META && *name == ty.name) {
                Some((_, group_version)) => write!(out, " kind={group_version}")?,
                None => out.push_str(" kind"),
            }
        }
        if ty.marker("structType") == Some("atomic") || ty.marker("mapType") == Some("atomic") {
            out.push_str(" atomic");
        }
        if ty.has("union") {
            out.push_str(" oneof");
            if let Some(field) = fields.iter().find(|field| field.has("unionDiscriminator")) {
                let json = field.tags.get("json").map_or("", String::as_str);
                write!(out, "={}", json.split(',').next().unwrap_or_default())?;
            }
        }
        out.push('\n');
        for field in fields {
            self.field(out, ty, field).with_context(|| format!("field {} {}", field.name, field.ty))?;
        }
        Ok(())
    }

    fn field(&self, out: &mut String, ty: &TypeDecl, field: &FieldDecl) -> Result<()> {
        let json = field.tags.get("json").map_or("", String::as_str);
        let mut flags = json.split(',');
        let name = flags.next().unwrap_or_default();
        let flags: Vec<&str> = flags.collect();
        if name == "-" || !(field.name.is_empty() || field.name.starts_with(|first: char| first.is_ascii_uppercase())) {
            return Ok(());
        }
        let number = protobuf_number(field);
        let Some(written) = self.written(&field.ty) else { return Ok(()) };
        if field.name.is_empty() && name.is_empty() {
            writeln!(out, "  + {number} {written}")?;
            return Ok(());
        }
        let name = if name.is_empty() { &field.name } else { name };
        write!(out, "  {name} {number} {written}")?;
        for flag in &flags {
            if *flag != "inline" {
                write!(out, " {flag}")?;
            }
        }
        let optional = field.has("optional") || field.has("k8s:optional") || flags.contains(&"omitempty");
        if field.has("required") || field.has("k8s:required") || !optional {
            out.push_str(" required");
        }
        self.merging(out, field)?;
        let key = format!("{}.{}.{name}", short(self.import), ty.name);
        if let Some(default) = self.default(field)? {
            write!(out, " default={default}")?;
        } else if let Some(found) = self.defaults.get(&key) {
            write!(out, " becomes={found}")?;
        }
        out.push('\n');
        Ok(())
    }

    fn merging(&self, out: &mut String, field: &FieldDecl) -> Result<()> {
        if let Some(strategy) = field.tags.get("patchStrategy") {
            write!(out, " patch={strategy}")?;
        }
        if let Some(key) = field.tags.get("patchMergeKey") {
            write!(out, " key={key}")?;
        }
        match field.marker("listType") {
            Some("map") => {
                let keys: Vec<&str> =
                    field.markers.iter().filter_map(|marker| marker.strip_prefix("listMapKey=")).collect();
                write!(out, " list=map:{}", keys.join(","))?;
            }
            Some(kind) => write!(out, " list={kind}")?,
            None => {}
        }
        if field.marker("structType") == Some("atomic") || field.marker("mapType") == Some("atomic") {
            out.push_str(" map=atomic");
        }
        if field.marker("structType") == Some("granular") || field.marker("mapType") == Some("granular") {
            out.push_str(" map=granular");
        }
        Ok(())
    }

    fn default(&self, field: &FieldDecl) -> Result<Option<String>> {
        let Some(text) = field.marker("default").or_else(|| field.marker("k8s:default")) else { return Ok(None) };
        let value = match text.strip_prefix("ref(").and_then(|rest| rest.strip_suffix(')')) {
            Some(name) => {
                let constant = self.packages[self.import].constants.get(name).context("unknown constant")?;
                serde_json::Value::from(constant.1.as_str())
            }
            None => serde_json::from_str(text).context("default is not JSON")?,
        };
        Ok(Some(value.to_string()))
    }

    /// A Go type as the table writes it; none for what never travels.
    fn written(&self, ty: &str) -> Option<String> {
        if let Some((_, basic)) = BASIC.iter().find(|(go, _)| *go == ty || self.own(go) == Some(ty)) {
            return Some((*basic).to_owned());
        }
        if let Some(rest) = ty.strip_prefix('*') {
            return Some(format!("*{}", self.written(rest)?));
        }
        if let Some(rest) = ty.strip_prefix("[]") {
            return Some(format!("[]{}", self.written(rest)?));
        }
        if let Some((key, item)) = ty.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            return Some(format!("map[{}]{}", self.written(key)?, self.written(item)?));
        }
        match ty.rsplit_once('.') {
            Some((import, name)) if self.packages.contains_key(import) => Some(format!("{}.{name}", short(import))),
            Some(_) => None,
            None => {
                let known = self.packages[self.import].types.iter().any(|decl| decl.name == ty);
                known.then(|| ty.to_owned())
            }
        }
    }

    /// The name of a basic type inside its own package.
    fn own(&self, go: &'static str) -> Option<&'static str> {
        go.rsplit_once('.').filter(|(import, _)| *import == self.import).map(|(_, name)| name)
    }
}

fn protobuf_number(field: &FieldDecl) -> u32 {
    let tag = field.tags.get("protobuf").map_or("", String::as_str);
    tag.split(',').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}
