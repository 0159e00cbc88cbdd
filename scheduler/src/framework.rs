//! What a plugin is.
//!
//! A plugin looks at the pod and the whole cluster once per cycle (`pre_filter`, `pre_score`) and hands back an object that
//! judges single nodes. That object owns what was learnt, so that plugins share no state; preemption clones it and tells it
//! about pods that are taken away or put back.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cache::{NodeInfo, Snapshot};
use crate::pod::PodInfo;

/// The best score that a node can get.
pub const MAX_SCORE: i64 = 100;

/// A set of kinds of change in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(pub u16);

impl Events {
    /// No change.
    pub const NONE: Events = Events(0);
    /// A node came.
    pub const NODE_ADD: Events = Events(1);
    /// What a node offers changed.
    pub const NODE_ALLOCATABLE: Events = Events(2);
    /// A node's labels changed.
    pub const NODE_LABEL: Events = Events(4);
    /// A node's taints or its unschedulable mark changed.
    pub const NODE_TAINT: Events = Events(8);
    /// A pod was bound.
    pub const POD_ADD: Events = Events(16);
    /// A bound pod's labels changed.
    pub const POD_LABEL: Events = Events(32);
    /// A bound pod asks for less than before.
    pub const POD_SHRINK: Events = Events(64);
    /// A bound pod went.
    pub const POD_DELETE: Events = Events(128);
    /// The waiting pod itself changed.
    pub const SELF_UPDATE: Events = Events(256);
    /// A namespace's labels changed.
    pub const NAMESPACE: Events = Events(512);
    /// A claim, a volume or a class of them changed.
    pub const VOLUME: Events = Events(1024);
    /// Any change.
    pub const ALL: Events = Events(u16::MAX);

    /// Either set's changes.
    pub const fn or(self, other: Events) -> Events {
        Events(self.0 | other.0)
    }

    /// Whether the sets have a change in common.
    pub const fn meets(self, other: Events) -> bool {
        self.0 & other.0 != 0
    }
}

/// Why a node or a pod was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// True if taking pods away from the node would not help.
    pub unresolvable: bool,
    /// The reasons, in upstream's words.
    pub reasons: Vec<String>,
}

impl Rejection {
    /// A rejection that fewer pods could turn round.
    pub fn resolvable(reason: impl Into<String>) -> Rejection {
        Rejection { unresolvable: false, reasons: vec![reason.into()] }
    }

    /// A rejection that stays however few pods the node has.
    pub fn unresolvable(reason: impl Into<String>) -> Rejection {
        Rejection { unresolvable: true, reasons: vec![reason.into()] }
    }
}

/// What a plugin says about a pod before it sees single nodes.
pub enum PreFilter {
    /// The plugin has nothing to say about the pod.
    Skip,
    /// Ask about each node.
    Check(Box<dyn Filter>),
    /// Only these nodes come into question; ask about each.
    Only(BTreeSet<String>, Box<dyn Filter>),
    /// No node comes into question.
    Reject(Rejection),
}

/// Judges single nodes for one pod.
pub trait Filter: Send {
    /// Whether the pod can run on this node.
    fn check(&self, node: &NodeInfo) -> Result<(), Rejection>;
    /// Takes note that a pod came to a node.
    fn add_pod(&mut self, _pod: &PodInfo, _node: &NodeInfo) {}
    /// Takes note that a pod went from a node.
    fn remove_pod(&mut self, _pod: &PodInfo, _node: &NodeInfo) {}
    /// A copy to play through what-ifs.
    fn boxed(&self) -> Box<dyn Filter>;
}

/// Compares nodes that passed.
pub trait Scorer: Send {
    /// The score of a node, in the plugin's own measure.
    fn score(&self, node: &NodeInfo) -> i64;
    /// Brings the scores into 0..=100.
    fn normalize(&self, _scores: &mut [i64]) {}
}

/// One plugin.
pub trait Plugin: Send + Sync {
    /// Upstream's name of the plugin.
    fn name(&self) -> &'static str;
    /// The changes that can make the plugin think better of a pod.
    fn events(&self) -> Events {
        Events::NONE
    }
    /// Prepares filtering.
    fn pre_filter(&self, _pod: &Arc<PodInfo>, _snapshot: &Arc<Snapshot>) -> PreFilter {
        PreFilter::Skip
    }
    /// Prepares scoring of these nodes, unless the plugin has no preference.
    fn pre_score(
        &self,
        _pod: &Arc<PodInfo>,
        _snapshot: &Arc<Snapshot>,
        _nodes: &[Arc<NodeInfo>],
    ) -> Option<Box<dyn Scorer>> {
        None
    }
}

/// A filter made of a function of pod and node.
#[derive(Clone)]
pub struct FnFilter {
    /// The pod.
    pub pod: Arc<PodInfo>,
    /// The judgement.
    pub check: fn(&PodInfo, &NodeInfo) -> Result<(), Rejection>,
}

impl FnFilter {
    /// The filter as what `pre_filter` returns.
    pub fn pre_filter(pod: &Arc<PodInfo>, check: fn(&PodInfo, &NodeInfo) -> Result<(), Rejection>) -> PreFilter {
        PreFilter::Check(Box::new(FnFilter { pod: pod.clone(), check }))
    }
}

impl Filter for FnFilter {
    fn check(&self, node: &NodeInfo) -> Result<(), Rejection> {
        (self.check)(&self.pod, node)
    }
    fn boxed(&self) -> Box<dyn Filter> {
        Box::new(self.clone())
    }
}

/// A scorer made of two functions.
pub struct FnScorer {
    /// The pod.
    pub pod: Arc<PodInfo>,
    /// The score of a node.
    pub score: fn(&PodInfo, &NodeInfo) -> i64,
    /// How scores are brought into range.
    pub normalize: fn(&mut [i64]),
}

impl Scorer for FnScorer {
    fn score(&self, node: &NodeInfo) -> i64 {
        (self.score)(&self.pod, node)
    }
    fn normalize(&self, scores: &mut [i64]) {
        (self.normalize)(scores);
    }
}

/// Leaves scores as they are.
pub fn as_is(_: &mut [i64]) {}

/// Scales scores so that the best gets 100.
pub fn scale_to_best(scores: &mut [i64]) {
    let best = scores.iter().copied().max().unwrap_or(0);
    if best > 0 {
        scores.iter_mut().for_each(|s| *s = *s * MAX_SCORE / best);
    }
}

/// Scales scores so that the lowest gets 100 and the highest 0.
pub fn scale_inverted(scores: &mut [i64]) {
    scale_to_best(scores);
    scores.iter_mut().for_each(|s| *s = MAX_SCORE - *s);
}
