//! KMS v2: values are encrypted with keys derived from a seed, the seed by a plugin behind a unix socket. The plugin is
//! asked once for a seed to write with, and once for each seed that is met on reading.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
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
/// How often the plugin is asked whether its key has changed.
const ASK_AFTER: Duration = Duration::from_secs(60);
/// Seeds that are remembered.
const REMEMBERED: usize = 1000;

/// A plugin.
pub(super) struct Kms {
    name: String,
    channel: Channel,
    timeout: Duration,
    /// What writes use at present.
    writing: tokio::sync::Mutex<Option<Writing>>,
    /// Plain seeds by their encrypted form.
    seeds: Mutex<HashMap<Bytes, [u8; SEED]>>,
}

#[derive(Clone)]
struct Writing {
    seed: [u8; SEED],
    sealed: KmsEncryptResponse,
    checked: Instant,
}

impl Kms {
    pub(super) fn new(name: String, endpoint: &str, timeout: Duration) -> Result<Self> {
        let channel = Address::parse(endpoint, 0)?.channel(&TlsFiles::default())?;
        let (writing, seeds) = (tokio::sync::Mutex::default(), Mutex::default());
        Ok(Self { name, channel, timeout, writing, seeds })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
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
        let object = EncryptedObject::decode(sealed).map_err(|_| self.failed("a stored value is malformed"))?;
        let seed = self.seed(&object).await?;
        let opened = match object.dek_source_type {
            PLAIN_KEY => Cipher::new(Algorithm::AesGcm, &seed)?.open(&object.data, context)?,
            DERIVED_KEY => {
                let split = object.data.split_first_chunk::<INFO>();
                let (info, data) = split.ok_or_else(|| self.failed("a stored value is cut off"))?;
                Cipher::new(Algorithm::AesGcm, &derive(&seed, info)?)?.open(data, context)?
            }
            other => return Err(self.failed(&format!("kind of key {other} is not known"))),
        };
        let current = self.writing().await.map(|writing| writing.sealed.key_id);
        Ok((opened, current.is_ok_and(|current| current != object.key_id)))
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
        let answer: KmsDecryptResponse = self.call("/v2.KeyManagementService/Decrypt", request).await?;
        let seed = answer.plaintext[..].try_into().map_err(|_| self.failed("the plugin returned no 32 byte key"))?;
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
        if let Some(current) = writing.as_mut() {
            if current.checked.elapsed() < ASK_AFTER {
                return Ok(current.clone());
            }
            let status: KmsStatusResponse = self.call("/v2.KeyManagementService/Status", KmsStatusRequest {}).await?;
            if status.key_id == current.sealed.key_id {
                current.checked = Instant::now();
                return Ok(current.clone());
            }
        }
        let seed: [u8; SEED] = rand::random();
        let request = KmsEncryptRequest { plaintext: seed.to_vec().into(), uid: uuid::Uuid::new_v4().to_string() };
        let sealed: KmsEncryptResponse = self.call("/v2.KeyManagementService/Encrypt", request).await?;
        if sealed.key_id.is_empty() || sealed.ciphertext.is_empty() {
            return Err(self.failed("the plugin returned an empty key"));
        }
        self.remember(sealed.ciphertext.clone(), seed);
        Ok(writing.insert(Writing { seed, sealed, checked: Instant::now() }).clone())
    }

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
