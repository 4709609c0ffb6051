//! Backups: copies a SQLite database to a single file as a consistent snapshot, even while other processes are writing.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use tokio_util::sync::CancellationToken;

use crate::atomic_file::{self, IfExists, folder_of, is_full};
use topicmill_core::FailureKind;
use topicmill_store::{Address, Store, StoreError};

/// Reasons why a database could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database is on a PostgreSQL server.
    #[error(
        "cannot copy the database: it is on a PostgreSQL server; copy it with `pg_dump` (docs/retention.md)"
    )]
    OnServer,
    /// The target exists, and `--overwrite` was not given.
    #[error(
        "cannot copy the database to `{0}`: the file exists; choose a different file, or add --overwrite"
    )]
    Exists(PathBuf),
    /// The target is the database itself.
    #[error(
        "cannot copy the database to `{0}`: it is the database itself; choose a different file"
    )]
    Itself(PathBuf),
    /// The target could not be written.
    #[error("cannot copy the database to `{path}`: {source}; {}", remedy(.source))]
    File {
        /// The target.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

impl BackupError {
    /// The kind of this error, which decides the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::File { source, .. } if is_full(source) => FailureKind::Unfinished,
            Self::OnServer | Self::Exists(_) | Self::Itself(_) | Self::File { .. } => {
                FailureKind::Usage
            }
        }
    }
}

/// Returns the advice for a file error.
fn remedy(error: &io::Error) -> &'static str {
    if is_full(error) {
        "free some space or choose a different folder, then run the command again"
    } else {
        "check the path and its permissions"
    }
}

/// Returns a closure that adds the target to an I/O error.
fn write_error(path: &Path) -> impl Fn(io::Error) -> BackupError + '_ {
    move |source| BackupError::File {
        path: path.to_owned(),
        source,
    }
}

/// Copies a database to a new file and renames it into place. Returns false, and leaves no file, if `stop` is cancelled
/// first. A process that is killed while copying leaves its temporary file.
///
/// # Errors
/// See [`BackupError`]; no file is left behind.
pub async fn backup(
    store: &Store,
    address: &Address,
    file: &Path,
    if_exists: IfExists,
    stop: &CancellationToken,
) -> Result<bool, BackupError> {
    let Address::File(database) = address else {
        return Err(BackupError::OnServer);
    };
    if address.includes(file) {
        return Err(BackupError::Itself(file.to_owned()));
    }
    if if_exists == IfExists::Fail && file.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(file.to_owned()));
    }
    let failed = write_error(file);
    // Temporary files are private, as the database may be.
    let part = tempfile::Builder::new()
        .prefix(&atomic_file::temp_prefix(file).map_err(&failed)?)
        .suffix(".partial")
        .tempfile_in(folder_of(file))
        .map_err(&failed)?;
    if part.path().to_str().is_none() {
        return Err(failed(ErrorKind::InvalidFilename.into()));
    }
    let journal = journal_of(part.path());
    let copied = copy(store, database, file, part, if_exists, stop).await;
    // SQLite leaves its journal behind on a full disk.
    let _ = fs::remove_file(journal);
    match copied {
        Ok(()) => Ok(true),
        // An error that follows a cancellation is only its consequence.
        Err(_) if stop.is_cancelled() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Copies the database to the temporary file and renames it into place.
async fn copy(
    store: &Store,
    database: &Path,
    file: &Path,
    part: NamedTempFile,
    if_exists: IfExists,
    stop: &CancellationToken,
) -> Result<(), BackupError> {
    let copied = store.backup(part.path(), stop).await;
    copied.map_err(|error| match error {
        // The disk that is full is the copy's, not the database's; SQLite does not distinguish them.
        StoreError::Full => write_error(file)(ErrorKind::StorageFull.into()),
        error => error.into(),
    })?;
    rename_into_place(part, database, file, if_exists).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => BackupError::Exists(file.to_owned()),
        _ => write_error(file)(error),
    })
}

/// Renames the copy into place, with the permissions of the database.
fn rename_into_place(
    part: NamedTempFile,
    database: &Path,
    file: &Path,
    if_exists: IfExists,
) -> io::Result<()> {
    part.as_file().sync_all()?;
    fs::set_permissions(part.path(), database.metadata()?.permissions())?;
    atomic_file::rename(part, file, if_exists)?;
    File::open(folder_of(file))?.sync_all()
}

/// Returns the path of the journal that SQLite writes for a copy.
fn journal_of(part: &Path) -> PathBuf {
    let mut path = part.as_os_str().to_owned();
    path.push("-journal");
    path.into()
}
