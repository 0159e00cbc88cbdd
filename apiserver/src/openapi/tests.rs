//! The documents against the published one, and the forms of each against the other.

use std::process::Command;
use std::sync::Arc;

use http::HeaderMap;
use http_body_util::BodyExt;
use serde_json::Value;

use super::OpenApi;
use super::document::Sink;
use super::endpoints::root;
use super::gnostic::DOCUMENT_V3;
use super::page::{Page, unpacked};
use super::protobuf::Protobuf;
use super::schemas::Notation;
use crate::registry;
use crate::resource::Resource;

fn resources() -> Vec<Arc<Resource>> {
    let built_in = |api| Arc::new(Resource::built_in(api, (api.group, api.version), None, registry::rules("", "")));
    pintle_api::resources().iter().filter(|api| api.default_served).map(built_in).collect()
}

fn json(page: &Page) -> Value {
    let bytes: Vec<u8> = unpacked(page.json().unwrap()).flatten().collect();
    serde_json::from_slice(&bytes).unwrap()
}

/// `swagger.json` of the release in the Go module cache.
fn published() -> Value {
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/upstream");
    let mut go = Command::new("go");
    go.args(["-C", module, "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"]);
    let told = go.output().expect("go runs");
    let folder = String::from_utf8(told.stdout).unwrap();
    let text = std::fs::read(format!("{}/api/openapi-spec/swagger.json", folder.trim()));
    serde_json::from_slice(&text.expect("the module: go -C conformance/upstream mod download")).unwrap()
}

/// Leaves out what the published document has otherwise than a server: no values of enumerations, other media types, and
/// texts that we don't have.
fn comparable(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for name in ["description", "enum", "consumes", "produces"] {
                if map.get(name).is_some_and(|value| value.is_string() || value.is_array()) {
                    map.remove(name);
                }
            }
            map.values_mut().for_each(comparable);
        }
        Value::Array(items) => items.iter_mut().for_each(comparable),
        _ => {}
    }
}

#[test]
fn the_whole_is_what_is_published() {
    let mut published = published();
    let mut own = json(&OpenApi::new(pintle_api::schema(), &resources(), None).whole);
    comparable(&mut published);
    comparable(&mut own);
    for part in ["paths", "definitions", "parameters"] {
        let (own, published) = (own[part].as_object().unwrap(), published[part].as_object().unwrap());
        let differing: Vec<_> = own.iter().filter(|(name, value)| published.get(*name) != Some(*value)).collect();
        assert!(differing.is_empty(), "{part}: {differing:#?}");
    }
    let roots: Vec<String> = resources().iter().map(|resource| format!("{}/", root(resource))).collect();
    let paths = published["paths"].as_object().unwrap().keys();
    let missing: Vec<_> = paths
        .filter(|path| roots.iter().any(|root| path.starts_with(root)) && own["paths"].get(path.as_str()).is_none())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn descriptions_tell_the_values() {
    let open = OpenApi::new(pintle_api::schema(), &resources(), None);
    let document = json(&open.pages["apis/apps/v1"]);
    let strategy = &document["components"]["schemas"]["io.k8s.api.apps.v1.DeploymentStrategy"]["properties"]["type"];
    let description = strategy["description"].as_str().unwrap();
    assert!(description.ends_with("Possible enum values:\n - `\"Recreate\"`\n - `\"RollingUpdate\"`"), "{description}");
}

#[test]
fn a_part_has_just_its_own_paths() {
    let open = OpenApi::new(pintle_api::schema(), &resources(), None);
    let paths = |key: &str| json(&open.pages[key])["paths"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths("apis/apps"), ["/apis/apps/"]);
    assert!(paths("apis/apps/v1").iter().all(|path| path.starts_with("/apis/apps/v1/")));
    assert_eq!(paths("version"), ["/version/"]);
}

/// Protobuf of a document of one path, by hand.
#[test]
fn protobuf_is_by_the_tables() {
    let mut sink = Protobuf::new(&DOCUMENT_V3);
    sink.entry("openapi", &"3.0.0".into()).unwrap();
    sink.open("paths").unwrap();
    let item = serde_json::json!({"get": {"tags": ["a", "b"], "x-kubernetes-action": "get"}});
    sink.entry("/", &item).unwrap();
    sink.close().unwrap();
    let mut wanted = b"\x0a\x053.0.0".to_vec();
    // Extensions: name, then an Any whose field 2 is YAML.
    let extension = [b"\x6a\x1d\x0a\x13x-kubernetes-action".as_slice(), b"\x12\x06\x12\x04get\n"].concat();
    let operation = [b"\x0a\x01a\x0a\x01b".as_slice(), &extension].concat();
    let item = [&[0x22, operation.len() as u8][..], &operation].concat();
    let named = [b"\x0a\x01/\x12".as_slice(), &[item.len() as u8], &item].concat();
    let paths = [&[0x0a, named.len() as u8][..], &named].concat();
    wanted.extend([&[0x22, paths.len() as u8][..], &paths].concat());
    assert_eq!(sink.finish(), wanted);
}

#[tokio::test]
async fn documents_are_found_by_their_hash() {
    let open = OpenApi::new(pintle_api::schema(), &resources(), None);
    let none = HeaderMap::new();
    let index = open.answer("/openapi/v3", None, &none).await.unwrap();
    let index: Value = serde_json::from_slice(&index.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
    let (path, hash) = url.split_once("?hash=").unwrap();
    let fresh = open.answer(path, Some(hash), &none).await.unwrap();
    assert_eq!(
        (fresh.status().as_u16(), &fresh.headers()["cache-control"]),
        (200, &"public, immutable".parse().unwrap())
    );
    let size = fresh.headers()["content-length"].to_str().unwrap().to_owned();
    let body = fresh.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body.len().to_string(), size);
    let digest = ring::digest::digest(&ring::digest::SHA512, &body);
    assert_eq!(hash, digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect::<String>());
    let stale = open.answer(path, Some("0"), &none).await.unwrap();
    assert_eq!((stale.status().as_u16(), stale.headers()["location"].to_str().unwrap()), (301, url));
    let mut known = HeaderMap::new();
    known.insert("if-none-match", format!("\"{hash}\"").parse().unwrap());
    assert_eq!(open.answer(path, None, &known).await.unwrap().status(), 304);
    let mut picky = HeaderMap::new();
    picky.insert("accept", "text/html".parse().unwrap());
    assert_eq!(open.answer(path, None, &picky).await.unwrap().status(), 406);
    assert_eq!(open.answer("/openapi/v3/apis/nonsense/v1", None, &none).await.unwrap().status(), 404);
    assert!(open.answer("/openapi/v2/", None, &none).await.is_none());
}

#[test]
fn notations_refer_in_their_own_way() {
    assert_eq!(Notation::V2.reference("x"), "#/definitions/x");
    assert_eq!(Notation::V3.reference("x"), "#/components/schemas/x");
}
