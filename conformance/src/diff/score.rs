//! What the feeds found: counted by kind and class, with an example of each sort of difference for whoever mends it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::Context;
use regex::Regex;
use serde::Serialize;

use super::Feed;
use super::compare::{Comparison, Difference};
use super::known::Known;
use super::limits::{self, Classes, Kinds, Limits};
use super::wire::Status;

static NUMBERS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\d+").ok());
/// Length of a value that is shown in a line.
const SHOWN: usize = 400;

impl Feed {
    /// As results name it.
    pub fn name(self) -> &'static str {
        match self {
            Feed::Sessions => "sessions",
            Feed::Objects => "objects",
            Feed::Patches => "patches",
        }
    }
}

/// What one feed found.
#[derive(Debug, Default)]
pub struct Found {
    /// Requests that were compared.
    pub requests: u64,
    /// Requests to which upstream broke the connection: it says nothing of what is right.
    pub unanswered: u64,
    /// Requests with differences, in the order in which they were met.
    pub different: Vec<(String, Comparison)>,
}

impl Found {
    /// Counts a comparison.
    pub fn add(&mut self, kind: &str, comparison: Comparison) {
        if comparison.upstream.status == Status::Broken {
            self.unanswered += 1;
            return;
        }
        self.requests += 1;
        if !comparison.differences.is_empty() {
            self.different.push((kind.to_owned(), comparison));
        }
    }
}

/// The score of one feed.
#[derive(Debug, Default, Serialize)]
pub struct Score {
    requests: u64,
    unanswered: u64,
    differences: u64,
    per_thousand: f64,
    known: u64,
    by_class: Classes,
    by_kind: Kinds,
    #[serde(skip)]
    sorts: BTreeMap<(String, String), Sort>,
}

/// Differences that are alike.
#[derive(Debug)]
struct Sort {
    count: u64,
    difference: Difference,
    example: Comparison,
}

/// The scores of a run.
#[derive(Debug, Serialize)]
pub struct Outcome {
    seed: u64,
    requests: u64,
    upstream: String,
    feeds: BTreeMap<&'static str, Score>,
    #[serde(skip)]
    known: Known,
    #[serde(skip)]
    stale: Vec<String>,
}

impl Outcome {
    /// Nothing yet, of so many generated requests compared with that version of upstream.
    pub fn new(seed: u64, requests: u64, upstream: String, known: Known) -> Self {
        Self { seed, requests, upstream, feeds: BTreeMap::new(), known, stale: Vec::new() }
    }

    /// Adds a feed. What is known is passed over: of an answer with several differences, the weightiest other one counts.
    pub fn add(&mut self, feed: Feed, found: Found) {
        let mut score = Score { requests: found.requests, unanswered: found.unanswered, ..Score::default() };
        for (kind, example) in found.different {
            let mut left: Vec<Difference> = example.differences.clone();
            left.retain(|difference| !self.known.knows(feed.name(), &kind, difference));
            match left.into_iter().next() {
                Some(difference) => score.count(kind, difference, example),
                None => score.known += 1,
            }
        }
        score.per_thousand = rate(score.differences, score.requests);
        self.stale.extend(self.known.stale(feed.name()));
        self.feeds.insert(feed.name(), score);
    }

    /// For a person.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        for (feed, score) in &self.feeds {
            let _ = writeln!(
                text,
                "{feed}: {} requests, {} differences ({:.1} per 1,000), {} known; upstream did not answer {}",
                score.requests, score.differences, score.per_thousand, score.known, score.unanswered
            );
            let classes: Vec<String> =
                score.by_class.iter().map(|(class, n)| format!("{} {n}", class.name())).collect();
            if !classes.is_empty() {
                let _ = writeln!(text, "  {}", classes.join(", "));
            }
            let mut kinds: Vec<(&String, u64)> =
                score.by_kind.iter().map(|(kind, classes)| (kind, classes.values().sum())).collect();
            kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            for (kind, count) in kinds.iter().take(15) {
                let _ = writeln!(text, "  {count:5} {kind}");
            }
        }
        text
    }

    /// Writes the figures, also in the form of limits, and a file of examples for each feed and kind.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let figures = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(folder.join("differential.json"), figures)?;
        self.figures().write(&folder.join("limits.json"))?;
        for (feed, score) in &self.feeds {
            let own = folder.join(feed);
            if own.exists() {
                std::fs::remove_dir_all(&own)?;
            }
            std::fs::create_dir_all(&own)?;
            for kind in score.by_kind.keys() {
                let file = own.join(format!("{}.txt", kind.replace('/', "-")));
                std::fs::write(&file, score.examples(kind)).with_context(|| format!("writing {}", file.display()))?;
            }
        }
        Ok(())
    }

    /// The figures in the form of limits.
    pub fn figures(&self) -> Limits {
        let feed = |score: &Score| limits::Feed { unanswered: score.unanswered, by_kind: score.by_kind.clone() };
        let feeds = self.feeds.iter().map(|(name, score)| ((*name).to_owned(), feed(score))).collect();
        Limits { seed: self.seed, requests: self.requests, feeds }
    }

    /// What of the run may not be, whatever the limits are.
    pub fn faults(&self) -> Vec<String> {
        let gone = self.stale.iter().map(|entry| format!("nothing matches this known difference any more: {entry}"));
        gone.chain(self.idle()).collect()
    }

    /// The feeds that compared nothing, as faults.
    pub fn idle(&self) -> impl Iterator<Item = String> + '_ {
        let idle = self.feeds.iter().filter(|(_, score)| score.requests == 0);
        idle.map(|(feed, _)| format!("{feed}: nothing was compared"))
    }
}

impl Score {
    fn count(&mut self, kind: String, difference: Difference, example: Comparison) {
        self.differences += 1;
        *self.by_class.entry(difference.class).or_default() += 1;
        *self.by_kind.entry(kind.clone()).or_default().entry(difference.class).or_default() += 1;
        let key = (kind, shape(&difference));
        let first = || Sort { count: 0, difference: difference.clone(), example: example.clone() };
        let sort = self.sorts.entry(key).or_insert_with(first);
        sort.count += 1;
        if size(&example) < size(&sort.example) {
            (sort.difference, sort.example) = (difference, example);
        }
    }

    fn examples(&self, kind: &str) -> String {
        let mut sorts: Vec<&Sort> =
            self.sorts.iter().filter(|((own, _), _)| own == kind).map(|(_, sort)| sort).collect();
        sorts.sort_by_key(|sort| std::cmp::Reverse(sort.count));
        let mut text = String::new();
        for sort in sorts {
            let difference = &sort.difference;
            let _ = writeln!(text, "===== {} x {} at {}", sort.count, difference.class.name(), difference.path);
            let _ = writeln!(text, "upstream: {}", short(&difference.upstream.to_string()));
            let _ = writeln!(text, "ours:     {}", short(&difference.ours.to_string()));
            for request in &sort.example.before {
                let _ = writeln!(text, "--- before\n{}", request.show());
            }
            let _ = writeln!(text, "--- request\n{}", sort.example.request.show());
            for (name, answer) in [("upstream", &sort.example.upstream), ("ours", &sort.example.ours)] {
                let body = String::from_utf8_lossy(&answer.body);
                let _ =
                    writeln!(text, "--- {name}: {} {}\n{}", answer.status, answer.header("content-type"), body.trim());
                for warning in answer.headers.get("warning").into_iter().flatten() {
                    let _ = writeln!(text, "Warning: {warning}");
                }
            }
            text.push('\n');
        }
        text
    }
}

fn rate(differences: u64, requests: u64) -> f64 {
    let rate = differences as f64 * 1000.0 / requests.max(1) as f64;
    (rate * 100.0).round() / 100.0
}

fn size(example: &Comparison) -> usize {
    example.before.iter().map(|request| request.body.len()).sum::<usize>() + example.request.body.len()
}

fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Differences with the same shape are one thing to mend.
fn shape(difference: &Difference) -> String {
    let texts = format!("{} {} {}", difference.class.name(), difference.path, difference.upstream);
    let plain = NUMBERS.as_ref().map_or_else(|| texts.clone(), |numbers| numbers.replace_all(&texts, "#").into_owned());
    plain.chars().take(160).collect()
}

#[cfg(test)]
mod tests {
    use super::super::compare::Class;
    use super::super::wire::{Answer, Request};
    use super::*;

    fn example(status: Status, classes: &[Class]) -> Comparison {
        let answer = Answer { status, ..Answer::default() };
        let difference = |class: &Class| Difference {
            class: *class,
            path: class.name().into(),
            upstream: Default::default(),
            ours: Default::default(),
        };
        let differences = classes.iter().map(difference).collect();
        Comparison {
            request: Request::default(),
            upstream: answer.clone(),
            ours: answer,
            before: Vec::new(),
            differences,
        }
    }

    fn outcome(known: &str, found: Found) -> Outcome {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("known.yaml");
        std::fs::write(&file, known).unwrap();
        let mut outcome = Outcome::new(1, 9, "v1.37.2".into(), Known::read(&file).unwrap());
        outcome.add(Feed::Objects, found);
        outcome
    }

    #[test]
    fn what_upstream_did_not_answer_is_no_comparison() {
        let mut found = Found::default();
        for status in [Status::Broken, Status::Exit(Some(0)), Status::Http(200)] {
            found.add("Pod", example(status, &[]));
        }
        assert_eq!((found.requests, found.unanswered), (2, 1));
        assert_eq!(outcome("[]", found).figures().feeds["objects"].unanswered, 1);
    }

    #[test]
    fn a_known_difference_hides_no_other_of_the_same_answer() {
        let mut found = Found::default();
        found.add("Pod", example(Status::Http(200), &[Class::ManagedFields, Class::Body]));
        found.add("Pod", example(Status::Http(200), &[Class::ManagedFields]));
        let known = "[{feed: objects, kind: Pod, class: managedFields, path: managedFields, reason: so},
            {feed: objects, kind: Pod, class: status, path: status, reason: so}]";
        let outcome = outcome(known, found);
        assert_eq!(outcome.figures().feeds["objects"].by_kind["Pod"], Classes::from([(Class::Body, 1)]));
        assert_eq!(outcome.feeds["objects"].known, 1);
        let [fault] = &outcome.faults()[..] else { panic!("{:?}", outcome.faults()) };
        assert!(fault.contains("Pod status"), "{fault}");
    }

    #[test]
    fn a_feed_that_compared_nothing_is_at_fault() {
        assert_eq!(outcome("[]", Found::default()).faults(), ["objects: nothing was compared"]);
    }
}
