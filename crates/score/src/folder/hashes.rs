//! SHA-256 of a model's files. Gigabytes of weights take seconds, so what a large file hashed to is remembered
//! beside it, and holds as long as the file keeps its size and its time of change: the one that the system sets, which
//! no archive brings along, so that a memory that came with a stranger's folder holds for none of its files.
//!
//! Loading a model trusts that memory, `topicmill model verify` does not. In a folder that cannot be written
//! nothing is remembered, and every load reads every byte.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::ModelError;

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

/// Bytes as lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]))
        .collect()
}

/// SHA-256 of a file, hex; of a large one that did not change since it was read, from memory.
///
/// # Errors
/// [`ModelError::File`].
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

/// Size and time of change, of the content or of what the system notes of the file.
#[cfg(unix)]
fn stamp(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::metadata(path).ok()?;
    let seconds = u64::try_from(metadata.ctime()).ok()?;
    let rest = u64::try_from(metadata.ctime_nsec()).ok()?;
    Some((metadata.len(), seconds.checked_mul(1_000_000_000)? + rest))
}

#[cfg(not(unix))]
fn stamp(path: &Path) -> Option<(u64, u64)> {
    use std::time::UNIX_EPOCH;
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
    // Two processes may load one model at the same time, and neither may read half a file.
    fs::rename(&scratch, memory)
}

/// SHA-256 of a file, hex, every byte read.
///
/// # Errors
/// [`ModelError::File`].
pub fn file_hash(path: &Path) -> Result<String, ModelError> {
    Ok(hex(&digest_of(path, Sha256::new())?))
}

/// What a hasher makes of a file's bytes, after what it was given before.
///
/// # Errors
/// [`ModelError::File`].
pub fn digest_of<D: Digest>(path: &Path, mut hasher: D) -> Result<Vec<u8>, ModelError> {
    let read = ModelError::read(path);
    let mut file = File::open(path).map_err(&read)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finalize().to_vec()),
            Ok(n) => hasher.update(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(read(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_is_read_again_only_after_it_changed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, memory) = (dir.path().join("weights"), dir.path().join(MEMORY_FILE));
        fs::write(&path, "one").unwrap();
        let one = remembered(&path, 1).unwrap();
        assert_eq!(one, hex(&Sha256::digest("one")));
        // What is remembered is believed.
        let said = fs::read_to_string(&memory).unwrap();
        fs::write(&memory, said.replace(&one, "from memory")).unwrap();
        assert_eq!(remembered(&path, 1).unwrap(), "from memory");
        // A small file is never remembered.
        assert_eq!(remembered(&path, 4).unwrap(), one);
        // Another file of the same size and date is another file.
        let date = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, "two").unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        file.set_modified(date).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), date);
        assert_eq!(remembered(&path, 1).unwrap(), hex(&Sha256::digest("two")));
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
