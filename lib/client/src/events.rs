//! Events about objects, fire and forget; repeats are counted rather than written anew.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use tokio::sync::mpsc;

/// Events that may wait to be written; more are dropped, as upstream's broadcaster does.
const BACKLOG: usize = 1000;
/// Distinct events whose count is remembered.
const REMEMBERED: usize = 4096;

struct Request {
    object: ObjectReference,
    kind: &'static str,
    reason: String,
    message: String,
    at: Timestamp,
}

/// Writes core/v1 Events in the background. Clones share the writer, which ends when the last clone is gone.
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Request>,
}

impl Recorder {
    /// A recorder for a component (`kubelet`, `deployment-controller`, …); `host` is the node's name or empty.
    pub fn new(client: Client, component: &str, host: &str) -> Self {
        let (queue, requests) = mpsc::channel(BACKLOG);
        let source = EventSource {
            component: Some(component.to_owned()),
            host: Some(host.to_owned()).filter(|h| !h.is_empty()),
        };
        tokio::spawn(write_all(client, source, requests));
        Self { queue }
    }

    /// Records an event of type Normal.
    pub fn normal(&self, object: &ObjectReference, reason: &str, message: impl Into<String>) {
        self.record(object, "Normal", reason, message.into());
    }

    /// Records an event of type Warning.
    pub fn warning(&self, object: &ObjectReference, reason: &str, message: impl Into<String>) {
        self.record(object, "Warning", reason, message.into());
    }

    fn record(&self, object: &ObjectReference, kind: &'static str, reason: &str, message: String) {
        let request =
            Request { object: object.clone(), kind, reason: reason.to_owned(), message, at: Timestamp::now() };
        if self.queue.try_send(request).is_err() {
            tracing::debug!(reason, "event dropped: too many are waiting");
        }
    }
}

/// Name and count of an event that was written before.
struct Written {
    name: String,
    count: i32,
}

async fn write_all(client: Client, source: EventSource, mut requests: mpsc::Receiver<Request>) {
    let mut written: HashMap<String, Written> = HashMap::new();
    while let Some(request) = requests.recv().await {
        let ns = request.object.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let api: Api<Event> = Api::namespaced(client.clone(), &ns);
        let key = identity(&request);
        let repeated = match written.get_mut(&key) {
            Some(known) => {
                known.count += 1;
                repeat(&api, known, request.at).await
            }
            None => Ok(false),
        };
        match repeated {
            Ok(true) => {}
            Ok(false) => {
                let event = event(&ns, &source, &request);
                let name = event.metadata.name.clone().unwrap_or_default();
                match api.create(&PostParams::default(), &event).await {
                    Ok(_) => {
                        if written.len() >= REMEMBERED {
                            written.clear();
                        }
                        written.insert(key, Written { name, count: 1 });
                    }
                    Err(error) => tracing::debug!(%error, reason = request.reason, "event not written"),
                }
            }
            Err(error) => tracing::debug!(%error, reason = request.reason, "event not counted"),
        }
    }
}

/// Counts a repeat; false if the event has expired meanwhile.
async fn repeat(api: &Api<Event>, known: &Written, at: Timestamp) -> kube::Result<bool> {
    let patch = serde_json::json!({"count": known.count, "lastTimestamp": Time(at)});
    match api.patch(&known.name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

fn identity(r: &Request) -> String {
    let o = &r.object;
    let part = |s: &Option<String>| s.clone().unwrap_or_default();
    [part(&o.uid), part(&o.namespace), part(&o.name), part(&o.field_path), r.reason.clone(), r.message.clone()]
        .join("\u{0}")
}

fn event(ns: &str, source: &EventSource, r: &Request) -> Event {
    let name = format!("{}.{:x}", r.object.name.as_deref().unwrap_or_default(), r.at.as_nanosecond());
    Event {
        metadata: ObjectMeta { name: Some(name), namespace: Some(ns.to_owned()), ..ObjectMeta::default() },
        involved_object: r.object.clone(),
        type_: Some(r.kind.to_owned()),
        reason: Some(r.reason.clone()),
        message: Some(r.message.clone()),
        source: Some(source.clone()),
        first_timestamp: Some(Time(r.at)),
        last_timestamp: Some(Time(r.at)),
        count: Some(1),
        reporting_component: source.component.clone(),
        reporting_instance: source.host.clone(),
        ..Event::default()
    }
}
