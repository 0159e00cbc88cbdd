//! `pintle conformance registry`: image layouts as a registry (OCI distribution-spec, pulling only), plain HTTP. It stands
//! for every registry: the client tells which one it means, as containerd does for its mirrors.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use futures::TryStreamExt;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use tokio_util::io::ReaderStream;
use tokio_util::sync::CancellationToken;

/// Type of what is no manifest.
const BYTES: &str = "application/octet-stream";

type Body = BoxBody<Bytes, std::io::Error>;

/// `pintle conformance registry`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address to listen on.
    #[arg(long)]
    listen: SocketAddr,
    /// OCI layout folders.
    #[arg(required = true)]
    layouts: Vec<PathBuf>,
}

/// Serves until `shutdown`.
pub async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let content = Arc::new(Content::read(&args.layouts)?);
    let listener =
        tokio::net::TcpListener::bind(args.listen).await.with_context(|| format!("listening on {}", args.listen))?;
    tracing::info!(images = content.tags.len(), address = %args.listen, "registry");
    loop {
        let stream = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            accepted = listener.accept() => accepted?.0,
        };
        let content = content.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let content = content.clone();
                async move { Ok::<_, Infallible>(answer(&content, &request).await) }
            });
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
        });
    }
}

/// What the layouts hold.
#[derive(Debug, Default)]
struct Content {
    /// Digest by full name.
    tags: BTreeMap<String, String>,
    /// Media type by digest.
    manifests: BTreeMap<String, String>,
    layouts: Vec<PathBuf>,
}

impl Content {
    fn read(layouts: &[PathBuf]) -> anyhow::Result<Self> {
        let mut content = Self { layouts: layouts.to_vec(), ..Self::default() };
        for layout in layouts {
            let file = layout.join("index.json");
            let text = std::fs::read(&file).with_context(|| format!("{} is no OCI layout", layout.display()))?;
            content.add(&serde_json::from_slice(&text).with_context(|| format!("reading {}", file.display()))?);
        }
        Ok(content)
    }

    fn add(&mut self, index: &serde_json::Value) {
        for manifest in index["manifests"].as_array().into_iter().flatten() {
            let text = |pointer: &str| manifest.pointer(pointer).and_then(|v| v.as_str()).map(str::to_owned);
            let (Some(digest), Some(kind)) = (text("/digest"), text("/mediaType")) else { continue };
            if let Some(name) = text("/annotations/io.containerd.image.name") {
                self.tags.insert(name, digest.clone());
            }
            self.manifests.insert(digest, kind);
        }
    }

    /// The digest of a tag: in the registry that is meant, or in the only one that has it.
    fn tagged(&self, registry: Option<&str>, repository: &str, tag: &str) -> Option<&str> {
        if let Some(registry) = registry {
            return self.tags.get(&format!("{registry}/{repository}:{tag}")).map(String::as_str);
        }
        let wanted = format!("/{repository}:{tag}");
        let whole = |name: &&String| name.split_once('/').is_some_and(|(_, rest)| rest == &wanted[1..]);
        let found: BTreeSet<&String> = self.tags.keys().filter(whole).collect();
        match found.len() {
            1 => self.tags.get(*found.first()?).map(String::as_str),
            _ => None,
        }
    }

    /// Where the content of a digest is.
    fn blob(&self, digest: &str) -> Option<PathBuf> {
        let hex = digest.strip_prefix("sha256:")?;
        let plain = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
        let name = plain.then(|| Path::new("blobs/sha256").join(hex))?;
        self.layouts.iter().map(|layout| layout.join(&name)).find(|path| path.exists())
    }
}

/// What a path asks for.
#[derive(Debug, PartialEq)]
enum Asked<'a> {
    /// Whether this is a registry.
    Version,
    /// A manifest, by tag or digest.
    Manifest(&'a str, &'a str),
    /// A blob, by digest.
    Blob(&'a str),
}

fn parse(path: &str) -> Option<Asked<'_>> {
    let path = path.strip_prefix("/v2")?;
    if path.is_empty() || path == "/" {
        return Some(Asked::Version);
    }
    let (rest, reference) = path.strip_prefix('/')?.rsplit_once('/')?;
    let (repository, kind) = rest.rsplit_once('/')?;
    match kind {
        "manifests" => Some(Asked::Manifest(repository, reference)),
        "blobs" => Some(Asked::Blob(reference)),
        _ => None,
    }
}

async fn answer(content: &Content, request: &Request<Incoming>) -> Response<Body> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "");
    }
    let registry = request.uri().query().and_then(|query| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == "ns").map(|(_, value)| value)
    });
    let digest = match parse(request.uri().path()) {
        Some(Asked::Version) => return plain(StatusCode::OK, "{}"),
        Some(Asked::Blob(digest)) => Some(digest),
        Some(Asked::Manifest(_, digest)) if digest.starts_with("sha256:") => Some(digest),
        Some(Asked::Manifest(repository, tag)) => content.tagged(registry, repository, tag),
        None => None,
    };
    let found = digest.and_then(|digest| Some((digest, content.blob(digest)?)));
    let Some((digest, path)) = found else { return plain(StatusCode::NOT_FOUND, "") };
    match send(content, digest, &path, request.method() == Method::GET).await {
        Ok(response) => response,
        Err(error) => {
            tracing::warn!(%error, digest, "content not readable");
            plain(StatusCode::INTERNAL_SERVER_ERROR, "")
        }
    }
}

async fn send(content: &Content, digest: &str, path: &Path, whole: bool) -> std::io::Result<Response<Body>> {
    let file = tokio::fs::File::open(path).await?;
    let size = file.metadata().await?.len();
    let body = if whole {
        BodyExt::boxed(StreamBody::new(ReaderStream::with_capacity(file, 1 << 18).map_ok(Frame::data)))
    } else {
        empty()
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let kind = content.manifests.get(digest).map_or(BYTES, String::as_str);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(kind).map_err(std::io::Error::other)?);
    headers.insert(header::CONTENT_LENGTH, size.into());
    headers.insert("docker-content-digest", HeaderValue::from_str(digest).map_err(std::io::Error::other)?);
    Ok(response)
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())).map_err(|e| match e {}).boxed());
    *response.status_mut() = status;
    response
}

fn empty() -> Body {
    Full::new(Bytes::new()).map_err(|e| match e {}).boxed()
}

#[cfg(test)]
mod tests {
    use pintle_cri::archive::{Entry, Image, Layout};

    use super::*;

    #[test]
    fn paths_are_understood() {
        let table = [
            ("/v2/", Some(Asked::Version)),
            ("/v2", Some(Asked::Version)),
            ("/v2/a/b/manifests/1.0", Some(Asked::Manifest("a/b", "1.0"))),
            ("/v2/a/blobs/sha256:00", Some(Asked::Blob("sha256:00"))),
            ("/v2/a/tags/list", None),
            ("/v3/a/manifests/1", None),
            ("/v2/manifests", None),
        ];
        for (path, asked) in table {
            assert_eq!(parse(path), asked, "{path}");
        }
    }

    #[tokio::test]
    async fn images_are_served_by_tag_and_digest_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let mut layout = Layout::create(dir.path()).unwrap();
        let layer = vec![Entry::File("a".to_owned(), b"content".to_vec(), 0o644)];
        layout.add(&Image { name: "one.test/a/b:1".to_owned(), layer, ..Image::default() }, &[]).unwrap();
        layout.finish().unwrap();
        let content = Content::read(&[dir.path().to_owned()]).unwrap();
        let digest = content.tagged(None, "a/b", "1").unwrap().to_owned();
        assert_eq!(content.tagged(Some("one.test"), "a/b", "1"), Some(digest.as_str()));
        assert_eq!(content.tagged(Some("two.test"), "a/b", "1"), None);
        assert_eq!(content.tagged(None, "b", "1"), None);
        assert!(content.blob(&digest).is_some());
        assert!(content.blob("sha256:../../index.json").is_none());
        let response = send(&content, &digest, &content.blob(&digest).unwrap(), true).await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/vnd.oci.image.manifest.v1+json");
        let length: usize = response.headers()["content-length"].to_str().unwrap().parse().unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), length);
    }
}
