//! Distributes endpoints over slices with as few changed slices as possible.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::meta;

/// Most endpoints in one slice.
const CAPACITY: usize = 100;

/// Endpoints that share a slice have the same kind of address and the same ports.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// `IPv4` or `IPv6`.
    pub address_type: &'static str,
    /// Ports, in a fixed order.
    pub ports: Vec<EndpointPort>,
    /// Endpoints in any order, each once.
    pub endpoints: Vec<Endpoint>,
}

/// What all slices of one owner have in common.
#[derive(Clone, Debug)]
pub struct Common {
    /// Namespace.
    pub namespace: String,
    /// Start of the slices' names.
    pub name: String,
    /// Their controller.
    pub owner: OwnerReference,
    /// Labels that they all carry, with service name and manager.
    pub labels: BTreeMap<String, String>,
    /// Annotations that they all carry.
    pub annotations: BTreeMap<String, String>,
}

/// Writes that lead to the wanted slices.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// New slices.
    pub create: Vec<EndpointSlice>,
    /// Changed slices.
    pub update: Vec<EndpointSlice>,
    /// Names of slices that go.
    pub delete: Vec<String>,
}

/// Compares the slices that are there with the wanted groups. Every address type keeps at least one slice.
pub fn plan(common: &Common, present: &[Arc<EndpointSlice>], groups: Vec<Group>) -> Plan {
    let mut plan = Plan::default();
    let mut rest: Vec<&Arc<EndpointSlice>> = present.iter().filter(|s| !meta::is_deleting(&s.metadata)).collect();
    for group in groups {
        let fits = |s: &&Arc<EndpointSlice>| s.address_type == group.address_type && sorted_ports(s) == group.ports;
        let (mine, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(fits);
        rest = others;
        place(common, &mine, group, &mut plan);
    }
    plan.delete.extend(rest.iter().map(|s| meta::name(&s.metadata).to_owned()));
    plan
}

/// Puts ports into the order in which groups have them.
pub fn sort_ports(ports: &mut [EndpointPort]) {
    ports.sort_by(|a, b| (&a.name, a.port, &a.protocol).cmp(&(&b.name, b.port, &b.protocol)));
}

fn sorted_ports(slice: &EndpointSlice) -> Vec<EndpointPort> {
    let mut ports = slice.ports.clone().unwrap_or_default();
    sort_ports(&mut ports);
    ports
}

/// What makes two endpoints the same one, whatever its conditions are.
fn identity(endpoint: &Endpoint) -> (String, Vec<String>) {
    let uid = endpoint.target_ref.as_ref().and_then(|r| r.uid.clone()).unwrap_or_default();
    (uid, endpoint.addresses.clone())
}

fn place(common: &Common, present: &[&Arc<EndpointSlice>], group: Group, plan: &mut Plan) {
    let mut wanted: BTreeMap<_, Endpoint> = group.endpoints.into_iter().map(|e| (identity(&e), e)).collect();
    let mut kept: Vec<(&Arc<EndpointSlice>, Vec<Endpoint>)> = Vec::new();
    for slice in present {
        let old = slice.endpoints.iter().flatten();
        let mut still: Vec<Endpoint> = old.filter_map(|e| wanted.remove(&identity(e))).collect();
        still.truncate(CAPACITY);
        kept.push((slice, still));
    }
    let mut left: Vec<Endpoint> = wanted.into_values().collect();
    // Slices that change anyway are filled first, then the fullest.
    let changed =
        |(slice, still): &(&Arc<EndpointSlice>, Vec<Endpoint>)| slice.endpoints.as_deref().unwrap_or_default() != still;
    kept.sort_by_key(|entry| (!changed(entry), std::cmp::Reverse(entry.1.len())));
    for (_, endpoints) in &mut kept {
        let room = CAPACITY.saturating_sub(endpoints.len()).min(left.len());
        endpoints.extend(left.drain(..room));
    }
    let mut placed = 0;
    let count = kept.len();
    for (at, (slice, endpoints)) in kept.into_iter().enumerate() {
        let needed_as_placeholder = placed == 0 && at + 1 == count && left.is_empty();
        if endpoints.is_empty() && !needed_as_placeholder {
            plan.delete.push(meta::name(&slice.metadata).to_owned());
            continue;
        }
        placed += 1;
        let fresh = updated(common, slice, endpoints);
        if fresh != **slice {
            plan.update.push(fresh);
        }
    }
    if left.is_empty() && placed == 0 {
        plan.create.push(fresh(common, group.address_type, &group.ports, Vec::new()));
    }
    for chunk in left.chunks(CAPACITY) {
        plan.create.push(fresh(common, group.address_type, &group.ports, chunk.to_vec()));
    }
}

fn updated(common: &Common, slice: &EndpointSlice, endpoints: Vec<Endpoint>) -> EndpointSlice {
    let mut copy = slice.clone();
    if copy.endpoints.as_deref().unwrap_or_default() != endpoints {
        copy.endpoints = Some(endpoints);
    }
    if copy.metadata.labels.as_ref() != Some(&common.labels) {
        copy.metadata.labels = Some(common.labels.clone());
    }
    for (key, value) in &common.annotations {
        copy.metadata.annotations.get_or_insert_default().insert(key.clone(), value.clone());
    }
    copy
}

fn fresh(common: &Common, address_type: &str, ports: &[EndpointPort], endpoints: Vec<Endpoint>) -> EndpointSlice {
    let mut slice = EndpointSlice {
        address_type: address_type.to_owned(),
        endpoints: Some(endpoints),
        ports: Some(ports.to_vec()),
        ..EndpointSlice::default()
    };
    slice.metadata.generate_name = Some(format!("{}-", common.name));
    slice.metadata.namespace = Some(common.namespace.clone());
    slice.metadata.labels = Some(common.labels.clone());
    slice.metadata.annotations = Some(common.annotations.clone()).filter(|a| !a.is_empty());
    slice.metadata.owner_references = Some(vec![common.owner.clone()]);
    slice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common() -> Common {
        Common {
            namespace: "ns".into(),
            name: "s".into(),
            owner: OwnerReference::default(),
            labels: [("a".to_owned(), "b".to_owned())].into(),
            annotations: BTreeMap::new(),
        }
    }

    fn endpoints(range: std::ops::Range<usize>) -> Vec<Endpoint> {
        range
            .map(|i| Endpoint { addresses: vec![format!("10.0.{}.{}", i / 250, i % 250)], ..Default::default() })
            .collect()
    }

    fn group(endpoints: Vec<Endpoint>) -> Group {
        let port = EndpointPort { port: Some(80), ..Default::default() };
        Group { address_type: "IPv4", ports: vec![port], endpoints }
    }

    fn stored(plan: Plan) -> Vec<Arc<EndpointSlice>> {
        let named = plan.create.into_iter().enumerate().map(|(i, mut s)| {
            s.metadata.name = Some(format!("s-{i}"));
            Arc::new(s)
        });
        named.collect()
    }

    #[test]
    fn an_empty_service_has_a_placeholder() {
        let slices = stored(plan(&common(), &[], vec![group(vec![])]));
        assert_eq!(slices.len(), 1);
        assert_eq!(plan(&common(), &slices, vec![group(vec![])]), Plan::default());
    }

    #[test]
    fn slices_are_filled_and_stay_as_they_are() {
        let first = plan(&common(), &[], vec![group(endpoints(0..250))]);
        let sizes: Vec<_> = first.create.iter().map(|s| s.endpoints.as_ref().unwrap().len()).collect();
        assert_eq!(sizes, [100, 100, 50]);
        let slices = stored(first);
        assert_eq!(plan(&common(), &slices, vec![group(endpoints(0..250))]), Plan::default());
        let more = plan(&common(), &slices, vec![group(endpoints(0..251))]);
        assert_eq!((more.create.len(), more.update.len(), more.delete.len()), (0, 1, 0));
    }

    #[test]
    fn emptied_slices_go() {
        let slices = stored(plan(&common(), &[], vec![group(endpoints(0..250))]));
        let keep = slices[1].endpoints.clone().unwrap();
        let less = plan(&common(), &slices, vec![group(keep)]);
        assert_eq!(less.delete, ["s-0", "s-2"]);
        assert!(less.update.is_empty());
        let none = plan(&common(), &slices, vec![group(vec![])]);
        assert_eq!((none.delete.len(), none.update.len()), (2, 1));
        let gone = plan(&common(), &slices, vec![]);
        assert_eq!(gone.delete.len(), 3);
    }

    #[test]
    fn conditions_change_in_place() {
        let slices = stored(plan(&common(), &[], vec![group(endpoints(0..2))]));
        let mut changed = endpoints(0..2);
        changed[1].node_name = Some("n".into());
        let update = plan(&common(), &slices, vec![group(changed.clone())]);
        assert_eq!(update.update[0].endpoints.as_ref().unwrap(), &changed);
    }
}
