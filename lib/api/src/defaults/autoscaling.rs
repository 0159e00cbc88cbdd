//! Horizontal pod autoscalers.

use pintle_machinery::schema::{Object, Value};
use serde_json::json;

use super::{is_empty, make, object, set, set_text};

/// By version and kind.
pub fn apply(version: &str, kind: &str, top: &mut Object) {
    let Some(spec) = object(top, "spec").filter(|_| kind == "HorizontalPodAutoscaler" && version == "v2") else {
        return;
    };
    if is_empty(spec, "metrics") {
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 80}}});
        spec.insert("metrics".to_owned(), Value::Array(vec![cpu]));
    }
    if let Some(behavior) = object(spec, "behavior") {
        let up = json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]);
        rules(behavior, "scaleUp", Some(0), up);
        rules(behavior, "scaleDown", None, json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]));
    }
}

fn rules(behavior: &mut Object, name: &str, window: Option<i32>, policies: Value) {
    let Some(rules) = make(behavior, name) else { return };
    if let Some(window) = window {
        set(rules, "stabilizationWindowSeconds", window);
    }
    set_text(rules, "selectPolicy", "Max");
    set(rules, "policies", policies);
}
