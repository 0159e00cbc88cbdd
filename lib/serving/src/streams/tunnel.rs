//! Bytes passed through unchanged: between two upgraded connections, or wrapped in the binary messages of a WebSocket.

use bytes::BytesMut;
use futures::{SinkExt, StreamExt};
use http::{Request, Response, Uri, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{CloseFrame, Role, frame::coding::CloseCode},
};

use super::{
    Error,
    upgrade::{Accepted, Connected, Io, connect, upgrade_headers},
    websocket::socket,
};

/// The WebSocket protocol that wraps a SPDY port-forward connection.
pub const PORT_FORWARD_PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";
const BUFFER: usize = 32 * 1024;

/// Sends an upgrade request on to `url` as it is. If that side agrees: its answer, and the work of copying both ways
/// until both directions have ended or one has failed.
pub async fn pass_through<B>(
    request: &mut Request<B>,
    url: &Uri,
) -> Result<(Response<()>, impl Future<Output = Result<(), Error>> + Send + use<B>), Error> {
    let headers = upgrade_headers(request.headers());
    let Connected { response, io: mut remote } = connect(url, request.method().clone(), headers).await?;
    let answer = upgraded_answer(&response);
    let upgraded = hyper::upgrade::on(request);
    let join = async move {
        let mut client = TokioIo::new(upgraded.await?);
        tokio::io::copy_bidirectional_with_sizes(&mut client, &mut remote, BUFFER, BUFFER).await?;
        Ok(())
    };
    Ok((answer, join))
}

/// The other side's 101 without what is about its own connection.
fn upgraded_answer(response: &Response<()>) -> Response<()> {
    let mut answer = Response::new(());
    *answer.status_mut() = response.status();
    for (name, value) in response.headers() {
        if *name != header::CONTENT_LENGTH && *name != header::TRANSFER_ENCODING && *name != header::DATE {
            answer.headers_mut().append(name.clone(), value.clone());
        }
    }
    answer
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
