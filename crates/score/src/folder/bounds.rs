//! How large the files of a model folder may be, before anybody reads them.
//!
//! A folder may come from a stranger. What its files make a library do cannot all be foreseen, but how much of them is
//! read can be.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{MANIFEST_FILE, ModelError};

/// The largest vocabularies known, of 262,144 tokens, take 33 MB.
const TOKENIZER: u64 = 64 << 20;
/// `tokenizer_config.json` with thousands of added tokens takes 1.2 MB.
const JSON: u64 = 16 << 20;
/// A line a file and ten a pair of texts: those that ship take 10 kB.
const MANIFEST: u64 = 1 << 20;
/// Graph or weights; float32 of 16 billion numbers.
pub const MAX_FILE: u64 = 64 << 30;

/// How many bytes a file of this name may have.
pub fn of(name: &str) -> u64 {
    match name {
        "tokenizer.json" => TOKENIZER,
        MANIFEST_FILE => MANIFEST,
        _ if is_json(Path::new(name)) => JSON,
        _ => MAX_FILE,
    }
}

/// Whether a file is JSON by its name.
pub(super) fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "json")
}

/// What is in one of a folder's small files.
///
/// # Errors
/// [`ModelError::File`].
pub fn read(path: &Path) -> Result<Vec<u8>, ModelError> {
    let limit = of(&path.file_name().unwrap_or_default().to_string_lossy());
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(ModelError::read(path))?;
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(ModelError::read(path))?;
    if bytes.len() as u64 > limit {
        return Err(ModelError::File(format!(
            "read `{}` of the model: it has over {} MiB, and none that a model needs is so large; take the model from somebody you trust",
            path.display(),
            limit >> 20
        )));
    }
    Ok(bytes)
}
