//! What a quota's status should be. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pintle_api::quota::{Amounts, Evaluator};
use serde_json::{Value, json};

/// The ways in which what a quota bounds is counted, each once, in the order of the names.
pub fn evaluators(spec: &Value) -> Vec<Evaluator> {
    let mut found = Vec::new();
    for evaluator in spec["hard"].as_object().into_iter().flatten().filter_map(|(name, _)| Evaluator::by_name(name)) {
        if !found.contains(&evaluator) {
            found.push(evaluator);
        }
    }
    found
}

/// What one object adds to a quota; `None` if it is not there or in other scopes.
pub fn share(evaluator: &Evaluator, spec: &Value, object: Option<&Value>, now: Timestamp) -> Option<Amounts> {
    object.filter(|object| evaluator.in_scope(spec, object)).map(|object| evaluator.usage(object, now))
}

/// What the objects in the quota's scopes use together.
pub fn sum(evaluator: &Evaluator, spec: &Value, objects: impl Iterator<Item = Value>, now: Timestamp) -> Amounts {
    let mut sum = Amounts::new();
    for object in objects.filter(|object| evaluator.in_scope(spec, object)) {
        sum.add_all(&evaluator.usage(&object, now));
    }
    sum
}

/// The status that a quota should have; `None` if it has it. `counted`: usage by how it was counted, as far as known.
pub fn status(quota: &Value, counted: &BTreeMap<String, Amounts>) -> Option<Value> {
    let hard = Amounts::from_json(&quota["spec"]["hard"]);
    let before = Amounts::from_json(&quota["status"]["used"]);
    let mut used = Amounts::new();
    for name in hard.names() {
        let known = Evaluator::by_name(name).and_then(|evaluator| counted.get(&key(&evaluator)));
        match known {
            Some(usage) => used.set(name, usage.get(name).unwrap_or_default()),
            // Nobody can tell: what was said before stands.
            None => before.get(name).into_iter().for_each(|amount| used.set(name, amount)),
        }
    }
    let same = hard == Amounts::from_json(&quota["status"]["hard"]) && used == before;
    // An empty quota has nothing to tell but that it was looked at.
    (!same).then(|| json!({"hard": quota["spec"]["hard"], "used": used.to_json()}))
}

/// The name under which usage is kept between counting and planning.
pub fn key(evaluator: &Evaluator) -> String {
    let (group, resource) = evaluator.resource();
    format!("{resource}.{group}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        let hard = json!({"pods": "5", "configmaps": "2", "count/widgets.example.com": "1"});
        let one_pod = Evaluator::of("", "pods");
        let pods = sum(&one_pod, &json!({}), [json!({"spec": {}})].into_iter(), Timestamp::UNIX_EPOCH);
        let counted = BTreeMap::from([
            (key(&one_pod), pods),
            (key(&Evaluator::of("", "configmaps")), Evaluator::of("", "configmaps").count(1)),
        ]);
        let new = status(&json!({"spec": {"hard": hard}}), &counted).expect("changed");
        assert_eq!(new, json!({"hard": hard, "used": {"pods": "1", "configmaps": "1"}}));
        assert_eq!(status(&json!({"spec": {"hard": hard}, "status": new}), &counted), None);
        let tampered = json!({"hard": {"pods": "9"}, "used": {"pods": "7"}});
        assert_eq!(status(&json!({"spec": {"hard": hard}, "status": tampered}), &counted), Some(new));
    }

    #[test]
    fn each_way_of_counting_once() {
        let spec = json!({"hard": {"cpu": "1", "pods": "1", "secrets": "1", "count/secrets": "2", "odd": "1"}});
        assert_eq!(evaluators(&spec).len(), 2);
    }

    #[test]
    fn a_pod_that_changes_scopes_concerns_both_quotas() {
        let pods = [json!({"spec": {}}), json!({"spec": {"activeDeadlineSeconds": 1}})];
        let share = |spec: Value, pod| share(&Evaluator::Pods, &spec, Some(pod), Timestamp::UNIX_EPOCH);
        for (scopes, concerned) in
            [(json!(["Terminating"]), true), (json!(["NotTerminating"]), true), (json!([]), false)]
        {
            let spec = json!({"scopes": scopes});
            assert_eq!(share(spec.clone(), &pods[0]) != share(spec, &pods[1]), concerned, "{scopes}");
        }
    }

    #[test]
    fn scopes_choose() {
        let spec = json!({"scopes": ["Terminating"]});
        let pods = [json!({"spec": {"activeDeadlineSeconds": 1}}), json!({"spec": {}})];
        let usage = sum(&Evaluator::Pods, &spec, pods.into_iter(), Timestamp::UNIX_EPOCH);
        assert_eq!(usage.to_string(), "count/pods=1,pods=1");
    }
}
