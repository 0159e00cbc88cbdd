//! LimitRanger: defaults for containers, and bounds for containers, pods and claims. Pure but for the list of ranges.

use std::sync::Arc;

use pintle_api::quota::Amounts;
use pintle_api::quota::pod::{Side, total};
use pintle_machinery::quantity::Quantity;
use pintle_machinery::status::ApiError;
use serde_json::{Value, json};

use super::Operation;
use crate::engine::{Call, meta};
use crate::internal;

/// Says what was filled in.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";
const LISTS: [(&str, &str); 2] = [("containers", "container"), ("initContainers", "init container")];

fn ranges(call: &Call) -> Vec<Arc<Value>> {
    internal::list(&call.state, "", "limitranges", &call.info.namespace)
}

fn limits<'a>(range: &'a Value, ty: &'a str) -> impl Iterator<Item = &'a Value> {
    range["spec"]["limits"].as_array().into_iter().flatten().filter(move |limit| limit["type"] == ty)
}

/// Fills in what the containers of a new pod leave out.
pub fn mutate(call: &Call, pod: &mut Value) {
    for range in ranges(call) {
        fill(pod, &range);
    }
}

fn fill(pod: &mut Value, range: &Value) {
    let mut set = Vec::new();
    for limit in limits(range, "Container") {
        for (list, what) in LISTS {
            for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
                fill_container(container, limit, what, &mut set);
            }
        }
    }
    if !set.is_empty() {
        let text = format!("LimitRanger plugin set: {}", set.join("; "));
        pod["metadata"]["annotations"][ANNOTATION] = json!(text);
    }
}

fn fill_container(container: &mut Value, limit: &Value, what: &str, set: &mut Vec<String>) {
    for (from, to, name) in [("defaultRequest", "requests", "request"), ("default", "limits", "limit")] {
        let mut filled = Vec::new();
        for (resource, quantity) in limit[from].as_object().into_iter().flatten() {
            let place = &mut container["resources"][to];
            if place[resource].is_null() {
                place[resource] = quantity.clone();
                filled.push(resource.as_str());
            }
        }
        if !filled.is_empty() {
            filled.sort_unstable();
            let container = container["name"].as_str().unwrap_or_default();
            set.push(format!("{} {name} for {what} {container}", filled.join(", ")));
        }
    }
}

/// Refuses what is out of bounds.
pub fn validate(call: &Call, operation: Operation, new: &Value) -> Result<(), ApiError> {
    let faults: fn(&Value, &Value) -> Vec<String> =
        match (call.resource.group.as_str(), call.resource.name.as_str(), call.info.subresource.as_str()) {
            ("", "pods", "") if operation == Operation::Create => pod_faults,
            ("", "pods", "resize") if operation == Operation::Update => pod_faults,
            ("", "persistentvolumeclaims", "") if !meta::is_deleting(new) => claim_faults,
            _ => return Ok(()),
        };
    for range in ranges(call) {
        let mut faults = faults(new, &range);
        faults.dedup();
        let message = match faults.len() {
            0 => continue,
            1 => faults.concat(),
            _ => format!("[{}]", faults.join(", ")),
        };
        return Err(ApiError::forbidden(&call.group_resource(), meta::text(new, "name"), message));
    }
    Ok(())
}

fn pod_faults(pod: &Value, range: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for limit in range["spec"]["limits"].as_array().into_iter().flatten() {
        match limit["type"].as_str() {
            Some("Container") => {
                for container in LISTS.iter().flat_map(|(list, _)| pod["spec"][*list].as_array().into_iter().flatten())
                {
                    let of = |side: Side| Amounts::from_json(&container["resources"][side.field()]);
                    Use { of: "Container", requests: of(Side::Requests), limits: of(Side::Limits) }
                        .check(limit, &mut faults);
                }
            }
            Some("Pod") => {
                Use { of: "Pod", requests: total(pod, Side::Requests), limits: total(pod, Side::Limits) }
                    .check(limit, &mut faults);
            }
            _ => {}
        }
    }
    faults
}

fn claim_faults(claim: &Value, range: &Value) -> Vec<String> {
    let requests = Amounts::from_json(&claim["spec"]["resources"]["requests"]);
    let mut faults = Vec::new();
    let usage = Use { of: "PersistentVolumeClaim", requests, limits: Amounts::new() };
    for limit in limits(range, "PersistentVolumeClaim") {
        for (resource, bound) in Amounts::from_json(&limit["min"]).iter() {
            faults.extend(usage.minimum(resource, bound));
        }
        for (resource, bound) in Amounts::from_json(&limit["max"]).iter() {
            faults.extend(usage.maximum_request(resource, bound));
        }
    }
    faults
}

/// What something asks for, and the name of its kind in messages.
struct Use {
    of: &'static str,
    requests: Amounts,
    limits: Amounts,
}

impl Use {
    fn check(&self, limit: &Value, faults: &mut Vec<String>) {
        type Rule = fn(&Use, &str, Quantity) -> Option<String>;
        let rules: [(&str, Rule); 3] =
            [("min", Self::minimum), ("max", Self::maximum), ("maxLimitRequestRatio", Self::ratio)];
        for (field, rule) in rules {
            let bounds = Amounts::from_json(&limit[field]);
            faults.extend(bounds.iter().filter_map(|(resource, bound)| rule(self, resource, bound)));
        }
    }

    fn minimum(&self, resource: &str, bound: Quantity) -> Option<String> {
        let start = format!("minimum {resource} usage per {} is {bound}", self.of);
        match (self.requests.get(resource), self.limits.get(resource)) {
            (None, _) => Some(format!("{start}.  No request is specified")),
            (Some(request), _) if request < bound => Some(format!("{start}, but request is {request}")),
            (_, Some(limit)) if limit < bound => Some(format!("{start}, but limit is {limit}")),
            _ => None,
        }
    }

    fn maximum(&self, resource: &str, bound: Quantity) -> Option<String> {
        let start = format!("maximum {resource} usage per {} is {bound}", self.of);
        match (self.requests.get(resource), self.limits.get(resource)) {
            (_, None) => Some(format!("{start}.  No limit is specified")),
            (_, Some(limit)) if limit > bound => Some(format!("{start}, but limit is {limit}")),
            (Some(request), _) if request > bound => Some(format!("{start}, but request is {request}")),
            _ => None,
        }
    }

    fn maximum_request(&self, resource: &str, bound: Quantity) -> Option<String> {
        let start = format!("maximum {resource} usage per {} is {bound}", self.of);
        match self.requests.get(resource) {
            None => Some(format!("{start}.  No request is specified")),
            Some(request) if request > bound => Some(format!("{start}, but request is {request}")),
            Some(_) => None,
        }
    }

    fn ratio(&self, resource: &str, bound: Quantity) -> Option<String> {
        let start = format!("{resource} max limit to request ratio per {} is {bound}, but", self.of);
        let given = |amounts: &Amounts| amounts.get(resource).filter(|amount| !amount.is_zero());
        let Some(request) = given(&self.requests) else {
            return Some(format!("{start} no request is specified or request is 0"));
        };
        let Some(limit) = given(&self.limits) else {
            return Some(format!("{start} no limit is specified or limit is 0"));
        };
        let ratio = limit.as_f64() / request.as_f64();
        (ratio > bound.as_f64()).then(|| format!("{start} provided ratio is {ratio:.6}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_filled_in_and_told() {
        let range = json!({"spec": {"limits": [
            {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m", "memory": "1Mi"}}]}});
        let mut pod = json!({"metadata": {}, "spec": {
            "containers": [{"name": "c"}], "initContainers": [{"name": "i", "resources": {"limits": {"cpu": "2"}}}]}});
        fill(&mut pod, &range);
        assert_eq!(
            pod["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu, memory request for container c; cpu limit for container c; cpu, memory request for \
             init container i"
        );
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({"requests": {"cpu": "100m", "memory": "1Mi"}, "limits": {"cpu": "1"}})
        );
    }

    #[test]
    fn bounds() {
        let container = |requests: Value, limits: Value| json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests, "limits": limits}}]}});
        let half = container(json!({"cpu": "500m"}), json!({"cpu": "2"}));
        let cases = [
            ("Container", json!({"max": {"cpu": "1"}}), &half, "maximum cpu usage per Container is 1, but limit is 2"),
            (
                "Container",
                json!({"min": {"memory": "1Mi"}}),
                &half,
                "minimum memory usage per Container is 1Mi.  No request is specified",
            ),
            ("Pod", json!({"min": {"cpu": "1"}}), &half, "minimum cpu usage per Pod is 1, but request is 500m"),
            (
                "Pod",
                json!({"maxLimitRequestRatio": {"cpu": "3"}}),
                &half,
                "cpu max limit to request ratio per Pod is 3, but provided ratio is 4.000000",
            ),
            ("Container", json!({"max": {"cpu": "2"}, "min": {"cpu": "500m"}}), &half, ""),
        ];
        for (ty, mut limit, pod, expected) in cases {
            limit["type"] = json!(ty);
            assert_eq!(pod_faults(pod, &json!({"spec": {"limits": [limit]}})).join("|"), expected);
        }
        let claim = json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}});
        let limit = json!({"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}, "min": {"storage": "6Gi"}});
        assert_eq!(
            claim_faults(&claim, &json!({"spec": {"limits": [limit]}})),
            [
                "minimum storage usage per PersistentVolumeClaim is 6Gi, but request is 5Gi",
                "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 5Gi"
            ]
        );
    }
}
