//! The figures that the repository keeps of a run.

use std::collections::BTreeMap;

use serde::Serialize;

use super::summary::Summary;

/// `e2e.json`.
#[derive(Debug, Serialize)]
pub struct Figures<'a> {
    version: &'a str,
    store: &'a str,
    total: usize,
    passed: usize,
    per_sig: BTreeMap<&'a str, Sig>,
    failed: Vec<&'a str>,
    seconds: u64,
}

#[derive(Debug, Serialize)]
struct Sig {
    total: usize,
    passed: usize,
}

impl<'a> Figures<'a> {
    /// Of a complete run only: figures must be true.
    pub fn new(summary: &Summary<'a>) -> anyhow::Result<Figures<'a>> {
        let missing = summary.missing.len();
        anyhow::ensure!(missing == 0, "{missing} tests have no result: figures are of complete runs only");
        let sig = |tally: &super::summary::Tally| Sig { total: tally.total(), passed: tally.passed };
        let not_passed = summary.results.tests.iter().filter(|test| test.state != crate::results::State::Passed);
        Ok(Figures {
            version: summary.version(),
            store: summary.store().unwrap_or("unknown"),
            total: summary.all.total(),
            passed: summary.all.passed,
            per_sig: summary.sigs.iter().map(|(name, tally)| (*name, sig(tally))).collect(),
            failed: not_passed.map(|test| test.test.as_str()).collect(),
            seconds: summary.results.seconds().round() as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::mixed;
    use super::*;

    #[test]
    fn figures_are_of_complete_runs() {
        let mut results = mixed();
        let figures = serde_json::to_value(Figures::new(&Summary::new(&results, None)).unwrap()).unwrap();
        assert_eq!(
            figures,
            serde_json::json!({
                "version": "v1.37.2", "store": "embedded", "total": 4, "passed": 1, "seconds": 605,
                "per_sig": {"sig-a": {"total": 2, "passed": 1}, "sig-b": {"total": 2, "passed": 0}},
                "failed": ["[sig-a] two <b> [Conformance]", "[sig-b] three [Conformance]", "[sig-b] four [Conformance]"],
            })
        );
        results.tests.pop();
        assert!(Figures::new(&Summary::new(&results, None)).is_err());
    }
}
