//! The plugins, under upstream's names.

mod affinity;
mod images;
mod node;
mod resources;
mod spread;
mod taints;
mod volumes;

pub use affinity::InterPodAffinity;
pub use images::ImageLocality;
pub use node::{NodeAffinity, NodeName, NodePorts, NodeUnschedulable};
pub use resources::{BalancedAllocation, NodeResourcesFit};
pub use spread::PodTopologySpread;
pub use taints::TaintToleration;
pub(crate) use taints::untolerated;
pub use volumes::VolumeBinding;

use std::sync::Arc;

use crate::framework::Plugin;

/// The plugins of the default profile with their weights, in the order in which they filter.
pub fn default_plugins() -> Vec<(Arc<dyn Plugin>, i64)> {
    vec![
        (Arc::new(NodeUnschedulable), 0),
        (Arc::new(NodeName), 0),
        (Arc::new(TaintToleration), 3),
        (Arc::new(NodeAffinity), 2),
        (Arc::new(NodePorts), 0),
        (Arc::new(NodeResourcesFit), 1),
        (Arc::new(VolumeBinding), 0),
        (Arc::new(PodTopologySpread::default()), 2),
        (Arc::new(InterPodAffinity::default()), 2),
        (Arc::new(BalancedAllocation), 1),
        (Arc::new(ImageLocality), 1),
    ]
}
