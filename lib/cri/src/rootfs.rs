//! What images without a distribution are made of: a static busybox, programs of this machine with their libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::archive::Entry;

/// A text file.
pub fn text(path: &str, content: impl Into<String>) -> Entry {
    Entry::File(path.to_owned(), content.into().into_bytes(), 0o644)
}

/// A folder.
pub fn folder(path: &str) -> Entry {
    Entry::Dir(path.to_owned(), 0o755)
}

/// A symbolic link.
pub fn link(path: &str, target: &str) -> Entry {
    Entry::Link(path.to_owned(), target.to_owned())
}

/// A program of this machine.
pub fn program(path: &str, source: &Path) -> Entry {
    Entry::Copy(path.to_owned(), source.to_owned(), 0o755)
}

/// A static busybox in `/bin` with a link for each of its applets, and a folder for temporary files.
pub fn busybox(binary: &Path) -> anyhow::Result<Vec<Entry>> {
    let list = Command::new(binary).arg("--list").output().with_context(|| format!("running {}", binary.display()))?;
    let list = String::from_utf8(list.stdout).context("busybox --list")?;
    let mut all = vec![
        program("bin/busybox", binary),
        text("etc/nsswitch.conf", "hosts: files dns\npasswd: files\ngroup: files\n"),
        Entry::Dir("tmp".to_owned(), 0o1777),
        Entry::Dir("root".to_owned(), 0o700),
    ];
    let applets = list.lines().filter(|applet| *applet != "busybox");
    all.extend(applets.map(|applet| link(&format!("bin/{applet}"), "/bin/busybox")));
    Ok(all)
}

/// A program in one of the given roots of a file system (`/`, or one with unpacked packages), the first that has it.
pub fn find(name: &str, roots: &[&Path]) -> anyhow::Result<PathBuf> {
    let folders = ["usr/bin", "bin", "usr/sbin", "sbin"];
    let mut places = roots.iter().flat_map(|root| folders.map(|folder| root.join(folder).join(name)));
    places.find(|path| path.exists()).with_context(|| format!("{name} is needed for the image"))
}

/// The libraries that the loader names for a program, where it wants them; looked for below `root` first.
pub fn libraries(program: &Path, root: &Path) -> anyhow::Result<Vec<Entry>> {
    let folders = ["usr/lib", "lib"]
        .map(|dir| root.join(dir).join(format!("{}-linux-gnu", std::env::consts::ARCH)).to_string_lossy().into_owned());
    let list = Command::new("ldd").arg(program).env("LD_LIBRARY_PATH", folders.join(":")).output();
    let list = String::from_utf8(list.context("running ldd")?.stdout)?;
    let files = list.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new);
    Ok(files
        .map(|file| {
            let place = file.strip_prefix(root).or_else(|_| file.strip_prefix("/")).unwrap_or(file);
            self::program(&place.to_string_lossy(), file)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_this_machine_is_found_with_its_libraries() {
        let shell = find("sh", &[Path::new("/nowhere"), Path::new("/")]).unwrap();
        let found = libraries(&shell, Path::new("/nowhere")).unwrap();
        let loaded = |entry: &Entry| matches!(entry, Entry::Copy(to, ..) if to.contains("lib") && !to.starts_with('/'));
        assert!(!found.is_empty() && found.iter().all(loaded), "{found:?}");
        assert!(find("no-such-program", &[Path::new("/")]).is_err());
    }
}
