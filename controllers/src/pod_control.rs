//! Creating and deleting pods on behalf of an owner, with the events that tell about it.

use futures::FutureExt;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client};
use pintle_client::events::Recorder;

use crate::meta;
use crate::retry::{gone_is_fine, is_namespace_terminating, message};

/// Size of the first batch of creations; each batch that succeeds doubles the next one.
const FIRST_BATCH: usize = 1;
/// Deletions in flight at the same time.
const PARALLEL: usize = 16;

/// Writes pods and the events about them.
#[derive(Clone)]
pub struct PodControl {
    client: Client,
    recorder: Recorder,
}

impl PodControl {
    /// Events are recorded through `recorder`.
    pub fn new(client: Client, recorder: Recorder) -> Self {
        Self { client, recorder }
    }

    fn api(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Creates one pod and tells about it on `owner`.
    pub async fn create(&self, owner: &ObjectReference, pod: &Pod) -> kube::Result<Pod> {
        match self.api(meta::namespace(&pod.metadata)).create(&PostParams::default(), pod).await {
            Ok(created) => {
                let text = format!("Created pod: {}", meta::name(&created.metadata));
                self.recorder.normal(owner, "SuccessfulCreate", text);
                Ok(created)
            }
            Err(error) => {
                if !is_namespace_terminating(&error) {
                    let text = format!("Error creating: {}", message(&error));
                    self.recorder.warning(owner, "FailedCreate", text);
                }
                Err(error)
            }
        }
    }

    /// Creates pods in batches that double while all goes well; ends after the first batch with a failure.
    /// `done` is told about each attempt, and about each pod that was not tried. Returns the first error.
    pub async fn create_all(
        &self,
        owner: &ObjectReference,
        pods: &[Pod],
        mut done: impl FnMut(bool),
    ) -> Option<kube::Error> {
        let mut rest = pods;
        let mut size = FIRST_BATCH;
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(size.min(rest.len()));
            let attempts: Vec<_> = batch.iter().map(|pod| self.create(owner, pod).boxed()).collect();
            let results = futures::future::join_all(attempts).await;
            results.iter().for_each(|r| done(r.is_ok()));
            if let Some(error) = results.into_iter().find_map(Result::err) {
                later.iter().for_each(|_| done(false));
                return Some(error);
            }
            rest = later;
            size *= 2;
        }
        None
    }

    /// Deletes one pod (that very one) and tells about it on `owner`. A pod that is gone already is fine.
    pub async fn delete(&self, owner: &ObjectReference, pod: &Pod) -> kube::Result<()> {
        let name = meta::name(&pod.metadata);
        let same = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams::default().preconditions(same);
        match gone_is_fine(self.api(meta::namespace(&pod.metadata)).delete(name, &params).await) {
            Ok(_) => {
                self.recorder.normal(owner, "SuccessfulDelete", format!("Deleted pod: {name}"));
                Ok(())
            }
            Err(error) => {
                let text = format!("Error deleting: {}", message(&error));
                self.recorder.warning(owner, "FailedDelete", text);
                Err(error)
            }
        }
    }

    /// Deletes pods side by side; `failed` is told about each that could not be. Returns the first error.
    pub async fn delete_all<'a>(
        &self,
        owner: &ObjectReference,
        pods: impl IntoIterator<Item = &'a Pod>,
        mut failed: impl FnMut(&Pod),
    ) -> Option<kube::Error> {
        let attempts: Vec<_> =
            pods.into_iter().map(|pod| self.delete(owner, pod).map(move |result| (pod, result)).boxed()).collect();
        let results: Vec<_> = stream::iter(attempts).buffer_unordered(PARALLEL).collect().await;
        let mut first = None;
        for (pod, result) in results {
            if let Err(error) = result {
                failed(pod);
                first.get_or_insert(error);
            }
        }
        first
    }
}
