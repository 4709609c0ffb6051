//! What was found before, in a small file: a key in, a budget out. A file that cannot be read counts as empty.
//! A database remembers it too, under the same key: what it is asked for then holds wherever the program runs.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::engines::noted::Noted;

/// What the best budget depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Hash of the model folder.
    pub manifest_hash: String,
    /// Precision of its graph.
    pub precision: String,
    /// The device and its make, as far as the system tells.
    pub device: String,
    /// Threads within a batch.
    pub threads: usize,
    /// Engines side by side.
    pub workers: u16,
    /// The runtime.
    pub runtime: String,
}

impl Key {
    /// As one line of text.
    pub fn line(&self) -> String {
        let Self {
            manifest_hash,
            precision,
            device,
            threads,
            workers,
            runtime,
        } = self;
        format!("{manifest_hash} {precision} on {device}, {workers} × {threads} threads, {runtime}")
    }
}

/// A budget found earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    batch_tokens: usize,
}

/// The file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered(Noted);

impl Remembered {
    /// The file in a folder for caches.
    pub fn below(caches: &Path) -> Self {
        Self(Noted::below(caches, "batch-tokens.json"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// What was found for a key.
    pub fn get(&self, key: &Key) -> Option<usize> {
        let entry: Entry = self.0.get(&key.line())?;
        Some(entry.batch_tokens).filter(|tokens| *tokens > 0)
    }

    /// Keeps what was found. Of two processes that write at once, one may be forgotten.
    ///
    /// # Errors
    /// Those of the file system; nothing is lost then but time.
    pub fn put(&self, key: &Key, batch_tokens: usize) -> io::Result<()> {
        self.0.put(key.line(), Entry { batch_tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(threads: usize) -> Key {
        Key {
            manifest_hash: "ab12".into(),
            precision: "fp32".into(),
            device: "cpu".into(),
            threads,
            workers: 1,
            runtime: "libonnxruntime.so.1".into(),
        }
    }

    #[test]
    fn what_was_put_is_found_under_its_key_only() {
        let folder = tempfile::tempdir().unwrap();
        let remembered = Remembered::below(folder.path());
        assert_eq!(remembered.get(&key(2)), None);
        remembered.put(&key(2), 4096).unwrap();
        remembered.put(&key(3), 512).unwrap();
        remembered.put(&key(2), 2048).unwrap();
        assert_eq!(remembered.get(&key(2)), Some(2048));
        assert_eq!(remembered.get(&key(3)), Some(512));
        assert_eq!(remembered.get(&key(4)), None);
        let files = std::fs::read_dir(folder.path().join("topicmill")).unwrap();
        assert_eq!(files.count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_damaged_file_is_ignored_and_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let remembered = Remembered::below(folder.path());
        remembered.put(&key(2), 4096).unwrap();
        let whole = std::fs::read_to_string(remembered.path()).unwrap();
        for damaged in [
            "",
            "{",
            &whole[..whole.len() / 2],
            "[]",
            &whole.replace("4096", "-1"),
        ] {
            std::fs::write(remembered.path(), damaged).unwrap();
            assert_eq!(remembered.get(&key(2)), None, "{damaged}");
        }
        std::fs::write(remembered.path(), whole.replace("4096", "0")).unwrap();
        assert_eq!(remembered.get(&key(2)), None, "no budget at all");
        remembered.put(&key(2), 1024).unwrap();
        assert_eq!(remembered.get(&key(2)), Some(1024));
    }
}
