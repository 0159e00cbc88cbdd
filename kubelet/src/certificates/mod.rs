//! Certificates of pods: for each projected `podCertificate` source the kubelet makes a key pair, asks the source's signer
//! for a certificate by a PodCertificateRequest, and asks again when the signer says that it is time.

pub mod key;

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    PodCertificateRequest, PodCertificateRequestSpec, PodCertificateRequestStatus,
};
use k8s_openapi::api::core::v1::{Node, Pod, PodCertificateProjection, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::runtime::watcher;
use kube::{Api, Client};
use parking_lot::Mutex;
use pintle_client::cache::Cache;
use tokio_util::sync::CancellationToken;

use crate::pods::spec;
use crate::volumes::pem;

/// Longest lifetime that is asked for if the source says nothing.
const LIFETIME: i32 = 86_400;
/// How long a pod's first certificate is waited for before its start is tried again.
const PATIENCE: Duration = Duration::from_secs(10);
/// A request that nobody answered in this time is given up, and another one made.
const UNANSWERED: SignedDuration = SignedDuration::from_mins(15);
/// Pause after a refused renewal.
const RETRY_REFUSED: SignedDuration = SignedDuration::from_hours(1);

/// A pod's source: pod uid, volume, place among the volume's sources.
type Key = (String, String, usize);

/// A private key with its certificates, each as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// The private key.
    pub key: String,
    /// The certificates, the pod's own first.
    pub chain: String,
    refresh_at: Timestamp,
}

/// A request that waits for its signer.
#[derive(Clone)]
struct Pending {
    name: String,
    key: Vec<u8>,
    since: Timestamp,
}

/// What is known of a source.
#[derive(Clone, Default)]
struct Held {
    current: Option<Credential>,
    pending: Option<Pending>,
    /// The first certificate was refused, for good.
    refused: Option<String>,
    not_before: Option<Timestamp>,
}

/// What a signer has said.
#[derive(Debug, PartialEq)]
enum Outcome {
    Waiting,
    Issued { chain: String, refresh_at: Timestamp },
    Refused(String),
}

/// The certificates of the node's pods. They are kept in memory alone: a restarted kubelet asks anew.
pub struct Certificates {
    client: Client,
    node_name: String,
    nodes: Cache<Node>,
    shutdown: CancellationToken,
    requests: OnceLock<Cache<PodCertificateRequest>>,
    held: Mutex<HashMap<Key, Held>>,
}

impl Certificates {
    /// None yet.
    pub fn new(client: Client, node_name: &str, nodes: Cache<Node>, shutdown: CancellationToken) -> Self {
        let (requests, held) = (OnceLock::new(), Mutex::default());
        Self { client, node_name: node_name.to_owned(), nodes, shutdown, requests, held }
    }

    /// The source's credential; `Err` says why there is none yet.
    pub async fn credential(
        &self,
        pod: &Pod,
        volume: &str,
        place: usize,
        source: &PodCertificateProjection,
    ) -> Result<Credential, String> {
        let key = (spec::uid(pod).to_owned(), volume.to_owned(), place);
        let mut held = self.held.lock().get(&key).cloned().unwrap_or_default();
        if let Some(refusal) = held.refused {
            return Err(refusal);
        }
        let now = Timestamp::now();
        let due = held.current.as_ref().is_none_or(|c| c.refresh_at <= now);
        if due && held.pending.is_none() && held.not_before.is_none_or(|t| t <= now) {
            held.pending = Some(self.ask(pod, source).await?);
            self.held.lock().insert(key.clone(), held.clone());
        }
        if let Some(pending) = held.pending.clone() {
            let patience = if held.current.is_none() { PATIENCE } else { Duration::ZERO };
            let outcome = self.outcome(spec::namespace(pod), &pending.name, patience).await;
            held.answered(&pending, outcome, Timestamp::now());
            self.held.lock().insert(key, held.clone());
        }
        match (held.current, held.refused) {
            (Some(credential), _) => Ok(credential),
            (None, Some(refusal)) => Err(refusal),
            (None, None) => Err("PodCertificateRequest has not been answered yet".to_owned()),
        }
    }

    /// Forgets the credentials of a pod that is gone.
    pub fn forget(&self, uid: &str) {
        self.held.lock().retain(|(owner, ..), _| owner != uid);
    }

    /// Makes a key pair and a request for it.
    async fn ask(&self, pod: &Pod, source: &PodCertificateProjection) -> Result<Pending, String> {
        let kind = source.key_type.clone();
        let pair = tokio::task::spawn_blocking(move || key::generate(&kind)).await;
        let pair = pair.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        let account = spec::spec(pod).service_account_name.as_deref().unwrap_or("default");
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), spec::namespace(pod));
        let owner = accounts.get(account).await.map_err(|e| format!("getting service account {account}: {e}"))?;
        let node = self.nodes.get(None, &self.node_name).ok_or("the node's object is not known yet")?;
        let ids = Ids {
            account: owner.metadata.uid.as_deref().unwrap_or_default(),
            node_name: &self.node_name,
            node: node.metadata.uid.as_deref().unwrap_or_default(),
        };
        let wanted = request(pod, source, ids, pair.request);
        let api = Api::<PodCertificateRequest>::namespaced(self.client.clone(), spec::namespace(pod));
        let made = api.create(&PostParams::default(), &wanted).await;
        let made = made.map_err(|e| format!("creating PodCertificateRequest: {e}"))?;
        Ok(Pending { name: made.metadata.name.unwrap_or_default(), key: pair.key, since: Timestamp::now() })
    }

    /// What became of a request; waits for the signer as long as `patience` lasts.
    async fn outcome(&self, namespace: &str, name: &str, patience: Duration) -> Outcome {
        let of_node = watcher::Config::default().fields(&format!("spec.nodeName={}", self.node_name));
        let start = || Cache::start(Api::all(self.client.clone()), of_node, self.shutdown.clone());
        let requests = self.requests.get_or_init(start);
        let look = || requests.get(Some(namespace), name).map_or(Outcome::Waiting, |r| read(name, r.status.as_ref()));
        let mut changes = requests.subscribe();
        let answered = async {
            loop {
                match look() {
                    Outcome::Waiting => {}
                    outcome => return outcome,
                }
                if changes.recv().await.is_none() {
                    return Outcome::Waiting;
                }
            }
        };
        tokio::time::timeout(patience, answered).await.unwrap_or_else(|_| look())
    }
}

impl Held {
    /// Takes in what became of the request.
    fn answered(&mut self, pending: &Pending, outcome: Outcome, now: Timestamp) {
        match outcome {
            Outcome::Issued { chain, refresh_at } => {
                self.current = Some(Credential { key: pem("PRIVATE KEY", &pending.key), chain, refresh_at });
                self.pending = None;
            }
            Outcome::Refused(why) if self.current.is_none() => {
                self.refused = Some(why);
                self.pending = None;
            }
            Outcome::Refused(why) => {
                tracing::warn!(request = pending.name, why, "a pod's certificate is not renewed");
                self.pending = None;
                self.not_before = Some(now + RETRY_REFUSED);
            }
            Outcome::Waiting if now.duration_since(pending.since) > UNANSWERED => self.pending = None,
            Outcome::Waiting => {}
        }
    }
}

/// Identities that a request names beside the pod's.
struct Ids<'a> {
    account: &'a str,
    node_name: &'a str,
    node: &'a str,
}

/// The request's object.
fn request(pod: &Pod, source: &PodCertificateProjection, ids: Ids<'_>, signed: Vec<u8>) -> PodCertificateRequest {
    let (name, uid) = (spec::name(pod).to_owned(), spec::uid(pod).to_owned());
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: name.clone(),
        uid: uid.clone(),
        ..OwnerReference::default()
    };
    PodCertificateRequest {
        metadata: ObjectMeta {
            generate_name: Some("req-".to_owned()),
            namespace: Some(spec::namespace(pod).to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: PodCertificateRequestSpec {
            max_expiration_seconds: Some(source.max_expiration_seconds.unwrap_or(LIFETIME)),
            node_name: ids.node_name.to_owned(),
            node_uid: ids.node.to_owned(),
            pod_name: name,
            pod_uid: uid,
            service_account_name: spec::spec(pod).service_account_name.clone().unwrap_or_else(|| "default".to_owned()),
            service_account_uid: ids.account.to_owned(),
            signer_name: source.signer_name.clone(),
            stub_pkc_s10_request: ByteString(signed),
            unverified_user_annotations: source.user_annotations.clone(),
        },
        status: None,
    }
}

fn read(name: &str, status: Option<&PodCertificateRequestStatus>) -> Outcome {
    let conditions = status.and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let Some(status) = status else { return Outcome::Waiting };
    for condition in conditions.iter().filter(|c| c.status == "True") {
        let refused = |how: &str| {
            let (reason, message) = (&condition.reason, &condition.message);
            Outcome::Refused(format!("PodCertificateRequest {name} {how}: reason={reason:?} message={message:?}"))
        };
        match (condition.type_.as_str(), &status.certificate_chain) {
            ("Denied", _) => return refused("was denied"),
            ("Failed", _) => return refused("failed"),
            ("Issued", Some(chain)) => {
                let at = status.begin_refresh_at.as_ref().or(status.not_after.as_ref());
                return Outcome::Issued { chain: chain.clone(), refresh_at: at.map_or(Timestamp::MAX, |t| t.0) };
            }
            _ => {}
        }
    }
    Outcome::Waiting
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn answers_of_signers() {
        let of = |status: Value| read("r", serde_json::from_value(status).ok().as_ref());
        let condition = |kind: &str, status: &str| {
            json!([{"type": kind, "status": status, "reason": "R", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        assert_eq!(of(json!({})), Outcome::Waiting);
        assert_eq!(of(json!({"conditions": condition("Issued", "False")})), Outcome::Waiting);
        let issued = json!({"conditions": condition("Issued", "True"), "certificateChain": "c",
            "beginRefreshAt": "1970-01-01T00:00:07Z"});
        assert_eq!(of(issued), Outcome::Issued { chain: "c".to_owned(), refresh_at: at(7) });
        let denied = of(json!({"conditions": condition("Denied", "True")}));
        assert_eq!(
            denied,
            Outcome::Refused("PodCertificateRequest r was denied: reason=\"R\" message=\"m\"".to_owned())
        );
    }

    #[test]
    fn a_credential_outlives_a_refused_renewal() {
        let pending = Pending { name: "r".to_owned(), key: vec![1], since: at(0) };
        let mut held = Held { pending: Some(pending.clone()), ..Held::default() };
        held.answered(&pending, Outcome::Waiting, at(60));
        assert!(held.pending.is_some() && held.current.is_none());
        held.answered(&pending, Outcome::Issued { chain: "c".to_owned(), refresh_at: at(100) }, at(61));
        assert!(held.pending.is_none());
        assert_eq!(held.current.as_ref().map(|c| c.chain.as_str()), Some("c"));
        held.answered(&pending, Outcome::Refused("no".to_owned()), at(101));
        assert!(held.current.is_some() && held.refused.is_none());
        assert_eq!(held.not_before, Some(at(101) + RETRY_REFUSED));
        let mut first = Held::default();
        first.answered(&pending, Outcome::Refused("no".to_owned()), at(1));
        assert_eq!(first.refused.as_deref(), Some("no"));
        let mut late = Held { pending: Some(pending.clone()), ..Held::default() };
        late.answered(&pending, Outcome::Waiting, at(16 * 60));
        assert!(late.pending.is_none());
    }

    #[test]
    fn requests_name_pod_node_and_account() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [], "serviceAccountName": "sa"}}))
        .unwrap();
        let source: PodCertificateProjection =
            serde_json::from_value(json!({"signerName": "a/b", "keyType": "ED25519",
            "userAnnotations": {"a/b": "c"}}))
            .unwrap();
        let made = request(&pod, &source, Ids { account: "su", node_name: "node", node: "nu" }, vec![1]);
        assert_eq!(
            serde_json::to_value(&made.spec).unwrap(),
            json!({"maxExpirationSeconds": 86400, "nodeName": "node", "nodeUID": "nu", "podName": "p", "podUID": "u",
                "serviceAccountName": "sa", "serviceAccountUID": "su", "signerName": "a/b",
                "stubPKCS10Request": "AQ==", "unverifiedUserAnnotations": {"a/b": "c"}})
        );
        assert_eq!(made.metadata.owner_references.unwrap()[0].uid, "u");
    }
}
