//! Files that are whole at any time, and locks between processes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::Context;

/// Writes a file so that at any time, also after a crash, it has either its old content or the new one.
///
/// # Errors
/// If it can't be written; it is as before then.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> anyhow::Result<()> {
    let mut name = path.file_name().context("a file without a name")?.to_owned();
    // Of its own, as processes may replace the same file at the same time.
    name.push(format!(".new{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let write = || {
        // What a crashed process of the same id left.
        let _ = fs::remove_file(&temporary);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&temporary))).with_context(|| format!("writing {}", path.display()))
}

/// Makes a directory and waits for the lock on it. It may be removed while the lock is held.
///
/// # Errors
/// If it can't be made.
pub fn lock_directory(path: &Path) -> io::Result<File> {
    loop {
        fs::create_dir_all(path)?;
        let opened = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            opened => opened?,
        };
        opened.lock()?;
        // Whoever had it may have removed it.
        match fs::metadata(path) {
            Ok(now) if now.ino() == opened.metadata()?.ino() => return Ok(opened),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.json");
        let names = || fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.file_name()).collect::<Vec<_>>();
        replace(&file, b"one", 0o600).unwrap();
        let old = File::open(&file).unwrap();
        replace(&file, b"other", 0o644).unwrap();
        assert_eq!(io::read_to_string(old).unwrap(), "one", "who reads the old one reads all of it");
        assert_eq!(fs::read_to_string(&file).unwrap(), "other");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(names(), ["a.json"]);
        let directory = dir.path().join("a.dir");
        fs::create_dir_all(directory.join("full")).unwrap();
        let error = replace(&directory, b"x", 0o644).unwrap_err();
        assert!(format!("{error:#}").contains("writing"), "{error:#}");
        assert_eq!(names().len(), 2, "a failure leaves nothing behind");
    }

    #[test]
    fn a_lock_outlives_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let first = lock_directory(&path).unwrap();
        let second = std::thread::spawn({
            let path = path.clone();
            move || lock_directory(&path).map(|_| path.is_dir())
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        fs::remove_dir(&path).unwrap();
        assert!(!second.is_finished());
        drop(first);
        assert!(second.join().unwrap().unwrap(), "made again");
    }
}
