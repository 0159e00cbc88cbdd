//! The report as one web page that needs nothing else: styles, script and pictures are in it.

use std::fmt::Write;

use super::summary::{Changes, Summary, Tally};
use super::{duration, markdown, short};
use crate::known::KnownFailures;
use crate::name;
use crate::results::TestResult;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page.
pub fn page(summary: &Summary<'_>, known: &KnownFailures) -> String {
    let title = summary.title();
    let mut body = head(summary, &title);
    body += &sigs(summary);
    if !summary.failures.is_empty() {
        body += &heading("failures", "Failures");
        summary.failures.iter().for_each(|test| body += &failure(summary, test, known));
    }
    if let Some(changes) = &summary.changes {
        body += &heading("changes", "Since the earlier run");
        body += &differences(changes);
    }
    body += &areas(summary);
    body += &slowest(summary);
    body += &tests(summary);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Conformance: {title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n{body}<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

fn head(summary: &Summary<'_>, title: &str) -> String {
    let store = summary.store().map(|store| format!(" · store: {}", escape(store))).unwrap_or_default();
    let started = summary.results.runs.first().map(|run| run.started.strftime("%F %R UTC").to_string());
    let mut text = format!(
        "<header class=\"total\">\n<h1>{title}</h1>\n<div class=\"soft\">Upstream's e2e tests against {}{store} · {} · {} of wall \
         time, {} of tests</div>\n{}",
        escape(summary.version()),
        started.unwrap_or_default(),
        duration(summary.results.seconds()),
        duration(summary.all.seconds),
        bar(&summary.all, summary.all.total()),
    );
    let _ = writeln!(text, "<div>{}</div>", counts(&summary.all));
    if !summary.missing.is_empty() {
        let _ =
            writeln!(text, "<p class=\"bad-text\">Not complete: {} tests have no result.</p>", summary.missing.len());
    }
    let sections = [
        ("groups", "Groups", true),
        ("failures", "Failures", !summary.failures.is_empty()),
        ("changes", "Changes", summary.changes.is_some()),
        ("areas", "Areas", true),
        ("slowest", "Slowest tests", true),
        ("all", "All tests", true),
    ];
    let links = sections.iter().filter(|(_, _, there)| *there);
    let links: String = links.map(|(id, title, _)| format!("<a href=\"#{id}\">{title}</a>")).collect();
    text + "<nav>" + &links + "</nav>\n</header>\n"
}

fn counts(tally: &Tally) -> String {
    let parts = [
        (tally.passed, "passed"),
        (tally.failed, "failed"),
        (tally.lost, "lost with their process"),
        (tally.skipped, "skipped"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    parts.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(" · ")
}

fn heading(id: &str, title: &str) -> String {
    format!("<h2 id=\"{id}\">{title}</h2>\n")
}

/// A sortable table. Headings that begin with `#` are of numbers.
fn table(id: &str, headings: &[&str], rows: impl Iterator<Item = String>) -> String {
    let headings: String = headings
        .iter()
        .map(|heading| match heading.strip_prefix('#') {
            Some(heading) => format!("<th class=\"n\">{heading}</th>"),
            None => format!("<th>{heading}</th>"),
        })
        .collect();
    format!(
        "<div class=\"scroll\"><table class=\"sortable\" id=\"{id}\">\n<thead><tr>{headings}</tr></thead>\n<tbody>\n{}</tbody>\n\
         </table></div>\n",
        rows.collect::<String>()
    )
}

fn sigs(summary: &Summary<'_>) -> String {
    let most = summary.sigs.values().map(Tally::total).max().unwrap_or_default();
    let rows = summary.sigs.iter().map(|(sig, tally)| row(&[sig], tally, most));
    let headings = ["group", "", "#passed", "#failed", "#skipped", "#of", "#share", "#test time"];
    heading("groups", "Groups") + &table("by-sig", &headings, rows)
}

fn areas(summary: &Summary<'_>) -> String {
    let most = summary.areas.values().map(Tally::total).max().unwrap_or_default();
    let rows = summary.areas.iter().map(|((sig, area), tally)| row(&[sig, area], tally, most));
    let headings = ["group", "area", "", "#passed", "#failed", "#skipped", "#of", "#share", "#test time"];
    heading("areas", "Areas") + &table("by-area", &headings, rows)
}

fn row(names: &[&str], tally: &Tally, most: usize) -> String {
    let names: String = names.iter().map(|name| format!("<td>{}</td>", escape(name))).collect();
    let share = 100.0 * tally.passed as f64 / tally.total().max(1) as f64;
    let numbers: String = [tally.passed, tally.bad(), tally.skipped, tally.total()]
        .map(|count| format!("<td class=\"n\">{count}</td>"))
        .concat();
    format!(
        "<tr>{names}<td data-v=\"{share:.2}\">{}</td>{numbers}<td class=\"n\" data-v=\"{share:.2}\">{share:.0} %</td>{}</tr>\n",
        bar(tally, most),
        seconds(tally.seconds)
    )
}

fn seconds(seconds: f64) -> String {
    format!(
        "<td class=\"n\" data-v=\"{seconds:.3}\">{}</td>",
        if seconds < 60.0 { format!("{seconds:.1} s") } else { duration(seconds) }
    )
}

/// Passed, failed and skipped as parts of a bar; `most` fill it.
fn bar(tally: &Tally, most: usize) -> String {
    let parts = [(tally.passed, "passed"), (tally.bad(), "bad"), (tally.skipped, "skipped")];
    picture(&parts.map(|(count, class)| (count as f64, class)), most as f64, &counts(tally))
}

fn picture(parts: &[(f64, &str)], whole: f64, label: &str) -> String {
    let mut x = 0.0;
    let mut rects = String::new();
    for (size, class) in parts.iter().filter(|(size, _)| *size > 0.0 && whole > 0.0) {
        let width = 100.0 * size / whole;
        let _ = write!(rects, "<rect class=\"{class}\" x=\"{x:.2}\" width=\"{width:.2}\" height=\"10\"/>");
        x += width;
    }
    format!(
        "<svg viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">{rects}</svg>",
        escape(label)
    )
}

fn failure(summary: &Summary<'_>, test: &TestResult, known: &KnownFailures) -> String {
    let mut text = format!("<details>\n<summary>{}", escape(&test.test));
    let _ = write!(text, "<br><small>{}</small></summary>\n<div>\n", escape(&markdown::reason(test)));
    let _ = write!(text, "<small>{} after {:.1} s", test.state.text(), test.seconds);
    if let Some(failure) = &test.failure {
        let _ = write!(text, " at {}", escape(&failure.location));
        if let Some(step) = &failure.step {
            let _ = write!(text, ", during: {}", escape(step));
        }
    }
    text += &test
        .log
        .as_ref()
        .map(|log| format!(" · <a href=\"{}{log}\">log</a>", escape(&summary.logs)))
        .unwrap_or_default();
    text += "</small>\n";
    if let Some(entry) = known.get(&test.test) {
        let _ = writeln!(text, "<p>Known: {} (issue {})</p>", escape(&entry.reason), entry.issue);
    }
    if let Some(failure) = &test.failure {
        let _ = writeln!(text, "<pre>{}</pre>", escape(&short(&failure.message, 6000)));
        if !failure.last.is_empty() {
            let _ = writeln!(text, "<small>Before that:</small><pre>{}</pre>", escape(&failure.last.join("\n")));
        }
    }
    text + "</div>\n</details>\n"
}

fn differences(changes: &Changes<'_>) -> String {
    let mut text = String::new();
    for (title, tests) in changes.lists() {
        let items: String = tests.iter().map(|test| format!("<li>{}</li>\n", escape(test))).collect();
        let open = if title == "Broken" { " open" } else { "" };
        let _ = writeln!(
            text,
            "<details{open}><summary>{title}: {}</summary><div><ul>\n{items}</ul></div></details>",
            tests.len()
        );
    }
    if !changes.slower.is_empty() {
        let rows = changes.slower.iter().map(|(test, then, now)| {
            format!("<tr>{}{}<td>{}</td></tr>\n", seconds(*then), seconds(*now), escape(test))
        });
        text += &format!("<h3>Slower</h3>\n{}", table("slower", &["#then", "#now", "test"], rows));
    }
    if *changes == Changes::default() {
        text += "<p>Nothing changed.</p>\n";
    }
    text
}

fn slowest(summary: &Summary<'_>) -> String {
    let most = summary.slowest.first().map_or(0.0, |test| test.seconds);
    let rows = summary.slowest.iter().map(|test| {
        let picture = picture(&[(test.seconds, "time")], most, "");
        format!(
            "<tr>{}<td data-v=\"{}\">{picture}</td><td>{}</td></tr>\n",
            seconds(test.seconds),
            test.seconds,
            escape(&test.test)
        )
    });
    heading("slowest", "Slowest tests") + &table("slow", &["#time", "", "test"], rows)
}

fn tests(summary: &Summary<'_>) -> String {
    let rows = summary.results.tests.iter().map(|test| {
        let state = if test.flaked() { "passed (again)" } else { test.state.text() };
        format!(
            "<tr><td class=\"state {}\">{state}</td>{}<td>{}</td><td>{}</td></tr>\n",
            test.state.text(),
            seconds(test.seconds),
            escape(name::sig(&test.test)),
            escape(&test.test)
        )
    });
    heading("all", "All tests")
        + "<input type=\"search\" id=\"search\" placeholder=\"Filter: words of the name, group or state\" aria-label=\"Filter\">\n"
        + &table("tests", &["state", "#time", "group", "test"], rows)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::{mixed, run};
    use super::*;
    use crate::results::{State, example};

    #[test]
    fn the_page_stands_alone_and_escapes() {
        let (results, earlier) = (mixed(), run(vec![example("[sig-a] one [Conformance]", State::Failed, 1.0)]));
        let page = page(&Summary::new(&results, Some(&earlier)), &KnownFailures::default());
        for expected in [
            "<title>Conformance: 1 of 4 passed</title>",
            "<td>sig-a</td><td data-v=\"50.00\"><svg",
            "<summary>[sig-a] two &lt;b&gt; [Conformance]<br><small>expected &lt;1&gt;, got 2 | 3 more</small>",
            "<pre>expected &lt;1&gt;, got 2 | 3\nmore</pre>",
            "one &amp; two",
            "1 failed · 1 lost with their process",
            "<summary>Fixed: 1</summary>",
            "<td class=\"n\" data-v=\"30.000\">30.0 s</td>",
        ] {
            assert!(page.contains(expected), "{expected} in {page}");
        }
        assert!(!page.contains("<b>") && !page.contains("src=") && !page.contains("http"), "{page}");
    }

    #[test]
    fn bars_add_up() {
        let tally = Tally { passed: 1, failed: 1, lost: 1, skipped: 1, seconds: 0.0 };
        let bar = bar(&tally, 8);
        for expected in ["class=\"passed\" x=\"0.00\" width=\"12.50\"", "class=\"bad\" x=\"12.50\" width=\"25.00\""] {
            assert!(bar.contains(expected), "{bar}");
        }
        assert!(picture(&[(0.0, "time")], 0.0, "").contains("></svg>"));
    }
}
