//! Errors of CRI calls.

pub use tonic::Code;

/// Result of a CRI call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a CRI call failed. The text of [`Error::Rpc`] is worded as gRPC clients in Go word it, because it ends up in
/// container statuses and events.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The runtime answered with an error.
    #[error("rpc error: code = {} desc = {message}", code_name(*.code))]
    Rpc {
        /// gRPC status code.
        code: Code,
        /// The runtime's message.
        message: String,
    },
    /// No answer within the call's time limit.
    #[error("rpc error: code = DeadlineExceeded desc = context deadline exceeded")]
    Timeout,
    /// The endpoint is not of the form `unix:///path`.
    #[error("invalid CRI endpoint {0:?}: want unix:///path")]
    Endpoint(String),
}

impl Error {
    /// The gRPC code of the failure.
    pub fn code(&self) -> Code {
        match self {
            Error::Rpc { code, .. } => *code,
            Error::Timeout => Code::DeadlineExceeded,
            Error::Endpoint(_) => Code::InvalidArgument,
        }
    }

    /// The object is unknown to the runtime.
    pub fn is_not_found(&self) -> bool {
        self.code() == Code::NotFound
    }

    /// The runtime does not know the call.
    pub fn is_unimplemented(&self) -> bool {
        self.code() == Code::Unimplemented
    }
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        Error::Rpc { code: status.code(), message: status.message().to_owned() }
    }
}

/// Names as Go's gRPC prints them: equal to tonic's, but for two.
fn code_name(code: Code) -> String {
    match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wording_is_that_of_go() {
        let cases = [
            (tonic::Status::not_found("no such image"), "rpc error: code = NotFound desc = no such image"),
            (tonic::Status::cancelled("x"), "rpc error: code = Canceled desc = x"),
            (tonic::Status::deadline_exceeded("y"), "rpc error: code = DeadlineExceeded desc = y"),
        ];
        for (status, want) in cases {
            assert_eq!(Error::from(status).to_string(), want);
        }
    }
}
