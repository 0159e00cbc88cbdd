//! ResourceQuota: what a write uses is charged to the quotas of its namespace before it happens.
//!
//! A charge is a compare-and-swap on the quota's status, so that any number of writers and servers together stay below the
//! bound. A write that fails after it gives its charge back; what is lost in a crash the quota controller counts again.

use futures::future::BoxFuture;
use parking_lot::Mutex;
use pintle_api::quota::{self, Amounts, Change, Evaluator};
use pintle_machinery::status::ApiError;
use serde_json::Value;

use super::Operation;
use crate::engine::modify::{self, Ownership};
use crate::engine::{Call, meta};
use crate::internal::{self, Address};

/// Resources that are never counted.
const UNCOUNTED: [(&str, &str); 2] = [("", "events"), ("", "bindings")];

/// So many namespaces can be charged at the same time.
const TURNS: usize = 16;

/// Who charges a namespace's quotas now. It only saves attempts: the compare-and-swap is what is exact.
#[derive(Debug, Default)]
pub struct Turns([tokio::sync::Mutex<()>; TURNS]);

impl Turns {
    fn of(&self, namespace: &str) -> &tokio::sync::Mutex<()> {
        let sum = namespace.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
        &self.0[sum % TURNS]
    }
}

/// What was added to quotas for a write.
#[derive(Debug, Default)]
#[must_use]
pub struct Charge {
    /// Quota by name, with what it was charged.
    charged: Vec<(String, Amounts)>,
}

impl Charge {
    /// The write did not happen.
    pub async fn undo(self, call: &Call) {
        for (name, delta) in self.charged {
            let make = |quota: &Value| {
                let mut used = Amounts::from_json(&quota["status"]["used"]);
                used.subtract_all(&delta);
                Ok(with_used(quota, &used))
            };
            match write(call, &name, &make, false).await {
                Ok(()) | Err(ApiError::NotFound { .. }) => {}
                Err(error) => tracing::warn!(?error, quota = name, "a charge could not be given back"),
            }
        }
    }
}

fn with_used(quota: &Value, used: &Amounts) -> Value {
    let mut new = quota.clone();
    new["status"]["used"] = used.to_json();
    new
}

/// Charges every quota that the write concerns, or none.
pub async fn charge(
    call: &Call,
    operation: Operation,
    new: &Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<Charge, ApiError> {
    let resource = &call.resource;
    let evaluator = Evaluator::of(&resource.group, &resource.name);
    let uncounted = UNCOUNTED.contains(&(resource.group.as_str(), resource.name.as_str()));
    let charged = evaluator.charges(operation == Operation::Create, &call.info.subresource);
    if !resource.namespaced || uncounted || !charged {
        return Ok(Charge::default());
    }
    let change = Change { evaluator: &evaluator, new, old, now: call.now };
    let mut quotas = internal::list(&call.state, "", "resourcequotas", &call.info.namespace);
    quotas.retain(|quota| !matches!(quota::charge(&change, quota), Ok(None)));
    if quotas.is_empty() {
        return Ok(Charge::default());
    }
    // One at a time in a namespace: they would only take the quota away from each other.
    let _turn = call.state.quota_turns.of(&call.info.namespace).lock().await;
    let mut charge = Charge::default();
    for quota in quotas {
        let name = meta::text(&quota, "name");
        match charge_one(call, &change, name, dry_run).await {
            Ok(Some(delta)) if !dry_run => charge.charged.push((name.to_owned(), delta)),
            Ok(_) | Err(ApiError::NotFound { .. }) => {}
            Err(error) => {
                charge.undo(call).await;
                return Err(error);
            }
        }
    }
    Ok(charge)
}

/// Charges one quota, as it is in the store; what it was charged.
async fn charge_one(call: &Call, change: &Change<'_>, name: &str, dry_run: bool) -> Result<Option<Amounts>, ApiError> {
    let charged = Mutex::new(None);
    let make = |quota: &Value| match quota::charge(change, quota) {
        Ok(None) => {
            *charged.lock() = None;
            Ok(quota.clone())
        }
        Ok(Some(used)) => {
            let mut delta = used.clone();
            delta.subtract_all(&Amounts::from_json(&quota["status"]["used"]));
            *charged.lock() = Some(delta.without_zeros());
            Ok(with_used(quota, &used))
        }
        Err(message) => Err(ApiError::forbidden(&call.group_resource(), meta::text(change.new, "name"), message)),
    };
    write(call, name, &make, dry_run).await?;
    Ok(charged.into_inner())
}

/// Changes a quota's status. Boxed: the write of a quota goes through admission itself.
fn write<'a>(
    call: &'a Call,
    name: &'a str,
    make: modify::Make<'a>,
    dry_run: bool,
) -> BoxFuture<'a, Result<(), ApiError>> {
    Box::pin(async move {
        let at = Address::new("", "resourcequotas", &call.info.namespace, name);
        let mut status = internal::call(&call.state, "update", at)?;
        status.info.subresource = "status".into();
        modify::modify(&status, make, Ownership::Update, dry_run).await.map(drop)
    })
}
