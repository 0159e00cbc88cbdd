//! What clients are told about versions and resources that are on their way out.

use crate::resource::Resource;

/// Of these there is one version.
const RESOURCES: [(&str, &str, &str); 2] = [
    ("", "endpoints", "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
    ("", "componentstatuses", "v1 ComponentStatus is deprecated in v1.19+"),
];

/// Group, version, since and until which minor release, and the version to use instead.
const VERSIONS: [(&str, &str, u32, u32, Option<&str>); 9] = [
    ("admissionregistration.k8s.io", "v1alpha1", 35, 38, None),
    ("admissionregistration.k8s.io", "v1beta1", 37, 40, Some("v1")),
    ("certificates.k8s.io", "v1beta1", 37, 40, Some("v1")),
    ("coordination.k8s.io", "v1alpha2", 35, 38, None),
    ("coordination.k8s.io", "v1beta1", 36, 39, None),
    ("resource.k8s.io", "v1alpha3", 36, 39, None),
    ("resource.k8s.io", "v1beta1", 35, 38, None),
    ("resource.k8s.io", "v1beta2", 36, 39, None),
    ("storagemigration.k8s.io", "v1beta1", 37, 40, Some("v1")),
];

/// Resources of such versions that came later than the others.
const NEWER: [(&str, &str); 2] = [("v1alpha3", "resourcepoolstatusrequests"), ("v1beta2", "devicetaintrules")];

/// The warning about a resource, if there is one.
pub fn warning(resource: &Resource) -> Option<String> {
    let (group, version, name) = (resource.group.as_str(), resource.version.as_str(), resource.name.as_str());
    if let Some((.., text)) = RESOURCES.iter().find(|row| (row.0, row.1) == (group, name)) {
        return Some((*text).to_owned());
    }
    let (.., since, until, instead) = VERSIONS.iter().find(|row| (row.0, row.1) == (group, version))?;
    if NEWER.contains(&(version, name)) {
        return None;
    }
    let kind = &resource.kind;
    let mut text = format!("{group}/{version} {kind} is deprecated in v1.{since}+, unavailable in v1.{until}+");
    if let Some(instead) = instead {
        text.push_str(&format!("; use {group}/{instead} {kind}"));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_upstreams() {
        let told = |group: &str, version: &str, name: &str| {
            let api = pintle_api::resource(group, version, name).unwrap();
            warning(&Resource::built_in(api, (group, version), None, &crate::registry::Rules::NONE))
        };
        let mutating = "admissionregistration.k8s.io/v1beta1 MutatingAdmissionPolicy is deprecated in v1.37+, unavailable in \
                        v1.40+; use admissionregistration.k8s.io/v1 MutatingAdmissionPolicy";
        let found = told("admissionregistration.k8s.io", "v1beta1", "mutatingadmissionpolicies");
        assert_eq!(found.as_deref(), Some(mutating));
        let claim = "resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+";
        assert_eq!(told("resource.k8s.io", "v1beta1", "resourceclaims").as_deref(), Some(claim));
        assert_eq!(told("resource.k8s.io", "v1beta2", "devicetaintrules"), None);
        assert_eq!(told("", "v1", "pods"), None);
        assert!(told("", "v1", "componentstatuses").is_some());
    }
}
