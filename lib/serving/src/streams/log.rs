//! A byte stream sent to a WebSocket client, one message a piece: how logs are read over WebSocket.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::{SinkExt, Stream, StreamExt};
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{CloseFrame, Role, frame::coding::CloseCode},
};

use super::{Error, upgrade::Accepted, websocket::socket};

/// The protocols for reading; the empty one (binary) is for clients that name none.
pub const PROTOCOLS: &[&str] = &["", "binary.k8s.io", "base64.binary.k8s.io"];

/// Sends the pieces of `body` until it ends or the client leaves.
pub async fn send<S, E>(accepted: Accepted, body: S) -> Result<(), Error>
where
    S: Stream<Item = Result<Bytes, E>>,
{
    let base64 = accepted.protocol.starts_with("base64.");
    let (mut sink, mut stream) = socket(accepted.io().await?, Role::Server).await.split();
    let mut body = std::pin::pin!(body);
    loop {
        tokio::select! {
            piece = body.next() => match piece {
                Some(Ok(piece)) if base64 => sink.send(Message::Text(STANDARD.encode(&piece).into())).await?,
                Some(Ok(piece)) => sink.send(Message::Binary(piece)).await?,
                Some(Err(_)) | None => break,
            },
            message = stream.next() => match message {
                None | Some(Err(_) | Ok(Message::Close(_))) => return Ok(()),
                Some(Ok(_)) => sink.flush().await?,
            },
        }
    }
    let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    sink.send(Message::Close(Some(frame))).await?;
    Ok(())
}
