//! Bringing the policy into a cluster: pure, from what is there to what has to be written.
//!
//! Nothing that somebody added is taken away, and an object whose autoupdate annotation is "false" is left alone.

use serde_json::Value;

use super::{AUTOUPDATE, PolicyObject};
use crate::auth::authz::rules::{Rule, missing};
use crate::auth::text;

/// A write that the policy asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Create this.
    Create(Value),
    /// Update to this; it has the resource version of what was looked at.
    Update(Value),
    /// Delete the object and create this: a binding's role can't be changed.
    Replace(Value),
}

/// What has to be written so that `existing` has all of `wanted`.
pub fn reconcile(wanted: &PolicyObject, existing: Option<&Value>) -> Option<Step> {
    let Some(existing) = existing else { return Some(Step::Create(wanted.value.clone())) };
    if text(existing, &["metadata", "annotations", AUTOUPDATE]) == "false" {
        return None;
    }
    let mut result = existing.clone();
    for field in ["labels", "annotations"] {
        add_entries(&mut result["metadata"], &wanted.value["metadata"], field);
    }
    if wanted.value["roleRef"].is_object() {
        if !same_role(&existing["roleRef"], &wanted.value["roleRef"]) {
            return Some(Step::Replace(wanted.value.clone()));
        }
        add_items(&mut result, &wanted.value, "subjects");
    } else {
        add_rules(&mut result, &wanted.value);
        let (ours, theirs) = (&wanted.value["aggregationRule"], &mut result["aggregationRule"]);
        if ours.is_object() {
            if !theirs.is_object() {
                *theirs = ours.clone();
            }
            add_items(theirs, ours, "clusterRoleSelectors");
        } else if theirs.is_null()
            && let Some(fields) = result.as_object_mut()
        {
            fields.remove("aggregationRule");
        }
    }
    (result != *existing).then_some(Step::Update(result))
}

fn same_role(one: &Value, other: &Value) -> bool {
    ["apiGroup", "kind", "name"].iter().all(|field| one[*field] == other[*field])
}

/// Adds the entries of a map that are not there; those that are there win.
fn add_entries(result: &mut Value, wanted: &Value, field: &str) {
    for (key, value) in wanted[field].as_object().into_iter().flatten() {
        if result[field].get(key).is_none() {
            result[field][key] = value.clone();
        }
    }
}

/// Adds the items of a list that are not there.
fn add_items(result: &mut Value, wanted: &Value, field: &str) {
    let there = result[field].as_array().cloned().unwrap_or_default();
    let new: Vec<Value> =
        wanted[field].as_array().into_iter().flatten().filter(|item| !there.contains(item)).cloned().collect();
    if !new.is_empty() {
        result[field] = there.into_iter().chain(new).collect();
    }
}

fn add_rules(result: &mut Value, wanted: &Value) {
    let uncovered = missing(&Rule::list(&result["rules"]), &Rule::list(&wanted["rules"]));
    if !uncovered.is_empty() {
        let there = result["rules"].as_array().cloned().unwrap_or_default();
        result["rules"] = there.into_iter().chain(uncovered.iter().map(Rule::to_value)).collect();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::auth::policy::objects;

    fn wanted(name: &str, resource: &str) -> &'static PolicyObject {
        objects().iter().find(|object| object.name == name && object.resource == resource).expect("in the policy")
    }

    #[test]
    fn what_is_complete_is_left_alone() {
        for object in objects() {
            assert_eq!(reconcile(object, Some(&object.value)), None, "{}", object.name);
            assert_eq!(reconcile(object, None), Some(Step::Create(object.value.clone())));
        }
    }

    #[test]
    fn additions_of_others_stay_and_gaps_are_filled() {
        let role = wanted("system:basic-user", "clusterroles");
        let mut changed = role.value.clone();
        changed["metadata"]["labels"] = json!({"mine": "1"});
        changed["metadata"]["resourceVersion"] = json!("7");
        let own = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        changed["rules"] = json!([own]);
        let Some(Step::Update(result)) = reconcile(role, Some(&changed)) else { panic!("an update") };
        assert_eq!(result["metadata"]["labels"], json!({"mine": "1", "kubernetes.io/bootstrapping": "rbac-defaults"}));
        assert_eq!((&result["metadata"]["resourceVersion"], &result["rules"][0]), (&json!("7"), &own));
        assert!(missing(&Rule::list(&result["rules"]), &Rule::list(&role.value["rules"])).is_empty());
        assert_eq!(reconcile(role, Some(&result)), None, "once is enough");
    }

    #[test]
    fn autoupdate_false_protects() {
        let role = wanted("view", "clusterroles");
        let mut mine = role.value.clone();
        mine["metadata"]["annotations"][AUTOUPDATE] = json!("false");
        mine["aggregationRule"] = Value::Null;
        assert_eq!(reconcile(role, Some(&mine)), None);
    }

    #[test]
    fn bindings_get_their_subjects_and_their_role() {
        let binding = wanted("system:public-info-viewer", "clusterrolebindings");
        let mut changed = binding.value.clone();
        let other = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "x"});
        changed["subjects"] = json!([other]);
        let Some(Step::Update(result)) = reconcile(binding, Some(&changed)) else { panic!("an update") };
        assert_eq!(result["subjects"].as_array().map(Vec::len), Some(3));
        changed["roleRef"]["name"] = json!("else");
        assert_eq!(reconcile(binding, Some(&changed)), Some(Step::Replace(binding.value.clone())));
    }
}
