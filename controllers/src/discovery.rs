//! Which resources the server has.

use kube::Client;
use kube::core::ApiResource;
use kube::discovery::{ApiCapabilities, Discovery, Scope};

/// One resource in the version that the server prefers.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Names and version.
    pub api: ApiResource,
    /// True if its objects live in namespaces.
    pub namespaced: bool,
    verbs: Vec<String>,
}

impl Resource {
    /// True if the resource can do that.
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
}

/// All resources, each once.
pub async fn resources(client: &Client) -> kube::Result<Vec<Resource>> {
    let found = match Discovery::new(client.clone()).run_aggregated().await {
        Ok(found) => found,
        Err(error) => {
            tracing::debug!(%error, "no aggregated discovery, asking group by group");
            Discovery::new(client.clone()).run().await?
        }
    };
    let all = found.groups().flat_map(|group| group.resources_by_stability());
    Ok(all.map(|(api, caps)| resource(api, caps)).collect())
}

fn resource(api: ApiResource, caps: ApiCapabilities) -> Resource {
    Resource { api, namespaced: caps.scope == Scope::Namespaced, verbs: caps.operations }
}
