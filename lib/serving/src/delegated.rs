//! Authentication and authorization that ask the API server: client certificates are verified here, bearer tokens by
//! TokenReview, permissions by SubjectAccessReview; answers are kept for a short while.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderMap, header};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, api::PostParams};
use parking_lot::Mutex;
use rustls::{
    RootCertStore,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use rustls_pki_types::UnixTime;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::tls::{PeerCertificates, certificates};

const CACHE_LIMIT: usize = 4096;
const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const AUTHENTICATED: &str = "system:authenticated";

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct User {
    /// The name.
    pub name: String,
    /// What tells apart users of one name over time.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Whatever else the authenticator knows.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Attributes {
    /// A verb on an API resource.
    Resource {
        /// `get`, `create`, ….
        verb: String,
        /// The API version.
        version: String,
        /// The plural name.
        resource: String,
        /// The subresource, or empty.
        subresource: String,
        /// The object's name.
        name: String,
    },
    /// A verb on a path.
    Path {
        /// The HTTP method in lower case.
        verb: String,
        /// The path.
        path: String,
    },
}

/// Why a request may not pass.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The credentials are missing or no good.
    #[error("Unauthorized")]
    Unauthorized,
    /// The API server could not be asked.
    #[error("asking the API server failed")]
    Unavailable(#[from] kube::Error),
}

/// What is to be accepted, and how long answers are kept.
pub struct Settings {
    /// PEM of the authority whose client certificates are accepted.
    pub client_ca: Option<Vec<u8>>,
    /// Requests without credentials pass as `system:anonymous`.
    pub anonymous: bool,
    /// How long the API server's word on a token holds.
    pub token_ttl: Duration,
    /// How long a permission holds.
    pub allowed_ttl: Duration,
    /// How long a refusal holds.
    pub denied_ttl: Duration,
}

impl Settings {
    /// Client certificates of one authority, tokens, no anonymous requests, answers kept for ten seconds.
    pub fn new(client_ca: Option<Vec<u8>>) -> Self {
        let ttl = Duration::from_secs(10);
        Self { client_ca, anonymous: false, token_ttl: ttl, allowed_ttl: ttl, denied_ttl: ttl }
    }
}

/// Authenticates and authorizes requests.
pub struct Delegated {
    client: kube::Client,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    settings: Settings,
    tokens: Cache<[u8; 32], Option<User>>,
    decisions: Cache<(User, Attributes), bool>,
}

impl Delegated {
    /// With the API server behind `client` as the judge.
    pub fn new(client: kube::Client, settings: Settings) -> anyhow::Result<Self> {
        let verifier = settings.client_ca.as_deref().map(verifier).transpose()?;
        Ok(Self { client, verifier, settings, tokens: Cache::default(), decisions: Cache::default() })
    }

    /// Finds out who sent a request.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        certificates: Option<&PeerCertificates>,
    ) -> Result<User, Error> {
        if let (Some(verifier), Some(certificates)) = (&self.verifier, certificates) {
            if let Some(user) = certificate_user(verifier.as_ref(), certificates) {
                return Ok(user);
            }
            tracing::debug!("client certificate is not acceptable");
            if bearer_token(headers).is_none() {
                return Err(Error::Unauthorized);
            }
        }
        match bearer_token(headers) {
            Some(token) => self.token_user(token).await?.ok_or(Error::Unauthorized),
            None if self.settings.anonymous && !headers.contains_key(header::AUTHORIZATION) => Ok(anonymous()),
            None => Err(Error::Unauthorized),
        }
    }

    /// Whether `user` may do it.
    pub async fn authorize(&self, user: &User, attributes: &Attributes) -> Result<bool, Error> {
        let key = (user.clone(), attributes.clone());
        if let Some(allowed) = self.decisions.get(&key) {
            return Ok(allowed);
        }
        let review = access_review(user, attributes);
        let answer =
            Api::<SubjectAccessReview>::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        let ttl = if allowed { self.settings.allowed_ttl } else { self.settings.denied_ttl };
        self.decisions.put(key, allowed, ttl);
        Ok(allowed)
    }

    async fn token_user(&self, token: &str) -> Result<Option<User>, Error> {
        let key = Sha256::digest(token.as_bytes()).into();
        if let Some(user) = self.tokens.get(&key) {
            return Ok(user);
        }
        let spec = TokenReviewSpec { token: token.into(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = Api::<TokenReview>::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let status = answer.status.filter(|status| status.authenticated == Some(true));
        let user = status.and_then(|status| status.user).map(reviewed_user);
        self.tokens.put(key, user.clone(), self.settings.token_ttl);
        Ok(user)
    }
}

fn anonymous() -> User {
    User { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..User::default() }
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn reviewed_user(user: UserInfo) -> User {
    User {
        name: user.username.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    }
}

fn verifier(client_ca: &[u8]) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(client_ca)? {
        roots.add(authority)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?)
}

/// The user that a verified certificate names: common name, organizations as groups.
fn certificate_user(verifier: &dyn ClientCertVerifier, PeerCertificates(chain): &PeerCertificates) -> Option<User> {
    let (own, intermediates) = chain.split_first()?;
    verifier.verify_client_cert(own, intermediates, UnixTime::now()).ok()?;
    let (_, certificate) = X509Certificate::from_der(own).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let organizations = subject.iter_organization().filter_map(|value| value.as_str().ok());
    let groups = organizations.map(str::to_owned).chain([AUTHENTICATED.to_owned()]).collect();
    (!name.is_empty()).then(|| User { name, groups, ..User::default() })
}

fn access_review(user: &User, attributes: &Attributes) -> SubjectAccessReview {
    let filled = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let mut spec = SubjectAccessReviewSpec {
        user: Some(user.name.clone()),
        uid: filled(&user.uid),
        groups: Some(user.groups.clone()),
        extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
        ..SubjectAccessReviewSpec::default()
    };
    match attributes {
        Attributes::Resource { verb, version, resource, subresource, name } => {
            spec.resource_attributes = Some(ResourceAttributes {
                verb: filled(verb),
                version: filled(version),
                resource: filled(resource),
                subresource: filled(subresource),
                name: filled(name),
                ..ResourceAttributes::default()
            });
        }
        Attributes::Path { verb, path } => {
            spec.non_resource_attributes = Some(NonResourceAttributes { verb: filled(verb), path: filled(path) });
        }
    }
    SubjectAccessReview { spec, ..SubjectAccessReview::default() }
}

/// Answers that hold for a while.
struct Cache<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Cache<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let entries = self.0.lock();
        let (until, value) = entries.get(key)?;
        (Instant::now() < *until).then(|| value.clone())
    }

    fn put(&self, key: K, value: V, ttl: Duration) {
        let now = Instant::now();
        let mut entries = self.0.lock();
        if entries.len() >= CACHE_LIMIT {
            entries.retain(|_, (until, _)| now < *until);
            if entries.len() >= CACHE_LIMIT {
                entries.clear();
            }
        }
        entries.insert(key, (now + ttl, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_tokens_are_found() {
        let token = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            bearer_token(&headers).map(str::to_owned)
        };
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("bearer  abc ").as_deref(), Some("abc"));
        assert_eq!(token("Basic abc"), None);
        assert_eq!(token("Bearer "), None);
    }

    #[test]
    fn answers_expire_and_are_bounded() {
        let cache = Cache::<usize, bool>::default();
        cache.put(1, true, Duration::from_secs(60));
        cache.put(2, true, Duration::ZERO);
        assert_eq!((cache.get(&1), cache.get(&2)), (Some(true), None));
        for key in 0..3 * CACHE_LIMIT {
            cache.put(key, false, Duration::from_secs(60));
        }
        assert!(cache.0.lock().len() <= CACHE_LIMIT);
    }

    #[test]
    fn reviews_carry_the_whole_question() {
        let user = User { name: "a".into(), groups: vec!["g".into()], ..User::default() };
        let resource = Attributes::Resource {
            verb: "get".into(),
            version: "v1".into(),
            resource: "nodes".into(),
            subresource: "stats".into(),
            name: "n1".into(),
        };
        let spec = access_review(&user, &resource).spec;
        let asked = spec.resource_attributes.unwrap();
        assert_eq!((asked.subresource.as_deref(), asked.name.as_deref()), (Some("stats"), Some("n1")));
        assert_eq!((spec.user.as_deref(), asked.group), (Some("a"), None));
        let path = Attributes::Path { verb: "get".into(), path: "/metrics".into() };
        assert_eq!(access_review(&user, &path).spec.non_resource_attributes.unwrap().path.as_deref(), Some("/metrics"));
    }
}
