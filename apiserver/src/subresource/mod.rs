//! Subresources that are not views of the whole object, and resources that are not stored.

pub mod binding;
pub mod eviction;
pub mod proxy;
pub mod reviews;
pub mod scale;

use http::StatusCode;
use pintle_machinery::status::ApiError;
use serde_json::json;

use crate::engine::{Answer, Call, modify, patch, present, read, update};
use crate::{codec, managed};

/// A request to a subresource other than `status`.
pub async fn handle(call: &Call, body: &[u8]) -> Answer {
    match (call.resource.name.as_str(), call.info.subresource.as_str()) {
        (_, "scale") => scale::handle(call, body).await,
        ("pods", "binding") => binding::bind(call, body).await,
        ("pods", "eviction") => eviction::evict(call, body).await,
        ("serviceaccounts", "token") => token(call, body).await,
        // Views of the whole object that write a part of it; the engine confines them.
        _ => match call.info.verb.as_str() {
            "get" => read::get(call).await,
            "update" => update::update(call, body).await,
            "patch" => patch::patch(call, body).await,
            _ => Err(ApiError::MethodNotAllowed),
        },
    }
}

/// A request to a resource of which nothing is stored: reviews, bindings.
pub async fn virtual_resource(call: &Call, body: &[u8]) -> Answer {
    match (call.resource.name.as_str(), call.info.verb.as_str()) {
        ("bindings", "create") => binding::bind(call, body).await,
        ("componentstatuses", "list") => {
            let list = json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": []});
            present::object(call, StatusCode::OK, &list)
        }
        ("componentstatuses", "get") => Err(call.not_found()),
        (_, "create") => reviews::answer(call, body),
        _ => Err(ApiError::MethodNotAllowed),
    }
}

/// A token for a service account.
async fn token(call: &Call, body: &[u8]) -> Answer {
    let request = codec::decode_as(call, body, ("authentication.k8s.io", "v1"), "TokenRequest")?;
    let account = modify::current(call).await?.ok_or_else(|| call.not_found())?.value;
    let auth = &call.state.auth;
    // The object that the token is bound to may be a moment old.
    call.state.consistent().await.map_err(crate::engine::storage_error)?;
    let mut answer = auth.issuer.answer(&request, &account, &*auth.objects, call.now)?;
    managed::on_request(call, ("authentication.k8s.io", "v1", "TokenRequest"), &mut answer);
    present::object(call, StatusCode::CREATED, &answer)
}
