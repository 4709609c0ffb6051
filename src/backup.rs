//! Backups: copies a SQLite database to a single file as a consistent snapshot, even while other processes are writing.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use crate::atomic_file::{is_at, is_full, with_suffix};
use topicmill_core::FailureKind;
use topicmill_store::{Address, Store, StoreError};

const WHAT: &str = "copy the database to";

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
    /// Another process is writing a backup to the same file.
    #[error(
        "cannot copy the database to `{0}`: another process is writing a backup to it; wait for it, or choose a \
         different file"
    )]
    Busy(PathBuf),
    /// A file or folder could not be read or written.
    #[error("cannot {what} `{path}`: {source}; {}", remedy(.source))]
    File {
        /// The operation.
        what: &'static str,
        /// The file or folder.
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
            Self::Busy(_) => FailureKind::Temporary,
            Self::File { source, .. } if is_full(source) => FailureKind::Unfinished,
            Self::OnServer | Self::Exists(_) | Self::Itself(_) | Self::File { .. } => {
                FailureKind::Usage
            }
        }
    }

    /// Returns true if the disk has no room for the copy.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::File { source, .. } if is_full(source))
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

/// Returns a closure that adds the operation and the path to an I/O error.
fn at<'p>(what: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> BackupError + use<'p> {
    let path = path.to_owned();
    move |source| BackupError::File { what, path, source }
}

/// Copies a database to a new file and renames it into place. Returns false, and leaves no file, if `stop` is cancelled
/// first. If a process crashes while copying, the next backup to the same file deletes its temporary file.
///
/// # Errors
/// See [`BackupError`]; no file is left behind.
pub async fn backup(
    store: &Store,
    address: &Address,
    file: &Path,
    overwrite: bool,
    stop: &CancellationToken,
) -> Result<bool, BackupError> {
    let Address::File(from) = address else {
        return Err(BackupError::OnServer);
    };
    if address.includes(file) {
        return Err(BackupError::Itself(file.to_owned()));
    }
    if file.symlink_metadata().is_ok() && !overwrite {
        return Err(BackupError::Exists(file.to_owned()));
    }
    let part = with_suffix(file, ".part");
    let Some(_lock) = FileLock::acquire(&part)? else {
        return Err(BackupError::Busy(file.to_owned()));
    };
    if part.symlink_metadata().is_ok() {
        fs::remove_file(&part).map_err(at(WHAT, &part))?;
    }
    // SQLite would otherwise treat a leftover journal as this copy's journal.
    remove_journal(&part);
    let copied = copy(store, from, file, &part, stop).await;
    // An error that follows a cancellation is only its consequence.
    let ended = if stop.is_cancelled() {
        Ok(false)
    } else {
        copied.and_then(|()| {
            rename_into_place(&part, file, overwrite).map_err(at(WHAT, file))?;
            Ok(true)
        })
    };
    if !matches!(ended, Ok(true)) {
        // SQLite leaves its journal behind on a full disk.
        let _ = fs::remove_file(&part);
        remove_journal(&part);
    }
    ended
}

/// Copies the database to the temporary file.
async fn copy(
    store: &Store,
    from: &Path,
    file: &Path,
    part: &Path,
    stop: &CancellationToken,
) -> Result<(), BackupError> {
    // Give the copy the database's permissions.
    let mode = from.metadata().map_or(0o600, |found| found.mode() & 0o777);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    // SQLite would report a missing folder as "unable to open database".
    options.open(part).map_err(at(WHAT, file))?;
    store.backup(part, stop).await.map_err(|error| match error {
        // The disk that is full is the copy's, not the database's; SQLite does not distinguish them.
        StoreError::Full => at(WHAT, file)(ErrorKind::StorageFull.into()),
        error => error.into(),
    })
}

/// Renames the copy into place.
fn rename_into_place(part: &Path, file: &Path, overwrite: bool) -> io::Result<()> {
    File::open(part)?.sync_all()?;
    let linked = if overwrite {
        // A hard link cannot replace an existing file, so go straight to the rename.
        Err(ErrorKind::Unsupported.into())
    } else {
        // Unlike a rename, a hard link fails if another process created the file in the meantime.
        fs::hard_link(part, file)
    };
    match linked {
        Ok(()) => fs::remove_file(part),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
        Err(_) => fs::rename(part, file),
    }?;
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn remove_journal(part: &Path) {
    let _ = fs::remove_file(part.with_extension("part-journal"));
}

/// An exclusive lock on a file name, released on drop or when the process exits. The lock is on a separate empty file,
/// because some file systems do not allow writes to a locked file.
struct FileLock {
    _file: File,
    path: PathBuf,
}

impl FileLock {
    /// Acquires the lock; returns `None` if another process holds it.
    fn acquire(name: &Path) -> Result<Option<Self>, BackupError> {
        let path = with_suffix(name, ".lock");
        let failed = || at("lock", &path);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        for _ in 0..LOCK_TRIES {
            let file = options.open(&path).map_err(failed())?;
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => {}
                // The previous holder deleted the lock file after it was opened here.
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => tracing::warn!(
                    %error,
                    "could not lock the file: do not run two backups to `{}` at once",
                    name.display()
                ),
            }
            return Ok(Some(Self { _file: file, path }));
        }
        Ok(None)
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Deleted before the lock is released; a leftover lock file is reused.
        let _ = fs::remove_file(&self.path);
    }
}

/// Maximum number of attempts to open and lock the file. An attempt is repeated only if another process deletes the
/// lock file before it is locked here.
const LOCK_TRIES: u32 = 100;
