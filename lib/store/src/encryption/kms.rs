//! KMS v2: values are encrypted with keys derived from a seed, the seed by a plugin behind a unix socket. The plugin is
//! asked once for a seed to write with, once for each seed that is met on reading, and now and then, in the background, which
//! key it encrypts with.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use prost::Message;
use ring::hkdf;
use tonic::transport::Channel;

use super::ciphers::{Algorithm, Cipher};
use crate::error::{Error, Result};
use crate::grpc::{self, Address, TlsFiles};
use crate::messages::{
    EncryptedObject, KmsDecryptRequest, KmsDecryptResponse, KmsEncryptRequest, KmsEncryptResponse, KmsStatusRequest,
    KmsStatusResponse,
};

/// Bytes before a value, from which its key is derived together with the seed.
const INFO: usize = 32;
const SEED: usize = 32;
/// The seed's plaintext is the key itself, or keys are derived from it.
const PLAIN_KEY: i32 = 0;
const DERIVED_KEY: i32 = 1;
/// How often the plugin is asked which key is its present one.
const ASK_AFTER: Duration = Duration::from_secs(60);
/// The same, as long as it has not told.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Seeds that are remembered.
const REMEMBERED: usize = 1000;

/// A plugin, and what is known of it.
pub(super) struct Kms {
    plugin: Plugin,
    /// The key that the plugin encrypts with; `None`: not known yet.
    current: Arc<RwLock<Option<String>>>,
    /// Keeps `current` up to date.
    asking: tokio::task::JoinHandle<()>,
    /// What writes use at present.
    writing: tokio::sync::Mutex<Option<Writing>>,
    /// Plain seeds by their encrypted form.
    seeds: Mutex<HashMap<Bytes, [u8; SEED]>>,
}

#[derive(Clone)]
struct Writing {
    seed: [u8; SEED],
    sealed: KmsEncryptResponse,
}

/// How a plugin is called.
#[derive(Clone)]
struct Plugin {
    name: String,
    channel: Channel,
    timeout: Duration,
}

impl Plugin {
    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A>
    where
        Q: Message + Default + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let answer = grpc::unary(self.channel.clone(), path, self.timeout, request).await;
        answer.map_err(|failure| self.failed(&failure.text()))
    }

    fn failed(&self, why: &str) -> Error {
        Error::Encryption(format!("KMS {}: {why}", self.name))
    }

    /// Asks for the present key for ever.
    async fn follow(self, current: Arc<RwLock<Option<String>>>) {
        loop {
            match self.call::<_, KmsStatusResponse>("/v2.KeyManagementService/Status", KmsStatusRequest {}).await {
                Ok(status) if status.key_id.is_empty() => tracing::warn!(plugin = self.name, "the plugin tells no key"),
                Ok(status) => *current.write() = Some(status.key_id),
                Err(error) => tracing::warn!(%error, "the plugin does not tell its key"),
            }
            let known = current.read().is_some();
            tokio::time::sleep(if known { ASK_AFTER } else { ASK_AGAIN }).await;
        }
    }
}

impl Drop for Kms {
    fn drop(&mut self) {
        self.asking.abort();
    }
}

impl Kms {
    pub(super) fn new(name: String, endpoint: &str, timeout: Duration) -> Result<Self> {
        let channel = Address::parse(endpoint, 0)?.channel(&TlsFiles::default())?;
        let plugin = Plugin { name, channel, timeout };
        let current = Arc::default();
        let asking = tokio::spawn(plugin.clone().follow(Arc::clone(&current)));
        Ok(Self { plugin, current, asking, writing: tokio::sync::Mutex::default(), seeds: Mutex::default() })
    }

    pub(super) fn name(&self) -> &str {
        &self.plugin.name
    }

    pub(super) async fn seal(&self, value: &[u8], context: &[u8]) -> Result<Vec<u8>> {
        let writing = self.writing().await?;
        let info: [u8; INFO] = rand::random();
        let sealed = Cipher::new(Algorithm::AesGcm, &derive(&writing.seed, &info)?)?.seal(value, context)?;
        let object = EncryptedObject {
            data: [&info[..], &sealed].concat().into(),
            key_id: writing.sealed.key_id,
            dek_source: writing.sealed.ciphertext,
            annotations: writing.sealed.annotations,
            dek_source_type: DERIVED_KEY,
        };
        Ok(object.encode_to_vec())
    }

    /// The value, and whether it is encrypted under a key that the plugin no longer writes with.
    pub(super) async fn open(&self, sealed: &[u8], context: &[u8]) -> Result<(Vec<u8>, bool)> {
        let object = EncryptedObject::decode(sealed).map_err(|_| self.plugin.failed("a stored value is malformed"))?;
        let seed = self.seed(&object).await?;
        let opened = match object.dek_source_type {
            PLAIN_KEY => Cipher::new(Algorithm::AesGcm, &seed)?.open(&object.data, context)?,
            DERIVED_KEY => {
                let split = object.data.split_first_chunk::<INFO>();
                let (info, data) = split.ok_or_else(|| self.plugin.failed("a stored value is cut off"))?;
                Cipher::new(Algorithm::AesGcm, &derive(&seed, info)?)?.open(data, context)?
            }
            other => return Err(self.plugin.failed(&format!("kind of key {other} is not known"))),
        };
        Ok((opened, self.current.read().as_ref().is_some_and(|current| *current != object.key_id)))
    }

    /// The seed that an object's key comes from.
    async fn seed(&self, object: &EncryptedObject) -> Result<[u8; SEED]> {
        if let Some(seed) = self.seeds.lock().get(&object.dek_source) {
            return Ok(*seed);
        }
        let request = KmsDecryptRequest {
            ciphertext: object.dek_source.clone(),
            uid: uuid::Uuid::new_v4().to_string(),
            key_id: object.key_id.clone(),
            annotations: object.annotations.clone(),
        };
        let answer: KmsDecryptResponse = self.plugin.call("/v2.KeyManagementService/Decrypt", request).await?;
        let seed =
            answer.plaintext[..].try_into().map_err(|_| self.plugin.failed("the plugin returned no 32 byte key"))?;
        self.remember(object.dek_source.clone(), seed);
        Ok(seed)
    }

    fn remember(&self, sealed: Bytes, seed: [u8; SEED]) {
        let mut seeds = self.seeds.lock();
        if seeds.len() >= REMEMBERED {
            seeds.clear();
        }
        seeds.insert(sealed, seed);
    }

    /// The seed to write with: a new one when the plugin's key has changed.
    async fn writing(&self) -> Result<Writing> {
        let mut writing = self.writing.lock().await;
        let current = self.current.read().clone();
        if let Some(known) = writing.as_ref().filter(|known| current.as_ref() == Some(&known.sealed.key_id)) {
            return Ok(known.clone());
        }
        let seed: [u8; SEED] = rand::random();
        let request = KmsEncryptRequest { plaintext: seed.to_vec().into(), uid: uuid::Uuid::new_v4().to_string() };
        let sealed: KmsEncryptResponse = self.plugin.call("/v2.KeyManagementService/Encrypt", request).await?;
        if sealed.key_id.is_empty() || sealed.ciphertext.is_empty() {
            return Err(self.plugin.failed("the plugin returned an empty key"));
        }
        self.remember(sealed.ciphertext.clone(), seed);
        *self.current.write() = Some(sealed.key_id.clone());
        Ok(writing.insert(Writing { seed, sealed }).clone())
    }
}

/// The key of one value.
fn derive(seed: &[u8; SEED], info: &[u8; INFO]) -> Result<[u8; 32]> {
    let mut key = [0; 32];
    let info: [&[u8]; 1] = [info];
    let expanded = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, seed)
        .expand(&info, hkdf::HKDF_SHA256)
        .and_then(|key_material| key_material.fill(&mut key));
    expanded.map_err(|_| Error::Encryption("a key could not be derived".into()))?;
    Ok(key)
}
