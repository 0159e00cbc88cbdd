//! Users named in headers by a front proxy (an aggregator) that shows a certificate of its own authority.

use std::sync::Arc;

use http::HeaderMap;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::impersonate::extras;
use super::x509::common_name;
use crate::auth::UserInfo;

/// Certificates of an authority that client certificates must chain to.
#[derive(Debug, Clone)]
pub struct Roots(Arc<dyn ClientCertVerifier>);

impl Roots {
    /// From PEM.
    pub fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|e| format!("client authority: {e}"))?;
            roots.add(certificate).map_err(|e| format!("client authority: {e}"))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Self(verifier.map_err(|e| format!("client authority: {e}"))?))
    }

    /// The certificate is signed by the authority, valid now, and for clients.
    pub fn verifies(&self, certificate: &[u8]) -> bool {
        self.0.verify_client_cert(&CertificateDer::from(certificate), &[], UnixTime::now()).is_ok()
    }
}

/// A trusted front proxy.
#[derive(Debug, Clone)]
pub struct FrontProxy {
    /// Authority of its certificate.
    pub roots: Roots,
    /// Common names that it may have; empty for any.
    pub allowed_names: Vec<String>,
    /// Headers that name the user.
    pub username_headers: Vec<String>,
    /// Headers that name its UID.
    pub uid_headers: Vec<String>,
    /// Headers that name its groups.
    pub group_headers: Vec<String>,
    /// Starts of headers that carry what else is known.
    pub extra_prefixes: Vec<String>,
}

impl FrontProxy {
    /// With the usual headers.
    pub fn new(roots: Roots, allowed_names: Vec<String>) -> Self {
        let one = |name: &str| vec![name.to_owned()];
        Self {
            roots,
            allowed_names,
            username_headers: one("X-Remote-User"),
            uid_headers: one("X-Remote-Uid"),
            group_headers: one("X-Remote-Group"),
            extra_prefixes: one("X-Remote-Extra-"),
        }
    }

    /// The user that the proxy names, if the certificate is a trusted proxy's.
    pub fn user(&self, headers: &HeaderMap, certificate: &[u8]) -> Option<UserInfo> {
        let name = first(headers, &self.username_headers)?;
        let trusted_name = || {
            let own = common_name(certificate).unwrap_or_default();
            self.allowed_names.is_empty() || self.allowed_names.contains(&own)
        };
        if !self.roots.verifies(certificate) || !trusted_name() {
            return None;
        }
        let groups = self.group_headers.iter().flat_map(|header| headers.get_all(header.as_str()));
        Some(UserInfo {
            name,
            uid: first(headers, &self.uid_headers).unwrap_or_default(),
            groups: groups.filter_map(|group| group.to_str().ok()).map(str::to_owned).collect(),
            extra: self.extra_prefixes.iter().flat_map(|prefix| extras(headers, prefix)).collect(),
        })
    }
}

fn first(headers: &HeaderMap, names: &[String]) -> Option<String> {
    let value = names.iter().find_map(|name| headers.get(name.as_str()))?.to_str().ok()?.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

    use super::*;

    struct Authority {
        issuer: Issuer<'static, KeyPair>,
        pem: String,
    }

    impl Authority {
        fn new() -> Self {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("key");
            let pem = params.self_signed(&key).expect("certificate").pem();
            Self { issuer: Issuer::new(params, key), pem }
        }

        fn client(&self, name: &str) -> Vec<u8> {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            let key = KeyPair::generate().expect("key");
            params.signed_by(&key, &self.issuer).expect("certificate").der().to_vec()
        }
    }

    fn headers() -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-remote-user", "bob"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-scopes", "x"),
            ("x-remote-extra-example.com%2fsome", "y"),
        ] {
            headers.append(name, value.parse().expect("value"));
        }
        headers
    }

    #[test]
    fn only_the_trusted_proxy_names_users() {
        let (ours, other) = (Authority::new(), Authority::new());
        let proxy = FrontProxy::new(Roots::from_pem(ours.pem.as_bytes()).expect("roots"), vec!["front".into()]);
        let user = proxy.user(&headers(), &ours.client("front")).expect("trusted");
        assert_eq!((user.name.as_str(), user.uid.as_str(), user.groups.join(",")), ("bob", "7", "a,b".into()));
        assert_eq!(user.extra["scopes"], ["x"]);
        assert_eq!(user.extra["example.com/some"], ["y"]);
        assert_eq!(proxy.user(&headers(), &ours.client("else")), None);
        assert_eq!(proxy.user(&headers(), &other.client("front")), None);
        assert_eq!(proxy.user(&headers(), b"garbage"), None);
        assert_eq!(proxy.user(&HeaderMap::new(), &ours.client("front")), None);
        assert!(Roots::from_pem(b"").is_err());
    }
}
