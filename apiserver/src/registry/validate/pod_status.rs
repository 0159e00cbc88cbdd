//! Errors of what a pod's status says.

use std::collections::HashSet;
use std::net::IpAddr;

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::{IMMUTABLE, IP, container_status};
use crate::registry::value::{at, entries, has, items, number, text};

/// A pod's new status.
pub fn status(new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let (path, status) = (Path::new("status"), at(new, "status"));
    for (index, condition) in items(status, "conditions").iter().enumerate() {
        let ty = text(condition, "type");
        // The capital is upstream's.
        errors.invalid_each(&path.child("conditions").index(index).child("Type"), ty, names::qualified(ty));
    }
    let node = text(status, "nominatedNodeName");
    if !node.is_empty() {
        errors.invalid_each(&path.child("nominatedNodeName"), node, names::dns1123_subdomain(node));
    }
    if let Some(generation) = number(status, "observedGeneration").filter(|generation| *generation < 0) {
        errors.invalid(&path.child("observedGeneration"), generation, "must be a non-negative integer");
    }
    let (class, before) = (text(status, "qosClass"), text(old, "status.qosClass"));
    if class != before && !before.is_empty() {
        errors.invalid(&path.child("qosClass"), class, IMMUTABLE);
    }
    claims(&mut errors, new, &path.child("resourceClaimStatuses"));
    if has(status, "extendedResourceClaimStatus") {
        extended(&mut errors, new, &path.child("extendedResourceClaimStatus"));
    }
    addresses(&mut errors, items(status, "podIPs"), &path.child("podIPs"));
    let hosts = items(status, "hostIPs");
    if let Some(first) = hosts.first().map(|first| text(first, "ip")).filter(|ip| *ip != text(status, "hostIP")) {
        errors.invalid(&path.child("hostIPs").index(0).child("ip"), first, "must be equal to `hostIP`");
    }
    addresses(&mut errors, hosts, &path.child("hostIPs"));
    container_status::all(&mut errors, new, &path);
    errors
}

/// Claims that were made for the pod.
fn claims(errors: &mut ErrorList, pod: &Value, path: &Path) {
    let known: HashSet<&str> = items(pod, "spec.resourceClaims").iter().map(|claim| text(claim, "name")).collect();
    let mut seen = HashSet::new();
    for (index, claim) in items(pod, "status.resourceClaimStatuses").iter().enumerate() {
        let path = path.index(index);
        let (name, of_claim) = (text(claim, "name"), text(claim, "resourceClaimName"));
        if !known.contains(name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(&path.child("name"), name, detail);
        } else if !seen.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        if has(claim, "resourceClaimName") {
            errors.invalid_each(&path.child("resourceClaimName"), of_claim, names::dns1123_subdomain(of_claim));
        }
    }
}

/// The claim that extended resources come from.
fn extended(errors: &mut ErrorList, pod: &Value, path: &Path) {
    let claim = at(pod, "status.extendedResourceClaimStatus");
    let mappings = items(claim, "requestMappings");
    let of_mappings = path.child("requestMappings");
    if mappings.is_empty() {
        errors.required(&of_mappings, "at least one request mapping is required");
    }
    let mut seen = HashSet::new();
    for (index, mapping) in mappings.iter().enumerate() {
        let place = of_mappings.index(index);
        let [container, resource, request] =
            ["containerName", "resourceName", "requestName"].map(|field| text(mapping, field));
        let holder = ["initContainers", "containers"]
            .into_iter()
            .flat_map(|list| items(&pod["spec"], list))
            .find(|holder| text(holder, "name") == container);
        match holder {
            None => {
                let detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                errors.invalid(&place.child("containerName"), container, detail);
            }
            Some(holder) if !entries(holder, "resources.requests").any(|(name, _)| name == resource) => {
                let detail = "must match the extended resource name of an entry in spec.initContainers.resources.requests \
                              or spec.containers.resources.requests";
                errors.invalid(&place.child("resourceName"), resource, detail);
            }
            Some(_) => {}
        }
        // Upstream leaves the mapping out of this path.
        errors.invalid_each(&path.child("requestName"), request, names::dns1123_label(request));
        if !seen.insert((container, resource, request)) {
            for (field, value) in [("containerName", container), ("resourceName", resource), ("requestName", request)] {
                errors.duplicate(&place.child(field), value);
            }
        }
    }
    let name = text(claim, "resourceClaimName");
    match name {
        "" => errors.required(&path.child("resourceClaimName"), ""),
        name => errors.invalid_each(&path.child("resourceClaimName"), name, names::dns1123_subdomain(name)),
    }
}

/// One address, or one of each family.
fn addresses(errors: &mut ErrorList, list: &[Value], path: &Path) {
    let parsed: Vec<(&str, Option<IpAddr>)> =
        list.iter().map(|item| text(item, "ip")).map(|ip| (ip, ip.parse().ok())).collect();
    for (index, (ip, _)) in parsed.iter().enumerate().filter(|(_, (_, parsed))| parsed.is_none()) {
        errors.invalid(&path.index(index), *ip, IP);
    }
    if list.len() < 2 {
        return;
    }
    if let Some((index, (ip, _))) = parsed.iter().enumerate().find(|(_, (_, parsed))| parsed.is_none()) {
        let detail = format!("failed to check for dual stack with error:invalid IP[{index}]: {ip}");
        errors.push(FieldError::new(Fault::Internal, path, Value::Null, detail));
    }
    let families: HashSet<Option<bool>> = parsed.iter().map(|(_, ip)| ip.map(|ip| ip.is_ipv4())).collect();
    if list.len() > 2 || families.len() != 2 || families.contains(&None) {
        let shown: Vec<String> = parsed.iter().map(|(ip, _)| format!("{{\"IP\":{}}}", Value::from(*ip))).collect();
        let detail = "may specify no more than one IP for each IP family";
        let error = FieldError::new(Fault::Invalid, path, Value::Null, detail);
        errors.push(error.shown_as(format!("[{}]", shown.join(","))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn statuses() {
        let faults = |given: Value| {
            let pod = |status: Value| json!({"spec": {"containers": [{"name": "c"}], "resourceClaims": [{"name": "a"}]}, "status": status});
            status(&pod(given), &pod(json!({"qosClass": "BestEffort"}))).to_string()
        };
        let class = "BestEffort";
        for (given, expected) in [
            (json!({"qosClass": class, "podIPs": [{"ip": "1.2.3.4"}, {"ip": "::1"}]}), ""),
            (json!({"qosClass": "Burstable"}), "status.qosClass: Invalid value: \"Burstable\": field is immutable"),
            (
                json!({"qosClass": class, "resourceClaimStatuses": [{"name": "a"}, {"name": "a"}, {"name": "b"}]}),
                "[status.resourceClaimStatuses[1].name: Duplicate value: \"a\", status.resourceClaimStatuses[2].name: Invalid value: \"b\": must match the name of an entry in `spec.resourceClaims`]",
            ),
            (
                json!({"qosClass": class, "extendedResourceClaimStatus": {"resourceClaimName": "x"}}),
                "status.extendedResourceClaimStatus.requestMappings: Required value: at least one request mapping is required",
            ),
            (
                json!({"qosClass": class, "hostIP": "1.2.3.4", "hostIPs": [{"ip": "::1"}]}),
                "status.hostIPs[0].ip: Invalid value: \"::1\": must be equal to `hostIP`",
            ),
            (
                json!({"qosClass": class, "podIPs": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.5"}]}),
                "status.podIPs: Invalid value: [{\"IP\":\"1.2.3.4\"},{\"IP\":\"1.2.3.5\"}]: may specify no more than one IP for each IP family",
            ),
            (
                json!({"qosClass": class, "observedGeneration": -1}),
                "status.observedGeneration: Invalid value: -1: must be a non-negative integer",
            ),
        ] {
            assert_eq!(faults(given.clone()), expected, "{given}");
        }
    }
}
