//! Turns the paths that a user names, which may be folders or patterns, into the files to read.

use std::io;
use std::path::{Component, Path, PathBuf};

use super::FilesError;
use topicmill_tables::{TableFormat, bytes};

/// Expands a path to the Parquet files in a folder, or to the files that match a pattern such as `in/*.parquet`,
/// sorted by name. In folders, names that start with a dot or an underscore are skipped, as in other Parquet readers.
/// A folder or pattern must be valid UTF-8; a path to a file need not be.
///
/// # Errors
/// Returns [`FilesError::Input`] or [`FilesError::Read`].
pub fn expand_paths(path: &Path) -> Result<Vec<PathBuf>, FilesError> {
    let Some(pattern) = pattern_for(path) else {
        return Ok(vec![path.to_owned()]);
    };
    let options = glob::MatchOptions {
        require_literal_separator: true,
        require_literal_leading_dot: true,
        ..glob::MatchOptions::new()
    };
    let paths = glob::glob_with(&pattern, options).map_err(|error| {
        let why = format!(
            "it is not a valid pattern ({}); correct it, or quote it for the shell",
            error.msg
        );
        FilesError::Input(path.to_owned(), why)
    })?;
    let is_folder = path.is_dir();
    let mut files = Vec::new();
    for file in paths {
        let file = file.map_err(|error| {
            let path = error.path().to_owned();
            FilesError::from_table(&path, io::Error::from(error).into())
        })?;
        if file.is_file() && (!is_folder || is_wanted(&file, path)) {
            files.push(file);
        }
    }
    if !files.is_empty() {
        return Ok(files);
    }
    if !is_folder {
        return Err(missing(path));
    }
    let why =
        "it contains no Parquet file; choose a different folder, or name the files themselves";
    Err(FilesError::Input(path.to_owned(), why.to_owned()))
}

/// Returns the pattern for a folder or a pattern; `None` for stdin and for the path of a file.
fn pattern_for(path: &Path) -> Option<String> {
    let name = path.to_string_lossy();
    if bytes::is_stdin(path) {
        None
    } else if path.is_dir() {
        let folder = glob::Pattern::escape(name.trim_end_matches('/'));
        Some(format!("{folder}/**/*"))
    } else {
        let is_pattern = name.contains(['*', '?', '[']) && !path.exists();
        is_pattern.then(|| name.into_owned())
    }
}

/// Returns true if a file in a folder is a Parquet file whose path below the folder has no name with an underscore at
/// its start.
fn is_wanted(file: &Path, folder: &Path) -> bool {
    let starts_with_underscore = |part: Component<'_>| match part {
        Component::Normal(name) => name.to_string_lossy().starts_with('_'),
        _ => false,
    };
    let below = file.strip_prefix(folder).unwrap_or(Path::new(""));
    TableFormat::from_path(file) == Some(TableFormat::Parquet)
        && !below.components().any(starts_with_underscore)
}

/// Returns the error for an input that does not exist.
pub(super) fn missing(path: &Path) -> FilesError {
    let why = "there is no such file; correct the path".to_owned();
    FilesError::Input(path.to_owned(), why)
}
