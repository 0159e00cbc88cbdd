//! Key pairs of pods and the requests that prove their possession: empty PKCS#10 requests, signed by the key itself.

use p521::ecdsa::signature::Signer;
use p521::elliptic_curve::Generate;
use p521::pkcs8::EncodePrivateKey;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _};
use rsa::rand_core::UnwrapErr;

/// Object identifiers, encoded.
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const RSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];
const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const ECDSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03];
const ECDSA_SHA512: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

const SEQUENCE: u8 = 0x30;
const OBJECT: u8 = 0x06;
const BITS: u8 = 0x03;
const OCTETS: u8 = 0x04;
const NULL: &[u8] = &[0x05, 0x00];
const ZERO: &[u8] = &[0x02, 0x01, 0x00];

/// A key pair with its request.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// The private key, PKCS#8.
    pub key: Vec<u8>,
    /// The request, PKCS#10.
    pub request: Vec<u8>,
}

/// A key pair that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The type's name is not known.
    #[error("unknown key type {0:?}")]
    Unknown(String),
    /// The cryptography failed.
    #[error("making a key pair failed")]
    Failed,
}

/// Makes a key pair of a type that a pod may name. It may take seconds.
pub fn generate(kind: &str) -> Result<KeyPair, Error> {
    match kind {
        "RSA3072" => rsa_pair(3072),
        "RSA4096" => rsa_pair(4096),
        "ECDSAP256" => ecdsa(&signature::ECDSA_P256_SHA256_ASN1_SIGNING, P256, ECDSA_SHA256),
        "ECDSAP384" => ecdsa(&signature::ECDSA_P384_SHA384_ASN1_SIGNING, P384, ECDSA_SHA384),
        "ECDSAP521" => p521_pair(),
        "ED25519" => ed25519(),
        other => Err(Error::Unknown(other.to_owned())),
    }
}

fn rsa_pair(bits: usize) -> Result<KeyPair, Error> {
    let private = rsa::PrivateKey::new(&mut UnwrapErr(getrandom::SysRng), bits).map_err(|_| Error::Failed)?;
    let key = private.to_pkcs8_der().map_err(|_| Error::Failed)?.as_bytes().to_vec();
    let pair = ring::rsa::KeyPair::from_pkcs8(&key).map_err(|_| Error::Failed)?;
    let public = public_key(&[object(RSA_ENCRYPTION), NULL.to_vec()].concat(), pair.public().as_ref());
    let sign = |message: &[u8]| {
        let mut signature = vec![0; pair.public().modulus_len()];
        let random = SystemRandom::new();
        pair.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(|_| Error::Failed)?;
        Ok(signature)
    };
    Ok(KeyPair { request: request(&public, &[object(RSA_SHA256), NULL.to_vec()].concat(), sign)?, key })
}

fn ecdsa(algorithm: &'static EcdsaSigningAlgorithm, curve: &[u8], signed: &[u8]) -> Result<KeyPair, Error> {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(|_| Error::Failed)?;
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).map_err(|_| Error::Failed)?;
    let public = public_key(&[object(EC_PUBLIC_KEY), object(curve)].concat(), pair.public_key().as_ref());
    let sign = |message: &[u8]| {
        let signature = pair.sign(&random, message).map_err(|_| Error::Failed)?;
        Ok(signature.as_ref().to_vec())
    };
    Ok(KeyPair { request: request(&public, &object(signed), sign)?, key: document.as_ref().to_vec() })
}

fn p521_pair() -> Result<KeyPair, Error> {
    let secret = p521::SecretKey::try_generate_from_rng(&mut getrandom::SysRng).map_err(|_| Error::Failed)?;
    let key = secret.to_pkcs8_der().map_err(|_| Error::Failed)?.as_bytes().to_vec();
    let pair = p521::ecdsa::SigningKey::from(&secret);
    let point = pair.verifying_key().to_sec1_point(false);
    let public = public_key(&[object(EC_PUBLIC_KEY), object(P521)].concat(), point.as_ref());
    let sign = |message: &[u8]| {
        let signature: p521::ecdsa::DerSignature = pair.try_sign(message).map_err(|_| Error::Failed)?;
        Ok(signature.as_bytes().to_vec())
    };
    Ok(KeyPair { request: request(&public, &object(ECDSA_SHA512), sign)?, key })
}

fn ed25519() -> Result<KeyPair, Error> {
    let mut seed = [0; 32];
    SystemRandom::new().fill(&mut seed).map_err(|_| Error::Failed)?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| Error::Failed)?;
    let algorithm = object(ED25519);
    // The first version of the format, which everything reads.
    let parts = [ZERO.to_vec(), tlv(SEQUENCE, &algorithm), tlv(OCTETS, &tlv(OCTETS, &seed))];
    let public = public_key(&algorithm, pair.public_key().as_ref());
    let sign = |message: &[u8]| Ok(pair.sign(message).as_ref().to_vec());
    Ok(KeyPair { request: request(&public, &algorithm, sign)?, key: tlv(SEQUENCE, &parts.concat()) })
}

/// An empty PKCS#10 request: no name, no attributes, the key alone.
fn request(public: &[u8], algorithm: &[u8], sign: impl Fn(&[u8]) -> Result<Vec<u8>, Error>) -> Result<Vec<u8>, Error> {
    let no_attributes = [0xa0, 0x00];
    let info = tlv(SEQUENCE, &[ZERO, &tlv(SEQUENCE, &[]), public, &no_attributes].concat());
    let signature = bits(&sign(&info)?);
    Ok(tlv(SEQUENCE, &[info, tlv(SEQUENCE, algorithm), signature].concat()))
}

/// A SubjectPublicKeyInfo.
fn public_key(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    tlv(SEQUENCE, &[tlv(SEQUENCE, algorithm), bits(key)].concat())
}

fn object(encoded: &[u8]) -> Vec<u8> {
    tlv(OBJECT, encoded)
}

/// A bit string of whole bytes.
fn bits(bytes: &[u8]) -> Vec<u8> {
    tlv(BITS, &[&[0], bytes].concat())
}

/// An element of DER: tag, length, content.
fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let significant = length.iter().skip_while(|b| **b == 0).copied().collect::<Vec<u8>>();
    let mut out = vec![tag];
    match significant.as_slice() {
        [] => out.push(0),
        [short] if *short < 0x80 => out.push(*short),
        long => {
            out.push(0x80 | u8::try_from(long.len()).unwrap_or(u8::MAX));
            out.extend_from_slice(long);
        }
    }
    out.extend_from_slice(content);
    out
}

#[cfg(test)]
mod tests {
    use x509_parser::prelude::*;

    use super::*;

    #[test]
    fn lengths() {
        assert_eq!(tlv(4, &[]), [4, 0]);
        assert_eq!(tlv(4, &[1]), [4, 1, 1]);
        assert_eq!(tlv(4, &[0; 128])[..3], [4, 0x81, 128]);
        assert_eq!(tlv(4, &[0; 300])[..4], [4, 0x82, 1, 44]);
    }

    #[test]
    fn requests_are_empty_and_signed_by_their_keys() {
        for kind in ["ECDSAP256", "ECDSAP384", "ED25519", "RSA3072"] {
            let pair = generate(kind).unwrap();
            let (rest, request) = X509CertificationRequest::from_der(&pair.request).unwrap();
            assert!(rest.is_empty(), "{kind}");
            request.verify_signature().unwrap_or_else(|e| panic!("{kind}: {e}"));
            assert_eq!(request.certification_request_info.subject.iter().count(), 0);
            assert_ne!(generate(if kind == "RSA3072" { "ED25519" } else { kind }).unwrap().key, pair.key);
        }
        assert!(generate("RSA1024").is_err());
    }

    /// Not what this parser verifies: by its own crate.
    #[test]
    fn p521_requests() {
        use p521::ecdsa::signature::Verifier;
        let pair = generate("ECDSAP521").unwrap();
        let (_, request) = X509CertificationRequest::from_der(&pair.request).unwrap();
        let info = &request.certification_request_info;
        let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(&info.subject_pki.subject_public_key.data).unwrap();
        let signature = p521::ecdsa::DerSignature::try_from(request.signature_value.data.as_ref()).unwrap();
        key.verify(info.raw, &signature).unwrap();
    }
}
