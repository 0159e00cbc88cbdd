//! ControllerRevisions: the templates that a set had, numbered.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::claim::Owner;
use crate::retry::{gone_is_fine, is_already_exists};
use crate::{hash, meta};

/// Label of pods with the revision that they were made from.
pub const REVISION_LABEL: &str = "controller-revision-hash";

/// The template as a revision stores it.
pub fn data(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    if let Some(map) = template.as_object_mut() {
        map.insert("$patch".to_owned(), json!("replace"));
    }
    json!({"spec": {"template": template}})
}

/// The template that a revision holds.
pub fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// What is to be done so that the newest revision holds the wanted data.
#[derive(Debug, PartialEq)]
enum Step {
    /// This one is it.
    Use(Arc<ControllerRevision>),
    /// This one holds the data but is not the newest: it gets a new number.
    Renumber(Arc<ControllerRevision>, i64),
    /// None holds the data.
    Create(i64),
}

fn plan(present: &[Arc<ControllerRevision>], wanted: &Value) -> Step {
    let number = |r: &ControllerRevision| r.revision.unwrap_or(0);
    let newest = present.iter().map(|r| number(r)).max().unwrap_or(0);
    let same = present.iter().filter(|r| r.data.0 == *wanted).max_by_key(|r| number(r));
    match same {
        Some(found) if number(found) == newest => Step::Use(found.clone()),
        Some(found) => Step::Renumber(found.clone(), newest + 1),
        None => Step::Create(newest + 1),
    }
}

/// The revision of the present template, made if there is none. `label` names the label that carries the hash on the
/// revision. `None`: the name is taken by another revision, the collision count has to go up.
pub async fn current<O: Owner>(
    client: &Client,
    owner: &O,
    template: &PodTemplateSpec,
    collisions: Option<i32>,
    label: &str,
    present: &[Arc<ControllerRevision>],
) -> anyhow::Result<Option<Arc<ControllerRevision>>> {
    let api: Api<ControllerRevision> = Api::namespaced(client.clone(), meta::namespace(owner.meta()));
    let wanted = data(template);
    let number = match plan(present, &wanted) {
        Step::Use(found) => return Ok(Some(found)),
        Step::Renumber(found, number) => {
            let renumbered = ControllerRevision { revision: Some(number), ..(*found).clone() };
            let name = meta::name(&found.metadata);
            return Ok(Some(Arc::new(api.replace(name, &PostParams::default(), &renumbered).await?)));
        }
        Step::Create(number) => number,
    };
    let hash = hash::short(&wanted, collisions);
    let mut labels = template.metadata.as_ref().and_then(|m| m.labels.clone()).unwrap_or_default();
    labels.insert(label.to_owned(), hash.clone());
    let name = format!("{}-{hash}", meta::name(owner.meta()));
    let fresh = ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: owner.meta().namespace.clone(),
            labels: Some(labels),
            annotations: owner.meta().annotations.clone(),
            owner_references: Some(vec![meta::controller_ref(owner)]),
            ..ObjectMeta::default()
        },
        data: RawExtension(wanted.clone()),
        revision: Some(number),
    };
    match api.create(&PostParams::default(), &fresh).await {
        Ok(made) => Ok(Some(Arc::new(made))),
        Err(error) if is_already_exists(&error) => {
            let taken = api.get(&name).await?;
            Ok((taken.data.0 == wanted).then(|| Arc::new(taken)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Deletes the oldest revisions beyond the limit that nobody uses.
pub async fn clean_up(
    client: &Client,
    namespace: &str,
    present: &[Arc<ControllerRevision>],
    used: impl Fn(&ControllerRevision) -> bool,
    limit: i32,
) -> anyhow::Result<()> {
    let mut idle: Vec<_> = present.iter().filter(|r| !used(r)).collect();
    idle.sort_by_key(|r| r.revision.unwrap_or(0));
    let surplus = idle.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    let api: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
    for revision in idle.into_iter().take(surplus) {
        gone_is_fine(api.delete(meta::name(&revision.metadata), &DeleteParams::default()).await.map(|_| ()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(name: &str, number: i64, image: &str) -> Arc<ControllerRevision> {
        Arc::new(ControllerRevision {
            metadata: ObjectMeta { name: Some(name.into()), ..Default::default() },
            data: RawExtension(data(&spec(image))),
            revision: Some(number),
        })
    }

    fn spec(image: &str) -> PodTemplateSpec {
        serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "image": image}]}})).unwrap()
    }

    #[test]
    fn revisions_are_reused() {
        let (a, b) = (revision("a", 1, "a"), revision("b", 2, "b"));
        let present = [a.clone(), b.clone()];
        assert_eq!(plan(&present, &data(&spec("b"))), Step::Use(b));
        assert_eq!(plan(&present, &data(&spec("a"))), Step::Renumber(a.clone(), 3));
        assert_eq!(plan(&present, &data(&spec("c"))), Step::Create(3));
        assert_eq!(template(&a), Some(spec("a")));
    }
}
