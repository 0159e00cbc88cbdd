//! The cluster's keys and certificates, made on first start and renewed when little of their life is left.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use sha2::{Digest, Sha256};

use crate::file;

/// Life of a certificate authority.
const CA_DAYS: i64 = 3650;
/// Life of every other certificate.
const LEAF_DAYS: i64 = 365;
/// A certificate with less life than this left is made anew at start.
const RENEW_DAYS: i64 = 90;

/// A certificate authority: its certificate and its key.
pub struct Authority {
    cert_pem: String,
    key_pem: String,
}

/// Who a certificate is for.
pub struct Subject<'a> {
    /// Common name: the user.
    pub name: &'a str,
    /// Organizations: the groups.
    pub groups: &'a [&'a str],
    /// Names and addresses of a server; empty for a client.
    pub sans: Vec<SanType>,
}

impl<'a> Subject<'a> {
    /// A client.
    pub fn client(name: &'a str, groups: &'a [&'a str]) -> Self {
        Self { name, groups, sans: Vec::new() }
    }

    /// A server with DNS names and addresses.
    pub fn server(name: &'a str, groups: &'a [&'a str], dns: &[&str], ips: &[IpAddr]) -> anyhow::Result<Self> {
        let mut sans = Vec::new();
        for name in dns {
            sans.push(SanType::DnsName((*name).try_into().with_context(|| format!("DNS name {name}"))?));
        }
        sans.extend(ips.iter().map(|ip| SanType::IpAddress(*ip)));
        Ok(Self { name, groups, sans })
    }

    fn params(&self) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for group in self.groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.distinguished_name.push(DnType::CommonName, self.name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if !self.sans.is_empty() {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
            params.subject_alt_names = self.sans.clone();
        }
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = validity(LEAF_DAYS);
        params
    }
}

/// A certificate (chain) and its key as PEM files.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate, followed by its authority's.
    pub cert: PathBuf,
    /// The private key, PKCS #8.
    pub key: PathBuf,
}

impl Authority {
    /// The authority in `dir/NAME.crt` and `dir/NAME.key`, made if it is not there.
    pub fn ensure(dir: &Path, name: &str, common_name: &str) -> anyhow::Result<Self> {
        let (cert, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        if !cert.exists() || !key.exists() {
            let pair = KeyPair::generate()?;
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, common_name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages =
                vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
            (params.not_before, params.not_after) = validity(CA_DAYS);
            write_private(&key, pair.serialize_pem().as_bytes())?;
            write_public(&cert, params.self_signed(&pair)?.pem().as_bytes())?;
        }
        let read = |p: &Path| std::fs::read_to_string(p).with_context(|| format!("reading {}", p.display()));
        Ok(Self { cert_pem: read(&cert)?, key_pem: read(&key)? })
    }

    /// The authority's certificate, PEM.
    pub fn pem(&self) -> &str {
        &self.cert_pem
    }

    /// The authority's key, PEM.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// SHA-256 of the authority's certificate (DER), hex: by this a joining node recognises its cluster.
    pub fn fingerprint(&self) -> anyhow::Result<String> {
        let (_, parsed) =
            x509_parser::pem::parse_x509_pem(self.cert_pem.as_bytes()).context("parsing a certificate")?;
        Ok(fingerprint_der(&parsed.contents))
    }

    fn issuer(&self) -> anyhow::Result<Issuer<'static, KeyPair>> {
        Ok(Issuer::from_ca_cert_pem(&self.cert_pem, KeyPair::from_pem(&self.key_pem)?)?)
    }

    /// The certificate `dir/NAME.crt` and key `dir/NAME.key`, made if missing, foreign, about to expire, or (for
    /// servers) without one of the names asked for.
    pub fn ensure_pair(&self, dir: &Path, name: &str, subject: &Subject) -> anyhow::Result<Pair> {
        let pair = Pair { cert: dir.join(format!("{name}.crt")), key: dir.join(format!("{name}.key")) };
        if self.still_good(&pair, subject) {
            return Ok(pair);
        }
        let key = KeyPair::generate()?;
        let cert: Certificate = subject.params().signed_by(&key, &self.issuer()?)?;
        write_private(&pair.key, key.serialize_pem().as_bytes())?;
        write_public(&pair.cert, format!("{}{}", cert.pem(), self.cert_pem).as_bytes())?;
        Ok(pair)
    }

    fn still_good(&self, pair: &Pair, subject: &Subject) -> bool {
        still_valid(pair, &self.cert_pem)
            && with_certificate(&pair.cert, |cert| subject.sans.iter().all(|san| has_san(cert, san)))
    }
}

/// SHA-256 of a DER certificate, hex.
pub fn fingerprint_der(der: &[u8]) -> String {
    Sha256::digest(der).iter().map(|b| format!("{b:02x}")).collect()
}

/// True if the pair is there, its chain ends with the given authority and enough of its life is left.
pub fn still_valid(pair: &Pair, ca_pem: &str) -> bool {
    let foreign = !std::fs::read_to_string(&pair.cert).is_ok_and(|pem| pem.ends_with(ca_pem));
    if foreign || !pair.key.exists() {
        return false;
    }
    with_certificate(&pair.cert, |cert| {
        cert.validity().not_after.timestamp() - jiff::Timestamp::now().as_second() > RENEW_DAYS * 86_400
    })
}

/// Asks something of the first certificate in a file; false if there is none.
fn with_certificate(file: &Path, ask: impl Fn(&x509_parser::certificate::X509Certificate) -> bool) -> bool {
    let Ok(pem) = std::fs::read(file) else { return false };
    let Ok((_, parsed)) = x509_parser::pem::parse_x509_pem(&pem) else { return false };
    parsed.parse_x509().is_ok_and(|cert| ask(&cert))
}

/// A DER certificate as PEM.
pub fn pem_of(der: &[u8]) -> String {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new("CERTIFICATE", der), lines)
}

/// The key that signs service account tokens, `dir/sa.key` (PKCS #8, P-256); made if it is not there.
pub fn ensure_signing_key(dir: &Path) -> anyhow::Result<PathBuf> {
    let path = dir.join("sa.key");
    if !path.exists() {
        write_private(&path, KeyPair::generate()?.serialize_pem().as_bytes())?;
    }
    Ok(path)
}

/// The public half of such a key, as a PEM file beside it.
pub fn public_key(key: &Path) -> anyhow::Result<PathBuf> {
    let pem = std::fs::read_to_string(key).with_context(|| format!("reading {}", key.display()))?;
    let path = key.with_extension("pub");
    write_public(&path, KeyPair::from_pem(&pem)?.public_key_pem().as_bytes())?;
    Ok(path)
}

/// A kubeconfig with everything embedded.
pub fn kubeconfig(server: &str, ca_pem: &str, user: &str, pair: &Pair) -> anyhow::Result<String> {
    let read = |p: &Path| std::fs::read(p).with_context(|| format!("reading {}", p.display()));
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "pintle",
        "clusters": [{"name": "pintle", "cluster": {
            "server": server, "certificate-authority-data": STANDARD.encode(ca_pem)}}],
        "users": [{"name": user, "user": {
            "client-certificate-data": STANDARD.encode(read(&pair.cert)?),
            "client-key-data": STANDARD.encode(read(&pair.key)?)}}],
        "contexts": [{"name": "pintle", "context": {"cluster": "pintle", "user": user}}],
    });
    Ok(serde_yaml_ng::to_string(&config)?)
}

/// Writes a file that only its owner may read, atomically.
pub fn write_private(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    file::replace(path, content, 0o600)
}

fn write_public(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    file::replace(path, content, 0o644)
}

fn has_san(cert: &x509_parser::certificate::X509Certificate, wanted: &SanType) -> bool {
    use x509_parser::extensions::GeneralName;
    let Ok(Some(present)) = cert.subject_alternative_name() else { return false };
    present.value.general_names.iter().any(|name| match (name, wanted) {
        (GeneralName::DNSName(have), SanType::DnsName(want)) => *have == want.as_str(),
        (GeneralName::IPAddress(have), SanType::IpAddress(IpAddr::V4(want))) => *have == want.octets(),
        (GeneralName::IPAddress(have), SanType::IpAddress(IpAddr::V6(want))) => *have == want.octets(),
        _ => false,
    })
}

/// From five minutes ago (clocks differ) for the given days.
fn validity(days: i64) -> (time::OffsetDateTime, time::OffsetDateTime) {
    let now = time::OffsetDateTime::now_utc();
    (now - time::Duration::minutes(5), now + time::Duration::days(days))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_made_once_and_again_when_a_name_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let ca = Authority::ensure(dir.path(), "ca", "test-ca").unwrap();
        assert_eq!(ca.pem(), Authority::ensure(dir.path(), "ca", "other").unwrap().pem(), "kept");
        let one = ["127.0.0.1".parse().unwrap()];
        let subject = Subject::server("api", &[], &["localhost"], &one).unwrap();
        let pair = ca.ensure_pair(dir.path(), "api", &subject).unwrap();
        let first = std::fs::read_to_string(&pair.cert).unwrap();
        ca.ensure_pair(dir.path(), "api", &subject).unwrap();
        assert_eq!(first, std::fs::read_to_string(&pair.cert).unwrap(), "kept");
        let more = Subject::server("api", &[], &["localhost", "more"], &one).unwrap();
        ca.ensure_pair(dir.path(), "api", &more).unwrap();
        assert_ne!(first, std::fs::read_to_string(&pair.cert).unwrap(), "renewed");
    }

    #[test]
    fn keys_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let key = ensure_signing_key(dir.path()).unwrap();
        assert_eq!(std::fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
