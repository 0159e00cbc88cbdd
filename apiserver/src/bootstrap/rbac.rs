//! The RBAC objects that every cluster starts with.

use std::sync::Arc;

use pintle_machinery::status::ApiError;
use serde_json::Value;

use crate::auth::RBAC_GROUP;
use crate::auth::policy::plan::{Step, reconcile as plan};
use crate::auth::policy::{PolicyObject, objects};
use crate::internal::{self, Address};
use crate::state::State;

/// Creates and completes them.
pub async fn reconcile(state: &Arc<State>) -> Result<(), ApiError> {
    // All at once: a store that syncs to disk then does so once for many.
    futures::future::try_join_all(objects().iter().map(|wanted| bring(state, wanted))).await.map(drop)
}

async fn bring(state: &Arc<State>, wanted: &PolicyObject) -> Result<(), ApiError> {
    let at = Address::new(RBAC_GROUP, wanted.resource, &wanted.namespace, &wanted.name);
    let existing = internal::get(state, at).await?;
    match plan(wanted, existing.as_ref()) {
        None => Ok(()),
        Some(Step::Create(object)) => internal::create(state, at, object).await,
        Some(Step::Update(object)) => {
            let make = |_: &Value| Ok(object.clone());
            internal::update(state, at, &make).await
        }
        Some(Step::Replace(object)) => {
            internal::remove(state, at).await?;
            internal::create(state, at, object).await
        }
    }
}
