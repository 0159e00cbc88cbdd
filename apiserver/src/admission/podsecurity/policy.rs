//! Levels and versions, and how a namespace's labels set them. Pure.

use pintle_machinery::field_path::{ErrorList, Path};
use serde_json::Value;

/// Labels begin so.
pub const PREFIX: &str = "pod-security.kubernetes.io/";
/// The newest version with checks of its own.
const NEWEST: u32 = 37;

/// What pods may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Anything.
    Privileged,
    /// Nothing that is known to lead out of the container.
    Baseline,
    /// What is good practice.
    Restricted,
}

impl Level {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "privileged" => Some(Self::Privileged),
            "baseline" => Some(Self::Baseline),
            "restricted" => Some(Self::Restricted),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// A level as some release had it; no version: the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Level.
    pub level: Level,
    /// Minor version, of version 1.
    pub version: Option<u32>,
}

impl Rule {
    const NONE: Self = Self { level: Level::Privileged, version: None };

    /// The minor version whose checks apply.
    pub fn minor(self) -> u32 {
        self.version.unwrap_or(NEWEST).min(NEWEST)
    }

    /// Stricter than another: pods that were fine may no longer be.
    pub fn may_refuse_more_than(self, other: Self) -> bool {
        self.level != Level::Privileged && self != other && self.level >= other.level
    }
}

impl std::fmt::Display for Rule {
    /// `restricted:latest`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.version {
            Some(minor) => write!(f, "{}:v1.{minor}", self.level.name()),
            None => write!(f, "{}:latest", self.level.name()),
        }
    }
}

/// What a namespace asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Pods that break it are refused.
    pub enforce: Rule,
    /// Whoever writes pods or what makes them is warned.
    pub warn: Rule,
}

impl Policy {
    /// By labels. One that can't be read asks for the strictest level.
    pub fn of(namespace: &Value) -> Self {
        let enforce = rule(namespace, "enforce");
        let warn = rule(namespace, "warn");
        // Who enforces a level wants to be warned of it, too.
        Self { enforce: enforce.unwrap_or(Rule::NONE), warn: warn.or(enforce).unwrap_or(Rule::NONE) }
    }
}

fn label<'a>(namespace: &'a Value, name: &str) -> Option<&'a str> {
    namespace["metadata"]["labels"].get(format!("{PREFIX}{name}"))?.as_str()
}

fn rule(namespace: &Value, mode: &str) -> Option<Rule> {
    let level = label(namespace, mode)?;
    let version = label(namespace, &format!("{mode}-version")).and_then(version).flatten();
    Some(Rule { level: Level::parse(level).unwrap_or(Level::Restricted), version })
}

/// `latest` or `v1.x`; `None`: neither.
fn version(text: &str) -> Option<Option<u32>> {
    if text == "latest" {
        return Some(None);
    }
    let minor = text.strip_prefix("v1.")?;
    let plain = minor == "0" || (!minor.starts_with('0') && minor.bytes().all(|byte| byte.is_ascii_digit()));
    if plain { minor.parse().ok().map(Some) } else { None }
}

/// Labels that can't be read.
pub fn faults(namespace: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    for mode in ["enforce", "audit", "warn"] {
        let of_version = format!("{mode}-version");
        for (name, good, detail) in [
            (
                mode,
                label(namespace, mode).is_none_or(|text| Level::parse(text).is_some()),
                "must be one of privileged, baseline, restricted",
            ),
            (
                &of_version,
                label(namespace, &of_version).is_none_or(|text| version(text).is_some()),
                "must be \"latest\" or \"v1.x\"",
            ),
        ] {
            if !good {
                let path = Path::new("metadata").child("labels").key(&format!("{PREFIX}{name}"));
                errors.invalid(&path, label(namespace, name).unwrap_or_default(), detail);
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn namespace(labels: &[(&str, &str)]) -> Value {
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(name, value)| (format!("{PREFIX}{name}"), json!(value))).collect();
        json!({"metadata": {"labels": labels}})
    }

    #[test]
    fn labels_set_rules() {
        let policy = Policy::of(&namespace(&[("enforce", "restricted"), ("enforce-version", "v1.20")]));
        assert_eq!(policy.enforce.to_string(), "restricted:v1.20");
        assert_eq!(policy.warn, policy.enforce);
        assert_eq!(Policy::of(&namespace(&[])).enforce, Rule::NONE);
        assert_eq!(Policy::of(&namespace(&[("enforce", "odd")])).enforce.level, Level::Restricted);
    }

    #[test]
    fn bad_labels_are_told() {
        assert!(faults(&namespace(&[("enforce", "baseline"), ("warn-version", "v1.3")])).is_empty());
        assert_eq!(
            faults(&namespace(&[("enforce-version", "1.2")])).to_string(),
            "metadata.labels[pod-security.kubernetes.io/enforce-version]: Invalid value: \"1.2\": must be \"latest\" or \"v1.x\""
        );
    }
}
