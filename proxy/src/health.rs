//! Answers load balancers that ask whether this node has endpoints of a service (`healthCheckNodePort`).

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::model::Portal;
use crate::netns::Namespace;

/// What each port should answer: service and number of endpoints here.
pub type Wanted = BTreeMap<u16, ((String, String), usize)>;

/// Reads the ports off the portals.
pub fn wanted(portals: &[Portal]) -> Wanted {
    let mut out = Wanted::new();
    for portal in portals.iter().filter(|p| p.external_local) {
        if let Some(port) = portal.health_check_port {
            let entry = out.entry(port).or_insert_with(|| (portal.service.clone(), 0));
            entry.1 = entry.1.max(portal.backends.local.len());
        }
    }
    out
}

struct Server {
    service: (String, String),
    endpoints: Arc<AtomicUsize>,
    stop: CancellationToken,
}

/// The servers that run.
#[derive(Default)]
pub struct Servers {
    running: BTreeMap<u16, Server>,
}

impl Servers {
    /// Starts, stops and updates servers.
    pub async fn set(&mut self, wanted: Wanted, namespace: &Namespace, shutdown: &CancellationToken) {
        self.running.retain(|port, server| {
            let keep = wanted.get(port).is_some_and(|(service, _)| *service == server.service);
            if !keep {
                server.stop.cancel();
            }
            keep
        });
        for (port, (service, count)) in wanted {
            if let Some(server) = self.running.get(&port) {
                server.endpoints.store(count, Ordering::Relaxed);
                continue;
            }
            let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
            match namespace.listen(address).await {
                Ok(listener) => {
                    let server =
                        Server { service, endpoints: Arc::new(AtomicUsize::new(count)), stop: shutdown.child_token() };
                    tokio::spawn(serve(
                        listener,
                        server.service.clone(),
                        server.endpoints.clone(),
                        server.stop.clone(),
                    ));
                    self.running.insert(port, server);
                }
                Err(error) => warn!(port, %error, "cannot serve the health check port"),
            }
        }
    }
}

async fn serve(listener: TcpListener, service: (String, String), endpoints: Arc<AtomicUsize>, stop: CancellationToken) {
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = stream else { continue };
        let answer = answer(&service, endpoints.load(Ordering::Relaxed));
        tokio::spawn(async move {
            let _ = tokio::time::timeout(std::time::Duration::from_secs(5), exchange(stream, answer)).await;
        });
    }
}

async fn exchange(mut stream: TcpStream, answer: String) -> std::io::Result<()> {
    let mut seen = Vec::new();
    let mut buffer = [0; 1024];
    while !seen.windows(4).any(|w| w == b"\r\n\r\n") && seen.len() < 16 * 1024 {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            break;
        }
        seen.extend_from_slice(&buffer[..n]);
    }
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

fn answer((namespace, name): &(String, String), endpoints: usize) -> String {
    let status = if endpoints > 0 { "200 OK" } else { "503 Service Unavailable" };
    let body = json!({"service": {"namespace": namespace, "name": name}, "localEndpoints": endpoints, "serviceProxyHealthy": true});
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
         X-Load-Balancing-Endpoint-Weight: {endpoints}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
