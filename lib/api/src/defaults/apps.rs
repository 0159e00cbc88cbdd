//! Workloads.

use pintle_machinery::schema::Object;
use serde_json::json;

use super::{core, items, make, object, set, set_text, text};

/// Where clients of long ago look for the generation of a DaemonSet's template. It counts from 1; 0 is not said.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// What a StatefulSet's strategy has if nothing is said of it: must be known before its type is filled in.
pub fn strategy(kind: &str, top: &mut Object) {
    let Some(spec) = object(top, "spec").filter(|_| kind == "StatefulSet") else { return };
    if let Some(strategy) = make(spec, "updateStrategy").filter(|strategy| text(strategy, "type").is_empty()) {
        set(strategy, "rollingUpdate", json!({}));
    }
}

/// By kind.
pub fn apply(kind: &str, top: &mut Object) {
    if kind == "DaemonSet"
        && let Some(annotations) = make(top, "metadata").and_then(|metadata| make(metadata, "annotations"))
    {
        set_text(annotations, TEMPLATE_GENERATION, "0");
    }
    let Some(spec) = object(top, "spec") else { return };
    core::template(spec);
    match kind {
        "Deployment" => rolling(spec, "strategy", &json!({"maxSurge": "25%", "maxUnavailable": "25%"})),
        "DaemonSet" => rolling(spec, "updateStrategy", &json!({"maxSurge": 0, "maxUnavailable": 1})),
        "StatefulSet" => {
            let retention = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
            set(spec, "persistentVolumeClaimRetentionPolicy", retention);
            for claim in items(spec, "volumeClaimTemplates") {
                claim.insert("apiVersion".to_owned(), "v1".into());
                claim.insert("kind".to_owned(), "PersistentVolumeClaim".into());
            }
        }
        _ => {}
    }
}

/// A rolling strategy has its parameters; another one has none by default.
fn rolling(spec: &mut Object, name: &str, parameters: &serde_json::Value) {
    if let Some(strategy) = make(spec, name).filter(|strategy| text(strategy, "type") == "RollingUpdate") {
        set(strategy, "rollingUpdate", parameters.clone());
    }
}
