//! Families of a Service's addresses: what is asked for, what follows from it and what can't be had. The cluster has
//! addresses of one family; Services that have none of the cluster's may be of both. Pure.

use std::net::IpAddr;

use pintle_machinery::field_path::{ErrorList, Path};
use serde_json::{Value, json};

use super::plan::{has_addresses, is_headless};
use crate::registry::value::{at, entries, items, restore, set, text};

const SINGLE: &str = "SingleStack";

/// Fills in the families of a Service's addresses, their policy, and the list form of its address. What can't be had is told alone.
pub fn settle(service: &mut Value, old: Option<&Value>, own: &str) -> ErrorList {
    if !text(service, "spec.clusterIP").is_empty() && items(service, "spec.clusterIPs").is_empty() {
        service["spec"]["clusterIPs"] = json!([service["spec"]["clusterIP"]]);
    }
    if text(service, "spec.type") == "ExternalName" {
        return ErrorList::new();
    }
    let mut errors = crate::registry::cluster_addresses(service);
    let old = old.filter(|old| has_addresses(old)).map(|old| at(old, "spec"));
    if let Some(old) = old.filter(|_| errors.is_empty()) {
        keep(&mut service["spec"], old);
    }
    if errors.is_empty() {
        errors = released(&mut service["spec"], old);
    }
    let loose = is_headless(service) && entries(service, "spec.selector").next().is_none();
    if errors.is_empty() {
        errors = fitting(&service["spec"], loose, own);
    }
    if !errors.is_empty() {
        return errors;
    }
    match loose {
        true => fill_both(&mut service["spec"], own),
        false => fill_one(&mut service["spec"], own),
    }
}

/// What an update leaves out stays.
fn keep(spec: &mut Value, old: &Value) {
    if items(spec, "ipFamilies").is_empty() {
        restore(spec, old, "ipFamilies");
    }
    if at(spec, "ipFamilyPolicy").is_null() {
        restore(spec, old, "ipFamilyPolicy");
    }
}

/// A second family that was had goes if the policy says so, and not otherwise.
fn released(spec: &mut Value, old: Option<&Value>) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(old) = old.filter(|old| items(old, "ipFamilies").len() > 1) else { return errors };
    let single = text(spec, "ipFamilyPolicy") == SINGLE;
    let families = items(spec, "ipFamilies");
    if families.len() == 1 && !single {
        let path = Path::new("spec").child("ipFamilyPolicy");
        errors.invalid(&path, text(spec, "ipFamilyPolicy"), "must be 'SingleStack' to release the secondary IP family");
    } else if single && text(old, "ipFamilyPolicy") != SINGLE && families == items(old, "ipFamilies") {
        spec["ipFamilies"] = json!([families[0]]);
    }
    errors
}

/// Policy and addresses fit together; addresses are of the cluster's family.
fn fitting(spec: &Value, loose: bool, own: &str) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let addresses = items(spec, "clusterIPs");
    let policy = Some(text(spec, "ipFamilyPolicy")).filter(|policy| !policy.is_empty());
    if policy.or((!loose).then_some(SINGLE)) == Some(SINGLE) {
        let several = match (addresses.len() > 1, items(spec, "ipFamilies").len() > 1) {
            (true, _) => Some("cluster IPs"),
            (false, true) => Some("IP families"),
            (false, false) => None,
        };
        if let Some(what) = several {
            let detail = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            errors.invalid(&path.child("ipFamilyPolicy"), SINGLE, detail);
        }
    }
    for (index, family) in addresses.iter().enumerate().filter_map(|(index, address)| Some((index, family(address)?))) {
        if family != own {
            let detail = format!("{family} is not configured on this cluster");
            errors.invalid(&path.child("clusterIPs").index(index), addresses.to_vec(), detail);
        }
    }
    errors
}

fn family(address: &Value) -> Option<&'static str> {
    let address: IpAddr = address.as_str()?.parse().ok()?;
    Some(if address.is_ipv6() { "IPv6" } else { "IPv4" })
}

/// Whoever makes the endpoints of a Service without addresses and selector may make them of any family.
fn fill_both(spec: &mut Value, own: &str) -> ErrorList {
    if items(spec, "ipFamilies").is_empty() {
        set(spec, "ipFamilies", json!([own]));
    }
    if at(spec, "ipFamilyPolicy").is_null() {
        set(spec, "ipFamilyPolicy", "RequireDualStack");
    }
    if text(spec, "ipFamilyPolicy") != SINGLE
        && let [first] = items(spec, "ipFamilies")
    {
        let other = if first == "IPv4" { "IPv6" } else { "IPv4" };
        set(spec, "ipFamilies", json!([first, other]));
    }
    ErrorList::new()
}

/// All others have what the cluster has.
fn fill_one(spec: &mut Value, own: &str) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    if items(spec, "ipFamilies").is_empty() {
        set(spec, "ipFamilies", json!([own]));
    }
    if at(spec, "ipFamilyPolicy").is_null() {
        set(spec, "ipFamilyPolicy", SINGLE);
    }
    if text(spec, "ipFamilyPolicy") == "RequireDualStack" {
        let detail = "this cluster is not configured for dual-stack services";
        errors.invalid(&path.child("ipFamilyPolicy"), "RequireDualStack", detail);
    }
    for (index, family) in items(spec, "ipFamilies").iter().enumerate().filter(|(_, family)| *family != own) {
        errors.invalid(&path.child("ipFamilies").index(index), family.clone(), "not configured on this cluster");
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(spec: Value, old: Option<Value>) -> Result<Value, String> {
        let mut service = json!({"spec": spec});
        if service["spec"].get("type").is_none() {
            service["spec"]["type"] = json!("ClusterIP");
        }
        let old = old.map(|mut spec| {
            spec["type"] = json!("ClusterIP");
            json!({"spec": spec})
        });
        let errors = settle(&mut service, old.as_ref(), "IPv4");
        let told: Vec<String> = errors.iter().map(|error| format!("{} {}", error.field, error.detail)).collect();
        if told.is_empty() {
            Ok(json!([service["spec"]["ipFamilies"], service["spec"]["ipFamilyPolicy"]]))
        } else {
            Err(told.join(", "))
        }
    }

    #[test]
    fn families_follow_from_what_is_said() {
        let both = |policy: &str| json!([["IPv4", "IPv6"], policy]);
        let selected = |mut spec: Value| {
            spec["selector"] = json!({"a": "b"});
            spec
        };
        for (spec, expected) in [
            (json!({}), json!([["IPv4"], "SingleStack"])),
            (json!({"ipFamilyPolicy": "PreferDualStack"}), json!([["IPv4"], "PreferDualStack"])),
            (json!({"type": "ExternalName", "externalName": "a"}), json!([null, null])),
            (json!({"clusterIP": "None"}), both("RequireDualStack")),
            (json!({"clusterIP": "None", "ipFamilyPolicy": "SingleStack"}), json!([["IPv4"], "SingleStack"])),
            (json!({"clusterIP": "None", "ipFamilies": ["IPv6"]}), json!([["IPv6", "IPv4"], "RequireDualStack"])),
            (selected(json!({"clusterIP": "None"})), json!([["IPv4"], "SingleStack"])),
        ] {
            assert_eq!(settled(spec.clone(), None), Ok(expected), "{spec}");
        }
    }

    #[test]
    fn what_cannot_be_had_is_told() {
        for (spec, expected) in [
            (
                json!({"ipFamilies": ["IPv6"], "ipFamilyPolicy": "RequireDualStack"}),
                "spec.ipFamilyPolicy this cluster is not configured for dual-stack services, spec.ipFamilies[0] not configured on this cluster",
            ),
            (
                json!({"ipFamilies": ["IPv4", "IPv6"]}),
                "spec.ipFamilyPolicy must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified",
            ),
            (
                json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"]}),
                "spec.ipFamilyPolicy must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified, \
              spec.clusterIPs[1] IPv6 is not configured on this cluster",
            ),
            (json!({"clusterIP": "fd00::1"}), "spec.clusterIPs[0] IPv6 is not configured on this cluster"),
        ] {
            assert_eq!(settled(spec.clone(), None), Err(expected.to_owned()), "{spec}");
        }
    }

    #[test]
    fn a_second_family_goes_by_the_policy() {
        let old = json!({"clusterIP": "None", "ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "RequireDualStack"});
        let changed = |changes: Value| {
            let mut spec = old.clone();
            changes.as_object().unwrap().iter().for_each(|(field, value)| spec[field] = value.clone());
            settled(spec, Some(old.clone()))
        };
        assert_eq!(
            changed(json!({"ipFamilies": [], "ipFamilyPolicy": null})),
            Ok(json!([["IPv6", "IPv4"], "RequireDualStack"]))
        );
        assert_eq!(changed(json!({"ipFamilyPolicy": "SingleStack"})), Ok(json!([["IPv6"], "SingleStack"])));
        let held = changed(json!({"ipFamilies": ["IPv4"]}));
        assert_eq!(
            held,
            Err("spec.ipFamilyPolicy must be 'SingleStack' to release the secondary IP family".to_owned())
        );
    }
}
