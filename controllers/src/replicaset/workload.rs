//! What ReplicaSet and ReplicationController have in common, so that one loop serves both.

use std::fmt::Debug;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::Selector;
use pintle_client::cache::Cached;
use serde::Serialize;

use crate::claim::Owner;
use crate::meta;

/// A condition, the same in both kinds.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Its type.
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// One word why.
    pub reason: Option<String>,
    /// A sentence why.
    pub message: Option<String>,
    /// Since when.
    pub last_transition_time: Option<Time>,
}

/// The status, the same in both kinds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Pods that count.
    pub replicas: i32,
    /// Of these, with all labels of the template.
    pub fully_labeled: i32,
    /// Of these, ready.
    pub ready: i32,
    /// Of these, ready for long enough.
    pub available: i32,
    /// Pods that are going (ReplicaSet only).
    pub terminating: Option<i32>,
    /// The generation that was looked at.
    pub observed_generation: Option<i64>,
    /// Conditions.
    pub conditions: Vec<Condition>,
}

/// A kind that keeps a number of equal pods.
pub trait Workload: Owner + Cached + Serialize {
    /// The name under which events are recorded.
    const COMPONENT: &'static str;
    /// The kind's name.
    const KIND: &'static str;
    /// True if the status tells about pods that are going.
    const COUNTS_TERMINATING: bool;
    /// How many pods are asked for.
    fn replicas(&self) -> i32;
    /// How long a pod must be ready to count as available.
    fn min_ready_seconds(&self) -> i32;
    /// Which pods are meant; `None` if that is malformed or empty.
    fn selector(&self) -> Option<Selector>;
    /// What a pod looks like.
    fn template(&self) -> Option<&PodTemplateSpec>;
    /// The status as it is.
    fn status(&self) -> Status;
    /// A copy with another status.
    fn with_status(&self, status: Status) -> Self;
}

fn nonzero(count: i32) -> Option<i32> {
    Some(count).filter(|c| *c != 0)
}

/// A text that one kind must have and the other may have.
struct Lenient(String);

impl From<String> for Lenient {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<Option<String>> for Lenient {
    fn from(text: Option<String>) -> Self {
        Self(text.unwrap_or_default())
    }
}

impl From<Lenient> for String {
    fn from(text: Lenient) -> Self {
        text.0
    }
}

impl From<Lenient> for Option<String> {
    fn from(text: Lenient) -> Self {
        Some(text.0)
    }
}

macro_rules! conditions {
    ($from:expr, $to:ident) => {
        $from
            .into_iter()
            .map(|c| $to {
                type_: Lenient::from(c.type_).into(),
                status: Lenient::from(c.status).into(),
                reason: c.reason,
                message: c.message,
                last_transition_time: c.last_transition_time,
            })
            .collect()
    };
}

impl Workload for ReplicaSet {
    const COMPONENT: &'static str = "replicaset-controller";
    const KIND: &'static str = "ReplicaSet";
    const COUNTS_TERMINATING: bool = true;

    fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or(0)
    }

    fn selector(&self) -> Option<Selector> {
        meta::selector(&self.spec.selector).filter(|s| !s.selects_all())
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.template.as_ref()
    }

    fn status(&self) -> Status {
        let from = self.status.clone().unwrap_or_default();
        Status {
            replicas: from.replicas,
            fully_labeled: from.fully_labeled_replicas.unwrap_or(0),
            ready: from.ready_replicas.unwrap_or(0),
            available: from.available_replicas.unwrap_or(0),
            terminating: from.terminating_replicas,
            observed_generation: from.observed_generation,
            conditions: conditions!(from.conditions.unwrap_or_default(), Condition),
        }
    }

    fn with_status(&self, status: Status) -> Self {
        let status = ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: nonzero(status.fully_labeled),
            ready_replicas: nonzero(status.ready),
            available_replicas: nonzero(status.available),
            terminating_replicas: status.terminating,
            observed_generation: status.observed_generation,
            conditions: Some(conditions!(status.conditions, ReplicaSetCondition)),
        };
        Self { status: Some(status), ..self.clone() }
    }
}

impl Workload for ReplicationController {
    const COMPONENT: &'static str = "replication-controller";
    const KIND: &'static str = "ReplicationController";
    const COUNTS_TERMINATING: bool = false;

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.min_ready_seconds).unwrap_or(0)
    }

    fn selector(&self) -> Option<Selector> {
        let labels = self.spec.as_ref()?.selector.clone().unwrap_or_default();
        Some(labels.into_iter().collect::<Selector>()).filter(|s| !s.selects_all())
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn status(&self) -> Status {
        let from = self.status.clone().unwrap_or_default();
        Status {
            replicas: from.replicas,
            fully_labeled: from.fully_labeled_replicas.unwrap_or(0),
            ready: from.ready_replicas.unwrap_or(0),
            available: from.available_replicas.unwrap_or(0),
            terminating: None,
            observed_generation: from.observed_generation,
            conditions: conditions!(from.conditions.unwrap_or_default(), Condition),
        }
    }

    fn with_status(&self, status: Status) -> Self {
        let status = ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: nonzero(status.fully_labeled),
            ready_replicas: nonzero(status.ready),
            available_replicas: nonzero(status.available),
            observed_generation: status.observed_generation,
            conditions: Some(conditions!(status.conditions, ReplicationControllerCondition)),
        };
        Self { status: Some(status), ..self.clone() }
    }
}
