//! Questions about names outside the cluster, asked of the node's resolvers.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// Time that one resolver gets.
const PATIENCE: Duration = Duration::from_secs(2);

/// The resolvers of a `resolv.conf`, without those on `own` addresses: that would be a loop.
pub fn resolvers(file: &Path, own: &[SocketAddr]) -> Vec<SocketAddr> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver")?.trim().parse::<IpAddr>().ok())
        .map(|ip| SocketAddr::new(ip, 53))
        .filter(|address| !own.contains(address))
        .collect()
}

/// Asks one resolver after the other until one answers; the bytes of its answer.
pub async fn ask(resolvers: &[SocketAddr], query: &[u8], tcp: bool) -> Option<Vec<u8>> {
    for resolver in resolvers {
        let attempt = async { if tcp { over_tcp(*resolver, query).await } else { over_udp(*resolver, query).await } };
        match tokio::time::timeout(PATIENCE, attempt).await {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(error)) => tracing::debug!(%error, %resolver, "resolver failed"),
            Err(_) => tracing::debug!(%resolver, "resolver does not answer"),
        }
    }
    None
}

async fn over_udp(resolver: SocketAddr, query: &[u8]) -> std::io::Result<Vec<u8>> {
    let any = if resolver.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(resolver).await?;
    socket.send(query).await?;
    let mut buffer = vec![0; 4096];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // The id must be the query's: a late answer to another question is not ours.
        if length >= 2 && query.len() >= 2 && buffer[..2] == query[..2] {
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
}

async fn over_tcp(resolver: SocketAddr, query: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(resolver).await?;
    let length = u16::try_from(query.len()).map_err(std::io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), query].concat()).await?;
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}
