//! `eviction`: a deletion that respects disruption budgets.

use http::StatusCode;
use pintle_machinery::selector::label;
use pintle_machinery::status::{ApiError, Cause, Details, Status};
use serde_json::{Value, json};

use crate::codec;
use crate::engine::delete::{self, DeleteOptions};
use crate::engine::modify;
use crate::engine::{Answer, Call, meta, present};
use crate::internal::{self, Address};

/// More pods are not remembered in a budget's status.
const MOST_DISRUPTED: usize = 2000;
/// Seconds after which to ask again about a budget that its controller has not seen yet.
const UNKNOWING_RETRY: u32 = 10;

/// POST of an Eviction.
pub async fn evict(call: &Call, body: &[u8]) -> Answer {
    let eviction = codec::decode_as(call, body, ("policy", "v1"), "Eviction")?;
    let own_name = meta::text(&eviction, "name");
    if !own_name.is_empty() && own_name != call.info.name {
        return Err(ApiError::BadRequest("name in URL does not match name in Eviction object".into()));
    }
    let options = options(call, &eviction)?;
    let pod = modify::current(call).await?.ok_or_else(|| call.not_found())?.value;
    if !ignores_budgets(&pod) {
        check_budgets(call, &pod, options.dry_run).await?;
    }
    if !options.dry_run && !meta::is_deleting(&pod) {
        mark(call).await?;
    }
    delete::delete_object(call, &options).await?;
    let status = Status { code: 201, ..Status::failure(201, "", "") };
    let value = json!({"kind": status.kind, "apiVersion": status.api_version, "metadata": {}, "status": "Success", "code": 201});
    present::object(call, StatusCode::CREATED, &value)
}

/// Says in the pod's status why it goes.
async fn mark(call: &Call) -> Result<(), ApiError> {
    let at = Address::new("", "pods", &call.info.namespace, &call.info.name);
    let mut status_call = internal::call(&call.state, "update", at)?;
    status_call.info.subresource = "status".into();
    let make = |old: &Value| {
        let mut new = old.clone();
        let mut conditions = old["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|condition| condition["type"] != "DisruptionTarget");
        conditions.push(json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastProbeTime": null,
            "lastTransitionTime": meta::timestamp(call.now)}));
        new["status"]["conditions"] = json!(conditions);
        Ok(new)
    };
    modify::modify(&status_call, &make, modify::Ownership::Update, false).await.map(drop)
}

fn options(call: &Call, eviction: &Value) -> Result<DeleteOptions, ApiError> {
    let own = &eviction["deleteOptions"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let dry_run = call.dry_run()? || own["dryRun"].as_array().is_some_and(|list| list.iter().any(|item| item == "All"));
    Ok(DeleteOptions {
        grace: own["gracePeriodSeconds"].as_i64(),
        propagation: None,
        uid: text(&own["preconditions"]["uid"]),
        resource_version: text(&own["preconditions"]["resourceVersion"]),
        dry_run,
    })
}

/// Pods that are done, not running yet or on their way out disturb nothing.
fn ignores_budgets(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    matches!(phase, "Succeeded" | "Failed" | "Pending") || meta::is_deleting(pod)
}

async fn check_budgets(call: &Call, pod: &Value, dry_run: bool) -> Result<(), ApiError> {
    call.state.consistent().await.map_err(crate::engine::storage_error)?;
    let labels: std::collections::BTreeMap<String, String> = pod["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    let budgets = internal::list(&call.state, "policy", "poddisruptionbudgets", &call.info.namespace);
    let matching: Vec<_> = budgets
        .into_iter()
        .filter(|budget| {
            label::Selector::from_object(budget["spec"].get("selector")).is_ok_and(|selector| selector.matches(&labels))
        })
        .collect();
    match matching.as_slice() {
        [] => Ok(()),
        [budget] => spend(call, pod, budget, dry_run).await,
        _ => Err(ApiError::Internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.".into(),
        )),
    }
}

/// Takes one disruption from the budget.
async fn spend(call: &Call, pod: &Value, budget: &Value, dry_run: bool) -> Result<(), ApiError> {
    let name = meta::text(budget, "name");
    let ready = pod["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
    let healthy = budget["status"]["currentHealthy"].as_i64().unwrap_or(0);
    let desired = budget["status"]["desiredHealthy"].as_i64().unwrap_or(0);
    if !ready && (always || (healthy >= desired && desired > 0)) {
        return Ok(());
    }
    let check = |budget: &Value| allowed(budget, name);
    check(budget)?;
    if dry_run {
        return Ok(());
    }
    let at = Address::new("policy", "poddisruptionbudgets", &call.info.namespace, name);
    let mut status_call = internal::call(&call.state, "update", at)?;
    status_call.info.subresource = "status".into();
    let pod_name = call.info.name.clone();
    let make = |old: &Value| {
        allowed(old, name)?;
        let mut new = old.clone();
        let left = old["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) - 1;
        new["status"]["disruptionsAllowed"] = json!(left);
        new["status"]["disruptedPods"][&pod_name] = json!(meta::timestamp(call.now));
        Ok(new)
    };
    modify::modify(&status_call, &make, modify::Ownership::Server, false).await.map(drop)
}

fn allowed(budget: &Value, name: &str) -> Result<(), ApiError> {
    let status = &budget["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let refuse = |cause: Cause, retry_after_seconds: u32| {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let details = Details { causes: vec![cause], retry_after_seconds, ..Details::default() };
        Err(ApiError::Other(Box::new(Status::failure(429, "TooManyRequests", message).with_details(details))))
    };
    let cause = |message: String| Cause { reason: "DisruptionBudget".into(), message, field: String::new() };
    if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        let cause = cause(format!("The disruption budget {name} is still being processed by the server."));
        return refuse(cause, UNKNOWING_RETRY);
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MOST_DISRUPTED) {
        let message =
            format!("DisruptedPods map too big - too many evictions not confirmed by PDB controller ({name})");
        return refuse(cause(message), 0);
    }
    if number("disruptionsAllowed") <= 0 {
        let message = format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            number("desiredHealthy"),
            number("currentHealthy")
        );
        return refuse(cause(message), 0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_spent_until_none_is_left() {
        let budget = |allowed: i64| {
            json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1,
            "disruptionsAllowed": allowed, "desiredHealthy": 2, "currentHealthy": 2}})
        };
        assert!(allowed(&budget(1), "b").is_ok());
        let status = allowed(&budget(0), "b").unwrap_err().status();
        assert_eq!((status.code, status.reason.as_str()), (429, "TooManyRequests"));
        assert_eq!(
            status.details.unwrap().causes[0].message,
            "The disruption budget b needs 2 healthy pods and has 2 currently"
        );
        assert!(ignores_budgets(&json!({"status": {"phase": "Pending"}})));
    }
}
