//! `cargo x image`: the demo's image as an archive, from programs of this machine; no registry is needed.

use std::path::{Path, PathBuf};

use anyhow::Context;
use pintle_cri::archive::{self, Image};
use pintle_cri::rootfs;

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
    let mut layer = rootfs::busybox(&args.busybox)?;
    layer.extend([
        rootfs::program("usr/local/bin/kubectl", &args.kubectl),
        rootfs::text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
        rootfs::text("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ]);
    // busybox's own client can't resolve names: Debian's static one has no name service modules.
    let system = Path::new("/");
    let curl = rootfs::find("curl", &[system])?;
    layer.extend(rootfs::libraries(&curl, system)?);
    layer.push(rootfs::program("usr/bin/curl", &curl));
    let image = Image { name: "pintle.local/demo:1".to_owned(), layer, cmd: vec!["sh".to_owned()], ..Image::default() };
    if let Some(dir) = args.out.parent() {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::write(&args.out, archive::build(&[image])?).with_context(|| format!("writing {}", args.out.display()))
}
