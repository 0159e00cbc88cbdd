//! What the feeds found: counted by kind and class, with an example of each sort of difference for whoever mends it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context, bail};
use regex::Regex;
use serde::Serialize;

use super::Feed;
use super::compare::{Comparison, Difference};
use super::known::Known;
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
    /// Differences in the order in which they were met.
    pub differences: Vec<(String, Comparison, Difference)>,
}

impl Found {
    /// Counts a comparison.
    pub fn add(&mut self, kind: &str, comparison: Comparison) {
        if comparison.upstream.status == Status::Broken {
            self.unanswered += 1;
            return;
        }
        self.requests += 1;
        if let Some(difference) = comparison.difference.clone() {
            self.differences.push((kind.to_owned(), comparison, difference));
        }
    }

    /// Requests, compared or not.
    pub fn sent(&self) -> u64 {
        self.requests + self.unanswered
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
    by_class: BTreeMap<String, u64>,
    by_kind: BTreeMap<String, BTreeMap<String, u64>>,
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
    upstream: &'static str,
    feeds: BTreeMap<&'static str, Score>,
    #[serde(skip)]
    known: Known,
    #[serde(skip)]
    stale: Vec<String>,
}

impl Outcome {
    /// Nothing yet.
    pub fn new(seed: u64, known: Known) -> Self {
        Self { seed, upstream: "v1.37.2", feeds: BTreeMap::new(), known, stale: Vec::new() }
    }

    /// Adds a feed.
    pub fn add(&mut self, feed: Feed, found: Found) {
        let mut score = Score { requests: found.requests, unanswered: found.unanswered, ..Score::default() };
        for (kind, example, difference) in found.differences {
            if self.known.knows(feed.name(), &kind, &difference) {
                score.known += 1;
                continue;
            }
            score.differences += 1;
            let class = difference.class.name().to_owned();
            *score.by_class.entry(class.clone()).or_default() += 1;
            *score.by_kind.entry(kind.clone()).or_default().entry(class).or_default() += 1;
            let key = (kind, shape(&difference));
            let sort =
                score.sorts.entry(key).or_insert_with(|| Sort { count: 0, difference, example: example.clone() });
            sort.count += 1;
            if size(&example) < size(&sort.example) {
                sort.difference = example.difference.clone().unwrap_or_else(|| sort.difference.clone());
                sort.example = example;
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
            let classes: Vec<String> = score.by_class.iter().map(|(class, n)| format!("{class} {n}")).collect();
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
        for entry in &self.stale {
            let _ = writeln!(text, "known difference that is gone: {entry}");
        }
        text
    }

    /// Writes the figures, and a file of examples for each feed and kind.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let figures = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(folder.join("differential.json"), figures)?;
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

    /// Fails if the run is worse than it may be.
    pub fn judge(&self, strict: bool, most: Option<f64>) -> anyhow::Result<()> {
        if let (Some(most), Some(score)) = (most, self.feeds.get("objects"))
            && score.per_thousand > most
        {
            bail!("{:.1} differences per 1,000 generated objects; {most} may be", score.per_thousand);
        }
        let differences: u64 = self.feeds.values().map(|score| score.differences).sum();
        if strict && differences > 0 {
            bail!("{differences} differences that are not known");
        }
        if strict && !self.stale.is_empty() {
            bail!("{} known differences are gone: take them out of the file", self.stale.len());
        }
        Ok(())
    }
}

impl Score {
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
    use super::super::wire::{Answer, Request};
    use super::*;

    #[test]
    fn what_upstream_did_not_answer_is_no_comparison() {
        let mut found = Found::default();
        for status in [Status::Broken, Status::Exit(Some(0)), Status::Http(200)] {
            let answer = Answer { status, ..Answer::default() };
            found.add("Pod", super::super::compare::answers(&Request::default(), answer.clone(), answer));
        }
        assert_eq!((found.requests, found.unanswered, found.sent()), (2, 1, 3));
    }
}
