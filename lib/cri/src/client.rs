//! The client: a table of calls over one lazily made, self-healing connection.

use std::path::PathBuf;
use std::time::Duration;

use futures::{Stream, StreamExt};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic_prost::ProstCodec;

use crate::messages::*;
use crate::{Error, Result};

/// Time limit of ordinary calls: upstream's runtimeRequestTimeout.
const ORDINARY: Duration = Duration::from_secs(120);
/// Making a sandbox includes the pod network.
const SANDBOX: Duration = Duration::from_secs(240);
/// Calls that are polled.
const POLLED: Duration = Duration::from_secs(30);
/// A pull takes what it takes; the caller cancels.
const UNLIMITED: Duration = Duration::from_secs(24 * 3600);
/// Lists of thousands of containers are larger than gRPC's default of 4 MiB.
const MAX_MESSAGE: usize = 16 << 20;

/// Stream of the runtime's container events.
pub type EventStream = std::pin::Pin<Box<dyn Stream<Item = Result<ContainerEventResponse>> + Send>>;

/// Client of both CRI services; clones share the connection.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
}

impl Client {
    /// A client for an endpoint `unix:///path/to/socket` (or a bare path). Must be called within a tokio runtime;
    /// connects on first use.
    pub fn new(endpoint: &str) -> Result<Self> {
        let path = socket_path(endpoint).ok_or_else(|| Error::Endpoint(endpoint.to_owned()))?;
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The authority is never resolved: the connector ignores it.
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector);
        Ok(Self { channel })
    }

    async fn unary<Q, A>(&self, path: &'static str, limit: Duration, request: Q) -> Result<A>
    where
        Q: prost::Message + Default + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE);
        let call = async {
            grpc.ready().await.map_err(unavailable)?;
            let mut request = tonic::Request::new(request);
            request.set_timeout(limit);
            let codec: ProstCodec<Q, A> = ProstCodec::default();
            let answer = grpc.unary(request, PathAndQuery::from_static(path), codec).await?;
            Ok(answer.into_inner())
        };
        tokio::time::timeout(limit, call).await.map_err(|_| Error::Timeout)?
    }

    /// Stops a container: TERM (or the image's stop signal), then KILL after `grace` seconds.
    pub async fn stop_container(&self, container_id: &str, grace: i64) -> Result<()> {
        let request = StopContainerRequest { container_id: container_id.to_owned(), timeout: grace };
        let limit = ORDINARY + Duration::from_secs(grace.max(0).unsigned_abs());
        let path = "/runtime.v1.RuntimeService/StopContainer";
        self.unary::<_, StopContainerResponse>(path, limit, request).await.map(drop)
    }

    /// Runs a command in a container and waits for it; `timeout` of zero means none.
    pub async fn exec_sync(&self, container_id: &str, cmd: Vec<String>, timeout: Duration) -> Result<ExecSyncResponse> {
        // CRI has whole seconds.
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        let limit = if timeout.is_zero() { UNLIMITED } else { ORDINARY + timeout };
        let timeout = i64::try_from(seconds).unwrap_or(i64::MAX);
        let request = ExecSyncRequest { container_id: container_id.to_owned(), cmd, timeout };
        self.unary("/runtime.v1.RuntimeService/ExecSync", limit, request).await
    }

    /// Events of containers as they happen; runtimes before containerd 1.7 answer `Unimplemented`.
    pub async fn container_events(&self) -> Result<EventStream> {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE);
        grpc.ready().await.map_err(unavailable)?;
        let codec: ProstCodec<GetEventsRequest, ContainerEventResponse> = ProstCodec::default();
        let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/GetContainerEvents");
        let stream = grpc.server_streaming(tonic::Request::new(GetEventsRequest {}), path, codec).await?.into_inner();
        Ok(Box::pin(stream.map(|event| event.map_err(Error::from))))
    }
}

/// One line a call: `method(Request) -> Response, Service/Call, limit;`.
macro_rules! calls {
    ($($(#[$doc:meta])* $method:ident($request:ty) -> $answer:ty, $call:literal, $limit:ident;)*) => {
        impl Client {$(
            $(#[$doc])*
            pub async fn $method(&self, request: $request) -> Result<$answer> {
                self.unary(concat!("/runtime.v1.", $call), $limit, request).await
            }
        )*}
    };
}

calls! {
    /// Name and version of the runtime.
    version(VersionRequest) -> VersionResponse, "RuntimeService/Version", POLLED;
    /// Makes and starts a sandbox.
    run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse, "RuntimeService/RunPodSandbox", SANDBOX;
    /// Stops what runs in a sandbox and gives back its network; may be repeated.
    stop_pod_sandbox(StopPodSandboxRequest) -> StopPodSandboxResponse, "RuntimeService/StopPodSandbox", ORDINARY;
    /// Removes a sandbox and its containers; may be repeated.
    remove_pod_sandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse, "RuntimeService/RemovePodSandbox", ORDINARY;
    /// State of a sandbox.
    pod_sandbox_status(PodSandboxStatusRequest) -> PodSandboxStatusResponse, "RuntimeService/PodSandboxStatus", POLLED;
    /// Sandboxes by filter.
    list_pod_sandbox(ListPodSandboxRequest) -> ListPodSandboxResponse, "RuntimeService/ListPodSandbox", POLLED;
    /// Makes a container in a sandbox.
    create_container(CreateContainerRequest) -> CreateContainerResponse, "RuntimeService/CreateContainer", ORDINARY;
    /// Starts a made container.
    start_container(StartContainerRequest) -> StartContainerResponse, "RuntimeService/StartContainer", ORDINARY;
    /// Removes a container; may be repeated.
    remove_container(RemoveContainerRequest) -> RemoveContainerResponse, "RuntimeService/RemoveContainer", ORDINARY;
    /// Containers by filter.
    list_containers(ListContainersRequest) -> ListContainersResponse, "RuntimeService/ListContainers", POLLED;
    /// State of a container.
    container_status(ContainerStatusRequest) -> ContainerStatusResponse, "RuntimeService/ContainerStatus", POLLED;
    /// Changes a container's resources in place.
    update_container_resources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse,
        "RuntimeService/UpdateContainerResources", ORDINARY;
    /// Makes the runtime open a rotated log file anew.
    reopen_container_log(ReopenContainerLogRequest) -> ReopenContainerLogResponse,
        "RuntimeService/ReopenContainerLog", ORDINARY;
    /// A URL to stream a command's input and output.
    exec(ExecRequest) -> ExecResponse, "RuntimeService/Exec", ORDINARY;
    /// A URL to stream a running container's input and output.
    attach(AttachRequest) -> AttachResponse, "RuntimeService/Attach", ORDINARY;
    /// A URL to stream ports of a sandbox.
    port_forward(PortForwardRequest) -> PortForwardResponse, "RuntimeService/PortForward", ORDINARY;
    /// Usage of one container.
    container_stats(ContainerStatsRequest) -> ContainerStatsResponse, "RuntimeService/ContainerStats", POLLED;
    /// Usage of containers by filter.
    list_container_stats(ListContainerStatsRequest) -> ListContainerStatsResponse,
        "RuntimeService/ListContainerStats", POLLED;
    /// Usage of one sandbox.
    pod_sandbox_stats(PodSandboxStatsRequest) -> PodSandboxStatsResponse, "RuntimeService/PodSandboxStats", POLLED;
    /// Usage of sandboxes by filter.
    list_pod_sandbox_stats(ListPodSandboxStatsRequest) -> ListPodSandboxStatsResponse,
        "RuntimeService/ListPodSandboxStats", POLLED;
    /// Tells the runtime the node's pod CIDR.
    update_runtime_config(UpdateRuntimeConfigRequest) -> UpdateRuntimeConfigResponse,
        "RuntimeService/UpdateRuntimeConfig", ORDINARY;
    /// Health of runtime and network.
    status(StatusRequest) -> StatusResponse, "RuntimeService/Status", POLLED;
    /// The runtime's cgroup driver (containerd 2.0 and newer).
    runtime_config(RuntimeConfigRequest) -> RuntimeConfigResponse, "RuntimeService/RuntimeConfig", POLLED;
    /// Images by filter.
    list_images(ListImagesRequest) -> ListImagesResponse, "ImageService/ListImages", POLLED;
    /// One image; absent in the answer if the runtime does not have it.
    image_status(ImageStatusRequest) -> ImageStatusResponse, "ImageService/ImageStatus", POLLED;
    /// Pulls an image.
    pull_image(PullImageRequest) -> PullImageResponse, "ImageService/PullImage", UNLIMITED;
    /// Removes an image; may be repeated.
    remove_image(RemoveImageRequest) -> RemoveImageResponse, "ImageService/RemoveImage", ORDINARY;
    /// Usage of the file systems that hold images.
    image_fs_info(ImageFsInfoRequest) -> ImageFsInfoResponse, "ImageService/ImageFsInfo", POLLED;
}

fn socket_path(endpoint: &str) -> Option<PathBuf> {
    let path = match endpoint.split_once("://") {
        Some(("unix", path)) => path,
        Some(_) => return None,
        None => endpoint.strip_prefix("unix:").unwrap_or(endpoint),
    };
    path.starts_with('/').then(|| PathBuf::from(path))
}

fn unavailable(error: tonic::transport::Error) -> Error {
    use std::error::Error as _;
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    Error::Rpc { code: tonic::Code::Unavailable, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        let cases = [
            ("unix:///run/a.sock", Some("/run/a.sock")),
            ("/run/a.sock", Some("/run/a.sock")),
            ("unix:/run/a.sock", Some("/run/a.sock")),
            ("tcp://127.0.0.1:1", None),
            ("run/a.sock", None),
        ];
        for (endpoint, want) in cases {
            assert_eq!(socket_path(endpoint), want.map(PathBuf::from), "{endpoint}");
        }
    }

    #[tokio::test]
    async fn a_missing_runtime_is_unavailable_not_a_hang() {
        let client = Client::new("unix:///nonexistent/cri.sock").unwrap();
        let error = client.version(VersionRequest::default()).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::Unavailable, "{error}");
    }
}
