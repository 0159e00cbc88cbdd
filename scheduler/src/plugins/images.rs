//! ImageLocality.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cache::{NodeInfo, Snapshot};
use crate::framework::{MAX_SCORE, Plugin, Scorer};
use crate::pod::PodInfo;

const MIN_BYTES: i64 = 23 * 1024 * 1024;
const MAX_BYTES_PER_CONTAINER: i64 = 1000 * 1024 * 1024;

/// Prefers nodes that have the pod's images already.
pub struct ImageLocality;

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        "ImageLocality"
    }
    fn pre_score(&self, pod: &Arc<PodInfo>, snapshot: &Arc<Snapshot>, _: &[Arc<NodeInfo>]) -> Option<Box<dyn Scorer>> {
        let spec = pod.pod.spec.as_ref()?;
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        let images: Vec<String> = containers.filter_map(|c| c.image.as_deref()).map(normalized).collect();
        // An image counts for more the more nodes have it, so that pods don't pile up on the one node that does.
        let total = i64::try_from(snapshot.nodes.len()).unwrap_or(i64::MAX).max(1);
        let mut holders: HashMap<String, i64> = HashMap::new();
        for image in &images {
            let count = snapshot.nodes.iter().filter(|n| n.images.contains_key(image)).count();
            holders.insert(image.clone(), i64::try_from(count).unwrap_or(i64::MAX));
        }
        Some(Box::new(Locality { images, holders, total }))
    }
}

struct Locality {
    images: Vec<String>,
    holders: HashMap<String, i64>,
    total: i64,
}

impl Scorer for Locality {
    fn score(&self, node: &NodeInfo) -> i64 {
        let spread = |image: &String| self.holders.get(image).copied().unwrap_or(0);
        let sizes = self.images.iter().filter_map(|i| Some(node.images.get(i)?.saturating_mul(spread(i)) / self.total));
        let count = i64::try_from(self.images.len()).unwrap_or(1).max(1);
        let most = MAX_BYTES_PER_CONTAINER * count;
        MAX_SCORE * (sizes.sum::<i64>().clamp(MIN_BYTES, most) - MIN_BYTES) / (most - MIN_BYTES)
    }
}

/// The image's name with the tag that it means when it has none.
fn normalized(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains([':', '@']) { image.to_owned() } else { format!("{image}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{info, node, snapshot};
    use serde_json::json;

    #[test]
    fn a_node_with_the_image_is_preferred() {
        let images = json!({"status": {"images": [{"names": ["r.io:5000/app:latest"], "sizeBytes": 1_048_576_000}]}});
        let state = snapshot(&[node("a", images), node("b", json!({}))], &[]);
        let pod =
            info(json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "r.io:5000/app"}]}}));
        let scorer = ImageLocality.pre_score(&pod, &state, &[]).expect("scores");
        assert_eq!(scorer.score(&state.nodes[0]), 100 * (500 - 23) / (1000 - 23));
        assert_eq!(scorer.score(&state.nodes[1]), 0);
    }
}
