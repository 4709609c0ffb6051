//! Renames a finished folder into place, and recognises the folders that it may replace.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::card::SIGN;
use crate::atomic_file::IfExists;
use crate::atomic_folder;

/// Renames a folder into place. Replaces only a folder that contains a data set and nothing else.
pub(super) fn persist(folder: &TempDir, path: &Path, if_exists: IfExists) -> io::Result<()> {
    if path.symlink_metadata().is_ok() {
        if if_exists == IfExists::Fail {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if !is_export(path) {
            return Err(io::Error::other(
                "it is not a data set made by `export`, and was not replaced; remove it, or choose a different folder",
            ));
        }
        if let Some(foreign_file) = foreign_file(path)? {
            return Err(io::Error::other(format!(
                "`{}` is not part of the data set; the folder was not replaced: move the file away, or choose a \
                 different folder",
                foreign_file.display()
            )));
        }
    }
    atomic_folder::persist(folder, path, if_exists)
}

/// Returns true if a folder is a data set made by `export`.
fn is_export(folder: &Path) -> bool {
    fs::read_to_string(folder.join("README.md")).is_ok_and(|text| text.contains(SIGN))
}

/// Returns the first file in a data set's folder that does not belong to the data set.
fn foreign_file(folder: &Path) -> io::Result<Option<PathBuf>> {
    let is_part = |name: &str| name == "README.md" || name == "data";
    let is_data = |name: &str| name.contains("-of-") && name.ends_with(".parquet");
    match file_other_than(folder, is_part)? {
        None => file_other_than(&folder.join("data"), is_data),
        foreign => Ok(foreign),
    }
}

/// Returns the first file in a folder, if it exists, whose name is not one of the expected names.
fn file_other_than(
    folder: &Path,
    is_expected: impl Fn(&str) -> bool,
) -> io::Result<Option<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        if !name.to_str().is_some_and(&is_expected) {
            return Ok(Some(folder.join(name)));
        }
    }
    Ok(None)
}
