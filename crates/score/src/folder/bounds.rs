//! Limits the size of the files in a model folder, reads the small ones, and rejects Git LFS pointers.
//!
//! A model folder is untrusted input. Nobody can predict how every library reacts to a malicious file, but the number
//! of bytes that it reads can be limited.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{MANIFEST_FILE, ModelError};

/// Size limit for `tokenizer.json`. The largest known vocabularies, of 262,144 tokens, take 33 MB.
const MAX_TOKENIZER: u64 = 64 << 20;
/// Size limit for other JSON files. A `tokenizer_config.json` with thousands of added tokens takes 1.2 MB.
const MAX_JSON: u64 = 16 << 20;
/// Size limit for the manifest. It contains one line per file and ten per reference vector; published manifests take 10
/// kB.
const MAX_MANIFEST: u64 = 1 << 20;
/// Size limit for a graph or weights file: 17 billion float32 numbers.
pub const MAX_FILE: u64 = 64 << 30;

/// Start of a [Git LFS pointer](https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md).
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// Returns the size limit for a file with this name.
pub fn max_bytes(name: &str) -> u64 {
    match name {
        "tokenizer.json" => MAX_TOKENIZER,
        MANIFEST_FILE => MAX_MANIFEST,
        _ if is_json(Path::new(name)) => MAX_JSON,
        _ => MAX_FILE,
    }
}

/// Returns true if the file name ends in `.json`.
pub(super) fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "json")
}

/// Returns an error if a file is a Git LFS pointer, as after a `git clone` without `git lfs`.
pub(super) fn check_not_pointer(path: &Path) -> Result<(), ModelError> {
    let mut start = Vec::new();
    let file = File::open(path).map_err(ModelError::read(path))?;
    file.take(LFS_POINTER.len() as u64)
        .read_to_end(&mut start)
        .map_err(ModelError::read(path))?;
    if start == LFS_POINTER {
        return Err(ModelError::File(format!(
            "`{}` is a Git LFS pointer, not the file itself: run `git lfs pull` in its repository",
            path.display()
        )));
    }
    Ok(())
}

/// Reads one of the small files in a folder, within its size limit.
///
/// # Errors
/// Returns [`ModelError::File`].
pub fn read(path: &Path) -> Result<Vec<u8>, ModelError> {
    let limit = max_bytes(&path.file_name().unwrap_or_default().to_string_lossy());
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(ModelError::read(path))?;
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(ModelError::read(path))?;
    if bytes.len() as u64 > limit {
        return Err(ModelError::File(format!(
            "cannot read `{}` of the model: it is larger than {} MiB, the limit for this file; download the model \
             again from a source that you trust",
            path.display(),
            limit >> 20
        )));
    }
    Ok(bytes)
}
