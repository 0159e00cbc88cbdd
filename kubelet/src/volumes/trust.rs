//! ClusterTrustBundles as files: the certificates of one bundle, or of all bundles of a signer together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::certificates::v1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::ClusterTrustBundleProjection;
use kube::core::{Selector, SelectorExt};
use kube::runtime::watcher;
use kube::{Api, Client};
use pintle_client::cache::Cache;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio_util::sync::CancellationToken;

/// How long the first list of bundles may take.
const FIRST_LIST: Duration = Duration::from_secs(10);

/// The cluster's bundles, followed from the first time on that a pod wants one.
pub struct TrustBundles {
    client: Client,
    shutdown: CancellationToken,
    cache: OnceLock<Cache<ClusterTrustBundle>>,
}

impl TrustBundles {
    /// Nothing is followed yet.
    pub fn new(client: Client, shutdown: CancellationToken) -> Self {
        Self { client, shutdown, cache: OnceLock::new() }
    }

    /// What the projection's file contains.
    pub async fn anchors(&self, source: &ClusterTrustBundleProjection) -> Result<String, String> {
        let start = || Cache::start(Api::all(self.client.clone()), watcher::Config::default(), self.shutdown.clone());
        let cache = self.cache.get_or_init(start);
        let first = tokio::time::timeout(FIRST_LIST, cache.synced()).await;
        first.map_err(|_| "the cluster's ClusterTrustBundles could not be listed".to_owned())?;
        match source.name.as_deref().filter(|n| !n.is_empty()) {
            Some(name) => by_name(source, cache.get(None, name).as_deref()),
            None => by_signer(source, &cache.list()),
        }
    }
}

fn is_optional(source: &ClusterTrustBundleProjection) -> bool {
    source.optional.unwrap_or(false)
}

fn by_name(source: &ClusterTrustBundleProjection, found: Option<&ClusterTrustBundle>) -> Result<String, String> {
    match found {
        Some(bundle) => normalize([bundle.spec.trust_bundle.as_str()]),
        None if is_optional(source) => Ok(String::new()),
        None => {
            let name = source.name.as_deref().unwrap_or_default();
            Err(format!("clustertrustbundles.certificates.k8s.io {name:?} not found"))
        }
    }
}

fn by_signer(source: &ClusterTrustBundleProjection, all: &[Arc<ClusterTrustBundle>]) -> Result<String, String> {
    let selector = source.label_selector.clone().map(Selector::try_from).transpose().map_err(|e| e.to_string())?;
    let none = BTreeMap::new();
    let chosen = |bundle: &&Arc<ClusterTrustBundle>| {
        let labels = bundle.metadata.labels.as_ref().unwrap_or(&none);
        // No selector is not the empty one: it chooses nothing.
        bundle.spec.signer_name == source.signer_name && selector.as_ref().is_some_and(|s| s.matches(labels))
    };
    let mut found = all.iter().filter(chosen).peekable();
    if found.peek().is_none() && !is_optional(source) {
        return Err("combination of signerName and labelSelector matched zero ClusterTrustBundles".to_owned());
    }
    normalize(found.map(|b| b.spec.trust_bundle.as_str()))
}

/// Every certificate once, and nothing else.
fn normalize<'a>(bundles: impl IntoIterator<Item = &'a str>) -> Result<String, String> {
    let mut certificates: BTreeSet<Vec<u8>> = BTreeSet::new();
    for bundle in bundles {
        for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            certificates.insert(certificate.map_err(|e| format!("bad trust bundle: {e}"))?.to_vec());
        }
    }
    Ok(certificates.iter().map(|der| pem("CERTIFICATE", der)).collect())
}

/// A PEM block.
pub fn pem(label: &str, der: &[u8]) -> String {
    pem::encode_config(&pem::Pem::new(label, der), pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bundle(name: &str, signer: &str, labels: serde_json::Value, text: &str) -> Arc<ClusterTrustBundle> {
        let spec = json!({"signerName": signer, "trustBundle": text});
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).unwrap())
    }

    fn source(json: serde_json::Value) -> ClusterTrustBundleProjection {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn pem_blocks_have_lines_of_64() {
        let text = pem("CERTIFICATE", &[7; 60]);
        let lines: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(lines, [27, 64, 16, 25]);
        assert_eq!(CertificateDer::from_pem_slice(text.as_bytes()).unwrap().as_ref(), [7; 60]);
    }

    #[test]
    fn bundles_of_a_signer_are_one() {
        let (one, two) = (pem("CERTIFICATE", b"one"), pem("CERTIFICATE", b"two"));
        let all = [
            bundle("a", "s/x", json!({"alive": "true"}), &format!("a comment\n{two}{one}")),
            bundle("b", "s/x", json!({"alive": "true"}), &one),
            bundle("c", "s/x", json!({}), &pem("CERTIFICATE", b"three")),
            bundle("d", "s/y", json!({"alive": "true"}), &pem("CERTIFICATE", b"four")),
        ];
        let of = |selector: serde_json::Value, optional: bool| {
            let json = json!({"signerName": "s/x", "labelSelector": selector, "optional": optional, "path": "p"});
            by_signer(&source(json), &all)
        };
        assert_eq!(of(json!({"matchLabels": {"alive": "true"}}), false).unwrap(), format!("{one}{two}"));
        assert_eq!(of(json!({}), false).unwrap().matches("BEGIN").count(), 3);
        let nothing = "combination of signerName and labelSelector matched zero ClusterTrustBundles";
        for selector in [json!(null), json!({"matchLabels": {"alive": "no"}})] {
            assert_eq!(of(selector.clone(), false).unwrap_err(), nothing);
            assert_eq!(of(selector, true).unwrap(), "");
        }
    }

    #[test]
    fn a_bundle_by_name() {
        let one = pem("CERTIFICATE", b"one");
        let found = bundle("a", "", json!({}), &one);
        assert_eq!(by_name(&source(json!({"name": "a", "path": "p"})), Some(&found)).unwrap(), one);
        let missing = by_name(&source(json!({"name": "a", "path": "p"})), None);
        assert_eq!(missing.unwrap_err(), "clustertrustbundles.certificates.k8s.io \"a\" not found");
        assert_eq!(by_name(&source(json!({"name": "a", "path": "p", "optional": true})), None).unwrap(), "");
    }
}
