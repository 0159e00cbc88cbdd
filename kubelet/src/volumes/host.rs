//! Work on the node's file system for volumes: folders, mounts, ownership, sub-paths.

use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use k8s_openapi::api::core::v1::HostPathVolumeSource;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rustix::fs::{Mode, OFlags, ResolveFlags};

/// Makes a folder with exactly this mode.
pub fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// True if something is mounted at `path` itself.
pub fn is_mount_point(path: &Path) -> bool {
    let Some(parent) = path.parent() else { return true };
    match (fs::metadata(path), fs::metadata(parent)) {
        (Ok(own), Ok(above)) => own.dev() != above.dev(),
        _ => false,
    }
}

/// Mounts a file system in memory, unless there is one.
pub fn mount_tmpfs(path: &Path, size: Option<i64>) -> io::Result<()> {
    if is_mount_point(path) {
        return Ok(());
    }
    let options = size.map(|s| format!("size={s}")).unwrap_or_default();
    let (kind, flags) = (Some("tmpfs"), MsFlags::empty());
    mount(Some("tmpfs"), path, kind, flags, Some(options.as_str())).map_err(io::Error::from)
}

/// Takes every mount below (and at) `path` away, inner ones first.
pub fn unmount_below(path: &Path) -> io::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let points = mounts.lines().filter_map(|l| l.split(' ').nth(1)).map(|p| PathBuf::from(unescape(p)));
    let mut below: Vec<PathBuf> = points.filter(|p| p.starts_with(path)).collect();
    below.sort_by_key(|p| std::cmp::Reverse(p.components().count()));
    for point in below {
        umount2(&point, MntFlags::MNT_DETACH).map_err(io::Error::from)?;
    }
    Ok(())
}

/// The mount table writes blanks and the like as octal escapes.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        match rest.get(at + 1..at + 4).and_then(|d| u8::from_str_radix(d, 8).ok()) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &rest[at + 4..];
            }
            None => {
                out.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    out + rest
}

/// Gives a volume to a group: folders are set-group-id so that new files belong to it as well.
pub fn give_to_group(path: &Path, group: u32, read_only: bool) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    if meta.is_symlink() {
        return std::os::unix::fs::lchown(path, None, Some(group));
    }
    chown(path, None, Some(group))?;
    let bits = if read_only { 0o440 } else { 0o660 };
    let more = if meta.is_dir() { bits | 0o2110 } else { bits };
    fs::set_permissions(path, fs::Permissions::from_mode(meta.permissions().mode() & 0o7777 | more))?;
    if meta.is_dir() {
        for entry in fs::read_dir(path)?.flatten() {
            give_to_group(&entry.path(), group, read_only)?;
        }
    }
    Ok(())
}

/// Checks or makes what a hostPath volume names; `Err` has upstream's message.
pub fn host_path(source: &HostPathVolumeSource) -> Result<PathBuf, String> {
    let path = PathBuf::from(&source.path);
    let kind = source.type_.as_deref().unwrap_or_default();
    let meta = fs::metadata(&path).ok();
    let failed = |what: &str| Err(format!("hostPath type check failed: {} is not {what}", source.path));
    let is = |test: fn(&fs::Metadata) -> bool| meta.as_ref().is_some_and(test);
    match kind {
        "DirectoryOrCreate" if meta.is_none() => {
            make_dir(&path, 0o755).map_err(|e| e.to_string())?;
        }
        "FileOrCreate" if meta.is_none() => {
            fs::OpenOptions::new().create(true).append(true).open(&path).map_err(|e| e.to_string())?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).map_err(|e| e.to_string())?;
        }
        "Directory" | "DirectoryOrCreate" if !is(fs::Metadata::is_dir) => return failed("a directory"),
        "File" | "FileOrCreate" if !is(fs::Metadata::is_file) => return failed("a file"),
        "Socket" if !is(|m| m.file_type().is_socket()) => return failed("a socket file"),
        "CharDevice" if !is(|m| m.file_type().is_char_device()) => return failed("a character device"),
        "BlockDevice" if !is(|m| m.file_type().is_block_device()) => return failed("a block device"),
        _ => {}
    }
    Ok(path)
}

/// Binds `sub` of a volume to `target`, never following a link out of the volume; a folder is made if there is nothing.
pub fn bind_sub_path(volume: &Path, sub: &str, target: &Path) -> io::Result<()> {
    let sub = Path::new(sub);
    if sub.components().any(|c| !matches!(c, Component::Normal(_) | Component::CurDir)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "subPath must not leave the volume"));
    }
    let root = rustix::fs::open(volume, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let open = || rustix::fs::openat2(&root, sub, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve);
    let found = match open() {
        Err(rustix::io::Errno::NOENT) => {
            make_beneath(&root, sub)?;
            open()?
        }
        other => other?,
    };
    let source = PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd()));
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    if is_bound(target) {
        umount2(target, MntFlags::MNT_DETACH).map_err(io::Error::from)?;
    }
    if fs::metadata(&source)?.is_dir() {
        fs::create_dir_all(target)?;
    } else {
        fs::OpenOptions::new().create(true).append(true).open(target)?;
    }
    mount(Some(&source), target, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
        .map_err(io::Error::from)
}

/// A bind mount of a file in the same file system has the device of its surroundings: only the table tells.
fn is_bound(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().filter_map(|l| l.split(' ').nth(1)).any(|p| Path::new(&unescape(p)) == path)
}

/// Makes the folders of `sub` one by one, each opened beneath the one before.
fn make_beneath(root: &impl std::os::fd::AsFd, sub: &Path) -> io::Result<()> {
    let mut at = rustix::io::dup(root)?;
    for part in sub.components() {
        let name = part.as_os_str();
        match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o750)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        at = rustix::fs::openat2(&at, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_path_types() {
        let dir = tempfile::tempdir().unwrap();
        let source = |name: &str, kind: &str| HostPathVolumeSource {
            path: dir.path().join(name).to_str().unwrap().to_owned(),
            type_: Some(kind.to_owned()),
        };
        assert!(host_path(&source("new", "")).is_ok());
        assert!(host_path(&source("new", "Directory")).unwrap_err().ends_with("new is not a directory"));
        assert!(host_path(&source("new", "DirectoryOrCreate")).is_ok());
        assert!(host_path(&source("new", "Directory")).is_ok());
        assert!(host_path(&source("new", "File")).unwrap_err().ends_with("new is not a file"));
        assert!(host_path(&source("file", "FileOrCreate")).is_ok());
        assert!(host_path(&source("file", "File")).is_ok());
        assert!(host_path(&source("file", "Socket")).is_err());
    }

    #[test]
    fn sub_paths_stay_in_the_volume() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("out")).unwrap();
        let target = dir.path().join("target");
        for sub in ["../x", "/etc", "out", "out/passwd"] {
            assert!(bind_sub_path(dir.path(), sub, &target).is_err(), "{sub}");
        }
    }

    #[test]
    fn octal_escapes_of_the_mount_table() {
        assert_eq!(unescape("/a\\040b\\134"), "/a b\\");
    }
}
