//! Known differences: data with a reason each. An entry that nothing matches any more fails the run.

use std::path::Path;

use anyhow::Context;
use regex::Regex;
use serde::Deserialize;

use super::compare::Difference;

/// One known difference, as the file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The feed: sessions, objects or patches.
    feed: String,
    /// The kind or session; a regular expression for the whole name.
    kind: String,
    /// The class; any if absent.
    class: Option<String>,
    /// A regular expression that is in the path, upstream's value or ours: `PATH: UPSTREAM | OURS`.
    matches: String,
    /// Why it may differ.
    reason: String,
}

/// The known differences, and which of them were met.
#[derive(Debug)]
pub struct Known {
    entries: Vec<(Entry, Regex, Regex)>,
    met: Vec<bool>,
}

impl Known {
    /// Reads the file.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
        let entries: Vec<Entry> = serde_yaml_ng::from_slice(&text).with_context(|| format!("{}", file.display()))?;
        Self::new(entries)
    }

    fn new(entries: Vec<Entry>) -> anyhow::Result<Self> {
        let met = vec![false; entries.len()];
        let compiled = entries.into_iter().map(|entry| {
            anyhow::ensure!(!entry.reason.trim().is_empty(), "a known difference without a reason: {}", entry.matches);
            let kind = Regex::new(&format!("^(?:{})$", entry.kind))?;
            let matches = Regex::new(&entry.matches)?;
            Ok((entry, kind, matches))
        });
        Ok(Self { entries: compiled.collect::<anyhow::Result<_>>()?, met })
    }

    /// Whether a difference is known.
    pub fn knows(&mut self, feed: &str, kind: &str, difference: &Difference) -> bool {
        let text = format!("{}: {} | {}", difference.path, difference.upstream, difference.ours);
        let found = self.entries.iter().position(|(entry, kinds, matches)| {
            entry.feed == feed
                && entry.class.as_deref().is_none_or(|class| class == difference.class.name())
                && kinds.is_match(kind)
                && matches.is_match(&text)
        });
        if let Some(at) = found {
            self.met[at] = true;
        }
        found.is_some()
    }

    /// Entries of a feed that nothing matched.
    pub fn stale(&self, feed: &str) -> Vec<String> {
        let unmet = self.entries.iter().zip(&self.met).filter(|((entry, ..), met)| !**met && entry.feed == feed);
        unmet.map(|((entry, ..), _)| format!("{} {}: {}", entry.kind, entry.matches, entry.reason)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::compare::Class;
    use super::*;

    #[test]
    fn met_entries_are_not_stale() {
        let entry = |kind: &str, matches: &str| Entry {
            feed: "objects".into(),
            kind: kind.into(),
            class: Some("message".into()),
            matches: matches.into(),
            reason: "so".into(),
        };
        let mut known = Known::new(vec![entry("Pod", "^message: .*scheme"), entry("Node", "x")]).unwrap();
        let difference = Difference {
            class: Class::Message,
            path: "message".into(),
            upstream: "in scheme".into(),
            ours: "in table".into(),
        };
        assert!(known.knows("objects", "Pod", &difference));
        assert!(!known.knows("objects", "PodTemplate", &difference));
        assert!(!known.knows("patches", "Pod", &difference));
        assert_eq!(known.stale("objects"), ["Node x: so"]);
        assert!(known.stale("patches").is_empty());
    }
}
