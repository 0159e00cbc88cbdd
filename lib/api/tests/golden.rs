//! Round trips of objects through the codecs by the built-in schema. Upstream's own samples of every kind are checked by
//! `pintle conformance golden`.

#![allow(clippy::unwrap_used)]

use pintle_api::schema;
use pintle_machinery::{
    codec::{TypeMeta, protobuf},
    normalize::normalize,
    schema::Value,
};

#[test]
fn protobuf_round_trip_of_an_empty_object() {
    let value: Value = serde_json::json!({"apiVersion": "v1", "kind": "Pod"});
    let bytes = protobuf::encode(schema(), &value).unwrap();
    let envelope = protobuf::envelope(&bytes).unwrap();
    assert_eq!(envelope.type_meta, TypeMeta { api_version: "v1".into(), kind: "Pod".into() });
    let ty = schema().kind("", "v1", "Pod").unwrap();
    let mut decoded = protobuf::decode(schema(), &bytes).unwrap().value;
    let mut normal = value;
    normalize(schema(), ty, &mut decoded);
    normalize(schema(), ty, &mut normal);
    assert_eq!(decoded, normal);
}
