//! Answers as gzip, as upstream sends large ones to clients that take it. Not to clients on this machine: there it costs both
//! sides more than it saves.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::{Stream, StreamExt};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, VARY};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use pintle_serving::http::PeerAddress;

use super::body::{self, Body, BoxError};

/// Smaller answers are sent as they are; upstream's limit.
const FROM: usize = 128 << 10;

/// The client takes gzip.
pub fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| {
        let (name, quality) = one.split_once(';').unwrap_or((one, ""));
        name.trim() == "gzip" && quality.trim() != "q=0"
    })
}

/// The client takes gzip, and is on another machine.
pub fn is_of_use(parts: &Parts) -> bool {
    let peer = parts.extensions.get::<PeerAddress>().and_then(|peer| peer.0);
    peer.is_some_and(|peer| !peer.ip().to_canonical().is_loopback()) && takes_gzip(&parts.headers)
}

/// The same answer, compressed if it is large.
///
/// # Errors
/// If its body breaks off within the part that tells how large it is.
pub async fn compressed(response: Response<Body>) -> Result<Response<Body>, BoxError> {
    if response.status() != StatusCode::OK || response.headers().contains_key(CONTENT_ENCODING) {
        return Ok(response);
    }
    let (mut parts, mut rest) = response.into_parts();
    let (mut begin, mut size) = (Vec::new(), 0);
    while size <= FROM {
        let Some(frame) = rest.frame().await.transpose()? else {
            return Ok(Response::from_parts(parts, body::stream(futures::stream::iter(begin))));
        };
        let Ok(data) = frame.into_data() else { continue };
        size += data.len();
        begin.push(data);
    }
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    let rest = rest.into_data_stream();
    let all = futures::stream::iter(begin).map(Ok).chain(rest);
    Ok(Response::from_parts(parts, body::fallible(packed(all))))
}

/// The parts as one gzip file, piece by piece.
fn packed(
    parts: impl Stream<Item = Result<Bytes, BoxError>> + Send + Unpin + 'static,
) -> impl Stream<Item = Result<Bytes, BoxError>> + Send {
    let encoder = GzEncoder::new(Vec::new(), Compression::fast());
    futures::stream::unfold((parts, Some(encoder)), |(mut parts, encoder)| async move {
        let mut encoder = encoder?;
        loop {
            let written = match parts.next().await {
                Some(Ok(part)) => encoder.write_all(&part),
                Some(Err(error)) => return Some((Err(error), (parts, None))),
                None => return Some((encoder.finish().map(Bytes::from).map_err(BoxError::from), (parts, None))),
            };
            if let Err(error) = written {
                return Some((Err(error.into()), (parts, None)));
            }
            if !encoder.get_ref().is_empty() {
                let piece = std::mem::take(encoder.get_mut());
                return Some((Ok(piece.into()), (parts, Some(encoder))));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn parts(peer: &str, encodings: &str) -> Parts {
        let request = http::Request::get("/").header(ACCEPT_ENCODING, encodings);
        request.extension(PeerAddress(peer.parse().ok())).body(()).unwrap().into_parts().0
    }

    #[test]
    fn only_clients_elsewhere_that_take_it() {
        assert!(is_of_use(&parts("10.0.0.1:1", "br, gzip")) && is_of_use(&parts("[2001:db8::1]:1", "gzip;q=0.5")));
        for (peer, encodings) in [
            ("127.0.0.1:1", "gzip"),
            ("[::ffff:127.0.0.1]:1", "gzip"),
            ("a socket", "gzip"),
            ("10.0.0.1:1", "br"),
            ("10.0.0.1:1", "gzip;q=0"),
        ] {
            assert!(!is_of_use(&parts(peer, encodings)), "{peer} {encodings}");
        }
    }

    async fn sent(pieces: Vec<Bytes>) -> (HeaderMap, Vec<u8>) {
        let response = Response::new(body::stream(futures::stream::iter(pieces)));
        let (parts, body) = compressed(response).await.unwrap().into_parts();
        (parts.headers, body.collect().await.unwrap().to_bytes().to_vec())
    }

    #[tokio::test]
    async fn large_answers_are_packed_and_small_ones_are_not() {
        let small = vec![Bytes::from(vec![b'a'; FROM / 2]); 2];
        let (headers, bytes) = sent(small.clone()).await;
        assert!(headers.is_empty() && bytes == small.concat());
        let large: Vec<Bytes> = (0..40u8).map(|n| Bytes::from(vec![n; FROM / 8])).collect();
        let (headers, bytes) = sent(large.clone()).await;
        assert_eq!(
            (&headers[CONTENT_ENCODING], &headers[VARY]),
            (&"gzip".parse().unwrap(), &"Accept-Encoding".parse().unwrap())
        );
        assert!(bytes.len() < FROM);
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, large.concat());
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_stays_broken() {
        let pieces = [Ok(Bytes::from(vec![0; 2 * FROM])), Err(BoxError::from("gone"))];
        let response = Response::new(body::fallible(futures::stream::iter(pieces)));
        assert!(compressed(response).await.unwrap().into_body().collect().await.is_err());
    }
}
