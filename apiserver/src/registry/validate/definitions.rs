//! Errors of CustomResourceDefinitions.

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::{definition_schema, one_of, unchanged, webhooks};
use crate::engine::meta::mask_trailing_dash;
use crate::registry::Context;
use crate::registry::value::{at, flag, has, items, text};

/// Parts of a version that are told as the definition's own where all versions have the same: field, and where it is told.
const SHARED: [&str; 4] = ["schema", "subresources", "additionalPrinterColumns", "selectableFields"];
const COLUMNS: &str = "boolean,date,integer,number,string";
const FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";
const APPROVED: &str = "api-approved.kubernetes.io";

/// Names that every definition has.
const NAMES: [&str; 4] = ["plural", "singular", "kind", "listKind"];

/// CustomResourceDefinition.
pub fn definition(_context: &Context<'_>, definition: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = at(definition, "spec");
    self::spec(&mut errors, spec);
    stored(&mut errors, definition);
    let group = text(spec, "group");
    let protected = ["k8s.io", "kubernetes.io"].iter().any(|own| group == *own || group.ends_with(&format!(".{own}")));
    if protected && at(definition, "metadata.annotations").get(APPROVED).is_none() {
        let detail = format!(
            "protected groups must have approval annotation \"{APPROVED}\", see https://github.com/kubernetes/enhancements/pull/1111"
        );
        errors.required(&Path::new("metadata").child("annotations").key(APPROVED), detail);
    }
    errors
}

/// A definition is called after what it defines.
pub fn definition_name(definition: &Value, name: &str, is_prefix: bool) -> Vec<String> {
    let mut faults = names::dns1123_subdomain(&mask_trailing_dash(name, is_prefix));
    let spec = at(definition, "spec");
    if name != format!("{}.{}", text(spec, "names.plural"), text(spec, "group")) {
        faults.push("must be spec.names.plural+\".\"+spec.group".to_owned());
    }
    faults
}

/// An update of a CustomResourceDefinition: what its objects are called in the store stays.
pub fn definition_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    if context.subresource.is_some() {
        accepted(&mut errors, at(new, "status.acceptedNames"), &Path::new("status").child("acceptedNames"));
        return errors;
    }
    spec(&mut errors, at(new, "spec"));
    let path = Path::new("spec");
    for (field, path) in [
        ("scope", path.child("scope")),
        ("names.kind", path.child("names").child("kind")),
        ("group", path.child("group")),
        ("names.plural", path.child("names").child("plural")),
    ] {
        unchanged(&mut errors, &path, at(&new["spec"], field), at(&old["spec"], field));
    }
    // A definition of before says nothing of that.
    if has(old, "status.storedVersions") {
        stored(&mut errors, new);
    }
    errors
}

/// Versions that objects may be stored in.
fn stored(errors: &mut ErrorList, definition: &Value) {
    let path = Path::new("status").child("storedVersions");
    let stored = items(definition, "status.storedVersions");
    let versions = items(definition, "spec.versions");
    if stored.is_empty() {
        errors.invalid(&path, Value::Null, "must have at least one stored version");
    }
    for (index, version) in stored.iter().map(|version| version.as_str().unwrap_or_default()).enumerate() {
        if !versions.iter().any(|known| text(known, "name") == version) {
            let detail = format!(
                "missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {version} and removes {version} from \
                 status.storedVersions"
            );
            errors.invalid(&path.index(index), version, detail);
        }
    }
    let storage = versions.iter().rfind(|version| flag(version, "storage")).map(|version| text(version, "name"));
    if let Some(storage) = storage.filter(|storage| !stored.is_empty() && !stored.iter().any(|known| known == storage))
    {
        errors.invalid(&path, stored.to_vec(), format!("must have the storage version {storage}"));
    }
}

fn spec(errors: &mut ErrorList, spec: &Value) {
    let path = Path::new("spec");
    let group = text(spec, "group");
    match group {
        "" => errors.required(&path.child("group"), ""),
        group => {
            let faults = names::dns1123_subdomain(group);
            if faults.is_empty() && !group.contains('.') {
                errors.invalid(&path.child("group"), group, "should be a domain with at least one dot");
            }
            errors.invalid_each(&path.child("group"), group, faults);
        }
    }
    match text(spec, "scope") {
        "" => errors.required(&path.child("scope"), ""),
        scope => one_of(errors, &path.child("scope"), scope, &["Cluster", "Namespaced"]),
    }
    if flag(spec, "preserveUnknownFields") {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.invalid(&path.child("preserveUnknownFields"), true, detail);
    }
    let versions = items(spec, "versions");
    for (index, version) in versions.iter().enumerate() {
        if !has(version, "schema.openAPIV3Schema") {
            errors.required(&path.child("versions").index(index).child("schema").child("openAPIV3Schema"), "");
        }
    }
    for (index, version) in versions.iter().enumerate() {
        self::version(errors, version, versions, &path.child("versions").index(index));
    }
    if let Some(first) = versions.first().filter(|_| !text(&versions[0], "name").is_empty()) {
        let name = text(first, "name");
        errors.invalid_each(&path.child("version"), name, names::dns1035_label(name));
    }
    unique(errors, spec, versions, &path.child("versions"));
    kinds(errors, at(spec, "names"), &path.child("names"));
    for field in SHARED.into_iter().filter(|field| shared(versions, field)) {
        part(errors, &versions[0], field, &path, true);
    }
    conversion(errors, at(spec, "conversion"), &path.child("conversion"));
}

/// All versions have the same there.
fn shared(versions: &[Value], field: &str) -> bool {
    versions.first().is_some_and(|first| versions.iter().all(|version| at(version, field) == at(first, field)))
}

fn version(errors: &mut ErrorList, version: &Value, all: &[Value], path: &Path) {
    const WARNING: usize = 256;
    let name = text(version, "name");
    errors.invalid_each(&path.child("name"), name, names::dns1035_label(name));
    let (warning, of_warning) = (text(version, "deprecationWarning"), path.child("deprecationWarning"));
    if has(version, "deprecationWarning") {
        let unprintable = warning.char_indices().find(|(_, c)| c.is_control());
        if !flag(version, "deprecated") {
            errors.invalid(&of_warning, warning, "can only be set for deprecated versions");
        }
        if warning.is_empty() {
            errors.invalid(&of_warning, warning, "must not be an empty string");
        } else if warning.len() > WARNING {
            errors.invalid(&of_warning, warning, format!("must be <= {WARNING} characters long"));
        } else if let Some((at, _)) = unprintable {
            let detail =
                format!("must only contain printable UTF-8 characters; non-printable character found at index {at}");
            errors.invalid(&of_warning, warning, detail);
        }
    }
    for field in SHARED.into_iter().filter(|field| !shared(all, field)) {
        part(errors, version, field, path, false);
    }
}

/// One part of a version, or of all.
fn part(errors: &mut ErrorList, version: &Value, field: &str, path: &Path, of_all: bool) {
    match field {
        "schema" => {
            let schema = at(version, "schema.openAPIV3Schema");
            let holder = path.child(if of_all { "validation" } else { "schema" });
            if !schema.is_null() {
                let path = holder.child("openAPIV3Schema");
                let ty = text(schema, "type");
                if has(version, "subresources.status") && !matches!(ty, "" | "object") {
                    let detail = "only \"object\" is allowed as the type at the root of the schema if the status \
                                  subresource is enabled";
                    errors.invalid(&path.child("type"), ty, detail);
                }
                definition_schema::root(errors, schema, &path);
            }
        }
        "subresources" => subresources(errors, at(version, "subresources"), &path.child("subresources")),
        "additionalPrinterColumns" => {
            for (index, column) in items(version, field).iter().enumerate() {
                self::column(errors, column, &path.child(field).index(index));
            }
        }
        _ => selectable(errors, version, &path.child(field)),
    }
}

fn column(errors: &mut ErrorList, column: &Value, path: &Path) {
    if text(column, "name").is_empty() {
        errors.required(&path.child("name"), "");
    }
    let known = |list: &str, word: &str| list.split(',').any(|known| known == word);
    let ty = text(column, "type");
    match ty {
        "" => errors.required(&path.child("type"), format!("must be one of {COLUMNS}")),
        ty if !known(COLUMNS, ty) => errors.invalid(&path.child("type"), ty, format!("must be one of {COLUMNS}")),
        _ => {}
    }
    let format = text(column, "format");
    if !format.is_empty() && !known(FORMATS, format) {
        errors.invalid(&path.child("format"), format, format!("must be one of {FORMATS}"));
    }
    match text(column, "jsonPath") {
        "" => errors.required(&path.child("JSONPath"), ""),
        place => {
            simple_path(errors, place, &path.child("JSONPath"));
        }
    }
}

fn simple_path(errors: &mut ErrorList, place: &str, path: &Path) -> bool {
    let simple = place.starts_with('.');
    if !simple {
        errors.invalid(path, place, "must be a simple json path starting with .");
    }
    simple
}

fn subresources(errors: &mut ErrorList, subresources: &Value, path: &Path) {
    let scale = at(subresources, "scale");
    if scale.is_null() {
        return;
    }
    let path = path.child("scale");
    for (field, under) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let (place, path) = (text(scale, field), path.child(field));
        match place {
            "" => errors.required(&path, ""),
            place if !simple_path(errors, place, &path) => {}
            place if !place.starts_with(&format!("{under}.")) => {
                errors.invalid(&path, place, format!("should be a json path under {under}"));
            }
            _ => {}
        }
    }
    let (place, path) = (text(scale, "labelSelectorPath"), path.child("labelSelectorPath"));
    if !place.is_empty()
        && simple_path(errors, place, &path)
        && ![".spec.", ".status."].iter().any(|under| place.starts_with(under))
    {
        errors.invalid(&path, place, "should be a json path under either .spec or .status");
    }
}

fn selectable(errors: &mut ErrorList, version: &Value, path: &Path) {
    const SCALARS: [&str; 3] = ["string", "boolean", "integer"];
    let list = items(version, "selectableFields");
    if !list.is_empty() && !has(version, "schema") {
        return errors.invalid(path, "", "may only be set when validations.schema is included");
    }
    for (index, field) in list.iter().enumerate() {
        let (place, path) = (text(field, "jsonPath"), path.index(index).child("jsonPath"));
        if place.is_empty() {
            errors.required(&path, "");
            continue;
        }
        if list[..index].iter().any(|before| text(before, "jsonPath") == place) {
            errors.duplicate(&path, place);
            continue;
        }
        let found = match definition_schema::find(at(version, "schema.openAPIV3Schema"), place) {
            Ok(found) => found,
            Err(fault) => {
                errors.invalid(&path, place, format!("is an invalid path: {fault}"));
                continue;
            }
        };
        if !SCALARS.contains(&text(found, "type")) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                          formats are allowed.";
            errors.invalid(&path, place, detail);
        }
    }
}

/// Each version has a name of its own, and one of them is what is stored.
fn unique(errors: &mut ErrorList, spec: &Value, versions: &[Value], path: &Path) {
    let shown = || {
        let one = |version: &Value| {
            let name = Value::from(text(version, "name"));
            let warning = at(version, "deprecationWarning");
            format!(
                "{{\"Name\":{name},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{warning}}}",
                flag(version, "served"),
                flag(version, "storage"),
                flag(version, "deprecated")
            )
        };
        match at(spec, "versions") {
            Value::Null => "null".to_owned(),
            _ => format!("[{}]", versions.iter().map(one).collect::<Vec<_>>().join(",")),
        }
    };
    let mut refuse = |detail: &str| {
        errors.push(FieldError::new(Fault::Invalid, path, Value::Null, detail).shown_as(shown()));
    };
    let twice = |(index, version): (usize, &Value)| {
        versions[..index].iter().any(|before| text(before, "name") == text(version, "name"))
    };
    if versions.iter().enumerate().any(twice) {
        refuse("must contain unique version names");
    }
    if versions.iter().filter(|version| flag(version, "storage")).count() != 1 {
        refuse("must have exactly one version marked as storage version");
    }
}

fn kinds(errors: &mut ErrorList, own: &Value, path: &Path) {
    for field in NAMES {
        match text(own, field) {
            "" => errors.required(&path.child(field), ""),
            name => one_name(errors, field, name, path),
        }
    }
    same_kinds(errors, own, path);
    further_names(errors, own, path);
}

/// Names that a status accepts: those that are told.
fn accepted(errors: &mut ErrorList, own: &Value, path: &Path) {
    for field in NAMES {
        let name = text(own, field);
        if !name.is_empty() {
            one_name(errors, field, name, path);
        }
    }
    further_names(errors, own, path);
}

fn one_name(errors: &mut ErrorList, field: &str, name: &str, path: &Path) {
    let path = path.child(field);
    match field {
        "plural" | "singular" => errors.invalid_each(&path, name, names::dns1035_label(name)),
        _ => mixed_case(errors, name, &path),
    }
}

fn same_kinds(errors: &mut ErrorList, own: &Value, path: &Path) {
    let (kind, list) = (text(own, "kind"), text(own, "listKind"));
    if !kind.is_empty() && kind == list {
        errors.invalid(&path.child("listKind"), list, "kind and listKind may not be the same");
    }
}

fn further_names(errors: &mut ErrorList, own: &Value, path: &Path) {
    for field in ["shortNames", "categories"] {
        for (index, name) in items(own, field).iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            errors.invalid_each(&path.child(field).index(index), name, names::dns1035_label(name));
        }
    }
}

fn mixed_case(errors: &mut ErrorList, name: &str, path: &Path) {
    let faults = names::dns1035_label(&name.to_lowercase());
    if !faults.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
        errors.invalid(path, name, detail);
    }
}

fn conversion(errors: &mut ErrorList, conversion: &Value, path: &Path) {
    if conversion.is_null() {
        return;
    }
    let strategy = text(conversion, "strategy");
    match strategy {
        "" => errors.required(&path.child("strategy"), ""),
        strategy => one_of(errors, &path.child("strategy"), strategy, &["None", "Webhook"]),
    }
    let client = at(conversion, "webhook.clientConfig");
    let (of_client, of_reviews) = (path.child("webhookClientConfig"), path.child("conversionReviewVersions"));
    let reviews = items(conversion, "webhook.conversionReviewVersions");
    if strategy == "Webhook" {
        match client.is_null() {
            true => errors.required(&of_client, "required when strategy is set to Webhook"),
            false => webhooks::client(errors, client, &of_client),
        }
        match reviews.is_empty() {
            true => errors.required(&of_reviews, ""),
            false => webhooks::reviews(errors, reviews, &of_reviews),
        }
        return;
    }
    let detail = "should not be set when strategy is not set to Webhook";
    if !client.is_null() {
        errors.forbidden(&of_client, detail);
    }
    if !reviews.is_empty() {
        errors.forbidden(&of_reviews, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn good() -> Value {
        json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"spec": {"type": "object", "properties": {"color": {"type": "string"}}}}}}}],
            },
            "status": {"storedVersions": ["v1"]},
        })
    }

    #[test]
    fn definitions() {
        let label = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
        let cases = [
            ("/spec/scope", json!(""), "spec.scope: Required value".to_owned()),
            ("/spec/names/singular", json!("A"), format!("spec.names.singular: Invalid value: \"A\": {label}")),
            ("/spec/names/listKind", json!("Widget"), "spec.names.listKind: Invalid value: \"Widget\": kind and listKind may not be the same".to_owned()),
            ("/spec/versions/0/schema", json!(null), "spec.versions[0].schema.openAPIV3Schema: Required value".to_owned()),
            ("/spec/versions/0/storage", json!(false), "spec.versions: Invalid value: [{\"Name\":\"v1\",\"Served\":true,\"Storage\":false,\"Deprecated\":false,\"DeprecationWarning\":null}]: must have exactly one version marked as storage version".to_owned()),
            ("/status/storedVersions", json!([]), "status.storedVersions: Invalid value: null: must have at least one stored version".to_owned()),
            ("/spec/versions/0/schema/openAPIV3Schema/type", json!(""), "spec.validation.openAPIV3Schema.type: Required value: must not be empty at the root".to_owned()),
        ];
        assert_eq!(definition(&Context::ANY, &good()).to_string(), "");
        for (place, value, expected) in cases {
            let mut given = good();
            *given.pointer_mut(place).unwrap() = value;
            assert_eq!(definition(&Context::ANY, &given).to_string(), expected, "{place}");
        }
    }

    #[test]
    fn parts_of_versions() {
        for (field, value, expected) in [
            ("selectableFields", json!([{"jsonPath": ".spec.color"}]), ""),
            (
                "selectableFields",
                json!([{"jsonPath": ".spec.x"}]),
                "spec.selectableFields[0].jsonPath: Invalid value: \".spec.x\": is an invalid path: does not refer to a valid field",
            ),
            (
                "additionalPrinterColumns",
                json!([{"name": "a", "type": "string", "jsonPath": "x"}]),
                "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"x\": must be a simple json path starting with .",
            ),
            (
                "subresources",
                json!({"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".spec.n"}}),
                "spec.subresources.scale.statusReplicasPath: Invalid value: \".spec.n\": should be a json path under .status",
            ),
            (
                "deprecationWarning",
                json!("x"),
                "spec.versions[0].deprecationWarning: Invalid value: \"x\": can only be set for deprecated versions",
            ),
        ] {
            let mut given = good();
            given["spec"]["versions"][0][field] = value;
            assert_eq!(definition(&Context::ANY, &given).to_string(), expected, "{field}");
        }
    }

    #[test]
    fn a_definition_is_called_after_what_it_defines() {
        let faults = |name: &str| definition_name(&good(), name, false);
        assert_eq!(faults("widgets.example.com"), [""; 0]);
        assert_eq!(faults("x"), ["must be spec.names.plural+\".\"+spec.group"]);
        assert_eq!(faults("X").len(), 2);
    }

    #[test]
    fn names_stay() {
        let mut new = good();
        new["spec"]["group"] = json!("example.org");
        assert_eq!(
            definition_update(&Context::ANY, &new, &good()).to_string(),
            "spec.group: Invalid value: \"example.org\": field is immutable"
        );
    }
}
