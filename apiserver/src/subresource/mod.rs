//! Subresources that are not views of the whole object, and resources that are not stored.

pub mod proxy;

use pintle_machinery::status::ApiError;

use crate::engine::{Answer, Call};

/// A request to a subresource other than `status`.
pub async fn handle(call: &Call, body: &[u8]) -> Answer {
    let _ = body;
    match (call.resource.name.as_str(), call.info.subresource.as_str()) {
        _ => Err(ApiError::MethodNotAllowed),
    }
}

/// A request to a resource of which nothing is stored: reviews, bindings.
pub async fn virtual_resource(call: &Call, body: &[u8]) -> Answer {
    let _ = (call, body);
    Err(ApiError::MethodNotAllowed)
}
