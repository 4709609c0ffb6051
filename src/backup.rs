//! A whole copy of a SQLite database in one file, as of one moment, whoever else writes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use crate::atomic_file::{is_at, is_full, with_suffix};
use topicmill_core::FailureKind;
use topicmill_store::{Address, Store, StoreError};

const WHAT: &str = "copy the database to";

/// Why a database could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database is on a server.
    #[error(
        "copy the database: it is on a PostgreSQL server, whose `pg_dump` copies it (docs/retention.md)"
    )]
    OnServer,
    /// There is a file of that name.
    #[error("copy the database to `{0}`: there is such a file; name another one")]
    Exists(PathBuf),
    /// The copy would take the place of what is copied.
    #[error("copy the database to `{0}`: it is the database itself; name another file")]
    Itself(PathBuf),
    /// Another process writes a copy to the same file.
    #[error(
        "copy the database to `{0}`: another process copies a database to it; wait for it, or name another file"
    )]
    Busy(PathBuf),
    /// A file or folder.
    #[error("{what} `{path}`: {source}; {}", remedy(.source))]
    File {
        /// What was being done.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
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

    /// Whether a disk had no room for a copy.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::File { source, .. } if is_full(source))
    }
}

/// What to do about a file or folder.
fn remedy(error: &io::Error) -> &'static str {
    if is_full(error) {
        "free some space there, or name another place, and run the command again"
    } else {
        "check its name, its folder and your rights to them"
    }
}

/// Names what was done to a file or folder when it failed.
fn at<'p>(what: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> BackupError + use<'p> {
    let path = path.to_owned();
    move |source| BackupError::File { what, path, source }
}

/// Copies a database to a file that is not there yet. A copy that is not finished has another name. If its process died,
/// the next copy to that file deletes it. False, and no copy, if `stop` was cancelled first.
///
/// # Errors
/// See [`BackupError`]; then there is no file.
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
    if address.has(file) {
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
    // SQLite would take it for the journal of this copy.
    remove_journal(&part);
    let copied = copy(store, from, file, &part, stop).await;
    // What went wrong because of the signal is no error.
    let ended = if stop.is_cancelled() {
        Ok(false)
    } else {
        copied.and_then(|()| {
            rename_into_place(&part, file, overwrite).map_err(at(WHAT, file))?;
            Ok(true)
        })
    };
    if !matches!(ended, Ok(true)) {
        // SQLite leaves its journal on a full disk.
        let _ = fs::remove_file(&part);
        remove_journal(&part);
    }
    ended
}

/// Writes the copy under its temporary name.
async fn copy(
    store: &Store,
    from: &Path,
    file: &Path,
    part: &Path,
    stop: &CancellationToken,
) -> Result<(), BackupError> {
    // A copy is no more open than what it is a copy of.
    let mode = from.metadata().map_or(0o600, |found| found.mode() & 0o777);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    // SQLite would say of a folder that is missing that it cannot open a database.
    options.open(part).map_err(at(WHAT, file))?;
    store.backup(part, stop).await.map_err(|error| match error {
        // The copy's disk, not the database's: SQLite does not say which.
        StoreError::Full => at(WHAT, file)(ErrorKind::StorageFull.into()),
        error => error.into(),
    })
}

/// Gives the copy its name.
fn rename_into_place(part: &Path, file: &Path, overwrite: bool) -> io::Result<()> {
    File::open(part)?.sync_all()?;
    let linked = if overwrite {
        // To rename one of two names of a file to the other would do nothing, so there is no link first.
        Err(ErrorKind::Unsupported.into())
    } else {
        // Unlike a rename, a link does not replace what came under that name meanwhile.
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

/// A name under which this process alone makes a file, until this is dropped or the process dies: the lock is on an empty
/// file next to it, because some disks let nobody write to a file that is file.
struct FileLock {
    _file: File,
    path: PathBuf,
}

impl FileLock {
    /// `None` while another process has it.
    fn acquire(name: &Path) -> Result<Option<Self>, BackupError> {
        let path = with_suffix(name, ".lock");
        let failed = || at("lock", &path);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        for _ in 0..LOCK_TRIES {
            let file = options.open(&path).map_err(failed())?;
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => {}
                // The process that had it deleted it in between.
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => tracing::warn!(
                    %error,
                    "this disk has no locks: see to it that no two processes make `{}`",
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
        // Before the lock goes. What stays is empty, and the next one takes it.
        let _ = fs::remove_file(&self.path);
    }
}

/// How often another process may come and go while a lock is taken: more than happens by chance.
const LOCK_TRIES: u32 = 100;
