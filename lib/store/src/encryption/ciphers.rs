//! The ciphers that work with a key of their own, in the layouts that kube-apiserver stores.

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::consts::U12;
use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{AesGcm, Nonce};
use crypto_secretbox::XSalsa20Poly1305;

use crate::error::{Error, Result};

/// Bytes of the initialization vector before an AES-CBC ciphertext.
const IV: usize = 16;
/// Bytes of the nonce before an AES-GCM ciphertext.
const GCM_NONCE: usize = 12;
/// Bytes of the nonce before a secret box.
const BOX_NONCE: usize = 24;

/// How values are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// AES-CBC with PKCS #7 padding; not authenticated.
    AesCbc,
    /// AES-GCM; the key of the store is authenticated too.
    AesGcm,
    /// XSalsa20 and Poly1305.
    Secretbox,
}

impl Algorithm {
    /// How stored values name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AesCbc => "aescbc",
            Self::AesGcm => "aesgcm",
            Self::Secretbox => "secretbox",
        }
    }
}

/// An algorithm with a key.
#[derive(Clone)]
pub(super) enum Cipher {
    Cbc(Vec<u8>),
    Gcm128(Box<AesGcm<Aes128, U12>>),
    Gcm192(Box<AesGcm<Aes192, U12>>),
    Gcm256(Box<AesGcm<Aes256, U12>>),
    Secretbox(Box<XSalsa20Poly1305>),
}

impl Cipher {
    pub(super) fn new(algorithm: Algorithm, key: &[u8]) -> Result<Self> {
        Ok(match (algorithm, key.len()) {
            (Algorithm::AesCbc, 16 | 24 | 32) => Self::Cbc(key.to_vec()),
            (Algorithm::AesGcm, 16) => Self::Gcm128(Box::new(AesGcm::new(key.into()))),
            (Algorithm::AesGcm, 24) => Self::Gcm192(Box::new(AesGcm::new(key.into()))),
            (Algorithm::AesGcm, 32) => Self::Gcm256(Box::new(AesGcm::new(key.into()))),
            (Algorithm::Secretbox, 32) => Self::Secretbox(Box::new(XSalsa20Poly1305::new(key.into()))),
            (Algorithm::Secretbox, _) => return Err(Error::Config("a secretbox key has 32 bytes".into())),
            _ => return Err(Error::Config("an AES key has 16, 24 or 32 bytes".into())),
        })
    }

    /// Encrypts a value; `context` is what else must be the same on decryption, if the algorithm can tell.
    pub(super) fn seal(&self, value: &[u8], context: &[u8]) -> Result<Vec<u8>> {
        let payload = Payload { msg: value, aad: context };
        match self {
            Self::Cbc(key) => seal_cbc(key, value),
            Self::Gcm128(cipher) => seal_gcm(|nonce| cipher.encrypt(nonce, payload)),
            Self::Gcm192(cipher) => seal_gcm(|nonce| cipher.encrypt(nonce, payload)),
            Self::Gcm256(cipher) => seal_gcm(|nonce| cipher.encrypt(nonce, payload)),
            Self::Secretbox(cipher) => {
                let nonce: [u8; BOX_NONCE] = rand::random();
                joined(&nonce, cipher.encrypt(&nonce.into(), value))
            }
        }
    }

    /// Decrypts what [`seal`](Self::seal) made.
    pub(super) fn open(&self, sealed: &[u8], context: &[u8]) -> Result<Vec<u8>> {
        let gcm = || split::<GCM_NONCE>(sealed);
        let opened =
            match self {
                Self::Cbc(key) => return open_cbc(key, sealed),
                Self::Gcm128(cipher) => gcm()
                    .and_then(|(nonce, data)| cipher.decrypt(nonce.into(), Payload { msg: data, aad: context }).ok()),
                Self::Gcm192(cipher) => gcm()
                    .and_then(|(nonce, data)| cipher.decrypt(nonce.into(), Payload { msg: data, aad: context }).ok()),
                Self::Gcm256(cipher) => gcm()
                    .and_then(|(nonce, data)| cipher.decrypt(nonce.into(), Payload { msg: data, aad: context }).ok()),
                Self::Secretbox(cipher) => {
                    split::<BOX_NONCE>(sealed).and_then(|(nonce, data)| cipher.decrypt(nonce.into(), data).ok())
                }
            };
        opened.ok_or_else(failed)
    }
}

fn seal_gcm(encrypt: impl FnOnce(&Nonce<U12>) -> std::result::Result<Vec<u8>, aes_gcm::Error>) -> Result<Vec<u8>> {
    let nonce: [u8; GCM_NONCE] = rand::random();
    joined(&nonce, encrypt(&nonce.into()))
}

fn joined(nonce: &[u8], sealed: std::result::Result<Vec<u8>, aes_gcm::Error>) -> Result<Vec<u8>> {
    let sealed = sealed.map_err(|_| Error::Encryption("a value could not be encrypted".into()))?;
    Ok([nonce, &sealed].concat())
}

fn split<const N: usize>(sealed: &[u8]) -> Option<(&[u8; N], &[u8])> {
    sealed.split_first_chunk::<N>()
}

fn seal_cbc(key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
    let iv: [u8; IV] = rand::random();
    let sealed = match key.len() {
        16 => cbc_encryptor::<Aes128>(key, &iv)?.encrypt_padded_vec_mut::<Pkcs7>(value),
        24 => cbc_encryptor::<Aes192>(key, &iv)?.encrypt_padded_vec_mut::<Pkcs7>(value),
        _ => cbc_encryptor::<Aes256>(key, &iv)?.encrypt_padded_vec_mut::<Pkcs7>(value),
    };
    Ok([&iv[..], &sealed].concat())
}

fn open_cbc(key: &[u8], sealed: &[u8]) -> Result<Vec<u8>> {
    let (iv, data) = split::<IV>(sealed).ok_or_else(failed)?;
    let opened = match key.len() {
        16 => cbc_decryptor::<Aes128>(key, iv)?.decrypt_padded_vec_mut::<Pkcs7>(data),
        24 => cbc_decryptor::<Aes192>(key, iv)?.decrypt_padded_vec_mut::<Pkcs7>(data),
        _ => cbc_decryptor::<Aes256>(key, iv)?.decrypt_padded_vec_mut::<Pkcs7>(data),
    };
    opened.map_err(|_| failed())
}

fn cbc_encryptor<C>(key: &[u8], iv: &[u8]) -> Result<cbc::Encryptor<C>>
where
    C: BlockEncryptMut + aes::cipher::BlockCipher,
    cbc::Encryptor<C>: KeyIvInit,
{
    cbc::Encryptor::<C>::new_from_slices(key, iv).map_err(|_| failed())
}

fn cbc_decryptor<C>(key: &[u8], iv: &[u8]) -> Result<cbc::Decryptor<C>>
where
    C: BlockDecryptMut + aes::cipher::BlockCipher,
    cbc::Decryptor<C>: KeyIvInit,
{
    cbc::Decryptor::<C>::new_from_slices(key, iv).map_err(|_| failed())
}

fn failed() -> Error {
    Error::Encryption("a stored value can not be decrypted with the configured key".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_can_be_opened_and_nothing_else() {
        let keys = [
            (Algorithm::AesCbc, [16, 24, 32].as_slice()),
            (Algorithm::AesGcm, &[16, 24, 32]),
            (Algorithm::Secretbox, &[32]),
        ];
        for (algorithm, sizes) in keys {
            for size in sizes {
                let cipher = Cipher::new(algorithm, &vec![7; *size]).expect("key");
                let other = Cipher::new(algorithm, &vec![8; *size]).expect("key");
                for value in [&b""[..], b"0123456789abcdef", &[3; 5000]] {
                    let sealed = cipher.seal(value, b"/registry/a").expect("seal");
                    assert_eq!(cipher.open(&sealed, b"/registry/a").expect("open"), value, "{algorithm:?} {size}");
                    assert_ne!(cipher.seal(value, b"/registry/a").expect("seal"), sealed, "never twice the same");
                    assert_ne!(other.open(&sealed, b"/registry/a").ok().as_deref(), Some(value), "another key");
                    assert!(cipher.open(&sealed[..10], b"/registry/a").is_err());
                    let moved = cipher.open(&sealed, b"/registry/b");
                    assert_eq!(moved.is_err(), algorithm == Algorithm::AesGcm, "moved to another key");
                }
            }
            assert!(Cipher::new(algorithm, &[0; 15]).is_err());
        }
    }

    /// Out of the NaCl distribution's own test.
    #[test]
    fn secret_boxes_are_laid_out_as_in_nacl() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
        };
        let key = hex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389");
        let nonce = hex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37");
        let message =
            hex("be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c\
                           61296cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a83\
                           8f21af1fde048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705");
        let tag = hex("f3ffc7703f9400e52a7dfb4b3d3305d9");
        let cipher = XSalsa20Poly1305::new(key.as_slice().into());
        let sealed = cipher.encrypt(nonce.as_slice().into(), &message[..]).expect("seal");
        assert_eq!(sealed[..16], tag[..]);
    }
}
