//! Caches measurements of this machine in a JSON file in the user's cache folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::atomic_file::{self, IfExists};

/// A cache file with one value per key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CacheFile(PathBuf);

impl CacheFile {
    /// Returns the file with this name in a cache folder.
    pub(super) fn in_folder(cache_folder: &Path, name: &str) -> Self {
        Self(cache_folder.join("topicmill").join(name))
    }

    /// Returns its path.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Reads all entries; an unreadable file counts as empty.
    fn all<T: DeserializeOwned>(&self) -> BTreeMap<String, T> {
        std::fs::read(&self.0)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    /// Returns true if the file exists but is not valid.
    pub(super) fn is_damaged(&self) -> bool {
        std::fs::read(&self.0).is_ok_and(|bytes| {
            serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&bytes).is_err()
        })
    }

    /// Returns the value of a key.
    pub(super) fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        self.all().remove(key)
    }

    /// Sets the value of a key and returns the path. If two processes write concurrently, one value may be lost, but
    /// readers never see a partial file. Returns a message on failure.
    pub(super) fn insert<T: Serialize + DeserializeOwned>(
        &self,
        key: &str,
        note: T,
    ) -> Result<PathBuf, String> {
        let mut all = self.all();
        all.insert(key.to_owned(), note);
        let text = serde_json::to_string_pretty(&all).expect("text and numbers");
        std::fs::create_dir_all(atomic_file::folder_of(&self.0))
            .and_then(|()| atomic_file::write(&self.0, text + "\n", IfExists::Replace))
            .map(|()| self.0.clone())
            .map_err(|error| format!("{}: {error}", self.0.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_key_and_a_damaged_file_counts_as_empty() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheFile::in_folder(folder.path(), "notes.json");
        assert_eq!(cache.get::<usize>("a"), None);
        for (key, note) in [("a", 4096), ("b", 512), ("a", 2048)] {
            cache.insert(key, note).unwrap();
        }
        let found = ["a", "b", "c"].map(|key| cache.get::<usize>(key));
        assert_eq!(found, [Some(2048), Some(512), None]);
        let files = std::fs::read_dir(folder.path().join("topicmill")).unwrap();
        assert_eq!(files.count(), 1, "no temporary file remains");
        let whole = std::fs::read_to_string(cache.path()).unwrap();
        for damaged in ["", "{", "[]", &whole.replace("2048", "-1")] {
            std::fs::write(cache.path(), damaged).unwrap();
            assert_eq!(cache.get::<usize>("a"), None, "{damaged}");
        }
        cache.insert("a", 1024).unwrap();
        assert_eq!(cache.get("a"), Some(1024));
    }
}
