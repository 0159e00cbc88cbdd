//! `--runtime-config`.

use std::collections::{BTreeMap, BTreeSet};

use super::{FeatureError, truth};

/// A name, and which versions are of that stage.
type Stage = (&'static str, fn(&str) -> bool);

/// Names of stages, from the widest to the narrowest, which weighs most.
const STAGES: [Stage; 4] = [
    ("api/all", |_| true),
    ("api/ga", |version| !version.contains("alpha") && !version.contains("beta")),
    ("api/beta", |version| version.contains("beta")),
    ("api/alpha", |version| version.contains("alpha")),
];

/// Known, and without effect.
const LEGACY: &str = "api/legacy";

/// What is not as by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeConfig {
    /// By places in `STAGES`.
    stages: BTreeMap<usize, bool>,
    /// By group, version and resource; none: the version as a whole.
    others: BTreeMap<(String, String, Option<String>), bool>,
}

impl RuntimeConfig {
    /// What pairs say (`api/beta=true`, `apps/v1=false`, `apps/v1/deployments=false`, `v1`), the later one of a key.
    pub fn parse(pairs: &[String]) -> Result<Self, FeatureError> {
        let pairs = pairs.iter().map(|pair| pair.trim()).filter(|pair| !pair.is_empty());
        let pairs: BTreeMap<&str, &str> =
            pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(k, v)| (k.trim(), v.trim())).collect();
        check_groups(&pairs)?;
        if pairs.len() == 1 && pairs.get("api/all").is_some_and(|value| truth(value) == Some(false)) {
            return Err(FeatureError::Nothing);
        }
        let mut config = Self::default();
        for (key, value) in pairs {
            if key == LEGACY {
                continue;
            }
            if let Some(place) = STAGES.iter().position(|(stage, _)| *stage == key) {
                let fault = || FeatureError::NoStage { key: key.to_owned(), value: value.to_owned() };
                config.stages.insert(place, truth(value).ok_or_else(fault)?);
                continue;
            }
            let (group, version, resource) = parts(key)?;
            if !pintle_api::versions().any(|known| known == (group, version)) {
                return Err(FeatureError::UnknownVersion(format!("{group}/{version}")));
            }
            let fault = || {
                let rest = resource.map(|resource| format!("/{resource}")).unwrap_or_default();
                FeatureError::NoBool { key: format!("{group}/{version}{rest}"), between: ": ", value: value.to_owned() }
            };
            let value = if value.is_empty() { true } else { truth(value).ok_or_else(fault)? };
            config.others.insert((group.to_owned(), version.to_owned(), resource.map(str::to_owned)), value);
        }
        Ok(config)
    }

    /// Whether a resource is served in its version: what names it weighs most, then what names its version, then stages.
    pub fn serves(&self, api: &pintle_api::Resource) -> bool {
        let of = |resource: Option<&str>| {
            let key = (api.group.to_owned(), api.version.to_owned(), resource.map(str::to_owned));
            self.others.get(&key).copied()
        };
        let stage =
            || self.stages.iter().rev().find(|(place, _)| STAGES[**place].1(api.version)).map(|(_, value)| *value);
        of(Some(api.plural)).or_else(|| of(None)).or_else(stage).unwrap_or(api.default_served)
    }
}

/// Group, version and resource that a key names.
fn parts(key: &str) -> Result<(&str, &str, Option<&str>), FeatureError> {
    match key.split('/').collect::<Vec<_>>()[..] {
        ["v1"] => Ok(("", "v1", None)),
        [group, version] => Ok((group, version, None)),
        [group, version, resource] => Ok((group, version, Some(resource))),
        _ => Err(FeatureError::InvalidKey(key.to_owned())),
    }
}

fn check_groups(pairs: &BTreeMap<&str, &str>) -> Result<(), FeatureError> {
    let mut unknown = BTreeSet::new();
    for key in pairs.keys() {
        let (group, version, _) = parts(key)?;
        let stage = *key == LEGACY || STAGES.iter().any(|(stage, _)| stage == key);
        if !stage && !pintle_api::versions().any(|(known, _)| known == group) {
            unknown.insert(format!("{group}/{version}"));
        }
    }
    if unknown.is_empty() { Ok(()) } else { Err(FeatureError::UnknownGroups(unknown.into_iter().collect())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_as_upstream_tells_them() {
        let fault = |text: &str| {
            let pairs: Vec<String> = text.split(',').map(str::to_owned).collect();
            RuntimeConfig::parse(&pairs).map_err(|error| error.to_string()).unwrap_err()
        };
        for (text, expected) in [
            ("nonsense/v1=true,foo/v1=true", "unknown api groups foo/v1,nonsense/v1"),
            ("api/gamma=false", "unknown api groups api/gamma"),
            ("x.y/v9/z=true", "unknown api groups x.y/v9"),
            ("foo=true", "runtime-config invalid key foo"),
            ("a/b/c/d=true", "runtime-config invalid key a/b/c/d"),
            ("api/all=false", "invalid runtime-config with only api/all=false"),
            ("api/beta", "invalid value api/beta="),
            ("api/beta=x", "invalid value api/beta=x"),
            ("v1=maybe", "invalid value of /v1: maybe, err: strconv.ParseBool: parsing \"maybe\": invalid syntax"),
            (
                "apps/v1/deployments=x",
                "invalid value of apps/v1/deployments: x, err: strconv.ParseBool: parsing \"x\": invalid syntax",
            ),
            ("autoscaling/v7=true", "group version autoscaling/v7 that has not been registered"),
        ] {
            assert_eq!(fault(text), expected);
        }
        let fine = ["batch/v1beta1=true", "api/legacy=false", "/v1=true", "batch/v1", "apps/v1="];
        assert!(RuntimeConfig::parse(&fine.map(str::to_owned)).is_ok());
    }
}
