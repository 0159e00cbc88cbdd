//! `api-gap`: which of upstream's endpoints, verbs and fields are not served or have no test, as a committed list that only
//! shrinks.
//!
//! What there is, upstream's published OpenAPI document says; what is served, our tables. A verb of an endpoint has a test if a
//! request of the differential's sessions or samples, or of the API server's tests, goes there ([`evidence`]); a field has one if
//! it is in a sample: upstream's golden files, our answers' golden files, the differential's objects; and in a list of which there is a request. So the list tells what
//! nothing ever touches, not what is tested well.

mod evidence;
mod upstream;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Flags of `api-gap`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Compare with the committed list instead of shrinking it.
    #[arg(long)]
    check: bool,
}

/// Makes or checks the list.
pub fn run(args: &Args) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let Some(modules) = Modules::find(&root)? else {
        pintle_host::say!("skipped: upstream's modules are not here (go -C conformance/upstream mod download)");
        return Ok(());
    };
    let found = gaps(&root, &modules)?;
    let file = root.join("hack/api-gap.txt");
    let committed = match std::fs::read_to_string(&file) {
        Ok(text) => lines(&text),
        Err(_) if !args.check => found.clone(),
        Err(error) => return Err(error).with_context(|| format!("reading {}", file.display())),
    };
    let new: Vec<&String> = found.difference(&committed).collect();
    let closed = committed.difference(&found).count();
    if !new.is_empty() {
        let listed: Vec<&str> = new.iter().map(|line| line.as_str()).collect();
        bail!("{} gaps that are not in hack/api-gap.txt, which only shrinks:\n{}", new.len(), listed.join("\n"));
    }
    if args.check && closed > 0 {
        bail!("{closed} lines of hack/api-gap.txt are no gaps any more: cargo x api-gap takes them out");
    }
    if !args.check {
        let text: String = found.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&file, format!("{HEAD}{text}")).with_context(|| format!("writing {}", file.display()))?;
    }
    pintle_host::say!("{} gaps, {closed} closed", found.len());
    Ok(())
}

/// What the list begins with.
const HEAD: &str = "# Upstream's endpoints, verbs and fields that are not served or that no test touches: made by `cargo x api-gap`, which only\n\
    # takes lines away. What counts as a test is in hack/src/gap.\n";

fn lines(text: &str) -> BTreeSet<String> {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(str::to_owned).collect()
}

/// Folders of upstream's modules.
struct Modules {
    kubernetes: PathBuf,
    api: PathBuf,
}

impl Modules {
    /// As the judge's module names them; none: they have not been downloaded.
    fn find(root: &Path) -> Result<Option<Self>> {
        let folder = |name: &str| -> Result<Option<PathBuf>> {
            let mut go = Command::new("go");
            go.arg("-C").arg(root.join("conformance/upstream")).args(["list", "-m", "-f", "{{.Dir}}", name]);
            let Ok(told) = go.output() else { return Ok(None) };
            let folder = PathBuf::from(String::from_utf8(told.stdout)?.trim());
            Ok(Some(folder).filter(|folder| folder.is_dir()))
        };
        let (kubernetes, api) = (folder("k8s.io/kubernetes")?, folder("k8s.io/api")?);
        Ok(kubernetes.zip(api).map(|(kubernetes, api)| Self { kubernetes, api }))
    }
}

/// A line for each gap.
fn gaps(root: &Path, modules: &Modules) -> Result<BTreeSet<String>> {
    let document = upstream::Document::read(&modules.kubernetes)?;
    let mut gaps = BTreeSet::new();
    let requests = evidence::requests(root)?;
    let reached = document.reached(&requests);
    for (at, operation) in document.operations.iter().enumerate() {
        let state = match (operation.is_served(), reached.contains(&at)) {
            (false, _) => "not served",
            (true, false) => "no test",
            (true, true) => continue,
        };
        gaps.insert(format!("{operation}: {state}"));
    }
    let folders = [
        modules.api.join("testdata/HEAD"),
        root.join("conformance/golden/server-v1.37"),
        root.join("conformance/corpus/objects"),
    ];
    let mut seen = document.seen(&evidence::objects(&folders)?);
    seen.extend(document.listed(&reached));
    for (definition, field) in document.fields() {
        let state = match (upstream::is_known(&definition, &field), seen.contains(&(definition.clone(), field.clone())))
        {
            (false, _) => "not served",
            (true, false) => "no test",
            (true, true) => continue,
        };
        gaps.insert(format!("field {definition} {field}: {state}"));
    }
    Ok(gaps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_list_is_current() {
        run(&Args { check: true }).unwrap();
    }
}
