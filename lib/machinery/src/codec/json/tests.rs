//! Messages and values as the real API server v1.37 gives them.

use serde_json::json;

use super::*;
use crate::{
    codec::Decoded,
    schema::{Schema, text},
};

const TABLE: &str = "package apps.v1 io.k8s.api.apps.v1 go=v1 serves=apps/v1\n\
    alias Policy string\n\
    alias Amounts map[Policy]quantity\n\
    type Thing kind\n  kind 0 string omitempty\n  spec 2 Spec omitempty\n  made 3 time omitempty\n\
    type Spec\n  replicas 3 *int32 omitempty\n  policy 1 Policy omitempty\n  amounts 2 Amounts\n  + 4 Inner\n\
    \x20 items 5 []Spec\n  names 6 []string\n  either 7 intorstring\n  any 8 object\n  labels 9 map[string]string\n  data 10 bytes\n\
    \x20 big 11 int64\n  ratio 12 double\n\
    type Inner\n  deep 1 *Spec\n";

fn schema() -> Schema {
    text::parse(&[("apps", TABLE)]).unwrap()
}

fn read(text: &str) -> Result<Decoded, DecodeError> {
    let schema = schema();
    decode(&schema, schema.kind("apps", "v1", "Thing").unwrap(), text.as_bytes())
}

#[test]
fn what_a_patch_touched_is_sorted() {
    let schema = schema();
    let ty = schema.kind("apps", "v1", "Thing").unwrap();
    let spec = |policy: &str| json!({"replicas": 1, "policy": policy});
    let old = json!({"spec": {"replicas": 1, "policy": "a", "items": [spec("x"), spec("y")]}});
    let new = json!({"made": "m", "spec": {"replicas": 2, "policy": "a", "items": [spec("x"), spec("z")]}});
    let mut out = Vec::new();
    Patched { schema: &schema, ty, old: &old, moves: &[] }.encode(&new, &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"made":"m","spec":{"items":[{"replicas":1,"policy":"x"},{"policy":"z","replicas":1}],"policy":"a","replicas":2}}"#
    );
    let mut out = Vec::new();
    let new = json!({"spec": old["spec"], "kind": "K"});
    Patched { schema: &schema, ty, old: &old, moves: &[] }.encode(&new, &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"kind":"K","spec":{"replicas":1,"policy":"a","items":[{"replicas":1,"policy":"x"},{"replicas":1,"policy":"y"}]}}"#
    );
}

#[test]
fn what_a_patch_moved_stands_as_it_stood() {
    let schema = schema();
    let ty = schema.kind("apps", "v1", "Thing").unwrap();
    let old = json!({"spec": {"items": [{"policy": "a", "replicas": 1}], "policy": "b", "replicas": 2}});
    let moved = old["spec"]["items"][0].clone();
    let new = json!({"spec": {"items": [], "labels": moved, "policy": "b", "replicas": 2}});
    let mut out = Vec::new();
    let moves = [("/spec/items/0".to_owned(), "/spec/labels".to_owned())];
    Patched { schema: &schema, ty, old: &old, moves: &moves }.encode(&new, &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"spec":{"items":[],"labels":{"replicas":1,"policy":"a"},"policy":"b","replicas":2}}"#
    );
}

#[test]
fn bytes_may_be_a_list() {
    assert_eq!(read(r#"{"spec":{"data":[1,null,2]}}"#).unwrap().value["spec"]["data"], "AQAC");
}

#[test]
fn what_a_type_reads_itself_is_told_first() {
    for (text, wanted) in [
        (r#"{"spec":[],"made":1}"#, "json: cannot unmarshal number into Go struct field Thing.made of type string"),
        (
            r#"{"spec":{"replicas":"x","amounts":{"a":""},"either":true}}"#,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ] {
        assert_eq!(read(text).unwrap_err(), DecodeError::Type(wanted.to_owned()), "{text}");
    }
}

#[test]
fn wrong_types() {
    for (text, wanted) in [
        (r#"[]"#, "array into Go value of type v1.Thing"),
        (r#"{"spec":[]}"#, "array into Go struct field Thing.spec of type v1.Spec"),
        (r#"{"spec":{"replicas":"x","foo":1}}"#, "string into Go struct field Spec.spec.replicas of type int32"),
        (r#"{"spec":{"replicas":1.5}}"#, "number 1.5 into Go struct field Spec.spec.replicas of type int32"),
        (
            r#"{"spec":{"replicas":99999999999}}"#,
            "number 99999999999 into Go struct field Spec.spec.replicas of type int32",
        ),
        (r#"{"spec":{"policy":5}}"#, "number into Go struct field Spec.spec.policy of type v1.Policy"),
        (r#"{"spec":{"items":[{"items":{}}]}}"#, "object into Go struct field Spec.spec.items.items of type []v1.Spec"),
        (r#"{"spec":{"items":[1]}}"#, "number into Go struct field Spec.spec.items of type v1.Spec"),
        (r#"{"spec":{"deep":5}}"#, "number into Go struct field Spec.spec.Inner.deep of type v1.Spec"),
        (r#"{"spec":{"amounts":[]}}"#, "array into Go struct field Spec.spec.amounts of type v1.Amounts"),
        (r#"{"spec":{"labels":{"a":1}}}"#, "number into Go struct field Spec.spec.labels of type string"),
        (r#"{"spec":{"either":true}}"#, "bool into Go struct field Spec.spec.either of type int32"),
        (r#"{"made":1}"#, "number into Go struct field Thing.made of type string"),
        (r#"{"spec":{"data":["x"]}}"#, "string into Go struct field Spec.spec.data of type uint8"),
        (r#"{"spec":{"data":[300]}}"#, "number 300 into Go struct field Spec.spec.data of type uint8"),
    ] {
        let error = read(text).unwrap_err();
        assert_eq!(error, DecodeError::Type(format!("json: cannot unmarshal {wanted}")), "{text}");
    }
}

#[test]
fn syntax_errors() {
    for (text, wanted) in [
        (r#"{"spec":{"replicas":1,}}"#, "invalid character '}' looking for beginning of object key string"),
        (r#"{"spec":{"replicas":1"#, "unexpected end of JSON input"),
        (r#"{"spec":{"replicas":01}}"#, "invalid character '1' after object key:value pair"),
        (r#"{"spec":{"replicas":nul}}"#, "invalid character '}' in literal null (expecting 'l')"),
        (r#"{"spec":{}} x"#, "invalid character 'x' after top-level value"),
        (r#"{"spec":"a\qb"}"#, "invalid character 'q' in string escape code"),
        ("", "unexpected end of JSON input"),
        (r#"{"spec":[1,]}"#, "invalid character ']' looking for beginning of value"),
        (r#"{"spec":1.}"#, "invalid character '}' after decimal point in numeric literal"),
        (r#"{"spec" 1}"#, "invalid character '1' after object key"),
        (r#"{"foo":[1 2]}"#, "invalid character '2' after array element"),
        (r#"{"spec":"x","#, "unexpected end of JSON input"),
    ] {
        assert_eq!(read(text).unwrap_err(), DecodeError::Syntax(wanted.to_owned()), "{text}");
    }
    let deep = "[".repeat(100_000);
    for text in [deep.clone(), format!(r#"{{"spec":{{"any":{deep}"#)] {
        assert_eq!(read(&text).unwrap_err(), DecodeError::Syntax("exceeded max depth".to_owned()));
    }
}

#[test]
fn strict_errors() {
    let text = r#"{"spec":{"replicas":1,"replicas":2,"Replicas":3,"items":[{"foo":{"a":1,"a":2}}],"labels":{"a":"1","a":"2"}},"x":1,
        "spec":{"policy":"p"}}"#;
    let decoded = read(text).unwrap();
    let wanted = [
        r#"duplicate field "spec.replicas""#,
        r#"unknown field "spec.Replicas""#,
        r#"unknown field "spec.items[0].foo""#,
        r#"duplicate field "spec.labels.a""#,
        r#"unknown field "x""#,
        r#"duplicate field "spec""#,
    ];
    assert_eq!(decoded.strict_errors, wanted);
    assert_eq!(decoded.value, json!({"spec": {"replicas": 2, "items": [{}], "labels": {"a": "2"}, "policy": "p"}}));
}

#[test]
fn values() {
    let text = r#"{"kind":"Thing","made":"2020-01-01T01:00:00+01:00","spec":{"replicas":null,"amounts":{"cpu":"1000m","mem":5},
        "names":["a\u00e9\ud83d\ude00",null],"any":{"b":[1,2.5,null]},"data":"AQI=","big":9007199254740993,"ratio":2.0}}"#;
    let wanted = json!({"kind": "Thing", "made": "2020-01-01T00:00:00Z", "spec": {"amounts": {"cpu": "1", "mem": "5"},
        "names": ["aé😀", ""], "any": {"b": [1, 2.5, null]}, "data": "AQI=", "big": 9007199254740993_i64, "ratio": 2}});
    assert_eq!(read(text).unwrap().value, wanted);
    let error = read(r#"{"spec":{"amounts":{"cpu":"abc"}}}"#).unwrap_err().to_string();
    assert!(error.starts_with("quantities must match the regular expression"), "{error}");
    assert_eq!(read(r#"{"spec":{"data":"A$"}}"#).unwrap_err().to_string(), "illegal base64 data at input byte 1");
}

#[test]
fn output_is_in_gos_order() {
    let schema = schema();
    let value = json!({"made": "2020-01-01T00:00:00Z", "kind": "Thing", "spec": {"amounts": {"b": "1", "a": "2"}, "replicas": 1,
        "labels": {"x": "<&>\u{2028}\u{1}\"\n"}, "gone": 1}});
    let mut out = Vec::new();
    encode(&schema, schema.kind("apps", "v1", "Thing").unwrap(), &value, &mut out);
    let wanted = r#"{"kind":"Thing","spec":{"replicas":1,"amounts":{"a":"2","b":"1"},"labels":{"x":"\u003c\u0026\u003e\u2028\u0001\"\n"}},"made":"2020-01-01T00:00:00Z"}"#;
    assert_eq!(String::from_utf8(out).unwrap(), wanted);
}

#[test]
fn headers() {
    let meta = type_meta(br#"{"apiVersion":"apps/v1","x":[{}],"kind":"Thing"}"#).unwrap();
    assert_eq!(meta, TypeMeta { api_version: "apps/v1".into(), kind: "Thing".into() });
    let error = type_meta(br#"{"kind":1}"#).unwrap_err().to_string();
    assert_eq!(
        error,
        "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string"
    );
}

#[test]
fn free_json_tells_duplicates_and_has_no_whole_floats() {
    let read = parse_free(br#"{"a":1.0,"b":[{"c":1.5,"c":2}],"a":3}"#).unwrap();
    assert_eq!(read.value, serde_json::json!({"a": 3, "b": [{"c": 2}]}));
    assert_eq!(read.strict_errors, ["duplicate field \"b[0].c\"", "duplicate field \"a\""]);
    assert!(parse_free(b"{} x").is_err());
}
