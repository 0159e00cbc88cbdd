//! Known differences: data with a reason each. An entry that nothing matches any more fails the run.

use std::path::Path;

use anyhow::Context;
use regex::Regex;
use serde::Deserialize;

use super::compare::{Class, Difference};

/// One known difference, as the file has it. Expressions must match the whole of what they are about, but for `says`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The feed: sessions, objects or patches.
    feed: String,
    /// The kind or session.
    kind: String,
    /// The class.
    class: Class,
    /// Where in the answer.
    path: String,
    /// What is in upstream's value or in ours; anything if absent.
    says: Option<String>,
    /// Why it may differ.
    reason: String,
}

/// An entry, ready to match.
#[derive(Debug)]
struct Matcher {
    entry: Entry,
    kind: Regex,
    path: Regex,
    says: Option<Regex>,
    met: bool,
}

impl Matcher {
    fn new(entry: Entry) -> anyhow::Result<Self> {
        anyhow::ensure!(!entry.reason.trim().is_empty(), "a known difference without a reason: {}", entry.path);
        let whole = |text: &str| Regex::new(&format!("^(?:{text})$"));
        let says = entry.says.as_deref().map(Regex::new).transpose()?;
        Ok(Self { kind: whole(&entry.kind)?, path: whole(&entry.path)?, says, met: false, entry })
    }

    fn matches(&self, feed: &str, kind: &str, difference: &Difference) -> bool {
        let says = |says: &Regex| {
            [&difference.upstream, &difference.ours].iter().any(|value| says.is_match(&value.to_string()))
        };
        self.entry.feed == feed
            && self.entry.class == difference.class
            && self.kind.is_match(kind)
            && self.path.is_match(&difference.path)
            && self.says.as_ref().is_none_or(says)
    }
}

/// The known differences, and which of them were met.
#[derive(Debug)]
pub struct Known(Vec<Matcher>);

impl Known {
    /// Reads the file.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
        let entries: Vec<Entry> = serde_yaml_ng::from_slice(&text).with_context(|| format!("{}", file.display()))?;
        Self::new(entries)
    }

    fn new(entries: Vec<Entry>) -> anyhow::Result<Self> {
        Ok(Self(entries.into_iter().map(Matcher::new).collect::<anyhow::Result<_>>()?))
    }

    /// Whether a difference is known.
    pub fn knows(&mut self, feed: &str, kind: &str, difference: &Difference) -> bool {
        let found = self.0.iter_mut().find(|matcher| matcher.matches(feed, kind, difference));
        found.is_some_and(|matcher| {
            matcher.met = true;
            true
        })
    }

    /// Entries of a feed that nothing matched.
    pub fn stale(&self, feed: &str) -> Vec<String> {
        let unmet = self.0.iter().filter(|matcher| !matcher.met).map(|matcher| &matcher.entry);
        unmet
            .filter(|entry| entry.feed == feed)
            .map(|entry| format!("{feed} {} {} {}: {}", entry.kind, entry.class.name(), entry.path, entry.reason))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: &str, path: &str, says: Option<&str>) -> Entry {
        Entry {
            feed: "objects".into(),
            kind: kind.into(),
            class: Class::Message,
            path: path.into(),
            says: says.map(str::to_owned),
            reason: "so".into(),
        }
    }

    fn difference(class: Class, path: &str) -> Difference {
        Difference { class, path: path.into(), upstream: "in scheme".into(), ours: "in table".into() }
    }

    #[test]
    fn met_entries_are_not_stale() {
        let mut known = Known::new(vec![entry("Pod", "message", Some("scheme")), entry("Node", "x", None)]).unwrap();
        assert!(known.knows("objects", "Pod", &difference(Class::Message, "message")));
        assert_eq!(known.stale("objects"), ["objects Node message x: so"]);
        assert!(known.stale("patches").is_empty());
    }

    #[test]
    fn an_entry_matches_nothing_but_what_it_says() {
        let mut known = Known::new(vec![entry("Pod", "message", Some("scheme"))]).unwrap();
        assert!(!known.knows("objects", "PodTemplate", &difference(Class::Message, "message")));
        assert!(!known.knows("patches", "Pod", &difference(Class::Message, "message")));
        assert!(!known.knows("objects", "Pod", &difference(Class::Status, "message")));
        assert!(!known.knows("objects", "Pod", &difference(Class::Message, "a.message")));
        let mut other = Known::new(vec![entry("Pod", "message", Some("schema"))]).unwrap();
        assert!(!other.knows("objects", "Pod", &difference(Class::Message, "message")));
    }

    #[test]
    fn an_entry_without_a_class_is_refused() {
        let text = "[{feed: objects, kind: Pod, path: x, reason: so}]";
        assert!(serde_yaml_ng::from_str::<Vec<Entry>>(text).is_err());
    }
}
