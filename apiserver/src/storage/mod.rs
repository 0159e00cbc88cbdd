//! Values in the form that kube-apiserver keeps in etcd: a store for this server on top of one that upstream can read.
//!
//! This server's own form is JSON in the storage version. Upstream's is protobuf in an envelope for built-in kinds and JSON
//! for custom resources and for the kinds that describe them. Reading takes either, in any version that can be converted.
//! What this server wrote a moment ago comes back on its own watch: it is remembered, so that it need not be decoded.

mod crd;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use pintle_machinery::codec::{TypeMeta, json, protobuf};
use pintle_machinery::schema::Schema;
use pintle_store::mapped::{Mapped, Mapping};
use pintle_store::{Error, KeyValue, Result, Revision, Store};

use crate::codec;
use crate::resource::key_prefix;
use crate::state::storage_version;

/// So many bytes of own writes are remembered until they come back.
const REMEMBERED: usize = 16 << 20;

/// What a key prefix holds.
#[derive(Debug, Clone)]
struct Form {
    group: &'static str,
    resource: &'static str,
    /// Group and version that are stored.
    storage: (&'static str, &'static str),
}

/// Which resources have which keys.
#[derive(Debug)]
struct Forms(BTreeMap<String, Form>);

impl Forms {
    fn built_in() -> Self {
        let form = |api: &pintle_api::Resource| {
            let storage = storage_version(api);
            (key_prefix(api.group, api.plural), Form { group: storage.0, resource: api.plural, storage })
        };
        Self(pintle_api::resources().iter().map(form).collect())
    }

    fn of(&self, key: &str) -> Option<&Form> {
        let (prefix, form) = self.0.range::<str, _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        key.starts_with(prefix.as_str()).then_some(form)
    }

    /// `secrets`, `deployments.apps`; custom resources by their keys, `/registry/GROUP/RESOURCE/…`.
    fn resource(&self, key: &str) -> Option<String> {
        if let Some(form) = self.of(key) {
            return Some(match form.group {
                "" => form.resource.to_owned(),
                group => format!("{}.{group}", form.resource),
            });
        }
        let mut parts = key.strip_prefix("/registry/")?.split('/');
        let (group, resource) = (parts.next()?, parts.next()?);
        (group.contains('.') && parts.next().is_some()).then(|| format!("{resource}.{group}"))
    }
}

/// Tells the resource that a key belongs to, as encryption configurations name it.
pub fn resource_of() -> pintle_store::encryption::ResourceOf {
    let forms = Forms::built_in();
    Arc::new(move |key| forms.resource(key))
}

/// Prefix of the keys of a resource; `None` if there is none of that name.
pub fn prefix_of(group: &str, resource: &str) -> Option<String> {
    let known = pintle_api::resources().iter().any(|api| api.group == group && api.plural == resource);
    known.then(|| key_prefix(group, resource))
}

/// A store for this server whose values are kept in `inner` in upstream's form.
pub fn upstream_form(inner: Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(Mapped::new(inner, UpstreamForm::new()))
}

/// Reads stored values of either form: by key and value, in this server's form.
pub fn decoder() -> impl Fn(&str, &Bytes) -> Result<Bytes> {
    let form = UpstreamForm::new();
    move |key, value| Ok(form.decode(key, value)?.0)
}

struct UpstreamForm {
    schema: &'static Schema,
    forms: Forms,
    recent: Mutex<Recent>,
}

/// Own writes that have not come back on the watch yet.
#[derive(Default)]
struct Recent {
    values: BTreeMap<Revision, Bytes>,
    bytes: usize,
    /// How far the watch has come.
    watched: Revision,
}

impl Recent {
    fn add(&mut self, revision: Revision, value: Bytes) {
        if revision <= self.watched {
            return;
        }
        self.bytes += value.len();
        self.values.insert(revision, value);
        while self.bytes > REMEMBERED
            && let Some((_, dropped)) = self.values.pop_first()
        {
            self.bytes -= dropped.len();
        }
    }

    /// What was written at this revision; older ones will not be asked for.
    fn take(&mut self, revision: Revision) -> Option<Bytes> {
        self.watched = self.watched.max(revision);
        let later = self.values.split_off(&(revision + 1));
        let mut passed = std::mem::replace(&mut self.values, later);
        self.bytes -= passed.values().map(Bytes::len).sum::<usize>();
        passed.remove(&revision)
    }
}

impl UpstreamForm {
    fn new() -> Self {
        Self { schema: pintle_api::schema(), forms: Forms::built_in(), recent: Mutex::default() }
    }

    /// This server's form into upstream's. What is no object stays as it is.
    fn encode(&self, value: &Bytes) -> Result<Bytes> {
        if value.first() != Some(&b'{') {
            return Ok(value.clone());
        }
        let failed = |error: String| Error::Storage(format!("encoding for the store: {error}"));
        let meta = json::type_meta(value).map_err(|error| failed(error.to_string()))?;
        let (group, version) = meta.group_version();
        match self.schema.kind(group, version, &meta.kind) {
            Some(ty) if !codec::stored_as_json(group) => {
                let bytes = protobuf::encode_text_as(self.schema, ty, &meta, value);
                bytes.map(Bytes::from).map_err(|error| failed(error.to_string()))
            }
            _ => Ok(value.clone()),
        }
    }

    /// Upstream's form into this server's, and whether it should be written anew.
    fn decode(&self, key: &str, value: &Bytes) -> Result<(Bytes, bool)> {
        let failed = |error: String| Error::Storage(format!("stored value of {key}: {error}"));
        let mut object = if value.starts_with(&protobuf::MAGIC) {
            protobuf::decode(self.schema, value).map_err(|error| failed(error.to_string()))?.value
        } else if value.first() == Some(&b'{') {
            serde_json::from_slice(value).map_err(|error| failed(error.to_string()))?
        } else {
            return Ok((value.clone(), false));
        };
        let meta = TypeMeta::of(&object);
        let stored = meta.group_version();
        let Some(form) = self.forms.of(key) else { return Ok((codec::serialize(self.schema, &object).into(), false)) };
        let old = stored != form.storage;
        match stored {
            ("apiextensions.k8s.io", "v1beta1") => crd::to_v1(&mut object),
            _ if old => crate::conversion::convert(&mut object, stored, form.storage),
            _ => {}
        }
        codec::defaults(self.schema, form.storage, &meta.kind, &mut object);
        codec::normalize(self.schema, &mut object);
        Ok((codec::serialize(self.schema, &object).into(), old))
    }
}

#[async_trait]
impl Mapping for UpstreamForm {
    async fn value_there(&self, _key: &str, value: &Bytes) -> Result<Bytes> {
        self.encode(value)
    }

    async fn value_here(&self, mut kv: KeyValue) -> Result<KeyValue> {
        let (value, stale) = self.decode(&kv.key, &kv.value)?;
        kv.value = value;
        kv.stale |= stale;
        Ok(kv)
    }

    async fn watched(&self, mut kv: KeyValue) -> Result<KeyValue> {
        let own = self.recent.lock().take(kv.mod_revision);
        match own {
            Some(value) => {
                kv.value = value;
                Ok(kv)
            }
            None => self.value_here(kv).await,
        }
    }

    fn written(&self, revision: Revision, value: Bytes) {
        self.recent.lock().add(revision, value);
    }
}

#[cfg(test)]
mod tests {
    use pintle_store::memory::Memory;
    use pintle_store::{ListOptions, WatchEvent};
    use serde_json::{Value, json};

    use super::*;

    fn stored(object: &Value) -> Bytes {
        codec::serialize(pintle_api::schema(), object).into()
    }

    #[tokio::test]
    async fn built_in_kinds_are_protobuf_and_custom_resources_json() {
        let inner = Arc::new(Memory::default());
        let store = upstream_form(inner.clone());
        let mut watch = store.watch("/registry/", 1).await.unwrap();
        let secret = stored(&json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "n"},
                                    "data": {"k": "dg=="}, "type": "Opaque"}));
        let custom = stored(&json!({"kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"name": "w"},
                                    "spec": {"size": 3}}));
        for (key, value, start) in [
            ("/registry/secrets/n/a", &secret, &b"k8s\0"[..]),
            ("/registry/example.com/widgets/n/w", &custom, b"{\"kind\":\"Widget\""),
            ("/registry/ranges/x", &Bytes::from_static(b"n/a"), b"n/a"),
        ] {
            store.create(key, value.clone(), None).await.unwrap();
            let raw = inner.get(key).await.unwrap().unwrap();
            assert!(raw.value.starts_with(start), "{key}: {raw:?}");
            assert_eq!(store.get(key).await.unwrap().unwrap().value, value, "{key}");
            let Some(Ok(WatchEvent::Put(kv))) = watch.recv().await else { panic!("put") };
            assert_eq!(kv.value, value);
        }
        let conflict = store.update("/registry/secrets/n/a", secret.clone(), 1, None).await.unwrap_err();
        assert!(matches!(conflict, Error::Conflict { current: Some(kv) } if kv.value == secret));
    }

    #[tokio::test]
    async fn other_forms_are_read_converted_and_stale() {
        let inner = Arc::new(Memory::default());
        let store = upstream_form(inner.clone());
        let event = json!({"kind": "Event", "apiVersion": "events.k8s.io/v1", "metadata": {"name": "e", "namespace": "n"},
                           "note": "hello", "regarding": {"kind": "Pod"}});
        let bytes = protobuf::encode(pintle_api::schema(), &event).unwrap();
        inner.create("/registry/events/n/e", bytes.into(), None).await.unwrap();
        let kv = store.get("/registry/events/n/e").await.unwrap().unwrap();
        let read: Value = serde_json::from_slice(&kv.value).unwrap();
        assert_eq!((&read["apiVersion"], &read["message"], kv.stale), (&json!("v1"), &json!("hello"), true));
        inner.create("/registry/events/n/f", "k8s\0nonsense".into(), None).await.unwrap();
        assert!(store.get("/registry/events/n/f").await.is_err());
        assert_eq!(store.list(ListOptions::prefix("/registry/")).await.unwrap().items.len(), 2, "hides no others");
    }

    #[test]
    fn keys_tell_their_resource() {
        let resource = resource_of();
        for (key, wanted) in [
            ("/registry/secrets/n/a", Some("secrets")),
            ("/registry/minions/a", Some("nodes")),
            ("/registry/deployments/n/a", Some("deployments.apps")),
            ("/registry/example.com/widgets/n/a", Some("widgets.example.com")),
            ("/registry/ranges/serviceips", None),
            ("/elsewhere", None),
        ] {
            assert_eq!(resource(key).as_deref(), wanted, "{key}");
        }
    }
}
