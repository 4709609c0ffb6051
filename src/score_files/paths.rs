//! Turns the paths that a user names, which may be folders or patterns, into the files to read.

use std::io;
use std::path::{Component, Path, PathBuf};

use super::FilesError;
use topicmill_tables::{TableFormat, bytes};

/// Expands a path to the Parquet files in a folder, or to the files that match a pattern such as `in/*.parquet`,
/// sorted by name. In folders, names that start with a dot or an underscore are skipped, as in other Parquet readers.
///
/// # Errors
/// Returns [`FilesError::Input`] or [`FilesError::Read`].
pub fn expand_paths(path: &Path) -> Result<Vec<PathBuf>, FilesError> {
    let named = path.to_string_lossy();
    let is_folder = path.is_dir();
    let is_pattern = named.contains(['*', '?', '[']) && !path.exists();
    if bytes::is_stdin(path) || !(is_folder || is_pattern) {
        return Ok(vec![path.to_owned()]);
    }
    let pattern = if is_folder {
        format!(
            "{}/**/*",
            glob::Pattern::escape(named.trim_end_matches('/'))
        )
    } else {
        named.clone().into_owned()
    };
    let options = glob::MatchOptions {
        require_literal_separator: true,
        require_literal_leading_dot: true,
        ..glob::MatchOptions::new()
    };
    let found = glob::glob_with(&pattern, options).map_err(|error| {
        let why = error.msg;
        let why =
            format!("it is not a valid pattern ({why}); correct it, or quote it for the shell");
        FilesError::Input(path.to_owned(), why)
    })?;
    let is_hidden = |part: Component<'_>| match part {
        Component::Normal(name) => name.to_string_lossy().starts_with('_'),
        _ => false,
    };
    let mut files = Vec::new();
    for file in found {
        let file = file.map_err(|error| {
            let path = error.path().to_owned();
            FilesError::from_table(&path, io::Error::from(error).into())
        })?;
        let below = file.strip_prefix(path).unwrap_or(Path::new(""));
        let is_wanted = is_pattern
            || (TableFormat::from_path(&file).0 == Some(TableFormat::Parquet)
                && !below.components().any(is_hidden));
        if is_wanted && file.is_file() {
            files.push(file);
        }
    }
    if files.is_empty() {
        return Err(if is_folder {
            let why = "it contains no Parquet file; choose a different folder, or name the files themselves";
            FilesError::Input(path.to_owned(), why.to_owned())
        } else {
            missing(path)
        });
    }
    Ok(files)
}

/// Returns the error for an input that does not exist.
pub(super) fn missing(path: &Path) -> FilesError {
    let why = "there is no such file; correct the path".to_owned();
    FilesError::Input(path.to_owned(), why)
}
