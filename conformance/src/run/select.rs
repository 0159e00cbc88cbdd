//! Which tests to run: a pure function of the suite's list and of what the user asked for.

use std::collections::BTreeSet;

use anyhow::Context;
use regex::RegexSet;

use crate::name;

/// The tests that every conformant cluster passes.
const DEFAULT_FOCUS: &str = r"\[Conformance\]";

/// The smoke set, one name a line.
const SMOKE: &str = include_str!("../../smoke.txt");

/// Which tests; together: all conditions must hold.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Selection {
    /// Tests whose name matches; may be given several times. [default: \[Conformance\]]
    #[arg(long, value_name = "REGEX")]
    pub focus: Vec<String>,
    /// No tests whose name matches.
    #[arg(long, value_name = "REGEX")]
    pub skip: Vec<String>,
    /// Tests of this group: `apps` or `sig-apps`; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub sig: Vec<String>,
    /// The tests that a file names, one a line; `#` begins a comment.
    #[arg(long, value_name = "FILE")]
    pub tests: Option<std::path::PathBuf>,
    /// The smoke set: 40 conformance tests, some of every group.
    #[arg(long, conflicts_with = "tests")]
    pub smoke: bool,
}

impl Selection {
    /// The chosen ones of `all`, in `all`'s order.
    pub fn choose(&self, all: &[String]) -> anyhow::Result<Vec<String>> {
        let named = self.named()?;
        if let Some(named) = &named {
            let known: BTreeSet<&str> = all.iter().map(String::as_str).collect();
            let unknown: Vec<&str> = named.iter().map(String::as_str).filter(|name| !known.contains(name)).collect();
            anyhow::ensure!(unknown.is_empty(), "the suite has no such tests:\n  {}", unknown.join("\n  "));
        }
        let focus = match (&named, self.focus.is_empty()) {
            (None, true) => RegexSet::new([DEFAULT_FOCUS]),
            (Some(_), true) => RegexSet::new([""]),
            (_, false) => RegexSet::new(&self.focus),
        };
        let (focus, skip) = (focus.context("--focus")?, RegexSet::new(&self.skip).context("--skip")?);
        let of_sig = |test: &str| {
            let group = name::sig(test);
            self.sig.is_empty() || self.sig.iter().any(|sig| group == sig || group.strip_prefix("sig-") == Some(sig))
        };
        let chosen = all.iter().filter(|test| {
            let is_named = named.as_ref().is_none_or(|named| named.contains(*test));
            is_named && focus.is_match(test) && !skip.is_match(test) && of_sig(test)
        });
        Ok(chosen.cloned().collect())
    }

    fn named(&self) -> anyhow::Result<Option<BTreeSet<String>>> {
        let text = match &self.tests {
            Some(file) => {
                std::fs::read_to_string(file).with_context(|| format!("reading the names in {}", file.display()))?
            }
            None if self.smoke => SMOKE.to_owned(),
            None => return Ok(None),
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Ok(Some(lines.map(str::to_owned).collect()))
    }
}

/// The names in the output of `e2e.test --list-tests`: `    FILE:LINE: NAME`.
pub fn parse_list(output: &str) -> Vec<String> {
    let names = output.lines().filter_map(|line| {
        let (place, name) = line.trim_start().split_once(": ")?;
        let (_, line) = place.rsplit_once(':')?;
        line.parse::<u32>().is_ok().then(|| name.to_owned())
    });
    names.collect()
}

/// Expressions that match exactly `tests`. There are several, as one argument of a process has a limited length; ginkgo matches
/// against the suite's description, a space, and the name.
pub fn exact(tests: &[String]) -> Vec<String> {
    let expression = |tests: &[String]| {
        let names: Vec<String> = tests.iter().map(|test| regex::escape(test)).collect();
        format!("(?:^| )(?:{})$", names.join("|"))
    };
    tests.chunks(200).map(expression).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<String> {
        let names = [
            "[sig-apps] Job works [Conformance]",
            "[sig-apps] Job works too",
            "[sig-node] Pods (a+b) [Conformance] [Serial]",
        ];
        names.map(str::to_owned).to_vec()
    }

    fn choose(selection: Selection) -> Vec<usize> {
        let all = all();
        let chosen = selection.choose(&all).unwrap();
        chosen.iter().map(|test| all.iter().position(|other| other == test).unwrap()).collect()
    }

    #[test]
    fn tests_are_chosen() {
        let strings = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(choose(Selection::default()), [0, 2]);
        assert_eq!(choose(Selection { focus: strings(&["Job"]), ..Selection::default() }), [0, 1]);
        assert_eq!(choose(Selection { skip: strings(&[r"\[Serial\]"]), ..Selection::default() }), [0]);
        assert_eq!(choose(Selection { sig: strings(&["node"]), ..Selection::default() }), [2]);
        assert_eq!(choose(Selection { sig: strings(&["sig-apps"]), ..Selection::default() }), [0]);
        assert!(Selection { focus: strings(&["("]), ..Selection::default() }.choose(&all()).is_err());
    }

    #[test]
    fn named_tests_must_exist() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("names");
        let of = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Selection { tests: Some(file.clone()), ..Selection::default() }
        };
        assert_eq!(choose(of("# some\n[sig-apps] Job works too\n\n")), [1]);
        assert!(of("[sig-apps] Job work\n").choose(&all()).unwrap_err().to_string().contains("Job work"));
    }

    #[test]
    fn the_smoke_set_has_forty_tests() {
        let names = Selection { smoke: true, ..Selection::default() }.named().unwrap().unwrap();
        assert_eq!(names.len(), 40);
        assert!(names.iter().all(|name| name.contains("[Conformance]")));
    }

    #[test]
    fn lists_are_read() {
        let output = "The following spec names can be used with 'ginkgo run --focus/skip':\n    \
                      ../mod/k8s.io/kubernetes@v1.37.2/test/e2e/a.go:260: [sig-x] API: a [Beta]\n\n";
        assert_eq!(parse_list(output), ["[sig-x] API: a [Beta]"]);
    }

    #[test]
    fn expressions_match_exactly() {
        let all = all();
        let expression = regex::Regex::new(&exact(&all[1..])[0]).unwrap();
        let matches: Vec<bool> = all.iter().map(|test| expression.is_match(&format!("Suite {test}"))).collect();
        assert_eq!(matches, [false, true, true]);
    }
}
