//! `pintle agent`: a worker that joins a server. The token's first part is the fingerprint of the cluster's authority, so
//! the node knows that it talks to its cluster; the rest is a bootstrap token, with which the node asks for a client
//! certificate by a CertificateSigningRequest (Kubernetes' TLS bootstrapping) and, with that, for a serving certificate.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_util::sync::CancellationToken;

use crate::cli::AgentArgs;
use crate::node::{self, Identity};
use crate::paths::Paths;
use pintle_host::file;
use pintle_host::pki::{self, Pair};

/// How long a certificate request may wait for its answer before it is asked for anew.
const CERTIFICATE_WAIT: Duration = Duration::from_secs(60);
/// Pause between tries to reach the server.
const RETRY: Duration = Duration::from_secs(1);

/// A join token: `FINGERPRINT.ID.SECRET`.
pub struct JoinToken {
    /// SHA-256 of the cluster's authority, hex.
    pub fingerprint: String,
    /// The bootstrap token, `id.secret`.
    pub bootstrap: String,
}

impl JoinToken {
    /// Parses the content of a token file.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let (fingerprint, bootstrap) = text.trim().split_once('.').context("the token is not FINGERPRINT.ID.SECRET")?;
        let hex = fingerprint.len() == 64 && fingerprint.bytes().all(|b| b.is_ascii_hexdigit());
        anyhow::ensure!(hex && bootstrap.contains('.'), "the token is not FINGERPRINT.ID.SECRET");
        Ok(Self { fingerprint: fingerprint.to_owned(), bootstrap: bootstrap.to_owned() })
    }
}

/// Joins and runs until `shutdown`.
pub async fn run(args: AgentArgs, shutdown: CancellationToken) -> anyhow::Result<()> {
    let paths = Paths::new(&args.data.data_dir)?;
    let file = &args.token_file;
    let token = std::fs::read_to_string(file).with_context(|| {
        format!("reading the token, which the server has in its data directory: {}", file.display())
    })?;
    let token = JoinToken::parse(&token)?;
    let _claim = paths.claim()?;
    let handle =
        pintle_host::process::Handle::of(i32::try_from(std::process::id())?).context("finding this process")?;
    handle.write(&paths.run("agent.pid"))?;
    let name = node::name(&args.node);
    let ip = node::ip(&args.node);
    let identity = tokio::select! {
        () = shutdown.cancelled() => return Ok(()),
        joined = join(&paths, &args.server, &token, &name, ip) => joined?,
    };
    let config = pki::kubeconfig(&args.server, &identity.ca_pem, "node", &identity.client)?;
    let kubeconfig = paths.component_kubeconfig("kubelet");
    pki::write_private(&kubeconfig, config.as_bytes())?;
    let client = pintle_client::connect::from_kubeconfig(&kubeconfig).await?;
    let clients = node::Clients { kubelet: client.clone(), proxy: client.clone(), dns: client };
    node::run(&paths, &args.node, &args.network, identity, clients, shutdown).await
}

/// The node's certificates: those of an earlier start if they still hold, else new ones.
async fn join(paths: &Paths, server: &str, token: &JoinToken, name: &str, ip: IpAddr) -> anyhow::Result<Identity> {
    let ca_pem = loop {
        match cluster_authority(server, &token.fingerprint).await {
            Ok(pem) => break pem,
            Err(error) => tracing::info!(error = format!("{error:#}"), server, "server not reached, will retry"),
        }
        tokio::time::sleep(RETRY).await;
    };
    file::replace(&paths.pki().join("ca.crt"), ca_pem.as_bytes(), 0o644)?;
    let bootstrap = token_client(server, &ca_pem, &token.bootstrap)?;
    let client =
        certificate(paths, &bootstrap, &ca_pem, "kubelet-client", &request(name, &[]), "kube-apiserver-client-kubelet")
            .await?;
    let kubeconfig = paths.component_kubeconfig("kubelet");
    pki::write_private(&kubeconfig, pki::kubeconfig(server, &ca_pem, "node", &client)?.as_bytes())?;
    let as_node = pintle_client::connect::from_kubeconfig(&kubeconfig).await?;
    let sans = [SanType::DnsName(name.try_into()?), SanType::IpAddress(ip)];
    let serving =
        certificate(paths, &as_node, &ca_pem, "kubelet-serving", &request(name, &sans), "kubelet-serving").await?;
    Ok(Identity { ca_pem, client, serving })
}

fn request(node: &str, sans: &[SanType]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    params.subject_alt_names = sans.to_vec();
    params
}

/// A certificate signed by the cluster for one of Kubernetes' signers, kept in the data directory.
async fn certificate(
    paths: &Paths,
    client: &Client,
    ca_pem: &str,
    file: &str,
    params: &CertificateParams,
    signer: &str,
) -> anyhow::Result<Pair> {
    let dir = paths.pki();
    let pair = Pair { cert: dir.join(format!("{file}.crt")), key: dir.join(format!("{file}.key")) };
    if pki::still_valid(&pair, ca_pem) {
        return Ok(pair);
    }
    let key = KeyPair::generate()?;
    let csr = params.serialize_request(&key)?.pem()?;
    loop {
        match ask(client, &csr, signer).await {
            Ok(signed) => {
                pki::write_private(&pair.key, key.serialize_pem().as_bytes())?;
                pki::write_private(&pair.cert, format!("{}{ca_pem}", String::from_utf8(signed)?).as_bytes())?;
                return Ok(pair);
            }
            Err(error) => tracing::warn!(error = format!("{error:#}"), signer, "no certificate yet, will retry"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn ask(client: &Client, csr: &str, signer: &str) -> anyhow::Result<Vec<u8>> {
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let auth = if signer == "kubelet-serving" { "server auth" } else { "client auth" };
    let request = CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("csr-".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(csr.as_bytes().to_vec()),
            signer_name: format!("kubernetes.io/{signer}"),
            usages: Some(vec!["digital signature".to_owned(), auth.to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let made = api.create(&PostParams::default(), &request).await.context("asking for a certificate")?;
    let name = made.metadata.name.context("the request has no name")?;
    let end = tokio::time::Instant::now() + CERTIFICATE_WAIT;
    loop {
        let status = api.get(&name).await?.status.unwrap_or_default();
        if let Some(signed) = status.certificate {
            return Ok(signed.0);
        }
        let denied = status.conditions.iter().flatten().find(|c| c.type_ == "Denied" || c.type_ == "Failed");
        if let Some(denied) = denied {
            anyhow::bail!(
                "certificate request {name}: {} {}",
                denied.type_,
                denied.message.clone().unwrap_or_default()
            );
        }
        anyhow::ensure!(tokio::time::Instant::now() < end, "certificate request {name} was not answered");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn token_client(server: &str, ca_pem: &str, token: &str) -> anyhow::Result<Client> {
    let (_, ca) = x509_parser::pem::parse_x509_pem(ca_pem.as_bytes()).context("the cluster's authority")?;
    let mut config = kube::Config::new(server.parse().with_context(|| format!("server {server}"))?);
    config.root_cert = Some(vec![ca.contents]);
    config.auth_info.token = Some(token.to_owned().into());
    Ok(Client::try_from(config)?)
}

/// Connects to the server, whose chain must hold an authority of the given fingerprint; PEM of that authority. Nothing
/// but the chain is taken from this connection: the later ones are verified against the authority in the ordinary way.
async fn cluster_authority(server: &str, fingerprint: &str) -> anyhow::Result<String> {
    let uri: http::Uri = server.parse().with_context(|| format!("server {server}"))?;
    let host = uri.host().context("the server URL has no host")?.trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(443);
    let pinned = Arc::new(Pinned { fingerprint: fingerprint.to_owned(), found: Mutex::new(None) });
    let config = rustls::ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(pinned.clone())
        .with_no_client_auth();
    let tcp =
        tokio::net::TcpStream::connect((host.as_str(), port)).await.with_context(|| format!("reaching {server}"))?;
    let name = ServerName::try_from(host)?;
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await.context("TLS with the server")?;
    let der = pinned.found.lock().ok().and_then(|mut found| found.take());
    Ok(pki::pem_of(&der.context("the server is not of the token's cluster")?))
}

/// Accepts a chain that holds the certificate of a known fingerprint, and remembers that certificate.
#[derive(Debug)]
struct Pinned {
    fingerprint: String,
    found: Mutex<Option<Vec<u8>>>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let chain = std::iter::once(end_entity).chain(intermediates);
        let found = chain.into_iter().find(|c| pki::fingerprint_der(c) == self.fingerprint);
        match (found, self.found.lock()) {
            (Some(certificate), Ok(mut slot)) => {
                *slot = Some(certificate.to_vec());
                Ok(ServerCertVerified::assertion())
            }
            _ => Err(rustls::Error::General("the server is not of the token's cluster".to_owned())),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A bootstrap token's file content for the given cluster, made if it is not there.
pub fn ensure_token(file: &Path, fingerprint: &str) -> anyhow::Result<JoinToken> {
    if let Ok(text) = std::fs::read_to_string(file) {
        return JoinToken::parse(&text);
    }
    let word = |length: usize| -> String {
        const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        (0..length).map(|_| char::from(ALPHABET[rand::random_range(0..ALPHABET.len())])).collect()
    };
    let text = format!("{fingerprint}.{}.{}\n", word(6), word(16));
    pki::write_private(file, text.as_bytes())?;
    JoinToken::parse(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_kept_and_checked() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let first = ensure_token(&file, &"ab".repeat(32)).unwrap();
        assert_eq!(first.bootstrap, ensure_token(&file, &"cd".repeat(32)).unwrap().bootstrap);
        assert_eq!(first.bootstrap.len(), 23);
        assert!(JoinToken::parse("abc").is_err());
        assert!(JoinToken::parse("abc.def.ghi").is_err());
    }
}
