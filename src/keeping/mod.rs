//! Copies of a database, and copies put in its place.
//!
//! What enters is a database and the name of a file; what leaves is a whole copy under that name, or a database that
//! is what the copy was. Whoever looks at any moment finds a whole file or none, and a whole database, the former or
//! the new one. SQLite copies itself; PostgreSQL has programs for it, which are run (`tools`).

pub mod backup;
pub mod restore;
mod server;
mod tools;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::placing::{is_at, is_full};
use crate::store::StoreError;

/// Why a database could not be copied or put back.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
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
    /// A program of PostgreSQL is not installed.
    #[error(
        "run `{program}`: there is none for a server of version {server} on this machine{found}; install \
         PostgreSQL's client programs of version {server} or later (Debian: `apt install postgresql-client`), or put \
         their folder into PATH"
    )]
    NoTool {
        /// The program.
        program: &'static str,
        /// The server's major version.
        server: u32,
        /// Those that were found, in words, or nothing.
        found: String,
    },
    /// A program of PostgreSQL failed.
    #[error("{what}: `{program}` ended with an error: {said}")]
    Tool {
        /// What was being done.
        what: &'static str,
        /// The program.
        program: &'static str,
        /// What it said.
        said: String,
    },
    /// The file is no backup of this kind of database.
    #[error("restore `{path}`: {why}")]
    NoBackup {
        /// The file.
        path: PathBuf,
        /// What it is, and what to do.
        why: String,
    },
    /// There is something in the database already.
    #[error(
        "restore into `{0}`: that database is not empty; name another one with --database, or replace what it holds \
         with --overwrite"
    )]
    NotEmpty(String),
    /// Another program uses the database.
    #[error("restore into `{url}`: {by}; stop what uses it, and run the command again")]
    InUse {
        /// Without its password.
        url: String,
        /// Who does, as far as that is known.
        by: String,
    },
}

impl KeepError {
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
fn at<'p>(what: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> KeepError + use<'p> {
    let path = path.to_owned();
    move |source| KeepError::File { what, path, source }
}

/// A name under which this process makes a file, and no other one does. It is given back when this is dropped, or when the
/// process dies: the lock is on an empty file beside it, because some disks let nobody write to a file that is locked.
struct Hold {
    _locked: File,
    path: PathBuf,
}

impl Hold {
    /// `None` while another process has it.
    fn of(name: &Path) -> Result<Option<Self>, KeepError> {
        let path = with_suffix(name, ".lock");
        let failed = || at("lock", &path);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        for _ in 0..TURNS {
            let locked = options.open(&path).map_err(failed())?;
            match locked.try_lock() {
                Ok(()) if is_at(&locked, &path) => {}
                // Whoever had it took it away in between.
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => tracing::warn!(
                    %error,
                    "this disk has no locks: see to it that no two processes make `{}`",
                    name.display()
                ),
            }
            return Ok(Some(Self {
                _locked: locked,
                path,
            }));
        }
        Ok(None)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Before the lock goes. What stays is empty, and the next one takes it.
        let _ = fs::remove_file(&self.path);
    }
}

/// How often another process may come and go while a lock is taken: more than happens by chance.
const TURNS: u32 = 100;

/// The name of a file with something behind it.
fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Waits until the disk has a file, and then its name.
fn settle(file: &Path) -> io::Result<()> {
    std::fs::File::open(file)?.sync_all()
}

/// Waits until the disk has the names in the folder of a file.
fn settle_folder(file: &Path) -> io::Result<()> {
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    settle(folder.unwrap_or(Path::new(".")))
}
