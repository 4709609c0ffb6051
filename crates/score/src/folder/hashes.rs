//! SHA-256 hashes of model files, with a cache for large ones.
//!
//! Hashing gigabytes of weights takes seconds, so hashes of large files are cached in a file next to them. An entry is
//! valid as long as the file's size and change time (ctime) are unchanged. Archives cannot set the ctime, so a cache
//! that comes with an untrusted folder is never valid.
//!
//! Loading a model trusts the cache; `topicmill model verify` does not. In a read-only folder, nothing is cached and
//! every load reads every byte.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use topicmill_core::hex;

use super::ModelError;

/// Name of the cache file, which is in the same folder as the hashed files.
const HASH_CACHE_FILE: &str = ".hashes.toml";
/// Minimum size of a file whose hash is cached; hashing a smaller file takes no noticeable time.
const MIN_CACHED_BYTES: u64 = 64 << 20;

/// A cached hash, and the state of the file that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CachedHash {
    #[serde(flatten)]
    stamp: FileStamp,
    sha256: String,
}

/// Size and change time of a file, which differ after any change of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct FileStamp {
    bytes: u64,
    /// The ctime in nanoseconds since 1970.
    changed_ns: u64,
}

impl FileStamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        let seconds = u64::try_from(metadata.ctime()).ok()?;
        let nanoseconds = u64::try_from(metadata.ctime_nsec()).ok()?;
        Some(Self {
            bytes: metadata.len(),
            changed_ns: seconds.checked_mul(1_000_000_000)? + nanoseconds,
        })
    }
}

/// Returns a file's SHA-256 in hex. For a large, unchanged file, the hash comes from the cache.
///
/// # Errors
/// Returns [`ModelError::File`].
pub fn cached_hash(path: &Path) -> Result<String, ModelError> {
    hash_with_cache(path, MIN_CACHED_BYTES)
}

fn hash_with_cache(path: &Path, min_bytes: u64) -> Result<String, ModelError> {
    let stamp = FileStamp::of(path).filter(|stamp| stamp.bytes >= min_bytes);
    let Some(stamp) = stamp else {
        return file_hash(path);
    };
    let cache = path.with_file_name(HASH_CACHE_FILE);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if let Some(cached) = read_cache(&cache).remove(&*name)
        && cached.stamp == stamp
    {
        return Ok(cached.sha256);
    }
    let sha256 = file_hash(path)?;
    // If the file changed during the read, the hash is not cached.
    if FileStamp::of(path) == Some(stamp) {
        // Read again, because another process may have hashed a different file in the meantime.
        let mut hashes = read_cache(&cache);
        let cached = CachedHash {
            stamp,
            sha256: sha256.clone(),
        };
        hashes.insert(name.into_owned(), cached);
        if let Err(error) = write_cache(&cache, &hashes) {
            tracing::debug!(%error, "cannot cache the hash of a model file");
        }
    }
    Ok(sha256)
}

/// Returns the cached hashes by file name; empty if there is no cache, or it is damaged.
fn read_cache(cache: &Path) -> BTreeMap<String, CachedHash> {
    let text = fs::read_to_string(cache).unwrap_or_default();
    toml::from_str(&text).unwrap_or_default()
}

/// Writes the cache atomically.
fn write_cache(cache: &Path, hashes: &BTreeMap<String, CachedHash>) -> io::Result<()> {
    let text = toml::to_string(hashes).map_err(io::Error::other)?;
    let scratch = cache.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&scratch, text)?;
    // Two processes may load the same model, and neither may read a partial file.
    fs::rename(&scratch, cache)
}

/// Returns a file's SHA-256 in hex, always reading every byte.
///
/// # Errors
/// Returns [`ModelError::File`].
pub fn file_hash(path: &Path) -> Result<String, ModelError> {
    let mut hasher = Sha256::new();
    let read = ModelError::read(path);
    let mut file = File::open(path).map_err(&read)?;
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
    use super::*;

    #[test]
    fn a_large_file_is_rehashed_only_after_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let (path, cache) = (dir.path().join("weights"), dir.path().join(HASH_CACHE_FILE));
        fs::write(&path, "one").unwrap();
        let one = hash_with_cache(&path, 1).unwrap();
        assert_eq!(one, hex(&Sha256::digest("one")));
        // A valid cache entry is trusted.
        let cached = fs::read_to_string(&cache).unwrap();
        fs::write(&cache, cached.replace(&one, "from cache")).unwrap();
        assert_eq!(hash_with_cache(&path, 1).unwrap(), "from cache");
        // A small file is never cached.
        assert_eq!(hash_with_cache(&path, 4).unwrap(), one);
        // A replacement with the same size and modification time is detected.
        let date = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, "two").unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        file.set_modified(date).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), date);
        let two = hash_with_cache(&path, 1).unwrap();
        assert_eq!(two, hex(&Sha256::digest("two")));
    }

    #[test]
    fn a_damaged_cache_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights");
        fs::write(&path, "one").unwrap();
        fs::write(dir.path().join(HASH_CACHE_FILE), "oops = [").unwrap();
        let one = hash_with_cache(&path, 1).unwrap();
        assert_eq!(one, hex(&Sha256::digest("one")));
        let cache = fs::read_to_string(dir.path().join(HASH_CACHE_FILE)).unwrap();
        assert!(cache.contains("[weights]"), "{cache}");
    }
}
