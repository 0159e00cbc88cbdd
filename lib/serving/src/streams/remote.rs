//! A remote command: stdin, stdout, stderr, terminal sizes and a final status, carried by SPDY or WebSocket.

use std::{fmt, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Error,
    spdy::{self, Headers, Reader, Stream},
    upgrade::{Accepted, Connected, Io, Kind},
    websocket::{ChannelWriter, Channels, Encoding},
};

/// How long a client may take to open the streams that it announced.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest status that is passed on.
const MAX_STATUS: usize = 64 * 1024;

mod channel {
    pub const STDIN: u8 = 0;
    pub const STDOUT: u8 = 1;
    pub const STDERR: u8 = 2;
    pub const ERROR: u8 = 3;
    pub const RESIZE: u8 = 4;
}

/// The protocols over SPDY, best first.
pub const SPDY_PROTOCOLS: &[&str] = &["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
/// The protocols over WebSocket; the empty one is the oldest, for clients that name none.
pub const WEBSOCKET_PROTOCOLS: &[&str] = &[
    "",
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
];

/// Which streams a command has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Streams {
    /// The client sends input.
    pub stdin: bool,
    /// The client wants standard output.
    pub stdout: bool,
    /// The client wants standard error.
    pub stderr: bool,
    /// There is a terminal: no separate standard error, but sizes.
    pub tty: bool,
}

impl Streams {
    /// Reads a request's query (`input`, `output`, `error`, `tty`: `1` means yes). A terminal has no standard error of its own.
    pub fn from_pairs<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        let mut streams = Self::default();
        for (name, value) in pairs {
            let wanted = value == "1" || value == "true";
            match name {
                "input" | "stdin" => streams.stdin = wanted,
                "output" | "stdout" => streams.stdout = wanted,
                "error" | "stderr" => streams.stderr = wanted,
                "tty" => streams.tty = wanted,
                _ => {}
            }
        }
        streams.stderr &= !streams.tty;
        if streams.stdin || streams.stdout || streams.stderr {
            Ok(streams)
        } else {
            Err("you must specify at least 1 of stdin, stdout, stderr".into())
        }
    }
}

/// How a command ended: the Status that goes to the client.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome(Value);

impl Outcome {
    /// Exit code 0.
    pub fn success() -> Self {
        Self(json!({"metadata": {}, "status": "Success"}))
    }

    /// Any other exit code.
    pub fn exit(code: i32) -> Self {
        Self(json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("command terminated with non-zero exit code: {code}"),
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }))
    }

    /// The command could not be run or its fate is unknown.
    pub fn failure(message: impl fmt::Display) -> Self {
        Self(json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("Internal error occurred: {message}"),
            "reason": "InternalError",
            "details": {"causes": [{"message": message.to_string()}]},
            "code": 500,
        }))
    }

    /// Reads the Status that a v4 peer sent.
    pub fn parse(status: &[u8]) -> Self {
        match serde_json::from_slice(status) {
            Ok(Value::Object(status)) => Self(Value::Object(status)),
            _ => Self::failure(String::from_utf8_lossy(status)),
        }
    }

    /// Whether the command succeeded.
    pub fn is_success(&self) -> bool {
        self.0["status"] == "Success"
    }

    /// The exit code, where it is known.
    pub fn exit_code(&self) -> Option<i32> {
        if self.is_success() {
            return Some(0);
        }
        let causes = self.0["details"]["causes"].as_array()?;
        let code = causes.iter().find(|cause| cause["reason"] == "ExitCode")?;
        code["message"].as_str()?.parse().ok()
    }

    /// What goes over the error stream: a Status since v4, before that the message of a failure.
    fn bytes(&self, structured: bool) -> Bytes {
        if structured {
            self.0.to_string().into()
        } else if self.is_success() {
            Bytes::new()
        } else {
            self.0["message"].as_str().unwrap_or_default().to_owned().into()
        }
    }
}

/// Where output for the client goes.
pub enum Output {
    /// A SPDY stream.
    Spdy(spdy::Writer),
    /// A WebSocket channel.
    WebSocket(ChannelWriter),
}

impl Output {
    /// Sends a piece.
    pub async fn write(&mut self, data: Bytes) -> Result<(), Error> {
        match self {
            Self::Spdy(writer) => writer.write(data).await,
            Self::WebSocket(writer) => writer.write(&data).await,
        }
    }

    /// Ends the stream, where the protocol can say so.
    async fn finish(&mut self) -> Result<(), Error> {
        match self {
            Self::Spdy(writer) => writer.finish().await,
            Self::WebSocket(_) => Ok(()),
        }
    }
}

/// A client's remote command, on the server's side.
pub struct Session {
    /// What the client types; ends when it has finished or left.
    pub stdin: Option<mpsc::Receiver<Bytes>>,
    /// Standard output.
    pub stdout: Option<Output>,
    /// Standard error.
    pub stderr: Option<Output>,
    /// Terminal sizes, each a JSON object with `Width` and `Height`.
    pub resize: Option<mpsc::Receiver<Bytes>>,
    end: End,
}

/// What is needed to end a session.
struct End {
    error: Output,
    structured: bool,
    carrier: Carrier,
}

enum Carrier {
    Spdy(spdy::Connection),
    WebSocket(Channels),
}

impl Session {
    /// Waits for the upgrade and for the client's streams.
    pub async fn accept(accepted: Accepted, streams: Streams) -> Result<Self, Error> {
        let (kind, protocol) = (accepted.kind, accepted.protocol);
        let io = accepted.io().await?;
        match kind {
            Kind::Spdy => {
                let open = Self::over_spdy(io, protocol, streams);
                tokio::time::timeout(OPEN_TIMEOUT, open)
                    .await
                    .map_err(|_| Error::Timeout("client to create streams"))?
            }
            Kind::WebSocket => Self::over_websocket(io, protocol, streams).await,
        }
    }

    /// Resolves when the client has left.
    pub fn gone(&self) -> CancellationToken {
        match &self.end.carrier {
            Carrier::Spdy(connection) => connection.gone(),
            Carrier::WebSocket(channels) => channels.gone(),
        }
    }

    /// Sends the status and closes the connection in good order.
    pub async fn finish(mut self, outcome: &Outcome) -> Result<(), Error> {
        for output in [&mut self.stdout, &mut self.stderr].into_iter().flatten() {
            output.finish().await?;
        }
        self.end.finish(outcome).await
    }

    async fn over_spdy(io: Io, protocol: &str, streams: Streams) -> Result<Self, Error> {
        let mut connection = spdy::Connection::start(io, spdy::Role::Server);
        let resizes = streams.tty && matches!(protocol, "v3.channel.k8s.io" | "v4.channel.k8s.io");
        let wanted = ["error"].into_iter().chain(stream_types(streams, resizes));
        let expected = wanted.count();
        let (mut stdin, mut stdout, mut stderr, mut error, mut resize) = (None, None, None, None, None);
        for _ in 0..expected {
            let stream = connection.next().await.ok_or(Error::Closed)?.accept().await?;
            let kind = stream.headers.get("streamtype").cloned().unwrap_or_default();
            match kind.as_str() {
                "stdin" => stdin = Some(inbound(stream).await?),
                "resize" => resize = Some(inbound(stream).await?),
                "stdout" => stdout = Some(Output::Spdy(stream.writer)),
                "stderr" => stderr = Some(Output::Spdy(stream.writer)),
                "error" => error = Some(Output::Spdy(stream.writer)),
                _ => return Err(Error::Protocol(format!("invalid stream type {kind:?}"))),
            }
        }
        let error = error.ok_or_else(|| Error::Protocol("there is no error stream".into()))?;
        let end = End { error, structured: protocol == "v4.channel.k8s.io", carrier: Carrier::Spdy(connection) };
        Ok(Self { stdin, stdout, stderr, resize, end })
    }

    async fn over_websocket(io: Io, protocol: &str, streams: Streams) -> Result<Self, Error> {
        let encoding = if protocol.contains("base64") { Encoding::Base64 } else { Encoding::Binary };
        let mut channels = Channels::serve(io, encoding, &[channel::STDIN, channel::RESIZE]).await;
        let writer = |wanted: bool, number| wanted.then(|| channels.writer(number));
        let stdout = writer(streams.stdout, channel::STDOUT);
        let stderr = writer(streams.stderr, channel::STDERR);
        let error = channels.writer(channel::ERROR);
        // An empty message tells the client that the connection stands.
        stdout.as_ref().or(stderr.as_ref()).unwrap_or(&error).write(&[]).await?;
        let stdin = channels.take(channel::STDIN).filter(|_| streams.stdin);
        let resize = channels.take(channel::RESIZE).filter(|_| streams.tty);
        let structured = protocol.starts_with("v4.") || protocol.starts_with("v5.");
        let end = End { error: Output::WebSocket(error), structured, carrier: Carrier::WebSocket(channels) };
        let (stdout, stderr) = (stdout.map(Output::WebSocket), stderr.map(Output::WebSocket));
        Ok(Self { stdin, stdout, stderr, resize, end })
    }
}

impl End {
    async fn finish(mut self, outcome: &Outcome) -> Result<(), Error> {
        let status = outcome.bytes(self.structured);
        if !status.is_empty() {
            self.error.write(status).await?;
        }
        self.error.finish().await?;
        match &self.carrier {
            Carrier::Spdy(connection) => connection.shutdown().await,
            Carrier::WebSocket(channels) => channels.close().await,
        }
        Ok(())
    }
}

/// A remote command on another server, on the client's side (SPDY, v4).
pub struct Client {
    stdin: Option<spdy::Writer>,
    stdout: Option<Reader>,
    stderr: Option<Reader>,
    resize: Option<spdy::Writer>,
    error: Reader,
    // Streams whose other direction is unused must live as long as the session.
    unused: Vec<spdy::Writer>,
    _connection: spdy::Connection,
}

impl Client {
    /// Opens the streams over a connection that was upgraded to `v4.channel.k8s.io`.
    pub async fn open(connected: Connected, streams: Streams) -> Result<Self, Error> {
        let connection = spdy::Connection::start(connected.io, spdy::Role::Client);
        let mut unused = Vec::new();
        let error = outbound(&connection, "error", &mut unused).await?;
        let mut client =
            Self { stdin: None, stdout: None, stderr: None, resize: None, error, unused, _connection: connection };
        for kind in stream_types(streams, streams.tty) {
            let connection = &client._connection;
            match kind {
                "stdin" => client.stdin = Some(connection.open(stream_type(kind)).await?.writer),
                "resize" => client.resize = Some(connection.open(stream_type(kind)).await?.writer),
                "stdout" => client.stdout = Some(outbound(connection, kind, &mut client.unused).await?),
                _ => client.stderr = Some(outbound(connection, kind, &mut client.unused).await?),
            }
        }
        Ok(client)
    }
}

/// Connects a client's session with a command on another server until the command ends or one of both sides leaves.
pub async fn bridge(mut session: Session, mut remote: Client) -> Result<(), Error> {
    let gone = session.gone();
    let input = pump_in(session.stdin.take(), remote.stdin.take());
    let sizes = pump_in(session.resize.take(), remote.resize.take());
    let output = async {
        let stdout = pump_out(&mut remote.stdout, &mut session.stdout);
        let stderr = pump_out(&mut remote.stderr, &mut session.stderr);
        let (stdout, stderr, status) = tokio::join!(stdout, stderr, read_status(&mut remote.error));
        stdout.and(stderr).and(status)
    };
    let status = tokio::select! {
        status = output => status?,
        () = gone.cancelled() => return Err(Error::Closed),
        () = async { tokio::join!(input, sizes); std::future::pending().await } => unreachable!("never resolves"),
    };
    session.finish(&status).await
}

async fn pump_in(from: Option<mpsc::Receiver<Bytes>>, to: Option<spdy::Writer>) {
    let Some(mut to) = to else { return };
    if let Some(mut from) = from {
        while let Some(piece) = from.recv().await {
            if to.write(piece).await.is_err() {
                return;
            }
        }
    }
    // The command may have ended already.
    let _ = to.finish().await;
    to.ended().await;
}

async fn pump_out(from: &mut Option<Reader>, to: &mut Option<Output>) -> Result<(), Error> {
    let (Some(from), Some(to)) = (from, to) else { return Ok(()) };
    while let Some(piece) = from.read().await {
        to.write(piece).await?;
    }
    Ok(())
}

async fn read_status(error: &mut Reader) -> Result<Outcome, Error> {
    let mut status = Vec::new();
    while let Some(piece) = error.read().await {
        if status.len() + piece.len() > MAX_STATUS {
            return Err(Error::Protocol("status is too long".into()));
        }
        status.extend_from_slice(&piece);
    }
    // Since v4 success is said, too.
    Ok(if status.is_empty() { Outcome::failure("the command's status was lost") } else { Outcome::parse(&status) })
}

fn stream_types(streams: Streams, resizes: bool) -> impl Iterator<Item = &'static str> {
    let all = [("stdin", streams.stdin), ("stdout", streams.stdout), ("stderr", streams.stderr), ("resize", resizes)];
    all.into_iter().filter(|(_, wanted)| *wanted).map(|(name, _)| name)
}

fn stream_type(kind: &str) -> Headers {
    [("streamtype".to_owned(), kind.to_owned())].into()
}

/// A stream that the peer only writes to.
async fn outbound(connection: &spdy::Connection, kind: &str, unused: &mut Vec<spdy::Writer>) -> Result<Reader, Error> {
    let stream = connection.open(stream_type(kind)).await?;
    unused.push(stream.writer);
    Ok(stream.reader)
}

/// A stream that only the peer writes to: our direction ends at once.
async fn inbound(mut stream: Stream) -> Result<mpsc::Receiver<Bytes>, Error> {
    stream.writer.finish().await?;
    Ok(stream.reader.into_receiver())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_become_streams() {
        let parse = |pairs: &[(&'static str, &'static str)]| Streams::from_pairs(pairs.iter().copied());
        let all = [("input", "1"), ("output", "1"), ("error", "1")];
        assert_eq!(parse(&all), Ok(Streams { stdin: true, stdout: true, stderr: true, tty: false }));
        let tty = [("output", "1"), ("error", "1"), ("tty", "1")];
        assert_eq!(parse(&tty), Ok(Streams { stdin: false, stdout: true, stderr: false, tty: true }));
        assert!(parse(&[("tty", "1"), ("error", "1")]).is_err());
        assert!(parse(&[("output", "0")]).is_err());
    }

    #[test]
    fn outcomes_are_upstreams_statuses() {
        let text = String::from_utf8(Outcome::exit(3).bytes(true).to_vec()).unwrap();
        let status: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(status["reason"], "NonZeroExitCode");
        assert_eq!(status["details"]["causes"][0], json!({"reason": "ExitCode", "message": "3"}));
        assert_eq!(Outcome::parse(text.as_bytes()).exit_code(), Some(3));
        assert_eq!(Outcome::success().bytes(false), "");
        assert_eq!(Outcome::exit(3).bytes(false), "command terminated with non-zero exit code: 3");
        assert_eq!(Outcome::parse(b"boom").exit_code(), None);
    }
}
