//! Upgraded connections: SPDY/3.1 and WebSocket, as `kubectl exec`, `attach` and `port-forward` use them.
//!
//! - [`spdy`]: the framing and a multiplexed connection, either side.
//! - [`websocket`]: Kubernetes' channel protocols over WebSocket.
//! - [`upgrade`]: what an HTTP request asks to be upgraded to, the answer, and the client side of an upgrade.
//! - [`remote`]: one command session (stdin, stdout, stderr, resize, status), whatever carries it.
//! - [`portforward`]: forwarded ports, whatever carries them.
//! - [`tunnel`]: bytes passed through unchanged, or wrapped in WebSocket messages.
//! - [`log`]: a byte stream sent to a WebSocket client.

pub mod log;
pub mod portforward;
pub mod remote;
pub mod spdy;
pub mod tunnel;
pub mod upgrade;
pub mod websocket;

/// What can go wrong on an upgraded connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The transport failed.
    #[error("connection failed")]
    Io(#[from] std::io::Error),
    /// The HTTP layer failed before or during the upgrade.
    #[error("HTTP exchange failed")]
    Http(#[from] hyper::Error),
    /// The WebSocket layer failed.
    #[error("WebSocket failed")]
    WebSocket(#[from] tokio_tungstenite::tungstenite::Error),
    /// The peer broke the protocol.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// The other side answered an upgrade request with something other than 101.
    #[error("unable to upgrade connection: {status}: {message}")]
    Refused {
        /// The HTTP status it answered with.
        status: http::StatusCode,
        /// The beginning of its body.
        message: String,
    },
    /// The connection is gone.
    #[error("connection closed")]
    Closed,
    /// The peer did not do its part in time.
    #[error("timed out waiting for {0}")]
    Timeout(&'static str),
}
