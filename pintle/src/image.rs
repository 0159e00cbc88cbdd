//! Images that need no registry: the sandbox image, made from a program inside this binary, and archives given by the user.

use std::path::Path;

use anyhow::Context;
use pintle_cri::archive::{self, Entry, Image};

use crate::paths::Paths;
use crate::process::run;

/// The image of every pod's sandbox.
pub const PAUSE_IMAGE: &str = "pintle.local/pause:1";

/// The program in it; see `pause/`.
const PAUSE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pause"));

/// Loads the sandbox image and the given archives into containerd.
pub async fn load(paths: &Paths, archives: &[std::path::PathBuf]) -> anyhow::Result<()> {
    let socket = paths.cri_socket();
    let socket = socket.to_str().context("the data directory's name is not UTF-8")?;
    let present = run("ctr", &["--address", socket, "--namespace", "k8s.io", "images", "list", "--quiet"]).await?;
    if !present.lines().any(|name| name == PAUSE_IMAGE) {
        let archive = paths.containerd("pause.tar");
        std::fs::write(&archive, pause_archive()?)?;
        import(socket, &archive).await?;
        std::fs::remove_file(&archive)?;
    }
    for archive in archives {
        import(socket, archive).await?;
    }
    Ok(())
}

async fn import(socket: &str, archive: &Path) -> anyhow::Result<()> {
    let path = archive.to_str().context("the archive's name is not UTF-8")?;
    run("ctr", &["--address", socket, "--namespace", "k8s.io", "images", "import", path])
        .await
        .with_context(|| format!("loading {}", archive.display()))?;
    Ok(())
}

/// The sandbox image's archive.
fn pause_archive() -> anyhow::Result<Vec<u8>> {
    let image = Image {
        name: PAUSE_IMAGE.to_owned(),
        layer: vec![Entry::File("pause".to_owned(), PAUSE.to_vec(), 0o755)],
        entrypoint: vec!["/pause".to_owned()],
        user: "65535:65535".to_owned(),
        ..Image::default()
    };
    Ok(archive::build(&[image])?)
}
