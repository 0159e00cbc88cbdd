//! Remote commands and forwarded ports from a client through a front server to a runtime, all on loopback.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{convert::Infallible, future::Future, net::SocketAddr};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use pintle_serving::streams::{
    Error, log, portforward,
    remote::{self, Client, Outcome, Output, Session, Streams},
    spdy, tunnel,
    upgrade::{self, Accepted, Connected},
    websocket::{Channels, Encoding},
};
use tokio::{net::TcpListener, task::AbortHandle};

/// A server whose every request is upgraded and handed to `handle`; ends when dropped.
struct Server {
    address: SocketAddr,
    task: AbortHandle,
}

impl Server {
    async fn start<H, F>(protocols: &'static [&'static str], handle: H) -> Self
    where
        H: Fn(Accepted) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let handle = handle.clone();
                let service = service_fn(move |mut request: Request<Incoming>| {
                    let response = answer(&mut request, protocols, handle.clone());
                    async { Ok::<_, Infallible>(response) }
                });
                let serve = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tcp), service);
                tokio::spawn(serve.with_upgrades());
            }
        });
        Self { address, task: task.abort_handle() }
    }

    fn url(&self) -> Uri {
        format!("http://{}/exec/token", self.address).parse().unwrap()
    }

    async fn websocket(&self, protocol: &'static str) -> Connected {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (header::CONNECTION, "Upgrade"),
            (header::UPGRADE, "websocket"),
            (header::SEC_WEBSOCKET_VERSION, "13"),
            (header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ=="),
            (header::SEC_WEBSOCKET_PROTOCOL, protocol),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let connected = upgrade::connect(&self.url(), Method::GET, headers).await.unwrap();
        assert_eq!(connected.response.headers()[header::SEC_WEBSOCKET_PROTOCOL], protocol);
        connected
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn answer<H, F>(request: &mut Request<Incoming>, protocols: &'static [&'static str], handle: H) -> Response<Full<Bytes>>
where
    H: Fn(Accepted) -> F,
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    match upgrade::accept(request, protocols) {
        Err(refusal) => refusal.response().map(|text| Full::new(text.into())),
        Ok(mut accepted) => {
            let response = std::mem::take(&mut accepted.response);
            tokio::spawn(handle(accepted));
            response.map(|()| Full::default())
        }
    }
}

const ALL: Streams = Streams { stdin: true, stdout: true, stderr: true, tty: false };
const TTY: Streams = Streams { stdin: true, stdout: true, stderr: false, tty: true };

/// A "runtime" whose command writes what it reads to stdout, its count to stderr, and exits with 3.
async fn counting(accepted: Accepted) -> Result<(), Error> {
    let mut session = Session::accept(accepted, ALL).await?;
    let (mut stdin, mut stdout) = (session.stdin.take().unwrap(), session.stdout.take().unwrap());
    let mut count = 0;
    while let Some(piece) = stdin.recv().await {
        count += piece.len();
        stdout.write(piece).await?;
    }
    if let Some(stderr) = &mut session.stderr {
        stderr.write(Bytes::from(count.to_string())).await?;
    }
    session.stdout = Some(stdout);
    session.finish(&Outcome::exit(3)).await
}

/// A "runtime" whose command prints the first terminal size that it is told, and succeeds.
async fn sizing(accepted: Accepted) -> Result<(), Error> {
    let mut session = Session::accept(accepted, TTY).await?;
    let size = session.resize.as_mut().unwrap().recv().await.unwrap();
    session.stdout.as_mut().unwrap().write(size).await?;
    session.finish(&Outcome::success()).await
}

async fn front(runtime: &Server, streams: Streams) -> Server {
    let url = runtime.url();
    Server::start(remote::WEBSOCKET_PROTOCOLS, move |accepted| {
        let url = url.clone();
        async move {
            let connected = upgrade::connect_spdy(&url, &["v4.channel.k8s.io"]).await?;
            let client = Client::open(connected, streams).await?;
            remote::bridge(Session::accept(accepted, streams).await?, client).await
        }
    })
    .await
}

async fn collect(receiver: Option<tokio::sync::mpsc::Receiver<Bytes>>) -> Vec<u8> {
    let mut receiver = receiver.unwrap();
    let mut all = Vec::new();
    while let Some(piece) = receiver.recv().await {
        all.extend_from_slice(&piece);
    }
    all
}

#[tokio::test]
async fn websocket_v5_commands_reach_a_spdy_runtime_and_end_with_their_exit_code() {
    let runtime = Server::start(remote::SPDY_PROTOCOLS, counting).await;
    let front = front(&runtime, ALL).await;
    for (protocol, encoding) in
        [("v5.channel.k8s.io", Encoding::Binary), ("v4.base64.channel.k8s.io", Encoding::Base64)]
    {
        let connected = front.websocket(protocol).await;
        let mut channels = Channels::client(connected.io, encoding, &[1, 2, 3]).await;
        let (stdout, stderr, status) = (channels.take(1), channels.take(2), channels.take(3));
        let input = vec![b'x'; 300_000];
        let stdin = channels.writer(0);
        let send = async {
            for piece in input.chunks(10_000) {
                stdin.write(piece).await.unwrap();
            }
            stdin.close().await.unwrap();
        };
        let (_, stdout, stderr, status) = tokio::join!(send, collect(stdout), collect(stderr), collect(status));
        assert!(stdout == input, "{protocol}: {} bytes came back", stdout.len());
        assert_eq!(stderr, b"300000");
        assert_eq!(Outcome::parse(&status).exit_code(), Some(3), "{protocol}");
    }
}

#[tokio::test]
async fn terminal_sizes_get_through() {
    let runtime = Server::start(remote::SPDY_PROTOCOLS, sizing).await;
    let front = front(&runtime, TTY).await;
    let connected = front.websocket("v4.channel.k8s.io").await;
    let mut channels = Channels::client(connected.io, Encoding::Binary, &[1, 3]).await;
    let (stdout, status) = (channels.take(1), channels.take(3));
    channels.writer(4).write(br#"{"Width":80,"Height":24}"#).await.unwrap();
    let (stdout, status) = tokio::join!(collect(stdout), collect(status));
    assert_eq!(stdout, br#"{"Width":80,"Height":24}"#);
    assert!(Outcome::parse(&status).is_success());
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_command_session() {
    let (left, mut seen) = tokio::sync::mpsc::channel(1);
    let runtime = Server::start(remote::SPDY_PROTOCOLS, move |accepted| {
        let left = left.clone();
        async move {
            let session = Session::accept(accepted, ALL).await?;
            session.gone().cancelled().await;
            let _ = left.send(()).await;
            Ok(())
        }
    })
    .await;
    let front = front(&runtime, ALL).await;
    let connected = front.websocket("v5.channel.k8s.io").await;
    let mut channels = Channels::client(connected.io, Encoding::Binary, &[1]).await;
    channels.writer(0).write(b"hello").await.unwrap();
    assert!(channels.take(1).is_some());
    drop(channels);
    tokio::time::timeout(std::time::Duration::from_secs(10), seen.recv()).await.unwrap().unwrap();
}

/// A "runtime" that answers each data stream with its own bytes and says the port on the error stream.
async fn echo_ports(accepted: Accepted) -> Result<(), Error> {
    let mut connection = spdy::Connection::start(accepted.io().await?, spdy::Role::Server);
    while let Some(incoming) = connection.next().await {
        let mut stream = incoming.accept().await?;
        tokio::spawn(async move {
            if stream.headers["streamtype"] == "error" {
                let port = Bytes::from(stream.headers["port"].clone());
                stream.writer.write(port).await.unwrap();
            }
            while let Some(piece) = stream.reader.read().await {
                stream.writer.write(piece).await.unwrap();
            }
            stream.writer.finish().await.unwrap();
        });
    }
    Ok(())
}

#[tokio::test]
async fn ports_are_forwarded_over_channels() {
    let runtime = Server::start(&[portforward::SPDY_PROTOCOL], echo_ports).await;
    let url = runtime.url();
    let front = Server::start(portforward::WEBSOCKET_PROTOCOLS, move |accepted| {
        let url = url.clone();
        async move {
            let remote = upgrade::connect_spdy(&url, &[portforward::SPDY_PROTOCOL]).await?;
            portforward::bridge(accepted, &[80, 443], remote).await
        }
    })
    .await;
    let connected = front.websocket("v4.channel.k8s.io").await;
    let mut channels = Channels::client(connected.io, Encoding::Binary, &[0, 1, 2, 3]).await;
    let (mut first, mut second, mut error) =
        (channels.take(0).unwrap(), channels.take(2).unwrap(), channels.take(3).unwrap());
    channels.writer(2).write(b"to 443").await.unwrap();
    assert_eq!(second.recv().await.as_deref(), Some(&443_u16.to_le_bytes()[..]));
    assert_eq!(second.recv().await.as_deref(), Some(&b"to 443"[..]));
    assert_eq!(first.recv().await.as_deref(), Some(&80_u16.to_le_bytes()[..]));
    assert_eq!(error.recv().await.as_deref(), Some(&443_u16.to_le_bytes()[..]));
    assert_eq!(error.recv().await.as_deref(), Some(&b"443"[..]));
}

#[tokio::test]
async fn a_refused_upgrade_tells_why() {
    let runtime = Server::start(&[portforward::SPDY_PROTOCOL], echo_ports).await;
    match upgrade::connect_spdy(&runtime.url(), &["v9"]).await {
        Err(Error::Refused { status, message }) => {
            assert_eq!(status, http::StatusCode::FORBIDDEN);
            assert!(message.contains("client supports [v9]"), "{message}");
        }
        other => panic!("{:?}", other.err()),
    }
}

#[tokio::test]
async fn spdy_passes_through_a_websocket_tunnel() {
    let runtime = Server::start(&[portforward::SPDY_PROTOCOL], echo_ports).await;
    let url = runtime.url();
    let front = Server::start(&[tunnel::PORT_FORWARD_PROTOCOL], move |accepted| {
        let url = url.clone();
        async move {
            let remote = upgrade::connect_spdy(&url, &[portforward::SPDY_PROTOCOL]).await?;
            tunnel::unwrap_websocket(accepted, remote.io).await
        }
    })
    .await;
    let connected = front.websocket(tunnel::PORT_FORWARD_PROTOCOL).await;
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    tokio::spawn(wrap(connected, theirs));
    let connection = spdy::Connection::start(ours, spdy::Role::Client);
    let headers = [("streamtype".to_owned(), "data".to_owned())].into();
    let mut stream = connection.open(headers).await.unwrap();
    stream.writer.write(Bytes::from_static(b"through")).await.unwrap();
    stream.writer.finish().await.unwrap();
    assert_eq!(stream.reader.read().await.as_deref(), Some(&b"through"[..]));
    assert_eq!(stream.reader.read().await, None);
}

/// The client's half of the tunnel.
async fn wrap(connected: Connected, plain: tokio::io::DuplexStream) {
    use futures::{SinkExt, StreamExt};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_tungstenite::{
        WebSocketStream,
        tungstenite::{Message, protocol::Role},
    };
    let (mut sink, mut stream) = WebSocketStream::from_raw_socket(connected.io, Role::Client, None).await.split();
    let (mut read, mut write) = tokio::io::split(plain);
    let out = async {
        let mut buffer = vec![0; 4096];
        while let Ok(got @ 1..) = read.read(&mut buffer).await {
            sink.send(Message::Binary(Bytes::copy_from_slice(&buffer[..got]))).await.unwrap();
        }
    };
    let back = async {
        while let Some(Ok(Message::Binary(data))) = stream.next().await {
            write.write_all(&data).await.unwrap();
        }
    };
    tokio::join!(out, back);
}

#[tokio::test]
async fn logs_are_read_over_websocket() {
    let front = Server::start(log::PROTOCOLS, |accepted| {
        let lines = ["one\n", "two\n"].map(|line| Ok::<_, Infallible>(Bytes::from(line)));
        log::send(accepted, futures::stream::iter(lines))
    })
    .await;
    use futures::StreamExt;
    use tokio_tungstenite::{
        WebSocketStream,
        tungstenite::{Message, protocol::Role},
    };
    let connected = front.websocket("base64.binary.k8s.io").await;
    let socket = WebSocketStream::from_raw_socket(connected.io, Role::Client, None).await;
    let messages: Vec<_> = socket.map(|message| message.unwrap()).collect().await;
    assert_eq!(messages[..2], [Message::Text("b25lCg==".into()), Message::Text("dHdvCg==".into())]);
    assert!(matches!(messages[2], Message::Close(Some(_))));
}

#[test]
fn outputs_are_one_type() {
    fn is_send<T: Send>() {}
    is_send::<Output>();
    is_send::<Session>();
}
