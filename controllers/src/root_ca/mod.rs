//! root-ca-certificate-publisher-controller: every namespace has the authority's certificate in a ConfigMap.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::PostParams;
use kube::runtime::watcher;
use pintle_client::cache::Cache;
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};

use crate::context::Context;
use crate::namespace::is_active;
use crate::retry::{is_already_exists, is_namespace_terminating, is_not_found};

const NAME: &str = "kube-root-ca.crt";
const FILE: &str = "ca.crt";
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the \
     internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes \
     clusters.",
);

struct Controller {
    ctx: Context,
    bundle: String,
    namespaces: Cache<Namespace>,
    published: Cache<ConfigMap>,
}

/// Runs the controller; without a bundle it has nothing to do.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let Some(bundle) = ctx.config.root_ca.clone() else { return Ok(()) };
    // Only the ConfigMaps of that name: this is not the process-wide cache of the kind.
    let only = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let published = Cache::start(ctx.api_all(), only, ctx.shutdown.clone());
    let controller = Arc::new(Controller { bundle, namespaces: ctx.cache(), published, ctx: ctx.clone() });
    controller.namespaces.synced().await;
    controller.published.synced().await;
    let queue: Queue<String> = ctx.queue("root_ca_cert_publisher");
    let keys = queue.clone();
    controller.namespaces.on_change(ctx.shutdown.clone(), move |change| keys.add(change.object().name_any()));
    let keys = queue.clone();
    let namespace_of = |map: &ConfigMap| map.namespace().unwrap_or_default();
    controller.published.on_change(ctx.shutdown.clone(), move |change| keys.add(namespace_of(change.object())));
    reconcile::run(queue, ctx.config.workers, ctx.shutdown, |namespace| {
        let controller = controller.clone();
        async move { controller.reconcile(&namespace).await }
    })
    .await;
    Ok(())
}

/// What is to be written.
#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    Create(Box<ConfigMap>),
    Replace(Box<ConfigMap>),
}

fn plan(namespace: &str, bundle: &str, present: Option<&ConfigMap>) -> Step {
    let data = BTreeMap::from([(FILE.to_owned(), bundle.to_owned())]);
    let (key, text) = DESCRIPTION;
    let Some(present) = present else {
        let metadata = ObjectMeta {
            name: Some(NAME.into()),
            namespace: Some(namespace.into()),
            annotations: Some([(key.to_owned(), text.to_owned())].into()),
            ..ObjectMeta::default()
        };
        return Step::Create(Box::new(ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }));
    };
    if present.data.as_ref() == Some(&data) && present.annotations().contains_key(key) {
        return Step::Nothing;
    }
    let mut fixed = ConfigMap { data: Some(data), binary_data: None, ..present.clone() };
    fixed.annotations_mut().insert(key.to_owned(), text.to_owned());
    Step::Replace(Box::new(fixed))
}

impl Controller {
    async fn reconcile(&self, namespace: &str) -> anyhow::Result<Action> {
        if !self.namespaces.get(None, namespace).is_some_and(|n| is_active(&n)) {
            return Ok(Action::Done);
        }
        let present = self.published.get(Some(namespace), NAME);
        let api = self.ctx.api::<ConfigMap>(namespace);
        let written = match plan(namespace, &self.bundle, present.as_deref()) {
            Step::Nothing => return Ok(Action::Done),
            Step::Create(map) => api.create(&PostParams::default(), &map).await,
            Step::Replace(map) => api.replace(NAME, &PostParams::default(), &map).await,
        };
        match written {
            Err(e) if is_already_exists(&e) || is_namespace_terminating(&e) || is_not_found(&e) => Ok(Action::Done),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(Action::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishes_and_repairs() {
        let Step::Create(map) = plan("ns", "PEM", None) else { panic!("not created") };
        assert_eq!(plan("ns", "PEM", Some(&map)), Step::Nothing);
        let Step::Replace(fixed) = plan("ns", "OTHER", Some(&map)) else { panic!("not replaced") };
        assert_eq!(fixed.data.unwrap()[FILE], "OTHER");
    }
}
