//! Leader election by a `coordination.k8s.io/v1` Lease, with upstream's timing (15 s lease, 10 s renew deadline, 2 s retry).

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Who elects and how fast.
#[derive(Clone, Debug)]
pub struct Config {
    /// Namespace of the Lease (`kube-system`).
    pub namespace: String,
    /// Name of the Lease (the component's name).
    pub name: String,
    /// This candidate; unique over all candidates.
    pub identity: String,
    /// How long a lease holds without renewal.
    pub lease: Duration,
    /// How long the leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// Pause between tries.
    pub retry: Duration,
}

impl Config {
    /// Upstream's timing.
    pub fn new(name: &str, identity: &str) -> Self {
        Self {
            namespace: "kube-system".to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// Waits until this candidate leads. The returned token is cancelled when leadership is lost; on `shutdown` the lease
/// is released. Returns `None` if `shutdown` came first.
pub async fn acquire(client: Client, config: Config, shutdown: CancellationToken) -> Option<CancellationToken> {
    let api: Api<Lease> = Api::namespaced(client, &config.namespace);
    let mut seen: Option<(LeaseSpec, Instant)> = None;
    loop {
        match try_hold(&api, &config, &mut seen).await {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, lease = config.name, "leader election failed, retrying"),
        }
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(config.retry) => {}
        }
    }
    tracing::info!(lease = config.name, identity = config.identity, "became leader");
    let leading = shutdown.child_token();
    tokio::spawn(keep(api, config, seen, shutdown, leading.clone()));
    Some(leading)
}

async fn keep(
    api: Api<Lease>,
    config: Config,
    mut seen: Option<(LeaseSpec, Instant)>,
    shutdown: CancellationToken,
    leading: CancellationToken,
) {
    let mut renewed = Instant::now();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => {
                release(&api, &config).await;
                return;
            }
            () = tokio::time::sleep(config.retry) => {}
        }
        match try_hold(&api, &config, &mut seen).await {
            Ok(true) => renewed = Instant::now(),
            Ok(false) => renewed -= config.renew_deadline,
            Err(error) => tracing::debug!(%error, lease = config.name, "lease not renewed"),
        }
        if renewed.elapsed() >= config.renew_deadline {
            tracing::warn!(lease = config.name, "leadership lost");
            leading.cancel();
            return;
        }
    }
}

/// One try to take or renew the lease. A foreign lease counts as expired only after it was seen unchanged for its whole
/// duration on this process's own clock, so clock skew between candidates does not matter.
async fn try_hold(api: &Api<Lease>, config: &Config, seen: &mut Option<(LeaseSpec, Instant)>) -> kube::Result<bool> {
    let now = MicroTime(Timestamp::now());
    let Some(mut lease) = api.get_opt(&config.name).await? else {
        let metadata = ObjectMeta { name: Some(config.name.clone()), ..ObjectMeta::default() };
        let lease = Lease { metadata, spec: Some(held(config, &now, 0, now.clone())) };
        return won(api.create(&PostParams::default(), &lease).await);
    };
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.clone().unwrap_or_default();
    if holder != config.identity && !holder.is_empty() {
        let since = match seen {
            Some((last, since)) if *last == spec => *since,
            _ => {
                *seen = Some((spec.clone(), Instant::now()));
                Instant::now()
            }
        };
        let duration = Duration::from_secs(u64::try_from(spec.lease_duration_seconds.unwrap_or(15)).unwrap_or(15));
        if since.elapsed() < duration {
            return Ok(false);
        }
    }
    let (transitions, acquired) = if holder == config.identity {
        (spec.lease_transitions.unwrap_or(0), spec.acquire_time.unwrap_or_else(|| now.clone()))
    } else {
        (spec.lease_transitions.unwrap_or(0) + 1, now.clone())
    };
    lease.spec = Some(held(config, &now, transitions, acquired));
    won(api.replace(&config.name, &PostParams::default(), &lease).await)
}

fn held(config: &Config, now: &MicroTime, transitions: i32, acquired: MicroTime) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(config.identity.clone()),
        lease_duration_seconds: i32::try_from(config.lease.as_secs()).ok(),
        acquire_time: Some(acquired),
        renew_time: Some(now.clone()),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    }
}

/// A conflict means that another candidate was faster.
fn won(result: kube::Result<Lease>) -> kube::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

async fn release(api: &Api<Lease>, config: &Config) {
    let Ok(Some(mut lease)) = api.get_opt(&config.name).await else { return };
    let Some(spec) = lease.spec.as_mut() else { return };
    if spec.holder_identity.as_deref() != Some(&config.identity) {
        return;
    }
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    if let Err(error) = api.replace(&config.name, &PostParams::default(), &lease).await {
        tracing::debug!(%error, lease = config.name, "lease not released");
    }
}
