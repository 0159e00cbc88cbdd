//! Reads the declarations of Go API packages: just enough of the language for types, tags, markers and constants.

use std::collections::{BTreeMap, HashMap};

/// A Go package's declarations.
#[derive(Debug, Default)]
pub struct Package {
    /// `// +groupName=` or the GroupName constant.
    pub group: Option<String>,
    /// Types in the order of the source.
    pub types: Vec<TypeDecl>,
    /// Constants: name → (type, value).
    pub constants: BTreeMap<String, (String, String)>,
    /// Constants that are those of another package: name → (type, that package's path, name there).
    pub borrowed: BTreeMap<String, (String, String, String)>,
}

/// A type declaration.
#[derive(Debug)]
pub struct TypeDecl {
    /// Its name.
    pub name: String,
    /// Markers without the `+`, in order.
    pub markers: Vec<String>,
    /// What it is.
    pub body: Body,
}

/// What a type is.
#[derive(Debug)]
pub enum Body {
    /// A struct.
    Struct(Vec<FieldDecl>),
    /// Another name of, or a type over, this one, resolved to full package paths.
    Alias(String),
}

/// A struct field.
#[derive(Debug)]
pub struct FieldDecl {
    /// Go name; empty for an embedded struct.
    pub name: String,
    /// Type, package names resolved to paths: `[]k8s.io/api/core/v1.Container`.
    pub ty: String,
    /// The tags: key → value.
    pub tags: HashMap<String, String>,
    /// Markers without the `+`.
    pub markers: Vec<String>,
}

impl TypeDecl {
    /// The value of `+name=value`.
    pub fn marker(&self, name: &str) -> Option<&str> {
        marker(&self.markers, name)
    }

    /// Whether `+name` is there.
    pub fn has(&self, name: &str) -> bool {
        self.markers.iter().any(|marker| marker == name)
    }
}

impl FieldDecl {
    /// The value of `+name=value`.
    pub fn marker(&self, name: &str) -> Option<&str> {
        marker(&self.markers, name)
    }

    /// Whether `+name` is there.
    pub fn has(&self, name: &str) -> bool {
        self.markers.iter().any(|marker| marker == name)
    }
}

fn marker<'a>(markers: &'a [String], name: &str) -> Option<&'a str> {
    markers.iter().find_map(|marker| marker.strip_prefix(name)?.strip_prefix('='))
}

/// Reads one file's text into the package.
pub fn read_file(package: &mut Package, text: &str) {
    File { package, imports: HashMap::new(), markers: Vec::new() }.read(text);
}

struct File<'a> {
    package: &'a mut Package,
    imports: HashMap<String, String>,
    markers: Vec<String>,
}

impl File<'_> {
    fn read(&mut self, text: &str) {
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(comment) = line.strip_prefix("//") {
                self.comment(comment);
            } else if let Some(rest) = line.strip_prefix("import ") {
                self.import(rest, &mut lines);
            } else if line.starts_with("const ") {
                self.constants(line, &mut lines);
            } else if let Some(rest) = line.strip_prefix("type ") {
                self.declaration(rest, &mut lines);
            } else if !line.trim().is_empty() {
                self.markers.clear();
            }
        }
    }

    fn comment(&mut self, comment: &str) {
        if let Some(marker) = comment.trim().strip_prefix('+') {
            if let Some(group) = marker.strip_prefix("groupName=") {
                self.package.group = Some(group.to_owned());
            }
            self.markers.push(marker.to_owned());
        }
    }

    fn import<'t>(&mut self, first: &str, lines: &mut impl Iterator<Item = &'t str>) {
        if first.trim() != "(" {
            self.import_line(first);
            return;
        }
        for line in lines.take_while(|line| line.trim() != ")") {
            self.import_line(line);
        }
    }

    fn import_line(&mut self, line: &str) {
        let Some((alias, path)) = line.trim().split_once('"') else { return };
        let path = path.trim_end_matches('"');
        let alias = match alias.trim() {
            "" => path.rsplit('/').next().unwrap_or(path),
            alias => alias,
        };
        self.imports.insert(alias.to_owned(), path.to_owned());
    }

    fn constants<'t>(&mut self, first: &str, lines: &mut impl Iterator<Item = &'t str>) {
        self.markers.clear();
        if !first.trim_end().ends_with('(') {
            self.constant(first.trim_start_matches("const "));
            return;
        }
        for line in lines.take_while(|line| *line != ")") {
            self.constant(line);
        }
    }

    fn constant(&mut self, line: &str) {
        let Some((left, value)) = line.trim().split_once('=') else { return };
        let mut words = left.split_whitespace();
        let (Some(name), ty) = (words.next(), words.next().unwrap_or("")) else { return };
        let value = value.trim();
        // `Type("value")` is a typed constant as well, `Type(other.Name)` another package's.
        let (ty, value) = match value.strip_suffix(')').and_then(|text| text.split_once('(')) {
            Some((ty, inner)) if !ty.contains('"') => (ty, inner),
            _ => (ty, value),
        };
        if let Some((alias, foreign)) = value.split_once('.')
            && let Some(import) = self.imports.get(alias)
        {
            let borrowed = (ty.to_owned(), import.clone(), foreign.to_owned());
            self.package.borrowed.insert(name.to_owned(), borrowed);
        }
        let Some(value) = value.strip_prefix('"').and_then(|rest| rest.split('"').next()) else { return };
        if name == "GroupName" && self.package.group.is_none() {
            self.package.group = Some(value.to_owned());
        }
        self.package.constants.insert(name.to_owned(), (ty.to_owned(), value.to_owned()));
    }

    fn declaration<'t>(&mut self, rest: &str, lines: &mut impl Iterator<Item = &'t str>) {
        let markers = std::mem::take(&mut self.markers);
        let Some((name, rest)) = rest.split_once(' ') else { return };
        let rest = rest.split(" //").next().unwrap_or(rest).trim_start_matches("= ").trim();
        let body = if rest == "struct {" {
            Body::Struct(self.fields(lines))
        } else if rest == "struct{}" {
            Body::Struct(Vec::new())
        } else if rest.starts_with("interface") || rest.starts_with("func") {
            return;
        } else {
            Body::Alias(self.resolve(rest))
        };
        self.package.types.push(TypeDecl { name: name.to_owned(), markers, body });
    }

    fn fields<'t>(&mut self, lines: &mut impl Iterator<Item = &'t str>) -> Vec<FieldDecl> {
        let mut fields = Vec::new();
        let mut markers = Vec::new();
        for line in lines.take_while(|line| *line != "}") {
            let line = line.trim();
            if line.is_empty() {
                markers.clear();
            } else if let Some(comment) = line.strip_prefix("//") {
                markers.extend(comment.trim().strip_prefix('+').map(str::to_owned));
            } else {
                fields.extend(self.field(line, std::mem::take(&mut markers)));
            }
        }
        fields
    }

    fn field(&self, line: &str, markers: Vec<String>) -> Option<FieldDecl> {
        let (declared, tags) = line.split_once('`').unwrap_or((line, ""));
        let declared = declared.split(" //").next().unwrap_or(declared);
        let (name, ty) = declared.trim().split_once(' ').unwrap_or(("", declared.trim()));
        Some(FieldDecl { name: name.to_owned(), ty: self.resolve(ty.trim()), tags: read_tags(tags), markers })
    }

    /// Replaces a package name by its path.
    fn resolve(&self, ty: &str) -> String {
        if let Some(rest) = ty.strip_prefix('*') {
            return format!("*{}", self.resolve(rest));
        }
        if let Some(rest) = ty.strip_prefix("[]") {
            return format!("[]{}", self.resolve(rest));
        }
        if let Some((key, item)) = ty.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            return format!("map[{}]{}", self.resolve(key), self.resolve(item));
        }
        match ty.split_once('.') {
            Some((package, name)) => {
                format!("{}.{name}", self.imports.get(package).map_or(package, String::as_str))
            }
            None => ty.to_owned(),
        }
    }
}

fn read_tags(text: &str) -> HashMap<String, String> {
    let mut tags = HashMap::new();
    let mut rest = text.trim_end_matches('`').trim();
    while let Some((key, after)) = rest.split_once(":\"") {
        let Some((value, after)) = after.split_once('"') else { break };
        tags.insert(key.trim().to_owned(), value.to_owned());
        rest = after;
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
package v1

import (
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const GroupName = "things"

// +enum
type Colour string

const (
	Red Colour = "Red" // not blue
	Blue = Colour("Blue")
	Green = Colour(core.Green)
)

// +genclient

// Thing is a thing.
// +structType=atomic
type Thing struct {
	metav1.TypeMeta `json:""`
	// +optional
	// +listType=map
	Boxes []core.Box `json:"boxes,omitempty" patchStrategy:"merge" protobuf:"bytes,2,rep,name=boxes"`
	More map[string]*metav1.Time // nothing
}
"#;

    #[test]
    fn reads_types_and_constants() {
        let mut package = Package::default();
        read_file(&mut package, SOURCE);
        assert_eq!(package.group.as_deref(), Some("things"));
        assert_eq!(package.constants["Red"], ("Colour".to_owned(), "Red".to_owned()));
        assert_eq!(package.constants["Blue"], ("Colour".to_owned(), "Blue".to_owned()));
        let green = ("Colour".to_owned(), "k8s.io/api/core/v1".to_owned(), "Green".to_owned());
        assert_eq!(package.borrowed["Green"], green);
        assert!(package.types[0].has("enum"));
        let thing = &package.types[1];
        assert_eq!(thing.marker("structType"), Some("atomic"));
        assert!(thing.has("genclient"), "a blank line does not part a marker from its type");
        let Body::Struct(fields) = &thing.body else { panic!("not a struct") };
        assert_eq!(fields[0].ty, "k8s.io/apimachinery/pkg/apis/meta/v1.TypeMeta");
        assert_eq!(fields[0].name, "");
        assert_eq!(fields[1].ty, "[]k8s.io/api/core/v1.Box");
        assert_eq!(fields[1].marker("listType"), Some("map"));
        assert_eq!(fields[1].tags["patchStrategy"], "merge");
        assert_eq!(fields[2].ty, "map[string]*k8s.io/apimachinery/pkg/apis/meta/v1.Time");
    }
}
