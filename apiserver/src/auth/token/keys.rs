//! Keys that sign and verify service account tokens: ES256 (P-256) and RS256, from PEM.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::rsa;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_SHA256, UnparsedPublicKey,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo};
use x509_parser::public_key::PublicKey as Parsed;

/// Why a key can't be used. Never contains key material.
#[derive(Debug, thiserror::Error)]
#[error("service account key: {0}")]
pub struct KeyError(String);

fn bad(reason: impl Into<String>) -> KeyError {
    KeyError(reason.into())
}

const OID_EC: &[u8] = &[0x06, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const OID_P256: &[u8] = &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const OID_RSA: &[u8] = &[0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const NULL: &[u8] = &[5, 0];

/// DER of one element.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut out = vec![tag];
    match content.len() {
        short @ 0..128 => out.push(short as u8),
        long => {
            let bytes: Vec<u8> = long.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
            out.push(0x80 | bytes.len() as u8);
            out.extend(bytes);
        }
    }
    out.extend(content);
    out
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    der(0x30, parts)
}

/// A key that verifies tokens.
#[derive(Debug, Clone)]
pub struct PublicKey {
    /// Key id: hash of the DER of the key, as upstream makes it.
    pub id: String,
    kind: PublicKind,
}

#[derive(Debug, Clone)]
enum PublicKind {
    /// The uncompressed point.
    P256(Vec<u8>),
    /// The modulus and exponent, and both as PKCS#1.
    Rsa { n: Vec<u8>, e: Vec<u8>, pkcs1: Vec<u8> },
}

impl PublicKey {
    fn p256(point: &[u8]) -> Self {
        let spki = sequence(&[&sequence(&[OID_EC, OID_P256]), &der(3, &[&[0], point])]);
        Self { id: key_id(&spki), kind: PublicKind::P256(point.to_vec()) }
    }

    fn rsa(pkcs1: &[u8]) -> Result<Self, KeyError> {
        let spki = sequence(&[&sequence(&[OID_RSA, NULL]), &der(3, &[&[0], pkcs1])]);
        Self::from_spki(&spki)
    }

    fn from_spki(spki: &[u8]) -> Result<Self, KeyError> {
        let (_, info) = SubjectPublicKeyInfo::from_der(spki).map_err(|_| bad("no valid public key"))?;
        let bits = info.subject_public_key.data.to_vec();
        match info.parsed().map_err(|_| bad("no valid public key"))? {
            Parsed::RSA(rsa) => {
                let strip = |number: &[u8]| number.iter().copied().skip_while(|byte| *byte == 0).collect();
                let kind = PublicKind::Rsa { n: strip(rsa.modulus), e: strip(rsa.exponent), pkcs1: bits };
                Ok(Self { id: key_id(spki), kind })
            }
            Parsed::EC(_) if bits.len() == 65 => Ok(Self::p256(&bits)),
            _ => Err(bad("only RSA and P-256 keys are supported")),
        }
    }

    /// The keys in a PEM file: public keys, or the public halves of private keys and certificates.
    pub fn from_pem(pem: &[u8]) -> Result<Vec<Self>, KeyError> {
        let keys = blocks(pem)?.into_iter().map(|(label, bytes)| match label.as_str() {
            "PUBLIC KEY" => Self::from_spki(&bytes),
            "RSA PUBLIC KEY" => Self::rsa(&bytes),
            "CERTIFICATE" => {
                let (_, certificate) =
                    x509_parser::parse_x509_certificate(&bytes).map_err(|_| bad("no valid certificate"))?;
                Self::from_spki(certificate.public_key().raw)
            }
            _ => SigningKey::from_block(&label, &bytes).map(|key| key.public().clone()),
        });
        let keys: Vec<Self> = keys.collect::<Result<_, _>>()?;
        if keys.is_empty() { Err(bad("no PEM block in the file")) } else { Ok(keys) }
    }

    /// The name of the algorithm in a token's header.
    pub fn algorithm(&self) -> &'static str {
        match self.kind {
            PublicKind::P256(_) => "ES256",
            PublicKind::Rsa { .. } => "RS256",
        }
    }

    /// The signature is this key's over these bytes.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.kind {
            PublicKind::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature).is_ok()
            }
            PublicKind::Rsa { pkcs1, .. } => {
                UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pkcs1).verify(message, signature).is_ok()
            }
        }
    }

    /// As a JSON web key.
    pub fn to_jwk(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match &self.kind {
            PublicKind::P256(point) => json!({
                "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
                "x": text(&point[1..33]), "y": text(&point[33..65]),
            }),
            PublicKind::Rsa { n, e, .. } => {
                json!({"use": "sig", "kty": "RSA", "kid": self.id, "alg": "RS256", "n": text(n), "e": text(e)})
            }
        }
    }
}

fn key_id(spki: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(spki))
}

/// A key that signs tokens.
pub struct SigningKey {
    public: PublicKey,
    kind: PrivateKind,
}

enum PrivateKind {
    P256(Box<EcdsaKeyPair>),
    Rsa(Box<rsa::KeyPair>),
}

impl SigningKey {
    /// The first private key in a PEM file.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let blocks = blocks(pem)?;
        let private = blocks.iter().find(|(label, _)| label.ends_with("PRIVATE KEY"));
        let (label, bytes) = private.ok_or_else(|| bad("no private key in the file"))?;
        Self::from_block(label, bytes)
    }

    fn from_block(label: &str, bytes: &[u8]) -> Result<Self, KeyError> {
        match label {
            "RSA PRIVATE KEY" => rsa::KeyPair::from_der(bytes).map_err(|e| bad(e.to_string())).and_then(Self::rsa),
            "EC PRIVATE KEY" => {
                let algorithm = sequence(&[OID_EC, OID_P256]);
                Self::p256(&sequence(&[&[2, 1, 0], &algorithm, &der(4, &[bytes])]))
            }
            "PRIVATE KEY" => match rsa::KeyPair::from_pkcs8(bytes) {
                Ok(key) => Self::rsa(key),
                Err(_) => Self::p256(bytes),
            },
            _ => Err(bad(format!("PEM block {label:?} is no key"))),
        }
    }

    fn p256(pkcs8: &[u8]) -> Result<Self, KeyError> {
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &SystemRandom::new());
        let key = key.map_err(|e| bad(format!("neither a valid RSA nor a valid P-256 key: {e}")))?;
        Ok(Self { public: PublicKey::p256(key.public_key().as_ref()), kind: PrivateKind::P256(Box::new(key)) })
    }

    fn rsa(key: rsa::KeyPair) -> Result<Self, KeyError> {
        Ok(Self { public: PublicKey::rsa(key.public().as_ref())?, kind: PrivateKind::Rsa(Box::new(key)) })
    }

    /// The public half.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let random = SystemRandom::new();
        let failed = |_| bad("signing failed");
        match &self.kind {
            PrivateKind::P256(key) => Ok(key.sign(&random, message).map_err(failed)?.as_ref().to_vec()),
            PrivateKind::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(failed)?;
                Ok(signature)
            }
        }
    }
}

/// Label and content of each PEM block.
fn blocks(pem: &[u8]) -> Result<Vec<(String, Vec<u8>)>, KeyError> {
    let text = std::str::from_utf8(pem).map_err(|_| bad("not PEM"))?;
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        let (label, body) = after.split_once("-----").ok_or_else(|| bad("PEM block is not complete"))?;
        let end = format!("-----END {label}-----");
        let (body, tail) = body.split_once(&end).ok_or_else(|| bad("PEM block is not complete"))?;
        let body: String = body.chars().filter(|c| !c.is_whitespace()).collect();
        // Parameters of a curve come before the key in some files and say nothing that the key does not.
        if label != "EC PARAMETERS" {
            blocks.push((label.to_owned(), STANDARD.decode(body).map_err(|_| bad("PEM block is not base64"))?));
        }
        rest = tail;
    }
    Ok(blocks)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// PEM of a new P-256 key, PKCS#8.
    pub fn p256_pem() -> Vec<u8> {
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).expect("key");
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(key)).into_bytes()
    }

    fn openssl(args: &[&str]) -> Option<Vec<u8>> {
        let output = std::process::Command::new("openssl").args(args).output().ok()?;
        output.status.success().then_some(output.stdout)
    }

    fn round_trip(private: &[u8], public: &[u8], algorithm: &str) {
        let key = SigningKey::from_pem(private).expect("private key");
        let signature = key.sign(b"message").expect("signature");
        for public in [PublicKey::from_pem(public).expect("public"), PublicKey::from_pem(private).expect("own half")] {
            assert_eq!((public.len(), &public[0].id, public[0].algorithm()), (1, &key.public().id, algorithm));
            assert!(public[0].verifies(b"message", &signature));
            assert!(!public[0].verifies(b"massage", &signature));
            assert_eq!(public[0].to_jwk()["kid"], key.public().id.as_str());
        }
    }

    #[test]
    fn generated_key() {
        let pem = p256_pem();
        round_trip(&pem, &pem, "ES256");
    }

    /// Keys as openssl writes them, in all forms that are in use.
    #[test]
    fn keys_of_openssl() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("key");
        let path = path.to_str().expect("text");
        let forms: [(&[&str], &str); 4] = [
            (&["genrsa", "-traditional", "2048"], "RS256"),
            (&["genrsa", "2048"], "RS256"),
            (&["ecparam", "-name", "prime256v1", "-genkey"], "ES256"),
            (&["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"], "ES256"),
        ];
        for (form, algorithm) in forms {
            let Some(private) = openssl(form) else { return };
            std::fs::write(path, &private).expect("write");
            let public = openssl(&["pkey", "-in", path, "-pubout"]).expect("public half");
            round_trip(&private, &public, algorithm);
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let cases = ["", "x", "-----BEGIN PRIVATE KEY-----\nAAAA", "-----BEGIN X-----\nAAAA\n-----END X-----"];
        for pem in cases {
            assert!(
                SigningKey::from_pem(pem.as_bytes()).is_err() && PublicKey::from_pem(pem.as_bytes()).is_err(),
                "{pem}"
            );
        }
    }
}
