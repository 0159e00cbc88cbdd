//! Kinds that exist in alpha or beta versions only, which are served when they are asked for: their rows, columns and cells.
//! Columns are made from upstream's answers. What is wrong with objects of these kinds is not looked for yet, beyond what their
//! types say.

use jiff::Timestamp;
use serde_json::Value;

use super::cells::{NONE, UNSET, age, name, name_and_age, or, since};
use super::columns::{self, named, text, typed, wide};
use super::value::{at, items, text as string};
use super::{Column, Generation, Rules};

const RESOURCE: &str = "resource.k8s.io";
const SCHEDULING: &str = "scheduling.k8s.io";
const LIFECYCLE: &str = "lifecycle.k8s.io";

/// (group, resource, rules).
pub static TABLE: &[(&str, &str, Rules)] = &[
    ("coordination.k8s.io", "leasecandidates", shown(LEASECANDIDATES, leasecandidates)),
    (SCHEDULING, "podgroups", Rules { prepare_create: Some(protect_group), ..shown(PODGROUPS, podgroups) }),
    (SCHEDULING, "workloads", shown(columns::DEVICECLASSES, name_and_age)),
    (SCHEDULING, "compositepodgroups", shown(COMPOSITEPODGROUPS, compositepodgroups)),
    (RESOURCE, "resourcepoolstatusrequests", shown(RESOURCEPOOLSTATUSREQUESTS, resourcepoolstatusrequests)),
    ("internal.apiserver.k8s.io", "storageversions", shown(STORAGEVERSIONS, storageversions)),
    (LIFECYCLE, "evictionrequests", counted(shown(EVICTIONREQUESTS, evictionrequests))),
    (LIFECYCLE, "evictions", counted(shown(EVICTIONS, evictions))),
];

const fn shown(columns: &'static [Column], cells: fn(&Value, Timestamp) -> Vec<Value>) -> Rules {
    Rules { columns, cells: Some(cells), ..Rules::NONE }
}

const fn counted(rules: Rules) -> Rules {
    Rules { generation: Generation::Counted(&[]), ..rules }
}

/// Of `leasecandidates`.
const LEASECANDIDATES: &[Column] = &[
    named("Name", 0, columns::ABOUT_NAME),
    text(
        "LeaseName",
        "leaseName is the name of the lease for which this candidate is contending. This field is immutable.",
    ),
    text("BinaryVersion", ""),
    text("EmulationVersion", ""),
    text("Age", columns::ABOUT_AGE),
];

/// Of `podgroups`.
const PODGROUPS: &[Column] = &[
    named("Name", 0, columns::ABOUT_NAME),
    text(
        "Policy",
        "schedulingPolicy defines the scheduling policy for this instance of the PodGroup. Controllers are expected to fill this field by copying it from a PodGroupTemplate.",
    ),
    text("Workload", "Name of the referenced Workload object"),
    text("Status", "Status of the PodGroup"),
    text("Age", columns::ABOUT_AGE),
];

/// Of `compositepodgroups`.
const COMPOSITEPODGROUPS: &[Column] = &[
    named("Name", 0, columns::ABOUT_NAME),
    text(
        "Policy",
        "schedulingPolicy defines the scheduling policy for this instance of the CompositePodGroup. Controllers are expected to fill this field by copying it from a CompositePodGroupTemplate. This field is immutable.",
    ),
    text("Workload", "Name of the referenced Workload object"),
    text("Age", columns::ABOUT_AGE),
];

/// Of `resourcepoolstatusrequests`.
const RESOURCEPOOLSTATUSREQUESTS: &[Column] = &[
    named("Name", 0, columns::ABOUT_NAME),
    text("Driver", "The driver to query pools for."),
    text("Total", "Total number of devices across all pools."),
    text("Available", "Number of available devices across all pools."),
    text("Allocated", "Number of allocated devices across all pools."),
    text("Unavailable", "Number of unavailable devices across all pools."),
    text("Errors", "Number of pools with validation errors."),
    typed("Pools", "integer", "Total number of matching pools."),
    text("Status", "Processing status."),
    text("Completed", "Time since the observation completed."),
];

/// Of `storageversions`.
const STORAGEVERSIONS: &[Column] = &[
    named("Name", 0, columns::ABOUT_NAME),
    text(
        "CommonEncodingVersion",
        "commonEncodingVersion is set to an encoding storage version if all API server instances share that same version. If they don't share one storage version, this field is left empty. API servers should finish updating its storageVersionStatus entry before serving write operations, so that this field will be in sync with the reality.",
    ),
    text("StorageVersions", "storageVersions lists the reported versions per API server instance."),
    text("Age", columns::ABOUT_AGE),
];

/// Of `evictionrequests`.
const EVICTIONREQUESTS: &[Column] = &[
    named("Name", 0, columns::ABOUT_NAME),
    text(
        "Target",
        "target contains a reference to an object (e.g. a pod) that should be evicted. This field is required and immutable.",
    ),
    text(
        "Target Type",
        "target contains a reference to an object (e.g. a pod) that should be evicted. This field is required and immutable.",
    ),
    text(
        "Status",
        "conditions contain information about the eviction request.\n\nEvictionRequest specific conditions are: TargetEvicted or Failed (managed by evictionrequest-controller). - Failed means that the eviction request is no longer being processed\n  by any eviction responder. This can happen if the request is canceled or if no responder\n  managed to evict the target (e.g. terminate or delete a pod).\n- TargetEvicted means that the target has been evicted (e.g. a pod has been terminated or deleted).\n\nThese conditions can be reset if the eviction was unsuccessful and a new Eviction intent has been submitted.\n\nThe maximum length of the conditions list is 100.",
    ),
    text(
        "Requester",
        "requester allows you to identify the entity, that requested the eviction of the target.\n\nIt must be a valid domain-prefixed key (such as \"acme.io/foo\"). Domain names *.k8s.io and *.kubernetes.io are reserved. This field is required and immutable.",
    ),
    text(
        "Intent",
        "intent specifies the action that should be taken for the specified target.\n\n- Eviction means that the requester is interested in the eviction of the target. - Withdrawn means that the requester is no longer interested in the eviction of the target.\n  If all requesters' intents are withdrawn for a common target, the eviction will be canceled.\n  Cancellation consequences:\n  - Inactive responders will never run.\n  - Active responders are expected to cancel the eviction.\n  - Completed or Interrupted responders should not take any action.",
    ),
    text("Age", columns::ABOUT_AGE),
];

/// Of `evictions`.
const EVICTIONS: &[Column] = &[
    named("Name", 0, columns::ABOUT_NAME),
    text(
        "Target",
        "target contains a reference to an object (e.g. a pod) that should be evicted. This field is required and immutable.",
    ),
    text(
        "Target Type",
        "target contains a reference to an object (e.g. a pod) that should be evicted. This field is required and immutable.",
    ),
    text(
        "Status",
        "conditions contain information about the eviction request.\n\nEviction specific conditions are: TargetEvicted or Failed (managed by evictionrequest-controller). - Failed means that the eviction request is no longer being processed\n  by any eviction responder. This can happen if the request is canceled or if no responder\n  managed to evict the target (e.g. terminate or delete a pod).\n- TargetEvicted means that the target has been evicted (e.g. a pod has been terminated or deleted).\n\n\tThe maximum length of the conditions list is 100.",
    ),
    text(
        "Active Responder",
        "state specifies a state that is assigned by the evictionrequest-controller. Responders should observe this state in order to navigate their lifecycle. - Inactive means that the responder should not yet process this eviction request. - Active means that the responder is either running or expected to start soon.\n  Also, startTime has been set in the ResponderStatus by the evictionrequest-controller.\n\n  An active responder should currently interact with the eviction process by updating\n  .status.responders, where .name is the active responder name. ResponderStatus fields\n  should be periodically updated to indicate the progress or completion of the eviction process.\n  If .status.responders[].heartbeatTime field is not updated within the heartbeat deadline defined\n  by the Eviction API (currently 20 minutes), the eviction is passed over to the next responder\n\t with a lower priority. Only one responder can be active at a time.\n- Interrupted means that the responder has failed to start or failed to update\n  heartbeatTime in ResponderStatus in a timely manner.\n- Canceled means that the responder has been canceled. In other words, there\tis no\n  EvictionRequest with the same target and Eviction intent in .spec.intent.\n- Completed means that the responder has successfully completed and set completionTime\n  in ResponderStatus.\n\nPlease refer to the ResponderStatus in .status.responders for more details on each responder.",
    ),
    text(
        "Responder Status",
        "ResponderStatus represents the last observed status of the eviction process of the responder. It should be only updated by the designated responder whose name is .name field.",
    ),
    text(
        "Responder Expected Finish",
        "expectedCompletionTime is the time at which the eviction process step is expected to end for the responder. The time cannot be set to the past. May be omitted if no estimate can be made.",
    ),
    text(
        "Requesters",
        "requesters allow you to identify the entities, that requested the eviction of the target. If all the requesters withdraw their eviction intent, the eviction will be canceled.\n\nThe maximum length of the requesters list is 100. If this limit is exceeded, requesters with Withdrawn intent should be dropped first.",
    ),
    text("Age", columns::ABOUT_AGE),
    wide(
        "Responder Heartbeat",
        "heartbeatTime is the last time at which the eviction process was reported to be in progress by the responder. It should reflect the present time when set. Responders should avoid heartbeats more frequent than 20 seconds to avoid overloading the control-plane.",
    ),
    wide(
        "Responder Status Message",
        "message provides human-readable details about the state of the responder and the eviction process. Maximum length is 4000 characters.",
    ),
];

/// A group of pods is not gone before its pods are.
fn protect_group(_: &super::Context<'_>, group: &mut Value) {
    const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";
    super::value::remove(group, "status");
    let mut finalizers = items(group, "metadata.finalizers").to_vec();
    if !finalizers.iter().any(|own| own == FINALIZER) {
        finalizers.push(FINALIZER.into());
        group["metadata"]["finalizers"] = finalizers.into();
    }
}

fn leasecandidates(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = |field: &str| string(object, &format!("spec.{field}")).into();
    vec![name(object), spec("leaseName"), spec("binaryVersion"), spec("emulationVersion"), age(object, now)]
}

/// How a group is scheduled, and the workload that it is of.
fn policy(object: &Value) -> [Value; 2] {
    let policy = at(object, "spec.schedulingPolicy");
    let shown = match (policy["gang"].is_object(), policy["basic"].is_object()) {
        (true, _) => "Gang",
        (_, true) => "Basic",
        _ => NONE,
    };
    [shown.into(), or(string(object, "spec.workloadRef.workloadName"), NONE).into()]
}

fn podgroups(object: &Value, now: Timestamp) -> Vec<Value> {
    let [policy, workload] = policy(object);
    let scheduled = super::cells::is_true(object, "PodGroupScheduled");
    let status = if scheduled { "Scheduled" } else { "Pending" };
    vec![name(object), policy, workload, status.into(), age(object, now)]
}

fn compositepodgroups(object: &Value, now: Timestamp) -> Vec<Value> {
    let [policy, workload] = policy(object);
    vec![name(object), policy, workload, age(object, now)]
}

fn resourcepoolstatusrequests(object: &Value, now: Timestamp) -> Vec<Value> {
    let pools = items(object, "status.pools");
    let total = |field: &str| -> Value {
        if at(object, "status").is_null() {
            "-".into()
        } else {
            pools.iter().map(|pool| super::value::int(pool, field)).sum::<i64>().to_string().into()
        }
    };
    let errors = pools.iter().filter(|pool| !string(pool, "validationError").is_empty()).count().to_string();
    let errors = if at(object, "status").is_null() { "-".to_owned() } else { errors };
    let complete = super::cells::condition(object, "Complete").filter(|condition| condition["status"] == "True");
    let completed = complete.map_or(NONE.to_owned(), |condition| since(condition, "lastTransitionTime", now));
    vec![
        name(object),
        string(object, "spec.driver").into(),
        total("totalDevices"),
        total("availableDevices"),
        total("allocatedDevices"),
        total("unavailableDevices"),
        errors.into(),
        super::value::int(object, "status.poolCount").into(),
        if complete.is_some() { "Complete" } else { "Pending" }.into(),
        completed.into(),
    ]
}

fn storageversions(object: &Value, now: Timestamp) -> Vec<Value> {
    let versions = items(object, "status.storageVersions");
    let shown: Vec<String> = versions
        .iter()
        .map(|version| format!("{}={}", string(version, "apiServerID"), string(version, "encodingVersion")))
        .collect();
    let common = or(string(object, "status.commonEncodingVersion"), UNSET);
    vec![name(object), common.into(), or(&shown.join(","), UNSET).into(), age(object, now)]
}

/// Name and type of what is to go, and how that stands.
fn target(object: &Value) -> [Value; 3] {
    let pod = at(object, "spec.target.pod");
    let done = ["TargetEvicted", "Failed"].into_iter().find_map(|ty| {
        let condition = super::cells::condition(object, ty)?;
        (condition["status"] == "True").then(|| format!("{ty} ({})", string(condition, "reason")))
    });
    let ty = if pod.is_object() { "Pod" } else { UNSET };
    [or(string(pod, "name"), UNSET).into(), ty.into(), done.unwrap_or_else(|| "Pending".to_owned()).into()]
}

fn evictionrequests(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = |field: &str| string(object, &format!("spec.{field}")).into();
    let [target, ty, status] = target(object);
    vec![name(object), target, ty, status, spec("requester"), spec("intent"), age(object, now)]
}

fn evictions(object: &Value, now: Timestamp) -> Vec<Value> {
    let [target, ty, status] = target(object);
    let all = items(object, "status.targetResponders");
    let active = all.iter().position(|responder| responder["state"] == "Active");
    let active_name = active.map_or(UNSET, |at| string(&all[at], "name"));
    let place = active.map_or(0, |at| at + 1);
    let responders = items(object, "status.responders");
    let responder = responders.iter().find(|own| own["name"] == active_name).unwrap_or(&Value::Null);
    let requesters: Vec<&str> = items(object, "status.requesters").iter().map(|one| string(one, "name")).collect();
    let time = |field: &str, none: &str| match responder[field].is_null() {
        true => none.to_owned(),
        false => since(responder, field, now),
    };
    let started = if responder["startTime"].is_null() { UNSET } else { "Started" };
    vec![
        name(object),
        target,
        ty,
        status,
        format!("{active_name} ({place}/{})", all.len()).into(),
        started.into(),
        time("expectedCompletionTime", "<unknown>").into(),
        or(&requesters.join(","), NONE).into(),
        age(object, now),
        time("heartbeatTime", UNSET).into(),
        or(string(responder, "message"), UNSET).into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_have_as_many_cells_as_columns() {
        for (group, resource, rules) in TABLE {
            let cells = rules.cells.unwrap()(&json!({"metadata": {"name": "a"}}), Timestamp::UNIX_EPOCH);
            assert_eq!(cells.len(), rules.columns.len(), "{resource}.{group}");
        }
    }

    #[test]
    fn cells_are_as_upstream_shows_them() {
        let now = "2026-11-30T20:41:15Z".parse().unwrap();
        let meta = |name: &str| json!({"name": name, "creationTimestamp": "2026-11-30T20:39:29Z"});
        let group = json!({"metadata": meta("pg"), "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}});
        assert_eq!(json!(podgroups(&group, now)), json!(["pg", "Gang", "<none>", "Pending", "106s"]));
        let pool = json!({"metadata": meta("rp"), "spec": {"driver": "a.example.com", "limit": 100}});
        let cells = json!(["rp", "a.example.com", "-", "-", "-", "-", "-", 0, "Pending", "<none>"]);
        assert_eq!(json!(resourcepoolstatusrequests(&pool, now)), cells);
        let mut request = json!({"metadata": meta("er"), "spec": {"target": {"pod": {"name": "p"}},
                                 "requester": "acme.io/foo", "intent": "Eviction"}});
        let cells = json!(["er", "p", "Pod", "Pending", "acme.io/foo", "Eviction", "106s"]);
        assert_eq!(json!(evictionrequests(&request, now)), cells);
        request["status"]["conditions"] = json!([{"type": "TargetEvicted", "status": "True", "reason": "A"}]);
        assert_eq!(evictionrequests(&request, now)[3], "TargetEvicted (A)");
        let cells = json!([
            "er",
            "p",
            "Pod",
            "TargetEvicted (A)",
            "<unset> (0/0)",
            "<unset>",
            "<unknown>",
            "<none>",
            "106s",
            "<unset>",
            "<unset>"
        ]);
        assert_eq!(json!(evictions(&request, now)), cells);
    }
}
