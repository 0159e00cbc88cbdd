//! The quality-of-service class of a pod.

use std::collections::BTreeMap;

use pintle_machinery::quantity::Quantity;
use serde_json::Value;

use super::amounts::quantity;

/// `Guaranteed`, `Burstable` or `BestEffort`, by the CPU and memory of its containers, or of the pod as a whole.
pub fn class(pod: &Value) -> &'static str {
    let spec = &pod["spec"];
    if ["limits", "requests"].iter().any(|list| !spec["resources"][*list].is_null()) {
        return classify(&[&spec["resources"]]);
    }
    let lists = ["initContainers", "containers"].iter();
    let containers = lists.flat_map(|list| spec[*list].as_array().into_iter().flatten());
    classify(&containers.map(|container| &container["resources"]).collect::<Vec<_>>())
}

fn classify(all: &[&Value]) -> &'static str {
    let mut requests = BTreeMap::new();
    let mut limits = BTreeMap::new();
    let mut guaranteed = true;
    for resources in all {
        add(&mut requests, resources, "requests");
        let given = add(&mut limits, resources, "limits");
        guaranteed &= given == 2;
    }
    match (requests.is_empty() && limits.is_empty(), guaranteed && requests == limits) {
        (true, _) => "BestEffort",
        (false, true) => "Guaranteed",
        (false, false) => "Burstable",
    }
}

/// Adds what one container has; how many of the two resources it has.
fn add(sums: &mut BTreeMap<&str, Quantity>, resources: &Value, list: &str) -> usize {
    let mut given = 0;
    for (name, amount) in ["cpu", "memory"].into_iter().filter_map(|name| Some((name, resources[list].get(name)?))) {
        let amount = quantity(amount).unwrap_or_default();
        if !amount.is_zero() {
            *sums.entry(name).or_default() += amount;
            given += 1;
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn classes() {
        let full = json!({"cpu": "1", "memory": "1Gi"});
        let cases = [
            (json!({}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (json!({"requests": full, "limits": full}), "Guaranteed"),
            (json!({"requests": {"cpu": "0"}}), "BestEffort"),
            (json!({"requests": {"cpu": "1", "memory": "1Mi"}, "limits": full}), "Burstable"),
        ];
        for (resources, expected) in cases {
            assert_eq!(class(&json!({"spec": {"containers": [{"resources": resources}]}})), expected);
        }
        let mixed =
            json!({"spec": {"containers": [{"resources": {"requests": full, "limits": full}}, {"resources": {}}]}});
        assert_eq!(class(&mixed), "Burstable");
    }
}
