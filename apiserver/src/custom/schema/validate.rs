//! What is wrong with a value by its schema, in upstream's words.
//!
//! A part that an update leaves as it was is not looked at (KEP-4008, ratcheting): a schema may become stricter than
//! what is stored.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::status::quoted;
use serde_json::{Map, Number, Value};

use super::{Bounds, Checks, List, Node, formats};

/// The faults of a whole object; `old` is what an update starts from. Kind, apiVersion and metadata are not looked at.
pub fn validate(node: &Node, new: &Value, old: Option<&Value>) -> ErrorList {
    let mut walk = Walk { errors: ErrorList::new() };
    walk.value(node, &Path::root(), new, old);
    let mut errors = walk.errors;
    embedded(node, &Path::root(), new, &mut errors);
    doubles(node, &Path::root(), new, old, &mut errors);
    errors
}

struct Walk {
    errors: ErrorList,
}

/// What the schema's messages call the type of a value.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if is_whole(number) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_whole(number: &Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

impl Walk {
    fn value(&mut self, node: &Node, path: &Path, new: &Value, old: Option<&Value>) {
        if old == Some(new) || (new.is_null() && node.nullable) {
            return;
        }
        self.types(node, path, new);
        self.combined(&node.checks, path, new);
        match new {
            Value::String(text) => self.text(node, path, text),
            Value::Number(number) => self.number(node, path, number),
            Value::Array(items) => self.list(node, path, items, old),
            _ => {}
        }
        if !node.checks.values.is_empty() && !node.checks.values.contains(new) {
            let shown: Vec<String> = node.checks.values.iter().map(plain).collect();
            let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
            self.errors.not_supported(path, new.clone(), &shown);
        }
        if let Value::Object(map) = new {
            self.object(node, path, map, old);
        }
    }

    fn types(&mut self, node: &Node, path: &Path, new: &Value) {
        let found = type_of(new);
        let wanted = match &node.ty {
            _ if node.int_or_string => "integer,string",
            Some(ty) => ty,
            None => return,
        };
        let fits = wanted.split(',').any(|ty| ty == found || (ty == "number" && found == "integer"));
        if !fits {
            let detail = format!("{} in body must be of type {wanted}: \"{found}\"", shown(path));
            self.errors.push(FieldError::new(Fault::TypeInvalid, path, found, detail));
        }
    }

    /// `allOf`, `anyOf`, `oneOf`, `not`.
    fn combined(&mut self, checks: &Checks, path: &Path, new: &Value) {
        let name = quoted(&shown(path));
        let tried = |nodes: &[Node]| -> Vec<ErrorList> {
            let one = |node: &Node| {
                let mut walk = Walk { errors: ErrorList::new() };
                walk.value(node, path, new, None);
                walk.errors
            };
            nodes.iter().map(one).collect()
        };
        // The alternative that comes nearest tells what it lacks.
        let nearest = |tried: Vec<ErrorList>| tried.into_iter().min_by_key(ErrorList::len).unwrap_or_default();
        if !checks.any_of.is_empty() {
            let tried = tried(&checks.any_of);
            if tried.iter().all(|errors| !errors.is_empty()) {
                self.whole(format!("{name} must validate at least one schema (anyOf)"));
                self.errors.extend(nearest(tried));
            }
        }
        if !checks.one_of.is_empty() {
            let tried = tried(&checks.one_of);
            let words = "must validate one and only one schema (oneOf). Found";
            match tried.iter().filter(|errors| errors.is_empty()).count() {
                0 => {
                    self.whole(format!("{name} {words} none valid"));
                    self.errors.extend(nearest(tried));
                }
                1 => {}
                valid => self.whole(format!("{name} {words} {valid} valid alternatives")),
            }
        }
        if !checks.all_of.is_empty() {
            let tried = tried(&checks.all_of);
            let (all, valid) = (tried.len(), tried.iter().filter(|errors| errors.is_empty()).count());
            tried.into_iter().for_each(|errors| self.errors.extend(errors));
            if valid < all {
                let none = if valid == 0 { ". None validated" } else { "" };
                self.whole(format!("{name} must validate all the schemas (allOf){none}"));
            }
        }
        if let Some(not) = &checks.not
            && tried(std::slice::from_ref(not)).iter().all(ErrorList::is_empty)
        {
            self.whole(format!("{name} must not validate the schema (not)"));
        }
    }

    /// A fault that names its place in the words alone.
    fn whole(&mut self, words: String) {
        self.errors.invalid(&Path::root(), "", words);
    }

    fn text(&mut self, node: &Node, path: &Path, text: &str) {
        if !node.is("string") && node.ty.is_some() {
            return;
        }
        let checks = &node.checks;
        let (length, body) = (text.chars().count(), format!("{} in body", shown(path)));
        if let Some(most) = checks.length.1.filter(|most| length > *most) {
            self.errors.too_long(path, most);
        }
        if let Some(least) = checks.length.0.filter(|least| length < *least) {
            self.errors.invalid(path, text, format!("{body} should be at least {least} chars long"));
        }
        if let Some((regex, pattern)) = &checks.pattern
            && !regex.is_match(text)
        {
            self.errors.invalid(path, text, format!("{body} should match '{pattern}'"));
        }
        if !formats::holds(&checks.format, text) {
            let detail = format!("{body} must be of type {}: {}", checks.format, quoted(text));
            self.errors.push(FieldError::new(Fault::TypeInvalid, path, text, detail));
        }
    }

    fn number(&mut self, node: &Node, path: &Path, number: &Number) {
        let (checks, value) = (&node.checks, number.as_f64().unwrap_or_default());
        let body = format!("{} in body", shown(path));
        if let Some(what) = unfit(node, number) {
            self.whole(format!("Checked value must be of type {what} in {}", shown(path)));
            return;
        }
        let of = |words: String| FieldError::new(Fault::Invalid, path, number.clone(), format!("{body} {words}"));
        if let Some(factor) = checks.multiple_of.filter(|factor| *factor > 0.0 && (value / factor).fract() != 0.0) {
            self.errors.push(of(format!("should be a multiple of {factor}")));
        }
        match checks.maximum {
            Some((most, true)) if value >= most => self.errors.push(of(format!("should be less than {most}"))),
            Some((most, false)) if value > most => {
                self.errors.push(of(format!("should be less than or equal to {most}")));
            }
            _ => {}
        }
        match checks.minimum {
            Some((least, true)) if value <= least => self.errors.push(of(format!("should be greater than {least}"))),
            Some((least, false)) if value < least => {
                self.errors.push(of(format!("should be greater than or equal to {least}")));
            }
            _ => {}
        }
    }

    fn list(&mut self, node: &Node, path: &Path, items: &[Value], old: Option<&Value>) {
        if !node.is("array") && node.ty.is_some() {
            return;
        }
        self.counted(node.checks.items, path, items.len(), "items");
        let Some(item) = &node.items else { return };
        for (index, value) in items.iter().enumerate() {
            let before = old.and_then(|old| former(&node.list, value, old));
            self.value(item, &path.index(index), value, before);
        }
    }

    fn object(&mut self, node: &Node, path: &Path, map: &Map<String, Value>, old: Option<&Value>) {
        if !node.is("object") && node.ty.is_some() {
            return;
        }
        for name in node.checks.required.iter().filter(|name| !map.contains_key(*name)) {
            self.errors.required(&path.child(name), "");
        }
        self.counted(node.checks.fields, path, map.len(), "properties");
        for (name, value) in map {
            if let Some(field) = node.field(name) {
                self.value(field, &path.child(name), value, old.and_then(|old| old.get(name)));
            }
        }
    }

    fn counted(&mut self, bounds: Bounds, path: &Path, count: usize, what: &str) {
        if let Some(most) = bounds.1.filter(|most| count > *most) {
            self.errors.too_many(path, count, most);
        }
        if let Some(least) = bounds.0.filter(|least| count < *least) {
            let detail = format!("{} in body should have at least {least} {what}", shown(path));
            self.errors.invalid(path, count, detail);
        }
    }
}

/// A path in the words of a message: of the whole object it is nothing.
fn shown(path: &Path) -> String {
    if *path == Path::root() { String::new() } else { path.to_string() }
}

/// A value as Go's `%v` shows it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Why a number is none of the node's type or format, if so.
fn unfit(node: &Node, number: &Number) -> Option<String> {
    let integer = node.is("integer");
    let fits = match node.checks.format.as_str() {
        "int32" => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        "int64" => number.as_i64().is_some(),
        _ => !integer || is_whole(number),
    };
    (!fits).then(|| match node.checks.format.as_str() {
        "" => "integer (default format)".to_owned(),
        format => format!("integer with format {format}"),
    })
}

/// What an item of a list was before: found by its keys.
fn former<'a>(list: &List, item: &Value, old: &'a Value) -> Option<&'a Value> {
    let List::Map(keys) = list else { return None };
    old.as_array()?.iter().find(|old| keys.iter().all(|key| old.get(key) == item.get(key)))
}

/// Objects in the object must say what they are.
fn embedded(node: &Node, path: &Path, value: &Value, errors: &mut ErrorList) {
    match value {
        Value::Object(map) => {
            if node.embedded {
                for name in ["apiVersion", "kind"] {
                    if map.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                        errors.required(&path.child(name), "");
                    }
                }
            }
            for (name, value) in map {
                node.field(name).into_iter().for_each(|field| embedded(field, &path.child(name), value, errors));
            }
        }
        Value::Array(items) => {
            let Some(item) = &node.items else { return };
            items.iter().enumerate().for_each(|(index, value)| embedded(item, &path.index(index), value, errors));
        }
        _ => {}
    }
}

/// Items of sets and of lists with keys that are there more than once.
fn doubles(node: &Node, path: &Path, new: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    if old == Some(new) {
        return;
    }
    match new {
        Value::Object(map) => {
            for (name, value) in map {
                let Some(field) = node.field(name) else { continue };
                doubles(field, &path.child(name), value, old.and_then(|old| old.get(name)), errors);
            }
        }
        Value::Array(items) => {
            let mut seen = HashSet::new();
            for (index, item) in items.iter().enumerate() {
                let identity = match &node.list {
                    List::Atomic => break,
                    List::Set => item.clone(),
                    List::Map(keys) => keys
                        .iter()
                        .filter_map(|key| Some((key.clone(), item.get(key)?.clone())))
                        .collect::<Map<_, _>>()
                        .into(),
                };
                if !seen.insert(identity.to_string()) {
                    errors.duplicate(&path.index(index), identity);
                }
            }
            let Some(item) = &node.items else { return };
            for (index, value) in items.iter().enumerate() {
                let before = old.and_then(|old| former(&node.list, value, old));
                doubles(item, &path.index(index), value, before, errors);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(schema: &Value, value: &Value) -> String {
        let node = Node::read(&json!({"type": "object", "properties": {"f": schema}}));
        validate(&node, &json!({"f": value}), None).to_string()
    }

    /// Schemas, values and what upstream's server said of them.
    #[test]
    fn words() {
        let of_a =
            |rule: &str, value: Value| json!({"type": "object", "properties": {"a": {"type": "string"}}, rule: value});
        let needs = |name: &str| json!({"required": [name]});
        for (schema, value, wanted) in [
            (
                json!({"type": "string", "minLength": 3}),
                json!("a"),
                "f: Invalid value: \"a\": f in body should be at least 3 chars long",
            ),
            (json!({"type": "string", "maxLength": 5}), json!("abcdef"), "f: Too long: may not be more than 5 bytes"),
            (
                json!({"type": "string", "pattern": "^a+$"}),
                json!("b"),
                "f: Invalid value: \"b\": f in body should match '^a+$'",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
                json!(["a", "b"]),
                "f: Too many: 2: must have at most 1 item",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "minItems": 2}),
                json!(["a"]),
                "f: Invalid value: 1: f in body should have at least 2 items",
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 2}),
                json!({"a": "1"}),
                "f: Invalid value: 1: f in body should have at least 2 properties",
            ),
            (
                json!({"type": "integer", "multipleOf": 3}),
                json!(4),
                "f: Invalid value: 4: f in body should be a multiple of 3",
            ),
            (
                json!({"type": "number", "minimum": 1, "exclusiveMinimum": true}),
                json!(1),
                "f: Invalid value: 1: f in body should be greater than 1",
            ),
            (
                json!({"type": "number", "maximum": 5, "exclusiveMaximum": true}),
                json!(6.5),
                "f: Invalid value: 6.5: f in body should be less than 5",
            ),
            (
                json!({"type": "integer", "maximum": 10}),
                json!(11),
                "f: Invalid value: 11: f in body should be less than or equal to 10",
            ),
            (
                json!({"type": "integer", "enum": [1, 2]}),
                json!(3),
                "f: Unsupported value: 3: supported values: \"1\", \"2\"",
            ),
            (
                json!({"type": "integer", "format": "int32"}),
                json!(3_000_000_000_i64),
                "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in f",
            ),
            (
                json!({"type": "integer"}),
                json!(1.5),
                "[f: Invalid value: \"number\": f in body must be of type integer: \"number\", <nil>: Invalid value: \"\": Checked value must be of type integer (default format) in f]",
            ),
            (json!({"type": "integer"}), json!(1.0), ""),
            (json!({"type": "number"}), json!(1), ""),
            (
                json!({"type": "string", "format": "cidr"}),
                json!("x"),
                "f: Invalid value: \"x\": f in body must be of type cidr: \"x\"",
            ),
            (
                json!({"type": "boolean"}),
                json!("x"),
                "f: Invalid value: \"string\": f in body must be of type boolean: \"string\"",
            ),
            (
                json!({"type": "array", "items": {"type": "object"}}),
                json!(["x"]),
                "f[0]: Invalid value: \"string\": f[0] in body must be of type object: \"string\"",
            ),
            (
                json!({"x-kubernetes-int-or-string": true}),
                json!(1.5),
                "f: Invalid value: \"number\": f in body must be of type integer,string: \"number\"",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
                json!({}),
                "f.a: Required value",
            ),
            (
                json!({"type": "object", "x-kubernetes-embedded-resource": true}),
                json!({}),
                "[f.apiVersion: Required value, f.kind: Required value]",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
                json!(["a", "a"]),
                "f[1]: Duplicate value: \"a\"",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object"}}),
                json!([{"k": 1}, {"k": 1, "v": 2}]),
                "f[1]: Duplicate value: {\"k\":1}",
            ),
            (
                of_a("anyOf", json!([needs("b"), needs("c")])),
                json!({"a": "x"}),
                "[<nil>: Invalid value: \"\": \"f\" must validate at least one schema (anyOf), f.b: Required value]",
            ),
            (
                of_a("oneOf", json!([needs("b"), needs("c")])),
                json!({"a": "x"}),
                "[<nil>: Invalid value: \"\": \"f\" must validate one and only one schema (oneOf). Found none valid, f.b: Required value]",
            ),
            (
                of_a("oneOf", json!([needs("a"), {"minProperties": 1}])),
                json!({"a": "x"}),
                "<nil>: Invalid value: \"\": \"f\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
            ),
            (
                of_a("allOf", json!([needs("b"), needs("c")])),
                json!({"a": "x"}),
                "[f.b: Required value, f.c: Required value, <nil>: Invalid value: \"\": \"f\" must validate all the schemas (allOf). None validated]",
            ),
            (
                of_a("not", needs("a")),
                json!({"a": "x"}),
                "<nil>: Invalid value: \"\": \"f\" must not validate the schema (not)",
            ),
        ] {
            assert_eq!(errors(&schema, &value), wanted, "{schema} {value}");
        }
    }

    #[test]
    fn what_stays_is_not_looked_at() {
        let node = Node::read(&json!({"type": "object", "properties": {
            "a": {"type": "integer", "maximum": 1}, "b": {"type": "string"},
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
                "type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 1}}}},
        }}));
        let old = json!({"a": 5, "list": [{"k": "x", "v": 5}]});
        let new = json!({"a": 5, "b": "x", "list": [{"k": "y", "v": 1}, {"k": "x", "v": 5}]});
        assert!(validate(&node, &new, Some(&old)).is_empty());
        assert_eq!(validate(&node, &json!({"a": 6}), Some(&old)).len(), 1);
        assert_eq!(validate(&node, &new, None).len(), 2);
    }
}
