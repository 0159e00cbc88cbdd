//! A test's log: what it printed with the steps it announced, in the order of time, and why it failed.

use super::wire::{Failure, SpecReport};
use crate::results;

/// Lines before a failure that are kept with it.
const LAST_LINES: usize = 12;
/// Events of the test's namespace that are kept with a failure.
const LAST_EVENTS: usize = 10;
/// How the framework announces a failure in the output.
const UNEXPECTED: &str = "] Unexpected error: ";

/// The log as a file's text.
pub fn text(report: &SpecReport) -> String {
    let seconds = report.run_time as f64 / 1e9;
    let started = report.start_time.map(|at| at.to_string()).unwrap_or_default();
    let mut text = format!(
        "{}\n{} after {seconds:.1} s, started {started}, {}\n",
        report.name(),
        report.state,
        report.leaf_node_location
    );
    let more = report.additional_failures.iter().map(|more| (more.state.as_str(), &more.failure));
    for (state, failure) in report.failure.iter().map(|failure| (report.state.as_str(), failure)).chain(more) {
        text += &format!("\n---- {state} at {}\n{}\n", failure.location, failure.message.trim_end());
        for part in [&failure.forwarded_panic, &failure.location.full_stack_trace] {
            if !part.is_empty() {
                text += &format!("\n{}\n", part.trim_end());
            }
        }
    }
    for (title, part) in [("output", &output(report)), ("standard output", &report.captured_std_out_err)] {
        if !part.is_empty() {
            text += &format!("\n---- {title}\n{part}");
        }
    }
    text
}

/// What is kept of a failure in the results.
pub fn failure(report: &SpecReport) -> Option<results::Failure> {
    let failure = report.failure.as_ref()?;
    let mut message = failure.message.trim_end().to_owned();
    if !failure.forwarded_panic.is_empty() {
        message = format!("{message}\n{}", failure.forwarded_panic);
    }
    Some(results::Failure {
        message,
        location: failure.location.to_string(),
        step: step(report, failure),
        last: if report.state == "skipped" { Vec::new() } else { last(report, failure) },
    })
}

/// The step that was announced last before the failure.
fn step(report: &SpecReport, failure: &Failure) -> Option<String> {
    let before = |order: u64| failure.timeline_location.order == 0 || order <= failure.timeline_location.order;
    let steps = report.spec_events.iter().filter(|event| event.spec_event_type == "By");
    steps.filter(|event| before(event.timeline_location.order)).map(|event| event.message.clone()).next_back()
}

fn last(report: &SpecReport, failure: &Failure) -> Vec<String> {
    let output = &report.captured_ginkgo_writer_output;
    let end = match failure.timeline_location.offset {
        0 => output.len(),
        offset => floor_boundary(output, offset),
    };
    // The framework prints the failure itself too.
    let end = output[..end].rfind(UNEXPECTED).map_or(end, |at| output[..at].rfind('\n').map_or(0, |line| line + 1));
    let before: Vec<&str> = output[..end].lines().filter(|line| !line.trim().is_empty()).collect();
    let events: Vec<&str> = output[end..].lines().filter(|line| line.contains(" - event for ")).collect();
    let tail = |lines: &[&str], limit: usize| -> Vec<String> {
        let different = without_repeats(lines);
        different[different.len().saturating_sub(limit)..].iter().map(|line| shorten(line)).collect()
    };
    let mut last = tail(&before, LAST_LINES);
    last.extend(tail(&events, LAST_EVENTS));
    last
}

/// A test that polls says the same again and again, but for times and numbers: the last of them is enough.
fn without_repeats<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let shape = |line: &str| line.chars().filter(|c| !c.is_ascii_hexdigit()).collect::<String>();
    let mut kept: Vec<&str> = Vec::new();
    for line in lines {
        if kept.last().is_some_and(|last| shape(last) == shape(line)) {
            kept.pop();
        }
        kept.push(line);
    }
    kept
}

/// Some tests print whole objects on one line.
fn shorten(line: &str) -> String {
    match line.char_indices().nth(400) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

/// The output with the announced steps where they belong: reports give each one's offset in the output.
fn output(report: &SpecReport) -> String {
    let output = &report.captured_ginkgo_writer_output;
    let (mut text, mut at) = (String::new(), 0);
    for event in report.spec_events.iter().filter(|event| event.spec_event_type == "By") {
        let end = floor_boundary(output, event.timeline_location.offset).max(at);
        text += &output[at..end];
        let time = event.timeline_location.time.map(|time| time.strftime("%T%.3f").to_string()).unwrap_or_default();
        text += &format!("STEP {time} {}\n", event.message);
        at = end;
    }
    text + &output[at..]
}

/// Offsets count bytes of what was printed; in the report, bytes that are no text have become others.
fn floor_boundary(text: &str, offset: usize) -> usize {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::wire::{SpecEvent, TimelineLocation};

    fn report() -> SpecReport {
        let by = |offset, order, message: &str| SpecEvent {
            spec_event_type: "By".to_owned(),
            timeline_location: TimelineLocation { offset, order, time: None },
            message: message.to_owned(),
        };
        SpecReport {
            state: "failed".to_owned(),
            leaf_node_text: "works".to_owned(),
            captured_ginkgo_writer_output: "one\nzwö\nthree\nAt 10:00 - event for pod-1: {kubelet } Killing\n"
                .to_owned(),
            // The second offset falls into a character.
            spec_events: vec![by(4, 1, "first"), by(7, 3, "second"), by(15, 9, "clean up")],
            failure: Some(Failure {
                message: "expected true\n".to_owned(),
                timeline_location: TimelineLocation { offset: 15, order: 5, time: None },
                ..Failure::default()
            }),
            ..SpecReport::default()
        }
    }

    #[test]
    fn steps_stand_where_they_were_announced() {
        let text = text(&report());
        assert!(text.contains("one\nSTEP  first\nzwSTEP  second\nö\nthree\nSTEP  clean up\nAt 10"), "{text}");
        assert!(text.contains("---- failed at :0\nexpected true\n"), "{text}");
    }

    #[test]
    fn a_failure_is_not_kept_twice() {
        let output = "one\nI1130 a.go:1] Unexpected error: no\n  <*errors>\n".to_owned();
        let report = SpecReport { captured_ginkgo_writer_output: output, ..report() };
        let failure = Failure { timeline_location: TimelineLocation::default(), ..report.failure.clone().unwrap() };
        assert_eq!(last(&report, &failure), ["one"]);
    }

    #[test]
    fn a_failure_keeps_its_surroundings() {
        let failure = failure(&report()).unwrap();
        assert_eq!((failure.message.as_str(), failure.step.as_deref()), ("expected true", Some("second")));
        assert_eq!(without_repeats(&["at 1: 0xa", "at 2: 0xbb", "end"]), ["at 2: 0xbb", "end"]);
        assert_eq!(failure.last, ["one", "zwö", "three", "At 10:00 - event for pod-1: {kubelet } Killing"]);
    }
}
