//! What is written is read again as the same, and bytes of any kind are read without a panic. What upstream says of which bytes
//! is tested with the built-in kinds, in `lib/api`.

use serde_json::json;

use super::*;
use crate::schema::{Schema, text};

const TABLE: &str = "package apps.v1 io.k8s.api.apps.v1 go=v1 serves=apps/v1\n\
    type Thing kind\n  apiVersion 9 string\n  kind 0 string omitempty\n  spec 2 Spec omitempty\n  made 3 time omitempty\n\
    type Spec\n  replicas 3 *int32 omitempty\n  amounts 2 map[string]quantity\n  items 5 []Spec\n  names 6 []string\n\
    \x20 either 7 intorstring\n  any 8 object\n  data 10 bytes\n  big 11 int64\n  ratio 12 double\n  on 13 bool\n";

fn schema() -> Schema {
    text::parse(&[("apps", TABLE)]).unwrap()
}

/// Numbers without end, the same for the same start.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn free(&mut self, depth: u64) -> Value {
        match self.next(if depth == 0 { 6 } else { 8 }) {
            0 => json!(null),
            1 => json!(self.next(2) == 0),
            2 => json!(self.next(1 << 31) << self.next(33)),
            3 => json!(-1 - (self.next(1 << 30) as i64)),
            4 => json!(self.next(1000) as f64 + 0.5),
            5 => json!("ü".repeat(self.next(40) as usize)),
            6 => (0..self.next(4)).map(|_| self.free(depth - 1)).collect(),
            _ => Value::Object((0..self.next(30)).map(|at| (format!("k{at}"), self.free(depth - 1))).collect()),
        }
    }

    fn spec(&mut self, depth: u64) -> Value {
        let mut spec = json!({"amounts": {"cpu": "1500m"}, "either": "http", "items": [], "names": ["a", ""], "data": "aP8=",
                              "big": i64::MIN, "ratio": 1.5, "on": true, "replicas": -3});
        spec["any"] = json!({"free": self.free(3)});
        if self.next(2) == 0 {
            spec["either"] = json!(self.next(70_000));
        }
        if depth > 0 {
            spec["items"] = (0..self.next(3)).map(|_| self.spec(depth - 1)).collect();
        }
        spec
    }
}

#[test]
fn what_is_written_is_read_as_the_same() {
    let schema = schema();
    let ty = schema.kind("apps", "v1", "Thing").unwrap();
    let mut random = Random(1);
    for _ in 0..100 {
        let free = random.free(4);
        assert_eq!(parse(&encode(&schema, None, &free)).unwrap(), free);
        let thing =
            json!({"apiVersion": "apps/v1", "kind": "Thing", "made": "2026-11-30T20:00:00Z", "spec": random.spec(2)});
        let bytes = encode(&schema, Some(ty), &thing);
        let expected = crate::codec::json::decode(&schema, ty, thing.to_string().as_bytes()).unwrap();
        let decoded = decode(&schema, ty, &bytes).unwrap();
        assert_eq!(decoded.value, expected.value);
        assert!(decoded.strict_errors.is_empty());
        assert_eq!(type_meta(&bytes).unwrap(), TypeMeta { api_version: "apps/v1".into(), kind: "Thing".into() });
        assert!(bytes.windows(4).any(|part| part == [0xd6, 0x42, 0x68, 0xff]), "bytes travel as they are");
    }
}

#[test]
fn broken_bytes_are_refused_and_none_panic() {
    let schema = schema();
    let ty = schema.kind("apps", "v1", "Thing").unwrap();
    let mut random = Random(2);
    let thing = json!({"apiVersion": "apps/v1", "kind": "Thing", "spec": random.spec(2)});
    let whole = encode(&schema, Some(ty), &thing);
    for end in 0..whole.len() {
        assert!(decode(&schema, ty, &whole[..end]).is_err());
    }
    for _ in 0..2_000 {
        let mut bytes = whole.clone();
        for _ in 0..=random.next(3) {
            let at = random.next(bytes.len() as u64) as usize;
            bytes[at] = random.next(256) as u8;
        }
        let _ = (decode(&schema, ty, &bytes), parse(&bytes), type_meta(&bytes));
    }
}

#[test]
fn bombs_are_refused_at_once() {
    for (bytes, fault) in [
        (vec![0x81; 3_000_000], "cbor: exceeded max nested level 400"),
        (vec![0xc1; 3_000_000], "cbor: exceeded max nested level 400"),
        (vec![0x9f; 3_000_000], "cbor: exceeded max nested level 400"),
        (vec![0x9a, 0x7f, 0xff, 0xff, 0xff, 0], "unexpected EOF"),
        (vec![0xba, 0x00, 0x1f, 0xff, 0xff, 0x41, 0x61, 0], "unexpected EOF"),
        (vec![0x5b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0], "unexpected EOF"),
        (vec![0x5f, 0x9f, 0xff], "cbor: wrong element type array for indefinite-length byte string"),
        (vec![0x5f, 0x5f, 0xff, 0xff], "cbor: wrong element type byte string for indefinite-length byte string"),
    ] {
        assert_eq!(parse(&bytes).unwrap_err().to_string(), fault);
    }
}

#[test]
fn items_without_a_type() {
    for (bytes, value) in [
        (&[0xf9, 0x3c, 0x00][..], json!(1.0)),
        (&[0xf9, 0x00, 0x01], json!(2f64.powi(-24))),
        (&[0xf9, 0xc0, 0x00], json!(-2.0)),
        (&[0xfa, 0x3f, 0x80, 0, 0], json!(1.0)),
        (&[0x3b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], json!(i64::MIN)),
        (&[0xd5, 0x42, 0xff, 0xff], json!("__8")),
        (&[0xd6, 0x42, 0xff, 0xff], json!("//8=")),
        (&[0xd7, 0x42, 0xff, 0x01], json!("ff01")),
        (&[0xbf, 0x41, 0x61, 0x5f, 0x41, 0x62, 0x41, 0x63, 0xff, 0xff], json!({"a": "bc"})),
        (&[0x9f, 0xf4, 0xf6, 0xff], json!([false, null])),
    ] {
        assert_eq!(parse(bytes).unwrap(), value, "{bytes:02x?}");
    }
}
