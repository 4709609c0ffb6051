//! SHA-256 of a model's files. Gigabytes of weights take seconds, so what a large file hashed to is remembered
//! beside it, and holds as long as the file keeps its size and its time of change.
//!
//! Loading a model trusts that memory, `topicmill model verify` does not. In a folder that cannot be written
//! nothing is remembered, and every load reads every byte.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::ModelError;
use crate::domain::hex;

/// Where hashes are remembered, in the folder of the files.
pub const MEMORY_FILE: &str = ".hashes.toml";
/// Smaller files are read in less time than it takes to notice.
const REMEMBER_FROM: u64 = 64 << 20;

/// What a file was when it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Remembered {
    bytes: u64,
    modified_ns: u64,
    sha256: String,
}

/// SHA-256 of a file, hex; of a large one that did not change since it was read, from memory.
///
/// # Errors
/// [`ModelError::Read`].
pub fn known_hash(path: &Path) -> Result<String, ModelError> {
    remembered(path, REMEMBER_FROM)
}

fn remembered(path: &Path, from: u64) -> Result<String, ModelError> {
    let Some((bytes, modified_ns)) = stamp(path).filter(|(bytes, _)| *bytes >= from) else {
        return file_hash(path);
    };
    let memory = path.with_file_name(MEMORY_FILE);
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let read = || -> Option<BTreeMap<String, Remembered>> {
        toml::from_str(&fs::read_to_string(&memory).ok()?).ok()
    };
    if let Some(known) = read().and_then(|mut known| known.remove(&name))
        && (known.bytes, known.modified_ns) == (bytes, modified_ns)
    {
        return Ok(known.sha256);
    }
    let sha256 = file_hash(path)?;
    // A file that changed while it was read is read again next time.
    if stamp(path) == Some((bytes, modified_ns)) {
        let mut known = read().unwrap_or_default();
        let entry = Remembered {
            bytes,
            modified_ns,
            sha256: sha256.clone(),
        };
        known.insert(name, entry);
        if let Err(error) = write(&memory, &known) {
            tracing::debug!(%error, "cannot remember the hash of a model's file");
        }
    }
    Ok(sha256)
}

/// Size and time of change.
fn stamp(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    let modified = metadata
        .modified()
        .ok()?
        .duration_since(UNIX_EPOCH)
        .ok()?
        .as_nanos();
    Some((metadata.len(), u64::try_from(modified).ok()?))
}

/// Whoever reads meanwhile sees all of it or what was there before.
fn write(memory: &Path, known: &BTreeMap<String, Remembered>) -> io::Result<()> {
    let text = toml::to_string(known).map_err(io::Error::other)?;
    let scratch = memory.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&scratch, text)?;
    fs::rename(&scratch, memory)
}

/// SHA-256 of a file, hex, every byte read.
///
/// # Errors
/// [`ModelError::Read`].
pub fn file_hash(path: &Path) -> Result<String, ModelError> {
    let read = |source| ModelError::Read {
        path: path.to_owned(),
        source,
    };
    let mut file = File::open(path).map_err(read)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hex(&hasher.finalize())),
            Ok(n) => hasher.update(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(read(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_large_file_is_read_again_only_after_it_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights");
        let put = |text: &str, at: SystemTime| {
            fs::write(&path, text).unwrap();
            File::options()
                .append(true)
                .open(&path)
                .unwrap()
                .set_modified(at)
                .unwrap();
        };
        let noon = UNIX_EPOCH + Duration::from_hours(12);
        put("one", noon);
        let one = remembered(&path, 1).unwrap();
        assert_eq!(one, hex(&Sha256::digest("one")));
        // The same size and time: nobody looks inside.
        put("two", noon);
        assert_eq!(remembered(&path, 1).unwrap(), one);
        let two = hex(&Sha256::digest("two"));
        assert_eq!(file_hash(&path).unwrap(), two);
        put("two", noon + Duration::from_nanos(1));
        assert_eq!(remembered(&path, 1).unwrap(), two);
        // A small file is never remembered.
        put("six", noon + Duration::from_nanos(1));
        assert_eq!(remembered(&path, 4).unwrap(), hex(&Sha256::digest("six")));
    }

    #[test]
    fn a_damaged_memory_is_no_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights");
        fs::write(&path, "one").unwrap();
        fs::write(dir.path().join(MEMORY_FILE), "oops = [").unwrap();
        assert_eq!(remembered(&path, 1).unwrap(), hex(&Sha256::digest("one")));
        assert!(
            fs::read_to_string(dir.path().join(MEMORY_FILE))
                .unwrap()
                .contains("[weights]")
        );
    }
}
