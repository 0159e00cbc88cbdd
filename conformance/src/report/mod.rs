//! `pintle conformance report`: what a run found, for people (Markdown, one web page) and for the repository (figures).

mod figures;
mod html;
mod markdown;
mod summary;

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::known::KnownFailures;
use crate::results::Results;
use figures::Figures;
use summary::Summary;

/// `pintle conformance report`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run: its directory, or its results.json.
    run: PathBuf,
    /// An earlier run to compare with.
    #[arg(long, value_name = "RUN")]
    against: Option<PathBuf>,
    /// Where report.md and report.html go. [default: the run's directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Also write e2e.json and e2e.md here; only of a complete run.
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// Why known failures fail (YAML).
    #[arg(long, value_name = "FILE")]
    known_failures: Option<PathBuf>,
    /// What the cluster keeps its state in, if the run did not say.
    #[arg(long)]
    store: Option<String>,
}

/// Writes the reports.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut results = Results::load(&args.run)?;
    if let (Some(store), Some(last)) = (&args.store, results.runs.last_mut()) {
        last.store = Some(store.clone());
    }
    let earlier = args.against.as_deref().map(Results::load).transpose()?;
    let known = args.known_failures.as_deref().map(KnownFailures::load).transpose()?.unwrap_or_default();
    let mut summary = Summary::new(&results, earlier.as_ref());
    let home = if args.run.is_dir() { Some(args.run.as_path()) } else { args.run.parent() };
    let home = home.filter(|home| *home != Path::new("")).unwrap_or(Path::new("."));
    if args.out.is_some() {
        summary.logs = format!("{}/", home.canonicalize().unwrap_or_default().display());
    }
    let out = args.out.as_deref().unwrap_or(home);
    write(out, "report.md", &markdown::report(&summary))?;
    write(out, "report.html", &html::page(&summary, &known))?;
    if let Some(dir) = &args.figures {
        let figures = serde_json::to_string_pretty(&Figures::new(&summary)?)?;
        write(dir, "e2e.json", &(figures + "\n"))?;
        write(dir, "e2e.md", &markdown::figures(&summary))?;
    }
    Ok(())
}

fn write(dir: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let path = dir.join(name);
    std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    pintle_host::say!("{}", path.display());
    Ok(())
}

/// `1 h 2 m 3 s`, without leading zeros.
fn duration(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} m {s} s"),
        (h, m, s) => format!("{h} h {m} m {s} s"),
    }
}

/// At most `limit` characters.
fn short(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_readable() {
        assert_eq!([3.4, 63.0, 3723.0].map(duration), ["3 s", "1 m 3 s", "1 h 2 m 3 s"]);
    }

    #[test]
    fn reports_and_figures_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("results.json");
        std::fs::write(&file, serde_json::to_vec(&summary::tests::mixed()).unwrap()).unwrap();
        let args = Args {
            run: file.clone(),
            against: Some(file),
            out: None,
            figures: Some(dir.path().join("figures")),
            known_failures: None,
            store: Some("etcd".to_owned()),
        };
        run(&args).unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(read("report.md").contains("Nothing changed."));
        assert!(read("report.html").contains("</html>"));
        assert!(read("figures/e2e.json").contains("\"store\": \"etcd\""));
        assert!(read("figures/e2e.md").contains("# Conformance: 1 of 4 passed"));
    }
}
