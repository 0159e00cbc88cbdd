//! Reviews: questions about who somebody is and what they may do.

use http::StatusCode;
use pintle_machinery::status::ApiError;

use crate::auth::reviews;
use crate::engine::{Answer, Call, meta, present};
use crate::{codec, managed};

/// Answers a review.
pub fn answer(call: &Call, body: &[u8]) -> Answer {
    let mut review = codec::decode_body(call, body)?;
    meta::check_namespace(&mut review, &call.info.namespace, call.resource.namespaced)?;
    meta::wipe(&mut review);
    meta::single_owners(call, &mut review);
    codec::complete(call, &mut review);
    managed::on_create(call, &mut review)?;
    let (auth, user) = (&call.state.auth, &call.user);
    let mut answer = match call.resource.name.as_str() {
        "subjectaccessreviews" => reviews::subject_access(&auth.authorizer, &review)?,
        "localsubjectaccessreviews" => reviews::local_subject_access(&auth.authorizer, &review, &call.info.namespace)?,
        "selfsubjectaccessreviews" => reviews::self_subject_access(&auth.authorizer, user, &review)?,
        "selfsubjectrulesreviews" => reviews::self_subject_rules(&auth.authorizer, user, &review)?,
        "selfsubjectreviews" => reviews::self_subject(user, call.now),
        "tokenreviews" => reviews::token(&auth.authenticator, &review, call.now)?,
        _ => return Err(ApiError::MethodNotAllowed),
    };
    codec::normalize(call.state.schema, &mut answer);
    present::object(call, StatusCode::CREATED, &answer)
}
