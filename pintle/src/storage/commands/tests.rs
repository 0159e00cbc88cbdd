//! Encrypted stores are moved and restored: what comes out is what was put in, encrypted again, or nothing at all.

use std::path::Path;

use pintle_store::ListOptions;
use pintle_store::encryption::Encryption;
use pintle_store::memory::Memory;
use serde_json::{Value, json};

use super::*;
use crate::storage::{encrypted, resource_of};

const CONFIG: &str = "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n\
    - resources: [secrets]\n  providers:\n  - aesgcm: {keys: [{name: k, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}\n  - identity: {}\n";
const KEYS: [&str; 2] = ["/registry/configmaps/n/a", "/registry/secrets/n/a"];

fn object(kind: &str) -> Value {
    json!({"kind": kind, "apiVersion": "v1", "metadata": {"name": "a", "namespace": "n"}, "data": {"k": "dmFsdWU="}})
}

async fn fill(store: Arc<dyn Store>) {
    for (key, kind) in KEYS.into_iter().zip(["ConfigMap", "Secret"]) {
        store.create(key, object(kind).to_string().into(), None).await.expect("create");
    }
}

fn config(dir: &Path) -> PathBuf {
    let file = dir.join("encryption.yaml");
    std::fs::write(&file, CONFIG).expect("write");
    file
}

async fn values(store: &dyn Store) -> Vec<(String, Value)> {
    let listing = store.list(ListOptions::prefix("/")).await.expect("list");
    listing.items.into_iter().map(|kv| (kv.key, serde_json::from_slice(&kv.value).expect("plain JSON"))).collect()
}

fn kinds(values: &[(String, Value)]) -> Vec<(&str, &str)> {
    values.iter().map(|(key, value)| (key.as_str(), value["kind"].as_str().unwrap_or_default())).collect()
}

/// An etcd's keys have another prefix, and the keys are part of what is encrypted.
#[tokio::test]
async fn what_kube_apiserver_encrypted_is_read() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = config(dir.path());
    for prefix in ["/registry/", "/other/"] {
        let etcd = Arc::new(Memory::default());
        fill(on_etcd(etcd.clone(), prefix, Some(encryption(Some(&file), false, prefix).expect("configuration")))).await;
        etcd.create("/foreign/secrets/n/a", "k8s:enc:x".into(), None).await.expect("create");
        let copy = copy_of(&*etcd).await.expect("copy");
        let refused = plain(&copy, prefix, None).await.expect_err("encrypted");
        assert!(format!("{refused:#}").contains("--encryption-provider-config"), "{refused:#}");
        let plain = plain(&copy, prefix, Some(&file)).await.expect("decrypted");
        let target = Paths::new(&dir.path().join(prefix.trim_matches('/'))).expect("path");
        copy_into(&plain, &Target::Embedded(target.clone()), BUMP, None).await.expect("written");
        let found = values(&existing(&target.store()).expect("a store")).await;
        assert_eq!(kinds(&found), [(KEYS[0], "ConfigMap"), (KEYS[1], "Secret")]);
    }
}

#[tokio::test]
async fn an_embedded_store_stays_encrypted() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = config(dir.path());
    let source = Arc::new(Memory::default());
    let encryption = || Encryption::from_text(CONFIG, resource_of()).expect("configuration");
    fill(encrypted(source.clone(), Some(encryption()))).await;
    let copy = plain(&copy_of(&*source).await.expect("copy"), "/registry/", Some(&file)).await.expect("decrypted");
    let target = Paths::new(dir.path()).expect("path");
    copy_into(&copy, &Target::Embedded(target.clone()), BUMP, Some(&file)).await.expect("written");
    let store = Arc::new(existing(&target.store()).expect("a store"));
    let kept = store.get(KEYS[1]).await.expect("get").expect("there").value;
    assert!(kept.starts_with(b"k8s:enc:aesgcm:v1:k:"), "{kept:?}");
    let found = values(&*encrypted(store, Some(encryption()))).await;
    assert_eq!(kinds(&found), [(KEYS[0], "ConfigMap"), (KEYS[1], "Secret")]);
}

#[tokio::test]
async fn directories_in_use_are_not_touched() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let [one, other] = ["one", "other"].map(|name| Paths::new(&dir.path().join(name)).expect("path"));
    let (from, to) = (Target::Embedded(one.clone()), Target::Embedded(other.clone()));
    assert!(migrate(&from, &to, None).await.is_err() && !one.root().exists(), "nothing there, nothing made");
    let copy = copy_of(&Memory::default()).await.expect("copy");
    let used = from.claim().expect("a new directory");
    copy_into(&copy, &from, BUMP, None).await.expect("written");
    let error = migrate(&from, &to, None).await.expect_err("the source is in use");
    assert!(error.to_string().contains("in use") && !other.root().exists(), "{error}");
    drop(used);
    let used = to.claim().expect("a new directory");
    let error = migrate(&from, &to, None).await.expect_err("the target is in use");
    assert!(error.to_string().contains("in use") && !other.store().exists(), "{error}");
    drop(used);
    migrate(&from, &to, None).await.expect("both are free");
    other.claim().expect("a data directory, for a server to use");
}
