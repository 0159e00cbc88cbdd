//! Names and amounts of resources, as containers, quotas and limit ranges hold them.

use pintle_api::quota::amounts::quantity;
use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::NOT_NEGATIVE;

/// Resources of containers that need no domain.
const OF_CONTAINERS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// Resources that are counted in whole numbers.
const WHOLE: [&str; 9] = [
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
/// What else a quota may name without a domain.
const OF_QUOTAS: [&str; 7] = [
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "requests.storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

/// A resource by its name.
#[derive(Debug, Clone, Copy)]
pub struct Name<'a>(pub &'a str);

impl Name<'_> {
    fn is_huge_page(self) -> bool {
        self.0.starts_with("hugepages-")
    }

    /// The server counts it itself.
    pub fn is_quota_standard(self) -> bool {
        OF_CONTAINERS.contains(&self.0)
            || WHOLE.contains(&self.0)
            || OF_QUOTAS.contains(&self.0)
            || self.is_huge_page()
            || self.0.starts_with("requests.hugepages-")
    }

    fn is_container_standard(self) -> bool {
        OF_CONTAINERS.contains(&self.0) || self.is_huge_page()
    }

    /// Kubernetes' own resource.
    pub fn is_native(self) -> bool {
        !self.0.contains('/') || self.0.contains("kubernetes.io/")
    }

    /// Somebody else's resource: it can't be shared by more than it is given to.
    pub fn is_extended(self) -> bool {
        let prefixed = format!("requests.{}", self.0);
        !self.is_native() && !self.0.starts_with("requests.") && names::qualified(&prefixed).is_empty()
    }

    /// May be given to more than there is.
    pub fn may_be_overcommitted(self) -> bool {
        self.is_native() && !self.is_huge_page()
    }

    fn is_whole(self) -> bool {
        WHOLE.contains(&self.0) || self.is_extended()
    }

    /// Faults of the name wherever it is; true if it is well-formed and without a domain.
    pub fn check_plain(self, errors: &mut ErrorList, path: &Path) {
        let faults = names::qualified(self.0);
        let plain = !self.0.contains('/');
        if faults.is_empty() && plain && !self.is_quota_standard() && self.0 != "storage" {
            errors.invalid(path, self.0, "must be a standard resource type or fully qualified");
        }
        errors.invalid_each(path, self.0, faults);
    }

    /// Faults of a name that a container gives.
    pub fn check_container(self, errors: &mut ErrorList, path: &Path) {
        self.check_plain(errors, path);
        if !self.0.contains('/') {
            if !self.is_container_standard() {
                errors.invalid(path, self.0, "must be a standard resource for containers");
            }
        } else if !self.is_native() && !self.is_extended() {
            errors.invalid(path, self.0, "doesn't follow extended resource name standard");
        }
    }

    /// Faults of a name that a quota gives.
    pub fn check_quota(self, errors: &mut ErrorList, path: &Path) {
        self.check_plain(errors, path);
        if !self.0.contains('/') && !self.is_quota_standard() {
            errors.invalid(path, self.0, "must be a standard resource for quota");
        }
    }

    /// Faults of a name that a limit of that type gives.
    pub fn check_limit(self, errors: &mut ErrorList, path: &Path, ty: &str) {
        match ty {
            "Pod" | "Container" => self.check_container(errors, path),
            _ => self.check_plain(errors, path),
        }
    }

    /// Huge pages come whole.
    pub fn check_pages(self, errors: &mut ErrorList, path: &Path, value: &Value) {
        let Some((size, amount)) = self.0.strip_prefix("hugepages-").zip(quantity(value)) else { return };
        let size = quantity(&size.into()).map(|size| size.value()).unwrap_or_default();
        if size <= 0 || amount.value() <= 0 || amount.value() % size != 0 {
            errors.invalid(
                path,
                amount.to_string(),
                format!("{amount} is not positive integer multiple of {}", self.0),
            );
        }
    }

    /// Faults of the amount of this resource.
    pub fn check_amount(self, errors: &mut ErrorList, path: &Path, value: &Value) {
        let Some(amount) = quantity(value) else { return };
        if amount.sign() < 0 {
            errors.invalid(path, amount.to_string(), NOT_NEGATIVE);
        }
        if self.is_whole() && amount.milli_value() % 1000 != 0 {
            errors.invalid(path, amount.to_string(), "must be an integer");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(check: impl Fn(Name<'_>, &mut ErrorList, &Path), name: &str) -> String {
        let mut errors = ErrorList::new();
        check(Name(name), &mut errors, &Path::new("p"));
        errors.iter().map(|error| error.detail.clone()).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn names() {
        for (name, expected) in [
            ("pods", ""),
            ("hugepages-2Mi", ""),
            ("requests.hugepages-2Mi", ""),
            ("count/deployments.apps", ""),
            ("limits.example.com/gpu", ""),
            ("foo", "must be a standard resource type or fully qualified; must be a standard resource for quota"),
        ] {
            assert_eq!(faults(|name, errors, path| name.check_quota(errors, path), name), expected, "{name}");
        }
        for (name, expected) in [
            ("cpu", ""),
            ("example.com/gpu", ""),
            ("pods", "must be a standard resource for containers"),
            ("requests.example.com/a", "doesn't follow extended resource name standard"),
        ] {
            assert_eq!(faults(|name, errors, path| name.check_container(errors, path), name), expected, "{name}");
        }
    }

    #[test]
    fn amounts() {
        let faults = |name: &str, value: &str| {
            let mut errors = ErrorList::new();
            Name(name).check_amount(&mut errors, &Path::new("p"), &value.into());
            errors.to_string()
        };
        assert_eq!(faults("cpu", "1500m"), "");
        assert_eq!(faults("pods", "1.5"), "p: Invalid value: \"1500m\": must be an integer");
        assert_eq!(faults("cpu", "-1"), "p: Invalid value: \"-1\": must be greater than or equal to 0");
    }
}
