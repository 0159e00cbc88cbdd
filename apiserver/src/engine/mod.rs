//! The verb engine: one implementation of each verb, for every resource.

pub mod call;
pub mod create;
pub mod delete;
mod join;
pub mod list_options;
pub mod meta;
pub mod modify;
pub mod patch;
pub mod present;
pub mod read;
pub mod table;
pub mod update;
pub mod watch;

pub use call::Call;
pub use meta::mask_trailing_dash;

use http::Response;
use pintle_machinery::status::ApiError;

use crate::http::body::Body;

/// What a verb answers.
pub type Answer = Result<Response<Body>, ApiError>;

/// A storage failure as the client sees it.
pub fn storage_error(error: pintle_store::Error) -> ApiError {
    match error {
        pintle_store::Error::TooLarge { .. } => {
            ApiError::RequestEntityTooLarge(format!("limit is {}", crate::codec::BODY_LIMIT))
        }
        other => ApiError::Internal(other.to_string()),
    }
}
