//! Directories that belong to a cluster: a mark tells them from those of others, and a lock on it that one is in use.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

/// Name of the mark.
const MARK: &str = ".pintle";
/// What a file system has in its uppermost directory: no content of anybody's.
const LOST_AND_FOUND: &str = "lost+found";

/// The use of a directory by this process; ends when it is dropped.
#[derive(Debug)]
pub struct Claim {
    lock: File,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Said, as a child that is just being started may still have the file.
        let _ = self.lock.unlock();
    }
}

/// A process that was killed may take so long to be gone.
const GOING: Duration = Duration::from_secs(1);

/// True if the directory was [made](make) here: nothing else is ever removed.
pub fn is_ours(dir: &Path) -> bool {
    dir.join(MARK).is_file()
}

/// Makes a directory, or takes an empty one.
///
/// # Errors
/// If it has something else in it, or can't be made.
pub fn make(dir: &Path) -> anyhow::Result<()> {
    if is_ours(dir) {
        return Ok(());
    }
    let content = content(dir).with_context(|| format!("reading {}", dir.display()))?;
    ensure!(
        content.is_empty(),
        "{} is neither empty nor a data directory of pintle: it would go with the cluster",
        dir.display()
    );
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let mark = dir.join(MARK);
    let made = OpenOptions::new().append(true).create(true).open(&mark);
    made.map(drop).with_context(|| format!("writing {}", mark.display()))
}

/// Takes a directory that is ours into use.
///
/// # Errors
/// If it is not ours, or another process uses it.
pub fn claim(dir: &Path) -> anyhow::Result<Claim> {
    ensure!(is_ours(dir), "{} is not a data directory of pintle", dir.display());
    let mark = dir.join(MARK);
    let lock = File::open(&mark).with_context(|| format!("opening {}", mark.display()))?;
    let begin = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(Claim { lock }),
            Err(TryLockError::WouldBlock) if begin.elapsed() < GOING => std::thread::sleep(GOING / 50),
            Err(TryLockError::WouldBlock) => bail!(
                "{} is in use by another process of pintle: stop that first, or give another --data-dir",
                dir.display()
            ),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("locking {}", mark.display()));
            }
        }
    }
}

/// Removes what is in a directory, the mark last: after a failure it can be tried again. The directory itself stays where a
/// file system is mounted on it.
///
/// # Errors
/// If something can't be removed.
pub fn remove(dir: &Path) -> anyhow::Result<()> {
    let removing = || format!("removing {}", dir.display());
    // Something may still have been written meanwhile; the second time counts.
    if clear(dir, &[]).is_err() {
        clear(dir, &[])?;
    }
    fs::remove_file(dir.join(MARK)).with_context(removing)?;
    match fs::remove_dir(dir) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy || dir.join(LOST_AND_FOUND).exists() => Ok(()),
        removed => removed.with_context(removing),
    }
}

/// Removes what is in a directory but for some names; it stays ours. What can't be removed keeps nothing else.
///
/// # Errors
/// The first one.
pub fn clear(dir: &Path, but: &[&str]) -> anyhow::Result<()> {
    let remove = |entry: fs::DirEntry| match entry.file_type()?.is_dir() {
        true => fs::remove_dir_all(entry.path()),
        false => fs::remove_file(entry.path()),
    };
    let going =
        content(dir).map(|all| all.into_iter().filter(|entry| !but.iter().any(|kept| entry.file_name() == *kept)));
    let removed = going.and_then(|going| going.map(remove).fold(Ok(()), io::Result::and));
    removed.with_context(|| format!("removing {}", dir.display()))
}

/// The entries, without the mark; none in a directory that is not there.
fn content(dir: &Path) -> io::Result<Vec<fs::DirEntry>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?.collect::<io::Result<Vec<_>>>()?,
    };
    let counts = |name: &OsStr| name != MARK && name != LOST_AND_FOUND;
    Ok(entries.into_iter().filter(|entry| counts(&entry.file_name())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_directories_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let letter = dir.path().join("letter");
        fs::write(&letter, "dear").unwrap();
        let error = make(dir.path()).unwrap_err().to_string();
        assert!(error.contains("neither empty nor") && !is_ours(dir.path()), "{error}");
        fs::remove_file(&letter).unwrap();
        fs::create_dir(dir.path().join(LOST_AND_FOUND)).unwrap();
        make(dir.path()).expect("a new file system");
        fs::write(&letter, "dear").unwrap();
        make(dir.path()).expect("the same again");
        make(&dir.path().join("a/b")).expect("a directory that is not there");
    }

    #[test]
    fn one_process_uses_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        assert!(claim(dir.path()).unwrap_err().to_string().contains("not a data directory"));
        make(dir.path()).unwrap();
        let first = claim(dir.path()).unwrap();
        make(dir.path()).unwrap();
        assert!(claim(dir.path()).unwrap_err().to_string().contains("in use"));
        drop(first);
        claim(dir.path()).expect("free again");
    }

    #[test]
    fn a_removal_that_failed_can_be_repeated() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("data");
        make(&dir).unwrap();
        for name in ["a", "b/c"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        fs::write(dir.join("z"), "").unwrap();
        // Something is mounted there: it can't be removed.
        let stuck = dir.join("b/c");
        let mounted =
            || nix::mount::mount(Some("none"), &stuck, Some("tmpfs"), nix::mount::MsFlags::empty(), None::<&str>);
        let alone = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS)
            .and_then(|()| {
                let private = nix::mount::MsFlags::MS_REC | nix::mount::MsFlags::MS_PRIVATE;
                nix::mount::mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
            })
            .and_then(|()| mounted());
        if nix::unistd::geteuid().is_root() {
            alone.expect("root can mount");
            remove(&dir).expect_err("something is mounted there");
            assert!(is_ours(&dir) && !dir.join("a").exists());
            nix::mount::umount2(&stuck, nix::mount::MntFlags::MNT_DETACH).unwrap();
        }
        remove(&dir).unwrap();
        assert!(!dir.exists());
        make(top.path()).unwrap();
        fs::create_dir(top.path().join(LOST_AND_FOUND)).unwrap();
        remove(top.path()).expect("but for the file system's own");
        assert!(top.path().exists() && !is_ours(top.path()));
    }
}
