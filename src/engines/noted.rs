//! What was measured on this machine, noted in a file of the user's folder for caches.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::placing::{self, Standing};

/// A file of notes of one kind, each under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Noted(PathBuf);

impl Noted {
    /// The file of this name in a folder for caches.
    pub(super) fn below(caches: &Path, name: &str) -> Self {
        Self(caches.join("topicmill").join(name))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// A file that cannot be read counts as empty.
    fn all<T: DeserializeOwned>(&self) -> BTreeMap<String, T> {
        std::fs::read(&self.0)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    /// Whether there is a file that holds no notes.
    pub(super) fn is_damaged(&self) -> bool {
        std::fs::read(&self.0).is_ok_and(|bytes| {
            serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&bytes).is_err()
        })
    }

    /// What is noted under a key.
    pub(super) fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        self.all().remove(key)
    }

    /// Notes it in place of what was noted before. If two processes note something at once, the notes of one may be lost,
    /// and never half a file is read.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn put<T: Serialize + DeserializeOwned>(
        &self,
        key: String,
        note: T,
    ) -> io::Result<()> {
        let mut all = self.all();
        all.insert(key, note);
        std::fs::create_dir_all(placing::folder_of(&self.0))?;
        let text = serde_json::to_string_pretty(&all).expect("text and numbers");
        placing::put(&self.0, text + "\n", Standing::Replaced)
    }
}
