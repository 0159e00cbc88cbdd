//! get and list.

use std::sync::Arc;

use http::StatusCode;
use pintle_machinery::status::{ApiError, Cause, Details, Status};
use pintle_store::Revision;
use serde_json::{Value, json};

use super::join::{self, Item};
use super::list_options::{At, ListOptions, Token};
use super::present;
use super::table::{self, Include};
use super::{Answer, Call, storage_error};
use crate::cache::Cache;
use crate::cache::entry::Entry;
use crate::cache::snapshot::Snapshot;
use crate::codec;
use crate::http::negotiate::{Encoding, Form};
use crate::resource::Resource;

/// One object by name.
pub async fn get(call: &Call) -> Answer {
    let fault = |text| ApiError::Other(Box::new(Status::failure(500, "", text)));
    if let Some(revision) = super::list_options::revision(&call.query).map_err(fault)?
        && revision > 0
    {
        reach(call, revision).await?;
    }
    let kv = call.state.store.get(&call.key()).await.map_err(storage_error)?.ok_or_else(|| call.not_found())?;
    present::stored(call, StatusCode::OK, &kv.value, kv.mod_revision)
}

/// The cache of the call's resource.
pub fn cache(call: &Call) -> Result<&Arc<Cache>, ApiError> {
    call.resource.cache.as_ref().ok_or(ApiError::MethodNotAllowed)
}

/// Waits until the caches have reached a revision that the client saw.
pub async fn reach(call: &Call, revision: Revision) -> Result<Revision, ApiError> {
    let reached = call.caches().wait_for(revision).await;
    reached.ok_or_else(|| too_large(&call.resource, revision, call.caches().revision()))
}

fn too_large(resource: &Resource, revision: Revision, current: Revision) -> ApiError {
    let message = format!("Timeout: Too large resource version: {revision}, current: {current}");
    let cause = Cause {
        reason: "ResourceVersionTooLarge".into(),
        message: "Too large resource version".into(),
        field: String::new(),
    };
    // Upstream reads events from the store, which doesn't wait to see whether the version comes.
    let retry_after_seconds = u32::from(resource.name != "events");
    let details = Details { causes: vec![cause], retry_after_seconds, ..Details::default() };
    ApiError::Other(Box::new(Status::failure(504, "Timeout", message).with_details(details)))
}

/// One page of objects and what goes into the list's metadata.
pub struct Page {
    /// The objects.
    pub entries: Vec<Arc<Entry>>,
    /// Revision of the list.
    pub revision: Revision,
    /// Token of the next page.
    pub next: Option<String>,
    /// Objects left, if that is known.
    pub remaining: Option<usize>,
}

/// Objects by selector, from the cache.
pub async fn page(call: &Call, options: &ListOptions) -> Result<Page, ApiError> {
    let cache = cache(call)?;
    let (snapshot, revision) = state_at(call, cache, options).await?;
    let prefix = call.resource.prefix(&call.info.namespace);
    let after = options.page.as_ref().map(|page| page.after_key(&prefix));
    let mut entries = Vec::new();
    let mut next = None;
    let mut remaining = None;
    let mut range = snapshot.range(&prefix, after.as_deref());
    while let Some(entry) = range.next() {
        if !options.selection.matches(entry) {
            continue;
        }
        entries.push(entry.clone());
        if options.limit.is_some_and(|limit| entries.len() >= limit) {
            // Whether what is left is selected is for the next page to tell.
            let left = range.by_ref().take(if options.selection.is_everything() { usize::MAX } else { 1 }).count();
            if left > 0 && options.selection.fields.exact("metadata.name").is_none() {
                next = Some(Token::after(&entry.key, &prefix, revision).encode());
                remaining = Some(left).filter(|_| options.selection.is_everything());
                cache.retain(revision, snapshot.clone());
            }
            break;
        }
    }
    Ok(Page { entries, revision, next, remaining })
}

async fn state_at(call: &Call, cache: &Cache, options: &ListOptions) -> Result<(Arc<Snapshot>, Revision), ApiError> {
    let reached = match options.at {
        At::Latest => call.caches().consistent().await.map_err(storage_error)?,
        At::Any => call.caches().revision(),
        At::NotOlderThan(revision) => reach(call, revision).await?,
        At::Exact(revision) => {
            if let Some(snapshot) = cache.retained(revision) {
                return Ok((snapshot, revision));
            }
            reach(call, revision).await?;
            let (snapshot, newest) = cache.snapshot();
            // Pages are of a state that was kept; what nothing followed is told as it is.
            if options.page.is_none()
                && let Some(snapshot) = cache.at(revision)
            {
                return Ok((snapshot, revision));
            }
            if newest <= revision && revision >= cache.known_since() {
                return Ok((snapshot, revision));
            }
            return Err(expired(call, options));
        }
    };
    let (snapshot, newest) = cache.snapshot();
    Ok((snapshot, reached.max(newest)))
}

fn expired(call: &Call, options: &ListOptions) -> ApiError {
    let Some(page) = &options.page else {
        return ApiError::Expired("The resourceVersion for the provided list is too old.".into());
    };
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                   list without the continue parameter, or use the continue token in this response to retrieve the \
                   remainder of the results. Continuing with the provided token results in an inconsistent list - \
                   objects that were created, modified, or deleted between the time the first chunk was returned and \
                   now may show up in the list.";
    let mut status = Status::failure(410, "Expired", message);
    let prefix = call.resource.prefix(&call.info.namespace);
    let token = Token::after(&page.after_key(&prefix), &prefix, -1);
    status.metadata.insert("continue".into(), Value::String(token.encode()));
    ApiError::Other(Box::new(status))
}

/// The list verb.
pub async fn list(call: &Call) -> Answer {
    let options = ListOptions::parse(&call.query, &call.resource)?;
    let page = page(call, &options).await?;
    let meta = list_meta(&page);
    let accepted = call.accepted;
    let stored_form = call.resource.serves_stored_form();
    let stored_metadata = stored_form && present::shows_stored_metadata(&call.resource.kind);
    match (accepted.form, accepted.encoding, accepted.pretty) {
        (Form::Object, Encoding::Json, false) if stored_form => {
            let kind = format!("{}List", call.resource.kind);
            let empty = json!({"kind": kind, "apiVersion": call.resource.api_version(), "metadata": meta, "items": []});
            joined(call, page, &empty, Item::Object)
        }
        (Form::Table(v1), Encoding::Json, false) if stored_metadata => {
            let include = Include::parse(&call.query)?;
            let empty = table::render(call, &[], meta, include, v1, true);
            let (rules, now) = (call.resource.rules, call.now);
            joined(call, page, &empty, Item::Row { include, meta_version: meta_version(v1), rules, now })
        }
        (Form::Metadata(v1), Encoding::Json, false) if stored_metadata => {
            joined(call, page, &metadata_list(v1, meta, Vec::new()), Item::Metadata(meta_version(v1)))
        }
        (Form::Metadata(v1), Encoding::Protobuf, _) if stored_metadata => {
            let list = codec::protobuf_metadata_list(call, &page, &meta, meta_version(v1))?;
            Ok(join::protobuf(list, &accepted.content_type(false)))
        }
        (Form::Table(v1), ..) => {
            let include = Include::parse(&call.query)?;
            let objects: Vec<Value> = page.entries.iter().map(|entry| entry.value()).collect();
            let table = table::render(call, &objects, meta, include, v1, true);
            present::object(call, StatusCode::OK, &table)
        }
        (Form::Metadata(v1), ..) => {
            let items = page.entries.iter().map(|entry| present::partial_metadata(&entry.value(), v1)).collect();
            present::object(call, StatusCode::OK, &metadata_list(v1, meta, items))
        }
        (Form::Object, Encoding::Protobuf, _) => {
            Ok(join::protobuf(codec::protobuf_list(call, &page, &meta)?, Encoding::Protobuf.media_type()))
        }
        _ => present::object(call, StatusCode::OK, &list_value(call, &page, meta)),
    }
}

fn meta_version(v1: bool) -> &'static str {
    if v1 { "meta.k8s.io/v1" } else { "meta.k8s.io/v1beta1" }
}

fn metadata_list(v1: bool, meta: Value, items: Vec<Value>) -> Value {
    json!({"kind": "PartialObjectMetadataList", "apiVersion": meta_version(v1), "metadata": meta, "items": items})
}

/// The list out of the entries' bytes; `empty` is the list without them.
fn joined(call: &Call, page: Page, empty: &Value, item: Item) -> Answer {
    let head = join::head(call, empty)?;
    Ok(join::json(head, page.entries, item, &call.accepted.content_type(false)))
}

fn list_meta(page: &Page) -> Value {
    let mut meta = json!({"resourceVersion": page.revision.to_string()});
    if let Some(next) = &page.next {
        meta["continue"] = json!(next);
    }
    if let Some(remaining) = page.remaining {
        meta["remainingItemCount"] = json!(remaining);
    }
    meta
}

fn list_value(call: &Call, page: &Page, meta: Value) -> Value {
    let items: Vec<Value> = page
        .entries
        .iter()
        .map(|entry| {
            let mut value = entry.value();
            codec::to_served(call, &mut value);
            if call.resource.custom.is_none()
                && let Some(map) = value.as_object_mut()
            {
                map.remove("kind");
                map.remove("apiVersion");
            }
            value
        })
        .collect();
    let mut meta = meta;
    if call.resource.custom.is_some() && meta["continue"].is_null() {
        meta["continue"] = json!("");
    }
    json!({"kind": call.resource.list_kind(), "apiVersion": call.resource.api_version(), "metadata": meta, "items": items})
}
