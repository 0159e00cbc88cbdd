//! Kubernetes' channel protocols over WebSocket: the first byte of a message names the channel it belongs to.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{BufMut, Bytes, BytesMut};
use futures::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use tokio::sync::{Mutex, mpsc};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};
use tokio_util::sync::CancellationToken;

use super::{Error, upgrade::Io};

/// The channel whose messages close another one (since v5).
const CLOSE_CHANNEL: u8 = 255;
const CHANNEL_QUEUE: usize = 64;
const MAX_MESSAGE: usize = 8 * 1024 * 1024;
const BUFFER: usize = 32 * 1024;

/// A WebSocket over any transport.
pub(super) type Socket = WebSocketStream<Io>;

/// How channel messages look on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// One byte with the channel's number, then the payload.
    Binary,
    /// A digit with the channel's number, then the payload in base64.
    Base64,
}

/// Starts WebSocket framing on an upgraded connection.
pub(super) async fn socket(io: Io, role: Role) -> Socket {
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER)
        .max_write_buffer_size(2 * MAX_MESSAGE)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    WebSocketStream::from_raw_socket(io, role, Some(config)).await
}

/// The channels of one connection.
pub struct Channels {
    sink: Arc<Mutex<SplitSink<Socket, Message>>>,
    encoding: Encoding,
    inbound: BTreeMap<u8, mpsc::Receiver<Bytes>>,
    gone: CancellationToken,
}

impl Channels {
    /// Serves an upgraded connection; messages of channels other than `inbound` are dropped.
    pub async fn serve(io: Io, encoding: Encoding, inbound: &[u8]) -> Self {
        Self::start(socket(io, Role::Server).await, encoding, inbound)
    }

    /// The client's side of [`Channels::serve`].
    pub async fn client(io: Io, encoding: Encoding, inbound: &[u8]) -> Self {
        Self::start(socket(io, Role::Client).await, encoding, inbound)
    }

    fn start(socket: Socket, encoding: Encoding, inbound: &[u8]) -> Self {
        let (sink, stream) = socket.split();
        let sink = Arc::new(Mutex::new(sink));
        let gone = CancellationToken::new();
        let mut senders = BTreeMap::new();
        let mut receivers = BTreeMap::new();
        for channel in inbound {
            let (sender, receiver) = mpsc::channel(CHANNEL_QUEUE);
            senders.insert(*channel, sender);
            receivers.insert(*channel, receiver);
        }
        let (done, flush) = (gone.clone(), sink.clone());
        tokio::spawn(async move {
            let result = tokio::select! {
                result = read_loop(stream, flush, encoding, senders) => result,
                () = done.cancelled() => Ok(()),
            };
            if let Err(error) = result {
                tracing::debug!(%error, "WebSocket reader ended");
            }
            done.cancel();
        });
        Self { sink, encoding, inbound: receivers, gone }
    }

    /// The messages of a channel; each channel can be taken once.
    pub fn take(&mut self, channel: u8) -> Option<mpsc::Receiver<Bytes>> {
        self.inbound.remove(&channel)
    }

    /// A way to write to a channel.
    pub fn writer(&self, channel: u8) -> ChannelWriter {
        ChannelWriter { sink: self.sink.clone(), encoding: self.encoding, channel, gone: self.gone.clone() }
    }

    /// Resolves when the peer has left.
    pub fn gone(&self) -> CancellationToken {
        self.gone.clone()
    }

    /// Says goodbye.
    pub async fn close(&self) {
        let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        let close = async {
            let mut sink = self.sink.lock().await;
            // The peer may have left already.
            let _ = sink.send(Message::Close(Some(frame))).await;
            let _ = sink.close().await;
        };
        tokio::select! { () = close => {} () = self.gone.cancelled() => {} }
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}

/// The outbound direction of a channel.
#[derive(Clone)]
pub struct ChannelWriter {
    sink: Arc<Mutex<SplitSink<Socket, Message>>>,
    encoding: Encoding,
    channel: u8,
    gone: CancellationToken,
}

impl ChannelWriter {
    /// Sends one message, which may be empty.
    pub async fn write(&self, payload: &[u8]) -> Result<(), Error> {
        self.send(encode(self.encoding, self.channel, payload)).await
    }

    /// Tells a v5 peer that the channel has ended.
    pub async fn close(&self) -> Result<(), Error> {
        self.send(encode(self.encoding, CLOSE_CHANNEL, &[self.channel])).await
    }

    async fn send(&self, message: Message) -> Result<(), Error> {
        let send = async { self.sink.lock().await.send(message).await };
        tokio::select! {
            result = send => Ok(result?),
            () = self.gone.cancelled() => Err(Error::Closed),
        }
    }
}

async fn read_loop(
    mut stream: SplitStream<Socket>,
    sink: Arc<Mutex<SplitSink<Socket, Message>>>,
    encoding: Encoding,
    mut senders: BTreeMap<u8, mpsc::Sender<Bytes>>,
) -> Result<(), Error> {
    while let Some(message) = stream.next().await {
        let message = message?;
        if matches!(message, Message::Ping(_)) {
            // The answer is queued by the library; it leaves with the next flush.
            sink.lock().await.flush().await?;
        }
        let payload = match message {
            Message::Binary(data) => data,
            Message::Text(text) => text.into(),
            Message::Close(_) => return Ok(()),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
        };
        match decode(encoding, payload)? {
            None => {}
            Some((CLOSE_CHANNEL, which)) => {
                which.first().and_then(|channel| senders.remove(channel));
            }
            Some((channel, data)) => {
                if let Some(sender) = senders.get(&channel)
                    && !data.is_empty()
                {
                    // Nobody listens any more: dropped, the other channels go on.
                    let _ = sender.send(data).await;
                }
            }
        }
    }
    Ok(())
}

fn encode(encoding: Encoding, channel: u8, payload: &[u8]) -> Message {
    match encoding {
        Encoding::Binary => {
            let mut data = BytesMut::with_capacity(1 + payload.len());
            data.put_u8(channel);
            data.put_slice(payload);
            Message::Binary(data.freeze())
        }
        Encoding::Base64 => {
            let mut text = String::with_capacity(1 + payload.len().div_ceil(3) * 4);
            text.push(char::from(b'0'.wrapping_add(channel)));
            STANDARD.encode_string(payload, &mut text);
            Message::Text(text.into())
        }
    }
}

fn decode(encoding: Encoding, mut message: Bytes) -> Result<Option<(u8, Bytes)>, Error> {
    if message.is_empty() {
        return Ok(None);
    }
    let first = message.split_to(1)[0];
    match encoding {
        Encoding::Binary => Ok(Some((first, message))),
        Encoding::Base64 => {
            let data = STANDARD.decode(&message).map_err(|_| Error::Protocol("message is not base64".into()))?;
            Ok(Some((first.wrapping_sub(b'0'), data.into())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_in_both_encodings() {
        for encoding in [Encoding::Binary, Encoding::Base64] {
            let payload = match encode(encoding, 2, b"hello") {
                Message::Binary(data) => data,
                Message::Text(text) => text.into(),
                other => panic!("{other:?}"),
            };
            assert_eq!(decode(encoding, payload).unwrap(), Some((2, Bytes::from_static(b"hello"))));
        }
        assert_eq!(decode(Encoding::Binary, Bytes::new()).unwrap(), None);
        assert!(decode(Encoding::Base64, Bytes::from_static(b"0!!")).is_err());
    }

    #[tokio::test]
    async fn channels_are_kept_apart_and_close_one_by_one() {
        let (left, right) = tokio::io::duplex(64 * 1024);
        let mut server = Channels::serve(Box::new(left), Encoding::Binary, &[0, 4]).await;
        let mut client = Channels::client(Box::new(right), Encoding::Binary, &[1]).await;
        let (mut stdin, mut resize) = (server.take(0).unwrap(), server.take(4).unwrap());
        client.writer(4).write(b"{}").await.unwrap();
        client.writer(9).write(b"nobody").await.unwrap();
        client.writer(0).write(b"in").await.unwrap();
        client.writer(0).close().await.unwrap();
        assert_eq!(resize.recv().await.as_deref(), Some(&b"{}"[..]));
        assert_eq!(stdin.recv().await.as_deref(), Some(&b"in"[..]));
        assert_eq!(stdin.recv().await, None);
        server.writer(1).write(b"out").await.unwrap();
        let mut stdout = client.take(1).unwrap();
        assert_eq!(stdout.recv().await.as_deref(), Some(&b"out"[..]));
        server.close().await;
        client.gone().cancelled().await;
    }
}
