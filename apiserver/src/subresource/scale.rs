//! `scale`: the number of replicas of a workload as an object of its own.

use http::StatusCode;
use pintle_machinery::codec::{json, yaml};
use pintle_machinery::patch;
use pintle_machinery::status::ApiError;
use serde_json::{Value, json};

use crate::codec;
use crate::conversion::convert;
use crate::custom::jsonpath::JsonPath;
use crate::engine::modify::{self, Ownership};
use crate::engine::patch::PatchKind;
use crate::engine::table::{self, Include};
use crate::engine::{Answer, Call, meta, present};
use crate::http::negotiate::Form;
use crate::registry::{Rules, cells, columns};

const SCALE: (&str, &str) = ("autoscaling", "v1");
/// How a scale is shown in a Table.
static SHOWN: Rules = Rules { columns: columns::SCALES, cells: Some(cells::scales), ..Rules::NONE };

/// Reads and writes the scale.
pub async fn handle(call: &Call, body: &[u8]) -> Answer {
    let dry_run = call.dry_run()?;
    match call.info.verb.as_str() {
        "get" => {
            let current = modify::current(call).await?.ok_or_else(|| call.not_found())?;
            answer(call, &scale_of(call, &current.value))
        }
        "update" => {
            let scale = codec::decode_as(call, body, SCALE, "Scale")?;
            write(call, &|_| Ok(scale.clone()), dry_run).await
        }
        "patch" => {
            let kind = PatchKind::of(call)?;
            write(call, &|old| patched(call, kind, old, body), dry_run).await
        }
        _ => Err(ApiError::MethodNotAllowed),
    }
}

/// The scale in the form that was asked for.
fn answer(call: &Call, scale: &Value) -> Answer {
    let shown = match call.accepted.form {
        Form::Object => return present::object(call, StatusCode::OK, scale),
        Form::Table(v1) => table::render_sub(&SHOWN, call, scale, Include::parse(&call.query)?, v1),
        Form::Metadata(v1) => present::partial_metadata(scale, v1),
    };
    present::object(call, StatusCode::OK, &shown)
}

fn patched(call: &Call, kind: PatchKind, old: &Value, body: &[u8]) -> Result<Value, ApiError> {
    let schema = call.state.schema;
    let ty = schema.kind(SCALE.0, SCALE.1, "Scale").ok_or_else(|| ApiError::Internal("no schema for Scale".into()))?;
    let new = match kind {
        PatchKind::Json => patch::json::apply(old, body)?,
        PatchKind::Merge => patch::merge::apply(old, body)?,
        PatchKind::Strategic => patch::strategic::apply(schema, ty, old, body)?,
        PatchKind::Apply => {
            let applied = yaml::parse(body).map_err(|error| ApiError::BadRequest(error.to_string()))?;
            let mut new = old.clone();
            patch::merge::merge(&mut new, applied.value);
            new
        }
    };
    let bytes = serde_json::to_vec(&new).map_err(|error| ApiError::Internal(error.to_string()))?;
    let decoded = json::decode(schema, ty, &bytes).map_err(|error| ApiError::BadRequest(error.to_string()))?;
    Ok(decoded.value)
}

type MakeScale<'a> = &'a (dyn Fn(&Value) -> Result<Value, ApiError> + Send + Sync);

async fn write(call: &Call, make: MakeScale<'_>, dry_run: bool) -> Answer {
    let change = |old: &Value| {
        let scale = make(&scale_of(call, old))?;
        let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
        if replicas < 0 {
            return Err(negative(call, replicas));
        }
        if meta::text(&scale, "name") != call.info.name && !meta::text(&scale, "name").is_empty() {
            let message = format!(
                "the name of the object ({}) does not match the name on the URL ({})",
                meta::text(&scale, "name"),
                call.info.name
            );
            return Err(ApiError::BadRequest(message));
        }
        let mut new = old.clone();
        set_replicas(call, &mut new, replicas);
        meta::set(&mut new, "resourceVersion", scale["metadata"]["resourceVersion"].clone());
        Ok(new)
    };
    let written = modify::modify(call, &change, Ownership::Update, dry_run).await?;
    let mut value: Value =
        serde_json::from_slice(&written.bytes).map_err(|error| ApiError::Internal(error.to_string()))?;
    meta::set(&mut value, "resourceVersion", json!(written.revision.to_string()));
    convert(&mut value, call.resource.stored(), call.resource.served());
    answer(call, &scale_of(call, &value))
}

fn negative(call: &Call, replicas: i64) -> ApiError {
    use pintle_machinery::field_path::{ErrorList, Path};
    let mut errors = ErrorList::new();
    let path = Path::new("spec").child("replicas");
    errors.invalid(&path, json!(replicas), "must be greater than or equal to 0");
    ApiError::invalid(&pintle_machinery::status::GroupResource::new("autoscaling", "Scale"), &call.info.name, errors)
}

/// What a scale shows of its object: wanted and actual replicas, and the selector.
type Shown = (Option<i64>, i64, String);

fn scale_of(call: &Call, object: &Value) -> Value {
    let shown = match call.resource.custom.as_ref().and_then(|custom| custom.scale.as_ref()) {
        Some(scale) => {
            let number = |path: &JsonPath| path.first(object).and_then(Value::as_i64);
            let selector = scale.selector.as_ref().and_then(|path| path.first(object)?.as_str());
            (number(&scale.wanted), number(&scale.actual).unwrap_or(0), selector.unwrap_or_default().to_owned())
        }
        None => of_workload(object),
    };
    scale(object, shown)
}

fn of_workload(workload: &Value) -> Shown {
    let (spec, status) = (&workload["spec"], &workload["status"]);
    (spec["replicas"].as_i64(), status["replicas"].as_i64().unwrap_or(0), selector_text(&spec["selector"]))
}

fn scale(object: &Value, (wanted, actual, selector): Shown) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if !object["metadata"][field].is_null() {
            metadata[field] = object["metadata"][field].clone();
        }
    }
    let mut spec = json!({});
    if let Some(replicas) = wanted.filter(|replicas| *replicas != 0) {
        spec["replicas"] = json!(replicas);
    }
    let mut status = json!({"replicas": actual});
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

fn set_replicas(call: &Call, object: &mut Value, replicas: i64) {
    let own = call.resource.custom.as_ref().and_then(|custom| custom.scale.as_ref()?.wanted.fields());
    let mut place = object;
    for name in own.unwrap_or(vec!["spec", "replicas"]) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[name];
    }
    *place = json!(replicas);
}

/// A selector as text: labels first, then expressions, each in key order.
fn selector_text(selector: &Value) -> String {
    let Some(map) = selector.as_object() else { return String::new() };
    let structured = map.contains_key("matchLabels") || map.contains_key("matchExpressions");
    let labels = if structured { selector["matchLabels"].as_object() } else { Some(map) };
    let mut terms: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten().filter(|_| structured) {
        let key = expression["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        terms.push(match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_shows_replicas_and_selector() {
        let workload = json!({"metadata": {"name": "a", "namespace": "n"}, "status": {"replicas": 2}, "spec": {"replicas": 3,
            "selector": {"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["y", "x"]}]}}});
        let scale = scale(&workload, of_workload(&workload));
        assert_eq!(scale["spec"]["replicas"], 3);
        assert_eq!(scale["status"], json!({"replicas": 2, "selector": "a=1,b=2,k in (x,y)"}));
        assert_eq!(selector_text(&json!({"app": "x"})), "app=x");
    }
}
