//! `/pintle/v1/snapshot`: a consistent copy of the store, streamed while requests go on.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response};
use pintle_store::Store;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::http::body::{self, Body};

/// Where it is.
pub const PATH: &str = "/pintle/v1/snapshot";
/// Bytes that are sent together, and how many such parts may wait for the client.
const PART: usize = 256 << 10;
const WAITING: usize = 4;

/// The copy. It ends in a checksum: one that breaks off is noticed by who reads it.
pub fn answer(store: Arc<dyn Store>) -> Response<Body> {
    let (sender, parts) = mpsc::channel(WAITING);
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        let mut writer = Parts { buffer: Vec::with_capacity(PART), sender };
        match runtime.block_on(store.snapshot(&mut writer)) {
            Ok(revision) => tracing::info!(revision, "snapshot sent"),
            Err(error) => tracing::warn!(%error, "snapshot not finished"),
        }
    });
    let mut response = Response::new(body::stream(ReceiverStream::new(parts)));
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

/// Sends what is written in parts; waits for the client.
struct Parts {
    buffer: Vec<u8>,
    sender: mpsc::Sender<Bytes>,
}

impl io::Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PART {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let part = Bytes::from(std::mem::replace(&mut self.buffer, Vec::with_capacity(PART)));
        // In a thread that may block, but inside of `block_on`.
        futures::executor::block_on(self.sender.send(part)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use pintle_store::memory::Memory;
    use pintle_store::snapshot::Snapshot;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_copy_is_streamed_whole() {
        let store = Arc::new(Memory::default());
        for i in 0..300 {
            store.create(&format!("/registry/{i:03}"), vec![i as u8; 10_000].into(), None).await.unwrap();
        }
        let bytes = answer(store.clone()).into_body().collect().await.unwrap().to_bytes();
        let snapshot = Snapshot::read(&bytes[..]).unwrap();
        assert_eq!((snapshot.keys(), snapshot.revision()), (300, 301));
        // A client that goes away ends it.
        let mut body = answer(store).into_body();
        assert!(body.frame().await.is_some());
    }
}
