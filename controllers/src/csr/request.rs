//! What a certificate request asks for, and whether that is fit for a node. Pure.

use std::net::IpAddr;

use anyhow::{Context, bail};
use rcgen::{CertificateSigningRequestParams, DnType, DnValue, ExtendedKeyUsagePurpose, KeyUsagePurpose, SanType};

/// Signer of certificates with which clients identify themselves.
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Signer of certificates with which kubelets identify themselves.
pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signer of certificates with which kubelets serve.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";

/// The parts of a request that decide about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Common name.
    pub name: String,
    /// Organization.
    pub organization: String,
    /// DNS names.
    pub dns: Vec<String>,
    /// Addresses.
    pub ips: Vec<IpAddr>,
    /// True if there are names of other kinds.
    pub other_names: bool,
}

impl Request {
    /// The node that the common name is about.
    pub fn node(&self) -> Option<&str> {
        self.name.strip_prefix(NODE_PREFIX).filter(|n| !n.is_empty())
    }
}

/// Reads a request and checks its signature.
pub fn parse(pem: &[u8]) -> anyhow::Result<(Request, CertificateSigningRequestParams)> {
    let text = std::str::from_utf8(pem).context("the request is no PEM text")?;
    let params = CertificateSigningRequestParams::from_pem(text)?;
    let text_of = |kind: DnType| match params.params.distinguished_name.get(&kind) {
        Some(DnValue::Utf8String(text)) => text.clone(),
        Some(DnValue::PrintableString(text)) => text.as_str().to_owned(),
        _ => String::new(),
    };
    let mut request = Request {
        name: text_of(DnType::CommonName),
        organization: text_of(DnType::OrganizationName),
        ..Request::default()
    };
    for name in &params.params.subject_alt_names {
        match name {
            SanType::DnsName(name) => request.dns.push(name.as_str().to_owned()),
            SanType::IpAddress(ip) => request.ips.push(*ip),
            _ => request.other_names = true,
        }
    }
    Ok((request, params))
}

/// True if a kubelet may identify itself with such a certificate.
pub fn is_node_client(request: &Request, usages: &[String]) -> bool {
    let bare = request.dns.is_empty() && request.ips.is_empty() && !request.other_names;
    bare && is_node(request) && has_usages(usages, "client auth")
}

/// True if a kubelet may serve with such a certificate.
pub fn is_node_serving(request: &Request, usages: &[String]) -> bool {
    let named = !request.dns.is_empty() || !request.ips.is_empty();
    named && !request.other_names && is_node(request) && has_usages(usages, "server auth")
}

fn is_node(request: &Request) -> bool {
    request.organization == NODES && request.node().is_some()
}

/// The one purpose and digital signatures, perhaps key encipherment, nothing else.
fn has_usages(usages: &[String], purpose: &str) -> bool {
    let has = |wanted: &str| usages.iter().any(|u| u == wanted);
    let allowed = |u: &String| u == purpose || u == "digital signature" || u == "key encipherment";
    has(purpose) && has("digital signature") && usages.iter().all(allowed)
}

/// The purposes of a certificate by their names in the API.
pub fn purposes(usages: &[String]) -> anyhow::Result<(Vec<KeyUsagePurpose>, Vec<ExtendedKeyUsagePurpose>)> {
    let (mut plain, mut extended) = (Vec::new(), Vec::new());
    for usage in usages {
        match usage.as_str() {
            "digital signature" | "signing" => plain.push(KeyUsagePurpose::DigitalSignature),
            "key encipherment" => plain.push(KeyUsagePurpose::KeyEncipherment),
            "client auth" => extended.push(ExtendedKeyUsagePurpose::ClientAuth),
            "server auth" => extended.push(ExtendedKeyUsagePurpose::ServerAuth),
            other => bail!("usage {other:?} is not signed here"),
        }
    }
    Ok((plain, extended))
}

/// Checks what a signer insists on.
pub fn permitted(signer: &str, request: &Request, usages: &[String]) -> anyhow::Result<()> {
    let fits = match signer {
        KUBELET_CLIENT => is_node_client(request, usages),
        KUBELET_SERVING => is_node_serving(request, usages),
        CLIENT => !usages.iter().any(|u| u == "server auth") && usages.iter().any(|u| u == "client auth"),
        _ => bail!("unknown signer {signer}"),
    };
    if !fits {
        bail!("the request is not of the kind that {signer} signs");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usages(list: &[&str]) -> Vec<String> {
        list.iter().map(|u| (*u).to_owned()).collect()
    }

    #[test]
    fn what_nodes_may_ask_for() {
        let node = Request { name: "system:node:n".into(), organization: NODES.into(), ..Request::default() };
        let named = Request { dns: vec!["n".into()], ..node.clone() };
        let alien = Request { organization: "system:masters".into(), ..node.clone() };
        let client = usages(&["digital signature", "client auth"]);
        let server = usages(&["digital signature", "server auth", "key encipherment"]);
        let both = usages(&["digital signature", "server auth", "client auth"]);
        for (request, usages, as_client, as_server) in [
            (&node, &client, true, false),
            (&named, &client, false, false),
            (&named, &server, false, true),
            (&node, &server, false, false),
            (&alien, &client, false, false),
            (&named, &both, false, false),
        ] {
            assert_eq!(is_node_client(request, usages), as_client);
            assert_eq!(is_node_serving(request, usages), as_server);
        }
        assert_eq!(named.node(), Some("n"));
    }

    #[test]
    fn real_requests_are_read() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["n".to_owned(), "10.0.0.1".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, NODES);
        params.distinguished_name.push(DnType::CommonName, "system:node:n");
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let (request, _) = parse(pem.as_bytes()).unwrap();
        assert_eq!((request.node(), request.dns.len(), request.ips.len()), (Some("n"), 1, 1));
        assert!(is_node_serving(&request, &usages(&["digital signature", "server auth"])));
        assert!(parse(b"nonsense").is_err());
    }
}
