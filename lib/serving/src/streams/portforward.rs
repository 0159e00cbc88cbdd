//! Forwarded ports over the channels of a WebSocket: two channels a port, data and error.
//!
//! Over SPDY (bare or tunnelled) a forwarded port needs no translation: see [`super::tunnel`].

use bytes::Bytes;
use tokio::sync::mpsc;

use super::{
    Error,
    spdy::{self, Headers, Reader, Writer},
    upgrade::{Accepted, Connected},
    websocket::{ChannelWriter, Channels, Encoding},
};

/// The protocol over SPDY.
pub const SPDY_PROTOCOL: &str = "portforward.k8s.io";
/// The channel protocols over WebSocket; the empty one is for clients that name none.
pub const WEBSOCKET_PROTOCOLS: &[&str] = &["", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"];
/// Channels are numbered by one byte, and 255 closes others.
const MAX_PORTS: usize = 120;

/// Reads the `port` values of a request: each one or several numbers with commas between.
pub fn parse_ports<'a>(values: impl Iterator<Item = &'a str>) -> Result<Vec<u16>, String> {
    let mut ports = Vec::new();
    for text in values.flat_map(|value| value.split(',')) {
        match text.parse() {
            Ok(0) | Err(_) => return Err(format!("unable to parse {text:?} as a port")),
            Ok(port) => ports.push(port),
        }
    }
    match ports.len() {
        0 => Err("query parameter \"port\" is required".into()),
        1..=MAX_PORTS => Ok(ports),
        _ => Err("too many ports".into()),
    }
}

/// Connects each port's channels with streams of the other server until the client leaves or every stream has ended.
pub async fn bridge(accepted: Accepted, ports: &[u16], remote: Connected) -> Result<(), Error> {
    let encoding = if accepted.protocol.contains("base64") { Encoding::Base64 } else { Encoding::Binary };
    let inbound: Vec<u8> = (0..ports.len()).map(|index| 2 * index as u8).collect();
    let mut channels = Channels::serve(accepted.io().await?, encoding, &inbound).await;
    let connection = spdy::Connection::start(remote.io, spdy::Role::Client);
    let mut forwards = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let number = 2 * index as u8;
        let (data, error) = (channels.writer(number), channels.writer(number + 1));
        // Each channel begins with the port that it is for.
        data.write(&port.to_le_bytes()).await?;
        error.write(&port.to_le_bytes()).await?;
        let incoming = channels.take(number).ok_or(Error::Closed)?;
        forwards.push(forward(&connection, index, *port, incoming, data, error));
    }
    let gone = channels.gone();
    tokio::select! {
        results = futures::future::join_all(forwards) => {
            channels.close().await;
            results.into_iter().collect()
        }
        () = gone.cancelled() => Ok(()),
    }
}

async fn forward(
    connection: &spdy::Connection,
    request: usize,
    port: u16,
    incoming: mpsc::Receiver<Bytes>,
    data: ChannelWriter,
    error: ChannelWriter,
) -> Result<(), Error> {
    let mut errors = connection.open(headers("error", request, port)).await?;
    errors.writer.finish().await?;
    let stream = connection.open(headers("data", request, port)).await?;
    let (in_done, out_done, error_done) =
        tokio::join!(pump_in(incoming, stream.writer), pump_out(stream.reader, &data), pump_out(errors.reader, &error));
    in_done.and(out_done).and(error_done)
}

async fn pump_in(mut from: mpsc::Receiver<Bytes>, mut to: Writer) -> Result<(), Error> {
    loop {
        tokio::select! {
            piece = from.recv() => match piece {
                Some(piece) => to.write(piece).await?,
                None => return to.finish().await,
            },
            () = to.ended() => return Ok(()),
        }
    }
}

async fn pump_out(mut from: Reader, to: &ChannelWriter) -> Result<(), Error> {
    while let Some(piece) = from.read().await {
        to.write(&piece).await?;
    }
    Ok(())
}

fn headers(kind: &str, request: usize, port: u16) -> Headers {
    [
        ("streamtype".to_owned(), kind.to_owned()),
        ("port".to_owned(), port.to_string()),
        ("requestid".to_owned(), request.to_string()),
    ]
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_numbers() {
        assert_eq!(parse_ports(["80,443", "8080"].into_iter()), Ok(vec![80, 443, 8080]));
        for bad in ["", "0", "65536", "x", "80,"] {
            assert!(parse_ports([bad].into_iter()).is_err(), "{bad:?}");
        }
        assert!(parse_ports([].into_iter()).is_err());
    }
}
