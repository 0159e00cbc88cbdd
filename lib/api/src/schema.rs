//! The schema of the built-in kinds, read once out of the committed facts table.

use std::sync::OnceLock;

use pintle_machinery::schema::{Schema, text};

macro_rules! tables {
    ($($name:literal,)*) => {
        /// The facts tables: a Go package's short name and text.
        const TABLES: &[text::Source<'static>] =
            &[$(($name, include_str!(concat!("../schema/v1.37/", $name, ".txt"))),)*];
    };
}

tables! {
    "admission.v1",
    "admissionregistration.v1",
    "admissionregistration.v1alpha1",
    "admissionregistration.v1beta1",
    "apidiscovery.v2",
    "apiextensions.v1",
    "apiregistration.v1",
    "apiserverinternal.v1alpha1",
    "apps.v1",
    "audit.v1",
    "authentication.v1",
    "authorization.v1",
    "autoscaling.v1",
    "autoscaling.v2",
    "batch.v1",
    "certificates.v1",
    "certificates.v1beta1",
    "coordination.v1",
    "coordination.v1alpha2",
    "coordination.v1beta1",
    "core.v1",
    "discovery.v1",
    "events.v1",
    "flowcontrol.v1",
    "lifecycle.v1alpha1",
    "meta.v1",
    "networking.v1",
    "node.v1",
    "pkg.version",
    "policy.v1",
    "rbac.v1",
    "resource.v1",
    "resource.v1alpha3",
    "resource.v1beta1",
    "resource.v1beta2",
    "scheduling.v1",
    "scheduling.v1alpha3",
    "scheduling.v1beta1",
    "storage.v1",
    "storagemigration.v1",
    "storagemigration.v1beta1",
    "types",
}

/// The schema of all built-in kinds of v1.37.
pub fn schema() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| match text::parse(TABLES) {
        Ok(schema) => schema,
        // Cannot happen: the tables are part of the program and a test reads them.
        Err(error) => panic!("the built-in facts table: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pintle_machinery::schema::Type;

    #[test]
    fn every_table_is_read() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/v1.37");
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap().replace(".txt", ""))
            .filter(|name| !["resources", "defaults", "versions", "gates"].contains(&name.as_str()))
            .collect();
        names.sort();
        assert_eq!(names, TABLES.iter().map(|table| table.0).collect::<Vec<_>>());
    }

    #[test]
    fn knows_the_pod() {
        let pod = schema().kind("", "v1", "Pod").unwrap();
        assert_eq!((pod.name.as_str(), pod.go.as_str()), ("io.k8s.api.core.v1.Pod", "v1.Pod"));
        let spec = schema().resolve(&pod.field("spec").unwrap().ty).unwrap();
        let containers = spec.field("containers").unwrap();
        assert_eq!(containers.patch_merge_key.as_deref(), Some("name"));
        let volume = schema().by_name("io.k8s.api.core.v1.Volume").unwrap();
        assert!(volume.field("emptyDir").is_some(), "embedded fields are in JSON's view");
        assert_eq!(volume.wire.len(), 2, "and one field in protobuf's");
    }

    #[test]
    fn options_are_kinds_of_every_group() {
        assert!(schema().kind("apps", "v1", "DeleteOptions").is_some());
        assert!(schema().kind("apps", "v1", "Pod").is_none());
        let scale = schema().kind("autoscaling", "v1", "Scale").unwrap();
        assert!(matches!(scale.field("spec").unwrap().ty, Type::Struct(_)));
    }
}
