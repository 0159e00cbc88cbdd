//! Who asks: from the credentials of a request to a user.
//!
//! The order is upstream's: a front proxy's headers, a client certificate, then the bearer token in turn as a static, a
//! service account and a bootstrap token. The first that knows the credential wins. A bearer token that nobody knows is
//! refused. Without any credentials the user is anonymous. Impersonation comes after that ([`impersonate`]).

pub mod bootstrap;
pub mod front_proxy;
pub mod impersonate;
pub mod service_account;
pub mod static_tokens;
pub mod x509;

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use pintle_machinery::status::ApiError;
use sha2::{Digest, Sha256};

use super::token::Issuer;
use super::{AUTHENTICATED, Objects, UserInfo};
use front_proxy::{FrontProxy, Roots};
use static_tokens::StaticTokens;

/// A user and the audiences that the credential is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticated {
    /// Who.
    pub user: UserInfo,
    /// For whom; empty for credentials that name none.
    pub audiences: Vec<String>,
}

/// Recognizes users.
pub struct Authenticator {
    objects: Arc<dyn Objects>,
    issuer: Arc<Issuer>,
    tokens: StaticTokens,
    front_proxy: Option<FrontProxy>,
    /// Authority of client certificates, if TLS also accepts those of another.
    client_roots: Option<Roots>,
    /// Requests without credentials are let in as anonymous.
    anonymous: bool,
    recent: Mutex<Recent>,
    /// Whom certificates name.
    named: Mutex<HashMap<Box<[u8]>, Option<UserInfo>>>,
}

/// Bearer tokens by hash, when they were last found good, and whose they are.
type Recent = HashMap<[u8; 32], (Timestamp, UserInfo)>;

/// A token that was good is not looked at again for so long, as upstream does.
const REMEMBERED: SignedDuration = SignedDuration::from_secs(10);
/// Tokens, and certificates, that are remembered at most.
const MOST_REMEMBERED: usize = 4096;

impl Authenticator {
    /// Over the cluster's objects, with its service account keys.
    pub fn new(objects: Arc<dyn Objects>, issuer: Arc<Issuer>, tokens: StaticTokens, anonymous: bool) -> Self {
        let (recent, named) = (Mutex::default(), Mutex::default());
        Self { objects, issuer, tokens, front_proxy: None, client_roots: None, anonymous, recent, named }
    }

    /// Trusts a front proxy. As TLS then accepts certificates of its authority too, client certificates are checked against
    /// their own, `client_roots`, here.
    pub fn with_front_proxy(mut self, proxy: FrontProxy, client_roots: Roots) -> Self {
        self.front_proxy = Some(proxy);
        self.client_roots = Some(client_roots);
        self
    }

    /// The user behind a request. `certificate` is the DER of the client certificate, which TLS has verified.
    pub fn authenticate(
        &self,
        headers: &HeaderMap,
        certificate: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<UserInfo, ApiError> {
        if let Some(certificate) = certificate
            && let Some(proxy) = &self.front_proxy
            && let Some(user) = proxy.user(headers, certificate)
        {
            return Ok(with_group(user));
        }
        let own = |certificate: &&[u8]| self.client_roots.as_ref().is_none_or(|roots| roots.verifies(certificate));
        if let Some(user) = certificate.filter(own).and_then(|certificate| self.named(certificate)) {
            return Ok(with_group(user));
        }
        match bearer(headers) {
            Some(token) => match self.own_token(token, now) {
                Ok(Some(user)) => Ok(user),
                Ok(None) => Err(ApiError::Unauthorized),
                Err(error) => {
                    tracing::debug!(%error, "bearer token refused");
                    Err(ApiError::Unauthorized)
                }
            },
            None if self.anonymous => Ok(UserInfo::anonymous()),
            None => Err(ApiError::Unauthorized),
        }
    }

    /// The user that a verified certificate names.
    fn named(&self, certificate: &[u8]) -> Option<UserInfo> {
        if let Some(user) = self.named.lock().get(certificate) {
            return user.clone();
        }
        let user = x509::user(certificate);
        let mut named = self.named.lock();
        if named.len() >= MOST_REMEMBERED {
            named.clear();
        }
        named.insert(certificate.into(), user.clone());
        user
    }

    /// The user behind a bearer token for this server, from memory if it was good a moment ago.
    fn own_token(&self, token: &str, now: Timestamp) -> Result<Option<UserInfo>, String> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        if let Some((at, user)) = self.recent.lock().get(&hash)
            && (SignedDuration::ZERO..REMEMBERED).contains(&now.duration_since(*at))
        {
            return Ok(Some(user.clone()));
        }
        let user = self.token(token, &self.issuer.audiences, now)?.map(|found| found.user);
        if let Some(user) = &user {
            let mut recent = self.recent.lock();
            if recent.len() >= MOST_REMEMBERED {
                recent.clear();
            }
            recent.insert(hash, (now, user.clone()));
        }
        Ok(user)
    }

    /// The user behind a bearer token for one of these audiences; `None` if nobody knows it, `Err` if it is known and wrong.
    pub fn token(&self, token: &str, audiences: &[String], now: Timestamp) -> Result<Option<Authenticated>, String> {
        let plain = |user| Some(Authenticated { user: with_group(user), audiences: Vec::new() });
        if let Some(user) = self.tokens.user(token) {
            return Ok(plain(user));
        }
        if let Some(found) = service_account::authenticate(&self.issuer, token, audiences, &*self.objects, now)? {
            return Ok(Some(Authenticated { user: with_group(found.user), audiences: found.audiences }));
        }
        Ok(bootstrap::user(token, &*self.objects, now).and_then(plain))
    }

    /// The audiences of this server.
    pub fn audiences(&self) -> &[String] {
        &self.issuer.audiences
    }
}

fn with_group(mut user: UserInfo) -> UserInfo {
    user.join(AUTHENTICATED);
    user
}

/// The token in `Authorization: Bearer TOKEN`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = value.split_once(' ')?;
    let token = token.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Equal, in a time that does not depend on where they differ.
fn same_secret(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::auth::testing::Fixed;
    use crate::auth::token::tests::issuer;
    use crate::auth::{ANONYMOUS, MASTERS, text};

    pub fn authenticator(objects: Fixed) -> Authenticator {
        let tokens = StaticTokens::parse("admintoken,admin,admin-uid,system:masters\n").expect("tokens");
        Authenticator::new(Arc::new(objects), Arc::new(issuer()), tokens, true)
    }

    fn headers(authorization: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if !authorization.is_empty() {
            headers.insert("authorization", authorization.parse().expect("header"));
        }
        headers
    }

    #[test]
    fn the_chain() {
        let mut objects = Fixed::default();
        objects.add("", "serviceaccounts", json!({"metadata": {"name": "sa", "namespace": "d", "uid": "u"}}));
        let account = objects.get("", "serviceaccounts", "d", "sa").expect("account");
        let authenticator = authenticator(objects.clone());
        let now = Timestamp::now();
        let request = json!({"spec": {}});
        let issued = authenticator.issuer.answer(&request, &account, &objects, now).expect("token");
        let good = format!("Bearer {}", text(&issued, &["status", "token"]));
        let cases = [
            ("", Some(ANONYMOUS)),
            ("Basic Zm9vOmJhcg==", Some(ANONYMOUS)),
            ("Bearer admintoken", Some("admin")),
            ("bearer admintoken", Some("admin")),
            ("Bearer ", Some(ANONYMOUS)),
            ("Bearer wrong", None),
            ("Bearer a.b.c", None),
            (&good, Some("system:serviceaccount:d:sa")),
            (&good[..good.len() - 4], None),
        ];
        for (header, wanted) in cases {
            let user = authenticator.authenticate(&headers(header), None, now);
            assert_eq!(user.as_ref().ok().map(|user| user.name.as_str()), wanted, "{header}");
            if let Err(error) = user {
                assert_eq!(error.code(), 401);
            }
        }
        let admin = authenticator.authenticate(&headers("Bearer admintoken"), None, now).expect("admin");
        assert_eq!((admin.uid.as_str(), admin.groups), ("admin-uid", vec![MASTERS.to_owned(), AUTHENTICATED.into()]));
    }

    #[test]
    fn good_tokens_are_remembered_for_a_moment() {
        let mut objects = Fixed::default();
        objects.add("", "serviceaccounts", json!({"metadata": {"name": "sa", "namespace": "d", "uid": "u"}}));
        let account = objects.get("", "serviceaccounts", "d", "sa").expect("account");
        let mut authenticator = authenticator(objects.clone());
        let now = Timestamp::now();
        let issued = authenticator.issuer.answer(&json!({"spec": {}}), &account, &objects, now).expect("token");
        let headers = headers(&format!("Bearer {}", text(&issued, &["status", "token"])));
        let user = authenticator.authenticate(&headers, None, now).expect("good");
        authenticator.objects = Arc::new(Fixed::default());
        let later = |seconds| authenticator.authenticate(&headers, None, now + SignedDuration::from_secs(seconds));
        assert_eq!(later(9), Ok(user));
        assert_eq!(later(10), Err(ApiError::Unauthorized), "the account is gone");
    }

    #[test]
    fn anonymous_can_be_off() {
        let mut closed = authenticator(Fixed::default());
        closed.anonymous = false;
        assert_eq!(closed.authenticate(&HeaderMap::new(), None, Timestamp::now()), Err(ApiError::Unauthorized));
    }

    #[test]
    fn secrets_are_compared_whole() {
        assert!(same_secret("abc", "abc") && !same_secret("abc", "abd") && !same_secret("abc", "ab"));
    }
}
