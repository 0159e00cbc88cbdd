//! Known failures: tests that fail for a reason somebody wrote down. The file may only shrink: an entry for a test that passes,
//! or that no longer exists, fails the run until it is removed.
//!
//! ```yaml
//! - test: "[sig-node] Pods should ... [Conformance]"
//!   reason: what is missing
//!   issue: 7
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

use crate::results::{State, TestResult};

/// One test that is known to fail.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its full name.
    pub test: String,
    /// Why it fails.
    pub reason: String,
    /// Where that is being dealt with.
    pub issue: u64,
}

/// The file's entries by test name.
#[derive(Clone, Debug, Default)]
pub struct KnownFailures(BTreeMap<String, Entry>);

/// How results compare with what is known.
#[derive(Debug, Default)]
pub struct Verdict<'a> {
    /// Fail, and nobody knew.
    pub unexpected: Vec<&'a TestResult>,
    /// Fail as known.
    pub known: Vec<&'a str>,
    /// Pass although they are known to fail.
    pub stale: Vec<&'a str>,
}

impl KnownFailures {
    /// Reads the file.
    pub fn load(path: &Path) -> anyhow::Result<KnownFailures> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("the known failures in {}", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<KnownFailures> {
        // A file of comments only is what the list ends as.
        let entries = serde_yaml_ng::from_str::<Option<Vec<Entry>>>(text)?.unwrap_or_default();
        let mut known = BTreeMap::new();
        for entry in entries {
            anyhow::ensure!(!entry.reason.trim().is_empty(), "no reason given for {}", entry.test);
            if let Some(twice) = known.insert(entry.test.clone(), entry) {
                anyhow::bail!("listed twice: {}", twice.test);
            }
        }
        Ok(KnownFailures(known))
    }

    /// Why `test` is known to fail.
    pub fn get(&self, test: &str) -> Option<&Entry> {
        self.0.get(test)
    }

    /// Entries that name no test of `all`.
    pub fn without_test(&self, all: &[String]) -> Vec<&str> {
        let all: std::collections::BTreeSet<&str> = all.iter().map(String::as_str).collect();
        self.0.keys().map(String::as_str).filter(|test| !all.contains(test)).collect()
    }

    /// Judges `results`.
    pub fn judge<'a>(&self, results: &'a [TestResult]) -> Verdict<'a> {
        let mut verdict = Verdict::default();
        for result in results {
            match (result.state, self.0.contains_key(&result.test)) {
                (State::Failed | State::Lost, true) => verdict.known.push(&result.test),
                (State::Failed | State::Lost, false) => verdict.unexpected.push(result),
                (State::Passed, true) => verdict.stale.push(&result.test),
                (State::Passed | State::Skipped, _) => {}
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::example;

    const FILE: &str = "- {test: a, reason: not there, issue: 7}\n- {test: b, reason: neither, issue: 8}\n";

    #[test]
    fn results_are_judged() {
        let known = KnownFailures::parse(FILE).unwrap();
        let results = [
            example("a", State::Failed, 1.0),
            example("b", State::Passed, 1.0),
            example("c", State::Lost, 1.0),
            example("d", State::Passed, 1.0),
        ];
        let verdict = known.judge(&results);
        assert_eq!((verdict.known, verdict.stale), (vec!["a"], vec!["b"]));
        assert_eq!(verdict.unexpected.iter().map(|result| result.test.as_str()).collect::<Vec<_>>(), ["c"]);
        assert_eq!(known.without_test(&["a".to_owned()]), ["b"]);
        assert_eq!(known.get("a").unwrap().issue, 7);
    }

    #[test]
    fn the_projects_own_file_is_well_formed() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/known-failures.yaml");
        let known = KnownFailures::load(Path::new(file)).unwrap();
        assert!(known.0.keys().all(|test| test.contains("[Conformance]")));
    }

    #[test]
    fn the_file_is_checked() {
        assert!(KnownFailures::parse("# all pass\n").unwrap().0.is_empty());
        for wrong in ["- {test: a, issue: 7}", "- {test: a, reason: ' ', issue: 7}", &format!("{FILE}{FILE}"), "a: b"] {
            assert!(KnownFailures::parse(wrong).is_err(), "{wrong}");
        }
    }
}
