//! Defaults of the workload kinds of `apps`, `batch` and `autoscaling`.

use serde_json::{Value, json};

use crate::registry::core::pod_defaults::template;
use crate::registry::value::{at, default, has, items_mut, object_mut, set, text};

/// Deployment.
pub fn deployment(deployment: &mut Value) {
    template(deployment, "spec.template");
    let spec = object_mut(deployment, "spec");
    default(spec, "replicas", 1);
    default(object_mut(spec, "strategy"), "type", "RollingUpdate");
    if text(spec, "strategy.type") == "RollingUpdate" {
        let rolling = object_mut(spec, "strategy.rollingUpdate");
        default(rolling, "maxUnavailable", "25%");
        default(rolling, "maxSurge", "25%");
    }
    default(spec, "revisionHistoryLimit", 10);
    default(spec, "progressDeadlineSeconds", 600);
}

/// ReplicaSet.
pub fn replica_set(set: &mut Value) {
    template(set, "spec.template");
    default(object_mut(set, "spec"), "replicas", 1);
}

/// DaemonSet.
pub fn daemon_set(set: &mut Value) {
    template(set, "spec.template");
    default(object_mut(set, "metadata.annotations"), "deprecated.daemonset.template.generation", "0");
    let spec = object_mut(set, "spec");
    default(object_mut(spec, "updateStrategy"), "type", "RollingUpdate");
    if text(spec, "updateStrategy.type") == "RollingUpdate" {
        let rolling = object_mut(spec, "updateStrategy.rollingUpdate");
        default(rolling, "maxUnavailable", 1);
        default(rolling, "maxSurge", 0);
    }
    default(spec, "revisionHistoryLimit", 10);
}

/// StatefulSet.
pub fn stateful_set(set: &mut Value) {
    template(set, "spec.template");
    let spec = object_mut(set, "spec");
    default(spec, "podManagementPolicy", "OrderedReady");
    default(object_mut(spec, "updateStrategy"), "type", "RollingUpdate");
    if text(spec, "updateStrategy.type") == "RollingUpdate" {
        default(object_mut(spec, "updateStrategy.rollingUpdate"), "partition", 0);
    }
    let retention = object_mut(spec, "persistentVolumeClaimRetentionPolicy");
    default(retention, "whenDeleted", "Retain");
    default(retention, "whenScaled", "Retain");
    default(spec, "replicas", 1);
    default(spec, "revisionHistoryLimit", 10);
    for claim in items_mut(spec, "volumeClaimTemplates") {
        default(claim, "apiVersion", "v1");
        default(claim, "kind", "PersistentVolumeClaim");
        crate::registry::core::defaults::claim(claim);
    }
}

/// Job.
pub fn job(job: &mut Value) {
    template(job, "spec.template");
    let labels = at(job, "spec.template.metadata.labels").clone();
    let spec = object_mut(job, "spec");
    if !has(spec, "completions") && !has(spec, "parallelism") {
        default(spec, "completions", 1);
    }
    default(spec, "parallelism", 1);
    let per_index = has(spec, "backoffLimitPerIndex");
    default(spec, "backoffLimit", if per_index { i64::from(i32::MAX) } else { 6 });
    default(spec, "completionMode", "NonIndexed");
    default(spec, "suspend", false);
    let failure_policy = has(spec, "podFailurePolicy");
    default(spec, "podReplacementPolicy", if failure_policy { "Failed" } else { "TerminatingOrFailed" });
    for rule in items_mut(spec, "podFailurePolicy.rules") {
        items_mut(rule, "onPodConditions").for_each(|condition| default(condition, "status", "True"));
    }
    let unlabelled = at(job, "metadata.labels").as_object().is_none_or(|labels| labels.is_empty());
    if unlabelled && labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        set(object_mut(job, "metadata"), "labels", labels);
    }
}

/// CronJob.
pub fn cron_job(job: &mut Value) {
    template(job, "spec.jobTemplate.spec.template");
    let spec = object_mut(job, "spec");
    default(spec, "concurrencyPolicy", "Allow");
    default(spec, "suspend", false);
    default(spec, "successfulJobsHistoryLimit", 3);
    default(spec, "failedJobsHistoryLimit", 1);
}

/// HorizontalPodAutoscaler.
pub fn autoscaler(autoscaler: &mut Value) {
    let spec = object_mut(autoscaler, "spec");
    default(spec, "minReplicas", 1);
    let v1 = has(spec, "targetCPUUtilizationPercentage");
    if !v1 && (!has(spec, "metrics") || spec["metrics"] == json!([])) {
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 80}}});
        set(spec, "metrics", json!([cpu]));
    }
    if has(spec, "behavior") {
        let policy = |ty: &str, value: i64| json!({"type": ty, "value": value, "periodSeconds": 15});
        let behavior = object_mut(spec, "behavior");
        let up = object_mut(behavior, "scaleUp");
        default(up, "stabilizationWindowSeconds", 0);
        default(up, "selectPolicy", "Max");
        default(up, "policies", json!([policy("Pods", 4), policy("Percent", 100)]));
        let down = object_mut(behavior, "scaleDown");
        default(down, "selectPolicy", "Max");
        default(down, "policies", json!([policy("Percent", 100)]));
    }
}
