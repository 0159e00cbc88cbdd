//! Encryption at rest: a store that encrypts values on their way into another one, in the forms that kube-apiserver stores.
//!
//! Which values are encrypted, and how, says an `EncryptionConfiguration`; which resource a key belongs to is told by the
//! caller. A stored value starts with `k8s:enc:` and names its provider and key; everything else is plain. Reading takes any
//! configured provider, writing the first. A value that was not written by the first key of the first provider is
//! [`stale`](KeyValue::stale).

mod ciphers;
mod config;
mod kms;
#[cfg(test)]
mod plugin;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::RwLock;

use crate::contract::{KeyValue, Store};
use crate::error::{Error, Result};
use crate::mapped::{Mapped, Mapping};
use ciphers::{Algorithm, Cipher};
use kms::Kms;

/// What all encrypted values start with.
const PREFIX: &[u8] = b"k8s:enc:";
/// How often a configuration file is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// Tells the resource of a key, as configuration files name it: `secrets`, `deployments.apps`. `None`: no resource's.
pub type ResourceOf = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// How the values of some resources are stored.
struct Section {
    resources: Vec<String>,
    providers: Vec<Provider>,
}

enum Provider {
    Identity,
    /// What values start with, and the cipher.
    Key(Vec<u8>, Cipher),
    Kms(Vec<u8>, Box<Kms>),
}

/// What a configuration says.
struct Rules(Vec<Section>);

impl Rules {
    fn parse(text: &str) -> Result<Self> {
        config::parse(text)?.into_iter().map(compile).collect::<Result<_>>().map(Self)
    }

    /// The providers of a resource, in order; none: it is stored as it is.
    fn of(&self, resource: Option<&str>) -> &[Provider] {
        let Some(resource) = resource else { return &[] };
        let found = self.0.iter().find(|section| section.resources.iter().any(|pattern| matches(pattern, resource)));
        found.map_or(&[], |section| &section.providers)
    }

    async fn seal(&self, resource: Option<&str>, key: &str, value: Bytes) -> Result<Bytes> {
        let (start, sealed) = match self.of(resource).first() {
            None | Some(Provider::Identity) => return Ok(value),
            Some(Provider::Key(start, cipher)) => (start, cipher.seal(&value, key.as_bytes())?),
            Some(Provider::Kms(start, kms)) => (start, kms.seal(&value, key.as_bytes()).await?),
        };
        Ok([&start[..], &sealed].concat().into())
    }

    /// The plain value, and whether it should be written anew.
    async fn open(&self, resource: Option<&str>, key: &str, value: &Bytes) -> Result<(Bytes, bool)> {
        let providers = self.of(resource);
        if providers.is_empty() && !value.starts_with(PREFIX) {
            return Ok((value.clone(), false));
        }
        for (at, provider) in providers.iter().enumerate() {
            match provider {
                Provider::Identity if !value.starts_with(PREFIX) => return Ok((value.clone(), at > 0)),
                Provider::Key(start, cipher) if value.starts_with(start) => {
                    let opened = cipher.open(&value[start.len()..], key.as_bytes())?;
                    return Ok((opened.into(), at > 0));
                }
                Provider::Kms(start, kms) if value.starts_with(start) => {
                    let (opened, old) = kms.open(&value[start.len()..], key.as_bytes()).await?;
                    return Ok((opened.into(), old || at > 0));
                }
                _ => {}
            }
        }
        Err(Error::Encryption(format!("no provider is configured that can read {key}")))
    }
}

/// One provider for each key, so that the order of all keys is one list.
fn compile(section: config::Section) -> Result<Section> {
    let mut providers = Vec::new();
    for provider in section.providers {
        match provider {
            config::Provider::Identity => providers.push(Provider::Identity),
            config::Provider::Keys(algorithm, keys) => {
                providers.extend(keys.into_iter().map(|(name, cipher)| Provider::Key(start(algorithm, &name), cipher)));
            }
            config::Provider::Kms { name, endpoint, timeout } => {
                let kms = Box::new(Kms::new(name, &endpoint, timeout)?);
                providers.push(Provider::Kms(format!("k8s:enc:kms:v2:{}:", kms.name()).into_bytes(), kms));
            }
        }
    }
    Ok(Section { resources: section.resources, providers })
}

fn start(algorithm: Algorithm, key: &str) -> Vec<u8> {
    format!("k8s:enc:{}:v1:{key}:", algorithm.name()).into_bytes()
}

/// `secrets`, `deployments.apps`, `*.apps` (a group), `*.` (the core group), `*.*` (everything).
fn matches(pattern: &str, resource: &str) -> bool {
    let group = resource.split_once('.').map_or("", |(_, group)| group);
    match pattern.strip_prefix("*.") {
        Some("*") => true,
        Some(wanted) => wanted == group,
        None => pattern.trim_end_matches('.') == resource,
    }
}

/// A store whose values are encrypted in another store.
pub type Encrypted = Mapped<Encryption>;

/// How values are encrypted.
pub struct Encryption {
    rules: Arc<RwLock<Arc<Rules>>>,
    resource_of: ResourceOf,
    reloading: Option<tokio::task::JoinHandle<()>>,
}

impl Encryption {
    /// As the text of a configuration says.
    pub fn from_text(text: &str, resource_of: ResourceOf) -> Result<Self> {
        Ok(Self::by(Rules::parse(text)?, resource_of))
    }

    /// As a file says; `reload`: also as it says later.
    pub fn from_file(path: &Path, reload: bool, resource_of: ResourceOf) -> Result<Self> {
        let text = read(path)?;
        let mut encryption = Self::from_text(&text, resource_of)?;
        encryption.reloading = reload.then(|| tokio::spawn(follow(encryption.rules.clone(), path.to_owned(), text)));
        Ok(encryption)
    }

    /// Nothing is encrypted, and what is can't be read.
    pub fn none(resource_of: ResourceOf) -> Self {
        Self::by(Rules(Vec::new()), resource_of)
    }

    fn by(rules: Rules, resource_of: ResourceOf) -> Self {
        Self { rules: Arc::new(RwLock::new(Arc::new(rules))), resource_of, reloading: None }
    }

    fn rules(&self) -> Arc<Rules> {
        self.rules.read().clone()
    }
}

#[async_trait]
impl Mapping for Encryption {
    async fn value_there(&self, key: &str, value: &Bytes) -> Result<Bytes> {
        self.rules().seal((self.resource_of)(key).as_deref(), key, value.clone()).await
    }

    async fn value_here(&self, mut kv: KeyValue) -> Result<KeyValue> {
        let (value, stale) = self.rules().open((self.resource_of)(&kv.key).as_deref(), &kv.key, &kv.value).await?;
        kv.value = value;
        kv.stale |= stale;
        Ok(kv)
    }
}

impl Encrypted {
    /// Encrypts as the text of a configuration says.
    pub fn from_text(inner: Arc<dyn Store>, text: &str, resource_of: ResourceOf) -> Result<Self> {
        Ok(Self::new(inner, Encryption::from_text(text, resource_of)?))
    }

    /// Encrypts from now on as another configuration says. An error leaves the old one in force.
    pub fn reload(&self, text: &str) -> Result<()> {
        *self.mapping.rules.write() = Arc::new(Rules::parse(text)?);
        Ok(())
    }
}

impl Drop for Encryption {
    fn drop(&mut self) {
        if let Some(task) = &self.reloading {
            task.abort();
        }
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(Error::io(format!("read {}", path.display())))
}

/// Takes up what a file says whenever that changes.
async fn follow(shared: Arc<RwLock<Arc<Rules>>>, path: PathBuf, mut current: String) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Ok(text) = read(&path) else { continue };
        if text == current {
            continue;
        }
        match Rules::parse(&text) {
            Ok(rules) => {
                *shared.write() = Arc::new(rules);
                tracing::info!(path = %path.display(), "encryption configuration reloaded");
            }
            Err(error) => tracing::error!(%error, "encryption configuration is not valid, the old one stays"),
        }
        current = text;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{ListOptions, Listing, WatchEvent};
    use crate::memory::Memory;

    const ONE: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    const TWO: &str = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=";

    fn file(providers: &str) -> String {
        format!(
            "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n\
             - resources: [secrets]\n  providers: [{providers}]\n"
        )
    }

    fn key(provider: &str, name: &str, secret: &str) -> String {
        format!("{{{provider}: {{keys: [{{name: {name}, secret: {secret}}}]}}}}")
    }

    fn resource_of() -> ResourceOf {
        Arc::new(|key| key.split('/').nth(2).map(str::to_owned))
    }

    #[test]
    fn patterns_match_as_upstream_documents_them() {
        for (pattern, resource, wanted) in [
            ("secrets", "secrets", true),
            ("secrets", "secrets.other", false),
            ("deployments.apps", "deployments.apps", true),
            ("*.apps", "deployments.apps", true),
            ("*.apps", "secrets", false),
            ("*.", "secrets", true),
            ("*.", "deployments.apps", false),
            ("*.*", "deployments.apps", true),
        ] {
            assert_eq!(matches(pattern, resource), wanted, "{pattern} {resource}");
        }
    }

    #[tokio::test]
    async fn keys_rotate_and_old_values_stay_readable() {
        let memory = Arc::new(Memory::default());
        let store =
            Encrypted::from_text(memory.clone(), &file("{identity: {}}"), resource_of()).expect("configuration");
        store.create("/registry/secrets/plain", "p".into(), None).await.expect("create");
        let steps = [("aescbc", ONE), ("aesgcm", ONE), ("secretbox", TWO), ("aescbc", TWO)];
        let mut providers = vec!["{identity: {}}".to_owned()];
        for (at, (provider, secret)) in steps.iter().enumerate() {
            providers.insert(0, key(provider, &format!("k{at}"), secret));
            store.reload(&file(&providers.join(", "))).expect("reload");
            let name = format!("/registry/secrets/{at}");
            store.create(&name, "hidden".into(), None).await.expect("create");
            let stored = memory.get(&name).await.expect("get").expect("there").value;
            assert!(stored.starts_with(format!("k8s:enc:{provider}:v1:k{at}:").as_bytes()));
            assert!(!stored.windows(6).any(|part| part == b"hidden"));
        }
        store.create("/registry/configmaps/c", "open".into(), None).await.expect("create");
        assert_eq!(memory.get("/registry/configmaps/c").await.expect("get").expect("there").value, "open");

        let listing = store.list(ListOptions::prefix("/registry/secrets/")).await.expect("list");
        let found: Vec<_> = listing.items.iter().map(|kv| (&kv.value[..], kv.stale)).collect();
        let hidden = &b"hidden"[..];
        assert_eq!(found, [(hidden, true), (hidden, true), (hidden, true), (hidden, false), (&b"p"[..], true)]);

        let old = &listing.items[0];
        let conflict = store.update(&old.key, "x".into(), 1, None).await.expect_err("wrong revision");
        assert!(matches!(conflict, Error::Conflict { current: Some(kv) } if kv.value == "hidden"));
        store.update(&old.key, old.value.clone(), old.mod_revision, None).await.expect("update");
        assert!(!store.get(&old.key).await.expect("get").expect("there").stale, "rewritten with the new key");
    }

    #[tokio::test]
    async fn values_that_can_not_be_read_are_an_error_and_hide_no_others() {
        let memory = Arc::new(Memory::default());
        let secret = key("aesgcm", "k", ONE);
        let store = Encrypted::from_text(memory.clone(), &file(&secret), resource_of()).expect("configuration");
        let mut watch = store.watch("/", 1).await.expect("watch");
        store.create("/registry/secrets/a", "x".into(), None).await.expect("create");
        let Some(Ok(WatchEvent::Put(kv))) = watch.recv().await else { panic!("put") };
        assert_eq!(kv.value, "x");
        // Moved to another key, which AES-GCM notices.
        let stored = memory.get("/registry/secrets/a").await.expect("get").expect("there").value;
        memory.create("/registry/secrets/b", stored, None).await.expect("create");
        assert!(matches!(store.get("/registry/secrets/b").await, Err(Error::Encryption(_))));
        assert_eq!(store.list(ListOptions::default()).await.expect("list").items.len(), 2);
        assert!(store.reload("kind: Nonsense").is_err());
        store.reload(&file(&key("aesgcm", "k", TWO))).expect("another key");
        assert!(store.get("/registry/secrets/a").await.is_err());
        memory.create("/registry/secrets/c", "plain".into(), None).await.expect("create");
        assert!(store.get("/registry/secrets/c").await.is_err(), "plain values need the identity provider");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_plugin_is_asked_once_for_a_key() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let socket = dir.path().join("kms.sock");
        let plugin = plugin::Plugin::start(socket.clone());
        let kms =
            format!("{{kms: {{apiVersion: v2, name: vault, endpoint: 'unix://{}', timeout: 2s}}}}", socket.display());
        let memory = Arc::new(Memory::default());
        let store = Encrypted::from_text(memory.clone(), &file(&kms), resource_of()).expect("configuration");
        for i in 0..20 {
            store.create(&format!("/registry/secrets/{i:02}"), "hidden".into(), None).await.expect("create");
        }
        let stored = memory.get("/registry/secrets/00").await.expect("get").expect("there").value;
        assert!(stored.starts_with(b"k8s:enc:kms:v2:vault:") && !stored.windows(6).any(|part| part == b"hidden"));
        let all = |listing: Listing| listing.items.into_iter().map(|kv| (kv.value, kv.stale)).collect::<Vec<_>>();
        let options = || ListOptions::prefix("/registry/secrets/");
        let wanted = vec![(Bytes::from_static(b"hidden"), false); 20];
        assert_eq!(all(store.list(options()).await.expect("list")), wanted);
        assert_eq!(plugin.calls(), 1, "one seed for all writes, known for all reads");

        // Another process, to which the plugin's key is new; then the key is another one.
        let second = Encrypted::from_text(memory.clone(), &file(&kms), resource_of()).expect("configuration");
        assert_eq!(all(second.list(options()).await.expect("list")), wanted);
        assert_eq!(plugin.calls(), 2, "one seed to read, none as long as nothing is written");
        plugin.rotate();
        let third = Encrypted::from_text(memory.clone(), &file(&kms), resource_of()).expect("configuration");
        let mut kv = third.get("/registry/secrets/00").await.expect("get").expect("there");
        for _ in 0..1000 {
            if kv.stale {
                break;
            }
            // The plugin has not told its key yet.
            tokio::time::sleep(Duration::from_millis(5)).await;
            kv = third.get("/registry/secrets/00").await.expect("get").expect("there");
        }
        assert!(kv.stale && kv.value == "hidden", "encrypted under the key before");
        assert_eq!(plugin.calls(), 3, "reading asks for no seed to write with");
        third.update(&kv.key, kv.value, kv.mod_revision, None).await.expect("update");
        assert!(!third.get("/registry/secrets/00").await.expect("get").expect("there").stale);

        drop(plugin);
        std::fs::remove_file(&socket).expect("gone");
        let orphan = Encrypted::from_text(memory, &file(&kms), resource_of()).expect("configuration");
        let error = orphan.get("/registry/secrets/00").await.expect_err("no plugin").to_string();
        assert!(error.contains("KMS vault") && !error.contains("hidden"), "{error}");
        assert!(store.get("/registry/secrets/05").await.is_ok(), "known keys do without the plugin");
    }
}
