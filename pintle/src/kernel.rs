//! Kernel settings that pods and Services need in their network namespace: made when a node starts, put back when the last
//! node there is stopped. What was there before is remembered in the data directory of a cluster; which clusters have nodes in
//! a namespace, in a file that does not outlive the machine's run, as the settings don't.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;
use pintle_host::file;
use serde::{Deserialize, Serialize};

/// Folder of the lists of nodes.
const NODES: &str = "/run/pintle";
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
    /// The files in which nodes in this namespace remember.
    nodes: PathBuf,
}

/// Makes the settings; with a file, what was there before is added to it first.
pub fn prepare(remember: Option<&Path>) -> anyhow::Result<()> {
    Settings::own()?.prepare(remember)
}

/// True if another cluster has a node in this process's network namespace.
pub fn is_shared(file: &Path) -> anyhow::Result<bool> {
    Ok(!Settings::own()?.others(file).is_empty())
}

/// Puts back what the file remembers of this process's network namespace, unless another node needs it as it is: that one
/// remembers it then. Removes the file.
pub fn put_back(file: &Path) -> anyhow::Result<()> {
    Settings::own()?.put_back(file)
}

/// The cluster's network namespace goes, and with it its settings.
pub fn forget(file: &Path) -> anyhow::Result<()> {
    let before: Option<Before> = std::fs::read(file).ok().and_then(|text| serde_json::from_slice(&text).ok());
    before.map_or(Ok(()), |before| {
        let settings = Settings::within(before.namespace);
        let _lock = settings.lock()?;
        settings.list(&settings.others(file))
    })
}

/// Nobody else changes a list of nodes.
struct Lock {
    folder: PathBuf,
    _locked: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Lists of other namespaces may be in it.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

impl Settings {
    fn own() -> anyhow::Result<Self> {
        let namespace = std::fs::read_link("/proc/self/ns/net").context("reading the network namespace's number")?;
        Ok(Self::within(namespace.to_string_lossy().into_owned()))
    }

    fn within(namespace: String) -> Self {
        let number: String = namespace.chars().filter(char::is_ascii_digit).collect();
        Self { root: "/proc/sys".into(), namespace, nodes: Path::new(NODES).join(format!("nodes-{number}.json")) }
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

    fn lock(&self) -> anyhow::Result<Lock> {
        let folder = self.nodes.parent().unwrap_or(Path::new("/")).to_owned();
        let locked = file::lock_directory(&folder).with_context(|| format!("locking {}", folder.display()))?;
        Ok(Lock { folder, _locked: locked })
    }

    fn prepare(&self, remember: Option<&Path>) -> anyhow::Result<()> {
        let _lock = remember.map(|_| self.lock()).transpose()?;
        let mut found = BTreeMap::new();
        for (key, needed) in NEEDED {
            let value = self.read(key)?;
            if value != needed {
                found.insert(key.to_owned(), value);
            }
        }
        if let Some(file) = remember {
            // Remembered before anything is changed: a crash between the two loses nothing.
            self.remember(file, &found)?;
            let mut nodes = self.others(file);
            nodes.push(file.to_owned());
            self.list(&nodes)?;
        }
        let changed = NEEDED.iter().filter(|(key, _)| found.contains_key(*key));
        changed.into_iter().try_for_each(|(key, needed)| self.write(key, needed))
    }

    /// Adds what was found to what is known of an earlier start, which counts first.
    fn remember(&self, file: &Path, found: &BTreeMap<String, String>) -> anyhow::Result<()> {
        let mut before = self.of(file).unwrap_or_default();
        before.namespace = self.namespace.clone();
        for (key, value) in found {
            before.values.entry(key.clone()).or_insert_with(|| value.clone());
        }
        file::replace(file, &serde_json::to_vec(&before)?, 0o644)
    }

    /// What the file says, if it is about this namespace.
    fn of(&self, file: &Path) -> Option<Before> {
        let before: Before = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
        (before.namespace == self.namespace).then_some(before)
    }

    /// The other nodes' files. One that is gone was of a cluster that was removed otherwise.
    fn others(&self, file: &Path) -> Vec<PathBuf> {
        let listed = std::fs::read(&self.nodes).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let listed: Vec<PathBuf> = listed.unwrap_or_default();
        listed.into_iter().filter(|other| other != file && self.of(other).is_some()).collect()
    }

    fn list(&self, nodes: &[PathBuf]) -> anyhow::Result<()> {
        if !nodes.is_empty() {
            return file::replace(&self.nodes, &serde_json::to_vec(nodes)?, 0o644);
        }
        match std::fs::remove_file(&self.nodes) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", self.nodes.display()))
            }
            _ => Ok(()),
        }
    }

    fn put_back(&self, file: &Path) -> anyhow::Result<()> {
        let _lock = self.lock()?;
        let Some(before) = self.of(file) else { return Ok(()) };
        let others = self.others(file);
        match others.first() {
            Some(heir) => self.remember(heir, &before.values)?,
            None => self.restore(&before)?,
        }
        std::fs::remove_file(file).with_context(|| format!("removing {}", file.display()))?;
        self.list(&others)
    }

    fn restore(&self, before: &Before) -> anyhow::Result<()> {
        for (key, needed) in NEEDED {
            // What somebody else has set meanwhile stays.
            if let Some(value) = before.values.get(key)
                && self.read(key)? == needed
            {
                self.write(key, value)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(dir: &Path, namespace: &str) -> Settings {
        for (key, _) in NEEDED {
            let path = dir.join(key);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        Settings { root: dir.to_owned(), namespace: namespace.to_owned(), nodes: dir.join("run/nodes.json") }
    }

    #[test]
    fn what_was_there_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let (space, file) = (settings(dir.path(), "net:[1]"), dir.path().join("before"));
        let set = |values: [&str; 2]| {
            NEEDED.iter().zip(values).for_each(|((key, _), value)| space.write(key, value).unwrap())
        };
        let get = || NEEDED.map(|(key, _)| space.read(key).unwrap());
        // Nothing to change: nothing to put back.
        set(["1\n", "1\n"]);
        space.prepare(Some(&file)).unwrap();
        space.put_back(&file).unwrap();
        assert_eq!((get(), file.exists(), space.nodes.exists()), (["1", "1"].map(str::to_owned), false, false));
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

    /// Two clusters in one namespace; the first one made the settings, and is removed first.
    #[test]
    fn the_last_node_puts_back_what_the_first_one_found() {
        let dir = tempfile::tempdir().unwrap();
        let space = settings(dir.path(), "net:[1]");
        let [first, second, gone] = ["first", "second", "gone"].map(|name| dir.path().join(name));
        for (key, _) in NEEDED {
            space.write(key, "0\n").unwrap();
        }
        let get = || NEEDED.map(|(key, _)| space.read(key).unwrap());
        space.prepare(Some(&dir.path().join("isolated"))).unwrap();
        space.list(&space.others(&dir.path().join("isolated"))).unwrap();
        assert!(!space.nodes.exists());
        for (key, _) in NEEDED {
            space.write(key, "0\n").unwrap();
        }
        for file in [&gone, &first, &second] {
            space.prepare(Some(file)).unwrap();
        }
        // A cluster whose folder was removed by hand needs nothing any more, but what it found is lost.
        let found = std::fs::read(&gone).unwrap();
        std::fs::write(&first, found).unwrap();
        std::fs::remove_file(&gone).unwrap();
        assert_eq!(space.others(&first), std::slice::from_ref(&second));
        space.put_back(&first).unwrap();
        assert_eq!(get(), ["1", "1"], "the second one needs them");
        assert!(space.others(&second).is_empty());
        space.put_back(&second).unwrap();
        assert_eq!(get(), ["0", "0"]);
        assert!(!dir.path().join("run").exists());
    }
}
