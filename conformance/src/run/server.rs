//! The HTTP side of [`Suite`]: one small server on loopback, perhaps inside another network namespace.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::suite::{Event, Reply, Request, Suite};

/// Serves a suite until it is dropped.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    suite: Arc<Mutex<Suite>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Answers on `listener`; what happens comes out of `events` with the process that told it.
    pub fn start(
        listener: std::net::TcpListener,
        suite: Suite,
        events: mpsc::UnboundedSender<(usize, Event)>,
    ) -> anyhow::Result<Server> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = tokio::net::TcpListener::from_std(listener).context("listening for the test processes")?;
        let suite = Arc::new(Mutex::new(suite));
        let task = tokio::spawn(accept(listener, suite.clone(), events));
        Ok(Server { address, suite, task })
    }

    /// The base address for `process`.
    pub fn url(&self, process: usize) -> String {
        format!("http://{}/{process}", self.address)
    }

    /// Tells all processes to clean up and end.
    pub fn abort(&self) {
        self.suite.lock().abort();
    }

    /// Tells one process to clean up and end.
    pub fn stop(&self, process: usize) {
        self.suite.lock().stop(process);
    }

    /// `process` is there again.
    pub fn restarted(&self, process: usize) {
        self.suite.lock().restarted(process);
    }

    /// No more tests are given out, serial ones aside.
    pub fn no_more(&self) {
        self.suite.lock().no_more();
    }

    /// `process` is no more.
    pub fn exited(&self, process: usize) {
        self.suite.lock().exited(process);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    listener: tokio::net::TcpListener,
    suite: Arc<Mutex<Suite>>,
    events: mpsc::UnboundedSender<(usize, Event)>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let (suite, events) = (suite.clone(), events.clone());
                let service = service_fn(move |request| answer(request, suite.clone(), events.clone()));
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        }
    }
}

async fn answer(
    request: http::Request<Incoming>,
    suite: Arc<Mutex<Suite>>,
    events: mpsc::UnboundedSender<(usize, Event)>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let sender = parts.uri.path().trim_start_matches('/').split_once('/');
    let Some((process, path)) = sender.and_then(|(process, path)| Some((process.parse().ok()?, path))) else {
        return Ok(response(Reply::Unknown));
    };
    let request = Request { process, post: parts.method == Method::POST, path, body: &body };
    let (reply, event) = suite.lock().handle(&request);
    if let Some(event) = event {
        // Nobody listens any more only when the run is over.
        let _ = events.send((process, event));
    }
    Ok(response(reply))
}

fn response(reply: Reply) -> Response<Full<Bytes>> {
    let (status, body) = match reply {
        Reply::Ok => (StatusCode::OK, Bytes::new()),
        Reply::Json(value) => (StatusCode::OK, value.to_string().into()),
        Reply::Early => (StatusCode::TOO_EARLY, Bytes::new()),
        Reply::Gone => (StatusCode::GONE, Bytes::new()),
        Reply::Bad => (StatusCode::BAD_REQUEST, Bytes::new()),
        Reply::Unknown => (StatusCode::NOT_FOUND, Bytes::new()),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response
}
