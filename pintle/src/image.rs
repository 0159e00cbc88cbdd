//! Images that need no registry: the sandbox image, made from a program inside this binary, and archives given by the user.

use std::path::{Path, PathBuf};

use pintle_cri::archive::{self, Entry, Image};
use pintle_cri::containerd::Programs;

/// The image of every pod's sandbox.
pub const PAUSE_IMAGE: &str = "pintle.local/pause:1";

/// Loads the sandbox image and the given archives or layouts into containerd.
pub fn load(socket: &Path, programs: &Programs, archives: &[PathBuf]) -> anyhow::Result<()> {
    if !programs.images(socket)?.iter().any(|name| name == PAUSE_IMAGE) {
        let archive = socket.with_file_name("pause.tar");
        std::fs::write(&archive, pause_archive()?)?;
        programs.import(socket, &archive)?;
        std::fs::remove_file(&archive)?;
    }
    archives.iter().try_for_each(|archive| programs.import(socket, archive))
}

/// The sandbox image's archive.
fn pause_archive() -> anyhow::Result<Vec<u8>> {
    let image = Image {
        name: PAUSE_IMAGE.to_owned(),
        layer: vec![Entry::File("pause".to_owned(), pintle_pause::PROGRAM.to_vec(), 0o755)],
        entrypoint: vec!["/pause".to_owned()],
        user: "65535:65535".to_owned(),
        ..Image::default()
    };
    Ok(archive::build(&[image])?)
}
