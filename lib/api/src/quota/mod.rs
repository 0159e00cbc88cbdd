//! ResourceQuota: what objects use, which quotas are about them, and what a quota has left. Pure; the API server charges
//! by it and the quota controller counts by it.

pub mod amounts;
pub mod pod;
pub mod qos;
mod scope;
mod usage;

use jiff::Timestamp;
use pintle_machinery::quantity::{Format, Quantity};
use serde_json::Value;

pub use amounts::Amounts;

/// Kinds of the core group that quotas also count under their plain name.
const PLAIN_NAMES: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

/// How objects of one resource are counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Evaluator {
    /// Pods.
    Pods,
    /// Services.
    Services,
    /// Claims of volumes.
    Claims,
    /// Claims of devices.
    ResourceClaims,
    /// Any other resource: the number of its objects.
    Objects {
        /// API group.
        group: String,
        /// Plural name.
        resource: String,
    },
}

impl Evaluator {
    /// How this resource is counted.
    pub fn of(group: &str, resource: &str) -> Self {
        match (group, resource) {
            ("", "pods") => Self::Pods,
            ("", "services") => Self::Services,
            ("", "persistentvolumeclaims") => Self::Claims,
            ("resource.k8s.io", "resourceclaims") => Self::ResourceClaims,
            _ => Self::Objects { group: group.to_owned(), resource: resource.to_owned() },
        }
    }

    /// How what a quota names is counted; `None` if nothing is known under that name.
    pub fn by_name(name: &str) -> Option<Self> {
        let known = [Self::Pods, Self::Services, Self::Claims, Self::ResourceClaims];
        if let Some(known) = known.into_iter().find(|evaluator| evaluator.counts(name)) {
            return Some(known);
        }
        if PLAIN_NAMES.contains(&name) {
            return Some(Self::of("", name));
        }
        let (resource, group) = match name.strip_prefix("count/")?.split_once('.') {
            Some((resource, group)) => (resource, group),
            None => (name.strip_prefix("count/")?, ""),
        };
        Some(Self::of(group, resource))
    }

    /// The resource that is counted: group and plural name.
    pub fn resource(&self) -> (&str, &str) {
        match self {
            Self::Pods => ("", "pods"),
            Self::Services => ("", "services"),
            Self::Claims => ("", "persistentvolumeclaims"),
            Self::ResourceClaims => ("resource.k8s.io", "resourceclaims"),
            Self::Objects { group, resource } => (group, resource),
        }
    }

    /// True if this is how what a quota names is counted.
    pub fn counts(&self, name: &str) -> bool {
        match self {
            Self::Pods => pod::counts(name),
            Self::Services => usage::counts_services(name),
            Self::Claims => usage::counts_claims(name),
            Self::ResourceClaims => usage::counts_resource_claims(name),
            Self::Objects { .. } => self.names().iter().any(|own| own == name),
        }
    }

    /// Names of the mere number of objects.
    fn names(&self) -> Vec<String> {
        match self.resource() {
            ("", resource) if PLAIN_NAMES.contains(&resource) => vec![format!("count/{resource}"), resource.to_owned()],
            ("", resource) => vec![format!("count/{resource}")],
            (group, resource) => vec![format!("count/{resource}.{group}")],
        }
    }

    /// What one object uses.
    pub fn usage(&self, object: &Value, now: Timestamp) -> Amounts {
        match self {
            Self::Pods => pod::usage(object, now),
            Self::Services => usage::service(object),
            Self::Claims => usage::claim(object),
            Self::ResourceClaims => usage::resource_claim(object),
            Self::Objects { .. } => self.count(1),
        }
    }

    /// What so many objects use of which only the number counts.
    pub fn count(&self, objects: usize) -> Amounts {
        let amount = Quantity::new(i64::try_from(objects).unwrap_or(i64::MAX), Format::DecimalSi);
        let mut usage = Amounts::new();
        self.names().into_iter().for_each(|name| usage.set(name, amount));
        usage
    }

    /// True if the object is in all scopes of a quota's spec.
    pub fn in_scope(&self, spec: &Value, object: &Value) -> bool {
        scope::requirements(spec).iter().all(|requirement| match self {
            Self::Pods => scope::pod_in(requirement, object),
            Self::Claims => scope::claim_in(requirement, object),
            _ => false,
        })
    }

    /// True if a write of that sort is charged.
    pub fn charges(&self, create: bool, subresource: &str) -> bool {
        matches!(
            (self, create, subresource),
            (_, true, "")
                | (Self::Pods, false, "resize")
                | (Self::Services | Self::Claims | Self::ResourceClaims, false, "")
        )
    }
}

/// A write that quotas are asked about.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// How the resource is counted.
    pub evaluator: &'a Evaluator,
    /// The object as it would be.
    pub new: &'a Value,
    /// The object as it is.
    pub old: Option<&'a Value>,
    /// When.
    pub now: Timestamp,
}

/// What a quota's status would be after a change: `None` if the quota is not concerned; an error is the message for
/// the client.
pub fn charge(change: &Change<'_>, quota: &Value) -> Result<Option<Amounts>, String> {
    let Change { evaluator, new, old, now } = *change;
    let hard = Amounts::from_json(&quota["status"]["hard"]);
    let used = Amounts::from_json(&quota["status"]["used"]);
    let restricted: Vec<&str> = hard.names().filter(|name| evaluator.counts(name)).collect();
    let scoped = |object: &Value| evaluator.in_scope(&quota["spec"], object);
    if restricted.is_empty() || !scoped(new) {
        return Ok(None);
    }
    let name = quota["metadata"]["name"].as_str().unwrap_or_default();
    if *evaluator == Evaluator::Pods
        && let Some(missing) = pod::unspecified(new, restricted.iter().copied())
    {
        return Err(format!("failed quota: {name}: {missing}"));
    }
    if restricted.iter().any(|resource| used.get(resource).is_none()) {
        return Err(format!("status unknown for quota: {name}, resources: {}", restricted.join(",")));
    }
    let mut delta = evaluator.usage(new, now);
    let negative = delta.negative();
    if !negative.is_empty() {
        return Err(format!("quota usage is negative for resource(s): {}", negative.join(",")));
    }
    if let Some(old) = old.filter(|old| scoped(old)) {
        delta.subtract_all(&evaluator.usage(old, now));
    }
    // What is given back the controller counts, once it has happened.
    let delta = delta.masked(restricted).positive();
    if delta.is_empty() {
        return Ok(None);
    }
    let mut after = used.clone();
    after.add_all(&delta);
    let asked = after.masked(delta.names());
    let exceeded = asked.above(&hard);
    if exceeded.is_empty() {
        return Ok(Some(after));
    }
    let of = |amounts: &Amounts| amounts.masked(exceeded.iter().copied()).to_string();
    Err(format!("exceeded quota: {name}, requested: {}, used: {}, limited: {}", of(&delta), of(&used), of(&hard)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn quota(hard: Value, used: Value) -> Value {
        json!({"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}})
    }

    fn charged(
        resource: (&str, &str),
        quota: &Value,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<Option<String>, String> {
        let evaluator = Evaluator::of(resource.0, resource.1);
        let change = Change { evaluator: &evaluator, new, old, now: Timestamp::UNIX_EPOCH };
        Ok(charge(&change, quota)?.map(|used| used.to_string()))
    }

    #[test]
    fn names_lead_to_evaluators() {
        for (name, group, resource) in [
            ("count/deployments.apps", "apps", "deployments"),
            ("count/widgets.a.example.com", "a.example.com", "widgets"),
            ("secrets", "", "secrets"),
            ("count/secrets", "", "secrets"),
            ("requests.cpu", "", "pods"),
            ("gold.storageclass.storage.k8s.io/requests.storage", "", "persistentvolumeclaims"),
            ("services.nodeports", "", "services"),
        ] {
            assert_eq!(Evaluator::by_name(name), Some(Evaluator::of(group, resource)), "{name}");
        }
        assert_eq!(Evaluator::by_name("nonsense"), None);
    }

    #[test]
    fn counts_are_charged_and_refused() {
        let full = quota(
            json!({"count/configmaps": "2", "configmaps": "1"}),
            json!({"count/configmaps": "1", "configmaps": "1"}),
        );
        let object = json!({"metadata": {"name": "c"}});
        assert_eq!(
            charged(("", "configmaps"), &full, &object, None).unwrap_err(),
            "exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1"
        );
        let open = quota(json!({"count/configmaps": "2"}), json!({"count/configmaps": "1"}));
        assert_eq!(charged(("", "configmaps"), &open, &object, None), Ok(Some("count/configmaps=2".into())));
        assert_eq!(charged(("", "secrets"), &open, &object, None), Ok(None));
        let unknown = quota(json!({"count/configmaps": "2"}), json!({}));
        assert_eq!(
            charged(("", "configmaps"), &unknown, &object, None).unwrap_err(),
            "status unknown for quota: q, resources: count/configmaps"
        );
    }

    #[test]
    fn pods_name_what_is_counted() {
        let quota = quota(json!({"cpu": "1", "pods": "5"}), json!({"cpu": "500m", "pods": "1"}));
        let pod = |resources: Value| json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
        assert_eq!(
            charged(("", "pods"), &quota, &pod(json!({})), None).unwrap_err(),
            "failed quota: q: must specify cpu for: c"
        );
        assert_eq!(
            charged(("", "pods"), &quota, &pod(json!({"requests": {"cpu": "600m"}})), None).unwrap_err(),
            "exceeded quota: q, requested: cpu=600m, used: cpu=500m, limited: cpu=1"
        );
        let fitting = pod(json!({"requests": {"cpu": "500m"}}));
        assert_eq!(charged(("", "pods"), &quota, &fitting, None), Ok(Some("cpu=1,pods=2".into())));
    }

    #[test]
    fn updates_are_charged_by_the_difference() {
        let quota = quota(json!({"services.nodeports": "1"}), json!({"services.nodeports": "0"}));
        let service = |ty: &str, ports: Value| json!({"spec": {"type": ty, "ports": ports}});
        let (old, new) = (service("ClusterIP", json!([{"port": 1}])), service("NodePort", json!([{"port": 1}])));
        assert_eq!(charged(("", "services"), &quota, &new, Some(&old)), Ok(Some("services.nodeports=1".into())));
        let more = service("NodePort", json!([{"port": 1}, {"port": 2}]));
        assert!(charged(("", "services"), &quota, &more, Some(&old)).unwrap_err().starts_with("exceeded quota: q"));
        assert_eq!(charged(("", "services"), &quota, &old, Some(&old)), Ok(None));
    }

    #[test]
    fn scopes_leave_others_alone() {
        let mut scoped = quota(json!({"pods": "0"}), json!({"pods": "0"}));
        scoped["spec"]["scopes"] = json!(["Terminating"]);
        assert_eq!(charged(("", "pods"), &scoped, &json!({"spec": {}}), None), Ok(None));
        assert!(charged(("", "pods"), &scoped, &json!({"spec": {"activeDeadlineSeconds": 1}}), None).is_err());
    }
}
