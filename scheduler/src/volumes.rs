//! Volumes as the scheduler sees them: on which nodes a pod finds its claims' volumes, and what is to be done for claims
//! that wait for a node. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use pintle_api::nodes;
use pintle_api::volumes::{capacity, claims_of, class_of, is_bound, is_for, is_free, selected_node, suits, wanted};

use crate::selector::Labels;

/// Volumes of classes with this provisioner are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
const NOT_ON_NODE: &str = "node(s) didn't match PersistentVolume's node affinity";
const NONE_TO_BIND: &str = "node(s) didn't find available persistent volumes to bind";
const UNBOUND: &str = "pod has unbound immediate PersistentVolumeClaims";

/// What is to be done for a claim before its pod is bound.
#[derive(Clone, Debug)]
pub enum Wish {
    /// Keep this volume for it.
    Volume(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>),
    /// Have one made for the node.
    Provision(Arc<PersistentVolumeClaim>),
}

impl Wish {
    /// The claim.
    pub fn claim(&self) -> &Arc<PersistentVolumeClaim> {
        match self {
            Wish::Volume(claim, _) | Wish::Provision(claim) => claim,
        }
    }
}

/// What a pod's claims ask of a node.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Volumes that must be reached.
    bound: Vec<Arc<PersistentVolume>>,
    /// Claims that get a volume with the node, the smallest first.
    waiting: Vec<Arc<PersistentVolumeClaim>>,
}

/// Claims, volumes and classes. A copy costs nothing; what changes afterwards is copied then, map by map.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    claims: Arc<BTreeMap<(String, String), Arc<PersistentVolumeClaim>>>,
    volumes: Arc<BTreeMap<String, Arc<PersistentVolume>>>,
    classes: Arc<BTreeMap<String, Arc<StorageClass>>>,
    /// Volumes that are being bound, with the uid of the pod that waits for that.
    promised: Arc<BTreeMap<String, String>>,
}

fn set<K: Ord + Clone, V: Clone>(map: &mut Arc<BTreeMap<K, V>>, key: K, value: V, gone: bool) {
    let map = Arc::make_mut(map);
    match gone {
        true => _ = map.remove(&key),
        false => _ = map.insert(key, value),
    }
}

impl Volumes {
    /// A claim came, changed or went.
    pub fn set_claim(&mut self, claim: Arc<PersistentVolumeClaim>, gone: bool) {
        let (namespace, name) = (claim.metadata.namespace.clone(), claim.metadata.name.clone());
        set(&mut self.claims, (namespace.unwrap_or_default(), name.unwrap_or_default()), claim, gone);
    }

    /// A volume came, changed or went.
    pub fn set_volume(&mut self, volume: Arc<PersistentVolume>, gone: bool) {
        set(&mut self.volumes, volume.metadata.name.clone().unwrap_or_default(), volume, gone);
    }

    /// A class came, changed or went.
    pub fn set_class(&mut self, class: Arc<StorageClass>, gone: bool) {
        set(&mut self.classes, class.metadata.name.clone().unwrap_or_default(), class, gone);
    }

    /// The volumes are the pod's until it is [settled](Self::settle).
    pub fn promise(&mut self, uid: &str, wishes: &[Wish]) {
        for wish in wishes {
            if let Wish::Volume(_, volume) = wish {
                let name = volume.metadata.name.clone().unwrap_or_default();
                set(&mut self.promised, name, uid.to_owned(), false);
            }
        }
    }

    /// The pod was bound, or could not be.
    pub fn settle(&mut self, uid: &str) {
        if self.promised.values().any(|pod| pod == uid) {
            Arc::make_mut(&mut self.promised).retain(|_, pod| pod != uid);
        }
    }

    /// What the pod's claims ask of a node; an error if no node could help.
    pub fn needs(&self, pod: &Pod) -> Result<Needs, String> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let mut needs = Needs::default();
        for name in claims_of(pod) {
            let Some(claim) = self.claims.get(&(namespace.clone(), name.clone())) else {
                return Err(format!("persistentvolumeclaim {name:?} not found"));
            };
            if claim.metadata.deletion_timestamp.is_some() {
                return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
            }
            let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).filter(|name| !name.is_empty());
            match volume {
                Some(volume) if is_bound(claim) => match self.volumes.get(&volume) {
                    Some(volume) => needs.bound.push(volume.clone()),
                    None => {
                        return Err(format!(
                            "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
                        ));
                    }
                },
                None if self.waits(claim) => needs.waiting.push(claim.clone()),
                _ => return Err(UNBOUND.to_owned()),
            }
        }
        needs.waiting.sort_by_key(|claim| wanted(claim));
        Ok(needs)
    }

    fn waits(&self, claim: &PersistentVolumeClaim) -> bool {
        let class = self.classes.get(class_of(claim));
        class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"))
    }

    /// What is to be done if the pod gets this node; an error if the node does not do.
    pub fn fit(&self, needs: &Needs, node: &str, labels: &Labels) -> Result<Vec<Wish>, &'static str> {
        if needs.bound.iter().any(|volume| !reaches(volume, node, labels)) {
            return Err(NOT_ON_NODE);
        }
        let mut taken = BTreeSet::new();
        needs.waiting.iter().map(|claim| self.grant(claim, node, labels, &mut taken).ok_or(NONE_TO_BIND)).collect()
    }

    fn grant(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        node: &str,
        labels: &Labels,
        taken: &mut BTreeSet<String>,
    ) -> Option<Wish> {
        if let Some(selected) = selected_node(claim) {
            return (selected == node).then(|| Wish::Provision(claim.clone()));
        }
        let usable = self.volumes.iter().filter(|(name, volume)| {
            let open = is_free(volume) && suits(volume, claim) && !self.promised.contains_key(*name);
            (open || is_for(volume, claim)) && !taken.contains(*name) && reaches(volume, node, labels)
        });
        // The smallest that is large enough.
        if let Some((name, volume)) = usable.min_by_key(|(name, volume)| (capacity(volume), *name)) {
            taken.insert(name.clone());
            return Some(Wish::Volume(claim.clone(), volume.clone()));
        }
        let class = self.classes.get(class_of(claim)).filter(|class| class.provisioner != NO_PROVISIONER)?;
        allowed(class, labels).then(|| Wish::Provision(claim.clone()))
    }
}

fn reaches(volume: &PersistentVolume, node: &str, labels: &Labels) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|required| nodes::matches(&required.node_selector_terms, node, labels))
}

/// Whether the class has volumes made for nodes with these labels.
fn allowed(class: &StorageClass, labels: &Labels) -> bool {
    let topologies = class.allowed_topologies.as_deref().unwrap_or_default();
    topologies.is_empty()
        || topologies.iter().any(|term| {
            let mut rules = term.match_label_expressions.iter().flatten();
            rules.all(|rule| labels.get(&rule.key).is_some_and(|value| rule.values.contains(value)))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
        Arc::new(serde_json::from_value(value).expect("an object"))
    }

    fn volumes() -> Volumes {
        let mut all = Volumes::default();
        for (name, provisioner, mode) in [
            ("by-hand", NO_PROVISIONER, "WaitForFirstConsumer"),
            ("made", "example.com/p", "WaitForFirstConsumer"),
            ("at-once", NO_PROVISIONER, "Immediate"),
        ] {
            all.set_class(
                parse(json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode})),
                false,
            );
        }
        for (name, node, size) in [("on-a", "a", "2Gi"), ("on-b", "b", "1Gi"), ("large-on-b", "b", "5Gi")] {
            let terms = json!([{"matchExpressions": [{"key": "host", "operator": "In", "values": [node]}]}]);
            let spec = json!({"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand",
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}});
            all.set_volume(
                parse(json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}})),
                false,
            );
        }
        all
    }

    fn claim(name: &str, class: &str, size: &str, bound: Option<&str>) -> Arc<PersistentVolumeClaim> {
        let annotations = if bound.is_some() { json!({pintle_api::volumes::COMPLETE: "yes"}) } else { json!({}) };
        parse(json!({"metadata": {"name": name, "namespace": "n", "uid": name, "annotations": annotations}, "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"], "volumeName": bound,
            "resources": {"requests": {"storage": size}}}}))
    }

    fn pod(claims: &[&str]) -> Arc<Pod> {
        let volumes: Vec<Value> =
            claims.iter().map(|c| json!({"name": c, "persistentVolumeClaim": {"claimName": c}})).collect();
        parse(
            json!({"metadata": {"name": "p", "namespace": "n", "uid": "p"}, "spec": {"containers": [], "volumes": volumes}}),
        )
    }

    /// By node: the volumes that its claims would get, or why not.
    fn fits(all: &Volumes, pod: &Pod) -> [Result<Vec<String>, String>; 2] {
        ["a", "b"].map(|node| {
            let labels = Labels::from([("host".to_owned(), node.to_owned())]);
            let wishes = all.needs(pod).and_then(|needs| all.fit(&needs, node, &labels).map_err(str::to_owned))?;
            let shown = |wish: &Wish| match wish {
                Wish::Volume(_, volume) => volume.metadata.name.clone().unwrap_or_default(),
                Wish::Provision(_) => "made".to_owned(),
            };
            Ok(wishes.iter().map(shown).collect())
        })
    }

    #[test]
    fn bound_volumes_decide_where_pods_go() {
        let mut all = volumes();
        all.set_claim(claim("c", "by-hand", "1Gi", Some("on-a")), false);
        assert_eq!(fits(&all, &pod(&["c"])), [Ok(vec![]), Err(NOT_ON_NODE.to_owned())]);
        all.set_claim(claim("c", "by-hand", "1Gi", Some("gone")), false);
        let gone = "persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"gone\"".to_owned();
        assert_eq!(fits(&all, &pod(&["c"])), [Err(gone.clone()), Err(gone)]);
    }

    #[test]
    fn claims_that_wait_get_a_volume_of_the_node() {
        let mut all = volumes();
        for (name, class, size) in [
            ("small", "by-hand", "1Gi"),
            ("medium", "by-hand", "2Gi"),
            ("made", "made", "1Gi"),
            ("now", "at-once", "1Gi"),
        ] {
            all.set_claim(claim(name, class, size, None), false);
        }
        let names = |names: &[&str]| Ok(names.iter().map(|n| (*n).to_owned()).collect());
        let none = || Err(NONE_TO_BIND.to_owned());
        assert_eq!(fits(&all, &pod(&["small"])), [names(&["on-a"]), names(&["on-b"])], "the smallest");
        assert_eq!(fits(&all, &pod(&["medium", "small"])), [none(), names(&["on-b", "large-on-b"])], "each its own");
        assert_eq!(fits(&all, &pod(&["made"])), [names(&["made"]), names(&["made"])]);
        let unbound = || Err(UNBOUND.to_owned());
        assert_eq!(fits(&all, &pod(&["now"])), [unbound(), unbound()]);
        // What another pod is about to get is not given twice.
        let needs = all.needs(&pod(&["small"])).expect("needs");
        let wishes = all.fit(&needs, "a", &Labels::from([("host".to_owned(), "a".to_owned())])).expect("fits");
        all.promise("other", &wishes);
        assert_eq!(fits(&all, &pod(&["small"])), [none(), names(&["on-b"])]);
        all.settle("other");
        assert_eq!(fits(&all, &pod(&["small"])), [names(&["on-a"]), names(&["on-b"])]);
    }

    /// Most pods have no claims, and each is scheduled from a copy.
    #[test]
    fn promises_copy_nothing_but_promises() {
        let mut all = volumes();
        all.set_claim(claim("small", "by-hand", "1Gi", None), false);
        let shared = |all: &Volumes, before: &Volumes| {
            let maps = Arc::ptr_eq(&all.claims, &before.claims) && Arc::ptr_eq(&all.volumes, &before.volumes);
            (maps && Arc::ptr_eq(&all.classes, &before.classes), Arc::ptr_eq(&all.promised, &before.promised))
        };
        let before = all.clone();
        all.promise("without", &[]);
        all.settle("without");
        assert_eq!(shared(&all, &before), (true, true));
        let needs = all.needs(&pod(&["small"])).expect("needs");
        let wishes = all.fit(&needs, "a", &Labels::from([("host".to_owned(), "a".to_owned())])).expect("fits");
        all.promise("with", &wishes);
        assert_eq!(shared(&all, &before), (true, false));
        let before = all.clone();
        all.settle("other");
        assert_eq!(shared(&all, &before), (true, true));
    }

    #[test]
    fn missing_claims_keep_a_pod_waiting() {
        let missing = || Err("persistentvolumeclaim \"c\" not found".to_owned());
        assert_eq!(fits(&volumes(), &pod(&["c"])), [missing(), missing()]);
        assert_eq!(fits(&volumes(), &pod(&[])), [Ok(vec![]), Ok(vec![])]);
    }
}
