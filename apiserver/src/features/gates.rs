//! `--feature-gates`.

use std::collections::BTreeMap;

use pintle_api::gates::{Gate, Stage, gate, gates};

use super::{FeatureError, truth};

/// The component whose gates these are.
const COMPONENT: &str = "kube";

/// Gates that stand for all of a stage.
const ALL: [(&str, Stage); 2] = [("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)];

/// Which gates are on: those that are not as by default, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gates(BTreeMap<&'static str, bool>);

impl Gates {
    /// What pairs say (`Gate=true`, `kube:Gate=true`), the later one of a gate.
    pub fn parse(pairs: &[String]) -> Result<Self, FeatureError> {
        let mut wanted: BTreeMap<String, bool> = BTreeMap::new();
        for pair in pairs.iter().map(|pair| pair.trim()).filter(|pair| !pair.is_empty()) {
            let (component, pair) = pair.split_once(':').unwrap_or((COMPONENT, pair));
            if ![COMPONENT, ""].contains(&component) {
                return Err(FeatureError::UnknownComponent(component.to_owned()));
            }
            let (name, value) = pair.split_once('=').ok_or_else(|| FeatureError::NoValue(pair.to_owned()))?;
            let (key, value) = (name.trim().to_owned(), value.trim());
            let no_bool = || FeatureError::NoBool { key: key.clone(), between: "=", value: value.to_owned() };
            let value = truth(value).ok_or_else(no_bool)?;
            wanted.insert(key, value);
        }
        let mut explicit: Vec<(&'static Gate, bool)> = Vec::new();
        for (name, value) in wanted {
            let known = gate(&name).ok_or(FeatureError::UnknownGate(name))?;
            if known.locked && value != known.default {
                return Err(FeatureError::Locked { name: known.name, value });
            }
            explicit.push((known, value));
        }
        let set = Self::of(&explicit);
        set.check()?;
        Ok(set)
    }

    /// A gate that is named weighs more than one that stands for its stage.
    fn of(explicit: &[(&'static Gate, bool)]) -> Self {
        let mut set = BTreeMap::new();
        for (all, stage) in ALL {
            let Some((_, value)) = explicit.iter().find(|(gate, _)| gate.name == all) else { continue };
            let others = gates().iter().filter(|gate| gate.stage == stage && !gate.locked);
            set.extend(others.map(|gate| (gate.name, *value)));
        }
        set.extend(explicit.iter().map(|(gate, value)| (gate.name, *value)));
        set.retain(|name, value| gate(name).is_some_and(|gate| gate.default != *value));
        Self(set)
    }

    /// Gates need others.
    fn check(&self) -> Result<(), FeatureError> {
        let lacks = |gate: &Gate| {
            let missing: Vec<&str> = gate.needs.iter().copied().filter(|need| !self.on(need)).collect();
            let text =
                format!("{} is enabled, but depends on features that are disabled: [{}]", gate.name, missing.join(" "));
            (!missing.is_empty()).then_some(text)
        };
        let faults: Vec<String> = gates().iter().filter(|gate| self.on(gate.name)).filter_map(lacks).collect();
        if faults.is_empty() { Ok(()) } else { Err(FeatureError::Needs(faults)) }
    }

    /// Whether a gate is on. What is no gate is off.
    pub fn on(&self, name: &str) -> bool {
        self.0.get(name).copied().unwrap_or_else(|| gate(name).is_some_and(|gate| gate.default))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &str) -> Result<Gates, String> {
        let pairs: Vec<String> = pairs.split(',').map(str::to_owned).collect();
        Gates::parse(&pairs).map_err(|error| error.to_string())
    }

    #[test]
    fn named_gates_weigh_more_than_their_stage() {
        let gates = parse("AllAlpha=true,kube:CBORServingAndStorage=false,:GenericWorkload=true,AllBeta=true").unwrap();
        assert!(!gates.on("CBORServingAndStorage") && gates.on("VolumeBindMountOptions"));
        assert!(gates.on("CoordinatedLeaderElection") && !gates.on("Nonsense") && gates.on("UserNamespacesSupport"));
        assert_eq!(parse("WatchList=true,UserNamespacesSupport=true").unwrap(), Gates::default());
        assert!(!parse("AllBeta=false").unwrap().on("WatchList"));
        assert!(parse("AllBeta=false,WatchList=true").unwrap().on("WatchList"));
    }

    #[test]
    fn faults_are_told_as_upstream_tells_them() {
        for (pairs, fault) in [
            ("Nonsense=true", "unrecognized feature gate: Nonsense"),
            ("JobSuccessPolicy=false", "unrecognized feature gate: JobSuccessPolicy"),
            ("CBORServingAndStorage", "missing bool value for CBORServingAndStorage"),
            (
                "Nonsense=true,Other=maybe",
                "invalid value of Other=maybe, err: strconv.ParseBool: parsing \"maybe\": invalid syntax",
            ),
            ("wardle:X=true", "component not registered: wardle"),
            (
                "UserNamespacesSupport=false",
                "cannot set feature gate UserNamespacesSupport to false, feature is locked to true",
            ),
            (
                "CompositePodGroup=true",
                "CompositePodGroup is enabled, but depends on features that are disabled: [GenericWorkload \
                 TopologyAwareWorkloadScheduling]",
            ),
            (
                "PodLevelResources=false,PodLevelResourcesFixDefaulting=false",
                "[InPlacePodLevelResourcesVerticalScaling is enabled, but depends on features that are disabled: \
                 [PodLevelResources], PodLevelResourcesFixKubeletQOSClass is enabled, but depends on features that are \
                 disabled: [PodLevelResources]]",
            ),
        ] {
            assert_eq!(parse(pairs), Err(fault.to_owned()), "{pairs}");
        }
    }
}
