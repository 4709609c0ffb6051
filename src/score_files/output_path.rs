//! Checks the path of the output before any work is done.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::output::requested_format;
use super::{FileJob, FilesError};
use topicmill_tables::{Compression, TableFormat, bytes};

/// Returns an error if the output cannot be written, as far as its path shows.
pub(super) fn check(job: &FileJob) -> Result<(), FilesError> {
    let output = &job.output;
    if bytes::is_stdin(output) {
        return Ok(());
    }
    let is_parquet = requested_format(job) == Some(TableFormat::Parquet);
    if is_parquet && Compression::from_path(output) != Compression::Plain {
        let why = "Parquet compresses its columns itself; choose a name that ends in `.parquet`";
        return Err(FilesError::Output(output.clone(), why));
    }
    if let Ok(real) = output.canonicalize() {
        check_existing(job, &real)?;
    }
    // A link without a target would fail only when the rows are written.
    if job.overwrite || output.symlink_metadata().is_err() {
        Ok(())
    } else {
        Err(exists(output))
    }
}

/// Returns an error if something is at the output's path that no flag replaces. `real` is the path without links.
fn check_existing(job: &FileJob, real: &Path) -> Result<(), FilesError> {
    let output = &job.output;
    if job.inputs.iter().any(|input| is_same(input, real)) {
        let why = "it is one of the inputs; choose a different file";
        return Err(FilesError::Output(output.clone(), why));
    }
    if real.is_dir() {
        let source = io::Error::from(io::ErrorKind::IsADirectory);
        return Err(FilesError::Write {
            path: output.clone(),
            source,
        });
    }
    // A device must not be replaced by a file.
    if !real.is_file() {
        let why = "it is not a file; name one, or use `-` to write to stdout";
        return Err(FilesError::Output(output.clone(), why));
    }
    Ok(())
}

/// Returns the error for an output that exists and must be kept.
pub(super) fn exists(output: &Path) -> FilesError {
    let why = "it already exists; remove it, choose a different file, or use `--overwrite`";
    FilesError::Output(output.to_owned(), why)
}

/// Returns true if an input is this file, perhaps through a link.
fn is_same(input: &Path, real: &Path) -> bool {
    // A hard link has a different path but the same inode.
    let inode = |path: &Path| path.metadata().ok().map(|file| (file.dev(), file.ino()));
    inode(input).is_some() && inode(input) == inode(real)
}
