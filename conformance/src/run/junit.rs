//! JUnit XML, which most tools around tests read.

use std::fmt::Write;

use crate::name;
use crate::results::{Results, State, TestResult};

/// The document. `log` gives a failed test's output.
pub fn document(results: &Results, log: impl Fn(&TestResult) -> Option<String>) -> String {
    let (bad, skipped) =
        (results.tests.iter().filter(|test| test.state.is_bad()).count(), results.count(State::Skipped));
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let counts = format!(
        "tests=\"{}\" failures=\"{bad}\" skipped=\"{skipped}\" time=\"{:.3}\"",
        results.tests.len(),
        results.seconds()
    );
    // Writing to a string can't fail.
    let _ = writeln!(xml, "<testsuites {counts}>\n<testsuite name=\"Kubernetes e2e suite\" {counts}>");
    for test in &results.tests {
        case(&mut xml, test, &log);
    }
    xml + "</testsuite>\n</testsuites>\n"
}

fn case(xml: &mut String, test: &TestResult, log: &impl Fn(&TestResult) -> Option<String>) {
    let class = name::sig(&test.test);
    let _ = write!(xml, "<testcase classname=\"{class}\" name=\"{}\" time=\"{:.3}\"", escape(&test.test), test.seconds);
    if test.state == State::Passed {
        xml.push_str("/>\n");
        return;
    }
    let failure = test.failure.clone().unwrap_or_default();
    let first = escape(failure.message.lines().next().unwrap_or(test.state.text()));
    xml.push('>');
    if test.state == State::Skipped {
        let _ = write!(xml, "<skipped message=\"{first}\"/>");
    } else {
        let whole = escape(&format!("{}\n{}", failure.location, failure.message));
        let _ = write!(xml, "<failure message=\"{first}\" type=\"{}\">{whole}</failure>", test.state.text());
        if let Some(log) = log(test) {
            let _ = write!(xml, "<system-out>{}</system-out>", escape(&log));
        }
    }
    xml.push_str("</testcase>\n");
}

/// XML has no way to write most control characters.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Failure, example};

    #[test]
    fn failures_carry_their_reason() {
        let failure =
            Failure { message: "<a> & \u{1b}b\nmore".to_owned(), location: "x.go:1".to_owned(), ..Failure::default() };
        let results = Results {
            tests: vec![
                example("[sig-a] \"one\"", State::Passed, 1.0),
                TestResult { failure: Some(failure), ..example("[sig-a] two", State::Failed, 2.5) },
                example("[sig-a] three", State::Skipped, 0.0),
            ],
            ..Results::default()
        };
        let xml = document(&results, |_| Some("log".to_owned()));
        for expected in [
            "tests=\"3\" failures=\"1\" skipped=\"1\"",
            "<testcase classname=\"sig-a\" name=\"[sig-a] &quot;one&quot;\" time=\"1.000\"/>",
            "<failure message=\"&lt;a&gt; &amp; \u{fffd}b\" type=\"failed\">x.go:1\n&lt;a&gt; &amp; \u{fffd}b\nmore</failure>",
            "<system-out>log</system-out>",
            "<skipped message=\"skipped\"/>",
        ] {
            assert!(xml.contains(expected), "{expected} in {xml}");
        }
    }
}
