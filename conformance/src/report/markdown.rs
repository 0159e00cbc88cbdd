//! The report as Markdown.

use std::fmt::Write;

use super::summary::{Changes, Summary, Tally};
use super::{duration, short};
use crate::results::TestResult;

/// All that is known of the run.
pub fn report(summary: &Summary<'_>) -> String {
    let mut text = head(summary);
    // Writing to a string can't fail.
    let _ = writeln!(text, "\n## By area\n\n| group | area | passed | failed | skipped | of | test time |");
    let _ = writeln!(text, "|---|---|---:|---:|---:|---:|---:|");
    for ((sig, area), tally) in &summary.areas {
        let _ = writeln!(text, "| {sig} | {} | {} |", inline(area), counts(tally));
    }
    if let Some(changes) = &summary.changes {
        text += &differences(changes);
    }
    text += &failures(summary);
    text += "\n## Slowest tests\n\n| seconds | test |\n|---:|---|\n";
    for test in &summary.slowest {
        let _ = writeln!(text, "| {:.1} | {} |", test.seconds, inline(&test.test));
    }
    text
}

/// The page beside the committed figures: what passes, and what does not.
pub fn figures(summary: &Summary<'_>) -> String {
    let mut text = head(summary);
    if !summary.failures.is_empty() {
        text += "\n## Not passed\n\n";
    }
    for test in &summary.failures {
        let _ = writeln!(text, "- {}: {}", inline(&test.test), inline(&reason(test)));
    }
    text
}

fn head(summary: &Summary<'_>) -> String {
    let all = &summary.all;
    let store = summary.store().map(|store| format!(", store: {store}")).unwrap_or_default();
    let mut text = format!(
        "# Conformance: {}\n\nUpstream's e2e tests against {}{store}; {} of wall time.\n",
        summary.title(),
        summary.version(),
        duration(summary.results.seconds()),
    );
    if !summary.missing.is_empty() {
        let _ = writeln!(text, "\n**Not complete**: {} tests have no result.", summary.missing.len());
    }
    text += "\n| group | passed | failed | skipped | of | test time |\n|---|---:|---:|---:|---:|---:|\n";
    for (sig, tally) in &summary.sigs {
        let _ = writeln!(text, "| {sig} | {} |", counts(tally));
    }
    let _ = writeln!(text, "| **all** | {} |", counts(all));
    text
}

fn counts(tally: &Tally) -> String {
    format!("{} | {} | {} | {} | {}", tally.passed, tally.bad(), tally.skipped, tally.total(), duration(tally.seconds))
}

fn differences(changes: &Changes<'_>) -> String {
    let mut text = String::from("\n## Since the earlier run\n");
    for (title, tests) in changes.lists() {
        let _ = writeln!(text, "\n**{title}** ({})\n", tests.len());
        tests.iter().for_each(|test| text += &format!("- {}\n", inline(test)));
    }
    if !changes.slower.is_empty() {
        text += "\n**Slower**\n\n| then | now | test |\n|---:|---:|---|\n";
    }
    for (test, then, now) in &changes.slower {
        let _ = writeln!(text, "| {then:.1} s | {now:.1} s | {} |", inline(test));
    }
    if *changes == Changes::default() {
        text += "\nNothing changed.\n";
    }
    text
}

fn failures(summary: &Summary<'_>) -> String {
    let mut text = String::new();
    if !summary.failures.is_empty() {
        text += "\n## Failures\n";
    }
    for test in &summary.failures {
        let _ = writeln!(text, "\n### {}\n\n{} after {:.1} s", inline(&test.test), test.state.text(), test.seconds);
        let Some(failure) = &test.failure else { continue };
        let _ = writeln!(text, "at {}", inline(&failure.location));
        if let Some(step) = &failure.step {
            let _ = writeln!(text, "during: {}", inline(step));
        }
        text += &block(&short(&failure.message, 3000));
        if !failure.last.is_empty() {
            text += &format!("\nbefore that:\n{}", block(&failure.last.join("\n")));
        }
        if let Some(log) = &test.log {
            let _ = writeln!(text, "\n[log]({}{log})", summary.logs);
        }
    }
    text
}

/// The assertion in a line.
pub fn reason(test: &TestResult) -> String {
    match &test.failure {
        Some(failure) => short(&failure.message.split_whitespace().collect::<Vec<_>>().join(" "), 160),
        None => test.state.text().to_owned(),
    }
}

/// A fence that the text can't close.
fn block(text: &str) -> String {
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    format!("\n{fence}text\n{}\n{fence}\n", text.trim_end())
}

fn inline(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if matches!(c, '[' | ']' | '<' | '*' | '_' | '`' | '\\' | '|') {
            out.push('\\');
        }
        out.push(if c == '\n' { ' ' } else { c });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::{mixed, run};
    use super::*;
    use crate::results::{State, example};

    #[test]
    fn the_report_has_all_parts() {
        let (results, earlier) = (mixed(), run(vec![example("[sig-a] one [Conformance]", State::Failed, 1.0)]));
        let text = report(&Summary::new(&results, Some(&earlier)));
        for expected in [
            "# Conformance: 1 of 4 passed\n",
            "against v1.37.2, store: embedded; 10 m 5 s of wall time",
            "| sig-a | 1 | 1 | 0 | 2 | 33 s |\n",
            "| **all** | 1 | 2 | 1 | 4 |",
            "| sig-b | Area | 0 | 1 | 1 | 2 |",
            "**Fixed** (1)\n\n- \\[sig-a\\] one \\[Conformance\\]\n",
            "### \\[sig-a\\] two \\<b> \\[Conformance\\]\n\nfailed after 30.0 s\nat test/e2e/a.go:7\nduring: waiting\n",
            "```text\nexpected <1>, got 2 | 3\nmore\n```",
            "| 30.0 | \\[sig-a\\] two",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }

    #[test]
    fn figures_name_what_did_not_pass() {
        let text = figures(&Summary::new(&mixed(), None));
        assert!(
            text.contains("- \\[sig-a\\] two \\<b> \\[Conformance\\]: expected \\<1>, got 2 \\| 3 more\n"),
            "{text}"
        );
        assert!(text.contains("- \\[sig-b\\] three \\[Conformance\\]: lost\n"), "{text}");
    }

    #[test]
    fn incomplete_runs_say_so() {
        let mut results = mixed();
        results.tests.pop();
        assert!(figures(&Summary::new(&results, None)).contains("**Not complete**: 1 tests"));
    }

    #[test]
    fn a_block_can_not_be_closed_from_inside() {
        assert_eq!(block("a ``` b"), "\n````text\na ``` b\n````\n");
    }
}
