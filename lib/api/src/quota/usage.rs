//! What quotas count of the kinds that aren't pods.

use pintle_machinery::quantity::{Format, Quantity};
use serde_json::Value;

use super::amounts::{Amounts, quantity};

/// Ends the names of amounts of one storage class.
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
/// Ends the names of amounts of one device class.
const OF_DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// A request for all devices may take so many.
const ALL_DEVICES: i64 = 32;

fn number(count: usize) -> Quantity {
    Quantity::new(i64::try_from(count).unwrap_or(i64::MAX), Format::DecimalSi)
}

/// A Service: itself, its node ports, its load balancer.
pub fn service(service: &Value) -> Amounts {
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let own = ports.iter().filter(|port| port["nodePort"].as_i64().unwrap_or_default() != 0).count();
    let (node_ports, balancers) = match spec["type"].as_str().unwrap_or_default() {
        "NodePort" => (ports.len(), 0),
        "LoadBalancer" if spec["allocateLoadBalancerNodePorts"] == false => (own, 1),
        "LoadBalancer" => (ports.len(), 1),
        _ => (0, 0),
    };
    let mut usage = Amounts::new();
    usage.set("services", number(1));
    usage.set("services.nodeports", number(node_ports));
    usage.set("services.loadbalancers", number(balancers));
    usage.set("count/services", number(1));
    usage
}

/// True if Services are what a quota of this name counts.
pub fn counts_services(name: &str) -> bool {
    matches!(name, "services" | "services.nodeports" | "services.loadbalancers" | "count/services")
}

/// A claim: itself and its size, also under the name of its class.
pub fn claim(claim: &Value) -> Amounts {
    let mut usage = Amounts::new();
    usage.set("persistentvolumeclaims", number(1));
    usage.set("count/persistentvolumeclaims", number(1));
    let annotation = claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    let class = annotation.or(claim["spec"]["storageClassName"].as_str()).filter(|class| !class.is_empty());
    if let Some(class) = class {
        usage.set(format!("{class}{OF_CLASS}persistentvolumeclaims"), number(1));
    }
    let asked = quantity(&claim["spec"]["resources"]["requests"]["storage"]);
    let given = quantity(&claim["status"]["allocatedResources"]["storage"]);
    if let Some(size) = asked.map(|asked| given.map_or(asked, |given| asked.max(given))) {
        usage.set("requests.storage", size);
        if let Some(class) = class {
            usage.set(format!("{class}{OF_CLASS}requests.storage"), size);
        }
    }
    usage
}

/// True if claims are what a quota of this name counts.
pub fn counts_claims(name: &str) -> bool {
    matches!(name, "persistentvolumeclaims" | "requests.storage" | "count/persistentvolumeclaims")
        || name.ends_with(".storageclass.storage.k8s.io/persistentvolumeclaims")
        || name.ends_with(".storageclass.storage.k8s.io/requests.storage")
}

/// A ResourceClaim: itself and the devices it asks for by class. Of alternatives the greatest number of each class counts.
pub fn resource_claim(claim: &Value) -> Amounts {
    let mut usage = Amounts::new();
    usage.set("count/resourceclaims.resource.k8s.io", number(1));
    for request in claim["spec"]["devices"]["requests"].as_array().into_iter().flatten() {
        let alternatives = request["firstAvailable"].as_array().into_iter().flatten();
        let mut most = Amounts::new();
        for one in alternatives.chain(Some(&request["exactly"]).filter(|exactly| !exactly.is_null())) {
            let class = one["deviceClassName"].as_str().unwrap_or_default();
            let count = match one["allocationMode"].as_str() {
                Some("All") => ALL_DEVICES,
                _ => one["count"].as_i64().unwrap_or(1),
            };
            let mut own = Amounts::new();
            own.set(format!("{class}{OF_DEVICES}"), Quantity::new(count, Format::DecimalSi));
            most.raise_to(&own);
        }
        usage.add_all(&most);
    }
    usage
}

/// True if ResourceClaims are what a quota of this name counts.
pub fn counts_resource_claims(name: &str) -> bool {
    name == "count/resourceclaims.resource.k8s.io" || name.ends_with(OF_DEVICES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn services_take_ports() {
        let shown = |spec: Value| {
            let usage = service(&json!({"spec": spec}));
            (usage.get("services.nodeports").unwrap().value(), usage.get("services.loadbalancers").unwrap().value())
        };
        let ports = json!([{"port": 1, "nodePort": 30001}, {"port": 2}]);
        assert_eq!(shown(json!({"type": "ClusterIP", "ports": ports})), (0, 0));
        assert_eq!(shown(json!({"type": "NodePort", "ports": ports})), (2, 0));
        assert_eq!(shown(json!({"type": "LoadBalancer", "ports": ports})), (2, 1));
        let without = json!({"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": false});
        assert_eq!(shown(without), (1, 1));
    }

    #[test]
    fn claims_take_storage() {
        let claim =
            |class: Value| json!({"spec": {"storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}}});
        assert_eq!(
            super::claim(&claim(json!("gold"))).to_string(),
            "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
             gold.storageclass.storage.k8s.io/requests.storage=1Gi,persistentvolumeclaims=1,requests.storage=1Gi"
        );
        assert_eq!(
            super::claim(&claim(Value::Null)).to_string(),
            "count/persistentvolumeclaims=1,persistentvolumeclaims=1,requests.storage=1Gi"
        );
    }

    #[test]
    fn resource_claims_take_devices() {
        let claim = json!({"spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}},
            {"name": "b", "firstAvailable": [{"deviceClassName": "gpu", "count": 3}, {"deviceClassName": "nic", "count": 1}]},
        ]}}});
        assert_eq!(
            resource_claim(&claim).to_string(),
            "count/resourceclaims.resource.k8s.io=1,gpu.deviceclass.resource.k8s.io/devices=5,\
             nic.deviceclass.resource.k8s.io/devices=1"
        );
    }
}
