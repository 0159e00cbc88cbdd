//! What is served beyond, or short of, the defaults: feature gates, and versions and resources of the API. An immutable value
//! that the server is built with; wording of faults as upstream's flags have it.

mod gates;
mod runtime;

pub use gates::Gates;
pub use runtime::RuntimeConfig;

/// What `--feature-gates` and `--runtime-config` say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Features {
    /// Gates that are not as by default.
    pub gates: Gates,
    /// Versions and resources that are not as by default.
    pub runtime: RuntimeConfig,
}

/// What is wrong with these flags.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum FeatureError {
    /// No such gate.
    #[error("unrecognized feature gate: {0}")]
    UnknownGate(String),
    /// Gates of something else.
    #[error("component not registered: {0}")]
    UnknownComponent(String),
    /// A gate without `=`.
    #[error("missing bool value for {0}")]
    NoValue(String),
    /// Neither true nor false.
    #[error("invalid value of {key}{between}{value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax")]
    NoBool {
        /// What it is for.
        key: String,
        /// What stands between the two.
        between: &'static str,
        /// The value.
        value: String,
    },
    /// A gate that can't be changed.
    #[error("cannot set feature gate {name} to {value}, feature is locked to {}", !value)]
    Locked {
        /// The gate.
        name: &'static str,
        /// What it was to be.
        value: bool,
    },
    /// Gates that are on without those that they need.
    #[error("{}", joined(.0))]
    Needs(Vec<String>),
    /// Neither a version, nor a resource, nor a stage.
    #[error("runtime-config invalid key {0}")]
    InvalidKey(String),
    /// Groups that are not known.
    #[error("unknown api groups {}", .0.join(","))]
    UnknownGroups(Vec<String>),
    /// A version that its group doesn't have.
    #[error("group version {0} that has not been registered")]
    UnknownVersion(String),
    /// A stage that is neither on nor off.
    #[error("invalid value {key}={value}")]
    NoStage {
        /// The stage.
        key: String,
        /// The value.
        value: String,
    },
    /// Nothing would be left.
    #[error("invalid runtime-config with only api/all=false")]
    Nothing,
}

fn joined(faults: &[String]) -> String {
    match faults {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

/// Resources that take a gate besides their version.
const GATED: [(&str, &str, &str); 5] = [
    ("scheduling.k8s.io", "podgroups", "GenericWorkload"),
    ("scheduling.k8s.io", "workloads", "GenericWorkload"),
    ("scheduling.k8s.io", "compositepodgroups", "CompositePodGroup"),
    ("lifecycle.k8s.io", "evictionrequests", "EvictionRequestAPI"),
    ("lifecycle.k8s.io", "evictions", "EvictionRequestAPI"),
];

impl Features {
    /// What the flags say: `Gate=true`, `group/version=false`, …
    pub fn parse(gates: &[String], runtime: &[String]) -> Result<Self, FeatureError> {
        Ok(Self { gates: Gates::parse(gates)?, runtime: RuntimeConfig::parse(runtime)? })
    }

    /// Whether a resource is served in its version.
    pub fn serves(&self, api: &pintle_api::Resource) -> bool {
        let gate = GATED.iter().find(|(group, resource, _)| *group == api.group && *resource == api.plural);
        gate.is_none_or(|(.., gate)| self.gates.on(gate)) && self.runtime.serves(api)
    }
}

/// A truth value as Go reads it.
fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(gates: &str, runtime: &str) -> Vec<String> {
        let list = |text: &str| text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        let features = Features::parse(&list(gates), &list(runtime)).unwrap();
        let served = pintle_api::resources().iter().filter(|api| features.serves(api));
        served.map(|api| format!("{}/{}", api.api_version(), api.plural)).collect()
    }

    /// What differs from the default: `+` came, `-` went.
    fn difference(gates: &str, runtime: &str) -> Vec<String> {
        let (default, now) = (served("", ""), served(gates, runtime));
        let gone = default.iter().filter(|name| !now.contains(name)).map(|name| format!("-{name}"));
        let come = now.iter().filter(|name| !default.contains(name)).map(|name| format!("+{name}"));
        gone.chain(come).collect()
    }

    #[test]
    fn by_default_it_is_what_upstream_serves() {
        assert_eq!(served("", "").len(), pintle_api::resources().iter().filter(|api| api.default_served).count());
        assert!(served("AllAlpha=true,AllBeta=true", "").len() == served("", "").len(), "gates alone bring nothing");
    }

    #[test]
    fn stages_versions_and_resources() {
        assert_eq!(served("", "api/all=true").len(), 93);
        assert_eq!(served("AllAlpha=true,AllBeta=true", "api/all=true").len(), 100);
        let one = "resource.k8s.io/v1beta2/deviceclasses=true,apps/v1/nonsense=true,apps/v1/deployments=false,\
                   coordination.k8s.io/v1beta1";
        let expected = [
            "-apps/v1/deployments",
            "+coordination.k8s.io/v1beta1/leasecandidates",
            "+resource.k8s.io/v1beta2/deviceclasses",
        ];
        assert_eq!(difference("", one), expected);
        let beta =
            difference("", "api/beta=true,resource.k8s.io/v1beta2=false,scheduling.k8s.io/v1beta1/podgroups=true");
        assert_eq!(beta.len(), 10);
        assert!(!beta.iter().any(|name| name.contains("v1beta2") || name.contains("podgroups")), "{beta:?}");
        assert_eq!(difference("GenericWorkload=true", "scheduling.k8s.io/v1beta1=true").len(), 2);
        assert_eq!(difference("", "apps/v1=0").len(), 5);
        assert!(difference("", "v1=false").contains(&"-v1/pods".to_owned()));
        assert_eq!(served("", "api/all=false,api/ga=true"), served("", ""));
    }
}
