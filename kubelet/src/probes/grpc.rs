//! The gRPC health check (`grpc.health.v1.Health/Check`).

use std::time::Duration;

use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

use super::{Outcome, http};

#[derive(Clone, PartialEq, prost::Message)]
struct Request {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Answer {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// Names of the serving states by number.
const STATES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

/// Asks a server about one of its services.
pub async fn check(host: &str, port: u16, service: &str, limit: Duration) -> Outcome {
    let address = http::authority(host, port);
    let late = || {
        format!("timeout: failed to connect service {address:?} within {}s: context deadline exceeded", limit.as_secs())
    };
    match tokio::time::timeout(limit, call(&address, service)).await {
        Ok(Ok(1)) => Outcome::Success,
        Ok(Ok(state)) => {
            let name = usize::try_from(state).ok().and_then(|i| STATES.get(i)).unwrap_or(&"UNKNOWN");
            Outcome::Failure(format!("service unhealthy (responded with {name:?})"))
        }
        Ok(Err(Some(status))) if status.code() == tonic::Code::Unimplemented => Outcome::Failure(format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
            status.message()
        )),
        Ok(Err(Some(status))) => Outcome::Failure(format!("error: health rpc probe failed: {}", status.message())),
        Ok(Err(None)) | Err(_) => Outcome::Failure(late()),
    }
}

/// The serving state; `Err(None)` if there is no connection.
async fn call(address: &str, service: &str) -> Result<i32, Option<tonic::Status>> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| None)?;
    let channel = endpoint.user_agent("kube-probe/1.37").map_err(|_| None)?.connect().await.map_err(|_| None)?;
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|_| None)?;
    let codec: ProstCodec<Request, Answer> = ProstCodec::default();
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let request = tonic::Request::new(Request { service: service.to_owned() });
    Ok(client.unary(request, path, codec).await.map_err(Some)?.into_inner().status)
}
