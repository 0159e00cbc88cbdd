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
    /// What was written last; nothing if that is not known.
    written: Option<(Ruleset, Vec<Portal>)>,
}

impl Syncer {
    /// A table about which nothing is known yet.
    pub fn new(table: Table, settings: Settings, namespace: Namespace) -> Syncer {
        Syncer { table, settings, namespace, written: None }
    }

    /// Makes the table serve these portals.
    ///
    /// # Errors
    /// If nft refuses even the complete table; the old contents stay.
    pub async fn sync(&mut self, portals: Vec<Portal>) -> Result<(), Error> {
        let rules = build(&portals, &self.settings);
        let old = self.written.take();
        let mut done = false;
        if let Some((before, _)) = &old {
            let script = self.table.change(before, &rules);
            if !script.is_empty() {
                debug!(table = self.table.name, lines = script.lines().count(), "changing rules");
            }
            done = script.is_empty() || self.apply(&script).await;
        }
        if !done {
            self.namespace.nft(&self.table.replace(&rules)).await?;
        }
        let before = old.map(|(_, portals)| portals).unwrap_or_default();
        for flush in conntrack::stale(&before, &portals) {
            let arguments: Vec<&str> = flush.iter().map(String::as_str).collect();
            // It fails when there is nothing to forget.
            if let Err(error) = self.namespace.run("conntrack", &arguments, "").await {
                debug!(%error, "nothing forgotten");
            }
        }
        self.written = Some((rules, portals));
        Ok(())
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
            self.written = None;
        }
    }
}
