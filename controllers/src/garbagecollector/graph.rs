//! Who depends on whom: every object of the cluster with its owners and dependents, as the watches tell it. Pure.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::meta;

/// Finalizer of an owner that goes after its dependents.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an owner whose dependents stay.
pub const ORPHAN: &str = "orphan";

/// An object's uid.
pub type Uid = String;

/// Where an object is to be found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Position of the object's resource in the collector's table.
    pub resource: usize,
    /// Namespace, empty for cluster-scoped objects.
    pub ns: String,
    /// Name.
    pub name: String,
}

/// What is known about an object.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it is.
    pub place: Place,
    /// Its owners.
    pub owners: Vec<OwnerReference>,
    /// True once its deletion was asked for.
    pub deleting: bool,
    /// True if it goes after its dependents.
    pub foreground: bool,
    /// True if its dependents stay.
    pub orphan: bool,
}

impl Node {
    /// What the metadata says.
    pub fn new(place: Place, meta: &ObjectMeta) -> Self {
        Self {
            place,
            owners: meta.owner_references.clone().unwrap_or_default(),
            deleting: meta::is_deleting(meta),
            foreground: meta::has_finalizer(meta, FOREGROUND),
            orphan: meta::has_finalizer(meta, ORPHAN),
        }
    }

    /// True if it waits for its dependents to go.
    pub fn waits_for_dependents(&self) -> bool {
        self.deleting && self.foreground
    }

    /// True if it waits for its dependents to be let go.
    pub fn waits_to_orphan(&self) -> bool {
        self.deleting && self.orphan
    }
}

/// All objects.
#[derive(Default)]
pub struct Graph {
    nodes: HashMap<Uid, Node>,
    /// Dependents by owner, also of owners that are not there.
    dependents: HashMap<Uid, BTreeSet<Uid>>,
}

impl Graph {
    /// An object.
    pub fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// An object's dependents that are there.
    pub fn dependents(&self, uid: &str) -> Vec<(&Uid, &Node)> {
        let all = self.dependents.get(uid).into_iter().flatten();
        all.filter_map(|d| self.nodes.get(d).map(|n| (d, n))).collect()
    }

    /// True if nothing is to be done about an object: it stays, and each of its owners is there and stays.
    pub fn is_settled(&self, node: &Node) -> bool {
        let solid = |o: &OwnerReference| {
            let owner = self.nodes.get(&o.uid).filter(|n| n.place.name == o.name && !n.waits_for_dependents());
            owner.is_some_and(|n| n.place.ns.is_empty() || n.place.ns == node.place.ns)
        };
        !node.deleting && node.owners.iter().all(solid)
    }

    /// Dependents that hold up the deletion of their owner.
    pub fn blocking(&self, uid: &str) -> Vec<(&Uid, &Node)> {
        let blocks = |n: &Node| n.owners.iter().any(|o| o.uid == uid && o.block_owner_deletion == Some(true));
        self.dependents(uid).into_iter().filter(|(_, n)| blocks(n)).collect()
    }

    /// Takes in an object's newest state; the objects that are to be looked at because of it.
    pub fn put(&mut self, uid: Uid, node: Node) -> Vec<Uid> {
        let before = self.nodes.insert(uid.clone(), node.clone());
        let old: &[OwnerReference] = before.as_ref().map_or(&[], |b| &b.owners);
        let mut wake = Vec::new();
        for owner in old.iter().filter(|o| !node.owners.iter().any(|n| n.uid == o.uid)) {
            self.unlink(&owner.uid, &uid);
            wake.extend(self.waiting(&owner.uid));
        }
        for owner in &node.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
            if before.is_some() && old.iter().any(|o| o.uid == owner.uid && o != owner) {
                wake.extend(self.waiting(&owner.uid));
            }
        }
        let owner_is_off = |o: &OwnerReference| self.nodes.get(&o.uid).is_none_or(Node::waits_for_dependents);
        if (before.is_none() || old != node.owners) && node.owners.iter().any(owner_is_off) {
            wake.push(uid.clone());
        }
        let was = |f: fn(&Node) -> bool| before.as_ref().is_some_and(f);
        if node.waits_for_dependents() && !was(Node::waits_for_dependents) {
            wake.extend(self.dependents(&uid).into_iter().map(|(d, _)| d.clone()));
            wake.push(uid.clone());
        }
        if node.waits_to_orphan() && !was(Node::waits_to_orphan) {
            wake.push(uid.clone());
        }
        // Our owner may wait for us to be on our way.
        if node.waits_for_dependents() {
            wake.extend(node.owners.iter().flat_map(|o| self.waiting(&o.uid)));
        }
        wake
    }

    /// Takes out an object that is gone; the objects that are to be looked at because of it.
    pub fn remove(&mut self, uid: &str) -> Vec<Uid> {
        let Some(node) = self.nodes.remove(uid) else { return Vec::new() };
        let mut wake: Vec<Uid> = self.dependents(uid).into_iter().map(|(d, _)| d.clone()).collect();
        for owner in &node.owners {
            self.unlink(&owner.uid, uid);
            wake.extend(self.waiting(&owner.uid));
        }
        wake
    }

    /// The owner itself if it waits for its dependents.
    fn waiting(&self, owner: &str) -> Option<Uid> {
        self.nodes.get(owner).filter(|n| n.waits_for_dependents()).map(|_| owner.to_owned())
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(all) = self.dependents.get_mut(owner) {
            all.remove(dependent);
            if all.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }

    /// The uids of all objects of some resources.
    pub fn of_resources(&self, gone: &dyn Fn(usize) -> bool) -> Vec<Uid> {
        self.nodes.iter().filter(|(_, n)| gone(n.place.resource)).map(|(uid, _)| uid.clone()).collect()
    }
}

/// What is known about one of an object's owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerState {
    /// It is there and stays.
    Solid,
    /// It is there and waits for its dependents to go.
    Waiting,
    /// It is gone, or another object has its name now.
    Absent,
}

/// How an object goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// At once; its dependents follow.
    Background,
    /// After its dependents.
    Foreground,
    /// At once; its dependents stay.
    Orphan,
}

/// What is to be done with an object.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// Nothing.
    Keep,
    /// These references (by owner's uid) lead nowhere and are taken out.
    DropOwners(Vec<Uid>),
    /// It goes. Circles of owners that wait for each other are first made not to block.
    Delete {
        /// How.
        policy: Policy,
        /// True if its references must stop to block their owners.
        unblock: bool,
    },
}

/// Decides about an object by the state of its owners (as the server has them now).
pub fn verdict(node: &Node, owners: &[(OwnerReference, OwnerState)], dependents: &[&Node]) -> Verdict {
    let is = |wanted: OwnerState| owners.iter().filter(move |(_, s)| *s == wanted);
    if owners.is_empty() {
        return Verdict::Keep;
    }
    if is(OwnerState::Solid).next().is_some() {
        let useless: Vec<Uid> =
            is(OwnerState::Absent).chain(is(OwnerState::Waiting)).map(|(o, _)| o.uid.clone()).collect();
        return if useless.is_empty() { Verdict::Keep } else { Verdict::DropOwners(useless) };
    }
    if is(OwnerState::Waiting).next().is_some() && !dependents.is_empty() {
        let unblock = dependents.iter().any(|d| d.waits_for_dependents());
        return Verdict::Delete { policy: Policy::Foreground, unblock };
    }
    let policy = match node {
        n if n.orphan => Policy::Orphan,
        n if n.foreground => Policy::Foreground,
        _ => Policy::Background,
    };
    Verdict::Delete { policy, unblock: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(uid: &str) -> OwnerReference {
        OwnerReference { uid: uid.into(), block_owner_deletion: Some(true), ..Default::default() }
    }

    fn node(owners: &[&str]) -> Node {
        Node {
            place: Place { resource: 0, ns: String::new(), name: String::new() },
            owners: owners.iter().map(|o| reference(o)).collect(),
            deleting: false,
            foreground: false,
            orphan: false,
        }
    }

    #[test]
    fn absent_owners_wake_the_dependent() {
        let mut g = Graph::default();
        assert!(g.put("o".into(), node(&[])).is_empty());
        assert!(g.put("d".into(), node(&["o"])).is_empty());
        assert_eq!(g.put("e".into(), node(&["nobody"])), ["e"]);
        assert_eq!(g.remove("o"), ["d"]);
        assert!(g.remove("o").is_empty());
    }

    #[test]
    fn foreground_waits_for_blocking_dependents() {
        let mut g = Graph::default();
        g.put("o".into(), node(&[]));
        g.put("d".into(), node(&["o"]));
        let going = Node { deleting: true, foreground: true, ..node(&[]) };
        assert_eq!(g.put("o".into(), going), ["d", "o"]);
        assert_eq!(g.blocking("o").len(), 1);
        assert_eq!(g.remove("d"), ["o"]);
        assert!(g.blocking("o").is_empty());
    }

    #[test]
    fn released_dependents_wake_the_owner() {
        let mut g = Graph::default();
        g.put("o".into(), Node { deleting: true, foreground: true, ..node(&[]) });
        g.put("d".into(), node(&["o"]));
        assert_eq!(g.put("d".into(), node(&[])), ["o"]);
    }

    #[test]
    fn settled_means_every_owner_is_there() {
        let mut g = Graph::default();
        g.put("o".into(), node(&[]));
        assert!(g.is_settled(&node(&["o"])));
        assert!(!g.is_settled(&node(&["o", "nobody"])));
        assert!(!g.is_settled(&Node { deleting: true, ..node(&["o"]) }));
        g.put("o".into(), Node { deleting: true, foreground: true, ..node(&[]) });
        assert!(!g.is_settled(&node(&["o"])));
    }

    #[test]
    fn verdicts() {
        use OwnerState::{Absent, Solid, Waiting};
        let plain = node(&["o"]);
        let orphaning = Node { orphan: true, ..plain.clone() };
        let going = Node { deleting: true, foreground: true, ..plain.clone() };
        let delete = |policy, unblock| Verdict::Delete { policy, unblock };
        for (name, item, owners, dependents, expected) in [
            ("no owner", &plain, vec![], vec![], Verdict::Keep),
            ("solid", &plain, vec![("a", Solid)], vec![], Verdict::Keep),
            ("one left", &plain, vec![("a", Solid), ("b", Absent)], vec![], Verdict::DropOwners(vec!["b".into()])),
            ("all gone", &plain, vec![("a", Absent)], vec![], delete(Policy::Background, false)),
            ("keeps its own wish", &orphaning, vec![("a", Absent)], vec![], delete(Policy::Orphan, false)),
            ("owner waits", &plain, vec![("a", Waiting)], vec![], delete(Policy::Background, false)),
            ("down the tree", &plain, vec![("a", Waiting)], vec![&plain], delete(Policy::Foreground, false)),
            ("circle", &plain, vec![("a", Waiting)], vec![&going], delete(Policy::Foreground, true)),
        ] {
            let owners: Vec<_> = owners.into_iter().map(|(u, s)| (reference(u), s)).collect();
            assert_eq!(verdict(item, &owners, &dependents), expected, "{name}");
        }
    }
}
