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

/// Any body.
pub fn boxed<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

/// An empty body.
pub fn empty() -> Body {
    full(Bytes::new())
}

/// A body whose parts are made when the client takes them.
pub fn stream(parts: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    fallible(parts.map(Ok))
}

/// The same of parts that may not come.
pub fn fallible(parts: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static) -> Body {
    StreamBody::new(parts.map(|part| part.map(Frame::data))).boxed_unsync()
}

/// Of a body that is too large so many times the limit is read, so that the client gets to the answer.
const DISCARD: usize = 8;

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
    let mut body = std::pin::pin!(body);
    let mut parts: Vec<Bytes> = Vec::new();
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ReadError::Broken(error.into()))?;
        let Ok(data) = frame.into_data() else { continue };
        size += data.len();
        if size > limit {
            parts.clear();
            // A client that is still sending would not read the answer: some more is taken in and forgotten.
            if size > limit.saturating_mul(DISCARD) {
                break;
            }
            continue;
        }
        parts.push(data);
    }
    match (size > limit, parts.as_slice()) {
        (true, _) => Err(ReadError::TooLarge(limit)),
        (false, [only]) => Ok(only.clone()),
        (false, parts) => Ok(parts.concat().into()),
    }
}
