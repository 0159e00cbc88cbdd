//! Metrics of a HorizontalPodAutoscaler as the annotations of autoscaling/v1 have them, which is a form of long ago.

use serde_json::{Map, Value, json};

/// What is wanted of a metric, or what it is.
#[derive(Clone, Copy)]
pub enum Side {
    /// What is wanted.
    Target,
    /// What it is.
    Current,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Current => "current",
        }
    }
}

/// Types of metrics, and where each has its own.
const TYPES: [(&str, &str); 5] = [
    ("Resource", "resource"),
    ("Pods", "pods"),
    ("Object", "object"),
    ("External", "external"),
    ("ContainerResource", "containerResource"),
];

/// Values, as a metric and as the old form have them; the old form's begin with the side.
const VALUES: [(&str, &str); 3] =
    [("averageUtilization", "AverageUtilization"), ("averageValue", "AverageValue"), ("value", "Value")];

/// The old form's name of a value.
fn value_name(own: &str, value: (&str, &str), side: Side) -> String {
    match (own, value.0) {
        ("object", "averageValue") => "averageValue".to_owned(),
        _ => format!("{}{}", side.name(), value.1),
    }
}

/// The old form's name of a metric's selector.
fn selector_name(own: &str) -> &'static str {
    if own == "external" { "metricSelector" } else { "selector" }
}

fn own_of(metric: &Value) -> Option<&'static str> {
    TYPES.iter().find(|(ty, _)| metric["type"] == *ty).map(|(_, own)| *own)
}

/// A list in the old form, as upstream writes it: fields in the order of its structs.
pub fn told(metrics: &[Value], side: Side) -> String {
    let all: Vec<String> = metrics.iter().map(|metric| one(metric, side)).collect();
    format!("[{}]", all.join(","))
}

fn one(metric: &Value, side: Side) -> String {
    let Some(own) = own_of(metric) else { return metric.to_string() };
    let (from, values) = (&metric[own], &metric[own][side.name()]);
    let mut fields = vec![
        ("target".to_owned(), &from["describedObject"]),
        ("name".to_owned(), &from["name"]),
        ("metricName".to_owned(), &from["metric"]["name"]),
    ];
    if own == "external" {
        fields.push((selector_name(own).to_owned(), &from["metric"]["selector"]));
    }
    fields.extend(VALUES.iter().map(|value| (value_name(own, *value, side), &values[value.0])));
    if matches!(own, "pods" | "object") {
        fields.push((selector_name(own).to_owned(), &from["metric"]["selector"]));
    }
    fields.push(("container".to_owned(), &from["container"]));
    let nothing = json!("0");
    let measured = matches!(side, Side::Current) && matches!(own, "resource" | "containerResource");
    let shown =
        fields.into_iter().map(|(name, value)| match value.is_null() && measured && name == "currentAverageValue" {
            true => (name, &nothing),
            false => (name, value),
        });
    let shown = shown.filter(|(_, value)| !value.is_null()).map(|(name, value)| format!("\"{name}\":{}", text(value)));
    format!("{{\"type\":{},\"{own}\":{{{}}}}}", metric["type"], shown.collect::<Vec<_>>().join(","))
}

/// A reference's fields have an order of their own.
fn text(value: &Value) -> String {
    let fields = ["kind", "name", "apiVersion"].into_iter().filter(|field| !value[*field].is_null());
    match value.get("kind") {
        Some(_) => {
            let fields: Vec<String> = fields.map(|field| format!("\"{field}\":{}", value[field])).collect();
            format!("{{{}}}", fields.join(","))
        }
        None => value.to_string(),
    }
}

/// Turns a metric of the old form into one of today's; one of today's stays.
pub fn read(metric: &mut Value, side: Side) {
    let Some(own) = own_of(metric) else { return };
    let Some(from) = metric[own].as_object_mut() else { return };
    let mut values = Map::new();
    for value in VALUES {
        if let Some(found) = from.remove(&value_name(own, value, side)) {
            values.insert(value.0.to_owned(), found);
        }
    }
    if values.get("averageUtilization").is_some() && values.get("averageValue").is_some_and(|value| value == "0") {
        values.remove("averageValue");
    }
    if values.is_empty() {
        return;
    }
    if matches!(side, Side::Target) {
        let ty = match (values.contains_key("averageUtilization"), values.contains_key("averageValue")) {
            (true, _) => "Utilization",
            (_, true) => "AverageValue",
            _ => "Value",
        };
        values.insert("type".to_owned(), ty.into());
    }
    let selector = from.remove(selector_name(own));
    if let Some(name) = from.remove("metricName") {
        let mut named = json!({"name": name});
        if let Some(selector) = selector {
            named["selector"] = selector;
        }
        from.insert("metric".to_owned(), named);
    }
    // What an object's metric is about comes before what is wanted of it.
    if let Some(about) = from.remove("target").filter(|_| own == "object") {
        from.insert("describedObject".to_owned(), about);
    }
    from.insert(side.name().to_owned(), values.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let resource = json!({"type": "Resource", "resource": {"name": "memory", "current": {"averageValue": "5Mi"}}});
        let pods = json!({"type": "Pods", "pods": {"metric": {"name": "m"}, "current": {"averageValue": "7"}}});
        let object = json!({"type": "Object", "object": {"metric": {"name": "m"}, "current": {"value": "7"},
                            "describedObject": {"kind": "P", "name": "p"}}});
        let external = json!({"type": "External", "external": {"current": {"value": "7"},
                              "metric": {"name": "m", "selector": {"matchLabels": {"a": "b"}}}}});
        for (metric, shown) in [
            (resource, r#"{"type":"Resource","resource":{"name":"memory","currentAverageValue":"5Mi"}}"#),
            (pods, r#"{"type":"Pods","pods":{"metricName":"m","currentAverageValue":"7"}}"#),
            (
                object,
                r#"{"type":"Object","object":{"target":{"kind":"P","name":"p"},"metricName":"m","currentValue":"7"}}"#,
            ),
            (
                external,
                r#"{"type":"External","external":{"metricName":"m","metricSelector":{"matchLabels":{"a":"b"}},"currentValue":"7"}}"#,
            ),
        ] {
            assert_eq!(one(&metric, Side::Current), shown);
            let mut back: Value = serde_json::from_str(shown).unwrap();
            read(&mut back, Side::Current);
            assert_eq!(back, metric);
        }
    }
}
