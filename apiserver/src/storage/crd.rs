//! CustomResourceDefinitions as upstream stores them: in the form of v1beta1, where what all versions have in common stands
//! beside the versions.

use serde_json::{Map, Value};

/// What v1beta1 has once for all versions: its name there and in each version of v1.
const COMMON: [(&str, &str); 4] = [
    ("validation", "schema"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// Turns an object of v1beta1 into one of v1.
pub fn to_v1(object: &mut Value) {
    object["apiVersion"] = "apiextensions.k8s.io/v1".into();
    let Some(spec) = object["spec"].as_object_mut() else { return };
    let name = spec.remove("version");
    if spec.get("versions").is_none_or(|versions| versions.as_array().is_none_or(|all| all.is_empty())) {
        let name = name.unwrap_or_default();
        spec.insert("versions".into(), serde_json::json!([{"name": name, "served": true, "storage": true}]));
    }
    let common: Vec<_> = COMMON.iter().filter_map(|(old, new)| Some((*new, spec.remove(*old)?))).collect();
    for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(version) = version.as_object_mut() else { continue };
        for (name, value) in &common {
            version.entry(*name).or_insert_with(|| value.clone());
        }
        let columns = version.get_mut("additionalPrinterColumns").and_then(Value::as_array_mut);
        columns
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
            .for_each(|column| rename(column, "JSONPath", "jsonPath"));
    }
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(false)) {
        spec.remove("preserveUnknownFields");
    }
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) {
        let mut webhook = Map::new();
        for (old, new) in
            [("webhookClientConfig", "clientConfig"), ("conversionReviewVersions", "conversionReviewVersions")]
        {
            webhook.extend(conversion.remove(old).map(|value| (new.to_owned(), value)));
        }
        if webhook.contains_key("clientConfig") {
            conversion.insert("webhook".into(), Value::Object(webhook));
        }
    }
}

fn rename(object: &mut Map<String, Value>, old: &str, new: &str) {
    if let Some(value) = object.remove(old) {
        object.insert(new.into(), value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_common_goes_into_each_version() {
        let mut object = json!({
            "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1beta1",
            "spec": {
                "group": "g", "version": "v1", "preserveUnknownFields": false,
                "validation": {"openAPIV3Schema": {"type": "object"}}, "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Size", "JSONPath": ".spec.size"}],
                "versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v2", "subresources": {}}],
                "conversion": {"strategy": "Webhook", "webhookClientConfig": {"url": "u"}, "conversionReviewVersions": ["v1"]},
            },
        });
        to_v1(&mut object);
        let (schema, columns) =
            (json!({"openAPIV3Schema": {"type": "object"}}), json!([{"name": "Size", "jsonPath": ".spec.size"}]));
        let wanted = json!({
            "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
            "spec": {
                "group": "g",
                "versions": [
                    {"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}},
                     "additionalPrinterColumns": columns},
                    {"name": "v2", "schema": schema, "subresources": {}, "additionalPrinterColumns": columns},
                ],
                "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "u"}, "conversionReviewVersions": ["v1"]}},
            },
        });
        assert_eq!(object, wanted);
    }

    #[test]
    fn versions_of_their_own_stay() {
        let mut object = json!({"spec": {"conversion": {"strategy": "None", "conversionReviewVersions": ["v1"]},
            "versions": [{"name": "v1", "schema": {"a": 1}, "additionalPrinterColumns": [{"JSONPath": ".x"}]}]}});
        to_v1(&mut object);
        let version = json!({"name": "v1", "schema": {"a": 1}, "additionalPrinterColumns": [{"jsonPath": ".x"}]});
        assert_eq!(object["spec"], json!({"conversion": {"strategy": "None"}, "versions": [version]}));
    }
}
