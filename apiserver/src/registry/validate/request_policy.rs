//! Errors of how much of a device's capacity a request may take.

use pintle_api::quota::amounts::quantity;
use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::quantity::Quantity;
use serde_json::Value;

use crate::registry::value::{at, has, items};

const MOST: usize = 10;

/// The policy of one capacity. Only what several requests may share has one.
pub fn check(errors: &mut ErrorList, capacity: &Value, shared: bool, path: &Path) {
    let policy = at(capacity, "requestPolicy");
    let path = path.child("requestPolicy");
    if policy.is_null() {
        return;
    }
    if !shared {
        return errors.forbidden(&path, "allowMultipleAllocations must be true");
    }
    let (values, range) = (items(policy, "validValues"), at(policy, "validRange"));
    let which = match (values.is_empty(), range.is_null()) {
        (false, false) => {
            let detail = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
            return errors.forbidden(&path, detail);
        }
        (false, true) => "validValues",
        (true, false) => "validRange",
        (true, true) => return,
    };
    let Some(default) = quantity(at(policy, "default")) else {
        return errors.required(&path.child("default"), format!("required when {which} is defined"));
    };
    let all = quantity(at(capacity, "value")).unwrap_or_default();
    match which {
        "validValues" => options(errors, values, default, all, &path.child(which)),
        _ => self::range(errors, range, default, all, &path.child(which)),
    }
}

/// One of a few amounts.
fn options(errors: &mut ErrorList, values: &[Value], default: Quantity, all: Quantity, path: &Path) {
    if values.len() > MOST {
        errors.too_many(path, values.len(), MOST);
    }
    let values: Vec<Quantity> = values.iter().filter_map(quantity).collect();
    for (index, pair) in values.windows(2).enumerate().filter(|(_, pair)| pair[1] < pair[0]) {
        errors.invalid(&path.index(index + 1), pair[1].to_string(), "values must be sorted in ascending order");
    }
    for (index, value) in values.iter().enumerate() {
        if *value > all {
            let detail = format!("option is larger than capacity value: {all}");
            errors.invalid(&path.index(index), value.to_string(), detail);
        }
        if values[..index].contains(value) {
            errors.duplicate(&path.index(index), value.value().to_string());
        }
    }
    if !values.contains(&default) {
        let detail = "default value is not valid according to the requestPolicy";
        errors.invalid(path, default.to_string(), detail);
    }
}

/// Any amount from one to another, in steps.
fn range(errors: &mut ErrorList, range: &Value, default: Quantity, all: Quantity, path: &Path) {
    let Some(min) = quantity(at(range, "min")) else {
        return errors.required(&path.child("min"), "required when validRange is defined");
    };
    let mut refuse = |is: bool, field: &str, value: Quantity, detail: String| {
        if is {
            errors.invalid(&path.child(field), value.to_string(), detail);
        }
    };
    refuse(min > all, "min", min, format!("min is larger than capacity value: {all}"));
    refuse(default < min, "default", default, format!("default is less than min: {min}"));
    let max = quantity(at(range, "max"));
    if let Some(max) = max {
        refuse(min > max, "max", min, format!("min is larger than max: {max}"));
        refuse(max > all, "max", max, format!("max is larger than capacity value: {all}"));
        refuse(default > max, "default", default, format!("default is more than max: {max}"));
    }
    let Some(step) = quantity(at(range, "step")).filter(|_| has(range, "step")) else { return };
    if step.sign() <= 0 {
        return refuse(true, "step", step, "must be greater than zero".to_owned());
    }
    let first = min + step;
    refuse(first > all, "step", step, format!("one step {first} is larger than capacity value: {all}"));
    for value in [Some(default), max].into_iter().flatten() {
        let odd = i128::from(value.value() - min.value()) % i128::from(step.value()) != 0;
        refuse(odd, "step", value, format!("value is not a multiple of a given step ({step}) from ({min})"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn policies() {
        let faults = |policy: Value, shared: bool| {
            let mut errors = ErrorList::new();
            check(&mut errors, &json!({"value": "100Mi", "requestPolicy": policy}), shared, &Path::new("c"));
            let told = |error: &pintle_machinery::field_path::FieldError| format!("{} {}", error.field, error.body());
            errors.iter().map(told).map(|text| text.replace("c.requestPolicy", "p")).collect::<Vec<_>>()
        };
        assert_eq!(faults(json!({}), false), ["p Forbidden: allowMultipleAllocations must be true"]);
        let cases: [(Value, &[&str]); 9] = [
            (json!({}), &[]),
            (json!({"default": "200Mi"}), &[]),
            (json!({"validValues": ["1"]}), &["p.default Required value: required when validValues is defined"]),
            (
                json!({"default": "1Gi", "validValues": ["200Mi", "100Mi", "200Mi"]}),
                &[
                    "p.validValues[1] Invalid value: \"100Mi\": values must be sorted in ascending order",
                    "p.validValues[0] Invalid value: \"200Mi\": option is larger than capacity value: 100Mi",
                    "p.validValues[2] Invalid value: \"200Mi\": option is larger than capacity value: 100Mi",
                    "p.validValues[2] Duplicate value: \"209715200\"",
                    "p.validValues Invalid value: \"1Gi\": default value is not valid according to the requestPolicy",
                ],
            ),
            (
                json!({"default": "1", "validRange": {}}),
                &["p.validRange.min Required value: required when validRange is defined"],
            ),
            (json!({"default": "2Mi", "validRange": {"min": "1Mi", "max": "10Mi", "step": "1Mi"}}), &[]),
            (
                json!({"default": "2Mi", "validRange": {"min": "3Mi", "max": "1Mi"}}),
                &[
                    "p.validRange.default Invalid value: \"2Mi\": default is less than min: 3Mi",
                    "p.validRange.max Invalid value: \"3Mi\": min is larger than max: 1Mi",
                    "p.validRange.default Invalid value: \"2Mi\": default is more than max: 1Mi",
                ],
            ),
            (
                json!({"default": "50", "validRange": {"min": "200Mi", "max": "300Mi", "step": "7"}}),
                &[
                    "p.validRange.min Invalid value: \"200Mi\": min is larger than capacity value: 100Mi",
                    "p.validRange.default Invalid value: \"50\": default is less than min: 200Mi",
                    "p.validRange.max Invalid value: \"300Mi\": max is larger than capacity value: 100Mi",
                    "p.validRange.step Invalid value: \"7\": one step 209715207 is larger than capacity value: 100Mi",
                    "p.validRange.step Invalid value: \"50\": value is not a multiple of a given step (7) from (200Mi)",
                    "p.validRange.step Invalid value: \"300Mi\": value is not a multiple of a given step (7) from (200Mi)",
                ],
            ),
            (
                json!({"default": "1Mi", "validRange": {"min": "1Mi", "step": "-1"}}),
                &["p.validRange.step Invalid value: \"-1\": must be greater than zero"],
            ),
        ];
        for (policy, expected) in cases {
            assert_eq!(faults(policy.clone(), true), expected, "{policy}");
        }
    }
}
