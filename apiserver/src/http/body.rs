//! Response and request bodies.

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};

/// Any error of a body's source.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body type of all requests and responses of the service.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A body that is all there.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// An empty body.
pub fn empty() -> Body {
    full(Bytes::new())
}

/// A body whose parts are made when the client takes them.
pub fn stream(parts: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    StreamBody::new(parts.map(|bytes| Ok(Frame::data(bytes)))).boxed_unsync()
}

/// Why a request body could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// More bytes than allowed.
    #[error("request body is larger than {0} bytes")]
    TooLarge(usize),
    /// The connection failed meanwhile.
    #[error("reading the request body: {0}")]
    Broken(BoxError),
}

/// The whole request body, if it has at most `limit` bytes.
pub async fn read<B>(body: B, limit: usize) -> Result<Bytes, ReadError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(ReadError::TooLarge(limit));
    }
    let limited = http_body_util::Limited::new(body, limit);
    match limited.collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(ReadError::TooLarge(limit)),
        Err(error) => Err(ReadError::Broken(error)),
    }
}
