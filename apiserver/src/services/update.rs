//! What an update of a Service leaves out and so keeps, and what goes when its type has no use for it any more: pure.

use serde_json::{Value, json};

use super::plan::{has_addresses, is_balanced, is_exposed, needs_health_port, ports_in_need, takes_outsiders};
use crate::registry::Context;
use crate::registry::value::{at, get_mut, int, items, remove, restore, set, text};

/// Whether a Service has use for these fields.
type Use = (fn(&Value) -> bool, &'static [&'static [&'static str]]);

/// What a type may have no use for.
const OF_TYPES: [Use; 5] = [
    (has_addresses, &[&["clusterIP", "clusterIPs"], &["ipFamilies"], &["ipFamilyPolicy"]]),
    (needs_health_port, &[&["healthCheckNodePort"]]),
    (is_balanced, &[&["allocateLoadBalancerNodePorts"]]),
    (is_balanced, &[&["loadBalancerClass"]]),
    (takes_outsiders, &[&["externalTrafficPolicy"]]),
];

/// A Service keeps what it was allotted unless the update says otherwise.
pub fn update(_context: &Context<'_>, new: &mut Value, old: &Value) {
    let both = |has: fn(&Value) -> bool| has(new) && has(old);
    let (addressed, exposed, checked) = (both(has_addresses), both(is_exposed), both(needs_health_port));
    let before = at(old, "spec");
    let Some(spec) = get_mut(new, "spec") else { return };
    if addressed {
        keep_addresses(spec, before);
    }
    follow_address(spec, before);
    if exposed {
        keep_node_ports(spec, before);
    }
    if checked && int(spec, "healthCheckNodePort") == 0 {
        restore(spec, before, "healthCheckNodePort");
    }
    drop_unused(new, old);
}

fn keep_addresses(spec: &mut Value, before: &Value) {
    if text(spec, "clusterIP").is_empty() {
        restore(spec, before, "clusterIP");
    }
    if items(spec, "clusterIPs").is_empty() && at(spec, "clusterIP") == at(before, "clusterIP") {
        restore(spec, before, "clusterIPs");
    }
}

/// The two forms of a Service's address: where one was changed and the other left, the other follows.
fn follow_address(spec: &mut Value, before: &Value) {
    let (first, was) = (text(spec, "clusterIP").to_owned(), text(before, "clusterIP"));
    if first == was || items(spec, "clusterIPs") != items(before, "clusterIPs") {
        return;
    }
    match first.is_empty() {
        true => drop(remove(spec, "clusterIPs")),
        false => set(spec, "clusterIPs", json!([first])),
    }
}

/// Ports are known by their names.
fn keep_node_ports(spec: &mut Value, before: &Value) {
    let numbers =
        |spec: &Value| -> Vec<i64> { items(spec, "ports").iter().map(|port| int(port, "nodePort")).collect() };
    let (had, given) = (numbers(before), numbers(spec));
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let same = items(before, "ports").iter().rfind(|old| text(old, "name") == text(port, "name"));
        let number = same.map_or(0, |old| int(old, "nodePort"));
        let free = number != 0 && !(had.contains(&number) && given.contains(&number));
        if int(port, "nodePort") == 0 && free {
            set(port, "nodePort", number);
        }
    }
}

/// What a change of type leaves without use goes, unless the update brings something new.
fn drop_unused(new: &mut Value, old: &Value) {
    for (has, parts) in OF_TYPES {
        if !has(old) || has(new) {
            continue;
        }
        for fields in parts {
            let same = fields.iter().all(|field| at(&new["spec"], field) == at(&old["spec"], field));
            if same && let Some(spec) = get_mut(new, "spec") {
                fields.iter().for_each(|field| drop(remove(spec, field)));
            }
        }
    }
    let numbers = |service: &Value| -> Vec<i64> {
        items(service, "spec.ports").iter().map(|port| int(port, "nodePort")).filter(|port| *port != 0).collect()
    };
    let had = numbers(old);
    if !ports_in_need(old).is_empty() && !is_exposed(new) && numbers(new).iter().all(|port| had.contains(port)) {
        for port in new["spec"].get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            remove(port, "nodePort");
        }
    }
}

/// What only names another has no policy for traffic within the cluster.
pub fn complete(service: &mut Value) {
    if text(service, "spec.type") == "ExternalName"
        && let Some(spec) = get_mut(service, "spec")
    {
        remove(spec, "internalTrafficPolicy");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn updated(old: &Value, changes: Value) -> Value {
        let mut new = json!({"spec": old});
        for (field, value) in changes.as_object().unwrap() {
            new["spec"][field] = value.clone();
        }
        update(&Context::ANY, &mut new, &json!({"spec": old}));
        new["spec"].take()
    }

    #[test]
    fn what_is_left_out_stays() {
        let old = json!({"type": "NodePort", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "ports": [{"name": "a", "port": 80, "nodePort": 30001}, {"name": "b", "port": 81, "nodePort": 30002}]});
        assert_eq!(updated(&old, json!({"clusterIP": "", "clusterIPs": null})), old);
        // By name, unless another has taken the number.
        let ports = updated(&old, json!({"ports": [{"name": "b", "port": 80}, {"name": "c", "port": 81}]}));
        assert_eq!(ports["ports"][0]["nodePort"], 30002);
        assert_eq!(ports["ports"][1].get("nodePort"), None);
        let taken =
            updated(&old, json!({"ports": [{"name": "b", "port": 1}, {"name": "c", "port": 2, "nodePort": 30002}]}));
        assert_eq!(taken["ports"][0].get("nodePort"), None);
    }

    #[test]
    fn the_list_of_addresses_follows_the_address() {
        let old = json!({"type": "ClusterIP", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"]});
        assert_eq!(updated(&old, json!({"clusterIP": "None"}))["clusterIPs"], json!(["None"]));
        // A list that says something else is told.
        let other = updated(&old, json!({"clusterIP": "", "clusterIPs": ["10.0.0.8"]}));
        assert_eq!((&other["clusterIP"], &other["clusterIPs"]), (&json!("10.0.0.9"), &json!(["10.0.0.8"])));
        let external = json!({"type": "ExternalName", "externalName": "a"});
        assert_eq!(updated(&external, json!({"clusterIP": "10.1.2.3"}))["clusterIPs"], json!(["10.1.2.3"]));
    }

    #[test]
    fn what_the_new_type_has_no_use_for_goes() {
        let old = json!({"type": "LoadBalancer", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30003,
            "allocateLoadBalancerNodePorts": true, "loadBalancerClass": "a/b", "ports": [{"port": 80, "nodePort": 30001}]});
        let external = updated(&old, json!({"type": "ExternalName"}));
        assert_eq!(external, json!({"type": "ExternalName", "ports": [{"port": 80}]}));
        let mut node = old.clone();
        for field in ["healthCheckNodePort", "allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            remove(&mut node, field);
        }
        node["type"] = json!("NodePort");
        assert_eq!(updated(&old, json!({"type": "NodePort"})), node);
        // What the update changes is told, not dropped.
        let told = json!({"type": "ClusterIP", "externalTrafficPolicy": "Cluster", "ports": [{"port": 80, "nodePort": 30009}]});
        let kept = updated(&old, told);
        assert_eq!((&kept["externalTrafficPolicy"], &kept["ports"][0]["nodePort"]), (&json!("Cluster"), &json!(30009)));
    }
}
