//! The JSONPath of printer columns, scale and selectable fields: fields, indexes, `[*]` and filters.

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// From the end if below zero.
    Index(i64),
    All,
    /// Items of which a path has, or has not, that value.
    Filter {
        path: Vec<String>,
        equal: bool,
        value: Value,
    },
}

impl JsonPath {
    /// Reads a path such as `.status.conditions[?(@.type=="Ready")].status`. `None`: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let mut rest = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
        rest = rest.strip_prefix('$').unwrap_or(rest);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, left) = if let Some(inner) = rest.strip_prefix('[') {
                let end = closing(inner)?;
                (bracket(inner[..end].trim())?, &inner[end + 1..])
            } else {
                let name = rest.strip_prefix('.')?;
                let (name, left) = field(name);
                match name.as_str() {
                    // `.[0]`
                    "" if left.starts_with('[') => {
                        rest = left;
                        continue;
                    }
                    "" => return None,
                    "*" => (Step::All, left),
                    _ => (Step::Field(name), left),
                }
            };
            steps.push(step);
            rest = left;
        }
        (!steps.is_empty()).then_some(Self { steps })
    }

    /// The values at the path.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        self.steps
            .iter()
            .fold(vec![value], |found, step| found.into_iter().flat_map(|value| step.find(value)).collect())
    }

    /// The first value at the path.
    pub fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.find(value).into_iter().next()
    }

    /// The names, if it has nothing but fields: it can be written through.
    pub fn fields(&self) -> Option<Vec<&str>> {
        let name = |step: &Step| match step {
            Step::Field(name) => Some(name.len()),
            _ => None,
        };
        self.steps.iter().all(|step| name(step).is_some()).then(|| {
            self.steps
                .iter()
                .filter_map(|step| if let Step::Field(name) = step { Some(name.as_str()) } else { None })
                .collect()
        })
    }
}

impl Step {
    fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Self::Index(index), Value::Array(items)) => {
                let at = if *index < 0 { items.len() as i64 + index } else { *index };
                usize::try_from(at).ok().and_then(|at| items.get(at)).into_iter().collect()
            }
            (Self::All, Value::Array(items)) => items.iter().collect(),
            (Self::All, Value::Object(map)) => map.values().collect(),
            (Self::Filter { path, equal, value: wanted }, Value::Array(items)) => {
                let of = |item: &'a Value| path.iter().try_fold(item, |value, name| value.get(name));
                items.iter().filter(|item| of(item).is_some_and(|found| (found == wanted) == *equal)).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// A field's name and what follows; a backslash makes the next character part of the name.
fn field(text: &str) -> (String, &str) {
    let (mut name, mut escaped) = (String::new(), false);
    for (at, c) in text.char_indices() {
        match c {
            '\\' if !escaped => escaped = true,
            '.' | '[' if !escaped => return (name, &text[at..]),
            c => {
                name.push(c);
                escaped = false;
            }
        }
    }
    (name, "")
}

/// Where the bracket that is open closes; not in quotes, not in inner brackets.
fn closing(text: &str) -> Option<usize> {
    let (mut quote, mut depth) = (None, 0);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(inner: &str) -> Option<Step> {
    if inner == "*" {
        return Some(Step::All);
    }
    if let Some(name) = quoted(inner) {
        return Some(Step::Field(name.replace("\\.", ".")));
    }
    if let Some(condition) = inner.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
        let (left, equal, right) = match (condition.split_once("=="), condition.split_once("!=")) {
            (Some((left, right)), _) => (left, true, right),
            (_, Some((left, right))) => (left, false, right),
            _ => return None,
        };
        let path = left.trim().strip_prefix("@.")?.split('.').map(str::to_owned).collect();
        let right = right.trim();
        let value = match quoted(right) {
            Some(text) => Value::from(text),
            None => serde_json::from_str(right).ok()?,
        };
        return Some(Step::Filter { path, equal, value });
    }
    inner.parse().ok().map(Step::Index)
}

fn quoted(text: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths() {
        let value = json!({"spec": {"size": 3, "list": [{"a": 1}, {"a": 2}], "labels": {"x.y/z": "l"}},
            "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}]}});
        for (path, wanted) in [
            (".spec.size", json!([3])),
            ("{.spec.size}", json!([3])),
            (".spec.list[1].a", json!([2])),
            (".spec.list[-1].a", json!([2])),
            (".spec.list[*].a", json!([1, 2])),
            (".spec.labels.x\\.y/z", json!(["l"])),
            (".spec.labels['x\\.y/z']", json!(["l"])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.type!='Ready')].status", json!(["False"])),
            (".spec.none.at.all", json!([])),
            (".spec.list[7]", json!([])),
        ] {
            let found: Vec<Value> = JsonPath::parse(path).unwrap().find(&value).into_iter().cloned().collect();
            assert_eq!(Value::from(found), wanted, "{path}");
        }
        for path in ["", "spec", ".spec..size", ".spec[", ".spec[x]"] {
            assert_eq!(JsonPath::parse(path), None, "{path}");
        }
        assert_eq!(JsonPath::parse(".spec.size").unwrap().fields(), Some(vec!["spec", "size"]));
        assert_eq!(JsonPath::parse(".spec.list[0]").unwrap().fields(), None);
    }
}
