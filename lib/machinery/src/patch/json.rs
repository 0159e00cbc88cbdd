//! JSON patch (RFC 6902), with the leniencies of upstream's implementation: `replace` of an absent key adds it, a
//! missing value is null, an absent key passes a `test` for null, list indexes count from the end when negative.

use super::{form, parse, rejected};
use crate::{Value, status::ApiError};

/// The most operations that one patch may have.
const MAX_OPERATIONS: usize = 10_000;

/// Applies a patch's body to a document.
pub fn apply(document: &Value, patch: &[u8]) -> Result<Value, ApiError> {
    let patch = parse(patch)?;
    let Value::Array(operations) = patch else {
        return Err(ApiError::BadRequest(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
            form(&patch)
        )));
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(ApiError::RequestEntityTooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut document = document.clone();
    for operation in &operations {
        step(&mut document, operation).ok_or_else(rejected)?;
    }
    document.is_object().then_some(document).ok_or_else(rejected)
}

fn step(document: &mut Value, operation: &Value) -> Option<()> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let path = pointer(text("path")?)?;
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match text("op")? {
        "add" => add(document, &path, value()),
        "replace" => replace(document, &path, value()),
        "remove" => remove(document, &path).map(drop),
        "test" => (get(document, &path)?.unwrap_or(&Value::Null) == &value()).then_some(()),
        "copy" => {
            let value = get(document, &pointer(text("from")?)?)?.cloned().unwrap_or(Value::Null);
            add(document, &path, value)
        }
        "move" => {
            let value = remove(document, &pointer(text("from")?)?)?;
            add(document, &path, value)
        }
        _ => None,
    }
}

/// Where a patch copies or moves something as it stands: (from, to). What a path of it went through before does not.
pub fn moves(patch: &[u8]) -> Vec<(String, String)> {
    let operations = parse(patch).unwrap_or_default();
    let text = |operation: &Value, name: &str| operation.get(name).and_then(Value::as_str).map(str::to_owned);
    let mut touched: Vec<String> = Vec::new();
    let mut moves = Vec::new();
    for operation in operations.as_array().into_iter().flatten() {
        let (Some(path), from) = (text(operation, "path"), text(operation, "from")) else { continue };
        if let Some(from) = from {
            touched.push(path.clone());
            let through = |place: &String| place.strip_prefix(&from).is_some_and(|rest| rest.starts_with('/'));
            let read = |place: &String| *place == from;
            if !touched.iter().any(through) && !touched[..touched.len() - 1].iter().any(read) {
                moves.push((from.clone(), path));
            }
            touched.push(from);
        } else {
            touched.push(path);
        }
    }
    moves
}

/// The decoded segments of a pointer that isn't the root.
fn pointer(text: &str) -> Option<Vec<String>> {
    Some(text.strip_prefix('/')?.split('/').map(|segment| segment.replace("~1", "/").replace("~0", "~")).collect())
}

fn parent<'a, 'p>(document: &'a mut Value, path: &'p [String]) -> Option<(&'a mut Value, &'p str)> {
    let (last, parents) = path.split_last()?;
    let mut at = document;
    for segment in parents {
        at = match at {
            Value::Object(map) => map.get_mut(segment)?,
            Value::Array(items) => {
                let index = index(segment, items.len())?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    Some((at, last))
}

/// An index into a list, from the end if negative.
fn index(segment: &str, length: usize) -> Option<usize> {
    let number: i64 = segment.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    usize::try_from(if number < 0 { number + length } else { number }).ok()
}

/// `Some(None)`: the container is there, the key isn't.
fn get<'a>(document: &'a Value, path: &[String]) -> Option<Option<&'a Value>> {
    let (last, parents) = path.split_last()?;
    let child = |at: &'a Value, segment: &str| match at {
        Value::Object(map) => map.get(segment),
        Value::Array(items) => items.get(index(segment, items.len())?),
        _ => None,
    };
    let mut at = document;
    for segment in parents {
        at = child(at, segment)?;
    }
    match at {
        Value::Object(map) => Some(map.get(last)),
        other => child(other, last).map(Some),
    }
}

fn add(document: &mut Value, path: &[String], value: Value) -> Option<()> {
    let (container, key) = parent(document, path)?;
    match container {
        Value::Object(map) => drop(map.insert(key.into(), value)),
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let index = index(key, items.len() + 1).filter(|index| *index <= items.len())?;
            items.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn replace(document: &mut Value, path: &[String], value: Value) -> Option<()> {
    let (container, key) = parent(document, path)?;
    match container {
        Value::Object(map) => drop(map.insert(key.into(), value)),
        Value::Array(items) => {
            let index = index(key, items.len())?;
            *items.get_mut(index)? = value;
        }
        _ => return None,
    }
    Some(())
}

fn remove(document: &mut Value, path: &[String]) -> Option<Value> {
    let (container, key) = parent(document, path)?;
    match container {
        Value::Object(map) => map.remove(key),
        Value::Array(items) => {
            let index = index(key, items.len()).filter(|index| *index < items.len())?;
            Some(items.remove(index))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_path_went_through_does_not_move_as_it_stands() {
        let moved = |patch: Value| moves(patch.to_string().as_bytes());
        let copy = |from: &str, to: &str| json!({"op": "copy", "from": from, "path": to});
        let place = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        assert_eq!(moved(json!([copy("/a/b", "/c"), copy("/a", "/d")])), [place("/a/b", "/c")]);
        assert_eq!(moved(json!([copy("/a", "/a/b/c"), copy("/ab", "/c")])), [place("/ab", "/c")]);
    }

    #[test]
    fn operations() {
        let document = json!({"a": "b", "l": [1, 2], "o": {"x/y": 1}});
        let cases = [
            (
                json!([{"op": "add", "path": "/n", "value": 1}]),
                Some(json!({"a": "b", "l": [1, 2], "n": 1, "o": {"x/y": 1}})),
            ),
            (
                json!([{"op": "add", "path": "/l/-", "value": 3}]),
                Some(json!({"a": "b", "l": [1, 2, 3], "o": {"x/y": 1}})),
            ),
            (
                json!([{"op": "add", "path": "/l/0", "value": 3}]),
                Some(json!({"a": "b", "l": [3, 1, 2], "o": {"x/y": 1}})),
            ),
            (
                json!([{"op": "add", "path": "/l/-2", "value": 3}]),
                Some(json!({"a": "b", "l": [1, 3, 2], "o": {"x/y": 1}})),
            ),
            (json!([{"op": "remove", "path": "/o/x~1y"}]), Some(json!({"a": "b", "l": [1, 2], "o": {}}))),
            (
                json!([{"op": "replace", "path": "/z", "value": 1}]),
                Some(json!({"a": "b", "l": [1, 2], "o": {"x/y": 1}, "z": 1})),
            ),
            (
                json!([{"op": "move", "from": "/a", "path": "/z"}]),
                Some(json!({"z": "b", "l": [1, 2], "o": {"x/y": 1}})),
            ),
            (
                json!([{"op": "copy", "from": "/q", "path": "/z"}]),
                Some(json!({"a": "b", "z": null, "l": [1, 2], "o": {"x/y": 1}})),
            ),
            (json!([{"op": "test", "path": "/a", "value": "b"}]), Some(document.clone())),
            (json!([{"op": "test", "path": "/zz", "value": null}]), Some(document.clone())),
            (json!([{"op": "test", "path": "/a", "value": "x"}]), None),
            (json!([{"op": "remove", "path": "/zz"}]), None),
            (json!([{"op": "add", "path": "/l/5", "value": 3}]), None),
            (json!([{"op": "add", "path": "/zz/y", "value": 3}]), None),
            (json!([{"op": "bad", "path": "/a"}]), None),
            (json!([{"op": "add", "path": "", "value": 3}]), None),
        ];
        for (patch, result) in cases {
            assert_eq!(apply(&document, patch.to_string().as_bytes()).ok(), result, "{patch}");
        }
    }

    #[test]
    fn limits() {
        let patch = vec![json!({"op": "test", "path": "/a", "value": null}); 10_001];
        let error = apply(&json!({}), Value::from(patch).to_string().as_bytes()).unwrap_err();
        assert_eq!(error.code(), 413);
        assert_eq!(apply(&json!({}), b"{}").unwrap_err().code(), 400);
    }
}
