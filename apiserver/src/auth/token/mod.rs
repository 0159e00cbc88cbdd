//! Service account tokens: keys, signing and verifying, issuing, and the documents that tell others how to verify.

pub mod issue;
pub mod jwt;
pub mod keys;

use serde_json::{Value, json};

use keys::{KeyError, PublicKey, SigningKey};

/// Issues and knows the cluster's service account tokens.
pub struct Issuer {
    /// `iss` of the tokens.
    pub issuer: String,
    /// Audiences of the API server: the default for tokens.
    pub audiences: Vec<String>,
    signing: SigningKey,
    verifying: Vec<PublicKey>,
}

impl Issuer {
    /// From PEM: the key that signs, and further ones whose tokens are accepted. Without `audiences` the issuer is the audience.
    pub fn new(issuer: &str, audiences: &[String], signing: &[u8], further: &[Vec<u8>]) -> Result<Self, KeyError> {
        let signing = SigningKey::from_pem(signing)?;
        let mut verifying = vec![signing.public().clone()];
        for pem in further {
            for key in PublicKey::from_pem(pem)? {
                if verifying.iter().all(|known| known.id != key.id) {
                    verifying.push(key);
                }
            }
        }
        let audiences = if audiences.is_empty() { vec![issuer.to_owned()] } else { audiences.to_vec() };
        Ok(Self { issuer: issuer.into(), audiences, signing, verifying })
    }

    /// The keys that verify.
    pub fn keys(&self) -> &[PublicKey] {
        &self.verifying
    }

    /// Body of `/openid/v1/jwks` (media type `application/jwk-set+json`).
    pub fn jwks(&self) -> Value {
        json!({"keys": self.verifying.iter().map(PublicKey::to_jwk).collect::<Vec<_>>()})
    }

    /// Body of `/.well-known/openid-configuration`; `server` is how clients reach the API server, `https://HOST:PORT`.
    pub fn discovery(&self, server: &str) -> Value {
        let mut algorithms: Vec<&str> = self.verifying.iter().map(PublicKey::algorithm).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        json!({
            "issuer": self.issuer,
            "jwks_uri": format!("{server}/openid/v1/jwks"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn issuer() -> Issuer {
        Issuer::new("https://kubernetes.default.svc", &[], &keys::tests::p256_pem(), &[]).expect("issuer")
    }

    #[test]
    fn documents() {
        let pem = keys::tests::p256_pem();
        let issuer = Issuer::new("https://i", &[], &pem, &[pem.clone(), keys::tests::p256_pem()]).expect("issuer");
        let keys = issuer.jwks();
        assert_eq!(keys["keys"].as_array().map(Vec::len), Some(2), "the same key once");
        assert_eq!((&keys["keys"][0]["kty"], &keys["keys"][0]["alg"]), (&json!("EC"), &json!("ES256")));
        let document = issuer.discovery("https://10.0.0.1:6443");
        assert_eq!(document["jwks_uri"], "https://10.0.0.1:6443/openid/v1/jwks");
        assert_eq!(document["id_token_signing_alg_values_supported"], json!(["ES256"]));
        assert_eq!(issuer.audiences, ["https://i"]);
    }
}
