//! A KMS plugin for tests: encrypts with a key of its own, which can be exchanged.

use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::messages::{
    KmsDecryptRequest, KmsDecryptResponse, KmsEncryptRequest, KmsEncryptResponse, KmsStatusRequest, KmsStatusResponse,
};

/// The running plugin; ends when dropped.
pub(super) struct Plugin {
    state: Arc<State>,
    task: tokio::task::JoinHandle<()>,
}

struct State {
    /// Number of the present key.
    key: AtomicU64,
    calls: AtomicUsize,
}

impl Plugin {
    pub(super) fn start(socket: PathBuf) -> Self {
        let state = Arc::new(State { key: AtomicU64::new(1), calls: AtomicUsize::new(0) });
        let listener = UnixListener::bind(socket).expect("socket");
        let serving = state.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("accept");
                let state = serving.clone();
                let service = hyper_util::service::TowerToHyperService::new(Route(state));
                tokio::spawn(async move {
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.http2_only().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { state, task }
    }

    /// Encrypts with another key from now on.
    pub(super) fn rotate(&self) {
        self.state.key.fetch_add(1, Ordering::SeqCst);
    }

    /// Calls of Encrypt and Decrypt so far.
    pub(super) fn calls(&self) -> usize {
        self.state.calls.load(Ordering::SeqCst)
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    fn key_id(&self) -> String {
        format!("key-{}", self.key.load(Ordering::SeqCst))
    }

    fn status(&self) -> KmsStatusResponse {
        KmsStatusResponse { version: "v2".into(), healthz: "ok".into(), key_id: self.key_id() }
    }

    /// No encryption worth the name, but the key matters.
    fn encrypt(&self, request: &KmsEncryptRequest) -> KmsEncryptResponse {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let key_id = self.key_id();
        let annotations = [("version.encryption.remote.io".to_owned(), Bytes::from_static(b"1"))].into();
        KmsEncryptResponse { ciphertext: scramble(&request.plaintext, &key_id), key_id, annotations }
    }

    fn decrypt(&self, request: &KmsDecryptRequest) -> Result<KmsDecryptResponse, Status> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if request.annotations.is_empty() {
            return Err(Status::invalid_argument("annotations are missing"));
        }
        Ok(KmsDecryptResponse { plaintext: scramble(&request.ciphertext, &request.key_id) })
    }
}

fn scramble(bytes: &[u8], key: &str) -> Bytes {
    let pad = key.bytes().cycle();
    bytes.iter().zip(pad).map(|(byte, pad)| byte ^ pad ^ 0x5a).collect::<Vec<_>>().into()
}

#[derive(Clone)]
struct Route(Arc<State>);

/// One call.
struct Call<F>(F);

impl<Q, A, F> UnaryService<Q> for Call<F>
where
    F: Fn(Q) -> Result<A, Status>,
    A: Send + 'static,
{
    type Response = A;
    type Future = BoxFuture<'static, Result<Response<A>, Status>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let answer = (self.0)(request.into_inner()).map(Response::new);
        async move { answer }.boxed()
    }
}

impl Service<http::Request<hyper::body::Incoming>> for Route {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<hyper::body::Incoming>) -> Self::Future {
        let state = self.0.clone();
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            let request = request.map(tonic::body::Body::new);
            Ok(match path.rsplit('/').next() {
                Some("Status") => {
                    let codec: ProstCodec<KmsStatusResponse, KmsStatusRequest> = ProstCodec::default();
                    Grpc::new(codec).unary(Call(move |_: KmsStatusRequest| Ok(state.status())), request).await
                }
                Some("Encrypt") => {
                    let codec: ProstCodec<KmsEncryptResponse, KmsEncryptRequest> = ProstCodec::default();
                    Grpc::new(codec).unary(Call(move |q: KmsEncryptRequest| Ok(state.encrypt(&q))), request).await
                }
                _ => {
                    let codec: ProstCodec<KmsDecryptResponse, KmsDecryptRequest> = ProstCodec::default();
                    Grpc::new(codec).unary(Call(move |q: KmsDecryptRequest| state.decrypt(&q)), request).await
                }
            })
        })
    }
}
