//! Responses.

use std::convert::Infallible;

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use tokio::sync::mpsc;

/// Any body.
pub(super) type Body = BoxBody<Bytes, Infallible>;

/// A text.
pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    with_type(status, "text/plain; charset=utf-8", text)
}

/// Something in JSON.
pub(super) fn json(value: &impl serde::Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(json) => with_type(StatusCode::OK, "application/json", json),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// Metrics in the text format.
pub(super) fn metrics(rendered: String) -> Response<Body> {
    with_type(StatusCode::OK, pintle_serving::metrics::CONTENT_TYPE, rendered)
}

/// A body that grows as it is sent.
pub(super) fn stream(pieces: mpsc::Receiver<Bytes>) -> Response<Body> {
    let frames =
        futures::stream::unfold(pieces, |mut pieces| async { pieces.recv().await.map(|piece| (piece, pieces)) });
    let body = StreamBody::new(frames.map(|piece| Ok(Frame::data(piece))));
    let mut response = Response::new(BodyExt::boxed(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// A finished answer.
pub(super) fn full(response: Response<String>) -> Response<Body> {
    response.map(|text| Full::from(text).boxed())
}

/// An answer without a body.
pub(super) fn empty(response: Response<()>) -> Response<Body> {
    response.map(|()| Full::default().boxed())
}

fn with_type(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::from(body.into()).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
