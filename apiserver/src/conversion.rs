//! Kinds that are served in more than one version or group but stored once: the few conversions between their forms.

mod devices;
mod metrics;

use serde_json::{Map, Value, json};

/// Group and version of an object's form.
pub type GroupVersion<'a> = (&'a str, &'a str);

/// `apps/v1`, or `v1` for the core group.
pub fn api_version((group, version): GroupVersion<'_>) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Turns an object of one form into another; forms that differ in nothing but apiVersion get just that.
pub fn convert(object: &mut Value, from: GroupVersion<'_>, to: GroupVersion<'_>) {
    if from == to {
        return;
    }
    match (from, to) {
        (("", "v1"), ("events.k8s.io", "v1")) => rename(object, &EVENT_FIELDS, Direction::Forward),
        (("events.k8s.io", "v1"), ("", "v1")) => rename(object, &EVENT_FIELDS, Direction::Back),
        (("autoscaling", "v2"), ("autoscaling", "v1")) => autoscaler_to_v1(object),
        (("autoscaling", "v1"), ("autoscaling", "v2")) => autoscaler_to_v2(object),
        (("resource.k8s.io", "v1beta1"), ("resource.k8s.io", _)) => devices::to_v1(object),
        (("resource.k8s.io", _), ("resource.k8s.io", "v1beta1")) => devices::from_v1(object),
        _ => {}
    }
    object["apiVersion"] = Value::String(api_version(to));
}

/// Names of the same field in core/v1 and events.k8s.io/v1.
const EVENT_FIELDS: [(&str, &str); 8] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

enum Direction {
    Forward,
    Back,
}

fn rename(object: &mut Value, fields: &[(&str, &str)], direction: Direction) {
    let Some(map) = object.as_object_mut() else { return };
    for (left, right) in fields {
        let (from, to) = match direction {
            Direction::Forward => (left, right),
            Direction::Back => (right, left),
        };
        if let Some(value) = map.remove(*from) {
            map.insert((*to).to_owned(), value);
        }
    }
}

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";

fn is_cpu_utilization(metric: &Value, value: &str) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu" && !metric["resource"][value].is_null()
}

fn autoscaler_to_v1(object: &mut Value) {
    let mut annotations = Map::new();
    if let Some(spec) = object["spec"].as_object_mut() {
        let mut others = Vec::new();
        for metric in spec.remove("metrics").and_then(into_list).unwrap_or_default() {
            let target = &metric["resource"]["target"]["averageUtilization"];
            if metric["type"] == "Resource" && metric["resource"]["name"] == "cpu" && !target.is_null() {
                spec.insert("targetCPUUtilizationPercentage".into(), target.clone());
            } else {
                others.push(metric);
            }
        }
        if !others.is_empty() {
            annotations.insert(METRICS.into(), Value::String(metrics::told(&others, metrics::Side::Target)));
        }
        if let Some(behavior) = spec.remove("behavior") {
            annotations.insert(BEHAVIOR.into(), Value::String(behavior.to_string()));
        }
    }
    if let Some(status) = object["status"].as_object_mut() {
        let all = status.remove("currentMetrics").and_then(into_list).unwrap_or_default();
        for metric in &all {
            let current = &metric["resource"]["current"]["averageUtilization"];
            if metric["type"] == "Resource" && metric["resource"]["name"] == "cpu" && !current.is_null() {
                status.insert("currentCPUUtilizationPercentage".into(), current.clone());
            }
        }
        if !all.is_empty() {
            annotations.insert(CURRENT.into(), Value::String(metrics::told(&all, metrics::Side::Current)));
        }
        if let Some(conditions) = status.remove("conditions") {
            annotations.insert(CONDITIONS.into(), Value::String(conditions.to_string()));
        }
    }
    if !annotations.is_empty() {
        if !object["metadata"]["annotations"].is_object() {
            object["metadata"]["annotations"] = json!({});
        }
        if let Some(map) = object["metadata"]["annotations"].as_object_mut() {
            map.append(&mut annotations);
        }
    }
}

fn autoscaler_to_v2(object: &mut Value) {
    let mut take = |name: &str| -> Option<Value> {
        let annotations = object["metadata"].as_object_mut()?.get_mut("annotations")?.as_object_mut()?;
        serde_json::from_str(annotations.remove(name)?.as_str()?).ok()
    };
    let (metrics, behavior, conditions, current) = (take(METRICS), take(BEHAVIOR), take(CONDITIONS), take(CURRENT));
    if object["metadata"]["annotations"].as_object().is_some_and(Map::is_empty)
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove("annotations");
    }
    if let Some(spec) = object["spec"].as_object_mut() {
        let mut all = metrics.and_then(into_list).unwrap_or_default();
        all.retain(|metric| !is_cpu_utilization(metric, "targetAverageUtilization"));
        all.iter_mut().for_each(|metric| metrics::read(metric, metrics::Side::Target));
        if let Some(target) = spec.remove("targetCPUUtilizationPercentage") {
            let target = json!({"type": "Utilization", "averageUtilization": target});
            all.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
        }
        if !all.is_empty() {
            spec.insert("metrics".into(), Value::Array(all));
        }
        if let Some(behavior) = behavior {
            spec.insert("behavior".into(), behavior);
        }
    }
    if let Some(status) = object["status"].as_object_mut() {
        let mut all = current.and_then(into_list).unwrap_or_default();
        let utilization = status.remove("currentCPUUtilizationPercentage");
        let known = all.iter_mut().find(|metric| is_cpu_utilization(metric, "currentAverageUtilization"));
        match (known, utilization) {
            (Some(metric), Some(value)) => metric["resource"]["currentAverageUtilization"] = value,
            (None, Some(value)) => {
                all.insert(
                    0,
                    json!({"type": "Resource", "resource": {"name": "cpu", "currentAverageUtilization": value}}),
                );
            }
            (_, None) => {}
        }
        all.iter_mut().for_each(|metric| metrics::read(metric, metrics::Side::Current));
        if !all.is_empty() {
            status.insert("currentMetrics".into(), Value::Array(all));
        }
        if let Some(conditions) = conditions {
            status.insert("conditions".into(), conditions);
        }
    }
}

fn into_list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(list) => Some(list),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_forms_convert_both_ways() {
        let core = json!({"apiVersion": "v1", "kind": "Event", "message": "m", "involvedObject": {"name": "p"}, "count": 2,
                          "reportingComponent": "c", "reason": "R"});
        let mut object = core.clone();
        convert(&mut object, ("", "v1"), ("events.k8s.io", "v1"));
        assert_eq!(object["note"], "m");
        assert_eq!((&object["deprecatedCount"], &object["reportingController"]), (&json!(2), &json!("c")));
        assert_eq!(object["apiVersion"], "events.k8s.io/v1");
        convert(&mut object, ("events.k8s.io", "v1"), ("", "v1"));
        assert_eq!(object, core);
    }

    #[test]
    fn autoscaler_forms_convert_both_ways() {
        let v1 = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
                        "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 80}, "status": {"currentReplicas": 1}});
        let mut object = v1.clone();
        convert(&mut object, ("autoscaling", "v1"), ("autoscaling", "v2"));
        assert_eq!(object["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
        object["spec"]["behavior"] = json!({"scaleDown": {"policies": []}});
        let v2 = object.clone();
        convert(&mut object, ("autoscaling", "v2"), ("autoscaling", "v1"));
        assert_eq!(object["spec"], v1["spec"]);
        convert(&mut object, ("autoscaling", "v1"), ("autoscaling", "v2"));
        assert_eq!(object, v2);
    }

    #[test]
    fn what_is_measured_is_told_in_an_annotation() {
        let mut object = json!({"metadata": {}, "status": {"currentCPUUtilizationPercentage": 80}});
        convert(&mut object, ("autoscaling", "v1"), ("autoscaling", "v2"));
        let v2 = object.clone();
        convert(&mut object, ("autoscaling", "v2"), ("autoscaling", "v1"));
        let told = r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":80,"currentAverageValue":"0"}}]"#;
        assert_eq!(
            (&object["metadata"]["annotations"][CURRENT], &object["status"]["currentCPUUtilizationPercentage"]),
            (&json!(told), &json!(80))
        );
        convert(&mut object, ("autoscaling", "v1"), ("autoscaling", "v2"));
        assert_eq!(object, v2);
    }
}
