//! What a job's pods look like.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};

use crate::{meta, template};

/// Finalizer that keeps a pod until it was counted.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Label and annotation with a pod's index.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Annotation with how often the index failed before.
pub const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const INDEX_ENV: &str = "JOB_COMPLETION_INDEX";

/// A pod to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its index, for indexed jobs.
    pub index: Option<i32>,
    /// How often the index failed before, for jobs with a limit per index.
    pub failures: Option<i32>,
}

/// The index that a pod carries.
pub fn index_of(pod: &Pod) -> Option<i32> {
    meta::annotation(&pod.metadata, INDEX)?.parse().ok().filter(|i| *i >= 0)
}

/// Builds the pod.
pub fn build(job: &Job, wanted: &Wanted) -> Option<Pod> {
    let spec = job.spec.as_ref()?;
    let mut pod = template::instantiate(&spec.template, meta::namespace(&job.metadata), meta::controller_ref(job));
    pod.metadata.finalizers.get_or_insert_default().push(TRACKING.to_owned());
    let name = meta::name(&job.metadata);
    pod.metadata.generate_name = Some(format!("{name}-"));
    if let Some(index) = wanted.index {
        pod.metadata.generate_name = Some(format!("{name}-{index}-"));
        let value = index.to_string();
        pod.metadata.labels.get_or_insert_default().insert(INDEX.to_owned(), value.clone());
        pod.metadata.annotations.get_or_insert_default().insert(INDEX.to_owned(), value);
        let spec = pod.spec.get_or_insert_default();
        spec.hostname.get_or_insert_with(|| format!("{name}-{index}"));
        let containers = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
        containers.for_each(add_index);
    }
    if let Some(failures) = wanted.failures {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(INDEX_FAILURES.to_owned(), failures.to_string());
    }
    Some(pod)
}

fn add_index(container: &mut Container) {
    let env = container.env.get_or_insert_default();
    if env.iter().any(|e| e.name == INDEX_ENV) {
        return;
    }
    let field_ref =
        ObjectFieldSelector { field_path: format!("metadata.labels['{INDEX}']"), ..ObjectFieldSelector::default() };
    let value_from = Some(EnvVarSource { field_ref: Some(field_ref), ..EnvVarSource::default() });
    env.push(EnvVar { name: INDEX_ENV.to_owned(), value_from, ..EnvVar::default() });
}
