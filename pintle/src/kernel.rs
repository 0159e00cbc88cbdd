//! Kernel settings that pods and Services need in their network namespace: made when a node starts, put back when it is
//! stopped. What was there before is remembered in the data directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// Keys below /proc/sys and the values that are needed.
const NEEDED: [(&str, &str); 2] = [("net/ipv4/ip_forward", "1"), ("net/ipv4/conf/all/route_localnet", "1")];

/// What was found before the first change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Before {
    /// The network namespace that it is about.
    namespace: String,
    /// Values of the keys that were changed.
    values: BTreeMap<String, String>,
}

/// The settings of one network namespace.
struct Settings {
    root: PathBuf,
    namespace: String,
}

/// Makes the settings; with a file, what was there before is added to it first.
pub fn prepare(remember: Option<&Path>) -> anyhow::Result<()> {
    Settings::own()?.prepare(remember)
}

/// Puts back what the file remembers of this process's network namespace, and removes the file.
pub fn put_back(file: &Path) -> anyhow::Result<()> {
    Settings::own()?.put_back(file)
}

impl Settings {
    fn own() -> anyhow::Result<Self> {
        let namespace = std::fs::read_link("/proc/self/ns/net").context("reading the network namespace's number")?;
        Ok(Self { root: "/proc/sys".into(), namespace: namespace.to_string_lossy().into_owned() })
    }

    fn read(&self, key: &str) -> anyhow::Result<String> {
        let path = self.root.join(key);
        let value = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(value.trim().to_owned())
    }

    fn write(&self, key: &str, value: &str) -> anyhow::Result<()> {
        let path = self.root.join(key);
        std::fs::write(&path, value).with_context(|| format!("setting {}", path.display()))
    }

    fn prepare(&self, remember: Option<&Path>) -> anyhow::Result<()> {
        let mut found = BTreeMap::new();
        for (key, needed) in NEEDED {
            let value = self.read(key)?;
            if value != needed {
                found.insert(key.to_owned(), value);
            }
        }
        if let Some(file) = remember.filter(|_| !found.is_empty()) {
            // Remembered before anything is changed: a crash between the two loses nothing.
            std::fs::write(file, serde_json::to_vec(&self.remembered(file, &found))?)
                .with_context(|| format!("writing {}", file.display()))?;
        }
        let changed = NEEDED.iter().filter(|(key, _)| found.contains_key(*key));
        changed.into_iter().try_for_each(|(key, needed)| self.write(key, needed))
    }

    /// What is known of an earlier start, which counts first, and what was found now.
    fn remembered(&self, file: &Path, found: &BTreeMap<String, String>) -> Before {
        let mut before = read(file).filter(|before| before.namespace == self.namespace).unwrap_or_default();
        before.namespace = self.namespace.clone();
        for (key, value) in found {
            before.values.entry(key.clone()).or_insert_with(|| value.clone());
        }
        before
    }

    fn put_back(&self, file: &Path) -> anyhow::Result<()> {
        let Some(before) = read(file).filter(|before| before.namespace == self.namespace) else { return Ok(()) };
        for (key, needed) in NEEDED {
            // What somebody else has set meanwhile stays.
            if let Some(value) = before.values.get(key)
                && self.read(key)? == needed
            {
                self.write(key, value)?;
            }
        }
        std::fs::remove_file(file).with_context(|| format!("removing {}", file.display()))
    }
}

fn read(file: &Path) -> Option<Before> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(dir: &Path, namespace: &str) -> Settings {
        for (key, _) in NEEDED {
            let path = dir.join(key);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        Settings { root: dir.to_owned(), namespace: namespace.to_owned() }
    }

    #[test]
    fn what_was_there_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let (space, file) = (settings(dir.path(), "net:[1]"), dir.path().join("before"));
        let set = |values: [&str; 2]| {
            NEEDED.iter().zip(values).for_each(|((key, _), value)| space.write(key, value).unwrap())
        };
        let get = || NEEDED.map(|(key, _)| space.read(key).unwrap());
        // Nothing to change: nothing to remember.
        set(["1\n", "1\n"]);
        space.prepare(Some(&file)).unwrap();
        assert!(!file.exists());
        space.put_back(&file).unwrap();
        // One is changed, by two starts; the other was somebody else's.
        set(["0\n", "1\n"]);
        space.prepare(Some(&file)).unwrap();
        space.prepare(Some(&file)).unwrap();
        assert_eq!(get(), ["1", "1"]);
        // Not from another namespace.
        settings(dir.path(), "net:[2]").put_back(&file).unwrap();
        assert_eq!(get(), ["1", "1"]);
        space.put_back(&file).unwrap();
        assert_eq!((get(), file.exists()), (["0".to_owned(), "1".to_owned()], false));
        // Changed by somebody else meanwhile.
        space.prepare(Some(&file)).unwrap();
        set(["2\n", "1\n"]);
        space.put_back(&file).unwrap();
        assert_eq!(get(), ["2", "1"]);
    }
}
