//! JSON web tokens in compact form.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use super::keys::{KeyError, PublicKey, SigningKey};
use crate::auth::text;

/// Why a signature was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Not a token in compact form with an acceptable header.
    #[error("invalid bearer token")]
    Malformed,
    /// No known key made the signature.
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    Signature,
}

/// Signs claims.
pub fn sign(key: &SigningKey, claims: &Value) -> Result<String, KeyError> {
    let header = json!({"alg": key.public().algorithm(), "kid": key.public().id});
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(&header), encode(claims));
    let signature = key.sign(signed.as_bytes())?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// The claims of a token, not verified: to see whether it concerns us at all.
pub fn peek(token: &str) -> Option<Map<String, Value>> {
    let [_, claims, _] = parts(token)?;
    decode(claims)
}

/// The claims of a token that one of the keys has signed.
pub fn verify(keys: &[PublicKey], token: &str) -> Result<Map<String, Value>, Rejected> {
    let [head, claims, signature] = parts(token).ok_or(Rejected::Malformed)?;
    let header = Value::Object(decode(head).ok_or(Rejected::Malformed)?);
    // A critical extension that is not understood must not be ignored.
    if header.get("crit").is_some() {
        return Err(Rejected::Malformed);
    }
    let signed = &token[..head.len() + 1 + claims.len()];
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Rejected::Malformed)?;
    let id = text(&header, &["kid"]);
    let named = keys.iter().any(|key| key.id == id);
    let mut candidates =
        keys.iter().filter(|key| (!named || key.id == id) && key.algorithm() == text(&header, &["alg"]));
    match candidates.any(|key| key.verifies(signed.as_bytes(), &signature)) {
        true => decode(claims).ok_or(Rejected::Malformed),
        false => Err(Rejected::Signature),
    }
}

fn parts(token: &str) -> Option<[&str; 3]> {
    let mut parts = token.split('.');
    let all = [parts.next()?, parts.next()?, parts.next()?];
    parts.next().is_none().then_some(all)
}

fn decode(part: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::token::keys::tests::p256_pem;

    #[test]
    fn only_known_keys_verify() {
        let (key, other) = (SigningKey::from_pem(&p256_pem()).unwrap(), SigningKey::from_pem(&p256_pem()).unwrap());
        let claims = json!({"iss": "me", "n": 7});
        let token = sign(&key, &claims).unwrap();
        let keys = [other.public().clone(), key.public().clone()];
        assert_eq!(Value::Object(verify(&keys, &token).unwrap()), claims);
        assert_eq!(peek(&token).unwrap()["iss"], "me");
        assert_eq!(verify(&keys[..1], &token), Err(Rejected::Signature));
        assert_eq!(verify(&[], &token), Err(Rejected::Signature));
    }

    #[test]
    fn changed_and_malformed_tokens_are_refused() {
        let key = SigningKey::from_pem(&p256_pem()).unwrap();
        let keys = [key.public().clone()];
        let token = sign(&key, &json!({"a": 1})).unwrap();
        let parts: Vec<&str> = token.split('.').collect();
        let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let none = encode(json!({"alg": "none"}));
        let critical = encode(json!({"alg": "ES256", "crit": ["x"]}));
        for wrong in [
            String::new(),
            "a.b.c".into(),
            format!("{}.{}", parts[0], parts[1]),
            format!("{token}.x"),
            format!("{}.{}.{}", parts[0], encode(json!({"a": 2})), parts[2]),
            format!("{none}.{}.", parts[1]),
            format!("{critical}.{}.{}", parts[1], parts[2]),
            format!("{}.{}.{}", parts[0], parts[1], &parts[2][..20]),
        ] {
            assert!(verify(&keys, &wrong).is_err(), "{wrong}");
        }
    }
}
