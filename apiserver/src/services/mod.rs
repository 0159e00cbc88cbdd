//! Addresses and node ports of Services. Each is claimed by an object of its own in the store, so that two servers
//! never give out the same: an `IPAddress` for an address, a key under [`PORTS`] for a port.

mod families;
mod plan;
mod update;

use std::net::IpAddr;
use std::sync::Arc;

use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::status::ApiError;
use rand::Rng;
use serde_json::{Value, json};

use crate::admission::Reservation;
use crate::engine::{Call, meta, storage_error};
use crate::internal::{self, Address};
use crate::state::State;

pub use plan::{claims_of, first_address, has_addresses, is_headless, needs_health_port, takes_outsiders};
pub use update::{complete, update};

/// Keys of claimed node ports: port number at the end, the owner as value.
const PORTS: &str = "/registry/ranges/servicenodeports/";
/// Random tries before the range is searched.
const TRIES: usize = 32;

/// Something that belongs to one Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// A cluster address.
    Address(IpAddr),
    /// A node port.
    Port(u16),
}

/// The owner as claims name it.
fn owner(service: &Value) -> (String, String) {
    (meta::text(service, "namespace").to_owned(), meta::text(service, "name").to_owned())
}

/// Completes a new or changed Service with addresses and ports.
pub async fn reserve(
    call: &Call,
    new: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<Reservation, ApiError> {
    let own = if call.state.config.service_cidr.addr().is_ipv6() { "IPv6" } else { "IPv4" };
    let faults = families::settle(new, old, own);
    if !faults.is_empty() {
        return Err(ApiError::invalid(&call.resource.group_kind(), meta::text(new, "name"), faults));
    }
    let held = old.map(claims_of).unwrap_or_default();
    let mut taken = Vec::new();
    match fill(call, new, old, &held, dry_run, &mut taken).await {
        Ok(()) => {
            let kept = claims_of(new);
            let freed = held.into_iter().filter(|claim| !kept.contains(claim)).collect();
            Ok(Reservation::new(taken, if dry_run { Vec::new() } else { freed }))
        }
        Err(error) => {
            release(&call.state, taken).await;
            Err(error)
        }
    }
}

async fn fill(
    call: &Call,
    new: &mut Value,
    old: Option<&Value>,
    held: &[Claim],
    dry_run: bool,
    taken: &mut Vec<Claim>,
) -> Result<(), ApiError> {
    // One that is had stays: another one is refused where the object is validated.
    if plan::needs_address(new) && !old.is_some_and(has_addresses) {
        let wanted = new["spec"]["clusterIP"].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let address = match wanted {
            Some(text) => claim_address(call, new, &text, held, dry_run, taken).await?,
            None => any_address(call, new, dry_run, taken).await?,
        };
        new["spec"]["clusterIP"] = json!(address.to_string());
        new["spec"]["clusterIPs"] = json!([address.to_string()]);
    }
    for index in plan::ports_in_need(new) {
        // A dry run leaves what can be no port as it is.
        let given = new["spec"]["ports"][index]["nodePort"].as_i64().unwrap_or(0);
        if dry_run && u16::try_from(given).is_err() {
            continue;
        }
        let shared = if old.is_none() && given == 0 { plan::sibling_port(new, index) } else { None };
        let wanted = shared.map_or(given, i64::from);
        let had = |port: &u16| old.is_some_and(|old| plan::node_ports(old).any(|own| own == i64::from(*port)));
        let known = |port: &u16| had(port) || taken.contains(&Claim::Port(*port));
        let port = match u16::try_from(wanted).ok().filter(|port| *port != 0).filter(known) {
            Some(port) => port,
            None => {
                let at = Path::new("spec").child("ports").index(index).child("nodePort");
                let claimed = claim_port(call, new, wanted, dry_run, taken).await?;
                claimed.or_else(|why| refuse_port(call, new, &at, wanted, why))?
            }
        };
        new["spec"]["ports"][index]["nodePort"] = json!(port);
    }
    if needs_health_port(new) && !old.is_some_and(needs_health_port) {
        let wanted = new["spec"]["healthCheckNodePort"].as_i64().unwrap_or(0);
        let impossible = dry_run && u16::try_from(wanted).is_err();
        if !impossible {
            let claimed = claim_port(call, new, wanted, dry_run, taken).await?;
            let refused = |why| format!("failed to allocate requested HealthCheck NodePort {wanted}: {why}");
            let port = claimed.map_err(|why| ApiError::Internal(refused(why)))?;
            new["spec"]["healthCheckNodePort"] = json!(port);
        }
    }
    Ok(())
}

fn refuse_port(call: &Call, service: &Value, at: &Path, wanted: i64, why: String) -> Result<u16, ApiError> {
    let mut errors = ErrorList::new();
    errors.invalid(at, json!(wanted), why);
    Err(ApiError::invalid(&call.resource.group_kind(), meta::text(service, "name"), errors))
}

async fn claim_address(
    call: &Call,
    service: &Value,
    text: &str,
    held: &[Claim],
    dry_run: bool,
    taken: &mut Vec<Claim>,
) -> Result<IpAddr, ApiError> {
    let cidr = call.state.config.service_cidr;
    let refuse = |why: String| {
        let mut errors = ErrorList::new();
        errors.invalid(&Path::new("spec").child("clusterIPs"), json!([text]), why);
        Err(ApiError::invalid(&call.resource.group_kind(), meta::text(service, "name"), errors))
    };
    let Ok(address) = text.parse::<IpAddr>() else { return refuse("must be a valid IP address".into()) };
    if held.contains(&Claim::Address(address)) {
        return Ok(address);
    }
    if !cidr.contains(&address) {
        let why = match dry_run {
            true => format!("the provided IP ({address}) is not in the valid range. The range of valid IPs is {cidr}"),
            false => "the provided network does not match the current range".to_owned(),
        };
        return refuse(format!("failed to allocate IP {address}: {why}"));
    }
    if dry_run {
        return Ok(address);
    }
    match try_address(&call.state, service, address).await? {
        true => {
            taken.push(Claim::Address(address));
            Ok(address)
        }
        false => refuse(format!("failed to allocate IP {address}: provided IP is already allocated")),
    }
}

async fn any_address(call: &Call, service: &Value, dry_run: bool, taken: &mut Vec<Claim>) -> Result<IpAddr, ApiError> {
    let cidr = call.state.config.service_cidr;
    for attempt in 0..TRIES * 8 {
        let offset = if attempt < TRIES { None } else { Some(attempt - TRIES) };
        let Some(address) = plan::candidate(cidr, offset, rand::rng().random()) else { continue };
        if dry_run || try_address(&call.state, service, address).await? {
            if !dry_run {
                taken.push(Claim::Address(address));
            }
            return Ok(address);
        }
    }
    Err(ApiError::Internal("failed to allocate a serviceIP: range is full".into()))
}

/// Claims an address; false: somebody has it.
async fn try_address(state: &Arc<State>, service: &Value, address: IpAddr) -> Result<bool, ApiError> {
    let (namespace, name) = owner(service);
    let text = address.to_string();
    let at = Address::new("networking.k8s.io", "ipaddresses", "", &text);
    let object = json!({
        "metadata": {"name": text, "labels": {
            "ipaddress.kubernetes.io/ip-family": if address.is_ipv6() { "IPv6" } else { "IPv4" },
            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}},
        "spec": {"parentRef": {"group": "", "resource": "services", "namespace": namespace, "name": name}},
    });
    match internal::create(state, at, object).await {
        Ok(()) => Ok(true),
        Err(ApiError::AlreadyExists { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Claims a port, any one for 0; or why it can't be had.
async fn claim_port(
    call: &Call,
    service: &Value,
    wanted: i64,
    dry_run: bool,
    taken: &mut Vec<Claim>,
) -> Result<Result<u16, String>, ApiError> {
    let range = call.state.config.node_ports.clone();
    // A dry run looks at who has a port, not at where it is.
    if wanted != 0 && !dry_run && !u16::try_from(wanted).is_ok_and(|port| range.contains(&port)) {
        let (first, last) = (range.start(), range.end());
        let why = "provided port is not in the valid range. The range of valid ports is";
        return Ok(Err(format!("{why} {first}-{last}")));
    }
    let candidates: Vec<u16> = match wanted {
        0 => (0..TRIES).map(|_| rand::rng().random_range(range.clone())).chain(range.clone()).collect(),
        port => u16::try_from(port).into_iter().collect(),
    };
    for port in candidates {
        let free = match dry_run {
            true => call.state.store.get(&format!("{PORTS}{port}")).await.map_err(storage_error)?.is_none(),
            false => try_port(&call.state, service, port).await?,
        };
        if free {
            if !dry_run {
                taken.push(Claim::Port(port));
            }
            return Ok(Ok(port));
        }
    }
    match wanted {
        0 => Err(ApiError::Internal("failed to allocate a nodePort: range is full".into())),
        _ => Ok(Err("provided port is already allocated".into())),
    }
}

async fn try_port(state: &Arc<State>, service: &Value, port: u16) -> Result<bool, ApiError> {
    let (namespace, name) = owner(service);
    match state.store.create(&format!("{PORTS}{port}"), format!("{namespace}/{name}").into(), None).await {
        Ok(_) => Ok(true),
        Err(pintle_store::Error::Exists { .. }) => Ok(false),
        Err(error) => Err(storage_error(error)),
    }
}

/// Gives claims back.
pub async fn release(state: &Arc<State>, claims: Vec<Claim>) {
    for claim in claims {
        let outcome = match claim {
            Claim::Address(address) => {
                let text = address.to_string();
                internal::remove(state, Address::new("networking.k8s.io", "ipaddresses", "", &text)).await
            }
            Claim::Port(port) => free_port(state, port).await,
        };
        if let Err(error) = outcome {
            tracing::warn!(?error, "a Service's address or port could not be given back");
        }
    }
}

async fn free_port(state: &Arc<State>, port: u16) -> Result<(), ApiError> {
    let key = format!("{PORTS}{port}");
    let Some(kv) = state.store.get(&key).await.map_err(storage_error)? else { return Ok(()) };
    state.store.delete(&key, kv.mod_revision).await.map(drop).map_err(storage_error)
}

/// Gives back what belongs to Services that are no longer there (a crash between the two writes), and claims what
/// Services have without a claim (a store of another server). Run before requests are served.
pub async fn repair(state: &Arc<State>) -> Result<(), ApiError> {
    let parsed = |group, resource| -> Vec<Value> {
        internal::entries(state, group, resource, "").iter().map(|entry| entry.value()).collect()
    };
    let services = parsed("", "services");
    let held: Vec<(Claim, &Value)> =
        services.iter().flat_map(|service| claims_of(service).into_iter().map(move |claim| (claim, service))).collect();
    for (claim, service) in &held {
        match claim {
            Claim::Address(address) => drop(try_address(state, service, *address).await?),
            Claim::Port(port) => drop(try_port(state, service, *port).await?),
        }
    }
    let options = pintle_store::ListOptions::prefix(PORTS);
    let ports = state.store.list(options).await.map_err(storage_error)?;
    let claimed = ports.items.iter().filter_map(|kv| kv.key.strip_prefix(PORTS)?.parse().ok()).map(Claim::Port);
    let addresses = parsed("networking.k8s.io", "ipaddresses");
    let addressed = addresses
        .iter()
        .filter(|address| address["spec"]["parentRef"]["resource"] == "services")
        .filter_map(|address| meta::text(address, "name").parse().ok())
        .map(Claim::Address);
    let orphans = claimed.chain(addressed).filter(|claim| held.iter().all(|(own, _)| own != claim)).collect();
    release(state, orphans).await;
    Ok(())
}
