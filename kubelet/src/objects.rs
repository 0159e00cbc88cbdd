//! ConfigMaps, Secrets and tokens that pods refer to, read from the API when they are needed: always fresh, nothing kept
//! but tokens.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;

use crate::container::env::{Needs, Objects};
use crate::pods::spec;

/// A token is replaced at this age, however long it is valid.
const MAX_TOKEN_AGE: SignedDuration = SignedDuration::from_hours(24);

/// (pod uid, audience, lifetime in seconds).
type TokenKey = (String, String, i64);

struct Token {
    text: String,
    refresh_at: Timestamp,
}

/// Reads what pods refer to. Clones share the tokens.
#[derive(Clone)]
pub struct Store {
    client: Client,
    tokens: Arc<Mutex<HashMap<TokenKey, Token>>>,
}

impl Store {
    /// A store over the API.
    pub fn new(client: Client) -> Self {
        Self { client, tokens: Arc::default() }
    }

    /// A ConfigMap; `None` if there is none.
    pub async fn config_map(&self, namespace: &str, name: &str) -> kube::Result<Option<ConfigMap>> {
        Api::<ConfigMap>::namespaced(self.client.clone(), namespace).get_opt(name).await
    }

    /// A Secret; `None` if there is none.
    pub async fn secret(&self, namespace: &str, name: &str) -> kube::Result<Option<Secret>> {
        Api::<Secret>::namespaced(self.client.clone(), namespace).get_opt(name).await
    }

    /// All objects that are needed, as far as they exist.
    pub async fn fetch(&self, namespace: &str, needs: &Needs) -> kube::Result<Objects> {
        let mut objects = Objects::default();
        for name in &needs.config_maps {
            if let Some(map) = self.config_map(namespace, name).await? {
                objects.config_maps.insert(name.clone(), Arc::new(map));
            }
        }
        for name in &needs.secrets {
            if let Some(secret) = self.secret(namespace, name).await? {
                objects.secrets.insert(name.clone(), Arc::new(secret));
            }
        }
        Ok(objects)
    }

    /// A token of the pod's service account, bound to the pod; a new one once four fifths of its life are over.
    pub async fn token(&self, pod: &Pod, audience: &str, lifetime: i64) -> kube::Result<String> {
        let key = (spec::uid(pod).to_owned(), audience.to_owned(), lifetime);
        if let Some(token) = self.tokens.lock().get(&key).filter(|t| t.refresh_at > Timestamp::now()) {
            return Ok(token.text.clone());
        }
        let account = spec::spec(pod).service_account_name.as_deref().unwrap_or("default");
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(audience.to_owned()).filter(|a| !a.is_empty()).map(|a| vec![a]),
                expiration_seconds: Some(lifetime),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: Some(spec::name(pod).to_owned()),
                    uid: Some(spec::uid(pod).to_owned()),
                }),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let api = Api::<ServiceAccount>::namespaced(self.client.clone(), spec::namespace(pod));
        let issued = Timestamp::now();
        let answer = api.create_token_request(account, &PostParams::default(), &request).await?;
        let status = answer.status.unwrap_or_default();
        let text = status.token.unwrap_or_default();
        let life = status.expiration_timestamp.map_or(SignedDuration::ZERO, |t| t.0.duration_since(issued));
        let refresh_at = issued + (life * 4 / 5).min(MAX_TOKEN_AGE);
        self.tokens.lock().insert(key, Token { text: text.clone(), refresh_at });
        Ok(text)
    }

    /// Forgets the tokens of a pod that is gone.
    pub fn forget(&self, uid: &str) {
        self.tokens.lock().retain(|(owner, ..), _| owner != uid);
    }
}
