//! Errors of what a pod's status says of its containers.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Path};
use serde_json::Value;

use super::one_of;
use crate::registry::value::{at, entries, has, int, items, text};

const CLAIM: &str = "claim:";
const HEALTH: [&str; 3] = ["Healthy", "Unhealthy", "Unknown"];
/// Lists of statuses, and of the containers that they are of.
const LISTS: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
];

/// The statuses of all containers.
pub fn all(errors: &mut ErrorList, pod: &Value, path: &Path) {
    for (list, containers) in LISTS {
        for (index, status) in items(at(pod, "status"), list).iter().enumerate() {
            let path = path.child(list).index(index);
            let own = items(at(pod, "spec"), containers).iter().find(|own| text(own, "name") == text(status, "name"));
            match own {
                _ if containers == "ephemeralContainers" => unallocated(errors, status, &path),
                Some(container) => allocated(errors, status, container, &path.child("allocatedResourcesStatus")),
                None => {}
            }
        }
    }
    for (list, _) in LISTS {
        for (index, status) in items(at(pod, "status"), list).iter().enumerate() {
            user(errors, at(status, "user.linux"), &path.child(list).index(index).child("user").child("linux"));
        }
    }
}

/// Ephemeral containers are given no resources.
fn unallocated(errors: &mut ErrorList, status: &Value, path: &Path) {
    if has(status, "allocatedResourcesStatus") {
        errors.forbidden(&path.child("allocatedResourcesStatus"), "must not be specified in container status");
    }
}

/// Of the devices that a container asked for, how they are.
fn allocated(errors: &mut ErrorList, status: &Value, container: &Value, path: &Path) {
    for (index, resource) in items(status, "allocatedResourcesStatus").iter().enumerate() {
        let path = path.index(index);
        let name = text(resource, "name");
        let resources = at(container, "resources");
        let asked =
            ["requests", "limits"].into_iter().flat_map(|list| entries(resources, list)).any(|(own, _)| own == name);
        let claimed = items(resources, "claims").iter().any(|claim| claim_name(claim) == name);
        if name.starts_with(CLAIM) && !claimed {
            let detail = "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when \
                          container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty";
            errors.invalid(&path.child("name"), name, detail);
        } else if !name.starts_with(CLAIM) && !asked {
            errors.invalid(&path.child("name"), name, "must match one of the container's resource requests");
        }
        let mut known = HashSet::new();
        for (index, device) in items(resource, "resources").iter().enumerate() {
            let path = path.child("resources").index(index);
            one_of(errors, &path.child("health"), text(device, "health"), &HEALTH);
            let id = text(device, "resourceID");
            if !known.insert(id) {
                errors.duplicate(&path.child("resourceID"), id);
            }
        }
    }
}

fn claim_name(claim: &Value) -> String {
    let (name, request) = (text(claim, "name"), text(claim, "request"));
    if request.is_empty() { format!("{CLAIM}{name}") } else { format!("{CLAIM}{name}/{request}") }
}

/// Whom a container runs as.
fn user(errors: &mut ErrorList, user: &Value, path: &Path) {
    let mut check = |id: i64, path: &Path, most: i64| {
        if !(0..=most).contains(&id) {
            errors.invalid(path, id, format!("must be between 0 and {most}, inclusive"));
        }
    };
    // Users may have larger numbers than groups.
    check(int(user, "uid"), &path.child("uid"), i64::from(u32::MAX));
    check(int(user, "gid"), &path.child("gid"), i64::from(i32::MAX));
    for (index, group) in items(user, "supplementalGroups").iter().enumerate() {
        check(group.as_i64().unwrap_or_default(), &path.child("supplementalGroups").index(index), i64::from(i32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn faults(list: &str, status: Value) -> String {
        let claims = json!([{"name": "k"}, {"name": "m", "request": "r"}]);
        let container = json!({"name": "c", "resources": {"limits": {"x.io/y": "1"}, "claims": claims}});
        let pod = json!({"spec": {"containers": [container]}, "status": {list: [status]}});
        let mut errors = ErrorList::new();
        all(&mut errors, &pod, &Path::new("status"));
        errors.iter().map(|error| format!("{} {}", error.field, error.body())).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn devices_are_those_that_were_asked_for() {
        let status = |name: &str| json!({"name": "c", "allocatedResourcesStatus": [{"name": name}]});
        for known in ["x.io/y", "claim:k", "claim:m/r"] {
            assert_eq!(faults("containerStatuses", status(known)), "", "{known}");
        }
        for (other, words) in [
            ("cpu", "one of the container's resource requests"),
            ("claim:k/r", "one of the container's resource claims"),
            ("claim:m", "one of the container's resource claims"),
        ] {
            let told = faults("containerStatuses", status(other));
            assert!(
                told.starts_with("status.containerStatuses[0].allocatedResourcesStatus[0].name Invalid value"),
                "{told}"
            );
            assert!(told.contains(words), "{told}");
        }
        assert_eq!(
            faults("ephemeralContainerStatuses", status("x.io/y")),
            "status.ephemeralContainerStatuses[0].allocatedResourcesStatus Forbidden: must not be specified in container status"
        );
        // Of a container that is not there nothing is said.
        assert_eq!(faults("initContainerStatuses", status("cpu")), "");
    }

    #[test]
    fn devices_are_told_once() {
        let devices = json!([{"resourceID": "a", "health": "Healthy"}, {"resourceID": "a"}]);
        let status = json!({"name": "c", "allocatedResourcesStatus": [{"name": "claim:k", "resources": devices}]});
        let path = "status.containerStatuses[0].allocatedResourcesStatus[0].resources[1]";
        let known = "supported values: \"Healthy\", \"Unhealthy\", \"Unknown\"";
        assert_eq!(
            faults("containerStatuses", status),
            format!("{path}.health Unsupported value: \"\": {known}; {path}.resourceID Duplicate value: \"a\"")
        );
    }

    #[test]
    fn users_have_numbers() {
        let user = json!({"linux": {"uid": -1, "gid": 3_000_000_000_i64, "supplementalGroups": [-1]}});
        let path = "status.containerStatuses[0].user.linux";
        assert_eq!(
            faults("containerStatuses", json!({"name": "c", "user": user})),
            format!(
                "{path}.uid Invalid value: -1: must be between 0 and 4294967295, inclusive; \
                 {path}.gid Invalid value: 3000000000: must be between 0 and 2147483647, inclusive; \
                 {path}.supplementalGroups[0] Invalid value: -1: must be between 0 and 2147483647, inclusive"
            )
        );
    }
}
