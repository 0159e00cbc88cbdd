//! Errors of LimitRanges.

use std::collections::{BTreeSet, HashSet};

use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::names;
use pintle_machinery::quantity::{Format, Quantity};
use serde_json::Value;

use super::resources::Name;
use crate::registry::Context;
use crate::registry::value::{at, entries, has, items, text};
use pintle_api::quota::amounts::quantity;

/// LimitRange.
pub fn limit_range(_context: &Context<'_>, range: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut types = HashSet::new();
    for (index, limit) in items(range, "spec.limits").iter().enumerate() {
        let path = Path::new("spec").child("limits").index(index);
        let ty = text(limit, "type");
        let faults = names::qualified(ty);
        let known = matches!(ty, "Pod" | "Container" | "PersistentVolumeClaim");
        if faults.is_empty() && !ty.contains('/') && !known {
            errors.invalid(&path.child("type"), ty, "must be a standard limit type or fully qualified");
        }
        errors.invalid_each(&path.child("type"), ty, faults);
        if !types.insert(ty) {
            errors.duplicate(&path.child("type"), ty);
        }
        one(&mut errors, limit, ty, &path);
    }
    errors
}

/// An update of a LimitRange.
pub fn limit_range_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    limit_range(context, new)
}

fn one(errors: &mut ErrorList, limit: &Value, ty: &str, path: &Path) {
    let mut lists = vec!["max", "min"];
    if ty == "Pod" {
        for field in ["default", "defaultRequest"] {
            if at(limit, field).as_object().is_some_and(|map| !map.is_empty()) {
                errors.forbidden(&path.child(field), "may not be specified when `type` is 'Pod'");
            }
        }
    } else {
        lists.extend(["default", "defaultRequest"]);
    }
    if ty == "PersistentVolumeClaim" && !has(limit, "min.storage") && !has(limit, "max.storage") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(&path.child("limits"), detail);
    }
    lists.push("maxLimitRequestRatio");
    let mut all = BTreeSet::new();
    for list in lists {
        for (name, _) in entries(limit, list) {
            Name(name).check_limit(errors, &path.child(list).key(name), ty);
            all.insert(name.as_str());
        }
    }
    for name in all {
        let bounds = Bounds::of(limit, name);
        // A pod has no defaults, whatever they say.
        let bounds = if ty == "Pod" { Bounds { default: None, request: None, ..bounds } } else { bounds };
        bounds.check(errors, Name(name), path);
    }
}

/// What a limit says about one resource.
struct Bounds {
    max: Option<Quantity>,
    min: Option<Quantity>,
    default: Option<Quantity>,
    request: Option<Quantity>,
    ratio: Option<Quantity>,
}

impl Bounds {
    fn of(limit: &Value, name: &str) -> Self {
        let get = |list: &str| at(limit, list).get(name).and_then(quantity);
        Self {
            max: get("max"),
            min: get("min"),
            default: get("default"),
            request: get("defaultRequest"),
            ratio: get("maxLimitRequestRatio"),
        }
    }

    fn check(&self, errors: &mut ErrorList, name: Name<'_>, path: &Path) {
        let at = |list: &str| path.child(list).key(name.0);
        let mut refuse =
            |list: &str, shown: Quantity, detail: String| errors.invalid(&at(list), shown.to_string(), detail);
        let above = |a: Option<Quantity>, b: Option<Quantity>| a.zip(b).filter(|(a, b)| a > b);
        if let Some((min, max)) = above(self.min, self.max) {
            refuse("min", min, format!("min value {min} is greater than max value {max}"));
        }
        if let Some((min, request)) = above(self.min, self.request) {
            refuse(
                "defaultRequest",
                request,
                format!("min value {min} is greater than default request value {request}"),
            );
        }
        if let Some((request, max)) = above(self.request, self.max) {
            refuse(
                "defaultRequest",
                request,
                format!("default request value {request} is greater than max value {max}"),
            );
        }
        if let Some((request, limit)) = above(self.request, self.default) {
            let detail = format!("default request value {request} is greater than default limit value {limit}");
            refuse("defaultRequest", request, detail);
        }
        if let Some((min, default)) = above(self.min, self.default) {
            refuse("default", min, format!("min value {min} is greater than default value {default}"));
        }
        if let Some((default, max)) = above(self.default, self.max) {
            refuse("default", max, format!("default value {default} is greater than max value {max}"));
        }
        self.check_ratio(&mut refuse);
        if let Some((default, request)) = self.default.zip(self.request)
            && !name.may_be_overcommitted()
            && default != request
        {
            let detail = format!("default value {default} must equal to defaultRequest value {request} in {}", name.0);
            refuse("defaultRequest", request, detail);
        }
    }

    fn check_ratio(&self, refuse: &mut impl FnMut(&str, Quantity, String)) {
        let Some(ratio) = self.ratio else { return };
        if ratio < Quantity::new(1, Format::DecimalSi) {
            refuse("maxLimitRequestRatio", ratio, format!("ratio {ratio} is less than 1"));
        }
        let (Some(min), Some(max)) = (self.min.filter(|min| !min.is_zero()), self.max) else { return };
        let most = max.as_f64() / min.as_f64();
        if ratio.as_f64() > most {
            refuse("maxLimitRequestRatio", ratio, format!("ratio {ratio} is greater than max/min = {most:.6}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn faults() {
        let cases = [
            (json!({"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "1"}}), ""),
            (
                json!({"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}),
                "l.min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
            ),
            (
                json!({"type": "Container", "max": {"cpu": "4"}, "min": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}}),
                "l.maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than max/min = 2.000000",
            ),
            (
                json!({"type": "Pod", "default": {"cpu": "1"}}),
                "l.default: Forbidden: may not be specified when `type` is 'Pod'",
            ),
            (
                json!({"type": "Container", "default": {"x.io/y": "2"}, "defaultRequest": {"x.io/y": "1"}}),
                "l.defaultRequest[x.io/y]: Invalid value: \"1\": default value 2 must equal to defaultRequest value 1 in x.io/y",
            ),
        ];
        for (limit, expected) in cases {
            let mut errors = ErrorList::new();
            one(&mut errors, &limit, limit["type"].as_str().unwrap_or_default(), &Path::new("l"));
            assert_eq!(errors.to_string(), expected, "{limit}");
        }
    }
}
