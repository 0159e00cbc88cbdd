//! certificatesigningrequest-approving-controller, -signing-controller and -cleaner-controller: nodes get certificates.
//!
//! Unlike upstream, a node's request for a serving certificate is approved too, if every name and address in it is the
//! node's own as far as anybody knows: otherwise a joining node would need an operator.

mod request;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest as Csr, CertificateSigningRequestCondition};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use pintle_client::cache::Cache;
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};
use rcgen::{IsCa, Issuer, KeyPair};
use request::Request;

use crate::config::Signing;
use crate::context::Context;
use crate::meta;
use crate::retry::gone_is_fine;

/// How long a request that was answered stays.
const ANSWERED: Duration = Duration::from_secs(3600);
/// How long a request that nobody answered stays.
const PENDING: Duration = Duration::from_secs(24 * 3600);
/// Certificates are valid a little earlier than they are made: clocks differ.
const BACKDATE: Duration = Duration::from_secs(300);

/// Runs certificatesigningrequest-approving-controller.
pub async fn approving(ctx: Context) -> anyhow::Result<()> {
    each(ctx, "csrapproving", |ctx, csr| async move { approve(&ctx, &csr).await }).await
}

/// Runs certificatesigningrequest-signing-controller; without an authority it has nothing to do.
pub async fn signing(ctx: Context) -> anyhow::Result<()> {
    if ctx.config.signing.is_none() {
        return Ok(());
    }
    each(ctx, "certificate", |ctx, csr| async move { sign(&ctx, &csr).await }).await
}

/// Runs certificatesigningrequest-cleaner-controller.
pub async fn cleaner(ctx: Context) -> anyhow::Result<()> {
    each(ctx, "csrcleaner", |ctx, csr| async move {
        let age = Timestamp::now().duration_since(meta::created(&csr.metadata));
        let age = Duration::try_from(age).unwrap_or_default();
        let answered = ["Approved", "Denied", "Failed"].iter().any(|kind| has(&csr, kind));
        let life = if answered { ANSWERED } else { PENDING };
        if age < life {
            return Ok(Action::RequeueAfter(life - age));
        }
        let api: Api<Csr> = ctx.api_all();
        gone_is_fine(api.delete(&csr.name_any(), &DeleteParams::default()).await.map(|_| ()))?;
        Ok(Action::Done)
    })
    .await
}

/// Calls `work` for every request when it changes.
async fn each<F, Fut>(ctx: Context, name: &str, work: F) -> anyhow::Result<()>
where
    F: Fn(Context, Arc<Csr>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = anyhow::Result<Action>> + Send,
{
    let requests: Cache<Csr> = ctx.cache();
    requests.synced().await;
    let queue: Queue<String> = ctx.queue(name);
    let keys = queue.clone();
    requests.on_change(ctx.shutdown.clone(), move |change| keys.add(change.object().name_any()));
    let shared = Arc::new((ctx.clone(), requests, work));
    reconcile::run(queue, 1, ctx.shutdown, |name| {
        let shared = shared.clone();
        async move {
            let (ctx, requests, work) = &*shared;
            match requests.get(None, &name) {
                Some(csr) => work(ctx.clone(), csr).await,
                None => Ok(Action::Done),
            }
        }
    })
    .await;
    Ok(())
}

fn has(csr: &Csr, kind: &str) -> bool {
    csr.status.iter().flat_map(|s| s.conditions.iter().flatten()).any(|c| c.type_ == kind)
}

fn condition(kind: &str, reason: &str, message: &str) -> CertificateSigningRequestCondition {
    let now = Some(Time(Timestamp::now()));
    CertificateSigningRequestCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_update_time: now.clone(),
        last_transition_time: now,
    }
}

async fn approve(ctx: &Context, csr: &Csr) -> anyhow::Result<Action> {
    let answered = ["Approved", "Denied", "Failed"].iter().any(|kind| has(csr, kind));
    let signer = csr.spec.signer_name.as_str();
    if answered || (signer != request::KUBELET_CLIENT && signer != request::KUBELET_SERVING) {
        return Ok(Action::Done);
    }
    let Ok((request, _)) = request::parse(&csr.spec.request.0) else { return Ok(Action::Done) };
    let usages = csr.spec.usages.as_deref().unwrap_or_default();
    let own = csr.spec.username.as_deref() == Some(request.name.as_str());
    let message = match signer {
        request::KUBELET_CLIENT if !request::is_node_client(&request, usages) => return Ok(Action::Done),
        request::KUBELET_CLIENT if own && may(ctx, csr, "selfnodeclient").await? => {
            "Auto approving self kubelet client certificate after SubjectAccessReview."
        }
        request::KUBELET_CLIENT if may(ctx, csr, "nodeclient").await? => {
            "Auto approving kubelet client certificate after SubjectAccessReview."
        }
        request::KUBELET_SERVING if own && request::is_node_serving(&request, usages) => {
            if let Some(stranger) = stranger(ctx, &request).await? {
                tracing::warn!(csr = csr.name_any(), stranger, "serving certificate is left to an operator");
                return Ok(Action::Done);
            }
            "Auto approving kubelet serving certificate for the node's own names."
        }
        _ => return Ok(Action::Done),
    };
    let mut approved = csr.clone();
    let status = approved.status.get_or_insert_default();
    status.conditions.get_or_insert_default().push(condition("Approved", "AutoApproved", message));
    let api: Api<Csr> = ctx.api_all();
    gone_is_fine(api.replace_subresource("approval", &csr.name_any(), &PostParams::default(), &approved).await)?;
    Ok(Action::Done)
}

/// True if whoever asked may have such certificates approved.
async fn may(ctx: &Context, csr: &Csr, subresource: &str) -> anyhow::Result<bool> {
    let attributes = ResourceAttributes {
        group: Some("certificates.k8s.io".to_owned()),
        resource: Some("certificatesigningrequests".to_owned()),
        subresource: Some(subresource.to_owned()),
        verb: Some("create".to_owned()),
        version: Some("*".to_owned()),
        ..ResourceAttributes::default()
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: csr.spec.username.clone(),
            groups: csr.spec.groups.clone(),
            uid: csr.spec.uid.clone(),
            extra: csr.spec.extra.clone(),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = ctx.api_all();
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|s| s.allowed))
}

/// A name or address in the request that is known to be somebody else's: another node's, a Service's, or the API
/// server's.
async fn stranger(ctx: &Context, request: &Request) -> anyhow::Result<Option<String>> {
    let node = request.node().unwrap_or_default();
    if let Some(name) = request.dns.iter().find(|name| *name != node) {
        return Ok(Some(name.clone()));
    }
    let nodes: Api<Node> = ctx.api_all();
    let mut taken: Vec<String> = Vec::new();
    for other in nodes.list(&Default::default()).await?.items.into_iter().filter(|n| n.name_any() != node) {
        taken.extend(other.status.into_iter().flat_map(|s| s.addresses.into_iter().flatten()).map(|a| a.address));
    }
    let services: Api<Service> = ctx.api_all();
    for service in services.list(&Default::default()).await?.items {
        taken.extend(service.spec.into_iter().flat_map(|s| s.cluster_ips.into_iter().flatten()));
    }
    let own = kube::api::ListParams::default().labels("kubernetes.io/service-name=kubernetes");
    for slice in ctx.api::<EndpointSlice>("default").list(&own).await?.items {
        taken.extend(slice.endpoints.into_iter().flatten().flat_map(|e| e.addresses));
    }
    let is_taken = |ip: &&std::net::IpAddr| ip.is_loopback() || taken.contains(&ip.to_string());
    Ok(request.ips.iter().find(is_taken).map(ToString::to_string))
}

async fn sign(ctx: &Context, csr: &Csr) -> anyhow::Result<Action> {
    let signed = csr.status.as_ref().is_some_and(|s| s.certificate.as_ref().is_some_and(|c| !c.0.is_empty()));
    let ours = [request::CLIENT, request::KUBELET_CLIENT, request::KUBELET_SERVING];
    let Some(signing) = &ctx.config.signing else { return Ok(Action::Done) };
    let refused = has(csr, "Denied") || has(csr, "Failed");
    if !has(csr, "Approved") || refused || signed || !ours.contains(&csr.spec.signer_name.as_str()) {
        return Ok(Action::Done);
    }
    let mut answered = csr.clone();
    let status = answered.status.get_or_insert_default();
    match certificate(csr, signing) {
        Ok(pem) => status.certificate = Some(ByteString(pem.into_bytes())),
        Err(error) => {
            let failed = condition("Failed", "SignerValidationFailure", &format!("{error:#}"));
            status.conditions.get_or_insert_default().push(failed);
        }
    }
    let api: Api<Csr> = ctx.api_all();
    gone_is_fine(api.replace_status(&csr.name_any(), &PostParams::default(), &answered).await)?;
    Ok(Action::Done)
}

/// The certificate for a request, PEM.
fn certificate(csr: &Csr, signing: &Signing) -> anyhow::Result<String> {
    let usages = csr.spec.usages.as_deref().unwrap_or_default();
    let (request, mut wanted) = request::parse(&csr.spec.request.0)?;
    request::permitted(&csr.spec.signer_name, &request, usages)?;
    let (plain, extended) = request::purposes(usages)?;
    let asked = csr.spec.expiration_seconds.and_then(|s| u64::try_from(s).ok()).map(Duration::from_secs);
    let life = asked.map_or(signing.duration, |asked| asked.min(signing.duration));
    let now = SystemTime::now();
    wanted.params.is_ca = IsCa::NoCa;
    wanted.params.key_usages = plain;
    wanted.params.extended_key_usages = extended;
    wanted.params.use_authority_key_identifier_extension = true;
    wanted.params.not_before = (now - BACKDATE).into();
    wanted.params.not_after = (now + life).into();
    let issuer = Issuer::from_ca_cert_pem(&signing.certificate, KeyPair::from_pem(&signing.key)?)?;
    Ok(wanted.signed_by(&issuer)?.pem())
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType};

    use super::*;

    #[test]
    fn signs_what_is_permitted() {
        let key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let cert = ca.self_signed(&key).unwrap().pem();
        let signing = Signing { certificate: cert, key: key.serialize_pem(), duration: Duration::from_secs(86_400) };
        let csr = |organization: &str| {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::OrganizationName, organization);
            params.distinguished_name.push(DnType::CommonName, "system:node:n");
            let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
            let mut csr = Csr::default();
            csr.spec.request = ByteString(pem.into_bytes());
            csr.spec.signer_name = request::KUBELET_CLIENT.to_owned();
            csr.spec.usages = Some(vec!["digital signature".to_owned(), "client auth".to_owned()]);
            csr
        };
        let pem = certificate(&csr("system:nodes"), &signing).unwrap();
        assert!(pem.starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(certificate(&csr("system:masters"), &signing).is_err());
    }
}
