//! Client certificates: common name is the user, organizations are the groups.

use sha2::{Digest, Sha256};

use crate::auth::{CREDENTIAL_ID, UserInfo};

/// OID that marks a UID in a certificate's subject.
const UID: &str = "1.3.6.1.4.1.57683.2";

/// The user of a verified client certificate; `None` if it names nobody.
pub fn user(der: &[u8]) -> Option<UserInfo> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().last()?.as_str().ok()?.to_owned();
    if name.is_empty() {
        return None;
    }
    let groups = subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
    let mut uids = subject.iter_attributes().filter(|a| a.attr_type().to_id_string() == UID);
    let uid = uids.next().and_then(|a| a.as_str().ok()).unwrap_or_default().to_owned();
    let digest: String = Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect();
    let extra = [(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={digest}")])].into();
    Some(UserInfo { name, uid, groups, extra })
}

/// The common name of a certificate.
pub fn common_name(der: &[u8]) -> Option<String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    let name = certificate.subject().iter_common_name().last()?.as_str().ok()?.to_owned();
    Some(name)
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    /// A self-signed certificate of this subject.
    pub fn certificate(name: &str, groups: &[&str]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if !name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        let key = KeyPair::generate().expect("key");
        params.self_signed(&key).expect("certificate").der().to_vec()
    }

    #[test]
    fn subject_is_the_user() {
        let found = user(&certificate("system:node:n1", &["system:nodes"])).expect("user");
        assert_eq!((found.name.as_str(), &found.groups[..]), ("system:node:n1", &["system:nodes".to_owned()][..]));
        assert!(found.extra[CREDENTIAL_ID][0].starts_with("X509SHA256="));
        assert_eq!(found.extra[CREDENTIAL_ID][0].len(), 11 + 64);
        assert_eq!(user(&certificate("", &["g"])), None);
        assert_eq!(user(b"garbage"), None);
    }
}
