//! Values and messages as the real API server v1.37 gives them.

use serde_json::json;

use super::*;

fn value(text: &str) -> Value {
    parse(text.as_bytes()).unwrap().value
}

#[test]
fn scalars_of_yaml_1_1() {
    let text = "{a: yes, b: 'no', c: 010, d: 0x1f, e: 1_000, f: 1.0, g: 1.5, h: 1:30, i: 2020-01-01, j: ~, k: !!str 1, l: 09, \
                m: 1e3, half: .5, o: -, p: 0o7, q: !!binary aGVsbG8=, r: 1e, s: 1.2.3, t: '', u: , v: 12345678901234567890}";
    let wanted = json!({"a": true, "b": "no", "c": 8, "d": 31, "e": 1000, "f": 1, "g": 1.5, "h": "1:30", "i": "2020-01-01", "j": null,
        "k": "1", "l": 9, "m": 1000, "half": 0.5, "o": "-", "p": 7, "q": "hello", "r": "1e", "s": "1.2.3", "t": "", "u": null,
        "v": 12345678901234567890_u64});
    assert_eq!(value(text), wanted);
    // A ConfigMap with data {y: "1", n: "2"} has the keys "true" and "false" on the real server.
    assert_eq!(value("{y: 1, n: 2}"), json!({"true": 1, "false": 2}));
    assert_eq!(value("{1: a, true: b, 1.5: c}"), json!({"1": "a", "true": "b", "1.5": "c"}));
}

#[test]
fn duplicates_are_told_with_their_lines() {
    let text = "kind: ConfigMap\nfoo: 1\ndata:\n  a: 1\n  b: 2\n  a: 3\n  b: 3\ndata:\n  c: 1\n";
    let document = parse(text.as_bytes()).unwrap();
    let wanted = "yaml: unmarshal errors:\n  line 6: key \"a\" already set in map\n  line 7: key \"b\" already set in map\n  \
                  line 8: key \"data\" already set in map";
    assert_eq!(document.duplicates.unwrap(), wanted);
    assert_eq!(document.value["data"], json!({"c": 1}));
}

#[test]
fn anchors_and_merge_keys() {
    let text = "base: &b {x: 1, z: 2}\nuse:\n  <<: *b\n  x: 3\nlist: [*b]\n";
    let wanted = json!({"base": {"x": 1, "z": 2}, "use": {"x": 3, "z": 2}, "list": [{"x": 1, "z": 2}]});
    assert_eq!(value(text), wanted);
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    assert_eq!(parse(bomb.as_bytes()).unwrap_err().to_string(), "yaml: document contains excessive aliasing");
}

#[test]
fn syntax_errors_are_upstreams() {
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x1}\n";
    for (text, wanted) in [
        ("data:\n\tx: y1", "yaml: line 5: found character that cannot start any token"),
        ("data: \"x", "yaml: line 4: found unexpected end of stream"),
        ("data: [a", "yaml: line 4: did not find expected ',' or ']'"),
        ("data: {a: b: c}", "yaml: line 3: did not find expected ',' or '}'"),
        ("data: @x", "yaml: line 4: found character that cannot start any token"),
        ("data: *b", "yaml: unknown anchor 'b' referenced"),
        ("data: {a: .inf}", "json: unsupported value: +Inf"),
        ("data:\n  name: x\n name: y", "yaml: line 5: did not find expected key"),
    ] {
        assert_eq!(parse(format!("{head}{text}").as_bytes()).unwrap_err().to_string(), wanted, "{text}");
    }
    let deep = "[".repeat(100_000);
    assert!(parse(deep.as_bytes()).is_err());
}

#[test]
fn only_the_first_document_counts() {
    assert_eq!(value("a: 1\n---\nb: 2\n"), json!({"a": 1}));
    assert_eq!(value(""), Value::Null);
    assert_eq!(value("- a"), json!(["a"]));
}

#[test]
fn a_tag_with_a_comma_is_an_error() {
    let error = parse(b"a: [!!x, y]").unwrap_err();
    assert_eq!(error.to_string(), "yaml: did not find expected whitespace or line break");
}
