//! VolumeBinding.

use std::sync::Arc;

use pintle_api::volumes::claims_of;

use crate::cache::{NodeInfo, Snapshot};
use crate::framework::{Events, Filter, Plugin, PreFilter, Rejection};
use crate::pod::PodInfo;
use crate::selector::Labels;
use crate::volumes::{Needs, Volumes};

/// Keeps pods on nodes where their claims' volumes are, or can come to be.
pub struct VolumeBinding;

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        "VolumeBinding"
    }
    fn events(&self) -> Events {
        Events::NODE_ADD.or(Events::NODE_LABEL).or(Events::VOLUME)
    }
    fn pre_filter(&self, pod: &Arc<PodInfo>, snapshot: &Arc<Snapshot>) -> PreFilter {
        if claims_of(&pod.pod).next().is_none() {
            return PreFilter::Skip;
        }
        let volumes = snapshot.volumes();
        match volumes.needs(&pod.pod) {
            Ok(needs) => PreFilter::Check(Box::new(OnNode { volumes: volumes.clone(), needs })),
            Err(reason) => PreFilter::Reject(Rejection::unresolvable(reason)),
        }
    }
}

#[derive(Clone)]
struct OnNode {
    volumes: Volumes,
    needs: Needs,
}

impl Filter for OnNode {
    fn check(&self, node: &NodeInfo) -> Result<(), Rejection> {
        let none = Labels::new();
        let fits = self.volumes.fit(&self.needs, node.name(), node.labels().unwrap_or(&none));
        fits.map(drop).map_err(Rejection::unresolvable)
    }
    fn boxed(&self) -> Box<dyn Filter> {
        Box::new(self.clone())
    }
}
