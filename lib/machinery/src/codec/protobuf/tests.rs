//! The wire form, by hand. The golden files of all kinds are compared in `pintle-api`.

use serde_json::json;

use super::*;
use crate::schema::text;

const TABLE: &str = "package a.v1 io.a go=v1 serves=a/v1\n\
    type Thing kind\n  name 1 string omitempty\n  count 2 int32\n  size 3 *int32\n  labels 4 map[string]string\n  either 5 *intorstring\n\
    \x20 any 6 *object\n  extra 7 map[string]Extra\n  + 8 Inner\n\
    type Inner\n  on 1 bool omitempty\n\
    alias Extra []string wrapped\n";

#[test]
fn writes_and_reads() {
    let schema = text::parse(&[("a", TABLE)]).unwrap();
    let ty = schema.kind("a", "v1", "Thing").unwrap();
    let value = json!({"count": -1, "labels": {"b": "2", "a": "1"}, "either": "x", "any": {"k": 1}, "extra": {"e": ["f"]}, "on": true});
    let bytes = encode_message(&schema, ty, &value).unwrap();
    let mut wanted = b"\x0a\x00\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01".to_vec();
    wanted.extend(b"\x22\x06\x0a\x01a\x12\x011\x22\x06\x0a\x01b\x12\x012");
    wanted.extend(b"\x2a\x07\x08\x01\x10\x00\x1a\x01x");
    wanted.extend(b"\x32\x09\x0a\x07{\"k\":1}");
    wanted.extend(b"\x3a\x08\x0a\x01e\x12\x03\x0a\x01f");
    wanted.extend(b"\x42\x02\x08\x01");
    assert_eq!(bytes, wanted);
    assert_eq!(decode_message(&schema, ty, &bytes).unwrap(), value);
}

#[test]
fn envelopes_the_kind() {
    let schema = text::parse(&[("a", TABLE)]).unwrap();
    let value = json!({"apiVersion": "a/v1", "kind": "Thing", "count": 1});
    let bytes = encode(&schema, &value).unwrap();
    assert_eq!(bytes[..4], MAGIC);
    assert_eq!(decode(&schema, &bytes).unwrap().value, value);
    let unknown = json!({"apiVersion": "a/v1", "kind": "Other"});
    assert!(matches!(encode(&schema, &unknown), Err(EncodeError::UnknownKind { .. })));
}

#[test]
fn broken_bytes_are_errors() {
    let schema = text::parse(&[("a", TABLE)]).unwrap();
    let ty = schema.kind("a", "v1", "Thing").unwrap();
    for bytes in [&b"\x0a\x05a"[..], b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\x0c", b"\x00\x01", b"\x0a\x01"]
    {
        assert!(decode_message(&schema, ty, bytes).is_err(), "{bytes:?}");
    }
    assert!(decode(&schema, b"{}").is_err());
    assert_eq!(decode_message(&schema, ty, b"\xa0\x06\x01").unwrap(), json!({}), "unknown numbers are passed over");
}
