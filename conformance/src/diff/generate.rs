//! Random values out of the schema: plausible ones, and bad ones of every sort.

use pintle_machinery::schema::{Field, Schema, StructType, Type};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Map, Value, json};

/// How deep generated structs go.
const DEPTH: usize = 4;

/// Texts that fit fields of such names; the first ending that fits counts.
const TEXTS: &[(&str, &[&str])] = &[
    ("Path", &["/a/b", "a/b", "x"]),
    ("path", &["/a/b", "x", "a/../b"]),
    ("podIP", &["10.1.2.3"]),
    ("IP", &["10.1.2.3", "2001:db8::1"]),
    ("ip", &["10.1.2.3", "2001:db8::1"]),
    ("IPs", &["192.0.2.10", "10.1.2.3"]),
    ("cidr", &["10.0.0.0/8", "2001:db8::/64"]),
    ("CIDR", &["10.4.0.0/24"]),
    ("cidrs", &["10.200.0.0/24"]),
    ("key", &["key", "example.com/key", "zone"]),
    ("operator", &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Equal"]),
    ("namespace", &["default", "other"]),
    ("apiVersion", &["v1", "apps/v1"]),
    ("apiGroup", &["", "apps", "rbac.authorization.k8s.io"]),
    ("kind", &["ConfigMap", "Deployment", "User"]),
    ("type", &["Ready", "Resource", "RollingUpdate"]),
    ("uid", &["6d4c8a1e-0000-4000-8000-000000000002"]),
    ("host", &["a.example.com", "host"]),
    ("server", &["nfs.example.com"]),
    ("url", &["https://a.example.com/x"]),
    ("driver", &["d.example.com"]),
    ("topologyKey", &["zone", "kubernetes.io/hostname"]),
    ("schedule", &["0 0 * * *", "@daily"]),
    ("expression", &["true", "object.metadata.name == 'x'"]),
    ("resource", &["limits.cpu", "pods"]),
    ("fieldPath", &["metadata.name", "status.podIP"]),
    ("containerName", &["c", "main"]),
    ("verbs", &["get", "list", "*"]),
    ("protocol", &["TCP", "UDP"]),
    ("status", &["True", "False"]),
    ("Name", &["sample", "other-name"]),
    ("name", &["sample", "c", "other-name"]),
];

/// Generates values of one schema.
pub struct Generator<'a> {
    /// The schema.
    pub schema: &'a Schema,
    /// Chance.
    pub rng: &'a mut StdRng,
}

impl Generator<'_> {
    /// One of several.
    pub fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        of.choose(self.rng).unwrap_or(&of[0])
    }

    /// Happens so often of a hundred times.
    pub fn percent(&mut self, chance: u32) -> bool {
        self.rng.random_range(0..100) < chance
    }

    /// A value that a client might well send.
    pub fn plausible(&mut self, field: &Field) -> Value {
        self.of_type(&field.ty, field, 0)
    }

    fn of_type(&mut self, ty: &Type, field: &Field, depth: usize) -> Value {
        match ty {
            Type::Bool => json!(self.percent(50)),
            Type::Int32 | Type::Int64 => json!(self.pick(&[0, 1, 2, 3, 5, 10, 30, 80, 100, 600, 8080])),
            Type::Double => json!(1.5),
            Type::String => self.word(field),
            Type::Bytes => json!("YWJj"),
            Type::Time => json!("2020-01-02T03:04:05Z"),
            Type::MicroTime => json!("2020-01-02T03:04:05.000006Z"),
            Type::Duration => json!("1m0s"),
            Type::Quantity => json!(self.pick(&["1", "500m", "1Gi", "2", "100Mi"])),
            Type::IntOrString => self.pick(&[json!(80), json!(1), json!("http"), json!("50%")]).clone(),
            Type::Any | Type::Free | Type::FieldsV1 => json!({"a": 1}),
            Type::List(item) | Type::Wrapped(item) => {
                let many = self.pick(&[1, 1, 1, 2]);
                Value::Array((0..*many).map(|_| self.of_type(item, field, depth + 1)).collect())
            }
            Type::Map(item) => {
                let key = *self.pick(&["a", "cpu", "memory", "example.com/k"]);
                let mut map = Map::new();
                map.insert(key.to_owned(), self.of_type(item, field, depth + 1));
                Value::Object(map)
            }
            Type::Struct(id) => self.structure(self.schema.get(*id), depth + 1),
            Type::Union(_) => json!(true),
        }
    }

    fn structure(&mut self, ty: &StructType, depth: usize) -> Value {
        let mut map = Map::new();
        for field in &ty.fields {
            let chance = if field.required { 97 } else { [45, 30, 20, 10, 0][depth.min(DEPTH)] };
            if field.json != "managedFields" && self.percent(chance) && depth <= DEPTH + 2 {
                map.insert(field.json.clone(), self.of_type(&field.ty, field, depth));
            }
        }
        Value::Object(map)
    }

    fn word(&mut self, field: &Field) -> Value {
        if !field.enum_values.is_empty() {
            return json!(self.pick(&field.enum_values).clone());
        }
        let fitting = TEXTS.iter().find(|(end, _)| field.json.ends_with(end));
        let words = fitting.map_or(&["text", "sample", "a.b"][..], |(_, words)| words);
        json!(self.pick(words))
    }

    /// A value that should not be there.
    pub fn bad(&mut self, field: &Field) -> Value {
        if self.percent(6) {
            return self.pick(&[json!(null), json!({}), json!([]), json!("text"), json!(7), json!(true)]).clone();
        }
        self.bad_of(&field.ty, field)
    }

    fn bad_of(&mut self, ty: &Type, field: &Field) -> Value {
        let long = || json!("x".repeat(260));
        let choices: Vec<Value> = match ty {
            Type::Bool => vec![json!("true"), json!(null), json!(1)],
            Type::Int32 | Type::Int64 => {
                let far = [json!(-1), json!(0), json!(65_536), json!(i32::MAX), json!(-100), json!(70_000)];
                let wrong = [json!(1_u64 << 31), json!(1.5), json!("7"), json!(u64::MAX)];
                if self.percent(80) { far.to_vec() } else { wrong.to_vec() }
            }
            Type::String => {
                let mut texts = vec![json!(""), json!("Bad_Name"), json!("-x"), json!("a b"), json!("a/b/c"), long()];
                texts.extend([json!("ümlaut"), json!("x.y."), json!("UPPER"), json!("a..b")]);
                if !field.enum_values.is_empty() {
                    texts = vec![json!(""), json!("Nonsense"), json!(field.enum_values[0].to_lowercase())];
                }
                texts
            }
            Type::Bytes => vec![json!("%%%"), json!(""), json!("YQ")],
            Type::Time | Type::MicroTime => vec![json!("yesterday"), json!("2020-01-02"), json!(1)],
            Type::Duration => vec![json!("1 minute"), json!("")],
            Type::Double => vec![json!("x"), json!(-1)],
            Type::Quantity => {
                vec![json!("-1"), json!("1x"), json!(""), json!("0"), json!("1.5Gi"), json!(3), json!("-5Mi")]
            }
            Type::IntOrString => {
                vec![json!(-1), json!("150%"), json!("-5%"), json!("no_name"), json!(0), json!("x%"), json!(70_000)]
            }
            Type::Any | Type::Free | Type::FieldsV1 => vec![json!("text"), json!([1]), json!(null)],
            Type::List(item) | Type::Wrapped(item) => {
                let one = self.bad_of(item, field);
                vec![json!([]), json!([one]), json!({}), json!([null])]
            }
            Type::Map(item) => {
                let mut map = Map::new();
                let key = *self.pick(&["", "Bad Key", "a/b/c", "-x", "ok"]);
                map.insert(key.to_owned(), self.bad_of(item, field));
                vec![Value::Object(map), json!({}), json!([])]
            }
            Type::Struct(_) | Type::Union(_) => vec![json!({}), json!({}), json!(null), json!("text")],
        };
        self.pick(&choices).clone()
    }
}
