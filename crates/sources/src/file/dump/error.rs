//! The errors of a file that cannot be read, with advice.

use std::io;
use std::path::Path;

/// A file that cannot be read, with advice.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FileError(String);

impl FileError {
    /// Returns a function that turns an I/O error at this path into its advice.
    pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.display().to_string();
        move |error| {
            Self(match error.kind() {
                io::ErrorKind::NotFound => format!("there is no file `{path}`: check the path"),
                io::ErrorKind::IsADirectory => format!(
                    "`{path}` is a directory: pass the files in it, such as `{path}/*.ndjson`"
                ),
                io::ErrorKind::UnexpectedEof => {
                    format!("`{path}` is truncated at its start: fetch it again")
                }
                _ if is_window(&error) => format!(
                    "`{path}` is compressed with a window of up to 2 GiB, which exceeds the address-space limit: raise \
                     the limit (`ulimit -v unlimited`), or decompress the file elsewhere with `zstd -d --long=31`"
                ),
                _ => {
                    format!("`{path}` cannot be read: {error}; check the file and its permissions")
                }
            })
        }
    }

    /// Returns the error for an empty file.
    pub(super) fn empty(path: &Path) -> Self {
        let path = path.display();
        Self(format!(
            "`{path}` is empty: check that it was written completely"
        ))
    }

    /// Returns the error for a file that was read, but whose content cannot be used.
    pub(super) fn unsuitable(path: &Path, why: &str) -> Self {
        Self(format!("`{}`: {why}", path.display()))
    }
}

/// Returns true if zstd could not allocate its window. The crate reports errors as text only.
pub(super) fn is_window(error: &io::Error) -> bool {
    error.to_string().contains("Allocation error")
}
