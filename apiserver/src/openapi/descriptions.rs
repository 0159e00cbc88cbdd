//! What the fields of built-in kinds are for, in words: upstream's texts as the crate `k8s-openapi` carries them; the build collects them.

use std::collections::HashMap;
use std::io::Read;

/// Records as `build.rs` writes them, compressed.
static COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.gz"));

/// Our words for what the crate does not describe: the type, its field, the words.
const OWN: [(&str, &str, &str); 1] = [(
    "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent",
    "object",
    "What was added, modified or deleted; an error's Status.",
)];

/// A type that is described whole. Its `kind` and `apiVersion` are what they are everywhere.
const EVERY: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// All descriptions as text, for as long as a document is being made.
pub struct Texts(String);

impl Texts {
    /// Unpacks them.
    pub fn unpack() -> Self {
        let mut text = String::new();
        // It cannot fail: the bytes are part of the program and a test reads them.
        let _ = flate2::read::GzDecoder::new(COMPRESSED).read_to_string(&mut text);
        Self(text)
    }

    /// By type.
    pub fn index(&self) -> Descriptions<'_> {
        let records = self.0.split('\u{1e}').filter_map(|record| record.split_once('\u{1f}'));
        Descriptions(records.collect())
    }
}

/// Descriptions by OpenAPI name of the type: its own, then names and descriptions of its fields, U+001F between.
pub struct Descriptions<'a>(HashMap<&'a str, &'a str>);

impl<'a> Descriptions<'a> {
    /// Of a type.
    pub fn of(&self, ty: &str) -> Option<&'a str> {
        let record = self.0.get(ty)?;
        record.split('\u{1f}').next().filter(|text| !text.is_empty())
    }

    /// Of a field.
    pub fn of_field(&self, ty: &str, field: &str) -> Option<&'a str> {
        let everywhere = ["kind", "apiVersion"].contains(&field);
        self.find(ty, field)
            .or_else(|| self.find(EVERY, field).filter(|_| everywhere))
            .or_else(|| OWN.iter().find(|(own, of, _)| *own == ty && *of == field).map(|(.., words)| *words))
    }

    fn find(&self, ty: &str, field: &str) -> Option<&'a str> {
        let mut parts = self.0.get(ty)?.split('\u{1f}').skip(1);
        while let (Some(name), Some(text)) = (parts.next(), parts.next()) {
            if name == field {
                return Some(text);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_has_collected_them() {
        let texts = Texts::unpack();
        let descriptions = texts.index();
        let pod = "io.k8s.api.core.v1.PodSpec";
        assert!(descriptions.of(pod).is_some());
        assert!(descriptions.of_field(pod, "containers").is_some_and(|text| text.contains("containers")));
        assert!(descriptions.of_field(pod, "nonsense").is_none());
        let served: Vec<_> = pintle_api::resources().iter().filter(|resource| resource.default_served).collect();
        for resource in served {
            let ty = pintle_api::schema().kind(resource.group, resource.version, resource.kind).unwrap();
            assert!(descriptions.of(&ty.name).is_some(), "{}", ty.name);
            for field in ty.fields.iter().filter(|field| field.json != "metadata") {
                assert!(descriptions.of_field(&ty.name, &field.json).is_some(), "{} {}", ty.name, field.json);
            }
        }
    }
}
