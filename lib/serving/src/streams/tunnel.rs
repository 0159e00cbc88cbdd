//! Bytes passed through unchanged: between two upgraded connections, or wrapped in the binary messages of a WebSocket.

use bytes::BytesMut;
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{CloseFrame, Role, frame::coding::CloseCode},
};

use super::{
    Error,
    upgrade::{Accepted, Io},
    websocket::socket,
};

/// The WebSocket protocol that wraps a SPDY port-forward connection.
pub const PORT_FORWARD_PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";
const BUFFER: usize = 32 * 1024;

/// Copies both ways until both directions have ended or one has failed.
pub async fn pipe(mut left: Io, mut right: Io) -> Result<(), Error> {
    tokio::io::copy_bidirectional_with_sizes(&mut left, &mut right, BUFFER, BUFFER).await?;
    Ok(())
}

/// Unwraps a client's WebSocket messages into `remote`, and wraps what comes from there, until one side ends.
pub async fn unwrap_websocket(accepted: Accepted, remote: Io) -> Result<(), Error> {
    let (mut sink, mut stream) = socket(accepted.io().await?, Role::Server).await.split();
    let (mut read, mut write) = tokio::io::split(remote);
    let (pong, mut pongs) = tokio::sync::mpsc::channel::<()>(1);
    let inward = async {
        while let Some(message) = stream.next().await {
            match message? {
                Message::Binary(data) => write.write_all(&data).await?,
                Message::Text(text) => write.write_all(text.as_bytes()).await?,
                Message::Close(_) => break,
                Message::Ping(_) => drop(pong.try_send(())),
                Message::Pong(_) | Message::Frame(_) => {}
            }
        }
        write.shutdown().await?;
        Ok::<_, Error>(())
    };
    let outward = async {
        let mut buffer = BytesMut::with_capacity(BUFFER);
        loop {
            buffer.reserve(BUFFER);
            tokio::select! {
                got = read.read_buf(&mut buffer) => {
                    if got? == 0 {
                        break;
                    }
                    sink.send(Message::Binary(buffer.split().freeze())).await?;
                }
                // The library has queued a pong; it leaves with the flush.
                Some(()) = pongs.recv() => sink.flush().await?,
            }
        }
        let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        sink.send(Message::Close(Some(frame))).await?;
        Ok::<_, Error>(())
    };
    tokio::select! { result = inward => result, result = outward => result }
}
