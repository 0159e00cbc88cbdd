//! `cargo x image`: the demo's image as an archive, from programs of this machine; no registry is needed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use pintle_cri::archive::{self, Entry, Image};

/// What to put where.
#[derive(Debug, clap::Args)]
pub struct ImageArgs {
    /// The archive to write.
    #[arg(long)]
    out: PathBuf,
    /// A static busybox.
    #[arg(long, default_value = "/bin/busybox")]
    busybox: PathBuf,
    /// A static kubectl.
    #[arg(long)]
    kubectl: PathBuf,
}

/// Writes an archive with `pintle.local/demo:1`: busybox with a link for each applet, curl, and kubectl.
pub fn run(args: &ImageArgs) -> anyhow::Result<()> {
    let mut layer = vec![
        program("bin/busybox", &args.busybox)?,
        program("usr/local/bin/kubectl", &args.kubectl)?,
        text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
        text("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
        text("etc/nsswitch.conf", "hosts: files dns\n"),
        Entry::Dir("tmp".to_owned(), 0o1777),
        Entry::Dir("root".to_owned(), 0o700),
    ];
    // busybox's own client can't resolve names: Debian's static one has no name service modules.
    layer.extend(with_libraries("curl")?);
    for applet in applets(&args.busybox)? {
        layer.push(Entry::Link(format!("bin/{applet}"), "/bin/busybox".to_owned()));
    }
    let image = Image { name: "pintle.local/demo:1".to_owned(), layer, cmd: vec!["sh".to_owned()], ..Image::default() };
    if let Some(dir) = args.out.parent() {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::write(&args.out, archive::build(&[image])?).with_context(|| format!("writing {}", args.out.display()))
}

fn program(path: &str, source: &Path) -> anyhow::Result<Entry> {
    let content = std::fs::read(source).with_context(|| format!("reading {}", source.display()))?;
    Ok(Entry::File(path.to_owned(), content, 0o755))
}

/// A dynamically linked program of this machine, at the same path, with the libraries that the loader names.
fn with_libraries(name: &str) -> anyhow::Result<Vec<Entry>> {
    let found = Command::new("sh").args(["-c", "command -v \"$0\"", name]).output().context("looking for a program")?;
    let path = String::from_utf8(found.stdout)?.trim().to_owned();
    anyhow::ensure!(!path.is_empty(), "{name} is needed for the image");
    let list = Command::new("ldd").arg(&path).output().context("running ldd")?;
    let list = String::from_utf8(list.stdout)?;
    let libraries = list.split_whitespace().filter(|word| word.starts_with('/'));
    std::iter::once(path.as_str())
        .chain(libraries)
        .map(|file| program(file.trim_start_matches('/'), Path::new(file)))
        .collect()
}

fn text(path: &str, content: &str) -> Entry {
    Entry::File(path.to_owned(), content.as_bytes().to_vec(), 0o644)
}

fn applets(busybox: &Path) -> anyhow::Result<Vec<String>> {
    let output =
        Command::new(busybox).arg("--list").output().with_context(|| format!("running {}", busybox.display()))?;
    let list = String::from_utf8(output.stdout).context("busybox --list")?;
    Ok(list.lines().filter(|applet| *applet != "busybox").map(str::to_owned).collect())
}
