//! Carries out at the API what the core decided.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodCondition};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource};
use parking_lot::Mutex;
use pintle_client::events::Recorder;
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::binding;
use crate::core::Effect;
use crate::pod::PodInfo;

/// The way to the API.
#[derive(Clone)]
pub(crate) struct Actor {
    client: Client,
    host: String,
    recorders: Arc<Mutex<HashMap<String, Recorder>>>,
}

impl Actor {
    pub(crate) fn new(client: Client, host: String) -> Actor {
        Actor { client, host, recorders: Arc::default() }
    }

    fn recorder(&self, pod: &PodInfo) -> Recorder {
        let name = pod.scheduler_name();
        let make = || Recorder::new(self.client.clone(), name, &self.host);
        self.recorders.lock().entry(name.to_owned()).or_insert_with(make).clone()
    }

    fn pods(&self, pod: &PodInfo) -> Api<Pod> {
        Api::namespaced(self.client.clone(), pod.namespace())
    }

    /// Does it; for a binding, says whether it was written.
    pub(crate) async fn carry_out(&self, effect: Effect) -> Option<(String, bool)> {
        match effect {
            Effect::Bind { pod, node, .. } => Some((pod.uid().to_owned(), self.bind(&pod, &node).await)),
            Effect::Report { pod, message, nominated } => {
                self.report(&pod, "Unschedulable", &message, nominated.as_deref()).await;
                None
            }
            Effect::Unpromise { pod } => {
                self.patch_status(&pod, json!({"nominatedNodeName": null})).await;
                None
            }
            Effect::Evict { preemptor, node, victims } => {
                for victim in victims {
                    self.evict(&preemptor, &node, &victim).await;
                }
                None
            }
        }
    }

    /// Does what comes before a binding; true if that can be written.
    pub(crate) async fn prepare(&self, effect: &Effect) -> bool {
        let Effect::Bind { pod, node, wishes } = effect else { return true };
        let prepared = binding::prepare(&self.client, node, wishes);
        match tokio::time::timeout(binding::PATIENCE, prepared)
            .await
            .unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
        {
            Ok(()) => true,
            Err(cause) => {
                warn!(pod = %key(pod), node, cause, "volumes not bound");
                let message = format!("running PreBind plugin \"VolumeBinding\": binding volumes: {cause}");
                self.report(pod, "SchedulerError", &message, pod.nominated()).await;
                false
            }
        }
    }

    async fn bind(&self, pod: &PodInfo, node: &str) -> bool {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": pod.name(), "namespace": pod.namespace(), "uid": pod.uid()},
            "target": {"kind": "Node", "name": node},
        });
        let result: Result<Value, _> =
            self.pods(pod).create_subresource("binding", pod.name(), &PostParams::default(), &binding).await;
        match result {
            Ok(_) => {
                info!(pod = %key(pod), node, "bound");
                let message = format!("Successfully assigned {} to {node}", key(pod));
                self.recorder(pod).normal(&reference(pod), "Scheduled", message);
                true
            }
            Err(error) if matches!(&error, kube::Error::Api(s) if s.code == 404) => {
                info!(pod = %key(pod), "went while it was being bound");
                false
            }
            Err(error) => {
                warn!(pod = %key(pod), node, %error, "binding failed");
                let cause = match error {
                    kube::Error::Api(status) => status.message,
                    other => other.to_string(),
                };
                let message = format!("binding rejected: running Bind plugin \"DefaultBinder\": {cause}");
                self.report(pod, "SchedulerError", &message, pod.nominated()).await;
                false
            }
        }
    }

    async fn report(&self, pod: &PodInfo, reason: &str, message: &str, nominated: Option<&str>) {
        self.recorder(pod).warning(&reference(pod), "FailedScheduling", message);
        let mut status = json!({});
        if let Some(condition) = condition(pod, "PodScheduled", "False", reason, message) {
            status["conditions"] = json!([condition]);
        }
        if nominated != pod.nominated() {
            status["nominatedNodeName"] = json!(nominated);
        }
        if status.as_object().is_some_and(|s| !s.is_empty()) {
            self.patch_status(pod, status).await;
        }
    }

    async fn evict(&self, preemptor: &PodInfo, node: &str, victim: &PodInfo) {
        let message = format!("{}: preempting to accommodate a higher priority pod", preemptor.scheduler_name());
        if let Some(condition) = condition(victim, "DisruptionTarget", "True", "PreemptionByScheduler", &message) {
            self.patch_status(victim, json!({"conditions": [condition]})).await;
        }
        let preconditions = Preconditions { uid: Some(victim.uid().to_owned()), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.pods(victim).delete(victim.name(), &parameters).await {
            Ok(_) => {
                let message = format!("Preempted by pod {} on node {node}", preemptor.uid());
                self.recorder(preemptor).normal(&reference(victim), "Preempted", message);
            }
            Err(error) => warn!(pod = %key(victim), %error, "preemption failed"),
        }
    }

    async fn patch_status(&self, pod: &PodInfo, status: Value) {
        let patch = json!({"metadata": {"uid": pod.uid()}, "status": status});
        let result = self.pods(pod).patch_status(pod.name(), &PatchParams::default(), &Patch::Strategic(patch)).await;
        match result {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => warn!(pod = %key(pod), %error, "cannot write the pod's status"),
        }
    }
}

fn key(pod: &PodInfo) -> String {
    format!("{}/{}", pod.namespace(), pod.name())
}

fn reference(pod: &PodInfo) -> ObjectReference {
    pod.pod.object_ref(&())
}

/// The condition to write, unless the pod has it already.
fn condition(pod: &PodInfo, kind: &str, status: &str, reason: &str, message: &str) -> Option<Value> {
    let conditions = pod.pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    let old: Option<&PodCondition> = conditions.into_iter().flatten().find(|c| c.type_ == kind);
    let same = |c: &PodCondition| {
        c.status == status && c.reason.as_deref() == Some(reason) && c.message.as_deref() == Some(message)
    };
    if old.is_some_and(same) {
        return None;
    }
    let kept = old.filter(|c| c.status == status).and_then(|c| c.last_transition_time.as_ref());
    let since = kept.map_or_else(|| json!(now_in_seconds()), |t| json!(t));
    let generation = pod.pod.metadata.generation;
    Some(json!({"type": kind, "status": status, "reason": reason, "message": message, "lastProbeTime": null,
        "lastTransitionTime": since, "observedGeneration": generation}))
}

fn now_in_seconds() -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    let now = jiff::Timestamp::now();
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::from_second(now.as_second()).unwrap_or(now))
}
