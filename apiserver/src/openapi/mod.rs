//! OpenAPI out of the schema: `/openapi/v3` with a document a group version, and `/openapi/v2` with all in one.
//!
//! Documents are made when they are first asked for and kept compressed; both notations, each in JSON and protobuf, come from
//! the same endpoints and types.

mod custom;
mod descriptions;
mod document;
mod endpoints;
mod gnostic;
mod operations;
mod page;
mod parameters;
mod protobuf;
mod render;
mod roots;
mod schemas;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, ETAG, EXPIRES, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use pintle_machinery::schema::Schema;
use serde_json::{Map, Value, json};

use self::descriptions::Texts;
use self::page::{Form, Page};
use self::schemas::Notation;
use crate::engine::present;
use crate::http::body::{self, Body};
use crate::http::compress::takes_gzip;
use crate::http::negotiate::clauses;
use crate::pipeline::fault;
use crate::resource::Resource;

/// How long a document under its hash may be kept by caches: a year.
const KEPT: i64 = 365 * 24 * 3600;

/// The documents.
pub struct OpenApi {
    whole: Arc<Page>,
    /// By path below `/openapi/v3/`: `api/v1`, `apis/apps/v1`.
    pages: Arc<BTreeMap<String, Arc<Page>>>,
}

impl OpenApi {
    /// Of these resources. Pages of built-in ones stay what they are in `before`.
    pub fn new(schema: &'static Schema, resources: &[Arc<Resource>], before: Option<&Self>) -> Self {
        let mut parts: BTreeMap<String, Vec<Arc<Resource>>> =
            roots::keys().map(|key| (key.to_owned(), Vec::new())).collect();
        for resource in resources {
            let key = endpoints::root(resource).trim_start_matches('/').to_owned();
            parts.entry(key).or_default().push(resource.clone());
            if !resource.group.is_empty() && resource.custom.is_none() {
                parts.entry(format!("apis/{}", resource.group)).or_default();
            }
        }
        let whole = Arc::new(Page::new(schema, Notation::V2, parts.clone()));
        let page = |(key, resources): (String, Vec<Arc<Resource>>)| {
            let builtin = resources.iter().all(|resource| resource.custom.is_none());
            if let Some(page) = before.filter(|_| builtin).and_then(|before| before.pages.get(&key)) {
                return (key, page.clone());
            }
            let part = [(key.clone(), resources)].into();
            (key, Arc::new(Page::new(schema, Notation::V3, part)))
        };
        Self { whole, pages: Arc::new(parts.into_iter().map(page).collect()) }
    }

    /// The answer for a path, if it is one of these; `hash` is the query's.
    pub async fn answer(&self, path: &str, hash: Option<&str>, headers: &HeaderMap) -> Option<Response<Body>> {
        if path == "/openapi/v3" {
            return Some(self.index().await);
        }
        if path == "/openapi/v2" {
            let vary = HeaderValue::from_static("Accept-Encoding, Accept");
            return Some(with(page_answer(&self.whole, headers).await, VARY, vary));
        }
        let key = path.strip_prefix("/openapi/v3/")?;
        let Some(page) = self.pages.get(key) else { return Some(nothing(StatusCode::NOT_FOUND)) };
        let mut response = page_answer(page, headers).await;
        if let Some(hash) = hash.filter(|hash| !hash.is_empty() && response.status() == StatusCode::OK) {
            let Some(current) = made(page, Page::hash).await else { return Some(fault()) };
            if hash == current {
                response = with(response, CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
                let expires = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(KEPT);
                response = with(response, EXPIRES, text(&expires.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string()));
            } else {
                let moved = present::bytes(StatusCode::MOVED_PERMANENTLY, "application/json", "");
                let moved = with(moved, LOCATION, text(&format!("{path}?hash={current}")));
                response = with(moved, ETAG, text(&format!("\"{current}\"")));
            }
        }
        Some(with(response, VARY, HeaderValue::from_static("Accept")))
    }

    /// Where each document is, with its hash.
    async fn index(&self) -> Response<Body> {
        let pages = self.pages.clone();
        let made = tokio::task::spawn_blocking(move || {
            let texts = Texts::unpack();
            let descriptions = texts.index();
            let entry = |(key, page): (&String, &Arc<Page>)| {
                let hash = page.hash_with(&descriptions)?;
                Ok((key.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{key}?hash={hash}")})))
            };
            pages.iter().map(entry).collect::<io::Result<Map<String, Value>>>()
        });
        let Ok(Ok(paths)) = made.await else { return fault() };
        present::bytes(StatusCode::OK, "text/plain; charset=utf-8", json!({"paths": paths}).to_string())
    }
}

/// What a page gives, if nothing goes wrong; making it for the first time takes a while.
async fn made<T: Send + 'static>(page: &Arc<Page>, make: fn(&Page) -> io::Result<T>) -> Option<T> {
    let page = page.clone();
    tokio::task::spawn_blocking(move || make(&page)).await.ok()?.ok()
}

async fn page_answer(page: &Arc<Page>, headers: &HeaderMap) -> Response<Body> {
    let accepted = clauses(headers);
    let Some(form) = accepted.iter().find_map(|clause| page.form(clause.media_type)) else {
        return nothing(StatusCode::NOT_ACCEPTABLE);
    };
    let Some(hash) = made(page, Page::hash).await else { return fault() };
    let etag = text(&format!("\"{hash}\""));
    if let Some(known) = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok())
        && known.split(',').any(|one| one.trim() == etag || one.trim() == "*")
    {
        return with(nothing(StatusCode::NOT_MODIFIED), ETAG, etag);
    }
    let compressed = match form {
        Form::Json => made(page, Page::json).await,
        Form::Protobuf => made(page, Page::protobuf).await,
    };
    let Some(compressed) = compressed else { return fault() };
    let response = match takes_gzip(headers) {
        true => {
            let response = present::bytes(StatusCode::OK, page.media_type(form), compressed);
            with(response, CONTENT_ENCODING, HeaderValue::from_static("gzip"))
        }
        false => {
            let size = page::size(&compressed);
            let body = body::stream(futures::stream::iter(page::unpacked(compressed)));
            with(present::with_body(StatusCode::OK, page.media_type(form), body), CONTENT_LENGTH, size.into())
        }
    };
    with(response, ETAG, etag)
}

/// An answer without a body.
fn nothing(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(body::empty());
    *response.status_mut() = status;
    with(response, CACHE_CONTROL, HeaderValue::from_static("no-cache, private"))
}

fn with(mut response: Response<Body>, name: HeaderName, value: HeaderValue) -> Response<Body> {
    response.headers_mut().insert(name, value);
    response
}

fn text(value: &str) -> HeaderValue {
    HeaderValue::from_str(value).unwrap_or(HeaderValue::from_static(""))
}
