//! Keeps containers' log files from filling the disk: a file that is too large is set aside, and the runtime opens a new
//! one.

use std::fs;
use std::path::{Path, PathBuf};

use pintle_cri::Client;
use pintle_cri::messages as cri;

use crate::pods::model::RuntimePod;

/// Size from which on a file is set aside.
const MAX_SIZE: u64 = 10 << 20;
/// Files of one container, the one that is written to included.
const MAX_FILES: usize = 5;

/// Rotates the logs of a pod's running containers where they are too large.
pub async fn rotate(cri: &Client, pod: &RuntimePod) {
    for record in pod.running() {
        let path = PathBuf::from(&record.log_path);
        if fs::metadata(&path).map_or(0, |m| m.len()) < MAX_SIZE {
            continue;
        }
        let stamp = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
        let aside = PathBuf::from(format!("{}.{stamp}", path.display()));
        if let Err(error) = fs::rename(&path, &aside) {
            tracing::warn!(log = %path.display(), %error, "log not set aside");
            continue;
        }
        let reopen = cri::ReopenContainerLogRequest { container_id: record.id.clone() };
        if let Err(error) = cri.reopen_container_log(reopen).await {
            tracing::warn!(log = %path.display(), %error, "log not opened anew");
            // The runtime goes on writing to the old file: it gets its name back.
            let _ = fs::rename(&aside, &path);
        }
        remove_old(&path);
    }
}

/// Removes the oldest of a log's files that were set aside.
fn remove_old(path: &Path) {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().map(|n| format!("{}.", n.to_string_lossy()))) else {
        return;
    };
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut aside: Vec<PathBuf> =
        entries.filter(|e| e.file_name().to_string_lossy().starts_with(&name)).map(|e| e.path()).collect();
    // The names end with the time.
    aside.sort();
    let surplus = aside.len().saturating_sub(MAX_FILES - 1);
    for old in &aside[..surplus] {
        let _ = fs::remove_file(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_files_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        for n in 1..=6 {
            fs::write(dir.path().join(format!("0.log.2026010{n}-000000")), "").unwrap();
        }
        fs::write(dir.path().join("1.log.20260101-000000"), "").unwrap();
        remove_old(&path);
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
        left.sort();
        assert_eq!(left.len(), 5);
        assert_eq!(left[0], "0.log.20260103-000000");
    }
}
