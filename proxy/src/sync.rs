//! Brings the kernel's tables to a state, by the smallest transaction that does.

use tracing::{debug, warn};

use crate::conntrack;
use crate::model::Portal;
use crate::netns::{Error, Namespace};
use crate::ruleset::{Ruleset, Settings, build};
use crate::script::Table;

/// One table of ours, and what it has.
pub struct Syncer {
    table: Table,
    settings: Settings,
    namespace: Namespace,
    known: Known,
}

/// What is known of a table and of the flows that went through it.
#[derive(Default)]
struct Known {
    /// What was written last; nothing if that is not sure.
    rules: Option<Ruleset>,
    /// The portals that were served last: flows to their endpoints may still be tracked, whatever became of the table.
    portals: Vec<Portal>,
}

impl Known {
    /// The rules were written; what is to be forgotten of flows now.
    fn written(&mut self, rules: Ruleset, portals: Vec<Portal>) -> Vec<conntrack::Flush> {
        let stale = conntrack::stale(&self.portals, &portals);
        (self.rules, self.portals) = (Some(rules), portals);
        stale
    }
}

impl Syncer {
    /// A table about which nothing is known yet.
    pub fn new(table: Table, settings: Settings, namespace: Namespace) -> Syncer {
        Syncer { table, settings, namespace, known: Known::default() }
    }

    /// Makes the table serve these portals.
    ///
    /// # Errors
    /// If nft refuses even the complete table; the old contents stay.
    pub async fn sync(&mut self, portals: Vec<Portal>) -> Result<(), Error> {
        let rules = build(&portals, &self.settings);
        let before = self.known.rules.take();
        let mut done = false;
        if let Some(before) = &before {
            let script = self.table.change(before, &rules);
            if !script.is_empty() {
                debug!(table = self.table.name, lines = script.lines().count(), "changing rules");
            }
            done = script.is_empty() || self.apply(&script).await;
        }
        if !done {
            self.namespace.nft(&self.table.replace(&rules)).await?;
        }
        for flush in self.known.written(rules, portals) {
            let arguments: Vec<&str> = flush.iter().map(String::as_str).collect();
            // It fails when there is nothing to forget.
            if let Err(error) = self.namespace.run("conntrack", &arguments, "").await {
                debug!(%error, "nothing forgotten");
            }
        }
        Ok(())
    }

    /// Serves by these settings from the next sync on.
    pub fn adopt(&mut self, settings: Settings) {
        self.settings = settings;
        self.known.rules = None;
    }

    async fn apply(&self, script: &str) -> bool {
        let result = self.namespace.nft(script).await;
        if let Err(error) = &result {
            warn!(table = self.table.name, %error, "the table is not as expected, writing all of it");
        }
        result.is_ok()
    }

    /// Notes if the table has gone, so that the next sync writes all of it.
    pub async fn verify(&mut self) {
        let path = self.table.path();
        let mut arguments = vec!["list", "chain"];
        arguments.extend(path.split(' '));
        arguments.push("services");
        if self.namespace.run("nft", &arguments, "").await.is_err() {
            self.known.rules = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use serde_json::json;

    use super::*;
    use crate::model::{Place, portals};

    fn service(endpoint: &str) -> Vec<Portal> {
        let service = json!({"metadata": {"name": "s", "namespace": "n"}, "spec": {"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
            "ports": [{"name": "d", "port": 53, "protocol": "UDP", "targetPort": 53}]}});
        let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "ports": [{"name": "d", "port": 53, "protocol": "UDP"}],
            "endpoints": [{"addresses": [endpoint], "conditions": {"ready": true}}]});
        let service: Service = serde_json::from_value(service).unwrap();
        let slice: EndpointSlice = serde_json::from_value(slice).unwrap();
        portals(&service, [&slice], &Place { node: "n".into(), zone: None }, false)
    }

    /// nft refused the table once, and meanwhile an endpoint has gone.
    #[test]
    fn flows_to_endpoints_that_went_during_a_failure_are_forgotten() {
        let (before, after) = (service("10.244.0.1"), service("10.244.0.2"));
        let wanted = conntrack::stale(&before, &after);
        assert!(wanted.iter().any(|flush| flush.iter().any(|word| word == "10.244.0.1")), "{wanted:?}");
        let mut known = Known::default();
        known.written(Ruleset::default(), before);
        known.rules = None;
        assert_eq!(known.written(Ruleset::default(), after), wanted);
    }

    #[tokio::test]
    async fn a_failure_and_other_settings_leave_the_portals_known() {
        let namespace = Namespace { path: Some("/nonexistent/namespace".into()) };
        let settings = Settings {
            v6: false,
            cluster_cidr: None,
            masquerade_pods: None,
            no_masquerade: Vec::new(),
            masquerade_all: false,
            localhost_node_ports: false,
            node_port_addresses: Vec::new(),
            mark: 1 << 14,
        };
        let mut syncer = Syncer::new(Table { v6: false, name: "x".into() }, settings.clone(), namespace);
        syncer.known.written(Ruleset::default(), service("10.244.0.1"));
        assert!(syncer.sync(service("10.244.0.2")).await.is_err());
        syncer.verify().await;
        syncer.adopt(settings);
        assert!(syncer.known.rules.is_none());
        assert_eq!(syncer.known.portals.len(), 1, "what was served last");
        assert!(syncer.known.portals == service("10.244.0.1"));
    }
}
