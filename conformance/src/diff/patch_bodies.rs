//! Random patches of each of the four types for an object as it is.

use pintle_machinery::schema::{Field, Schema, StructType, Type};
use rand::Rng;
use serde_json::{Map, Value, json};

use super::changes::{self, Change, Place, Step, pointer};
use super::generate::Generator;

/// A JSON patch: one to three operations.
pub fn json_patch(generator: &mut Generator<'_>, ty: &StructType, live: &Value) -> Value {
    let sites = changes::sites(generator.schema, ty, live);
    let present: Vec<String> = sites
        .iter()
        .filter(|site| site.present && !is_identity(&site.place))
        .map(|site| pointer(&site.place))
        .collect();
    let many = generator.rng.random_range(1..4);
    let mut operations = Vec::new();
    for _ in 0..many {
        let site = generator.pick(&sites).clone();
        let at = pointer(&site.place);
        if is_identity(&site.place) {
            continue;
        }
        let one = if present.is_empty() { at.clone() } else { generator.pick(&present).clone() };
        let value = generator.plausible(site.field);
        operations.push(match generator.rng.random_range(0..100) {
            0..30 if !site.item => json!({"op": "add", "path": at, "value": value}),
            0..30 => json!({"op": "remove", "path": at}),
            30..50 => json!({"op": "replace", "path": at, "value": value}),
            50..65 => json!({"op": "remove", "path": one}),
            65..72 => json!({"op": "test", "path": one, "value": live.pointer(&one)}),
            72..76 => json!({"op": "test", "path": one, "value": "other"}),
            76..82 => json!({"op": "copy", "from": one, "path": at}),
            82..88 => json!({"op": "move", "from": one, "path": at}),
            88..93 => json!({"op": "add", "path": format!("{one}/-"), "value": value}),
            93..96 => json!({"op": "add", "path": "/metadata/labels/l", "value": "v"}),
            96..98 => json!({"op": "nonsense", "path": at}),
            _ => json!({"op": "replace", "path": "/no/such/place", "value": 1}),
        });
    }
    Value::Array(operations)
}

/// A merge patch: what one or two changes come to.
pub fn merge(generator: &mut Generator<'_>, ty: &StructType, live: &Value) -> Value {
    let mut patch = json!({});
    for _ in 0..generator.rng.random_range(1..3) {
        let Some(change) = usual_change(generator, ty, live) else { continue };
        let changed = changes::apply(live, std::slice::from_ref(&change));
        let place = place_of(&change);
        let keys: Vec<&str> = place.iter().map_while(key).collect();
        put(&mut patch, &keys, changed.pointer(&pointer_of(&keys)).cloned().unwrap_or_default());
    }
    patch
}

/// A strategic merge patch: the same by merge keys, and with directives.
pub fn strategic(generator: &mut Generator<'_>, ty: &StructType, live: &Value) -> Value {
    let mut patch = json!({});
    for _ in 0..generator.rng.random_range(1..3) {
        let Some(change) = usual_change(generator, ty, live) else { continue };
        let changed = changes::apply(live, std::slice::from_ref(&change));
        let removes = matches!(change, Change::Remove(_));
        let part = along(generator.schema, ty, live, &changed, place_of(&change), removes);
        overlay(&mut patch, part);
    }
    if generator.percent(35) {
        direct(generator, ty, live, &mut patch);
    }
    patch
}

/// A configuration to apply: a part of the sample, perhaps with other values.
pub fn applied(generator: &mut Generator<'_>, ty: &StructType, sample: &Value) -> Value {
    let mut object = sample.clone();
    for _ in 0..generator.rng.random_range(0..3) {
        let change = usual_change(generator, ty, &object);
        object = changes::apply(&object, change.as_slice());
    }
    let keep = *generator.pick(&[100, 85, 60, 30]);
    let mut thinned = thin(generator, ty, &object, keep, &[]);
    for field in ["apiVersion", "kind"] {
        thinned[field] = sample[field].clone();
    }
    thinned["metadata"]["name"] = sample["metadata"]["name"].clone();
    thinned
}

/// A change to a plausible value: patches are about merging, not about validation.
fn usual_change(generator: &mut Generator<'_>, ty: &StructType, live: &Value) -> Option<Change> {
    let sites = changes::sites(generator.schema, ty, live);
    let usable: Vec<_> =
        sites.iter().filter(|site| !is_identity(&site.place) && key(&site.place[0]) != Some("status")).collect();
    let present: Vec<_> = usable.iter().filter(|site| site.present).collect();
    if usable.is_empty() || present.is_empty() {
        return None;
    }
    if generator.percent(12) {
        let name = *generator.pick(&["l1", "l2", "example.com/l"]);
        let place = ["metadata", *generator.pick(&["labels", "annotations"])].map(|name| Step::Key(name.into()));
        let mut entries = live.pointer(&pointer(&place)).cloned().unwrap_or(json!({}));
        entries[name] = json!(*generator.pick(&["v1", "v2"]));
        return Some(Change::Set(place.into(), entries));
    }
    let roll = generator.rng.random_range(0..100);
    let site = match roll {
        0..35 => **generator.pick(&present),
        35..75 => **generator.pick(&present),
        _ => *generator.pick(&usable),
    };
    Some(match roll {
        0..35 => Change::Remove(site.place.clone()),
        _ => {
            let field = Field { ty: site.ty.clone(), ..site.field.clone() };
            Change::Set(site.place.clone(), generator.plausible(&field))
        }
    })
}

/// The parts of an object that say which it is.
fn is_identity(place: &[Step]) -> bool {
    let names: Vec<&str> = place.iter().filter_map(key).collect();
    matches!(names[..], ["metadata"] | ["metadata", "name" | "namespace" | "generateName" | "uid" | "resourceVersion"])
        || matches!(
            names[..],
            ["metadata", "managedFields" | "finalizers" | "ownerReferences" | "creationTimestamp", ..]
        )
        || matches!(names[..], ["metadata", "deletionTimestamp" | "deletionGracePeriodSeconds" | "generation"])
}

fn key(step: &Step) -> Option<&str> {
    match step {
        Step::Key(key) => Some(key),
        Step::Index(_) => None,
    }
}

fn place_of(change: &Change) -> &Place {
    match change {
        Change::Set(place, _) | Change::Remove(place) | Change::Repeat(place) => place,
    }
}

fn pointer_of(keys: &[&str]) -> String {
    keys.iter().map(|key| format!("/{}", key.replace('~', "~0").replace('/', "~1"))).collect()
}

/// Sets a value below nested objects that are made on the way.
fn put(patch: &mut Value, keys: &[&str], value: Value) {
    let mut at = patch;
    for key in keys {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[*key];
    }
    *at = value;
}

/// Lays a part of a patch over another part.
fn overlay(patch: &mut Value, part: Value) {
    match (patch, part) {
        (Value::Object(map), Value::Object(part)) => {
            for (key, value) in part {
                overlay(map.entry(key).or_insert(Value::Null), value);
            }
        }
        (place, part) => *place = part,
    }
}

/// The strategic patch that makes of `live` what `changed` is at a place.
fn along(schema: &Schema, ty: &StructType, live: &Value, changed: &Value, place: &[Step], removes: bool) -> Value {
    let Some((Step::Key(name), rest)) = place.split_first() else { return changed.clone() };
    let (old, new) = (&live[name], changed.get(name).cloned().unwrap_or_default());
    let Some(field) = ty.field(name) else { return json!({}) };
    let value = match (&field.ty, rest) {
        (_, []) => new,
        (Type::Struct(id), rest) => along(schema, schema.get(*id), old, &new, rest, removes),
        (Type::Map(_), [Step::Key(entry), ..]) => {
            let mut map = Map::new();
            map.insert(entry.clone(), new.get(entry).cloned().unwrap_or_default());
            Value::Object(map)
        }
        (Type::List(item), [Step::Index(index), rest @ ..]) => {
            match (&**item, &field.patch_merge_key, old.get(*index)) {
                (Type::Struct(id), Some(key), Some(before)) => {
                    let mut part = match rest {
                        [] if removes => json!({"$patch": "delete"}),
                        [] => new.get(*index).cloned().unwrap_or(json!({})),
                        rest => along(schema, schema.get(*id), before, &new[*index], rest, removes),
                    };
                    if part.is_object() {
                        part[key] = before[key].clone();
                    }
                    json!([part])
                }
                _ => new,
            }
        }
        _ => new,
    };
    let mut map = Map::new();
    map.insert(name.clone(), value);
    Value::Object(map)
}

/// Adds a directive somewhere.
fn direct(generator: &mut Generator<'_>, ty: &StructType, live: &Value, patch: &mut Value) {
    let sites = changes::sites(generator.schema, ty, live);
    let lists: Vec<_> = sites
        .iter()
        .filter(|site| site.present && !site.item && site.field.patch_strategy.merge && !is_identity(&site.place))
        .filter(|site| site.place.iter().all(|step| key(step).is_some()))
        .collect();
    let spec = ty.field("spec").is_some();
    match generator.rng.random_range(0..5) {
        0 if spec => put(patch, &["spec", "$patch"], json!("replace")),
        1 => put(patch, &["metadata", "labels", "$patch"], json!(*generator.pick(&["replace", "delete"]))),
        2 => put(patch, &["metadata", "$deleteFromPrimitiveList/finalizers"], json!(["example.com/f"])),
        _ if lists.is_empty() && spec => put(patch, &["spec", "$retainKeys"], json!(["replicas"])),
        _ if lists.is_empty() => {}
        roll => {
            let site = *generator.pick(&lists);
            let keys: Vec<&str> = site.place.iter().filter_map(key).collect();
            let items = live.pointer(&pointer(&site.place)).and_then(Value::as_array).cloned().unwrap_or_default();
            let Some((last, parents)) = keys.split_last() else { return };
            if roll == 3 {
                let mut replaced: Vec<Value> = items.into_iter().take(1).collect();
                replaced.push(json!({"$patch": "replace"}));
                put(patch, &keys, Value::Array(replaced));
                return;
            }
            let order: Vec<Value> = match &site.field.patch_merge_key {
                Some(merge) => items.iter().rev().map(|item| json!({merge: item[merge]})).collect(),
                None => items.into_iter().rev().collect(),
            };
            let name = format!("$setElementOrder/{last}");
            let mut path = parents.to_vec();
            path.push(&name);
            put(patch, &path, Value::Array(order));
        }
    }
}

/// Leaves out some fields, but none by which list items are told apart.
fn thin(generator: &mut Generator<'_>, ty: &StructType, value: &Value, keep: u32, keys: &[String]) -> Value {
    let Some(map) = value.as_object() else { return value.clone() };
    let mut kept = Map::new();
    for (name, value) in map {
        let Some(field) = ty.field(name) else { continue };
        if !field.required && !keys.contains(name) && name != "name" && !generator.percent(keep) {
            continue;
        }
        let schema = generator.schema;
        let thinned = match (&field.ty, value) {
            (Type::Struct(id), _) => thin(generator, schema.get(*id), value, keep.max(60), &[]),
            (Type::List(item), Value::Array(items)) => match (&**item, &field.list) {
                (Type::Struct(id), pintle_machinery::schema::ListKind::Map(keys)) => {
                    let ty = schema.get(*id);
                    Value::Array(items.iter().map(|item| thin(generator, ty, item, keep.max(60), keys)).collect())
                }
                _ => value.clone(),
            },
            _ => value.clone(),
        };
        kept.insert(name.clone(), thinned);
    }
    Value::Object(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    fn deployment() -> (&'static StructType, Value) {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "labels": {"x": "y"}},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        (pintle_api::schema().kind("apps", "v1", "Deployment").unwrap(), object)
    }

    #[test]
    fn a_change_in_a_list_is_found_by_its_merge_key() {
        let (ty, live) = deployment();
        let place: Place = ["spec", "template", "spec", "containers"].map(|name| Step::Key(name.into())).into();
        let place = [place, vec![Step::Index(0), Step::Key("image".into())]].concat();
        let changed = changes::apply(&live, &[Change::Set(place.clone(), json!("j"))]);
        let patch = along(pintle_api::schema(), ty, &live, &changed, &place, false);
        assert_eq!(patch, json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}}));
    }

    #[test]
    fn bodies_are_of_their_type() {
        let (ty, live) = deployment();
        let mut rng = StdRng::seed_from_u64(3);
        let mut generator = Generator { schema: pintle_api::schema(), rng: &mut rng };
        for _ in 0..100 {
            assert!(json_patch(&mut generator, ty, &live).is_array());
            assert!(merge(&mut generator, ty, &live).is_object());
            assert!(strategic(&mut generator, ty, &live).is_object());
            let applied = applied(&mut generator, ty, &live);
            assert_eq!((&applied["kind"], &applied["metadata"]["name"]), (&json!("Deployment"), &json!("a")));
        }
    }
}
