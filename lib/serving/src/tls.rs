//! Server side TLS: certificates that can be exchanged while running, client certificates that are asked for but not
//! judged here (authentication does that, so that a wrong one gets a proper answer).

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

/// Protocols offered: HTTP/2 first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The certificates that a client showed, its own first. Unverified: the handshake proved only that it has the key.
#[derive(Debug, Clone)]
pub struct PeerCertificates(pub Arc<Vec<CertificateDer<'static>>>);

/// A server's TLS identity; clones share it.
#[derive(Debug, Clone)]
pub struct Tls(Arc<RwLock<Arc<ServerConfig>>>);

impl Tls {
    /// From a PEM chain and key. `client_ca` (PEM): clients are told to show certificates of it.
    pub fn from_pem(certificates: &[u8], key: &[u8], client_ca: Option<&[u8]>) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(RwLock::new(Arc::new(server_config(certificates, key, client_ca)?)))))
    }

    /// From PEM files.
    pub fn from_files(certificates: &Path, key: &Path, client_ca: Option<&Path>) -> anyhow::Result<Self> {
        let read = |path: &Path| std::fs::read(path).with_context(|| format!("reading {}", path.display()));
        let client_ca = client_ca.map(read).transpose()?;
        Self::from_pem(&read(certificates)?, &read(key)?, client_ca.as_deref())
    }

    /// Exchanges the identity; open connections keep theirs.
    pub fn replace(&self, certificates: &[u8], key: &[u8], client_ca: Option<&[u8]>) -> anyhow::Result<()> {
        *self.0.write() = Arc::new(server_config(certificates, key, client_ca)?);
        Ok(())
    }

    /// The present configuration.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.0.read().clone()
    }
}

/// A certificate that vouches for itself, and its key, both PEM.
pub struct SelfSigned {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl SelfSigned {
    /// Makes one for a server of these names and addresses.
    pub fn new(names: &[&str]) -> anyhow::Result<Self> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).context("making a certificate")?;
        Ok(Self { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() })
    }

    /// As a server's identity; `client_ca` as in [`Tls::from_pem`].
    pub fn tls(&self, client_ca: Option<&[u8]>) -> anyhow::Result<Tls> {
        Tls::from_pem(self.certificate.as_bytes(), self.key.as_bytes(), client_ca)
    }
}

/// All certificates of a PEM text.
pub fn certificates(pem: &[u8]) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().context("reading PEM certificates")
}

fn server_config(chain: &[u8], key: &[u8], client_ca: Option<&[u8]>) -> anyhow::Result<ServerConfig> {
    let chain = certificates(chain)?;
    if chain.is_empty() {
        bail!("no certificate in the PEM text");
    }
    let key = PrivateKeyDer::from_pem_slice(key).context("reading the PEM private key")?;
    let provider = Arc::new(ring::default_provider());
    let authorities = client_ca.map(certificates).transpose()?.unwrap_or_default();
    let verifier = AnyClient { provider: provider.clone(), hints: subjects(&authorities)? };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("choosing TLS versions")?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(chain, key)
        .context("using the certificate")?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok(config)
}

/// Subjects of the authorities, as the handshake hints at them.
fn subjects(authorities: &[CertificateDer<'static>]) -> anyhow::Result<Vec<DistinguishedName>> {
    let mut roots = rustls::RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone()).context("reading a client certificate authority")?;
    }
    Ok(roots.subjects())
}

/// Asks for a certificate, checks that the client has its key, and leaves the rest to authentication.
#[derive(Debug)]
struct AnyClient {
    provider: Arc<CryptoProvider>,
    hints: Vec<DistinguishedName>,
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
