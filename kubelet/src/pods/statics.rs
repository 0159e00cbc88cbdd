//! Static pods: manifests in a folder of the node, shown in the API by mirror pods.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use pintle_client::cache::Cache;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::manager::Manager;
use super::spec;
use super::writer::Target;
use crate::shared::Shared;

/// Time between two looks at the folder.
const PERIOD: Duration = Duration::from_secs(2);

/// Follows the folder until shutdown: pods come and go with their files, mirrors with the pods.
pub async fn run(
    shared: Arc<Shared>,
    manager: Manager,
    pods: Cache<Pod>,
    dir: std::path::PathBuf,
    shutdown: CancellationToken,
) {
    pods.synced().await;
    let mut known: HashMap<String, Arc<Pod>> = HashMap::new();
    let mut shown: HashMap<String, String> = HashMap::new();
    loop {
        let found = read(&dir, &shared.config.node_name);
        known.retain(|uid, _| {
            let stays = found.contains_key(uid);
            if !stays {
                manager.remove(uid);
            }
            stays
        });
        for (uid, pod) in found {
            known.entry(uid).or_insert_with(|| {
                let pod = Arc::new(pod);
                manager.update(pod.clone());
                pod
            });
        }
        if let Err(error) = mirror(&shared, &manager, &pods, &known, &mut shown).await {
            tracing::debug!(%error, "mirror pods not up to date");
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

/// Hands all pods of the folder to the manager.
pub fn load(dir: &Path, node: &str, manager: &Manager) {
    for pod in read(dir, node).into_values() {
        manager.update(Arc::new(pod));
    }
}

/// The pods of all manifests, by uid. A file that is no pod is left out, and said so in the log.
fn read(dir: &Path, node: &str) -> HashMap<String, Pod> {
    let mut pods = HashMap::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if hidden || !entry.path().is_file() {
            continue;
        }
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        match parse(&text, node) {
            Ok(pod) => {
                pods.insert(spec::uid(&pod).to_owned(), pod);
            }
            Err(error) => tracing::warn!(file = %entry.path().display(), %error, "not a static pod"),
        }
    }
    pods
}

/// A manifest as a pod of this node: its uid is a hash of content and node.
fn parse(text: &str, node: &str) -> Result<Pod, serde_yaml_ng::Error> {
    let mut pod: Pod = serde_yaml_ng::from_str(text)?;
    let digest = Sha256::digest(format!("{node}\n{text}").as_bytes());
    let hash: String = digest.iter().take(16).map(|b| format!("{b:02x}")).collect();
    let meta = &mut pod.metadata;
    meta.name = Some(format!("{}-{node}", meta.name.as_deref().unwrap_or("pod")));
    meta.namespace.get_or_insert_with(|| "default".to_owned());
    meta.uid = Some(hash.clone());
    let annotations = meta.annotations.get_or_insert_with(BTreeMap::new);
    annotations.insert(spec::CONFIG_HASH.to_owned(), hash);
    annotations.insert(spec::CONFIG_SOURCE.to_owned(), "file".to_owned());
    annotations.insert(spec::CONFIG_SEEN.to_owned(), jiff::Timestamp::now().to_string());
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node.to_owned());
    spec.enable_service_links.get_or_insert(true);
    let everything = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    spec.tolerations.get_or_insert_default().push(everything);
    Ok(pod)
}

/// Makes missing mirrors, removes those of pods that are gone or have changed, and tells workers where their status goes.
async fn mirror(
    shared: &Shared,
    manager: &Manager,
    pods: &Cache<Pod>,
    known: &HashMap<String, Arc<Pod>>,
    shown: &mut HashMap<String, String>,
) -> kube::Result<()> {
    let mirrors: Vec<Arc<Pod>> = pods.list().into_iter().filter(|p| spec::is_mirror(p)).collect();
    let hash = |p: &Pod| spec::annotation(p, spec::CONFIG_MIRROR).unwrap_or_default().to_owned();
    for mirror in &mirrors {
        let stale = known.get(&hash(mirror)).is_none_or(|p| spec::name(p) != spec::name(mirror));
        if stale || mirror.metadata.deletion_timestamp.is_some() {
            let api: Api<Pod> = Api::namespaced(shared.client.clone(), spec::namespace(mirror));
            let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            match api.delete(&mirror.name_any(), &now).await {
                Err(kube::Error::Api(s)) if s.code == 404 => {}
                other => drop(other?),
            }
        }
    }
    for (uid, pod) in known {
        let found = mirrors.iter().find(|m| hash(m) == *uid && m.metadata.deletion_timestamp.is_none());
        match found {
            Some(mirror) => {
                let object = spec::uid(mirror).to_owned();
                if shown.get(uid) != Some(&object) {
                    let (namespace, name) = (spec::namespace(mirror).to_owned(), mirror.name_any());
                    manager.mirrored(uid, Target { namespace, name, uid: object.clone() });
                    shown.insert(uid.clone(), object);
                }
            }
            None => create(shared, pod).await?,
        }
    }
    shown.retain(|uid, _| known.contains_key(uid));
    Ok(())
}

async fn create(shared: &Shared, pod: &Pod) -> kube::Result<()> {
    let node = Api::<Node>::all(shared.client.clone()).get(&shared.config.node_name).await?;
    let mut mirror = pod.clone();
    mirror.metadata.uid = None;
    let annotations = mirror.metadata.annotations.get_or_insert_with(BTreeMap::new);
    annotations.insert(spec::CONFIG_MIRROR.to_owned(), spec::uid(pod).to_owned());
    mirror.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.name_any(),
        uid: node.metadata.uid.unwrap_or_default(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
    let api: Api<Pod> = Api::namespaced(shared.client.clone(), spec::namespace(pod));
    match api.create(&PostParams::default(), &mirror).await {
        Err(kube::Error::Api(s)) if s.code == 409 => Ok(()),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_becomes_a_pod_of_the_node() {
        let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: i}]}\n";
        let pod = parse(text, "n1").unwrap();
        assert_eq!((spec::name(&pod), spec::namespace(&pod)), ("web-n1", "default"));
        assert!(spec::is_static(&pod) && !spec::is_mirror(&pod));
        assert_eq!(spec::uid(&parse(text, "n1").unwrap()), spec::uid(&pod));
        assert_ne!(spec::uid(&parse(text, "n2").unwrap()), spec::uid(&pod));
        assert!(parse("x: [", "n1").is_err());
    }
}
