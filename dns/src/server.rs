//! The sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::Name;
use parking_lot::RwLock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::answer::{self, Outcome};
use crate::records::Records;
use crate::telemetry::{Metrics, Way};
use crate::{Config, relay};

/// Questions that may wait for resolvers, and TCP connections that may be open, at a time.
const MOST_WAITING: usize = 500;
/// A TCP connection without a question for this long is closed.
const TCP_IDLE: Duration = Duration::from_secs(10);

struct Shared {
    records: Arc<RwLock<Records>>,
    metrics: Arc<Metrics>,
    domain: Name,
    ttl: u32,
    resolvers: Vec<SocketAddr>,
    waiting: Semaphore,
    connections: Arc<Semaphore>,
}

/// Opens the sockets and serves until `shutdown`.
pub async fn serve(
    config: Config,
    domain: Name,
    records: Arc<RwLock<Records>>,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let resolvers = config.resolv_conf.as_deref().map(|f| relay::resolvers(f, &config.listen)).unwrap_or_default();
    let shared = Arc::new(Shared {
        records,
        metrics,
        domain,
        ttl: config.ttl,
        resolvers,
        waiting: Semaphore::new(MOST_WAITING),
        connections: Arc::new(Semaphore::new(MOST_WAITING)),
    });
    let mut servers = tokio::task::JoinSet::new();
    for address in config.listen {
        let udp = UdpSocket::bind(address).await.with_context(|| format!("listening on {address} (UDP)"))?;
        let tcp = TcpListener::bind(address).await.with_context(|| format!("listening on {address} (TCP)"))?;
        servers.spawn(serve_udp(shared.clone(), Arc::new(udp)));
        servers.spawn(serve_tcp(shared.clone(), tcp));
    }
    shutdown.cancelled().await;
    servers.shutdown().await;
    Ok(())
}

async fn serve_udp(shared: Arc<Shared>, socket: Arc<UdpSocket>) {
    let mut buffer = vec![0; 4096];
    loop {
        let (length, client) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            // An earlier answer was refused by its client: nothing to do with the next question.
            Err(error) => {
                tracing::debug!(%error, "UDP receive");
                continue;
            }
        };
        let Some(query) = answer::parse(&buffer[..length]) else { continue };
        let begin = Instant::now();
        shared.metrics.request(&query, Way { proto: "udp", v6: is_v6(client) });
        match local(&shared, &query) {
            Outcome::Respond(response) => {
                let bytes = answer::udp_bytes(&query, &response);
                shared.metrics.response(&query, bytes.as_deref(), begin);
                send(&socket, client, bytes).await;
            }
            outcome => {
                let (shared, socket, packet) = (shared.clone(), socket.clone(), buffer[..length].to_vec());
                tokio::spawn(async move {
                    let bytes = resolve(&shared, &query, outcome, &packet, false).await;
                    shared.metrics.response(&query, bytes.as_deref(), begin);
                    send(&socket, client, bytes).await;
                });
            }
        }
    }
}

async fn send(socket: &UdpSocket, client: SocketAddr, bytes: Option<Vec<u8>>) {
    if let Some(bytes) = bytes
        && let Err(error) = socket.send_to(&bytes, client).await
    {
        tracing::debug!(%error, %client, "UDP send");
    }
}

async fn serve_tcp(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let Ok(permit) = shared.connections.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, client)) => {
                let shared = shared.clone();
                tokio::spawn(async move {
                    if let Err(error) = converse(&shared, stream, is_v6(client)).await {
                        tracing::debug!(%error, "TCP client");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "TCP accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// IPv4 clients of an IPv6 socket have mapped addresses.
fn is_v6(client: SocketAddr) -> bool {
    client.ip().to_canonical().is_ipv6()
}

async fn converse(shared: &Shared, mut stream: TcpStream, v6: bool) -> std::io::Result<()> {
    loop {
        let receive = async {
            let mut packet = vec![0; usize::from(stream.read_u16().await?)];
            stream.read_exact(&mut packet).await?;
            std::io::Result::Ok(packet)
        };
        let Ok(packet) = tokio::time::timeout(TCP_IDLE, receive).await else { return Ok(()) };
        let packet = match packet {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        };
        let Some(query) = answer::parse(&packet) else { return Ok(()) };
        let begin = Instant::now();
        shared.metrics.request(&query, Way { proto: "tcp", v6 });
        let bytes = match local(shared, &query) {
            Outcome::Respond(response) => response.to_vec().ok(),
            outcome => resolve(shared, &query, outcome, &packet, true).await,
        };
        shared.metrics.response(&query, bytes.as_deref(), begin);
        let Some(bytes) = bytes else { return Ok(()) };
        let length = u16::try_from(bytes.len()).map_err(std::io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes(), bytes.as_slice()].concat()).await?;
    }
}

fn local(shared: &Shared, query: &Message) -> Outcome {
    answer::answer(query, &shared.records.read(), &shared.domain, shared.ttl)
}

/// What needs a resolver. Without one, names outside the cluster are refused at once.
async fn resolve(shared: &Shared, query: &Message, outcome: Outcome, packet: &[u8], tcp: bool) -> Option<Vec<u8>> {
    let Ok(_permit) = shared.waiting.try_acquire() else {
        return answer::failure(query, ResponseCode::ServFail).to_vec().ok();
    };
    match outcome {
        Outcome::Respond(response) => response.to_vec().ok(),
        Outcome::Relay if shared.resolvers.is_empty() => answer::failure(query, ResponseCode::NXDomain).to_vec().ok(),
        Outcome::Relay => match relay::ask(&shared.resolvers, packet, tcp).await {
            Some(bytes) => Some(bytes),
            None => answer::failure(query, ResponseCode::ServFail).to_vec().ok(),
        },
        Outcome::Follow(mut response, next) => {
            let mut question = Message::query();
            question.metadata.recursion_desired = true;
            question.add_query(next);
            let asked = question.to_vec().ok()?;
            if let Some(bytes) = relay::ask(&shared.resolvers, &asked, tcp).await
                && let Ok(more) = Message::from_vec(&bytes)
            {
                response.add_answers(more.answers);
            }
            if tcp { response.to_vec().ok() } else { answer::udp_bytes(query, &response) }
        }
    }
}
