//! One SPDY connection: two tasks (reader, writer) and the streams between them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter, ReadHalf, WriteHalf},
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

use super::{
    frame::{Control, HEAD, Head, data_head, reset},
    headers::{Packer, Unpacker},
};
use crate::streams::Error;

/// Header names (lower case on the wire) and values.
pub type Headers = BTreeMap<String, String>;

/// Payload is handed on in pieces of at most this size.
const PIECE: usize = 32 * 1024;
/// Pieces that wait for one stream's reader before the connection stops reading.
const STREAM_QUEUE: usize = 64;
const MAX_STREAMS: usize = 4096;
const WRITE_QUEUE: usize = 32;
const URGENT_QUEUE: usize = 64;
/// How long to keep reading once our own direction is closed.
const LINGER: Duration = Duration::from_secs(2);

/// Which side of the connection this is; clients open odd stream numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The side that sent the HTTP request.
    Client,
    /// The side that answered it.
    Server,
}

/// A running connection. Dropping it ends it.
pub struct Connection {
    shared: Arc<Shared>,
    next_id: tokio::sync::Mutex<u32>,
    incoming: mpsc::Receiver<Incoming>,
}

struct Shared {
    streams: Mutex<HashMap<u32, Entry>>,
    data: mpsc::Sender<Outgoing>,
    urgent: mpsc::Sender<Control>,
    /// The peer takes no further streams.
    going_away: AtomicBool,
    /// Cancelled when the transport is gone or the connection was dropped.
    gone: CancellationToken,
}

struct Entry {
    /// None once the peer has finished its direction.
    inbound: Option<mpsc::Sender<Bytes>>,
    outbound_open: bool,
    reply: Option<oneshot::Sender<()>>,
    ended: CancellationToken,
}

enum Outgoing {
    Open { stream: u32, headers: Headers },
    Reply { stream: u32 },
    Data { stream: u32, fin: bool, payload: Bytes },
    Close { last: u32 },
}

impl Connection {
    /// Takes over an upgraded transport.
    pub fn start<T>(io: T, role: Role) -> Self
    where
        T: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (read, write) = tokio::io::split(io);
        let (data, data_queue) = mpsc::channel(WRITE_QUEUE);
        let (urgent, urgent_queue) = mpsc::channel(URGENT_QUEUE);
        let (incoming_tx, incoming) = mpsc::channel(STREAM_QUEUE);
        let shared = Arc::new(Shared {
            streams: Mutex::default(),
            data,
            urgent,
            going_away: AtomicBool::new(false),
            gone: CancellationToken::new(),
        });
        let gone = shared.gone.clone();
        tokio::spawn(async move {
            let result = tokio::select! {
                result = write_loop(write, data_queue, urgent_queue) => result,
                () = gone.cancelled() => Ok(()),
            };
            if let Err(error) = result {
                tracing::debug!(%error, "SPDY writer ended");
            }
            // The peer may still have to say something; it must not keep the connection for ever.
            tokio::select! { () = gone.cancelled() => {} () = tokio::time::sleep(LINGER) => gone.cancel() }
        });
        let mut reader = ReadLoop { shared: shared.clone(), role, incoming: incoming_tx, unpacker: Unpacker::new() };
        tokio::spawn(async move {
            let gone = reader.shared.gone.clone();
            let result = tokio::select! {
                result = reader.run(BufReader::with_capacity(PIECE, read)) => result,
                () = gone.cancelled() => Ok(()),
            };
            if let Err(error) = result {
                tracing::debug!(%error, "SPDY reader ended");
            }
            gone.cancel();
            reader.shared.streams.lock().clear();
        });
        let first = if role == Role::Client { 1 } else { 2 };
        Self { shared, next_id: tokio::sync::Mutex::new(first), incoming }
    }

    /// Opens a stream; returns once the peer has accepted it.
    pub async fn open(&self, headers: Headers) -> Result<Stream, Error> {
        let (reply, accepted) = oneshot::channel();
        let stream = {
            let mut next = self.next_id.lock().await;
            if self.shared.going_away.load(Ordering::Relaxed) {
                return Err(Error::Closed);
            }
            let stream = self.shared.register(*next, headers.clone(), Some(reply));
            self.shared.send(Outgoing::Open { stream: *next, headers }).await?;
            *next += 2;
            stream
        };
        tokio::select! {
            result = accepted => result.map_err(|_| Error::Closed)?,
            () = self.shared.gone.cancelled() => return Err(Error::Closed),
        }
        Ok(stream)
    }

    /// The next stream that the peer opens; `None` when the connection has ended.
    pub async fn next(&mut self) -> Option<Incoming> {
        self.incoming.recv().await
    }

    /// Sends what is queued, says goodbye, and closes this side's direction.
    pub async fn shutdown(&self) {
        // Failing means that it is closed already.
        let _ = self.shared.send(Outgoing::Close { last: 0 }).await;
        let deadline = tokio::time::sleep(LINGER);
        tokio::select! { () = self.shared.gone.cancelled() => {} () = deadline => {} }
    }

    /// Resolves when the transport is gone.
    pub fn gone(&self) -> CancellationToken {
        self.shared.gone.clone()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.gone.cancel();
    }
}

/// A stream that the peer wants to open.
pub struct Incoming {
    stream: Stream,
}

impl Incoming {
    /// The headers that it came with; names in lower case.
    pub fn headers(&self) -> &Headers {
        &self.stream.headers
    }

    /// Takes it up.
    pub async fn accept(self) -> Result<Stream, Error> {
        let stream = self.stream;
        stream.writer.shared.send(Outgoing::Reply { stream: stream.writer.id }).await?;
        Ok(stream)
    }

    /// Turns it down.
    pub fn refuse(mut self) {
        self.stream.writer.reset_with(reset::REFUSED);
    }
}

/// An open stream.
pub struct Stream {
    /// The headers that it was opened with.
    pub headers: Headers,
    /// The peer's direction.
    pub reader: Reader,
    /// Our direction.
    pub writer: Writer,
}

/// The peer's direction of a stream.
pub struct Reader(mpsc::Receiver<Bytes>);

impl Reader {
    /// The next piece; `None` at the end (finished, reset or disconnected).
    pub async fn read(&mut self) -> Option<Bytes> {
        self.0.recv().await
    }

    /// The queue behind it.
    pub fn into_receiver(self) -> mpsc::Receiver<Bytes> {
        self.0
    }
}

/// Our direction of a stream. Dropped without [`Writer::finish`], it resets the stream.
pub struct Writer {
    id: u32,
    shared: Arc<Shared>,
    ended: CancellationToken,
    finished: bool,
}

impl Writer {
    /// Sends a piece.
    pub async fn write(&mut self, payload: Bytes) -> Result<(), Error> {
        if self.finished || self.ended.is_cancelled() {
            return Err(Error::Closed);
        }
        let mut rest = payload;
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(PIECE));
            self.shared.send(Outgoing::Data { stream: self.id, fin: false, payload: piece }).await?;
        }
        Ok(())
    }

    /// Ends our direction; the peer's stays open.
    pub async fn finish(&mut self) -> Result<(), Error> {
        if self.finished {
            return Ok(());
        }
        self.finished = true;
        self.shared.close_outbound(self.id);
        self.shared.send(Outgoing::Data { stream: self.id, fin: true, payload: Bytes::new() }).await
    }

    /// Ends both directions at once.
    pub fn reset(&mut self) {
        self.reset_with(reset::CANCEL);
    }

    /// Resolves when the stream was reset or the connection is gone.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    fn reset_with(&mut self, status: u32) {
        self.finished = true;
        self.shared.streams.lock().remove(&self.id);
        self.shared.urgent(Control::Reset { stream: self.id, status });
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished && !self.ended.is_cancelled() {
            self.reset();
        }
    }
}

impl Shared {
    fn register(self: &Arc<Self>, id: u32, headers: Headers, reply: Option<oneshot::Sender<()>>) -> Stream {
        let (inbound, queue) = mpsc::channel(STREAM_QUEUE);
        let ended = self.gone.child_token();
        let entry = Entry { inbound: Some(inbound), outbound_open: true, reply, ended: ended.clone() };
        self.streams.lock().insert(id, entry);
        Stream { headers, reader: Reader(queue), writer: Writer { id, shared: self.clone(), ended, finished: false } }
    }

    async fn send(&self, frame: Outgoing) -> Result<(), Error> {
        tokio::select! {
            biased;
            () = self.gone.cancelled() => Err(Error::Closed),
            result = self.data.send(frame) => result.map_err(|_| Error::Closed),
        }
    }

    /// Queues a small frame past the data; dropped when a peer that doesn't read lets the queue fill up.
    fn urgent(&self, frame: Control) {
        let _ = self.urgent.try_send(frame);
    }

    fn close_outbound(&self, id: u32) {
        let mut streams = self.streams.lock();
        if let Some(entry) = streams.get_mut(&id) {
            entry.outbound_open = false;
            if entry.inbound.is_none() {
                streams.remove(&id);
            }
        }
    }

    fn close_inbound(&self, id: u32) {
        let mut streams = self.streams.lock();
        if let Some(entry) = streams.get_mut(&id) {
            entry.inbound = None;
            if !entry.outbound_open {
                streams.remove(&id);
            }
        }
    }
}

struct ReadLoop {
    shared: Arc<Shared>,
    role: Role,
    incoming: mpsc::Sender<Incoming>,
    unpacker: Unpacker,
}

impl ReadLoop {
    async fn run<T: AsyncRead>(&mut self, mut io: BufReader<ReadHalf<T>>) -> Result<(), Error> {
        let mut head = [0; HEAD];
        loop {
            match io.read_exact(&mut head).await {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            match Head::parse(head).map_err(Error::Protocol)? {
                Head::Data { stream, fin, len } => self.data(&mut io, stream, fin, len).await?,
                Head::Control { kind, flags, len } => {
                    let mut body = vec![0; len];
                    io.read_exact(&mut body).await?;
                    let control = Control::parse(kind, flags, body.into()).map_err(Error::Protocol)?;
                    self.control(control).await?;
                }
            }
        }
    }

    async fn data<T: AsyncRead>(
        &mut self,
        io: &mut BufReader<ReadHalf<T>>,
        stream: u32,
        fin: bool,
        len: usize,
    ) -> Result<(), Error> {
        let inbound = self.shared.streams.lock().get(&stream).and_then(|entry| entry.inbound.clone());
        let mut left = len;
        while left > 0 {
            let mut piece = BytesMut::with_capacity(left.min(PIECE));
            let got = io.take(left.min(PIECE) as u64).read_buf(&mut piece).await?;
            if got == 0 {
                return Err(Error::Closed);
            }
            left -= got;
            if let Some(inbound) = &inbound {
                // Nobody listens any more: the bytes are dropped, the other streams go on.
                let _ = inbound.send(piece.freeze()).await;
            }
        }
        if fin {
            self.shared.close_inbound(stream);
        }
        Ok(())
    }

    async fn control(&mut self, control: Control) -> Result<(), Error> {
        match control {
            Control::SynStream { stream, fin, block } => {
                let headers = self.unpacker.unpack(&block).map_err(Error::Protocol)?;
                self.opened(stream, fin, headers).await;
            }
            Control::SynReply { stream, fin, block } => {
                self.unpacker.unpack(&block).map_err(Error::Protocol)?;
                if let Some(entry) = self.shared.streams.lock().get_mut(&stream)
                    && let Some(reply) = entry.reply.take()
                {
                    let _ = reply.send(());
                }
                if fin {
                    self.shared.close_inbound(stream);
                }
            }
            Control::Headers { stream, fin, block } => {
                self.unpacker.unpack(&block).map_err(Error::Protocol)?;
                if fin {
                    self.shared.close_inbound(stream);
                }
            }
            Control::Reset { stream, .. } => {
                if let Some(entry) = self.shared.streams.lock().remove(&stream) {
                    entry.ended.cancel();
                }
            }
            Control::Ping { id } if self.is_peers(id) => self.shared.urgent(Control::Ping { id }),
            Control::GoAway { .. } => self.shared.going_away.store(true, Ordering::Relaxed),
            Control::Ping { .. } | Control::WindowUpdate { .. } | Control::Ignored => {}
        }
        Ok(())
    }

    async fn opened(&mut self, id: u32, fin: bool, headers: Headers) {
        let (known, count) = {
            let streams = self.shared.streams.lock();
            (streams.contains_key(&id), streams.len())
        };
        if !self.is_peers(id) || known {
            return self.shared.urgent(Control::Reset { stream: id, status: reset::PROTOCOL_ERROR });
        }
        if count >= MAX_STREAMS {
            return self.shared.urgent(Control::Reset { stream: id, status: reset::REFUSED });
        }
        let stream = self.shared.register(id, headers, None);
        if fin {
            self.shared.close_inbound(id);
        }
        if self.incoming.send(Incoming { stream }).await.is_err() {
            self.shared.urgent(Control::Reset { stream: id, status: reset::INVALID_STREAM });
        }
    }

    fn is_peers(&self, id: u32) -> bool {
        let odd = id % 2 == 1;
        odd == (self.role == Role::Server)
    }
}

async fn write_loop<T: AsyncWrite>(
    io: WriteHalf<T>,
    mut data: mpsc::Receiver<Outgoing>,
    mut urgent: mpsc::Receiver<Control>,
) -> Result<(), Error> {
    let mut io = BufWriter::with_capacity(2 * PIECE, io);
    let mut packer = Packer::new().map_err(Error::Protocol)?;
    loop {
        if data.is_empty() && urgent.is_empty() {
            io.flush().await?;
        }
        tokio::select! {
            biased;
            Some(control) = urgent.recv() => write_control(&mut io, &control).await?,
            frame = data.recv() => match frame {
                None => break,
                Some(Outgoing::Open { stream, headers }) => {
                    let block = packer.pack(&headers).map_err(Error::Protocol)?;
                    write_control(&mut io, &Control::SynStream { stream, fin: false, block }).await?;
                }
                Some(Outgoing::Reply { stream }) => {
                    let block = packer.pack(&Headers::new()).map_err(Error::Protocol)?;
                    write_control(&mut io, &Control::SynReply { stream, fin: false, block }).await?;
                }
                Some(Outgoing::Data { stream, fin, payload }) => {
                    io.write_all(&data_head(stream, fin, payload.len())).await?;
                    io.write_all(&payload).await?;
                }
                Some(Outgoing::Close { last }) => {
                    write_control(&mut io, &Control::GoAway { last, status: 0 }).await?;
                    break;
                }
            }
        }
    }
    io.shutdown().await?;
    Ok(())
}

async fn write_control<T: AsyncWrite + Unpin>(io: &mut T, control: &Control) -> Result<(), Error> {
    let mut out = BytesMut::new();
    control.write(&mut out);
    io.write_all(&out).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Connection, Connection) {
        let (client, server) = tokio::io::duplex(8 * 1024);
        (Connection::start(client, Role::Client), Connection::start(server, Role::Server))
    }

    fn headers(name: &str) -> Headers {
        [("streamType".to_owned(), name.to_owned())].into()
    }

    #[tokio::test]
    async fn streams_carry_both_directions_and_half_close() {
        let (client, mut server) = pair();
        let accept = async {
            let incoming = server.next().await.unwrap();
            assert_eq!(incoming.headers().get("streamtype").map(String::as_str), Some("stdin"));
            incoming.accept().await.unwrap()
        };
        let (opened, mut theirs) = tokio::join!(client.open(headers("stdin")), accept);
        let mut ours = opened.unwrap();
        let big = Bytes::from(vec![7_u8; 1_000_000]);
        let sent = big.clone();
        let send = tokio::spawn(async move {
            ours.writer.write(sent).await.unwrap();
            ours.writer.finish().await.unwrap();
            ours
        });
        let mut received = Vec::new();
        while let Some(piece) = theirs.reader.read().await {
            received.extend_from_slice(&piece);
        }
        assert_eq!(received, big);
        let mut ours = send.await.unwrap();
        theirs.writer.write(Bytes::from_static(b"answer")).await.unwrap();
        theirs.writer.finish().await.unwrap();
        assert_eq!(ours.reader.read().await.as_deref(), Some(&b"answer"[..]));
        assert_eq!(ours.reader.read().await, None);
        assert!(client.shared.streams.lock().is_empty(), "closed streams are forgotten");
    }

    #[tokio::test]
    async fn refused_streams_and_resets_are_seen() {
        let (client, mut server) = pair();
        let refuse = async { server.next().await.unwrap().refuse() };
        let (opened, ()) = tokio::join!(client.open(headers("a")), refuse);
        assert!(opened.is_err());
        let accept = async { server.next().await.unwrap().accept().await.unwrap() };
        let (opened, theirs) = tokio::join!(client.open(headers("b")), accept);
        let mut ours = opened.unwrap();
        drop(theirs);
        assert_eq!(ours.reader.read().await, None);
        ours.writer.ended().await;
        assert!(ours.writer.write(Bytes::from_static(b"x")).await.is_err());
    }

    #[tokio::test]
    async fn shutdown_delivers_what_was_queued() {
        let (client, mut server) = pair();
        let accept = async { server.next().await.unwrap().accept().await.unwrap() };
        let (opened, mut theirs) = tokio::join!(client.open(headers("a")), accept);
        let mut ours = opened.unwrap();
        theirs.writer.write(Bytes::from_static(b"last words")).await.unwrap();
        let (read, ()) = tokio::join!(ours.reader.read(), server.shutdown());
        assert_eq!(read.as_deref(), Some(&b"last words"[..]));
        assert!(client.open(headers("b")).await.is_err());
    }

    #[tokio::test]
    async fn nonsense_ends_the_connection() {
        let (mut raw, server) = tokio::io::duplex(1024);
        let mut server = Connection::start(server, Role::Server);
        raw.write_all(&[0x80, 2, 0, 1, 0, 0, 0, 0]).await.unwrap();
        assert!(server.next().await.is_none(), "version 2 is refused");
    }

    #[tokio::test]
    async fn pings_come_back() {
        let (mut raw, server) = tokio::io::duplex(1024);
        let _server = Connection::start(server, Role::Server);
        let ping = [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1];
        raw.write_all(&ping).await.unwrap();
        let mut answer = [0; 12];
        raw.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, ping);
    }
}
