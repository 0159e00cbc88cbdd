//! How many differences may be: the figures of an earlier run as data. They may only shrink.
//!
//! A request counts once, in the class of its weightiest difference. When that is mended, a lighter one of the same request may
//! come to light: so what is compared with the limits is, for each kind, the number of differences of a class or a weightier one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::compare::Class;

/// Differences by class, the weightiest first.
pub type Classes = BTreeMap<Class, u64>;
/// Differences by kind and class.
pub type Kinds = BTreeMap<String, Classes>;

/// What one feed may come to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feed {
    /// Requests to which upstream breaks the connection.
    pub unanswered: u64,
    /// Differences.
    pub by_kind: Kinds,
}

/// What a run may come to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The figures hold for this seed only,
    pub seed: u64,
    /// and for so many generated requests.
    pub requests: u64,
    /// By feed.
    pub feeds: BTreeMap<String, Feed>,
}

/// What a comparison with the limits came to.
#[derive(Debug, Default, PartialEq)]
pub struct Verdict {
    /// Numbers above their limit.
    pub above: Vec<String>,
    /// Limits that are higher than what was found.
    pub loose: Vec<String>,
}

impl Limits {
    /// Reads the file.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{}", file.display()))
    }

    /// Writes the file.
    pub fn write(&self, file: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))
    }

    /// Compares what a run found with what may be; these limits become those of the run where they are too high.
    pub fn judge(&mut self, found: &Limits) -> anyhow::Result<Verdict> {
        anyhow::ensure!(
            (self.seed, self.requests) == (found.seed, found.requests),
            "the limits are those of --seed {} --requests {}",
            self.seed,
            self.requests
        );
        let mut verdict = Verdict::default();
        for (name, found) in &found.feeds {
            let limits = self.feeds.entry(name.clone()).or_default();
            match found.unanswered.cmp(&limits.unanswered) {
                std::cmp::Ordering::Greater => verdict.above.push(format!(
                    "{name}: upstream did not answer {} requests; {} may be",
                    found.unanswered, limits.unanswered
                )),
                std::cmp::Ordering::Less => {
                    verdict.loose.push(format!("{name}: upstream did not answer {}", found.unanswered));
                    limits.unanswered = found.unanswered;
                }
                std::cmp::Ordering::Equal => {}
            }
            kinds(name, &mut limits.by_kind, &found.by_kind, &mut verdict);
        }
        Ok(verdict)
    }
}

fn kinds(feed: &str, limits: &mut Kinds, found: &Kinds, verdict: &mut Verdict) {
    let names: BTreeSet<String> = limits.keys().chain(found.keys()).cloned().collect();
    for name in names {
        let (limit, own) =
            (limits.get(&name).cloned().unwrap_or_default(), found.get(&name).cloned().unwrap_or_default());
        if let Some(text) = above(&limit, &own) {
            verdict.above.push(format!("{feed} {name}: {text}"));
        } else if limit != own {
            verdict.loose.push(format!("{feed} {name}: {} may be {}", shown(&limit), shown(&own)));
            match own.is_empty() {
                true => drop(limits.remove(&name)),
                false => drop(limits.insert(name, own)),
            }
        }
    }
}

/// The first class up to which there are more differences than may be.
fn above(limit: &Classes, found: &Classes) -> Option<String> {
    found.keys().find_map(|class| {
        let up_to = |classes: &Classes| classes.range(..=*class).map(|(_, count)| count).sum::<u64>();
        let (found, limit) = (up_to(found), up_to(limit));
        let weight = if *class == Class::Status { "" } else { " or a weightier one" };
        (found > limit).then(|| format!("{found} of class {}{weight}; {limit} may be", class.name()))
    })
}

fn shown(classes: &Classes) -> String {
    let parts: Vec<String> = classes.iter().map(|(class, count)| format!("{} {count}", class.name())).collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(classes: &[(Class, u64)], unanswered: u64) -> Limits {
        let kind = ("Pod".to_owned(), classes.iter().copied().collect());
        let by_kind = if classes.is_empty() { Kinds::new() } else { [kind].into() };
        Limits { seed: 1, requests: 9, feeds: [("objects".to_owned(), Feed { unanswered, by_kind })].into() }
    }

    fn above_and_loose(of: &mut Limits, found: &Limits) -> (usize, usize) {
        let verdict = of.judge(found).unwrap();
        (verdict.above.len(), verdict.loose.len())
    }

    #[test]
    fn more_is_too_many_and_less_shrinks_the_limits() {
        let mut may = limits(&[(Class::Status, 2), (Class::Body, 1)], 1);
        assert_eq!(above_and_loose(&mut may, &limits(&[(Class::Status, 2), (Class::Body, 1)], 1)), (0, 0));
        assert_eq!(above_and_loose(&mut may, &limits(&[(Class::Status, 3)], 1)), (1, 0));
        assert_eq!(above_and_loose(&mut may, &limits(&[(Class::Status, 2), (Class::Body, 2)], 2)), (2, 0));
        let better = limits(&[(Class::Body, 1)], 0);
        assert_eq!(above_and_loose(&mut may, &better), (0, 2));
        assert_eq!(may, better);
        assert_eq!(above_and_loose(&mut may, &limits(&[], 0)), (0, 1));
        assert_eq!(may, limits(&[], 0));
    }

    #[test]
    fn what_a_mended_difference_hid_is_not_more() {
        let mut may = limits(&[(Class::Status, 2), (Class::Body, 1)], 0);
        assert_eq!(above_and_loose(&mut may, &limits(&[(Class::Status, 1), (Class::Body, 2)], 0)), (0, 1));
        assert_eq!(above_and_loose(&mut may, &limits(&[(Class::Status, 2), (Class::Body, 1)], 0)), (1, 0));
    }

    #[test]
    fn feeds_that_did_not_run_are_not_judged_and_unknown_ones_may_have_nothing() {
        let mut may = limits(&[(Class::Status, 2)], 0);
        let other = |classes: &[(Class, u64)]| {
            let mut other = limits(classes, 0);
            other.feeds = other.feeds.into_values().map(|feed| ("patches".to_owned(), feed)).collect();
            other
        };
        assert_eq!(above_and_loose(&mut may, &other(&[])), (0, 0));
        assert_eq!(above_and_loose(&mut may, &other(&[(Class::Order, 1)])), (1, 0));
        assert!(may.judge(&Limits { seed: 2, ..limits(&[], 0) }).is_err());
    }
}
