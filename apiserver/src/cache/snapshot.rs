//! A persistent ordered map of entries: a copy shares all chunks but the one that changes next.

use std::sync::Arc;

use super::entry::Entry;

/// Entries per chunk at most; twice what a split leaves.
const CHUNK: usize = 128;

type Chunk = Arc<Vec<Arc<Entry>>>;

/// Entries in key order. Cloning costs one pointer per chunk.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    chunks: Vec<Chunk>,
    len: usize,
}

impl Snapshot {
    /// From entries in key order.
    pub fn from_sorted(entries: Vec<Arc<Entry>>) -> Self {
        let len = entries.len();
        let chunks = entries.chunks(CHUNK / 2).map(|part| Arc::new(part.to_vec())).collect();
        Self { chunks, len }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entry at a key.
    pub fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        chunk.binary_search_by(|entry| (*entry.key).cmp(key)).ok().map(|at| &chunk[at])
    }

    /// Puts an entry in and returns the one that it replaces.
    pub fn insert(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        if self.chunks.is_empty() {
            self.chunks.push(Chunk::default());
        }
        let index = self.chunk_of(&entry.key).min(self.chunks.len() - 1);
        let chunk = Arc::make_mut(&mut self.chunks[index]);
        match chunk.binary_search_by(|other| other.key.cmp(&entry.key)) {
            Ok(at) => Some(std::mem::replace(&mut chunk[at], entry)),
            Err(at) => {
                chunk.insert(at, entry);
                self.len += 1;
                if chunk.len() > CHUNK {
                    let upper = chunk.split_off(CHUNK / 2);
                    self.chunks.insert(index + 1, Arc::new(upper));
                }
                None
            }
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: &str) -> Option<Arc<Entry>> {
        let index = self.chunk_of(key);
        let chunk = self.chunks.get_mut(index)?;
        let at = chunk.binary_search_by(|entry| (*entry.key).cmp(key)).ok()?;
        let chunk = Arc::make_mut(chunk);
        let entry = chunk.remove(at);
        if chunk.is_empty() {
            self.chunks.remove(index);
        }
        self.len -= 1;
        Some(entry)
    }

    /// Entries whose key starts with `prefix`, after the key `after` if given, in order.
    pub fn range<'a>(&'a self, prefix: &'a str, after: Option<&'a str>) -> impl Iterator<Item = &'a Arc<Entry>> {
        let start = after.filter(|after| *after > prefix).unwrap_or(prefix);
        let index = self.chunk_of(start);
        let skip = self.chunks.get(index).map_or(0, |chunk| chunk.partition_point(|entry| *entry.key < *start));
        self.chunks
            .iter()
            .skip(index)
            .flat_map(|chunk| chunk.iter())
            .skip(skip)
            .skip_while(move |entry| after.is_some_and(|after| *entry.key <= *after))
            .take_while(move |entry| entry.key.starts_with(prefix))
    }

    /// The first chunk whose last key is not below `key`: where the key is, or belongs (`len` if after all).
    fn chunk_of(&self, key: &str) -> usize {
        self.chunks.partition_point(|chunk| chunk.last().is_some_and(|last| *last.key < *key))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::cache::entry::serialize;
    use crate::registry::Rules;

    fn entry(key: &str) -> Arc<Entry> {
        let object = json!({"kind": "K", "apiVersion": "v1", "metadata": {"name": key}});
        Arc::new(Entry::new(key, 1, serialize(&object).into(), &Rules::NONE).unwrap())
    }

    #[test]
    fn behaves_like_an_ordered_map() {
        let mut model = BTreeMap::new();
        let mut snapshot = Snapshot::default();
        let mut state = 12345u32;
        for step in 0..5000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = format!("/a/{:04}", (state >> 16) % 700);
            if step % 3 == 2 {
                assert_eq!(model.remove(&key).is_some(), snapshot.remove(&key).is_some());
            } else {
                assert_eq!(model.insert(key.clone(), ()).is_some(), snapshot.insert(entry(&key)).is_some());
            }
            assert_eq!(model.len(), snapshot.len());
        }
        let keys = |range: Vec<&Arc<Entry>>| range.iter().map(|e| e.key.to_string()).collect::<Vec<_>>();
        assert_eq!(keys(snapshot.range("/a/", None).collect()), model.keys().cloned().collect::<Vec<_>>());
        let some: Vec<_> = model.keys().filter(|k| k.starts_with("/a/03")).cloned().collect();
        assert_eq!(keys(snapshot.range("/a/03", None).collect()), some);
        let after: Vec<_> = some.iter().filter(|k| k.as_str() > "/a/0350").cloned().collect();
        assert_eq!(keys(snapshot.range("/a/03", Some("/a/0350")).collect()), after);
        assert!(model.keys().all(|key| snapshot.get(key).is_some()));
    }

    #[test]
    fn a_copy_does_not_change() {
        let mut snapshot = Snapshot::from_sorted((0..300).map(|i| entry(&format!("/a/{i:04}"))).collect());
        let copy = snapshot.clone();
        snapshot.remove("/a/0007");
        snapshot.insert(entry("/b"));
        assert_eq!((copy.len(), snapshot.len()), (300, 300));
        assert!(copy.get("/a/0007").is_some() && copy.get("/b").is_none());
    }
}
