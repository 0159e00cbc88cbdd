//! The table of feature gates: which there are, of which stage, and what each needs.

use std::sync::OnceLock;

/// How far a feature has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Off unless asked for.
    Alpha,
    /// Mostly on.
    Beta,
    /// Here to stay.
    Stable,
    /// On its way out.
    Deprecated,
}

/// A feature gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Name.
    pub name: &'static str,
    /// Stage.
    pub stage: Stage,
    /// On by default.
    pub default: bool,
    /// That can't be changed.
    pub locked: bool,
    /// Gates that have to be on with it.
    pub needs: Vec<&'static str>,
}

/// All gates by name.
pub fn gates() -> &'static [Gate] {
    static GATES: OnceLock<Vec<Gate>> = OnceLock::new();
    GATES.get_or_init(|| {
        let lines = include_str!("../schema/v1.37/gates.txt").lines();
        lines.filter(|line| !line.starts_with('#')).filter_map(parse).collect()
    })
}

/// The gate of that name.
pub fn gate(name: &str) -> Option<&'static Gate> {
    let gates = gates();
    gates.binary_search_by(|gate| gate.name.cmp(name)).ok().map(|at| &gates[at])
}

fn parse(line: &'static str) -> Option<Gate> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let stage = match words.next()? {
        "alpha" => Stage::Alpha,
        "beta" => Stage::Beta,
        "ga" => Stage::Stable,
        _ => Stage::Deprecated,
    };
    let mut gate = Gate { name, stage, default: words.next()? == "true", locked: false, needs: Vec::new() };
    for word in words {
        match word.strip_prefix("needs=") {
            Some(names) => gate.needs = names.split(',').collect(),
            None => gate.locked = word == "locked",
        }
    }
    Some(gate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_gate_and_what_is_needed_is_one() {
        let lines = include_str!("../schema/v1.37/gates.txt").lines().filter(|line| !line.starts_with('#'));
        assert_eq!(gates().len(), lines.count());
        assert!(gates().iter().flat_map(|gate| &gate.needs).all(|name| gate(name).is_some()));
        assert!(gates().is_sorted_by_key(|gate| gate.name));
    }

    #[test]
    fn gates_are_as_upstream_tells_them() {
        let of = |name| gate(name).map(|gate| (gate.stage, gate.default, gate.locked));
        assert_eq!(of("CBORServingAndStorage"), Some((Stage::Alpha, false, false)));
        assert_eq!(of("UserNamespacesSupport"), Some((Stage::Stable, true, true)));
        assert_eq!(of("AllowServiceExternalIPs"), Some((Stage::Stable, true, false)));
        assert_eq!(of("AtomicFIFO"), Some((Stage::Beta, true, false)));
        assert_eq!(gate("CompositePodGroup").unwrap().needs, ["GenericWorkload", "TopologyAwareWorkloadScheduling"]);
        assert_eq!(of("JobSuccessPolicy"), None);
    }
}
