//! Replaces the files of a volume all at once: files live in a folder with a time in its name, `..data` is a link to it,
//! and each visible name is a link through `..data`. One rename of the link makes the new content visible.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The link that is switched.
const DATA: &str = "..data";
const DATA_NEW: &str = "..data_tmp";

/// One file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Path in the volume, relative and without `..`.
    pub path: PathBuf,
    /// Content.
    pub content: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Owner, if it is not root.
    pub owner: Option<u32>,
}

/// Makes `dir` hold exactly `files`; true if something changed.
pub fn write(dir: &Path, files: &[File], group: Option<u32>) -> io::Result<bool> {
    let current = fs::read_link(dir.join(DATA)).ok();
    if let Some(current) = &current
        && same(&dir.join(current), files)
    {
        return Ok(false);
    }
    let fresh = new_folder(dir)?;
    fill(&fresh, files, group)?;
    let name = fresh.file_name().map(PathBuf::from).unwrap_or_default();
    let temporary = dir.join(DATA_NEW);
    let _ = fs::remove_file(&temporary);
    symlink(&name, &temporary)?;
    fs::rename(&temporary, dir.join(DATA))?;
    link_names(dir, files)?;
    if let Some(old) = current {
        let _ = fs::remove_dir_all(dir.join(old));
    }
    Ok(true)
}

fn same(folder: &Path, files: &[File]) -> bool {
    let equal = |f: &File| {
        let path = folder.join(&f.path);
        fs::read(&path).is_ok_and(|content| content == f.content)
    };
    files.iter().all(equal) && count(folder) == files.len()
}

fn count(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|e| if e.path().is_dir() { count(&e.path()) } else { 1 }).sum()
}

/// A folder named after the time, unused so far.
fn new_folder(dir: &Path) -> io::Result<PathBuf> {
    let stamp = jiff::Timestamp::now().strftime("%Y_%m_%d_%H_%M_%S").to_string();
    let nanos = jiff::Timestamp::now().subsec_nanosecond();
    for n in 0..u32::MAX {
        let path = dir.join(format!("..{stamp}.{}", nanos.unsigned_abs().wrapping_add(n)));
        match fs::create_dir(&path) {
            Ok(()) => {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
                return Ok(path);
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn fill(folder: &Path, files: &[File], group: Option<u32>) -> io::Result<()> {
    if group.is_some() {
        own_folder(folder, group)?;
    }
    for file in files {
        let path = folder.join(&file.path);
        let mut parent = folder.to_path_buf();
        for part in file.path.parent().into_iter().flat_map(Path::components) {
            parent.push(part);
            if !parent.is_dir() {
                fs::create_dir(&parent)?;
                own_folder(&parent, group)?;
            }
        }
        fs::write(&path, &file.content)?;
        // A group that the files belong to can read them.
        let mode = if group.is_some() { file.mode | 0o440 } else { file.mode };
        if file.owner.is_some() || group.is_some() {
            chown(&path, file.owner, group)?;
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn own_folder(folder: &Path, group: Option<u32>) -> io::Result<()> {
    let mode = if group.is_some() { 0o2755 } else { 0o755 };
    if group.is_some() {
        chown(folder, None, group)?;
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(mode))
}

/// Links each visible name through `..data`, and removes the links of names that are gone.
fn link_names(dir: &Path, files: &[File]) -> io::Result<()> {
    let first = |f: &File| f.path.components().next().map(|c| PathBuf::from(c.as_os_str()));
    let wanted: BTreeSet<PathBuf> = files.iter().filter_map(first).collect();
    for name in &wanted {
        let link = dir.join(name);
        let target = Path::new(DATA).join(name);
        if fs::read_link(&link).ok().as_deref() != Some(target.as_path()) {
            let _ = fs::remove_file(&link);
            symlink(target, link)?;
        }
    }
    for entry in fs::read_dir(dir)?.flatten() {
        let name = PathBuf::from(entry.file_name());
        let ours = fs::read_link(entry.path()).is_ok_and(|t| t.starts_with(DATA));
        if ours && !wanted.contains(&name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, content: &str) -> File {
        File { path: path.into(), content: content.as_bytes().to_vec(), mode: 0o640, owner: None }
    }

    #[test]
    fn content_is_replaced_at_once_and_left_alone_if_equal() {
        let dir = tempfile::tempdir().unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).ok();
        assert!(write(dir.path(), &[file("a", "1"), file("d/b", "2")], None).unwrap());
        assert_eq!((read("a").as_deref(), read("d/b").as_deref()), (Some("1"), Some("2")));
        let mode = fs::metadata(dir.path().join("a")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o640);
        let link = fs::read_link(dir.path().join(DATA)).unwrap();
        assert!(!write(dir.path(), &[file("a", "1"), file("d/b", "2")], None).unwrap());
        assert_eq!(fs::read_link(dir.path().join(DATA)).unwrap(), link);
        assert!(write(dir.path(), &[file("a", "3")], None).unwrap());
        assert_eq!((read("a").as_deref(), read("d/b")), (Some("3"), None));
        assert!(!dir.path().join(link).exists(), "the old folder is removed");
        assert!(fs::symlink_metadata(dir.path().join("d")).is_err());
    }
}
