//! Admission: what changes or refuses a write that is otherwise fine. A fixed sequence of plain functions.
//!
//! [`mutate`] runs before validation; [`admit`] after it: it takes what an object needs from shared pools (addresses,
//! ports), refuses what is not allowed, and charges quotas. What was taken is given back when the write does not happen.

mod limits;
mod namespace;
mod node;
mod pods;
mod podsecurity;
mod quota;
mod serviceaccount;
mod storage;

use pintle_machinery::status::ApiError;
use serde_json::Value;

use crate::engine::Call;
use crate::services;
use crate::webhooks;

pub use quota::Turns;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A changed one.
    Update,
    /// A deletion (or its beginning).
    Delete,
}

/// Things taken from shared pools for a write that has not happened yet.
#[derive(Debug, Default)]
#[must_use]
pub struct Reservation {
    taken: Vec<services::Claim>,
    /// Given back once the write has happened.
    freed: Vec<services::Claim>,
    /// Of quotas.
    charge: quota::Charge,
}

impl Reservation {
    /// Of these.
    pub fn new(taken: Vec<services::Claim>, freed: Vec<services::Claim>) -> Self {
        Self { taken, freed, charge: quota::Charge::default() }
    }

    /// The write happened.
    pub async fn keep(self, call: &Call) {
        services::release(&call.state, self.freed).await;
    }

    /// It did not: gives everything back.
    pub async fn undo(self, call: &Call) {
        services::release(&call.state, self.taken).await;
        self.charge.undo(call).await;
    }
}

/// Changes a new object (stored form) before it is validated.
pub async fn mutate(call: &Call, operation: Operation, new: &mut Value) -> Result<(), ApiError> {
    if operation == Operation::Create {
        namespace::check_open(call, new).await?;
    }
    let main = call.info.subresource.is_empty();
    match (call.resource.group.as_str(), call.resource.name.as_str()) {
        ("", "pods") if operation == Operation::Create && main => {
            limits::mutate(call, new);
            serviceaccount::mutate(call, new).await?;
            pods::priority(call, new)?;
            pods::tolerations(new);
            pods::runtime_class(call, new)?;
            pods::topology(call, new);
        }
        ("", "pods") if operation == Operation::Update && main => pods::tolerations(new),
        ("", "pods") if call.info.subresource == "binding" => pods::topology(call, new),
        ("storage.k8s.io", "volumeattributesclasses") if operation == Operation::Create => storage::protect(call, new),
        ("", "persistentvolumeclaims" | "persistentvolumes") if operation == Operation::Create => {
            storage::protect(call, new);
            storage::default_class(call, new);
        }
        ("networking.k8s.io", "ingresses") if operation == Operation::Create => {
            storage::default_ingress_class(call, new)
        }
        ("scheduling.k8s.io", "podgroups" | "compositepodgroups") if operation == Operation::Create => {
            pods::priority(call, new)?;
        }
        ("", "nodes") if operation == Operation::Create => node::taint(new),
        ("certificates.k8s.io", "certificatesigningrequests") if operation == Operation::Create => {
            new["spec"]["username"] = call.user.name.clone().into();
            new["spec"]["groups"] = call.user.groups.clone().into();
            new["spec"]["uid"] = call.user.uid.clone().into();
            new["spec"]["extra"] = match call.user.extra.is_empty() {
                true => Value::Null,
                false => serde_json::json!(call.user.extra),
            };
        }
        _ => {}
    }
    Ok(())
}

/// Takes what the object needs: before it is validated, for what can't be had is told alone.
pub async fn reserve(
    call: &Call,
    new: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<Reservation, ApiError> {
    let service =
        call.resource.group.is_empty() && call.resource.name == "services" && call.info.subresource.is_empty();
    match service {
        true => services::reserve(call, new, old, dry_run).await,
        false => Ok(Reservation::default()),
    }
}

/// Refuses what is not allowed, charges quotas. The object is valid; what was reserved for it is given back if it is refused.
pub async fn admit(
    call: &Call,
    operation: Operation,
    new: &Value,
    old: Option<&Value>,
    dry_run: bool,
    mut reservation: Reservation,
) -> Result<Reservation, ApiError> {
    match check_and_charge(call, operation, new, old, dry_run).await {
        Ok(charge) => {
            reservation.charge = charge;
            Ok(reservation)
        }
        Err(error) => {
            reservation.undo(call).await;
            Err(error)
        }
    }
}

async fn check_and_charge(
    call: &Call,
    operation: Operation,
    new: &Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<quota::Charge, ApiError> {
    validate(call, operation, Some(new), old).await?;
    webhooks::validate(call, operation, Some(new), old).await?;
    quota::charge(call, operation, new, old, dry_run).await
}

/// Refuses what is not allowed; for a deletion `new` is `None`.
pub async fn validate(
    call: &Call,
    operation: Operation,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    namespace::check_deletion(call, operation)?;
    node::restrict(call, operation, new, old)?;
    let main = call.info.subresource.is_empty();
    if let Some(new) = new {
        limits::validate(call, operation, new)?;
        podsecurity::validate(call, operation, new, old).await?;
        match (call.resource.name.as_str(), old) {
            ("pods", None) if main => pods::overhead(call, new)?,
            ("priorityclasses", _) => pods::only_default(call, new)?,
            ("persistentvolumeclaims", Some(old)) if main => storage::check_resize(call, new, old)?,
            ("resourceclaims" | "resourceclaimtemplates", None) => storage::check_admin_access(call, new)?,
            _ => {}
        }
        rbac_escalation(call, new, old)?;
    }
    Ok(())
}

fn rbac_escalation(call: &Call, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    if call.resource.group != crate::auth::RBAC_GROUP {
        return Ok(());
    }
    let authorizer = &call.state.auth.authorizer;
    match call.resource.name.as_str() {
        "roles" | "clusterroles" => {
            crate::auth::escalation::check_role(authorizer, &call.user, &call.resource.name, new, old)
        }
        _ => crate::auth::escalation::check_binding(authorizer, &call.user, &call.resource.name, new, old),
    }
}

/// An object is gone: gives back what it held.
pub async fn released(call: &Call, old: &Value) {
    if call.resource.group.is_empty() && call.resource.name == "services" {
        services::release(&call.state, services::claims_of(old)).await;
    }
}
