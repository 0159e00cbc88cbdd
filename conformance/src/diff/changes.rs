//! Changes of an object, as data: they can be left out one by one when a difference is made small.

use pintle_machinery::schema::{Field, ListKind, Schema, StructType, Type};
use rand::Rng;
use serde_json::{Value, json};

use super::generate::Generator;

/// A step into an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A field or a map's entry.
    Key(String),
    /// An item of a list.
    Index(usize),
}

/// Where something is.
pub type Place = Vec<Step>;

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Sets what is at a place.
    Set(Place, Value),
    /// Removes what is there.
    Remove(Place),
    /// Repeats an item of a list at the list's end.
    Repeat(Place),
}

/// The place as a JSON pointer.
pub fn pointer(place: &[Step]) -> String {
    let mut text = String::new();
    for step in place {
        match step {
            Step::Key(key) => text.push_str(&format!("/{}", key.replace('~', "~0").replace('/', "~1"))),
            Step::Index(index) => text.push_str(&format!("/{index}")),
        }
    }
    text
}

/// Applies changes; those whose place is gone do nothing.
pub fn apply(object: &Value, changes: &[Change]) -> Value {
    let mut object = object.clone();
    for change in changes {
        match change {
            Change::Set(place, value) => set(&mut object, place, value.clone()),
            Change::Remove(place) => remove(&mut object, place),
            Change::Repeat(place) => repeat(&mut object, place),
        }
    }
    object
}

fn split(place: &[Step]) -> Option<(String, &Step)> {
    let (last, parents) = place.split_last()?;
    Some((pointer(parents), last))
}

fn set(object: &mut Value, place: &[Step], value: Value) {
    let Some((parent, last)) = split(place) else { return };
    match (object.pointer_mut(&parent), last) {
        (Some(Value::Object(map)), Step::Key(key)) => drop(map.insert(key.clone(), value)),
        (Some(Value::Array(items)), Step::Index(index)) if *index < items.len() => items[*index] = value,
        _ => {}
    }
}

fn remove(object: &mut Value, place: &[Step]) {
    let Some((parent, last)) = split(place) else { return };
    match (object.pointer_mut(&parent), last) {
        (Some(Value::Object(map)), Step::Key(key)) => drop(map.remove(key)),
        (Some(Value::Array(items)), Step::Index(index)) if *index < items.len() => drop(items.remove(*index)),
        _ => {}
    }
}

fn repeat(object: &mut Value, place: &[Step]) {
    let Some((parent, Step::Index(index))) = split(place) else { return };
    if let Some(Value::Array(items)) = object.pointer_mut(&parent)
        && let Some(item) = items.get(*index).cloned()
    {
        items.push(item);
    }
}

/// Something in an object that can be changed.
#[derive(Clone)]
pub struct Site<'a> {
    /// Where.
    pub place: Place,
    /// The field that it is, or that it is an item of.
    pub field: &'a Field,
    /// Its own type.
    pub ty: &'a Type,
    /// It is there already; else it could be added.
    pub present: bool,
    /// It is an item of a list or an entry of a map.
    pub item: bool,
}

/// Fields that are none of a client's business; changing them says little.
const LEFT_ALONE: [&str; 4] = ["managedFields", "selfLink", "apiVersion", "kind"];

/// All sites of an object of a type.
pub fn sites<'a>(schema: &'a Schema, ty: &'a StructType, object: &Value) -> Vec<Site<'a>> {
    let mut found = Vec::new();
    of_struct(schema, ty, object, &mut Vec::new(), &mut found);
    found
}

fn of_struct<'a>(schema: &'a Schema, ty: &'a StructType, object: &Value, place: &mut Place, found: &mut Vec<Site<'a>>) {
    let Some(map) = object.as_object() else { return };
    for field in &ty.fields {
        if LEFT_ALONE.contains(&field.json.as_str()) && place.len() < 2 {
            continue;
        }
        place.push(Step::Key(field.json.clone()));
        let value = map.get(&field.json);
        found.push(Site { place: place.clone(), field, ty: &field.ty, present: value.is_some(), item: false });
        if let Some(value) = value {
            below(schema, field, &field.ty, value, place, found);
        }
        place.pop();
    }
}

fn below<'a>(
    schema: &'a Schema,
    field: &'a Field,
    ty: &'a Type,
    value: &Value,
    place: &mut Place,
    found: &mut Vec<Site<'a>>,
) {
    match (ty, value) {
        (Type::Struct(id), value) => of_struct(schema, schema.get(*id), value, place, found),
        (Type::List(item) | Type::Wrapped(item), Value::Array(items)) => {
            for (index, value) in items.iter().enumerate() {
                place.push(Step::Index(index));
                found.push(Site { place: place.clone(), field, ty: item, present: true, item: true });
                below(schema, field, item, value, place, found);
                place.pop();
            }
        }
        (Type::Map(item), Value::Object(entries)) => {
            for (key, value) in entries {
                place.push(Step::Key(key.clone()));
                found.push(Site { place: place.clone(), field, ty: item, present: true, item: true });
                below(schema, field, item, value, place, found);
                place.pop();
            }
        }
        _ => {}
    }
}

/// One random change of an object.
pub fn random(generator: &mut Generator<'_>, ty: &StructType, object: &Value) -> Option<Change> {
    let sites = sites(generator.schema, ty, object);
    let present: Vec<&Site<'_>> = sites.iter().filter(|site| site.present).collect();
    let absent: Vec<&Site<'_>> = sites.iter().filter(|site| !site.present).collect();
    let roll = generator.rng.random_range(0..100);
    if roll < 22 && !absent.is_empty() {
        let site = *generator.pick(&absent);
        return Some(Change::Set(site.place.clone(), generator.plausible(site.field)));
    }
    if roll < 28 && !absent.is_empty() {
        let site = *generator.pick(&absent);
        return Some(Change::Set(site.place.clone(), generator.bad(site.field)));
    }
    if present.is_empty() {
        return None;
    }
    let site = *generator.pick(&present);
    Some(match roll {
        28..45 => Change::Remove(site.place.clone()),
        45..50 if site.item && matches!(site.place.last(), Some(Step::Index(_))) => Change::Repeat(site.place.clone()),
        50..53 => {
            let mut place = site.place.clone();
            place.pop();
            place.push(Step::Key("unheardOf".into()));
            Change::Set(place, json!({"a": 1}))
        }
        53..70 => Change::Set(site.place.clone(), generator.plausible(&item_field(site))),
        _ => Change::Set(site.place.clone(), generator.bad(&item_field(site))),
    })
}

/// The field that a site is; an item of a list counts as a field of the item's type.
fn item_field(site: &Site<'_>) -> Field {
    match site.item {
        true => Field { ty: site.ty.clone(), list: ListKind::Atomic, ..site.field.clone() },
        false => site.field.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    fn pod() -> (&'static StructType, Value) {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": "y"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        (pintle_api::schema().kind("", "v1", "Pod").unwrap(), object)
    }

    #[test]
    fn sites_are_the_objects_places_and_what_could_be_there() {
        let (ty, object) = pod();
        let sites = sites(pintle_api::schema(), ty, &object);
        let has =
            |at: &str, present: bool| sites.iter().any(|site| pointer(&site.place) == at && site.present == present);
        assert!(has("/spec/containers/0/image", true));
        assert!(has("/metadata/labels/x", true));
        assert!(has("/spec/containers/0/livenessProbe", false));
        assert!(!has("/metadata/managedFields", false));
    }

    #[test]
    fn changes_change() {
        let (_, object) = pod();
        let image: Place = [Step::Key("spec".into()), Step::Key("containers".into()), Step::Index(0)].into();
        let changed = apply(&object, &[Change::Repeat(image.clone()), Change::Remove(image)]);
        assert_eq!(changed, object);
    }

    #[test]
    fn the_same_seed_gives_the_same_changes() {
        let (ty, object) = pod();
        let run = || {
            let mut rng = StdRng::seed_from_u64(7);
            let mut generator = Generator { schema: pintle_api::schema(), rng: &mut rng };
            (0..50).map(|_| random(&mut generator, ty, &object)).collect::<Vec<_>>()
        };
        assert_eq!(run(), run());
    }
}
