//! The columns of `kubectl get`: the name, and what the definition says or the age.

use jiff::Timestamp;
use pintle_machinery::time;
use serde_json::{Value, json};

use super::jsonpath::JsonPath;
use crate::engine::table::DEFAULT_COLUMNS;

/// One column.
#[derive(Debug)]
pub struct Column {
    name: String,
    ty: String,
    format: String,
    description: String,
    priority: i64,
    path: Option<JsonPath>,
}

/// The columns of a version of a definition, but for the name.
pub fn of(version: &Value) -> Vec<Column> {
    let columns: Vec<Column> =
        version["additionalPrinterColumns"].as_array().into_iter().flatten().map(Column::read).collect();
    if !columns.is_empty() {
        return columns;
    }
    vec![Column {
        name: "Age".into(),
        ty: "date".into(),
        format: String::new(),
        description: DEFAULT_COLUMNS[1].description.into(),
        priority: 0,
        path: JsonPath::parse(".metadata.creationTimestamp"),
    }]
}

/// What a Table says of its columns.
pub fn definitions(columns: &[Column]) -> Vec<Value> {
    std::iter::once(DEFAULT_COLUMNS[0].definition()).chain(columns.iter().map(Column::definition)).collect()
}

/// The cells of an object.
pub fn cells(columns: &[Column], object: &Value, now: Timestamp) -> Vec<Value> {
    let name = object["metadata"]["name"].clone();
    std::iter::once(name).chain(columns.iter().map(|column| column.cell(object, now))).collect()
}

impl Column {
    fn read(column: &Value) -> Self {
        let text = |name: &str| column[name].as_str().unwrap_or_default().to_owned();
        let path = text("jsonPath");
        let description = match text("description") {
            empty if empty.is_empty() => {
                format!("Custom resource definition column (in JSONPath format): {path}")
            }
            given => given,
        };
        let priority = column["priority"].as_i64().unwrap_or(0);
        let path = JsonPath::parse(&path);
        Self { name: text("name"), ty: text("type"), format: text("format"), description, priority, path }
    }

    fn definition(&self) -> Value {
        json!({"name": self.name, "type": self.ty, "format": self.format,
               "description": self.description, "priority": self.priority})
    }

    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let Some(value) = self.path.as_ref().and_then(|path| path.first(object)) else { return Value::Null };
        match (self.ty.as_str(), value) {
            (_, Value::Null) => Value::Null,
            ("string", Value::String(text)) => json!(text),
            ("string", other) => json!(other.to_string()),
            ("integer", Value::Number(number)) => json!(number.as_i64().or(number.as_f64().map(|float| float as i64))),
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(text)) => match time::parse(text) {
                Some(_) => json!(time::age(Some(text), now)),
                None => json!("<invalid>"),
            },
            _ => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_by_type() {
        let column = |ty: &str, path: &str| json!({"name": "C", "type": ty, "jsonPath": path});
        let version = json!({"additionalPrinterColumns": [
            column("integer", ".spec.size"), column("string", ".spec.size"), column("string", ".spec.list"),
            column("integer", ".spec.text"), column("date", ".metadata.creationTimestamp"), column("date", ".spec.text"),
            column("boolean", ".spec.on"), column("string", ".spec.none"), column("number", ".spec.half"),
        ]});
        let object = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"size": 3, "list": [1, "x"], "text": "t", "on": true, "half": 0.5}});
        let columns = of(&version);
        let cells = cells(&columns, &object, "2026-01-01T00:00:28Z".parse().unwrap());
        assert_eq!(json!(cells), json!(["a", 3, "3", "[1,\"x\"]", null, "28s", "<invalid>", true, null, 0.5]));
        let definitions = definitions(&columns);
        assert_eq!(definitions[1]["description"], "Custom resource definition column (in JSONPath format): .spec.size");
        assert_eq!(of(&json!({})).iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["Age"]);
    }
}
