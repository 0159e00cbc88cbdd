//! TLS that holds back what is written while its connection is worked on, and sends it in one piece after that.
//!
//! HTTP/2 flushes after every frame: a hundred watchers of one connection would cost a hundred system calls for each event.
//! Whoever drives the connection holds the stream while the connection is polled ([`Held::poll`]). What is written then is
//! encrypted and stays in TLS's own buffer, because the [`Gate`] between TLS and the socket says that the socket is busy.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// So many bytes are sent though more may come.
const MOST: usize = 128 * 1024;
/// What TLS has to buffer for that.
pub const BUFFER: usize = 2 * MOST;

/// The connection is being polled: there may be more to come.
#[derive(Debug, Clone, Default)]
pub struct Hold(Arc<AtomicBool>);

/// A socket below a stream that buffers what the socket does not take, and that writes all of it on each write.
#[derive(Debug)]
pub struct Gate<S> {
    socket: S,
    hold: Hold,
}

/// The stream over a [`Gate`], for the connection.
#[derive(Debug)]
pub struct Corked<S>(Arc<Mutex<S>>, Hold);

/// The same stream, for whoever drives the connection.
#[derive(Debug)]
pub struct Held<S>(Arc<Mutex<S>>, Hold);

impl Hold {
    fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }

    /// The gate before a socket.
    pub fn gate<S>(&self, socket: S) -> Gate<S> {
        Gate { socket, hold: self.clone() }
    }

    /// Both ends of the stream over the gate.
    pub fn cork<S>(self, stream: S) -> (Corked<S>, Held<S>) {
        let stream = Arc::new(Mutex::new(stream));
        (Corked(stream.clone(), self.clone()), Held(stream, self))
    }
}

impl<S: AsyncWrite + Unpin> Held<S> {
    /// Polls the connection with the stream held, then sends what it wrote. An error is the stream's.
    pub fn poll<F: Future>(&self, connection: Pin<&mut F>, context: &mut Context<'_>) -> Poll<io::Result<F::Output>> {
        self.1.set(true);
        let polled = connection.poll(context);
        self.1.set(false);
        let flushed = Pin::new(&mut *self.0.lock()).poll_flush(context);
        match (polled, flushed) {
            (Poll::Ready(output), _) => Poll::Ready(Ok(output)),
            (Poll::Pending, Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
            (Poll::Pending, _) => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gate<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gate<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let size: usize = parts.iter().map(|part| part.len()).sum();
        if self.hold.is_on() && size < MOST {
            // Nobody has to be woken: the stream is flushed when it is let go.
            return Poll::Pending;
        }
        Pin::new(&mut self.socket).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Corked<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Corked<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.lock()).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.lock()).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.lock().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.1.is_on() {
            true => Poll::Ready(Ok(())),
            false => Pin::new(&mut *self.0.lock()).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing more comes.
        self.1.set(false);
        Pin::new(&mut *self.0.lock()).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::ready;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    /// Buffers as TLS does, and counts how often something is written below.
    struct Buffered {
        gate: Gate<DuplexStream>,
        waiting: Vec<u8>,
        writes: Arc<Mutex<usize>>,
    }

    impl Buffered {
        fn drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            while !self.waiting.is_empty() {
                let written = ready!(Pin::new(&mut self.gate).poll_write(context, &self.waiting))?;
                *self.writes.lock() += 1;
                self.waiting.drain(..written);
            }
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Buffered {
        fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            if self.waiting.len() > BUFFER {
                ready!(self.drain(context))?;
            }
            self.waiting.extend_from_slice(bytes);
            let _ = self.drain(context)?;
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.drain(context)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            ready!(self.drain(context))?;
            Pin::new(&mut self.gate).poll_shutdown(context)
        }
    }

    fn corked(capacity: usize) -> (Corked<Buffered>, Held<Buffered>, DuplexStream, Arc<Mutex<usize>>) {
        let (near, far) = tokio::io::duplex(capacity);
        let (hold, writes) = (Hold::default(), Arc::<Mutex<usize>>::default());
        let stream = Buffered { gate: hold.gate(near), waiting: Vec::new(), writes: writes.clone() };
        let (corked, held) = hold.cork(stream);
        (corked, held, far, writes)
    }

    #[tokio::test]
    async fn what_is_written_while_held_goes_out_at_once_and_in_order() {
        let (mut corked, held, mut far, writes) = corked(1 << 20);
        let connection = async move {
            for part in 0..100_u8 {
                corked.write_all(&[part; 100]).await.unwrap();
                corked.flush().await.unwrap();
            }
            tokio::task::yield_now().await;
            corked
        };
        let mut connection = Box::pin(connection);
        let mut corked = poll_fn(|context| held.poll(connection.as_mut(), context)).await.unwrap();
        assert_eq!(*writes.lock(), 1);
        let mut got = vec![0; 10_000];
        far.read_exact(&mut got).await.unwrap();
        assert!(got.chunks(100).zip(0..100_u8).all(|(part, value)| part == [value; 100]));
        corked.write_all(b"not held").await.unwrap();
        assert_eq!(*writes.lock(), 2);
    }

    #[tokio::test]
    async fn a_slow_reader_gets_all_of_it() {
        let (mut corked, held, mut far, _) = corked(1000);
        let connection = async move {
            for part in 0..50_u8 {
                corked.write_all(&[part; 9000]).await.unwrap();
                corked.flush().await.unwrap();
            }
            corked.shutdown().await.unwrap();
        };
        let mut connection = Box::pin(connection);
        let driver = tokio::spawn(async move { poll_fn(|context| held.poll(connection.as_mut(), context)).await });
        let mut got = Vec::new();
        far.read_to_end(&mut got).await.unwrap();
        driver.await.unwrap().unwrap();
        assert_eq!(got.len(), 50 * 9000);
        assert!(got.chunks(9000).zip(0..50_u8).all(|(part, value)| part.iter().all(|byte| *byte == value)));
    }
}
