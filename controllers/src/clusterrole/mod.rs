//! clusterrole-aggregation-controller: cluster roles that are made of others.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::ResourceExt;
use kube::api::PostParams;
use kube::core::SelectorExt;
use pintle_client::cache::Cache;
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};

use crate::context::Context;
use crate::meta;
use crate::retry::gone_is_fine;

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let roles: Cache<ClusterRole> = ctx.cache();
    roles.synced().await;
    let queue: Queue<String> = ctx.queue("ClusterRoleAggregator");
    let (keys, all) = (queue.clone(), roles.clone());
    // Any role may be a part of any other: few are made of others, and they change rarely.
    roles.on_change(ctx.shutdown.clone(), move |_| {
        let aggregated = all.list().into_iter().filter(|r| r.aggregation_rule.is_some());
        aggregated.for_each(|role| keys.add(role.name_any()));
    });
    let shared = Arc::new((ctx.clone(), roles));
    reconcile::run(queue, 1, ctx.shutdown, |name| {
        let shared = shared.clone();
        async move {
            let (ctx, roles) = &*shared;
            let Some(role) = roles.get(None, &name) else { return Ok(Action::Done) };
            let Some(rules) = aggregate(&role, &roles.list()) else { return Ok(Action::Done) };
            let changed = ClusterRole { rules: Some(rules), ..(*role).clone() };
            let api = ctx.api_all::<ClusterRole>();
            gone_is_fine(api.replace(&name, &PostParams::default(), &changed).await)?;
            Ok(Action::Done)
        }
    })
    .await;
    Ok(())
}

/// The rules that the role should have, each once; `None` if it has them.
fn aggregate(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Option<Vec<PolicyRule>> {
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in role.aggregation_rule.as_ref()?.cluster_role_selectors.iter().flatten() {
        let Some(selector) = meta::selector(selector) else { continue };
        let parts = all.iter().filter(|r| r.name_any() != role.name_any());
        for part in parts.filter(|r| selector.matches(meta::labels(&r.metadata))) {
            for rule in part.rules.iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    (role.rules.as_deref().unwrap_or_default() != rules).then_some(rules)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(name: &str, verbs: &[&str], label: &str) -> Arc<ClusterRole> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "labels": {label: "true"}}, "rules": [{"verbs": verbs}],
            }))
            .unwrap(),
        )
    }

    #[test]
    fn parts_are_joined_once() {
        let sum: ClusterRole = serde_json::from_value(json!({
            "metadata": {"name": "sum", "labels": {"x": "true"}},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"x": "true"}}]},
        }))
        .unwrap();
        let all =
            [Arc::new(sum.clone()), role("a", &["get"], "x"), role("b", &["get"], "x"), role("c", &["list"], "y")];
        let rules = aggregate(&sum, &all).unwrap();
        assert_eq!(rules.len(), 1);
        let done = ClusterRole { rules: Some(rules), ..sum };
        assert_eq!(aggregate(&done, &all), None);
        assert_eq!(aggregate(&role("a", &["get"], "x"), &all), None);
    }
}
