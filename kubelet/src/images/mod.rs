//! Images: present or pulled, with which credentials, and what is said about it.

pub mod credentials;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use parking_lot::Mutex;
use pintle_client::events::Recorder;
use pintle_cri::messages as cri;

use crate::container::security::ImageUser;
use crate::objects::Store;
use crate::pods::spec;

/// An image that is there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Present {
    /// The runtime's id.
    pub id: String,
    /// The user that it names.
    pub user: ImageUser,
}

/// Why an image is not there: reason and message of the waiting state.
#[derive(Clone, Debug, PartialEq)]
pub struct Missing {
    /// Reason.
    pub reason: &'static str,
    /// Message.
    pub message: String,
}

/// Sees to it that images are there. Clones share the times of last use.
#[derive(Clone)]
pub struct Images {
    cri: pintle_cri::Client,
    objects: Store,
    events: Recorder,
    used: Arc<Mutex<HashMap<String, Instant>>>,
}

impl Images {
    /// Images of a runtime.
    pub fn new(cri: pintle_cri::Client, objects: Store, events: Recorder) -> Self {
        Self { cri, objects, events, used: Arc::default() }
    }

    /// An image that the pod names, pulled if the policy asks for it.
    pub async fn ensure(
        &self,
        pod: &Pod,
        (name, policy): (&str, Option<&str>),
        sandbox: &cri::PodSandboxConfig,
        about: &ObjectReference,
    ) -> Result<Present, Missing> {
        let Some(full) = with_tag(name) else {
            let message = format!(
                "Failed to apply default image tag {name:?}: couldn't parse image name {name:?}: invalid reference format"
            );
            self.events.warning(about, "InspectFailed", message.clone());
            return Err(Missing { reason: "InvalidImageName", message });
        };
        let policy = policy.unwrap_or(if full.ends_with(":latest") { "Always" } else { "IfNotPresent" });
        let present = match self.status(&full).await {
            Ok(present) => present,
            Err(error) => {
                let message = format!("Failed to inspect image {name:?}: {error}");
                self.events.warning(about, "InspectFailed", message.clone());
                return Err(Missing { reason: "ImageInspectError", message });
            }
        };
        match (policy, present) {
            ("Always", _) | ("IfNotPresent", None) => self.pull(pod, name, &full, sandbox, about).await,
            (_, Some(present)) => {
                let text = "already present on machine and can be accessed by the pod";
                self.events.normal(about, "Pulled", format!("Container image {name:?} {text}"));
                Ok(present)
            }
            (_, None) => {
                let message = format!("Container image {name:?} is not present with pull policy of Never");
                self.events.warning(about, "ErrImageNeverPull", message.clone());
                Err(Missing { reason: "ErrImageNeverPull", message })
            }
        }
    }

    async fn status(&self, image: &str) -> pintle_cri::Result<Option<Present>> {
        let spec = cri::ImageSpec { image: image.to_owned(), ..cri::ImageSpec::default() };
        let request = cri::ImageStatusRequest { image: Some(spec), verbose: false };
        let found = self.cri.image_status(request).await?.image;
        Ok(found.map(|image| {
            self.used.lock().insert(image.id.clone(), Instant::now());
            let user = ImageUser { uid: image.uid.map(|v| v.value), name: image.username };
            Present { id: image.id, user }
        }))
    }

    async fn pull(
        &self,
        pod: &Pod,
        name: &str,
        full: &str,
        sandbox: &cri::PodSandboxConfig,
        about: &ObjectReference,
    ) -> Result<Present, Missing> {
        self.events.normal(about, "Pulling", format!("Pulling image {name:?}"));
        let begun = Instant::now();
        let failed = |message: String| {
            self.events.warning(about, "Failed", format!("Failed to pull image {name:?}: {message}"));
            Missing { reason: "ErrImagePull", message }
        };
        let mut outcome = Ok(String::new());
        for auth in self.credentials(pod, full).await {
            let spec = cri::ImageSpec { image: full.to_owned(), ..cri::ImageSpec::default() };
            let request = cri::PullImageRequest { image: Some(spec), auth, sandbox_config: Some(sandbox.clone()) };
            outcome = self.cri.pull_image(request).await.map(|answer| answer.image_ref).map_err(|e| e.to_string());
            if outcome.is_ok() {
                break;
            }
        }
        outcome.map_err(failed)?;
        let present = self.status(full).await.map_err(|e| failed(e.to_string()))?;
        let present = present.ok_or_else(|| failed("image is gone after the pull".to_owned()))?;
        let took = seconds(begun.elapsed());
        let size = self.size(full).await;
        let text = format!(
            "Successfully pulled image {name:?} in {took} ({took} including waiting). Image size: {size} bytes."
        );
        self.events.normal(about, "Pulled", text);
        Ok(present)
    }

    async fn size(&self, image: &str) -> u64 {
        let spec = cri::ImageSpec { image: image.to_owned(), ..cri::ImageSpec::default() };
        let request = cri::ImageStatusRequest { image: Some(spec), verbose: false };
        self.cri.image_status(request).await.ok().and_then(|a| a.image).map_or(0, |i| i.size)
    }

    /// Credentials to try, from the pod's pull secrets; none at all is the last resort.
    async fn credentials(&self, pod: &Pod, image: &str) -> Vec<Option<cri::AuthConfig>> {
        let mut all = Vec::new();
        for reference in spec::spec(pod).image_pull_secrets.iter().flatten() {
            match self.objects.secret(spec::namespace(pod), &reference.name).await {
                Ok(Some(secret)) => all.extend(credentials::from_secret(&secret, image).map(Some)),
                Ok(None) => {
                    let text = format!(
                        "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                        reference.name
                    );
                    self.events.warning(&spec::reference(pod), "FailedToRetrieveImagePullSecret", text);
                }
                Err(error) => tracing::debug!(%error, "image pull secret not read"),
            }
        }
        if all.is_empty() {
            all.push(None);
        }
        all
    }

    /// When an image was last asked for by a pod of this process.
    pub fn last_used(&self, id: &str) -> Option<Instant> {
        self.used.lock().get(id).copied()
    }

    /// Forgets images that are gone.
    pub fn forget(&self, id: &str) {
        self.used.lock().remove(id);
    }
}

/// A duration as Go prints it, to the millisecond.
fn seconds(d: std::time::Duration) -> String {
    let millis = d.as_millis();
    match millis {
        0..1000 => format!("{millis}ms"),
        _ => {
            let text = format!("{}.{:03}", millis / 1000, millis % 1000);
            format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
        }
    }
}

/// The name with `:latest` if it has neither tag nor digest; `None` if it is no image name.
fn with_tag(name: &str) -> Option<String> {
    let (path, digest) = match name.split_once('@') {
        Some((path, digest)) => (path, Some(digest)),
        None => (name, None),
    };
    let last = path.rsplit('/').next()?;
    let (_, tag) = match last.split_once(':') {
        Some((base, tag)) => (base, Some(tag)),
        None => (last, None),
    };
    let without_tag = tag.map_or(path, |t| &path[..path.len() - t.len() - 1]);
    let mut parts = without_tag.split('/');
    let first = parts.clone().next()?;
    let registry = without_tag.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    if registry {
        parts.next();
    }
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    let word = |p: &str| !p.is_empty() && p.chars().all(allowed) && p.starts_with(|c: char| c.is_ascii_alphanumeric());
    let mut count = 0;
    let good = parts.all(|p| {
        count += 1;
        word(p)
    });
    let tag_ok = tag.is_none_or(|t| !t.is_empty() && t.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)));
    let digest_ok = digest.is_none_or(|d| d.split_once(':').is_some_and(|(_, hex)| hex.len() >= 32));
    if !good || count == 0 || !tag_ok || !digest_ok {
        return None;
    }
    Some(if tag.is_none() && digest.is_none() { format!("{name}:latest") } else { name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let cases = [
            ("busybox", Some("busybox:latest")),
            ("busybox:1", Some("busybox:1")),
            ("reg:5000/a/b", Some("reg:5000/a/b:latest")),
            ("reg.io/a/b:t", Some("reg.io/a/b:t")),
            ("localhost/x", Some("localhost/x:latest")),
            ("Busy", None),
            ("", None),
            ("a b", None),
            ("a:", None),
            ("a@sha256:0123456789abcdef0123456789abcdef", Some("a@sha256:0123456789abcdef0123456789abcdef")),
            ("a@sha256", None),
        ];
        for (name, want) in cases {
            assert_eq!(with_tag(name).as_deref(), want, "{name}");
        }
    }

    #[test]
    fn durations() {
        let of = |ms| seconds(std::time::Duration::from_millis(ms));
        assert_eq!((of(7).as_str(), of(1000).as_str(), of(1230).as_str()), ("7ms", "1s", "1.23s"));
    }
}
