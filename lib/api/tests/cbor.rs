//! What upstream v1.37 says of bodies in CBOR, by built-in kinds.

#![allow(clippy::unwrap_used)]

use pintle_api::schema;
use pintle_machinery::codec::cbor;
use serde_json::{Value, json};

/// CBOR of JSON, with hexadecimal digits as they are where a string begins with `0x`.
fn bytes(value: &Value) -> Vec<u8> {
    let head = |major: u8, length: usize| match length {
        0..=23 => vec![major << 5 | length as u8],
        _ => vec![major << 5 | 25, (length >> 8) as u8, length as u8],
    };
    match value {
        Value::String(text) => match text.strip_prefix("0x") {
            Some(digits) => digits
                .as_bytes()
                .chunks(2)
                .map(|two| u8::from_str_radix(std::str::from_utf8(two).expect("text"), 16).expect("a number"))
                .collect(),
            None => [head(2, text.len()), text.as_bytes().to_vec()].concat(),
        },
        Value::Array(items) => [head(4, items.len()), items.iter().flat_map(bytes).collect()].concat(),
        Value::Object(map) => {
            let entries = map.iter().flat_map(|(key, value)| [bytes(&json!(key)), bytes(value)].concat());
            [head(5, map.len()), entries.collect()].concat()
        }
        other => cbor::encode(schema(), None, other)[3..].to_vec(),
    }
}

fn read(kind: &str, rest: Value) -> Result<(Value, Vec<String>), String> {
    let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}});
    rest.as_object().expect("an object").iter().for_each(|(key, value)| object[key] = value.clone());
    let bytes = [vec![0xd9, 0xd9, 0xf7], bytes(&object)].concat();
    cbor::type_meta(&bytes).map_err(|error| error.to_string())?;
    let ty = schema().kind("", "v1", kind).expect("a kind");
    let decoded = cbor::decode(schema(), ty, &bytes).map_err(|error| error.to_string())?;
    Ok((decoded.value, decoded.strict_errors))
}

#[test]
fn what_is_taken() {
    for (kind, field, value, read_as) in [
        ("ConfigMap", "data", json!({"a": "b"}), json!({"a": "b"})),
        ("ConfigMap", "data", json!({"a": "0x5f41614162ff"}), json!({"a": "ab"})),
        ("ConfigMap", "data", json!({"a": "0xd64568656c6c6f"}), json!({"a": "aGVsbG8="})),
        ("ConfigMap", "data", json!({"a": "0xc06162"}), json!({"a": "b"})),
        ("ConfigMap", "data", json!({"a": "0xd903e74178"}), json!({"a": "x"})),
        ("ConfigMap", "data", json!({"a": "0x42fffe"}), json!({"a": "\u{fffd}\u{fffd}"})),
        ("ConfigMap", "data", json!({"a": null}), json!({"a": ""})),
        ("Secret", "data", json!({"k": "0xd64568656c6c6f"}), json!({"k": "aGVsbG8="})),
        ("Secret", "data", json!({"k": "0xd54568656c6c6f"}), json!({"k": "aGVsbG8="})),
        ("Secret", "data", json!({"k": "0xd74268ff"}), json!({"k": "aP8="})),
        ("Secret", "data", json!({"k": "aGVsbG8="}), json!({"k": "aGVsbG8="})),
    ] {
        let (object, strict) = read(kind, json!({field: value})).unwrap();
        assert_eq!((&object[field], strict.len()), (&read_as, 0), "{value}");
    }
}

#[test]
fn what_is_unknown_is_told_by_its_place() {
    let told = |rest: Value| read("ConfigMap", rest).unwrap().1;
    assert_eq!(told(json!({"zfoo": 1, "zbar": {"a": 1}})), ["cbor: found unknown field at map element index 3"]);
    assert_eq!(
        told(json!({"metadata": {"name": "x", "zzz": 1}})),
        ["cbor: found unknown field at map element index 1"]
    );
    assert_eq!(told(json!({"zData": {}})).len(), 1, "names are as they are");
}

#[test]
fn what_is_refused() {
    let pod = |field: &str, value: Value| json!({"spec": {"containers": [{"name": "a", "image": "b"}], field: value}});
    let not = "cbor: cannot unmarshal";
    let broken = "unable to determine group/version/kind: cbor:";
    for (kind, rest, fault) in [
        (
            "ConfigMap",
            json!({"data": "0xa24161413141614132"}),
            "cbor: found duplicate map key \"a\" at map element index 1".to_owned(),
        ),
        (
            "Secret",
            json!({"data": {"k": "hello"}}),
            "cbor: failed to decode base64 from byte string: illegal base64 data at input byte 4".to_owned(),
        ),
        (
            "Secret",
            json!({"data": {"k": "0x6161"}}),
            format!("{not} UTF-8 text string into Go struct field v1.Secret.data of type []uint8"),
        ),
        (
            "ConfigMap",
            json!({"data": {"a": 1}}),
            format!("{not} positive integer into Go struct field v1.ConfigMap.data of type string"),
        ),
        (
            "ConfigMap",
            json!({"data": {"a": {}}}),
            format!("{not} map into Go struct field v1.ConfigMap.data of type string"),
        ),
        (
            "ConfigMap",
            json!({"data": "x"}),
            format!("{not} byte string into Go struct field v1.ConfigMap.data of type map[string]string"),
        ),
        (
            "ConfigMap",
            json!({"data": "0xa1014161"}),
            format!("{not} positive integer into Go struct field v1.ConfigMap.data of type string"),
        ),
        (
            "ConfigMap",
            json!({"metadata": "x"}),
            format!("{not} byte string into Go struct field v1.ConfigMap.metadata of type v1.ObjectMeta"),
        ),
        (
            "ConfigMap",
            json!({"metadata": {"creationTimestamp": 5}}),
            format!("{not} positive integer into Go struct field v1.ConfigMap.metadata of type string"),
        ),
        (
            "ConfigMap",
            json!({"immutable": 1}),
            format!("{not} positive integer into Go struct field v1.ConfigMap.immutable of type bool"),
        ),
        ("ConfigMap", json!({"data": {"a": "0x61ff"}}), "cbor: invalid UTF-8 string".to_owned()),
        (
            "ConfigMap",
            json!({"data": "0xf7"}),
            "cbor: data item of cbor type primitives is not accepted by protocol: simple value 23 is not recognized"
                .to_owned(),
        ),
        (
            "ConfigMap",
            json!({"data": "0xf8ff"}),
            "cbor: data item of cbor type primitives is not accepted by protocol: simple value 255 is not recognized"
                .to_owned(),
        ),
        (
            "ConfigMap",
            json!({"data": "0xc24101"}),
            format!("{broken} data item of cbor type tag is not accepted by protocol: bignum"),
        ),
        (
            "ConfigMap",
            json!({"z": "0xfb7ff8000000000000"}),
            format!("{broken} data item of cbor type primitives is not accepted by protocol: floating-point NaN"),
        ),
        (
            "ConfigMap",
            json!({"z": "0xf97c00"}),
            format!("{broken} data item of cbor type primitives is not accepted by protocol: floating-point infinity"),
        ),
        (
            "ConfigMap",
            json!({"z": "0x1c"}),
            format!("{broken} invalid additional information 28 for type positive integer"),
        ),
        ("ConfigMap", json!({"z": "0xff"}), format!("{broken} unexpected \"break\" code")),
        (
            "ConfigMap",
            json!({"z": "0xbb7fffffffffffffff"}),
            format!("{broken} exceeded max number of key-value pairs 2097152 for CBOR map"),
        ),
        (
            "ConfigMap",
            json!({"z": "0x9b000000ffffffffff"}),
            format!("{broken} exceeded max number of elements 2147483647 for CBOR array"),
        ),
        (
            "Pod",
            pod("terminationGracePeriodSeconds", json!(30.5)),
            format!("{not} primitives into Go struct field v1.Pod.spec of type int64"),
        ),
        (
            "Pod",
            pod("priority", json!(1u64 << 40)),
            format!(
                "{not} positive integer into Go struct field v1.Pod.spec of type int32 (1099511627776 overflows int32)"
            ),
        ),
        (
            "Pod",
            pod("terminationGracePeriodSeconds", json!(u64::MAX)),
            format!(
                "{not} positive integer into Go struct field v1.Pod.spec of type int64 (18446744073709551615 overflows int64)"
            ),
        ),
        (
            "Pod",
            pod("hostNetwork", json!("true")),
            format!("{not} byte string into Go struct field v1.Pod.spec of type bool"),
        ),
        (
            "Pod",
            json!({"spec": {"containers": "x"}}),
            format!("{not} byte string into Go struct field v1.Pod.spec of type []v1.Container"),
        ),
        (
            "Pod",
            json!({"spec": {"containers": ["x"]}}),
            format!("{not} byte string into Go struct field v1.Pod.spec of type v1.Container"),
        ),
        (
            "Pod",
            json!({"spec": {"containers": [{"resources": {"limits": {"memory": 5}}}]}}),
            format!("{not} positive integer into Go struct field v1.Pod.spec of type string"),
        ),
    ] {
        assert_eq!(read(kind, rest.clone()), Err(fault), "{rest}");
    }
}

#[test]
fn bytes_that_tell_no_kind() {
    for (bytes, fault) in [
        (&b""[..], "EOF"),
        (&[0xd9, 0xd9, 0xf7], "unexpected EOF"),
        (b"{\"apiVersion\":\"v1\"}", "unexpected EOF"),
        (&[0xa0, 0], "cbor: 1 bytes of extraneous data starting at index 1"),
        (&[0x41, 0x61], "cbor: cannot unmarshal byte string into Go value of type v1.TypeMeta"),
        (
            &[0x81, 0x01],
            "cbor: cannot unmarshal array into Go value of type v1.TypeMeta (cannot decode CBOR array to struct without \
             toarray option)",
        ),
        (b"\xa2\x44kind\x41a\x44kind\x41b", "cbor: found duplicate map key \"kind\" at map element index 1"),
    ] {
        let told = cbor::type_meta(bytes).unwrap_err().to_string();
        assert_eq!(told, format!("unable to determine group/version/kind: {fault}"));
    }
    assert_eq!(cbor::type_meta(&[0xd9, 0xd9, 0xf7, 0xd9, 0xd9, 0xf7, 0xa0]).unwrap(), Default::default());
}
