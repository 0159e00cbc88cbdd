//! What a failed pod means: the rules of podFailurePolicy, and success by successPolicy.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::{Job, PodFailurePolicyRule};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::indexes;
use crate::meta;

/// What a failed pod does to its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It counts against the limit.
    Counts,
    /// It is as if it had not been.
    Ignored,
    /// Its index fails at once.
    FailsIndex,
    /// The whole job fails at once, with this message.
    FailsJob(String),
}

/// Judges a failed pod by the first rule that fits.
pub fn judge(job: &Job, pod: &Pod) -> Failure {
    let rules = job.spec.as_ref().and_then(|s| s.pod_failure_policy.as_ref()).map(|p| p.rules.as_slice());
    for (at, rule) in rules.unwrap_or_default().iter().enumerate() {
        let Some(what) = by_exit_code(rule, pod).or_else(|| by_condition(rule, pod)) else { continue };
        return match rule.action.as_str() {
            "Ignore" => Failure::Ignored,
            "FailIndex" => Failure::FailsIndex,
            "FailJob" => Failure::FailsJob(format!("{what} matching {} rule at index {at}", rule.action)),
            _ => Failure::Counts,
        };
    }
    Failure::Counts
}

fn by_exit_code(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let wanted = rule.on_exit_codes.as_ref()?;
    let status = pod.status.as_ref()?;
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let named = |c: &&ContainerStatus| wanted.container_name.as_ref().is_none_or(|n| *n == c.name);
    for container in all.filter(named) {
        let ended = container.state.as_ref().and_then(|s| s.terminated.as_ref());
        let Some(code) = ended.map(|t| t.exit_code).filter(|code| *code != 0) else { continue };
        if wanted.values.contains(&code) == (wanted.operator == "In") {
            let (ns, name) = (meta::namespace(&pod.metadata), meta::name(&pod.metadata));
            return Some(format!("Container {} for pod {ns}/{name} failed with exit code {code}", container.name));
        }
    }
    None
}

fn by_condition(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let has = pod.status.as_ref()?.conditions.as_ref()?;
    for pattern in rule.on_pod_conditions.iter().flatten() {
        let status = pattern.status.as_deref().unwrap_or("True");
        if has.iter().any(|c| c.type_ == pattern.type_ && c.status == status) {
            let (ns, name) = (meta::namespace(&pod.metadata), meta::name(&pod.metadata));
            return Some(format!("Pod {ns}/{name} has condition {}", pattern.type_));
        }
    }
    None
}

/// The message of the first success rule that is met.
pub fn success(job: &Job, succeeded: &BTreeSet<i32>) -> Option<String> {
    let rules = &job.spec.as_ref()?.success_policy.as_ref()?.rules;
    let met = |rule: &k8s_openapi::api::batch::v1::SuccessPolicyRule| {
        let counted = match &rule.succeeded_indexes {
            None => succeeded.len(),
            Some(text) => {
                let wanted = indexes::parse(text);
                let have = wanted.intersection(succeeded).count();
                if rule.succeeded_count.is_none() {
                    return have == wanted.len();
                }
                have
            }
        };
        rule.succeeded_count.is_some_and(|n| counted >= usize::try_from(n).unwrap_or(usize::MAX))
    };
    rules.iter().position(met).map(|at| format!("Matched rules at index {at}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pods::testing::pod;

    fn job(spec: serde_json::Value) -> Job {
        let mut spec = spec;
        spec["template"] = json!({});
        serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()
    }

    #[test]
    fn rules() {
        let j = job(json!({"podFailurePolicy": {"rules": [
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailIndex", "onExitCodes": {"containerName": "c", "operator": "NotIn", "values": [1]}},
        ]}}));
        let failed = |status: serde_json::Value| {
            let mut p = pod("p", "Failed");
            p.status = Some(serde_json::from_value(status).unwrap());
            p
        };
        let exit = |code: i32| {
            failed(json!({"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false,
                "restartCount": 0, "state": {"terminated": {"exitCode": code}}}]}))
        };
        let message = "Container c for pod ns/p failed with exit code 42 matching FailJob rule at index 0";
        assert_eq!(judge(&j, &exit(42)), Failure::FailsJob(message.into()));
        assert_eq!(judge(&j, &exit(1)), Failure::Counts);
        assert_eq!(judge(&j, &exit(3)), Failure::FailsIndex);
        let disrupted = failed(json!({"conditions": [{"type": "DisruptionTarget", "status": "True"}]}));
        assert_eq!(judge(&j, &disrupted), Failure::Ignored);
        assert_eq!(judge(&job(json!({})), &exit(42)), Failure::Counts);
    }

    #[test]
    fn success_rules() {
        let j = job(json!({"successPolicy": {"rules": [
            {"succeededIndexes": "0,2"}, {"succeededIndexes": "3-5", "succeededCount": 2}, {"succeededCount": 4},
        ]}}));
        let met = |text: &str| success(&j, &indexes::parse(text));
        assert_eq!(met("0"), None);
        assert_eq!(met("0,2").as_deref(), Some("Matched rules at index 0"));
        assert_eq!(met("3,5").as_deref(), Some("Matched rules at index 1"));
        assert_eq!(met("1,6,7,8").as_deref(), Some("Matched rules at index 2"));
    }
}
