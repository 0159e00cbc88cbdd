//! Reads the facts table: text, one block a type, one line a field.
//!
//! ```text
//! package apps.v1 io.k8s.api.apps.v1 go=v1 serves=apps/v1
//! alias DeploymentStrategyType string enum=Recreate,RollingUpdate
//! type Deployment kind
//!   + 0 meta.v1.TypeMeta
//!   metadata 1 meta.v1.ObjectMeta omitempty
//!   spec 2 DeploymentSpec omitempty
//! type DeploymentSpec
//!   replicas 1 *int32 omitempty default=1
//!   conditions 6 []DeploymentCondition omitempty patch=merge key=type list=map:type
//! ```
//! A field line is JSON name, protobuf number, type, flags; `default=` is the last flag, JSON to the end of the line, as
//! `enum=` is an alias' last one. `becomes=` is a default too, one that only the server's behaviour tells.
//! `+` embeds a struct. Types are written as in Go: `*` absent is not zero, `[]` list, `map[string]`; a name without
//! dots is of the same package, `core.v1.Pod` is of another one, lower-case names are the basic types.

use std::collections::HashMap;

use super::{Builder, Field, Gvk, ListKind, MapKind, PatchStrategy, Said, Schema, StructId, Type};

/// Where the types that all kinds share live in OpenAPI.
pub const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// What is wrong with a table.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line} of {file}: {what}: {text}")]
pub struct TableError {
    file: String,
    line: usize,
    text: String,
    what: &'static str,
}

/// A table's file name and text.
pub type Source<'a> = (&'a str, &'a str);

/// Reads the tables of one schema; they may refer to each other.
pub fn parse(sources: &[Source<'_>]) -> Result<Schema, TableError> {
    let mut reader = Reader::default();
    reader.each_line(sources, Reader::declare)?;
    reader.each_line(sources, Reader::define)?;
    Ok(reader.builder.finish())
}

#[derive(Default)]
struct Reader<'a> {
    builder: Builder,
    packages: HashMap<&'a str, Package<'a>>,
    aliases: HashMap<(&'a str, &'a str), Alias<'a>>,
    structs: HashMap<(&'a str, &'a str), (StructId, bool)>,
    package: &'a str,
    current: Option<StructId>,
}

#[derive(Clone, Copy)]
struct Package<'a> {
    prefix: &'a str,
    go: &'a str,
    serves: Option<&'a str>,
}

#[derive(Clone, Copy)]
struct Alias<'a> {
    ty: &'a str,
    values: Option<&'a str>,
    wrapped: bool,
}

type Step<'a> = Result<(), &'static str>;

impl<'a> Reader<'a> {
    fn each_line(
        &mut self,
        sources: &[Source<'a>],
        step: fn(&mut Reader<'a>, &'a str) -> Step<'a>,
    ) -> Result<(), TableError> {
        for (file, text) in sources {
            for (at, line) in text.lines().enumerate() {
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                step(self, line).map_err(|what| TableError {
                    file: (*file).to_owned(),
                    line: at + 1,
                    text: line.to_owned(),
                    what,
                })?;
            }
        }
        Ok(())
    }

    /// First pass: packages, aliases and names of structs.
    fn declare(&mut self, line: &'a str) -> Step<'a> {
        let mut words = line.split(' ');
        match words.next() {
            Some("package") => self.package_line(words),
            Some("alias") => {
                let name = words.next().ok_or("alias without a name")?;
                let ty = words.next().ok_or("alias without a type")?;
                let values = line.split_once(" enum=").map(|(_, values)| values);
                let alias = Alias { ty, values, wrapped: words.next() == Some("wrapped") };
                self.aliases.insert((self.package, name), alias);
                Ok(())
            }
            Some(word @ ("type" | "union")) => {
                let name = words.next().ok_or("type without a name")?;
                let package = *self.packages.get(self.package).ok_or("no package line before")?;
                let full = format!("{}.{name}", package.prefix);
                let id = self.builder.reserve(&full, format!("{}.{name}", package.go));
                self.structs.insert((self.package, name), (id, word == "union"));
                for flag in words {
                    match flag.split_once('=').unwrap_or((flag, "")) {
                        ("kind", "") => self.builder.kind(id, served(package.serves, name)?),
                        ("kind", group_version) => self.builder.kind(id, served(Some(group_version), name)?),
                        ("atomic", _) => self.builder.map_kind(id, MapKind::Atomic),
                        ("oneof", discriminator) => self.builder.one_of(id, discriminator),
                        _ => return Err("unknown flag"),
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn package_line(&mut self, mut words: std::str::Split<'a, char>) -> Step<'a> {
        self.package = words.next().ok_or("package without a name")?;
        let prefix = words.next().ok_or("package without an OpenAPI prefix")?;
        let mut package = Package { prefix, go: "", serves: None };
        for flag in words {
            match flag.split_once('=') {
                Some(("go", name)) => package.go = name,
                Some(("serves", group_version)) => package.serves = Some(group_version),
                _ => return Err("unknown flag"),
            }
        }
        self.packages.insert(self.package, package);
        Ok(())
    }

    /// Second pass: fields.
    fn define(&mut self, line: &'a str) -> Step<'a> {
        if let Some(field) = line.strip_prefix("  ") {
            let id = self.current.ok_or("field outside of a type")?;
            return self.field_line(id, field);
        }
        let mut words = line.split(' ');
        match words.next() {
            Some("package") => self.package = words.next().unwrap_or_default(),
            Some("type" | "union") => {
                let name = words.next().unwrap_or_default();
                self.current = self.structs.get(&(self.package, name)).map(|found| found.0);
            }
            Some("alias") => {}
            _ => return Err("unknown line"),
        }
        Ok(())
    }

    fn field_line(&mut self, id: StructId, line: &'a str) -> Step<'a> {
        let told = line.split_once(" default=");
        let (line, default) = match told.or_else(|| line.split_once(" becomes=")) {
            Some((line, default)) => (line, Some(serde_json::from_str(default).map_err(|_| "default is not JSON")?)),
            None => (line, None),
        };
        let mut words = line.split(' ');
        let json = words.next().unwrap_or_default();
        let number = words.next().and_then(|number| number.parse().ok()).ok_or("no field number")?;
        let written = words.next().ok_or("no type")?;
        if json == "+" {
            let ty = self.read_type(self.package, written, &mut String::new(), &mut Vec::new())?;
            let Type::Struct(embedded) = ty else { return Err("only structs are embedded") };
            self.builder.embed(id, number, embedded);
            return Ok(());
        }
        let (pointer, written) = written.strip_prefix('*').map_or((false, written), |rest| (true, rest));
        let mut go = String::new();
        let mut enum_values = Vec::new();
        let ty = self.read_type(self.package, written, &mut go, &mut enum_values)?;
        let mut field = Field {
            json: json.to_owned(),
            number,
            ty,
            pointer,
            omit_empty: false,
            omit_zero: false,
            required: false,
            list: ListKind::Atomic,
            map: MapKind::Granular,
            granular: false,
            patch_strategy: PatchStrategy::default(),
            patch_merge_key: None,
            default,
            said: Said { default: told.is_some(), list: false },
            enum_values,
            embedded: None,
            go,
        };
        words.try_for_each(|flag| set_flag(&mut field, flag))?;
        self.builder.field(id, field);
        Ok(())
    }

    /// Reads a type of `package`; appends its Go name and those of its items to `go`, an alias' values to `values`.
    fn read_type(
        &self,
        package: &'a str,
        written: &'a str,
        go: &mut String,
        values: &mut Vec<String>,
    ) -> Result<Type, &'static str> {
        if let Some(basic) = basic(written) {
            push_go(go, basic.1);
            return Ok(basic.0);
        }
        if let Some(item) = written.strip_prefix("[]") {
            push_go(go, &format!("[]{}", self.go_name(package, item)));
            return Ok(Type::List(Box::new(self.read_type(package, item.trim_start_matches('*'), go, values)?)));
        }
        if let Some((key, item)) = written.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            push_go(go, &format!("map[{}]{}", self.go_name(package, key), self.go_name(package, item)));
            return Ok(Type::Map(Box::new(self.read_type(package, item.trim_start_matches('*'), go, values)?)));
        }
        let (package, name) = written.rsplit_once('.').unwrap_or((package, written));
        if let Some(&(id, union)) = self.structs.get(&(package, name)) {
            push_go(go, &self.go_name(package, name));
            return Ok(if union { Type::Union(id) } else { Type::Struct(id) });
        }
        let alias = self.aliases.get(&(package, name)).ok_or("unknown type")?;
        let mut inner = String::new();
        let mut of_target = Vec::new();
        let ty = self.read_type(package, alias.ty, &mut inner, &mut of_target)?;
        match alias.values {
            Some(list) => values.extend(list.split(',').map(str::to_owned)),
            None => values.append(&mut of_target),
        }
        push_go(go, &self.go_name(package, name));
        if let Some((_, items)) = inner.split_once('|') {
            push_go(go, items);
        }
        match ty {
            Type::List(item) if alias.wrapped => Ok(Type::Wrapped(item)),
            ty => Ok(ty),
        }
    }

    /// How Go's reflection names a written type.
    fn go_name(&self, package: &str, written: &str) -> String {
        if let Some(rest) = written.strip_prefix('*') {
            return format!("*{}", self.go_name(package, rest));
        }
        if let Some(rest) = written.strip_prefix("[]") {
            return format!("[]{}", self.go_name(package, rest));
        }
        if let Some((key, item)) = written.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            return format!("map[{}]{}", self.go_name(package, key), self.go_name(package, item));
        }
        if let Some((_, go)) = basic(written) {
            return go.to_owned();
        }
        let (package, name) = written.rsplit_once('.').unwrap_or((package, written));
        format!("{}.{name}", self.packages.get(package).map_or("", |package| package.go))
    }
}

fn push_go(go: &mut String, name: &str) {
    if !go.is_empty() {
        go.push('|');
    }
    go.push_str(name);
}

fn served(serves: Option<&str>, kind: &str) -> Result<Gvk, &'static str> {
    let group_version = serves.ok_or("kind in a package that is not served")?;
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    Ok(Gvk::new(group, version, kind))
}

/// The basic types: as the table writes them, and as Go's reflection names them.
const BASIC: [(&str, Type, &str); 14] = [
    ("string", Type::String, "string"),
    ("bool", Type::Bool, "bool"),
    ("int32", Type::Int32, "int32"),
    ("int64", Type::Int64, "int64"),
    ("double", Type::Double, "float64"),
    ("bytes", Type::Bytes, "[]uint8"),
    ("time", Type::Time, "v1.Time"),
    ("microtime", Type::MicroTime, "v1.MicroTime"),
    ("duration", Type::Duration, "v1.Duration"),
    ("quantity", Type::Quantity, "resource.Quantity"),
    ("intorstring", Type::IntOrString, "intstr.IntOrString"),
    ("object", Type::Any, "runtime.RawExtension"),
    ("json", Type::Any, "v1.JSON"),
    ("fieldsv1", Type::FieldsV1, "v1.FieldsV1"),
];

fn basic(written: &str) -> Option<(Type, &'static str)> {
    BASIC.iter().find(|(name, ..)| *name == written).map(|(_, ty, go)| (ty.clone(), *go))
}

fn set_flag(field: &mut Field, flag: &str) -> Result<(), &'static str> {
    field.said.list |= flag.starts_with("list=");
    match flag.split_once('=').unwrap_or((flag, "")) {
        ("omitempty", _) => field.omit_empty = true,
        ("omitzero", _) => field.omit_zero = true,
        ("required", _) => field.required = true,
        ("patch", strategies) => {
            field.patch_strategy.merge = strategies.split(',').any(|one| one == "merge");
            field.patch_strategy.retain_keys = strategies.split(',').any(|one| one == "retainKeys");
            field.patch_strategy.replace = strategies == "replace";
        }
        ("key", key) => field.patch_merge_key = Some(key.to_owned()),
        ("list", "atomic") => field.list = ListKind::Atomic,
        ("list", "set") => field.list = ListKind::Set,
        ("list", keys) => {
            let keys = keys.strip_prefix("map:").ok_or("unknown list kind")?;
            field.list = ListKind::Map(keys.split(',').map(str::to_owned).collect());
        }
        ("map", "atomic") => field.map = MapKind::Atomic,
        ("map", "granular") => field.granular = true,
        _ => return Err("unknown flag"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const META_TABLE: &str = "package meta.v1 io.k8s.apimachinery.pkg.apis.meta.v1 go=v1\n\
        type TypeMeta\n  kind 1 string omitempty\n  apiVersion 2 string omitempty\n";
    const TABLE: &str = "package apps.v1 io.k8s.api.apps.v1 go=v1 serves=apps/v1\n\
        alias Policy string enum=A,B\n\
        alias Amounts map[Policy]quantity\n\
        alias Extra []string wrapped\n\
        type Thing kind\n  + 0 meta.v1.TypeMeta\n  spec 2 Spec omitempty\n\
        type Spec atomic\n  replicas 3 *int32 omitempty default=1\n  policy 1 Policy omitempty\n  amounts 2 Amounts\n\
        \x20 + 4 Inner\n  items 5 []Spec patch=merge,retainKeys key=name list=map:name,port\n  extra 6 Extra\n\
        type Inner\n  deep 1 []bytes required\n";

    fn schema() -> Schema {
        parse(&[("meta", META_TABLE), ("apps", TABLE)]).unwrap()
    }

    #[test]
    fn reads_kinds_and_embedded_structs() {
        let schema = schema();
        let thing = schema.kind("apps", "v1", "Thing").unwrap();
        let names: Vec<_> = thing.fields.iter().map(|field| field.json.as_str()).collect();
        assert_eq!(names, ["kind", "apiVersion", "spec"]);
        assert_eq!(thing.wire.len(), 1, "kind and apiVersion are in the envelope");
        let spec = schema.resolve(&thing.field("spec").unwrap().ty).unwrap();
        assert_eq!(spec.map, MapKind::Atomic);
        let names: Vec<_> = spec.fields.iter().map(|field| field.json.as_str()).collect();
        assert_eq!(names, ["replicas", "policy", "amounts", "deep", "items", "extra"]);
        let numbers: Vec<_> = spec.wire.iter().map(|wire| wire.number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
        assert!(matches!(spec.wire_field(4).unwrap().source, super::super::Source::Embedded(_)));
        assert!(spec.wire_field(0).is_none() && spec.wire_field(7).is_none());
    }

    #[test]
    fn reads_flags_and_go_names() {
        let schema = schema();
        let spec = schema.by_name("io.k8s.api.apps.v1.Spec").unwrap();
        let replicas = spec.field("replicas").unwrap();
        assert!(replicas.pointer && replicas.omit_empty);
        assert_eq!(replicas.default, Some(1.into()));
        assert!(replicas.said.default && !replicas.said.list);
        assert_eq!(spec.field("policy").unwrap().enum_values, ["A", "B"]);
        let amounts = spec.field("amounts").unwrap();
        assert_eq!((amounts.go_type(0), amounts.go_type(1)), ("v1.Amounts", "resource.Quantity"));
        let items = spec.field("items").unwrap();
        assert_eq!((items.go_type(0), items.go_type(1)), ("[]v1.Spec", "v1.Spec"));
        assert_eq!(items.list, ListKind::Map(vec!["name".into(), "port".into()]));
        assert!(items.said.list && !items.said.default);
        assert!(items.patch_strategy.merge && items.patch_strategy.retain_keys);
        assert_eq!(spec.field("extra").unwrap().ty, Type::Wrapped(Box::new(Type::String)));
    }

    #[test]
    fn names_the_bad_line() {
        let table = "package a io.a go=a\ntype T\n  f 1 Unknown\n";
        let error = parse(&[("a", table)]).unwrap_err();
        assert_eq!(error.to_string(), "line 3 of a: unknown type:   f 1 Unknown");
    }
}
